/* Jobs: ranks that agree, and clients that come back. */
#include "daemon/serve/core/core_private.h"

enum { PARKED_MAX = 64 };

/* ---- agreement ------------------------------------------------------------------------------- */

/* A client is in the middle of it. */
static bool jobs_is_under_way(const struct stream *stream)
{
    return stream->sink && stream->phase != STREAM_STOPPED && !stream_done(stream);
}

static int jobs_check_ranks(const struct core *core, const struct stream_params *params,
                            struct dl_error *err)
{
    const struct stream *stream;
    size_t streams, n = 0;

    DL_COUNT(core->streams, stream, streams);
    _cleanup_free_ const struct stream_params **others = must_alloc((streams + 1) * sizeof *others);
    DL_FOREACH (core->streams, stream) {
        if (jobs_is_under_way(stream))
            others[n++] = &stream->params;
    }
    return ranks_check(others, n, params, err);
}

/* Steps of an epoch that other world sizes have begun mean nothing without its history, which only
 * a state has. */
static bool jobs_is_known(const struct stream_params *params)
{
    return params->before.n == 0;
}

/* Whether another rank of the job reads. -EBUSY: this one does. */
static int jobs_check_readers(const struct core *core, const struct stream_params *params,
                              bool *ret_any, struct dl_error *err)
{
    const struct stream *stream;

    *ret_any = false;
    DL_FOREACH (core->streams, stream) {
        if (!jobs_is_under_way(stream) || strcmp(stream->params.job, params->job) != 0)
            continue;
        *ret_any = true;
        if (stream->params.rank == params->rank && stream->params.sharer == params->sharer)
            return dl_error_set(err, EBUSY, "rank",
                                "rank %llu of job \"%s\" is still reading epoch %llu; end that "
                                "epoch before you resume",
                                (ull)params->rank, params->job, (ull)stream->params.epoch);
    }
    return 0;
}

/* A step of another number of ranks, or of other batches, is another place in the epoch, so this is
 * not where it begins; and a beginning would give all samples before it again. */
static int jobs_refuse_unknown(const struct positions *positions,
                               const struct stream_params *params, struct dl_error *err)
{
    const struct position *other = positions_find_other_world(positions, params);

    if (other && other->world == params->world)
        return dl_error_set(
            err, ESTALE, "batch.size",
            "job \"%s\" was left at epoch %llu, step %llu of batches of %u samples, "
            "and its steps are not those of %u; resume with the former, or start an "
            "epoch by its number",
            params->job, (ull)other->epoch, (ull)other->step, other->size, params->slices.size);
    if (other)
        return dl_error_set(
            err, ESTALE, "world",
            "job \"%s\" was left by %llu ranks at epoch %llu, step %llu, and its "
            "steps are not those of %llu; resume with %llu ranks, by a saved state, "
            "which any number can take up, or start an epoch by its number",
            params->job, (ull)other->world, (ull)other->epoch, (ull)other->step, (ull)params->world,
            (ull)other->world);
    return dl_error_set(err, ENOENT, "job",
                        "the daemon does not know rank %llu of %llu of job \"%s\" with this "
                        "loader; start an epoch by its number",
                        (ull)params->rank, (ull)params->world, params->job);
}

static int jobs_find_position(struct core *core, struct stream_params *params, struct dl_error *err)
{
    struct positions *positions = &core->positions;
    bool others_read;
    int r = jobs_check_readers(core, params, &others_read, err);

    if (r < 0)
        return r;
    if (!others_read)
        positions_level(positions, params);
    const struct position *position = positions_find(positions, params);
    if (!position)
        return jobs_refuse_unknown(positions, params, err);
    params->epoch = position->epoch;
    params->first = position->step;
    return 0;
}

int core_agree(struct core *core, struct stream_params *params, struct dl_error *err)
{
    int r = 0;

    if (params->epoch == EPOCH_RESUME && !params->job[0])
        return dl_error_set(err, EINVAL, "job", "resuming needs the job's name");
    if (params->epoch == EPOCH_RESUME)
        r = jobs_find_position(core, params, err);
    return r < 0 ? r : jobs_check_ranks(core, params, err);
}

