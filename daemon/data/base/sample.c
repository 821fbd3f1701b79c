#include "daemon/data/base/sample.h"

#include "proto/common/array.h"
#include "proto/common/utf8.h"

#include <assert.h>
#include <errno.h>

/* The first error stays. */
static int sample_stick(struct sample *sample, int r)
{
    if (sample->error == 0 && r < 0)
        sample->error = r;
    return sample->error;
}

/* Whether a node may come now, and room for where its bytes are. */
static int sample_prepare(struct sample *sample, const char *key)
{
    if (sample->error)
        return sample->error;
    if (sample->depth == 0)
        return sample_stick(sample, sample->tree.count > 0 || key ? -EINVAL : 0);

    struct tree_node *parent = &sample->tree.nodes[sample->open[sample->depth - 1]];
    if ((parent->kind == TREE_DICT) != (key != NULL))
        return sample_stick(sample, -EINVAL);
    return 0;
}

/* The node just added points to `data`; counts it in its parent. */
static int sample_added(struct sample *sample, const void *data)
{
    uint32_t node = sample->tree.count - 1;

    if (!array_reserve(sample->data, sample->data_room, sample->tree.count))
        return sample_stick(sample, -ENOMEM);
    sample->data[node] = data;
    if (sample->depth > 0)
        sample->tree.nodes[sample->open[sample->depth - 1]].children++;
    return 0;
}

int sample_begin(struct sample *sample, enum tree_kind kind, const char *key)
{
    int r = sample_prepare(sample, key);

    if (r == 0 && kind != TREE_DICT && kind != TREE_LIST && kind != TREE_TUPLE)
        r = sample_stick(sample, -EINVAL);
    if (r == 0 && sample->depth == DL_BOUND_TREE_DEPTH)
        r = sample_stick(sample, -E2BIG);
    if (r == 0)
        r = sample_stick(sample, tree_add(&sample->tree, kind, key, 0));
    if (r == 0)
        r = sample_added(sample, NULL);
    if (r == 0)
        sample->open[sample->depth++] = sample->tree.count - 1;
    return r;
}

int sample_end(struct sample *sample)
{
    if (sample->error)
        return sample->error;
    if (sample->depth == 0)
        return sample_stick(sample, -EINVAL);
    sample->depth--;
    return 0;
}

int sample_tensor(struct sample *sample, const char *key, uint32_t dtype, uint32_t ndim,
                  const uint64_t *shape, const void *data)
{
    int r = sample_prepare(sample, key);
    uint64_t bytes;

    if (r == 0 && !data && tensor_bytes(dtype, ndim, shape, &bytes) && bytes > 0)
        r = sample_stick(sample, -EFAULT);
    if (r == 0)
        r = sample_stick(sample, tree_add_tensor(&sample->tree, key, dtype, ndim, shape));
    return r < 0 ? r : sample_added(sample, data);
}

int sample_text(struct sample *sample, enum tree_kind kind, const char *key, const void *data,
                size_t len)
{
    int r = sample_prepare(sample, key);

    if (r == 0 && kind != TREE_STRING && kind != TREE_BYTES)
        r = sample_stick(sample, -EINVAL);
    if (r == 0 && !data && len > 0)
        r = sample_stick(sample, -EFAULT);
    if (r == 0 && kind == TREE_STRING && !utf8_valid(data, len))
        r = sample_stick(sample, -EILSEQ);
    if (r == 0)
        r = sample_stick(sample, tree_add_text(&sample->tree, kind, key, len));
    return r < 0 ? r : sample_added(sample, data);
}

static int sample_number(struct sample *sample, const char *key, uint32_t dtype, const void *value,
                         size_t size)
{
    void *copy = sample_alloc(sample, size);

    if (!copy)
        return sample->error;
    memcpy(copy, value, size);
    return sample_tensor(sample, key, dtype, 0, NULL, copy);
}

int sample_int(struct sample *sample, const char *key, int64_t value)
{
    return sample_number(sample, key, DL_DTYPE_INT64, &value, sizeof value);
}

int sample_float(struct sample *sample, const char *key, double value)
{
    return sample_number(sample, key, DL_DTYPE_FLOAT64, &value, sizeof value);
}

int sample_bool(struct sample *sample, const char *key, bool value)
{
    uint8_t byte = value;
    return sample_number(sample, key, DL_DTYPE_BOOL, &byte, sizeof byte);
}

