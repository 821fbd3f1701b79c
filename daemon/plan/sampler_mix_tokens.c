/*
 * A mixture whose shares are of tokens, where the length of each sample is known. See plan_mix.h.
 *
 * At each position comes the child that is furthest behind its share of the tokens so far, plus a
 * keyed number of tokens, below the mean length, so that equal lengths make no period. A sample
 * that batches leave out counts 0 tokens, a cut one what remains of it. A position depends on all
 * samples before it: the order is computed as a whole when batches are planned, with 4 bytes for
 * each sample.
 *
 * Or it is worked out while lengths are taken (plan_lazy.h). A choice needs no length but those of
 * samples that were chosen. Which of a child's samples these are is known beforehand, how many is
 * not: so lengths are asked for of the next ones of each child, as many as it had of the positions
 * so far, and of at least one; what was not needed is known for later. The mean length is that of
 * the samples so far.
 */
#include <errno.h>

#include "daemon/plan/lazy_zero.h"
#include "daemon/plan/mix_timeline.h"
#include "daemon/plan/sampler_mix.h"

/* Keeps the choices apart from all other draws for a seed and an epoch. */
#define MIXED_TOKENS_STREAM UINT64_C(0x6d697820746f6b)

/* The precision of weights: a token count of 2^20, times 2^32 samples, stays below 2^127. */
enum { MIXED_TOKENS_BITS = 32, MIXED_TOKENS_SHIFT = MIX_UNIT_BITS - MIXED_TOKENS_BITS };

struct mixed_tokens_child {
    __int128 behind; /* tokens · 2^MIXED_TOKENS_BITS that it is due and has not had */
    uint64_t nth;
    uint64_t asked; /* most: of its samples, the first whose length was not asked for */
};

struct mixed_tokens {
    struct sampler base;
    struct mixed_children own;
    struct mix_timeline timeline;        /* owned */
    struct mixed_tokens_child *children; /* owned */
    const uint32_t *lengths;             /* borrowed, as those of the plan */
    uint32_t limit;
    bool truncate, split;
    uint32_t overlap;
    bool first;     /* the epoch ends where a child is through */
    uint64_t skip;  /* positions of the order before the epoch */
    uint64_t done;  /* of the epoch */
    uint64_t at;    /* most: of the order */
    uint64_t mean;  /* length */
    uint64_t most;  /* lengths that are asked for at a time; 0: all are there */
    uint64_t sum;   /* of the lengths so far */
    uint32_t *list; /* owned; the index at each position that is done */
    uint64_t room;
};

static uint32_t sampler_mix_tokens_length(const struct mixed_tokens *mixed, uint64_t index)
{
    uint32_t length = mixed->lengths[index];

    if (length <= mixed->limit)
        return length;
    if (mixed->split) { /* what parts repeat counts, too */
        uint64_t step = mixed->limit - mixed->overlap,
                 more = (length - mixed->limit - 1) / step + 1;

        return (uint32_t)min_u64(length + more * mixed->overlap, UINT32_MAX);
    }
    return mixed->truncate ? mixed->limit : 0;
}

/* The child that is furthest behind, of those that have a weight here. */
static uint32_t sampler_mix_tokens_choose(const struct mixed_tokens *mixed,
                                          const struct mix_spot *spot, uint64_t position)
{
    const struct sampler_key key = {
        .seed = mixed->own.seed, .epoch = mixed->own.epoch, .stream = MIXED_TOKENS_STREAM};
    struct sampler_bits bits = sampler_native_bits(&key, position);
    uint32_t chosen = mixed->timeline.n;
    __int128 most = 0;

    for (uint32_t i = 0; i < mixed->timeline.n; i++) {
        if (mix_spot_weight(spot, i) == 0)
            continue;
        /* Different bits for each child; the upper ones are the better ones. */
        uint64_t mine = (bits.high + bits.low * i) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
        __int128 behind = mixed->children[i].behind + (__int128)mine * mixed->mean;

        if (chosen == mixed->timeline.n || behind > most) {
            chosen = i;
            most = behind;
        }
    }
    return chosen;
}

/* The next one's child; *ret_spot: its weights. */
static uint32_t sampler_mix_tokens_next(struct mixed_tokens *mixed, uint64_t position,
                                        struct mix_spot *ret_spot)
{
    *ret_spot = mix_timeline_spot(&mixed->timeline, position);
    for (uint32_t i = 0; ret_spot->at == 0 && i < mixed->timeline.n; i++)
        mixed->children[i].behind = 0; /* accounts begin with the leg */
    return sampler_mix_tokens_choose(mixed, ret_spot, position);
}

