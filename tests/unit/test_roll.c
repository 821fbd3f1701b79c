/* Whom a source of dispatched batches waits for, and what is known of ranks that have left. */
#include "tests/lib/harness.h"

#include "daemon/serve/core/roll.h"

enum { WORLD = 5 };

/* Ranks as a word: "." awaited, "e" excused, "d" done. */
static void assert_marks(const struct roll *roll, const char *want)
{
    char marks[WORLD + 1] = {0};
    uint64_t awaited = 0, done = 0;

    for (uint64_t rank = 0; rank < WORLD; rank++) {
        marks[rank] = ".ed"[roll_of(roll, rank)];
        awaited += marks[rank] == '.';
        done += marks[rank] == 'd';
    }
    assert_string_equal(marks, want);
    assert_int_equal(roll->awaited, awaited);
    assert_int_equal(roll->done, done);
    const char *first = strchr(marks, '.');
    assert_int_equal(roll_first_awaited(roll), first ? (uint64_t)(first - marks) : UINT64_MAX);
}

static struct roll *roll_with(const char *marks)
{
    struct roll *roll = roll_new(WORLD);

    for (uint64_t rank = 0; rank < WORLD; rank++) {
        if (marks[rank] == 'e')
            roll_come(roll, rank);
        else if (marks[rank] == 'd')
            roll_done(roll, rank);
    }
    return roll;
}

/* Events are letters, each followed by a rank if it is of one. */
static void apply(struct roll *roll, const char *events)
{
    for (; *events; events++) {
        switch (*events) {
        case 'c':
            roll_come(roll, (uint64_t)(*++events - '0'));
            break;
        case 'x':
            roll_excuse(roll, (uint64_t)(*++events - '0'));
            break;
        case 'd':
            roll_done(roll, (uint64_t)(*++events - '0'));
            break;
        default:
            roll_excuse_all(roll);
            break;
        }
    }
}

static void test_marks(void **state)
{
    static const struct {
        const char *events, *want;
    } rows[] = {
        {"", "....."},       {"c0", "e...."},         {"c0c0", "e...."},  {"c4c3", "...ee"},
        {"x1x1", ".e..."},   {"d2", "..d.."},         {"d2d2", "..d.."},  {"d2x2", "..d.."},
        {"c2d2", "..d.."},   {"d2c2", "..e.."},       {"*", "eeeee"},     {"d1*", "edeee"},
        {"c0d0c0", "e...."}, {"d0d1d2d3d4", "ddddd"}, {"d3d4*", "eeedd"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct roll *roll = roll_new(WORLD);
        apply(roll, rows[i].events);
        assert_marks(roll, rows[i].want);
        free(roll);
    }
}

static void test_learning(void **state)
{
    static const struct {
        const char *own, *other, *all, *done;
    } rows[] = {
        {".....", ".....", ".....", "....."}, {".....", "e.d..", "e.d..", "..d.."},
        {"e....", "..edd", "e.edd", "e..dd"}, {"e...d", "d....", "d...d", "d...d"},
        {"d....", "ee...", "de...", "d...."},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct roll *other = roll_with(rows[i].other);
        struct roll *all = roll_with(rows[i].own), *done = roll_with(rows[i].own);
        roll_learn(all, other);
        assert_marks(all, rows[i].all);
        roll_learn_done(done, other);
        assert_marks(done, rows[i].done);
        free(other);
        free(all);
        free(done);
    }
}

static void test_a_world_of_many(void **state)
{
    struct roll *roll = roll_new(DL_MAX_WORLD_SIZE);

    for (uint64_t rank = 0; rank < DL_MAX_WORLD_SIZE - 1; rank++)
        roll_excuse(roll, rank);
    assert_int_equal(roll_first_awaited(roll), DL_MAX_WORLD_SIZE - 1);
    roll_excuse_all(roll);
    assert_int_equal(roll->awaited, 0);
    free(roll);
}

static const struct stream_params base = {.job = "j", .epoch = 3, .rank = 1, .world = WORLD};

/* The same epoch for other ranks; not in another job, with a name or without, epoch or world. */
static void test_the_same_epoch(void **state)
{
    struct stream_params other = base;

    other.rank = 2, other.first = 9, other.credits = 4;
    assert_true(roll_same_epoch(&base, &other));
    other = base, strcpy(other.job, "k");
    assert_false(roll_same_epoch(&base, &other));
    other = base, other.job[0] = '\0';
    assert_false(roll_same_epoch(&base, &other));
    other = base, other.epoch++;
    assert_false(roll_same_epoch(&base, &other));
    other = base, other.world++;
    assert_false(roll_same_epoch(&base, &other));
    other = base;
    assert_true(history_add(&other.before, 2, 7));
    assert_false(roll_same_epoch(&base, &other));
}

static const struct roll *come(struct roll_book *book, uint64_t rank)
{
    struct stream_params params = base;

    params.rank = rank;
    return roll_book_come(book, &params);
}

static void test_epochs_that_all_have_left(void **state)
{
    static const struct {
        const char *kept[2];
        uint64_t comes;
        const char *want; /* who is done; NULL: nothing is known */
    } rows[] = {
        {{NULL}, 0, NULL},
        {{"eeeee"}, 0, NULL},             /* all have died, and come back together */
        {{"ddddd"}, 0, NULL},             /* all were at the end: another pass */
        {{"....."}, 0, NULL},             /* it was expected in vain */
        {{"ddded"}, 3, "ddd.d"},          /* the last one comes back alone */
        {{"dd.ed"}, 3, "dd..d"},          /* one never came: it may yet */
        {{"dd.ed"}, 2, "dd..d"},          /* and does */
        {{"ddded"}, 0, NULL},             /* all of it begins again */
        {{"ddeee", "eeede"}, 4, "dd.d."}, /* each from a source of its own */
        {{"ddeee", "eeddd"}, 4, NULL},    /* now all are at the end */
        {{"ddeee", "eeeee"}, 4, "dd..."},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct roll_book book = {0};
        for (size_t k = 0; k < 2 && rows[i].kept[k]; k++)
            roll_book_keep(&book, &base, roll_with(rows[i].kept[k]));
        const struct roll *known = come(&book, rows[i].comes);
        assert_int_equal(known != NULL, rows[i].want != NULL);
        if (known) {
            struct roll *roll = roll_new(WORLD);
            roll_learn_done(roll, known);
            assert_marks(roll, rows[i].want);
            free(roll);
        }
        assert_ptr_equal(come(&book, rows[i].comes), known); /* it is not told once only */
        roll_book_deinit(&book);
    }
}

static void test_the_oldest_gives_way(void **state)
{
    struct roll_book book = {0};
    struct stream_params params = base;

    for (params.epoch = 0; params.epoch <= ROLLS_KEPT; params.epoch++) {
        roll_book_keep(&book, &params, roll_with("ddded"));
        struct stream_params first = base;
        first.epoch = 0, first.rank = 3;
        /* Whoever asks for it keeps it young. */
        assert_non_null(roll_book_come(&book, &first));
    }
    assert_int_equal(book.n, ROLLS_KEPT);
    params.rank = 3, params.epoch = 1;
    assert_null(roll_book_come(&book, &params));
    params.epoch = ROLLS_KEPT;
    assert_non_null(roll_book_come(&book, &params));
    roll_book_deinit(&book);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_marks),
    cmocka_unit_test(test_learning),
    cmocka_unit_test(test_a_world_of_many),
    cmocka_unit_test(test_the_same_epoch),
    cmocka_unit_test(test_epochs_that_all_have_left),
    cmocka_unit_test(test_the_oldest_gives_way),
};

TEST_MAIN(tests)
