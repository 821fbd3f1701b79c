#include "daemon/serve/core/jobs.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- agreement ------------------------------------------------------------------------------- */

static bool ranks_are_compared(const struct stream_params *a, const struct stream_params *b)
{
    return a->round == b->round && strcmp(a->job, b->job) == 0 &&
           (a->job[0] || (a->world == b->world && a->world > 1));
}

static int ranks_check_world(const struct stream_params *other, const struct stream_params *one,
                             struct dl_error *err)
{
    if (other->world == one->world)
        return 0;
    return dl_error_set(err, EINVAL, "world",
                        "rank %llu of job \"%s\" has a world of %llu ranks, but its rank %llu, "
                        "which is reading, has one of %llu; give all the same number, or "
                        "another job name",
                        (ull)one->rank, one->job, (ull)one->world, (ull)other->rank,
                        (ull)other->world);
}

static int ranks_check_reader(const struct stream_params *other, const struct stream_params *one,
                              struct dl_error *err)
{
    if (!one->job[0] || other->rank != one->rank || other->epoch != one->epoch ||
        other->owner == one->owner)
        return 0;
    if (other->sharers != one->sharers)
        return dl_error_set(
            err, EINVAL, "replicas",
            "rank %llu of job \"%s\" is read by %u replicas in another session, and "
            "here by %u; give all of them the same number",
            (ull)one->rank, one->job, other->sharers ? other->sharers : 1,
            one->sharers ? one->sharers : 1);
    if (other->sharer != one->sharer)
        return 0;
    return dl_error_set(err, EBUSY, "rank",
                        "rank %llu of job \"%s\" already reads epoch %llu in another session; "
                        "end that session, or give this job another name",
                        (ull)one->rank, one->job, (ull)one->epoch);
}

/* The other stream is in its rank's latest epoch. */
static bool ranks_is_latest(const struct stream_params *const *others, size_t n,
                            const struct stream_params *other)
{
    for (size_t i = 0; i < n; i++)
        if (ranks_are_compared(others[i], other) && others[i]->rank == other->rank &&
            others[i]->sharer == other->sharer && others[i]->epoch > other->epoch)
            return false;
    return true;
}

static int ranks_check_epoch(const struct stream_params *const *others, size_t n,
                             const struct stream_params *other, const struct stream_params *one,
                             struct dl_error *err)
{
    uint64_t apart =
        other->epoch > one->epoch ? other->epoch - one->epoch : one->epoch - other->epoch;

    /* Checked last: it scans all others, of which there may be a thousand. */
    if ((other->rank == one->rank && other->sharer == one->sharer) || apart <= 1 ||
        !ranks_is_latest(others, n, other))
        return 0;
    return dl_error_set(
        err, EINVAL, "epoch",
        "rank %llu of %llu starts epoch %llu while rank %llu of %llu is in epoch "
        "%llu%s%s; ranks of a job are at most one epoch apart: start all of them at "
        "the same one",
        (ull)one->rank, (ull)one->world, (ull)one->epoch, (ull)other->rank, (ull)other->world,
        (ull)other->epoch, one->job[0] ? " of job " : "", one->job);
}

int ranks_check(const struct stream_params *const *others, size_t n,
                const struct stream_params *one, struct dl_error *err)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        if (!ranks_are_compared(others[i], one))
            continue;
        r = ranks_check_world(others[i], one, err);
        if (r == 0)
            r = ranks_check_reader(others[i], one, err);
        if (r == 0)
            r = ranks_check_epoch(others, n, others[i], one, err);
    }
    return r;
}

/* ---- positions ------------------------------------------------------------------------------- */

/* What room for `cap` positions costs. */
static uint64_t positions_cost(uint32_t cap)
{
    return cap > POSITIONS_FREE ? (cap - POSITIONS_FREE) * sizeof(struct position) : 0;
}

/* Whether that much room may be paid for. A failure is not counted as a refusal: no client
 * asked. */
static bool positions_pay(const struct positions *positions, uint32_t cap)
{
    uint64_t more = positions_cost(cap) - positions_cost(positions->cap);

    return !positions->account ||
           (quota_check(positions->account, QUOTA_OVERHEAD, more, NULL) == 0 &&
            quota_charge(positions->account, QUOTA_OVERHEAD, more, NULL) == 0);
}

void positions_deinit(struct positions *positions)
{
    if (positions->account)
        quota_return(positions->account, QUOTA_OVERHEAD, positions_cost(positions->cap));
    free(positions->all);
    *positions = (struct positions){0};
}

static bool positions_is_of_job(const struct position *at, const struct stream_params *p)
{
    return at->world == p->world && at->size == p->slices.size && strcmp(at->job, p->job) == 0;
}

