#include "daemon/cluster/progress/account.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

/* Where the node's share ends: at the point where others took over, or with the epoch. */
static const struct progress_point *account_find_end(const struct account_absence *absence,
                                                     const struct progress_point *end)
{
    bool same = absence->has_to && absence->to.pass == end->pass && absence->to.epoch == end->epoch;

    return same ? &absence->to : end;
}

bool account_missing(const struct account_absence *absence, const struct progress_point *end,
                     struct account_range *ret)
{
    const struct progress_point *from = &absence->from, *to = account_find_end(absence, end);

    *ret = (struct account_range){0};
    if (from->pass != to->pass || from->epoch != to->epoch ||
        progress_compare(from, to) != PROGRESS_BEFORE)
        return false;
    for (uint32_t i = 0; i < to->history.n; i++) {
        const struct history_stretch *stretch = &to->history.stretches[i];
        uint64_t had = i < from->history.n ? from->history.stretches[i].steps : 0;

        if (had >= stretch->steps)
            continue;
        ret->steps += stretch->steps - had;
        ret->world = stretch->world;
        ret->from = had;
        ret->to = stretch->steps;
    }
    assert(ret->steps == 0 || (ret->world > 0 && ret->from < ret->to));
    return ret->steps > 0;
}

void account_turn(struct account_absence *absence, const struct progress_point *at)
{
    struct progress_point *from = &absence->from, *to = &absence->to, turn = *at;

    if (from->epoch != at->epoch || from->pass >= at->pass)
        return;
    turn.pass = from->pass;
    if (!absence->has_to || progress_compare(&turn, to) == PROGRESS_BEFORE)
        *to = turn;
    if (progress_compare(from, to) != PROGRESS_BEFORE)
        *from = *to;
    absence->has_to = true;
    from->pass = to->pass = at->pass;
    assert(progress_compare(from, to) != PROGRESS_AFTER);
}

uint64_t account_samples(const struct account_absence *absence, const struct account_range *range,
                         uint64_t batch)
{
    uint64_t steps, samples;

    if (mul_overflows(range->steps, absence->local, &steps) ||
        mul_overflows(steps, batch, &samples))
        return UINT64_MAX;
    return samples;
}

void account_text(const struct account_absence *absence, const struct account_range *range,
                  char ret[static ACCOUNT_TEXT_MAX])
{
    char ranks[96];

    assert(absence->local > 0 && range->to > range->from);
    if (range->world != absence->world)
        (void)snprintf(ranks, sizeof ranks, "%" PRIu64 " of %" PRIu64 " ranks", absence->local,
                       range->world);
    else if (absence->local == 1)
        (void)snprintf(ranks, sizeof ranks, "rank %" PRIu64 " of %" PRIu64, absence->first,
                       range->world);
    else
        (void)snprintf(ranks, sizeof ranks, "ranks %" PRIu64 " to %" PRIu64 " of %" PRIu64,
                       absence->first, absence->first + absence->local - 1, range->world);
    (void)snprintf(ret, ACCOUNT_TEXT_MAX, "%s on node %s, steps %" PRIu64 " to %" PRIu64, ranks,
                   absence->node, range->from, range->to - 1);
}
