/*
 * Runs headspace.h on a loader: reports readers and their batches after each turn of the pump, or
 * by a timer, and the pump asks for the phase.
 */
#include "daemon/base/memory.h"
#include "daemon/serve/loader/loader_private.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>

enum { LOOK_MS = 20 };

struct loader_headspace {
    uv_timer_t timer;
    struct loader *loader;         /* borrowed */
    struct headspace_asker *asker; /* borrowed */
    struct headspace *measure;     /* owned */
};

enum headspace_phase loader_headspace_phase(const struct loader *loader)
{
    return loader->headspace ? headspace_phase(loader->headspace->measure) : HEADSPACE_ENDED;
}

static void loader_headspace_on_timer(uv_timer_t *timer)
{
    loader_pump(((struct loader_headspace *)timer->data)->loader);
}

int loader_headspace(struct loader *loader, struct headspace_asker *asker, uint32_t steps,
                     struct dl_error *err)
{
    if (loader->state == LOADER_BROKEN) {
        *err = loader->why_broken;
        return -err->code;
    }
    if (loader->state != LOADER_OPEN)
        return dl_error_set(err, EAGAIN, loader->spec.name, "the loader is not open yet");
    if (loader->headspace)
        return dl_error_set(err, EBUSY, loader->spec.name,
                            "another measurement of it is in progress; wait for its end");
    struct loader_headspace *h = must_alloc(sizeof *h);
    h->loader = loader;
    h->asker = asker;
    h->measure = headspace_new(steps, uv_hrtime());
    uv_timer_init(loader->o.pool.loop, &h->timer);
    h->timer.data = h;
    uv_timer_start(&h->timer, loader_headspace_on_timer, 0, LOOK_MS);
    loader->headspace = h;
    asker->loader = loader;
    return 0;
}

static void loader_headspace_on_closed(uv_handle_t *handle)
{
    struct loader_headspace *h = handle->data;

    headspace_free(h->measure);
    free(h);
}

/* Trainers that were kept waiting for it say nothing of the loader: its last while begins anew. */
static void loader_headspace_drop(struct loader *loader)
{
    struct loader_headspace *h = steal_ptr(loader->headspace);

    h->asker->loader = NULL;
    uv_close((uv_handle_t *)&h->timer, loader_headspace_on_closed);
    loader_mark_anew(loader);
}

void loader_headspace_leave(struct headspace_asker *asker)
{
    struct loader *loader = asker->loader;

    if (!loader)
        return;
    loader_headspace_drop(loader);
    loader_pump(loader); /* what was held back */
}

void loader_headspace_end(struct loader *loader, const struct dl_error *err)
{
    struct dl_error gone = {0};

    if (!loader->headspace)
        return;
    struct headspace_asker *asker = loader->headspace->asker;
    loader_headspace_drop(loader);
    if (!err)
        dl_error_set(&gone, ECANCELED, loader->spec.name, "%s",
                     loader->halted ? "the daemon is shutting down" : "it was closed");
    loader->o.events->measured(asker, NULL, err ? err : &gone);
}

static void loader_headspace_end_well(struct loader *loader)
{
    struct headspace_asker *asker = loader->headspace->asker;
    struct headspace_result result;
    struct dl_error err = {0};
    int r = headspace_result(loader->headspace->measure, &result, &err);

    (void)snprintf(err.path, sizeof err.path, "%s", loader->spec.name);
    loader_headspace_drop(loader);
    loader->o.events->measured(asker, r == 0 ? &result : NULL, r == 0 ? NULL : &err);
}

/* ---- readers --------------------------------------------------------------------------------- */

/* After the last delivery, leased batches can still be read. */
static bool loader_headspace_is_consumed(const struct stream *stream)
{
    return stream->sink && (stream->phase == STREAM_ACTIVE || (stream->phase == STREAM_FINISHED &&
                                                               stream->in_state[STEP_LEASED] > 0));
}

static size_t loader_headspace_add_ranks(const struct loader *loader, struct headspace_rank *ranks)
{
    const struct stream *stream;
    size_t n = 0;

    DL_FOREACH (loader->core.streams, stream) {
        uint64_t next = stream_next(stream);
        if (loader_headspace_is_consumed(stream))
            ranks[n++] = (struct headspace_rank){.key = stream->number,
                                                 .leased = stream->in_state[STEP_LEASED],
                                                 .ready = stream->in_state[STEP_READY],
                                                 .ending = next >= stream->params.steps ||
                                                           next >= stream->limit};
    }
    return n;
}

/* It has no work for its readers, or cannot do it. */
static bool loader_headspace_is_full(const struct loader *loader)
{
    return pool_idle(loader->pool) && (loader->core.starved || !core_wants(&loader->core));
}

bool loader_headspace_look(struct loader *loader)
{
    const struct stream *stream;
    size_t streams = 0;

    if (!loader->headspace)
        return false;
    DL_COUNT(loader->core.streams, stream, streams);
    _cleanup_free_ struct headspace_rank *ranks = must_alloc(max_u64(streams, 1) * sizeof *ranks);
    struct headspace *measure = loader->headspace->measure;
    struct headspace_now now = {.ns = uv_hrtime(),
                                .ranks = ranks,
                                .n_ranks = loader_headspace_add_ranks(loader, ranks),
                                .full = loader_headspace_is_full(loader),
                                .starving =
                                    loader->core.starved ? loader->core.starving.path : NULL};

    if (!headspace_look(measure, &now))
        return false;
    if (headspace_phase(measure) == HEADSPACE_ENDED)
        loader_headspace_end_well(loader);
    return true;
}

void loader_headspace_returned(struct loader *loader, const struct stream *stream, uint32_t n,
                               uint64_t waited_ns, uint64_t now)
{
    if (loader->headspace)
        headspace_returned(loader->headspace->measure, stream->number, n, waited_ns, now);
}
