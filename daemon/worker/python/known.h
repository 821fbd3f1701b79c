/*
 * What is known of NumPy and torch, without linking with either: types, element types, functions.
 * They are looked up once somebody has imported them; the worker itself imports neither.
 */
#ifndef DL_WORKER_KNOWN_H
#define DL_WORKER_KNOWN_H

#include "daemon/worker/python/py.h"

#include "proto/dtype.h"

enum { KNOWN_SCALARS = 9, KNOWN_DTYPES = DL_DTYPE_COMPLEX128 + 1 };

struct known { /* owned references, for the life of the process; NULL: not there */
    PyObject *ndarray;
    PyObject *memmap;
    struct {
        PyObject *type; /* numpy.float32, ... */
        uint32_t dtype;
    } scalars[KNOWN_SCALARS]; /* those that torch makes tensors of with the dtype kept */

    PyObject *tensor; /* torch.Tensor; NULL: torch is not in use */
    PyObject *stack;
    PyObject *frombuffer;
    PyObject *strided;               /* torch.strided */
    PyObject *dtypes[KNOWN_DTYPES];  /* by enum dl_dtype; torch.float32, ... */
    PyObject *out_name, *dtype_name; /* of keyword arguments */
    PyObject *zero;
};
extern struct known known;

/* Looks for what has been imported since. -1 with an exception. */
int known_refresh(void);

/* The element type of a torch.dtype; 0: none that slots can hold. */
uint32_t known_torch_dtype(const PyObject *dtype);

/* The element type of a NumPy scalar's type; 0: none of them. */
uint32_t known_scalar(const PyTypeObject *type);

static inline bool is_tensor(PyObject *object)
{
    return (PyObject *)Py_TYPE(object) == known.tensor;
}

static inline bool is_array(PyObject *object)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    return known.ndarray && (type == known.ndarray || type == known.memmap);
}

#endif
