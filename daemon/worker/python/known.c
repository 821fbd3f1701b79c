#include "daemon/worker/python/known.h"

struct known known;

static int look_up_numpy(PyObject *numpy)
{
    static const struct {
        const char *name;
        uint32_t dtype;
    } scalars[KNOWN_SCALARS] = {
        {"bool_", DL_DTYPE_BOOL},     {"uint8", DL_DTYPE_UINT8},     {"int8", DL_DTYPE_INT8},
        {"int16", DL_DTYPE_INT16},    {"int32", DL_DTYPE_INT32},     {"int64", DL_DTYPE_INT64},
        {"longlong", DL_DTYPE_INT64}, {"float32", DL_DTYPE_FLOAT32}, {"float64", DL_DTYPE_FLOAT64},
    };

    for (size_t i = 0; i < KNOWN_SCALARS; i++) {
        Py_XDECREF(known.scalars[i].type);
        known.scalars[i].dtype = scalars[i].dtype;
        known.scalars[i].type = PyObject_GetAttrString(numpy, scalars[i].name);
        if (!known.scalars[i].type)
            return -1;
    }
    Py_XDECREF(known.memmap);
    known.memmap = PyObject_GetAttrString(numpy, "memmap");
    if (!known.memmap)
        return -1;
    known.ndarray = PyObject_GetAttrString(numpy, "ndarray");
    return known.ndarray ? 0 : -1;
}

static int look_up_dtypes(PyObject *torch)
{
    for (uint32_t d = 1; d < KNOWN_DTYPES; d++) {
        Py_XDECREF(known.dtypes[d]);
        known.dtypes[d] = PyObject_GetAttrString(torch, dtype_name(d));
        /* torch 1.13 has no uint16, uint32, uint64. */
        if (!known.dtypes[d] && !PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
    }
    return 0;
}

static int look_up_torch(PyObject *torch)
{
    if (look_up_dtypes(torch) < 0)
        return -1;
    Py_XDECREF(known.stack);
    Py_XDECREF(known.frombuffer);
    Py_XDECREF(known.strided);
    known.stack = PyObject_GetAttrString(torch, "stack");
    known.frombuffer = PyObject_GetAttrString(torch, "frombuffer");
    known.strided = PyObject_GetAttrString(torch, "strided");
    if (!known.stack || !known.frombuffer || !known.strided)
        return -1;
    known.tensor = PyObject_GetAttrString(torch, "Tensor");
    return known.tensor ? 0 : -1;
}

static int look_up(const char *name, int (*found)(PyObject *module))
{
    _cleanup_py_ PyObject *key = PyUnicode_FromString(name);
    _cleanup_py_ PyObject *module = key ? PyImport_GetModule(key) : NULL;

    if (!module)
        return PyErr_Occurred() ? -1 : 0;
    return found(module);
}

static int make_names(void)
{
    known.out_name = PyUnicode_InternFromString("out");
    known.dtype_name = PyUnicode_InternFromString("dtype");
    known.zero = PyLong_FromLong(0);
    return known.out_name && known.dtype_name && known.zero ? 0 : -1;
}

int known_refresh(void)
{
    if (!known.zero && make_names() < 0)
        return -1;
    if (!known.ndarray && look_up("numpy", look_up_numpy) < 0)
        return -1;
    if (!known.tensor && look_up("torch", look_up_torch) < 0)
        return -1;
    return 0;
}

uint32_t known_torch_dtype(const PyObject *dtype)
{
    for (uint32_t d = 1; d < KNOWN_DTYPES; d++)
        if (known.dtypes[d] == dtype)
            return d;
    return 0;
}

uint32_t known_scalar(const PyTypeObject *type)
{
    for (size_t i = 0; known.ndarray && i < KNOWN_SCALARS; i++)
        if (known.scalars[i].type == (const PyObject *)type)
            return known.scalars[i].dtype;
    return 0;
}
