/* Parquet files of the fuzzer's corpus, which pyarrow wrote, for unit tests. */
#ifndef DL_PARQUET_CORPUS_H
#define DL_PARQUET_CORPUS_H

#include "daemon/data/kinds/kinds.h"
#include "tests/lib/bytes.h"
#include "tests/unit/dataset_words.h"

static const struct sample_key key;

/* A file of the corpus, without the byte before it that is the fuzzer's own. */
static inline struct bytes corpus(const char *name)
{
    struct bytes b;
    char path[512];

    snprintf(path, sizeof path, PARQUET_CORPUS "/%s", name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fgetc(file), 0);
    b.len = fread(b.data, 1, sizeof b.data, file);
    fclose(file);
    assert_in_range(b.len, 1, sizeof b.data - 1);
    return b;
}

static inline struct value number(int64_t n)
{
    return (struct value){.type = VALUE_INT, .integer = n};
}

static struct spec_file one_file;

static inline struct spec_dataset spec_of(const struct bytes *b, const char *name)
{
    struct spec_dataset spec = {.kind = DATASET_PARQUET, .n_files = 1, .cache = 1 << 20};

    one_file.path = (char *)harness_file(name, b->data, b->len);
    spec.files = &one_file;
    spec.decode = true;
    return spec;
}

/* All samples, or the first error. */
static inline int read_all(const struct spec_dataset *spec, uint64_t *ret_n, struct dl_error *err)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dataset *ds = NULL;
    int r = dataset_open(spec, &anywhere, &ds, err);

    *ret_n = 0;
    for (uint64_t i = 0; r == 0 && i < ds->length; i++, ++*ret_n) {
        r = dataset_get(ds, &key, i, &sample, err);
        sample_clear(&sample);
        arena_clear(&arena);
    }
    dataset_close(ds);
    sample_deinit(&sample);
    arena_deinit(&arena);
    return r;
}

/* A file of the corpus is, as written in the spec, what is wanted. */
static inline void expect_corpus(const char *name, const char *keys, const char *want)
{
    struct bytes b = corpus(name);
    char text[256];

    harness_file("t.parquet", b.data, b.len);
    snprintf(text, sizeof text, "{kind: parquet, paths: t.parquet%s}", keys);
    expect_dataset(text, want);
}

#endif
