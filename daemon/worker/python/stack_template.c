/* What the first sample says of a batch. */
#include "daemon/worker/python/stack_private.h"

#include "proto/common/array.h"
#include "proto/limits.h"

/* The place of the node that was added last, if it could be. */
static struct place *stack_template_added(struct stack *s, int r, enum place_kind kind)
{
    if (r < 0)
        return NULL;
    if (!array_reserve(s->places, s->room, s->tree.count)) {
        s->tree.count--;
        return NULL;
    }
    struct place *place = &s->places[s->tree.count - 1];
    *place = (struct place){.kind = kind, .end = s->tree.count};
    return place;
}

/* A tensor of the batch, whose rows are `leaf`. */
static struct place *stack_template_add_tensor(struct stack *s, const char *key,
                                               const struct leaf *leaf, enum place_kind kind)
{
    uint64_t shape[TREE_DIMS] = {(uint64_t)s->n};
    struct place *place;

    if (leaf->ndim + 1 > TREE_DIMS)
        return NULL;
    memcpy(shape + 1, leaf->shape, leaf->ndim * sizeof *shape);
    place = stack_template_added(
        s, tree_add_tensor(&s->tree, key, leaf->dtype, leaf->ndim + 1, shape), kind);
    if (!place)
        return NULL;
    place->leaf = *leaf;
    place->row_bytes = s->tree.nodes[s->tree.count - 1].nbytes / (uint64_t)s->n;
    return place;
}

static bool stack_template_begin_column(const struct stack *s, struct place *place)
{
    place->column = PyList_New(s->n);
    return place->column != NULL;
}

static bool stack_template_begin_number(struct stack *s, const char *key, uint32_t dtype,
                                        enum place_kind kind, PyObject *object)
{
    struct place *place = stack_template_add_tensor(s, key, &(struct leaf){.dtype = dtype}, kind);

    if (place)
        place->type = (PyObject *)Py_TYPE(object);
    return place != NULL;
}

static bool stack_template_begin_text(struct stack *s, const char *key, PyObject *object)
{
    enum tree_kind kind = PyUnicode_CheckExact(object) ? TREE_STRING : TREE_BYTES;
    struct place *place =
        stack_template_added(s, tree_add_text(&s->tree, kind, key, 0), PLACE_TEXT);

    if (!place)
        return false;
    s->tree.nodes[s->tree.count - 1].ndim = 1;
    s->tree.nodes[s->tree.count - 1].shape[0] = (uint64_t)s->n;
    place->type = (PyObject *)Py_TYPE(object);
    return stack_template_begin_column(s, place);
}

/* PyTorch gives a list of what stands in a dict or by itself, but a tuple of what stands in a
 * sequence; a tree has lists of text only. */
static bool stack_template_begin_texts(struct stack *s, PyObject *object)
{
    struct place *place =
        stack_template_added(s, tree_add(&s->tree, TREE_OBJECT, NULL, 1), PLACE_TEXTS);

    if (!place || !stack_template_begin_column(s, place))
        return false;
    place->type = (PyObject *)Py_TYPE(object);
    place->end = s->tree.count + 1;
    return stack_template_added(s, tree_add_text(&s->tree, TREE_BYTES, NULL, 0), PLACE_PICKLE);
}

static bool stack_template_begin_tensor(struct stack *s, const char *key, PyObject *object)
{
    struct leaf leaf;

    if (leaf_of_tensor(object, &leaf) != 1)
        return false;
    struct place *place = stack_template_add_tensor(s, key, &leaf, PLACE_TENSOR);
    return place && stack_template_begin_column(s, place);
}

/* Of these torch has no tensors, or not everywhere: it says so itself. */
static bool stack_template_torch_knows(uint32_t dtype)
{
    return dtype != DL_DTYPE_UINT16 && dtype != DL_DTYPE_UINT32 && dtype != DL_DTYPE_UINT64;
}

