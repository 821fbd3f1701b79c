/*
 * Python datasets as a worker's engine. Batches are collated by PyTorch's rules, or by the user's
 * function; a spec with another collate has them collated by daemon/data/, as native samples.
 */
#ifndef DL_WORKER_PYTHON_ENGINE_H
#define DL_WORKER_PYTHON_ENGINE_H

#include "daemon/worker/python/origin.h"
#include "daemon/worker/worker.h"

extern const struct worker_engine python_engine;

struct engine; /* what python_engine.open() makes */

/* How batches are made of a source that is there already, for tests and benchmarks. */
struct engine_batches {
    uint64_t size; /* 0: not batched */
    uint64_t seed;
    uint32_t worker;
    uint32_t workers;
    enum shard_mode shard;
    bool drop_last;
    bool even;
    enum on_error on_error;
    uint64_t tokens;       /* of a batch; 0: size counts */
    const char *length_of; /* as dl_spec.batch.length_of; copied */
};
/* NULL with an exception. */
struct engine *engine_of(PyObject *source, const struct engine_batches *batches);

#endif