/* Takes the next sample; returns its index in the concatenation. */
static uint64_t sampler_mix_tokens_take(struct mixed_tokens *mixed, uint64_t position)
{
    struct mix_spot spot;
    uint32_t child = sampler_mix_tokens_next(mixed, position, &spot);
    uint64_t index = mixed_children_index(&mixed->own, child, mixed->children[child].nth++);
    __int128 length = sampler_mix_tokens_length(mixed, index);

    for (uint32_t i = 0; i < mixed->timeline.n; i++) {
        mix_units weight = mix_spot_weight(&spot, i);

        mixed->children[i].behind += (__int128)(weight >> MIXED_TOKENS_SHIFT) * length;
    }
    mixed->children[child].behind -= length << MIXED_TOKENS_BITS;
    mixed->sum += (uint64_t)length;
    if (mixed->most > 0)
        mixed->mean = max_u64(mixed->sum / (position + 1), 1);
    return index;
}

/* Whether a child that may come next has nothing left. */
static bool sampler_mix_tokens_is_through(const struct mixed_tokens *mixed, uint64_t position)
{
    struct mix_spot spot = mix_timeline_spot(&mixed->timeline, position);
    bool through = false;

    for (uint32_t i = 0; mixed->first && i < mixed->timeline.n; i++)
        through = through || (mixed->children[i].nth >= mixed_children_size(&mixed->own, i) &&
                              mix_spot_weight(&spot, i) > 0);
    return through;
}

static void sampler_mix_tokens_measure(struct mixed_tokens *mixed, uint64_t length)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < length; i++)
        sum += sampler_mix_tokens_length(mixed, i);
    mixed->mean = max_u64(sum / max_u64(length, 1), 1);
}

/* All of it: where it ends is known afterwards. */
static void sampler_mix_tokens_extend(struct sampler *sampler, uint64_t end)
{
    struct mixed_tokens *mixed = container_of(sampler, struct mixed_tokens, base);
    uint64_t position = 0;

    if (mixed->done >= end)
        return;
    sampler_mix_tokens_measure(mixed, mixed->own.ends[mixed->timeline.n - 1]);
    for (; position < mixed->skip; position++)
        sampler_mix_tokens_take(mixed, position);
    for (; mixed->done < sampler->count; mixed->done++, position++) {
        if (sampler_mix_tokens_is_through(mixed, position))
            sampler->count = mixed->done;
        else
            mixed->list[mixed->done] = (uint32_t)sampler_mix_tokens_take(mixed, position);
    }
}

static uint64_t sampler_mix_tokens_at(struct sampler *sampler, uint64_t position)
{
    return container_of(sampler, struct mixed_tokens, base)->list[position];
}

/* ---- while lengths are being taken ------------------------------------------------------------
 */

/* How many lengths of the child are to be known ahead, where `left` positions are to come. */
static uint64_t sampler_mix_tokens_ahead(const struct mixed_tokens *mixed, uint32_t child,
                                         uint64_t position, uint64_t left)
{
    enum { FEW = 64 }; /* positions that say nothing */
    struct mix_spot spot = mix_timeline_spot(&mixed->timeline, position);
    unsigned __int128 weight = mix_spot_weight(&spot, child) >> MIXED_TOKENS_SHIFT;

    if (position < FEW)
        return (uint64_t)(weight * left >> MIXED_TOKENS_BITS);
    return (uint64_t)((unsigned __int128)mixed->children[child].nth * left / position);
}

/* The samples whose lengths are asked for next, first those of the child `first`: to `ret`; NULL:
 * they are there. Returns how many. */
static size_t sampler_mix_tokens_ask(struct mixed_tokens *mixed, uint32_t first, uint64_t end,
                                     uint64_t *ret)
{
    uint64_t left = mixed->skip + end - mixed->at;
    size_t n = 0;

    for (uint32_t k = 0; k < mixed->timeline.n; k++) {
        uint32_t i = (first + k) % mixed->timeline.n;
        struct mixed_tokens_child *child = &mixed->children[i];
        uint64_t ahead = sampler_mix_tokens_ahead(mixed, i, mixed->at, left);
        uint64_t behind = child->nth + max_u64(ahead, i == first);

        for (uint64_t nth = child->asked; nth < behind && n < mixed->most; nth++, n++) {
            if (ret)
                ret[n] = mixed_children_index(&mixed->own, i, nth);
            else
                child->asked = nth + 1;
        }
    }
    return n;
}

/* Takes what can be taken before position `end` of the epoch; the child whose length is missing, or
 * n: none. */
