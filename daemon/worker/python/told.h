/*
 * What a spec says, told to Python: for the arguments of a dataset's class, and for programs that
 * show a batch and want to know whose it is.
 */
#ifndef DL_WORKER_TOLD_H
#define DL_WORKER_TOLD_H

#include "daemon/worker/python/py.h"

#include "proto/value.h"

/* As dicts, lists, text and numbers; a new reference. */
PyObject *value_to_python(const struct value *v);

/* Methods of the module: unpack(), read_spec() and sample_names(); see module.c. */
PyObject *told_unpack(PyObject *module, PyObject *data);
PyObject *told_read_spec(PyObject *module, PyObject *args);
PyObject *told_sample_names(PyObject *module, PyObject *args);

#endif
