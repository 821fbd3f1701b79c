/*
 * RandomSampler's sequences. Without replacement: num_samples // n whole permutations, then a cut
 * one. With replacement: one draw for each position; that torch draws 32 at a time has no visible
 * effect. Each exists in torch's order for the generator's seed, and in a native one that computes
 * any position directly.
 */
#include "daemon/plan/sampler.h"

#include <assert.h>
#include <errno.h>

#include "daemon/plan/permute.h"
#include "daemon/plan/rng_log.h"

/* From this range on, current torch takes 64 bits for a draw; 1.13 and 2.6 did from 2^32 on. */
#define DRAW_64_BITS_FROM (UINT64_C(1) << 28)

/* Keeps the native draws apart from all other draws for a seed and an epoch. */
#define DRAW_STREAM UINT64_C(0x72616e64696e74)

/* ---- without replacement, torch ------------------------------------------------------------- */

struct permuted_torch {
    struct sampler base;
    struct permute_torch *perm; /* owned */
};

static uint64_t sampler_permuted_torch_missing(const struct sampler *sampler, uint64_t end)
{
    return permute_torch_missing(container_of(sampler, const struct permuted_torch, base)->perm,
                                 end);
}

static void sampler_permuted_torch_extend(struct sampler *sampler, uint64_t end)
{
    permute_torch_extend(container_of(sampler, struct permuted_torch, base)->perm, end);
}

static uint64_t sampler_permuted_torch_at(struct sampler *sampler, uint64_t position)
{
    return permute_torch_at(container_of(sampler, struct permuted_torch, base)->perm, position);
}

static void sampler_permuted_torch_free(struct sampler *sampler)
{
    struct permuted_torch *permuted = container_of(sampler, struct permuted_torch, base);

    permute_torch_free(permuted->perm);
    free(permuted);
}

int sampler_permuted_torch_new(const struct plan_params *params, uint64_t length, uint64_t count,
                               struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {.missing = sampler_permuted_torch_missing,
                                                .extend = sampler_permuted_torch_extend,
                                                .at = sampler_permuted_torch_at,
                                                .free = sampler_permuted_torch_free};
    struct permuted_torch *permuted = calloc(1, sizeof *permuted);

    if (!permuted)
        return -ENOMEM;
    permuted->base = (struct sampler){.ops = &ops, .count = count};
    int r = permute_torch_new(length, count, params->seed + params->epoch,
                              PERMUTE_TORCH_INSIDE_OUT_FROM, &permuted->perm);
    if (r < 0) {
        free(permuted);
        return r;
    }
    permuted->base.bytes = permute_torch_bytes(permuted->perm);
    *ret = &permuted->base;
    return 0;
}

/* ---- without replacement, native ------------------------------------------------------------ */

struct permuted_native {
    struct sampler base;
    uint64_t length;
    uint64_t seed;
    uint64_t epoch;
    uint64_t cycle;             /* which permutation `perm` is */
    struct permute_native perm; /* remembered for the next position */
};

/* Makes `perm` the permutation of the position, and returns its number. */
static uint64_t sampler_permuted_native_seek(struct permuted_native *permuted, uint64_t position)
{
    uint64_t cycle = 0;

    if (position >= permuted->length) {
        cycle = position / permuted->length;
        position %= permuted->length;
    }
    if (cycle != permuted->cycle) {
        permute_native_init(&permuted->perm, permuted->length, permuted->seed, permuted->epoch,
                            cycle);
        permuted->cycle = cycle;
    }
    assert(position < permuted->length);
    return position;
}

static uint64_t sampler_permuted_native_at(struct sampler *sampler, uint64_t position)
{
    struct permuted_native *permuted = container_of(sampler, struct permuted_native, base);

    position = sampler_permuted_native_seek(permuted, position);
    return permute_native_at(&permuted->perm, position);
}

static void sampler_permuted_native_many(struct sampler *sampler, uint64_t *positions, size_t n)
{
    struct permuted_native *permuted = container_of(sampler, struct permuted_native, base);
    size_t run;

    for (size_t first = 0; first < n; first += run) {
        uint64_t *own = positions + first;
        uint64_t begin = own[0] - sampler_permuted_native_seek(permuted, own[0]);
        for (run = 0; run < n - first && own[run] - begin < permuted->length; run++)
            own[run] -= begin;
        permute_native_many(&permuted->perm, own, run);
    }
}

