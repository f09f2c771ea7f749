// What hectare.h says of calls that have no twin on the host: devices, checks, options, what is open. What is
// not so is printed: calls DIRECTORY.

#include <errno.h>
#include <hectare.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int wrong;

#define TRUE(condition)                                                                                   \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            printf("%d: %s: errno %d, %s\n", __LINE__, #condition, hectare_errno(), hectare_message());   \
            wrong++;                                                                                      \
        }                                                                                                 \
    } while (0)

#define FAILS(call, number) TRUE((errno = 0, (call)) == -1 && errno == (number) && hectare_errno() == (number))
#define REFUSED(call, number) TRUE((errno = 0, (call)) == NULL && errno == (number))

struct storage {
    uint8_t *bytes;
    uint64_t size;
    int written, released;
};

static int get(void *user, uint8_t *to, uintptr_t len, uint64_t at) {
    memcpy(to, ((struct storage *)user)->bytes + at, len);
    return 0;
}

static int set(void *user, const uint8_t *from, uintptr_t len, uint64_t at) {
    struct storage *storage = user;
    __atomic_fetch_add(&storage->written, 1, __ATOMIC_RELAXED);
    memcpy(storage->bytes + at, from, len);
    return 0;
}

static void let_go(void *user) { ((struct storage *)user)->released++; }

static hectare_device device_of(struct storage *storage) {
    return (hectare_device){
        .struct_size = sizeof(hectare_device),
        .user = storage,
        .size = storage->size,
        .read = get,
        .write = set,
        .release = let_go,
    };
}

struct seen {
    int calls, outside, found[3];
    char steps[200];
};

static int progress(void *user, uint64_t done, uint64_t total) {
    struct seen *seen = user;
    const char *step = hectare_progress_step();
    seen->calls++;
    if (*step == 0 || done > total) seen->outside++;
    if (strstr(seen->steps, step) == NULL) strcat(strcat(seen->steps, step), " ");
    return 0;
}

static int enough(void *user, uint64_t done, uint64_t total) {
    (void)done, (void)total, (void)user;
    // Where "begin" is reported depends on how long that takes.
    return strcmp(hectare_progress_step(), "begin") != 0 ? 7 : 0;
}

static void found(void *user, uint32_t what, const char *line) {
    if (what > 2 || *line == 0) wrong++;
    else ((struct seen *)user)->found[what]++;
}

