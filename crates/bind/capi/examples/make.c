// Makes an image, fills it, and checks it: make IMAGE.

#include <hectare.h>
#include <stdio.h>
#include <string.h>

#define MUST(call)                                                       \
    do {                                                                 \
        if ((call) < 0) {                                                \
            fprintf(stderr, "%s: %s\n", #call, hectare_message());       \
            return 1;                                                    \
        }                                                                \
    } while (0)

static void print(void *user, const char *line) {
    (void)user;
    puts(line);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: make NEW-IMAGE\n");
        return 2;
    }
    MUST(hectare_mkfs(argv[1], 32 << 20, "example", "^has_journal", 0));
    hectare_volume *volume = hectare_open(argv[1], HECTARE_READ_WRITE);
    if (volume == NULL) {
        fprintf(stderr, "%s\n", hectare_message());
        return 1;
    }
    MUST(hectare_mkdir(volume, "/etc", 0755));
    hectare_file *file =
        hectare_file_open(volume, "/etc/hostname", HECTARE_WRITE | HECTARE_CREATE | HECTARE_EXCLUSIVE, 0644);
    if (file == NULL) {
        fprintf(stderr, "%s\n", hectare_message());
        return 1;
    }
    MUST(hectare_file_write(file, (const uint8_t *)"box\n", 4, 0));
    MUST(hectare_file_sync(file));
    MUST(hectare_file_close(file));
    MUST(hectare_symlink(volume, "hostname", "/etc/name"));
    MUST(hectare_setxattr(volume, "/etc/name", "user.from", (const uint8_t *)"c", 1));
    hectare_time then = {.seconds = 86400, .nanoseconds = 5};
    MUST(hectare_lutimes(volume, "/etc/hostname", NULL, &then));
    MUST(hectare_lchown(volume, "/etc/hostname", 7, UINT32_MAX));
    hectare_stat about;
    MUST(hectare_stat_path(volume, "/etc/name", &about));
    if (about.size != 4 || about.uid != 7 || about.gid != 0 || about.mode != 0100644 || about.mtime.seconds != 86400) {
        fprintf(stderr, "the inode says something else\n");
        return 1;
    }
    MUST(hectare_close(volume));
    MUST(hectare_check(argv[1], print, NULL));
    return 0;
}
