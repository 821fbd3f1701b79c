#include "daemon/worker/python/stack_private.h"

enum { STACK_PICKLE = 5 /* its protocol */ };

struct stack *stack_new(void)
{
    return calloc(1, sizeof(struct stack));
}

static void stack_clear(struct stack *s)
{
    for (uint32_t i = 0; i < s->tree.count; i++) {
        struct place *place = &s->places[i];
        Py_CLEAR(place->key);
        Py_CLEAR(place->column);
    }
    tree_clear(&s->tree);
}

struct stack *stack_free(struct stack *s)
{
    if (!s)
        return NULL;
    stack_end_offer(s);
    stack_clear(s);
    tree_deinit(&s->tree);
    free(s->places);
    free(s);
    return NULL;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* It refuses to share memory with these. */
static bool stack_has_negative_stride(const Py_buffer *array)
{
    for (int d = 0; d < array->ndim; d++)
        if (array->strides[d] < 0)
            return true;
    return false;
}

static bool stack_put_array(const struct stack *s, const struct place *place, PyObject *object,
                            Py_ssize_t i)
{
    struct leaf leaf;
    Py_buffer row;

    if (!array_types_is_array(object) || leaf_of_array(object, &row, &leaf) != 1)
        return false;
    bool same = memcmp(&leaf, &place->leaf, sizeof leaf) == 0 &&
                (!array_types.tensor || !stack_has_negative_stride(&row));
    if (same && s->copies)
        leaf_copy_array(place->to + (uint64_t)i * place->row_bytes, &row);
    PyBuffer_Release(&row);
    return same;
}

static bool stack_put_bits(const struct stack *s, const struct place *place, const void *bits,
                           Py_ssize_t i)
{
    if (s->copies)
        memcpy(place->to + (uint64_t)i * place->row_bytes, bits, place->row_bytes);
    return true;
}

static bool stack_put_int(const struct stack *s, const struct place *place, PyObject *object,
                          Py_ssize_t i)
{
    int overflow = 0;
    int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);

    /* Little-endian machine: a narrow type's bytes come first. */
    return !overflow && stack_put_bits(s, place, &value, i);
}

static bool stack_put_float(const struct stack *s, const struct place *place, PyObject *object,
                            Py_ssize_t i)
{
    double value = PyFloat_AsDouble(object);
    float narrow = (float)value;

    if (value == -1.0 && PyErr_Occurred())
        return false;
    return stack_put_bits(s, place,
                          place->row_bytes == sizeof narrow ? (void *)&narrow : (void *)&value, i);
}

static bool stack_put_bool(const struct stack *s, const struct place *place, PyObject *object,
                           Py_ssize_t i)
{
    int truth = PyObject_IsTrue(object);
    uint8_t value = truth > 0;

    return truth >= 0 && stack_put_bits(s, place, &value, i);
}

static bool stack_put_scalar(const struct stack *s, const struct place *place, PyObject *object,
                             Py_ssize_t i)
{
    if (place->leaf.dtype == DL_DTYPE_FLOAT32 || place->leaf.dtype == DL_DTYPE_FLOAT64)
        return stack_put_float(s, place, object, i);
    if (place->leaf.dtype == DL_DTYPE_BOOL)
        return stack_put_bool(s, place, object, i);
    _cleanup_py_ PyObject *value = PyNumber_Index(object);
    return value && stack_put_int(s, place, value, i);
}

static bool stack_keep_row(const struct place *place, PyObject *object, Py_ssize_t i)
{
    Py_INCREF(object);
    return PyList_SetItem(place->column, i, object) == 0;
}

static bool stack_put(const struct stack *s, uint32_t at, PyObject *object, Py_ssize_t i);

/* Looking a key up may run code of other keys' classes: the value is held while it is read. */
static bool stack_put_dict(const struct stack *s, uint32_t at, PyObject *dict, Py_ssize_t i)
{
    bool good = PyDict_CheckExact(dict);

    for (uint32_t child = at + 1; good && child < s->places[at].end; child = s->places[child].end) {
        PyObject *value = PyDict_GetItemWithError(dict, s->places[child].key);
        Py_XINCREF(value);
        good = value && stack_put(s, child, value, i);
        Py_XDECREF(value);
    }
    return good;
}