static void devices(void) {
    struct storage storage = {.bytes = calloc(1, (8 << 20) + 777), .size = (8 << 20) + 777};
    struct seen seen = {0};
    hectare_device device = device_of(&storage);
    hectare_mkfs_options making;
    TRUE(hectare_mkfs_defaults(&making, sizeof making) == 0 && making.struct_size == sizeof making);
    making.label = "sixteen bytes in";
    making.features = "^has_journal";
    making.uuid = (const uint8_t *)"0123456789abcdef";
    making.block_size = 1024;
    making.inodes = 4000;
    making.reserved_percent = 10;
    making.root_mode = 01777;
    making.root_uid = 5;
    making.root_gid = 6;
    making.progress = progress;
    making.user = &seen;
    // Bytes that are nothing known are overwritten.
    memset(storage.bytes, 0xaa, storage.size);
    TRUE(hectare_mkfs_device_with(&device, &making) == 0 && storage.released == 1);
    TRUE(seen.calls > 0 && seen.outside == 0 && strstr(seen.steps, "structures ") != NULL);
    TRUE(strcmp(hectare_progress_step(), "") == 0);
    FAILS(hectare_mkfs_device_with(&device, &making), EEXIST);
    FAILS(hectare_mkfs_device(&device, 0), EEXIST);
    TRUE(storage.released == 3);

    hectare_volume *volume = hectare_open_device(&device, HECTARE_READ_WRITE);
    memset(&device, 0xee, sizeof device); // it was copied
    hectare_identity identity;
    hectare_space space;
    hectare_stat about;
    TRUE(hectare_identify(volume, &identity) == 0 && memcmp(identity.uuid, making.uuid, 16) == 0);
    TRUE(strcmp((const char *)identity.label, making.label) == 0);
    TRUE(hectare_statfs(volume, &space) == 0 && space.block_size == 1024 && space.inodes >= 4000);
    TRUE(space.free - space.available > (800 << 10) && space.total < storage.size);
    TRUE(hectare_stat_path(volume, "/", &about) == 0 && about.mode == 041777);
    TRUE(about.uid == 5 && about.gid == 6);
    TRUE(hectare_set_label(volume, "new") == 0 && hectare_identify(volume, &identity) == 0);
    TRUE(strcmp((const char *)identity.label, "new") == 0);
    FAILS(hectare_set_label(volume, "seventeen bytes.."), EINVAL);
    TRUE(hectare_mkdir(volume, "/d", 0700) == 0);
    TRUE(hectare_close(volume) == 0 && storage.released == 4);

    // Storage without `write`.
    device = device_of(&storage);
    device.write = NULL;
    REFUSED(hectare_open_device(&device, HECTARE_READ_WRITE), EROFS);
    FAILS(hectare_mkfs_device(&device, 1), EROFS);
    REFUSED(hectare_open_device(&device, 77), EINVAL);
    TRUE(storage.released == 7);

    hectare_check_options checking;
    hectare_check_counts counts;
    seen = (struct seen){0};
    TRUE(hectare_check_defaults(&checking, sizeof checking) == 0 && checking.problems_max == 1000);
    checking.progress = progress;
    checking.found = found;
    checking.user = &seen;
    device = device_of(&storage);
    storage.written = 0;
    TRUE(hectare_check_device(&device, &checking, &counts) == HECTARE_SOUND);
    TRUE(counts.problems == 0 && counts.unjudged == 0 && counts.directories == 3 && counts.inodes >= 12);
    // Where that takes long, "begin" may come before.
    TRUE(strstr(seen.steps, "inodes directories bitmaps ") != NULL && seen.outside == 0);
    TRUE(seen.found[0] == 0 && seen.found[1] == 0 && storage.written == 0 && storage.released == 8);
    checking.progress = enough;
    FAILS(hectare_check_device(&device, &checking, &counts), ECANCELED);
    TRUE(storage.released == 9);

    // A descriptor that is broken: only one problem is reported, and what it leads to is not judged.
    memset(storage.bytes + 2048, 0xff, 32);
    checking.progress = NULL;
    checking.problems_max = 1;
    TRUE(hectare_check_device(&device, &checking, &counts) == HECTARE_UNSOUND);
    TRUE(counts.problems >= 1 && seen.found[0] == 1 && counts.unjudged >= 1);
    TRUE(seen.found[1] == (int)counts.unjudged && seen.found[2] == (int)counts.notes);
    TRUE(hectare_check_device(&device, NULL, NULL) == HECTARE_UNSOUND);

    // Nothing is wrong, but not all is judged.
    making.features = "casefold,encrypt";
    making.replace = 1;
    making.progress = enough;
    FAILS(hectare_mkfs_device_with(&device, &making), ECANCELED);
    REFUSED(hectare_open_device(&device, HECTARE_READ_ONLY), EINVAL);
    making.progress = NULL;
    TRUE(hectare_mkfs_device_with(&device, &making) == 0);
    TRUE(hectare_check_device(&device, NULL, &counts) == HECTARE_UNJUDGED);
    TRUE(counts.problems == 0 && counts.unjudged == 1);

    // The least size.
    device.size = 6 * 4096;
    TRUE(hectare_mkfs_device(&device, 1) == 0);
    device.size -= 1;
    FAILS(hectare_mkfs_device(&device, 1), EINVAL);
    free(storage.bytes);
}

static void made(hectare_volume *volume, const char *path, uint32_t flags, const char *content) {
    hectare_file *file = hectare_file_open(volume, path, HECTARE_WRITE | flags, 0640);
    TRUE(hectare_file_write(file, (const uint8_t *)content, strlen(content), 0) == (intptr_t)strlen(content));
    TRUE(hectare_file_close(file) == 0);
}

static int holds(hectare_volume *volume, const char *path, const char *content) {
    uint8_t found[100];
    hectare_file *file = hectare_file_open(volume, path, HECTARE_READ, 0);
    intptr_t len = hectare_file_read(file, found, sizeof found, 0);
    hectare_file_close(file);
    return len == (intptr_t)strlen(content) && memcmp(found, content, (size_t)len) == 0;
}

