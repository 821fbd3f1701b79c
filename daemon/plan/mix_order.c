/* Which child's sample stands where in a mixture. See mix_order.h. */
#include "daemon/plan/mix_order.h"

#include <assert.h>
#include <errno.h>

#include "daemon/plan/sampler.h"

/* Keeps the choices apart from all other draws for a seed and an epoch. */
#define MIX_STREAM UINT64_C(0x6d6978206a6974)

/* ---- earliest deadline first ----------------------------------------------------------------- */

/* The window of the child's next sample. */
static void mix_walk_look(const struct mix_order *order, struct mix_walk *walk, uint32_t i)
{
    struct mix_child *child = &walk->children[i];
    mix_units had = mix_units_of(child->count);
    uint64_t above = mix_shares_reach(&order->shares, walk->stretch, i, had + 1);

    child->release = above == MIX_NEVER ? MIX_NEVER : above - (above > 0);
    child->due = above == MIX_NEVER
                     ? MIX_NEVER
                     : mix_shares_reach(&order->shares, walk->stretch, i, had + mix_units_of(1));
}

static void mix_walk_look_all(const struct mix_order *order, struct mix_walk *walk)
{
    for (uint32_t i = 0; i < order->shares.n; i++)
        mix_walk_look(order, walk, i);
}

/* Of the samples that may come at `position`, the one that has to come first. */
static uint32_t mix_walk_first(const struct mix_order *order, const struct mix_walk *walk,
                               uint64_t position)
{
    uint32_t first = order->shares.n;

    for (uint32_t i = 0; i < order->shares.n; i++)
        if (walk->children[i].release <= position &&
            (first == order->shares.n || walk->children[i].due < walk->children[first].due))
            first = i;
    assert(first < order->shares.n);
    return first;
}

static void mix_walk_take(const struct mix_order *order, struct mix_walk *walk, uint32_t i)
{
    walk->children[i].count++;
    mix_walk_look(order, walk, i);
}

/* Into the stretch that begins at walk->at, if one does. */
static void mix_walk_turn(const struct mix_order *order, struct mix_walk *walk)
{
    const struct mix_shares *shares = &order->shares;

    if (walk->at < shares->stretches[walk->stretch].end || walk->stretch + 1 == shares->n_stretches)
        return;
    walk->stretch++;
    if (shares->stretches[walk->stretch].era)
        mix_walk_look_all(order, walk);
}

/* A step of the run. It turns at the last moment, for what comes may not be settled yet. */
static void mix_walk_step(const struct mix_order *order, struct mix_walk *walk, uint32_t i)
{
    mix_walk_take(order, walk, i);
    walk->at++;
}

static void mix_walk_to(const struct mix_order *order, struct mix_walk *walk, uint64_t end)
{
    while (walk->at < end) {
        mix_walk_turn(order, walk);
        mix_walk_step(order, walk, mix_walk_first(order, walk, walk->at));
    }
}

/* Where to begin a run that must be right at `position` of the stretch: either every child's first
 * window is over by then, or the run begins with the era, whose counts are known. */
static uint64_t mix_walk_origin(const struct mix_shares *shares, uint32_t stretch,
                                uint64_t position)
{
    uint32_t era = mix_shares_era(shares, stretch);
    uint64_t begin = shares->stretches[era].begin, origin = position;

    for (uint32_t i = 0; i < shares->n && origin > begin; i++) {
        mix_units share = mix_shares_at(shares, stretch, i, position);
        mix_units base = mix_shares_at(shares, era, i, begin),
                  whole = mix_units_of(mix_whole(share));
        if (share == base)
            continue; /* it takes no part yet */
        uint64_t reached = whole > base ? mix_shares_reach(shares, era, i, whole) : begin;
        origin = min_u64(origin, reached - (reached > begin));
    }
    return origin;
}

/* Begins a run in a state that any run can have there: the children ahead of their whole samples
 * are those whose samples are due first. */
static void mix_walk_begin(const struct mix_order *order, struct mix_walk *walk, uint64_t at)
{
    const struct mix_shares *shares = &order->shares;
    uint64_t counted = 0;

    walk->at = at;
    walk->stretch = mix_shares_stretch(shares, at);
    for (uint32_t i = 0; i < shares->n; i++) {
        walk->children[i].count = mix_whole(mix_shares_at(shares, walk->stretch, i, at));
        counted += walk->children[i].count;
    }
    /* A window that began in an earlier stretch of the era has its end from there on. */
    mix_walk_look_all(order, walk);
    for (; counted < at; counted++)
        mix_walk_take(order, walk, mix_walk_first(order, walk, at - 1));
}

