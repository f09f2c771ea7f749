// Hectare: ext2, ext3 and ext4 volumes from user space, for C and C++.
//
// Every function that fails returns -1, or NULL where it returns a handle; errno and hectare_errno() then say why,
// and hectare_message() in one line of text. Which number means what is a table in docs/library.md.
//
// Handles may be used from any number of threads at once. They are no addresses: one that was closed, twice or
// never opened is an error (EBADF), and so is NULL as a handle. NULL for anything else that is needed is EFAULT; a
// buffer may be NULL if its length is 0.
//
// Paths are those of the volume: bytes, separated by '/', from its root, whether or not they begin with '/'.
// Symbolic links are followed inside the volume; where one at the end of a path is not, the function says so.
// Permissions are not checked, and there is no umask. What is made belongs to user 0 and group 0.
//
// Generated from the Rust sources; HECTARE_BLESS=1 cargo test -p hectare-capi writes it anew.

#ifndef HECTARE_H
#define HECTARE_H

#include <stddef.h>
#include <stdint.h>

// The version of this interface: another number is another interface.
#define HECTARE_ABI 0

// For hectare_build: the smallest size that holds everything.
#define HECTARE_SIZE_MINIMAL 0

// For hectare_build: a tenth more than the smallest.
#define HECTARE_SIZE_AMPLE 1

// What hectare_check_with() returns: nothing is wrong, and all was judged.
#define HECTARE_SOUND 0

// What hectare_check_with() returns: something is wrong.
#define HECTARE_UNSOUND 1

// What hectare_check_with() returns: nothing that was judged is wrong, but something was not judged.
#define HECTARE_UNJUDGED 2

// For `found` of hectare_check_options: the line is about something that is wrong.
#define HECTARE_FOUND_PROBLEM 0

// For `found` of hectare_check_options: the line names something that could not be judged.
#define HECTARE_FOUND_UNJUDGED 1

// For `found` of hectare_check_options: the line is about something that is no problem, since it is put
// right whenever the volume is opened for writing.
#define HECTARE_FOUND_NOTE 2

// For hectare_file_open: for reading.
#define HECTARE_READ 1

// For hectare_file_open: for writing.
#define HECTARE_WRITE 2

// For hectare_file_open: the file is made if there is none. Needs HECTARE_WRITE.
#define HECTARE_CREATE 4

// For hectare_file_open: the file is made, and must not exist (EEXIST), nor a link of that name. Needs
// HECTARE_WRITE, and not HECTARE_CREATE.
#define HECTARE_EXCLUSIVE 8

// For hectare_file_open: the content is removed. Needs HECTARE_WRITE.
#define HECTARE_TRUNCATE 16

// For hectare_rename_with: the new name must not exist (EEXIST).
#define HECTARE_RENAME_NOREPLACE 1

// For hectare_rename_with: both names must exist, and change places.
#define HECTARE_RENAME_EXCHANGE 2

// For hectare_open: for reading only.
#define HECTARE_READ_ONLY 0

// For hectare_open: for reading and writing.
#define HECTARE_READ_WRITE 1

// A directory that is listed.
typedef struct hectare_dir hectare_dir;

// An open regular file, without a position.
typedef struct hectare_file hectare_file;

// An open volume.
typedef struct hectare_volume hectare_volume;

