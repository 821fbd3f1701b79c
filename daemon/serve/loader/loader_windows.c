/*
 * Lengths that are taken while the loader is read (`batch.lengths: lazy`): window by window, each
 * in time for the steps that are made of it. daemon/plan/plan_lazy.h has the rules.
 *
 * A window's samples whose lengths are not known are measured as before a loader opens, by tasks
 * that stand between those of batches; then its rows are planned, on the loop, and streams may plan
 * the steps that these make. Where a stream has no further step to plan, workers measure first.
 * Otherwise half of them do, so that the next window is known when the steps of this one are used
 * up. What was measured once is known for the other epochs, ranks and worlds; once all is, it goes
 * into the cache of lengths.
 */
#include "daemon/base/memory.h"
#include "daemon/plan/plan_lazy.h"
#include "daemon/serve/loader/loader_changes_private.h"
#include "proto/limits.h"
#include "proto/segment_layout.h"
#include "proto/tree.h"

#include <assert.h>
#include <errno.h>

#include <utlist.h>

enum {
    CUT_AT_ONCE_NS = 2 * 1000 * 1000, /* the loop does other things in between */
    WORTH_NS = 250 * 1000 * 1000,     /* what took less is not worth a file in the cache */
};

struct windows {
    struct loader *loader;
    uint64_t *known; /* owned; a bit of each sample: its length was taken; NULL: all were */
    uint64_t n_known;
    struct charge charge; /* of these */
    struct length_cache_load *load;
    uint64_t fingerprint;
    uint64_t took_ns;
    struct measuring *measuring; /* owned; of a window; or NULL */
    uint64_t *samples;           /* owned; room for a window */
    bool goes_on;
};

/* ---- which lengths are known ----------------------------------------------------------------- */

static bool windows_knows(const struct windows *w, uint64_t sample)
{
    return !w->known || w->known[sample / 64] >> sample % 64 & 1;
}

static void windows_know_all(struct windows *w)
{
    free(w->known);
    w->known = NULL;
    charge_return(&w->charge);
}

