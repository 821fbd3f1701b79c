/* The samples of a mixture: its order, and each child's own. See plan_mix.h. */
#include <assert.h>
#include <errno.h>

#include "daemon/plan/mix_nested.h"
#include "daemon/plan/mix_timeline.h"
#include "daemon/plan/sampler_mix.h"

/* Keeps children's seeds apart from all other draws for a seed. */
#define MIXED_STREAM UINT64_C(0x6d69782073656564)

struct mixed {
    struct sampler base;
    struct mix_legs legs;
    uint64_t first; /* position of the order where the epoch begins */
    struct mixed_children own;
};

/* ---- the children's own orders --------------------------------------------------------------- */

int mixed_children_init(struct mixed_children *own, const struct plan_mix *mix, uint64_t seed,
                        uint64_t epoch, bool in_turn)
{
    *own = (struct mixed_children){
        .seed = seed, .epoch = epoch, .n = mix->schedule.n, .in_turn = in_turn};
    own->ends = calloc(mix->schedule.n, sizeof *own->ends);
    own->n_permutations = mix->schedule.n <= MIXED_PERMUTATIONS ? mix->schedule.n : 1;
    own->permutations =
        own->in_turn ? NULL : calloc(own->n_permutations, sizeof *own->permutations);
    if (!own->ends || (!own->permutations && !own->in_turn))
        return -ENOMEM;
    return plan_mix_ends(mix, own->ends) ? 0 : -EINVAL;
}

int mixed_children_of(struct mixed_children *own, const struct plan_params *params)
{
    int r = mixed_children_init(own, &params->mix, params->seed,
                                params->mix.stop == MIX_STOP_NEVER ? 0 : params->epoch,
                                params->order == PLAN_SEQUENTIAL);

    return r < 0 ? r : mixed_children_nest_all(own, &params->mix);
}

void mixed_children_deinit(struct mixed_children *own)
{
    for (uint32_t i = 0; own->nested && i < own->n; i++)
        mixed_nested_free(own->nested[i]);
    free(own->nested);
    free(own->ends);
    free(own->permutations);
    own->nested = NULL;
    own->ends = NULL;
    own->permutations = NULL;
}

void mixed_children_key(struct mixed_children *own, uint64_t seed)
{
    own->seed = seed;
    for (uint32_t i = 0; own->permutations && i < own->n_permutations; i++)
        own->permutations[i].perm.length = 0;
}

static const struct mixed_nested *mixed_children_nested(const struct mixed_children *own,
                                                        uint32_t child)
{
    return own->nested ? own->nested[child] : NULL;
}

uint64_t mixed_children_bytes(const struct mixed_children *own)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; own->nested && i < own->n; i++)
        bytes += own->nested[i] ? mixed_nested_bytes(own->nested[i]) : 0;
    return bytes;
}

static uint64_t mixed_children_begin(const struct mixed_children *own, uint32_t child)
{
    return child > 0 ? own->ends[child - 1] : 0;
}

uint64_t mixed_children_size(const struct mixed_children *own, uint32_t child)
{
    const struct mixed_nested *nested = mixed_children_nested(own, child);

    return nested ? nested->size : own->ends[child] - mixed_children_begin(own, child);
}

uint64_t mixed_children_missing(const struct mixed_children *own, uint32_t child, uint64_t nth)
{
    const struct mixed_nested *nested = mixed_children_nested(own, child);

    return nested ? mixed_nested_missing(nested, nth) : 0;
}

static uint64_t mixed_children_seed(const struct mixed_children *own, uint32_t child)
{
    const struct sampler_key key = {.seed = own->seed, .stream = MIXED_STREAM};

    return sampler_native_bits(&key, child).high;
}

static uint64_t mixed_children_permuted(struct mixed_children *own, uint32_t child, uint64_t size,
                                        uint64_t nth)
{
    assert(size > 0 && child < own->n);
    struct mixed_permutation *mine = &own->permutations[child % own->n_permutations];
    uint64_t cycle = nth / size;

    if (mine->perm.length == 0 || mine->child != child || mine->cycle != cycle) {
        mine->child = child;
        mine->cycle = cycle;
        permute_native_init(&mine->perm, size, mixed_children_seed(own, child), own->epoch, cycle);
    }
    return permute_native_at(&mine->perm, nth - cycle * size);
}