// How an image is built. hectare_build_defaults() sets it up; then change what is to differ.
typedef struct {
  // sizeof(hectare_build_options): another size is another interface, and refused.
  uintptr_t struct_size;
  // HECTARE_SIZE_AMPLE, HECTARE_SIZE_MINIMAL, or bytes of the image.
  uint64_t size;
  // Bytes that are to be free, beside the content; not 0 only with HECTARE_SIZE_AMPLE.
  uint64_t free;
  // With a second since 1970 that is not negative no time is later, and the same sources give the same
  // image. -1: times and the UUID are as they come.
  int64_t source_date_epoch;
  // As in hectare_mkfs_options.
  const char *fs_type;
  // As in hectare_mkfs_options.
  const char *label;
  // As in hectare_mkfs_options.
  const char *features;
  // 16 bytes; NULL: random, or by the content with a `source_date_epoch`.
  const uint8_t *uuid;
  // What is left out: patterns as in .gitignore.
  const char *const *exclude;
  // How many there are.
  uintptr_t exclude_count;
  // As in hectare_mkfs_options.
  uint32_t block_size;
  // Who owns everything; 4294967295 in both: as in the sources.
  uint32_t uid;
  // The group of everything.
  uint32_t gid;
  // Not 0: a file that is there is replaced.
  int replace;
  // Called with `user` once before anything is read, when the first and the last piece of a step is done,
  // and about ten times a second between, whether or not there is progress; by one thread at a time but by
  // any. `done` is how much of the step is done, and begins anew with each; `total` is how much there is,
  // UINT64_MAX where that is not known, and 0 where there is nothing to do. hectare_progress_step() has
  // the name of the step. Anything but 0 cancels the call at its next checkpoint: it fails with ECANCELED
  // and leaves no file, or has passed the last one and succeeds. NULL: none.
  int (*progress)(void *user, uint64_t done, uint64_t total);
  // What `progress` is called with.
  void *user;
} hectare_build_options;

// How a volume is checked. hectare_check_defaults() sets it up; then change what is to differ.
typedef struct {
  // sizeof(hectare_check_options): another size is another interface, and refused.
  uintptr_t struct_size;
  // How many problems `found` is called with, the first ones; all are counted. 1000, unless changed.
  uint32_t problems_max;
  // Threads that read the volume; 0: one for each processor.
  uint32_t threads;
  // Not 0: a journal that must be replayed, as after a crash, is no problem.
  int allow_recovery;
  // Not 0: inodes that wait for their removal, as after a crash, are no problem.
  int allow_orphans;
  // Called with `user` and each finding in a line, after the check, by the thread that checks: `what` is
  // HECTARE_FOUND_PROBLEM, HECTARE_FOUND_UNJUDGED or HECTARE_FOUND_NOTE; more may come. The line is gone
  // when it returns. NULL: none.
  void (*found)(void *user, uint32_t what, const char *line);
  // As in hectare_build_options, without the call at the beginning; a check that finds something
  // may go through its steps anew. A call that was cancelled fails with ECANCELED. NULL: none.
  int (*progress)(void *user, uint64_t done, uint64_t total);
  // What `found` and `progress` are called with.
  void *user;
} hectare_check_options;

// What a check counted.
typedef struct {
  // Problems, with those that `found` was not called with.
  uint64_t problems;
  // Things that were not judged.
  uint64_t unjudged;
  // Notes.
  uint64_t notes;
  // Inodes in use, the reserved ones included.
  uint64_t inodes;
  // Directories among them.
  uint64_t directories;
} hectare_check_counts;

// Storage of the caller's. Each function returns 0 or an errno value; what is none, such as -1, counts as
// EIO.
//
// The struct is copied: it may be gone when the call returns that it was given to. `user` must stay until
// `release`, which is called once: when the volume and everything opened in it is closed, or at the end of a
// call that opens nothing (hectare_mkfs_device(), hectare_check_device()), and also if the call fails. The
// one exception is a struct that is wrong itself: NULL, another `struct_size`, no `read`; then nothing is
// called.
//
// The functions are called with `user` from any thread and from several at once, the same one included, also
// on the same bytes: what is read beside a write may be a mix of old and new. Offsets and lengths are bytes
// inside `size`, and multiples of nothing in particular. A function must return: no longjmp and no exception
// out of it, and no call of this library on the volume that it is the storage of.
//
// Nothing locks storage of the caller's: one that is open for writing must not be opened a second time.
typedef struct {
  // sizeof(hectare_device): another size is another interface, and refused.
  uintptr_t struct_size;
  // What every function is called with.
  void *user;
  // Bytes that there are. Any number: a new volume takes whole pages of 4096 bytes, at least six of them.
  uint64_t size;
  // Fills `to` with `len` bytes from offset `at`.
  int (*read)(void *user, uint8_t *to, uintptr_t len, uint64_t at);
  // Writes `len` bytes at offset `at`; NULL for storage that can only be read: opening it for writing, and
  // making a volume on it, fails with EROFS.
  int (*write)(void *user, const uint8_t *from, uintptr_t len, uint64_t at);
  // Makes durable what was written by calls that returned before; NULL if it is as soon as `write`
  // returns.
  int (*flush)(void *user);
  // Called once, when nothing uses the storage any more, by any thread; may be NULL.
  void (*release)(void *user);
} hectare_device;

