/*
 * The plan: DistributedSampler's table, a naive second implementation over many shapes, and the
 * arithmetic at the ends of the range.
 */
#include "daemon/plan/plan.h"

#include <errno.h>

#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

static struct plan *make(struct plan_params params)
{
    struct plan *plan = NULL;

    assert_int_equal(plan_new(&params, &plan), 0);
    return plan;
}

#define _cleanup_plan_ _cleanup_(plan_freep)

/* ---- vectors ---- */

/* torch.utils.data.DistributedSampler's ranks, as digits; for `even: false` the slices by hand. */
TEST(test_distributed_sampler_table)
{
    static const struct {
        uint64_t length, world;
        enum plan_order order;
        bool even;
        uint64_t seed, epoch;
        const char *ranks[8];
    } rows[] = {
        {10, 3, PLAN_SEQUENTIAL, true, 0, 0, {"0369", "1470", "2581"}},
        {10, 4, PLAN_SEQUENTIAL, true, 0, 0, {"048", "159", "260", "371"}},
        {2, 3, PLAN_SEQUENTIAL, true, 0, 0, {"0", "1", "0"}},
        {1, 5, PLAN_SEQUENTIAL, true, 0, 0, {"0", "0", "0", "0", "0"}},
        {3, 8, PLAN_SEQUENTIAL, true, 0, 0, {"0", "1", "2", "0", "1", "2", "0", "1"}},
        {10, 3, PLAN_TORCH, true, 42, 0, {"2807", "6492", "1536"}},
        {10, 3, PLAN_TORCH, true, 40, 2, {"2807", "6492", "1536"}},
        {10, 3, PLAN_TORCH, true, UINT64_MAX, 43, {"2807", "6492", "1536"}},
        {10, 3, PLAN_TORCH, true, UINT64_C(42) << 32 | 2, 40, {"2807", "6492", "1536"}},
        {10, 1, PLAN_TORCH, true, 42, 0, {"2618450937"}},
        {10, 1, PLAN_TORCH, false, 42, 0, {"2618450937"}},
        {10, 3, PLAN_SEQUENTIAL, false, 0, 0, {"0369", "147", "258"}},
        {10, 3, PLAN_TORCH, false, 42, 0, {"2807", "649", "153"}},
        {3, 8, PLAN_SEQUENTIAL, false, 0, 0, {"0", "1", "2", "", "", "", "", ""}},
        {0, 3, PLAN_SEQUENTIAL, true, 0, 0, {"", "", ""}},
        {0, 3, PLAN_TORCH, false, 0, 0, {"", "", ""}},
        {0, 1, PLAN_NATIVE, true, 0, 0, {""}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_plan_ struct plan *plan = make((struct plan_params){
            .length = rows[i].length,
            .order = rows[i].order,
            .seed = rows[i].seed,
            .epoch = rows[i].epoch,
            .world = rows[i].world,
            .batch_size = 0,
            .even = rows[i].even,
        });

        for (uint64_t rank = 0; rank < rows[i].world; rank++) {
            char digits[16] = "";
            uint64_t steps = plan_steps(plan, rank);

            assert_int_equal(steps, strlen(rows[i].ranks[rank]));
            assert_int_equal(plan_samples(plan, rank), steps);
            for (uint64_t step = 0; step < steps; step++) {
                uint64_t index;

                assert_int_equal(plan_step(plan, rank, step, &index), 1);
                digits[step] = (char)('0' + index);
            }
            assert_string_equal(digits, rows[i].ranks[rank]);
        }
    }
}

TEST(test_batches)
{
    static const struct {
        uint64_t batch_size;
        bool drop_last;
        uint64_t steps;
        size_t last;
    } rows[] = {
        {0, false, 10, 1},
        {0, true, 10, 1},
        {1, true, 10, 1},
        {3, false, 4, 1},
        {3, true, 3, 3},
        {5, false, 2, 5},
        {5, true, 2, 5},
        {10, true, 1, 10},
        {11, false, 1, 10},
        {11, true, 0, 0},
        {UINT64_MAX, false, 1, 10},
        {UINT64_MAX, true, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_plan_ struct plan *plan = make((struct plan_params){
            .length = 10,
            .world = 1,
            .batch_size = rows[i].batch_size,
            .drop_last = rows[i].drop_last,
        });
        uint64_t indices[10], next = 0;
        size_t count = 0;

        assert_int_equal(plan_steps(plan, 0), rows[i].steps);
        assert_int_equal(plan_samples(plan, 0), 10);
        for (uint64_t step = 0; step < rows[i].steps; step++) {
            count = plan_step(plan, 0, step, indices);
            for (size_t j = 0; j < count; j++)
                assert_int_equal(indices[j], next++);
        }
        assert_int_equal(count, rows[i].last);
    }
}

/* What all ranks have of a step is one batch, and each rank's part of it is what it has alone. */
TEST(test_dispatch)
{
    static const enum plan_order orders[] = {PLAN_SEQUENTIAL, PLAN_TORCH, PLAN_NATIVE};

    for (unsigned flags = 0; flags < 12; flags++)
        for (uint64_t length = 0; length < 30; length++) {
            _cleanup_plan_ struct plan *plan = make((struct plan_params){.length = length,
                                                                         .order = orders[flags / 4],
                                                                         .seed = 7,
                                                                         .world = 3,
                                                                         .batch_size = 4,
                                                                         .shard = PLAN_DISPATCH,
                                                                         .drop_last = flags & 1,
                                                                         .even = flags & 2});
            uint64_t all[12], part[12], samples = 0;

            for (uint64_t step = 0; step < plan_steps(plan, PLAN_ALL); step++) {
                size_t n = plan_step(plan, PLAN_ALL, step, all);
                uint64_t done = 0, repeated = 0;
                assert_in_range(n, 1, plan_most(plan));
                for (uint64_t rank = 0; rank < 3 && step < plan_steps(plan, rank); rank++) {
                    struct plan_slice slice = plan_slice(plan, rank, step);
                    assert_int_equal(plan_step(plan, rank, step, part), slice.samples);
                    assert_int_equal(slice.first, done);
                    assert_memory_equal(part, all + slice.first, slice.samples * sizeof *part);
                    done += slice.samples;
                    repeated += plan_repeated(plan, rank, step);
                }
                assert_int_equal(done, n);
                assert_int_equal(plan_repeated(plan, PLAN_ALL, step), repeated);
                samples += n;
            }
            assert_int_equal(samples, plan_samples(plan, PLAN_ALL));
        }
}

/* ---- against a naive implementation ---- */

enum { MAX_LENGTH = 300, MAX_WORLD = 11 };

/* The whole epoch's order, from a plan that does nothing else. */
static void whole_order(struct plan_params params, uint64_t *order)
{
    params.world = 1;
    params.batch_size = MAX_LENGTH;
    params.drop_last = false;
    _cleanup_plan_ struct plan *plan = make(params);

    if (params.length > 0)
        assert_int_equal(plan_step(plan, 0, 0, order), params.length);
}

/* What rank r gets, list by list as torch's Python writes it. Returns how many. */
static size_t naive_rank(const struct plan_params *params, const uint64_t *order, uint64_t rank,
                         uint64_t *ret)
{
    uint64_t padded[MAX_LENGTH + MAX_WORLD];
    size_t total = 0, count = 0;

    for (; total < params->length; total++)
        padded[total] = order[total];
    for (size_t j = 0; params->even && params->length > 0 && total % params->world != 0; j++)
        padded[total++] = order[j % params->length];
    for (size_t i = rank; i < total; i += params->world)
        ret[count++] = padded[i];
    if (params->drop_last && params->batch_size > 1)
        count -= count % params->batch_size;
    return count;
}

/* Each step alone, in a plan of its own; then all in turn; then backwards. */
static void check_rank(const struct plan_params *params, struct plan *plan, uint64_t rank,
                       const uint64_t *expected, size_t count)
{
    uint64_t size = max_u64(params->batch_size, 1), steps = (count + size - 1) / size;
    uint64_t indices[MAX_LENGTH];

    assert_int_equal(plan_steps(plan, rank), steps);
    for (uint64_t i = 0; i < 2 * steps; i++) {
        uint64_t step = i < steps ? i : 2 * steps - 1 - i;
        size_t n = min_u64(size, count - step * size);

        assert_int_equal(plan_step(plan, rank, step, indices), n);
        assert_memory_equal(indices, expected + step * size, n * sizeof *indices);
        assert_int_equal(plan_backlog(plan, rank, step), 0);
    }
    for (uint64_t step = 0; step < steps; step += 1 + steps / 4) {
        _cleanup_plan_ struct plan *fresh = make(*params);
        size_t n = plan_step(fresh, rank, step, indices);

        assert_memory_equal(indices, expected + step * size, n * sizeof *indices);
    }
}

static void check_params(const struct plan_params *params)
{
    uint64_t order[MAX_LENGTH], expected[MAX_LENGTH];
    unsigned seen[MAX_LENGTH] = {0};
    size_t total = 0;
    _cleanup_plan_ struct plan *plan = make(*params);

    whole_order(*params, order);
    for (uint64_t rank = 0; rank < params->world; rank++) {
        size_t count = naive_rank(params, order, rank, expected);

        check_rank(params, plan, rank, expected, count);
        for (size_t i = 0; i < count; i++)
            seen[expected[i]]++;
        total += count;
    }
    if (params->drop_last && params->batch_size > 1)
        return;
    /* Each sample once, and as evenly more often as the padding needs. */
    for (uint64_t i = 0; i < params->length; i++)
        assert_in_range(seen[i], total / params->length,
                        (total + params->length - 1) / params->length);
    if (!params->even)
        assert_int_equal(total, params->length);
}

TEST(test_every_shape)
{
    static const uint64_t lengths[] = {0, 1, 2, 3, 5, 8, 10, 64, 65, 100, 257, MAX_LENGTH};
    static const uint64_t worlds[] = {1, 2, 3, 7, MAX_WORLD};
    static const uint64_t sizes[] = {0, 1, 2, 3, 16, 65, 400};

    for (size_t l = 0; l < ARRAY_SIZE(lengths); l++)
        for (size_t w = 0; w < ARRAY_SIZE(worlds); w++)
            for (size_t b = 0; b < ARRAY_SIZE(sizes); b++)
                for (unsigned bits = 0; bits < 12; bits++)
                    check_params(&(struct plan_params){
                        .length = lengths[l],
                        .order = (enum plan_order)(bits / 4),
                        .seed = l * 1000 + w,
                        .epoch = b,
                        .world = worlds[w],
                        .batch_size = sizes[b],
                        .drop_last = bits & 1,
                        .even = bits & 2,
                    });
}

/* Where ranks are even, the last step is the same for all, so that none waits for others' sums. */
TEST(test_even_ranks_end_together)
{
    static const enum plan_shard modes[] = {PLAN_STRIDED, PLAN_BATCH, PLAN_SPLIT};

    for (uint64_t length = 0; length < 60; length++)
        for (uint64_t world = 1; world < 6; world++)
            for (unsigned bits = 0; bits < 24; bits++) {
                enum plan_shard mode = modes[bits / 8];
                uint64_t size = 1 + bits / 2 % 4;
                _cleanup_plan_ struct plan *plan = make(
                    (struct plan_params){.length = length,
                                         .order = PLAN_NATIVE,
                                         .world = world,
                                         .batch_size = mode == PLAN_SPLIT ? size * world : size,
                                         .drop_last = bits & 1,
                                         .shard = mode,
                                         .even = true});

                for (uint64_t rank = 1; rank < world; rank++)
                    assert_int_equal(plan_steps(plan, rank), plan_steps(plan, 0));
            }
}

/* ---- seeds ---- */

TEST(test_seed_and_epoch)
{
    static const struct {
        enum plan_order order;
        uint64_t seed, epoch;
        bool same; /* as seed 5, epoch 7 */
    } rows[] = {
        {PLAN_TORCH, 5, 7, true},
        {PLAN_TORCH, 7, 5, true},
        {PLAN_TORCH, 12, 0, true},
        {PLAN_TORCH, UINT64_MAX, 13, true},
        {PLAN_TORCH, (UINT64_C(1) << 32) + 5, 7, true},
        {PLAN_TORCH, 5, 8, false},
        {PLAN_NATIVE, 5, 7, true},
        {PLAN_NATIVE, 7, 5, false},
        {PLAN_NATIVE, 12, 0, false},
        {PLAN_NATIVE, (UINT64_C(1) << 32) + 5, 7, false},
        {PLAN_NATIVE, 5, 8, false},
        {PLAN_SEQUENTIAL, 1, 2, true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan_params params = {.length = 100, .order = rows[i].order, .seed = 5, .epoch = 7};
        uint64_t base[MAX_LENGTH], order[MAX_LENGTH];

        whole_order(params, base);
        params.seed = rows[i].seed;
        params.epoch = rows[i].epoch;
        whole_order(params, order);
        assert_int_equal(memcmp(base, order, 100 * sizeof *base) == 0, rows[i].same);
    }
}

/* ---- cost ---- */

TEST(test_backlog)
{
    uint64_t indices[100];
    struct plan_params params = {
        .length = 100000, .order = PLAN_TORCH, .world = 4, .batch_size = 100, .even = true};
    _cleanup_plan_ struct plan *torch = make(params);

    /* Step 0 of rank 0 reaches to element 396. */
    assert_int_equal(plan_backlog(torch, 0, 0), 397);
    assert_int_equal(plan_backlog(torch, 3, 0), 400);
    assert_int_equal(plan_backlog(torch, 3, 249), 100000);
    assert_int_equal(plan_step(torch, 3, 0, indices), 100);
    assert_int_equal(plan_backlog(torch, 0, 0), 0);
    assert_in_range(plan_backlog(torch, 3, 249), 99000, 100000 - 400);
    assert_int_equal(plan_step(torch, 3, 249, indices), 100);
    for (uint64_t step = 0; step < 250; step++)
        assert_int_equal(plan_backlog(torch, 1, step), 0);

    for (unsigned order = 0; order < 3; order++) {
        if (order == PLAN_TORCH)
            continue;
        params.order = (enum plan_order)order;
        _cleanup_plan_ struct plan *plan = make(params);
        for (uint64_t step = 0; step < 250; step++)
            assert_int_equal(plan_backlog(plan, 2, step), 0);
    }
}

/* Padding can stand at the start of the order: more ranks than samples. */
TEST(test_backlog_of_padding)
{
    _cleanup_plan_ struct plan *plan = make((struct plan_params){
        .length = 3, .order = PLAN_TORCH, .world = 8, .batch_size = 4, .even = true});
    uint64_t indices[4];

    for (uint64_t rank = 0; rank < 8; rank++) {
        assert_in_range(plan_backlog(plan, rank, 0), 0, 3);
        assert_int_equal(plan_step(plan, rank, 0, indices), 1);
        assert_int_equal(plan_backlog(plan, rank, 0), 0);
    }
}

/* ---- the ends of the range ---- */

TEST(test_refused)
{
    static const struct {
        struct plan_params params;
        int result;
    } rows[] = {
        {{.length = 10, .world = 0}, -EINVAL},
        {{.length = UINT64_C(1) << 63, .world = 1}, -EINVAL},
        {{.length = UINT64_MAX, .world = 1, .order = PLAN_NATIVE}, -EINVAL},
        {{.length = 10, .world = 1, .order = (enum plan_order)3}, -EINVAL},
        {{.length = UINT64_MAX >> 1, .world = 1, .order = PLAN_TORCH}, -ENOMEM},
        {{.length = UINT64_C(1) << 50, .world = 1, .order = PLAN_TORCH}, -ENOMEM},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan *plan = NULL;

        assert_int_equal(plan_new(&rows[i].params, &plan), rows[i].result);
        assert_null(plan);
    }
    assert_null(plan_free(NULL));
}

TEST(test_no_memory)
{
    static const unsigned allocations[] = {
        [PLAN_SEQUENTIAL] = 2, [PLAN_NATIVE] = 2, [PLAN_TORCH] = 4};

    for (unsigned order = 0; order < ARRAY_SIZE(allocations); order++) {
        struct plan_params params = {.length = 10, .world = 1, .order = (enum plan_order)order};
        struct plan *plan = NULL;

        for (unsigned k = 0; k < allocations[order]; k++) {
            fail_in = (int)k;
            assert_int_equal(plan_new(&params, &plan), -ENOMEM);
            assert_int_equal(fail_in, -1);
            assert_null(plan);
        }
        fail_in = (int)allocations[order];
        assert_int_equal(plan_new(&params, &plan), 0);
        assert_int_equal(fail_in, 0);
        fail_in = -1;
        plan_free(plan);
    }
}

TEST(test_huge)
{
    const uint64_t n = UINT64_MAX >> 1; /* 2^63 - 1 = 7·7·73·127·337·92737·649657 */
    static const struct {
        uint64_t world, batch_size;
        bool drop_last, even;
        uint64_t rank, samples, steps;
        size_t last;
    } rows[] = {
        {1, 1, false, true, 0, UINT64_MAX >> 1, UINT64_MAX >> 1, 1},
        {1, 4, false, true, 0, UINT64_MAX >> 1, UINT64_C(1) << 61, 3},
        {1, 4, true, true, 0, UINT64_MAX >> 1, (UINT64_C(1) << 61) - 1, 4},
        {4, 1, false, true, 3, UINT64_C(1) << 61, UINT64_C(1) << 61, 1},
        {4, 1, false, false, 3, (UINT64_C(1) << 61) - 1, (UINT64_C(1) << 61) - 1, 1},
        {4, 1, false, false, 2, UINT64_C(1) << 61, UINT64_C(1) << 61, 1},
        {7, 8, false, true, 6, (UINT64_MAX >> 1) / 7, (UINT64_MAX >> 1) / 56 + 1, 1},
        {UINT64_MAX >> 1, 8, false, true, (UINT64_MAX >> 1) - 1, 1, 1, 1},
        {(UINT64_MAX >> 1) - 1, 8, false, true, 1, 2, 1, 2},
        {(UINT64_MAX >> 1) - 1, 8, false, false, 1, 1, 1, 1},
        {UINT64_MAX, 8, false, true, UINT64_MAX - 1, 1, 1, 1},
        {UINT64_MAX, 8, true, true, UINT64_MAX - 1, 1, 0, 0},
        {UINT64_MAX, 8, false, false, UINT64_MAX - 1, 0, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct plan_params params = {.length = n,
                                     .world = rows[i].world,
                                     .batch_size = rows[i].batch_size,
                                     .drop_last = rows[i].drop_last,
                                     .even = rows[i].even};
        uint64_t rank = rows[i].rank, steps = rows[i].steps, indices[8], shuffled[8];
        _cleanup_plan_ struct plan *plan = make(params);

        params.order = PLAN_NATIVE;
        _cleanup_plan_ struct plan *native = make(params);
        assert_int_equal(plan_samples(plan, rank), rows[i].samples);
        assert_int_equal(plan_steps(plan, rank), steps);
        if (steps == 0)
            continue;
        assert_int_equal(plan_step(plan, rank, steps - 1, indices), rows[i].last);
        uint64_t before = (steps - 1) * params.batch_size;
        for (size_t j = 0; j < rows[i].last; j++)
            assert_int_equal(indices[j], ((before + j) * params.world + rank) % n);
        assert_int_equal(plan_step(native, rank, steps - 1, shuffled), rows[i].last);
        for (size_t j = 0; j < rows[i].last; j++)
            assert_true(shuffled[j] < n);
    }
}

/* A trillion samples, shuffled: any step at once. */
TEST(test_trillion)
{
    _cleanup_plan_ struct plan *plan = make((struct plan_params){.length = UINT64_C(1000000000000),
                                                                 .order = PLAN_NATIVE,
                                                                 .seed = 7,
                                                                 .epoch = UINT64_C(1) << 40,
                                                                 .world = 5,
                                                                 .batch_size = 2});
    uint64_t indices[2];

    assert_int_equal(plan_steps(plan, 0), UINT64_C(100000000000));
    assert_int_equal(plan_step(plan, 0, 0, indices), 2);
    assert_int_equal(indices[0], UINT64_C(139320446485));
    assert_int_equal(indices[1], UINT64_C(157356276237));
    assert_int_equal(plan_step(plan, 4, UINT64_C(99999999999), indices), 2);
    assert_int_equal(indices[1], UINT64_C(83525373690));
}

/* Of an iterable dataset: as many steps as one worker with all of it would make. */
TEST(test_estimate)
{
    static const struct {
        enum plan_shard shard;
        bool drop_last;
        bool even;
        struct plan_extent want[3]; /* of each rank */
    } cases[] = {
        {PLAN_STRIDED, false, true, {{5, 3}, {5, 3}, {5, 3}}},
        {PLAN_STRIDED, false, false, {{5, 3}, {5, 3}, {5, 3}}}, /* what it divides is not known */
        {PLAN_STRIDED, true, true, {{5, 2}, {5, 2}, {5, 2}}},
        {PLAN_BATCH, false, true, {{6, 3}, {6, 3}, {6, 3}}},
        {PLAN_BATCH, false, false, {{5, 3}, {4, 2}, {4, 2}}},
        {PLAN_BATCH, true, true, {{4, 2}, {4, 2}, {4, 2}}},
        {PLAN_SPLIT, false, true, {{5, 5}, {5, 5}, {5, 5}}},
        {PLAN_SPLIT, false, false, {{5, 5}, {4, 4}, {4, 4}}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (uint64_t rank = 0; rank < 3; rank++) {
            struct plan_params params = {.length = 13,
                                         .world = 3,
                                         .batch_size = cases[i].shard == PLAN_SPLIT ? 3 : 2,
                                         .shard = cases[i].shard,
                                         .drop_last = cases[i].drop_last,
                                         .even = cases[i].even};
            struct plan_extent got = plan_estimate(&params, rank);
            assert_int_equal(got.samples, cases[i].want[rank].samples);
            assert_int_equal(got.steps, cases[i].want[rank].steps);
        }
}

/* Rows of a round that no plan knows are dealt as a plan deals its last one. */
TEST(test_rows)
{
    for (uint64_t samples = 1; samples < 12; samples++)
        for (uint64_t world = 1; world < 6; world++)
            for (uint64_t repeated = 0; repeated <= samples; repeated++) {
                uint64_t next = 0, again = 0;
                for (uint64_t rank = 0; rank < world; rank++) {
                    struct plan_rows rows = plan_rows(samples, repeated, world, rank);
                    assert_int_equal(rows.samples, samples / world + (rank < samples % world));
                    if (rows.samples > 0)
                        assert_int_equal(rows.first, next);
                    next += rows.samples;
                    uint64_t own = samples - repeated;
                    assert_int_equal(rows.repeated,
                                     next > own ? min_u64(next - own, rows.samples) : 0);
                    again += rows.repeated;
                }
                assert_int_equal(next, samples);
                assert_int_equal(again, repeated);
            }
}

/* ---- whether two are the same --------------------------------------------------------------- */

#ifdef __has_builtin
#if __has_builtin(__builtin_clear_padding)
#define HAVE_CLEAR_PADDING
#endif
#endif

#ifdef HAVE_CLEAR_PADDING
/* Each byte of base[offset..offset+n) tells two plans apart, where `used` says that it is none of
 * padding. */
static void check_compared(struct plan_params *base, size_t offset, const uint8_t *used, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct plan_params other = *base;

        ((uint8_t *)&other)[offset + i] ^= 1;
        if (used[i] && plan_params_equal(base, &other))
            fail_msg("nobody compares byte %zu of struct plan_params", offset + i);
    }
}

TEST(test_all_parameters_are_compared)
{
    struct plan_params params, base = {0};
    struct plan_tokens tokens;
    size_t history = offsetof(struct plan_params, before.stretches);

    memset(&params, 0xFF, sizeof params);
    memset(&tokens, 0xFF, sizeof tokens);
    /* gcc 12 loses its place behind an array: each side by itself. */
    __builtin_clear_padding(&params);
    __builtin_clear_padding(&tokens);
    base.before.n = DL_MAX_HISTORY; /* else what is behind the last stretch is nothing */
    /* Lists of changed weights are compared by what is in them: test_mix_changes.c, and
     * test_weight_changes.c. What a mix stands in is set while a plan is made, of none that is
     * compared. */
    memset(&params.mix.around, 0, sizeof params.mix.around);
    memset(&params.mix.changes, 0, sizeof params.mix.changes);
    memset(&params.changes, 0, sizeof params.changes);
    assert_true(plan_params_equal(&base, &base));
    check_compared(&base, 0, (uint8_t *)&params, history);
    check_compared(&base, offsetof(struct plan_params, tokens), (uint8_t *)&tokens, sizeof tokens);
    memset(&params, 0xFF, sizeof params);
    check_compared(&base, history, (uint8_t *)&params, sizeof base.before.stretches);
    assert_int_equal(history + sizeof base.before.stretches, offsetof(struct plan_params, tokens));
    assert_int_equal(sizeof params, offsetof(struct plan_params, tokens) + sizeof tokens);
}
#endif
