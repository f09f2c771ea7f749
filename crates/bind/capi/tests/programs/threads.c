// Threads that do everything at once on one volume, on a device of the program's own, while it is closed, and
// of which several close the same thing: threads ROUNDS. Under ThreadSanitizer, too (cargo xtask sanitize).

#include <errno.h>
#include <hectare.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 6
#define SIZE ((uint64_t)24 << 20)

static hectare_volume *volume;
static hectare_file *shared_file;
static hectare_dir *shared_directory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t start;
static int wrong, closing, closed_volumes, closed_files, closed_directories, released;

// The library may call from several threads at once, and orders what overlaps; the storage here has a lock of
// its own, as it must.
static int get(void *user, uint8_t *to, uintptr_t len, uint64_t at) {
    pthread_mutex_lock(&lock);
    memcpy(to, (uint8_t *)user + at, len);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int set(void *user, const uint8_t *from, uintptr_t len, uint64_t at) {
    pthread_mutex_lock(&lock);
    memcpy((uint8_t *)user + at, from, len);
    pthread_mutex_unlock(&lock);
    return 0;
}

static void let_go(void *user) {
    (void)user;
    __atomic_add_fetch(&released, 1, __ATOMIC_SEQ_CST);
}

static void count(int *what) { __atomic_add_fetch(what, 1, __ATOMIC_SEQ_CST); }

// What a call may give while others work and close.
static void expect(long long result, const char *what) {
    if (result >= 0) return;
    int error = hectare_errno();
    if (error != errno) count(&wrong);
    // A file that has lost its name is gone with the volume, but not before.
    if (error == ESTALE && __atomic_load_n(&closing, __ATOMIC_SEQ_CST) > 0) return;
    switch (error) {
    case EBADF: case ENOENT: case EEXIST: case ENOTEMPTY: case ENODATA: case ENOSPC: case ENOTDIR: case ENXIO:
        return;
    default:
        printf("%s: errno %d, %s\n", what, error, hectare_message());
        count(&wrong);
    }
}

static void close_volume(void) {
    count(&closing);
    if (hectare_close(volume) == 0) count(&closed_volumes);
}

static void *worker(void *argument) {
    unsigned number = (unsigned)(uintptr_t)argument;
    char own[32], other[32], moved[32], never[64];
    uint8_t bytes[9000];
    memset(bytes, (int)number, sizeof bytes);
    snprintf(own, sizeof own, "/d%u", number % 3);
    snprintf(other, sizeof other, "/d%u/f", (number + 1) % 3);
    snprintf(moved, sizeof moved, "/d%u/g", number % 3);
    snprintf(never, sizeof never, "/never by %u", number);
    pthread_barrier_wait(&start);
    for (int round = 0; round < 60; round++) {
        expect(hectare_mkdir(volume, own, 0700), "mkdir");
        const uint32_t flags = HECTARE_READ | HECTARE_WRITE | HECTARE_CREATE;
        hectare_file *file = hectare_file_open(volume, other, flags, 0600);
        expect(file == NULL ? -1 : 0, "open");
        expect(hectare_file_write(file, bytes, sizeof bytes, (uint64_t)round * 777), "write");
        expect(hectare_file_read(file, bytes, 100, 0), "read");
        if (round % 16 == 0) expect(hectare_file_sync(file), "sync");
        expect(hectare_file_close(file), "close");
        expect(hectare_file_write(shared_file, bytes, 50, number), "write shared");
        hectare_stat about;
        expect(hectare_file_stat(shared_file, &about), "stat shared");
        hectare_dirent entry;
        expect(hectare_readdir(shared_directory, &entry), "readdir");
        expect(hectare_rename(volume, other, moved), "rename");
        expect(hectare_setxattr(volume, other, "user.a", bytes, 20), "setxattr");
        expect(hectare_unlink(volume, round % 2 == 0 ? other : moved), "unlink");
        // The message is this thread's.
        if (hectare_stat_path(volume, never, &about) != -1) count(&wrong);
        if (hectare_errno() == ENOENT && strstr(hectare_message(), never) == NULL) {
            printf("%s: %s\n", never, hectare_message());
            count(&wrong);
        }
    }
    // All close the same; of each one is the first.
    if (hectare_file_close(shared_file) == 0) count(&closed_files);
    if (hectare_closedir(shared_directory) == 0) count(&closed_directories);
    close_volume();
    return NULL;
}

static void *closer(void *argument) {
    (void)argument;
    pthread_barrier_wait(&start);
    hectare_stat about;
    for (int round = 0; round < 200; round++) hectare_stat_path(volume, "/", &about);
    close_volume();
    return NULL;
}

static int round_of(uint8_t *bytes, int closes_early) {
    hectare_device device = {
        .struct_size = sizeof device,
        .user = bytes,
        .size = SIZE,
        .read = get,
        .write = set,
    };
    if (hectare_mkfs_device(&device, 1) < 0) return -1;
    device.release = let_go;
    volume = hectare_open_device(&device, HECTARE_READ_WRITE);
    shared_file = hectare_file_open(volume, "/shared", HECTARE_READ | HECTARE_WRITE | HECTARE_CREATE, 0600);
    shared_directory = hectare_opendir(volume, "/");
    if (shared_file == NULL || shared_directory == NULL) return -1;
    wrong = closing = closed_volumes = closed_files = closed_directories = released = 0;
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (uintptr_t number = 0; number < THREADS; number++) {
        void *(*run)(void *) = closes_early && number == 0 ? closer : worker;
        if (pthread_create(&threads[number], NULL, run, (void *)number) != 0) return -1;
    }
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    pthread_barrier_destroy(&start);
    if (closed_volumes != 1 || closed_files > 1 || closed_directories != 1 || released != 1) {
        printf("closed %d %d %d, released %d\n", closed_volumes, closed_files, closed_directories, released);
        wrong++;
    }
    return -wrong;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    uint8_t *bytes = calloc(1, SIZE);
    for (int round = 0; round < atoi(argv[1]); round++) {
        if (round_of(bytes, round % 2) < 0) {
            printf("round %d: %s\n", round, hectare_message());
            return 1;
        }
    }
    FILE *out = fopen(argv[2], "wb");
    if (out == NULL || fwrite(bytes, 1, SIZE, out) != SIZE || fclose(out) != 0) return 1;
    free(bytes);
    return 0;
}
