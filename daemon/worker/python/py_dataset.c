#include "daemon/worker/python/py_dataset.h"

#include "daemon/data/base/dataset.h"
#include "daemon/data/files/file_hasher.h"
#include "daemon/worker/forked.h"
#include "daemon/worker/python/stack.h"
#include "daemon/worker/python/told.h"

#include <errno.h>
#include <stdio.h>

PyObject *py_dataset_bootstrap;
struct py_dataset_key py_dataset_key;

/* What the dataset's code has returned, in the process that called it. */
static PyObject *py_dataset_returned(PyObject *result)
{
    forked_end_copy();
    return result;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* An attribute; NULL without an exception where it is None. */
static int py_dataset_attribute(PyObject *object, const char *name, PyObject **ret)
{
    *ret = PyObject_GetAttrString(object, name);
    if (!*ret)
        return -1;
    if (*ret == Py_None)
        Py_CLEAR(*ret);
    return 0;
}

/* Whether its __getitems__ does no more than to call __getitem__: of a sample by itself more is
 * known. */
static bool py_dataset_is_loop(const struct py_dataset *s)
{
    _cleanup_py_ PyObject *loop = PyObject_GetAttrString(s->object, "one_by_one");
    bool is_loop = loop == Py_True;

    PyErr_Clear(); /* of a host whose sources do not say */
    return is_loop;
}

/* As PyTorch does: one that is absent, or false, does not count. */
static int py_dataset_find_getitems(struct py_dataset *s)
{
    s->getitems = PyObject_GetAttrString(s->dataset, "__getitems__");
    int truth = s->getitems ? PyObject_IsTrue(s->getitems) : 0;

    if (truth < 0)
        return -1;
    if (!truth || py_dataset_is_loop(s))
        Py_CLEAR(s->getitems);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    return 0;
}

static int py_dataset_read_length(struct py_dataset *s)
{
    _cleanup_py_ PyObject *length = NULL;

    s->length = UINT64_MAX;
    if (py_dataset_attribute(s->object, "length", &length) < 0)
        return -1;
    if (!length)
        return 0;
    long long n = PyLong_AsLongLong(length);
    if (n == -1 && PyErr_Occurred())
        return -1;
    s->length = n < 0 ? UINT64_MAX : (uint64_t)n;
    return 0;
}

int py_dataset_from(PyObject *object, uint64_t seed, struct py_dataset *ret)
{
    *ret = (struct py_dataset){.seed = seed};
    Py_INCREF(object);
    ret->object = object;
    _cleanup_py_ PyObject *iterable = PyObject_GetAttrString(object, "iterable");
    int truth = iterable ? PyObject_IsTrue(iterable) : -1;
    ret->dataset = truth < 0 ? NULL : PyObject_GetAttrString(object, "dataset");
    if (!ret->dataset || py_dataset_attribute(object, "collate", &ret->collate) < 0 ||
        py_dataset_attribute(object, "convert", &ret->convert) < 0 ||
        py_dataset_attribute(object, "reseed", &ret->reseed) < 0 ||
        py_dataset_read_length(ret) < 0 || (!truth && py_dataset_find_getitems(ret) < 0)) {
        py_dataset_deinit(ret);
        return -1;
    }
    ret->keeper = PyObject_GetAttrString(object, "keeper");
    if (!ret->keeper)
        PyErr_Clear();
    else if (ret->keeper == Py_None)
        Py_CLEAR(ret->keeper);
    ret->iterable = truth;
    return 0;
}

static int py_dataset_read_number(const struct value *args, const char *name, uint64_t *ret)
{
    const struct value *v = args->type == VALUE_MAP ? value_get(args, name) : NULL;

    if (v && v->type == VALUE_INT)
        *ret = (uint64_t)v->integer;
    else if (v && v->type == VALUE_UINT)
        *ret = v->uinteger;
    return 0;
}

int py_dataset_open(const struct py_dataset_open *how, struct py_dataset *ret)
{
    const struct spec_dataset *spec = how->dataset;

    if (!py_dataset_bootstrap) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this process cannot open datasets: serve() set no bootstrap");
        return -1;
    }
    _cleanup_py_ PyObject *args = value_to_python(&spec->config);
    _cleanup_py_ PyObject *object =
        !args ? NULL
              : PyObject_CallFunction(py_dataset_bootstrap, "IIKzOzO", how->worker, how->workers,
                                      (ull)how->seed, spec->object, args, how->collate,
                                      how->has_collate ? Py_True : Py_False);
    if (!object || py_dataset_from(object, how->seed, ret) < 0)
        return -1;
    /* These arguments are the drop-in DataLoader's; a dataset that is made by name has its own. */
    if (!spec->object) {
        py_dataset_read_number(&spec->config, "seed", &ret->seed);
        py_dataset_read_number(&spec->config, "epoch", &ret->epoch);
    }
    return 0;
}

