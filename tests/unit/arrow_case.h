/* Arrow IPC tables for unit tests: what their samples are, in words, and one of five columns. */
#ifndef DL_TEST_ARROW_CASE_H
#define DL_TEST_ARROW_CASE_H

#include "daemon/data/kinds/arrow/arrow.h"
#include "tests/lib/arrow_build.h"
#include "tests/unit/dataset_words.h"

static inline void write_built(const char *name, const struct build *b)
{
    harness_file(name, b->data, b->len);
}

/* The file is, as written in the spec, what is wanted. */
static inline void expect_built(const struct build *b, const char *keys, const char *want)
{
    char text[256];

    write_built("t.arrow", b);
    snprintf(text, sizeof text, "{kind: arrow, paths: t.arrow%s}", keys);
    expect_dataset(text, want);
}

/* ---- a table -------------------------------------------------------------------------------- */

static const struct build_type types[] = {
    {"id", 2, 64, 1, 0, 0},   {"name", 5, 0, 0, 0, 0},  {"tokens", 12, 0, 0, 1, 0},
    {"item", 2, 32, 1, 0, 0}, {"pair", 16, 2, 0, 1, 0}, {"item", 3, 1, 0, 0, 0},
    {"flag", 6, 0, 0, 0, 0},
};
enum { COLUMNS = 5 };

/* Rows {1, "ab", [7, 8], [0.5, 1], true} and {-2, "", [], [2, 4], false}; `nulls`: the last is all
 * null. Offsets begin at `skip`, as those of slices do. */
static inline struct build_batch *rows_of(bool nulls, uint32_t skip)
{
    static struct build_batch batch;
    const int64_t ids[] = {1, -2};
    const uint32_t names[] = {skip, skip + 2, skip + 2};
    const int32_t tokens[] = {7, 8};
    const uint8_t valid[] = {1}, flags[] = {1};
    const float pairs[] = {0.5F, 1, 2, 4};
    char text[64] = {0};

    batch = (struct build_batch){0};
    memcpy(text + skip, "ab", 2);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_buffer(&batch, ids, sizeof ids);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_buffer(&batch, names, sizeof names);
    build_buffer(&batch, text, skip + 2);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_buffer(&batch, (uint32_t[]){0, 2, 2}, 12);
    build_column(&batch, 2, tokens, sizeof tokens);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_column(&batch, 4, pairs, sizeof pairs);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_buffer(&batch, flags, 1);
    return &batch;
}

#define FIRST  "{id:1 name:\"ab\" tokens:int32(2,)[7 8] pair:float32(2,)[0.5 1] flag:true}"
#define SECOND "{id:-2 name:\"\" tokens:int32(0,) pair:float32(2,)[2 4] flag:false}"
#define BOTH   FIRST " " SECOND

static inline struct build *stream_of(bool nulls, uint32_t batches)
{
    static struct build b;

    b = (struct build){.len = 0};
    build_add_schema(&b, types, COLUMNS, NULL);
    for (uint32_t i = 0; i < batches; i++)
        build_add_batch(&b, rows_of(nulls, i), 2);
    return &b;
}

static inline struct build *file_of(uint32_t batches)
{
    static struct build b;
    uint32_t at[8];

    b = (struct build){.len = 0};
    build_put(&b, "ARROW1\0", 8);
    build_add_schema(&b, types, COLUMNS, NULL);
    for (uint32_t i = 0; i < batches; i++)
        at[i] = build_add_batch(&b, rows_of(false, 0), 2);
    build_put(&b, "\xff\xff\xff\xff\0\0\0", 8);
    build_add_footer(&b, types, COLUMNS, at, batches);
    return &b;
}

/* The samples or errors; what is read of a damaged file is in it, or the sanitizers tell. */
static inline void read_damaged(const struct build *b)
{
    static struct words words;
    struct dl_error err = {0};
    struct dataset *ds = NULL;

    write_built("damaged.arrow", b);
    _cleanup_(spec_deinit) struct dl_spec spec =
        read_dataset("{kind: arrow, paths: damaged.arrow}");
    int r = dataset_open(&spec.dataset, &anywhere, &ds, &err);
    assert_true(r == 0 || r == -err.code);
    assert_true(r == 0 || strstr(err.path, "/damaged.arrow"));
    for (uint64_t i = 0; ds && i < min_u64(ds->length, 8); i++) {
        words.len = 0;
        put_sample(&words, ds, i);
    }
    dataset_close(ds);
}

#endif
