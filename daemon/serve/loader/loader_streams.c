/* The streams that read from a loader: how they begin, what they give back, and how they end. */
#include "daemon/serve/loader/loader_private.h"

#include <errno.h>

#include <utlist.h>

struct stream *loader_find_stream(struct loader *loader, uint64_t epoch, uint64_t rank,
                                  uint64_t world, bool expected)
{
    struct stream *stream;

    DL_FOREACH (loader->streams, stream) {
        if (stream->params.epoch == epoch && stream->params.rank == rank &&
            stream->params.world == world && (stream->sink == NULL) == expected && !stream->parked)
            return stream;
    }
    return NULL;
}

/* What of a stream's parameters the loader knows. */
static void complete_params(const struct loader *loader, struct stream_params *params)
{
    if (params->credits == 0)
        params->credits = loader_credits(loader);
    params->steps = STEPS_UNKNOWN;
    params->replicas = loader->iterable ? loader->spec.workers : 0;
    params->any_order = !loader->spec.in_order;
    params->fed = loader->spec.sampler == SAMPLER_CLIENT;
}

static int ref_plan(struct loader *loader, const struct stream_params *params, struct epoch **ret,
                    struct dl_error *err)
{
    struct plan_params plan = plan_params_of(&loader->spec, loader->length);

    plan.before = params->before;
    plan.epoch = params->epoch;
    plan.world = params->world;
    if (loader->lengths)
        plan.tokens.lengths = loader->lengths->values;
    int r = epoch_ref(&loader->epochs, &plan, loader->lengths, ret, err);

    if (r == -EDQUOT)
        return r;
    if (r == -ENOMEM && loader->spec.order == ORDER_TORCH)
        return dl_error_set(err, ENOMEM, "sampler.order",
                            "torch takes memory for each sample of an epoch, more than there is; "
                            "write order: native");
    if (r < 0)
        return dl_error_set(err, -r, "epoch", "the plan cannot be made: %s", strerror(-r));
    return 0;
}

/* How many steps the stream has; 1: its plan is not yet worked out. */
static int settle(struct loader *loader, struct stream *stream, struct dl_error *err)
{
    struct stream_params *params = &stream->params;

    if (!stream->plan)
        return 0;
    int r = epoch_work_out(stream->plan, loader->o.loop, loader_go_on, loader);
    stream->unsettled = r == 1;
    if (r == 1)
        return 1;
    if (r < 0)
        return dl_error_set(err, -r, "epoch", "the plan cannot be worked out: %s", strerror(-r));
    params->steps = plan_steps(epoch_plan(stream->plan), params->rank);
    if (params->round > 0)
        params->first = min_u64(params->first, params->steps);
    if (params->first <= params->steps)
        return 0;
    return dl_error_set(err, EINVAL, "step",
                        "step %llu is past the end: rank %llu of %llu has %llu steps",
                        (unsigned long long)params->first, (unsigned long long)params->rank,
                        (unsigned long long)params->world, (unsigned long long)params->steps);
}

int loader_add_stream(struct loader *loader, struct stream_params *params, struct stream **ret,
                      struct dl_error *err)
{
    struct epoch *epoch = NULL;
    int r = spec_check_world(&loader->spec, params->world, err);

    if (r == 0)
        r = spec_check_history(&loader->spec, &params->before, err);
    if (r == 0)
        r = quota_charge(loader->o.account, QUOTA_EPOCHS, 1, err);
    if (r < 0)
        return r;
    if (!params->replicas && !params->fed)
        r = ref_plan(loader, params, &epoch, err);
    if (r < 0) {
        quota_return(loader->o.account, QUOTA_EPOCHS, 1);
        return r;
    }
    struct stream *stream = stream_new(params);
    stream->plan = epoch;
    stream->number = ++loader->streams_made;
    DL_APPEND(loader->streams, stream);
    r = settle(loader, stream, err);
    if (r < 0) {
        loader_end(loader, stream);
        return r;
    }
    *ret = stream;
    return 0;
}

/* PyTorch's len(loader), for this rank. */
static void measure(const struct loader *loader, const struct stream *stream,
                    struct loader_extent *ret)
{
    const struct stream_params *params = &stream->params;

    *ret = (struct loader_extent){STEPS_UNKNOWN, STEPS_UNKNOWN};
    if (stream->plan) {
        ret->steps = params->steps;
        ret->samples = plan_samples(epoch_plan(stream->plan), params->rank);
    } else if (params->replicas && loader->length != STEPS_UNKNOWN) {
        struct plan_params plan = plan_params_of(&loader->spec, loader->length);
        plan.world = params->world;
        struct plan_extent extent = plan_estimate(&plan, params->rank);
        *ret = (struct loader_extent){extent.steps, extent.samples};
    }
}

/* A stream that somebody asks for: where the user has too many, others give way. */
static int add_wanted(struct loader *loader, struct stream_params *params, struct stream **ret,
                      struct dl_error *err)
{
    int r;

