#include "daemon/worker/python/sample.h"

#include "daemon/worker/python/leaf.h"
#include "daemon/worker/python/tokens.h"

#include <errno.h>

struct python_dataset {
    struct dataset base;
    struct py_dataset source;
    struct python_step *step; /* borrowed */
};

/* ---- a Python object as a sample ------------------------------------------------------------- */

/* These give -1 with an exception; what the sample itself refuses, it keeps (sample_check()). */
static int sample_add(struct sample *to, const char *key, PyObject *object, unsigned depth);

static int sample_add_tensor(struct sample *to, const char *key, PyObject *object)
{
    bool tensor = array_types_is_tensor(object);
    struct leaf leaf;
    Py_buffer array;
    uint64_t bytes;

    int r = tensor ? leaf_of_tensor(object, &leaf) : leaf_of_array(object, &array, &leaf);
    if (r == 0)
        PyErr_Format(PyExc_TypeError,
                     "a %s whose elements a native collate cannot take; use collate.kind python",
                     tensor ? "tensor" : "NumPy array");
    if (r <= 0)
        return -1;
    void *data = NULL;
    if (tensor_bytes(leaf.dtype, leaf.ndim, leaf.shape, &bytes))
        data = sample_alloc(to, bytes);
    r = data ? 0 : -ENOMEM;
    if (data && tensor)
        r = leaf_write_tensor(data, object, &leaf) < 0 ? -1 : 0;
    else if (data)
        leaf_copy_array(data, &array);
    if (!tensor)
        PyBuffer_Release(&array);
    if (r == 0)
        (void)sample_tensor(to, key, leaf.dtype, leaf.ndim, leaf.shape, data);
    return r == -1 ? -1 : 0;
}

static int sample_add_text(struct sample *to, const char *key, PyObject *object)
{
    bool text = PyUnicode_CheckExact(object);
    Py_ssize_t len = 0;
    char *bytes = NULL;
    const char *from = NULL;

    if (text)
        from = PyUnicode_AsUTF8AndSize(object, &len);
    else if (PyBytes_AsStringAndSize(object, &bytes, &len) == 0)
        from = bytes;
    if (!from)
        return -1;
    void *data = sample_alloc(to, (size_t)len);
    if (data)
        memcpy(data, from, (size_t)len);
    (void)sample_text(to, text ? TREE_STRING : TREE_BYTES, key, data, (size_t)len);
    return 0;
}

static int sample_add_dict(struct sample *to, const char *key, PyObject *object, unsigned depth)
{
    _cleanup_py_ PyObject *items = PyDict_Items(object);
    Py_ssize_t n = items ? PyList_Size(items) : -1;

    if (n < 0)
        return -1;
    (void)sample_begin(to, TREE_DICT, key);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_GetItem(items, i);
        PyObject *name = PyTuple_GetItem(item, 0);
        if (!PyUnicode_Check(name)) {
            PyErr_Format(PyExc_TypeError, "a sample has the key %R; keys must be text", name);
            return -1;
        }
        const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
        if (!text || sample_add(to, text, PyTuple_GetItem(item, 1), depth - 1) < 0)
            return -1;
    }
    (void)sample_end(to);
    return 0;
}

static int sample_add_sequence(struct sample *to, const char *key, PyObject *object, unsigned depth)
{
    bool tuple = PyTuple_Check(object);
    _cleanup_py_ PyObject *items = PySequence_Tuple(object);
    Py_ssize_t n = items ? PyTuple_Size(items) : -1;

    if (n < 0)
        return -1;
    (void)sample_begin(to, tuple ? TREE_TUPLE : TREE_LIST, key);
    for (Py_ssize_t i = 0; i < n; i++)
        if (sample_add(to, NULL, PyTuple_GetItem(items, i), depth - 1) < 0)
            return -1;
    (void)sample_end(to);
    return 0;
}

static int sample_add_int(struct sample *to, const char *key, PyObject *object)
{
    long long value = PyLong_AsLongLong(object);

    if (value == -1 && PyErr_Occurred())
        return -1;
    (void)sample_int(to, key, value);
    return 0;
}

/* NumPy's numbers have an array's buffer, without dimensions. */
static int sample_add_number(struct sample *to, const char *key, PyObject *object)
{
    if (PyLong_CheckExact(object))
        return sample_add_int(to, key, object);
    if (array_types_scalar(Py_TYPE(object)))
        return sample_add_tensor(to, key, object);
    if (PyBool_Check(object) || PyFloat_CheckExact(object)) {
        (void)(PyBool_Check(object) ? sample_bool(to, key, object == Py_True)
                                    : sample_float(to, key, PyFloat_AsDouble(object)));
        return 0;
    }
    PyErr_Format(PyExc_TypeError,
                 "a sample contains %R: a native collate takes tensors, arrays, numbers, text, "
                 "and dicts, lists and tuples of them; use collate.kind python",
                 Py_TYPE(object));
    return -1;
}

