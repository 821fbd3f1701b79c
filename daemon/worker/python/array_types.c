#include "daemon/worker/python/array_types.h"

struct array_types array_types;

static int array_types_find_numpy(PyObject *numpy)
{
    static const struct {
        const char *name;
        uint32_t dtype;
    } scalars[ARRAY_TYPES_SCALARS] = {
        {"bool_", DL_DTYPE_BOOL},     {"uint8", DL_DTYPE_UINT8},     {"int8", DL_DTYPE_INT8},
        {"int16", DL_DTYPE_INT16},    {"int32", DL_DTYPE_INT32},     {"int64", DL_DTYPE_INT64},
        {"longlong", DL_DTYPE_INT64}, {"float32", DL_DTYPE_FLOAT32}, {"float64", DL_DTYPE_FLOAT64},
    };

    for (size_t i = 0; i < ARRAY_TYPES_SCALARS; i++) {
        Py_XDECREF(array_types.scalars[i].type);
        array_types.scalars[i].dtype = scalars[i].dtype;
        array_types.scalars[i].type = PyObject_GetAttrString(numpy, scalars[i].name);
        if (!array_types.scalars[i].type)
            return -1;
    }
    Py_XDECREF(array_types.memmap);
    array_types.memmap = PyObject_GetAttrString(numpy, "memmap");
    if (!array_types.memmap)
        return -1;
    array_types.ndarray = PyObject_GetAttrString(numpy, "ndarray");
    return array_types.ndarray ? 0 : -1;
}

static int array_types_find_dtypes(PyObject *torch)
{
    for (uint32_t d = 1; d < ARRAY_TYPES_DTYPES; d++) {
        Py_XDECREF(array_types.dtypes[d]);
        array_types.dtypes[d] = PyObject_GetAttrString(torch, dtype_name(d));
        /* torch 1.13 has no uint16, uint32, uint64. */
        if (!array_types.dtypes[d] && !PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
    }
    return 0;
}

static int array_types_find_torch(PyObject *torch)
{
    if (array_types_find_dtypes(torch) < 0)
        return -1;
    Py_XDECREF(array_types.stack);
    Py_XDECREF(array_types.frombuffer);
    Py_XDECREF(array_types.strided);
    array_types.stack = PyObject_GetAttrString(torch, "stack");
    array_types.frombuffer = PyObject_GetAttrString(torch, "frombuffer");
    array_types.strided = PyObject_GetAttrString(torch, "strided");
    if (!array_types.stack || !array_types.frombuffer || !array_types.strided)
        return -1;
    array_types.tensor = PyObject_GetAttrString(torch, "Tensor");
    return array_types.tensor ? 0 : -1;
}

static int array_types_find(const char *name, int (*found)(PyObject *module))
{
    _cleanup_py_ PyObject *key = PyUnicode_FromString(name);
    _cleanup_py_ PyObject *module = key ? PyImport_GetModule(key) : NULL;

    if (!module)
        return PyErr_Occurred() ? -1 : 0;
    return found(module);
}

static int array_types_make_names(void)
{
    array_types.out_name = PyUnicode_InternFromString("out");
    array_types.dtype_name = PyUnicode_InternFromString("dtype");
    array_types.zero = PyLong_FromLong(0);
    return array_types.out_name && array_types.dtype_name && array_types.zero ? 0 : -1;
}

int array_types_refresh(void)
{
    if (!array_types.zero && array_types_make_names() < 0)
        return -1;
    if (!array_types.ndarray && array_types_find("numpy", array_types_find_numpy) < 0)
        return -1;
    if (!array_types.tensor && array_types_find("torch", array_types_find_torch) < 0)
        return -1;
    return 0;
}

uint32_t array_types_torch_dtype(const PyObject *dtype)
{
    for (uint32_t d = 1; d < ARRAY_TYPES_DTYPES; d++)
        if (array_types.dtypes[d] == dtype)
            return d;
    return 0;
}

uint32_t array_types_scalar(const PyTypeObject *type)
{
    for (size_t i = 0; array_types.ndarray && i < ARRAY_TYPES_SCALARS; i++)
        if (array_types.scalars[i].type == (const PyObject *)type)
            return array_types.scalars[i].dtype;
    return 0;
}