// An entry of a directory.
typedef struct {
  // The number of the inode.
  uint64_t ino;
  // What it is, as in d_type of readdir(3): 1 a pipe, 2 and 6 a character and a block device, 4 a
  // directory, 8 a file, 10 a symbolic link, 12 a socket. Never 0: where directories do not say it
  // (without the feature `filetype`), it is read from the inode.
  uint32_t kind;
  // Bytes of the name: 1 to 255.
  uint32_t name_len;
  // The name, with a NUL behind it. What stands for a name of an encrypted directory may be longer, and is
  // cut.
  uint8_t name[256];
} hectare_dirent;

// A time: seconds since 1970, and nanoseconds.
typedef struct {
  // Seconds since 1970.
  int64_t seconds;
  // 0 to 999,999,999.
  uint32_t nanoseconds;
  // 0.
  uint32_t reserved;
} hectare_time;

// What an inode says of its file.
typedef struct {
  // The number of the inode.
  uint64_t ino;
  // Bytes of content.
  uint64_t size;
  // 512-byte sectors in use.
  uint64_t blocks;
  // Hard links.
  uint64_t nlink;
  // Kind and permissions, as st_mode.
  uint32_t mode;
  // Owner.
  uint32_t uid;
  // Group.
  uint32_t gid;
  // The volume's block size in bytes.
  uint32_t blksize;
  // Major number of a device.
  uint32_t rdev_major;
  // Minor number of a device.
  uint32_t rdev_minor;
  // Last access.
  hectare_time atime;
  // Last change of the content.
  hectare_time mtime;
  // Last change of the inode.
  hectare_time ctime;
  // Creation; 0 if inodes have no room for it.
  hectare_time btime;
} hectare_stat;

// How an empty volume is made. hectare_mkfs_defaults() sets it up; then change what is to differ.
typedef struct {
  // sizeof(hectare_mkfs_options): another size is another interface, and refused.
  uintptr_t struct_size;
  // "ext2", "ext3" or "ext4"; NULL: ext4.
  const char *fs_type;
  // The label, up to 16 bytes; NULL: none.
  const char *label;
  // Features by their names in mke2fs, separated by commas, `^` before what is left out; NULL: those of
  // the type.
  const char *features;
  // 16 bytes; NULL: random.
  const uint8_t *uuid;
  // How many inodes there are at least; 0: by size.
  uint64_t inodes;
  // Bytes of a block: a power of two from 1024 to 65536; 0: by size.
  uint32_t block_size;
  // Percent of the blocks that only root may take: 0 to 50. 5, unless changed.
  uint32_t reserved_percent;
  // Permission bits of the root directory. 0755, unless changed.
  uint32_t root_mode;
  // Who owns the root directory.
  uint32_t root_uid;
  // The group of the root directory.
  uint32_t root_gid;
  // Not 0: a file or a volume that is there is replaced.
  int replace;
  // As in hectare_build_options, without the call at the beginning. A call that was cancelled fails
  // with ECANCELED: there is no new file, and one that was to be replaced is as it was; a device is as it
  // was, or holds no volume. NULL: none.
  int (*progress)(void *user, uint64_t done, uint64_t total);
  // What `progress` is called with.
  void *user;
} hectare_mkfs_options;

