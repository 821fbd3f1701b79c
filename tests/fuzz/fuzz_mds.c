/* MDS, as shards.h has it. */
#include "daemon/data/kinds/mds/mds_index.h"
#include "tests/fuzz/shards.h"

#include <errno.h>

static int add_value(const void *value, const struct decoding *decoding, struct sample *ret,
                     struct dl_error *err)
{
    return mds_value_add(value, decoding, ret, err);
}

static void check_sample(const void *index, const uint8_t *at, uint64_t size)
{
    const struct mds_index *mds = index;
    _cleanup_free_ struct mds_value *values = calloc(mds->n_columns, sizeof *values);

    FUZZ_ASSERT(values);
    if (!mds_columns_split(mds->columns, mds->n_columns, at, size, values))
        return;
    for (uint32_t c = 0; c < mds->n_columns; c++) {
        struct shard_value value = {.value = &values[c], .add = add_value};
        FUZZ_ASSERT(values[c].data >= at && values[c].data + values[c].size <= at + size);
        value.is_row = values[c].column->sort == MDS_ARRAY;
        value.length = value.is_row ? mds_value_length(&values[c]) : 0;
        shard_value_check_both(&value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shard_input in = shard_input_of(data, size);
    struct mds_index index = {0};
    struct dl_error err = {0};

    if (size > SHARD_INPUT_MOST)
        return 0;
    int r = mds_index_parse(in.text, in.text_bytes, "fuzz", &index, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    if (r == 0 && index.shards.n > 0 && in.file)
        shard_check_samples(in.file, in.file_bytes, index.shards.files[0].samples, check_sample,
                            &index);
    mds_index_deinit(&index);
    return 0;
}
