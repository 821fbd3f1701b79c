/*
 * Plans over mixtures: where epochs end, shares of tokens, schedules of mixtures in one another,
 * and what is refused. What holds of any mixture, test_mix_proof tries of random ones.
 */
#include "daemon/plan/plan.h"

#include <errno.h>
#include <math.h>

#include "proto/spec.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/mix_case.h"

enum { MAX = 20000 };

/* The unbroken run of one rank. Returns how many. */
static uint64_t whole(struct plan_params params, uint64_t *ret)
{
    uint64_t n;

    params.batch_size = MAX;
    struct plan *plan = make(&params);
    assert_in_range(plan_samples(plan, 0), 0, MAX);
    n = plan_steps(plan, 0) ? plan_step(plan, 0, 0, ret) : 0;
    plan_free(plan);
    return n;
}

/* Epochs of an endless mixture are one order. */
TEST(test_never)
{
    double weights[] = {3, 2, 1};
    uint64_t sizes[] = {7, 100, 31}, order[400], whole_order[400];
    struct mix_point point = {.weights = weights};
    struct plan_params params = {.length = 138,
                                 .sampler = PLAN_MIXTURE,
                                 .order = PLAN_NATIVE,
                                 .world = 1,
                                 .mix = {.schedule = {.n = 3, .n_points = 1, .points = &point},
                                         .sizes = sizes,
                                         .stop = MIX_STOP_NEVER,
                                         .length = 400}};

    assert_int_equal(whole(params, whole_order), 400);
    params.mix.length = 50;
    for (params.epoch = 0; params.epoch < 8; params.epoch++)
        assert_int_equal(whole(params, order + 50 * params.epoch), 50);
    assert_memory_equal(order, whole_order, sizeof order);
    params.epoch = UINT64_C(1) << 45;
    assert_int_equal(plan_new(&params, &(struct plan *){NULL}), -EINVAL);
}

TEST(test_refused)
{
    double one[] = {1, 0}, both[] = {1, 1};
    uint64_t sizes[] = {3, 0}, count;
    const struct {
        double *weights;
        enum mix_stop stop;
        const char *path, *message;
    } cases[] = {
        {both, MIX_STOP_FIRST, "dataset.datasets",
         "number 1, counted from 0, has a weight, but no samples; write weight 0, or leave it out"},
        {one, MIX_STOP_ALL, NULL, NULL},
    };
    struct plan_params wrong = {.length = 4, .sampler = PLAN_MIXTURE, .world = 1};
    struct mix_point points[2] = {{.weights = one}, {.step = 1, .weights = (double[]){0, 1}}};
    struct dl_error err = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct mix_point point = {.weights = cases[i].weights};
        struct plan_mix mix = {.schedule = {.n = 2, .n_points = 1, .points = &point},
                               .sizes = sizes,
                               .stop = cases[i].stop};
        err = (struct dl_error){0};
        assert_int_equal(plan_mix_count(&mix, 0, &count, &err), cases[i].path ? -EINVAL : 0);
        if (cases[i].path) {
            assert_string_equal(err.path, cases[i].path);
            assert_string_equal(err.message, cases[i].message);
        }
    }
    wrong.mix =
        (struct plan_mix){.schedule = {.n = 2, .n_points = 2, .points = points, .step_samples = 1},
                          .sizes = (uint64_t[]){3, 1},
                          .stop = MIX_STOP_ALL};
    assert_int_equal(plan_mix_count(&wrong.mix, 0, &count, &err), -EINVAL);
    assert_string_equal(err.path, "dataset.datasets");
    assert_int_equal(plan_new(&wrong, &(struct plan *){NULL}), -EINVAL);
    wrong.mix.stop = MIX_STOP_FIRST;
    wrong.order = PLAN_TORCH;
    assert_int_equal(plan_new(&wrong, &(struct plan *){NULL}), -EINVAL);
    wrong.order = PLAN_NATIVE;
    wrong.length = 5; /* other than the children's */
    assert_int_equal(plan_new(&wrong, &(struct plan *){NULL}), -EINVAL);
}