// How full a volume is.
typedef struct {
  // Bytes for content, free or not.
  uint64_t total;
  // Free bytes, those reserved for root included.
  uint64_t free;
  // Free bytes for everyone.
  uint64_t available;
  // Inodes, free or not.
  uint64_t inodes;
  // Free inodes.
  uint64_t free_inodes;
  // Bytes of a block.
  uint32_t block_size;
  // 0.
  uint32_t reserved;
} hectare_space;

// Who a volume is.
typedef struct {
  // The UUID.
  uint8_t uuid[16];
  // The label, up to 16 bytes, with a NUL behind it; empty if there is none.
  uint8_t label[24];
} hectare_identity;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the interface that the library has: a program that was compiled for another must not use
// it.
uint32_t hectare_abi(void);

// Sets options to what hectare_build_with() does with NULL: an ext4 volume of ample size, of everything in
// the sources, in a file that must not exist. `size` is sizeof(hectare_build_options).
int hectare_build_defaults(hectare_build_options *to,
                           uintptr_t size);

// Makes an image of `count` sources in layers, of which later ones win: each a directory, a tar archive, or
// a container image (`oci:DIR[:TAG]`, `oci-archive:FILE`, `docker-archive:FILE`). The file gets its name
// when it is complete, and until then there is none. `options` may be NULL. Returns the size in bytes.
// ENOENT for a source that is not there, EEXIST for an image that is and is not to be replaced, EBUSY for one
// that somebody writes to, EINVAL for a size that does not hold everything.
int64_t hectare_build_with(const char *const *sources,
                           uintptr_t count,
                           const char *image,
                           const hectare_build_options *options);

// hectare_build_with() with three options: `size`, `source_date_epoch` (negative: none) and `replace`.
int64_t hectare_build(const char *const *sources,
                      uintptr_t count,
                      const char *image,
                      uint64_t size,
                      int64_t source_date_epoch,
                      int replace);

// Checks the volume in a file, without changing it, and calls `problem` (which may be NULL) with `user` and
// each of the first 1000 problems in a line, which is gone when it returns. Returns how many there are. 0 is
// no problem in what could be judged: whether that was all, hectare_check_with() says. A broken volume is no
// error; EBUSY says that the file is open for writing.
int64_t hectare_check(const char *image,
                      void (*problem)(void *user, const char *line),
                      void *user);

// Sets options to what hectare_check_with() does with NULL. `size` is sizeof(hectare_check_options).
int hectare_check_defaults(hectare_check_options *to,
                           uintptr_t size);

// Checks the volume in a file or on a block device, without changing it. Returns HECTARE_SOUND,
// HECTARE_UNSOUND or HECTARE_UNJUDGED, or -1 if it can't be checked. `options` and `to` may be NULL.
int hectare_check_with(const char *image,
                       const hectare_check_options *options,
                       hectare_check_counts *to);

// hectare_check_with() for storage of the caller's, which is released afterwards. `write` is not called. The
// volume must not be open meanwhile.
int hectare_check_device(const hectare_device *from,
                         const hectare_check_options *options,
                         hectare_check_counts *to);

// Opens the volume on storage of the caller's, which is used until the volume, and everything opened in
// it, is closed. NULL if it can't; `release` was called then, unless the struct itself was wrong.
hectare_volume *hectare_open_device(const hectare_device *from,
                                    uint32_t flags);

// Opens a directory to list it; a link at the end of the path is followed. Any number of listings may be
// open, each at its own entry.
hectare_dir *hectare_opendir(hectare_volume *volume,
                             const char *path);

// The next entry, into `to`: 1 if there was one, 0 at the end, -1 on an error; the next call continues with the
// entry behind it, or gives 0 where the directory can't be read. `.` and `..` are left out. The order is that
// of the directory, by hash or as it lies, not by name.
//
// Names may change meanwhile, also by the caller: one that is there from hectare_opendir() to the end comes
// exactly once, one that is added or removed in between once or not at all.
int hectare_readdir(hectare_dir *directory,
                    hectare_dirent *to);

