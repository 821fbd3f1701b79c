/* Who has a tensor besides one object that it is in, as torch and Python count them. */
#ifndef DL_WORKER_HOLDERS_H
#define DL_WORKER_HOLDERS_H

#include "daemon/worker/python/py.h"

/*
 * Whether nobody else can reach the tensor or its memory: no view of it, array over it, weak
 * reference, or memory that torch did not allocate. false where this torch does not say. No
 * exception is left.
 */
bool holders_are_none(PyObject *tensor);

#endif
