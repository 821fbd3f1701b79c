/* Where ranks go on when the world has changed: by tables. */
#include "tests/lib/harness.h"

#include "daemon/cluster/progress/progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* "epoch world:steps …"; the pass before an '/', if it is not 0. */
static struct progress_point point(const char *text)
{
    struct progress_point ret = {0};
    const char *slash = strchr(text, '/');
    char *at;

    if (slash)
        ret.pass = strtoull(text, NULL, 10);
    ret.epoch = strtoull(slash ? slash + 1 : text, &at, 10);
    while (*at) {
        uint64_t world = strtoull(at, &at, 10);

        ret.history.stretches[ret.history.n++] =
            (struct history_stretch){world, strtoull(at + 1, &at, 10)};
    }
    return ret;
}

static void assert_point(const struct progress_point *got, const char *text)
{
    struct progress_point want = point(text);

    if (progress_compare(got, &want) == PROGRESS_SAME)
        return;
    char said[PROGRESS_TEXT_MAX];
    progress_point_text(got, said);
    fail_msg("pass %llu of %s is not %s", (unsigned long long)got->pass, said, text);
}

TEST(test_compare)
{
    static const struct {
        const char *a, *b;
        enum progress_order is;
    } rows[] = {
        {"0", "0", PROGRESS_SAME},
        {"0", "1", PROGRESS_BEFORE},
        {"0 4:9", "1", PROGRESS_BEFORE},
        {"1/0", "3 4:2", PROGRESS_AFTER},
        {"3", "3 4:1", PROGRESS_BEFORE},
        {"3 4:2", "3 4:5", PROGRESS_BEFORE},
        {"3 4:5", "3 4:5", PROGRESS_SAME},
        {"3 4:5 6:1", "3 4:5", PROGRESS_AFTER},
        {"3 4:5 6:1", "3 4:3", PROGRESS_AFTER},
        {"3 4:5 6:1", "3 4:6", PROGRESS_UNRELATED}, /* the stretch of 4 had ended at 5 */
        {"3 4:5", "3 6:5", PROGRESS_UNRELATED},
        {"3 4:5 6:1", "3 4:5 8:1", PROGRESS_UNRELATED},
    };
    static const enum progress_order turned[] = {PROGRESS_SAME, PROGRESS_AFTER, PROGRESS_BEFORE,
                                                 PROGRESS_UNRELATED};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct progress_point a = point(rows[i].a), b = point(rows[i].b);

        assert_int_equal(progress_compare(&a, &b), rows[i].is);
        assert_int_equal(progress_compare(&b, &a), turned[rows[i].is]);
    }
}

/* "last at", each "-" if it is not reported. */
static struct progress_report report(const char *last, const char *at)
{
    struct progress_report ret = {.last =
                                      *last == '-' ? PROGRESS_NO_ROUND : strtoull(last, NULL, 10),
                                  .has_point = *at != '-'};

    if (ret.has_point)
        ret.point = point(at);
    return ret;
}

TEST(test_merge)
{
    static const struct {
        const char *reports[3][2]; /* of nodes a, b, c */
        const char *is;            /* NULL: nobody knows; else a point, or what is refused */
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
         "node a is at epoch 0 after 3 steps of 4 ranks, and node b at epoch 0 after 3 steps "
         "of 5 ranks, which do not belong to one history; start all ranks from one state"},
        {{{"-", "0 4:3 5:2"}, {"-", "-"}, {"-", "0 4:4"}},
         "node a is at epoch 0 after 3 steps of 4 ranks and 2 of 5, and node c at epoch 0 "
         "after 4 steps of 4 ranks, which do not belong to one history; start all ranks from one "
         "state"},
    };
    static const char *const names[] = {"a", "b", "c"};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct progress_report reports[3];
        struct node_report by_node[3];
        struct progress_point merged;
        struct dl_error err = {0};

        for (unsigned k = 0; k < 3; k++) {
            reports[k] = report(rows[i].reports[k][0], rows[i].reports[k][1]);
            by_node[k] = (struct node_report){names[k], &reports[k]};
        }
        int r = progress_merge(by_node, 3, &merged, &err);
        if (r < 0)
            assert_string_equal(err.message, rows[i].is);
        else if (r == 1)
            assert_null(rows[i].is);
        else
            assert_point(&merged, rows[i].is);
    }
}

