/* Where ranks go on when the world has changed: by tables. */
#include "tests/lib/harness.h"

#include "daemon/cluster/course.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* "epoch world:steps …"; the pass before an '/', if it is not 0. */
static struct course_point point(const char *text)
{
    struct course_point ret = {0};
    const char *slash = strchr(text, '/');
    char *at;

    if (slash)
        ret.pass = strtoull(text, NULL, 10);
    ret.epoch = strtoull(slash ? slash + 1 : text, &at, 10);
    while (*at) {
        uint64_t world = strtoull(at, &at, 10);

        ret.history.of[ret.history.n++] =
            (struct history_stretch){world, strtoull(at + 1, &at, 10)};
    }
    return ret;
}

static void assert_point(const struct course_point *is, const char *text)
{
    struct course_point want = point(text);

    if (course_compare(is, &want) == COURSE_SAME)
        return;
    char said[COURSE_TEXT_MAX];
    course_point_text(is, said);
    fail_msg("pass %llu of %s is not %s", (unsigned long long)is->pass, said, text);
}

static void test_compare(void **state)
{
    static const struct {
        const char *a, *b;
        enum course_order is;
    } rows[] = {
        {"0", "0", COURSE_SAME},
        {"0", "1", COURSE_BEFORE},
        {"0 4:9", "1", COURSE_BEFORE},
        {"1/0", "3 4:2", COURSE_AFTER},
        {"3", "3 4:1", COURSE_BEFORE},
        {"3 4:2", "3 4:5", COURSE_BEFORE},
        {"3 4:5", "3 4:5", COURSE_SAME},
        {"3 4:5 6:1", "3 4:5", COURSE_AFTER},
        {"3 4:5 6:1", "3 4:3", COURSE_AFTER},
        {"3 4:5 6:1", "3 4:6", COURSE_APART}, /* the stretch of 4 had ended at 5 */
        {"3 4:5", "3 6:5", COURSE_APART},
        {"3 4:5 6:1", "3 4:5 8:1", COURSE_APART},
    };
    static const enum course_order turned[] = {COURSE_SAME, COURSE_AFTER, COURSE_BEFORE,
                                               COURSE_APART};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct course_point a = point(rows[i].a), b = point(rows[i].b);

        assert_int_equal(course_compare(&a, &b), rows[i].is);
        assert_int_equal(course_compare(&b, &a), turned[rows[i].is]);
    }
}

/* "last at", each "-" if it is not said. */
static struct course_word word(const char *last, const char *at)
{
    struct course_word ret = {.last = *last == '-' ? COURSE_NEW : strtoull(last, NULL, 10),
                              .says = *at != '-'};

    if (ret.says)
        ret.at = point(at);
    return ret;
}

static void test_agree(void **state)
{
    static const struct {
        const char *words[3][2]; /* of nodes a, b, c */
        const char *is;          /* NULL: nobody knows; else a point, or what is refused */
    } rows[] = {
        {{{"-", "0"}, {"-", "0"}, {"-", "-"}}, "0"},
        {{{"-", "-"}, {"-", "-"}, {"-", "-"}}, NULL},
        {{{"-", "2 4:7"}, {"-", "2 4:7"}, {"-", "2 4:7"}}, "2 4:7"}, /* all from one state */
        {{{"0", "0 4:3"}, {"0", "0 4:5"}, {"0", "0 4:4"}}, "0 4:5"},
        {{{"0", "0 4:3"}, {"0", "1"}, {"0", "0 4:4"}}, "1"}, /* one is in the next epoch */
        {{{"0", "1/0 4:1"}, {"0", "0 4:40"}, {"-", "-"}}, "1/0 4:1"},
        /* Who has come says nothing that counts, */
        {{{"0", "0 4:3"}, {"0", "0 4:5"}, {"-", "7"}}, "0 4:5"},
        {{{"0", "0 4:3"}, {"0", "0 4:5"}, {"-", "0 9:1"}}, "0 4:5"},
        /* and nor does who has missed a round. */
        {{{"2", "0 4:3 6:2"}, {"1", "0 4:9"}, {"2", "0 4:3"}}, "0 4:3 6:2"},
        {{{"0", "0 4:3"}, {"0", "0 5:3"}, {"0", "0 4:2"}},
         "node a stands at epoch 0 behind 3 steps of 4 ranks, and node b at epoch 0 behind 3 steps "
         "of 5 ranks: neither leads to the other; start all ranks from one state"},
        {{{"-", "0 4:3 5:2"}, {"-", "-"}, {"-", "0 4:4"}},
         "node a stands at epoch 0 behind 3 steps of 4 ranks and 2 of 5, and node c at epoch 0 "
         "behind 4 steps of 4 ranks: neither leads to the other; start all ranks from one state"},
    };
    static const char *const names[] = {"a", "b", "c"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct course_word words[3];
        struct course_said said[3];
        struct course_point agreed;
        struct dl_error err = {0};

        for (unsigned k = 0; k < 3; k++) {
            words[k] = word(rows[i].words[k][0], rows[i].words[k][1]);
            said[k] = (struct course_said){names[k], &words[k]};
        }
        int r = course_agree(said, 3, &agreed, &err);
        if (r < 0)
            assert_string_equal(err.message, rows[i].is);
        else if (r == 1)
            assert_null(rows[i].is);
        else
            assert_point(&agreed, rows[i].is);
    }
}

