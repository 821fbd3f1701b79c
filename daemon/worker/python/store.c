#include "daemon/worker/python/store.h"

#include "daemon/worker/python/pickle.h"

#include "proto/common/array.h"
#include "proto/limits.h"

#include <errno.h>

enum {
    /* Containers that become nodes; objects with their children must still fit below. */
    NODES_DEEP = DL_BOUND_TREE_DEPTH - 4,
    /* How many of an object's parts are looked at for something that is worth a node. */
    LOOKS = 65536,
    /* A tuple of more texts is an object: a tree has lists of text, and nodes are large. */
    TUPLE_OF_TEXT = 8,
};

/* Where the bytes of a node come from. */
enum part_kind { PART_NONE, PART_TENSOR, PART_ARRAY, PART_TEXT, PART_TEXTS };
struct part {
    enum part_kind kind;
    PyObject *object; /* owned; a tensor, array, str or bytes; or a tuple of str or bytes */
    struct leaf leaf; /* of a tensor, or of an array */
};

struct store {
    struct tree tree;
    struct part *parts; /* of each node */
    uint32_t room;
    bool arrays;
    bool layouts; /* stay as they are */
};

struct store *store_new(void)
{
    return calloc(1, sizeof(struct store));
}

void store_keep_layouts(struct store *s)
{
    s->layouts = true;
}

static void store_clear(struct store *s)
{
    for (uint32_t i = 0; i < s->tree.count; i++)
        Py_CLEAR(s->parts[i].object);
    tree_clear(&s->tree);
}

struct store *store_free(struct store *s)
{
    if (!s)
        return NULL;
    store_clear(s);
    tree_deinit(&s->tree);
    free(s->parts);
    free(s);
    return NULL;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static int store_refuse(int r)
{
    if (r == -ENOMEM)
        PyErr_NoMemory();
    else if (r == -E2BIG)
        PyErr_Format(PyExc_RuntimeError,
                     "this batch has more than %d tensors, texts and containers of them; stack "
                     "them in collate_fn",
                     (int)DL_MAX_TREE_NODES);
    else
        PyErr_Format(PyExc_RuntimeError, "this batch cannot be stored: %s", strerror(-r));
    return -1;
}

/* The part of the node that was added last; `r` says whether it could be. */
static struct part *store_added(struct store *s, int r)
{
    if (r == 0 && !array_reserve(s->parts, s->room, s->tree.count)) {
        s->tree.count--; /* without a part it does not exist */
        r = -ENOMEM;
    }
    if (r < 0) {
        store_refuse(r);
        return NULL;
    }
    struct part *part = &s->parts[s->tree.count - 1];
    *part = (struct part){.kind = PART_NONE};
    return part;
}

/* A tensor or an array: 1. 0: it is for a pickle. -1. */
static int store_add_leaf(struct store *s, PyObject *object, const char *key)
{
    struct leaf leaf;

    int r = leaf_of(object, &leaf);
    if (r > 0 && s->layouts && array_types_is_tensor(object))
        r = leaf_in_order(object, &leaf);
    if (r <= 0)
        return r;
    struct part *part =
        store_added(s, tree_add_tensor(&s->tree, key, leaf.dtype, leaf.ndim, leaf.shape));
    if (!part)
        return -1;
    part->kind = array_types_is_tensor(object) ? PART_TENSOR : PART_ARRAY;
    part->leaf = leaf;
    Py_INCREF(object);
    part->object = object;
    return 1;
}

/* The bytes of a str or bytes object; NULL when it has none that are UTF-8. No exception. */
static const char *store_text_of(PyObject *object, Py_ssize_t *ret_len)
{
    const char *text = NULL;
    char *bytes;

    if (PyUnicode_CheckExact(object))
        text = PyUnicode_AsUTF8AndSize(object, ret_len);
    else if (PyBytes_CheckExact(object) && PyBytes_AsStringAndSize(object, &bytes, ret_len) == 0)
        text = bytes;
    if (!text)
        PyErr_Clear();
    return text;
}

static enum tree_kind store_text_kind(PyObject *object)
{
    return PyUnicode_CheckExact(object) ? TREE_STRING : TREE_BYTES;
}

static int store_add_text(struct store *s, PyObject *object, const char *key)
{
    Py_ssize_t len = 0;

    if (!store_text_of(object, &len))
        return 0;
    struct part *part =
        store_added(s, tree_add_text(&s->tree, store_text_kind(object), key, (uint64_t)len));
    if (!part)
        return -1;
    part->kind = PART_TEXT;
    Py_INCREF(object);
    part->object = object;
    return 1;
}

/* All items are str, or all are bytes, and there is one: *ret_bytes of them together. */
static bool store_all_text(PyObject *items, uint64_t *ret_bytes)
{
    Py_ssize_t n = PyTuple_Size(items), len = 0;

    *ret_bytes = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(items, i);
        if (Py_TYPE(item) != Py_TYPE(PyTuple_GetItem(items, 0)) || !store_text_of(item, &len))
            return false;
        *ret_bytes += (uint64_t)len;
    }
    return n > 0;
}

