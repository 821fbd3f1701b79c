/*
 * Leaf: a tensor of a batch as it lies in memory, in the forms that other libraries take: the
 * buffer protocol, DLPack, __array_interface__. It is what NumPy's arrays stand on, and what mode 2
 * gives out.
 */
#include "client/python/src/module.h"

#include <stdatomic.h>

enum { DIMS = 8 };

/* What leaves and the tensors that __dlpack__() made of them hold together. */
struct share {
    atomic_uint refs;
    struct DLManagedTensor *managed; /* owned */
};

struct leaf {
    PyObject_HEAD struct share *share; /* counted */
    uint32_t dtype;
    bool writable;
    Py_ssize_t strides[DIMS]; /* in bytes */
    Py_ssize_t nbytes;
};

/* Any thread, with or without the GIL. */
static void py_leaf_share_unref(struct share *share)
{
    /* Release: all reads are done before the memory goes back; acquire: the others' too. */
    if (atomic_fetch_sub_explicit(&share->refs, 1, memory_order_acq_rel) > 1)
        return;
    share->managed->deleter(share->managed);
    free(share);
}

/* By enum dl_type: what the struct module and PEP 3118 call them; NULL: they have no name. */
static const char *const py_formats[DTYPES] = {
    [DL_BOOL] = "?",       [DL_UINT8] = "B",       [DL_INT8] = "b",    [DL_UINT16] = "H",
    [DL_INT16] = "h",      [DL_UINT32] = "I",      [DL_INT32] = "i",   [DL_UINT64] = "Q",
    [DL_INT64] = "q",      [DL_FLOAT16] = "e",     [DL_FLOAT32] = "f", [DL_FLOAT64] = "d",
    [DL_COMPLEX64] = "Zf", [DL_COMPLEX128] = "Zd",
};

/* As __array_interface__ has them. */
static const char *const py_typestrs[DTYPES] = {
    [DL_BOOL] = "|b1",      [DL_UINT8] = "|u1",       [DL_INT8] = "|i1",    [DL_UINT16] = "<u2",
    [DL_INT16] = "<i2",     [DL_UINT32] = "<u4",      [DL_INT32] = "<i4",   [DL_UINT64] = "<u8",
    [DL_INT64] = "<i8",     [DL_FLOAT16] = "<f2",     [DL_FLOAT32] = "<f4", [DL_FLOAT64] = "<f8",
    [DL_COMPLEX64] = "<c8", [DL_COMPLEX128] = "<c16",
};

static const struct DLTensor *py_leaf_tensor_of(const struct leaf *leaf)
{
    return &leaf->share->managed->dl_tensor;
}

PyObject *leaf_new(struct module_state *state, struct DLManagedTensor *managed, uint32_t dtype,
                   bool writable)
{
    struct share *share = malloc(sizeof *share);
    struct leaf *leaf = share ? PyObject_New(struct leaf, state->leaf_type) : NULL;
    const struct DLTensor *t = &managed->dl_tensor;

    if (!leaf) {
        managed->deleter(managed);
        free(share);
        return share ? NULL : PyErr_NoMemory();
    }
    *share = (struct share){.managed = managed};
    atomic_init(&share->refs, 1);
    leaf->share = share;
    leaf->dtype = dtype;
    leaf->writable = writable;
    leaf->nbytes = (Py_ssize_t)dl_type_bytes(dtype);
    for (int32_t i = 0; i < t->ndim; i++) {
        leaf->strides[i] = (Py_ssize_t)(t->strides[i] * t->bits / 8);
        leaf->nbytes = t->shape[i] == 0 ? 0 : leaf->nbytes;
    }
    for (int32_t i = 0; leaf->nbytes > 0 && i < t->ndim; i++)
        leaf->nbytes *= (Py_ssize_t)t->shape[i];
    return (PyObject *)leaf;
}

static void py_leaf_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    py_leaf_share_unref(((struct leaf *)self)->share);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- the buffer protocol ---- */

static int py_leaf_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    struct leaf *leaf = (struct leaf *)self;
    const struct DLTensor *t = py_leaf_tensor_of(leaf);
    const char *format = py_formats[leaf->dtype];

    view->obj = NULL;
    if ((flags & PyBUF_WRITABLE) && !leaf->writable) {
        PyErr_SetString(PyExc_BufferError, "the tensor is read-only");
        return -1;
    }
    if ((flags & PyBUF_FORMAT) && !format) {
        PyErr_Format(PyExc_BufferError, "%s has no format in the buffer protocol",
                     dl_type_name(leaf->dtype));
        return -1;
    }
    *view = (Py_buffer){
        .buf = t->data,
        .obj = Py_NewRef(self),
        .len = leaf->nbytes,
        .itemsize = flags & PyBUF_ND ? t->bits / 8 : 1,
        .readonly = !leaf->writable,
        .ndim = flags & PyBUF_ND ? t->ndim : 1,
        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format : NULL,
        .shape = flags & PyBUF_ND ? (Py_ssize_t *)t->shape : NULL,
        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? leaf->strides : NULL,
    };
    return 0;
}

