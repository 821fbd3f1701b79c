#include "daemon/worker/python/leaf.h"

#include "proto/limits.h"

/* ---- arrays --------------------------------------------------------------------------------- */

/* By the letters of the struct module, native byte order; 0: none of ours. */
static uint32_t leaf_dtype_of_format(const char *format, Py_ssize_t itemsize)
{
    static const uint32_t ints[] = {
        [1] = DL_DTYPE_INT8, [2] = DL_DTYPE_INT16, [4] = DL_DTYPE_INT32, [8] = DL_DTYPE_INT64};
    static const uint32_t uints[] = {
        [1] = DL_DTYPE_UINT8, [2] = DL_DTYPE_UINT16, [4] = DL_DTYPE_UINT32, [8] = DL_DTYPE_UINT64};

    if (!format)
        return DL_DTYPE_UINT8;
    if (format[0] == 'Z' && format[1] && !format[2])
        return format[1] == 'f' ? DL_DTYPE_COMPLEX64 : format[1] == 'd' ? DL_DTYPE_COMPLEX128 : 0;
    if (!format[0] || format[1])
        return 0;
    switch (format[0]) {
    case '?':
        return DL_DTYPE_BOOL;
    case 'e':
        return DL_DTYPE_FLOAT16;
    case 'f':
        return DL_DTYPE_FLOAT32;
    case 'd':
        return DL_DTYPE_FLOAT64;
    default:
        if (itemsize < 1 || (size_t)itemsize >= ARRAY_SIZE(ints))
            return 0;
        return strchr("bhilq", format[0])   ? ints[itemsize]
               : strchr("BHILQ", format[0]) ? uints[itemsize]
                                            : 0;
    }
}

