// The host's side of operations.c: POSIX, in a directory.

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static int open_files[SLOTS];

static int side_begin(const char *directory) {
    umask(0);
    for (size_t slot = 0; slot < SLOTS; slot++) open_files[slot] = -1;
    int entered = chdir(directory);
    if (entered < 0) perror(directory);
    return entered;
}

static int side_end(void) { return 0; }
static int at(size_t slot) { return open_files[slot]; }

// The flags are those of hectare_file_open, which opens regular files only.
static int side_open(size_t slot, const char *path, uint32_t flags, uint32_t mode) {
    if (open_files[slot] >= 0) close(open_files[slot]);
    open_files[slot] = -1;
    int how = O_NOCTTY | O_NONBLOCK;
    how |= (flags & 3) == 3 ? O_RDWR : (flags & 2) ? O_WRONLY : O_RDONLY;
    if (flags & 4) how |= O_CREAT;
    if (flags & 8) how |= O_CREAT | O_EXCL;
    if (flags & 16) how |= O_TRUNC;
    int opened = open(path, how, mode);
    if (opened < 0) return -1;
    struct stat stat;
    if (fstat(opened, &stat) == 0 && S_ISDIR(stat.st_mode)) {
        close(opened);
        errno = EISDIR;
        return -1;
    }
    open_files[slot] = opened;
    return 0;
}

static int side_close(size_t slot) {
    int closed = close(at(slot));
    open_files[slot] = -1;
    return closed;
}

static int64_t side_read(size_t slot, uint8_t *to, size_t len, uint64_t from) {
    return pread(at(slot), to, len, (off_t)from);
}

static int64_t side_write(size_t slot, const uint8_t *from, size_t len, uint64_t to) {
    return pwrite(at(slot), from, len, (off_t)to);
}

// A file that is not open for writing is EBADF first: ftruncate says EINVAL, fallocate that a range is empty.
static int writable(size_t slot) {
    int how = fcntl(at(slot), F_GETFL);
    if (how < 0 || (how & O_ACCMODE) != O_RDONLY) return 1;
    errno = EBADF;
    return 0;
}

static int side_truncate(size_t slot, uint64_t len) {
    return writable(slot) ? ftruncate(at(slot), (off_t)len) : -1;
}

static int side_allocate(size_t slot, uint64_t from, uint64_t len) {
    return writable(slot) ? fallocate(at(slot), 0, (off_t)from, (off_t)len) : -1;
}

static int side_punch(size_t slot, uint64_t from, uint64_t len) {
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    return writable(slot) ? fallocate(at(slot), mode, (off_t)from, (off_t)len) : -1;
}

static int side_sync(size_t slot) { return fsync(at(slot)); }

static int given(int failed, const struct stat *stat, struct found *found) {
    if (failed < 0) return failed;
    *found = (struct found){
        .mode = stat->st_mode,
        .size = (uint64_t)stat->st_size,
        .nlink = stat->st_nlink,
        .atime = stat->st_atim.tv_sec,
        .mtime = stat->st_mtim.tv_sec,
        .atime_nanoseconds = (uint32_t)stat->st_atim.tv_nsec,
        .mtime_nanoseconds = (uint32_t)stat->st_mtim.tv_nsec,
        .uid = stat->st_uid,
        .gid = stat->st_gid,
    };
    return 0;
}

static int side_fstat(size_t slot, struct found *found) {
    struct stat stat;
    return given(fstat(at(slot), &stat), &stat, found);
}

static int side_stat(const char *path, int follow, struct found *found) {
    struct stat buffer;
    return given(fstatat(AT_FDCWD, path, &buffer, follow ? 0 : AT_SYMLINK_NOFOLLOW), &buffer, found);
}

static int64_t side_read_path(const char *path, uint8_t *to, size_t len) {
    int opened = open(path, O_RDONLY | O_NONBLOCK);
    if (opened < 0) return -1;
    int64_t some = pread(opened, to, len, 0);
    int error = errno;
    close(opened);
    errno = error;
    return some;
}

static int side_utimes(const char *path, int follow, uint64_t seconds, uint64_t nanoseconds) {
    struct timespec times[2] = {
        {.tv_sec = (time_t)seconds, .tv_nsec = (long)nanoseconds},
        {.tv_sec = (time_t)seconds / 2, .tv_nsec = (long)nanoseconds / 3},
    };
    return utimensat(AT_FDCWD, path, times, follow ? 0 : AT_SYMLINK_NOFOLLOW);
}

static int side_mkdir(const char *path, uint32_t mode) { return mkdir(path, mode); }
static int side_unlink(const char *path) { return unlink(path); }
static int side_rmdir(const char *path) { return rmdir(path); }
static int side_rename(const char *from, const char *to) { return rename(from, to); }

// The flags have the values of hectare.h.
static int side_rename_with(const char *from, const char *to, uint32_t flag) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, flag);
}

static int side_link(const char *from, const char *to) { return link(from, to); }
static int side_symlink(const char *target, const char *path) { return symlink(target, path); }
static int side_chmod(const char *path, uint32_t mode) { return chmod(path, mode); }

static int side_chown(const char *path, int follow, uint32_t uid, uint32_t gid) {
    return follow ? chown(path, uid, gid) : lchown(path, uid, gid);
}

static intptr_t side_readlink(const char *path, uint8_t *to, size_t len) {
    return readlink(path, (char *)to, len);
}

static int side_setxattr(const char *path, const char *name, const uint8_t *value, size_t len) {
    return setxattr(path, name, value, len, 0);
}

static int64_t side_getxattr(const char *path, const char *name, uint8_t *to, size_t len) {
    return getxattr(path, name, to, len);
}

static int side_removexattr(const char *path, const char *name) { return removexattr(path, name); }

static int side_list(const char *path, struct entry *to, int room) {
    DIR *directory = opendir(path);
    if (directory == NULL) return -1;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL && count < room;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        memcpy(to[count].name, entry->d_name, strlen(entry->d_name) + 1);
        to[count++].kind = entry->d_type;
    }
    closedir(directory);
    return count;
}
