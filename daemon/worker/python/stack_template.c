/* What the first sample says of a batch. */
#include "daemon/worker/python/stack_private.h"

#include "proto/limits.h"

/* The place of the node that was added last, if it could be. */
static struct place *added(struct stack *s, int r, enum place_kind kind)
{
    if (r < 0)
        return NULL;
    if (s->tree.count > s->room) {
        uint32_t room = s->room ? 2 * s->room : 16;
        struct place *places = realloc(s->places, room * sizeof *places);
        if (!places) {
            s->tree.count--;
            return NULL;
        }
        s->places = places;
        s->room = room;
    }
    struct place *place = &s->places[s->tree.count - 1];
    *place = (struct place){.kind = kind, .end = s->tree.count};
    return place;
}

/* A tensor of the batch, whose rows are `leaf`. */
static struct place *add_tensor(struct stack *s, const char *key, const struct leaf *leaf,
                                enum place_kind kind)
{
    uint64_t shape[TREE_DIMS] = {(uint64_t)s->n};
    struct place *place;

    if (leaf->ndim + 1 > TREE_DIMS)
        return NULL;
    memcpy(shape + 1, leaf->shape, leaf->ndim * sizeof *shape);
    place = added(s, tree_add_tensor(&s->tree, key, leaf->dtype, leaf->ndim + 1, shape), kind);
    if (!place)
        return NULL;
    place->leaf = *leaf;
    place->row_bytes = s->tree.nodes[s->tree.count - 1].nbytes / (uint64_t)s->n;
    return place;
}

static bool begin_column(const struct stack *s, struct place *place)
{
    place->column = PyList_New(s->n);
    return place->column != NULL;
}

static bool begin_number(struct stack *s, const char *key, uint32_t dtype, enum place_kind kind,
                         PyObject *object)
{
    struct place *place = add_tensor(s, key, &(struct leaf){.dtype = dtype}, kind);

    if (place)
        place->type = (PyObject *)Py_TYPE(object);
    return place != NULL;
}

static bool begin_text(struct stack *s, const char *key, PyObject *object)
{
    enum tree_kind kind = PyUnicode_CheckExact(object) ? TREE_STRING : TREE_BYTES;
    struct place *place = added(s, tree_add_text(&s->tree, kind, key, 0), PLACE_TEXT);

    if (!place)
        return false;
    s->tree.nodes[s->tree.count - 1].ndim = 1;
    s->tree.nodes[s->tree.count - 1].shape[0] = (uint64_t)s->n;
    place->type = (PyObject *)Py_TYPE(object);
    return begin_column(s, place);
}

/* PyTorch gives a list of what stands in a dict or by itself, but a tuple of what stands in a
 * sequence; a tree has lists of text only. */
static bool begin_texts(struct stack *s, PyObject *object)
{
    struct place *place = added(s, tree_add(&s->tree, TREE_OBJECT, NULL, 1), PLACE_TEXTS);

    if (!place || !begin_column(s, place))
        return false;
    place->type = (PyObject *)Py_TYPE(object);
    place->end = s->tree.count + 1;
    return added(s, tree_add_text(&s->tree, TREE_BYTES, NULL, 0), PLACE_PICKLE);
}

static bool begin_tensor(struct stack *s, const char *key, PyObject *object)
{
    struct leaf leaf;

    if (leaf_of_tensor(object, &leaf) != 1)
        return false;
    struct place *place = add_tensor(s, key, &leaf, PLACE_TENSOR);
    return place && begin_column(s, place);
}

/* Of these torch has no tensors, or not everywhere: it says so itself. */
static bool torch_knows(uint32_t dtype)
{
    return dtype != DL_DTYPE_UINT16 && dtype != DL_DTYPE_UINT32 && dtype != DL_DTYPE_UINT64;
}

static bool begin_array(struct stack *s, const char *key, PyObject *object)
{
    struct leaf leaf;
    Py_buffer array;

    if (leaf_of_array(object, &array, &leaf) != 1)
        return false;
    PyBuffer_Release(&array);
    return (!array_types.tensor || torch_knows(leaf.dtype)) &&
           add_tensor(s, key, &leaf, PLACE_ARRAY) != NULL;
}

static bool begin(struct stack *s, PyObject *object, const char *key, unsigned depth);

static const char *key_text(PyObject *key)
{
    Py_ssize_t len = 0;
    const char *text = PyUnicode_CheckExact(key) ? PyUnicode_AsUTF8AndSize(key, &len) : NULL;

    return text && len <= DL_BOUND_NAME_BYTES && strlen(text) == (size_t)len ? text : NULL;
}

static bool begin_dict(struct stack *s, PyObject *dict, const char *key, unsigned depth)
{
    _cleanup_py_ PyObject *items = PyDict_Items(dict);
    Py_ssize_t n = items ? PyList_Size(items) : -1;

    if (n < 0 || n > DL_BOUND_TREE_NODES ||
        !added(s, tree_add(&s->tree, TREE_DICT, key, (uint32_t)n), PLACE_DICT))
        return false;
    uint32_t at = s->tree.count - 1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_GetItem(items, i);
        PyObject *name = PyTuple_GetItem(item, 0);
        const char *text = key_text(name);
        uint32_t child = s->tree.count;
        if (!text || !begin(s, PyTuple_GetItem(item, 1), text, depth - 1))
            return false;
        Py_INCREF(name);
        s->places[child].key = name;
    }
    s->places[at].end = s->tree.count;
    return true;
}

static bool begin_sequence(struct stack *s, PyObject *object, const char *key, unsigned depth)
{
    _cleanup_py_ PyObject *items = PySequence_Tuple(object);
    Py_ssize_t n = items ? PyTuple_Size(items) : -1;

    if (n < 0 || n > DL_BOUND_TREE_NODES ||
        !added(s, tree_add(&s->tree, TREE_LIST, key, (uint32_t)n), PLACE_SEQUENCE))
        return false;
    uint32_t at = s->tree.count - 1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(items, i);
        bool text = PyUnicode_CheckExact(item) || PyBytes_CheckExact(item);
        if (!(text ? begin_texts(s, item) : begin(s, item, NULL, depth - 1)))
            return false;
    }
    s->places[at].end = s->tree.count;
    return true;
}

/* Adds the nodes of `object`. False: not plain, or an exception. */
static bool begin(struct stack *s, PyObject *object, const char *key, unsigned depth)
{
    if (depth == 0)
        return false;
    if (is_tensor(object))
        return begin_tensor(s, key, object);
    if (is_array(object))
        return begin_array(s, key, object);
    if (PyFloat_CheckExact(object))
        return begin_number(s, key, DL_DTYPE_FLOAT64, PLACE_FLOAT, object);
    if (PyLong_CheckExact(object))
        return begin_number(s, key, DL_DTYPE_INT64, PLACE_INT, object);
    if (PyBool_Check(object))
        return begin_number(s, key, DL_DTYPE_BOOL, PLACE_BOOL, object);
    if (PyUnicode_CheckExact(object) || PyBytes_CheckExact(object))
        return begin_text(s, key, object);
    if (PyDict_CheckExact(object))
        return begin_dict(s, object, key, depth);
    if (PyList_CheckExact(object) || PyTuple_CheckExact(object))
        return begin_sequence(s, object, key, depth);
    uint32_t dtype = array_types_scalar(Py_TYPE(object));
    return dtype != 0 && begin_number(s, key, dtype, PLACE_SCALAR, object);
}

bool stack_template(struct stack *s, PyObject *sample)
{
    return begin(s, sample, NULL, DL_BOUND_TREE_DEPTH);
}
