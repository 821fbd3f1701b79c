#include "daemon/serve/core/ranks.h"

#include <errno.h>
#include <string.h>

typedef unsigned long long ull; /* for printf */

static bool are_compared(const struct rank_claim *a, const struct rank_claim *b)
{
    return a->round == b->round && strcmp(a->job, b->job) == 0 &&
           (a->job[0] || (a->world == b->world && a->world > 1));
}

static int check_world(const struct rank_claim *other, const struct rank_claim *one,
                       struct dl_error *err)
{
    if (other->world == one->world)
        return 0;
    return dl_error_set(err, EINVAL, "world",
                        "rank %llu of job \"%s\" says %llu ranks, and rank %llu of it, which is "
                        "reading, says %llu; give all the same number, or another job's name",
                        (ull)one->rank, one->job, (ull)one->world, (ull)other->rank,
                        (ull)other->world);
}

static int check_reader(const struct rank_claim *other, const struct rank_claim *one,
                        struct dl_error *err)
{
    if (!one->job[0] || other->rank != one->rank || other->epoch != one->epoch ||
        other->owner == one->owner)
        return 0;
    return dl_error_set(err, EBUSY, "rank",
                        "rank %llu of job \"%s\" reads epoch %llu already, in another session; end "
                        "that one, or give this job another name",
                        (ull)one->rank, one->job, (ull)one->epoch);
}

/* The epoch that the other one's rank is in is its latest. */
static bool is_latest(const struct rank_claim *others, size_t n, const struct rank_claim *other)
{
    for (size_t i = 0; i < n; i++)
        if (are_compared(&others[i], other) && others[i].rank == other->rank &&
            others[i].epoch > other->epoch)
            return false;
    return true;
}

static int check_epoch(const struct rank_claim *others, size_t n, const struct rank_claim *other,
                       const struct rank_claim *one, struct dl_error *err)
{
    uint64_t apart =
        other->epoch > one->epoch ? other->epoch - one->epoch : one->epoch - other->epoch;

    /* Asked last: it looks at all others, and there can be a thousand. */
    if (other->rank == one->rank || apart <= 1 || !is_latest(others, n, other))
        return 0;
    return dl_error_set(
        err, EINVAL, "epoch",
        "rank %llu of %llu starts epoch %llu while rank %llu of %llu is in epoch "
        "%llu%s%s; ranks of a job are at most one epoch apart: start all of them at "
        "the same one",
        (ull)one->rank, (ull)one->world, (ull)one->epoch, (ull)other->rank, (ull)other->world,
        (ull)other->epoch, one->job[0] ? " of job " : "", one->job);
}

int ranks_check(const struct rank_claim *others, size_t n, const struct rank_claim *one,
                struct dl_error *err)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        if (!are_compared(&others[i], one))
            continue;
        r = check_world(&others[i], one, err);
        if (r == 0)
            r = check_reader(&others[i], one, err);
        if (r == 0)
            r = check_epoch(others, n, &others[i], one, err);
    }
    return r;
}