static int resolves(hectare_volume *volume, const char *path, const char *to) {
    char found[100];
    intptr_t len = (intptr_t)strlen(to) + 1;
    if (hectare_realpath(volume, path, NULL, 0) != len) return 0;
    FAILS(hectare_realpath(volume, path, (uint8_t *)found, (uintptr_t)len - 1), ERANGE);
    return hectare_realpath(volume, path, (uint8_t *)found, sizeof found) == len && strcmp(found, to) == 0;
}

static void names(hectare_volume *volume) {
    hectare_stat about, other;
    uint8_t bytes[100];
    made(volume, "/a", HECTARE_CREATE, "first");
    TRUE(hectare_mkdir(volume, "/d", 0755) == 0 && hectare_mkdir(volume, "/d/e", 0755) == 0);
    FAILS(hectare_mkdir(volume, "/no/d", 0755), ENOENT);
    TRUE(strstr(hectare_message(), "/no/d") != NULL);
    TRUE(hectare_symlink(volume, "a", "/to-a") == 0 && hectare_symlink(volume, "d/e/..", "/to-d") == 0);

    TRUE(resolves(volume, "/", "/") && resolves(volume, "/to-a", "/a"));
    TRUE(resolves(volume, "to-d/../to-d//e/.", "/d/e"));
    FAILS(hectare_realpath(volume, "/to-d/no", bytes, sizeof bytes), ENOENT);

    // Links get a second name themselves.
    TRUE(hectare_link(volume, "/to-a", "/to-a-2") == 0 && hectare_lstat_path(volume, "/to-a-2", &about) == 0);
    TRUE((about.mode & 0170000) == 0120000 && about.nlink == 2);
    FAILS(hectare_link(volume, "/d", "/d-2"), EPERM);
    FAILS(hectare_unlink(volume, "/d"), EISDIR);

    // Copies: content and permissions, by links, onto what is there.
    TRUE(hectare_copy(volume, "/to-a", "/b") == 5 && holds(volume, "/b", "first"));
    TRUE(hectare_stat_path(volume, "/b", &about) == 0 && about.mode == 0100640);
    made(volume, "/longer", HECTARE_CREATE, "longer than that");
    TRUE(hectare_copy(volume, "/a", "/longer") == 5 && holds(volume, "/longer", "first"));
    FAILS(hectare_copy(volume, "/d", "/x"), EINVAL);
    FAILS(hectare_copy(volume, "/a", "/to-a"), EINVAL);
    FAILS(hectare_copy(volume, "/no", "/x"), ENOENT);

    // Renaming.
    made(volume, "/b", 0, "other");
    FAILS(hectare_rename_with(volume, "/a", "/b", HECTARE_RENAME_NOREPLACE), EEXIST);
    TRUE(hectare_rename_with(volume, "/a", "/b", HECTARE_RENAME_EXCHANGE) == 0);
    TRUE(holds(volume, "/a", "other") && holds(volume, "/b", "first"));
    FAILS(hectare_rename_with(volume, "/a", "/new", HECTARE_RENAME_EXCHANGE), ENOENT);
    TRUE(hectare_rename_with(volume, "/b", "/new", HECTARE_RENAME_NOREPLACE) == 0);
    TRUE(holds(volume, "/new", "first"));
    FAILS(hectare_rename_with(volume, "/a", "/b", 3), EINVAL);
    TRUE(hectare_mkdir(volume, "/empty", 0700) == 0);
    FAILS(hectare_rename(volume, "/empty", "/d"), ENOTEMPTY);
    FAILS(hectare_rename(volume, "/a", "/empty"), EISDIR);
    FAILS(hectare_rename(volume, "/d", "/a"), ENOTDIR);
    TRUE(hectare_rename(volume, "/d/e", "/empty") == 0);
    // Directories are looked at before names, and whether names are there before what they are.
    FAILS(hectare_rename(volume, "/no/", "/a/x"), ENOTDIR);
    FAILS(hectare_rename_with(volume, "/a/", "/empty/no", HECTARE_RENAME_EXCHANGE), ENOENT);
    FAILS(hectare_rename_with(volume, "/a/", "/empty", HECTARE_RENAME_NOREPLACE), EEXIST);
    FAILS(hectare_rename_with(volume, "/a/", "/new-2", HECTARE_RENAME_NOREPLACE), ENOTDIR);

    // Devices, pipes, sockets; and what passes its group on.
    TRUE(hectare_mknod(volume, "/null", S_IFCHR | 0666, 1, 3) == 0);
    TRUE(hectare_mknod(volume, "/disk", S_IFBLK | 0600, 4095, 1048575) == 0);
    TRUE(hectare_mknod(volume, "/pipe", S_IFIFO | 0600, 7, 7) == 0);
    TRUE(hectare_mknod(volume, "/socket", S_IFSOCK | 0600, 0, 0) == 0);
    TRUE(hectare_mknod(volume, "/file", S_IFREG | 04755, 0, 0) == 0);
    TRUE(hectare_stat_path(volume, "/null", &about) == 0 && about.mode == 020666 && about.rdev_major == 1);
    TRUE(about.rdev_minor == 3 && hectare_stat_path(volume, "/disk", &about) == 0 && about.mode == 060600);
    TRUE(about.rdev_major == 4095 && about.rdev_minor == 1048575);
    TRUE(hectare_stat_path(volume, "/pipe", &about) == 0 && about.mode == 010600 && about.rdev_major == 0);
    TRUE(hectare_stat_path(volume, "/file", &about) == 0 && about.mode == 0104755);
    FAILS(hectare_mknod(volume, "/x", S_IFCHR, 4096, 0), EINVAL);
    FAILS(hectare_mknod(volume, "/x", S_IFBLK, 0, 1048576), EINVAL);
    FAILS(hectare_mknod(volume, "/x", S_IFDIR | 0700, 0, 0), EINVAL);
    FAILS(hectare_mknod(volume, "/null", S_IFCHR, 1, 3), EEXIST);
    REFUSED(hectare_file_open(volume, "/pipe", HECTARE_READ, 0), EINVAL);
    TRUE(hectare_mkdir(volume, "/group", 02755) == 0 && hectare_chown(volume, "/group", 1, 2) == 0);
    TRUE(hectare_chmod(volume, "/group", 02755) == 0 && hectare_mkdir(volume, "/group/in", 0700) == 0);
    TRUE(hectare_stat_path(volume, "/group/in", &about) == 0 && about.mode == 042700 && about.gid == 2);

    // What follows links, and what does not.
    hectare_time then = {.seconds = 1000, .nanoseconds = 1}, later = {.seconds = 2000, .nanoseconds = 2};
    TRUE(hectare_chown(volume, "/to-a", 11, 12) == 0 && hectare_lchown(volume, "/to-a", 21, UINT32_MAX) == 0);
    TRUE(hectare_utimes(volume, "/to-a", &then, NULL) == 0);
    TRUE(hectare_lutimes(volume, "/to-a", &later, &later) == 0);
    TRUE(hectare_stat_path(volume, "/to-a", &about) == 0 && hectare_lstat_path(volume, "/to-a", &other) == 0);
    TRUE(about.uid == 11 && about.gid == 12 && about.atime.seconds == 1000 && about.mtime.seconds > 2000);
    TRUE(other.uid == 21 && other.gid == 0 && other.atime.seconds == 2000 && other.mtime.nanoseconds == 2);
    TRUE(hectare_setxattr(volume, "/to-a", "user.a", NULL, 0) == 0);
    TRUE(hectare_lsetxattr(volume, "/to-a", "trusted.l", (const uint8_t *)"link", 4) == 0);
    TRUE(hectare_getxattr(volume, "/a", "user.a", NULL, 0) == 0);
    TRUE(hectare_lgetxattr(volume, "/to-a", "trusted.l", NULL, 0) == 4);
    TRUE(hectare_lgetxattr(volume, "/to-a", "trusted.l", bytes, 4) == 4 && memcmp(bytes, "link", 4) == 0);
    FAILS(hectare_lgetxattr(volume, "/to-a", "user.a", bytes, 4), ENODATA);
    FAILS(hectare_getxattr(volume, "/to-a", "trusted.l", bytes, 4), ENODATA);
    TRUE(strstr(hectare_message(), "/to-a") != NULL);
    TRUE(hectare_llistxattr(volume, "/to-a", bytes, sizeof bytes) == 10);
    TRUE(strcmp((char *)bytes, "trusted.l") == 0);
    TRUE(hectare_listxattr(volume, "/to-a", bytes, sizeof bytes) == 7);
    TRUE(strcmp((char *)bytes, "user.a") == 0);
    FAILS(hectare_removexattr(volume, "/to-a", "trusted.l"), ENODATA);
    TRUE(hectare_lremovexattr(volume, "/to-a", "trusted.l") == 0);
    TRUE(hectare_removexattr(volume, "/to-a", "user.a") == 0);
    FAILS(hectare_setxattr(volume, "/a", "odd.a", bytes, 1), EOPNOTSUPP);
    TRUE(hectare_readlink(volume, "/to-a", NULL, 0) == 1);
    FAILS(hectare_readlink(volume, "/a", bytes, 1), EINVAL);
    TRUE(strstr(hectare_message(), "/a") != NULL);
}

