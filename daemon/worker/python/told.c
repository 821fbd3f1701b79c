/* A spec, and the files of its samples, for programs that show batches: see told.h. */
#include "daemon/worker/python/told.h"

#include "daemon/data/base/dataset.h"
#include "proto/common/url.h"
#include "proto/yaml.h"

static PyObject *told_list(const struct value *v)
{
    PyObject *list = PyList_New(v->count);

    for (uint32_t i = 0; list && i < v->count; i++) {
        PyObject *item = value_to_python(&v->items[i]);
        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *told_map(const struct value *v)
{
    PyObject *map = PyDict_New();

    for (uint32_t i = 0; map && i < v->count; i++) {
        _cleanup_py_ PyObject *item = value_to_python(&v->items[i]);
        if (!item || PyDict_SetItemString(map, v->items[i].key, item) < 0)
            Py_CLEAR(map);
    }
    return map;
}

PyObject *value_to_python(const struct value *v)
{
    switch (v->type) {
    case VALUE_BOOL:
        return PyBool_FromLong(v->boolean);
    case VALUE_INT:
        return PyLong_FromLongLong(v->integer);
    case VALUE_UINT:
        return PyLong_FromUnsignedLongLong(v->uinteger);
    case VALUE_FLOAT:
        return PyFloat_FromDouble(v->number);
    case VALUE_STRING:
        return PyUnicode_FromString(v->string);
    case VALUE_ARRAY:
        return told_list(v);
    case VALUE_MAP:
        return told_map(v);
    case VALUE_NULL:
        break;
    }
    Py_RETURN_NONE;
}

/* ---- a spec --------------------------------------------------------------------------------- */

static PyObject *told_refuse(const struct dl_error *err)
{
    return PyErr_Format(PyExc_ValueError, "%s%s%s", err->path, err->path[0] ? ": " : "",
                        err->message);
}

PyObject *told_read_spec(PyObject *module, PyObject *args)
{
    _cleanup_(value_deinit) struct value value = {0};
    struct dl_error err = {0};
    const char *text;
    Py_ssize_t len;

    (void)module;
    if (!PyArg_ParseTuple(args, "s#:read_spec", &text, &len))
        return NULL;
    if (yaml_parse(text, (size_t)len, "spec", &value, &err) < 0)
        return told_refuse(&err);
    return value_to_python(&value);
}

/* ---- a view ---------------------------------------------------------------------------------- */

PyObject *told_unpack(PyObject *module, PyObject *data)
{
    _cleanup_(value_deinit) struct value value = {0};
    struct dl_error err = {0};
    Py_buffer bytes;

    (void)module;
    if (PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE) < 0)
        return NULL;
    int r = value_unpack(bytes.buf, (size_t)bytes.len, &value, &err);
    PyBuffer_Release(&bytes);
    return r < 0 ? told_refuse(&err) : value_to_python(&value);
}

/* ---- names of samples ----------------------------------------------------------------------- */

/* Whether all of it has names, so that a dataset is not opened for nothing. */
static bool told_has_names(const struct spec_dataset *dataset)
{
    if (dataset->kind == DATASET_IMAGEFOLDER || dataset->kind == DATASET_AUDIOFOLDER ||
        dataset->kind == DATASET_FILES ||
        (dataset->kind == DATASET_TAR && dataset->index > INDEX_OFF))
        return true;
    if (dataset->kind != DATASET_CONCAT && dataset->kind != DATASET_SUBSET &&
        dataset->kind != DATASET_SPLIT)
        return false;
    for (uint32_t i = 0; i < dataset->n_datasets; i++)
        if (!told_has_names(&dataset->datasets[i]))
            return false;
    return true;
}

/* A new reference; the empty text for what has no name. */
static PyObject *told_name(struct dataset *ds, PyObject *index)
{
    char name[DL_BOUND_PATH_BYTES] = "";
    unsigned long long i = PyLong_AsUnsignedLongLong(index);

    if (PyErr_Occurred())
        return NULL;
    if (i < ds->length)
        (void)dataset_name(ds, i, name, sizeof name);
    url_hide_secrets(name);
    return PyUnicode_DecodeFSDefault(name);
}

static PyObject *told_names(struct dataset *ds, PyObject *indices)
{
    Py_ssize_t n = PyList_Size(indices);
    PyObject *names = n < 0 ? NULL : PyList_New(n);

    for (Py_ssize_t i = 0; names && i < n; i++) {
        PyObject *name = told_name(ds, PyList_GetItem(indices, i));
        if (!name || PyList_SetItem(names, i, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

static PyObject *told_open_and_name(const struct dl_spec *spec, PyObject *indices)
{
    const struct data_env env = {0};
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct dl_error err = {0};

    if (!told_has_names(&spec->dataset))
        Py_RETURN_NONE;
    if (dataset_open(&spec->dataset, &env, &ds, &err) < 0)
        return told_refuse(&err);
    return told_names(ds, indices);
}

PyObject *told_sample_names(PyObject *module, PyObject *args)
{
    _cleanup_(value_deinit) struct value value = {0};
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    struct dl_error err = {0};
    const char *text, *base;
    PyObject *indices;
    Py_ssize_t len;

    (void)module;
    if (!PyArg_ParseTuple(args, "s#sO:sample_names", &text, &len, &base, &indices))
        return NULL;
    if (yaml_parse(text, (size_t)len, "spec", &value, &err) < 0 ||
        spec_from_value(&value, base, &spec, &err) < 0)
        return told_refuse(&err);
    return told_open_and_name(&spec, indices);
}
