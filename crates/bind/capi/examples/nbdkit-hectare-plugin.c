// A plugin for nbdkit that serves one file of a volume as a network block device: a disk image that lies
// inside an ext4 image, without mounting that.
//
//     name=nbdkit-hectare-plugin
//     cc -shared -fPIC -o $name.so $name.c $(pkg-config --cflags --libs hectare)
//     nbdkit ./nbdkit-hectare-plugin.so image=disk.img file=/var/lib/inner.img
//
// With readonly=true the image is opened for reading only. Needs the headers of nbdkit (nbdkit-plugin-dev).

#include <errno.h>
#include <hectare.h>
#include <stdbool.h>
#include <string.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static const char *image, *path;
static bool writable = true;
static hectare_volume *volume;

// Tells nbdkit why a call of the library failed.
static int failed(const char *what) {
    int error = hectare_errno();
    nbdkit_error("%s: %s", what, hectare_message());
    nbdkit_set_error(error);
    return -1;
}

static int plugin_config(const char *key, const char *value) {
    if (strcmp(key, "image") == 0) {
        image = nbdkit_absolute_path(value);
        return image == NULL ? -1 : 0;
    }
    if (strcmp(key, "file") == 0) {
        path = value;
        return 0;
    }
    if (strcmp(key, "readonly") == 0) {
        int given = nbdkit_parse_bool(value);
        writable = given == 0;
        return given < 0 ? -1 : 0;
    }
    nbdkit_error("%s is no parameter of this plugin", key);
    return -1;
}

static int plugin_config_complete(void) {
    if (image != NULL && path != NULL) return 0;
    nbdkit_error("image=IMAGE and file=PATH are needed");
    return -1;
}

// After nbdkit has gone into the background: a volume belongs to the process that opened it.
static int plugin_after_fork(void) {
    volume = hectare_open(image, writable ? HECTARE_READ_WRITE : HECTARE_READ_ONLY);
    return volume == NULL ? failed(image) : 0;
}

static void plugin_cleanup(void) {
    if (volume != NULL && hectare_close(volume) < 0) failed(image);
}

static void *plugin_open(int readonly) {
    uint32_t flags = readonly || !writable ? HECTARE_READ : HECTARE_READ | HECTARE_WRITE;
    hectare_file *file = hectare_file_open(volume, path, flags, 0);
    if (file == NULL) failed(path);
    return file;
}

static void plugin_close(void *file) {
    if (hectare_file_close(file) < 0) failed(path);
}

static int64_t plugin_get_size(void *file) {
    hectare_stat about;
    return hectare_file_stat(file, &about) < 0 ? failed(path) : (int64_t)about.size;
}

static int plugin_can_write(void *file) {
    (void)file;
    return writable;
}

// One file for all connections: what one has written, the others read.
static int plugin_can_multi_conn(void *file) {
    (void)file;
    return 1;
}

static int plugin_can_fua(void *file) {
    (void)file;
    return NBDKIT_FUA_EMULATE;
}

static int plugin_pread(void *file, void *to, uint32_t count, uint64_t offset, uint32_t flags) {
    (void)flags;
    intptr_t some = hectare_file_read(file, to, count, offset);
    if (some < 0) return failed(path);
    // The file was cut by someone else meanwhile.
    memset((char *)to + some, 0, count - (size_t)some);
    return 0;
}

static int plugin_pwrite(void *file, const void *from, uint32_t count, uint64_t offset, uint32_t flags) {
    (void)flags;
    for (uint32_t done = 0; done < count;) {
        intptr_t some = hectare_file_write(file, (const uint8_t *)from + done, count - done, offset + done);
        if (some < 0) return failed(path);
        if (some == 0) {
            nbdkit_set_error(ENOSPC);
            return -1;
        }
        done += (uint32_t)some;
    }
    return 0;
}

static int plugin_flush(void *file, uint32_t flags) {
    (void)flags;
    return hectare_file_sync(file) < 0 ? failed(path) : 0;
}

static int plugin_trim(void *file, uint32_t count, uint64_t offset, uint32_t flags) {
    (void)flags;
    return hectare_file_punch(file, offset, count) < 0 ? failed(path) : 0;
}

static int plugin_zero(void *file, uint32_t count, uint64_t offset, uint32_t flags) {
    if (hectare_file_punch(file, offset, count) < 0) return failed(path);
    if (flags & NBDKIT_FLAG_MAY_TRIM) return 0;
    return hectare_file_allocate(file, offset, count) < 0 ? failed(path) : 0;
}

// Where there is data, and where holes.
static int plugin_extents(void *file, uint32_t count, uint64_t offset, uint32_t flags,
                          struct nbdkit_extents *extents) {
    const uint64_t end = offset + count;
    while (offset < end) {
        uint64_t data, hole;
        if (hectare_file_seek_data(file, offset, &data) < 0) {
            if (hectare_errno() != ENXIO) return failed(path);
            data = end;
        }
        if (data > offset) {
            const uint32_t hole_type = NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO;
            if (nbdkit_add_extent(extents, offset, data - offset, hole_type) < 0) return -1;
        }
        if (data >= end) return 0;
        if (hectare_file_seek_hole(file, data, &hole) < 0) return failed(path);
        if (nbdkit_add_extent(extents, data, hole - data, 0) < 0) return -1;
        offset = hole;
        if (flags & NBDKIT_FLAG_REQ_ONE) return 0;
    }
    return 0;
}

static struct nbdkit_plugin plugin = {
    .name = "hectare",
    .longname = "a file of an ext2, ext3 or ext4 volume",
    .description = "Serves one file of a volume that is not mounted.",
    .config = plugin_config,
    .config_complete = plugin_config_complete,
    .config_help = "image=IMAGE      (required) The volume's image or device.\n"
                   "file=PATH        (required) The file in it.\n"
                   "readonly=BOOL    Open the image for reading only.",
    .magic_config_key = "image",
    .after_fork = plugin_after_fork,
    .cleanup = plugin_cleanup,
    .open = plugin_open,
    .close = plugin_close,
    .get_size = plugin_get_size,
    .can_write = plugin_can_write,
    .can_multi_conn = plugin_can_multi_conn,
    .can_fua = plugin_can_fua,
    .pread = plugin_pread,
    .pwrite = plugin_pwrite,
    .flush = plugin_flush,
    .trim = plugin_trim,
    .zero = plugin_zero,
    .extents = plugin_extents,
};

NBDKIT_REGISTER_PLUGIN(plugin)