int leaf_of_array(PyObject *array, Py_buffer *ret, struct leaf *ret_leaf)
{
    if (PyObject_GetBuffer(array, ret, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        /* NumPy cannot describe these types' elements. */
        if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_BufferError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    *ret_leaf = (struct leaf){.dtype = leaf_dtype_of_format(ret->format, ret->itemsize),
                              .ndim = (uint32_t)ret->ndim};
    if (ret_leaf->dtype == 0 || ret->ndim > TREE_DIMS ||
        (size_t)ret->itemsize != dtype_bytes(ret_leaf->dtype)) {
        PyBuffer_Release(ret);
        return 0;
    }
    for (int d = 0; d < ret->ndim; d++)
        ret_leaf->shape[d] = (uint64_t)ret->shape[d];
    return 1;
}

#define COPY_LINE(type)                                \
    for (Py_ssize_t i = 0; i < n; i++, from += stride) \
    memcpy(to + (size_t)i * sizeof(type), from, sizeof(type))

/* `n` elements that lie `stride` bytes from one another. */
static void leaf_copy_line(char *to, const char *from, Py_ssize_t n, Py_ssize_t stride,
                           Py_ssize_t itemsize)
{
    if (stride == itemsize)
        memcpy(to, from, (size_t)(n * itemsize));
    else if (itemsize == 1)
        COPY_LINE(uint8_t);
    else if (itemsize == 2)
        COPY_LINE(uint16_t);
    else if (itemsize == 4)
        COPY_LINE(uint32_t);
    else if (itemsize == 8)
        COPY_LINE(uint64_t);
    else
        for (Py_ssize_t i = 0; i < n; i++, from += stride)
            memcpy(to + i * itemsize, from, (size_t)itemsize);
}

/* Dimension `d` and all after it; returns the end of what was written. */
static char *leaf_copy_from(char *to, const char *from, const Py_buffer *array, int d)
{
    Py_ssize_t n = array->shape[d];

    if (d == array->ndim - 1) {
        leaf_copy_line(to, from, n, array->strides[d], array->itemsize);
        return to + n * array->itemsize;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        to = leaf_copy_from(to, from + i * array->strides[d], array, d + 1);
    return to;
}

void leaf_copy_array(void *dst, const Py_buffer *array)
{
    if (array->len == 0)
        return;
    if (array->ndim == 0 || PyBuffer_IsContiguous(array, 'C'))
        memcpy(dst, array->buf, (size_t)array->len);
    else
        leaf_copy_from(dst, array->buf, array, 0);
}

static int leaf_refuse_changed(void)
{
    PyErr_SetString(PyExc_RuntimeError, "a tensor changed while its batch was made");
    return -1;
}

int leaf_write_array(void *dst, PyObject *array, const struct leaf *leaf)
{
    struct leaf now;
    Py_buffer buffer;

    int r = leaf_of_array(array, &buffer, &now);
    if (r <= 0)
        return r < 0 ? -1 : leaf_refuse_changed();
    bool same = memcmp(&now, leaf, sizeof now) == 0;
    if (same)
        leaf_copy_array(dst, &buffer);
    PyBuffer_Release(&buffer);
    return same ? 0 : leaf_refuse_changed();
}

/* ---- tensors -------------------------------------------------------------------------------- */

static int leaf_read_shape(PyObject *tensor, struct leaf *ret)
{
    _cleanup_py_ PyObject *shape = PyObject_GetAttrString(tensor, "shape");
    Py_ssize_t ndim = shape ? PyTuple_Size(shape) : -1;

    if (ndim < 0)
        return -1;
    if (ndim > TREE_DIMS)
        return 0;
    ret->ndim = (uint32_t)ndim;
    for (Py_ssize_t d = 0; d < ndim; d++) {
        ret->shape[d] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(shape, d));
        if (PyErr_Occurred())
            return -1;
    }
    return 1;
}

/* 1 or 0; -1. */
static int leaf_is_true(PyObject *object, const char *attribute)
{
    _cleanup_py_ PyObject *value = PyObject_GetAttrString(object, attribute);

    return value ? PyObject_IsTrue(value) : -1;
}

static int leaf_calls_true(PyObject *object, const char *method)
{
    _cleanup_py_ PyObject *value = PyObject_CallMethod(object, method, NULL);

    return value ? PyObject_IsTrue(value) : -1;
}

/* A nested tensor has no shape to read, and is no leaf: 0. The exception stays for any other: -1.
 */
static int leaf_unless_nested(PyObject *tensor)
{
    PyObject *kind, *value, *trace;

    PyErr_Fetch(&kind, &value, &trace);
    if (leaf_is_true(tensor, "is_nested") > 0) {
        Py_XDECREF(kind);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        return 0;
    }
    PyErr_Restore(kind, value, trace);
    return -1;
}

int leaf_of_tensor(PyObject *tensor, struct leaf *ret)
{
    _cleanup_py_ PyObject *dtype = PyObject_GetAttrString(tensor, "dtype");
    _cleanup_py_ PyObject *layout = dtype ? PyObject_GetAttrString(tensor, "layout") : NULL;

    if (!layout)
        return -1;
    *ret = (struct leaf){.dtype = array_types_torch_dtype(dtype)};
    if (ret->dtype == 0 || layout != array_types.strided)
        return 0;
    int here = leaf_is_true(tensor, "is_cpu");
    if (here <= 0)
        return here;
    int graph = leaf_is_true(tensor, "requires_grad");
    if (graph != 0)
        return graph < 0 ? -1 : 0;
    int r = leaf_read_shape(tensor, ret);
    return r < 0 ? leaf_unless_nested(tensor) : r;
}

int leaf_in_order(PyObject *tensor, const struct leaf *leaf)
{
    _cleanup_py_ PyObject *strides = PyObject_CallMethod(tensor, "stride", NULL);
    uint64_t step = 1;

    if (!strides)
        return -1;
    for (uint32_t d = leaf->ndim; d-- > 0; step *= max_u64(leaf->shape[d], 1)) {
        PyObject *stride = PyTuple_GetItem(strides, d);
        uint64_t found = stride ? PyLong_AsUnsignedLongLong(stride) : 0;
        if (PyErr_Occurred())
            return -1;
        if (found != step)
            return 0;
    }
    return 1;
}

int leaf_address(PyObject *tensor, const void **ret)
{
    _cleanup_py_ PyObject *address = PyObject_CallMethod(tensor, "data_ptr", NULL);

    *ret = address ? PyLong_AsVoidPtr(address) : NULL;
    return PyErr_Occurred() ? -1 : 0;
}

int leaf_of(PyObject *object, struct leaf *ret)
{
    Py_buffer array;

    if (array_types_is_tensor(object))
        return leaf_of_tensor(object, ret);
    int r = leaf_of_array(object, &array, ret);
    if (r > 0)
        PyBuffer_Release(&array);
    return r;
}

static PyObject *leaf_shape_tuple(const struct leaf *leaf, uint64_t rows)
{
    uint32_t first = rows ? 1 : 0;
    PyObject *shape = PyTuple_New(leaf->ndim + first);

    for (uint32_t d = 0; shape && d < leaf->ndim + first; d++) {
        PyObject *size = PyLong_FromUnsignedLongLong(d < first ? rows : leaf->shape[d - first]);
        if (!size || PyTuple_SetItem(shape, d, size) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

PyObject *leaf_tensor_over(void *dst, const struct leaf *leaf, uint64_t rows)
{
    uint64_t bytes;

    if (!tensor_bytes(leaf->dtype, leaf->ndim, leaf->shape, &bytes) ||
        (rows && mul_overflows(bytes, rows, &bytes)) || bytes > PY_SSIZE_T_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a tensor of more bytes than a process can have");
        return NULL;
    }
    _cleanup_py_ PyObject *memory = PyMemoryView_FromMemory(dst, (Py_ssize_t)bytes, PyBUF_WRITE);
    _cleanup_py_ PyObject *args = memory ? PyTuple_Pack(1, memory) : NULL;
    _cleanup_py_ PyObject *names = args ? PyDict_New() : NULL;
    if (!names ||
        PyDict_SetItem(names, array_types.dtype_name, array_types.dtypes[leaf->dtype]) < 0)
        return NULL;
    _cleanup_py_ PyObject *flat = PyObject_Call(array_types.frombuffer, args, names);
    _cleanup_py_ PyObject *shape = flat ? leaf_shape_tuple(leaf, rows) : NULL;
    return shape ? PyObject_CallMethod(flat, "view", "(O)", shape) : NULL;
}

int leaf_plain_bytes(PyObject *tensor, const void **ret)
{
    int in_order = leaf_calls_true(tensor, "is_contiguous");
    int changed = in_order > 0 ? leaf_calls_true(tensor, "is_conj") : 0;

    if (in_order > 0 && changed == 0)
        changed = leaf_calls_true(tensor, "is_neg");
    if (in_order < 0 || changed < 0)
        return -1;
    if (!in_order || changed)
        return 0;
    return leaf_address(tensor, ret) < 0 ? -1 : *ret != NULL;
}

int leaf_write_tensor(void *dst, PyObject *tensor, const struct leaf *leaf)
{
    struct leaf now = {.dtype = leaf->dtype};
    const void *bytes = NULL;
    uint64_t n;

    if (leaf_read_shape(tensor, &now) < 0)
        return -1;
    if (memcmp(&now, leaf, sizeof now) != 0 ||
        !tensor_bytes(leaf->dtype, leaf->ndim, leaf->shape, &n))
        return leaf_refuse_changed();
    if (n == 0)
        return 0;
    int plain = leaf_plain_bytes(tensor, &bytes);
    if (plain < 0)
        return -1;
    if (plain) {
        memcpy(dst, bytes, n);
        return 0;
    }
    _cleanup_py_ PyObject *over = leaf_tensor_over(dst, leaf, 0);
    _cleanup_py_ PyObject *done = over ? PyObject_CallMethod(over, "copy_", "(O)", tensor) : NULL;
    return done ? 0 : -1;
}
