/* Ranks that disagree are refused, and told with whom; and how far the ranks of jobs have come. */
#include "tests/lib/harness.h"
#include "tests/lib/row.h"

#include "daemon/serve/core/jobs.h"
#include <errno.h>
#include <stdio.h>

static const int mine, other_session;
#define ME   &mine
#define THEM &other_session

struct claim {
    const char *job; /* "": no name */
    uint64_t world, rank, epoch;
    const void *owner;
    uint64_t round;
    uint32_t sharer, sharers;
};

static struct stream_params params_of(const struct claim *claim)
{
    struct stream_params params = {.world = claim->world,
                                   .rank = claim->rank,
                                   .epoch = claim->epoch,
                                   .owner = claim->owner,
                                   .round = claim->round,
                                   .sharer = claim->sharer,
                                   .sharers = claim->sharers};

    (void)snprintf(params.job, sizeof params.job, "%s", claim->job);
    return params;
}

static const struct {
    const char *name;
    struct claim others[3]; /* job NULL: none */
    struct claim one;
    int want;
    const char *text;
} rows[] = {
    ROW("alone", {{NULL}}, {"", 4, 0, 7, ME}, 0, NULL),
    ROW("the same epoch", {{"", 4, 1, 7, THEM}}, {"", 4, 0, 7, ME}, 0, NULL),
    ROW("one ahead", {{"", 4, 1, 6, THEM}}, {"", 4, 0, 7, ME}, 0, NULL),
    ROW("one behind", {{"", 4, 1, 8, THEM}}, {"", 4, 0, 7, ME}, 0, NULL),
    ROW("two ahead", {{"", 4, 1, 5, THEM}}, {"", 4, 0, 7, ME}, -EINVAL,
        "rank 0 of 4 starts epoch 7 while rank 1 of 4 is in epoch 5; ranks of a job"),
    ROW("two behind", {{"x", 4, 1, 9, THEM}}, {"x", 4, 0, 7, ME}, -EINVAL,
        "rank 1 of 4 is in epoch 9 of job x"),
    ROW("the largest numbers", {{"", 4, 1, 0, THEM}}, {"", 4, 0, UINT64_MAX, ME}, -EINVAL,
        "epoch 0"),
    ROW("behind in an old epoch only", {{"", 4, 1, 5, THEM}, {"", 4, 1, 6, THEM}},
        {"", 4, 0, 7, ME}, 0, NULL),
    ROW("one of several", {{"", 4, 1, 7, THEM}, {"", 4, 2, 7, THEM}, {"", 4, 3, 4, THEM}},
        {"", 4, 0, 7, ME}, -EINVAL, "rank 3 of 4 is in epoch 4"),
    ROW("the rank itself", {{"", 4, 0, 2, THEM}}, {"", 4, 0, 7, ME}, 0, NULL),
    ROW("of another number of ranks", {{"", 2, 1, 2, THEM}}, {"", 4, 0, 7, ME}, 0, NULL),
    ROW("of another job", {{"x", 4, 1, 2, THEM}}, {"y", 4, 0, 7, ME}, 0, NULL),
    ROW("of a job, and of none", {{"x", 4, 1, 2, THEM}}, {"", 4, 0, 7, ME}, 0, NULL),
    ROW("single ones without a name", {{"", 1, 0, 2, THEM}}, {"", 1, 0, 7, ME}, 0, NULL),
    ROW("without a name the same twice", {{"", 4, 0, 7, THEM}}, {"", 4, 0, 7, ME}, 0, NULL),
    ROW("with a name the same twice", {{"x", 4, 0, 7, THEM}}, {"x", 4, 0, 7, ME}, -EBUSY,
        "rank 0 of job \"x\" already reads epoch 7 in another session"),
    ROW("sharers of a rank", {{"x", 4, 0, 7, THEM, 0, 1, 3}}, {"x", 4, 0, 7, ME, 0, 2, 3}, 0, NULL),
    ROW("the same sharer twice", {{"x", 4, 0, 7, THEM, 0, 2, 3}}, {"x", 4, 0, 7, ME, 0, 2, 3},
        -EBUSY, "rank 0 of job \"x\" already reads epoch 7 in another session"),
    ROW("sharers who disagree on their number", {{"x", 4, 0, 7, THEM, 0, 1, 3}},
        {"x", 4, 0, 7, ME, 0, 1, 2}, -EINVAL,
        "rank 0 of job \"x\" is read by 3 replicas in another session, and here by 2"),
    ROW("sharers two epochs apart", {{"x", 4, 0, 5, THEM, 0, 1, 3}}, {"x", 4, 0, 7, ME, 0, 2, 3},
        -EINVAL, "rank 0 of 4 starts epoch 7 while rank 0 of 4 is in epoch 5"),
    ROW("with a name, in the rounds of a cluster",
        {{"x", 4, 0, 7, THEM, 1}, {"x", 6, 3, 2, THEM, 2}}, {"x", 8, 0, 7, ME, 3}, 0, NULL),
    ROW("in one round of a cluster", {{"x", 4, 0, 7, THEM, 1}}, {"x", 4, 0, 7, ME, 1}, -EBUSY,
        "rank 0 of job \"x\" already reads epoch 7 in another session"),
    ROW("the same twice in a session", {{"x", 4, 0, 7, ME}}, {"x", 4, 0, 7, ME}, 0, NULL),
    ROW("the next epoch of the same", {{"x", 1, 0, 7, THEM}}, {"x", 1, 0, 8, ME}, 0, NULL),
    ROW("another number of ranks in a job", {{"x", 2, 1, 7, THEM}}, {"x", 4, 0, 7, ME}, -EINVAL,
        "rank 0 of job \"x\" has a world of 4 ranks, but its rank 1, which is reading, has one of "
        "2"),
};