// Ends the listing.
int hectare_closedir(hectare_dir *directory);

// The number of the last error of this thread, as Linux numbers them; 0 if there was none. errno has the
// same number when a call returns that failed, and may change later by anything, also by a call of this
// library that does not fail; this number is changed by the next one of this thread that does.
int hectare_errno(void);

// The text of the last error of this thread: one line that names the file and the reason; "" if there was
// none, never NULL. It stays until the next call of this thread that fails, or the thread ends; the caller
// must not free it.
const char *hectare_message(void);

// Opens a regular file; a link at the end of the path is followed, also one that leads to nothing if the
// file is made. Flags are a sum of HECTARE_READ, HECTARE_WRITE or both with any of the others; EINVAL for
// what makes no sense. A file that is made gets the permission bits of `mode` (07777), which else counts for
// nothing. EISDIR for a directory, EINVAL for a device, pipe or socket.
hectare_file *hectare_file_open(hectare_volume *volume,
                                const char *path,
                                uint32_t flags,
                                uint32_t mode);

// Reads up to `len` bytes from offset `at`; returns how many: fewer at the end of the file only, 0 behind
// it. EBADF if the file is not open for reading.
intptr_t hectare_file_read(hectare_file *file,
                           uint8_t *to,
                           uintptr_t len,
                           uint64_t at);

// Writes `len` bytes at offset `at`; returns how many: fewer only if the volume became full or the file as
// large as the format allows, and ENOSPC or EFBIG if there is room for none. EBADF if the file is not open for
// writing, as for all that changes it.
intptr_t hectare_file_write(hectare_file *file,
                            const uint8_t *from,
                            uintptr_t len,
                            uint64_t at);

// Makes the file that long; what is added reads as zeros.
int hectare_file_truncate(hectare_file *file, uint64_t len);

// Allocates space for a range of at least one byte; the file grows to its end. What was allocated before the
// volume became full (ENOSPC) stays.
int hectare_file_allocate(hectare_file *file,
                          uint64_t at,
                          uint64_t len);

// Frees the blocks of a range of at least one byte, which then reads as zeros.
int hectare_file_punch(hectare_file *file, uint64_t at, uint64_t len);

// Makes content and metadata of the file durable, whichever handle wrote them.
int hectare_file_sync(hectare_file *file);

// What the inode says.
int hectare_file_stat(hectare_file *file, hectare_stat *to);

// The first offset from `at` on that holds data, into `to`; fails with ENXIO if none follows.
int hectare_file_seek_data(hectare_file *file, uint64_t at, uint64_t *to);

// The first offset from `at` on that is in a hole, which the end of the file is, too, into `to`; fails
// with ENXIO at or beyond it.
int hectare_file_seek_hole(hectare_file *file,
                           uint64_t at,
                           uint64_t *to);

// Closes the file: its handle leads to nothing any more, also after an error, which is the first write that
// failed. What was written is placed on the volume, but not durable before hectare_file_sync(),
// hectare_sync() or hectare_close(). A file that was removed while it was open is gone with its last handle.
int hectare_file_close(hectare_file *file);

// Sets options to what hectare_mkfs_with() does with NULL: an ext4 volume, in a file that must not exist.
// `size` is sizeof(hectare_mkfs_options).
int hectare_mkfs_defaults(hectare_mkfs_options *to,
                          uintptr_t size);

// Makes an empty volume of `size` bytes in a new file, which gets its name when it is complete. `options`
// may be NULL.
int hectare_mkfs_with(const char *image,
                      uint64_t size,
                      const hectare_mkfs_options *options);

// hectare_mkfs_with() with three options: `label`, `features` (both may be NULL) and `replace`.
int hectare_mkfs(const char *image,
                 uint64_t size,
                 const char *label,
                 const char *features,
                 int replace);

