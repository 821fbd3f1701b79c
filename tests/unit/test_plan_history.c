/*
 * An epoch that other world sizes have begun: what is left of it, against a second implementation
 * that deals lists out by hand; and over random chains of changes, that each sample comes once.
 */
#include "tests/unit/plan_case.h"

#define PLAN_CHECK(condition) assert_true(condition)
#include "proto/codec.h"
#include "tests/lib/plan_check.h"

#include <errno.h>

enum {
    MOST = 80,
    BATCH = 24,
    RANKS = 6,
    CHAINS = 4000,
    TOKEN_CHAINS = 600,
    CARRY_CHAINS = 400,
    SAMPLES = 300
};

/* ---- the second implementation, of batches of samples --------------------------------------- */

struct list {
    uint64_t samples[4 * MOST + BATCH * RANKS];
    size_t n;
};

/* The sampler's order, as one rank gets it one by one. */
static void take_order(struct plan_params params, struct list *ret)
{
    params.world = params.batch_size = 1;
    params.shard = PLAN_STRIDED;
    params.drop_last = false;
    params.before.n = 0;
    _cleanup_plan_ struct plan *plan = prepared(params);

    ret->n = plan_steps(plan, 0);
    for (uint64_t step = 0; step < ret->n; step++)
        assert_int_equal(plan_step(plan, 0, step, &ret->samples[step]), 1);
}

/* Repeats the order's beginning, `cycle` samples of it, until there is a multiple of `multiple`. */
static void pad(struct list *rest, const struct list *order, size_t cycle, size_t multiple)
{
    for (size_t i = 0; rest->n > 0 && rest->n % multiple > 0; i++)
        rest->samples[rest->n++] = order->samples[i % cycle];
}

static size_t round_of(const struct plan_params *params)
{
    size_t size = max_u64(params->batch_size, 1);

    return params->shard == PLAN_SPLIT ? size : size * params->world;
}

/* What is dealt out of what is left: padded, or cut. */
static struct list dealt(const struct plan_params *params, const struct list *rest,
                         const struct list *order)
{
    struct list list = *rest;

    if (params->shard == PLAN_STRIDED) {
        if (params->even)
            pad(&list, order, order->n, params->world);
    } else if (params->drop_last) {
        list.n -= list.n % round_of(params);
    } else if (params->even) {
        bool dispatch = params->shard == PLAN_DISPATCH;
        pad(&list, order, min_u64(order->n, round_of(params)),
            dispatch ? params->world : round_of(params));
    }
    return list;
}

/* A rank's rows of a global batch of `n` samples: the first ranks have one more, if need be. */
static size_t rows_of(const struct plan_params *params, size_t n, uint64_t rank, size_t *ret_first)
{
    *ret_first = 0;
    for (uint64_t before = 0; before < rank; before++)
        *ret_first += n / params->world + (before < n % params->world);
    return n / params->world + (rank < n % params->world);
}

/* One step of one rank: returns how many samples, 0: there is no such step. */
static size_t deal(const struct plan_params *params, const struct list *list, uint64_t rank,
                   uint64_t step, uint64_t *ret)
{
    size_t size = round_of(params) / params->world, n = 0;
    size_t first = step * round_of(params) + rank * size, stride = 1;

    if (params->shard == PLAN_STRIDED) {
        first = step * round_of(params) + rank;
        stride = params->world;
    }
    if (params->shard == PLAN_DISPATCH) {
        size_t begin = step * round_of(params), left = begin < list->n ? list->n - begin : 0;
        size = rows_of(params, min_u64(left, round_of(params)), rank, &first);
        first += begin;
    }
    for (size_t at = first; n < size && at < list->n; at += stride)
        ret[n++] = list->samples[at];
    return params->shard == PLAN_STRIDED && params->drop_last && n < size ? 0 : n;
}

/* Takes the first steps of all ranks away; all that there is, where these were all steps. */
static void take_away(const struct plan_params *params, struct list *rest, const struct list *order,
                      uint64_t steps)
{
    uint64_t none[BATCH];
    struct list list = dealt(params, rest, order);
    size_t gone = min_u64(steps * round_of(params), rest->n);

    if (deal(params, &list, 0, steps, none) == 0)
        gone = rest->n;
    memmove(rest->samples, rest->samples + gone, (rest->n - gone) * sizeof rest->samples[0]);
    rest->n -= gone;
}

/* ---- chains of changes ---------------------------------------------------------------------- */