/* ---- the samples of one window, dealt anew --------------------------------------------------- */

struct mix_job {
    uint8_t child;
    uint8_t release, due; /* within the window; due ≤ its length */
    bool done;
};

struct mix_deal {
    struct mix_job jobs[MIX_WINDOW]; /* of each child, in order */
    uint32_t n;
    uint8_t due[MIX_WINDOW + 1]; /* of those that are not done, how many are due there */
};

/* The earliest place by which as many samples are due as there are places to it: one of them must
 * be next. */
static uint32_t mix_deal_limit(const struct mix_deal *deal, uint32_t place)
{
    uint32_t due = 0;

    for (uint32_t end = place + 1; end < deal->n; end++) {
        due += deal->due[end];
        if (due == end - place)
            return end;
    }
    return deal->n;
}

/* A sample's chance is that of one which may come anywhere in the rest of its window. */
static uint64_t mix_deal_chance(const struct mix_job *job, uint32_t place, uint32_t limit)
{
    bool may = !job->done && job->release <= place && job->due <= limit;

    return may ? (UINT64_C(1) << 32) / (job->due - place) : 0;
}

/* The first open sample of the chosen child: it may come, since it ends no later. */
static struct mix_job *mix_deal_first_of(struct mix_deal *deal, uint8_t child)
{
    struct mix_job *job = deal->jobs;

    while (job->done || job->child != child)
        job++;
    return job;
}

static struct mix_job *mix_deal_choose(struct mix_deal *deal, uint32_t place, uint64_t bits)
{
    uint32_t limit = mix_deal_limit(deal, place), i = 0;
    uint64_t sum = 0;

    for (uint32_t j = 0; j < deal->n; j++)
        sum += mix_deal_chance(&deal->jobs[j], place, limit);
    assert(sum > 0);
    uint64_t point = (uint64_t)((unsigned __int128)bits * sum >> 64);
    for (;; i++) {
        uint64_t chance = mix_deal_chance(&deal->jobs[i], place, limit);
        if (point < chance)
            break;
        point -= chance;
    }
    return mix_deal_first_of(deal, deal->jobs[i].child);
}

static void mix_deal_out(struct mix_order *order, struct mix_deal *deal)
{
    bool plain = order->begin >= order->plain;
    const struct sampler_key key = {
        .seed = plain ? 0 : order->seed, .epoch = plain ? 0 : order->epoch, .stream = MIX_STREAM};

    for (uint32_t place = 0; place < deal->n; place++) {
        struct sampler_bits bits = sampler_native_bits(&key, order->begin + place);
        struct mix_job *job = mix_deal_choose(deal, place, bits.high);

        job->done = true;
        deal->due[job->due]--;
        order->child[place] = job->child;
    }
}