void py_dataset_deinit(struct py_dataset *s)
{
    Py_CLEAR(s->collate);
    Py_CLEAR(s->convert);
    Py_CLEAR(s->reseed);
    Py_CLEAR(s->keeper);
    Py_CLEAR(s->lengths);
    Py_CLEAR(s->getitems);
    Py_CLEAR(s->dataset);
    Py_CLEAR(s->object);
}

static void py_dataset_add_name(struct file_hasher *hasher, PyObject *type, const char *attribute)
{
    _cleanup_py_ PyObject *name = PyObject_GetAttrString(type, attribute);
    Py_ssize_t len = 0;
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, &len) : NULL;

    if (text)
        file_hasher_add(hasher, text, (uint64_t)len);
    else
        hasher->r = -EINVAL;
}

uint64_t py_dataset_content(const struct py_dataset *source)
{
    PyObject *type = (PyObject *)Py_TYPE(source->dataset);
    struct file_hasher hasher;

    file_hasher_begin(&hasher, NULL);
    py_dataset_add_name(&hasher, type, "__module__");
    py_dataset_add_name(&hasher, type, "__qualname__");
    PyErr_Clear();
    return file_hasher_end(&hasher);
}

int py_dataset_seed(const struct py_dataset *s, uint64_t seed, uint64_t epoch, uint32_t rank,
                    uint64_t step)
{
    if (!s->reseed)
        return 0;
    _cleanup_py_ PyObject *base =
        PyLong_FromUnsignedLongLong(dataset_step_seed(seed, epoch, rank, step));
    _cleanup_py_ PyObject *done = base ? PyObject_CallFunctionObjArgs(s->reseed, base, NULL) : NULL;
    return done ? 0 : -1;
}

/* ---- samples -------------------------------------------------------------------------------- */

static void py_dataset_set_key(const struct py_dataset *s, uint64_t epoch, PyObject *key)
{
    int overflow = 1;
    int64_t index = key && PyLong_Check(key) ? PyLong_AsLongLongAndOverflow(key, &overflow) : 0;

    py_dataset_key = (struct py_dataset_key){.set = true,
                                             .has_index = !overflow,
                                             .seed = s->seed,
                                             .epoch = s->epoch + epoch,
                                             .index = (int64_t)((uint64_t)index + s->base)};
}

PyObject *py_dataset_get(const struct py_dataset *s, PyObject *key, uint64_t epoch)
{
    py_dataset_set_key(s, epoch, key);
    PyObject *sample = py_dataset_returned(PyObject_GetItem(s->dataset, key));
    py_dataset_key.set = false;
    return sample;
}

/* What a sampler gives for a key may be no index. */
static bool py_dataset_index(PyObject *key, uint64_t *ret)
{
    bool is_number = key && PyLong_Check(key);

    *ret = is_number ? PyLong_AsUnsignedLongLong(key) : 0;
    if (is_number && PyErr_Occurred())
        is_number = false;
    PyErr_Clear();
    return is_number;
}

static PyObject *py_dataset_get_one_by_one(struct py_dataset *s, PyObject *keys, uint64_t epoch,
                                           PyObject **ret_bad)
{
    Py_ssize_t n = PyList_Size(keys);
    PyObject *samples = n < 0 ? NULL : PyList_New(n);
    uint64_t index;

    slow_watch_begin(&s->watch);
    for (Py_ssize_t i = 0; samples && i < n; i++) {
        PyObject *sample = py_dataset_get(s, PyList_GetItem(keys, i), epoch);
        if (sample && py_dataset_index(PyList_GetItem(keys, i), &index))
            (void)slow_watch_sample(&s->watch, index);
        if (sample)
            stack_sample(sample, i);
        if (!sample) {
            *ret_bad = PyList_GetItem(keys, i);
            Py_XINCREF(*ret_bad);
            Py_CLEAR(samples);
        } else if (PyList_SetItem(samples, i, sample) < 0) {
            Py_CLEAR(samples);
        }
    }
    if (n > 0)
        slow_watch_end(&s->watch, (uint64_t)n);
    return samples;
}

