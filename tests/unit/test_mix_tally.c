/* What is counted of a mixture: whose samples, tokens and shares, over a table of rulers, and of
 * whole plans, whose shares are those wanted. */
#include "daemon/plan/mix_tally.h"

#include <errno.h>
#include <math.h>

#include "proto/spec.h"
#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

enum { N = 3, MOST = 64 };

static const uint64_t sizes[N] = {4, 0, 3};
static const uint32_t lengths[7] = {1, 2, 3, 40, 5, 6, 7};

/* From step 2 on, of four samples each, the last one alone. */
static struct mix_point points[] = {
    {.step = 0, .weights = (double[]){3, 0, 1}},
    {.step = 2, .weights = (double[]){0, 0, 2}},
};

static struct plan_params params_of(enum mix_by by, uint32_t tokens, bool truncate)
{
    return (struct plan_params){
        .length = 7,
        .sampler = PLAN_MIXTURE,
        .order = PLAN_NATIVE,
        .world = 1,
        .batch_size = tokens ? 0 : 4,
        .mix = {.schedule = {.n = N, .n_points = 2, .points = points, .step_samples = 4},
                .sizes = sizes,
                .stop = MIX_STOP_NEVER,
                .by = by,
                .length = 20},
        .tokens = {.tokens = tokens,
                   .lengths = tokens ? lengths : NULL,
                   .multiple = 1,
                   .truncate = truncate}};
}

struct row {
    enum mix_by by;
    uint32_t tokens; /* of a batch; 0: samples count */
    bool truncate;
    uint64_t epoch, position;
    uint64_t indices[6];
    uint32_t n;
    struct mix_tally want[N];
};

static const struct row rows[] = {
    {MIX_BY_SAMPLES, 0, false, 0, 0, {0}, 0, {{0}, {0}, {0}}},
    {MIX_BY_SAMPLES, 0, false, 0, 0, {0, 3, 4, 6}, 4, {{3, 2, 0}, {0}, {1, 2, 0}}},
    /* Before and behind the point. */
    {MIX_BY_SAMPLES, 0, false, 0, 7, {1, 1}, 2, {{1.5, 2, 0}, {0}, {0.5, 0, 0}}},
    {MIX_BY_SAMPLES, 0, false, 0, 8, {1, 1}, 2, {{0, 2, 0}, {0}, {2, 0, 0}}},
    {MIX_BY_SAMPLES, 0, false, 1, 0, {5}, 1, {{0}, {0}, {1, 1, 0}}},
    /* No such sample, no such position. */
    {MIX_BY_SAMPLES, 0, false, 0, 0, {7, UINT64_MAX, 6}, 3, {{0.75, 0, 0}, {0}, {0.25, 1, 0}}},
    {MIX_BY_SAMPLES, 0, false, UINT64_MAX, UINT64_MAX, {6}, 1, {{0}, {0}, {1, 1, 0}}},
    /* Too long is the one of 40. */
    {MIX_BY_SAMPLES, 16, false, 0, 0, {0, 3, 6}, 3, {{2.25, 2, 1}, {0}, {0.75, 1, 7}}},
    {MIX_BY_SAMPLES, 16, true, 0, 0, {0, 3, 6}, 3, {{2.25, 2, 17}, {0}, {0.75, 1, 7}}},
    {MIX_BY_TOKENS, 16, true, 0, 0, {0, 3, 6}, 3, {{18, 2, 17}, {0}, {6, 1, 7}}},
};

TEST(test_rows)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        struct plan_params params = params_of(row->by, row->tokens, row->truncate);
        struct mix_batch batch = {row->epoch, row->position, row->indices, row->n};
        struct mix_tally got[N] = {{0}};
        struct mix_ruler ruler;

        assert_int_equal(mix_ruler_init(&ruler, &params), 0);
        mix_tally_add(&ruler, &batch, got);
        for (uint32_t c = 0; c < N; c++) {
            if (fabs(got[c].wanted - row->want[c].wanted) > 1e-12)
                fail_msg("row %zu: %g is due to %u", i, got[c].wanted, c);
            assert_int_equal(got[c].samples, row->want[c].samples);
            assert_int_equal(got[c].tokens, row->want[c].tokens);
        }
        mix_ruler_deinit(&ruler);
    }
}