TEST(test_table)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct stream_params one = params_of(&rows[i].one), others[3];
        const struct stream_params *list[3];
        struct dl_error err = {0};
        size_t n = 0;

        for (; n < 3 && rows[i].others[n].job; n++) {
            others[n] = params_of(&rows[i].others[n]);
            list[n] = &others[n];
        }
        if (ranks_check(list, n, &one, &err) != rows[i].want)
            fail_msg("%s: %d, %s", rows[i].name, -err.code, err.message);
        if (rows[i].text && !strstr(err.message, rows[i].text))
            fail_msg("%s: '%s' does not say '%s'", rows[i].name, err.message, rows[i].text);
    }
}

/* ---- how far they have come ---- */

/* The rank of that job, in an epoch. */
#define AT(job, rank, world, epoch) (&(struct stream_params){job, NULL, epoch, rank, world})

static void expect(const struct positions *p, const char *job, uint64_t rank, uint64_t epoch,
                   uint64_t step)
{
    const struct stream_params params = params_of(&(struct claim){job, 2, rank});
    const struct position *at = positions_find(p, &params);

    assert_non_null(at);
    assert_int_equal(at->epoch, epoch);
    assert_int_equal(at->step, step);
}

TEST(test_positions)
{
    struct positions p = {0};

    assert_null(positions_find(&p, AT("x", 0, 2, 0)));
    positions_set(&p, AT("x", 0, 2, 0), 3, 10);
    assert_null(positions_find(&p, AT("x", 1, 2, 0)));
    assert_null(positions_find(&p, AT("x", 0, 3, 0)));
    assert_null(positions_find(&p, AT("y", 0, 2, 0)));
    assert_null(positions_find_other_world(&p, AT("x", 1, 2, 0))); /* some of this one are known */
    assert_null(positions_find_other_world(&p, AT("y", 0, 3, 0)));
    positions_set(&p, AT("x", 0, 4, 0), 7, 1);
    assert_int_equal(positions_find_other_world(&p, AT("x", 0, 3, 0))->epoch, 7); /* the last one */
    expect(&p, "x", 0, 3, 10);
    positions_set(&p, AT("x", 0, 2, 0), 2, 4); /* the trainer went back by itself */
    expect(&p, "x", 0, 2, 4);
    positions_deinit(&p);
}

/* Two epochs in a client's hands when it was gone, in either order. */
TEST(test_positions_of_two_epochs)
{
    for (int order = 0; order < 2; order++) {
        struct positions p = {0};

        positions_set(&p, AT("x", 0, 2, 0), 5, 0);
        positions_lose(&p, AT("x", 0, 2, order ? 5 : 4), order ? 3 : 97, false);
        positions_lose(&p, AT("x", 0, 2, order ? 4 : 5), order ? 97 : 3, false);
        expect(&p, "x", 0, 4, 97);
        /* All of an epoch was released: what counts is the other one. */
        positions_set(&p, AT("x", 0, 2, 0), 5, 0);
        positions_lose(&p, AT("x", 0, 2, order ? 5 : 4), order ? 3 : 100, !order);
        positions_lose(&p, AT("x", 0, 2, order ? 4 : 5), order ? 100 : 3, order);
        expect(&p, "x", 0, 5, 3);
        /* And if there was no other, the next one. */
        positions_set(&p, AT("x", 0, 2, 0), 5, 0);
        positions_lose(&p, AT("x", 0, 2, 5), 100, true);
        expect(&p, "x", 0, 6, 0);
        /* It had stopped in the middle of that one before. */
        positions_set(&p, AT("x", 0, 2, 0), 6, 8);
        positions_lose(&p, AT("x", 0, 2, 5), 100, true);
        expect(&p, "x", 0, 6, 8);
        positions_deinit(&p);
    }
}

