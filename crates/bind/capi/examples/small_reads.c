// Reads at random in a file for some seconds, and prints how many reads a second:
// small_reads IMAGE BYTES SECONDS. `cargo xtask bench c` compares it with small_reads.rs, which does the same.

#include <hectare.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    uintptr_t len = strtoull(argv[2], NULL, 10);
    double seconds = strtod(argv[3], NULL);
    hectare_volume *volume = hectare_open(argv[1], HECTARE_READ_ONLY);
    hectare_file *file = hectare_file_open(volume, "/data", HECTARE_READ, 0);
    hectare_stat about;
    if (hectare_file_stat(file, &about) < 0 || about.size <= len) return 1;
    uint8_t *buffer = malloc(len);
    uint64_t random = 1, reads = 0, sum = 0;
    double start = now(), end = start;
    while (end - start < seconds) {
        for (int batch = 0; batch < 1000; batch++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            uint64_t at = (random >> 33) % (about.size - len);
            if (hectare_file_read(file, buffer, len, at) != (intptr_t)len) return 1;
            sum += buffer[0];
        }
        reads += 1000;
        end = now();
    }
    printf("%.0f %" PRIu64 "\n", (double)reads / (end - start), sum & 1);
    free(buffer);
    return hectare_file_close(file) < 0 || hectare_close(volume) < 0;
}
