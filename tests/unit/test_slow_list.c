/* Which samples a loader knows to be slow. */
#include "tests/lib/harness.h"

#include "daemon/data/base/slow_watch.h"
#include "daemon/serve/core/slow_list.h"

static void add(struct slow_list *list, uint64_t index, uint64_t ns)
{
    slow_list_add(list, &(struct slow_sample){.index = index, .ns = ns}, NULL);
}

TEST(test_order)
{
    static const struct {
        uint64_t index, ns;
    } comes[] = {{1, 50}, {2, 70}, {3, 60}, {1, 40}, {2, 80}, {1, 75}};
    static const struct {
        uint64_t index, ns, seen;
    } want[] = {{2, 80, 2}, {1, 75, 3}, {3, 60, 1}};
    struct slow_list list = {0};

    for (size_t i = 0; i < ARRAY_SIZE(comes); i++)
        add(&list, comes[i].index, comes[i].ns);
    assert_int_equal(list.n, ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        assert_int_equal(list.rows[i].what.index, want[i].index);
        assert_int_equal(list.rows[i].what.ns, want[i].ns);
        assert_int_equal(list.rows[i].seen, want[i].seen);
    }
}

/* Where it took longest, whichever that was. */
TEST(test_helper)
{
    const struct slow_sample quick = {.index = 4, .ns = 10}, slow = {.index = 4, .ns = 90};
    struct slow_list list = {0};

    slow_list_add(&list, &quick, "far.example:7071");
    slow_list_add(&list, &slow, NULL);
    assert_string_equal(list.rows[0].helper, "");
    slow_list_add(&list, &quick, "far.example:7071");
    assert_string_equal(list.rows[0].helper, "");
    slow_list_add(&list, &(struct slow_sample){.index = 4, .ns = 100}, "near.example:7071");
    assert_string_equal(list.rows[0].helper, "near.example:7071");
    assert_int_equal(list.rows[0].seen, 4);
}

TEST(test_full)
{
    struct slow_list list = {0};

    for (uint64_t i = 0; i < 1000; i++)
        add(&list, i, 1 + i * 7919 % 1000);
    assert_int_equal(list.n, SLOW_LISTED);
    for (uint32_t i = 0; i < list.n; i++)
        assert_int_equal(list.rows[i].what.ns, 1000 - i);
    add(&list, 2000, 1000 - SLOW_LISTED); /* no slower than the last one */
    assert_int_equal(list.rows[SLOW_LISTED - 1].what.ns, 1001 - SLOW_LISTED);
}

/* One task of `n` samples of so much each, but for every `rare`-th of all, which takes `slow`. */
static void make_task(struct slow_watch *watch, uint64_t *made, uint64_t n, uint64_t ns,
                      uint64_t rare, uint64_t slow)
{
    watch->bounded_ns = watch->slow_ns = 0;
    for (uint64_t i = 0; i < n; i++, ++*made)
        slow_watch_take(watch, rare && *made % rare == rare - 1 ? slow : ns + *made % 7 * ns / 3,
                        1);
    slow_watch_learn(watch, n);
}

/* What part of the time is slow samples': a few that take long, and none where all do. */
TEST(test_share_of_slow)
{
    static const struct {
        uint64_t n, ns, rare, slow;
        uint64_t percent; /* of 4,000 samples' time */
    } rows[] = {
        {16, 50000, 0, 0, 0},          {16, 50000, 40, 400000000, 99},
        {1, 50000, 40, 400000000, 99}, {256, 50000, 40, 5000000, 52},
        {16, 50000, 1000, 5000000, 4}, {16, 50000, 40, 300000, 0},
        {16, 50000, 1, 400000000, 0},  {4, 50000, 3, 400000000, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct slow_watch watch = {0};
        uint64_t made = 0, slow = 0, all = 0;

        for (uint64_t task = 0; task < 4000 / rows[i].n; task++) {
            uint64_t first = made;

            make_task(&watch, &made, rows[i].n, rows[i].ns, rows[i].rare, rows[i].slow);
            slow += watch.slow_ns;
            for (uint64_t s = first; s < made; s++)
                all += rows[i].rare && s % rows[i].rare == rows[i].rare - 1
                           ? rows[i].slow
                           : rows[i].ns + s % 7 * rows[i].ns / 3;
        }
        assert_in_range(100 * slow / all, rows[i].percent, rows[i].percent + 1);
    }
}

/* All of them are slower from some task on: that is soon what is usual. */
TEST(test_slower_from_now_on)
{
    struct slow_watch watch = {0};
    uint64_t made = 0;

    for (int task = 0; task < 20; task++)
        make_task(&watch, &made, 16, 50000, 0, 0);
    make_task(&watch, &made, 16, 5000000, 0, 0);
    assert_true(watch.slow_ns > 0);
    for (int task = 0; task < 8; task++)
        make_task(&watch, &made, 16, 5000000, 0, 0);
    assert_int_equal(watch.slow_ns, 0);
}
