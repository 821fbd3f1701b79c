/*
 * Samples from text, and batches as text: for tests that say in one line what is collated, and for
 * the comparison with PyTorch.
 *
 * A sample is YAML (or JSON): numbers, booleans, strings, lists and maps are what they look like;
 * {$tuple: [...]}, {$bytes: text}, and {$tensor: [dtype, [shape], first]}, whose byte k is
 * first + 7·k (bool: its lowest bit).
 *
 * A batch is JSON: dict and list; {"tuple": [...]}; "text" or {"texts": [...]}; {"bytes": hex} or
 * {"byteses": [hex, ...]}; {"dtype", "shape", "data": hex}.
 */
#ifndef DL_TEST_BATCH_TEXT_H
#define DL_TEST_BATCH_TEXT_H

#include "daemon/data/collate/collate.h"
#include "proto/yaml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static inline int text_tensor(struct sample *sample, const char *key, const struct value *v)
{
    uint64_t shape[TREE_DIMS] = {0}, bytes;
    uint32_t dtype, ndim;
    uint8_t *data;

    if (v->count != 3 || v->items[1].count > TREE_DIMS ||
        dtype_from_name(v->items[0].string, &dtype) < 0)
        return -EINVAL;
    ndim = v->items[1].count;
    for (uint32_t i = 0; i < ndim; i++)
        shape[i] = (uint64_t)v->items[1].items[i].integer;
    if (!tensor_bytes(dtype, ndim, shape, &bytes) || bytes > 1 << 20 ||
        !(data = sample_alloc(sample, bytes)))
        return -EINVAL;
    for (uint64_t k = 0; k < bytes; k++)
        data[k] =
            (uint8_t)((uint64_t)v->items[2].integer + 7 * k) & (dtype == DL_DTYPE_BOOL ? 1 : 0xff);
    return sample_tensor(sample, key, dtype, ndim, shape, data);
}

/* Appends what `v` describes; it must outlive the sample. */
static inline int sample_from_value(struct sample *sample, const char *key, const struct value *v)
{
    const struct value *special = v->type == VALUE_MAP && v->count == 1 ? &v->items[0] : NULL;
    enum tree_kind kind = v->type == VALUE_MAP ? TREE_DICT : TREE_LIST;

    switch (v->type) {
    case VALUE_BOOL:
        return sample_bool(sample, key, v->boolean);
    case VALUE_INT:
        return sample_int(sample, key, v->integer);
    case VALUE_FLOAT:
        return sample_float(sample, key, v->number);
    case VALUE_STRING:
        return sample_text(sample, TREE_STRING, key, v->string, strlen(v->string));
    case VALUE_ARRAY:
    case VALUE_MAP:
        break;
    default:
        return -EINVAL;
    }
    if (special && strcmp(special->key, "$tensor") == 0)
        return text_tensor(sample, key, special);
    if (special && strcmp(special->key, "$bytes") == 0)
        return sample_text(sample, TREE_BYTES, key, special->string, strlen(special->string));
    if (special && strcmp(special->key, "$tuple") == 0) {
        v = special;
        kind = TREE_TUPLE;
    }
    sample_begin(sample, kind, key);
    for (uint32_t i = 0; i < v->count; i++)
        sample_from_value(sample, kind == TREE_DICT ? v->items[i].key : NULL, &v->items[i]);
    return sample_end(sample);
}

/* A slot and the tree in it. */
struct batch_text {
    const char *slot;
    const void *encoded;
    FILE *out;
};

static inline void print_hex(FILE *out, const void *data, uint64_t len)
{
    fputc('"', out);
    for (uint64_t i = 0; i < len; i++)
        fprintf(out, "%02x", ((const uint8_t *)data)[i]);
    fputc('"', out);
}

static inline void print_string(FILE *out, const char *text, uint64_t len)
{
    fputc('"', out);
    for (uint64_t i = 0; i < len; i++) {
        if (text[i] == '"' || text[i] == '\\' || (uint8_t)text[i] < 0x20)
            fprintf(out, "\\u%04x", (unsigned)text[i]);
        else
            fputc(text[i], out);
    }
    fputc('"', out);
}

static inline bool print_text(const struct batch_text *b, const struct tree_node *node)
{
    bool bytes = node->kind == TREE_BYTES, list = node->ndim == 1;
    const char *text;
    uint64_t len;

    if (list)
        fprintf(b->out, "{\"%s\": [", bytes ? "byteses" : "texts");
    else if (bytes)
        fputs("{\"bytes\": ", b->out);
    for (uint64_t i = 0; i < (list ? node->shape[0] : 1); i++) {
        if (!tree_text(node, b->slot, i, &text, &len))
            return false;
        fputs(i > 0 ? ", " : "", b->out);
        if (bytes)
            print_hex(b->out, text, len);
        else
            print_string(b->out, text, len);
    }
    fputs(list ? "]}" : bytes ? "}" : "", b->out);
    return true;
}

static inline void print_tensor(const struct batch_text *b, const struct tree_node *node)
{
    fprintf(b->out, "{\"dtype\": \"%s\", \"shape\": [", dtype_name(node->dtype));
    for (uint32_t i = 0; i < node->ndim; i++)
        fprintf(b->out, "%s%" PRIu64, i > 0 ? ", " : "", node->shape[i]);
    fputs("], \"data\": ", b->out);
    print_hex(b->out, b->slot + node->offset, node->nbytes);
    fputc('}', b->out);
}

/* False: a text leads out of its leaf. */
static inline bool print_node(const struct batch_text *b, const struct tree_node *node)
{
    const struct tree_node *child = node + 1;
    bool dict = node->kind == TREE_DICT, tuple = node->kind == TREE_TUPLE;

    if (node->kind == TREE_TENSOR) {
        print_tensor(b, node);
        return true;
    }
    if (node->kind == TREE_STRING || node->kind == TREE_BYTES)
        return print_text(b, node);
    fputs(dict ? "{" : tuple ? "{\"tuple\": [" : "[", b->out);
    for (uint32_t i = 0; i < node->children; i++, child = tree_skip(child)) {
        fputs(i > 0 ? ", " : "", b->out);
        if (dict) {
            print_string(b->out, tree_key(b->encoded, child), child->key_len);
            fputs(": ", b->out);
        }
        if (!print_node(b, child))
            return false;
    }
    fputs(dict ? "}" : tuple ? "]}" : "]", b->out);
    return true;
}

/* A batch that was checked with tree_check(). */
static inline bool print_batch(FILE *out, const void *slot, const struct batch_layout *layout)
{
    const void *encoded = (const char *)slot + layout->tree_off;

    return print_node(&(struct batch_text){slot, encoded, out}, encoded);
}

#endif
