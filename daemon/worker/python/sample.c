#include "daemon/worker/python/sample.h"

#include "daemon/worker/python/leaf.h"
#include "daemon/worker/python/tokens.h"

#include <errno.h>

uint64_t sample_seed;

struct python_dataset {
    struct dataset base;
    struct origin source;
};

struct python_iter {
    struct dataset_iter base;
    struct python_dataset *dataset; /* borrowed */
    PyObject *iterator;             /* owned */
    PyObject *firsts; /* owned list: the first `keep` samples, for a dataset need not give them
                         twice; None for one that could not be had */
    uint64_t epoch;
    uint64_t keep;
};

/* The step that is being made; its generators are seeded before its first sample. */
static struct {
    uint64_t epoch;
    uint64_t step;
    uint32_t rank;
    bool is_seeded;
} current = {.is_seeded = true};

/* The report of the step's last exception; fetcher_fill() takes its brief text only. */
static struct report last;

static int failed(struct origin *source, PyObject *index, struct dl_error *err)
{
    report_deinit(&last);
    report_take(source ? source->object : NULL, index, &last);
    return dl_error_set(err, last.code, "", "%s", report_brief(&last));
}

static int seed(const struct origin *source)
{
    if (current.is_seeded)
        return 0;
    current.is_seeded = true;
    return origin_seed(source, sample_seed, current.epoch, current.rank, current.step);
}

/* ---- a Python object as a sample ------------------------------------------------------------- */

/* These give -1 with an exception; what the sample itself refuses, it keeps (sample_check()). */
static int add(struct sample *to, const char *key, PyObject *object, unsigned depth);

static int add_tensor(struct sample *to, const char *key, PyObject *object)
{
    bool tensor = is_tensor(object);
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

static int add_text(struct sample *to, const char *key, PyObject *object)
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

static int add_dict(struct sample *to, const char *key, PyObject *object, unsigned depth)
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
            PyErr_Format(PyExc_TypeError, "a sample with the key %R: keys are text", name);
            return -1;
        }
        const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
        if (!text || add(to, text, PyTuple_GetItem(item, 1), depth - 1) < 0)
            return -1;
    }
    (void)sample_end(to);
    return 0;
}

static int add_sequence(struct sample *to, const char *key, PyObject *object, unsigned depth)
{
    bool tuple = PyTuple_Check(object);
    _cleanup_py_ PyObject *items = PySequence_Tuple(object);
    Py_ssize_t n = items ? PyTuple_Size(items) : -1;

    if (n < 0)
        return -1;
    (void)sample_begin(to, tuple ? TREE_TUPLE : TREE_LIST, key);
    for (Py_ssize_t i = 0; i < n; i++)
        if (add(to, NULL, PyTuple_GetItem(items, i), depth - 1) < 0)
            return -1;
    (void)sample_end(to);
    return 0;
}

static int add_int(struct sample *to, const char *key, PyObject *object)
{
    long long value = PyLong_AsLongLong(object);

    if (value == -1 && PyErr_Occurred())
        return -1;
    (void)sample_int(to, key, value);
    return 0;
}

/* NumPy's numbers have an array's buffer, without dimensions. */
static int add_number(struct sample *to, const char *key, PyObject *object)
{
    if (PyLong_CheckExact(object))
        return add_int(to, key, object);
    if (known_scalar(Py_TYPE(object)))
        return add_tensor(to, key, object);
    if (PyBool_Check(object) || PyFloat_CheckExact(object)) {
        (void)(PyBool_Check(object) ? sample_bool(to, key, object == Py_True)
                                    : sample_float(to, key, PyFloat_AsDouble(object)));
        return 0;
    }
    PyErr_Format(PyExc_TypeError,
                 "a sample with %R in it: a native collate takes tensors, arrays, numbers, text, "
                 "and dicts, lists and tuples of them; use collate.kind python",
                 Py_TYPE(object));
    return -1;
}