/* Where shares come to whole numbers, though the weights are rounded. */
TEST(test_whole_ends)
{
    static const struct {
        double weights[3];
        uint64_t sizes[3], first, all;
    } cases[] = {
        {{5, 4, 1}, {1000, 300, 50}, 500, 2000}, {{0.7, 0.2, 0.1}, {700, 200, 100}, 1000, 1000},
        {{2, 1, 0}, {100, 50, 0}, 150, 150},     {{0.1, 0.3, 0.3}, {100, 300, 300}, 700, 700},
        {{1, 1, 1}, {100, 100, 100}, 300, 300},  {{1, 1, 1}, {100, 100, 99}, 297, 300},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct mix_point point = {.weights = (double *)cases[i].weights};
        struct plan_mix mix = {.schedule = {.n = 3, .n_points = 1, .points = &point},
                               .sizes = cases[i].sizes,
                               .stop = MIX_STOP_FIRST};
        uint64_t count;

        assert_int_equal(plan_mix_count(&mix, 0, &count, NULL), 0);
        assert_int_equal(count, cases[i].first);
        mix.stop = MIX_STOP_ALL;
        assert_int_equal(plan_mix_count(&mix, 0, &count, NULL), 0);
        assert_int_equal(count, cases[i].all);
    }
}

/* ---- shares of tokens ----------------------------------------------------------------------- */

enum { TOKEN_CHILDREN = 3, TOKEN_SIZE = 20000, TOKEN_STEPS = 1000 };

struct by_tokens {
    struct plan_params params;
    struct mix_point point;
    double weights[TOKEN_CHILDREN];
    uint64_t sizes[TOKEN_CHILDREN];
    uint32_t lengths[TOKEN_CHILDREN * TOKEN_SIZE];
};

static void make_by_tokens(struct by_tokens *t, enum plan_strategy strategy)
{
    static const uint32_t least[] = {20, 200, 1}, most[] = {60, 600, 1100}; /* some are cut */
    struct mt19937 g;

    mt19937_init(&g, 3);
    *t = (struct by_tokens){.params = {.length = TOKEN_CHILDREN * TOKEN_SIZE,
                                       .sampler = PLAN_MIXTURE,
                                       .order = PLAN_NATIVE,
                                       .world = 2,
                                       .tokens = {.tokens = 4096,
                                                  .strategy = strategy,
                                                  .truncate = true,
                                                  .max_length = 1024,
                                                  .interval = 64,
                                                  .multiple = 1,
                                                  .row_length = strategy == PLAN_PACK ? 2048 : 0,
                                                  .window = 16,
                                                  .accumulate = 1},
                                       .mix = {.schedule = {.n = TOKEN_CHILDREN, .n_points = 1},
                                               .stop = MIX_STOP_NEVER,
                                               .by = MIX_BY_TOKENS,
                                               .length = 70000}},
                            .weights = {0.5, 0.3, 0.2},
                            .sizes = {TOKEN_SIZE, TOKEN_SIZE, TOKEN_SIZE}};
    for (uint32_t i = 0; i < ARRAY_SIZE(t->lengths); i++) {
        uint32_t child = i / TOKEN_SIZE;

        t->lengths[i] = least[child] + draw(&g, most[child] - least[child]);
    }
    t->point.weights = t->weights;
    t->params.mix.schedule.points = &t->point;
    t->params.mix.sizes = t->sizes;
    t->params.tokens.lengths = t->lengths;
}

/* What a sample adds to its child: tokens, or one, where shares are of samples. */
static double weigh(const struct by_tokens *t, uint64_t sample)
{
    return t->params.mix.by == MIX_BY_TOKENS ? (double)min_u64(t->lengths[sample], 1024) : 1;
}

/* Adds the tokens of one step of all ranks. */
static void count_tokens(const struct by_tokens *t, struct plan *plan, uint64_t step,
                         double *tokens)
{
    static uint64_t indices[8192];

    for (uint64_t rank = 0; rank < t->params.world; rank++) {
        size_t n = step < plan_steps(plan, rank) ? plan_step(plan, rank, step, indices) : 0;

        for (size_t i = 0; i < n; i++)
            tokens[indices[i] / TOKEN_SIZE] += weigh(t, indices[i]);
    }
}

/* By so many tokens at most. */
static void check_token_shares(const struct by_tokens *t, const double *tokens, double off)
{
    double sum = tokens[0] + tokens[1] + tokens[2];

    for (uint32_t i = 0; i < TOKEN_CHILDREN; i++)
        assert_true(fabs(tokens[i] - sum * t->weights[i]) < off);
}

static void check_token_plan(const struct by_tokens *t, bool alone)
{
    double tokens[TOKEN_CHILDREN] = {0};
    struct plan *plan = make(&t->params);

    assert_int_equal(plan_prepare(plan), 0);
    for (uint64_t step = 0; step < plan_steps(plan, 0); step++) {
        count_tokens(t, plan, step, tokens);
        double sum = tokens[0] + tokens[1] + tokens[2];
        check_token_shares(t, tokens, 1.5 * sum / (double)(step + 1) + 1024);
        if (alone && step >= TOKEN_STEPS)
            check_token_shares(t, tokens, fmax(0.001 * sum, 1024));
    }
    assert_true(!alone || plan_steps(plan, 0) > TOKEN_STEPS);
    plan_free(plan);
}

