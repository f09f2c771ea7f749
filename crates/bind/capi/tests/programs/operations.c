// Reads operations, one a line, and prints what each gave: a number of an error, or a result.
//
//     operations IMAGE < LINES          on the volume in an image, by hectare.h
//     operations DIRECTORY < LINES      on a directory of the host, by POSIX (compiled with -DON_HOST)
//
// Both print the same lines if a volume behaves as a directory of Linux does. An operation is a word and its
// arguments, apart by one space; see `run`. Up to eight files are kept open, by number.

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 8
#define LONGEST (1 << 20)

// What both sides give.
struct found {
    uint32_t mode;
    uint64_t size, nlink;
    int64_t atime, mtime;
    uint32_t atime_nanoseconds, mtime_nanoseconds, uid, gid;
};

struct entry {
    char name[256];
    uint32_t kind;
};

static uint8_t buffer[LONGEST];
static struct entry entries[4096];

#ifdef ON_HOST
#include "operations_host.h"
#else
#include "operations_volume.h"
#endif

static void fill(size_t len, uint32_t seed) {
    for (size_t at = 0; at < len; at++) {
        seed = seed * 1664525 + 1013904223;
        buffer[at] = (uint8_t)(seed >> 24);
    }
}

static uint64_t digest(const uint8_t *bytes, size_t len) {
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t at = 0; at < len; at++) sum = (sum ^ bytes[at]) * 0x100000001b3;
    return sum;
}

static int compare(const void *left, const void *right) {
    return strcmp(((const struct entry *)left)->name, ((const struct entry *)right)->name);
}

// What a call gave: 0 or more, or its errno.
static void done(int64_t result) {
    if (result < 0) printf("E%d\n", errno);
    else printf("%" PRId64 "\n", result);
}

static void show_content(int64_t len) {
    if (len < 0) printf("E%d\n", errno);
    else printf("%" PRId64 " %016" PRIx64 "\n", len, digest(buffer, (size_t)len));
}

static void show_found(int failed, const struct found *found) {
    if (failed < 0) {
        printf("E%d\n", errno);
        return;
    }
    int is_directory = (found->mode & 0170000) == 0040000;
    printf("%o", found->mode);
    // How large a directory is and how it counts its links is the file system's affair.
    if (!is_directory) printf(" %" PRIu64 " %" PRIu64, found->size, found->nlink);
    putchar('\n');
}

static void show_times(int failed, const struct found *found) {
    if (failed < 0) printf("E%d\n", errno);
    else
        printf("%" PRId64 ".%09" PRIu32 " %" PRId64 ".%09" PRIu32 "\n", found->atime,
               found->atime_nanoseconds, found->mtime, found->mtime_nanoseconds);
}

static void show_owners(int failed, const struct found *found) {
    if (failed < 0) printf("E%d\n", errno);
    else printf("%" PRIu32 " %" PRIu32 "\n", found->uid, found->gid);
}

static void list(const char *path) {
    int count = side_list(path, entries, sizeof entries / sizeof *entries);
    if (count < 0) {
        printf("E%d\n", errno);
        return;
    }
    qsort(entries, (size_t)count, sizeof *entries, compare);
    for (int at = 0; at < count; at++) {
        printf("%s%s:%" PRIu32, at > 0 ? " " : "", entries[at].name, entries[at].kind);
    }
    putchar('\n');
}

// Everything below a directory, a line each.
static void tree(const char *path) {
    int count = side_list(path, entries, sizeof entries / sizeof *entries);
    if (count < 0) {
        printf("%s E%d\n", path, errno);
        return;
    }
    qsort(entries, (size_t)count, sizeof *entries, compare);
    struct entry *here = malloc((size_t)count * sizeof *here + 1);
    if (here == NULL) abort();
    memcpy(here, entries, (size_t)count * sizeof *here);
    for (int at = 0; at < count; at++) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, here[at].name);
        struct found found;
        printf("%s ", inner);
        show_found(side_stat(inner, 0, &found), &found);
        if (here[at].kind == 4) tree(inner);
        if (here[at].kind == 8) show_content(side_read_path(inner, buffer, LONGEST));
        if (here[at].kind == 10) {
            intptr_t len = side_readlink(inner, buffer, LONGEST);
            printf("-> %.*s\n", (int)len, (const char *)buffer);
        }
    }
    free(here);
}

