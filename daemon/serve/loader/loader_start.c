/* Streams that read from a loader: how they begin, and their clients' requests. */
#include "daemon/base/blame.h"
#include "daemon/plan/plan_lazy.h"
#include "daemon/serve/loader/loader_private.h"

#include <errno.h>

#include <utlist.h>

/* ---- plans ----------------------------------------------------------------------------------- */

/* Its steps are parts of the shared ones, but count from where another world has left the epoch: in
 * samples, that may be within a shared one. Such a job has its batches for itself. */
static bool start_counts_apart(const struct stream_params *params)
{
    return params->slices.n > 0 && params->before.n > 0 && !params->round;
}

/* What of a stream's parameters the loader knows. */
static void start_complete_params(const struct loader *loader, struct stream_params *params)
{
    if (params->credits == 0)
        params->credits = loader_credits(loader);
    params->steps = STEPS_UNKNOWN;
    params->replicas = loader->core.iterable ? loader->spec.workers : 0;
    params->any_order = !spec_is_in_order(&loader->spec);
    params->bypass = params->replicas ? UINT64_MAX : spec_bypass(&loader->spec);
    params->fed = loader->spec.sampler == SAMPLER_CLIENT;
    params->companion = loader->spec.share_window > 0 && !start_counts_apart(params);
}

struct plan_params loader_plan_params(const struct loader *loader)
{
    struct plan_params plan = plan_params_of(&loader->spec, loader->core.length);

    plan.mix.sizes = loader->sizes;
    plan_set_changes(&plan, loader->changes);
    if (loader->lengths)
        plan.tokens.lengths = loader->lengths->values;
    return plan;
}

/* By the mark that its client has; where that is none of this order, or behind its first step, from
 * the first window on. */
static int start_ref_epoch(struct loader *loader, const struct stream_params *params,
                           struct plan_params *plan, struct epoch **ret, struct dl_error *err)
{
    plan->tokens.mark = params->mark;
    if (params->mark.window > 0 && plan->tokens.lazy > 0 &&
        plan_first_step(plan) <= params->first &&
        epoch_ref(&loader->epochs, plan, loader->lengths, ret, err) == 0)
        return 0;
    plan->tokens.mark = (struct lazy_mark){0};
    *err = (struct dl_error){0};
    return epoch_ref(&loader->epochs, plan, loader->lengths, ret, err);
}

int loader_ref_plan(struct loader *loader, const struct stream_params *params, struct epoch **ret,
                    struct dl_error *err)
{
    struct plan_params plan = loader_plan_params(loader);
    uint64_t count;

    if (params->slices.n > 0) {
        plan.batch_size = params->slices.size;
        plan.drop_last = params->slices.drop_last;
    }
    plan.before = params->before;
    plan.epoch = params->epoch;
    plan.world = params->world;
    struct dl_error why = {0};
    int r = plan_check_changes(&plan, err);
    if (r < 0)
        return r;
    r = start_ref_epoch(loader, params, &plan, ret, &why);

    if (why.code != 0) {
        if (err)
            *err = why;
        return r;
    }
    if (r == -EINVAL && plan_is_mix(&plan) &&
        plan_mix_count(&plan.mix, plan.epoch, &count, err) < 0)
        return r; /* in its words */
    if (r == -ENOMEM && loader->spec.order == ORDER_TORCH)
        return dl_error_set(err, ENOMEM, "sampler.order",
                            "torch needs memory for each sample of an epoch, more than the "
                            "system has; write order: native");
    if (r < 0)
        return dl_error_set(err, -r, "epoch", "the plan cannot be made: %s", strerror(-r));
    return 0;
}

/* How many steps the stream has; 1: its plan is not yet worked out. */
static int start_settle(struct loader *loader, struct stream *stream, struct dl_error *err)
{
    if (stream_is_settled(stream))
        return 0;
    int r = epoch_work_out(stream->epoch, loader_on_planned, loader);
    if (r == 1)
        return 1;
    if (r < 0)
        return dl_error_set(err, -r, "epoch", "the plan cannot be computed: %s", strerror(-r));
    if (plan_is_lazy(stream->plan)) {
        loader_join_windows(loader, stream);
        return 0;
    }
    return core_settle(&loader->core, stream, plan_steps(stream->plan, stream->params.rank), err);
}

/* PyTorch's len(loader), for this rank. */
static struct loader_extent start_extent_of(const struct loader *loader,
                                            const struct stream *stream)
{
    const struct stream_params *params = &stream->params;

    if (stream->by_windows) /* said of a stream that begins late as of one that began early */
        return (struct loader_extent){STEPS_UNKNOWN, STEPS_UNKNOWN};
    if (stream->plan)
        return (struct loader_extent){params->steps, plan_samples(stream->plan, params->rank)};
    if (!params->replicas || loader->core.length == STEPS_UNKNOWN)
        return (struct loader_extent){STEPS_UNKNOWN, STEPS_UNKNOWN};
    struct plan_params plan = plan_params_of(&loader->spec, loader->core.length);
    plan.world = params->world;
    struct plan_extent extent = plan_estimate(&plan, params->rank);
    return (struct loader_extent){extent.steps, extent.samples};
}