/* All the time within about a step; after 1,000 of them within 0.1 %, or the longest sample, where
 * steps are small. Some are of one child alone. */
TEST(test_token_shares)
{
    static const enum plan_strategy strategies[] = {PLAN_IN_TURN, PLAN_SORTED, PLAN_PACK,
                                                    PLAN_BUCKET};
    static const uint64_t windows[] = {16, 0};
    static struct by_tokens t;

    for (size_t s = 0; s < ARRAY_SIZE(strategies) * ARRAY_SIZE(windows); s++) {
        make_by_tokens(&t, strategies[s / 2]);
        t.params.tokens.window = windows[s % 2];
        check_token_plan(&t, false);
        t.params.even = true;
        check_token_plan(&t, false);
        t.params.world = 1;
        check_token_plan(&t, true);
        t.params.order = PLAN_SEQUENTIAL;
        check_token_plan(&t, true);
    }
}

/* What each child has of the sampler's order, up to so many tokens. */
static void count_order(const struct by_tokens *t, struct plan *in_turn, double until,
                        double *tokens)
{
    static uint64_t step, place, n, indices[8192];
    double sum = tokens[0] + tokens[1] + tokens[2];

    if (sum == 0)
        step = place = n = 0;
    while (sum < until && (place < n || step < plan_steps(in_turn, 0))) {
        if (place == n) {
            n = plan_step(in_turn, 0, step++, indices);
            place = 0;
            continue;
        }
        double weight = weigh(t, indices[place]);
        tokens[indices[place++] / TOKEN_SIZE] += weight;
        sum += weight;
    }
}

/* A schedule is followed as the order does, where shares are of samples, too. */
TEST(test_token_schedule)
{
    static double other[] = {0.05, 0.05, 0.9};
    static const uint64_t windows[] = {16, 0};
    static struct by_tokens t;

    for (size_t i = 0; i < 2 * ARRAY_SIZE(windows); i++) {
        double tokens[TOKEN_CHILDREN] = {0}, order[TOKEN_CHILDREN] = {0};

        make_by_tokens(&t, PLAN_IN_TURN);
        struct mix_point points[] = {t.point, {200, other, false}, {500, t.weights, true}};
        t.params.world = 1;
        t.params.mix.schedule = (struct mix_schedule){
            .n = TOKEN_CHILDREN, .n_points = 3, .points = points, .step_samples = 64};
        t.params.mix.by = i % 2 ? MIX_BY_SAMPLES : MIX_BY_TOKENS;
        struct plan *in_turn = make(&t.params);
        assert_int_equal(plan_prepare(in_turn), 0);
        t.params.tokens.strategy = PLAN_SORTED;
        t.params.tokens.window = windows[i / 2];
        struct plan *plan = make(&t.params);
        assert_int_equal(plan_prepare(plan), 0);
        for (uint64_t step = 0; step < plan_steps(plan, 0); step++) {
            count_tokens(&t, plan, step, tokens);
            count_order(&t, in_turn, tokens[0] + tokens[1] + tokens[2], order);
            for (uint32_t c = 0; c < TOKEN_CHILDREN; c++) /* of 4,096 tokens, or 200 samples */
                assert_true(fabs(tokens[c] - order[c]) < 2 * (i % 2 ? 200 : 4096));
        }
        plan_free(plan);
        plan_free(in_turn);
    }
}

/* An epoch ends before a child comes again; the next one of an endless order goes on. */
TEST(test_token_epochs)
{
    static struct by_tokens t;
    static uint64_t indices[4096];
    static uint8_t times[TOKEN_CHILDREN * TOKEN_SIZE];
    uint64_t samples = 0;

    make_by_tokens(&t, PLAN_IN_TURN);
    t.params.mix.stop = MIX_STOP_FIRST;
    t.params.world = 1;
    struct plan *plan = make(&t.params);
    assert_int_equal(plan_prepare(plan), 0);
    for (uint64_t step = 0; step < plan_steps(plan, 0); step++)
        for (size_t i = plan_step(plan, 0, step, indices); i-- > 0; samples++)
            assert_int_equal(times[indices[i]]++, 0);
    plan_free(plan);
    uint64_t of_first = 0;
    for (uint32_t i = 0; i < TOKEN_SIZE; i++)
        of_first += times[i];
    assert_int_equal(of_first, TOKEN_SIZE); /* its samples are the shortest: it is through first */
    assert_true(samples > TOKEN_SIZE);
    t.params.mix.stop = MIX_STOP_NEVER;
    t.params.mix.length = 10000;
    for (t.params.epoch = 0; t.params.epoch < 2; t.params.epoch++) {
        plan = make(&t.params);
        assert_int_equal(plan_prepare(plan), 0);
        for (uint64_t step = 0; step < plan_steps(plan, 0); step++)
            for (size_t i = plan_step(plan, 0, step, indices); i-- > 0;)
                times[indices[i]] += 2;
        plan_free(plan);
    }
    for (uint32_t i = 0; i < ARRAY_SIZE(times); i++) /* together 20,000: no child is through */
        assert_true(times[i] < 4);
}

