// Lists a directory of an image and prints a file: list IMAGE DIRECTORY FILE.

#include <hectare.h>
#include <inttypes.h>
#include <stdio.h>

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, hectare_message());
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: list IMAGE DIRECTORY FILE\n");
        return 2;
    }
    hectare_volume *volume = hectare_open(argv[1], HECTARE_READ_ONLY);
    if (volume == NULL) return failed("open");
    hectare_dir *directory = hectare_opendir(volume, argv[2]);
    if (directory == NULL) return failed("opendir");
    hectare_dirent entry;
    int more;
    while ((more = hectare_readdir(directory, &entry)) == 1) {
        printf("%" PRIu64 " %" PRIu32 " %s\n", entry.ino, entry.kind, (const char *)entry.name);
    }
    if (more < 0) return failed("readdir");
    hectare_closedir(directory);

    hectare_file *file = hectare_file_open(volume, argv[3], HECTARE_READ, 0);
    if (file == NULL) return failed("file");
    uint8_t buffer[4096];
    uint64_t at = 0;
    intptr_t some;
    while ((some = hectare_file_read(file, buffer, sizeof buffer, at)) > 0) {
        fwrite(buffer, 1, (size_t)some, stdout);
        at += (uint64_t)some;
    }
    if (some < 0) return failed("read");
    hectare_file_close(file);
    return hectare_close(volume) == 0 ? 0 : failed("close");
}
