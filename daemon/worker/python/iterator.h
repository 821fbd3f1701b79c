/*
 * Iterators over an iterable Python dataset, for replicas (daemon/data/replica.h), and what the
 * datasets of a worker share while it makes a task.
 */
#ifndef DL_WORKER_ITERATOR_H
#define DL_WORKER_ITERATOR_H

#include "daemon/worker/python/py_dataset.h"

#include "daemon/data/base/dataset.h"

/* The step that is being made: its generators are seeded before its first sample. */
struct python_step {
    uint64_t seed; /* of the spec */
    uint64_t epoch;
    uint64_t step;
    uint32_t rank;
    bool is_seeded;
    struct report last; /* of the step's last exception; a dl_error takes its brief text only */
};

/* Another step is begun, or a part of one that has its seed. */
void python_step_begin(struct python_step *step, const struct slot_task *task, uint32_t rank,
                       uint64_t number);

/* The exception that is set becomes step->last, and the error. `source` and `index` may be NULL. */
int python_step_fail(struct python_step *step, const struct py_dataset *source, PyObject *index,
                     struct dl_error *err);

/* Whether the error is what step->last says. */
bool python_step_failed_with(const struct python_step *step, const struct dl_error *err);

/* Seeds the generators, if the step's are not. 0, or -1 with an exception. */
int python_step_seed(struct python_step *step, const struct py_dataset *source);

/* What is made of an object, which stays the caller's. 0, or -1 with an exception. */
typedef int iterator_give(struct sample *ret, PyObject *object);

/* All borrowed, for the iterator's life. */
struct iterator_open {
    struct py_dataset *source;
    struct python_step *step;
    iterator_give *give;
};

/* dataset_ops.iterate. The first samples are kept if they may be wanted again: a dataset need not
 * give them twice. Its state is not asked for then. */
int iterator_begin(const struct iterator_open *how, const struct replica_params *params,
                   struct dataset_iter **ret, struct dl_error *err);

#endif