uint64_t mixed_children_index(struct mixed_children *own, uint32_t child, uint64_t nth)
{
    uint64_t size = mixed_children_size(own, child), begin = mixed_children_begin(own, child);

    if (own->nested && own->nested[child])
        return begin + mixed_nested_index(own->nested[child], mixed_children_seed(own, child), nth);
    return begin + (own->in_turn ? nth % size : mixed_children_permuted(own, child, size, nth));
}

/* ---- how long an epoch is -------------------------------------------------------------------- */

/* The first position at which the child's share reaches `share`; MIX_NEVER if it does not. */
static uint64_t sampler_mix_reach(const struct mix_shares *shares, uint32_t child, mix_units share)
{
    uint64_t at = MIX_NEVER;

    for (uint32_t s = 0; at == MIX_NEVER && s < shares->n_stretches; s++)
        if (shares->stretches[s].era)
            at = mix_shares_reach(shares, s, child, share);
    return at;
}

static bool sampler_mix_takes_part(const struct mix_schedule *schedule, uint32_t child)
{
    bool takes = false;

    for (uint32_t p = 0; p < schedule->n_points; p++)
        takes = takes || schedule->points[p].weights[child] > 0;
    return takes;
}

static bool sampler_mix_joins(const struct mix_changes *changes, uint32_t child)
{
    bool joins = false;

    for (uint32_t i = 0; changes && i < changes->n_changes; i++)
        joins = joins || changes->items[i].weights[child] > 0;
    return joins;
}

static int sampler_mix_refuse(uint32_t child, const char *why, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "dataset.datasets", "number %u, counted from 0, %s", child,
                        why);
}

/*
 * Shares are rounded: one that is mathematically whole may be off by a trifle. If counting up to
 * the whole number gives what is wanted, the epoch ends there.
 */
#define MIXED_TRIFLE ((mix_units)1 << (MIX_UNIT_BITS - 20))

static bool sampler_mix_ends_well(const struct plan_mix *mix, struct mix_order *order,
                                  uint64_t count)
{
    uint64_t counts[DL_BOUND_MIX_CHILDREN];
    bool well = true, all = mix->stop == MIX_STOP_ALL;

    mix_order_counts(order, count, counts);
    for (uint32_t i = 0; i < mix->schedule.n; i++)
        if (sampler_mix_takes_part(&mix->schedule, i))
            well = well && (all ? counts[i] >= mix->sizes[i] : counts[i] <= mix->sizes[i]);
    return well;
}

/* Where shares are all samples, or for once a trifle more or less; MIX_NEVER: nowhere. *ret_never:
 * the child that is to blame. */
static uint64_t sampler_mix_end(const struct plan_mix *mix, const struct mix_shares *shares,
                                mix_units trifle, uint32_t *ret_never)
{
    bool all = mix->stop == MIX_STOP_ALL;
    uint64_t end = all ? 0 : MIX_NEVER;

    for (uint32_t i = 0; i < shares->n; i++) {
        if (!sampler_mix_takes_part(&mix->schedule, i))
            continue;
        mix_units whole = mix_units_of(min_u64(mix->sizes[i], MIX_POSITIONS));
        uint64_t at = sampler_mix_reach(shares, i, all ? whole - trifle : whole + 1 + trifle);

        if (all && at == MIX_NEVER)
            *ret_never = i;
        end = all ? max_u64(end, at) : min_u64(end, at);
    }
    return all || end == MIX_NEVER ? end : end - 1;
}

/* The epoch that children's shares end. */
static int sampler_mix_measure(const struct plan_mix *mix, struct mix_order *order, uint64_t *ret,
                               struct dl_error *err)
{
    uint32_t never = 0;
    uint64_t near = sampler_mix_end(mix, &order->shares, MIXED_TRIFLE, &never);
    uint64_t end = sampler_mix_end(mix, &order->shares, 0, &never);

