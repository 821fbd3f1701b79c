/*
 * The samplers, through the plan: PyTorch's own vectors, naive second implementations, seeking,
 * what is refused, memory that runs out, and the statistics of the native draws.
 */
#include "daemon/plan/plan.h"

#include <errno.h>
#include <math.h>

#include "daemon/plan/permute.h"
#include "daemon/plan/rng_log.h"
#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

enum { MAX = 4096 };

static struct plan *make(struct plan_params params)
{
    struct plan *plan = NULL;

    params.world = max_u64(params.world, 1);
    assert_int_equal(plan_new(&params, &plan), 0);
    return plan;
}

#define _cleanup_plan_ _cleanup_(plan_freep)

/* The whole order; returns how many. */
static size_t whole(struct plan_params params, uint64_t *ret)
{
    params.world = 1;
    params.batch_size = MAX;
    params.drop_last = false;
    _cleanup_plan_ struct plan *plan = make(params);

    assert_in_range(plan_samples(plan, 0), 0, MAX);
    return plan_steps(plan, 0) ? plan_step(plan, 0, 0, ret) : 0;
}

static const uint64_t five[] = {5, 6, 7, 8, 9};
static const uint64_t twice[] = {3, 3, 0};
static const double six[] = {.1, .9, .4, .7, 3, .6};
static const double holes[] = {0, 2, 0, 1, 0};

#define LISTED(list)   .sampler = PLAN_INDICES, .indices = (list), .n_indices = ARRAY_SIZE(list)
#define WEIGHED(list)  .sampler = PLAN_WEIGHTS, .weights = (list)
#define WEIGHTED(list) .length = ARRAY_SIZE(list), WEIGHED(list), .replacement = true

/* ---- vectors -------------------------------------------------------------------------------- */

