/*
 * Python's C API as all files of this folder use it: the stable ABI of CPython 3.11.
 *
 * Functions that give an int return 0, or -1 with an exception set, unless they say otherwise.
 * One interpreter, one thread: all of it is called with the GIL held.
 */
#ifndef DL_WORKER_PY_H
#define DL_WORKER_PY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "proto/common/base.h"

static inline void py_decrefp(PyObject **object)
{
    Py_CLEAR(*object);
}

/* An owned reference, released at the end of the scope. */
#define _cleanup_py_ _cleanup_(py_decrefp)

#endif