/* One of another number of ranks than that. */
static uint64_t other_world(const struct plan_params *params, uint64_t *random)
{
    uint64_t world;

    do
        world = 1 + below(random, RANKS);
    while (world == params->world ||
           (params->shard == PLAN_SPLIT && params->batch_size % world > 0));
    return world;
}

static struct plan_params random_params(uint64_t *random)
{
    static const uint64_t splits[] = {2, 4, 6, 12, 24};
    struct plan_params params = {.length = below(random, MOST),
                                 .order = (enum plan_order)below(random, 3),
                                 .seed = below(random, 100),
                                 .epoch = below(random, 5),
                                 .world = 1,
                                 .batch_size = below(random, 8),
                                 .drop_last = below(random, 2),
                                 .shard = (enum plan_shard)below(random, 4),
                                 .even = below(random, 2)};

    if (params.shard == PLAN_SPLIT)
        params.batch_size = splits[below(random, ARRAY_SIZE(splits))];
    if (params.order != PLAN_SEQUENTIAL && params.length > 0 && below(random, 3) == 0) {
        params.num_samples = 1 + below(random, MOST);
        params.replacement = below(random, 2);
    }
    params.world = other_world(&params, random);
    return params;
}

static void check_rest(const struct plan_params *params, const struct list *rest,
                       const struct list *order)
{
    struct list list = dealt(params, rest, order);
    _cleanup_plan_ struct plan *plan = prepared(*params);
    uint64_t want[BATCH], got[BATCH];

    for (uint64_t rank = 0; rank < params->world; rank++) {
        uint64_t steps = plan_steps(plan, rank);

        assert_int_equal(deal(params, &list, rank, steps, want), 0);
        for (uint64_t step = steps; step-- > 0;) {
            size_t n = deal(params, &list, rank, step, want);

            assert_true(n > 0 && n <= plan_most(plan));
            assert_int_equal(plan_step(plan, rank, step, got), n);
            assert_memory_equal(got, want, n * sizeof *got);
        }
    }
}

TEST(test_chains_of_changes)
{
    uint64_t random = 1;

    for (unsigned chain = 0; chain < CHAINS; chain++) {
        struct plan_params params = random_params(&random);
        struct list order, rest;

        take_order(params, &order);
        rest = order;
        for (unsigned change = 0; change < 4; change++) {
            uint64_t steps = 1 + below(&random, 4);

            check_rest(&params, &rest, &order);
            take_away(&params, &rest, &order, steps);
            assert_true(history_add(&params.before, params.world, steps));
            params.world = other_world(&params, &random);
        }
    }
}

/* Going on with the same world size is the same, whether the steps before are told or not. */
TEST(test_same_world_goes_on)
{
    uint64_t random = 2, whole_step[BATCH], rest_step[BATCH];

    for (unsigned i = 0; i < CHAINS; i++) {
        struct plan_params params = random_params(&random);
        _cleanup_plan_ struct plan *whole = prepared(params);
        uint64_t before = 1 + below(&random, 6);

        assert_true(history_add(&params.before, params.world, before));
        _cleanup_plan_ struct plan *rest = prepared(params);
        for (uint64_t rank = 0; rank < params.world; rank++) {
            uint64_t steps = plan_steps(whole, rank);

            assert_int_equal(plan_steps(rest, rank), steps > before ? steps - before : 0);
            for (uint64_t step = before; step < steps; step++) {
                size_t n = plan_step(whole, rank, step, whole_step);

                assert_int_equal(plan_step(rest, rank, step - before, rest_step), n);
                assert_memory_equal(rest_step, whole_step, n * sizeof *rest_step);
            }
        }
    }
}

/* No position before the rest is shuffled for anyone, and the last ones cost what they cost. */
TEST(test_native_order_is_reached_at_once)
{
    struct plan_params params = {.length = UINT64_C(1) << 40,
                                 .order = PLAN_NATIVE,
                                 .seed = 7,
                                 .world = 8,
                                 .batch_size = 256,
                                 .even = true,
                                 .before = {2, {{16, 1000000}, {3, 77777777}}}};
    _cleanup_plan_ struct plan *rest = prepared(params);
    uint64_t base = 16 * UINT64_C(256000000) + 3 * 256 * UINT64_C(77777777);
    uint64_t got[256], want[1];

    params.before.n = 0;
    params.world = params.batch_size = 1;
    _cleanup_plan_ struct plan *order = prepared(params);
    assert_int_equal(plan_steps(rest, 0), (params.length - base + 2047) / 2048);
    assert_int_equal(plan_backlog(rest, 7, 1000), 0);
    assert_int_equal(plan_step(rest, 3, 1000, got), 256);
    assert_int_equal(plan_step(order, 0, base + 1000 * 2048 + 3 + 8 * 255, want), 1);
    assert_int_equal(got[255], want[0]);
}