/* Of up to four rounds, where they began ("-": not known); the node is in those with a world. */
struct rounds {
    struct {
        const char *begin;
        uint64_t first, world;
    } rounds[4];
};

static struct progress make_progress(const struct rounds *rounds)
{
    struct progress progress = {0};

    for (unsigned i = 0; i < 4 && rounds->rounds[i].begin; i++) {
        struct progress_point begin = point(rounds->rounds[i].begin);

        if (rounds->rounds[i].world)
            progress_enter(&progress, i, rounds->rounds[i].first, rounds->rounds[i].world);
        if (*rounds->rounds[i].begin != '-')
            progress_learn(&progress, i, &begin);
    }
    return progress;
}

#define ANY RESUME_ANYWHERE
#define NO  UINT64_MAX

TEST(test_place)
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
        } request;
        uint64_t round, limit;
        const char *at;
        bool loses;
        bool left; /* its client has left its stream by itself */
    } rows[] = {
        {"it is there", &two, 0, "0 4:5", {0, "0 4:5", 0}, 1, NO, "0 4:5", false},
        {"it is behind", &two, 0, "0 4:2", {0, "0 4:3", 0}, 0, 5, "0 4:3", false},
        {"it was given nothing", &two, 0, "0", {0, "0", 0}, 0, 5, "0", false},
        {"it has done with the epoch", &two, 0, "0 4:5", {1, "0", 0}, 1, NO, "1", false},
        {"once more in the round", &two, 1, "0 4:5 6:3", {0, "0 4:5 6:3", 0}, 1, NO, "0 4:5 6:3"},
        {"back to its beginning", &two, 1, "0 4:5 6:3", {0, "0", 0}, 1, NO, "1/0", false},
        {"back to another world", &two, 1, "0 4:5 6:3", {0, "0 4:2", 0}, 1, NO, "1/0 4:2", false},
        {"back in its world", &two, 1, "0 4:5 6:3", {0, "0 4:5 6:1", 0}, 1, NO, "0 4:5 6:1", false},
        {"once more the epoch", &two, 1, "1", {0, "0", 0}, 1, NO, "1/0", false},
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
        {"new, with an old state", &came, NO, NULL, {3, "0 4:3", 0}, 1, NO, "1/3 4:3", false},
        {"new, with a state of another", &came, NO, NULL, {3, "0 5:3", 0}, 1, NO, "3 4:5", true},
        {"new, further than others", &came, NO, NULL, {3, "0 4:7", 0}, 1, NO, "3 4:5", true},
        {"new, in the midst", &came, NO, NULL, {3, "0 4:5 6:2", 0}, 1, NO, "3 4:5 6:2", false},
        {"new, in the next epoch", &came, NO, NULL, {4, "0 6:2", 0}, 1, NO, "4 6:2", false},
        {"new, with a step", &came, NO, NULL, {3, "0", 7}, 1, NO, "3 4:5", true},
        {"two rounds behind", &many, 0, "0 4:2", {0, "0 4:2", 0}, 0, 5, "0 4:2", false},
        {"one round behind", &many, 0, "0 4:2", {0, "0 4:5", 0}, 1, NO, "0 4:5", false},
        {"in the epoch after", &many, 0, "0 4:2", {1, "0", 0}, 1, 3, "1", false},
        {"not alone", &many, 0, "0 4:2", {1, "0 6:3", 0}, 3, NO, "1 6:3", false},
        {"it is to begin behind", &two, 0, "0 4:3", {0, "0 4:3", 0}, 1, NO, "1/0 4:3", false, true},
        {"as many, and back", &same, 1, "0 4:6", {0, "0 4:3", 0}, 0, 5, "0 4:3", false},
        {"as many ranks", &same, 0, "0 4:2", {0, "0 4:3", 0}, 0, 5, "0 4:3", false},
        {"as many, further", &same, 1, "0 4:6", {0, "0 4:7", 0}, 1, NO, "0 4:7", false},
        {"it was waited for", &awaited, NO, NULL, {0, "0", 0}, 1, 2, "0 4:5", false},
        {"and then", &awaited, 1, "0 4:5 6:2", {0, "0 4:5 6:2", 0}, 2, NO, "0 4:5 6:2", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct progress progress = make_progress(rows[i].rounds);
        struct progress_rank rank = {.entered = rows[i].entered, .left = rows[i].left};
        struct resume_request request = {.epoch = rows[i].request.epoch,
                                         .step = rows[i].request.step,
                                         .before = point(rows[i].request.before).history};
        struct resume_place place;
        struct progress_point at;
        struct dl_error err = {0};

        if (rows[i].behind)
            rank.given = rank.behind = point(rows[i].behind);
        print_message("# %s\n", rows[i].what);
        assert_int_equal(progress_resume(&progress, &rank, &request, &place, &err), 0);
        assert_int_equal(place.round, rows[i].round);
        assert_int_equal(place.first, rows[i].rounds->rounds[place.round].first);
        assert_int_equal(place.world, rows[i].rounds->rounds[place.round].world);
        assert_true(place.limit == rows[i].limit);
        assert_int_equal(place.lost > 0, rows[i].loses);
        assert_true(progress_point_after(&at, place.pass, place.epoch, &place.before, place.world,
                                         place.step));
        assert_point(&at, rows[i].at);
        assert_true(place.before.n == 0 ||
                    place.before.stretches[place.before.n - 1].world != place.world);
    }
}