static bool stack_put_sequence(const struct stack *s, uint32_t at, PyObject *object, Py_ssize_t i)
{
    bool list = PyList_CheckExact(object);
    bool good = list || PyTuple_CheckExact(object);
    Py_ssize_t n = s->tree.nodes[at].children;
    uint32_t child = at + 1;

    good = good && (list ? PyList_Size(object) : PyTuple_Size(object)) == n;
    for (Py_ssize_t c = 0; good && c < n; c++, child = s->places[child].end) {
        PyObject *item = list ? PyList_GetItem(object, c) : PyTuple_GetItem(object, c);
        Py_XINCREF(item);
        good = item && stack_put(s, child, item, i);
        Py_XDECREF(item);
    }
    return good;
}

/* Row `i` of the place and of all below it. False: not plain, or an exception. */
static bool stack_put(const struct stack *s, uint32_t at, PyObject *object, Py_ssize_t i)
{
    const struct place *place = &s->places[at];

    switch (place->kind) {
    case PLACE_DICT:
        return stack_put_dict(s, at, object, i);
    case PLACE_SEQUENCE:
        return stack_put_sequence(s, at, object, i);
    case PLACE_ARRAY:
        return stack_put_array(s, place, object, i);
    case PLACE_TENSOR:
        return array_types_is_tensor(object) && stack_keep_row(place, object, i);
    default:
        break;
    }
    if ((PyObject *)Py_TYPE(object) != place->type)
        return false;
    switch (place->kind) {
    case PLACE_FLOAT:
        return stack_put_float(s, place, object, i);
    case PLACE_INT:
        return stack_put_int(s, place, object, i);
    case PLACE_BOOL:
        return stack_put_bool(s, place, object, i);
    case PLACE_SCALAR:
        return stack_put_scalar(s, place, object, i);
    default:
        return stack_keep_row(place, object, i);
    }
}

/* ---- columns -------------------------------------------------------------------------------- */

static const char *stack_row_text(PyObject *column, Py_ssize_t i, Py_ssize_t *ret_len)
{
    PyObject *row = PyList_GetItem(column, i);
    char *bytes = NULL;

    if (PyUnicode_CheckExact(row))
        return PyUnicode_AsUTF8AndSize(row, ret_len);
    return PyBytes_AsStringAndSize(row, &bytes, ret_len) == 0 ? bytes : NULL;
}

/* Behind its object, whose column it is the pickle of. */
static bool stack_measure_pickle(struct place *place, struct tree_node *node)
{
    _cleanup_py_ PyObject *rows = PyList_AsTuple(place[-1].column);
    _cleanup_py_ PyObject *module = rows ? PyImport_ImportModule("pickle") : NULL;

    if (!module)
        return false;
    place->column = PyObject_CallMethod(module, "dumps", "Oi", rows, STACK_PICKLE);
    Py_ssize_t len = place->column ? PyBytes_Size(place->column) : -1;
    node->nbytes = (uint64_t)len;
    return len >= 0;
}

static bool stack_measure_text(const struct stack *s, const struct place *place,
                               struct tree_node *node)
{
    Py_ssize_t len = 0;

    node->nbytes = ((uint64_t)s->n + 1) * sizeof(uint64_t);
    for (Py_ssize_t i = 0; i < s->n; i++) {
        if (!stack_row_text(place->column, i, &len))
            return false; /* no UTF-8 */
        node->nbytes += (uint64_t)len;
    }
    return true;
}

static void stack_write_text(const struct stack *s, const struct place *place, char *to)
{
    uint64_t *ends = (void *)to, at = 0;
    Py_ssize_t len = 0;

    to += ((size_t)s->n + 1) * sizeof at;
    ends[0] = 0;
    for (Py_ssize_t i = 0; i < s->n; i++) {
        const char *text = stack_row_text(place->column, i, &len);
        memcpy(to + at, text, (size_t)len);
        at += (uint64_t)len;
        ends[i + 1] = at;
    }
}

/* torch itself stacks, and says whether the tensors go together. */
static bool stack_write_tensors(const struct stack *s, const struct place *place, char *to)
{
    int filled = stack_offer_is_filled(s, (uint32_t)(place - s->places));

    if (filled != 0)
        return filled > 0;
    _cleanup_py_ PyObject *over = leaf_tensor_over(to, &place->leaf, (uint64_t)s->n);
    _cleanup_py_ PyObject *args = over ? PyTuple_Pack(2, place->column, array_types.zero) : NULL;
    _cleanup_py_ PyObject *names = args ? PyDict_New() : NULL;
    if (!names || PyDict_SetItem(names, array_types.out_name, over) < 0)
        return false;
    _cleanup_py_ PyObject *done = PyObject_Call(array_types.stack, args, names);
    return done != NULL;
}

