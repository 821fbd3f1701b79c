/* litData, as shards.h has it: the file is taken out of its frames before, if it is in some. */
#include "daemon/data/kinds/litdata/litdata_chunk.h"
#include "tests/fuzz/shards.h"

#include <errno.h>

static int add_value(const void *value, const struct decoding *decoding, struct sample *ret,
                     struct dl_error *err)
{
    return litdata_value_add(value, NULL, decoding, ret, err);
}

static void check_sample(const void *index, const uint8_t *at, uint64_t size)
{
    const struct litdata_index *litdata = index;
    uint32_t leaves = litdata->shape.leaves;
    _cleanup_free_ struct litdata_value *values = calloc(max_u64(leaves, 1), sizeof *values);

    FUZZ_ASSERT(values);
    if (!litdata_chunk_split(litdata, at, size, values))
        return;
    for (uint32_t i = 0; i < leaves; i++) {
        struct shard_value value = {.value = &values[i], .add = add_value};
        FUZZ_ASSERT(values[i].data >= at && values[i].data + values[i].size <= at + size);
        value.is_row = values[i].leaf->sort == LITDATA_ROW;
        value.length = value.is_row ? litdata_value_length(&values[i]) : 0;
        shard_value_check_both(&value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shard_input in = shard_input_of(data, size);
    struct litdata_index index = {0};
    struct dl_error err = {0};
    uint8_t *whole = NULL;
    uint64_t bytes;

    if (size > SHARD_INPUT_MOST)
        return 0;
    int r = litdata_index_parse(in.text, in.text_bytes, "fuzz", &index, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    if (r == 0 && index.chunks.n > 0 && in.file) {
        r = litdata_chunk_unframe(in.file, in.file_bytes, "fuzz", &whole, &bytes, &err);
        FUZZ_ASSERT(r >= 0 || (r == -err.code && err.message[0]));
        if (r >= 0)
            shard_check_samples(r == 0 ? whole : in.file, r == 0 ? bytes : in.file_bytes,
                                index.chunks.files[0].samples, check_sample, &index);
        free(whole);
    }
    litdata_index_deinit(&index);
    return 0;
}