static void opened(hectare_volume *volume) {
    hectare_stat about;
    uint8_t byte = 7;
    REFUSED(hectare_file_open(volume, "/o", 0, 0644), EINVAL);
    REFUSED(hectare_file_open(volume, "/o", HECTARE_CREATE, 0644), EINVAL);
    REFUSED(hectare_file_open(volume, "/o", HECTARE_READ | HECTARE_CREATE, 0644), EINVAL);
    REFUSED(hectare_file_open(volume, "/o", HECTARE_READ | HECTARE_EXCLUSIVE, 0644), EINVAL);
    REFUSED(hectare_file_open(volume, "/a", HECTARE_READ | HECTARE_TRUNCATE, 0644), EINVAL);
    REFUSED(hectare_file_open(volume, "/o", HECTARE_WRITE, 0644), ENOENT);
    REFUSED(hectare_file_open(volume, "/to-a", HECTARE_WRITE | HECTARE_EXCLUSIVE, 0644), EEXIST);
    hectare_file *file = hectare_file_open(volume, "/o", HECTARE_WRITE | HECTARE_EXCLUSIVE, 0600);
    FAILS(hectare_file_read(file, &byte, 1, 0), EBADF);
    TRUE(hectare_file_write(file, &byte, 1, 9) == 1 && hectare_file_close(file) == 0);
    file = hectare_file_open(volume, "/o", HECTARE_READ, 0);
    hectare_file *writer = hectare_file_open(volume, "/o", HECTARE_WRITE | HECTARE_CREATE, 0777);
    TRUE(hectare_file_stat(file, &about) == 0 && about.mode == 0100600 && about.size == 10);
    FAILS(hectare_file_write(file, &byte, 1, 0), EBADF);
    FAILS(hectare_file_truncate(file, 0), EBADF);
    FAILS(hectare_file_punch(file, 0, 1), EBADF);
    FAILS(hectare_file_allocate(writer, 0, 0), EINVAL);
    FAILS(hectare_file_write(writer, &byte, 1, UINT64_MAX), EFBIG);
    // Without a name it stays until its last handle is closed.
    TRUE(hectare_unlink(volume, "/o") == 0 && hectare_file_write(writer, &byte, 1, 20) == 1);
    TRUE(hectare_file_close(writer) == 0 && hectare_file_read(file, &byte, 1, 20) == 1 && byte == 7);
    TRUE(hectare_file_read(file, &byte, 1, 21) == 0);
    TRUE(hectare_file_stat(file, &about) == 0 && about.nlink == 0 && hectare_file_close(file) == 0);
}