/* The loader's user pays, but for a few; without room the oldest gives way. */
TEST(test_who_pays_for_positions)
{
    struct config_limits limits = {.overhead = 10 * sizeof(struct position)};
    struct quota *quota = quota_new(&limits);
    struct positions p = {.account = quota_account(quota, 1000)};

    for (uint64_t rank = 0; rank < POSITIONS_FREE; rank++)
        positions_set(&p, AT("x", rank, 2, 0), 0, rank);
    assert_int_equal(quota_in_use(p.account, QUOTA_OVERHEAD), 0);
    for (uint64_t rank = POSITIONS_FREE; rank < 100; rank++)
        positions_set(&p, AT("x", rank, 2, 0), 0, rank);
    assert_int_equal(quota_in_use(p.account, QUOTA_OVERHEAD),
                     POSITIONS_FREE * sizeof(struct position));
    assert_int_equal(quota_refused(p.account), 0);
    assert_null(positions_find(&p, AT("x", 100 - 2 * POSITIONS_FREE - 1, 2, 0)));
    for (uint64_t rank = 100 - 2 * POSITIONS_FREE; rank < 100; rank++)
        expect(&p, "x", rank, 0, rank);
    positions_deinit(&p);
    assert_int_equal(quota_in_use(quota_account(quota, 1000), QUOTA_OVERHEAD), 0);
    quota_free(quota);
}

/* Ranks that come back together resume at the least of them. */
TEST(test_level_positions)
{
    struct positions p = {0};

    positions_level(&p, AT("x", 0, 2, 0));
    positions_set(&p, AT("x", 0, 2, 0), 3, 13);
    positions_set(&p, AT("x", 1, 2, 0), 3, 12);
    positions_set(&p, AT("x", 0, 3, 0), 1, 1); /* of another world, */
    positions_set(&p, AT("y", 1, 2, 0), 2, 2); /* and of another job */
    positions_level(&p, AT("x", 0, 2, 0));
    expect(&p, "x", 0, 3, 12);
    expect(&p, "x", 1, 3, 12);
    expect(&p, "y", 1, 2, 2);
    positions_lose(&p, AT("x", 1, 2, 3), 47, true); /* at the end of the epoch */
    positions_level(&p, AT("x", 0, 2, 0));
    expect(&p, "x", 1, 3, 12);
    assert_int_equal(positions_find(&p, AT("x", 0, 3, 0))->step, 1);
    positions_deinit(&p);
}

/* The step of a sharer, in a job's world of the samples; UINT64_MAX: it is not known. */
static uint64_t step_of(const struct positions *p, uint64_t rank, uint64_t world, uint32_t sharer,
                        uint32_t sharers)
{
    const struct stream_params params =
        params_of(&(struct claim){"x", world, rank, .sharer = sharer, .sharers = sharers});
    const struct position *at = positions_find(p, &params);

    return at ? at->step : UINT64_MAX;
}

static void stop_at(struct positions *p, uint64_t rank, uint32_t sharer, uint32_t sharers,
                    uint64_t step)
{
    const struct stream_params params =
        params_of(&(struct claim){"x", 2, rank, .sharer = sharer, .sharers = sharers});

    positions_set(p, &params, 0, step);
}

/* Steps are those of the ranks that have samples of their own: four of these are not two that are
 * read by two each, although as many trainers read. */
TEST(test_positions_of_sharers)
{
    struct positions p = {0};

    for (uint64_t i = 0; i < 4; i++)
        stop_at(&p, i / 2, i % 2, 2, 12 + i);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(step_of(&p, i / 2, 2, i % 2, 2), 12 + i);
        assert_int_equal(step_of(&p, i, 4, 0, 0), UINT64_MAX);
        assert_int_equal(step_of(&p, 0, 1, i, 4), UINT64_MAX);
    }
    assert_int_equal(step_of(&p, 0, 2, 0, 0), UINT64_MAX);
    assert_int_equal(step_of(&p, 0, 2, 0, 3), UINT64_MAX);
    /* Where nodes have different numbers of sharers, they still are of one job. */
    stop_at(&p, 1, 0, 0, 11);
    positions_level(&p, AT("x", 0, 2, 0));
    assert_int_equal(step_of(&p, 0, 2, 0, 2), 11);
    assert_int_equal(step_of(&p, 0, 2, 1, 2), 11);
    /* What a rank was for others before counts no more. */
    assert_int_equal(step_of(&p, 1, 2, 0, 2), UINT64_MAX);
    assert_int_equal(p.count, 3);
    stop_at(&p, 0, 0, 0, 20);
    stop_at(&p, 1, 0, 0, 21);
    positions_level(&p, AT("x", 0, 2, 0));
    assert_int_equal(step_of(&p, 1, 2, 0, 0), 20);
    positions_deinit(&p);
}

TEST(test_positions_are_bounded)
{
    struct positions p = {0};

    for (uint64_t i = 0; i < POSITIONS_MAX; i++)
        positions_set(&p, AT("many", i, 2, 0), i, 0);
    positions_set(&p, AT("many", 0, 2, 0), 1, 1); /* the oldest one no more */
    positions_set(&p, AT("other", 0, 2, 0), 7, 7);
    assert_int_equal(p.count, POSITIONS_MAX);
    assert_null(positions_find(&p, AT("many", 1, 2, 0)));
    expect(&p, "many", 0, 1, 1);
    expect(&p, "many", POSITIONS_MAX - 1, POSITIONS_MAX - 1, 0);
    expect(&p, "other", 0, 7, 7);
    positions_deinit(&p);
}