/* A daemon that was started anew was in no round before: what it knows of them is from other nodes,
 * and of its ranks from their clients. */
TEST(test_former_place)
{
    static const struct rounds same = {{{"0", 0, 0}, {"0 4:5", 2, 4}}};
    static const struct {
        const char *what, *before;
        struct former_place former;
        uint64_t round, first, world, step, limit;
        bool loses;
    } rows[] = {
        {"behind", "0 4:3", {3, 4}, 0, 2, 4, 3, 5, false},
        {"there", "0 4:5", {3, 4}, 1, 2, 4, 5, NO, false},
        {"ahead", "0 4:6", {3, 4}, 1, 2, 4, 6, NO, false},
        {"at the epoch's beginning", "0", {3, 4}, 0, 2, 4, 0, 5, false},
        {"not told", "0 4:3", {0, 0}, 1, 2, 4, 5, NO, true},
        {"of another world", "0 4:3", {3, 6}, 1, 2, 4, 5, NO, true},
        {"no rank of this node", "0 4:3", {0, 4}, 1, 2, 4, 5, NO, true},
    };
    struct progress progress = make_progress(&same);

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct progress_rank rank = {.entered = PROGRESS_NO_ROUND};
        struct resume_request request = {
            .before = point(rows[i].before).history, .local = 1, .former = rows[i].former};
        struct resume_place place;
        struct dl_error err = {0};

        print_message("# %s\n", rows[i].what);
        assert_int_equal(progress_resume(&progress, &rank, &request, &place, &err), 0);
        assert_int_equal(place.round, rows[i].round);
        assert_int_equal(place.first, rows[i].first);
        assert_int_equal(place.world, rows[i].world);
        assert_int_equal(place.step, rows[i].step);
        assert_true(place.limit == rows[i].limit);
        assert_int_equal(place.lost > 0, rows[i].loses);
    }
}