// Makes an empty volume on storage of the caller's, as large as that is, in whole pages of 4096 bytes; the
// storage is released afterwards, also after an error. `options` may be NULL. Without `replace` storage is
// refused (EEXIST) that holds something known: a volume, a table of partitions and the like, of any kind.
// Bytes that are none of that are overwritten.
int hectare_mkfs_device_with(const hectare_device *from,
                             const hectare_mkfs_options *options);

// hectare_mkfs_device_with() with one option.
int hectare_mkfs_device(const hectare_device *from, int replace);

// What the inode at a path says; a symbolic link at the end is followed.
int hectare_stat_path(hectare_volume *volume, const char *path, hectare_stat *to);

// What the inode at a path says; a symbolic link at the end is not followed.
int hectare_lstat_path(hectare_volume *volume, const char *path, hectare_stat *to);

// Makes a directory with these permission bits. The one above it must exist (ENOENT).
int hectare_mkdir(hectare_volume *volume, const char *path, uint32_t mode);

// Makes a pipe, a socket, a device with these numbers, or an empty file: `mode` is that of mknod(2),
// permission bits and S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK or S_IFREG. Majors are below 4096, minors below
// 1048576; those of what is no device are left out.
int hectare_mknod(hectare_volume *volume,
                  const char *path,
                  uint32_t mode,
                  uint32_t major,
                  uint32_t minor);

// Removes a name; a directory's is refused (EISDIR). A file that is open stays, without a name, until it is
// closed.
int hectare_unlink(hectare_volume *volume,
                   const char *path);

// Removes an empty directory (else ENOTEMPTY); other names are refused (ENOTDIR).
int hectare_rmdir(hectare_volume *volume, const char *path);

// Renames in one step; what has the new name is removed: a directory replaces an empty directory only (else
// ENOTDIR, ENOTEMPTY), anything else replaces no directory (EISDIR). A link at the end of either path is
// renamed itself.
int hectare_rename(hectare_volume *volume,
                   const char *from,
                   const char *to);

// hectare_rename() with a flag: 0, HECTARE_RENAME_NOREPLACE or HECTARE_RENAME_EXCHANGE.
int hectare_rename_with(hectare_volume *volume, const char *from, const char *to, uint32_t flag);

// Copies the content and the permissions of a regular file to another, which is made or replaced; returns
// the bytes. Links at the end of either path are followed, holes stay holes. A copy that failed leaves what
// was written.
int64_t hectare_copy(hectare_volume *volume,
                     const char *from,
                     const char *to);

// Gives a file a second name, which must not exist (EEXIST). A link at the end of `from` is not followed: it
// gets the second name itself. Directories are refused (EPERM).
int hectare_link(hectare_volume *volume,
                 const char *from,
                 const char *to);

// Makes a symbolic link at `path` that leads to `target`, which need not exist.
int hectare_symlink(hectare_volume *volume, const char *target, const char *path);

// Where a symbolic link leads, into `to`, cut to `len` bytes and without a NUL; returns the whole length,
// also if `len` is 0, when `to` may be NULL.
intptr_t hectare_readlink(hectare_volume *volume,
                          const char *path,
                          uint8_t *to,
                          uintptr_t len);

// The path from the root without links, `.` and `..` of what is at a path, with a NUL behind it, into `to`;
// returns its length with the NUL, also if `len` is 0, when `to` may be NULL. ERANGE if the buffer is too
// small.
intptr_t hectare_realpath(hectare_volume *volume,
                          const char *path,
                          uint8_t *to,
                          uintptr_t len);

// Changes the permission bits; links are followed.
int hectare_chmod(hectare_volume *volume, const char *path, uint32_t mode);

// Changes owner and group; a link at the end is followed. 4294967295 leaves one as it is.
int hectare_chown(hectare_volume *volume, const char *path, uint32_t uid, uint32_t gid);

