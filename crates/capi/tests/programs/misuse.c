// What C can get wrong: each is an error, and nothing else.

#include <errno.h>
#include <hectare.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int wrong;

#define EXPECT(call, number)                                                                              \
    do {                                                                                                  \
        errno = 0;                                                                                        \
        long long got = (long long)(call);                                                                \
        if ((got != -1 && got != 0) || hectare_errno() != (number) || errno != (number)) {                \
            printf("%s: %lld, errno %d, %s\n", #call, got, hectare_errno(), hectare_message());           \
            wrong++;                                                                                      \
        }                                                                                                 \
    } while (0)

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
    EXPECT(hectare_open(NULL, 0), EFAULT);
    EXPECT(hectare_open("/nowhere/at/all", 0), ENOENT);
    EXPECT(hectare_open(argv[1], 77), EINVAL);
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
    EXPECT(hectare_open_device(NULL, 0), EFAULT);
    hectare_device empty;
    memset(&empty, 0, sizeof empty);
    EXPECT(hectare_open_device(&empty, 0), EINVAL);
    empty.struct_size = sizeof empty;
    EXPECT(hectare_open_device(&empty, 0), EFAULT);

    hectare_volume *volume = hectare_open(argv[1], HECTARE_READ_WRITE);
    if (volume == NULL) {
        printf("%s\n", hectare_message());
        return 1;
    }
    EXPECT(hectare_open(argv[1], HECTARE_READ_WRITE), EBUSY);
    EXPECT(hectare_stat_path(volume, NULL, &about), EFAULT);
    EXPECT(hectare_stat_path(volume, "/", NULL), EFAULT);
    EXPECT(hectare_stat_path(volume, "/no", &about), ENOENT);
    EXPECT(hectare_mkdir(volume, "/a\nb/c", 0700), ENOENT);
    EXPECT(hectare_rename(volume, "/lost+found", NULL), EFAULT);
    EXPECT(hectare_readlink(volume, "/lost+found", &byte, 1), EINVAL);
    EXPECT(hectare_getxattr(volume, "/", "user.none", &byte, 1), ENODATA);
    EXPECT(hectare_setxattr(volume, "/", "user.a", NULL, 7), EFAULT);
    EXPECT(hectare_file_open(volume, "/", HECTARE_READ, 0), EISDIR);
    EXPECT(hectare_file_open(volume, "/x", 1 << 20, 0), EINVAL);
    EXPECT(hectare_file_open(volume, "/x", 0, 0), EINVAL);
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
    EXPECT(hectare_file_truncate(file, 7), EBADF);
    if (hectare_file_stat(file, &about) != 0) wrong++;
    if (hectare_readdir(directory, &entry) < 0) wrong++;
    if (hectare_closedir(directory) != 0 || hectare_file_close(file) < 0) wrong++;
    EXPECT(hectare_readdir(directory, &entry), EBADF);
    if (wrong > 0) printf("%d wrong\n", wrong);
    return wrong > 0;
}