/* All daemons are new, and the ranks are where they were: each goes on at its own step. */
TEST(test_begin_as_before)
{
    static const struct {
        const char *what, *before;
        uint64_t epoch, step;
        struct former_place former;
        const char *begin; /* "": it does not begin as before */
        uint64_t at;
    } rows[] = {
        {"the same place", "0 6:2", 0, 7, {3, 4}, "0 6:2", 7},
        {"at its beginning", "0 6:2", 0, 0, {3, 4}, "0 6:2", 0},
        {"at the epoch's", "0", 0, 0, {3, 4}, "0", 0},
        {"told that its world was over", "0 6:2 4:7", 0, 0, {3, 4}, "0 6:2", 7},
        {"another rank", "0 6:2", 0, 7, {2, 4}, "", 0},
        {"another world", "0 6:2", 0, 7, {3, 6}, "", 0},
        {"in none", "0 6:2", 0, 7, {0, 0}, "", 0},
        {"where the others are", "0", RESUME_ANYWHERE, 0, {3, 4}, "", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct progress progress = {0};
        struct progress_rank rank = {.entered = PROGRESS_NO_ROUND};
        struct resume_request request = {.epoch = rows[i].epoch,
                                         .step = rows[i].step,
                                         .before = point(rows[i].before).history,
                                         .local = 1,
                                         .former = rows[i].former};
        struct progress_point begin = {0};
        struct resume_place place;
        struct dl_error err = {0};

        print_message("# %s\n", rows[i].what);
        assert_true(progress_begin_as_before(&request, 2, 4, &begin) == (rows[i].begin[0] != 0));
        if (!rows[i].begin[0])
            continue;
        const struct progress_point wanted = point(rows[i].begin);
        assert_int_equal(progress_compare(&begin, &wanted), PROGRESS_SAME);
        progress_enter(&progress, 8, 2, 4);
        progress_learn(&progress, 8, &begin);
        assert_int_equal(progress_resume(&progress, &rank, &request, &place, &err), 0);
        assert_int_equal(place.first, 2);
        assert_int_equal(place.world, 4);
        assert_int_equal(place.step, rows[i].at);
        assert_true(place.limit == NO);
        assert_int_equal(place.lost, 0);
    }
}

TEST(test_refused)
{
    static const struct rounds came = {{{"0", 0, 0}, {"3 4:5", 4, 6}}};
    struct progress progress = make_progress(&came);
    struct progress_rank rank = {.entered = PROGRESS_NO_ROUND};
    struct resume_request request = {.epoch = 0};
    struct resume_place place;
    struct dl_error err = {0};

    assert_int_equal(progress_resume(&progress, &rank, &request, &place, &err), -EINVAL);
    assert_string_equal(err.path, "epoch");
    assert_string_equal(err.message,
                        "0 was requested, but the other nodes are in epoch 3 after 5 steps of 4 "
                        "ranks; request that one, or the position of the others (DL_RESUME)");
}

TEST(test_limit)
{
    static const struct rounds many = {
        {{"0", 2, 4}, {"0 4:5", 0, 6}, {"0 4:5 6:2", 0, 8}, {"1 8:3", 2, 4}}};
    /* Ranks were lost on their way to where the second began. */
    static const struct rounds lost = {{{"0", 2, 4}, {"0 4:5", 0, 6}, {"0 4:3", 0, 2}}};
    struct progress progress = make_progress(&many), fewer = make_progress(&lost);
    struct history none = {0}, first = point("0 4:5").history, second = point("0 4:5 6:2").history;
    struct history other = point("0 3:5").history;

    assert_true(progress_limit(&progress, 0, 4, 0, 0, &none) == 5);
    assert_true(progress_limit(&fewer, 0, 4, 0, 0, &none) == 3);
    assert_true(progress_limit(&progress, 1, 6, 0, 0, &first) == 2);
    assert_true(progress_limit(&progress, 2, 8, 0, 0, &second) == UINT64_MAX); /* to the end */
    assert_true(progress_limit(&progress, 2, 8, 0, 1, &none) == 3);
    assert_true(progress_limit(&progress, 3, 4, 0, 1, &none) == UINT64_MAX);
    assert_true(progress_limit(&progress, 0, 4, 1, 0, &none) == UINT64_MAX);
    assert_true(progress_limit(&progress, 1, 6, 0, 0, &none) == 0); /* nobody went on from there */
    assert_true(progress_limit(&progress, 0, 4, 0, 0, &other) == 0);
}

TEST(test_next)
{
    static const struct rounds was_there = {{{"0", 2, 4}, {"0 4:5", 0, 6}}},
                               came_later = {{{"0", 0, 0}, {"0 4:5", 0, 6}}},
                               apart = {{{"0", 0, 0}, {"0 4:5", 0, 0}, {"0 4:5 6:2", 0, 8}}},
                               turned = {{{"0", 0, 0}, {"1/0 4:5", 0, 6}}},
                               over = {{{"0 4:5", 0, 0}, {"0 4:5 6:2", 0, 0}, {"1", 2, 6}}};
    static const struct {
        const char *what;
        const struct rounds *rounds;
        const char *at, *next; /* "": it is not known */
    } rows[] = {
        {"in a world that the node was in", &was_there, "0 4:3", "0 4:4"},
        {"in the latest", &was_there, "0 4:5", "0 4:5 6:1"},
        {"gone back to a world from before the node", &came_later, "0 4:3", "0 4:4"},
        {"at the beginning of one", &came_later, "0", "0 4:1"},
        {"in one between", &apart, "0 4:5", "0 4:5 6:1"},
        {"in a pass that is over", &turned, "0 4:3", ""},
        {"in an epoch that the others have finished", &over, "0 4:5", "0 4:5 6:1"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct progress progress = make_progress(rows[i].rounds);
        struct progress_point at = point(rows[i].at), next;

        print_message("# %s\n", rows[i].what);
        assert_true(progress_next(&progress, &at, &next) == (rows[i].next[0] != 0));
        if (rows[i].next[0])
            assert_point(&next, rows[i].next);
    }
}

/* The oldest go, and what is older than all is not kept. */
TEST(test_rounds_give_way)
{
    struct progress progress = {0};
    struct progress_point begin = {0};

    for (uint64_t round = 10; round < 30; round++) {
        begin.epoch = round;
        progress_learn(&progress, round, &begin);
        begin.epoch = 99;
        progress_learn(&progress, round, &begin); /* what is known stays */
        progress_enter(&progress, round, 1, 2);
    }
    assert_int_equal(progress.n, PROGRESS_ROUNDS);
    assert_int_equal(progress_first(&progress)->number, 30 - PROGRESS_ROUNDS);
    assert_int_equal(progress_latest(&progress)->begin.epoch, 29);
    progress_learn(&progress, 3, &begin);
    progress_enter(&progress, 3, 1, 2);
    assert_null(progress_find(&progress, 3));
    assert_int_equal(progress.n, PROGRESS_ROUNDS);
    progress_enter(&progress, 40, 1, 2); /* begun by nobody yet */
    assert_int_equal(progress_latest(&progress)->number, 29);
}

TEST(test_reports)
{
    static const struct rounds many = {{{"0", 2, 4}, {"3/7 4:5 6:2", 0, 6}, {"-", 0, 8}}};
    static const char *const bad[] = {"", "2\n", "1", "1\nat 0\n", "1\nat 0 0 4\n",
                                      "1\nat 0 0 4:0\n", "1\nx", "1\nat 0 0 ", "1\nlast\n",
                                      "1\nlast -1\n", "1\nat 0 0 4:1 4:2\n", "1\nround 1 2\n",
                                      "1\nat 0 18446744073709551616\n", "1\nat 0 0 1048577:1\n",
                                      /* of rounds that are not over when it is said */
                                      "1\nlast 3\n", "1\nlast 18446744073709551615\n",
                                      "1\nround 3 0 0\n", "1\nlast 2\nround 2 0 0\nround 9 0 0\n"};
    struct progress_report written = {.last = 1, .has_point = true, .point = point("3/7 4:5 6:4")},
                           read;
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};

    written.known = make_progress(&many);
    progress_report_write(&written, &text);
    assert_true(progress_report_read((struct dl_span){text.data, text.len}, 3, &read));
    assert_int_equal(read.last, 1);
    assert_true(read.has_point);
    assert_point(&read.point, "3/7 4:5 6:4");
    assert_int_equal(read.known.n, 2);
    assert_point(&progress_find(&read.known, 1)->begin, "3/7 4:5 6:2");
    text.len = 0;
    written = (struct progress_report){.last = PROGRESS_NO_ROUND};
    progress_report_write(&written, &text);
    assert_true(progress_report_read((struct dl_span){text.data, text.len}, 3, &read));
    assert_true(read.last == PROGRESS_NO_ROUND && !read.has_point && read.known.n == 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(progress_report_read(span_str(bad[i]), 3, &read));
    assert_false(progress_report_read((struct dl_span){(const uint8_t *)"1\n\0", 3}, 3, &read));
}
