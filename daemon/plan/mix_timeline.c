/* The weights of a mixture all along its order. See mix_timeline.h. */
#include "daemon/plan/mix_timeline.h"

#include <assert.h>
#include <errno.h>

static uint32_t mix_timeline_changes(const struct mix_changes *changes)
{
    return changes ? changes->n_changes : 0;
}

/* From a change on. */
static struct mix_schedule mix_timeline_schedule(const struct mix_changes *changes,
                                                 struct mix_point *point, uint32_t i)
{
    *point = (struct mix_point){.weights = changes->items[i].weights};
    return (struct mix_schedule){.n = changes->n, .n_points = 1, .points = point};
}

static bool mix_timeline_fits(const struct mix_schedule *schedule,
                              const struct mix_changes *changes)
{
    return !changes || (!changes->of_samples && changes->n == schedule->n);
}

/* ---- weights only ---------------------------------------------------------------------------- */

int mix_timeline_init(struct mix_timeline *timeline, const struct mix_schedule *schedule,
                      const struct mix_changes *changes)
{
    uint32_t n_changes = mix_timeline_changes(changes);

    *timeline = (struct mix_timeline){.n = schedule->n};
    if (!mix_timeline_fits(schedule, changes))
        return -EINVAL;
    timeline->legs = calloc(1 + (size_t)n_changes, sizeof *timeline->legs);
    if (!timeline->legs)
        return -ENOMEM;
    int r = mix_shares_init(&timeline->legs[0].shares, schedule);
    timeline->n_legs = r == 0;
    for (uint32_t i = 0; r == 0 && i < n_changes; i++) {
        struct mix_point point;
        struct mix_schedule from = mix_timeline_schedule(changes, &point, i);

        timeline->legs[timeline->n_legs].begin = changes->items[i].position;
        r = mix_shares_init(&timeline->legs[timeline->n_legs].shares, &from);
        timeline->n_legs += r == 0;
    }
    assert(r < 0 || timeline->n_legs == 1 + n_changes);
    if (r < 0)
        mix_timeline_deinit(timeline);
    return r;
}

void mix_timeline_deinit(struct mix_timeline *timeline)
{
    for (uint32_t i = 0; i < timeline->n_legs; i++)
        mix_shares_deinit(&timeline->legs[i].shares);
    free(timeline->legs);
    *timeline = (struct mix_timeline){0};
}

uint64_t mix_timeline_bytes(const struct mix_timeline *timeline)
{
    uint64_t bytes = timeline->n_legs * sizeof *timeline->legs;

    for (uint32_t i = 0; i < timeline->n_legs; i++)
        bytes += mix_shares_bytes(&timeline->legs[i].shares);
    return bytes;
}

static const struct mix_leg *mix_timeline_leg(const struct mix_timeline *timeline, uint64_t at)
{
    uint32_t leg = timeline->n_legs - 1;

    assert(timeline->n_legs > 0);
    while (leg > 0 && timeline->legs[leg].begin > at)
        leg--;
    return &timeline->legs[leg];
}

struct mix_spot mix_timeline_spot(const struct mix_timeline *timeline, uint64_t position)
{
    const struct mix_leg *leg = mix_timeline_leg(timeline, position);
    uint64_t at = position - leg->begin;

    return (struct mix_spot){&leg->shares, mix_shares_stretch(&leg->shares, at), at};
}

struct mix_spot mix_timeline_spot_of(const struct mix_timeline *timeline, uint64_t epoch,
                                     uint64_t position)
{
    const struct mix_shares *shares = &mix_timeline_leg(timeline, epoch)->shares;

    return (struct mix_spot){shares, mix_shares_stretch(shares, position), position};
}

/* ---- exact orders ---------------------------------------------------------------------------- */

static int mix_legs_add(struct mix_legs *legs, const struct mix_changes *changes, uint64_t seed)
{
    struct mix_later *later = &legs->later[legs->n];
    struct mix_point point;
    struct mix_schedule from = mix_timeline_schedule(changes, &point, legs->n);

    later->begin = changes->items[legs->n].position;
    later->before = calloc(changes->n, sizeof *later->before);
    if (!later->before)
        return -ENOMEM;
    int r = mix_order_init(&later->order, &from, seed, later->begin);
    if (r < 0) {
        free(later->before);
        return r;
    }
    legs->n++;
    return 0;
}