/* Of an epoch, batch by batch, each child has what is due to within a sample. */
TEST(test_plan)
{
    struct plan_params params = params_of(MIX_BY_SAMPLES, 0, false);
    struct mix_tally tallies[N] = {{0}};
    uint64_t indices[MOST];
    struct mix_ruler ruler;
    struct plan *plan;

    assert_int_equal(mix_ruler_init(&ruler, &params), 0);
    assert_int_equal(plan_new(&params, &plan), 0);
    assert_int_equal(plan_steps(plan, 0), 5);
    for (uint64_t step = 0; step < 5; step++) {
        size_t n = plan_step(plan, 0, step, indices);
        struct mix_batch batch = {0, plan_position(plan, 0, step), indices, (uint32_t)n};

        assert_int_equal(batch.position, 4 * step);
        mix_tally_add(&ruler, &batch, tallies);
        for (uint32_t c = 0; c < N; c++)
            assert_true(fabs(tallies[c].wanted - (double)tallies[c].samples) < 1);
    }
    struct mix_tally sum = {0};
    for (uint32_t c = 0; c < N; c++)
        mix_tally_merge(&sum, &tallies[c], 1);
    assert_int_equal(sum.samples, 20);
    assert_int_equal(tallies[0].samples, 6);
    assert_true(fabs(mix_tally_wanted(&tallies[0], &sum) - 0.3) < 1e-12);
    assert_true(fabs(mix_tally_share(&tallies[2], &sum) - 0.7) < 1e-12);
    assert_true(mix_tally_token_share(&tallies[2], &sum) == 0); /* not known */
    plan_free(plan);
    mix_ruler_deinit(&ruler);
}

