/*
 * TFRecord files of any bytes. The first byte chooses: a file of records, whose sums are made good
 * first where it is odd, without which nothing gets past them; from 64 to 67, an index of none to
 * three files, as another worker sends it; or, from 128 on, one Example by itself. What is found
 * lies in the file, and becomes a sample or an error.
 */
#include "daemon/data/kinds/tfrecord/tfrecord_example.h"
#include "daemon/data/kinds/tfrecord/tfrecord_index.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 18, FILES = 4 };

static struct crc32c crc;

static void put_sum(uint8_t *data, uint64_t bytes)
{
    uint32_t sum = crc32c_mask(crc32c_of(&crc, data, bytes));

    memcpy(data + bytes, &sum, sizeof sum);
}

static void mend(uint8_t *data, uint64_t size)
{
    uint64_t at = 0, length;

    while (size - at >= 12) {
        memcpy(&length, data + at, sizeof length);
        put_sum(data + at, 8);
        if (size - at - 12 < 4 || length > size - at - 16)
            return;
        put_sum(data + at + 12, length);
        at += 16 + length;
    }
}

static void check_example(const uint8_t *data, uint64_t bytes)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    struct example example;
    int r = example_parse(data, bytes, &arena, &example, &err);

    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    sample_begin(&sample, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < example.n; i++) {
        const struct example_feature *feature = &example.features[i];
        struct dl_error why = {0};
        FUZZ_ASSERT(example_find(&example, feature->name) == feature);
        FUZZ_ASSERT(i == 0 || strcmp(example.features[i - 1].name, feature->name) < 0);
        r = example_add(feature, feature->name, NULL, &sample, &why);
        FUZZ_ASSERT(r == 0 || sample.error < 0 || (r == -why.code && why.message[0]));
    }
    sample_deinit(&sample);
    arena_deinit(&arena);
}

static void check_file(const uint8_t *data, uint64_t size)
{
    struct tfrecord_view view = {.path = "fuzz", .data = data, .bytes = size, .crc = &crc};
    struct dl_buffer places = {0};
    struct dl_error err = {0};
    int r = tfrecord_scan(&view, &places, &err);
    const uint64_t *offsets = (const uint64_t *)(const void *)places.data;

    FUZZ_ASSERT(r == 0 || (r == -EINVAL && err.code == EINVAL));
    for (uint64_t i = 0; i < places.len / sizeof *offsets; i++) {
        const uint8_t *at;
        uint64_t bytes;
        r = tfrecord_data(&view, offsets[i], i, &at, &bytes, &err);
        FUZZ_ASSERT(r == 0 || r == -EINVAL);
        if (r == 0) {
            FUZZ_ASSERT(at >= data && bytes <= size && at + bytes <= data + size);
            check_example(at, bytes);
        }
    }
    buffer_deinit(&places);
}

static void check_index(const uint8_t *data, uint64_t size, uint32_t files)
{
    if (!tfrecord_index_is_sound(data, size, files))
        return;
    const uint64_t *offset = tfrecord_index_offsets(data, files);
    for (uint32_t i = 0; i < files; i++) {
        const struct tfrecord_index_file *file = &tfrecord_index_files(data)[i];
        for (uint64_t k = 0; k < file->records; k++)
            FUZZ_ASSERT(*offset++ < file->bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > LARGEST)
        return 0;
    if (!crc.table[0][1])
        crc32c_init(&crc);
    _cleanup_free_ uint8_t *copy = malloc(max_u64(size - 1, 1));
    FUZZ_ASSERT(copy);
    memcpy(copy, data + 1, size - 1);
    if (data[0] >= 128) {
        check_example(copy, size - 1);
        return 0;
    }
    if (data[0] >= 64 && data[0] < 64 + FILES) {
        check_index(copy, size - 1, data[0] - 64);
        return 0;
    }
    if (data[0] & 1)
        mend(copy, size - 1);
    check_file(copy, size - 1);
    return 0;
}
