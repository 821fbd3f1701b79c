/*
 * Python datasets as a worker's engine. Batches are collated by PyTorch's rules, or by the user's
 * function; a spec with another collate has them collated by daemon/data/, as native samples.
 */
#ifndef DL_WORKER_PYTHON_ENGINE_H
#define DL_WORKER_PYTHON_ENGINE_H

#include "daemon/worker/python/rounds.h"
#include "daemon/worker/worker.h"

extern const struct worker_engine python_engine;

struct engine; /* what python_engine.open() makes */

/* Of a source that is there already, for tests and benchmarks. NULL with an exception. */
struct engine *engine_of(PyObject *source, const struct engine_batches *batches);

#endif