PyObject *py_dataset_get_all(struct py_dataset *s, PyObject *keys, uint64_t epoch,
                             PyObject **ret_bad)
{
    uint64_t first;

    if (!s->getitems)
        return py_dataset_get_one_by_one(s, keys, epoch, ret_bad);
    py_dataset_set_key(s, epoch, NULL);
    slow_watch_begin(&s->watch);
    PyObject *samples = py_dataset_returned(PyObject_CallFunctionObjArgs(s->getitems, keys, NULL));
    py_dataset_key.set = false;
    if (!samples)
        return NULL;
    if (py_dataset_index(PyList_GetItem(keys, 0), &first))
        slow_watch_end_together(&s->watch, first, (uint64_t)PyList_Size(keys));
    PyErr_Clear(); /* of what are no keys at all */
    return samples;
}

size_t py_dataset_name(const struct py_dataset *s, uint64_t index, char *ret, size_t room)
{
    _cleanup_py_ PyObject *name = PyObject_CallMethod(s->object, "name", "K", (ull)index);
    _cleanup_py_ PyObject *bytes =
        name && PyUnicode_Check(name) ? PyUnicode_EncodeFSDefault(name) : NULL;
    const char *text = bytes ? PyBytes_AsString(bytes) : NULL;
    int len = text ? snprintf(ret, room, "%s", text) : 0;

    PyErr_Clear(); /* of an object that says nothing of names */
    return len < 0 ? 0 : (size_t)len;
}

PyObject *py_dataset_iterate(struct py_dataset *s, uint64_t epoch, uint32_t rank, uint32_t world,
                             struct dl_span state)
{
    PyObject *it = state.data
                       ? PyObject_CallMethod(s->object, "iterate", "IIKy#", rank, world, (ull)epoch,
                                             state.data, (Py_ssize_t)state.len)
                       : PyObject_CallMethod(s->object, "iterate", "IIK", rank, world, (ull)epoch);
    forked_end_copy();
    if (it && !PyIter_Check(it)) {
        PyErr_Format(PyExc_TypeError,
                     "iterate() returned an object of %R, which is not an iterator; return iter() "
                     "of it",
                     Py_TYPE(it));
        Py_CLEAR(it);
    }
    return it;
}

int py_dataset_enter(const struct py_dataset *s, PyObject *iterator)
{
    _cleanup_py_ PyObject *done =
        s->keeper ? PyObject_CallMethod(s->keeper, "enter", "O", iterator) : NULL;

    forked_end_copy();
    return s->keeper && !done ? -1 : 0;
}

int py_dataset_put_back(const struct py_dataset *s, struct dl_span state)
{
    _cleanup_py_ PyObject *done =
        PyObject_CallMethod(s->keeper, "put_back", "y#", state.data, (Py_ssize_t)state.len);

    forked_end_copy();
    return done ? 0 : -1;
}

PyObject *py_dataset_state(const struct py_dataset *s, PyObject *iterator)
{
    return py_dataset_returned(PyObject_CallMethod(s->keeper, "take", "O", iterator));
}

PyObject *py_dataset_next(const struct py_dataset *s, PyObject *iterator, uint64_t epoch)
{
    py_dataset_set_key(s, epoch, NULL);
    PyObject *sample = py_dataset_returned(PyIter_Next(iterator));
    py_dataset_key.set = false;
    return sample;
}

/* ---- what may be read for it ---------------------------------------------------------------- */

/*
 * A str that names a directory or a zip file. Not the root directory, nor "", which is the same for
 * a daemon's hosts: that would allow everything.
 */
static void py_dataset_allow_text(struct sandbox_files *files, PyObject *text)
{
    _cleanup_py_ PyObject *bytes = NULL;

    if (!text || !PyUnicode_Check(text))
        return;
    bytes = PyUnicode_EncodeFSDefault(text);
    const char *path = bytes ? PyBytes_AsString(bytes) : NULL;
    if (path && *path && strcmp(path, "/") != 0)
        sandbox_files_allow(files, path);
    PyErr_Clear();
}

void py_dataset_allow(struct sandbox_files *files)
{
    static const char *const prefixes[] = {"prefix", "exec_prefix", "base_prefix",
                                           "base_exec_prefix"};
    PyObject *path = PySys_GetObject("path"); /* borrowed */

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        py_dataset_allow_text(files, PySys_GetObject(prefixes[i]));
    for (Py_ssize_t i = 0; path && PyList_Check(path) && i < PyList_Size(path); i++)
        py_dataset_allow_text(files, PyList_GetItem(path, i));
}