/* ---- batches of tokens ---------------------------------------------------------------------- */

static struct plan_params random_tokens(const uint32_t *lengths, uint64_t *random)
{
    return (struct plan_params){
        .length = below(random, SAMPLES),
        .order = (enum plan_order)below(random, 3),
        .seed = below(random, 100),
        .epoch = below(random, 5),
        .world = 1 + below(random, RANKS),
        .even = below(random, 2),
        .tokens = {.tokens = 32 + below(random, 64),
                   .lengths = lengths,
                   .strategy = (enum plan_strategy)below(random, 4),
                   .leftover = (enum plan_leftover)below(random, 2),
                   .truncate = below(random, 2),
                   .interval = 1 + below(random, 9),
                   .multiple = 1 + below(random, 3),
                   .row_length = 16 + below(random, 16),
                   .window = below(random, 4)},
    };
}

/* What all ranks get in the first steps comes off `wanted`. Returns whether these were all steps.
 */
static bool take_steps(const struct plan_params *params, uint64_t steps, uint32_t *wanted)
{
    _cleanup_plan_ struct plan *plan = prepared(*params);
    uint64_t got[1024], n_steps = plan_steps(plan, 0);

    for (uint64_t rank = 0; rank < params->world; rank++)
        for (uint64_t step = 0; step < min_u64(steps, plan_steps(plan, rank)); step++)
            for (size_t n = plan_step(plan, rank, step, got); n > 0; n--) {
                bool repeated = plan_totals(plan)->repeated > 0 && step == n_steps - 1;

                assert_true(wanted[got[n - 1]] > 0 || repeated);
                wanted[got[n - 1]] -= wanted[got[n - 1]] > 0;
            }
    return steps >= n_steps;
}

static void check_token_chain(struct plan_params params, uint32_t *wanted, uint64_t *random)
{
    for (unsigned change = 0; change < 3; change++) {
        uint64_t steps = 1 + below(random, 4), world = params.world;

        if (take_steps(&params, steps, wanted)) {
            assert_true(history_add(&params.before, world, steps));
            _cleanup_plan_ struct plan *nothing = prepared(params);
            assert_int_equal(plan_steps(nothing, 0), 0);
            assert_int_equal(plan_most(nothing), 0);
            return;
        }
        assert_true(history_add(&params.before, world, steps));
        while (params.world == world)
            params.world = 1 + below(random, RANKS);
        _cleanup_plan_ struct plan *plan = prepared(params);
        plan_check(&params, plan, wanted);
    }
}

TEST(test_chains_of_tokens)
{
    uint32_t lengths[SAMPLES], wanted[SAMPLES];
    uint64_t indices[SAMPLES], random = 3;

    for (unsigned chain = 0; chain < TOKEN_CHAINS; chain++) {
        struct plan_params params = random_tokens(lengths, &random);
        bool twice = below(&random, 4) == 0;

        if (params.tokens.strategy == PLAN_PACK && params.tokens.leftover == PLAN_EMIT)
            params.tokens.lazy = below(&random, 2) ? 0 : 1 + below(&random, SAMPLES);

        text_like(lengths, SAMPLES, 40, chain);
        for (uint64_t i = 0; i < params.length; i++) {
            wanted[i] = twice ? 0 : 1;
            indices[i] = below(&random, (uint32_t)params.length);
        }
        for (uint64_t i = 0; twice && i < params.length; i++)
            wanted[indices[i]]++;
        if (twice) {
            params.sampler = PLAN_INDICES;
            params.indices = indices;
            params.n_indices = params.length;
        }
        check_token_chain(params, wanted, &random);
    }
}

/* ---- what epochs leave for the next --------------------------------------------------------- */

/* How often each sample came in all epochs before `epochs`, of that world size from the first on.
 */
static void count_epochs(struct plan_params params, uint64_t world, uint64_t epochs, uint32_t *ret)
{
    memset(ret, 0, SAMPLES * sizeof *ret);
    params.world = world;
    params.before.n = 0;
    for (params.epoch = 0; params.epoch < epochs; params.epoch++) {
        _cleanup_plan_ struct plan *plan = prepared(params);
        uint64_t got[1024];

        for (uint64_t rank = 0; rank < world; rank++)
            for (uint64_t step = 0; step < plan_steps(plan, rank); step++)
                for (size_t n = plan_step(plan, rank, step, got); n > 0; n--)
                    ret[got[n - 1]]++;
    }
}

