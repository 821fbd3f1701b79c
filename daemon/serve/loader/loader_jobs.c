#include "daemon/serve/base/memory.h"
#include "daemon/serve/loader/loader_private.h"
#include "daemon/serve/loader/ranks.h"

#include <errno.h>

#include <utlist.h>

enum { PARKED_MAX = 64 };

typedef unsigned long long ull; /* for printf */

/* ---- agreement ------------------------------------------------------------------------------ */

/* A client is in the middle of it. */
static bool is_under_way(const struct stream *stream)
{
    return stream->sink && !stream->stopped && !stream_done(stream);
}

static int check_ranks(struct loader *loader, const struct stream_params *params,
                       struct dl_error *err)
{
    _cleanup_free_ struct rank_claim *others = NULL;
    const struct rank_claim one = {params->job,   params->world, params->rank,
                                   params->epoch, params->owner, params->round};
    const struct stream *stream;
    size_t n = 0;

    DL_FOREACH (loader->streams, stream) {
        n++;
    }
    if (n == 0)
        return 0;
    others = must_alloc(n * sizeof *others);
    n = 0;
    DL_FOREACH (loader->streams, stream) {
        const struct stream_params *p = &stream->params;

        if (is_under_way(stream))
            others[n++] =
                (struct rank_claim){p->job, p->world, p->rank, p->epoch, p->owner, p->round};
    }
    return ranks_check(others, n, &one, err);
}

/* Steps of an epoch that other world sizes have begun mean nothing without its history, which only
 * a state has. */
static bool is_known(const struct stream_params *params)
{
    return params->before.n == 0;
}

static int find_position(struct loader *loader, struct stream_params *params, struct dl_error *err)
{
    const struct position *position =
        positions_find(&loader->positions, params->job, params->rank, params->world);
    const struct stream *stream;

    DL_FOREACH (loader->streams, stream) {
        if (is_under_way(stream) && stream->params.rank == params->rank &&
            strcmp(stream->params.job, params->job) == 0)
            return dl_error_set(err, EBUSY, "rank",
                                "rank %llu of job \"%s\" is reading epoch %llu, so there is "
                                "nothing to resume; end that one first",
                                (ull)params->rank, params->job, (ull)stream->params.epoch);
    }
    if (!position)
        return dl_error_set(err, ENOENT, "job",
                            "nothing is known of rank %llu of %llu of job \"%s\" with this loader; "
                            "start an epoch by its number",
                            (ull)params->rank, (ull)params->world, params->job);
    params->epoch = position->epoch;
    params->first = position->step;
    return 0;
}

int loader_agree(struct loader *loader, struct stream_params *params, struct dl_error *err)
{
    int r = 0;

    if (params->epoch == EPOCH_RESUME && !params->job[0])
        return dl_error_set(err, EINVAL, "job", "resuming needs the job's name");
    if (params->epoch == EPOCH_RESUME)
        r = find_position(loader, params, err);
    return r < 0 ? r : check_ranks(loader, params, err);
}

void loader_note_start(struct loader *loader, const struct stream_params *p)
{
    if (!p->job[0])
        return;
    if (is_known(p))
        positions_set(&loader->positions, p->job, p->rank, p->world, p->epoch, p->first);
    else
        positions_forget(&loader->positions, p->job, p->rank, p->world);
}

/* ---- clients that are gone ------------------------------------------------------------------- */

void loader_note_stop(struct loader *loader, const struct stream *stream)
{
    const struct stream_params *p = &stream->params;
    bool done = stream_done(stream);

    if (!p->job[0] || !stream->sink || !is_known(p))
        return;
    const struct position *known = positions_find(&loader->positions, p->job, p->rank, p->world);
    if (!known || known->epoch <= p->epoch) /* else the rank is in a later one already */
        positions_set(&loader->positions, p->job, p->rank, p->world, p->epoch + done,
                      done ? 0 : stream_position(stream));
}

/*
 * Whether what is loaded can be of use. A batch that is made anew has to be the same: what a client
 * feeds is its own to say, replicas do not go back to single steps, and in any order steps behind
 * gaps could be made twice. A dispatched rank that is not there must not hold the others up.
 */
