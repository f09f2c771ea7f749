// What C can get wrong: each is an error, and nothing else.

#include <errno.h>
#include <hectare.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int wrong;

#define GIVES(call, failed, number)                                                                       \
    do {                                                                                                  \
        errno = 0;                                                                                        \
        long long got = (long long)(call);                                                                \
        if (got != (failed) || hectare_errno() != (number) || errno != (number)) {                        \
            printf("%s: %lld, errno %d, %s\n", #call, got, hectare_errno(), hectare_message());           \
            wrong++;                                                                                      \
        }                                                                                                 \
    } while (0)

#define EXPECT(call, number) GIVES(call, -1, number)
// Calls that give a handle.
#define REFUSED(call, number) GIVES((intptr_t)(call), 0, number)

// The calls for attributes: those that follow links, and with `l` those that do not.
#define XATTR_DEAD(l)                                                                                     \
    EXPECT(hectare_##l##getxattr(handle, "/x", "user.a", &byte, 1), EBADF);                               \
    EXPECT(hectare_##l##listxattr(handle, "/x", &byte, 1), EBADF);                                        \
    EXPECT(hectare_##l##setxattr(handle, "/x", "user.a", &byte, 1), EBADF);                               \
    EXPECT(hectare_##l##removexattr(handle, "/x", "user.a"), EBADF);

#define XATTR_NULLS(l)                                                                                    \
    EXPECT(hectare_##l##getxattr(volume, NULL, "user.a", &byte, 1), EFAULT);                              \
    EXPECT(hectare_##l##getxattr(volume, "/", NULL, &byte, 1), EFAULT);                                   \
    EXPECT(hectare_##l##listxattr(volume, NULL, &byte, 1), EFAULT);                                       \
    EXPECT(hectare_##l##setxattr(volume, NULL, "user.a", &byte, 1), EFAULT);                              \
    EXPECT(hectare_##l##setxattr(volume, "/", NULL, &byte, 1), EFAULT);                                   \
    EXPECT(hectare_##l##setxattr(volume, "/", "user.a", NULL, 7), EFAULT);                                \
    EXPECT(hectare_##l##removexattr(volume, NULL, "user.a"), EFAULT);                                     \
    EXPECT(hectare_##l##removexattr(volume, "/", NULL), EFAULT);

// Every call that takes a handle, with one that leads to nothing.
static void dead(void *handle) {
    uint8_t byte = 0;
    uint64_t at;
    hectare_stat about;
    hectare_space space;
    hectare_identity identity;
    hectare_dirent entry;
    hectare_time then = {0, 0, 0};
    REFUSED(hectare_opendir(handle, "/"), EBADF);
    EXPECT(hectare_readdir(handle, &entry), EBADF);
    EXPECT(hectare_closedir(handle), EBADF);
    REFUSED(hectare_file_open(handle, "/x", HECTARE_READ, 0), EBADF);
    EXPECT(hectare_file_read(handle, &byte, 1, 0), EBADF);
    EXPECT(hectare_file_write(handle, &byte, 1, 0), EBADF);
    EXPECT(hectare_file_truncate(handle, 0), EBADF);
    EXPECT(hectare_file_allocate(handle, 0, 1), EBADF);
    EXPECT(hectare_file_punch(handle, 0, 1), EBADF);
    EXPECT(hectare_file_sync(handle), EBADF);
    EXPECT(hectare_file_stat(handle, &about), EBADF);
    EXPECT(hectare_file_seek_data(handle, 0, &at), EBADF);
    EXPECT(hectare_file_seek_hole(handle, 0, &at), EBADF);
    EXPECT(hectare_file_close(handle), EBADF);
    EXPECT(hectare_stat_path(handle, "/", &about), EBADF);
    EXPECT(hectare_lstat_path(handle, "/", &about), EBADF);
    EXPECT(hectare_mkdir(handle, "/d", 0700), EBADF);
    EXPECT(hectare_unlink(handle, "/x"), EBADF);
    EXPECT(hectare_rmdir(handle, "/d"), EBADF);
    EXPECT(hectare_rename(handle, "/x", "/y"), EBADF);
    EXPECT(hectare_rename_with(handle, "/x", "/y", HECTARE_RENAME_EXCHANGE), EBADF);
    EXPECT(hectare_copy(handle, "/x", "/y"), EBADF);
    EXPECT(hectare_mknod(handle, "/x", 0600, 0, 0), EBADF);
    EXPECT(hectare_realpath(handle, "/x", &byte, 1), EBADF);
    EXPECT(hectare_link(handle, "/x", "/y"), EBADF);
    EXPECT(hectare_symlink(handle, "x", "/y"), EBADF);
    EXPECT(hectare_readlink(handle, "/y", &byte, 1), EBADF);
    EXPECT(hectare_chmod(handle, "/x", 0), EBADF);
    EXPECT(hectare_chown(handle, "/x", 0, 0), EBADF);
    EXPECT(hectare_lchown(handle, "/x", 0, 0), EBADF);
    EXPECT(hectare_utimes(handle, "/x", &then, &then), EBADF);
    EXPECT(hectare_lutimes(handle, "/x", &then, &then), EBADF);
    XATTR_DEAD()
    XATTR_DEAD(l)
    EXPECT(hectare_statfs(handle, &space), EBADF);
    EXPECT(hectare_identify(handle, &identity), EBADF);
    EXPECT(hectare_set_label(handle, "x"), EBADF);
    EXPECT(hectare_sync(handle), EBADF);
    EXPECT(hectare_close(handle), EBADF);
}

// Every pointer of every call that takes a volume, NULL.
static void nulls(hectare_volume *volume) {
    uint8_t byte = 0;
    hectare_stat about;
    REFUSED(hectare_opendir(volume, NULL), EFAULT);
    REFUSED(hectare_file_open(volume, NULL, HECTARE_READ, 0), EFAULT);
    EXPECT(hectare_stat_path(volume, NULL, &about), EFAULT);
    EXPECT(hectare_stat_path(volume, "/", NULL), EFAULT);
    EXPECT(hectare_lstat_path(volume, NULL, &about), EFAULT);
    EXPECT(hectare_lstat_path(volume, "/", NULL), EFAULT);
    EXPECT(hectare_stat_path(volume, "/", (hectare_stat *)((char *)&about + 1)), EFAULT);
    EXPECT(hectare_mkdir(volume, NULL, 0700), EFAULT);
    EXPECT(hectare_unlink(volume, NULL), EFAULT);
    EXPECT(hectare_rmdir(volume, NULL), EFAULT);
    EXPECT(hectare_rename(volume, NULL, "/y"), EFAULT);
    EXPECT(hectare_rename(volume, "/lost+found", NULL), EFAULT);
    EXPECT(hectare_rename_with(volume, NULL, "/y", 0), EFAULT);
    EXPECT(hectare_rename_with(volume, "/lost+found", NULL, 0), EFAULT);
    EXPECT(hectare_rename_with(volume, "/lost+found", "/y", 4), EINVAL);
    EXPECT(hectare_copy(volume, NULL, "/y"), EFAULT);
    EXPECT(hectare_copy(volume, "/lost+found", NULL), EFAULT);
    EXPECT(hectare_mknod(volume, NULL, 0600, 0, 0), EFAULT);
    EXPECT(hectare_mknod(volume, "/y", 0170600, 0, 0), EINVAL);
    EXPECT(hectare_mknod(volume, "/y", UINT32_MAX, 0, 0), EINVAL);
    EXPECT(hectare_realpath(volume, NULL, &byte, 1), EFAULT);
    EXPECT(hectare_realpath(volume, "/lost+found", NULL, 1), EFAULT);
    EXPECT(hectare_realpath(volume, "/lost+found", &byte, 1), ERANGE);
    EXPECT(hectare_realpath(volume, "/lost+found", &byte, SIZE_MAX), EINVAL);
    EXPECT(hectare_link(volume, NULL, "/y"), EFAULT);
    EXPECT(hectare_link(volume, "/x", NULL), EFAULT);
    EXPECT(hectare_symlink(volume, NULL, "/y"), EFAULT);
    EXPECT(hectare_symlink(volume, "x", NULL), EFAULT);
    EXPECT(hectare_readlink(volume, NULL, &byte, 1), EFAULT);
    if (hectare_symlink(volume, "x", "/link") != 0) wrong++;
    EXPECT(hectare_readlink(volume, "/link", NULL, 1), EFAULT);
    EXPECT(hectare_chmod(volume, NULL, 0), EFAULT);
    EXPECT(hectare_chown(volume, NULL, 0, 0), EFAULT);
    EXPECT(hectare_lchown(volume, NULL, 0, 0), EFAULT);
    EXPECT(hectare_utimes(volume, NULL, NULL, NULL), EFAULT);
    EXPECT(hectare_lutimes(volume, NULL, NULL, NULL), EFAULT);
    hectare_time never = {.seconds = 0, .nanoseconds = 1000000000};
    EXPECT(hectare_lutimes(volume, "/", &never, NULL), EINVAL);
    EXPECT(hectare_utimes(volume, "/", NULL, &never), EINVAL);
    EXPECT(hectare_utimes(volume, "/", (hectare_time *)((char *)&never + 1), NULL), EFAULT);
    XATTR_NULLS()
    XATTR_NULLS(l)
    EXPECT(hectare_statfs(volume, NULL), EFAULT);
    EXPECT(hectare_identify(volume, NULL), EFAULT);
    EXPECT(hectare_set_label(volume, NULL), EFAULT);
}

// Paths that mean nothing, or too much.
static void paths(hectare_volume *volume) {
    static char longest[1 << 16];
    hectare_stat about;
    EXPECT(hectare_stat_path(volume, "", &about), ENOENT);
    EXPECT(hectare_mkdir(volume, "", 0700), ENOENT);
    EXPECT(hectare_mkdir(volume, "/", 0700), EEXIST);
    memset(longest, 'n', 256);
    EXPECT(hectare_mkdir(volume, longest, 0700), ENAMETOOLONG);
    for (size_t at = 0; at + 2 < sizeof longest; at += 2) memcpy(longest + at, "./", 2);
    // Long paths are no error: only names have a limit.
    if (hectare_stat_path(volume, longest, &about) != 0) wrong++;
    // Bytes that are no UTF-8 are names like others.
    if (hectare_mkdir(volume, "/\xff\xfe", 0700) != 0 || hectare_rmdir(volume, "/\xff\xfe") != 0) wrong++;
}

static int enough(void *user, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    if (strcmp(hectare_progress_step(), "sources") != 0) wrong++;
    ++*(int *)user;
    return 1;
}

// Making images.
static void making(void) {
    const char *none[] = {NULL}, *folder[] = {"/nowhere/at/all"};
    hectare_build_options options;
    EXPECT(hectare_build_defaults(NULL, sizeof options), EFAULT);
    EXPECT(hectare_build_defaults(&options, sizeof options - 8), EINVAL);
    if (hectare_build_defaults(&options, sizeof options) != 0 || options.struct_size != sizeof options) wrong++;
    EXPECT(hectare_build_with(NULL, 1, "x", &options), EFAULT);
    EXPECT(hectare_build_with(none, 1, "x", &options), EFAULT);
    EXPECT(hectare_build_with(folder, 0, "x", NULL), EINVAL);
    EXPECT(hectare_build_with(folder, 1, NULL, NULL), EFAULT);
    EXPECT(hectare_build_with(folder, 1, "x", NULL), ENOENT);
    options.struct_size = 0;
    EXPECT(hectare_build_with(folder, 1, "x", &options), EINVAL);
    options.struct_size = sizeof options;
    options.exclude_count = 1;
    EXPECT(hectare_build_with(folder, 1, "x", &options), EFAULT);
    options.exclude = none;
    EXPECT(hectare_build_with(folder, 1, "x", &options), EFAULT);
    // A call that is cancelled leaves no file.
    const char *here[] = {"/usr/include"};
    int calls = 0;
    if (hectare_build_defaults(&options, sizeof options) != 0) wrong++;
    options.progress = enough;
    options.user = &calls;
    EXPECT(hectare_build_with(here, 1, "never.img", &options), ECANCELED);
    if (calls == 0 || access("never.img", F_OK) == 0) wrong++;
    if (strcmp(hectare_progress_step(), "") != 0) wrong++;
    EXPECT(hectare_mkfs(NULL, 1 << 20, NULL, NULL, 0), EFAULT);
    EXPECT(hectare_mkfs("/nowhere/at/all", 1 << 20, NULL, NULL, 0), ENOENT);
    EXPECT(hectare_mkfs("/nowhere/at/all", 0, NULL, NULL, 0), EINVAL);
    EXPECT(hectare_mkfs("/nowhere/at/all", 1 << 20, NULL, "no_such", 0), EINVAL);
    EXPECT(hectare_mkfs("/nowhere/at/all", 1 << 20, NULL, "\xff", 0), EINVAL);
}

// Making empty volumes, and checking, by options.
static void options(void) {
    hectare_mkfs_options mkfs;
    EXPECT(hectare_mkfs_defaults(NULL, sizeof mkfs), EFAULT);
    EXPECT(hectare_mkfs_defaults(&mkfs, sizeof mkfs + 8), EINVAL);
    if (hectare_mkfs_defaults(&mkfs, sizeof mkfs) != 0 || mkfs.struct_size != sizeof mkfs) wrong++;
    EXPECT(hectare_mkfs_with(NULL, 1 << 20, &mkfs), EFAULT);
    EXPECT(hectare_mkfs_with(NULL, 1 << 20, NULL), EFAULT);
    const hectare_mkfs_options *odd = (hectare_mkfs_options *)((char *)&mkfs + 1);
    EXPECT(hectare_mkfs_with("/nowhere/at/all", 1 << 20, odd), EFAULT);
    EXPECT(hectare_mkfs_device_with(NULL, &mkfs), EFAULT);
    mkfs.root_mode = 010000;
    EXPECT(hectare_mkfs_with("/nowhere/at/all", 1 << 20, &mkfs), EINVAL);
    mkfs.root_mode = 0755;
    mkfs.reserved_percent = 51;
    EXPECT(hectare_mkfs_with("/nowhere/at/all", 1 << 20, &mkfs), EINVAL);
    mkfs.reserved_percent = 5;
    mkfs.block_size = 3000;
    EXPECT(hectare_mkfs_with("/nowhere/at/all", 1 << 20, &mkfs), EINVAL);
    mkfs.block_size = 0;
    mkfs.fs_type = "xfs";
    EXPECT(hectare_mkfs_with("/nowhere/at/all", 1 << 20, &mkfs), EINVAL);
    mkfs.fs_type = "\xff";
    EXPECT(hectare_mkfs_with("/nowhere/at/all", 1 << 20, &mkfs), EINVAL);
    mkfs.struct_size--;
    EXPECT(hectare_mkfs_with("/nowhere/at/all", 1 << 20, &mkfs), EINVAL);
    hectare_check_options check;
    hectare_check_counts counts;
    EXPECT(hectare_check_defaults(NULL, sizeof check), EFAULT);
    EXPECT(hectare_check_defaults(&check, 0), EINVAL);
    if (hectare_check_defaults(&check, sizeof check) != 0 || check.struct_size != sizeof check) wrong++;
    EXPECT(hectare_check_with(NULL, &check, &counts), EFAULT);
    EXPECT(hectare_check_with("/nowhere/at/all", NULL, NULL), ENOENT);
    EXPECT(hectare_check_device(NULL, &check, &counts), EFAULT);
    check.struct_size = 0;
    EXPECT(hectare_check_with("/nowhere/at/all", &check, &counts), EINVAL);
}

static int released;

static int get(void *user, uint8_t *to, uintptr_t len, uint64_t at) {
    memcpy(to, (char *)user + at, len);
    return 0;
}

static void let_go(void *user) {
    (void)user;
    released++;
}

// Storage is released whatever is wrong with the options, and not if the struct is wrong itself.
static void storage(void) {
    static char bytes[1 << 16];
    hectare_device device = {.struct_size = sizeof device, .user = bytes, .size = sizeof bytes, .read = get};
    device.release = let_go;
    hectare_mkfs_options mkfs = {.struct_size = 1};
    hectare_check_options check = {.struct_size = 1};
    hectare_check_counts counts;
    EXPECT(hectare_mkfs_device_with(&device, &mkfs), EINVAL);
    EXPECT(hectare_check_device(&device, &check, &counts), EINVAL);
    EXPECT(hectare_check_device(&device, NULL, (hectare_check_counts *)((char *)&counts + 1)), EFAULT);
    EXPECT(hectare_check_device(&device, NULL, &counts), EINVAL); // zeros are no volume
    if (released != 4) wrong++;
    device.read = NULL;
    EXPECT(hectare_mkfs_device(&device, 0), EFAULT);
    EXPECT(hectare_check_device(&device, NULL, NULL), EFAULT);
    device.struct_size = 0;
    EXPECT(hectare_mkfs_device_with(&device, NULL), EINVAL);
    EXPECT(hectare_check_device(&device, NULL, NULL), EINVAL);
    if (released != 4) wrong++;
}

static hectare_file *shared;

static void *worker(void *argument) {
    uint8_t byte = (uint8_t)(uintptr_t)argument;
    for (int round = 0; round < 200; round++) {
        // The handle is closed meanwhile.
        if (hectare_file_write(shared, &byte, 1, byte) < 0 && hectare_errno() != EBADF) wrong++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    if (hectare_abi() != HECTARE_ABI) return 1;
    uint8_t byte = 0;
    hectare_stat about;
    hectare_dirent entry;
    dead(NULL);
    dead((void *)(uintptr_t)12345);
    dead((void *)(uintptr_t)-1);
    dead(&byte);
    making();
    options();
    storage();
    REFUSED(hectare_open(NULL, 0), EFAULT);
    REFUSED(hectare_open("/nowhere/at/all", 0), ENOENT);
    REFUSED(hectare_open(argv[1], 77), EINVAL);
    EXPECT(hectare_close(NULL), EBADF);
    EXPECT(hectare_close((hectare_volume *)(uintptr_t)12345), EBADF);
    EXPECT(hectare_sync(NULL), EBADF);
    EXPECT(hectare_file_close(NULL), EBADF);
    EXPECT(hectare_file_read((hectare_file *)(uintptr_t)-1, &byte, 1, 0), EBADF);
    EXPECT(hectare_readdir(NULL, &entry), EBADF);
    EXPECT(hectare_closedir(NULL), EBADF);
    EXPECT(hectare_check(NULL, NULL, NULL), EFAULT);
    EXPECT(hectare_build(NULL, 1, "x", 0, 0, 0), EFAULT);
    EXPECT(hectare_build(NULL, 0, "x", 0, 0, 0), EINVAL);
    REFUSED(hectare_open_device(NULL, 0), EFAULT);
    hectare_device empty;
    memset(&empty, 0, sizeof empty);
    REFUSED(hectare_open_device(&empty, 0), EINVAL);
    empty.struct_size = sizeof empty;
    REFUSED(hectare_open_device(&empty, 0), EFAULT);

    hectare_volume *volume = hectare_open(argv[1], HECTARE_READ_WRITE);
    if (volume == NULL) {
        printf("%s\n", hectare_message());
        return 1;
    }
    REFUSED(hectare_open(argv[1], HECTARE_READ_WRITE), EBUSY);
    nulls(volume);
    paths(volume);
    EXPECT(hectare_stat_path(volume, NULL, &about), EFAULT);
    EXPECT(hectare_stat_path(volume, "/", NULL), EFAULT);
    EXPECT(hectare_stat_path(volume, "/no", &about), ENOENT);
    EXPECT(hectare_mkdir(volume, "/a\nb/c", 0700), ENOENT);
    EXPECT(hectare_rename(volume, "/lost+found", NULL), EFAULT);
    EXPECT(hectare_readlink(volume, "/lost+found", &byte, 1), EINVAL);
    EXPECT(hectare_getxattr(volume, "/", "user.none", &byte, 1), ENODATA);
    EXPECT(hectare_setxattr(volume, "/", "user.a", NULL, 7), EFAULT);
    REFUSED(hectare_file_open(volume, "/", HECTARE_READ, 0), EISDIR);
    REFUSED(hectare_file_open(volume, "/x", 1 << 20, 0), EINVAL);
    REFUSED(hectare_file_open(volume, "/x", 0, 0), EINVAL);
    // A handle of one kind is none of another.
    EXPECT(hectare_file_sync((hectare_file *)volume), EBADF);

    hectare_file *file = hectare_file_open(volume, "/x", HECTARE_READ | HECTARE_WRITE | HECTARE_CREATE, 0600);
    EXPECT(hectare_file_write(file, NULL, 3, 0), EFAULT);
    EXPECT(hectare_file_write(file, &byte, SIZE_MAX, 0), EINVAL);
    EXPECT(hectare_file_read(file, NULL, 3, 0), EFAULT);
    uint64_t at;
    EXPECT(hectare_file_seek_data(file, 0, &at), ENXIO);
    if (hectare_file_write(file, NULL, 0, 0) != 0) wrong++;

    shared = file;
    pthread_t threads[4];
    for (uintptr_t number = 0; number < 4; number++) {
        pthread_create(&threads[number], NULL, worker, (void *)number);
    }
    if (hectare_file_close(file) != 0) wrong++;
    for (int number = 0; number < 4; number++) pthread_join(threads[number], NULL);
    EXPECT(hectare_file_close(file), EBADF);
    EXPECT(hectare_file_read(file, &byte, 1, 0), EBADF);

    // What is open outlives its volume.
    file = hectare_file_open(volume, "/x", HECTARE_READ | HECTARE_WRITE, 0);
    hectare_dir *directory = hectare_opendir(volume, "/");
    if (hectare_close(volume) != 0) wrong++;
    EXPECT(hectare_close(volume), EBADF);
    EXPECT(hectare_sync(volume), EBADF);
    dead(volume);
    EXPECT(hectare_file_truncate(file, 7), EBADF);
    if (hectare_file_stat(file, &about) != 0) wrong++;
    // A call without a place for the result takes no entry.
    EXPECT(hectare_readdir(directory, NULL), EFAULT);
    int entries = 0, more;
    while ((more = hectare_readdir(directory, &entry)) == 1) entries++;
    if (more != 0 || entries != 3) wrong++; // lost+found, link, x
    if (hectare_closedir(directory) != 0 || hectare_file_close(file) < 0) wrong++;
    EXPECT(hectare_readdir(directory, &entry), EBADF);
    dead(directory);
    dead(file);
    if (wrong > 0) printf("%d wrong\n", wrong);
    return wrong > 0;
}
