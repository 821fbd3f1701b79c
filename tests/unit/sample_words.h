/* Samples in words, to compare them with what a test wants. */
#ifndef DL_TEST_SAMPLE_WORDS_H
#define DL_TEST_SAMPLE_WORDS_H

#include "daemon/data/base/sample.h"
#include "daemon/data/kinds/arrays/array.h"
#include "tests/lib/harness.h"

#include <assert.h>
#include <stdio.h>

/* A sample in words: {key: value, ...}; strings in quotes, bytes in angles, tensors by shape, and
 * with what is in them if the words have `values`. */
struct words {
    char text[1 << 17];
    size_t len;
    bool values;
};

static inline void say(struct words *words, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    words->len +=
        (size_t)vsnprintf(words->text + words->len, sizeof words->text - words->len, fmt, args);
    va_end(args);
    assert(words->len < sizeof words->text);
}

/* In as many digits as it takes to say which it is: these, or as many as any takes. */
static inline void put_real(struct words *words, double real, int digits)
{
    char text[40];

    snprintf(text, sizeof text, "%.*g", digits, real);
    bool whole = digits == 6 ? strtof(text, NULL) == (float)real : strtod(text, NULL) == real;
    say(words, "%.*g", whole ? digits : digits == 6 ? 9 : 17, real);
}

static inline void put_number(struct words *words, uint32_t dtype, const void *at)
{
    union {
        uint64_t bits;
        double real;
        float narrow;
    } n = {0};

    memcpy(&n, at, dtype_bytes(dtype) <= sizeof n ? dtype_bytes(dtype) : sizeof n);
    unsigned unused = 64 - 8 * (unsigned)dtype_bytes(dtype);
    if (dtype == DL_DTYPE_BOOL)
        say(words, n.bits ? "true" : "false");
    else if (dtype == DL_DTYPE_FLOAT64)
        put_real(words, n.real, 15);
    else if (dtype == DL_DTYPE_FLOAT32)
        put_real(words, (double)n.narrow, 6);
    else if (strncmp(dtype_name(dtype), "int", 3) == 0)
        say(words, "%lld", (long long)((int64_t)(n.bits << unused) >> unused));
    else if (strncmp(dtype_name(dtype), "uint", 4) == 0)
        say(words, "%llu", (unsigned long long)n.bits);
    else
        say(words, "0x%llx", (unsigned long long)n.bits);
}

static inline void put_tensor(struct words *words, const struct tree_node *node, const void *data)
{
    char text[SHAPE_TEXT_MAX];
    const char *at = data;
    size_t bytes = dtype_bytes(node->dtype);
    double d;

    if (node->ndim > 0) {
        say(words, "%s%s", dtype_name(node->dtype), shape_text(node->ndim, node->shape, text));
        for (uint64_t i = 0; words->values && i < node->nbytes; i += bytes) {
            say(words, i ? " " : "[");
            put_number(words, node->dtype, at + i);
        }
        say(words, words->values && node->nbytes ? "]" : "");
    } else if (node->dtype == DL_DTYPE_FLOAT64 && !words->values) {
        memcpy(&d, data, sizeof d);
        say(words, "%.17gf", d);
    } else {
        if (node->dtype != DL_DTYPE_INT64 && node->dtype != DL_DTYPE_BOOL)
            say(words, "%s ", dtype_name(node->dtype));
        put_number(words, node->dtype, data);
    }
}

/* Returns the node behind it. */
static inline uint32_t put_node(struct words *words, const struct sample *sample, uint32_t i)
{
    const struct tree_node *node = &sample->tree.nodes[i];
    const char *ends = node->kind == TREE_DICT    ? "{}"
                       : node->kind == TREE_LIST  ? "[]"
                       : node->kind == TREE_TUPLE ? "()"
                                                  : "";
    uint32_t next = i + 1;

    if (node->key_len > 0)
        say(words, "%.*s:", (int)node->key_len, sample->tree.keys + node->key_off);
    if (node->kind == TREE_STRING)
        say(words, "\"%.*s\"", (int)node->nbytes, (const char *)sample->data[i]);
    else if (node->kind == TREE_BYTES)
        say(words, "<%.*s>", (int)node->nbytes, (const char *)sample->data[i]);
    else if (node->kind == TREE_TENSOR)
        put_tensor(words, node, sample->data[i]);
    else
        say(words, "%c", ends[0]);
    for (uint32_t k = 0; k < node->children; k++) {
        if (k > 0)
            say(words, " ");
        next = put_node(words, sample, next);
    }
    if (ends[0])
        say(words, "%c", ends[1]);
    return next;
}

#endif