static bool may_park(const struct loader *loader, const struct stream *stream)
{
    const struct stream_params *p = &stream->params;

    return loader->state == LOADER_OPEN && !loader->halted && loader->o.config->linger > 0 &&
           !stream->unsettled && !p->fed && !stream->dispatcher && !stream_done(stream) &&
           !((p->replicas || p->any_order) && stream_has_gaps(stream));
}

/* The lease ends. What it was on is READY again, or is made again where the client may have changed
 * it or its segment is to go. */
static void recall(struct loader *loader, struct stream *stream, struct step *step)
{
    struct segment *segment = step->segment;
    bool keep = segment->active && !segment->writable;
    uint32_t slot = step->slot;

    quota_return(loader->o.account, QUOTA_LEASES, 1);
    stream_recall(stream, step);
    if (!keep)
        loader_run_again(loader, step);
    pool_slot(loader->pool, segment, slot, keep ? SLOT_RECALL : SLOT_RELEASE);
}

static void park(struct loader *loader, struct stream *stream)
{
    struct step *step;
    struct step *next;

    stream->sink = NULL;
    stream->parked = true;
    stream->parked_ns = uv_hrtime();
    HASH_ITER (hh, stream->steps, step, next) {
        if (step->state == STEP_LEASED || step->state == STEP_PINNED)
            recall(loader, stream, step);
    }
    stream_rewind(stream);
    if (++loader->parked > PARKED_MAX)
        loader_drop_parked(loader, false);
}

void loader_lose(struct loader *loader, struct stream *stream)
{
    const struct stream_params *p = &stream->params;

    stream->lost = !stream_done(stream);
    if (!p->job[0] || stream->stopped || !is_known(p)) {
        loader_end(loader, stream);
        return;
    }
    positions_lose(&loader->positions, p->job, p->rank, p->world, p->epoch, stream_position(stream),
                   stream_done(stream));
    if (may_park(loader, stream)) {
        park(loader, stream);
        return;
    }
    stream->sink = NULL; /* it has not stopped of its client's will */
    loader_end(loader, stream);
}

/* ---- parked streams -------------------------------------------------------------------------- */

static void unpark(struct loader *loader, struct stream *stream)
{
    stream->parked = false;
    loader->parked--;
}

static void drop(struct loader *loader, struct stream *stream)
{
    unpark(loader, stream);
    loader_end(loader, stream);
}

struct stream *loader_take_parked(struct loader *loader, const struct stream_params *params)
{
    struct stream *stream;
    struct stream *next;
    struct stream *found = NULL;

    if (!params->job[0] || loader->parked == 0)
        return NULL;
    DL_FOREACH_SAFE (loader->streams, stream, next) {
        const struct stream_params *p = &stream->params;
        bool ours = stream->parked && strcmp(p->job, params->job) == 0;

        if (ours && p->world == params->world && p->rank == params->rank &&
            p->epoch == params->epoch && p->first == params->first && !found)
            found = stream;
        else if (ours && (p->world != params->world ||
                          (p->rank == params->rank && p->epoch <= params->epoch)))
            drop(loader, stream);
    }
    if (found)
        unpark(loader, found);
    return found;
}

bool loader_drop_parked(struct loader *loader, bool all)
{
    bool any = loader->parked > 0;
    struct stream *stream;

    while (loader->parked > 0) {
        struct stream *first = NULL;

        DL_FOREACH (loader->streams, stream) {
            if (stream->parked && (!first || stream->parked_ns < first->parked_ns))
                first = stream;
        }
        drop(loader, first);
        if (!all)
            break;
    }
    return any;
}

void loader_expire_parked(struct loader *loader)
{
    struct stream *stream;
    struct stream *next;

    if (loader->parked == 0)
        return;
    DL_FOREACH_SAFE (loader->streams, stream, next) {
        if (stream->parked && uv_hrtime() - stream->parked_ns > loader->o.config->linger)
            drop(loader, stream);
    }
}