// Names that change while they are listed.
static void listing(hectare_volume *volume) {
    enum { FILES = 1500 };
    static char seen[FILES];
    char path[300];
    TRUE(hectare_mkdir(volume, "/many", 0700) == 0);
    for (int number = 0; number < FILES; number++) {
        snprintf(path, sizeof path, "/many/%d", number);
        TRUE(hectare_mknod(volume, path, S_IFREG | 0600, 0, 0) == 0);
    }
    hectare_dir *directory = hectare_opendir(volume, "/many");
    hectare_dirent entry;
    int more, added = 0;
    while ((more = hectare_readdir(directory, &entry)) == 1) {
        TRUE(entry.kind == 8 && entry.name_len == strlen((const char *)entry.name));
        if (entry.name[0] == 'n') continue;
        TRUE(seen[atoi((const char *)entry.name)]++ == 0);
        snprintf(path, sizeof path, "/many/%s", (const char *)entry.name);
        TRUE(hectare_unlink(volume, path) == 0);
        snprintf(path, sizeof path, "/many/n%d", added++);
        TRUE(hectare_mknod(volume, path, S_IFREG | 0600, 0, 0) == 0);
    }
    TRUE(more == 0 && hectare_readdir(directory, &entry) == 0 && hectare_closedir(directory) == 0);
    for (int number = 0; number < FILES; number++) TRUE(seen[number] == 1);
    TRUE(added == FILES);
}