/* Recorded from torch 2.14, and the same from 1.13; every index is a digit or a letter. */
TEST(test_torch_vectors)
{
    static const struct {
        struct plan_params params;
        const char *order;
    } rows[] = {
        {{.length = 10, .order = PLAN_TORCH, .seed = 42}, "2618450937"},
        {{.length = 10, .order = PLAN_TORCH, .seed = 42, .num_samples = 23},
         "26184509373589461072750"},
        {{.length = 10, .order = PLAN_TORCH, .seed = 40, .epoch = 2, .num_samples = 3}, "261"},
        {{.length = 10, .order = PLAN_TORCH, .seed = 42, .replacement = true}, "2764650403"},
        {{.length = 1, .order = PLAN_TORCH, .num_samples = 4}, "0000"},
        {{.length = 10, .order = PLAN_TORCH, .seed = 42, LISTED(five)}, "79856"},
        {{.length = 10, .order = PLAN_SEQUENTIAL, LISTED(five)}, "56789"},
        {{.length = 4, .order = PLAN_SEQUENTIAL, LISTED(twice)}, "330"},
        {{.order = PLAN_TORCH, .seed = 42, .num_samples = 12, WEIGHTED(six)}, "111144551114"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t order[MAX];
        char digits[64] = "";
        size_t n = whole(rows[i].params, order);

        for (size_t k = 0; k < n; k++)
            digits[k] = (char)('0' + order[k]);
        assert_string_equal(digits, rows[i].order);
    }
}

/* torch takes 64 bits for a draw from 2^28 samples on. */
TEST(test_wide_draws)
{
    static const struct {
        uint64_t length, want[4];
    } rows[] = {
        {(UINT64_C(1) << 28) - 1, {266460267, 199900607, 56755051, 250975504}},
        {UINT64_C(1) << 28, {199900595, 250975502, 127521863, 147532820}},
        {UINT32_MAX, {734796314, 576165995, 2197670066, 839703249}},
        {UINT64_C(1) << 32, {3421126067, 787846414, 3348747335, 2563451924}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t order[MAX];

        assert_int_equal(whole((struct plan_params){.length = rows[i].length,
                                                    .order = PLAN_TORCH,
                                                    .seed = 42,
                                                    .num_samples = 4,
                                                    .replacement = true},
                               order),
                         4);
        assert_memory_equal(order, rows[i].want, sizeof rows[i].want);
    }
    /* Beyond 32 bits the results are wide, too: the generator's words themselves. */
    struct mt19937 mt;
    uint64_t order[MAX], length = (UINT64_C(1) << 40) + 1;
    whole((struct plan_params){.length = length,
                               .order = PLAN_TORCH,
                               .seed = 3,
                               .num_samples = 700,
                               .replacement = true},
          order);
    mt19937_init(&mt, 3);
    for (size_t i = 0; i < 700; i++)
        assert_int_equal(order[i], mt19937_next64(&mt) % length);
}

/* ---- permutations in a row ------------------------------------------------------------------ */

/* As torch writes it: the same generator goes on, n - 1 draws a permutation; or inside out. */
static void naive_cycles(uint64_t n, uint64_t cycles, uint64_t seed, bool inside_out, uint64_t *p)
{
    struct mt19937 mt;

    mt19937_init(&mt, seed);
    for (; cycles > 0; cycles--, p += n) {
        for (uint64_t i = 0; i < n; i++)
            p[i] = i;
        for (uint64_t i = 0; i < n && inside_out; i++) {
            uint64_t z = mt19937_next64(&mt) % (i + 1);
            p[i] = p[z];
            p[z] = i;
        }
        for (uint64_t i = 0; i + 1 < n && !inside_out; i++) {
            uint64_t z = i + mt19937_next32(&mt) % (n - i), kept = p[i];
            p[i] = p[z];
            p[z] = kept;
        }
    }
}

TEST(test_cycles)
{
    static const uint64_t lengths[] = {1, 2, 3, 63, 64, 65, 200};
    static const uint64_t steps[] = {1, 7, 64, 1000};

    for (size_t l = 0; l < ARRAY_SIZE(lengths); l++) {
        for (unsigned bits = 0; bits < 8; bits++) {
            uint64_t n = lengths[l], elements = 3 * n + bits / 2 * n / 4, want[MAX], done = 0;
            struct permute_torch *perm = NULL;

            naive_cycles(n, 4, l, bits & 1, want);
            assert_int_equal(permute_torch_new(n, elements, l,
                                               bits & 1 ? 1 : PERMUTE_TORCH_INSIDE_OUT_FROM, &perm),
                             0);
            while (done < elements) {
                done = min_u64(done + steps[bits / 2], elements);
                assert_in_range(permute_torch_missing(perm, done), 0, (done + n) / n * n);
                permute_torch_extend(perm, done);
                assert_int_equal(permute_torch_missing(perm, done), 0);
            }
            for (uint64_t i = 0; i < elements; i++)
                assert_int_equal(permute_torch_at(perm, i), want[i]);
            permute_torch_free(perm);
        }
    }
}

/* Each cycle has every sample once, no two cycles are alike, the first is the plain shuffle. */
TEST(test_native_cycles)
{
    enum { N = 100 };
    uint64_t plain[MAX], order[MAX];
    struct plan_params params = {.length = N, .order = PLAN_NATIVE, .seed = 8, .epoch = 1};

    assert_int_equal(whole(params, plain), N);
    params.num_samples = 10 * N + 7;
    assert_int_equal(whole(params, order), 10 * N + 7);
    assert_memory_equal(order, plain, sizeof *plain * N);
    for (size_t c = 0; c < 10; c++) {
        bool seen[N] = {false};

        for (size_t i = 0; i < N; i++) {
            assert_false(seen[order[c * N + i]]);
            seen[order[c * N + i]] = true;
        }
        for (size_t other = 0; other < c; other++)
            assert_memory_not_equal(&order[c * N], &order[other * N], sizeof *order * N);
    }
}

/* ---- any kind: sharding, batching and seeking on top ---------------------------------------- */

static const struct plan_params kinds[] = {
    {.length = 37, .order = PLAN_TORCH, .num_samples = 100},
    {.length = 37, .order = PLAN_NATIVE, .num_samples = 100},
    {.length = 37, .order = PLAN_NATIVE, .block = 5, .window = 3},
    {.length = 37, .order = PLAN_TORCH, .num_samples = 5},
    {.length = 37, .order = PLAN_NATIVE, .num_samples = 5},
    {.length = 37, .order = PLAN_TORCH, .replacement = true},
    {.length = 37, .order = PLAN_NATIVE, .replacement = true, .num_samples = 90},
    {.length = 10, .order = PLAN_TORCH, LISTED(five)},
    {.length = 10, .order = PLAN_NATIVE, LISTED(five)},
    {.length = 10, .order = PLAN_SEQUENTIAL, LISTED(five)},
    {.length = 10, .order = PLAN_SEQUENTIAL, .sampler = PLAN_INDICES, .indices = five},
    {.length = 10, .order = PLAN_TORCH, .sampler = PLAN_INDICES},
    {.order = PLAN_TORCH, .num_samples = 50, WEIGHTED(six)},
    {.order = PLAN_NATIVE, .num_samples = 50, WEIGHTED(six)},
    {.length = 6, .order = PLAN_NATIVE, WEIGHED(six)},
    {.length = 6, .order = PLAN_NATIVE, WEIGHED(six), .num_samples = 4},
};

static uint64_t count_of(const struct plan_params *params)
{
    return params->sampler == PLAN_INDICES
               ? params->n_indices
               : (params->num_samples ? params->num_samples : params->length);
}

/* Every step against the whole order, last step first in one plan and first step first in another.
 */
static void check_steps(struct plan_params params, const uint64_t *order, uint64_t count)
{
    _cleanup_plan_ struct plan *forward = make(params);
    _cleanup_plan_ struct plan *backward = make(params);

    for (uint64_t rank = 0; rank < params.world; rank++) {
        uint64_t steps = plan_steps(forward, rank);

        for (uint64_t i = 0; i < 2 * steps; i++) {
            struct plan *plan = i < steps ? forward : backward;
            uint64_t step = i < steps ? i : 2 * steps - 1 - i, got[MAX];
            size_t n = plan_step(plan, rank, step, got);

            assert_int_equal(plan_backlog(plan, rank, step), 0);
            for (size_t k = 0; k < n; k++) {
                uint64_t at = (step * params.batch_size + k) * params.world + rank;
                assert_int_equal(got[k], order[at % count]);
            }
        }
    }
}

TEST(test_every_kind)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        for (uint64_t world = 1; world < 5; world++) {
            for (unsigned bits = 0; bits < 8; bits++) {
                struct plan_params params = kinds[i];
                uint64_t order[MAX], count = count_of(&params);

                params.seed = 5;
                params.epoch = bits;
                params.world = world;
                params.batch_size = bits & 1 ? 7 : 1;
                params.even = bits & 2;
                params.drop_last = bits & 4;
                assert_int_equal(whole(params, order), count);
                for (uint64_t k = 0; k < count; k++)
                    assert_true(order[k] < params.length);
                if (count > 0)
                    check_steps(params, order, count);
            }
        }
    }
}

