// Makes an image of directories, archives and container images, as `hectare build` does:
// build [-s min|BYTES] [-f FREE] [-e EPOCH] [-t TYPE] [-L LABEL] [-O FEATURES] [-b BLOCK] [-u UID:GID]
//       [-x PATTERN]... [-r] IMAGE SOURCE...

#include <hectare.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *exclude[16];
    hectare_build_options options;
    if (hectare_build_defaults(&options) < 0) return 1;
    options.exclude = exclude;
    for (int option; (option = getopt(argc, argv, "s:f:e:t:L:O:b:u:x:r")) != -1;) {
        switch (option) {
        case 's':
            options.size = strcmp(optarg, "min") == 0 ? HECTARE_SIZE_MINIMAL : strtoull(optarg, NULL, 10);
            break;
        case 'f': options.free = strtoull(optarg, NULL, 10); break;
        case 'e': options.source_date_epoch = strtoll(optarg, NULL, 10); break;
        case 't': options.fs_type = optarg; break;
        case 'L': options.label = optarg; break;
        case 'O': options.features = optarg; break;
        case 'b': options.block_size = (uint32_t)strtoul(optarg, NULL, 10); break;
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