// Names that are gone before they are listed, in a directory that does not say what they are.
static void removed(hectare_volume *volume) {
    char path[300];
    TRUE(hectare_mkdir(volume, "/gone", 0700) == 0);
    for (int number = 0; number < 40; number++) {
        snprintf(path, sizeof path, "/gone/%d", number);
        TRUE(hectare_mknod(volume, path, S_IFREG | 0600, 0, 0) == 0);
    }
    hectare_dir *directory = hectare_opendir(volume, "/gone");
    hectare_dirent entry;
    TRUE(hectare_readdir(directory, &entry) == 1);
    for (int number = 0; number < 40; number++) {
        snprintf(path, sizeof path, "/gone/%d", number);
        TRUE(hectare_unlink(volume, path) == 0);
    }
    TRUE(hectare_readdir(directory, &entry) == 0 && hectare_closedir(directory) == 0);
}

static void images(const char *folder) {
    char image[4096], copy[4096];
    snprintf(image, sizeof image, "%s/calls.img", folder);
    snprintf(copy, sizeof copy, "%s/never.img", folder);
    // Directories that do not say what their entries are.
    hectare_mkfs_options making;
    TRUE(hectare_mkfs_defaults(&making, sizeof making) == 0);
    making.features = "^filetype";
    making.fs_type = "ext3";
    TRUE(hectare_mkfs_with(image, 32 << 20, &making) == 0);
    FAILS(hectare_mkfs_with(image, 32 << 20, &making), EEXIST);
    making.progress = enough;
    FAILS(hectare_mkfs_with(copy, 32 << 20, &making), ECANCELED);
    TRUE(access(copy, F_OK) < 0);
    hectare_volume *volume = hectare_open(image, HECTARE_READ_WRITE);
    TRUE(hectare_symlink(volume, "nowhere", "/lost+found/l") == 0);
    hectare_dir *directory = hectare_opendir(volume, "/lost+found");
    hectare_dirent entry;
    TRUE(hectare_readdir(directory, &entry) == 1 && entry.kind == 10 && hectare_closedir(directory) == 0);
    names(volume);
    opened(volume);
    listing(volume);
    removed(volume);

    // One that is open for writing is open once.
    REFUSED(hectare_open(image, HECTARE_READ_ONLY), EBUSY);
    FAILS(hectare_check(image, NULL, NULL), EBUSY);
    FAILS(hectare_check_with(image, NULL, NULL), EBUSY);
    // What is not durable by hectare_file_close() is by hectare_close().
    made(volume, "/last", HECTARE_CREATE, "last");
    TRUE(hectare_close(volume) == 0);
    TRUE(hectare_check_with(image, NULL, NULL) == HECTARE_SOUND && hectare_check(image, NULL, NULL) == 0);
    volume = hectare_open(image, HECTARE_READ_ONLY);
    hectare_volume *second = hectare_open(image, HECTARE_READ_ONLY);
    TRUE(holds(volume, "/last", "last") && holds(second, "last", "last"));
    TRUE(hectare_check_with(image, NULL, NULL) == HECTARE_SOUND);
    REFUSED(hectare_open(image, HECTARE_READ_WRITE), EBUSY);
    FAILS(hectare_mkdir(volume, "/x", 0700), EROFS);
    FAILS(hectare_mknod(volume, "/x", 0600, 0, 0), EROFS);
    FAILS(hectare_copy(volume, "/last", "/x"), EROFS);
    FAILS(hectare_set_label(volume, "x"), EROFS);
    FAILS(hectare_chown(volume, "/last", 1, 1), EROFS);
    FAILS(hectare_lsetxattr(volume, "/last", "user.a", NULL, 0), EROFS);
    REFUSED(hectare_file_open(volume, "/x", HECTARE_WRITE | HECTARE_CREATE, 0), EROFS);
    TRUE(hectare_close(volume) == 0 && hectare_close(second) == 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    TRUE(hectare_errno() == 0 && hectare_message() != NULL && *hectare_message() == 0);
    FAILS(hectare_close(NULL), EBADF);
    devices();
    images(argv[1]);
    if (wrong > 0) printf("%d wrong\n", wrong);
    return wrong > 0;
}
