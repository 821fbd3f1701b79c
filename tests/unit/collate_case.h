/* What the tests of collate share: one case a line, from a list of samples as batch_text.h of
 * tests/lib reads it to the batch in words. */
#ifndef DL_TEST_COLLATE_CASE_H
#define DL_TEST_COLLATE_CASE_H

#include "tests/lib/batch_text.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/sample_words.h"

struct collate_case {
    const char *how;     /* keys of collate and batch.size, as one flow mapping without braces */
    const char *samples; /* a list */
    const char *expect;  /* the batch; or "position: path: message" */
};

enum { CASE_SAMPLES = 16, CASE_SLOT = 1 << 16, CASE_BEGIN = 136 };

static const uint64_t case_numbers[CASE_SAMPLES] = {10, 11, 12, 13, 14, 15, 16, 17,
                                                    18, 19, 20, 21, 22, 23, 24, 25};

/* What fail_in becomes when a collate is made; before that, texts are parsed. */
static int fail_new = -1;

static inline const struct value *must_parse(const char *text, struct value *ret)
{
    struct dl_error err = {0};

    if (yaml_parse(text, strlen(text), "case", ret, &err) < 0)
        fail_msg("%s: %s: %s", text, err.path, err.message);
    return ret;
}

/* Fields and paths are borrowed from `how`. */
static inline struct dl_spec case_spec(const struct value *how, char **fields)
{
    struct dl_spec spec = {.batch_size = CASE_SAMPLES,
                           .collate = {.kind = COLLATE_DEFAULT, .side = PAD_RIGHT}};
    const struct value *v;

    if ((v = value_get(how, "kind")))
        spec.collate.kind = strcmp(v->string, "pad") == 0    ? COLLATE_PAD
                            : strcmp(v->string, "pack") == 0 ? COLLATE_PACK
                                                             : COLLATE_NONE;
    if ((v = value_get(how, "to")))
        spec.collate.to = strcmp(v->string, "bucket") == 0 ? PAD_TO_BUCKET : PAD_TO_LONGEST;
    if ((v = value_get(how, "interval")))
        spec.batch.interval = (uint64_t)v->integer;
    if ((v = value_get(how, "length")))
        spec.collate.length = (uint64_t)v->integer;
    if ((v = value_get(how, "length_of")))
        spec.batch.length_of = v->string;
    if ((v = value_get(how, "side")) && strcmp(v->string, "left") == 0)
        spec.collate.side = PAD_LEFT;
    if ((v = value_get(how, "multiple_of")))
        spec.collate.multiple_of = (uint64_t)v->integer;
    if ((v = value_get(how, "value")))
        spec.collate.value = v->type == VALUE_INT ? (double)v->integer : v->number;
    if ((v = value_get(how, "size")))
        spec.batch_size = 0;
    if ((v = value_get(how, "fields"))) {
        for (uint32_t i = 0; i < v->count; i++)
            fields[i] = v->items[i].string;
        spec.collate.fields = fields;
        spec.collate.n_fields = v->count;
    }
    return spec;
}

/* As collate_new(), from the text of a case. */
static inline int open_collate(const char *how, struct collate **ret, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value v = {0};
    char text[512], *fields[8];

    snprintf(text, sizeof text, "{%s}", how);
    must_parse(text, &v);
    struct dl_spec spec = case_spec(&v, fields);
    fail_in = fail_new;
    return collate_new(&spec, &anywhere, ret, err);
}

static inline struct collate *must_collate(const char *how)
{
    struct collate *c = NULL;
    struct dl_error err = {0};

    if (open_collate(how, &c, &err) < 0)
        fail_msg("%s: %s: %s", how, err.path, err.message);
    return c;
}

/* The samples of a case. */
struct case_samples {
    struct value text;
    struct arena arena;
    struct sample samples[CASE_SAMPLES];
    uint32_t n;
};

static inline void build_samples(struct case_samples *s, const char *text)
{
    must_parse(text, &s->text);
    s->n = s->text.count;
    assert_in_range(s->n, 1, CASE_SAMPLES);
    for (uint32_t i = 0; i < s->n; i++) {
        s->samples[i].arena = &s->arena;
        if (sample_from_value(&s->samples[i], NULL, &s->text.items[i]) < 0)
            fail_msg("%s: sample %u", text, i);
    }
}

static inline void free_samples(struct case_samples *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        sample_deinit(&s->samples[i]);
    arena_deinit(&s->arena);
    value_deinit(&s->text);
}

static inline int measure_case(struct collate *c, const struct case_samples *s,
                               struct batch_layout *ret, size_t *ret_bad, struct dl_error *err)
{
    *ret_bad = 99;
    return collate_measure(c, s->samples, case_numbers, s->n, NULL, CASE_BEGIN, ret, ret_bad, err);
}

