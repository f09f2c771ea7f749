// A volume in the program's own memory, behind callbacks.

#include <errno.h>
#include <hectare.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int released;

static int32_t get(void *user, uint8_t *to, uintptr_t len, uint64_t at) {
    memcpy(to, (uint8_t *)user + at, len);
    return 0;
}

static int32_t set(void *user, const uint8_t *from, uintptr_t len, uint64_t at) {
    memcpy((uint8_t *)user + at, from, len);
    return 0;
}

static void let_go(void *user) {
    free(user);
    released++;
}

int main(void) {
    const uint64_t size = 8 << 20;
    hectare_device device = {
        .struct_size = sizeof device,
        .user = calloc(1, size),
        .size = size,
        .read = get,
        .write = set,
    };
    if (hectare_mkfs_device(&device, 0) < 0) {
        fprintf(stderr, "%s\n", hectare_message());
        return 1;
    }
    if (hectare_check_device(&device, NULL, NULL) != HECTARE_SOUND) {
        fprintf(stderr, "the new volume is not sound: %s\n", hectare_message());
        return 1;
    }
    device.release = let_go;
    hectare_volume *volume = hectare_open_device(&device, HECTARE_READ_WRITE);
    if (volume == NULL || hectare_mkdir(volume, "d", 0700) < 0) {
        fprintf(stderr, "%s\n", hectare_message());
        return 1;
    }
    if (hectare_mkdir(volume, "d", 0700) != -1 || hectare_errno() != EEXIST || errno != EEXIST) {
        fprintf(stderr, "a name was given twice\n");
        return 1;
    }
    puts(hectare_message());
    if (hectare_close(volume) < 0 || released != 1) {
        fprintf(stderr, "the device was not released\n");
        return 1;
    }
    return 0;
}
