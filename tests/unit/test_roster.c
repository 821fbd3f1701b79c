/* Whom a source of dispatched batches waits for, and what is known of ranks that have left. */
#include "tests/lib/harness.h"

#include "daemon/serve/core/roster.h"

enum { WORLD = 5 };

/* Ranks as a word: "." awaited, "e" excused, "d" done. */
static void assert_marks(const struct roster *roster, const char *want)
{
    char marks[WORLD + 1] = {0};
    uint64_t awaited = 0, done = 0;

    for (uint64_t rank = 0; rank < WORLD; rank++) {
        marks[rank] = ".ed"[roster_of(roster, rank)];
        awaited += marks[rank] == '.';
        done += marks[rank] == 'd';
    }
    assert_string_equal(marks, want);
    assert_int_equal(roster->awaited, awaited);
    assert_int_equal(roster->done, done);
    const char *first = strchr(marks, '.');
    assert_int_equal(roster_first_awaited(roster), first ? (uint64_t)(first - marks) : UINT64_MAX);
}

static struct roster *roster_with(const char *marks)
{
    struct roster *roster = roster_new(WORLD);

    for (uint64_t rank = 0; rank < WORLD; rank++) {
        if (marks[rank] == 'e')
            roster_come(roster, rank);
        else if (marks[rank] == 'd')
            roster_done(roster, rank);
    }
    return roster;
}

/* Events are letters, each followed by a rank if it is of one. */
static void apply(struct roster *roster, const char *events)
{
    for (; *events; events++) {
        switch (*events) {
        case 'c':
            roster_come(roster, (uint64_t)(*++events - '0'));
            break;
        case 'x':
            roster_excuse(roster, (uint64_t)(*++events - '0'));
            break;
        case 'd':
            roster_done(roster, (uint64_t)(*++events - '0'));
            break;
        default:
            roster_excuse_all(roster);
            break;
        }
    }
}

TEST(test_marks)
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
        struct roster *roster = roster_new(WORLD);
        apply(roster, rows[i].events);
        assert_marks(roster, rows[i].want);
        free(roster);
    }
}

TEST(test_learning)
{
    static const struct {
        const char *own, *other, *all, *done;
    } rows[] = {
        {".....", ".....", ".....", "....."}, {".....", "e.d..", "e.d..", "..d.."},
        {"e....", "..edd", "e.edd", "e..dd"}, {"e...d", "d....", "d...d", "d...d"},
        {"d....", "ee...", "de...", "d...."},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct roster *other = roster_with(rows[i].other);
        struct roster *all = roster_with(rows[i].own), *done = roster_with(rows[i].own);
        roster_learn(all, other);
        assert_marks(all, rows[i].all);
        roster_learn_done(done, other);
        assert_marks(done, rows[i].done);
        free(other);
        free(all);
        free(done);
    }
}

TEST(test_a_world_of_many)
{
    struct roster *roster = roster_new(DL_MAX_WORLD_SIZE);

    for (uint64_t rank = 0; rank < DL_MAX_WORLD_SIZE - 1; rank++)
        roster_excuse(roster, rank);
    assert_int_equal(roster_first_awaited(roster), DL_MAX_WORLD_SIZE - 1);
    roster_excuse_all(roster);
    assert_int_equal(roster->awaited, 0);
    free(roster);
}

static const struct stream_params base = {.job = "j", .epoch = 3, .rank = 1, .world = WORLD};

/* The same epoch for other ranks; not in another job, with a name or without, epoch or world. */
TEST(test_the_same_epoch)
{
    struct stream_params other = base;

    other.rank = 2, other.first = 9, other.credits = 4;
    assert_true(roster_same_epoch(&base, &other));
    other = base, strcpy(other.job, "k");
    assert_false(roster_same_epoch(&base, &other));
    other = base, other.job[0] = '\0';
    assert_false(roster_same_epoch(&base, &other));
    other = base, other.epoch++;
    assert_false(roster_same_epoch(&base, &other));
    other = base, other.world++;
    assert_false(roster_same_epoch(&base, &other));
    other = base;
    assert_true(history_add(&other.before, 2, 7));
    assert_false(roster_same_epoch(&base, &other));
}

static const struct roster *come(struct roster_book *book, uint64_t rank)
{
    struct stream_params params = base;

    params.rank = rank;
    return roster_book_come(book, &params);
}

TEST(test_epochs_that_all_have_left)
{
    static const struct {
        const char *entries[2];
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
        struct roster_book book = {0};
        for (size_t k = 0; k < 2 && rows[i].entries[k]; k++)
            roster_book_keep(&book, &base, roster_with(rows[i].entries[k]));
        const struct roster *known = come(&book, rows[i].comes);
        assert_int_equal(known != NULL, rows[i].want != NULL);
        if (known) {
            struct roster *roster = roster_new(WORLD);
            roster_learn_done(roster, known);
            assert_marks(roster, rows[i].want);
            free(roster);
        }
        assert_ptr_equal(come(&book, rows[i].comes), known); /* it is not told once only */
        roster_book_deinit(&book);
    }
}

TEST(test_the_oldest_gives_way)
{
    struct roster_book book = {0};
    struct stream_params params = base;

    for (params.epoch = 0; params.epoch <= ROSTERS_MAX; params.epoch++) {
        roster_book_keep(&book, &params, roster_with("ddded"));
        struct stream_params first = base;
        first.epoch = 0, first.rank = 3;
        /* A process that asks for it keeps it young. */
        assert_non_null(roster_book_come(&book, &first));
    }
    assert_int_equal(book.n, ROSTERS_MAX);
    params.rank = 3, params.epoch = 1;
    assert_null(roster_book_come(&book, &params));
    params.epoch = ROSTERS_MAX;
    assert_non_null(roster_book_come(&book, &params));
    roster_book_deinit(&book);
}
