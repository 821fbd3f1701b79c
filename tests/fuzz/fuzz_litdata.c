/*
 * litData: index.json, a NUL, and a chunk, of any bytes. What the index says is taken or refused;
 * the chunk is taken out of its frames, if it is in some; an item of it is split into values that
 * lie in it, and each becomes part of a sample or an error.
 */
#include "daemon/data/litdata/litdata_chunk.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 16, SAMPLES = 100 };

static void check_value(const struct litdata_value *value, const struct image_field *field)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};

    sample_begin(&sample, TREE_LIST, NULL);
    int r = litdata_value_add(value, NULL, field, &sample, &err);
    FUZZ_ASSERT(r == 0 || sample.error < 0 || (r == -err.code && err.message[0]));
    if (value->leaf->sort == LITDATA_ROW && r == 0)
        FUZZ_ASSERT(litdata_value_length(value) ==
                    min_u64(sample.tree.nodes[1].shape[0], UINT32_MAX));
    sample_deinit(&sample);
    arena_deinit(&arena);
}

static void check_chunk(const struct litdata_index *index, const uint8_t *data, uint64_t bytes)
{
    static const struct spec_image image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC};
    static const struct sample_key key;
    static struct image_decoder *decoder;
    uint64_t samples = index->chunks.files[0].samples, size;
    struct dl_error err = {0};
    const uint8_t *at;

    if (!decoder)
        FUZZ_ASSERT(image_decoder_new(&decoder, NULL) == 0);
    struct image_field field = {.decoder = decoder, .spec = &image, .key = &key};
    if (shard_file_check(data, bytes, samples, "fuzz", &err) < 0)
        return;
    _cleanup_free_ struct litdata_value *values =
        calloc(max_u64(index->shape.leaves, 1), sizeof *values);
    FUZZ_ASSERT(values);
    for (uint64_t s = 0; s < samples && s < SAMPLES; s++) {
        if (shard_file_find(data, bytes, s, "fuzz", &at, &size, &err) < 0 ||
            !litdata_chunk_split(index, at, size, values))
            continue;
        FUZZ_ASSERT(at >= data && at + size <= data + bytes);
        for (uint32_t i = 0; i < index->shape.leaves; i++) {
            FUZZ_ASSERT(values[i].data >= at && values[i].data + values[i].size <= at + size);
            check_value(&values[i], &field);
            check_value(&values[i], NULL);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size > 0 ? memchr(data, '\0', size) : NULL;
    size_t text = cut ? (size_t)(cut - data) : size, rest = cut ? size - text - 1 : 0;
    struct litdata_index index = {0};
    struct dl_error err = {0};
    uint8_t *whole = NULL;
    uint64_t bytes;

    if (size > LARGEST)
        return 0;
    int r = litdata_index_parse(data, text, "fuzz", &index, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    if (r == 0 && index.chunks.n > 0 && cut) {
        r = litdata_chunk_unframe(cut + 1, rest, "fuzz", &whole, &bytes, &err);
        FUZZ_ASSERT(r >= 0 || (r == -err.code && err.message[0]));
        if (r >= 0)
            check_chunk(&index, r == 0 ? whole : cut + 1, r == 0 ? bytes : rest);
        free(whole);
    }
    litdata_index_deinit(&index);
    return 0;
}