static int run(char *line) {
    char *word[6] = {line};
    int words = 1;
    for (char *at = line; *at != 0 && words < 6; at++) {
        if (*at != ' ') continue;
        *at = 0;
        word[words++] = at + 1;
    }
    uint64_t number[6] = {0};
    for (int at = 1; at < words; at++) number[at] = strtoull(word[at], NULL, 10);
    const char *what = word[0], *path = word[1];
    size_t slot = (size_t)number[1] % SLOTS;
    struct found found = {0};
#define IS(name, arguments) (strcmp(what, name) == 0 && words == (arguments) + 1)
    if (IS("open", 4)) done(side_open(slot, word[2], (uint32_t)number[3], (uint32_t)number[4]));
    else if (IS("close", 1)) done(side_close(slot));
    else if (IS("read", 3)) show_content(side_read(slot, buffer, number[2] % LONGEST, number[3]));
    else if (IS("write", 4)) {
        fill(number[2] % LONGEST, (uint32_t)number[4]);
        done(side_write(slot, buffer, number[2] % LONGEST, number[3]));
    } else if (IS("truncate", 2)) done(side_truncate(slot, number[2]));
    else if (IS("allocate", 3)) done(side_allocate(slot, number[2], number[3]));
    else if (IS("punch", 3)) done(side_punch(slot, number[2], number[3]));
    else if (IS("sync", 1)) done(side_sync(slot));
    else if (IS("fstat", 1)) {
        int failed = side_fstat(slot, &found);
        show_found(failed, &found);
    } else if (IS("content", 1)) show_content(side_read_path(path, buffer, LONGEST));
    else if (IS("stat", 1)) {
        int failed = side_stat(path, 1, &found);
        show_found(failed, &found);
    } else if (IS("lstat", 1)) {
        int failed = side_stat(path, 0, &found);
        show_found(failed, &found);
    } else if (IS("utimes", 4)) {
        int follow = number[4] != 0, failed = side_utimes(path, follow, number[2], number[3]);
        if (failed == 0) failed = side_stat(path, follow, &found);
        show_times(failed, &found);
    } else if (IS("mkdir", 2)) done(side_mkdir(path, (uint32_t)number[2]));
    else if (IS("unlink", 1)) done(side_unlink(path));
    else if (IS("rmdir", 1)) done(side_rmdir(path));
    else if (IS("rename", 2)) done(side_rename(path, word[2]));
    else if (IS("rename", 3)) done(side_rename_with(path, word[2], (uint32_t)number[3]));
    else if (IS("link", 2)) done(side_link(path, word[2]));
    else if (IS("symlink", 2)) done(side_symlink(path, word[2]));
    else if (IS("readlink", 1)) show_content(side_readlink(path, buffer, LONGEST));
    else if (IS("chmod", 2)) done(side_chmod(path, (uint32_t)number[2]));
    else if (IS("chown", 4)) {
        int follow = number[4] != 0;
        int failed = side_chown(path, follow, (uint32_t)number[2], (uint32_t)number[3]);
        if (failed == 0) failed = side_stat(path, follow, &found);
        show_owners(failed, &found);
    }
    else if (IS("setxattr", 4)) {
        fill(number[3] % LONGEST, (uint32_t)number[4]);
        done(side_setxattr(path, word[2], buffer, number[3] % LONGEST));
    } else if (IS("getxattr", 3)) show_content(side_getxattr(path, word[2], buffer, number[3] % LONGEST));
    else if (IS("removexattr", 2)) done(side_removexattr(path, word[2]));
    else if (IS("list", 1)) list(path);
    else if (IS("tree", 1)) tree(path);
    else {
        fprintf(stderr, "%s with %d arguments is no operation\n", what, words - 1);
        return 2;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    if (side_begin(argv[1]) < 0) return 1;
    static char line[1 << 16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        int failed = run(line);
        if (failed) return failed;
    }
    for (size_t slot = 0; slot < SLOTS; slot++) side_close(slot);
    return side_end() < 0;
}