/* As put_node() of a sample; texts of several samples are "texts" or "bytes" and a list. */
static inline void put_batch(struct words *words, const uint8_t *slot, const void *encoded,
                             const struct tree_node *node)
{
    const char *ends = node->kind == TREE_DICT    ? "{}"
                       : node->kind == TREE_TUPLE ? "()"
                       : node->kind == TREE_LIST  ? "[]"
                                                  : "";
    const char *quotes = node->kind == TREE_BYTES ? "<>" : "\"\"", *text;
    const struct tree_node *child = node + 1;
    bool many = node->ndim == 1;
    uint64_t len;

    if (node->kind == TREE_TENSOR) {
        put_tensor(words, node, slot + node->offset);
    } else if (ends[0] == '\0') {
        say(words, "%s", !many ? "" : node->kind == TREE_BYTES ? "bytes[" : "texts[");
        for (uint64_t i = 0; i < (many ? node->shape[0] : 1); i++) {
            assert_true(tree_text(node, slot, i, &text, &len));
            say(words, "%s%c%.*s%c", i > 0 ? " " : "", quotes[0], (int)len, text, quotes[1]);
        }
        say(words, "%s", many ? "]" : "");
    } else {
        say(words, "%c", ends[0]);
        for (uint32_t i = 0; i < node->children; i++, child = tree_skip(child)) {
            say(words, "%s%.*s%s", i > 0 ? " " : "", (int)child->key_len, tree_key(encoded, child),
                child->key_len > 0 ? ":" : "");
            put_batch(words, slot, encoded, child);
        }
        say(words, "%c", ends[1]);
    }
}

/* Writes the batch over two kinds of garbage: nothing else is touched, and the image is one. */
static inline void check_image(const struct collate_case *row, struct collate *c,
                               const struct batch_layout *layout)
{
    static _Alignas(4096) uint8_t a[CASE_SLOT], b[CASE_SLOT];
    static struct words words;
    struct dl_error err = {0};

    memset(a, 0xaa, sizeof a);
    memset(b, 0x55, sizeof b);
    assert_in_range(layout->used, CASE_BEGIN, CASE_SLOT);
    collate_write(c, a);
    collate_write(c, b);
    assert_memory_equal(a + CASE_BEGIN, b + CASE_BEGIN, layout->used - CASE_BEGIN);
    for (size_t i = 0; i < CASE_SLOT; i++)
        if ((i < CASE_BEGIN || i >= layout->used) && (a[i] != 0xaa || b[i] != 0x55))
            fail_msg("%s: byte %zu of %zu was touched", row->samples, i, (size_t)layout->used);
    if (tree_check(a + layout->tree_off, layout->tree_len, layout->tree_count, layout->used, &err) <
        0)
        fail_msg("%s: %s", row->samples, err.message);
    const void *encoded = a + layout->tree_off;
    words.len = 0;
    words.values = true;
    put_batch(&words, a, encoded, encoded);
    if (strcmp(words.text, row->expect) != 0)
        fail_msg("{%s} %s:\n  %s\nnot\n  %s", row->how, row->samples, words.text, row->expect);
}

static inline void check_good(const struct collate_case *row)
{
    struct collate *c = must_collate(row->how);
    struct case_samples s = {0};
    struct batch_layout layout;
    struct dl_error err = {0};
    size_t bad;

    build_samples(&s, row->samples);
    /* Twice: what the first batch left behind does not matter. */
    for (int i = 0; i < 2; i++) {
        if (measure_case(c, &s, &layout, &bad, &err) < 0)
            fail_msg("{%s} %s: %zu: %s: %s", row->how, row->samples, bad, err.path, err.message);
        check_image(row, c, &layout);
    }
    free_samples(&s);
    collate_free(c);
}

static inline void check_bad(const struct collate_case *row)
{
    struct collate *c = must_collate(row->how);
    struct case_samples s = {0};
    struct batch_layout layout;
    struct dl_error err = {0};
    char text[DL_ERROR_MESSAGE_MAX + DL_ERROR_PATH_MAX + 32];
    size_t bad;

    build_samples(&s, row->samples);
    if (measure_case(c, &s, &layout, &bad, &err) == 0)
        fail_msg("{%s} %s: was taken", row->how, row->samples);
    snprintf(text, sizeof text, "%zu: %s: %s", bad, err.path, err.message);
    assert_string_equal(text, row->expect);
    free_samples(&s);
    collate_free(c);
}

static inline void check_no_memory(const char *how, const char *samples)
{
    struct case_samples s = {0};
    struct batch_layout layout;
    int failed = 0;

    build_samples(&s, samples);
    for (int k = 0; k < 12; k++) {
        struct collate *c = NULL;
        struct dl_error err = {0};
        size_t bad;
        fail_new = k;
        int r = open_collate(how, &c, &err);
        if (r == 0)
            r = measure_case(c, &s, &layout, &bad, &err);
        fail_in = fail_new = -1;
        if (r < 0) {
            assert_int_equal(r, -ENOMEM);
            assert_error_has(&err, "out of memory");
            failed++;
        }
        if (c) {
            assert_int_equal(measure_case(c, &s, &layout, &bad, &err), 0);
            unsigned before = asked_times;
            assert_int_equal(measure_case(c, &s, &layout, &bad, &err), 0);
            assert_int_equal(asked_times, before);
        }
        collate_free(c);
    }
    assert_true(failed >= 5);
    free_samples(&s);
}

#endif