/* The list of text; `items` is a tuple of what was in it. */
static int store_add_texts(struct store *s, PyObject *items, uint64_t bytes, const char *key)
{
    uint64_t n = (uint64_t)PyTuple_Size(items);
    struct part *part =
        store_added(s, tree_add_text(&s->tree, store_text_kind(PyTuple_GetItem(items, 0)), key,
                                     (n + 1) * sizeof(uint64_t) + bytes));

    if (!part)
        return -1;
    struct tree_node *node = &s->tree.nodes[s->tree.count - 1];
    node->ndim = 1;
    node->shape[0] = n;
    part->kind = PART_TEXTS;
    Py_INCREF(items);
    part->object = items;
    return 1;
}

/* ---- objects -------------------------------------------------------------------------------- */

static bool store_counts_as_tensor(const struct store *s, PyObject *object)
{
    return array_types_is_tensor(object) || (s->arrays && array_types_is_array(object));
}

/* `tensors`: a list of those in it that share memory with others, NULL: none does. */
static int store_add_object(struct store *s, PyObject *object, const char *key, PyObject *tensors)
{
    _cleanup_py_ PyObject *found = PyList_New(0);

    _cleanup_py_ PyObject *bytes = found ? pickle_object(object, found, s->layouts, tensors) : NULL;
    if (!bytes || !store_added(s, tree_add(&s->tree, TREE_OBJECT, key, 0)))
        return -1;
    uint32_t at = s->tree.count - 1;
    if (store_add_text(s, bytes, NULL) <= 0)
        return -1;
    Py_ssize_t n = PyList_Size(found);
    for (Py_ssize_t i = 0; i < n; i++) {
        int r = store_add_leaf(s, PyList_GetItem(found, i), NULL);
        if (r == 0)
            PyErr_SetString(PyExc_RuntimeError, "a tensor changed while it was pickled");
        if (r <= 0)
            return -1;
    }
    s->tree.nodes[at].children = (uint32_t)n + 1;
    return 1;
}

/* ---- containers ----------------------------------------------------------------------------- */

/* The key's bytes, if it can be one of a tree; else NULL. No exception. */
static const char *store_good_key(PyObject *key)
{
    Py_ssize_t len = 0;

    if (!PyUnicode_CheckExact(key))
        return NULL;
    const char *text = store_text_of(key, &len);
    return text && len <= DL_BOUND_NAME_BYTES && strlen(text) == (size_t)len ? text : NULL;
}

static bool store_good_keys(PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(dict, &at, &key, &value))
        if (!store_good_key(key))
            return false;
    return true;
}

static bool store_worth(const struct store *s, PyObject *object, unsigned depth, unsigned *looks);

static bool store_worth_dict(const struct store *s, PyObject *dict, unsigned depth, unsigned *looks)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    bool found = PyDict_Size(dict) == 0;

    if (!store_good_keys(dict))
        return false;
    while (!found && PyDict_Next(dict, &at, &key, &value))
        found = store_worth(s, value, depth, looks);
    return found;
}