    if (near < MIX_POSITIONS && sampler_mix_ends_well(mix, order, near))
        end = near;
    if (end == MIX_NEVER && mix->stop == MIX_STOP_ALL)
        return sampler_mix_refuse(never,
                                  "is never completed with these weights, as stop: all requires; "
                                  "write stop: never and a length",
                                  err);
    if (end == MIX_NEVER)
        return dl_error_set(err, EINVAL, "dataset.stop",
                            "first: no dataset ends within 2^46 samples; write stop: never, "
                            "with a length");
    *ret = end;
    return 0;
}

static int sampler_mix_check(const struct plan_mix *mix, uint64_t epoch, struct dl_error *err)
{
    uint64_t end;

    if (mix->changes && mix->changes->of_samples)
        return dl_error_set(err, EINVAL, "state",
                            "has changed weights of samples, but a mix has them of its datasets");
    for (uint32_t i = 0; i < mix->schedule.n; i++)
        if (mix->sizes[i] == 0 &&
            (sampler_mix_takes_part(&mix->schedule, i) || sampler_mix_joins(mix->changes, i)))
            return sampler_mix_refuse(
                i, "has a weight, but no samples; write weight 0, or leave it out", err);
    if (mix->stop != MIX_STOP_NEVER)
        return 0;
    if (mul_overflows(epoch, mix->length, &end) || end > MIX_POSITIONS - mix->length)
        return dl_error_set(err, EINVAL, "dataset.length",
                            "%llu samples in each epoch, of which this is number %llu, are above "
                            "the maximum of 2^46 in all",
                            (ull)mix->length, (ull)epoch);
    return 0;
}

/* Where epochs are pieces of one order, that is epoch 0's. */
static int sampler_mix_init(struct mix_legs *legs, const struct plan_mix *mix, uint64_t seed,
                            uint64_t epoch, struct dl_error *err)
{
    int r = sampler_mix_check(mix, epoch, err);

    if (r < 0)
        return r;
    r = mix_legs_init(legs, &mix->schedule, mix->changes, seed,
                      mix->stop == MIX_STOP_NEVER ? 0 : epoch);
    if (r == -EINVAL)
        return dl_error_set(err, EINVAL, "dataset.schedule",
                            "its steps are above the maximum of 2^46 samples, or a ramp is above "
                            "2^32");
    return r < 0 ? dl_error_set(err, -r, "dataset", "out of memory for the mixture") : 0;
}

static uint64_t sampler_mix_most(const struct plan_mix *mix)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < mix->schedule.n; i++)
        sum += mix->sizes[i];
    return sum;
}

static int sampler_mix_length(const struct plan_mix *mix, struct mix_order *order, uint64_t *ret,
                              struct dl_error *err)
{
    if (mix->by == MIX_BY_TOKENS && mix->stop == MIX_STOP_FIRST)
        *ret = sampler_mix_most(mix); /* lengths say how many */
    else if (mix->stop == MIX_STOP_NEVER)
        *ret = mix->length;
    else
        return sampler_mix_measure(mix, order, ret, err);
    return 0;
}

/* The mixture of one epoch, where each has an order of its own: with the weights of its last
 * change, which *point holds, and without changes. With MIX_STOP_NEVER it is as it was. */
static struct plan_mix sampler_mix_of_epoch(const struct plan_mix *mix, uint64_t epoch,
                                            struct mix_point *point)
{
    const struct mix_changes *changes = mix->changes;
    struct plan_mix at_epoch = *mix;
    uint32_t n = changes ? changes->n_changes : 0;

    if (!changes || mix->stop == MIX_STOP_NEVER || changes->of_samples ||
        changes->n != mix->schedule.n)
        return at_epoch;
    at_epoch.changes = NULL;
    while (n > 0 && changes->items[n - 1].position > epoch)
        n--;
    if (n == 0)
        return at_epoch;
    *point = (struct mix_point){.weights = changes->items[n - 1].weights};
    at_epoch.schedule = (struct mix_schedule){.n = changes->n, .n_points = 1, .points = point};
    return at_epoch;
}

