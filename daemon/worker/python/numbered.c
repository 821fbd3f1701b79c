#include "daemon/worker/python/numbered.h"

#include "daemon/worker/python/worker_env.h"
#include "proto/yaml.h"

#include <errno.h>

struct numbered {
    struct data_env env;     /* the fetcher's */
    struct fetcher *fetcher; /* owned */
    uint64_t *indices;       /* owned; of the batch at hand */
    size_t room;
};

/* ---- opening -------------------------------------------------------------------------------- */

static void numbered_freep(struct numbered **numbered)
{
    *numbered = numbered_free(*numbered);
}

int numbered_open(const struct numbered_files *files, struct numbered **ret, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value value = {0};
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    _cleanup_(numbered_freep) struct numbered *n = calloc(1, sizeof *n);
    int r;

    if (!n)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    n->env = (struct data_env){.guard = worker_env()->guard, .remote = worker_env()->remote};
    if ((r = yaml_parse(files->spec, files->len, "spec", &value, err)) < 0 ||
        (r = spec_from_value(&value, NULL, &spec, err)) < 0 ||
        (r = fetcher_new(&spec, &n->env, &n->fetcher, err)) < 0)
        return r;
    if (fetcher_is_iterable(n->fetcher))
        return dl_error_set(err, EINVAL, "dataset", "its samples have no numbers");
    *ret = steal_ptr(n);
    return 0;
}

struct numbered *numbered_free(struct numbered *n)
{
    if (n) {
        fetcher_free(n->fetcher);
        free(n->indices);
        free(n);
    }
    return NULL;
}

/* For who wants to know whether it could be done. NULL with an exception. */
static struct numbered *numbered_try(PyObject *args)
{
    struct numbered_files files = {0};
    struct numbered *n = NULL;
    struct dl_error err = {0};
    Py_ssize_t len;

    if (!PyArg_ParseTuple(args, "s#", &files.spec, &len))
        return NULL;
    files.len = (size_t)len;
    if (numbered_open(&files, &n, &err) < 0)
        PyErr_Format(PyExc_ValueError, "%s%s%s", err.path, err.path[0] ? ": " : "", err.message);
    return n;
}

PyObject *numbered_open_files(PyObject *module, PyObject *args)
{
    _cleanup_(numbered_freep) struct numbered *n = numbered_try(args);

    (void)module;
    return n ? PyLong_FromUnsignedLongLong(fetcher_length(n->fetcher)) : NULL;
}

PyObject *numbered_file_lengths(PyObject *module, PyObject *args)
{
    _cleanup_(numbered_freep) struct numbered *n = numbered_try(args);
    const struct dataset *ds = n ? fetcher_dataset(n->fetcher) : NULL;
    PyObject *list = ds ? PyList_New((Py_ssize_t)ds->n_sizes) : NULL;

    (void)module;
    for (uint32_t i = 0; list && i < ds->n_sizes; i++) {
        PyObject *size = PyLong_FromUnsignedLongLong(ds->sizes[i]);
        if (!size || PyList_SetItem(list, (Py_ssize_t)i, size) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* ---- a batch --------------------------------------------------------------------------------- */

/* The list's numbers in n->indices. False: not all of them are, or there is no memory. */
static bool numbered_read(struct numbered *n, PyObject *numbers, size_t count)
{
    uint64_t *indices = count > n->room ? realloc(n->indices, count * sizeof *indices) : n->indices;

    if (!indices)
        return false;
    n->indices = indices;
    n->room = max_u64(n->room, count);
    for (size_t i = 0; i < count; i++) {
        PyObject *number = PyList_GetItem(numbers, (Py_ssize_t)i);
        if (!PyLong_CheckExact(number))
            return false;
        indices[i] = PyLong_AsUnsignedLongLong(number);
        if (indices[i] == UINT64_MAX && PyErr_Occurred())
            return false;
    }
    return true;
}

enum numbered_result numbered_batch(struct numbered *n, PyObject *numbers,
                                    const struct slot_task *task, void *slot, uint64_t slot_bytes,
                                    uint64_t *ret_used, struct dl_error *err)
{
    struct slot_task own = *task;

    own.samples = (uint32_t)PyList_Size(numbers);
    if (own.samples == 0 || !numbered_read(n, numbers, own.samples)) {
        PyErr_Clear();
        dl_error_set(err, EINVAL, "dataset", "it did not give numbers of samples");
        return NUMBERED_CANNOT;
    }
    own.indices = n->indices;
    for (size_t i = 0; n->env.remote && i < own.samples; i++)
        if (n->indices[i] < fetcher_length(n->fetcher))
            dataset_expect(fetcher_dataset(n->fetcher), n->indices[i]);
    int r = fetcher_fill_samples(n->fetcher, &own, slot, slot_bytes, ret_used, err);
    return r == 0 ? NUMBERED_DONE : r == -ENOBUFS ? NUMBERED_TOO_SMALL : NUMBERED_CANNOT;
}
