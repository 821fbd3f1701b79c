/*
 * The worker: one process that owns a dataset and fills slots with it.
 *
 * The daemon starts it with a socket as descriptor 3, over which it gets its loader, its queues and
 * the segments it may write. Tasks come through the task queue, each names a slot in which the
 * daemon has put the sample indices; the batch is collated right there and a completion goes back.
 * The worker trusts the daemon and ends when the daemon does. One thread.
 *
 * Its engine fills the slots: the fetcher of daemon/data/ in dloader-worker, Python's in the
 * workers of a Python host.
 */
#ifndef DL_WORKER_H
#define DL_WORKER_H

#include "daemon/data/fetch.h"
#include "daemon/worker/sandbox.h"

struct queue_done; /* proto/queue.h */

/* What a worker opens its dataset with; all borrowed, for the call. */
struct worker_open {
    const struct dl_spec *spec;
    const struct data_env *env; /* lives as long as the worker */
};

/*
 * The functions do the same as those of struct fetcher (see daemon/data/fetch.h), on the one
 * dataset that open() made at *ret. Some may be NULL.
 */
struct worker_engine {
    /* What it reads besides what the spec names; may be NULL. Before open(). */
    void (*allow)(struct sandbox_files *files);
    int (*open)(const struct worker_open *how, void **ret, struct dl_error *err);
    void (*close)(void *engine); /* of what open() made; not called with NULL */
    bool (*is_iterable)(const void *engine);
    uint64_t (*length)(const void *engine);
    /* Of a mix: how many datasets it has, and *ret, the samples in each; else 0. */
    uint32_t (*sizes)(const void *engine, const uint64_t **ret);
    uint64_t (*content)(const void *engine); /* of its dataset */
    bool (*can_skip)(const void *engine);    /* so does its dataset */
    uint64_t (*slot_bytes)(const void *engine);
    int (*fill)(void *engine, void *slot, uint64_t slot_bytes, uint64_t *ret_used,
                struct dl_error *err);
    /* What lies far away of a task that will come to fill(); may be NULL. */
    void (*expect)(void *engine, const void *slot, uint64_t slot_bytes);
    /* The same of samples of tasks that will come, to this worker or others: their indices, u64
     * little-endian each; may be NULL. */
    void (*foresee)(void *engine, struct dl_span indices);
    uint64_t (*collate_ns)(const void *engine); /* of the last fill() */
    /* The same, with the other times in `done`: the part that was Python's code; may be NULL. */
    void (*tell_python)(const void *engine, struct queue_done *done);
    /* Of the last fill(), the sample that took longest; may be NULL. And with it where people
     * find a sample, as dataset_name(). */
    const struct slow_watch *(*slowest)(const void *engine);
    size_t (*name)(const void *engine, uint64_t index, char *ret, size_t room);
    void (*forget)(void *engine, uint32_t stream);
    void (*rest)(void); /* may be NULL: the worker begins to wait */
    void (*wake)(void); /* with rest: it has ended */
};

/* Runs until the daemon hangs up. Returns the process's exit status. */
int worker_run(int sock, const struct worker_engine *engine);

#endif