static bool stack_write_columns(const struct stack *s, char *slot)
{
    for (uint32_t i = 0; i < s->tree.count; i++) {
        const struct place *place = &s->places[i];
        char *to = slot + s->tree.nodes[i].offset;
        if (place->kind == PLACE_TEXT)
            stack_write_text(s, place, to);
        else if (place->kind == PLACE_PICKLE)
            memcpy(to, PyBytes_AsString(place->column), s->tree.nodes[i].nbytes);
        else if (place->kind == PLACE_TENSOR && !stack_write_tensors(s, place, to))
            return false;
    }
    return true;
}

/* ---- a batch -------------------------------------------------------------------------------- */

static bool stack_is_fixed(const struct place *place)
{
    return place->kind >= PLACE_TENSOR && place->kind < PLACE_TEXT;
}

/* Leaves of known length first, then text. */
static bool stack_lay_out_fixed(struct stack *s, struct batch_layout *layout, char *slot)
{
    for (uint32_t i = 0; i < s->tree.count; i++) {
        if (!stack_is_fixed(&s->places[i]))
            continue;
        /* Nothing to copy, nothing to compare: what torch makes of no elements is its business. */
        if (s->tree.nodes[i].nbytes == 0 || !batch_layout_place(layout, &s->tree.nodes[i]))
            return false;
        s->places[i].to = slot + s->tree.nodes[i].offset;
    }
    return true;
}

static bool stack_lay_out_text(struct stack *s, struct batch_layout *layout)
{
    for (uint32_t i = 0; i < s->tree.count; i++) {
        struct place *place = &s->places[i];
        struct tree_node *node = &s->tree.nodes[i];
        if (place->kind != PLACE_TEXT && place->kind != PLACE_PICKLE)
            continue;
        if (!(place->kind == PLACE_TEXT ? stack_measure_text(s, place, node)
                                        : stack_measure_pickle(place, node)) ||
            !batch_layout_place(layout, node))
            return false;
    }
    return true;
}

static bool stack_put_all(const struct stack *s, PyObject *samples)
{
    for (Py_ssize_t i = 0; i < s->n; i++) {
        PyObject *sample = PyList_GetItem(samples, i);
        Py_XINCREF(sample);
        bool good = sample && stack_put(s, 0, sample, i);
        Py_XDECREF(sample);
        if (!good)
            return false;
    }
    return true;
}

static enum stack_result stack_make(struct stack *s, PyObject *samples,
                                    const struct slot_task *task, void *slot, uint64_t slot_bytes,
                                    uint64_t *ret_used)
{
    if (s->n == 0 || !stack_template(s, PyList_GetItem(samples, 0)))
        return STACK_NOT_PLAIN;
    struct batch_layout layout = batch_layout_begin(slot_task_end(task), &s->tree);
    if (!stack_lay_out_fixed(s, &layout, slot) || !stack_offer_fits(s, slot))
        return STACK_NOT_PLAIN;
    s->copies = layout.used <= slot_bytes;
    if (!stack_put_all(s, samples) || !stack_lay_out_text(s, &layout))
        return STACK_NOT_PLAIN;
    *ret_used = layout.used;
    if (layout.used > slot_bytes)
        return STACK_TOO_SMALL;
    if (!stack_write_columns(s, slot))
        return STACK_NOT_PLAIN;
    batch_layout_zero_gaps(&layout, s->tree.nodes, slot);
    tree_encode(&s->tree, (char *)slot + layout.tree_off);
    slot_put_batch(slot, task->samples, &layout);
    stack_offer_learn(s, task);
    return STACK_DONE;
}

enum stack_result stack_batch(struct stack *s, PyObject *samples, const struct slot_task *task,
                              void *slot, uint64_t slot_bytes, uint64_t *ret_used)
{
    s->n = PyList_Size(samples);
    enum stack_result result = stack_make(s, samples, task, slot, slot_bytes, ret_used);
    if (result == STACK_NOT_PLAIN)
        s->offer.leaf.ndim = 0; /* the next batch may be as disorderly */
    stack_clear(s);
    PyErr_Clear();
    return result;
}