struct position *positions_find(const struct positions *positions, const struct stream_params *rank)
{
    for (uint32_t i = 0; i < positions->count; i++) {
        struct position *at = &positions->all[i];

        if (at->rank == rank->rank && at->sharer == rank->sharer && at->sharers == rank->sharers &&
            positions_is_of_job(at, rank))
            return at;
    }
    return NULL;
}

const struct position *positions_find_other_world(const struct positions *positions,
                                                  const struct stream_params *rank)
{
    const struct position *found = NULL;

    for (uint32_t i = 0; i < positions->count; i++) {
        const struct position *at = &positions->all[i];

        if (positions_is_of_job(at, rank))
            return NULL;
        if (strcmp(at->job, rank->job) == 0 && (!found || at->noted > found->noted))
            found = at;
    }
    return found;
}

/* Forgets the rank's position under another number of sharers: its job would be levelled to
 * that. */
static void positions_drop_regrouped(struct positions *positions, const struct stream_params *rank)
{
    for (uint32_t i = positions->count; i-- > 0;) {
        struct position *at = &positions->all[i];

        if (at->rank == rank->rank && at->sharers != rank->sharers && positions_is_of_job(at, rank))
            *at = positions->all[--positions->count];
    }
}

static const struct position *positions_least(const struct positions *positions,
                                              const struct stream_params *rank)
{
    const struct position *least = NULL;

    for (uint32_t i = 0; i < positions->count; i++) {
        const struct position *at = &positions->all[i];

        if (positions_is_of_job(at, rank) &&
            (!least || at->epoch < least->epoch ||
             (at->epoch == least->epoch && at->step < least->step)))
            least = at;
    }
    return least;
}

void positions_level(struct positions *positions, const struct stream_params *rank)
{
    const struct position *least = positions_least(positions, rank);

    for (uint32_t i = 0; least && i < positions->count; i++) {
        struct position *at = &positions->all[i];

        if (!positions_is_of_job(at, rank))
            continue;
        at->epoch = least->epoch;
        at->step = least->step;
    }
}

static struct position *positions_oldest(const struct positions *positions)
{
    struct position *found = &positions->all[0];

    for (uint32_t i = 1; i < positions->count; i++)
        if (positions->all[i].noted < found->noted)
            found = &positions->all[i];
    return found;
}

static struct position *positions_add(struct positions *positions)
{
    if (positions->count == POSITIONS_MAX)
        return positions_oldest(positions);
    if (positions->count == positions->cap) {
        uint32_t cap = positions->cap ? positions->cap * 2 : POSITIONS_FREE;
        if (!positions_pay(positions, cap))
            return positions_oldest(positions);
        struct position *grown = must_alloc(cap * sizeof *grown);

        if (positions->count > 0)
            memcpy(grown, positions->all, positions->count * sizeof *grown);
        free(positions->all);
        positions->all = grown;
        positions->cap = cap;
    }
    return &positions->all[positions->count++];
}

/* The entry, new if need be: then `lost` is false and the rest is for the caller. */
static struct position *positions_need(struct positions *positions,
                                       const struct stream_params *rank)
{
    struct position *at = positions_find(positions, rank);

    if (!at) {
        positions_drop_regrouped(positions, rank);
        at = positions_add(positions);
        *at = (struct position){.rank = rank->rank,
                                .world = rank->world,
                                .size = rank->slices.size,
                                .sharer = rank->sharer,
                                .sharers = rank->sharers};
        memcpy(at->job, rank->job, sizeof at->job);
    }
    at->noted = ++positions->notes;
    return at;
}

void positions_set(struct positions *positions, const struct stream_params *rank, uint64_t epoch,
                   uint64_t step)
{
    struct position *at = positions_need(positions, rank);

    at->epoch = epoch;
    at->step = step;
    at->lost = false;
}

void positions_lose(struct positions *positions, const struct stream_params *rank, uint64_t step,
                    bool done)
{
    struct position *at = positions_need(positions, rank);
    uint64_t epoch = rank->epoch;
    bool earlier = epoch < at->epoch || (epoch == at->epoch && step < at->step);

    /* A finished epoch is the place to resume only if no other was being read. */
    if ((at->lost && (done || !earlier)) || (done && at->epoch > epoch))
        return;
    at->epoch = done ? epoch + 1 : epoch;
    at->step = done ? 0 : step;
    at->lost = !done;
}

void positions_forget(struct positions *positions, const struct stream_params *rank)
{
    struct position *at = positions_find(positions, rank);

    if (at)
        *at = positions->all[--positions->count];
}