static void sampler_permuted_native_free(struct sampler *sampler)
{
    free(container_of(sampler, struct permuted_native, base));
}

int sampler_permuted_native_new(const struct plan_params *params, uint64_t length, uint64_t count,
                                struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {.at = sampler_permuted_native_at,
                                                .many = sampler_permuted_native_many,
                                                .free = sampler_permuted_native_free};
    struct permuted_native *permuted = calloc(1, sizeof *permuted);

    if (!permuted)
        return -ENOMEM;
    *permuted = (struct permuted_native){.base = {.ops = &ops, .count = count},
                                         .length = length,
                                         .seed = params->seed,
                                         .epoch = params->epoch};
    permute_native_init(&permuted->perm, length, params->seed, params->epoch, 0);
    *ret = &permuted->base;
    return 0;
}

/* ---- with replacement, torch ---------------------------------------------------------------- */

struct drawn_torch {
    struct sampler base;
    uint64_t length;
    struct rng_log log;
};

static uint64_t sampler_drawn_torch_missing(const struct sampler *sampler, uint64_t end)
{
    return rng_log_missing(&container_of(sampler, const struct drawn_torch, base)->log, end);
}

static void sampler_drawn_torch_extend(struct sampler *sampler, uint64_t end)
{
    struct drawn_torch *drawn = container_of(sampler, struct drawn_torch, base);
    struct mt19937 *generator = &drawn->log.generator;

    while (drawn->log.done < end) {
        uint64_t word = drawn->length < DRAW_64_BITS_FROM ? mt19937_next32(generator)
                                                          : mt19937_next64(generator);
        rng_log_add(&drawn->log, word % drawn->length);
    }
}

static uint64_t sampler_drawn_torch_at(struct sampler *sampler, uint64_t position)
{
    return rng_log_at(&container_of(sampler, struct drawn_torch, base)->log, position);
}

static void sampler_drawn_torch_free(struct sampler *sampler)
{
    struct drawn_torch *drawn = container_of(sampler, struct drawn_torch, base);

    rng_log_deinit(&drawn->log);
    free(drawn);
}

int sampler_drawn_torch_new(const struct plan_params *params, uint64_t length, uint64_t count,
                            struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {.missing = sampler_drawn_torch_missing,
                                                .extend = sampler_drawn_torch_extend,
                                                .at = sampler_drawn_torch_at,
                                                .free = sampler_drawn_torch_free};
    struct drawn_torch *drawn = calloc(1, sizeof *drawn);

    if (!drawn)
        return -ENOMEM;
    drawn->base = (struct sampler){.ops = &ops, .count = count};
    drawn->length = length;
    int r =
        rng_log_init(&drawn->log, count, length > UINT64_C(1) << 32, params->seed + params->epoch);
    if (r < 0) {
        free(drawn);
        return r;
    }
    drawn->base.bytes = rng_log_bytes(&drawn->log);
    *ret = &drawn->base;
    return 0;
}

/* ---- with replacement, native --------------------------------------------------------------- */

struct drawn_native {
    struct sampler base;
    struct sampler_key key;
};

/* The upper 64 bits of bits·length / 2^64, so that no index is likelier by more than 2^-64. */
static uint64_t sampler_drawn_native_at(struct sampler *sampler, uint64_t position)
{
    const struct drawn_native *drawn = container_of(sampler, const struct drawn_native, base);
    struct sampler_bits bits = sampler_native_bits(&drawn->key, position);
    unsigned __int128 low = (unsigned __int128)bits.low * drawn->key.length;
    unsigned __int128 high = (unsigned __int128)bits.high * drawn->key.length;

    return (uint64_t)((high + (low >> 64)) >> 64);
}

static void sampler_drawn_native_free(struct sampler *sampler)
{
    free(container_of(sampler, struct drawn_native, base));
}

int sampler_drawn_native_new(const struct plan_params *params, uint64_t length, uint64_t count,
                             struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {.at = sampler_drawn_native_at,
                                                .free = sampler_drawn_native_free};
    struct drawn_native *drawn = calloc(1, sizeof *drawn);

    if (!drawn)
        return -ENOMEM;
    *drawn = (struct drawn_native){
        .base = {.ops = &ops, .count = count},
        .key = {
            .seed = params->seed, .epoch = params->epoch, .length = length, .stream = DRAW_STREAM}};
    *ret = &drawn->base;
    return 0;
}
