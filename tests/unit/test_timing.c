/* Sums, quantiles, and what a worker cannot have meant. */
#include "tests/lib/harness.h"

#include "daemon/serve/ring/timing.h"

TEST(test_names)
{
    assert_string_equal(stage_name(STAGE_QUEUED), "queued");
    assert_string_equal(stage_name(STAGE_HELD), "held");
    assert_int_equal(stage_of("handover"), STAGE_HANDOVER);
    assert_int_equal(stage_of("hand"), STAGES);
}

/* A quantile is not below the number, and not above it by more than a quarter. */
TEST(test_buckets)
{
    for (uint64_t ns = 0; ns < (uint64_t)1 << 41; ns = ns + ns / 37 + 1) {
        struct timing t = {0};
        uint64_t got;

        timing_add(&t, STAGE_FETCH, ns);
        got = timing_quantile(&t, STAGE_FETCH, 0.5);
        if (got < ns || got - ns > ns / 4)
            fail_msg("%llu became %llu", (unsigned long long)ns, (unsigned long long)got);
        assert_int_equal(t.ns[STAGE_FETCH], ns);
        assert_int_equal(t.n[STAGE_FETCH], 1);
        assert_int_equal(t.n[STAGE_COLLATE], 0);
    }
    struct timing t = {0};
    timing_add(&t, STAGE_READY, UINT64_MAX); /* as all that is too long */
    assert_true(timing_quantile(&t, STAGE_READY, 1) > (uint64_t)3600 * 1000000000);
}

TEST(test_quantiles)
{
    struct timing t = {0};

    assert_int_equal(timing_quantile(&t, STAGE_HELD, 0.99), 0);
    for (uint64_t i = 0; i < 98; i++)
        timing_add(&t, STAGE_HELD, 2);
    timing_add(&t, STAGE_HELD, 1000);
    timing_add(&t, STAGE_HELD, 1000000);
    assert_int_equal(timing_quantile(&t, STAGE_HELD, 0), 2);
    assert_int_equal(timing_quantile(&t, STAGE_HELD, 0.98), 2);
    assert_in_range(timing_quantile(&t, STAGE_HELD, 0.99), 1000, 1250);
    assert_in_range(timing_quantile(&t, STAGE_HELD, 1), 1000000, 1250000);
}

/* Sums are of all, quantiles of the first ones and then of every eighth. */
TEST(test_many)
{
    struct timing t = {0};

    for (uint64_t i = 0; i < 256 + 8 * 100; i++)
        timing_add(&t, STAGE_READY, 3);
    assert_int_equal(t.n[STAGE_READY], 1056);
    assert_int_equal(t.ns[STAGE_READY], 1056 * 3);
    assert_int_equal(t.buckets[STAGE_READY][3], 256 + 100);
    assert_int_equal(timing_quantile(&t, STAGE_READY, 0.99), 3);
}

TEST(test_made)
{
    static const struct {
        const char *what;
        uint64_t planned;
        struct made_times made;
        uint64_t queued, fetch, collate, handover;
    } cases[] = {
        {"as it is", 100, {130, 50, 20, 200}, 30, 30, 20, 20},
        {"at once", 100, {100, 0, 0, 100}, 0, 0, 0, 0},
        {"before it was planned", 100, {10, 20, 5, 200}, 0, 0, 0, 100},
        {"begun before, and ended after", 100, {90, 50, 5, 200}, 0, 35, 5, 60},
        {"after it was seen", 100, {900, 20, 5, 200}, 100, 0, 0, 0},
        {"longer than there was time", 100, {150, UINT64_MAX, 10, 200}, 50, 40, 10, 0},
        {"collated for longer than it took", 100, {150, 20, 70, 200}, 50, 0, 20, 30},
        {"seen before it was planned", 100, {50, 20, 5, 60}, 0, 0, 0, 0},
        {"any", UINT64_MAX, {UINT64_MAX, UINT64_MAX, UINT64_MAX, 0}, 0, 0, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct timing t = {0};

        const struct made_times made = made_times_mend(&cases[i].made, cases[i].planned);
        timing_add_made(&t, cases[i].planned, &made);
        if (t.ns[STAGE_QUEUED] != cases[i].queued || t.ns[STAGE_FETCH] != cases[i].fetch ||
            t.ns[STAGE_COLLATE] != cases[i].collate || t.ns[STAGE_HANDOVER] != cases[i].handover)
            fail_msg("%s", cases[i].what);
        assert_int_equal(t.n[STAGE_QUEUED], 1);
        assert_int_equal(t.n[STAGE_HANDOVER], 1);
        assert_int_equal(t.n[STAGE_READY], 0);
    }
}

/* What a worker says of Python's code is no more than the time that it took. */
TEST(test_python)
{
    static const struct {
        struct made_times made;
        uint64_t fetch, collate;
    } cases[] = {
        {{.began_ns = 10, .cost_ns = 50, .collate_ns = 20, .now_ns = 90}, 0, 0},
        {{10, 50, 20, 90, 7, 5}, 7, 5},
        {{10, 50, 20, 90, 31, 21}, 30, 20},
        {{10, 50, 20, 90, UINT64_MAX, UINT64_MAX}, 30, 20},
    };
    uint64_t all = 0;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct made_times made = made_times_mend(&cases[i].made, 0);
        struct timing t = {0};

        timing_add_made(&t, 0, &made);
        assert_int_equal(t.python_ns[STAGE_FETCH], cases[i].fetch);
        assert_int_equal(t.python_ns[STAGE_COLLATE], cases[i].collate);
        assert_int_equal(t.python_ns[STAGE_QUEUED] + t.python_ns[STAGE_HANDOVER], 0);
        all += t.python_ns[STAGE_FETCH];
    }
    assert_int_equal(all, 67);
}
