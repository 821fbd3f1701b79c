/* Bad samples of map-style Python datasets, as daemon/data/base/sample_batch.h has those of native
 * ones.
 */
#ifndef DL_WORKER_PY_BAD_SAMPLES_H
#define DL_WORKER_PY_BAD_SAMPLES_H

#include "daemon/worker/python/made.h"
#include "daemon/worker/python/py_dataset.h"

#include "daemon/data/base/sample_batch.h"

/*
 * The samples of a task's keys, which are integers, without the bad ones, into ret->object.
 * 1, or -1 with an exception and *ret_bad, owned: the key at fault.
 */
int py_bad_samples_collect(const struct py_dataset *source, enum on_error on_error, PyObject *keys,
                           uint64_t epoch, struct made *ret, PyObject **ret_bad);

#endif
