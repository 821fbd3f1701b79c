/*
 * MDS: index.json, a NUL, and a shard, of any bytes. What the index says is taken or refused; a
 * sample of the shard is split into values that lie in it, and each becomes part of a sample or an
 * error.
 */
#include "daemon/data/mds/mds_index.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 16, SAMPLES = 100 };

static void check_value(const struct mds_value *value, const struct image_field *field)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};

    sample_begin(&sample, TREE_LIST, NULL);
    int r = mds_value_add(value, field, &sample, &err);
    FUZZ_ASSERT(r == 0 || sample.error < 0 || (r == -err.code && err.message[0]));
    if (value->column->sort == MDS_ARRAY && r == 0)
        FUZZ_ASSERT(mds_value_length(value) == min_u64(sample.tree.nodes[1].shape[0], UINT32_MAX));
    sample_deinit(&sample);
    arena_deinit(&arena);
}

static void check_shard(const struct mds_index *index, uint32_t i, const uint8_t *data,
                        uint64_t bytes)
{
    static const struct spec_image image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC};
    static const struct sample_key key;
    static struct image_decoder *decoder;
    uint64_t samples = index->shards.files[i].samples, size;
    struct dl_error err = {0};
    const uint8_t *at;

    if (!decoder)
        FUZZ_ASSERT(image_decoder_new(&decoder, NULL) == 0);
    struct image_field field = {.decoder = decoder, .spec = &image, .key = &key};
    if (shard_file_check(data, bytes, samples, "fuzz", &err) < 0)
        return;
    _cleanup_free_ struct mds_value *values = calloc(index->n_columns, sizeof *values);
    FUZZ_ASSERT(values);
    for (uint64_t s = 0; s < samples && s < SAMPLES; s++) {
        if (shard_file_find(data, bytes, s, "fuzz", &at, &size, &err) < 0 ||
            !mds_columns_split(index->columns, index->n_columns, at, size, values))
            continue;
        FUZZ_ASSERT(at >= data && at + size <= data + bytes);
        for (uint32_t c = 0; c < index->n_columns; c++) {
            FUZZ_ASSERT(values[c].data >= at && values[c].data + values[c].size <= at + size);
            check_value(&values[c], &field);
            check_value(&values[c], NULL);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size > 0 ? memchr(data, '\0', size) : NULL;
    size_t text = cut ? (size_t)(cut - data) : size, rest = cut ? size - text - 1 : 0;
    struct mds_index index = {0};
    struct dl_error err = {0};

    if (size > LARGEST)
        return 0;
    int r = mds_index_parse(data, text, "fuzz", &index, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    if (r == 0 && index.shards.n > 0 && cut)
        check_shard(&index, 0, cut + 1, rest);
    mds_index_deinit(&index);
    return 0;
}
