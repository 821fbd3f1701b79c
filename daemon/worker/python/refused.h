/* Bad samples of Python datasets, as daemon/data/bad.h has those of native ones. */
#ifndef DL_WORKER_REFUSED_H
#define DL_WORKER_REFUSED_H

#include "daemon/worker/python/kept.h"
#include "daemon/worker/python/origin.h"

#include "daemon/data/bad.h"

/*
 * Whether the batch goes on without the sample whose exception is set: then it is taken into the
 * list, as `index` (of which `key`, which may be NULL, is the object) at `position`. False: the
 * exception stays.
 */
bool refused_take(const struct origin *source, enum on_error on_error, PyObject *key,
                  uint64_t index, uint64_t position, struct bad_list *list);

/* Sets the exception of a batch of which nothing is left. */
void refused_all(const struct bad_list *list);

/*
 * The samples of a task's keys, which are integers, as far as they can be had, into ret->object.
 * 1, or -1 with an exception and *ret_bad, owned: the key at fault.
 */
int refused_collect(const struct origin *source, enum on_error on_error, PyObject *keys,
                    uint64_t epoch, struct made *ret, PyObject **ret_bad);

#endif
