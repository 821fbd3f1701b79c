/*
 * Python datasets for daemon/data/: their samples as native ones, so that its collate functions,
 * concat and subset take them.
 */
#ifndef DL_WORKER_PYTHON_SAMPLE_H
#define DL_WORKER_PYTHON_SAMPLE_H

#include "daemon/worker/python/iterator.h"

#include "daemon/data/fetch.h"

/* data_env.open_python; data_env.python is a struct python_step, which outlives the dataset. */
int sample_open_dataset(const struct spec_dataset *spec, const char *place,
                        const struct data_env *env, struct dataset **ret, struct dl_error *err);

/* fetcher_fill(), which leaves the whole report of a Python exception in the slot, too.
 * `ranks_alike`: the step's generators are seeded as rank 0's, whatever the rank. */
int sample_fill(struct fetcher *fetcher, struct python_step *step, bool ranks_alike, void *slot,
                uint64_t slot_bytes, uint64_t *ret_used, struct dl_error *err);

#endif