/* torch's seed is one sum; the native one has seed, epoch and length apart. */
TEST(test_seeds)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct plan_params params = kinds[i];
        uint64_t base[MAX], swapped[MAX], same[MAX];
        uint64_t bytes = count_of(&params) * sizeof *base;

        params.seed = 3;
        params.epoch = 9;
        whole(params, base);
        whole(params, same);
        params.seed = 9;
        params.epoch = 3;
        whole(params, swapped);
        assert_memory_equal(base, same, bytes);
        assert_int_equal(memcmp(base, swapped, bytes) == 0, params.order != PLAN_NATIVE);
    }
}

/* The plan has copies: the description may go. */
TEST(test_lists_are_copied)
{
    for (unsigned way = 0; way < 3; way++) {
        uint64_t indices[] = {4, 2, 0}, want[MAX], got[4];
        double weights[] = {1, 0, 1, 5, 1};
        struct plan_params params = {.length = 5, .order = PLAN_NATIVE, .batch_size = 3};

        if (way == 0) {
            params.sampler = PLAN_INDICES;
            params.indices = indices;
            params.n_indices = 3;
        } else {
            params.weights = weights;
            params.num_samples = 3;
            params.replacement = way == 1;
        }
        whole(params, want);
        _cleanup_plan_ struct plan *plan = make(params);
        memset(indices, 0xFF, sizeof indices);
        memset(weights, 0xFF, sizeof weights);
        assert_int_equal(plan_step(plan, 0, 0, got), 3);
        assert_memory_equal(got, want, 3 * sizeof *got);
    }
}