/* `wanted`: how often each sample is in the epoch, with what was carried into it, and not yet
 * taken. The rest that one more world size gets is that, but for what its own next epoch begins
 * with. */
static void check_carried_rest(const struct plan_params *params, const uint32_t *wanted)
{
    uint32_t by_next[SAMPLES], left[SAMPLES];
    uint64_t leftover = 0;
    _cleanup_plan_ struct plan *plan = prepared(*params);

    count_epochs(*params, params->world, params->epoch + 1, by_next);
    memcpy(left, wanted, sizeof left);
    take_steps(params, UINT64_MAX, left);
    for (uint64_t i = 0; i < params->length; i++) {
        uint64_t tail = params->epoch + 1 - by_next[i];

        assert_int_equal(left[i], min_u64(wanted[i], tail));
        leftover += left[i];
    }
    assert_int_equal(plan_totals(plan)->leftover, leftover);
}

TEST(test_chains_that_carry)
{
    uint32_t lengths[SAMPLES], wanted[SAMPLES];
    uint64_t random = 4;
    unsigned checked = 0;

    for (unsigned chain = 0; chain < CARRY_CHAINS; chain++) {
        struct plan_params params = random_tokens(lengths, &random);

        text_like(lengths, SAMPLES, 30, chain);
        params.even = false;
        params.tokens.strategy = PLAN_BUCKET;
        params.tokens.leftover = PLAN_CARRY;
        params.tokens.truncate = true;
        count_epochs(params, params.world, params.epoch, wanted);
        for (uint64_t i = 0; i < params.length; i++)
            wanted[i] = (uint32_t)params.epoch + 1 - wanted[i];
        for (unsigned change = 0; change < 3; change++, checked++) {
            uint64_t steps = 1 + below(&random, 3), world = params.world;
            bool all = take_steps(&params, steps, wanted);

            assert_true(history_add(&params.before, world, steps));
            while (params.world == world)
                params.world = 1 + below(&random, RANKS);
            if (all) {
                _cleanup_plan_ struct plan *nothing = prepared(params);
                assert_int_equal(plan_steps(nothing, 0), 0);
                break;
            }
            check_carried_rest(&params, wanted);
        }
    }
    assert_true(checked > CARRY_CHAINS);
}

/* ---- what cannot be ------------------------------------------------------------------------- */

TEST(test_refused)
{
    struct plan *plan = NULL;
    struct plan_params params = {
        .length = 4, .world = 2, .batch_size = 6, .shard = PLAN_SPLIT, .before = {1, {{4, 1}}}};

    assert_int_equal(plan_new(&params, &plan), -EINVAL); /* 6 for 4 ranks */
    params.shard = PLAN_BATCH;
    params.before.stretches[0].world = 0;
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    params.before = (struct history){1, {{4, 1}}};
    params.before.n = DL_MAX_HISTORY + 1;
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    params.before.n = 0;
    assert_int_equal(plan_new(&params, &plan), 0);
    plan_free(plan);
}

TEST(test_history)
{
    struct history history = {0}, again = {0};
    uint8_t bytes[HISTORY_BYTES];

    assert_true(history_add(&history, 4, 0));
    assert_int_equal(history.n, 0);
    assert_true(history_add(&history, 4, 3) && history_add(&history, 4, 2));
    assert_true(history_add(&history, 2, 9));
    assert_int_equal(history.n, 2);
    assert_int_equal(history.stretches[0].steps, 5);
    assert_false(history_add(&history, 2, UINT64_MAX));
    size_t n = history_write(&history, bytes);
    assert_int_equal(n, 32);
    assert_true(history_read((struct dl_span){bytes, n}, &again));
    assert_true(history_equal(&history, &again));
    assert_false(history_read((struct dl_span){bytes, n - 1}, &again));
    memcpy(bytes + 16, bytes, 8); /* the same world size twice */
    assert_false(history_read((struct dl_span){bytes, n}, &again));
    memset(bytes, 0, 8);
    assert_false(history_read((struct dl_span){bytes, 16}, &again));
    for (uint64_t i = history.n; i < DL_MAX_HISTORY; i++)
        assert_true(history_add(&history, 3 + i % 2, 1));
    assert_false(history_add(&history, 9, 1));
    assert_int_equal(history_write(&history, bytes), HISTORY_BYTES);
    assert_true(history_read((struct dl_span){bytes, HISTORY_BYTES}, &again));
}