static int add(struct sample *to, const char *key, PyObject *object, unsigned depth)
{
    if (depth == 0) {
        PyErr_SetString(PyExc_RecursionError, "a sample that is nested too deeply");
        return -1;
    }
    if (is_tensor(object) || is_array(object))
        return add_tensor(to, key, object);
    if (PyUnicode_CheckExact(object) || PyBytes_CheckExact(object))
        return add_text(to, key, object);
    if (PyDict_Check(object))
        return add_dict(to, key, object, depth);
    if (PyList_Check(object) || PyTuple_Check(object))
        return add_sequence(to, key, object, depth);
    return add_number(to, key, object);
}

/* ---- the dataset ----------------------------------------------------------------------------- */

/* Takes over `object`, which may be NULL: then an exception is set. What made it may have been the
 * first to import NumPy or torch. */
static int give(struct python_dataset *ds, PyObject *object, PyObject *index, struct sample *ret,
                struct dl_error *err)
{
    int r = object && known_refresh() == 0 ? add(ret, NULL, object, DL_BOUND_TREE_DEPTH + 1) : -1;

    Py_XDECREF(object);
    return r < 0 ? failed(&ds->source, index, err) : 0;
}

static void use_key(struct origin *source, const struct sample_key *key)
{
    source->seed = key->seed;
    source->epoch = 0;
    source->base = key->base;
}

static int python_get(struct dataset *base, const struct sample_key *key, uint64_t index,
                      struct sample *ret, struct dl_error *err)
{
    struct python_dataset *ds = container_of(base, struct python_dataset, base);
    _cleanup_py_ PyObject *number = PyLong_FromLongLong((int64_t)index);

    use_key(&ds->source, key);
    if (!number || seed(&ds->source) < 0)
        return failed(&ds->source, number, err);
    return give(ds, origin_get(&ds->source, number, key->epoch), number, ret, err);
}

/* Whichever leaf is asked for: the dataset says how long its samples are. */
static int python_lengths(struct dataset *base, const char *leaf, uint64_t first, size_t n,
                          uint32_t *ret, uint64_t *ret_bad, struct dl_error *err)
{
    struct python_dataset *ds = container_of(base, struct python_dataset, base);
    int r = tokens_known(&ds->source, first, n, ret, ret_bad);

    if (r < 0)
        return failed(&ds->source, NULL, err);
    return r > 0 ? 0 : -ENOTSUP;
}

/* Keeps what came, if it is one of the first samples. */
static int keep(struct python_iter *it, PyObject *object)
{
    Py_ssize_t n = it->keep > 0 ? PyList_Size(it->firsts) : 0;

    return (uint64_t)n < it->keep ? PyList_Append(it->firsts, object) : 0;
}

static int python_next(struct dataset_iter *base, struct sample *ret, struct dl_error *err)
{
    struct python_iter *it = container_of(base, struct python_iter, base);
    struct origin *source = &it->dataset->source;

    bool enters = !current.is_seeded; /* a pass that is begun in this step is the last one anyway */
    if (seed(source) < 0 || (enters && origin_enter(source, it->iterator) < 0))
        return failed(source, NULL, err);
    PyObject *object = origin_next(source, it->iterator, it->epoch);
    if (!object && !PyErr_Occurred())
        return DATASET_END;
    if (!object) {
        int r = failed(source, NULL, err);
        return keep(it, Py_None) < 0 ? failed(source, NULL, err) : r;
    }
    if (keep(it, object) < 0)
        Py_CLEAR(object);
    return give(it->dataset, object, NULL, ret, err);
}

/* One whose making failed is None, which no sample can be: it fails again. */
static int python_again(struct dataset_iter *base, uint64_t *number, struct sample *ret,
                        struct dl_error *err)
{
    struct python_iter *it = container_of(base, struct python_iter, base);
    PyObject *object = PyList_GetItem(it->firsts, (Py_ssize_t)*number);

    if (object == Py_None)
        return dl_error_set(err, EIO, "",
                            "sample %llu of a worker's share is to be repeated, and could not be "
                            "had before",
                            (unsigned long long)*number);
    Py_XINCREF(object);
    return give(it->dataset, object, NULL, ret, err);
}

static int python_save(struct dataset_iter *base, void *buf, size_t room, size_t *ret_len,
                       enum carried_lost *ret_lost, struct dl_error *err)
{
    struct python_iter *it = container_of(base, struct python_iter, base);
    struct origin *source = &it->dataset->source;
    char *bytes;
    Py_ssize_t len;