    do
        r = loader_add_stream(loader, params, ret, err);
    while (r == -EDQUOT &&
           (loader_drop_expected(loader, NULL) || loader_drop_parked(loader, false)));
    return r;
}

/* The stream that was made for this before, parked or expected; NULL: there is none. */
static struct stream *take_made(struct loader *loader, const struct stream_params *params)
{
    struct stream *stream = loader_take_parked(loader, params);

    if (stream || params->first > 0 || params->before.n > 0)
        return stream;
    stream = loader_find_stream(loader, params->epoch, params->rank, params->world, true);
    return stream && stream->window <= params->credits ? stream : NULL;
}

/* A new one, which shows that what was expected instead was expected in vain. */
static int make_wanted(struct loader *loader, struct stream_params *params, struct stream **ret,
                       struct dl_error *err)
{
    loader_drop_expected(loader, params);
    int r = add_wanted(loader, params, ret, err);

    if (r < 0 || loader->spec.shard != SHARD_DISPATCH)
        return r;
    r = loader_join(loader, *ret, err);
    if (r < 0)
        loader_end(loader, *ret);
    return r;
}

/* Epochs that follow each other will go on to. */
static void note_last(struct loader *loader, const struct stream_params *params)
{
    if (loader->spec.dataset.kind != DATASET_PYTHON && params->epoch == loader->last.epoch + 1 &&
        params->rank == loader->last.rank && params->world == loader->last.world)
        loader->expecting = true;
    loader->last = *params;
}

int loader_start(struct loader *loader, const struct stream_params *wanted, void *sink,
                 struct stream **ret, struct loader_extent *ret_extent, struct dl_error *err)
{
    struct stream_params params = *wanted;
    struct stream *stream;

    if (loader->state == LOADER_BROKEN) {
        *err = loader->why_broken;
        return -err->code;
    }
    complete_params(loader, &params);
    if (params.before.n > 0 && (params.replicas || params.fed))
        return dl_error_set(err, EINVAL, "before",
                            "%u world sizes before this one, but an iterable dataset, and a "
                            "sampler of kind client, have no order that others could go on with",
                            params.before.n);
    int r = loader_agree(loader, &params, err);
    if (r < 0)
        return r;
    stream = take_made(loader, &params);
    if (stream) {
        params.steps = stream->params.steps; /* its plan is the same */
        stream->params = params;
    } else if ((r = make_wanted(loader, &params, &stream, err)) < 0) {
        return r;
    }
    loader_note_start(loader, &params);
    note_last(loader, &params);
    loader_mark_start(loader);
    stream->sink = sink;
    stream->begun_ns = uv_hrtime();
    *ret = stream;
    if (stream->unsettled)
        return 1;
    measure(loader, stream, ret_extent);
    return 0;
}

/* Where batches are dispatched it is the source that loads. Ranks that join it later know the same,
 * or less. */
void loader_bring_states(struct stream *stream, struct states *states)
{
    struct stream *source = loader_source(stream);
    struct stream *loads = source ? source : stream;

    if (states->n == 0 || stream->params.first == 0)
        return;
    stream->carried = true;
    if (loads->states.n > 0)
        return;
    loads->states = *states;
    *states = (struct states){0};
}

void loader_plan(struct loader *loader, struct stream *stream)
{
    struct loader_extent extent;
    struct dl_error err = {0};

    if (!stream->unsettled)
        return;
    int r = settle(loader, stream, &err);
    if (r == 1)
        return;
    if (r == 0)
        measure(loader, stream, &extent);
    if (stream->sink)
        loader->o.events->started(stream, r == 0 ? &extent : NULL, r == 0 ? NULL : &err);
    else if (r < 0)
        loader_end(loader, stream);
}

void loader_expect_next(struct loader *loader, const struct stream *stream)
{
    struct stream_params params = stream->params;
    struct stream *next;

    if (stream_is_source(stream)) {
        loader_expect_source(loader, stream);
        return;
    }
    params.epoch++;
    params.first = 0;
    params.before.n = 0;
    if (!loader->expecting || params.fed || stream->stopped || !stream->sink ||
        stream->dispatcher || stream_next(stream) < params.steps || params.epoch == 0 ||
        params.steps == 0 ||
        loader_find_stream(loader, params.epoch, params.rank, params.world, true) ||
        loader_find_stream(loader, params.epoch, params.rank, params.world, false))
        return;
    complete_params(loader, &params);
    /* Failing is no loss: the epoch then starts when it is asked for. */
    (void)!loader_add_stream(loader, &params, &next, NULL);
}