/* Its lengths were taken. */
static void windows_note(struct windows *w, const uint64_t *samples, uint64_t n)
{
    struct loader *loader = w->loader;
    struct length_cache_for cache = loader_length_cache(loader);

    for (uint64_t i = 0; i < n; i++) {
        w->n_known += !windows_knows(w, samples[i]);
        w->known[samples[i] / 64] |= UINT64_C(1) << samples[i] % 64;
    }
    if (w->n_known < loader->lengths->n)
        return;
    windows_know_all(w);
    if (w->fingerprint && *cache.dir && w->took_ns > WORTH_NS)
        length_cache_store(&cache, w->fingerprint, loader->lengths, loader->spec.name);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void windows_on_loaded(void *owner, int r, const struct lengths_found *found,
                              const struct dl_error *err)
{
    struct windows *w = owner;
    struct loader *loader = w->loader;

    w->load = NULL;
    if (r == -EINVAL) {
        loader_break(loader, err);
        return;
    }
    if (r == 0) {
        loader->found = *found;
        windows_know_all(w);
    }
    loader_pump(loader);
}

static int windows_make_known(struct windows *w, uint64_t n, struct dl_error *err)
{
    uint64_t words = n / 64 + 1;
    int r = charge_take(&w->charge, &w->loader->epochs.payer, words * sizeof *w->known,
                        "take a subset or a split of the dataset", err);

    if (r < 0)
        return r;
    w->known = calloc(words, sizeof *w->known);
    if (!w->known)
        return dl_error_set(err, ENOMEM, "batch.lengths", "no memory to take them");
    charge_settle(&w->charge);
    charge_settle(&w->loader->lengths->charge);
    return 0;
}

int loader_begin_windows(struct loader *loader, uint64_t fingerprint, struct dl_error *err)
{
    uint64_t n = loader->core.length, index = slot_indices_end(MEASURING_MOST);
    uint64_t need = index + TREE_ALIGN + MEASURING_MOST * sizeof(uint32_t);
    struct length_cache_for cache = loader_length_cache(loader);
    struct lengths_rule rule = lengths_rule_of(&loader->spec);
    int r = lengths_check_count(n, err);

    if (r == 0)
        r = length_table_new(n, &loader->epochs.payer, &loader->lengths, err);
    if (r < 0)
        return r;
    struct windows *w = must_alloc(sizeof *w);
    loader->windows = w;
    w->loader = loader;
    w->fingerprint = fingerprint;
    w->samples = must_alloc(loader->spec.batch.documents * sizeof *w->samples);
    r = windows_make_known(w, n, err);
    if (r == 0 && !pool_fit(loader->pool, need, err))
        r = -err->code;
    if (r == 0 && fingerprint && *cache.dir)
        w->load =
            length_cache_load(&cache, fingerprint, loader->lengths, &rule, windows_on_loaded, w);
    return r;
}

struct windows *windows_free(struct windows *w)
{
    if (!w)
        return NULL;
    measuring_free(w->measuring);
    length_cache_forget(w->load);
    charge_return(&w->charge);
    free(w->known);
    free(w->samples);
    free(w);
    return NULL;
}

struct measuring *loader_measuring_of(const struct loader *loader, const void *tag)
{
    struct measuring *of_window = loader->windows ? loader->windows->measuring : NULL;

    if (loader->measuring)
        return loader->measuring;
    return of_window && measuring_has(of_window, tag) ? of_window : NULL;
}

void loader_windows_stalled(struct loader *loader, const char *cause)
{
    struct dl_error err = {0};

    if (!loader->windows || !loader->windows->measuring)
        return;
    dl_error_set(&err, EIO, "batch.lengths", "lengths of samples cannot be taken: %s", cause);
    loader_break(loader, &err);
}

/* ---- what streams know ----------------------------------------------------------------------- */

static void windows_tell(struct core *core, struct stream *stream)
{
    uint64_t steps = plan_steps(stream->plan, stream->params.rank);

    if (plan_is_whole(stream->plan))
        core_learn_steps(core, stream, steps);
    else
        core_hold(core, stream, steps);
}

void loader_join_windows(struct loader *loader, struct stream *stream)
{
    core_settle_by_windows(&loader->core, stream);
    changes_take_placed(loader, stream->epoch);
    windows_tell(&loader->core, stream);
}

/* It plans steps, of windows of which some are still to be cut. */
static bool windows_are_read(const struct stream *stream)
{
    return stream->by_windows && stream_rules[stream->phase].plans && !plan_is_whole(stream->plan);
}

/* It stands at the end of the last window that was cut. */
static bool windows_are_awaited(const struct stream *stream)
{
    return windows_are_read(stream) && stream_next(stream) >= stream->hold;
}

/* It makes steps of the last window, or will soon. */
static bool windows_are_wanted(const struct stream *stream)
{
    return windows_are_read(stream) &&
           stream_next(stream) + stream->params.credits > plan_steps_before_window(stream->plan);
}

/* ---- cutting --------------------------------------------------------------------------------- */

/* The next window's samples whose lengths are not known, owned by the caller; NULL: all are. */
static uint64_t *windows_find_unknown(struct windows *w, struct epoch *epoch, uint64_t *ret_n)
{
    size_t n = epoch_window(epoch, w->samples);
    uint64_t *unknown = NULL;

    *ret_n = 0;
    for (size_t i = 0; i < n; i++) {
        if (windows_knows(w, w->samples[i]))
            continue;
        if (!unknown)
            unknown = must_alloc(n * sizeof *unknown);
        unknown[(*ret_n)++] = w->samples[i];
    }
    return unknown;
}

/* Cuts the next window, or begins to measure it. */
static void windows_go_on(struct windows *w, struct epoch *epoch)
{
    struct loader *loader = w->loader;
    struct stream *stream;
    struct dl_error err = {0};
    uint64_t n, *unknown = windows_find_unknown(w, epoch, &n);

    if (unknown) {
        w->measuring = measuring_new(loader, unknown, n);
        return;
    }
    int r = epoch_cut_window(epoch);
    if (r < 0) {
        dl_error_set(&err, -r, "epoch", "the plan cannot be computed: %s", strerror(-r));
        loader_break(loader, &err);
        return;
    }
    changes_take_placed(loader, epoch);
    DL_FOREACH (loader->core.streams, stream) {
        if (stream->epoch == epoch && stream->by_windows)
            windows_tell(&loader->core, stream);
    }
}

/* Whose next window is needed first; NULL: there are enough. */
static struct stream *windows_find(const struct loader *loader)
{
    struct stream *stream, *wanted = NULL;

    DL_FOREACH (loader->core.streams, stream) {
        if (windows_are_awaited(stream) && stream->sink)
            return stream;
        if (!wanted && windows_are_wanted(stream))
            wanted = stream;
    }
    return wanted;
}

static void windows_cut(struct windows *w)
{
    uint64_t until = uv_hrtime() + CUT_AT_ONCE_NS;
    struct stream *stream;

    while (w->loader->state == LOADER_OPEN && !w->measuring && (stream = windows_find(w->loader))) {
        if (uv_hrtime() >= until) {
            w->goes_on = true;
            return;
        }
        windows_go_on(w, stream->epoch);
    }
}

/* ---- the pump -------------------------------------------------------------------------------- */

/* Places that batches have all of: as for a batch, one more is made. */
static void windows_ask_for_memory(struct loader *loader)
{
    struct pool *pool = loader->pool;
    struct dl_error err = {0};

    if (pool_size(pool) == 0) /* one will come: loader_wake() */
        return;
    for (uint32_t i = 0; i < pool_workers(pool); i++)
        if (pool_room(pool, i).slots > 0)
            return;
    if (!pool_grow(pool, POOL_ANY, &err))
        core_refuse_memory(&loader->core, CORE_ANY, &err, pool_idle(pool));
}

static void windows_measure(struct windows *w)
{
    struct loader *loader = w->loader;
    const struct stream *stream;
    bool awaited = false;

    DL_FOREACH (loader->core.streams, stream)
        awaited = awaited || (stream->sink && windows_are_awaited(stream));
    measuring_hand_out(w->measuring, awaited ? MEASURING_EACH * pool_size(loader->pool)
                                             : (uint32_t)max_u64(pool_size(loader->pool) / 2, 1));
    if (awaited && !measuring_runs(w->measuring))
        windows_ask_for_memory(loader);
}

/* All of a window is known now. */
static void windows_end_measuring(struct windows *w, uint64_t took_ns)
{
    uint64_t n;
    const uint64_t *samples = measuring_list(w->measuring, &n);

    w->took_ns += took_ns;
    windows_note(w, samples, n);
    w->measuring = measuring_free(w->measuring);
}

void loader_windows_pump(struct loader *loader)
{
    struct windows *w = loader->windows;
    uint64_t took_ns;

    if (!w || w->load || loader_headspace_phase(loader) == HEADSPACE_BURST)
        return;
    w->goes_on = false;
    if (w->measuring && measuring_is_over(w->measuring, &took_ns))
        windows_end_measuring(w, took_ns);
    if (!w->measuring)
        windows_cut(w);
    if (w->measuring && loader->state == LOADER_OPEN)
        windows_measure(w);
}

bool loader_windows_go_on(const struct loader *loader)
{
    return loader->windows && loader->windows->goes_on;
}
