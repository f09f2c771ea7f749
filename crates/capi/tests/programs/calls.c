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

#define FAILS(call, number) TRUE((errno = 0, (call)) <= 0 && errno == (number) && hectare_errno() == (number))
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
    return 7;
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

    // A descriptor that is broken: only one problem is told of, and what it leads to is not judged.
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

int main(int argc, char **argv) {
    if (argc != 2 || argv[1] == NULL) return 2;
    TRUE(hectare_errno() == 0 && hectare_message() != NULL && *hectare_message() == 0);
    FAILS(hectare_close(NULL), EBADF);
    devices();
    if (wrong > 0) printf("%d wrong\n", wrong);
    return wrong > 0;
}
