/* Samples in words, to compare them with what a test wants. */
#ifndef DL_TEST_SAMPLE_WORDS_H
#define DL_TEST_SAMPLE_WORDS_H

#include "daemon/data/base/sample.h"
#include "daemon/data/kinds/arrays/array.h"
#include "tests/lib/harness.h"

#include <assert.h>
#include <stdio.h>

/* A sample in words: {key: value, ...}; strings in quotes, bytes in angles, tensors by shape. */
struct words {
    char text[1 << 17];
    size_t len;
};

static inline void put(struct words *words, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    words->len +=
        (size_t)vsnprintf(words->text + words->len, sizeof words->text - words->len, fmt, args);
    va_end(args);
    assert(words->len < sizeof words->text);
}

static inline void put_tensor(struct words *words, const struct tree_node *node, const void *data)
{
    char text[SHAPE_TEXT_MAX];
    int64_t i;
    double d;

    if (node->ndim > 0) {
        put(words, "%s%s", dtype_name(node->dtype), shape_text(node->ndim, node->shape, text));
    } else if (node->dtype == DL_DTYPE_INT64) {
        memcpy(&i, data, sizeof i);
        put(words, "%lld", (long long)i);
    } else if (node->dtype == DL_DTYPE_FLOAT64) {
        memcpy(&d, data, sizeof d);
        put(words, "%.17gf", d);
    } else {
        assert_int_equal(node->dtype, DL_DTYPE_BOOL);
        put(words, *(const uint8_t *)data ? "true" : "false");
    }
}

/* Returns the node behind it. */
static inline uint32_t put_node(struct words *words, const struct sample *sample, uint32_t i)
{
    const struct tree_node *node = &sample->tree.nodes[i];
    const char *ends = node->kind == TREE_DICT ? "{}" : node->kind == TREE_LIST ? "[]" : "";
    uint32_t next = i + 1;

    if (node->key_len > 0)
        put(words, "%.*s:", (int)node->key_len, sample->tree.keys + node->key_off);
    if (node->kind == TREE_STRING)
        put(words, "\"%.*s\"", (int)node->nbytes, (const char *)sample->data[i]);
    else if (node->kind == TREE_BYTES)
        put(words, "<%.*s>", (int)node->nbytes, (const char *)sample->data[i]);
    else if (node->kind == TREE_TENSOR)
        put_tensor(words, node, sample->data[i]);
    else
        put(words, "%c", ends[0]);
    for (uint32_t k = 0; k < node->children; k++) {
        if (k > 0)
            put(words, " ");
        next = put_node(words, sample, next);
    }
    if (ends[0])
        put(words, "%c", ends[1]);
    return next;
}

#endif
