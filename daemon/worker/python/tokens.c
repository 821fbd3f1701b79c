#include "daemon/worker/python/tokens.h"

#include "daemon/worker/forked.h"

static PyObject *tokens_rules(void)
{
    return PyImport_ImportModule("dloaderd._tokens");
}

/* The sample at fault, for the report; or NULL. The exception that is set stays. */
static PyObject *tokens_name_sample(uint64_t index)
{
    PyObject *type, *value, *trace, *key;

    if (index == UINT64_MAX)
        return NULL;
    PyErr_Fetch(&type, &value, &trace);
    key = PyLong_FromUnsignedLongLong(index);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return key;
}

/* ---- what the dataset says ------------------------------------------------------------------- */

/* Asks it, once: bytes of an int64 each, or None. */
static int tokens_ask(struct py_dataset *source)
{
    if (source->lengths)
        return 0;
    _cleanup_py_ PyObject *module = tokens_rules();
    if (module)
        source->lengths = PyObject_CallMethod(module, "known", "O", source->dataset);
    forked_end_copy();
    return source->lengths ? 0 : -1;
}

static int tokens_read_known(const char *from, uint64_t first, size_t n, uint32_t *ret,
                             uint64_t *ret_bad)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t sample = first + i;
        int64_t length;

        memcpy(&length, from + sample * sizeof length, sizeof length);
        if (length < 1 || length >= UINT32_MAX) {
            *ret_bad = sample;
            PyErr_Format(PyExc_ValueError,
                         "lengths() returns %lld for sample %llu; a sample has 1 to 2**32 - 2 "
                         "tokens",
                         (long long)length, (ull)sample);
            return -1;
        }
        ret[i] = (uint32_t)length;
    }
    return 1;
}

int tokens_known(struct py_dataset *source, uint64_t first, size_t n, uint32_t *ret,
                 uint64_t *ret_bad)
{
    Py_ssize_t bytes = 0;
    char *from = NULL;

    *ret_bad = UINT64_MAX;
    if (tokens_ask(source) < 0)
        return -1;
    if (source->lengths == Py_None)
        return 0;
    if (PyBytes_AsStringAndSize(source->lengths, &from, &bytes) < 0)
        return -1;
    uint64_t there = (uint64_t)bytes / sizeof(int64_t);
    if (first > there || n > there - first) {
        PyErr_Format(PyExc_IndexError,
                     "lengths() returned %llu lengths, but sample %llu is "
                     "needed",
                     (ull)there, (ull)(first + n - 1));
        return -1;
    }
    return tokens_read_known(from, first, n, ret, ret_bad);
}

/* ---- what its samples show ------------------------------------------------------------------- */

static int tokens_take_one(const struct py_dataset *source, PyObject *module, const char *leaf,
                           uint64_t index, uint32_t *ret)
{
    _cleanup_py_ PyObject *key = PyLong_FromUnsignedLongLong(index);
    _cleanup_py_ PyObject *sample = key ? py_dataset_get(source, key, 0) : NULL;
    _cleanup_py_ PyObject *length =
        sample ? PyObject_CallMethod(module, "length", "OOz", sample, key, leaf) : NULL;
    long long n = length ? PyLong_AsLongLong(length) : -1;

    if (!length || (n == -1 && PyErr_Occurred()))
        return -1;
    if (n < 1 || n >= UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "sample %llu has %lld tokens; %s", (ull)index, n,
                     n < 1 ? "leave it out of the dataset"
                           : "the maximum is 2**32 - 2: divide "
                             "it");
        return -1;
    }
    *ret = (uint32_t)n;
    return 0;
}

int tokens_take(struct py_dataset *source, const char *leaf, uint64_t first, size_t n,
                uint32_t *ret, PyObject **ret_bad)
{
    uint64_t bad = UINT64_MAX;
    int r = tokens_known(source, first, n, ret, &bad);

    if (r == 0) {
        _cleanup_py_ PyObject *module = tokens_rules();
        r = module ? 0 : -1;
        for (size_t i = 0; r == 0 && i < n; i++) {
            bad = first + i;
            r = tokens_take_one(source, module, leaf, bad, &ret[i]);
        }
    }
    if (r < 0)
        *ret_bad = tokens_name_sample(bad);
    return r < 0 ? -1 : 0;
}

/* ---- as planned ------------------------------------------------------------------------------ */

static PyObject *tokens_fit_one(PyObject *module, PyObject *sample, const char *leaf,
                                uint64_t index, const struct planned *planned, uint32_t i)
{
    return PyObject_CallMethod(module, "fit", "OKzII", sample, (ull)index, leaf,
                               planned->lengths[i], planned->cut);
}

/* The list of what they become; NULL with an exception, and *ret_bad. */
static PyObject *tokens_fit_all(PyObject *samples, const char *leaf, const struct planned *planned,
                                const struct slot_task *task, uint64_t *ret_bad)
{
    _cleanup_py_ PyObject *module = tokens_rules();
    _cleanup_py_ PyObject *given = module ? PySequence_Tuple(samples) : NULL;

    if (!given)
        return NULL;
    if (PyTuple_Size(given) != (Py_ssize_t)task->samples) {
        PyErr_Format(PyExc_ValueError, "__getitems__ returns %zd samples for %u indices",
                     PyTuple_Size(given), task->samples);
        return NULL;
    }
    PyObject *list = PyList_New((Py_ssize_t)task->samples);
    for (uint32_t i = 0; list && i < task->samples; i++) {
        uint64_t index = __atomic_load_n(&task->indices[i], __ATOMIC_RELAXED);
        PyObject *fitted =
            tokens_fit_one(module, PyTuple_GetItem(given, (Py_ssize_t)i), leaf, index, planned, i);
        if (!fitted)
            *ret_bad = index;
        if (!fitted || PyList_SetItem(list, (Py_ssize_t)i, fitted) < 0)
            Py_CLEAR(list);
    }
    return list;
}

int tokens_fit(PyObject **samples, const char *leaf, struct planned *planned, void *slot,
               const struct slot_task *task, PyObject **ret_bad)
{
    uint64_t bad = UINT64_MAX;
    struct dl_error err;

    if (planned_read(planned, slot, task, &err) < 0) {
        PyErr_SetString(PyExc_RuntimeError, err.message);
        return -1;
    }
    PyObject *fitted = tokens_fit_all(*samples, leaf, planned, task, &bad);
    if (!fitted) {
        *ret_bad = tokens_name_sample(bad);
        return -1;
    }
    Py_DECREF(*samples);
    *samples = fitted;
    return 1;
}
