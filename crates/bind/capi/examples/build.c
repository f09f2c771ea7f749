// Makes an image of directories, archives and container images, as `hectare build` does:
// build [-s min|BYTES] [-f FREE] [-e EPOCH] [-t TYPE] [-L LABEL] [-O FEATURES] [-b BLOCK] [-u UID:GID]
//       [-x PATTERN]... [-r] IMAGE SOURCE...

#include <hectare.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A whole number; the program ends with 2 if it is none, or less than `least`.
static uint64_t number(const char *text, uint64_t least) {
    char *end;
    uint64_t found = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != 0 || found < least) {
        fprintf(stderr, "build: %s is no number of at least %" PRIu64 "\n", text, least);
        exit(2);
    }
    return found;
}

int main(int argc, char **argv) {
    const char *exclude[16];
    hectare_build_options options;
    if (hectare_build_defaults(&options, sizeof options) < 0) return 1;
    options.exclude = exclude;
    for (int option; (option = getopt(argc, argv, "s:f:e:t:L:O:b:u:x:r")) != -1;) {
        switch (option) {
        case 's':
            options.size = strcmp(optarg, "min") == 0 ? HECTARE_SIZE_MINIMAL : number(optarg, 1024);
            break;
        case 'f': options.free = number(optarg, 0); break;
        case 'e': options.source_date_epoch = (int64_t)number(optarg, 0); break;
        case 't': options.fs_type = optarg; break;
        case 'L': options.label = optarg; break;
        case 'O': options.features = optarg; break;
        case 'b': options.block_size = (uint32_t)number(optarg, 1024); break;
        case 'u':
            if (sscanf(optarg, "%" SCNu32 ":%" SCNu32, &options.uid, &options.gid) != 2) return 2;
            break;
        case 'x':
            if (options.exclude_count == sizeof exclude / sizeof *exclude) return 2;
            exclude[options.exclude_count++] = optarg;
            break;
        case 'r': options.replace = 1; break;
        default: return 2;
        }
    }
    if (argc - optind < 2) {
        fprintf(stderr, "usage: build [OPTION]... IMAGE SOURCE...\n");
        return 2;
    }
    const char *const *sources = (const char *const *)argv + optind + 1;
    int64_t size = hectare_build_with(sources, (uintptr_t)(argc - optind - 1), argv[optind], &options);
    if (size < 0) {
        fprintf(stderr, "build: %s\n", hectare_message());
        return 1;
    }
    printf("%s: %" PRId64 " bytes\n", argv[optind], size);
    return 0;
}