void core_note_start(struct core *core, const struct stream_params *p)
{
    if (!p->job[0])
        return;
    if (jobs_is_known(p))
        positions_set(&core->positions, p, p->epoch, p->first);
    else
        positions_forget(&core->positions, p);
}

void core_note_stop(struct core *core, const struct stream *stream)
{
    const struct stream_params *p = &stream->params;
    bool done = stream_done(stream);

    if (!p->job[0] || !stream->sink || !jobs_is_known(p))
        return;
    const struct position *known = positions_find(&core->positions, p);
    if (!known || known->epoch <= p->epoch) /* else the rank is in a later one already */
        positions_set(&core->positions, p, p->epoch + done, done ? 0 : stream_position(stream));
}

/* ---- clients that are gone ------------------------------------------------------------------- */

/*
 * Whether a parked stream's batches would be usable. Batches made again must be the same: a client
 * that feeds may feed other samples, replicas cannot go back by single steps, and with any order,
 * steps behind gaps could come twice. A lost dispatched rank must not hold up the others. What a
 * companion has may be in slots of others.
 */
static bool jobs_can_park(const struct core *core, const struct stream *stream)
{
    const struct stream_params *p = &stream->params;

    return core->o.linger_ns > 0 && stream_is_settled(stream) && !p->fed && !stream->source &&
           !p->companion && !stream_done(stream) &&
           !((p->replicas || p->any_order) && stream_has_gaps(stream));
}

/* The lease ends. What it was on is READY again, or is made again where the client may have changed
 * it or its segment is to go. */
static void jobs_recall(struct core *core, struct stream *stream, struct step *step)
{
    struct segment *segment = step->segment;
    uint32_t slot = step->slot;

    quota_return(core->o.account, QUOTA_LEASES, 1);
    stream_recall(stream, step);
    if (!segment) /* a fault */
        return;
    bool keep = segment->active && !segment->writable;
    core_count_lease(core, stream, -1);
    if (!keep)
        core_run_again(core, step);
    core_slot(core, segment, slot, keep ? SLOT_RECALL : SLOT_RELEASE);
}

static void jobs_park(struct core *core, struct stream *stream, uint64_t now)
{
    const struct stream *parked;
    struct step *step, *next;
    uint32_t n;

    core_cancel(core, stream, NULL);
    HASH_ITER (hh, stream->steps, step, next) {
        if (step->state == STEP_LEASED || step->state == STEP_PINNED)
            jobs_recall(core, stream, step);
    }
    core_set_sink(core, stream, NULL);
    stream_rewind(stream);
    stream_become(stream, STREAM_PARKED);
    stream->parked_ns = now;
    core_enqueue(stream, &core->parked, false);
    DL_COUNT2(core->parked, parked, n, queue_next);
    if (n > PARKED_MAX)
        core_drop_oldest(core);
}

void core_lose(struct core *core, struct stream *stream, bool may_park, uint64_t now)
{
    const struct stream_params *p = &stream->params;
    bool done = stream_done(stream);

    if (p->job[0] && stream->phase != STREAM_STOPPED && jobs_is_known(p)) {
        positions_lose(&core->positions, p, stream_position(stream), done);
        if (may_park && jobs_can_park(core, stream)) {
            jobs_park(core, stream, now);
            return;
        }
    }
    core_end_as(core, stream, false, !done);
}

/* ---- parked streams -------------------------------------------------------------------------- */

struct stream *core_take_parked(struct core *core, const struct stream_params *params)
{
    struct stream *stream, *next, *found = NULL;

    if (!params->job[0])
        return NULL;
    DL_FOREACH_SAFE2(core->parked, stream, next, queue_next)
    {
        const struct stream_params *p = &stream->params;
        bool ours = strcmp(p->job, params->job) == 0;

        if (ours && p->world == params->world && p->rank == params->rank &&
            p->sharers == params->sharers && p->epoch == params->epoch &&
            p->first == params->first && !found &&
            (!p->any_order || passed_agree(&p->passed, &params->passed, params->first)))
            found = stream;
        else if (ours && (p->world != params->world ||
                          (p->rank == params->rank && p->epoch <= params->epoch)))
            core_end(core, stream);
    }
    if (!found)
        return NULL;
    core_enqueue(found, NULL, false);
    return found;
}

void core_drop_oldest(struct core *core)
{
    core_end(core, core->parked);
}