TEST(test_backlog)
{
    uint64_t indices[10];
    double weights[1000];

    for (size_t i = 0; i < ARRAY_SIZE(weights); i++)
        weights[i] = 1 + (double)i;
    struct plan_params params = {.length = 1000,
                                 .order = PLAN_TORCH,
                                 .num_samples = 5000,
                                 .batch_size = 10,
                                 .replacement = true};
    for (int weighted = 0; weighted < 2; weighted++) {
        params.sampler = weighted ? PLAN_WEIGHTS : PLAN_SAMPLES;
        params.weights = weights;
        _cleanup_plan_ struct plan *plan = make(params);
        assert_int_equal(plan_backlog(plan, 0, 0), 10);
        assert_int_equal(plan_backlog(plan, 0, 499), 5000);
        plan_step(plan, 0, 99, indices);
        assert_int_equal(plan_backlog(plan, 0, 50), 0);
        assert_int_equal(plan_backlog(plan, 0, 499), 4000);
    }
    params.replacement = false;
    params.num_samples = 0;
    params.order = PLAN_NATIVE;
    _cleanup_plan_ struct plan *sorted = make(params);
    assert_in_range(plan_backlog(sorted, 0, 0), 1000, 100000);
    plan_step(sorted, 0, 0, indices);
    assert_int_equal(plan_backlog(sorted, 0, 99), 0);
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Each sample once; so many blocks at a time as a window has, and the one that is shorter, in any
 * of its places; other epochs and seeds have other orders. */
TEST(test_blocks)
{
    static const struct {
        uint64_t length, block, window;
    } rows[] = {{1, 1, 1},    {7, 7, 3},      {10, 3, 1},    {10, 3, 2},     {10, 3, 4},
                {12, 3, 2},   {100, 7, 4},    {4096, 64, 8}, {4095, 64, 8},  {4000, 999, 2},
                {5, 99, 99},  {999, 1, 10},   {64, 1, 64},   {1000, 500, 1}, {1001, 500, 2},
                {3, 2, 1000}, {4096, 4095, 1}};
    uint64_t order[MAX], other[MAX];
    uint8_t seen[MAX];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (uint64_t epoch = 0; epoch < 20; epoch++) {
            struct plan_params params = {.length = rows[i].length,
                                         .order = PLAN_NATIVE,
                                         .block = rows[i].block,
                                         .window = rows[i].window,
                                         .seed = 5,
                                         .epoch = epoch};
            uint64_t block = min_u64(rows[i].block, rows[i].length), places = 0, last = UINT64_MAX;
            uint64_t blocks = (rows[i].length + block - 1) / block;
            assert_int_equal(whole(params, order), rows[i].length);
            memset(seen, 0, sizeof seen);
            for (uint64_t k = 0; k < rows[i].length; k++) {
                assert_in_range(order[k], 0, rows[i].length - 1);
                assert_int_equal(seen[order[k]]++, 0);
            }
            /* In as many positions as a block has: two windows, and the block that is shorter. */
            for (uint64_t k = 0; k + block <= rows[i].length; k++) {
                uint64_t mask[MAX / 64 + 1] = {0}, n = 0;
                for (uint64_t p = k; p < k + block; p++) {
                    uint64_t b = order[p] / block;
                    n += !(mask[b / 64] >> (b % 64) & 1);
                    mask[b / 64] |= UINT64_C(1) << (b % 64);
                }
                assert_true(n <= min_u64(2 * min_u64(rows[i].window, blocks) + 1, blocks));
                if (block > 64)
                    k += block / 2;
            }
            for (uint64_t k = 0; k < rows[i].length; k++) {
                places += order[k] / block != last;
                last = order[k] / block;
            }
            if (rows[i].window == 1)
                assert_int_equal(places, blocks);
            params.epoch++;
            whole(params, other);
            if (rows[i].length > 60)
                assert_memory_not_equal(order, other, rows[i].length * sizeof *order);
        }
}

/* ---- the ends of the range ------------------------------------------------------------------ */

TEST(test_refused)
{
    static const double negative[] = {1, -1}, nan_weight[] = {NAN, 1}, infinite[] = {INFINITY, 1};
    static const double huge[] = {1e308, 1e308}, zero[] = {0, 0}, two[] = {1, 1}, one[] = {1};
    static const struct {
        struct plan_params params;
        int result;
    } rows[] = {
        {{.length = 5, .num_samples = 3}, -EINVAL},
        {{.length = 5, .replacement = true}, -EINVAL},
        {{.length = 6, WEIGHED(six)}, -EINVAL},
        {{.length = 6, .block = 2, .window = 1}, -EINVAL},
        {{.length = 6, .block = 2, .window = 1, .order = PLAN_TORCH}, -EINVAL},
        {{.length = 6, .block = 2, .order = PLAN_NATIVE}, -EINVAL},
        {{.length = 6, .block = 2, .window = 1, .order = PLAN_NATIVE, .num_samples = 6}, -EINVAL},
        {{.length = 20, LISTED(five), .block = 2, .window = 1, .order = PLAN_NATIVE}, -EINVAL},
        {{.length = 0, .block = 2, .window = 1, .order = PLAN_NATIVE}, 0},
        {{.length = 0, .num_samples = 1, .order = PLAN_TORCH}, -EINVAL},
        {{.length = 5, .num_samples = UINT64_C(1) << 63, .order = PLAN_NATIVE}, -EINVAL},
        {{.length = 5, LISTED(five)}, -EINVAL},
        {{.length = 9, LISTED(five), .order = PLAN_NATIVE}, -EINVAL},
        {{.length = 20, LISTED(five), .order = PLAN_NATIVE, .num_samples = 2}, -EINVAL},
        {{.length = 20, LISTED(five), .order = PLAN_TORCH, .replacement = true}, -EINVAL},
        {{.length = 5, .order = PLAN_NATIVE, .sampler = (enum plan_sampler)3}, -EINVAL},
        {{.order = PLAN_NATIVE, WEIGHTED(negative)}, -EINVAL},
        {{.order = PLAN_NATIVE, WEIGHTED(nan_weight)}, -EINVAL},
        {{.order = PLAN_NATIVE, WEIGHTED(infinite)}, -EINVAL},
        {{.order = PLAN_TORCH, WEIGHTED(huge)}, -EINVAL},
        {{.order = PLAN_TORCH, WEIGHTED(zero)}, -EINVAL},
        {{.length = 0, .order = PLAN_TORCH, WEIGHED(two), .replacement = true}, -EINVAL},
        {{.length = 2, .order = PLAN_TORCH, WEIGHED(two)}, -EINVAL},
        {{.order = PLAN_TORCH, WEIGHTED(two), .num_samples = 1}, -EINVAL},
        {{.length = 2, .order = PLAN_NATIVE, WEIGHED(two), .num_samples = 3}, -EINVAL},
        {{.order = PLAN_TORCH, WEIGHTED(one), .num_samples = 1}, 0},
        {{.length = 7, .order = PLAN_TORCH, .num_samples = INT64_MAX}, -ENOMEM},
        {{.length = INT64_MAX, .order = PLAN_TORCH, .num_samples = 5}, -ENOMEM},
        {{.length = 7, .order = PLAN_TORCH, .num_samples = INT64_MAX, .replacement = true},
         -ENOMEM},
        {{.length = UINT64_C(1) << 40,
          .order = PLAN_TORCH,
          .num_samples = UINT64_C(1) << 61,
          .replacement = true},
         -ENOMEM},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan_params params = rows[i].params;
        struct plan *plan = NULL;

        params.world = 1;
        assert_int_equal(plan_new(&params, &plan), rows[i].result);
        assert_int_equal(plan == NULL, rows[i].result < 0);
        plan_free(plan);
    }
}

TEST(test_no_memory)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct plan_params params = kinds[i];
        int r, k = 0;

        params.world = 1;
        do {
            struct plan *plan = NULL;

            fail_in = k++;
            r = plan_new(&params, &plan);
            assert_int_equal(r, fail_in < 0 ? -ENOMEM : 0);
            fail_in = -1;
            assert_int_equal(plan == NULL, r < 0);
            plan_free(plan);
        } while (r < 0);
        assert_in_range(k, 3, 8);
    }
}

