// The volume's side of operations.c.

#include <hectare.h>

static hectare_volume *volume;
static hectare_file *open_files[SLOTS];

static int side_begin(const char *image) {
    volume = hectare_open(image, HECTARE_READ_WRITE);
    if (volume == NULL) fprintf(stderr, "%s\n", hectare_message());
    return volume == NULL ? -1 : 0;
}

static int side_end(void) {
    int closed = hectare_close(volume);
    if (closed < 0) fprintf(stderr, "%s\n", hectare_message());
    return closed;
}

// An empty place has no handle: EBADF.
static hectare_file *at(size_t slot) { return open_files[slot]; }

static int side_open(size_t slot, const char *path, uint32_t flags, uint32_t mode) {
    if (open_files[slot] != NULL) hectare_file_close(open_files[slot]);
    open_files[slot] = hectare_file_open(volume, path, flags, mode);
    return open_files[slot] == NULL ? -1 : 0;
}

static int side_close(size_t slot) {
    int closed = hectare_file_close(at(slot));
    open_files[slot] = NULL;
    return closed;
}

static int64_t side_read(size_t slot, uint8_t *to, size_t len, uint64_t from) {
    return hectare_file_read(at(slot), to, len, from);
}

static int64_t side_write(size_t slot, const uint8_t *from, size_t len, uint64_t to) {
    return hectare_file_write(at(slot), from, len, to);
}

static int side_truncate(size_t slot, uint64_t len) { return hectare_file_truncate(at(slot), len); }

static int side_allocate(size_t slot, uint64_t from, uint64_t len) {
    return hectare_file_allocate(at(slot), from, len);
}

static int side_punch(size_t slot, uint64_t from, uint64_t len) {
    return hectare_file_punch(at(slot), from, len);
}

static int side_sync(size_t slot) { return hectare_file_sync(at(slot)); }

static int given(int failed, const hectare_stat *stat, struct found *found) {
    if (failed < 0) return failed;
    *found = (struct found){
        .mode = stat->mode,
        .size = stat->size,
        .nlink = stat->nlink,
        .atime = stat->atime.seconds,
        .mtime = stat->mtime.seconds,
        .atime_nanoseconds = stat->atime.nanoseconds,
        .mtime_nanoseconds = stat->mtime.nanoseconds,
        .uid = stat->uid,
        .gid = stat->gid,
    };
    return 0;
}

static int side_fstat(size_t slot, struct found *found) {
    hectare_stat stat;
    return given(hectare_file_stat(at(slot), &stat), &stat, found);
}

static int side_stat(const char *path, int follow, struct found *found) {
    hectare_stat stat;
    int failed = follow ? hectare_stat_path(volume, path, &stat) : hectare_lstat_path(volume, path, &stat);
    return given(failed, &stat, found);
}

static int64_t side_read_path(const char *path, uint8_t *to, size_t len) {
    hectare_file *file = hectare_file_open(volume, path, HECTARE_READ, 0);
    if (file == NULL) return -1;
    int64_t some = hectare_file_read(file, to, len, 0);
    int error = errno;
    hectare_file_close(file);
    errno = error;
    return some;
}

static int side_utimes(const char *path, int follow, uint64_t seconds, uint64_t nanoseconds) {
    hectare_time atime = {.seconds = (int64_t)seconds, .nanoseconds = (uint32_t)nanoseconds};
    hectare_time mtime = {.seconds = (int64_t)seconds / 2, .nanoseconds = (uint32_t)nanoseconds / 3};
    int (*change)(hectare_volume *, const char *, const hectare_time *, const hectare_time *) =
        follow ? hectare_utimes : hectare_lutimes;
    return change(volume, path, &atime, &mtime);
}

static int side_mkdir(const char *path, uint32_t mode) { return hectare_mkdir(volume, path, mode); }
static int side_unlink(const char *path) { return hectare_unlink(volume, path); }
static int side_rmdir(const char *path) { return hectare_rmdir(volume, path); }
static int side_rename(const char *from, const char *to) { return hectare_rename(volume, from, to); }

static int side_rename_with(const char *from, const char *to, uint32_t flag) {
    return hectare_rename_with(volume, from, to, flag);
}

static int side_link(const char *from, const char *to) { return hectare_link(volume, from, to); }

static int side_symlink(const char *target, const char *path) {
    return hectare_symlink(volume, target, path);
}

static int side_chmod(const char *path, uint32_t mode) { return hectare_chmod(volume, path, mode); }

static int side_chown(const char *path, int follow, uint32_t uid, uint32_t gid) {
    return follow ? hectare_chown(volume, path, uid, gid) : hectare_lchown(volume, path, uid, gid);
}

static intptr_t side_readlink(const char *path, uint8_t *to, size_t len) {
    return hectare_readlink(volume, path, to, len);
}

static int side_setxattr(const char *path, const char *name, const uint8_t *value, size_t len) {
    return hectare_setxattr(volume, path, name, value, len);
}

static int64_t side_getxattr(const char *path, const char *name, uint8_t *to, size_t len) {
    // With no room the length is given, and nothing is there to show.
    return hectare_getxattr(volume, path, name, to, len);
}

static int side_removexattr(const char *path, const char *name) {
    return hectare_removexattr(volume, path, name);
}

static int side_list(const char *path, struct entry *to, int room) {
    hectare_dir *directory = hectare_opendir(volume, path);
    if (directory == NULL) return -1;
    hectare_dirent entry;
    int count = 0, more;
    while ((more = hectare_readdir(directory, &entry)) == 1 && count < room) {
        memcpy(to[count].name, entry.name, sizeof to[count].name);
        to[count++].kind = entry.kind;
    }
    hectare_closedir(directory);
    return more < 0 ? -1 : count;
}