uint64_t loader_expected_steps(const struct loader *loader, const struct stream *stream)
{
    if (stream->plan && !stream->by_windows) /* which may not be worked out yet */
        return stream->params.steps;
    return stream->params.expected ? stream->params.expected
                                   : start_extent_of(loader, stream).steps;
}

static void start_on_worked_out(struct loader *loader, struct stream *stream)
{
    struct dl_error err = {0};
    int r = start_settle(loader, stream, &err);

    if (r == 1)
        return;
    if (r == 0 && stream->sink) {
        struct loader_extent extent = start_extent_of(loader, stream);
        loader_weigh_fair(loader);
        loader->o.events->started(stream, &extent, NULL);
    } else if (r < 0 && stream->sink) {
        core_refuse(&loader->core, stream, &err);
    } else if (r < 0) {
        core_end(&loader->core, stream);
    }
}

void loader_on_planned(void *owner)
{
    struct loader *loader = owner;
    BLAMING(loader->o.blame);
    struct stream *stream, *next;

    DL_FOREACH_SAFE (loader->core.streams, stream, next) {
        if (!stream_is_settled(stream) && stream->phase != STREAM_STOPPED)
            start_on_worked_out(loader, stream);
    }
    core_planned(&loader->core);
    loader_execute(loader);
    loader_pump(loader);
}

/* ---- beginning ------------------------------------------------------------------------------- */

int loader_add_stream(struct loader *loader, const struct stream_params *params,
                      struct stream **ret, struct dl_error *err)
{
    struct epoch *epoch = NULL;
    int r = spec_check_world(&loader->spec, params->world, err);

    if (r == 0)
        r = spec_check_history(&loader->spec, &params->before, err);
    if (r == 0)
        r = quota_charge(loader->o.pool.account, QUOTA_EPOCHS, 1, err);
    if (r < 0)
        return r;
    if (!params->replicas && !params->fed)
        r = loader_ref_plan(loader, params, &epoch, err);
    if (r < 0) {
        quota_return(loader->o.pool.account, QUOTA_EPOCHS, 1);
        return r;
    }
    *ret = core_add(&loader->core, params, epoch, epoch ? epoch_plan(epoch) : NULL);
    loader_hold_stream(loader, *ret);
    r = start_settle(loader, *ret, err);
    if (r < 0)
        core_end(&loader->core, *ret);
    return r;
}

/* Where batches are dispatched or shared, a rank needs a source. */
static int start_join(struct loader *loader, struct stream *stream, struct dl_error *err)
{
    struct core *core = &loader->core;
    struct stream *source = core_find_source(core, stream);
    int r;

    if (!source) {
        struct stream_params params = core_source_params(&stream->params, loader_credits(loader));
        r = loader_add_stream(loader, &params, &source, err);
        if (r < 0)
            return r;
        r = core_add_source(core, source, stream, err);
        if (r < 0) {
            core_end(core, source);
            return r;
        }
    }
    core_join(core, stream, source, uv_hrtime());
    return 0;
}

/* With its source, if it needs one; -EDQUOT, -ENOMEM: nothing is left of it. */
static int start_add_joined(struct loader *loader, const struct stream_params *params,
                            struct stream **ret, struct dl_error *err)
{
    int r = loader_add_stream(loader, params, ret, err);

    if (r < 0 || (loader->spec.shard != SHARD_DISPATCH && !params->sharers && !params->companion))
        return r;
    int joined = start_join(loader, *ret, err);
    if (joined < 0)
        core_end(&loader->core, *ret);
    return joined < 0 ? joined : r;
}

/* A requested stream: if room is short, expected and parked ones are dropped. */
static int start_make_wanted(struct loader *loader, const struct stream_params *params,
                             struct stream **ret, struct dl_error *err)
{
    int r = start_add_joined(loader, params, ret, err);

    while ((r == -EDQUOT || r == -ENOMEM) && core_make_way(&loader->core)) {
        loader_execute(loader);
        r = start_add_joined(loader, params, ret, err);
    }
    return r;
}

/* As loader_start(), before what the core has decided is done. */
static int start_found(struct loader *loader, struct stream_params *params, void *sink,
                       struct stream **ret, struct dl_error *err)
{
    struct core *core = &loader->core;
    int r = core_agree(core, params, err);

    if (r < 0)
        return r;
    *ret = core_take(core, params);
    loader_execute(loader); /* what it has dropped is not charged any more */
    if (!*ret && (r = start_make_wanted(loader, params, ret, err)) < 0)
        return r;
    loader_mark_start(loader);
    core_begin(core, *ret, params, sink, uv_hrtime());
    loader_weigh_fair(loader);
    loader_lately_begin(loader, *ret);
    return 0;
}

