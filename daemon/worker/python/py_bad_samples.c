#include "daemon/worker/python/py_bad_samples.h"

/* Takes the exception of sample `index`, which joins the list. False: the exception is not one that
 * a batch may continue after, and stays set. */
static bool py_bad_samples_take(const struct py_dataset *source, enum on_error on_error,
                                PyObject *key, uint64_t index, uint64_t position,
                                struct bad_list *list)
{
    struct report report;
    struct dl_error err = {0};

    /* That the process ends, or that memory is short, is not the sample's fault. */
    if (on_error <= ON_ERROR_RAISE || !PyErr_ExceptionMatches(PyExc_Exception) ||
        PyErr_ExceptionMatches(PyExc_MemoryError))
        return false;
    report_take(source->object, key, &report);
    dl_error_set(&err, report.code, "", "%s", report_brief(&report));
    report_deinit(&report);
    PyErr_Clear();
    if (bad_list_add(list, index, position, &err) == 0)
        return true;
    PyErr_NoMemory();
    return false;
}

/* Sets the exception of a batch of which nothing is left. */
static void py_bad_samples_all(const struct bad_list *list)
{
    struct dl_error err;

    bad_nothing_left(list, &err);
    PyErr_SetString(PyExc_RuntimeError, err.message);
}

/* Whether there is such a sample, as far as is known. Else the index is at fault, and not the
 * sample. */
static bool py_bad_samples_exists(const struct py_dataset *source, int64_t index)
{
    uint64_t before = index < 0 ? -(uint64_t)index - 1 : (uint64_t)index;

    return source->length == UINT64_MAX || before < source->length;
}

static int64_t py_bad_samples_next(const struct py_dataset *source, int64_t index)
{
    return source->length != UINT64_MAX && index + 1 == (int64_t)source->length ? 0 : index + 1;
}

/* Appends the sample of `index`, or its substitute. 1; 0: it is skipped; -1 with an exception. */
static int py_bad_samples_one(const struct py_dataset *source, enum on_error on_error,
                              int64_t index, uint64_t position, uint64_t epoch, struct made *ret)
{
    for (unsigned further = 0;; further++) {
        _cleanup_py_ PyObject *key = PyLong_FromLongLong(index);
        _cleanup_py_ PyObject *sample = key ? py_dataset_get(source, key, epoch) : NULL;
        if (sample) {
            ret->numbers[ret->samples++] = (uint64_t)index;
            return PyList_Append(ret->object, sample) < 0 ? -1 : 1;
        }
        if (!key || !py_bad_samples_exists(source, index) ||
            !py_bad_samples_take(source, on_error, key, (uint64_t)index, position, &ret->bad))
            return -1;
        if (on_error == ON_ERROR_SKIP)
            return 0;
        if (further == BAD_FURTHER) {
            py_bad_samples_all(&ret->bad);
            return -1;
        }
        index = py_bad_samples_next(source, index);
    }
}

int py_bad_samples_collect(const struct py_dataset *source, enum on_error on_error, PyObject *keys,
                           uint64_t epoch, struct made *ret, PyObject **ret_bad)
{
    Py_ssize_t n = PyList_Size(keys);

    ret->samples = 0;
    ret->object = PyList_New(0);
    ret->numbers = malloc((size_t)(n > 0 ? n : 1) * sizeof *ret->numbers);
    if (!ret->object || !ret->numbers) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *key = PyList_GetItem(keys, i);
        int64_t index = PyLong_AsLongLong(key);
        if (py_bad_samples_one(source, on_error, index, (uint64_t)i, epoch, ret) < 0) {
            Py_INCREF(key);
            *ret_bad = key;
            return -1;
        }
    }
    if (ret->samples > 0)
        return 1;
    py_bad_samples_all(&ret->bad);
    return -1;
}