/* Lets the run take the window's samples, and notes them. */
static void mix_deal_collect(struct mix_order *order, struct mix_deal *deal)
{
    struct mix_walk *walk = &order->walk;

    while (walk->at < order->end) {
        mix_walk_turn(order, walk);
        uint32_t i = mix_walk_first(order, walk, walk->at);
        const struct mix_child *child = &walk->children[i];
        uint64_t release = max_u64(child->release, order->begin),
                 due = min_u64(child->due, order->end);

        deal->jobs[deal->n++] = (struct mix_job){.child = (uint8_t)i,
                                                 .release = (uint8_t)(release - order->begin),
                                                 .due = (uint8_t)(due - order->begin)};
        deal->due[due - order->begin]++;
        mix_walk_step(order, walk, i);
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The window around a position: it lies within one era. */
static void mix_order_window(const struct mix_shares *shares, uint64_t position,
                             uint64_t *ret_begin, uint64_t *ret_end)
{
    uint32_t stretch = mix_shares_stretch(shares, position);
    uint64_t era_begin = shares->stretches[mix_shares_era(shares, stretch)].begin;
    uint64_t era_end = MIX_POSITIONS;

    for (uint32_t s = shares->n_stretches - 1; s > stretch; s--)
        if (shares->stretches[s].era)
            era_end = shares->stretches[s].begin;
    *ret_begin = max_u64(position - position % MIX_WINDOW, era_begin);
    *ret_end = min_u64(position - position % MIX_WINDOW + MIX_WINDOW, era_end);
}

/* Where the run begins that finds a window: where it stands, if that is near. */
static uint64_t mix_order_origin(const struct mix_order *order, uint64_t begin)
{
    uint64_t origin =
        mix_walk_origin(&order->shares, mix_shares_stretch(&order->shares, begin), begin);
    bool stands = order->end > 0 && order->walk.at <= begin;

    return stands && order->walk.at >= origin ? order->walk.at : origin;
}

static void mix_order_find(struct mix_order *order, uint64_t position)
{
    struct mix_deal deal = {.n = 0};
    uint64_t begin, end;

    mix_order_window(&order->shares, position, &begin, &end);
    uint64_t origin = mix_order_origin(order, begin);
    if (order->end == 0 || origin != order->walk.at)
        mix_walk_begin(order, &order->walk, origin);
    mix_walk_to(order, &order->walk, begin);
    order->begin = begin;
    order->end = end;
    mix_deal_collect(order, &deal);
    mix_deal_out(order, &deal);
    uint8_t seen[DL_BOUND_MIX_CHILDREN] = {0};
    for (uint32_t place = deal.n; place-- > 0;)
        order->to_come[place] = ++seen[order->child[place]];
}

struct mix_place mix_order_at(struct mix_order *order, uint64_t position)
{
    assert(position < MIX_POSITIONS);
    if (position < order->begin || position >= order->end)
        mix_order_find(order, position);
    uint32_t place = (uint32_t)(position - order->begin), child = order->child[place];

    return (struct mix_place){child, order->walk.children[child].count - order->to_come[place]};
}

uint64_t mix_order_missing(const struct mix_order *order, uint64_t position)
{
    uint64_t begin, end;

    if (position >= order->begin && position < order->end)
        return 0;
    mix_order_window(&order->shares, position, &begin, &end);
    return begin - mix_order_origin(order, begin);
}

void mix_order_counts(struct mix_order *order, uint64_t position, uint64_t *ret)
{
    if (position == 0) {
        memset(ret, 0, order->shares.n * sizeof *ret);
        return;
    }
    mix_order_at(order, position - 1);
    for (uint32_t i = 0; i < order->shares.n; i++)
        ret[i] = order->walk.children[i].count;
    for (uint64_t at = position; at < order->end; at++)
        ret[order->child[at - order->begin]]--;
}

/* ---- making one ------------------------------------------------------------------------------ */

/* Computes what each child has received by the beginning of each era. */
static void mix_order_settle(struct mix_order *order)
{
    uint64_t counts[DL_BOUND_MIX_CHILDREN];

    for (uint32_t s = 1; s < order->shares.n_stretches; s++) {
        const struct mix_stretch *stretch = &order->shares.stretches[s];

        if (stretch->era) {
            uint64_t origin = mix_walk_origin(&order->shares, s - 1, stretch->begin);
            mix_walk_begin(order, &order->walk, origin);
            mix_walk_to(order, &order->walk, stretch->begin);
            for (uint32_t i = 0; i < order->shares.n; i++)
                counts[i] = order->walk.children[i].count;
        }
        mix_shares_settle(&order->shares, s, counts);
    }
}

int mix_order_init(struct mix_order *order, const struct mix_schedule *schedule, uint64_t seed,
                   uint64_t epoch)
{
    *order = (struct mix_order){.seed = seed, .epoch = epoch, .plain = MIX_POSITIONS};
    int r = mix_shares_init(&order->shares, schedule);

    if (r < 0)
        return r;
    order->walk.children = calloc(schedule->n, sizeof *order->walk.children);
    if (!order->walk.children) {
        mix_order_deinit(order);
        return -ENOMEM;
    }
    mix_order_settle(order);
    return 0;
}

/* The run does not depend on seed or epoch, and continues from where it is. */
void mix_order_key(struct mix_order *order, uint64_t seed, uint64_t epoch)
{
    order->seed = seed;
    order->epoch = epoch;
    order->begin = order->end;
}

void mix_order_deinit(struct mix_order *order)
{
    mix_shares_deinit(&order->shares);
    free(order->walk.children);
    *order = (struct mix_order){0};
}

uint64_t mix_order_bytes(const struct mix_order *order)
{
    return sizeof *order + mix_shares_bytes(&order->shares) +
           order->shares.n * sizeof *order->walk.children;
}