int mix_legs_init(struct mix_legs *legs, const struct mix_schedule *schedule,
                  const struct mix_changes *changes, uint64_t seed, uint64_t epoch)
{
    uint32_t n_changes = mix_timeline_changes(changes);

    *legs = (struct mix_legs){.n = 0};
    if (!mix_timeline_fits(schedule, changes))
        return -EINVAL;
    int r = mix_order_init(&legs->first, schedule, seed, epoch);
    if (r < 0 || n_changes == 0)
        return r;
    legs->later = calloc(n_changes, sizeof *legs->later);
    r = legs->later ? 0 : -ENOMEM;
    while (r == 0 && legs->n < n_changes)
        r = mix_legs_add(legs, changes, seed);
    assert(r < 0 || legs->n == n_changes);
    if (r < 0)
        mix_legs_deinit(legs);
    return r;
}

void mix_legs_deinit(struct mix_legs *legs)
{
    for (uint32_t i = 0; i < legs->n; i++) {
        mix_order_deinit(&legs->later[i].order);
        free(legs->later[i].before);
    }
    free(legs->later);
    mix_order_deinit(&legs->first);
    *legs = (struct mix_legs){.n = 0};
}

uint64_t mix_legs_bytes(const struct mix_legs *legs)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < legs->n; i++)
        bytes += sizeof legs->later[i] - sizeof legs->later[i].order +
                 mix_order_bytes(&legs->later[i].order) +
                 legs->later[i].order.shares.n * sizeof *legs->later[i].before;
    return bytes;
}

/* How many legs after changes begin at or before the position. */
static uint32_t mix_legs_begun(const struct mix_legs *legs, uint64_t position)
{
    uint32_t n = legs->n;

    while (n > 0 && legs->later[n - 1].begin > position)
        n--;
    return n;
}

static struct mix_order *mix_legs_order(const struct mix_legs *legs, uint32_t begun)
{
    return begun > 0 ? &legs->later[begun - 1].order : (struct mix_order *)&legs->first;
}

static uint64_t mix_legs_begin(const struct mix_legs *legs, uint32_t begun)
{
    return begun > 0 ? legs->later[begun - 1].begin : 0;
}

/* What each child has had when the next leg begins. */
static void mix_legs_settle_next(struct mix_legs *legs)
{
    uint32_t before = legs->settled;
    struct mix_later *next = &legs->later[before];
    struct mix_order *order = mix_legs_order(legs, before);

    mix_order_counts(order, next->begin - mix_legs_begin(legs, before), next->before);
    for (uint32_t i = 0; before > 0 && i < order->shares.n; i++)
        next->before[i] += legs->later[before - 1].before[i];
    legs->settled++;
}

struct mix_place mix_legs_at(struct mix_legs *legs, uint64_t position)
{
    uint32_t begun = mix_legs_begun(legs, position);

    while (legs->settled < begun)
        mix_legs_settle_next(legs);
    struct mix_place place =
        mix_order_at(mix_legs_order(legs, begun), position - mix_legs_begin(legs, begun));
    if (begun > 0)
        place.nth += legs->later[begun - 1].before[place.child];
    return place;
}

uint64_t mix_legs_missing(const struct mix_legs *legs, uint64_t position)
{
    uint32_t begun = mix_legs_begun(legs, position);
    uint64_t missing =
        mix_order_missing(mix_legs_order(legs, begun), position - mix_legs_begin(legs, begun));

    for (uint32_t i = legs->settled; i < begun; i++) {
        uint64_t length = legs->later[i].begin - mix_legs_begin(legs, i);

        missing += length > 0 ? mix_order_missing(mix_legs_order(legs, i), length - 1) : 0;
    }
    return missing;
}

uint64_t mix_legs_about(const struct mix_legs *legs, uint64_t position, uint32_t child)
{
    uint32_t begun = mix_legs_begun(legs, position);
    const struct mix_shares *shares = &mix_legs_order(legs, begun)->shares;
    uint64_t at = position - mix_legs_begin(legs, begun);
    uint64_t before = begun > 0 ? legs->later[begun - 1].before[child] : 0;

    return before + mix_whole(mix_shares_at(shares, mix_shares_stretch(shares, at), child, at));
}