/* Of up to four rounds, where they began ("-": not known); the node is in those with a world. */
struct rounds {
    struct {
        const char *begin;
        uint64_t first, world;
    } of[4];
};

static struct course make_course(const struct rounds *rounds)
{
    struct course course = {0};

    for (unsigned i = 0; i < 4 && rounds->of[i].begin; i++) {
        struct course_point begin = point(rounds->of[i].begin);

        if (rounds->of[i].world)
            course_enter(&course, i, rounds->of[i].first, rounds->of[i].world);
        if (*rounds->of[i].begin != '-')
            course_learn(&course, i, &begin);
    }
    return course;
}

#define ANY COURSE_ANYWHERE
#define NO  UINT64_MAX

static void test_place(void **state)
{
    /* Two rounds; four, of which the third had no time to begin anything. */
    static const struct rounds two = {{{"0", 2, 4}, {"0 4:5", 0, 6}}},
                               came = {{{"0", 0, 0}, {"3 4:5", 4, 6}}},
                               many =
                                   {{{"0", 2, 4}, {"0 4:5", 0, 6}, {"-", 0, 8}, {"1 6:3", 2, 4}}},
                               same = {{{"0", 2, 4}, {"0 4:5", 0, 4}}},
                               passed = {{{"0", 0, 0}, {"2/1", 4, 6}}},
                               awaited = {{{"0", 0, 0}, {"0 4:5", 4, 6}, {"0 4:5 6:2", 4, 8}}};
    static const struct {
        const char *what;
        const struct rounds *rounds;
        uint64_t entered;
        const char *behind; /* of a rank that is not new */
        struct {
            uint64_t epoch;
            const char *before; /* a point, of which the history counts */
            uint64_t step;
        } wish;
        uint64_t round, limit;
        const char *at;
        bool moved;
    } rows[] = {
        {"it is there", &two, 0, "0 4:5", {0, "0 4:5", 0}, 1, NO, "0 4:5", false},
        {"it is behind", &two, 0, "0 4:2", {0, "0 4:3", 0}, 0, 5, "0 4:3", false},
        {"it was given nothing", &two, 0, "0", {0, "0", 0}, 0, 5, "0", false},
        {"it has done with the epoch", &two, 0, "0 4:5", {1, "0", 0}, 1, NO, "1", false},
        {"once more in the round", &two, 1, "0 4:5 6:3", {0, "0 4:5 6:3", 0}, 1, NO, "0 4:5 6:3"},
        {"once more the epoch", &two, 1, "0 4:5 6:3", {0, "0", 0}, 1, NO, "1/0", false},
        {"once more, and elsewhere",
         &two,
         1,
         "0 4:5 6:3",
         {0, "0 9:1", 0},
         1,
         NO,
         "1/0 9:1",
         false},
        {"where it was", &two, 1, "0 4:5 6:3", {ANY, "0", 0}, 1, NO, "0 4:5 6:3", false},
        {"where it was, behind", &two, 0, "0 4:3", {ANY, "0", 0}, 0, 5, "0 4:3", false},
        {"new", &came, NO, NULL, {3, "0", 0}, 1, NO, "3 4:5", false},
        {"new, wherever", &came, NO, NULL, {ANY, "0", 0}, 1, NO, "3 4:5", false},
        {"new, and all have done", &passed, NO, NULL, {0, "0", 0}, 1, NO, "3/0", false},
        {"new, with a state", &came, NO, NULL, {3, "0 4:5", 0}, 1, NO, "3 4:5", false},
        {"new, with an old state", &came, NO, NULL, {3, "0 4:3", 0}, 1, NO, "3 4:5", true},
        {"new, with a state of another", &came, NO, NULL, {3, "0 5:3", 0}, 1, NO, "3 4:5", true},
        {"new, further than others", &came, NO, NULL, {3, "0 4:7", 0}, 1, NO, "3 4:5", true},
        {"new, in the midst", &came, NO, NULL, {3, "0 4:5 6:2", 0}, 1, NO, "3 4:5 6:2", false},
        {"new, in the next epoch", &came, NO, NULL, {4, "0 6:2", 0}, 1, NO, "4 6:2", false},
        {"new, with a step", &came, NO, NULL, {3, "0", 7}, 1, NO, "3 4:5", true},
        {"two rounds behind", &many, 0, "0 4:2", {0, "0 4:2", 0}, 0, 5, "0 4:2", false},
        {"one round behind", &many, 0, "0 4:2", {0, "0 4:5", 0}, 1, NO, "0 4:5", false},
        {"in the epoch after", &many, 0, "0 4:2", {1, "0", 0}, 1, 3, "1", false},
        {"not alone", &many, 0, "0 4:2", {1, "0 6:3", 0}, 3, NO, "1 6:3", false},
        {"as many ranks", &same, 0, "0 4:2", {0, "0 4:3", 0}, 0, 5, "0 4:3", false},
        {"as many, further", &same, 1, "0 4:6", {0, "0 4:7", 0}, 1, NO, "0 4:7", false},
        {"it was waited for", &awaited, NO, NULL, {0, "0", 0}, 1, 2, "0 4:5", false},
        {"and then", &awaited, 1, "0 4:5 6:2", {0, "0 4:5 6:2", 0}, 2, NO, "0 4:5 6:2", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct course course = make_course(rows[i].rounds);
        struct course_rank rank = {.entered = rows[i].entered};
        struct course_wish wish = {.epoch = rows[i].wish.epoch,
                                   .step = rows[i].wish.step,
                                   .before = point(rows[i].wish.before).history};
        struct course_place place;
        struct course_point at;
        struct dl_error err = {0};

        if (rows[i].behind)
            rank.given = rank.behind = point(rows[i].behind);
        print_message("# %s\n", rows[i].what);
        assert_int_equal(course_place(&course, &rank, &wish, &place, &err), 0);
        assert_int_equal(place.round, rows[i].round);
        assert_int_equal(place.first, rows[i].rounds->of[place.round].first);
        assert_int_equal(place.world, rows[i].rounds->of[place.round].world);
        assert_true(place.limit == rows[i].limit);
        assert_int_equal(place.moved, rows[i].moved);
        assert_true(
            course_point_at(&at, place.pass, place.epoch, &place.before, place.world, place.step));
        assert_point(&at, rows[i].at);
        assert_true(place.before.n == 0 ||
                    place.before.of[place.before.n - 1].world != place.world);
    }
}

static void test_refused(void **state)
{
    static const struct rounds came = {{{"0", 0, 0}, {"3 4:5", 4, 6}}};
    struct course course = make_course(&came);
    struct course_rank rank = {.entered = COURSE_NEW};
    struct course_wish wish = {.epoch = 0};
    struct course_place place;
    struct dl_error err = {0};

    (void)state;
    assert_int_equal(course_place(&course, &rank, &wish, &place, &err), -EINVAL);
    assert_string_equal(err.path, "epoch");
    assert_string_equal(err.message,
                        "0 is asked for, and the other nodes are in epoch 3 behind 5 steps of 4 "
                        "ranks; ask for that one, or for wherever they are (DL_RESUME)");
}

static void test_limit(void **state)
{
    static const struct rounds many = {
        {{"0", 2, 4}, {"0 4:5", 0, 6}, {"0 4:5 6:2", 0, 8}, {"1 8:3", 2, 4}}};
    struct course course = make_course(&many);
    struct history none = {0}, first = point("0 4:5").history, second = point("0 4:5 6:2").history;
    struct history other = point("0 3:5").history;

    (void)state;
    assert_true(course_limit(&course, 0, 0, 0, &none) == 5);
    assert_true(course_limit(&course, 1, 0, 0, &first) == 2);
    assert_true(course_limit(&course, 2, 0, 0, &second) == UINT64_MAX); /* to the end */
    assert_true(course_limit(&course, 2, 0, 1, &none) == 3);
    assert_true(course_limit(&course, 3, 0, 1, &none) == UINT64_MAX);
    assert_true(course_limit(&course, 0, 1, 0, &none) == UINT64_MAX);
    assert_true(course_limit(&course, 1, 0, 0, &none) == 0); /* nobody went on from there */
    assert_true(course_limit(&course, 0, 0, 0, &other) == 0);
}

/* The oldest go, and what is older than all is not kept. */
static void test_rounds_give_way(void **state)
{
    struct course course = {0};
    struct course_point begin = {0};

    (void)state;
    for (uint64_t round = 10; round < 30; round++) {
        begin.epoch = round;
        course_learn(&course, round, &begin);
        begin.epoch = 99;
        course_learn(&course, round, &begin); /* what is known stays */
        course_enter(&course, round, 1, 2);
    }
    assert_int_equal(course.n, COURSE_ROUNDS);
    assert_int_equal(course_first(&course)->number, 30 - COURSE_ROUNDS);
    assert_int_equal(course_latest(&course)->begin.epoch, 29);
    course_learn(&course, 3, &begin);
    course_enter(&course, 3, 1, 2);
    assert_null(course_find(&course, 3));
    assert_int_equal(course.n, COURSE_ROUNDS);
    course_enter(&course, 40, 1, 2); /* begun by nobody yet */
    assert_int_equal(course_latest(&course)->number, 29);
}

static void test_words(void **state)
{
    static const struct rounds many = {{{"0", 2, 4}, {"3/7 4:5 6:2", 0, 6}, {"-", 0, 8}}};
    static const char *const bad[] = {"", "2\n", "1", "1\nat 0\n", "1\nat 0 0 4\n",
                                      "1\nat 0 0 4:0\n", "1\nx", "1\nat 0 0 ", "1\nlast\n",
                                      "1\nlast -1\n", "1\nat 0 0 4:1 4:2\n", "1\nround 1 2\n",
                                      "1\nat 0 18446744073709551616\n", "1\nat 0 0 1048577:1\n",
                                      /* of rounds that are not over when it is said */
                                      "1\nlast 3\n", "1\nlast 18446744073709551615\n",
                                      "1\nround 3 0 0\n", "1\nlast 2\nround 2 0 0\nround 9 0 0\n"};
    struct course_word said = {.last = 1, .says = true, .at = point("3/7 4:5 6:4")}, heard;
    _cleanup_(buffer_deinit)
    struct dl_buffer text = {0};

    (void)state;
    said.knows = make_course(&many);
    course_word_write(&said, &text);
    assert_true(course_word_read((struct dl_span){text.data, text.len}, 3, &heard));
    assert_int_equal(heard.last, 1);
    assert_true(heard.says);
    assert_point(&heard.at, "3/7 4:5 6:4");
    assert_int_equal(heard.knows.n, 2);
    assert_point(&course_find(&heard.knows, 1)->begin, "3/7 4:5 6:2");
    text.len = 0;
    said = (struct course_word){.last = COURSE_NEW};
    course_word_write(&said, &text);
    assert_true(course_word_read((struct dl_span){text.data, text.len}, 3, &heard));
    assert_true(heard.last == COURSE_NEW && !heard.says && heard.knows.n == 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(course_word_read(span_str(bad[i]), 3, &heard));
    assert_false(course_word_read((struct dl_span){(const uint8_t *)"1\n\0", 3}, 3, &heard));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_compare),         cmocka_unit_test(test_agree),
    cmocka_unit_test(test_place),           cmocka_unit_test(test_refused),
    cmocka_unit_test(test_limit),           cmocka_unit_test(test_words),
    cmocka_unit_test(test_rounds_give_way),
};

TEST_MAIN(tests)