void loader_drop_step(struct loader *loader, struct stream *stream, struct step *step)
{
    switch (step->state) {
    case STEP_LEASED:
    case STEP_PINNED:
        break;
    case STEP_RUNNING: /* the worker is writing: see abandoned() */
        stream_abandon(stream, step);
        break;
    case STEP_READY:
        pool_slot(loader->pool, step->segment, step->slot,
                  step->held ? SLOT_RELEASE : SLOT_DISCARD);
        stream_forget(stream, step);
        break;
    case STEP_WAITING:
        DL_DELETE(loader->waiting, step);
        stream_forget(stream, step);
        break;
    case STEP_FAULTED:
        stream_forget(stream, step);
        break;
    }
}

void loader_drop_steps(struct loader *loader, struct stream *stream)
{
    struct step *step;
    struct step *next;

    HASH_ITER (hh, stream->steps, step, next) {
        loader_drop_step(loader, stream, step);
    }
}

void loader_stop(struct loader *loader, struct stream *stream)
{
    if (stream->stopped)
        return;
    if (!stream->finish_told)
        loader_note_verdict(loader); /* who leaves an epoch in the middle asks afterwards, too */
    loader_note_stop(loader, stream);
    stream_stop(stream);
    loader_drop_steps(loader, stream);
    loader_leave_source(loader, stream);
}

static void give_back(struct loader *loader, struct stream *stream, struct step *step)
{
    struct segment *segment = step->segment;
    uint32_t slot = step->slot;

    stream_forget(stream, step);
    quota_return(loader->o.account, QUOTA_LEASES, 1);
    pool_slot(loader->pool, segment, slot, SLOT_RELEASE);
}

void loader_end(struct loader *loader, struct stream *stream)
{
    struct step *step;
    struct step *next;

    if (!stream)
        return;
    loader_stop(loader, stream);
    loader_leave_source(loader, stream); /* where a loader that broke has stopped it */
    HASH_ITER (hh, stream->steps, step, next) {
        give_back(loader, stream, step);
    }
    DL_DELETE(loader->streams, stream);
    timing_add_all(&loader->timing, &stream->timing);
    if (stream->plan)
        epoch_unref(&loader->epochs, stream->plan);
    if (stream->params.replicas)
        pool_forget(loader->pool, stream->number);
    stream_free(stream);
    quota_return(loader->o.account, QUOTA_EPOCHS, 1);
}

/* What is started shows that the stream was expected in vain. A source is every rank's. */
static bool is_instead(const struct stream *stream, const struct stream_params *started)
{
    if (stream->params.world != started->world)
        return false;
    if (stream_is_source(stream))
        return strcmp(stream->params.job, started->job) == 0 &&
               (stream->params.epoch != started->epoch || started->first != 0 ||
                started->before.n > 0);
    return stream->params.rank == started->rank;
}

bool loader_drop_expected(struct loader *loader, const struct stream_params *instead)
{
    struct stream *stream;
    struct stream *next;
    bool any = false;

    DL_FOREACH_SAFE (loader->streams, stream, next) {
        if (!stream_is_expected(stream) || stream->parked ||
            (instead && !is_instead(stream, instead)))
            continue;
        loader->expecting = loader->expecting && !instead;
        loader_end(loader, stream);
        any = true;
    }
    return any;
}

static void trace(struct loader *loader, const struct stream *stream, const struct step *step,
                  uint64_t now)
{
    const struct made_times *made = &step->made;

    trace_add(&loader->trace,
              &(struct trace_batch){.epoch = stream->params.epoch,
                                    .rank = stream->params.rank,
                                    .step = step->number,
                                    .worker = step->segment->worker,
                                    .planned = step->run_ns,
                                    .begun = made->began_ns,
                                    .fetched = made->began_ns + made->cost_ns - made->collate_ns,
                                    .made = made->began_ns + made->cost_ns,
                                    .ready = made->now_ns,
                                    .delivered = step->delivered_ns,
                                    .released = now});
}

/* It ends when its client asks for the next one, however long tensors keep the slot. */
static void note_held(struct stream *stream, const struct step *step, uint64_t now)
{
    timing_add(&stream->timing, STAGE_HELD, now - step->delivered_ns);
}

bool loader_release(struct loader *loader, struct stream *stream, uint64_t number, uint64_t now)
{
    struct step *step = stream_lease(stream, number);

    if (!step)
        return false;
    now = step->state == STEP_PINNED ? step->pinned_ns : max_u64(now, step->delivered_ns);
    if (step->state == STEP_LEASED)
        note_held(stream, step, now);
    trace(loader, stream, step, now);
    give_back(loader, stream, step);
    return true;
}

bool loader_pin(struct loader *loader, struct stream *stream, uint64_t number, uint64_t now)
{
    struct step *step = stream_lease(stream, number);

    (void)loader;
    if (!step)
        return false;
    if (step->state == STEP_LEASED) {
        step->pinned_ns = max_u64(now, step->delivered_ns);
        note_held(stream, step, step->pinned_ns);
    }
    stream_pin(stream, step);
    return true;
}