int plan_mix_count(const struct plan_mix *mix, uint64_t epoch, uint64_t *ret, struct dl_error *err)
{
    uint64_t sizes[DL_BOUND_MIX_CHILDREN];
    struct mix_legs legs = {.n = 0};
    struct mix_point point;
    struct plan_mix at_epoch = sampler_mix_of_epoch(mix, epoch, &point), flat;
    int r = plan_mix_flatten(&at_epoch, sizes, &flat, err);

    if (r == 0)
        r = sampler_mix_init(&legs, &flat, 0, epoch, err);
    if (r < 0)
        return r;
    r = sampler_mix_length(&flat, &legs.first, ret, err);
    mix_legs_deinit(&legs);
    return r;
}

/* ---- the sampler ----------------------------------------------------------------------------- */

static uint64_t sampler_mix_at(struct sampler *sampler, uint64_t position)
{
    struct mixed *mixed = container_of(sampler, struct mixed, base);
    struct mix_place place = mix_legs_at(&mixed->legs, mixed->first + position);

    return mixed_children_index(&mixed->own, place.child, place.nth);
}

/* In shuffled samples (plan_backlog()): thirty take as long as a position here. */
static uint64_t sampler_mix_missing(const struct sampler *sampler, uint64_t end)
{
    const struct mixed *mixed = container_of(sampler, const struct mixed, base);
    uint64_t at = mixed->first + end - 1, missing = mix_legs_missing(&mixed->legs, at);

    for (uint32_t i = 0; mixed->own.nested && i < mixed->own.n; i++)
        missing += mixed_children_missing(&mixed->own, i, mix_legs_about(&mixed->legs, at, i));
    return 30 * missing;
}

static void sampler_mix_free(struct sampler *sampler)
{
    struct mixed *mixed = container_of(sampler, struct mixed, base);

    mix_legs_deinit(&mixed->legs);
    mixed_children_deinit(&mixed->own);
    free(mixed);
}

static int sampler_mix_fill(struct mixed *mixed, const struct plan_params *params)
{
    uint64_t sizes[DL_BOUND_MIX_CHILDREN];
    struct plan_mix mix;
    int r = mixed_children_of(&mixed->own, params);

    if (r == 0)
        r = plan_mix_flatten(&params->mix, sizes, &mix, NULL);
    if (r == 0)
        r = sampler_mix_init(&mixed->legs, &mix, params->seed, params->epoch, NULL);
    if (r < 0)
        return r;
    mixed->base.bytes = mix_legs_bytes(&mixed->legs) + mixed_children_bytes(&mixed->own);
    mixed->first = mix.stop == MIX_STOP_NEVER ? params->epoch * mix.length : 0;
    return sampler_mix_length(&mix, &mixed->legs.first, &mixed->base.count, NULL);
}

static int sampler_mix_make(const struct plan_params *params, struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {
        .missing = sampler_mix_missing, .at = sampler_mix_at, .free = sampler_mix_free};
    if (params->mix.draw == MIX_DRAW_RANDOM)
        return sampler_mix_random_new(params, ret);
    if (params->mix.by == MIX_BY_TOKENS)
        return sampler_mix_tokens_new(params, ret);
    struct mixed *mixed = calloc(1, sizeof *mixed);

    if (!mixed)
        return -ENOMEM;
    mixed->base.ops = &ops;
    int r = sampler_mix_fill(mixed, params);
    if (r < 0) {
        sampler_mix_free(&mixed->base);
        return r;
    }
    *ret = &mixed->base;
    return 0;
}

int sampler_mix_new(const struct plan_params *params, struct sampler **ret)
{
    struct mix_point point;
    struct plan_params at_epoch = *params;

    at_epoch.mix = sampler_mix_of_epoch(&params->mix, params->epoch, &point);
    return sampler_mix_make(&at_epoch, ret);
}
