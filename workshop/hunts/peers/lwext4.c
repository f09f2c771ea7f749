// Lists an image by lwext4, or changes one: lwext4 list IMAGE, lwext4 work IMAGE < OPERATIONS. The form of the
// lines is described in listing.py, the operations in writing.rs. A list opens the image for writing, too, since
// lwext4 replays a journal only so: give it a copy.

#include <ext4.h>
#include <ext4_inode.h>
#include <ext4_super.h>
#include <file_dev.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 65536
#define MOUNTED "/mp/"

// SHA-256, as FIPS 180-4 describes it.
struct sum {
    uint32_t state[8];
    uint64_t len;
    uint8_t block[64];
    size_t filled;
};

static uint32_t right(uint32_t of, int by) { return of >> by | of << (32 - by); }

// The first 32 bits of the fractional parts of roots of primes: square ones of the first 8, else cube ones of 64.
static uint32_t constant(int number, int cube) {
    int prime = 2;
    for (int found = 0;; prime++) {
        int is_prime = 1;
        for (int by = 2; by * by <= prime; by++) is_prime &= prime % by != 0;
        if (is_prime && found++ == number) break;
    }
    // The largest root whose square or cube is not above the prime, in units of 2^-32.
    unsigned __int128 root = 0;
    for (int bit = 35; bit >= 0; bit--) {
        unsigned __int128 next = root | (unsigned __int128)1 << bit;
        // next^3 <= prime * 2^96, divided by next, so that 128 bits are enough.
        unsigned __int128 limit = cube ? ((unsigned __int128)prime << 96) / next : (unsigned __int128)prime << 64;
        if (next * next <= limit) root = next;
    }
    return (uint32_t)root;
}