TEST(test_token_refused)
{
    static struct by_tokens t;

    make_by_tokens(&t, PLAN_IN_TURN);
    t.params.mix.stop = MIX_STOP_ALL;
    assert_int_equal(plan_new(&t.params, &(struct plan *){NULL}), -EINVAL);
    t.params.mix.stop = MIX_STOP_FIRST;
    t.params.tokens.tokens = 0;
    assert_int_equal(plan_new(&t.params, &(struct plan *){NULL}), -EINVAL);
}

TEST(test_token_memory)
{
    static struct by_tokens t;
    int n = 0, r = -ENOMEM;

    make_by_tokens(&t, PLAN_SORTED);
    t.params.mix.length = 100;
    for (; r < 0; n++) {
        struct plan *plan = NULL;

        fail_in = n;
        r = plan_new(&t.params, &plan);
        if (r == 0)
            r = plan_prepare(plan);
        fail_in = -1;
        assert_true(r == 0 || r == -ENOMEM);
        plan_free(plan);
    }
    assert_in_range(n, 15, 40);
}

/* ---- mixtures inside one another ------------------------------------------------------------- */

enum { DEPTH = 3, NESTED_LEAVES = 2 * DEPTH + 1 };

/* At each level a dataset, the next level, and a dataset: leaf DEPTH stands innermost. */
struct nested {
    struct spec_dataset levels[DEPTH][3], outer;
    struct mix_point point;
    uint64_t sizes[NESTED_LEAVES];
    struct plan_params params;
};

static double thirds[] = {1, 1, 1};

static void make_nested(struct nested *m, uint64_t size)
{
    *m = (struct nested){.point = {.weights = thirds}};
    struct spec_dataset mix = {.kind = DATASET_MIX,
                               .n_datasets = 3,
                               .points = &m->point,
                               .n_points = 1,
                               .stop = MIX_STOP_ALL,
                               .by = MIX_BY_SAMPLES,
                               .draw = MIX_DRAW_EXACT};
    for (uint32_t d = DEPTH; d-- > 0;) {
        for (uint32_t i = 0; i < 3; i++)
            m->levels[d][i].kind = DATASET_RANGE;
        if (d + 1 < DEPTH) {
            m->levels[d][1] = mix;
            m->levels[d][1].datasets = m->levels[d + 1];
        }
    }
    m->outer = mix;
    m->outer.datasets = m->levels[0];
    m->outer.stop = MIX_STOP_NEVER;
    m->outer.length = 9 * size;
    for (uint32_t i = 0; i < NESTED_LEAVES; i++)
        m->sizes[i] = size;
    m->params = (struct plan_params){.length = NESTED_LEAVES * size,
                                     .sampler = PLAN_MIXTURE,
                                     .order = PLAN_NATIVE,
                                     .world = 1,
                                     .batch_size = 8,
                                     .mix = plan_mix_of(&m->outer)};
    m->params.mix.sizes = m->sizes;
}

/* As it goes on and again from far away, at little cost. */
TEST(test_nested_far)
{
    uint64_t indices[8], again[8];
    struct nested m;

    make_nested(&m, UINT64_C(1000000000));
    struct plan *plan = make(&m.params), *other = make(&m.params);
    assert_in_range(plan_backlog(plan, 0, 100000000), 0, 20000);
    assert_int_equal(plan_step(plan, 0, 100000000, indices), 8);
    assert_int_equal(plan_step(other, 0, 7, again), 8);
    assert_int_equal(plan_step(other, 0, 100000000, again), 8);
    assert_memory_equal(indices, again, sizeof again);
    assert_in_range(plan_bytes(plan), 1, 4096);
    plan_free(plan);
    plan_free(other);
}

/* Half of what is read is the inner mixture's, whose weights change at step 10 of 10 samples, and
 * in a line up to step 30: at its samples 50 and 150. As far as the outer one is itself in thirds
 * of another, at theirs. */