int sample_bytes_to_numbers(struct sample *sample, uint32_t dtype, struct dl_error *err)
{
    struct tree *tree = &sample->tree;
    uint64_t element = dtype_bytes(dtype);

    for (uint32_t i = 0; i < tree->count; i++) {
        struct tree_node *node = &tree->nodes[i];
        if (node->kind != TREE_BYTES)
            continue;
        if (node->nbytes % element != 0)
            return dl_error_set(err, EINVAL, "",
                                "%s%.*s%shas %llu bytes, which are no whole number of %s; choose "
                                "another type with dataset.raw, or other fields",
                                node->key_len > 0 ? "its field " : "", (int)node->key_len,
                                tree->keys + node->key_off, node->key_len > 0 ? " " : "",
                                (ull)node->nbytes, dtype_name(dtype));
        node->kind = TREE_TENSOR;
        node->dtype = (uint16_t)dtype;
        node->ndim = 1;
        node->shape[0] = node->nbytes / element;
    }
    return 0;
}

int sample_copy_tree(struct sample *sample, const struct tree *tree, const void *const *data)
{
    struct {
        uint32_t missing; /* children not yet done */
        bool dict;
    } open[DL_BOUND_TREE_DEPTH];
    char name[DL_BOUND_NAME_BYTES + 1];
    uint32_t depth = 0;

    for (uint32_t i = 0; i < tree->count && sample->error == 0; i++) {
        const struct tree_node *node = &tree->nodes[i];
        const char *key = depth > 0 && open[depth - 1].dict ? name : NULL;

        if (node->key_len > 0)
            memcpy(name, tree->keys + node->key_off, node->key_len);
        name[node->key_len] = '\0';
        if (node->kind == TREE_TENSOR) {
            sample_tensor(sample, key, node->dtype, node->ndim, node->shape, *data++);
        } else if (sample_begin(sample, node->kind, key) == 0) {
            open[depth].dict = node->kind == TREE_DICT;
            open[depth++].missing = node->children + 1;
        }
        while (depth > 0 && --open[depth - 1].missing == 0) {
            sample_end(sample);
            depth--;
        }
    }
    return sample->error;
}

void *sample_alloc(struct sample *sample, size_t bytes)
{
    void *memory = sample->error ? NULL : arena_alloc(sample->arena, bytes);

    if (!memory)
        sample_stick(sample, -ENOMEM);
    return memory;
}

void sample_object(struct sample *sample, void *object, void (*release)(void *object))
{
    assert(object && !sample->object && sample->tree.count == 0);
    sample->object = object;
    sample->release = release;
}

void *sample_take_object(struct sample *sample)
{
    return steal_ptr(sample->object);
}

void sample_clear(struct sample *sample)
{
    void *object = sample_take_object(sample); /* its release may run anything */

    tree_clear(&sample->tree);
    sample->depth = 0;
    sample->error = 0;
    if (object)
        sample->release(object);
    assert(!sample->object);
}

void sample_deinit(struct sample *sample)
{
    sample_clear(sample);
    tree_deinit(&sample->tree);
    free(sample->data);
    *sample = (struct sample){0};
}

int sample_check(const struct sample *sample, struct dl_error *err)
{
    switch (sample->error) {
    case 0:
        if (sample->object || (sample->depth == 0 && sample->tree.count > 0))
            return 0;
        return dl_error_set(err, EINVAL, "", "the sample is %s",
                            sample->tree.count ? "incomplete: a container has no end"
                                               : "empty: it has neither leaf nor container");
    case -EILSEQ:
        return dl_error_set(err, EILSEQ, "", "a string of the sample is not UTF-8");
    case -E2BIG:
        return dl_error_set(err, E2BIG, "", "the sample has more than %d nodes, or %d levels",
                            DL_BOUND_TREE_NODES, DL_BOUND_TREE_DEPTH);
    case -ENAMETOOLONG:
        return dl_error_set(err, EINVAL, "", "a key of the sample has more than %d bytes",
                            DL_BOUND_NAME_BYTES);
    case -EOVERFLOW:
        return dl_error_set(err, EINVAL, "",
                            "a tensor of the sample has an unknown dtype, more than %d dimensions, "
                            "or 2^63 bytes or more",
                            DL_BOUND_TENSOR_DIMS);
    case -ENOMEM:
        return dl_error_set(err, ENOMEM, "", "out of memory for a sample");
    case -EFAULT:
        return dl_error_set(err, EINVAL, "", "a leaf of the sample has a size but no bytes (NULL)");
    default:
        return dl_error_set(
            err, EINVAL, "",
            "the sample is not a tree: a second root, a key outside a dict or none in "
            "one, an end without its beginning, an unknown kind of node, or a key "
            "that is not UTF-8");
    }
}
