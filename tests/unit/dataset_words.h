/*
 * Datasets in words: a spec as it is written, and what its samples are, or why there are none. For
 * the tests of kinds of datasets.
 */
#ifndef DL_TEST_DATASET_WORDS_H
#define DL_TEST_DATASET_WORDS_H

#include "proto/common/library.h"
#include "tests/unit/dataset_text.h"
#include "tests/unit/sample_words.h"
#include "tests/unit/taken.h"

#include <errno.h>

/* "(PATH: MESSAGE)", with the path from the test's folder, and before it the code if it is not the
 * usual one, EINVAL. */
static inline void put_error(struct words *words, const struct dl_error *err)
{
    size_t len = strlen(harness_tmpdir());
    bool ours = strncmp(err->path, harness_tmpdir(), len) == 0 && err->path[len] == '/';

    say(words, "(%s%s%s: %s)", err->code == EINVAL ? "" : library_errno_name(err->code),
        err->code == EINVAL ? "" : " ", err->path + (ours ? len + 1 : 0), err->message);
}

/* The sample, or its error. */
static inline void put_sample(struct words *words, struct dataset *ds, uint64_t i)
{
    const struct sample_key any = {0};
    struct taken t;

    if (take(ds, &any, i, &t) == 0)
        assert_int_equal(put_node(words, &t.sample, 0), t.sample.tree.count);
    else
        put_error(words, &t.err);
    drop(&t);
}

/* All samples, from the last on, are copied at once as they are taken one by one; of a bad one both
 * have the same error. */
static inline void check_rows(struct dataset *ds)
{
    _cleanup_free_ uint64_t *indices = calloc(ds->length + 1, sizeof *indices);
    const struct sample_key any = {0};
    struct dl_error err = {0};
    void *dst[64];
    uint32_t leaves = 0;
    size_t bad = SIZE_MAX;
    struct taken t;

    for (uint64_t i = 0; i < ds->length; i++)
        indices[i] = ds->length - 1 - i;
    for (uint32_t n = 0; n < ds->schema.count; n++)
        if (ds->schema.nodes[n].kind == TREE_TENSOR)
            dst[leaves++] = calloc(ds->length + 1, ds->schema.nodes[n].nbytes + 1);
    assert_int_equal(leaves, ds->n_leaves);
    int r = dataset_read_rows(ds, &any, indices, ds->length, dst, &bad, &err);
    for (uint64_t i = r < 0 ? bad : 0; i < (r < 0 ? bad + 1 : ds->length); i++) {
        assert_int_equal(take(ds, &any, indices[i], &t), r);
        for (uint32_t n = 0, leaf = 0; r == 0 && n < ds->schema.count; n++) {
            size_t bytes = ds->schema.nodes[n].nbytes;
            if (ds->schema.nodes[n].kind == TREE_TENSOR && bytes > 0)
                assert_memory_equal((uint8_t *)dst[leaf] + i * bytes, t.sample.data[n], bytes);
            leaf += ds->schema.nodes[n].kind == TREE_TENSOR;
        }
        drop(&t);
    }
    indices[0] = ds->length;
    assert_int_equal(dataset_read_rows(ds, &any, indices, 1, dst, &bad, &err), -ERANGE);
    assert_int_equal(bad, 0);
    while (leaves > 0)
        free(dst[--leaves]);
}

/* All that one pass gives, bad samples in their places. */
static inline void put_stream(struct words *words, struct dataset *ds)
{
    const struct replica_params params = {.workers = 1, .world = 1};
    struct dataset_iter *it = NULL;
    struct taken t = {0};

    assert_int_equal(ds->ops->iterate(ds, &params, &it, &t.err), 0);
    for (int r = 0; r != DATASET_END;) {
        t = (struct taken){.sample.arena = &t.arena};
        r = it->ops->next(it, &t.sample, &t.err);
        say(words, words->len > 0 && r != DATASET_END ? " " : "");
        if (r == 0)
            assert_int_equal(put_node(words, &t.sample, 0), t.sample.tree.count);
        else if (r < 0)
            put_error(words, &t.err);
        drop(&t);
    }
    it->ops->close(it);
}

/* All of its samples with blanks between them, "fixed" before them if they have one shape. */
static inline void put_dataset(struct words *words, struct dataset *ds)
{
    const struct sample_key any = {0};
    struct taken t = {.sample.arena = &t.arena};

    if (dataset_is_iterable(ds)) {
        put_stream(words, ds);
        return;
    }
    say(words, dataset_is_fixed(ds) ? "fixed" : "");
    for (uint64_t i = 0; i < ds->length; i++) {
        say(words, words->len > 0 ? " " : "");
        put_sample(words, ds, i);
        dataset_expect(ds, i);
    }
    if (ds->ops->get)
        assert_int_equal(dataset_get(ds, &any, ds->length, &t.sample, &t.err), -ERANGE);
    drop(&t);
    if (dataset_is_fixed(ds))
        check_rows(ds);
}

/* "..." in what is wanted stands for anything. */
static inline bool is_like(const char *text, const char *want)
{
    const char *dots = strstr(want, "...");
    size_t head = dots ? (size_t)(dots - want) : 0;

    if (!dots)
        return strcmp(text, want) == 0;
    if (strncmp(text, want, head) != 0)
        return false;
    for (text += head; !is_like(text, dots + 3); text++)
        if (!*text)
            return false;
    return true;
}

/* What is opened of the spec `text` is, in words, what is wanted: its samples, or the error, which
 * stands without parentheses if there are no samples. */
static inline void expect_dataset(const char *text, const char *want)
{
    static struct words words;
    _cleanup_(spec_deinit) struct dl_spec spec = read_dataset(text);
    struct dl_error err = {0};
    struct dataset *ds = NULL;

    words.len = 0;
    words.text[0] = '\0';
    words.values = true;
    int r = dataset_open(&spec.dataset, &anywhere, &ds, &err);
    assert_true(r == 0 || r == -err.code);
    if (r == 0) {
        put_dataset(&words, ds);
    } else {
        put_error(&words, &err);
        words.text[words.len - 1] = '\0';
    }
    if (!is_like(words.text + (r < 0), want))
        fail_msg("%s is\n%s\nnot\n%s", text, words.text + (r < 0), want);
    dataset_close(ds);
}

#endif
