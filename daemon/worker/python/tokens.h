/*
 * Lengths in tokens of a Python dataset's samples: what batches of tokens are planned with, and
 * what each sample is held against when its batch is made. dloaderd._tokens has the rules.
 */
#ifndef DL_WORKER_TOKENS_H
#define DL_WORKER_TOKENS_H

#include "daemon/data/base/planned.h"
#include "daemon/worker/python/py_dataset.h"

/*
 * What the dataset's own lengths() says of samples first..first+n-1, if it has it; it is called
 * once. 1; 0: it does not say; -1 with an exception, and *ret_bad = the sample at fault, or
 * UINT64_MAX.
 */
int tokens_known(struct py_dataset *source, uint64_t first, size_t n, uint32_t *ret,
                 uint64_t *ret_bad);

/* The same of any dataset: what it does not say is looked up in each sample. `leaf` as
 * dl_spec.batch.length_of. 0, or -1 with an exception; *ret_bad, owned: the sample at fault. */
int tokens_take(struct py_dataset *source, const char *leaf, uint64_t first, size_t n,
                uint32_t *ret, PyObject **ret_bad);

/*
 * Holds the samples of a task against what is planned of it in its slot, with the memory of
 * `planned`. *samples, owned, becomes a list, in which some are cut. 1, or -1 with an exception and
 * *ret_bad as above.
 */
int tokens_fit(PyObject **samples, const char *leaf, struct planned *planned, void *slot,
               const struct slot_task *task, PyObject **ret_bad);

#endif