static uint32_t sampler_mix_tokens_advance(struct mixed_tokens *mixed, uint64_t end)
{
    struct mix_spot spot;

    while (mixed->at < mixed->skip + min_u64(end, mixed->base.count)) {
        uint32_t child = sampler_mix_tokens_next(mixed, mixed->at, &spot);

        if (mixed->children[child].nth >= mixed->children[child].asked)
            return child;
        uint32_t index = (uint32_t)sampler_mix_tokens_take(mixed, mixed->at++);
        if (mixed->at <= mixed->skip)
            continue;
        mixed->list[mixed->base.known++] = index;
        if (sampler_mix_tokens_is_through(mixed, mixed->at))
            mixed->base.count = mixed->base.known;
    }
    return mixed->timeline.n;
}

static size_t sampler_mix_tokens_lacks(struct sampler *sampler, uint64_t end, uint64_t *ret)
{
    struct mixed_tokens *mixed = container_of(sampler, struct mixed_tokens, base);
    uint32_t child = sampler_mix_tokens_advance(mixed, end);

    return child == mixed->timeline.n ? 0 : sampler_mix_tokens_ask(mixed, child, end, ret);
}

/* What was lacking is there. */
static void sampler_mix_tokens_go_on(struct sampler *sampler, uint64_t end)
{
    struct mixed_tokens *mixed = container_of(sampler, struct mixed_tokens, base);

    (void)sampler_mix_tokens_lacks(sampler, end, NULL);
    (void)sampler_mix_tokens_advance(mixed, end);
}

/* Accounts stay: what comes begins its own where a leg begins. */
static void sampler_mix_tokens_adopt(struct sampler *sampler, struct sampler *other)
{
    struct mixed_tokens *mixed = container_of(sampler, struct mixed_tokens, base);
    struct mixed_tokens *with = container_of(other, struct mixed_tokens, base);
    struct mix_timeline former = mixed->timeline;

    mixed->timeline = with->timeline;
    with->timeline = former;
}

static void sampler_mix_tokens_free(struct sampler *sampler)
{
    struct mixed_tokens *mixed = container_of(sampler, struct mixed_tokens, base);

    mixed_children_deinit(&mixed->own);
    mix_timeline_deinit(&mixed->timeline);
    free(mixed->children);
    lazy_zero_free(mixed->list, mixed->room);
    free(mixed);
}

static int sampler_mix_tokens_fill(struct mixed_tokens *mixed, const struct plan_params *params)
{
    const struct plan_mix *mix = &params->mix;
    int r = plan_mix_count(mix, params->epoch, &mixed->base.count, NULL);

    if (r == 0)
        r = mixed_children_of(&mixed->own, params);
    if (r == 0)
        r = mix_timeline_init(&mixed->timeline, &mix->schedule, mix->changes);
    if (r < 0)
        return r;
    mixed->children = calloc(mix->schedule.n, sizeof *mixed->children);
    mixed->room = mixed->base.count * sizeof *mixed->list;
    mixed->base.bytes = mixed->room;
    mixed->skip = mix->stop == MIX_STOP_NEVER ? params->epoch * mix->length : 0;
    mixed->first = mix->stop == MIX_STOP_FIRST;
    mixed->lengths = params->tokens.lengths;
    mixed->limit = plan_tokens_limit(&params->tokens);
    mixed->truncate = params->tokens.truncate;
    mixed->split = params->tokens.split;
    mixed->overlap = params->tokens.overlap;
    mixed->most = params->tokens.lazy;
    mixed->mean = 1;
    void *list = NULL;
    r = mixed->children ? lazy_zero_new(mixed->room, true, &list) : -ENOMEM;
    mixed->list = list;
    return r;
}

int sampler_mix_tokens_new(const struct plan_params *params, struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {.extend = sampler_mix_tokens_extend,
                                                .at = sampler_mix_tokens_at,
                                                .free = sampler_mix_tokens_free};
    static const struct sampler_kind_ops lazy_ops = {.lacks = sampler_mix_tokens_lacks,
                                                     .extend = sampler_mix_tokens_go_on,
                                                     .adopt = sampler_mix_tokens_adopt,
                                                     .at = sampler_mix_tokens_at,
                                                     .free = sampler_mix_tokens_free};
    if (params->tokens.tokens == 0 || !params->tokens.lengths || params->length > UINT32_MAX ||
        params->mix.stop == MIX_STOP_ALL)
        return -EINVAL;
    struct mixed_tokens *mixed = calloc(1, sizeof *mixed);

    if (!mixed)
        return -ENOMEM;
    mixed->base.ops = params->tokens.lazy > 0 ? &lazy_ops : &ops;
    int r = sampler_mix_tokens_fill(mixed, params);
    if (r < 0) {
        sampler_mix_tokens_free(&mixed->base);
        return r;
    }
    *ret = &mixed->base;
    return 0;
}
