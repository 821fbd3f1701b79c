/* Arrow IPC tables for unit tests: what their samples are, in words, and one of five columns. */
#ifndef DL_TEST_ARROW_CASE_H
#define DL_TEST_ARROW_CASE_H

#include "daemon/data/kinds/arrow/arrow.h"
#include "tests/lib/arrow_build.h"
#include "tests/unit/data_files.h"
#include "tests/unit/taken.h"

#include <errno.h>

static const struct sample_key key;
static struct spec_file paths[2];

/* ---- what is read --------------------------------------------------------------------------- */

static inline struct spec_dataset spec_of(const char *path)
{
    paths[0].path = (char *)path;
    return (struct spec_dataset){.kind = DATASET_ARROW,
                                 .files = paths,
                                 .n_files = 1,
                                 .decode = true,
                                 .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
}

static inline void expect_refused(const struct spec_dataset *spec, const char *says)
{
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    assert_true(dataset_open(spec, &anywhere, &ds, &err) < 0);
    assert_error_has(&err, says);
    assert_true(strstr(err.path, spec->files[0].path) || strncmp(err.path, "dataset.", 8) == 0);
}

static inline void say_leaf(const struct tree_node *node, const void *data, char **at)
{
    static const char *const kinds[] = {[TREE_STRING] = "string", [TREE_BYTES] = "bytes"};

    if (node->kind == TREE_DICT || node->kind == TREE_LIST) {
        *at += sprintf(*at, "%s %u; ", node->kind == TREE_DICT ? "dict" : "list", node->children);
        return;
    }
    *at +=
        sprintf(*at, "%s", node->kind == TREE_TENSOR ? dtype_name(node->dtype) : kinds[node->kind]);
    for (uint32_t i = 0; node->kind == TREE_TENSOR && i < node->ndim; i++)
        *at += sprintf(*at, "%c%d", i ? ',' : ' ', (int)node->shape[i]);
    for (uint64_t i = 0; i < node->nbytes; i++)
        *at += sprintf(*at, "%s%02x", i ? "" : " ", ((const uint8_t *)data)[i]);
    *at += sprintf(*at, "; ");
}

/* All nodes below the root, or the error. */
static inline const char *sample_of(struct dataset *ds, uint64_t i)
{
    static char text[16384];
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    char *at = text;

    text[0] = '\0';
    if (dataset_get(ds, &key, i, &sample, &err) < 0)
        snprintf(text, sizeof text, "error: %s", err.message);
    else
        for (uint32_t n = 1; n < sample.tree.count; n++)
            say_leaf(&sample.tree.nodes[n], sample.data[n], &at);
    sample_deinit(&sample);
    arena_deinit(&arena);
    return text;
}

static inline const char *opened_sample(const struct spec_dataset *spec, uint64_t i)
{
    struct dataset *ds = must_open(spec);
    const char *text = sample_of(ds, i);

    dataset_close(ds);
    return text;
}

static inline const char *write_built(const char *name, const struct build *b)
{
    static char path[2][4200];
    static unsigned turn;

    harness_file(name, b->data, b->len);
    snprintf(path[++turn % 2], sizeof path[0], "%s/%s", harness_tmpdir(), name);
    return path[turn % 2];
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
    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, tokens, sizeof tokens);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_node(&batch, 4, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, pairs, sizeof pairs);
    build_node(&batch, 2, nulls);
    build_buffer(&batch, valid, nulls);
    build_buffer(&batch, flags, 1);
    return &batch;
}

#define FIRST                                                                                     \
    "int64 0100000000000000; string 6162; int32 2 0700000008000000; float32 2 0000003f0000803f; " \
    "bool 01; "
#define SECOND "int64 feffffffffffffff; string; int32 0; float32 2 0000004000008040; bool 00; "

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

static inline void expect_rows(const struct spec_dataset *spec, uint64_t n)
{
    struct dataset *ds = must_open(spec);
    struct sample sample = {0};

    assert_int_equal(ds->length, n);
    for (uint64_t i = n; i-- > 0;) {
        assert_string_equal(sample_of(ds, i), i % 2 ? SECOND : FIRST);
        dataset_expect(ds, i);
    }
    assert_int_equal(ds->ops->get(ds, &key, n, &sample, NULL), -ERANGE);
    dataset_expect(ds, n);
    dataset_close(ds);
}

/* The sample or an error; what is read of a damaged file is in it, or the sanitizers tell. */
static inline void read_all(const struct spec_dataset *spec)
{
    struct dataset *ds = NULL;
    struct dl_error err = {0};
    int r = dataset_open(spec, &anywhere, &ds, &err);

    if (r < 0) {
        assert_int_equal(r, -err.code);
        assert_non_null(strstr(err.path, spec->files[0].path));
        return;
    }
    for (uint64_t i = 0; i < min_u64(ds->length, 8); i++)
        (void)sample_of(ds, i);
    dataset_close(ds);
}

#endif
