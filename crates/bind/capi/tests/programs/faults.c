// A device of the program's own whose calls fail: the first, then the second, and so on, each time on a fresh
// copy of a volume. Every call of the library gives a result or an error; nothing else happens; the storage
// is released once; and what is left can be opened. faults DIRECTORY STEP EVERY: only every STEP-th call fails,
// and every EVERY-th volume is written to a file of the directory, for e2fsck.

#include <errno.h>
#include <hectare.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE ((uint64_t)4 << 20)

struct storage {
    uint8_t *bytes;
    // Calls until the one that fails, what it gives, and how many of them fail from then on.
    long left;
    int gives;
    long failing;
    int released;
};

static int wrong;

static int fails(struct storage *storage) {
    if (__atomic_sub_fetch(&storage->left, 1, __ATOMIC_SEQ_CST) >= 0) return 0;
    return __atomic_sub_fetch(&storage->failing, 1, __ATOMIC_SEQ_CST) >= 0 ? storage->gives : 0;
}

static int get(void *user, uint8_t *to, uintptr_t len, uint64_t at) {
    struct storage *storage = user;
    if (at + len > SIZE) abort();
    int failed = fails(storage);
    if (failed == 0) memcpy(to, storage->bytes + at, len);
    return failed;
}

static int set(void *user, const uint8_t *from, uintptr_t len, uint64_t at) {
    struct storage *storage = user;
    if (at + len > SIZE) abort();
    int failed = fails(storage);
    if (failed == 0) memcpy(storage->bytes + at, from, len);
    return failed;
}

static int flush(void *user) { return fails(user); }
static void let_go(void *user) { ((struct storage *)user)->released++; }

static hectare_device device_of(struct storage *storage) {
    return (hectare_device){
        .struct_size = sizeof(hectare_device),
        .user = storage,
        .size = SIZE,
        .read = get,
        .write = set,
        .flush = flush,
        .release = let_go,
    };
}

// Whether a call worked; that it failed must have the reason that the device gave, or what follows from it.
static int worked(long long result, int gives) {
    if (result >= 0) return 1;
    int error = hectare_errno();
    int given = gives > 0 && gives < 4096 ? gives : EIO;
    // A volume that lost a change takes no more (EROFS, EIO); what was not made is not there (ENOENT, EBADF).
    int follows = error == EIO || error == EROFS || error == ENOENT || error == EBADF || error == EUCLEAN;
    if (error != given && !follows) {
        printf("errno %d of %d: %s\n", error, gives, hectare_message());
        wrong++;
    }
    return 0;
}

static void work(hectare_volume *volume, int gives) {
    uint8_t bytes[5000];
    memset(bytes, 7, sizeof bytes);
    hectare_stat about;
    worked(hectare_mkdir(volume, "/d", 0700), gives);
    const uint32_t flags = HECTARE_READ | HECTARE_WRITE | HECTARE_CREATE;
    hectare_file *file = hectare_file_open(volume, "/d/f", flags, 0600);
    if (file == NULL) worked(-1, gives);
    worked(hectare_file_write(file, bytes, sizeof bytes, 100000), gives);
    worked(hectare_file_sync(file), gives);
    worked(hectare_file_read(file, bytes, sizeof bytes, 0), gives);
    worked(hectare_rename(volume, "/d/f", "/g"), gives);
    worked(hectare_stat_path(volume, "/kept", &about), gives);
    worked(hectare_setxattr(volume, "/kept", "user.a", bytes, 300), gives);
    worked(hectare_file_truncate(file, 10), gives);
    worked(hectare_file_close(file), gives);
    worked(hectare_unlink(volume, "/g"), gives);
    worked(hectare_sync(volume), gives);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const long step = atol(argv[2]), every = atol(argv[3]);
    struct storage whole = {.bytes = calloc(1, SIZE), .left = 1L << 40}, storage;
    hectare_device device = device_of(&whole);
    if (hectare_mkfs_device(&device, 0) < 0 || whole.released != 1) return 1;
    hectare_volume *volume = hectare_open_device(&device, HECTARE_READ_WRITE);
    hectare_file *file = hectare_file_open(volume, "/kept", HECTARE_WRITE | HECTARE_CREATE, 0600);
    if (hectare_file_write(file, (const uint8_t *)"kept", 4, 0) != 4) return 1;
    if (hectare_file_close(file) < 0 || hectare_close(volume) < 0) return 1;

    const int given[] = {EIO, -1, ENOSPC, 1 << 20};
    uint8_t *bytes = malloc(SIZE);
    long last = 0;
    int images = 0;
    for (long first = 0; first == last; first += step) {
        for (int lasting = 0; lasting < 2; lasting++) {
            memcpy(bytes, whole.bytes, SIZE);
            storage = (struct storage){
                .bytes = bytes,
                .left = first,
                .gives = given[first / step % 4],
                .failing = lasting ? 1L << 40 : 1,
            };
            device = device_of(&storage);
            volume = hectare_open_device(&device, HECTARE_READ_WRITE);
            if (volume == NULL) worked(-1, storage.gives);
            else {
                work(volume, storage.gives);
                worked(hectare_close(volume), storage.gives);
            }
            if (storage.released != 1) {
                printf("failing at %ld: released %d times\n", first, storage.released);
                wrong++;
            }
            // The device works again: what was kept is there. A volume that lost a change says so in its
            // superblock, and is opened for reading only.
            int reached = storage.left < 0;
            storage.left = 1L << 40;
            volume = hectare_open_device(&device, HECTARE_READ_WRITE);
            int sound = volume != NULL;
            if (!sound) volume = hectare_open_device(&device, HECTARE_READ_ONLY);
            uint8_t kept[5] = {0};
            file = hectare_file_open(volume, "/kept", HECTARE_READ, 0);
            if (hectare_file_read(file, kept, 5, 0) != 4 || memcmp(kept, "kept", 4) != 0) {
                printf("failing at %ld: %s\n", first, hectare_message());
                wrong++;
            }
            if (hectare_file_close(file) < 0 || hectare_close(volume) < 0) wrong++;
            if (reached) last = first + step;
            if (first / step % every != 0 || !sound) continue;
            char name[4096];
            snprintf(name, sizeof name, "%s/%d.img", argv[1], images++);
            FILE *out = fopen(name, "wb");
            if (out == NULL || fwrite(bytes, 1, SIZE, out) != SIZE || fclose(out) != 0) return 1;
        }
    }
    printf("%ld calls of the device\n", last);
    free(bytes);
    free(whole.bytes);
    if (wrong > 0) printf("%d wrong\n", wrong);
    return wrong > 0 || last < 20;
}
