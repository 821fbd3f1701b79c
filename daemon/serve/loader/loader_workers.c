/* What workers say, by the pool, of the dataset: that it is open, how far that is, its files. */
#include "daemon/serve/base/blame.h"
#include "daemon/serve/base/memory.h"
#include "daemon/serve/loader/index_keep.h"
#include "daemon/serve/loader/loader_private.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>

#include <utlist.h>

/* What a worker says of a mix's datasets, if they have sizes: 0, or a negative errno with `err`. */
static int workers_take_sizes(struct loader *loader, struct dl_span sizes, struct dl_error *err)
{
    bool mixes = loader->spec.dataset.kind == DATASET_MIX && !loader->core.iterable;
    uint32_t n = mixes ? spec_mixture_leaves(&loader->spec.dataset) : 0;
    uint64_t count, sum = 0;

    if (sizes.len != n * sizeof *loader->sizes)
        return dl_error_set(err, EPROTO, "dataset", "the worker tells %zu sizes of %u datasets",
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
        return dl_error_set(err, EPROTO, "dataset",
                            "the worker tells sizes of datasets that do not add up to its length");
    struct plan_params params = loader_plan_params(loader);
    return plan_mix_count(&params.mix, 0, &count, err);
}

static void workers_on_ready(void *owner, const struct dl_msg_w_ready *what)
{
    struct loader *loader = owner;
    _cleanup_(blame_backp)
    _unused_ uint64_t before = blame_swap(loader->o.blame);
    struct core *core = &loader->core;
    struct dl_error err = {0};

    core->length =
        loader->spec.dataset.kind == DATASET_RANGE ? loader->spec.dataset.length : what->length;
    core->iterable = what->iterable;
    core->can_skip = what->leaps;
    core->quarantine.limit = spec_max_bad(&loader->spec, core->length);
    loader->identity.dataset = what->dataset;
    loader->identity.length = core->length;
    loader->identity.workers = core->iterable ? loader->spec.workers : 0;
    loader->first_slot_bytes = pool_slot_bytes(loader->pool);
    bool tokens = loader->spec.batch.tokens > 0;
    if (workers_take_sizes(loader, what->sizes, &err) < 0 ||
        (tokens && loader_measure(loader, what->fingerprint, &err) < 0))
        loader_break(loader, &err);
    else if (!tokens)
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

enum { WRITTEN_MAX = 64 }; /* files that are told of by name */

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
}

/* Each file once. Where nobody reads now, the next one to get a batch is told. */
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

static void workers_on_indexed(void *owner, uint64_t key, int fd)
{
    const struct loader *loader = owner;

    index_keep(&(struct index_keep_for){.crew = loader->o.crew,
                                        .uid = loader->o.uid,
                                        .dir = loader->o.config->cache,
                                        .label = loader->spec.name},
               key, fd);
}

static void workers_on_slow(void *owner, const struct slow_sample *what)
{
    struct loader *loader = owner;

    /* The number of a sample in its replica alone tells nobody which one it is. */
    if (loader->core.iterable ? *what->name != '\0' : what->index < loader->core.length)
        slow_list_add(&loader->slowest, what);
}

const struct pool_events loader_pool_events = {.opening = workers_on_opening,
                                               .indexed = workers_on_indexed,
                                               .ready = workers_on_ready,
                                               .broken = workers_on_broken,
                                               .done = loader_on_done,
                                               .ended = loader_on_ended,
                                               .failed = loader_on_failed,
                                               .lost = loader_on_lost,
                                               .reclaim = loader_on_reclaim,
                                               .retired = workers_on_retired,
                                               .written = workers_on_written,
                                               .slow = workers_on_slow,
                                               .changed = loader_on_changed};
