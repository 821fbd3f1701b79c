/*
 * A mixture whose shares are of tokens, where the length of each sample is known. See plan_mix.h.
 *
 * At each position comes the child that is furthest behind its share of the tokens so far, plus a
 * keyed number of tokens, below the mean length, so that equal lengths make no period. A sample
 * that batches leave out counts 0 tokens, a cut one what remains of it. A position depends on all
 * samples before it: the order is computed as a whole when batches are planned, with 4 bytes for
 * each sample.
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
};

struct mixed_tokens {
    struct sampler base;
    struct mixed_children own;
    struct mix_timeline timeline;        /* owned */
    struct mixed_tokens_child *children; /* owned */
    const uint32_t *lengths;             /* borrowed, as those of the plan */
    uint32_t limit;
    bool truncate;
    bool first;     /* the epoch ends where a child is through */
    uint64_t skip;  /* positions of the order before the epoch */
    uint64_t done;  /* of the epoch */
    uint64_t mean;  /* length */
    uint32_t *list; /* owned; the index at each position that is done */
    uint64_t room;
};

static uint32_t sampler_mix_tokens_length(const struct mixed_tokens *mixed, uint64_t index)
{
    uint32_t length = mixed->lengths[index];

    if (length <= mixed->limit)
        return length;
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

/* Takes the next sample; returns its index in the concatenation. */
static uint64_t sampler_mix_tokens_take(struct mixed_tokens *mixed, uint64_t position)
{
    struct mix_spot spot = mix_timeline_spot(&mixed->timeline, position);
    for (uint32_t i = 0; spot.at == 0 && i < mixed->timeline.n; i++)
        mixed->children[i].behind = 0; /* accounts begin with the leg */
    uint32_t child = sampler_mix_tokens_choose(mixed, &spot, position);
    uint64_t index = mixed_children_index(&mixed->own, child, mixed->children[child].nth++);
    __int128 length = sampler_mix_tokens_length(mixed, index);

    for (uint32_t i = 0; i < mixed->timeline.n; i++) {
        mix_units weight = mix_spot_weight(&spot, i);

        mixed->children[i].behind += (__int128)(weight >> MIXED_TOKENS_SHIFT) * length;
    }
    mixed->children[child].behind -= length << MIXED_TOKENS_BITS;
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
    if (params->tokens.tokens == 0 || !params->tokens.lengths || params->length > UINT32_MAX ||
        params->mix.stop == MIX_STOP_ALL)
        return -EINVAL;
    struct mixed_tokens *mixed = calloc(1, sizeof *mixed);

    if (!mixed)
        return -ENOMEM;
    mixed->base.ops = &ops;
    int r = sampler_mix_tokens_fill(mixed, params);
    if (r < 0) {
        sampler_mix_tokens_free(&mixed->base);
        return r;
    }
    *ret = &mixed->base;
    return 0;
}
