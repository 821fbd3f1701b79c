/*
 * How an order is dealt to ranks: Accelerate's table (its BatchSamplerShard, tried with 1.15), and
 * what holds of any deal. The real class is asked in tests/oracle/oracle_shard.py.
 */
#include "daemon/plan/shard.h"

#include "tests/lib/harness.h"

#include <stdio.h>

enum { STEPS_TEXT = 512 };

/* "0,1 6,7": steps, and what stands in each. */
static const char *deal(const struct shard_params *params, uint64_t rank, char text[STEPS_TEXT])
{
    struct shard shard = shard_of(params);
    int at = 0;

    text[0] = '\0';
    for (uint64_t step = 0; step < shard_steps(&shard, rank); step++) {
        struct shard_span span = shard_span(&shard, rank, step);
        for (uint64_t i = 0; i < span.n; i++)
            at += snprintf(text + at, (size_t)(STEPS_TEXT - at), "%s%d",
                           i > 0      ? ","
                           : step > 0 ? " "
                                      : "",
                           (int)shard_at(&shard, span.first + i * span.stride));
    }
    return text;
}

static const struct {
    struct shard_params params;
    const char *ranks[3];
} table[] = {
    {{10, 3, 2, PLAN_BATCH, .even = true}, {"0,1 6,7", "2,3 8,9", "4,5 0,1"}},
    {{11, 3, 2, PLAN_BATCH, .even = true}, {"0,1 6,7", "2,3 8,9", "4,5 10,0"}},
    {{13, 3, 2, PLAN_BATCH, .even = true}, {"0,1 6,7 12,0", "2,3 8,9 1,2", "4,5 10,11 3,4"}},
    {{5, 3, 2, PLAN_BATCH, .even = true}, {"0,1", "2,3", "4,0"}},
    {{2, 3, 2, PLAN_BATCH, .even = true}, {"0,1", "0,1", "0,1"}},
    {{1, 3, 2, PLAN_BATCH, .even = true}, {"0,0", "0,0", "0,0"}},
    {{0, 3, 2, PLAN_BATCH, .even = true}, {"", "", ""}},
    {{10, 3, 2, PLAN_BATCH}, {"0,1 6,7", "2,3 8,9", "4,5"}},
    {{11, 3, 2, PLAN_BATCH}, {"0,1 6,7", "2,3 8,9", "4,5 10"}},
    {{13, 3, 2, PLAN_BATCH}, {"0,1 6,7 12", "2,3 8,9", "4,5 10,11"}},
    {{5, 3, 2, PLAN_BATCH}, {"0,1", "2,3", "4"}},
    {{2, 3, 2, PLAN_BATCH}, {"0,1", "", ""}},
    {{11, 3, 2, PLAN_BATCH, .drop_last = true}, {"0,1", "2,3", "4,5"}},
    {{13, 3, 2, PLAN_BATCH, true, true}, {"0,1 6,7", "2,3 8,9", "4,5 10,11"}},
    {{5, 3, 2, PLAN_BATCH, true, true}, {"", "", ""}},
    {{13, 3, 6, PLAN_SPLIT, .even = true}, {"0,1 6,7 12,0", "2,3 8,9 1,2", "4,5 10,11 3,4"}},
    {{3, 3, 6, PLAN_SPLIT}, {"0,1", "2", ""}},
    {{11, 3, 6, PLAN_SPLIT, .drop_last = true}, {"0,1", "2,3", "4,5"}},
    {{10, 3, 2, PLAN_STRIDED, .even = true}, {"0,3 6,9", "1,4 7,0", "2,5 8,1"}},
    {{10, 3, 2, PLAN_STRIDED}, {"0,3 6,9", "1,4 7", "2,5 8"}},
};

static void test_table(void **state)
{
    char text[STEPS_TEXT];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        for (uint64_t rank = 0; rank < 3; rank++)
            if (strcmp(deal(&table[i].params, rank, text), table[i].ranks[rank]) != 0)
                fail_msg("row %zu, rank %d: %s, expected %s", i, (int)rank, text,
                         table[i].ranks[rank]);
}

/* Samples that all ranks have, each counted; at most 64 of them. */
static void count_all(const struct shard *shard, unsigned seen[64])
{
    for (uint64_t rank = 0; rank < shard->world; rank++) {
        uint64_t samples = 0;
        for (uint64_t step = 0; step < shard_steps(shard, rank); step++) {
            struct shard_span span = shard_span(shard, rank, step);
            assert_in_range(span.n, 1, shard->size);
            assert_true(shard_needs(shard, &span) <= shard->count);
            for (uint64_t i = 0; i < span.n; i++) {
                uint64_t at = shard_at(shard, span.first + i * span.stride);
                assert_true(at < shard->count);
                assert_true(at < shard_needs(shard, &span));
                seen[at]++;
            }
            samples += span.n;
        }
        if (!(shard->strided && shard->drop_last))
            assert_int_equal(samples, shard_samples(shard, rank));
    }
}

static void check(const struct shard_params *params)
{
    struct shard shard = shard_of(params);
    unsigned seen[64] = {0};

    count_all(&shard, seen);
    for (uint64_t i = 0; i < params->count; i++) {
        if (!params->drop_last)
            assert_true(seen[i] >= 1);
        if (!params->even || (params->drop_last && params->mode != PLAN_STRIDED))
            assert_true(seen[i] <= 1);
    }
    for (uint64_t rank = 1; params->even && rank < params->world; rank++)
        assert_int_equal(shard_steps(&shard, rank), shard_steps(&shard, 0));
}

static void test_every_small_deal(void **state)
{
    (void)state;
    for (unsigned flags = 0; flags < 12; flags++)
        for (uint64_t count = 0; count < 40; count++)
            for (uint64_t world = 1; world < 6; world++)
                for (uint64_t size = 1; size < 6; size++) {
                    enum plan_shard mode = (enum plan_shard)(flags / 4);
                    check(&(struct shard_params){.count = count,
                                                 .world = world,
                                                 .batch_size =
                                                     mode == PLAN_SPLIT ? size * world : size,
                                                 .mode = mode,
                                                 .drop_last = flags & 1,
                                                 .even = flags & 2});
                }
}

/* The largest that can be asked for does not overflow. */
static void test_ends_of_the_range(void **state)
{
    struct shard shard = shard_of(&(struct shard_params){.count = (UINT64_C(1) << 63) - 1,
                                                         .world = 1 << 20,
                                                         .batch_size = 1 << 20,
                                                         .mode = PLAN_BATCH,
                                                         .even = true});
    uint64_t last = (1 << 20) - 1;
    struct shard_span span = shard_span(&shard, last, shard_steps(&shard, last) - 1);

    (void)state;
    assert_int_equal(shard_steps(&shard, 0), UINT64_C(1) << 23);
    assert_int_equal(span.n, 1 << 20);
    assert_int_equal(shard_at(&shard, span.first), (UINT64_C(1) << 63) - (1 << 20));
    assert_int_equal(shard_at(&shard, span.first + span.n - 1), 0);
    assert_int_equal(shard_needs(&shard, &span), shard.count);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_table),
    cmocka_unit_test(test_every_small_deal),
    cmocka_unit_test(test_ends_of_the_range),
};

TEST_MAIN(tests)