/* Whether `object` is, or holds, something that becomes a node of its own. Runs nobody's code. */
static bool store_worth(const struct store *s, PyObject *object, unsigned depth, unsigned *looks)
{
    if (*looks == 0)
        return false;
    --*looks;
    if (store_counts_as_tensor(s, object) || PyUnicode_CheckExact(object) ||
        PyBytes_CheckExact(object))
        return true;
    if (depth == 0)
        return false;
    if (PyDict_CheckExact(object))
        return store_worth_dict(s, object, depth - 1, looks);
    bool list = PyList_CheckExact(object);
    if (!list && !PyTuple_CheckExact(object))
        return false;
    Py_ssize_t n = list ? PyList_Size(object) : PyTuple_Size(object);
    bool found = n == 0;
    for (Py_ssize_t i = 0; !found && i < n; i++)
        found = store_worth(s, list ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i),
                            depth - 1, looks);
    return found;
}

static int store_add(struct store *s, PyObject *object, const char *key, unsigned depth);

/* 0: it is to be an object. */
static int store_add_sequence(struct store *s, PyObject *object, const char *key, unsigned depth)
{
    bool list = PyList_CheckExact(object);
    _cleanup_py_ PyObject *items = PySequence_Tuple(object);
    uint64_t bytes;

    if (!items)
        return -1;
    Py_ssize_t n = PyTuple_Size(items);
    if (list && store_all_text(items, &bytes))
        return store_add_texts(s, items, bytes, key);
    if (n > TUPLE_OF_TEXT && store_all_text(items, &bytes))
        return 0;
    if (n > DL_BOUND_TREE_NODES)
        return store_refuse(-E2BIG);
    if (!store_added(s, tree_add(&s->tree, list ? TREE_LIST : TREE_TUPLE, key, (uint32_t)n)))
        return -1;
    for (Py_ssize_t i = 0; i < n; i++)
        if (store_add(s, PyTuple_GetItem(items, i), NULL, depth - 1) < 0)
            return -1;
    return 1;
}

static int store_add_dict(struct store *s, PyObject *object, const char *key, unsigned depth)
{
    _cleanup_py_ PyObject *items = PyDict_Items(object);
    Py_ssize_t n = items ? PyList_Size(items) : -1;

    if (n < 0)
        return -1;
    if (n > DL_BOUND_TREE_NODES)
        return store_refuse(-E2BIG);
    if (!store_added(s, tree_add(&s->tree, TREE_DICT, key, (uint32_t)n)))
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_GetItem(items, i);
        const char *name = store_good_key(PyTuple_GetItem(item, 0));
        if (!name)
            return store_refuse(-EINVAL);
        if (store_add(s, PyTuple_GetItem(item, 1), name, depth - 1) < 0)
            return -1;
    }
    return 1;
}

/* 1, or -1. */
static int store_add(struct store *s, PyObject *object, const char *key, unsigned depth)
{
    unsigned looks = LOOKS;
    int r = 0;

    if (store_counts_as_tensor(s, object))
        r = store_add_leaf(s, object, key);
    else if (PyUnicode_CheckExact(object) || PyBytes_CheckExact(object))
        r = store_add_text(s, object, key);
    else if (depth > 0 && store_worth(s, object, depth, &looks))
        r = PyDict_CheckExact(object) ? store_add_dict(s, object, key, depth)
                                      : store_add_sequence(s, object, key, depth);
    return r != 0 ? r : store_add_object(s, object, key, NULL);
}

/* ---- tensors that share memory ----------------------------------------------------------------
 */

struct store_range {
    uintptr_t first, end;
};

static int store_compare_ranges(const void *a, const void *b)
{
    const struct store_range *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

/* Whether some of the tensors lie over one another: 1 or 0; -1. `tensors`: a list, to get them all.
 */
static int store_find_ranges(const struct store *s, struct store_range *ranges, PyObject *tensors)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->tree.count; i++) {
        const void *address;
        if (s->parts[i].kind != PART_TENSOR || s->tree.nodes[i].nbytes == 0)
            continue;
        if (leaf_address(s->parts[i].object, &address) < 0 ||
            PyList_Append(tensors, s->parts[i].object) < 0)
            return -1;
        ranges[n++] =
            (struct store_range){(uintptr_t)address, (uintptr_t)address + s->tree.nodes[i].nbytes};
    }
    qsort(ranges, n, sizeof *ranges, store_compare_ranges);
    for (size_t i = 1; i < n; i++)
        if (ranges[i].first < ranges[i - 1].end)
            return 1;
    return 0;
}

