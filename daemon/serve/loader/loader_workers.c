/* What workers say, by the pool: of the dataset, that it is open, how far that is, its files; and
 * of their tasks. */
#include "daemon/base/blame.h"
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cache/cache_room.h"
#include "daemon/cache/index_cache.h"
#include "daemon/serve/loader/loader_private.h"
#include "proto/common/sealed.h"
#include "proto/slot_fill.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#include <utlist.h>

/* What a worker says of a mix's datasets, if they have sizes: 0, or a negative errno with `err`. */
static int workers_take_sizes(struct loader *loader, struct dl_span sizes, struct dl_error *err)
{
    bool mixes = loader->spec.dataset.kind == DATASET_MIX && !loader->core.iterable;
    uint32_t n = mixes ? spec_mixture_leaves(&loader->spec.dataset) : 0;
    uint64_t count, sum = 0;

    if (sizes.len != n * sizeof *loader->sizes)
        return dl_error_set(err, EPROTO, "dataset", "the worker reports %zu sizes for %u datasets",
                            sizes.len / sizeof *loader->sizes, n);
    if (n == 0)
        return 0;
    free(loader->sizes);
    loader->sizes = must_alloc(sizes.len);
    memcpy(loader->sizes, sizes.data, sizes.len);
    for (uint32_t i = 0; i < n; i++) {
        loader->sizes[i] = le64toh(loader->sizes[i]);
        if (add_overflows(sum, loader->sizes[i], &sum))
            sum = UINT64_MAX;
    }
    if (sum != loader->core.length)
        return dl_error_set(
            err, EPROTO, "dataset",
            "the worker reports sizes of datasets that do not add up to its length");
    struct plan_params params = loader_plan_params(loader);
    return plan_mix_count(&params.mix, 0, &count, err);
}

static void workers_on_ready(void *owner, const struct dl_msg_w_ready *what)
{
    struct loader *loader = owner;
    BLAMING(loader->o.blame);
    struct core *core = &loader->core;
    struct dl_error err = {0};

    core->length =
        loader->spec.dataset.kind == DATASET_RANGE ? loader->spec.dataset.length : what->length;
    core->iterable = what->iterable;
    core->can_skip = what->leaps;
    if (core->iterable)
        core->resting = loader->o.pool.helpers; /* its own workers have all shares */
    core->quarantine.limit = spec_max_bad(&loader->spec, core->length);
    loader->identity.dataset = what->dataset;
    loader->identity.length = core->length;
    loader->identity.workers = core->iterable ? loader->spec.workers : 0;
    loader->first_slot_bytes = pool_slot_bytes(loader->pool);
    bool tokens = loader->spec.batch.tokens > 0, lazy = loader->spec.batch.lengths == LENGTHS_LAZY;
    int r = workers_take_sizes(loader, what->sizes, &err);
    if (r == 0 && tokens)
        r = (lazy ? loader_begin_windows : loader_measure)(loader, what->fingerprint, &err);
    if (r < 0)
        loader_break(loader, &err);
    else if (!tokens || lazy)
        loader_opened(loader);
}

static void workers_on_broken(void *owner, const struct dl_error *err)
{
    loader_break(owner, err);
}

static void workers_on_retired(void *owner, uint32_t segment)
{
    struct loader *loader = owner;

    loader->o.events->retired(loader->o.context, segment);
}

/* ---- files that change ----------------------------------------------------------------------- */

enum { WRITTEN_MAX = 64 }; /* files that are reported by name */

static bool workers_is_known(const struct loader *loader, const char *path)
{
    const struct written_file *file;

    LL_FOREACH (loader->written, file) {
        if (strcmp(file->what.path, path) == 0)
            return true;
    }
    return false;
}

void loader_tell_written(struct loader *loader, struct stream *stream)
{
    const struct dl_error *what = &loader->written->what;
    uint32_t others = loader->n_written - 1;
    struct dl_error said; /* which is cut to what a message takes */

    if (others == 0)
        (void)dl_error_set(&said, what->code, "", "%s: %s", what->path, what->message);
    else
        (void)dl_error_set(&said, what->code, "",
                           "%s (and %u other file%s, see the daemon's log): %s", what->path, others,
                           others == 1 ? "" : "s", what->message);
    loader->o.events->warning(stream, said.message);
    loader->written_told = loader->n_written;
    stream->told |= TOLD_FILES;
}

