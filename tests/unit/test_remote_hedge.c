/* When requests are sent a second time: after the 95th percentile of their kind, within a factor of
 * a step; not more than one of twenty; and what that does to a store of which some answers hang.
 */
#include "tests/lib/harness.h"

#include "daemon/fetcher/hedge.h"
#include "tests/lib/splitmix.h"

enum { MS = 1000000, REQUESTS = 20000 };

static uint64_t random_state = 1;

static uint64_t below(uint64_t n)
{
    return next_random(&random_state) % n;
}

TEST(test_kinds)
{
    static const struct {
        uint64_t bytes;
        unsigned kind;
    } rows[] = {{0, 0},         {1, 1},
                {64 << 10, 1},  {(64 << 10) + 1, 2},
                {256 << 10, 2}, {(256 << 10) + 1, 3},
                {1 << 20, 3},   {(1 << 20) + 1, 4},
                {4 << 20, 4}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(hedge_kind_of(rows[i].bytes), rows[i].kind);
}

/* Of 100 equal times and of spread ones. Kinds know nothing of each other. */
TEST(test_percentile)
{
    static const uint64_t times[] = {1, 70 * 1000, 1 * MS, 20 * MS, 777 * MS, 60000ULL * MS};

    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        struct hedge hedge = {0};

        for (unsigned n = 0; n < 94; n++) {
            if (n < HEDGE_LEAST)
                assert_int_equal(hedge_after(&hedge, 2), UINT64_MAX);
            hedge_note(&hedge, 2, times[i]);
        }
        for (unsigned n = 0; n < 4; n++)
            hedge_note(&hedge, 2, 1000 * times[i] + 3600000ULL * MS);
        assert_in_range(hedge_after(&hedge, 2), times[i], max_u64(times[i] / 4 * 5 + 1, 82000));
        assert_int_equal(hedge_after(&hedge, 1), UINT64_MAX);
    }
}

/* What was is forgotten. */
TEST(test_forgets)
{
    struct hedge hedge = {0};

    for (unsigned n = 0; n < 5000; n++)
        hedge_note(&hedge, 1, 500 * MS);
    for (unsigned n = 0; n < 8000; n++)
        hedge_note(&hedge, 1, 5 * MS);
    assert_in_range(hedge_after(&hedge, 1), 5 * MS, 7 * MS);
}

/* Not more than a share, whatever is slow; and some at once after a while. */
TEST(test_share)
{
    struct hedge hedge = {0};
    unsigned taken = 0;

    for (unsigned n = 0; n < REQUESTS; n++) {
        hedge_sent(&hedge);
        taken += hedge_take(&hedge, 0);
    }
    assert_int_equal(taken, REQUESTS / HEDGE_SHARE);
    for (unsigned n = 0; n < REQUESTS; n++)
        hedge_sent(&hedge);
    for (taken = 0; hedge_take(&hedge, 0);)
        taken++;
    assert_int_equal(taken, HEDGE_SAVED);
}

/* Where all wait for what hangs, and nothing else is sent: one after the other. */
TEST(test_in_time)
{
    struct hedge hedge = {0};
    unsigned taken = 0;

    for (uint64_t now = HEDGE_EVERY_NS; now < 11ULL * HEDGE_EVERY_NS; now += 100ULL * MS)
        taken += hedge_take(&hedge, now);
    assert_int_equal(taken, 10);
}

/* An answer in 10 to 30 ms; one of a hundred hangs for 10 s. */
static uint64_t draw_answer(void)
{
    return below(100) == 0 ? 10000ULL * MS : 10 * MS + below(20 * MS);
}

/* That one in a hundred hangs is hidden but for the first ones, of which nothing is known, and few
 * others; and costs a twentieth more requests at most. */
TEST(test_store_that_hangs)
{
    struct hedge hedge = {0};
    unsigned again = 0, hung = 0;

    for (unsigned n = 0; n < REQUESTS; n++) {
        uint64_t took = draw_answer(), after = hedge_after(&hedge, 2);

        hedge_sent(&hedge);
        if (took > after && hedge_take(&hedge, 0)) {
            again++;
            took = min_u64(took, after + draw_answer());
        }
        hedge_note(&hedge, 2, took);
        hung += took > 1000ULL * MS;
    }
    assert_in_range(again, REQUESTS / 100, REQUESTS / HEDGE_SHARE);
    assert_in_range(hung, 0, 12); /* of 200 */
}
