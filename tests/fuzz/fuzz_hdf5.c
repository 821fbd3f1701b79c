/*
 * HDF5 files, of any bytes. Whatever is found in one is read or refused; nothing outside it is
 * looked at, and no more memory is taken for a list of chunks than the file has bytes for.
 */
#include "daemon/data/kinds/hdf5/hdf5_array.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 16, ARRAYS = 16, ROWS = 20, ROW_BYTES = 1 << 16, CHUNK_BYTES = 1 << 22 };

struct playing {
    const struct hdf5_view *view;
    int arrays;
};

static void read_rows(struct hdf5_array *array)
{
    struct hdf5_cache cache = {.most = CHUNK_BYTES};
    struct dl_error err = {0};
    bool small = array->row_bytes <= ROW_BYTES && array->chunk_bytes <= CHUNK_BYTES;
    uint8_t *out = small ? malloc(array->row_bytes + 1) : NULL;

    if (array->whole) /* a sample may refer to all of it */
        FUZZ_ASSERT(hdf5_bytes(&array->view, (uint64_t)(array->whole - array->view.data),
                               array->dims[0] * array->row_bytes));
    for (uint64_t row = 0; out && row < array->dims[0] && row < ROWS; row++) {
        int r = hdf5_array_read(array, &cache, row, out, &err);
        FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
        FUZZ_ASSERT(cache.bytes <= cache.most + array->chunk_bytes);
    }
    free(out);
    hdf5_array_close(array, &cache);
    FUZZ_ASSERT(cache.bytes == 0 && !cache.oldest && !cache.latest);
}

static int play(void *owner, const char *name, size_t len, uint64_t at, struct dl_error *err)
{
    struct playing *playing = owner;
    struct hdf5_array array = {0};
    struct hdf5_cache none = {0};

    FUZZ_ASSERT(
        hdf5_bytes(playing->view, (uint64_t)((const uint8_t *)name - playing->view->data), len));
    int r = hdf5_array_open(playing->view, at, "x", &array, err);
    FUZZ_ASSERT(r == 0 || (r == -err->code && err->message[0]));
    FUZZ_ASSERT(array.n_chunks <= playing->view->bytes / 8);
    if (r == 0)
        read_rows(&array);
    else
        hdf5_array_close(&array, &none);
    return ++playing->arrays == ARRAYS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct hdf5_view view = {.data = data, .bytes = size, .path = "fuzz"};
    struct playing playing = {.view = &view};
    struct dl_error err = {0};
    uint64_t root, at;

    if (size > LARGEST || hdf5_find_root(&view, &root, &err) < 0)
        return 0;
    int r = hdf5_walk_links(&view, root, play, &playing, &err);
    FUZZ_ASSERT(r >= 0 || (r == -err.code && err.message[0]));
    r = hdf5_find(&view, "g/x", &at, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    return 0;
}