static void compress(struct sum *sum) {
    static uint32_t k[64];
    if (k[0] == 0) {
        for (int at = 0; at < 64; at++) k[at] = constant(at, 1);
    }
    uint32_t w[64], v[8];
    for (int at = 0; at < 16; at++) {
        w[at] = (uint32_t)sum->block[at * 4] << 24 | (uint32_t)sum->block[at * 4 + 1] << 16 |
                (uint32_t)sum->block[at * 4 + 2] << 8 | sum->block[at * 4 + 3];
    }
    for (int at = 16; at < 64; at++) {
        uint32_t s0 = right(w[at - 15], 7) ^ right(w[at - 15], 18) ^ w[at - 15] >> 3;
        uint32_t s1 = right(w[at - 2], 17) ^ right(w[at - 2], 19) ^ w[at - 2] >> 10;
        w[at] = w[at - 16] + s0 + w[at - 7] + s1;
    }
    memcpy(v, sum->state, sizeof v);
    for (int at = 0; at < 64; at++) {
        uint32_t s1 = right(v[4], 6) ^ right(v[4], 11) ^ right(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[at] + w[at];
        uint32_t s0 = right(v[0], 2) ^ right(v[0], 13) ^ right(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int at = 0; at < 8; at++) sum->state[at] += v[at];
}

static void begin(struct sum *sum) {
    memset(sum, 0, sizeof *sum);
    for (int at = 0; at < 8; at++) sum->state[at] = constant(at, 0);
}

static void update(struct sum *sum, const uint8_t *bytes, size_t len) {
    sum->len += len;
    for (size_t at = 0; at < len; at++) {
        sum->block[sum->filled++] = bytes[at];
        if (sum->filled == 64) {
            compress(sum);
            sum->filled = 0;
        }
    }
}

static void update_number(struct sum *sum, uint64_t number) {
    uint8_t bytes[8];
    for (int at = 0; at < 8; at++) bytes[at] = (uint8_t)(number >> (8 * at));
    update(sum, bytes, 8);
}

static void finish(struct sum *sum, char *text) {
    uint64_t bits = sum->len * 8;
    update(sum, (const uint8_t *)"\x80", 1);
    while (sum->filled != 56) update(sum, (const uint8_t *)"", 1);
    for (int at = 7; at >= 0; at--) {
        uint8_t byte = (uint8_t)(bits >> (8 * at));
        update(sum, &byte, 1);
    }
    for (int at = 0; at < 8; at++) sprintf(text + at * 8, "%08" PRIx32, sum->state[at]);
}

static void hex(const void *bytes, size_t len) {
    for (size_t at = 0; at < len; at++) printf("%02x", ((const uint8_t *)bytes)[at]);
}

static void failed(const char *path, const char *what, int error) {
    printf("!\t");
    hex(path, strlen(path));
    printf("\t%s: %s\n", what, strerror(error));
}

static void named(char *to, const char *path) { snprintf(to, 8192, MOUNTED "%s", path); }

static int digest(const char *full, uint64_t size, char *text) {
    static uint8_t buffer[CHUNK], zeros[CHUNK];
    ext4_file file;
    int error = ext4_fopen(&file, full, "rb");
    if (error != EOK) return error;
    struct sum sum;
    begin(&sum);
    uint64_t done = 0;
    for (uint64_t number = 0;; number++) {
        size_t filled = 0, some = 1;
        while (filled < CHUNK && some > 0 && error == EOK) {
            some = 0;
            error = ext4_fread(&file, buffer + filled, CHUNK - filled, &some);
            filled += some;
        }
        if (error != EOK) break;
        memset(buffer + filled, 0, CHUNK - filled);
        done += filled;
        if (memcmp(buffer, zeros, CHUNK) != 0) {
            update_number(&sum, number);
            update(&sum, buffer, CHUNK);
        }
        if (filled < CHUNK) break;
    }
    ext4_fclose(&file);
    if (error == EOK && done != size) error = EIO;
    update_number(&sum, UINT64_MAX);
    update_number(&sum, size);
    finish(&sum, text);
    return error;
}

static int by_text(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

// The attributes, in order; an error, or 0.
static int attributes(const char *full) {
    static char names[65536], value[65536];
    static char *texts[1024];
    size_t len = 0, count = 0;
    int error = ext4_listxattr(full, names, sizeof names, &len);
    if (error != EOK) return error;
    for (size_t at = 0; at < len && count < 1024;) {
        size_t name_len = strnlen(names + at, len - at), value_len = 0;
        error = ext4_getxattr(full, names + at, name_len, value, sizeof value, &value_len);
        if (error != EOK) return error;
        char *text = malloc(2 * (name_len + value_len) + 2), *end = text;
        for (size_t from = 0; from < name_len; from++) end += sprintf(end, "%02x", (uint8_t)names[at + from]);
        end += sprintf(end, "=");
        for (size_t from = 0; from < value_len; from++) end += sprintf(end, "%02x", (uint8_t)value[from]);
        texts[count++] = text;
        at += name_len + 1;
    }
    qsort(texts, count, sizeof *texts, by_text);
    for (size_t at = 0; at < count; at++) {
        printf("%s%s", at > 0 ? "," : "", texts[at]);
        free(texts[at]);
    }
    if (count == 0) printf("-");
    return 0;
}

static void entry(const char *path, int depth) {
    char full[8192], text[65] = "-", target[8192];
    static const char kinds[] = "?pc?d?b?f?l?s";
    named(full, path);
    uint32_t number;
    struct ext4_inode inode;
    int error = ext4_raw_inode_fill(full, &number, &inode);
    if (error != EOK || depth > 300) {
        failed(path, "inode", error == EOK ? ELOOP : error);
        return;
    }
    struct ext4_sblock *volume;
    ext4_get_sblock(MOUNTED, &volume);
    uint32_t mode = ext4_inode_get_mode(volume, &inode);
    uint64_t size = ext4_inode_get_size(volume, &inode);
    char kind = mode >> 12 < sizeof kinds ? kinds[mode >> 12] : '?';
    size_t target_len = 0;
    if (kind == 'f') error = digest(full, size, text);
    if (kind == 'l') error = ext4_readlink(full, target, sizeof target, &target_len);
    if (error != EOK) {
        failed(path, kind == 'f' ? "content" : "target", error);
        return;
    }
    int64_t seconds = (int32_t)ext4_inode_get_modif_time(&inode);
    uint32_t extra = 0;
    if (ext4_get16(volume, inode_size) > 128 && inode.extra_isize >= 12) extra = inode.mtime_extra;
    int64_t mtime = (seconds + ((int64_t)(extra & 3) << 32)) * 1000000000 + (extra >> 2);
    hex(path, strlen(path));
    printf("\t%c\t%" PRIo32 "\t%" PRIu32, kind, mode & 07777, inode.uid | (uint32_t)inode.osd2.linux2.uid_high << 16);
    printf("\t%" PRIu32 "\t%" PRIu64, inode.gid | (uint32_t)inode.osd2.linux2.gid_high << 16, size);
    printf("\t%" PRIu16 "\t%" PRId64 "\t", ext4_inode_get_links_cnt(&inode), mtime);
    if (kind == 'l') hex(target, target_len);
    else printf("%s", text);
    printf("\t");
    error = attributes(full);
    if (error != 0) printf("?");
    printf("\n");
    if (error != 0 && error != ENOTSUP) failed(path, "attributes", error);
    if (kind != 'd') return;
    ext4_dir directory;
    error = ext4_dir_open(&directory, full);
    if (error != EOK) {
        failed(path, "directory", error);
        return;
    }
    char **names = NULL;
    size_t count = 0;
    for (const ext4_direntry *found; (found = ext4_dir_entry_next(&directory)) != NULL;) {
        size_t len = found->name_length;
        if ((len == 1 && found->name[0] == '.') || (len == 2 && memcmp(found->name, "..", 2) == 0)) continue;
        names = realloc(names, (count + 1) * sizeof *names);
        names[count] = malloc(len + 1);
        memcpy(names[count], found->name, len);
        names[count++][len] = 0;
        if (count > 200000) break;
    }
    ext4_dir_close(&directory);
    for (size_t at = 0; at < count; at++) {
        char *inner = malloc(strlen(path) + strlen(names[at]) + 2);
        sprintf(inner, "%s%s%s", path, *path != 0 ? "/" : "", names[at]);
        entry(inner, depth + 1);
        free(inner);
        free(names[at]);
    }
    free(names);
}

static int put(const char *full, const char *flags, uint64_t len, uint64_t seed) {
    ext4_file file;
    int error = ext4_fopen(&file, full, flags);
    if (error != EOK) return error;
    uint8_t *bytes = malloc(len + 1);
    for (uint64_t at = 0; at < len; at++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[at] = (uint8_t)(seed >> 56);
    }
    size_t done = 0;
    error = ext4_fwrite(&file, bytes, len, &done);
    free(bytes);
    int closed = ext4_fclose(&file);
    if (error == EOK && done != len) error = ENOSPC;
    return error == EOK ? closed : error;
}

static int is_directory(const char *full) {
    uint32_t mode;
    return ext4_mode_get(full, &mode) == EOK && (mode & 0170000) == 0040000;
}

static int one(char *line) {
    char *word[4] = {line}, first[8192], second[8192];
    int words = 1;
    for (char *at = line; *at != 0 && words < 4; at++) {
        if (*at != ' ') continue;
        *at = 0;
        word[words++] = at + 1;
    }
    uint64_t number = words > 2 ? strtoull(word[2], NULL, 10) : 0;
    uint64_t seed = words > 3 ? strtoull(word[3], NULL, 10) : 0;
    named(first, word[1]);
    if (words > 2) named(second, word[2]);
    if (strcmp(word[0], "mkdir") == 0) return ext4_dir_mk(first);
    if (strcmp(word[0], "write") == 0) {
        int error = put(first, "r+b", number, seed);
        return error == ENOENT ? put(first, "wb", number, seed) : error;
    }
    if (strcmp(word[0], "append") == 0) return put(first, "ab", number, seed);
    if (strcmp(word[0], "remove") == 0) return is_directory(first) ? ext4_dir_rm(first) : ext4_fremove(first);
    if (strcmp(word[0], "rename") == 0) {
        return is_directory(first) ? ext4_dir_mv(first, second) : ext4_frename(first, second);
    }
    if (strcmp(word[0], "symlink") == 0) return ext4_fsymlink(word[2], first);
    if (strcmp(word[0], "link") == 0) return ext4_flink(first, second);
    if (strcmp(word[0], "chmod") == 0) return ext4_mode_set(first, (uint32_t)number);
    if (strcmp(word[0], "truncate") == 0) {
        ext4_file file;
        int error = ext4_fopen(&file, first, "r+b");
        if (error != EOK) return error;
        error = ext4_ftruncate(&file, number);
        int closed = ext4_fclose(&file);
        return error == EOK ? closed : error;
    }
    return EINVAL;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int works = strcmp(argv[1], "work") == 0;
    file_dev_name_set(argv[2]);
    int error = ext4_device_register(file_dev_get(), "device");
    if (error == EOK) error = ext4_mount("device", MOUNTED, false);
    if (error == EOK) error = ext4_recover(MOUNTED);
    if (error == ENOTSUP) error = EOK; // there is no journal
    if (error == EOK && works) error = ext4_journal_start(MOUNTED);
    if (error == ENOTSUP) error = EOK;
    if (error != EOK) {
        fprintf(stderr, "mount: %s\n", strerror(error));
        return 1;
    }
    if (!works) entry("", 0);
    else {
        ext4_cache_write_back(MOUNTED, true);
        static char line[1 << 16];
        while (fgets(line, sizeof line, stdin) != NULL) {
            line[strcspn(line, "\n")] = 0;
            error = one(line);
            if (error == EOK) printf("done\n");
            else printf("error\t%s\n", strerror(error));
            fflush(stdout);
        }
        ext4_cache_write_back(MOUNTED, false);
        ext4_journal_stop(MOUNTED);
    }
    printf(".\n");
    return ext4_umount(MOUNTED) != EOK;
}
