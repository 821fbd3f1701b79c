/* What nodes that are gone leave out: by tables. */
#include "tests/lib/harness.h"

#include "daemon/cluster/progress/account.h"

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

TEST(test_missing)
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
        {"0 4:5", "0 4:7 6:3", "0 4:7 6:9", 5, 6, 0, 3}, /* it lacks parts of two range_world */
        {"0 6:5", "0 4:7", "0 4:7", 0, 0, 0, 0},         /* of another history: not known */
    };

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

/* Ranks go back, and have all from there on anew. */
TEST(test_turn)
{
    static const struct {
        const char *from, *to, *at;
        uint64_t steps, last;
    } rows[] = {
        {"0 6:2", "0 6:20", "0 6:10", 8, 10}, {"0 6:2", "0 6:5", "0 6:10", 3, 5},
        {"0 6:12", "0 6:20", "0 6:10", 0, 0}, {"0 6:2", "", "0 6:10", 8, 10},
        {"0 6:2", "1", "0 6:10", 8, 10},      {"1 6:2", "1 6:20", "0 6:10", 18, 20},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct account_absence absence = {.from = point(rows[i].from), .has_to = *rows[i].to != 0};
        struct progress_point at = point(rows[i].at), end = {.epoch = absence.from.epoch};
        struct account_range range;

        if (absence.has_to)
            absence.to = point(rows[i].to);
        at.pass = 1;
        account_turn(&absence, &at);
        end.pass = absence.from.pass;
        assert_int_equal(end.pass, at.epoch == end.epoch);
        assert_int_equal(account_missing(&absence, &end, &range), rows[i].steps > 0);
        assert_int_equal(range.steps, rows[i].steps);
        assert_int_equal(range.to, rows[i].last);
    }
}

TEST(test_samples)
{
    struct account_absence absence = {.local = 2};
    struct account_range range = {.steps = 18};

    assert_int_equal(account_samples(&absence, &range, 10), 360);
    range.steps = UINT64_MAX / 2;
    assert_int_equal(account_samples(&absence, &range, 10), UINT64_MAX);
}

TEST(test_words)
{
    static const struct {
        uint64_t first, local, world, range_world;
        const char *said;
    } rows[] = {
        {4, 2, 6, 6, "ranks 4 to 5 of 6 on node c, steps 2 to 19"},
        {1, 1, 2, 2, "rank 1 of 2 on node c, steps 2 to 19"},
        {4, 2, 6, 8, "2 of 8 ranks on node c, steps 2 to 19"},
    };
    char text[ACCOUNT_TEXT_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct account_absence absence = {
            .node = "c", .first = rows[i].first, .local = rows[i].local, .world = rows[i].world};
        struct account_range range = {
            .world = rows[i].range_world, .from = 2, .to = 20, .steps = 18};

        account_text(&absence, &range, text);
        assert_string_equal(text, rows[i].said);
    }
}

/* What others wrote, to the byte; what nobody can have written, is none. */
TEST(test_entries)
{
    static const struct {
        const char *text;
        uint32_t n;
        bool whole; /* and behind these nothing is left */
    } rows[] = {
        {"1\nended 0 0 6:32\n", 0, true},
        {"1\nended 0 0\ngone 1f 4 2 6 c\nfrom 0 0 6:2\n", 1, true},
        {"1\nended 0 0\ngone 1f 4 2 6 c\nfrom 0 0 6:2\nto 0 0 6:20\n", 1, true},
        {"1\nended 0 1 6:9\ngone 1f 4 2 6 a name\nfrom 0 0 6:2\nto 0 0 6:20\nsaid 0\n"
         "gone ffffffffffffffff 0 1 3 ü\nfrom 0 1\n",
         2, true},
        {"1\nended 0 0\ngone 1f 4 2 6 c\nfrom 0 0 6:2\ngone 1f 4 3 6 c\nfrom 0 0\n", 1, false},
        {"1\nended 0 0\ngone 1f 4 0 6 c\nfrom 0 0\n", 0, false},  /* of no ranks */
        {"1\nended 0 0\ngone 0 4 2 6 c\nfrom 0 0\n", 0, false},   /* of no node */
        {"1\nended 0 0\ngone 1f -4 2 6 c\nfrom 0 0\n", 0, false}, /* not a number */
        {"1\nended 0 0\ngone 1f 4 2 6 \nfrom 0 0\n", 0, false},   /* of no name */
        {"1\nended 0 0\ngone 1f 4 2 6 a\tb\nfrom 0 0\n", 0, false},
        {"1\nended 0 0\ngone 1f 4 2 6 c\nfrom 0 0 6:0\n", 0, false},
        {"1\nended 0 0\ngone 1f 4 2 6 c\n", 0, false},
        {"1\nended 0 0\ngone 1f 4 2 6 c\nfrom 0 0\nsaid x\n", 0, false},
        {"1\nended 0 0\ngone 1f 18446744073709551615 2 6 c\nfrom 0 0\n", 0, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(buffer_deinit) struct dl_buffer again = {0};
        const char *at = rows[i].text;
        struct account_entry entry;
        struct progress_point ended;
        uint32_t n = 0;

        assert_true(account_read_begin(&at, &ended));
        account_begin(&ended, &again);
        for (; account_read_next(&at, &entry); n++)
            account_add(&entry, &again);
        assert_int_equal(n, rows[i].n);
        if (!rows[i].whole)
            continue;
        assert_int_equal(*at, 0);
        assert_int_equal(again.len, strlen(rows[i].text));
        assert_memory_equal(again.data, rows[i].text, again.len);
    }
}

/* Another's, or of another version. */
TEST(test_no_entries)
{
    static const char *const rows[] = {"", "1\n", "2\nended 0 0\n", "1\nended\n", "1\nended 0 0"};
    struct progress_point ended;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *at = rows[i];

        assert_false(account_read_begin(&at, &ended));
    }
}