/* Each file once. Without a reader, the next one to get a batch is warned. */
static void workers_on_written(void *owner, const struct dl_error *what)
{
    struct loader *loader = owner;
    struct stream *stream;

    if (loader->n_written == WRITTEN_MAX || workers_is_known(loader, what->path))
        return;
    struct written_file *file = must_alloc(sizeof *file);
    file->what = *what;
    LL_PREPEND(loader->written, file);
    loader->n_written++;
    log_about(LOG_WARNING,
              &(struct log_fields){LOG_EVENT_FILE_WRITTEN, .loader = loader->spec.name,
                                   .client_uid = LOG_N(loader->o.uid)},
              "%s: %s: %s", loader->spec.name, what->path, what->message);
    DL_FOREACH (loader->core.streams, stream) {
        if (stream->sink && stream_rules[stream->phase].delivers && !(stream->told & TOLD_END))
            loader_tell_written(loader, stream);
    }
}

/* What it says comes five times a second, and of a new thing at once; of one that says more, no
 * more is passed on. */
static void workers_on_opening(void *owner, const struct dl_msg_w_opening *what)
{
    enum { LEAST_NS = 100 * 1000 * 1000, SOONER = 16 };
    struct loader *loader = owner;
    uint64_t now = uv_hrtime();

    if (loader->state != LOADER_OPENING || loader->measuring)
        return;
    if (now - loader->opening_told < LEAST_NS && loader->opening_sooner++ >= SOONER)
        return;
    _cleanup_free_ char *text = span_dup(what->what);
    struct dl_error fit; /* to be shown on a terminal */
    (void)dl_error_set(&fit, 1, "", "%s", text ? text : "");
    loader->opening_told = now;
    loader_tell_progress(loader, what->done, what->all, fit.message);
}

static void workers_on_slow(void *owner, const struct slow_sample *what, const char *helper)
{
    struct loader *loader = owner;

    /* A number within a replica does not identify the sample. */
    if (loader->core.iterable ? *what->name != '\0' : what->index < loader->core.length)
        slow_list_add(&loader->slowest, what, helper);
}

/* ---- indexes of files ------------------------------------------------------------------------ */

/* One on its way to the cache on disk, which workers cannot write to. */
struct index_store {
    struct crew_job job;
    struct index_cache_key key;
    int fd;    /* owned */
    char *dir; /* owned */
    uint64_t size;
    char *label; /* owned */
    struct dl_error err;
    int r;
};

static void index_store_thread(struct crew_job *job)
{
    struct index_store *store = container_of(job, struct index_store, job);
    uint64_t bytes;

    store->r = sealed_size(store->fd, &bytes);
    if (store->r < 0) {
        (void)dl_error_set(&store->err, -store->r, store->dir, "the index is not in sealed memory");
        return;
    }
    void *data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, store->fd, 0);
    if (data == MAP_FAILED) {
        store->r = dl_error_set(&store->err, errno, store->dir, "the index cannot be mapped: %s",
                                strerror(errno));
        return;
    }
    store->r =
        index_cache_store(store->dir, &store->key, (struct dl_span){data, bytes}, &store->err);
    munmap(data, bytes);
    cache_room_make(store->dir, store->size);
}

static void index_store_done(struct crew_job *job)
{
    struct index_store *store = container_of(job, struct index_store, job);

    if (store->r < 0)
        log_loader(LOG_WARNING, store->label, store->key.uid,
                   "%s: the index of its files is not cached, and is built again when they are "
                   "next opened: %s: %s",
                   store->label, store->err.path, store->err.message);
    close_fdp(&store->fd);
    free(store->dir);
    free(store->label);
    free(store);
}

static void workers_on_indexed(void *owner, uint64_t key, int fd)
{
    const struct loader *loader = owner;
    const struct config_cache *cache = &loader->o.pool.config->cache;
    int own = *cache->dir ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;

    if (own < 0)
        return;
    struct index_store *store = must_alloc(sizeof *store);
    store->key = (struct index_cache_key){.key = key, .uid = loader->o.uid};
    store->fd = own;
    store->dir = must_strdup(cache->dir);
    store->size = cache->size;
    store->label = must_strdup(loader->spec.name);
    crew_start(loader->o.crew, loader->o.uid, &store->job, index_store_thread, index_store_done);
}

/* ---- what becomes of tasks ------------------------------------------------------------------- */

static bool workers_read_state(const struct step *step, struct dl_span *ret)
{
    return slot_read_state(segment_slot(step->segment, step->slot), step->segment->slot_bytes,
                           ret) &&
           ret->len > 0;
}

/* Of a step whose state the user may not keep: the worker's successor would make other samples. */
static int workers_refuse_state(struct loader *loader, struct step *step,
                                const struct dl_error *err)
{
    struct segment *segment = step->segment;
    uint32_t slot = step->slot;
    struct dl_error what;

    dl_error_set(&what, err->code, "", "the dataset's state cannot be kept: %s: %s", err->path,
                 err->message);
    core_fault(&loader->core, step, err->code, what.message, NULL);
    pool_slot(loader->pool, segment, slot, SLOT_DISCARD);
    loader_execute(loader);
    return -err->code;
}