static bool stack_template_begin_array(struct stack *s, const char *key, PyObject *object)
{
    struct leaf leaf;
    Py_buffer array;

    if (leaf_of_array(object, &array, &leaf) != 1)
        return false;
    PyBuffer_Release(&array);
    return (!array_types.tensor || stack_template_torch_knows(leaf.dtype)) &&
           stack_template_add_tensor(s, key, &leaf, PLACE_ARRAY) != NULL;
}

static bool stack_template_begin(struct stack *s, PyObject *object, const char *key,
                                 unsigned depth);

static const char *stack_template_key_text(PyObject *key)
{
    Py_ssize_t len = 0;
    const char *text = PyUnicode_CheckExact(key) ? PyUnicode_AsUTF8AndSize(key, &len) : NULL;

    return text && len <= DL_BOUND_NAME_BYTES && strlen(text) == (size_t)len ? text : NULL;
}

static bool stack_template_begin_dict(struct stack *s, PyObject *dict, const char *key,
                                      unsigned depth)
{
    _cleanup_py_ PyObject *items = PyDict_Items(dict);
    Py_ssize_t n = items ? PyList_Size(items) : -1;

    if (n < 0 || n > DL_BOUND_TREE_NODES ||
        !stack_template_added(s, tree_add(&s->tree, TREE_DICT, key, (uint32_t)n), PLACE_DICT))
        return false;
    uint32_t at = s->tree.count - 1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_GetItem(items, i);
        PyObject *name = PyTuple_GetItem(item, 0);
        const char *text = stack_template_key_text(name);
        uint32_t child = s->tree.count;
        if (!text || !stack_template_begin(s, PyTuple_GetItem(item, 1), text, depth - 1))
            return false;
        Py_INCREF(name);
        s->places[child].key = name;
    }
    s->places[at].end = s->tree.count;
    return true;
}

static bool stack_template_begin_sequence(struct stack *s, PyObject *object, const char *key,
                                          unsigned depth)
{
    _cleanup_py_ PyObject *items = PySequence_Tuple(object);
    Py_ssize_t n = items ? PyTuple_Size(items) : -1;

    if (n < 0 || n > DL_BOUND_TREE_NODES ||
        !stack_template_added(s, tree_add(&s->tree, TREE_LIST, key, (uint32_t)n), PLACE_SEQUENCE))
        return false;
    uint32_t at = s->tree.count - 1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(items, i);
        bool text = PyUnicode_CheckExact(item) || PyBytes_CheckExact(item);
        if (!(text ? stack_template_begin_texts(s, item)
                   : stack_template_begin(s, item, NULL, depth - 1)))
            return false;
    }
    s->places[at].end = s->tree.count;
    return true;
}

/* Adds the nodes of `object`. False: not plain, or an exception. */
static bool stack_template_begin(struct stack *s, PyObject *object, const char *key, unsigned depth)
{
    if (depth == 0)
        return false;
    if (array_types_is_tensor(object))
        return stack_template_begin_tensor(s, key, object);
    if (array_types_is_array(object))
        return stack_template_begin_array(s, key, object);
    if (PyFloat_CheckExact(object))
        return stack_template_begin_number(s, key, DL_DTYPE_FLOAT64, PLACE_FLOAT, object);
    if (PyLong_CheckExact(object))
        return stack_template_begin_number(s, key, DL_DTYPE_INT64, PLACE_INT, object);
    if (PyBool_Check(object))
        return stack_template_begin_number(s, key, DL_DTYPE_BOOL, PLACE_BOOL, object);
    if (PyUnicode_CheckExact(object) || PyBytes_CheckExact(object))
        return stack_template_begin_text(s, key, object);
    if (PyDict_CheckExact(object))
        return stack_template_begin_dict(s, object, key, depth);
    if (PyList_CheckExact(object) || PyTuple_CheckExact(object))
        return stack_template_begin_sequence(s, object, key, depth);
    uint32_t dtype = array_types_scalar(Py_TYPE(object));
    return dtype != 0 && stack_template_begin_number(s, key, dtype, PLACE_SCALAR, object);
}

bool stack_template(struct stack *s, PyObject *sample)
{
    return stack_template_begin(s, sample, NULL, DL_BOUND_TREE_DEPTH);
}
