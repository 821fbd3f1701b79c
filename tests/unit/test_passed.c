/* Steps that pass one that is not ready: which comes next, what a journal says of it, and that
 * another run which follows it has the same order. */
#include "tests/lib/abort.h"

#include "daemon/serve/core/stream.h"
#include "proto/passed.h"

#include <errno.h>

static struct segment segment;

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (*state >> 16) % n;
}

static struct stream *stream_of(uint64_t bypass, uint64_t steps, uint32_t credits,
                                const struct passed *passed)
{
    struct stream_params params = {.world = 1,
                                   .first = passed->head,
                                   .steps = steps,
                                   .credits = credits,
                                   .any_order = true,
                                   .bypass = bypass,
                                   .passed = *passed};
    struct stream *stream = stream_new(&params, NULL, NULL);

    stream_become(stream, STREAM_ACTIVE);
    return stream;
}

static void end(struct stream *stream)
{
    struct step *step, *next;

    HASH_ITER (hh, stream->steps, step, next)
        stream_forget(stream, step);
    assert_null(stream_free(stream));
}

/* ---- the rule -------------------------------------------------------------------------------- */

/* Of six steps that are being made those that `ready` says, in its order, become ready; all that
 * may come then has come. */
TEST(test_which_comes)
{
    static const struct {
        uint64_t bypass;
        const char *ready, *come;
    } rows[] = {
        {1, "0", "0"},        {1, "1", "1"},       {1, "2", ""},          {1, "12", "1"},
        {1, "120", "102"},    {1, "1230", "1023"}, {2, "12", "12"},       {2, "123", "12"},
        {2, "21", "21"},      {2, "3", ""},        {2, "30", "03"},       {2, "301", "031"},
        {2, "540", "0"},      {2, "5410", "104"},  {5, "54321", "54321"}, {5, "543210", "543210"},
        {1023, "531", "531"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct stream *stream = stream_of(rows[i].bypass, 100, 6, &(struct passed){0});
        struct step *steps[6], *step;
        char come[8] = "";

        for (int k = 0; k < 6; k++)
            step_run(steps[k] = stream_plan(stream), &segment, 0, 4);
        for (const char *c = rows[i].ready; *c; c++) {
            step_ready(steps[*c - '0'], 4, 10);
            while ((step = stream_deliverable(stream))) {
                come[strlen(come)] = (char)('0' + step->number);
                stream_deliver(stream, step);
            }
        }
        assert_string_equal(come, rows[i].come);
        end(stream);
    }
}

/* ---- runs at random -------------------------------------------------------------------------- */

enum { STEPS = 60, CREDITS_MAX = 12 };

struct run {
    uint64_t came[STEPS];
    uint32_t n;
    struct passed passed;   /* what has come */
    struct journal journal; /* since it began */
};

/* Steps are made in an order drawn from the seed, some are lost and made again; `stop`: so many
 * come. */
static void play(struct run *run, struct stream *stream, uint32_t seed, uint32_t stop,
                 uint64_t bypass)
{
    struct step *running[STEPS], *step;
    uint32_t n = 0;

    for (uint32_t turn = 0; run->n < stop && !stream_finished(stream); turn++) {
        assert_true(turn < 20000);
        while (stream_has_room(stream)) {
            step = running[n++] = stream_plan(stream);
            assert_false(passed_has(&run->passed, step->number));
            step_run(step, &segment, 0, 4);
        }
        if (n > 0) { /* mostly one of the first */
            uint32_t at = draw(&seed, 4) ? draw(&seed, n) : 0;

            step = running[at];
            if (draw(&seed, 8) == 0) {
                step_lost(step);
                step_run(step, &segment, 0, 4);
                continue;
            }
            step_ready(step, 4, 10);
            memmove(&running[at], &running[at + 1], (--n - at) * sizeof running[0]);
        }
        while (run->n < stop && (step = stream_deliverable(stream))) {
            uint64_t number = step->number, place = passed_place(&run->passed, number);

            assert_true(number - run->passed.head <= bypass);
            assert_true(passed_find(&run->passed, place) == number);
            assert_true(passed_add(&run->passed, number));
            assert_int_equal(journal_add(&run->journal, place), 0);
            run->came[run->n++] = number;
            stream_deliver(stream, step);
            stream_forget(stream, step);
        }
    }
    end(stream);
}

/* Each step once, none more than `bypass` places from its own. */
static void check_run(const struct run *run, uint64_t bypass)
{
    assert_int_equal(run->n, STEPS);
    assert_true(run->passed.head == STEPS && passed_count(&run->passed) == 0);
    for (uint32_t i = 0; i < STEPS; i++) {
        uint64_t step = run->came[i];

        assert_true((step > i ? step - i : i - step) <= bypass);
        for (uint32_t k = 0; k < i; k++)
            assert_true(run->came[k] != step);
    }
}

/* A run is stopped and resumed from what had come; then another follows the journal, made in other
 * orders and with other credits, whole and from the same place. */
static void play_once(uint32_t seed)
{
    uint64_t bypass = 1 + draw(&seed, 10);
    uint32_t stop = draw(&seed, STEPS + 1), credits = 1 + draw(&seed, CREDITS_MAX);
    struct run first = {0}, whole = {0}, rest;
    struct dl_buffer journal = {0}, left = {0};

    play(&first, stream_of(bypass, STEPS, credits, &first.passed), seed, stop, bypass);
    assert_int_equal(first.n, stop);
    rest = (struct run){.passed = first.passed};
    play(&first, stream_of(bypass, STEPS, credits, &first.passed), seed + 1, STEPS, bypass);
    check_run(&first, bypass);
    assert_int_equal(journal_write(&first.journal, &journal), 0);
    struct dl_span runs = {journal.data, journal.len};
    assert_true(journal_is_sound(runs));

    struct stream *stream = stream_of(bypass, STEPS, 1 + draw(&seed, CREDITS_MAX), &whole.passed);
    stream_follow(stream, runs);
    play(&whole, stream, seed + 2, STEPS, bypass);
    assert_memory_equal(whole.came, first.came, sizeof first.came);

    assert_int_equal(journal_cut(runs, stop, &left), 0);
    stream = stream_of(bypass, STEPS, 1 + draw(&seed, CREDITS_MAX), &rest.passed);
    stream_follow(stream, (struct dl_span){left.data, left.len});
    play(&rest, stream, seed + 3, STEPS, bypass);
    assert_int_equal(rest.n, STEPS - stop);
    assert_memory_equal(rest.came, first.came + stop, rest.n * sizeof rest.came[0]);

    buffer_deinit(&journal);
    buffer_deinit(&left);
    journal_deinit(&first.journal);
    journal_deinit(&whole.journal);
    journal_deinit(&rest.journal);
}

TEST(test_runs)
{
    for (uint32_t seed = 0; seed < 3000; seed++)
        play_once(seed);
}

/* Of another plan, or a longer epoch: what it says further is left. */
TEST(test_journal_of_steps_that_are_none)
{
    static const uint8_t runs[] = {1, 2, 0, 1, 9, 1, 0, 5};
    struct run run = {0};
    struct stream *stream = stream_of(9, STEPS, 4, &run.passed);

    stream_follow(stream, (struct dl_span){runs, sizeof runs});
    play(&run, stream, 1, STEPS, STEPS);
    check_run(&run, STEPS);
    assert_true(run.came[0] == 1 && run.came[1] == 2 && run.came[2] == 0 && run.came[3] == 12);
    journal_deinit(&run.journal);

    run = (struct run){.passed = {.head = STEPS - 3}};
    stream = stream_of(9, STEPS, 4, &run.passed);
    stream_follow(stream, (struct dl_span){runs, sizeof runs});
    play(&run, stream, 1, STEPS, STEPS);
    assert_int_equal(run.n, 3);
    assert_true(run.came[0] == STEPS - 2 && run.came[1] == STEPS - 1 && run.came[2] == STEPS - 3);
    journal_deinit(&run.journal);
}

/* ---- what has come --------------------------------------------------------------------------- */

TEST(test_far_steps)
{
    struct passed passed = {.head = 7}, read;
    uint8_t bytes[PASSED_BYTES];

    assert_int_equal(passed_write(&passed, bytes), 0);
    assert_true(passed_add(&passed, 7 + DL_MAX_BYPASS));
    assert_false(passed_add(&passed, 7 + DL_MAX_BYPASS + 1));
    assert_false(passed_add(&passed, 7 + DL_MAX_BYPASS));
    assert_false(passed_add(&passed, 6));
    assert_int_equal(passed_count(&passed), 1);
    assert_true(passed_place(&passed, 7 + DL_MAX_BYPASS + 5) == DL_MAX_BYPASS + 4);
    assert_true(passed_find(&passed, DL_MAX_BYPASS + 4) == 7 + DL_MAX_BYPASS + 5);
    assert_int_equal(passed_write(&passed, bytes), PASSED_BYTES);
    assert_true(passed_read(7, (struct dl_span){bytes, sizeof bytes}, &read));
    assert_true(passed_agree(&passed, &read, 7));
    for (uint64_t step = 7; step < 7 + DL_MAX_BYPASS; step++)
        assert_true(passed_add(&passed, step));
    assert_true(passed.head == 8 + DL_MAX_BYPASS && passed_count(&passed) == 0);
    assert_false(passed_read(7, (struct dl_span){bytes, 7}, &read));
    memset(bytes, 0, sizeof bytes);
    assert_false(passed_read(7, (struct dl_span){bytes, 8}, &read)); /* words that say nothing */
    bytes[0] = 1;
    assert_false(passed_read(7, (struct dl_span){bytes, 8}, &read)); /* the head has not come */
}

TEST(test_journals_that_are_none)
{
    static const struct {
        uint8_t len, bytes[12];
        bool sound;
    } rows[] = {
        {0, {0}, true},
        {2, {0, 1}, true},
        {1, {0}, false},
        {2, {0, 0}, false},       /* no times */
        {3, {0, 0x81, 0}, false}, /* not its shortest form */
        {3, {0x80, 8, 1}, false}, /* place 1,024 */
        {3, {0xFF, 7, 1}, true},
        {11, {0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1}, true},
        {11, {0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2}, false},
        {4, {0, 1, 1, 0x80}, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(journal_is_sound((struct dl_span){rows[i].bytes, rows[i].len}),
                         rows[i].sound);
}

/* A slow step in each ten takes a few bytes; there is an end to them. */
TEST(test_journals_are_bounded)
{
    struct journal journal = {0};
    uint64_t n = 0;
    int r = 0;

    for (; n < 1000; n++)
        assert_int_equal(journal_add(&journal, n % 10 == 3), 0);
    assert_in_range(journal.runs.len, 300, 400);
    while ((r = journal_add(&journal, n++ % 2)) == 0)
        assert_true(n < DL_MAX_JOURNAL_BYTES);
    assert_int_equal(r, -E2BIG);
    assert_true(journal.runs.len <= DL_MAX_JOURNAL_BYTES);
    journal_deinit(&journal);
}