// Changes owner and group of what is at a path itself; 4294967295 leaves one as it is.
int hectare_lchown(hectare_volume *volume, const char *path, uint32_t uid, uint32_t gid);

// Changes the times; a link at the end is followed. NULL leaves one as it is.
int hectare_utimes(hectare_volume *volume,
                   const char *path,
                   const hectare_time *atime,
                   const hectare_time *mtime);

// Changes the times of what is at a path itself; NULL leaves one as it is.
int hectare_lutimes(hectare_volume *volume,
                    const char *path,
                    const hectare_time *atime,
                    const hectare_time *mtime);

// In a function `progress`: the name of the step that it is called for; elsewhere "". Building has "sources"
// (names, when all are read) and "data" (bytes of files); making a volume "discard" (bytes) and "structures"
// (chunks of groups); checking "inodes" and "bitmaps" (groups) and "directories". "begin" is none of them
// yet. The text is never freed. More names may come.
const char *hectare_progress_step(void);

// Opens the volume in a file or on a block device, and locks that: for reading any number may have it open
// at once, for writing one (EBUSY), in this program as in others. NULL if it can't. A journal that must be
// replayed is; in memory only if the volume is opened for reading.
hectare_volume *hectare_open(const char *image,
                             uint32_t flags);

// Makes everything durable and closes the volume: its handle leads to nothing any more, also after an error.
// Files and directories of it that are open stay readable, and keep the image locked until they are closed;
// those that have lost their last name are freed, and calls with them fail with ESTALE.
int hectare_close(hectare_volume *volume);

// Makes all changes durable.
int hectare_sync(hectare_volume *volume);

// How full a volume is.
int hectare_statfs(hectare_volume *volume, hectare_space *to);

// The UUID and the label of an open volume.
int hectare_identify(hectare_volume *volume, hectare_identity *to);

// Changes the label, durably: up to 16 bytes; empty: none.
int hectare_set_label(hectare_volume *volume, const char *label);

// The value of an attribute, into `to`; returns its length, also if `len` is 0, when `to` may be NULL.
// ERANGE if the buffer is too small, ENODATA if there is no such attribute. A link at the end of the path is
// followed.
intptr_t hectare_getxattr(hectare_volume *volume,
                          const char *path,
                          const char *name,
                          uint8_t *to,
                          uintptr_t len);

// The names of the attributes, each with a NUL behind it, into `to`; returns their length, also if `len` is
// 0, when `to` may be NULL. A link at the end of the path is followed.
intptr_t hectare_listxattr(hectare_volume *volume,
                           const char *path,
                           uint8_t *to,
                           uintptr_t len);

// Sets an attribute, new or not. A link at the end of the path is followed. `value` may be NULL if `len` is
// 0. ENOSPC if it does not fit; EOPNOTSUPP if the name does not begin with "user.", "trusted.", "security."
// or "system.posix_acl_".
int hectare_setxattr(hectare_volume *volume,
                     const char *path,
                     const char *name,
                     const uint8_t *value,
                     uintptr_t len);

// Removes an attribute. A link at the end of the path is followed.
int hectare_removexattr(hectare_volume *volume, const char *path, const char *name);

// hectare_getxattr() of what is at the path itself, link or not.
intptr_t hectare_lgetxattr(hectare_volume *volume,
                           const char *path,
                           const char *name,
                           uint8_t *to,
                           uintptr_t len);

// hectare_listxattr() of what is at the path itself, link or not.
intptr_t hectare_llistxattr(hectare_volume *volume, const char *path, uint8_t *to, uintptr_t len);

// hectare_setxattr() of what is at the path itself, link or not. The kernel shows no "user." attributes of
// links.
int hectare_lsetxattr(hectare_volume *volume,
                      const char *path,
                      const char *name,
                      const uint8_t *value,
                      uintptr_t len);

// hectare_removexattr() of what is at the path itself, link or not.
int hectare_lremovexattr(hectare_volume *volume, const char *path, const char *name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HECTARE_H */