/* The same of a worker's dataset, which is that of all its steps; negative: the step has failed. */
static int workers_carry_state(struct loader *loader, struct step *step)
{
    struct dl_error err = {0};
    struct dl_span record;

    if (!workers_read_state(step, &record))
        return 0;
    if (loader->core.iterable)
        (void)dataset_states_carry(&loader->carried, step_replica(step->stream, step->number),
                                   step->stream->number, record);
    else
        (void)dataset_states_learn(&loader->carried,
                                   (uint32_t)(step->number % loader->spec.workers), record);
    return core_pay_for(&loader->core, loader->carried.bytes, &loader->paid_carried, &err) < 0
               ? workers_refuse_state(loader, step, &err)
               : 0;
}

/* Where the dataset says that the step's replica stands behind it. */
static void workers_learn_state(struct core *core, struct step *step)
{
    struct stream *stream = step->stream;
    struct dl_span record;

    if (workers_read_state(step, &record) &&
        dataset_states_learn(&stream->states, step_replica(stream, step->number), record) &&
        core_pay(core, stream, NULL) < 0)
        dataset_states_deinit(&stream->states); /* it only saves a worker's successor time */
}

static void workers_on_done(void *owner, void *tag, uint32_t samples, uint32_t repeated,
                            uint64_t bytes, const struct bad_list *bad,
                            const struct made_times *made)
{
    struct loader *loader = owner;
    BLAMING(loader->o.blame);
    struct step *step = tag;
    struct measuring *measuring = loader_measuring_of(loader, tag);

    if (measuring) {
        measuring_took(measuring, tag);
        return;
    }
    if (spec_carries_state(&loader->spec) && step->stream) {
        if (workers_carry_state(loader, step) < 0)
            return;
    } else if (loader->core.iterable && step->stream) {
        workers_learn_state(&loader->core, step);
    }
    core_done(&loader->core, step, samples, repeated, bytes, bad, made);
    loader_execute(loader);
}

static void workers_on_ended(void *owner, void *tag)
{
    core_ended(&((struct loader *)owner)->core, tag);
}

static void workers_on_failed(void *owner, void *tag, const struct dl_error *err,
                              const char *detail)
{
    struct loader *loader = owner;
    struct measuring *measuring = loader_measuring_of(loader, tag);

    if (measuring)
        measuring_refused(measuring, tag, err);
    else
        core_fault(&loader->core, tag, err->code, err->message,
                   detail ? must_strdup(detail) : NULL);
}

static void workers_on_lost(void *owner, void *tag, bool culprit, const char *cause)
{
    struct loader *loader = owner;
    struct measuring *measuring = loader_measuring_of(loader, tag);

    if (measuring)
        measuring_lost(measuring, tag, culprit, cause);
    else
        core_lost(&loader->core, tag, culprit, cause);
}

static void workers_on_outgrew(void *owner, void *tag)
{
    struct loader *loader = owner;
    struct measuring *measuring = loader_measuring_of(loader, tag);

    if (measuring)
        measuring_lost(measuring, tag, false, "");
    else
        core_outgrew(&loader->core, tag);
}

static void workers_on_stalled(void *owner, const char *cause)
{
    struct loader *loader = owner;

    if (loader->measuring) /* it has no steps, and ends with the pool */
        return;
    loader_windows_stalled(loader, cause);
    core_stalled(&loader->core, cause);
    loader_execute(loader);
}

/* The pool counts free slots as soon as this returns. */
static void workers_on_reclaim(void *owner)
{
    struct loader *loader = owner;

    core_reclaim(&loader->core);
    loader_execute_all(loader);
}

/* Not for a loader that nobody has open: it might make way itself. */
static bool workers_on_make_way(void *owner)
{
    struct loader *loader = owner;

    return loader_users(loader) > 0 && loader->o.events->make_way(loader->o.context, loader);
}

static void workers_on_changed(void *owner)
{
    loader_pump(owner);
}

const struct pool_events loader_pool_events = {.opening = workers_on_opening,
                                               .indexed = workers_on_indexed,
                                               .ready = workers_on_ready,
                                               .broken = workers_on_broken,
                                               .done = workers_on_done,
                                               .ended = workers_on_ended,
                                               .failed = workers_on_failed,
                                               .lost = workers_on_lost,
                                               .outgrew = workers_on_outgrew,
                                               .stalled = workers_on_stalled,
                                               .reclaim = workers_on_reclaim,
                                               .retired = workers_on_retired,
                                               .make_way = workers_on_make_way,
                                               .written = workers_on_written,
                                               .looked = loader_on_looked,
                                               .slow = workers_on_slow,
                                               .changed = workers_on_changed};