/* The steps of ranks, in all ways of sharding, and behind what another number of them has had. */
TEST(test_positions)
{
    static const struct {
        enum plan_shard shard;
        uint64_t world, rank, step, want;
    } steps[] = {
        {PLAN_STRIDED, 2, 1, 1, 9},
        {PLAN_BATCH, 2, 1, 1, 12},
        {PLAN_SPLIT, 2, 1, 1, 6},
        {PLAN_DISPATCH, 2, 1, 0, 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct plan_params params = params_of(MIX_BY_SAMPLES, 0, false);
        struct plan *plan;

        params.shard = steps[i].shard;
        params.world = steps[i].world;
        assert_int_equal(plan_new(&params, &plan), 0);
        assert_int_equal(plan_position(plan, steps[i].rank, steps[i].step), steps[i].want);
        plan_free(plan);
    }
    struct plan_params params = params_of(MIX_BY_SAMPLES, 0, false);
    struct plan *plan;
    params.before = (struct history){.n = 1, .stretches = {{.world = 2, .steps = 1}}};
    assert_int_equal(plan_new(&params, &plan), 0);
    assert_int_equal(plan_position(plan, 0, 1), 12);
    plan_free(plan);
}

/* A mixture in the mixture: its parts are counted by themselves, and with it; by numbers of
 * samples, or where no sizes are known by what their makers say. */
TEST(test_nested)
{
    static double weights[] = {1, 3};
    static const struct mix_point inner = {.weights = weights};
    static struct spec_dataset leaves[2] = {{.kind = DATASET_RANGE}, {.kind = DATASET_RANGE}};
    struct spec_dataset children[N] = {{.kind = DATASET_RANGE},
                                       {.kind = DATASET_RANGE},
                                       {.kind = DATASET_MIX,
                                        .datasets = leaves,
                                        .n_datasets = 2,
                                        .points = (struct mix_point *)&inner,
                                        .n_points = 1}};
    static const uint64_t leaf_sizes[] = {4, 0, 2, 1}, indices[] = {0, 1, 5, 6, 6, 7};
    static const uint8_t origins[] = {0, 0, 2, 3, 3, 4};
    static const struct mix_tally want[] = {
        {3.75, 2, 0}, {0}, {1.25, 3, 0}, {0.75, 1, 0}, {2.25, 2, 0}};
    struct plan_params params = params_of(MIX_BY_SAMPLES, 0, false);

    params.mix.children = children;
    for (unsigned told = 0; told < 2; told++) {
        struct mix_batch batch = {0, 0, indices, 6, told ? origins : NULL};
        struct mix_tally got[N + 2] = {{0}};
        struct mix_ruler ruler;

        params.mix.sizes = told ? NULL : leaf_sizes;
        assert_int_equal(mix_ruler_init(&ruler, &params), 0);
        assert_int_equal(ruler.n_nodes, N + 2);
        mix_tally_add(&ruler, &batch, got);
        for (uint32_t i = 0; i < ruler.n_nodes; i++) {
            assert_int_equal(got[i].samples, want[i].samples);
            assert_true(fabs(got[i].wanted - want[i].wanted) < 1e-12);
        }
        mix_ruler_deinit(&ruler);
    }
    params.mix.sizes = NULL;
    struct mix_batch batch = {0, 0, indices, 6, NULL};
    struct mix_tally got[N + 2] = {{0}};
    struct mix_ruler ruler;
    assert_int_equal(mix_ruler_init(&ruler, &params), 0);
    mix_tally_add(&ruler, &batch, got); /* nothing tells whose they are */
    for (uint32_t i = 0; i < ruler.n_nodes; i++)
        assert_int_equal(got[i].samples, 0);
    mix_ruler_deinit(&ruler);
}

/* Weights of the mixture in it change at step 2 of four samples of the outer one. */
TEST(test_nested_steps)
{
    static double before[] = {1, 3}, after[] = {2, 0};
    static struct mix_point inner[] = {{.weights = before}, {.step = 2, .weights = after}};
    static struct spec_dataset leaves[2] = {{.kind = DATASET_RANGE}, {.kind = DATASET_RANGE}};
    struct spec_dataset children[N] = {{.kind = DATASET_RANGE},
                                       {.kind = DATASET_RANGE},
                                       {.kind = DATASET_MIX,
                                        .datasets = leaves,
                                        .n_datasets = 2,
                                        .points = inner,
                                        .n_points = 2,
                                        .global_batch = 4,
                                        .stop = MIX_STOP_NEVER,
                                        .length = 9}};
    static const uint64_t leaf_sizes[] = {4, 0, 2, 1}, indices[] = {0, 1, 5, 6, 6, 7};
    struct plan_params params = params_of(MIX_BY_SAMPLES, 0, false);
    struct mix_tally got[N + 2] = {{0}};
    struct mix_ruler ruler;
    int r = -ENOMEM;

    params.mix.children = children;
    params.mix.sizes = leaf_sizes;
    for (int i = 0; r < 0; i++) {
        fail_in = i;
        r = mix_ruler_init(&ruler, &params);
        fail_in = -1;
        assert_true(r == 0 || r == -ENOMEM);
    }
    mix_tally_add(&ruler, &(struct mix_batch){0, 4, indices, 6, NULL}, got);
    assert_true(fabs(got[3].wanted - 0.75) < 1e-9 && fabs(got[4].wanted - 2.25) < 1e-9);
    mix_tally_add(&ruler, &(struct mix_batch){0, 8, indices, 6, NULL}, got);
    assert_true(fabs(got[3].wanted - 3.75) < 1e-9 && fabs(got[4].wanted - 2.25) < 1e-9);
    assert_int_equal(got[2].samples, 6);
    mix_ruler_deinit(&ruler);
}

TEST(test_refused)
{
    struct plan_params params = params_of(MIX_BY_SAMPLES, 0, false);
    struct mix_ruler ruler;
    int i = 0, r;

    params.sampler = PLAN_SAMPLES;
    assert_int_equal(mix_ruler_init(&ruler, &params), -EINVAL);
    mix_ruler_deinit(&ruler);
    params.sampler = PLAN_MIXTURE;
    params.mix.sizes = (uint64_t[]){UINT64_MAX, 1, 0};
    assert_int_equal(mix_ruler_init(&ruler, &params), -EINVAL);
    params.mix.sizes = sizes;
    do {
        fail_in = i++;
        r = mix_ruler_init(&ruler, &params);
        fail_in = -1;
        assert_true(r == 0 || r == -ENOMEM);
        mix_ruler_deinit(&ruler);
    } while (r < 0);
    assert_true(i > 2);
}