/* What jobs that share their batches cannot have, besides what their spec would say. */
static int start_check_companion(const struct stream_params *params, struct dl_error *err)
{
    const char *what = params->sharers    ? "replicas, which already share their batches"
                       : params->replicas ? "an iterable dataset, whose workers read it only once"
                       : params->round    ? "the cluster's world, whose nodes divide the ranks"
                                          : NULL;

    return what ? dl_error_set(err, EINVAL, "share.window",
                               "does not work with %s; leave share out", what)
                : 0;
}

/* What several clients that read the same batches cannot have. */
static int start_check_sharing(const struct loader *loader, const struct stream_params *params,
                               struct dl_error *err)
{
    const char *what = NULL;

    if (params->companion)
        return start_check_companion(params, err);
    if (!params->sharers)
        return 0;
    if (loader->spec.shard == SHARD_DISPATCH)
        what = "shard.mode dispatch, which loads each batch once for all ranks already; write "
               "another mode";
    else if (params->fed)
        what = "sampler.kind client, whose client gives each rank's samples; write another kind";
    else if (params->any_order)
        what = "workers.in_order: false or bypass, as all replicas get the same batches; leave it "
               "out";
    else if (loader->spec.writable)
        what = "memory.writable: true, as one would read what another has written; write false";
    return what ? dl_error_set(err, EINVAL, "replicas", "%u do not go with %s", params->sharers,
                               what)
                : 0;
}

int loader_start(struct loader *loader, const struct stream_params *wanted, void *sink,
                 struct stream **ret, struct loader_extent *ret_extent, struct dl_error *err)
{
    struct stream_params params = *wanted;

    if (loader->state == LOADER_BROKEN) {
        *err = loader->why_broken;
        return -err->code;
    }
    start_complete_params(loader, &params);
    if (params.before.n > 0 && (params.replicas || params.fed))
        return dl_error_set(err, EINVAL, "before",
                            "%u earlier world sizes, but another number of ranks cannot "
                            "continue an iterable dataset or a sampler of kind client",
                            params.before.n);
    int r = start_check_sharing(loader, &params, err);
    if (r < 0)
        return r;
    r = start_found(loader, &params, sink, ret, err);
    if (r == 0)
        loader_wake(loader);
    loader_execute(loader);
    if (r < 0)
        return r;
    if (!stream_is_settled(*ret))
        return 1;
    *ret_extent = start_extent_of(loader, *ret);
    return 0;
}

/* Where batches are dispatched it is the source that loads. Ranks that join it later know the same,
 * or less. */
int loader_bring_dataset_states(struct loader *loader, struct stream *stream,
                                struct dataset_states *states, struct dl_error *err)
{
    struct stream *loads = stream->source ? stream->source : stream;

    if (states->n == 0 || stream->params.first == 0)
        return 0;
    stream->told |= TOLD_PASSING; /* it does not pass over what lies before them */
    if (loads->states.n > 0)
        return 0;
    loads->states = *states;
    *states = (struct dataset_states){0};
    return core_pay(&loader->core, loads, err);
}

/* ---- what clients do ------------------------------------------------------------------------- */

int loader_feed(struct loader *loader, struct stream *stream, const uint8_t *indices, uint32_t n,
                bool end, struct dl_error *err)
{
    return core_feed(&loader->core, stream, indices, n, end, err);
}

void loader_pause(struct loader *loader, struct stream *stream)
{
    core_pause(&loader->core, stream);
}

void loader_resume(struct loader *loader, struct stream *stream, uint64_t limit)
{
    core_go_on(&loader->core, stream, limit);
}

/* A reader that leaves in the middle of an epoch also asks for the verdict afterwards. */
static void start_note_leaving(struct loader *loader, struct stream *stream)
{
    loader_lately_end(loader, stream);
    if (stream->phase != STREAM_STOPPED && !(stream->told & TOLD_END))
        loader_note_verdict(loader, NULL);
}

void loader_stop(struct loader *loader, struct stream *stream)
{
    start_note_leaving(loader, stream);
    core_stop(&loader->core, stream);
    loader_weigh_fair(loader);
    loader_execute(loader);
}

void loader_end(struct loader *loader, struct stream *stream)
{
    if (!stream)
        return;
    start_note_leaving(loader, stream);
    core_end(&loader->core, stream);
    loader_weigh_fair(loader);
    loader_execute(loader);
}

void loader_lose(struct loader *loader, struct stream *stream)
{
    bool may_park = loader->state == LOADER_OPEN && !loader->halted;

    start_note_leaving(loader, stream);
    core_lose(&loader->core, stream, may_park, uv_hrtime());
    loader_weigh_fair(loader);
    loader_execute(loader);
}