TEST(test_nested_schedule)
{
    static double halves[] = {1, 1}, from[] = {1, 0}, to[] = {0, 1}, back[] = {1, 1};
    struct mix_point half = {.weights = halves};
    struct mix_point steps[] = {{.step = 0, .weights = from},
                                {.step = 10, .weights = to},
                                {.step = 30, .weights = back, .ramp = true}};
    struct spec_dataset leaves[2] = {{.kind = DATASET_RANGE}, {.kind = DATASET_RANGE}};
    struct spec_dataset children[2] = {{.kind = DATASET_RANGE},
                                       {.kind = DATASET_MIX,
                                        .datasets = leaves,
                                        .n_datasets = 2,
                                        .points = steps,
                                        .n_points = 3,
                                        .global_batch = 10,
                                        .stop = MIX_STOP_NEVER,
                                        .length = 7,
                                        .by = MIX_BY_SAMPLES,
                                        .draw = MIX_DRAW_EXACT}};
    struct spec_dataset outer = {.kind = DATASET_MIX,
                                 .datasets = children,
                                 .n_datasets = 2,
                                 .points = &half,
                                 .n_points = 1,
                                 .stop = MIX_STOP_NEVER,
                                 .length = 1000,
                                 .by = MIX_BY_SAMPLES,
                                 .draw = MIX_DRAW_EXACT};
    const uint64_t sizes[] = {40, 30, 20};
    static uint64_t order[MAX], later[MAX];
    struct plan_params params = {.length = 90,
                                 .sampler = PLAN_MIXTURE,
                                 .order = PLAN_NATIVE,
                                 .world = 1,
                                 .batch_size = 8,
                                 .mix = plan_mix_of(&outer)};
    uint64_t inner = 0, first = 0;

    params.mix.sizes = sizes;
    assert_int_equal(whole(params, order), 1000);
    for (uint64_t k = 0; k < 1000; k++) {
        if (order[k] < 40)
            continue;
        inner++;
        first += order[k] < 70;
        double line = (double)(inner > 150 ? 100 : inner > 50 ? inner - 50 : 0);
        double due = (double)min_u64(inner, 50) + line * line / 400 +
                     (double)(inner > 150 ? inner - 150 : 0) / 2;
        assert_true(fabs((double)first - due) < 1.5);
    }
    assert_int_equal(inner, 500);
    /* Epochs of both are pieces of one order: behind the last step there are halves. */
    params.epoch = 1;
    assert_int_equal(whole(params, later), 1000);
    uint64_t counts[2] = {0};
    for (uint64_t k = 0; k < 1000; k++)
        if (later[k] >= 40)
            counts[later[k] >= 70]++;
    assert_in_range(counts[0], 249, 251);
    /* With stop: all each epoch has the schedule from its beginning. */
    params.mix.stop = MIX_STOP_ALL;
    assert_int_equal(whole(params, later), 80);
    for (uint64_t k = 0; k < 80; k++)
        assert_true(later[k] < 70);
    outer.stop = children[1].stop = MIX_STOP_FIRST;
    params.mix = plan_mix_of(&outer);
    params.mix.sizes = sizes;
    assert_int_equal(plan_new(&params, &(struct plan *){NULL}), -EINVAL);
}

TEST(test_nested_refused)
{
    struct dl_error err = {0};
    struct nested m;
    uint64_t count;

    make_nested(&m, 5);
    m.sizes[DEPTH] = 0;
    assert_int_equal(plan_mix_count(&m.params.mix, 0, &count, &err), -EINVAL);
    assert_string_equal(err.path, "dataset.datasets.1.datasets.1.datasets");
    assert_string_equal(
        err.message,
        "number 1, counted from 0, has a weight, but no samples; write weight 0, or leave it out");
    m.params.length -= 5;
    assert_int_equal(plan_new(&m.params, &(struct plan *){NULL}), -EINVAL);
    m.sizes[DEPTH] = 5;
    m.sizes[0] = UINT64_MAX;
    assert_int_equal(plan_new(&m.params, &(struct plan *){NULL}), -EINVAL);
}

TEST(test_nested_memory)
{
    struct plan *plan = NULL;
    struct nested m;
    int r = -ENOMEM, n = 0;

    make_nested(&m, 5);
    for (; r < 0; n++) {
        fail_in = n;
        r = plan_new(&m.params, &plan);
        fail_in = -1;
        assert_true(r == 0 || r == -ENOMEM);
    }
    assert_in_range(n, 15, 80);
    plan_free(plan);
}