static int store_shares(const struct store *s, PyObject *tensors)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->tree.count; i++)
        n += s->parts[i].kind == PART_TENSOR;
    if (n < 2)
        return 0;
    struct store_range *ranges = calloc(n, sizeof *ranges);
    int r = ranges ? store_find_ranges(s, ranges, tensors) : store_refuse(-ENOMEM);
    free(ranges);
    return r;
}

/* The tree of a batch: one object where tensors share memory, since pickles alone say so. */
static int store_add_all(struct store *s, PyObject *object)
{
    if (store_add(s, object, NULL, NODES_DEEP) < 0)
        return -1;
    if (!s->layouts)
        return 0;
    _cleanup_py_ PyObject *tensors = PyList_New(0);
    int r = tensors ? store_shares(s, tensors) : -1;
    if (r <= 0)
        return r;
    store_clear(s);
    return store_add_object(s, object, NULL, tensors) < 0 ? -1 : 0;
}

/* ---- writing -------------------------------------------------------------------------------- */

static bool store_lay_out(struct store *s, const struct slot_task *task, struct batch_layout *ret)
{
    *ret = batch_layout_begin(slot_task_end(task), &s->tree);
    for (uint32_t i = 0; i < s->tree.count; i++)
        if (s->parts[i].kind != PART_NONE && !batch_layout_place(ret, &s->tree.nodes[i]))
            return false;
    return true;
}

/* The numbers of where each begins, then the bytes. */
static void store_write_texts(char *to, PyObject *items)
{
    Py_ssize_t n = PyTuple_Size(items), len = 0;
    uint64_t *ends = (void *)to, at = 0;

    to += (size_t)(n + 1) * sizeof at;
    ends[0] = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        const char *text = store_text_of(PyTuple_GetItem(items, i), &len);
        memcpy(to + at, text, (size_t)len);
        at += (uint64_t)len;
        ends[i + 1] = at;
    }
}

static int store_write_part(const struct part *part, char *to)
{
    Py_ssize_t len = 0;

    switch (part->kind) {
    case PART_TENSOR:
        return leaf_write_tensor(to, part->object, &part->leaf);
    case PART_ARRAY:
        return leaf_write_array(to, part->object, &part->leaf);
    case PART_TEXT: {
        const char *text = store_text_of(part->object, &len);
        memcpy(to, text, (size_t)len);
        return 0;
    }
    case PART_TEXTS:
        store_write_texts(to, part->object);
        return 0;
    case PART_NONE:
        break;
    }
    return 0;
}

static int store_put(struct store *s, PyObject *object, const struct slot_task *task, void *slot,
                     uint64_t slot_bytes, uint64_t *ret_used)
{
    struct batch_layout layout;

    if (store_add_all(s, object) < 0)
        return -1;
    if (!store_lay_out(s, task, &layout)) {
        PyErr_SetString(PyExc_RuntimeError, "this batch has more bytes than a segment can hold; "
                                            "choose a smaller batch");
        return -1;
    }
    *ret_used = layout.used;
    if (layout.used > slot_bytes)
        return 0;
    for (uint32_t i = 0; i < s->tree.count; i++)
        if (store_write_part(&s->parts[i], (char *)slot + s->tree.nodes[i].offset) < 0)
            return -1;
    batch_layout_zero_gaps(&layout, s->tree.nodes, slot);
    tree_encode(&s->tree, (char *)slot + layout.tree_off);
    slot_put_batch(slot, task->samples, &layout);
    return 1;
}

int store_object(struct store *s, PyObject *object, bool arrays, const struct slot_task *task,
                 void *slot, uint64_t slot_bytes, uint64_t *ret_used)
{
    s->arrays = arrays;
    int r = store_put(s, object, task, slot, slot_bytes, ret_used);
    store_clear(s);
    return r;
}
