/* Bad samples of map-style Python datasets, as daemon/data/draft.h has those of native ones. */
#ifndef DL_WORKER_REFUSED_H
#define DL_WORKER_REFUSED_H

#include "daemon/worker/python/kept.h"
#include "daemon/worker/python/origin.h"

#include "daemon/data/draft.h"

/*
 * The samples of a task's keys, which are integers, as far as they can be had, into ret->object.
 * 1, or -1 with an exception and *ret_bad, owned: the key at fault.
 */
int refused_collect(const struct origin *source, enum on_error on_error, PyObject *keys,
                    uint64_t epoch, struct made *ret, PyObject **ret_bad);

#endif