    *ret_len = 0;
    if (it->keep > 0)
        return -ENOTSUP;
    _cleanup_py_ PyObject *state = origin_state(source, it->iterator);
    if (!state)
        return failed(source, NULL, err);
    if (PyLong_CheckExact(state))
        *ret_lost = (enum carried_lost)PyLong_AsLong(state);
    if (!PyBytes_Check(state) || PyBytes_AsStringAndSize(state, &bytes, &len) < 0 ||
        (size_t)len > room)
        return *ret_lost ? 0 : -ENOTSUP;
    memcpy(buf, bytes, (size_t)len);
    *ret_len = (size_t)len;
    return 0;
}

static void python_iter_close(struct dataset_iter *base)
{
    struct python_iter *it = container_of(base, struct python_iter, base);

    Py_XDECREF(it->iterator);
    Py_XDECREF(it->firsts);
    PyErr_Clear();
    free(it);
}

static const struct dataset_iter_ops python_iter_ops = {
    .next = python_next,
    .again = python_again,
    .save = python_save,
    .close = python_iter_close,
};

static int python_iterate(struct dataset *base, const struct replica_params *params,
                          struct dataset_iter **ret, struct dl_error *err)
{
    struct python_dataset *ds = container_of(base, struct python_dataset, base);
    struct python_iter *it = calloc(1, sizeof *it);

    if (!it)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    use_key(&ds->source, &params->key);
    *it = (struct python_iter){.base.ops = &python_iter_ops,
                               .dataset = ds,
                               .epoch = params->key.epoch,
                               .keep = params->again};
    it->firsts = it->keep > 0 ? PyList_New(0) : NULL;
    if ((it->firsts || it->keep == 0) && seed(&ds->source) == 0)
        it->iterator =
            origin_iterate(&ds->source, it->epoch, params->rank, params->world, params->state);
    if (!it->iterator) {
        int r = failed(&ds->source, NULL, err);
        python_iter_close(&it->base);
        return r;
    }
    *ret = &it->base;
    return 0;
}

static void python_close(struct dataset *base)
{
    struct python_dataset *ds = container_of(base, struct python_dataset, base);

    origin_deinit(&ds->source);
    PyErr_Clear();
    free(ds);
}

static const struct dataset_ops map_ops = {
    .get = python_get, .lengths = python_lengths, .close = python_close};
static const struct dataset_ops iterable_ops = {.iterate = python_iterate, .close = python_close};

int sample_open_dataset(const struct spec_dataset *spec, const char *place,
                        const struct data_env *env, struct dataset **ret, struct dl_error *err)
{
    struct origin_open open = {
        .dataset = spec, .seed = sample_seed, .worker = env->worker, .workers = env->workers};
    struct python_dataset *ds = calloc(1, sizeof *ds);

    if (!ds)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    if (origin_open(&open, &ds->source) < 0) {
        free(ds);
        int r = failed(NULL, NULL, err);
        return dl_error_set(err, -r, place, "%s", report_brief(&last));
    }
    ds->base.ops = ds->source.iterable ? &iterable_ops : &map_ops;
    ds->base.length = ds->source.length;
    ds->base.content = origin_content(&ds->source);
    ds->base.carries = ds->source.iterable && ds->source.keeper;
    *ret = &ds->base;
    return 0;
}

int sample_fill(struct fetcher *fetcher, bool ranks_alike, void *slot, uint64_t slot_bytes,
                uint64_t *ret_used, struct dl_error *err)
{
    struct slot_task task;

    report_deinit(&last);
    if (slot_read_task(slot, slot_bytes, &task)) {
        current.epoch = task.epoch;
        current.step = task.step;
        current.rank = ranks_alike ? 0 : task.rank;
        current.is_seeded = false;
    }
    int r = fetcher_fill(fetcher, slot, slot_bytes, ret_used, err);
    if (r < 0 && r != -ENOBUFS && last.code)
        report_put_whole(&last, slot, slot_bytes);
    return r;
}
