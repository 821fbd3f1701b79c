/* Pickles beside which tensors stand by themselves (TREE_OBJECT in proto/tree.h). */
#ifndef DL_WORKER_PICKLE_H
#define DL_WORKER_PICKLE_H

#include "daemon/worker/python/py.h"

/*
 * The pickle of `object`, as bytes; NULL with an exception. Tensors and arrays that a slot can hold
 * are appended to the list `found`, each once, and stand in it as ("t", i) and ("n", i).
 * `layouts`: of tensors that are not in order their memory does. `tensors`: a list of those in it,
 * some of which share memory, and will where it is unpickled; NULL: none do. Runs the pickling code
 * of whatever is in there.
 */
PyObject *pickle_object(PyObject *object, PyObject *found, bool layouts, PyObject *tensors);

#endif
