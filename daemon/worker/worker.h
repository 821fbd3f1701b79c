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

/* What an opened dataset is, which stays as it is. */
struct worker_opened {
    uint64_t length;
    uint64_t slot_bytes;
    uint64_t content;      /* fingerprint of the data */
    const uint64_t *sizes; /* of a mix: the samples in each of its datasets */
    uint32_t n_sizes;
    bool is_iterable;
    bool can_skip;
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
    struct worker_opened (*describe)(const void *engine);
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

/* For those with a fetcher. */
static inline struct worker_opened worker_describe_fetcher(const struct fetcher *fetcher)
{
    const struct dataset *ds = fetcher_dataset(fetcher);

    return (struct worker_opened){.length = ds->length,
                                  .slot_bytes = fetcher_slot_bytes(fetcher),
                                  .content = ds->content,
                                  .sizes = ds->sizes,
                                  .n_sizes = ds->n_sizes,
                                  .is_iterable = dataset_is_iterable(ds),
                                  .can_skip = ds->can_skip};
}

/* Runs until the daemon hangs up. Returns the process's exit status. */
int worker_run(int sock, const struct worker_engine *engine);

#endif
