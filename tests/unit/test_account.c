/* What nodes that are gone leave out: by tables. */
#include "tests/lib/harness.h"

#include "daemon/cluster/account.h"

#include <stdlib.h>

/* "epoch world:steps …" */
static struct progress_point point(const char *text)
{
    struct progress_point ret = {0};
    char *at;

    ret.epoch = strtoull(text, &at, 10);
    while (*at) {
        uint64_t world = strtoull(at, &at, 10);

        ret.history.stretches[ret.history.n++] =
            (struct history_stretch){world, strtoull(at + 1, &at, 10)};
    }
    return ret;
}

static void test_missing(void **state)
{
    static const struct {
        const char *from, *to, *end; /* `to` "": nobody went on yet */
        uint64_t steps, world, first, last;
    } rows[] = {
        {"0 6:2", "0 6:20", "0 6:20 4:18", 18, 6, 2, 20},
        {"0 6:20", "0 6:20", "0 6:20 4:18", 0, 0, 0, 0},
        {"0 6:25", "0 6:20", "0 6:20 4:18", 0, 0, 0, 0}, /* further than the others */
        {"0", "0 6:20", "0 6:20 4:18", 20, 6, 0, 20},    /* nothing was heard of it */
        {"0 6:2", "", "0 6:32", 30, 6, 2, 32},           /* the epoch is over with it */
        {"0 6:2", "1", "0 6:32", 30, 6, 2, 32},          /* others are in the next one */
        {"1", "1 6:3", "0 6:32", 0, 0, 0, 0},            /* it had finished the epoch */
        {"0 4:5 6:1", "0 4:5 6:3", "0 4:5 6:9", 2, 6, 1, 3},
        {"0 4:5", "0 4:7 6:3", "0 4:7 6:9", 5, 6, 0, 3}, /* it lacks parts of two worlds */
        {"0 6:5", "0 4:7", "0 4:7", 0, 0, 0, 0},         /* of another history: not known */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct progress_point end = point(rows[i].end);
        struct account_absence absence = {.from = point(rows[i].from), .has_to = *rows[i].to != 0};
        struct account_range range;

        if (absence.has_to)
            absence.to = point(rows[i].to);
        assert_int_equal(account_missing(&absence, &end, &range), rows[i].steps > 0);
        assert_int_equal(range.steps, rows[i].steps);
        assert_int_equal(range.world, rows[i].world);
        assert_int_equal(range.from, rows[i].first);
        assert_int_equal(range.to, rows[i].last);
    }
}

static void test_samples(void **state)
{
    struct account_absence absence = {.local = 2};
    struct account_range range = {.steps = 18};

    (void)state;
    assert_int_equal(account_samples(&absence, &range, 10), 360);
    range.steps = UINT64_MAX / 2;
    assert_int_equal(account_samples(&absence, &range, 10), UINT64_MAX);
}

static void test_words(void **state)
{
    static const struct {
        uint64_t first, local, world, of;
        const char *said;
    } rows[] = {
        {4, 2, 6, 6, "ranks 4 to 5 of 6 on node c, steps 2 to 19"},
        {1, 1, 2, 2, "rank 1 of 2 on node c, steps 2 to 19"},
        {4, 2, 6, 8, "2 of 8 ranks on node c, steps 2 to 19"},
    };
    char text[ACCOUNT_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct account_absence absence = {
            .node = "c", .first = rows[i].first, .local = rows[i].local, .world = rows[i].world};
        struct account_range range = {.world = rows[i].of, .from = 2, .to = 20, .steps = 18};

        account_text(&absence, &range, text);
        assert_string_equal(text, rows[i].said);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_missing),
    cmocka_unit_test(test_samples),
    cmocka_unit_test(test_words),
};

TEST_MAIN(tests)
