/*
 * Types, element types and functions of NumPy and torch, without linking with either. They are
 * looked up once the dataset has imported them; the worker itself imports neither.
 */
#ifndef DL_WORKER_ARRAY_TYPES_H
#define DL_WORKER_ARRAY_TYPES_H

#include "daemon/worker/python/py.h"

#include "proto/dtype.h"

enum { ARRAY_TYPES_SCALARS = 9, ARRAY_TYPES_DTYPES = DL_DTYPE_COMPLEX128 + 1 };

struct array_types { /* owned references, for the life of the process; NULL: not there */
    PyObject *ndarray;
    PyObject *memmap;
    struct {
        PyObject *type; /* numpy.float32, ... */
        uint32_t dtype;
    } scalars[ARRAY_TYPES_SCALARS]; /* torch makes tensors of the same dtype of these */

    PyObject *tensor; /* torch.Tensor; NULL: torch is not in use */
    PyObject *stack;
    PyObject *frombuffer;
    PyObject *strided;                    /* torch.strided */
    PyObject *dtypes[ARRAY_TYPES_DTYPES]; /* by enum dl_dtype; torch.float32, ... */
    PyObject *out_name, *dtype_name;      /* of keyword arguments */
    PyObject *zero;
};
extern struct array_types array_types;

/* Looks for what has been imported since. -1 with an exception. */
int array_types_refresh(void);

/* The element type of a torch.dtype; 0: none that slots can hold. */
uint32_t array_types_torch_dtype(const PyObject *dtype);

/* The element type of a NumPy scalar's type; 0: none of them. */
uint32_t array_types_scalar(const PyTypeObject *type);

static inline bool array_types_is_tensor(PyObject *object)
{
    return (PyObject *)Py_TYPE(object) == array_types.tensor;
}

static inline bool array_types_is_array(PyObject *object)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    return array_types.ndarray && (type == array_types.ndarray || type == array_types.memmap);
}

#endif