/* ---- DLPack ---- */

static void py_leaf_capsule_free(PyObject *capsule)
{
    struct DLManagedTensor *managed;

    /* A consumer that has taken the tensor has renamed the capsule. */
    if (!PyCapsule_IsValid(capsule, "dltensor"))
        return;
    managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (managed->deleter)
        managed->deleter(managed);
}

PyObject *capsule_new(struct DLManagedTensor *managed)
{
    PyObject *capsule = PyCapsule_New(managed, "dltensor", py_leaf_capsule_free);

    if (!capsule)
        managed->deleter(managed);
    return capsule;
}

static void py_leaf_delete_shared(struct DLManagedTensor *managed)
{
    py_leaf_share_unref(managed->manager_ctx);
    free(managed);
}

PyDoc_STRVAR(dlpack_doc,
             "__dlpack__($self, /, *args, **kwargs)\n--\n\n"
             "The tensor as a DLPack capsule (v0.8), of the CPU. Arguments are ignored.");

static PyObject *py_leaf_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct share *share = ((struct leaf *)self)->share;
    struct DLManagedTensor *managed = malloc(sizeof *managed);

    if (!managed)
        return PyErr_NoMemory();
    *managed = (struct DLManagedTensor){.dl_tensor = share->managed->dl_tensor,
                                        .manager_ctx = share,
                                        .deleter = py_leaf_delete_shared};
    /* Relaxed: the leaf holds a reference already. */
    atomic_fetch_add_explicit(&share->refs, 1, memory_order_relaxed);
    return capsule_new(managed);
}

PyDoc_STRVAR(dlpack_device_doc, "__dlpack_device__($self, /)\n--\n\n(1, 0): the CPU.");

static PyObject *py_leaf_dlpack_device(PyObject *self, PyObject *none)
{
    return Py_BuildValue("ii", DLPACK_CPU, 0);
}

/* ---- attributes ---- */

static PyObject *py_leaf_shape(PyObject *self, void *closure)
{
    const struct DLTensor *t = py_leaf_tensor_of((struct leaf *)self);
    PyObject *shape = PyTuple_New(t->ndim);

    for (int32_t i = 0; shape && i < t->ndim; i++) {
        PyObject *n = PyLong_FromLongLong(t->shape[i]);

        if (!n || PyTuple_SetItem(shape, i, n) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *py_leaf_dtype(PyObject *self, void *closure)
{
    return PyUnicode_FromString(dl_type_name(((struct leaf *)self)->dtype));
}

static PyObject *py_leaf_nbytes(PyObject *self, void *closure)
{
    return PyLong_FromSsize_t(((struct leaf *)self)->nbytes);
}

static PyObject *py_leaf_writable(PyObject *self, void *closure)
{
    return PyBool_FromLong(((struct leaf *)self)->writable);
}

static PyObject *py_leaf_array_interface(PyObject *self, void *closure)
{
    const struct leaf *leaf = (struct leaf *)self;
    PyObject *shape;

    if (!py_typestrs[leaf->dtype])
        return PyErr_Format(PyExc_AttributeError, "NumPy has no %s", dl_type_name(leaf->dtype));
    shape = py_leaf_shape(self, NULL);
    if (!shape)
        return NULL;
    return Py_BuildValue("{s:N, s:s, s:(KO), s:i}", "shape", shape, "typestr",
                         py_typestrs[leaf->dtype], "data",
                         (ull)(uintptr_t)py_leaf_tensor_of(leaf)->data,
                         leaf->writable ? Py_False : Py_True, "version", 3);
}

static PyMethodDef leaf_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))py_leaf_dlpack, METH_VARARGS | METH_KEYWORDS,
     dlpack_doc},
    {"__dlpack_device__", py_leaf_dlpack_device, METH_NOARGS, dlpack_device_doc},
    {0},
};

static PyGetSetDef leaf_getset[] = {
    {"shape", py_leaf_shape, NULL, "Elements in each dimension, a tuple.", NULL},
    {"dtype", py_leaf_dtype, NULL, "Name of the element type: \"float32\".", NULL},
    {"nbytes", py_leaf_nbytes, NULL, "Bytes of all elements.", NULL},
    {"writable", py_leaf_writable, NULL, "Whether its memory may be written to.", NULL},
    {"__array_interface__", py_leaf_array_interface, NULL, "NumPy's protocol, version 3.", NULL},
    {0},
};

PyDoc_STRVAR(leaf_doc, "A tensor of a batch, in place: C-contiguous, 64-byte aligned. It holds the "
                       "batch's memory by itself.");

static PyType_Slot leaf_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)leaf_doc},
    {Py_tp_dealloc, py_leaf_dealloc},
    {Py_tp_methods, leaf_methods},
    {Py_tp_getset, leaf_getset},
    {Py_bf_getbuffer, py_leaf_getbuffer},
    {0, NULL},
};

PyType_Spec leaf_spec = {
    .name = "dloaderd._client.Leaf",
    .basicsize = sizeof(struct leaf),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = leaf_slots,
};