static int sample_add(struct sample *to, const char *key, PyObject *object, unsigned depth)
{
    if (depth == 0) {
        PyErr_SetString(PyExc_RecursionError, "a sample is nested too deeply; use fewer levels");
        return -1;
    }
    if (array_types_is_tensor(object) || array_types_is_array(object))
        return sample_add_tensor(to, key, object);
    if (PyUnicode_CheckExact(object) || PyBytes_CheckExact(object))
        return sample_add_text(to, key, object);
    if (PyDict_Check(object))
        return sample_add_dict(to, key, object, depth);
    if (PyList_Check(object) || PyTuple_Check(object))
        return sample_add_sequence(to, key, object, depth);
    return sample_add_number(to, key, object);
}

/* ---- the dataset ----------------------------------------------------------------------------- */

/* What made the object may have been the first to import NumPy or torch. */
static int sample_give(struct sample *ret, PyObject *object)
{
    return array_types_refresh() < 0 ? -1 : sample_add(ret, NULL, object, DL_BOUND_TREE_DEPTH + 1);
}

static void sample_use_key(struct py_dataset *source, const struct sample_key *key)
{
    source->seed = key->seed;
    source->epoch = 0;
    source->base = key->base;
}

static int sample_get(struct dataset *base, const struct sample_key *key, uint64_t index,
                      struct sample *ret, struct dl_error *err)
{
    struct python_dataset *ds = container_of(base, struct python_dataset, base);
    _cleanup_py_ PyObject *number = PyLong_FromLongLong((int64_t)index);

    sample_use_key(&ds->source, key);
    _cleanup_py_ PyObject *object = number && python_step_seed(ds->step, &ds->source) == 0
                                        ? py_dataset_get(&ds->source, number, key->epoch)
                                        : NULL;
    return object && sample_give(ret, object) == 0
               ? 0
               : python_step_fail(ds->step, &ds->source, number, err);
}

/* Whichever leaf is asked for: the dataset says how long its samples are. */
static int sample_lengths(struct dataset *base, struct lengths_wanted *w, struct dl_error *err)
{
    struct python_dataset *ds = container_of(base, struct python_dataset, base);
    int r = tokens_known(&ds->source, w->first, w->n, w->ret, &w->bad);

    if (r < 0)
        return python_step_fail(ds->step, &ds->source, NULL, err);
    return r > 0 ? 0 : -ENOTSUP;
}

static int sample_iterate(struct dataset *base, const struct replica_params *params,
                          struct dataset_iter **ret, struct dl_error *err)
{
    struct python_dataset *ds = container_of(base, struct python_dataset, base);
    const struct iterator_open how = {&ds->source, ds->step, sample_give};

    sample_use_key(&ds->source, &params->key);
    return iterator_begin(&how, params, ret, err);
}

static size_t sample_name(struct dataset *base, uint64_t index, char *ret, size_t room)
{
    return py_dataset_name(&container_of(base, struct python_dataset, base)->source, index, ret,
                           room);
}

static void sample_close(struct dataset *base)
{
    struct python_dataset *ds = container_of(base, struct python_dataset, base);

    py_dataset_deinit(&ds->source);
    PyErr_Clear();
    free(ds);
}

static const struct dataset_ops map_ops = {
    .get = sample_get, .lengths = sample_lengths, .name = sample_name, .close = sample_close};
static const struct dataset_ops iterable_ops = {.iterate = sample_iterate, .close = sample_close};

int sample_open_dataset(const struct spec_dataset *spec, const char *place,
                        const struct data_env *env, struct dataset **ret, struct dl_error *err)
{
    struct python_step *step = env->python;
    struct py_dataset_open open = {
        .dataset = spec, .seed = step->seed, .worker = env->worker, .workers = env->workers};
    struct python_dataset *ds = calloc(1, sizeof *ds);

    if (!ds)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    if (py_dataset_open(&open, &ds->source) < 0) {
        free(ds);
        (void)!python_step_fail(step, NULL, NULL, err);
        return dl_error_set(err, step->last.code, place, "%s", report_brief(&step->last));
    }
    ds->step = step;
    ds->base.ops = ds->source.iterable ? &iterable_ops : &map_ops;
    ds->base.length = ds->source.length;
    ds->base.content = py_dataset_content(&ds->source);
    ds->base.saves_state = ds->source.iterable && ds->source.keeper;
    *ret = &ds->base;
    return 0;
}

int sample_fill(struct fetcher *fetcher, struct python_step *step, bool ranks_alike, void *slot,
                uint64_t slot_bytes, uint64_t *ret_used, struct dl_error *err)
{
    struct slot_task task;

    report_deinit(&step->last);
    if (slot_read_task(slot, slot_bytes, &task))
        python_step_begin(step, &task, ranks_alike ? 0 : task.rank, task.step);
    int r = fetcher_fill(fetcher, slot, slot_bytes, ret_used, err);
    if (r < 0 && r != -ENOBUFS && python_step_failed_with(step, err))
        report_put_whole(&step->last, slot, slot_bytes);
    return r;
}
