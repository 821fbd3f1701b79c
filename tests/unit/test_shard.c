/*
 * How an order is dealt to ranks: Accelerate's table (its BatchSamplerShard and
 * DataLoaderDispatcher, tried with 1.15), and what holds of any deal. The real classes are asked in
 * tests/oracle/oracle_shard.py.
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
    {{10, 3, 2, PLAN_DISPATCH, .even = true}, {"0,1 6,7", "2,3 8,9", "4,5 0,1"}},
    {{11, 3, 2, PLAN_DISPATCH, .even = true}, {"0,1 6,7", "2,3 8,9", "4,5 10,0"}},
    {{13, 3, 2, PLAN_DISPATCH, .even = true}, {"0,1 6,7 12", "2,3 8,9 0", "4,5 10,11 1"}},
    {{9, 3, 2, PLAN_DISPATCH, .even = true}, {"0,1 6", "2,3 7", "4,5 8"}},
    {{2, 3, 2, PLAN_DISPATCH, .even = true}, {"0", "1", "0"}},
    {{1, 3, 2, PLAN_DISPATCH, .even = true}, {"0", "0", "0"}}, /* Accelerate: rank 2 has nothing */
    {{0, 3, 2, PLAN_DISPATCH, .even = true}, {"", "", ""}},
    {{10, 3, 2, PLAN_DISPATCH}, {"0,1 6,7", "2,3 8", "4,5 9"}},
    {{11, 3, 2, PLAN_DISPATCH}, {"0,1 6,7", "2,3 8,9", "4,5 10"}},
    {{13, 3, 2, PLAN_DISPATCH}, {"0,1 6,7 12", "2,3 8,9", "4,5 10,11"}},
    {{5, 3, 2, PLAN_DISPATCH}, {"0,1", "2,3", "4"}},
    {{4, 3, 3, PLAN_DISPATCH}, {"0,1", "2", "3"}},
    {{13, 3, 2, PLAN_DISPATCH, true, true}, {"0,1 6,7", "2,3 8,9", "4,5 10,11"}},
    {{5, 3, 2, PLAN_DISPATCH, true, true}, {"", "", ""}},
    {{10, 3, 2, PLAN_STRIDED, .even = true}, {"0,3 6,9", "1,4 7,0", "2,5 8,1"}},
    {{10, 3, 2, PLAN_STRIDED}, {"0,3 6,9", "1,4 7", "2,5 8"}},
};

TEST(test_table)
{
    char text[STEPS_TEXT];

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

/*
 * The same once more, told as a story: a queue of what is to be dealt out, from which each step of
 * each rank takes what it should have. Returns how many of the rank's samples come again.
 */
struct told {
    uint64_t n; /* of the step's samples */
    uint64_t repeated;
    uint64_t first; /* in the order */
};

static bool tell(const struct shard_params *p, uint64_t rank, uint64_t step, struct told *ret)
{
    uint64_t width = p->mode == PLAN_SPLIT ? p->batch_size : p->batch_size * p->world;
    uint64_t gone = 0, left = p->count;

    for (; left > width && gone < step; gone++)
        left -= width;
    if (gone < step || left == 0)
        return false;
    uint64_t have = min_u64(left, width), all = have;
    if (have < width && p->drop_last)
        return false;
    if (p->even && p->mode == PLAN_DISPATCH)
        while (all % p->world != 0)
            all++;
    else if (p->even)
        all = width;
    uint64_t first = 0, n = 0;
    for (uint64_t r = 0; r <= rank; r++) {
        first += n;
        n = 0;
        for (uint64_t i = 0; p->mode == PLAN_DISPATCH && i < all; i++)
            n += i % p->world == r; /* dealt out like cards, but each gets neighbours */
        for (uint64_t i = 0; p->mode != PLAN_DISPATCH && i < all; i++)
            n += i / (width / p->world) == r;
    }
    *ret = (struct told){.n = n, .first = step * width + first};
    for (uint64_t i = first; i < first + n; i++)
        ret->repeated += i >= have;
    return n > 0;
}

static void check_told(const struct shard_params *params)
{
    struct shard shard = shard_of(params);
    struct told told;

    for (uint64_t rank = 0; rank < params->world; rank++) {
        uint64_t step = 0;
        for (; tell(params, rank, step, &told); step++) {
            assert_true(step < shard_steps(&shard, rank));
            struct shard_span span = shard_span(&shard, rank, step);
            assert_int_equal(span.n, told.n);
            assert_int_equal(span.first, told.first);
            assert_int_equal(shard_repeated(&shard, &span), told.repeated);
        }
        assert_int_equal(step, shard_steps(&shard, rank));
    }
}

/* What is said to be repeated is what somebody has already; the rest nobody. */
static void check_repeated(const struct shard *shard)
{
    bool given[64] = {false};

    for (int again = 0; again < 2; again++)
        for (uint64_t rank = 0; rank < shard->world; rank++)
            for (uint64_t step = 0; step < shard_steps(shard, rank); step++) {
                struct shard_span span = shard_span(shard, rank, step);
                uint64_t fresh = span.n - shard_repeated(shard, &span);
                for (uint64_t i = again ? fresh : 0; i < (again ? span.n : fresh); i++) {
                    uint64_t at = shard_at(shard, span.first + i * span.stride);
                    assert_true(again ? given[at] || shard->drop_last : !given[at]);
                    given[at] |= !again;
                }
            }
}

/* All of a round, one behind the other, is what its ranks have. */
static void check_rounds(const struct shard *shard)
{
    uint64_t samples = 0;

    for (uint64_t step = 0; step < shard_steps(shard, SHARD_ALL); step++) {
        struct shard_span all = shard_span(shard, SHARD_ALL, step);
        uint64_t at = all.first;
        for (uint64_t rank = 0; rank < shard->world && step < shard_steps(shard, rank); rank++) {
            struct shard_span span = shard_span(shard, rank, step);
            assert_int_equal(span.first, at);
            at += span.n;
        }
        assert_int_equal(at, all.first + all.n);
        assert_in_range(all.n, 1, shard->size * shard->world);
        samples += all.n;
    }
    assert_int_equal(samples, shard_samples(shard, SHARD_ALL));
    assert_int_equal(shard_steps(shard, SHARD_ALL), shard_steps(shard, 0));
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
    if (params->mode != PLAN_STRIDED)
        check_told(params);
    if (params->mode == PLAN_DISPATCH)
        check_rounds(&shard);
    check_repeated(&shard);
}

TEST(test_every_small_deal)
{
    for (unsigned flags = 0; flags < 16; flags++)
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
TEST(test_ends_of_the_range)
{
    struct shard shard = shard_of(&(struct shard_params){.count = (UINT64_C(1) << 63) - 1,
                                                         .world = 1 << 20,
                                                         .batch_size = 1 << 20,
                                                         .mode = PLAN_BATCH,
                                                         .even = true});
    uint64_t last = (1 << 20) - 1;
    struct shard_span span = shard_span(&shard, last, shard_steps(&shard, last) - 1);

    assert_int_equal(shard_steps(&shard, 0), UINT64_C(1) << 23);
    assert_int_equal(span.n, 1 << 20);
    assert_int_equal(shard_at(&shard, span.first), (UINT64_C(1) << 63) - (1 << 20));
    assert_int_equal(shard_at(&shard, span.first + span.n - 1), 0);
    assert_int_equal(shard_needs(&shard, &span), shard.count);
}