/* A trillion draws from a trillion samples: any of them at once, the same each time. */
TEST(test_trillion)
{
    const uint64_t n = UINT64_C(1000000000000);
    static const struct plan_params rows[] = {
        {.length = UINT64_C(1000000000000), .order = PLAN_NATIVE, .replacement = true},
        {.length = UINT64_C(300000000007), .order = PLAN_NATIVE},
        {.order = PLAN_NATIVE, WEIGHTED(six)},
        {.length = 3, .order = PLAN_NATIVE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan_params params = rows[i];
        uint64_t last[4], again[4], first[4];

        params.num_samples = n;
        params.batch_size = 4;
        _cleanup_plan_ struct plan *plan = make(params);
        assert_int_equal(plan_steps(plan, 0), n / 4);
        plan_step(plan, 0, n / 4 - 1, last);
        plan_step(plan, 0, 0, first);
        plan_step(plan, 0, n / 4 - 1, again);
        assert_memory_equal(last, again, sizeof last);
        for (size_t k = 0; k < 4; k++)
            assert_true(first[k] < params.length && last[k] < params.length);
    }
}

/* ---- statistics, of fixed seeds ------------------------------------------------------------- */

/* How many standard deviations chi-square is from what chance gives. */
static double deviates(const uint64_t *counts, const double *shares, size_t cells, double draws)
{
    double chi = 0;
    size_t used = 0;

    for (size_t i = 0; i < cells; i++) {
        double expected = shares[i] * draws;

        if (expected == 0) {
            assert_int_equal(counts[i], 0);
            continue;
        }
        chi += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
        used++;
    }
    return (chi - (double)(used - 1)) / sqrt(2 * (double)(used - 1));
}

TEST(test_native_draws_are_uniform)
{
    enum { N = 60, DRAWS = 200 * MAX };
    static uint64_t values[N], pairs[N * N];
    static double share[N * N];
    uint64_t order[MAX], before = N;

    for (uint64_t epoch = 0; epoch < DRAWS / MAX; epoch++) {
        whole((struct plan_params){.length = N,
                                   .order = PLAN_NATIVE,
                                   .seed = 11,
                                   .epoch = epoch,
                                   .num_samples = MAX,
                                   .replacement = true},
              order);
        for (size_t i = 0; i < MAX; i++) {
            values[order[i]]++;
            if (before < N)
                pairs[before * N + order[i]]++;
            before = order[i];
        }
    }
    for (size_t i = 0; i < N * N; i++)
        share[i] = 1.0 / (N * N);
    assert_true(fabs(deviates(pairs, share, N * N, DRAWS - 1)) < 4);
    for (size_t i = 0; i < N; i++)
        share[i] = 1.0 / N;
    assert_true(fabs(deviates(values, share, N, DRAWS)) < 4);
    values[7] += DRAWS / N / 10; /* the test can tell */
    assert_false(fabs(deviates(values, share, N, DRAWS)) < 4);
}

TEST(test_native_weights)
{
    enum { DRAWS = 100 * MAX };
    uint64_t counts[5] = {0}, order[MAX];
    static const double share[5] = {0, 2.0 / 3, 0, 1.0 / 3, 0}, even[5] = {0, .5, 0, .5, 0};

    for (uint64_t epoch = 0; epoch < DRAWS / MAX; epoch++) {
        whole((struct plan_params){.order = PLAN_NATIVE,
                                   .seed = 12,
                                   .epoch = epoch,
                                   .num_samples = MAX,
                                   WEIGHTED(holes)},
              order);
        for (size_t i = 0; i < MAX; i++)
            counts[order[i]]++;
    }
    assert_true(fabs(deviates(counts, share, 5, DRAWS)) < 4);
    assert_false(fabs(deviates(counts, even, 5, DRAWS)) < 4);
}

/* Each order of three comes as often as drawing one after the other makes it; 0 comes last. */
TEST(test_native_weights_without_replacement)
{
    enum { TRIES = 60000 };
    static const double weights[] = {1, 0, 2, 5};
    uint64_t counts[16] = {0}, order[MAX];
    double share[16] = {0};

    for (size_t a = 0; a < 4; a++)
        for (size_t b = 0; b < 4; b++)
            if (a != b && a != 1 && b != 1)
                share[a * 4 + b] = weights[a] / 8 * weights[b] / (8 - weights[a]);
    for (uint64_t epoch = 0; epoch < TRIES; epoch++) {
        assert_int_equal(whole((struct plan_params){.length = 4,
                                                    .order = PLAN_NATIVE,
                                                    .seed = 13,
                                                    .epoch = epoch,
                                                    WEIGHED(weights)},
                               order),
                         4);
        assert_int_equal(order[3], 1);
        assert_int_equal(order[0] + order[1] + order[2], 5);
        counts[order[0] * 4 + order[1]]++;
    }
    assert_true(fabs(deviates(counts, share, 16, TRIES)) < 4);
}
