/*
 * Weights of a mixture that were changed while it was read: the list and its bytes; and over random
 * mixtures, that what lies before a change is as without it, to the bit, that from there on each
 * child has what the new weights are due, within one sample, and that ranks whose number changes
 * between changes have the samples of the unbroken run.
 */
#include "proto/mix_changes.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>
#include <math.h>

#include "daemon/plan/mix_timeline.h"
#include "tests/unit/mix_case.h"

enum { CHILDREN = 5, POINTS = 3, CHANGES = 5, LENGTH = 3000 };

/* *list with one more change, in its place. */
static void add(struct mix_changes **list, uint64_t position, uint32_t n, double *weights)
{
    struct mix_changes *made = NULL;

    assert_int_equal(mix_changes_with(*list, &(struct mix_change){position, weights}, n, &made), 0);
    mix_changes_unref(*list);
    *list = made;
}

/* ---- the list -------------------------------------------------------------------------------- */

TEST(test_list)
{
    double a[] = {1, 2}, b[] = {0, 3};
    struct mix_changes *list = NULL, *other = NULL, *none = NULL;

    assert_true(mix_changes_equal(NULL, NULL));
    add(&list, 50, 2, a);
    add(&list, 7, 2, b);
    add(&other, 7, 2, b);
    assert_int_equal(list->n_changes, 2);
    assert_int_equal(list->items[0].position, 7);
    assert_int_equal(list->items[1].position, 50);
    assert_memory_equal(list->items[1].weights, a, sizeof a);
    assert_true(mix_changes_within(other, list) && mix_changes_within(NULL, other));
    assert_false(mix_changes_within(list, other) || mix_changes_equal(list, other));
    assert_int_equal(mix_changes_differ_at(list, other), 50);
    add(&other, 50, 2, b);
    assert_int_equal(mix_changes_differ_at(other, list), 50);
    assert_false(mix_changes_within(list, other) || mix_changes_within(other, list));
    add(&other, 50, 2, a); /* in the place of the one there */
    assert_true(mix_changes_equal(list, other));
    for (uint64_t i = 0; i < DL_MAX_MIX_CHANGES - 2; i++)
        add(&list, 1000 - i, 2, a);
    assert_int_equal(mix_changes_with(list, &(struct mix_change){3, a}, 2, &none), -E2BIG);
    add(&list, 1000, 2, b);
    assert_ptr_equal(mix_changes_ref(list), list);
    mix_changes_unref(list);
    fail_in = 0;
    assert_int_equal(mix_changes_with(other, &(struct mix_change){3, a}, 2, &none), -ENOMEM);
    fail_in = -1;
    mix_changes_unref(list);
    mix_changes_unref(other);
}

TEST(test_weights)
{
    static const struct {
        double weights[2];
        const char *path, *message;
    } rows[] = {
        {{1, 0}, NULL, NULL},
        {{1, 1.0 / 16383}, NULL, NULL},
        {{1, 1e-6},
         "weights.1",
         "1e-06 is less than 1/16384 of the sum of the weights; write more, or 0"},
        {{0, 0}, "weights", "all weights are 0; at least one must be positive"},
        {{-1, 2}, "weights.0", "-1 is not a finite, non-negative number"},
        {{1, (double)INFINITY}, "weights.1", "inf is not a finite, non-negative number"},
        {{1e308, 1e308}, "weights", "their sum exceeds the largest float64; scale them down"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_error err = {0};
        int r = mix_weights_check(rows[i].weights, 2, "weights", &err);

        assert_int_equal(r, rows[i].path ? -EINVAL : 0);
        assert_string_equal(err.path, rows[i].path ? rows[i].path : "");
        assert_string_equal(err.message, rows[i].message ? rows[i].message : "");
    }
}

TEST(test_bytes)
{
    double a[] = {1, 2, 0.5}, b[] = {0, 3, 0};
    struct mix_changes *list = NULL, *again = NULL;
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};
    _cleanup_(buffer_deinit) struct dl_buffer whole = {0};

    assert_int_equal(mix_changes_write(NULL, &bytes), 0);
    assert_int_equal(bytes.len, 0);
    assert_int_equal(mix_changes_read((struct dl_span){0}, &again), 0);
    assert_null(again);
    add(&list, 50, 3, a);
    add(&list, MIX_POSITIONS - 1, 3, b);
    assert_int_equal(mix_changes_write(list, &bytes), 0);
    assert_int_equal(bytes.len, 8 + 2 * 8 * 4);
    struct dl_span span = {bytes.data, bytes.len};
    assert_int_equal(mix_changes_read(span, &again), 0);
    assert_true(mix_changes_equal(list, again));
    again = mix_changes_unref(again);
    for (size_t len = 1; len < bytes.len; len++) /* one of the changes alone is a list, too */
        assert_int_equal(mix_changes_read((struct dl_span){bytes.data, len}, &again),
                         len == 40 ? 0 : -EINVAL),
            again = mix_changes_unref(again);
    /* Behind a token, which may be anything. */
    assert_int_equal(buffer_append(&whole, "token", 5), 0);
    assert_int_equal(mix_changes_attach(span, &whole), 0);
    struct dl_span rest = {whole.data, whole.len}, cut = mix_changes_split(&rest);
    assert_int_equal(rest.len, 5);
    assert_int_equal(cut.len, span.len);
    assert_memory_equal(cut.data, span.data, span.len);
    assert_int_equal(mix_changes_split(&rest).len, 0);
    assert_int_equal(rest.len, 5);
    for (size_t len = 0; len < whole.len; len++) {
        rest = (struct dl_span){whole.data, len};
        assert_int_equal(mix_changes_split(&rest).len, 0);
        assert_int_equal(rest.len, len);
    }
    fail_in = 0;
    assert_int_equal(mix_changes_read(span, &again), -ENOMEM);
    fail_in = -1;
    mix_changes_unref(list);
}

/* What is no list, as words: the number of weights, and then as many as a change has. */
TEST(test_no_lists)
{
    const double one = 1, small = 1e-9, below = -1, minus_zero = -0.0;
    uint64_t words[5] = {1, 5, 0, 6, 0};
    const struct {
        size_t word;
        uint64_t value;
        const double *real;
    } rows[] = {
        {0, 0, NULL},
        {0, 2, NULL},
        {0, DL_MAX_MIX_CHILDREN + 1, NULL},
        {0, UINT64_MAX - 1, NULL},
        {1, 6, NULL},
        {1, MIX_POSITIONS, NULL},
        {3, UINT64_MAX, NULL},
        {2, 0, NULL},
        {2, 0, &below},
        {2, 0, &minus_zero},
    };
    struct mix_changes *list = NULL;

    memcpy(&words[2], &one, sizeof one);
    memcpy(&words[4], &small, sizeof small); /* the only one: as good as any */
    assert_int_equal(mix_changes_read((struct dl_span){(uint8_t *)words, sizeof words}, &list), 0);
    mix_changes_unref(list);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t bad[5];

        memcpy(bad, words, sizeof bad);
        bad[rows[i].word] = rows[i].value;
        if (rows[i].real)
            memcpy(&bad[rows[i].word], rows[i].real, sizeof(double));
        assert_int_equal(mix_changes_read((struct dl_span){(uint8_t *)bad, sizeof bad}, &list),
                         -EINVAL);
        assert_null(list);
    }
}

/* ---- orders ---------------------------------------------------------------------------------- */

struct mixture {
    struct plan_params params;
    struct mix_point points[POINTS];
    double weights[POINTS][CHILDREN];
    uint64_t sizes[CHILDREN];
};

static void draw_weights(struct mt19937 *g, uint32_t n, double *ret)
{
    for (uint32_t i = 0; i < n; i++)
        ret[i] = draw(g, 4) ? 1 + draw(g, 9) : 0;
    ret[draw(g, n)] = 2.5;
}

static void draw_mixture(struct mt19937 *g, struct mixture *m)
{
    struct plan_mix *mix = &m->params.mix;
    uint64_t step = 0;

    *m = (struct mixture){.params = {.sampler = PLAN_MIXTURE,
                                     .order = draw(g, 3) ? PLAN_NATIVE : PLAN_SEQUENTIAL,
                                     .seed = mt19937_next32(g),
                                     .world = 1,
                                     .batch_size = 1 + draw(g, 5)}};
    *mix = (struct plan_mix){.schedule = {.n = 1 + draw(g, CHILDREN),
                                          .n_points = 1 + draw(g, POINTS),
                                          .points = m->points,
                                          .step_samples = 1 + draw(g, 20)},
                             .sizes = m->sizes,
                             .stop = MIX_STOP_NEVER,
                             .draw = draw(g, 3) ? MIX_DRAW_EXACT : MIX_DRAW_RANDOM,
                             .length = LENGTH};
    for (uint32_t i = 0; i < mix->schedule.n; i++)
        m->params.length += m->sizes[i] = 1 + draw(g, draw(g, 2) ? 5 : 400);
    for (uint32_t p = 0; p < mix->schedule.n_points; p++) {
        m->points[p] = (struct mix_point){
            .step = step, .weights = m->weights[p], .ramp = p > 0 && draw(g, 2) == 0};
        step += 1 + draw(g, 60);
        draw_weights(g, mix->schedule.n, m->weights[p]);
    }
}

/* One rank's epoch, as long as it is. */
static void run_whole(struct plan_params params, uint64_t *ret)
{
    params.batch_size = params.mix.length;
    struct plan *plan = make(&params);
    assert_int_equal(plan_step(plan, 0, 0, ret), params.mix.length);
    plan_free(plan);
}

static uint32_t child_of(const struct mixture *m, uint64_t index)
{
    uint64_t end = m->sizes[0];
    uint32_t child = 0;

    while (index >= end)
        end += m->sizes[++child];
    return child;
}

/* From `begin` to `end` each child has what one change's weights are due. */
static void check_shares(const struct mixture *m, const struct mix_change *change, uint64_t end,
                         const uint64_t *order)
{
    uint32_t n = m->params.mix.schedule.n;
    uint64_t counts[CHILDREN] = {0};
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += change->weights[i];
    for (uint64_t k = change->position; k < end; k++) {
        counts[child_of(m, order[k])]++;
        for (uint32_t i = 0; i < n && m->params.mix.draw == MIX_DRAW_EXACT; i++) {
            double due = change->weights[i] / sum * (double)(k + 1 - change->position);

            assert_true(fabs((double)counts[i] - due) < 1 + 1e-6);
        }
        assert_true(change->weights[child_of(m, order[k])] > 0);
    }
}

/* In turn each child's samples come before any of them comes again. */
static void check_turns(const struct mixture *m, const uint64_t *order)
{
    uint64_t counts[CHILDREN] = {0}, begins[CHILDREN] = {0};

    for (uint32_t i = 1; i < m->params.mix.schedule.n; i++)
        begins[i] = begins[i - 1] + m->sizes[i - 1];
    for (uint64_t k = 0; k < LENGTH && m->params.order == PLAN_SEQUENTIAL; k++) {
        uint32_t child = child_of(m, order[k]);

        assert_int_equal(order[k] - begins[child], counts[child]++ % m->sizes[child]);
    }
}

/* Any position, asked for in any order, and as pieces of epochs. */
static void check_any(struct mt19937 *g, const struct mixture *m, const uint64_t *order)
{
    struct plan_params params = m->params;
    uint64_t index;

    params.batch_size = 1;
    struct plan *plan = make(&params);
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t k = draw(g, LENGTH);

        assert_int_equal(plan_step(plan, 0, k, &index), 1);
        assert_int_equal(index, order[k]);
        assert_int_equal(plan_backlog(plan, 0, k), 0);
    }
    plan_free(plan);
    params.mix.length = 1 + draw(g, 700);
    params.epoch = draw(g, (uint32_t)(LENGTH / params.mix.length));
    plan = make(&params);
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t k = draw(g, (uint32_t)params.mix.length);

        assert_int_equal(plan_step(plan, 0, k, &index), 1);
        assert_int_equal(index, order[params.epoch * params.mix.length + k]);
    }
    plan_free(plan);
}

/*
 * 4 ranks, then 3, then 8. Each world begins with the changes that were made by then, and learns of
 * one more in its midst, at a step beyond all that was read: `list` has them in the end.
 */
static uint64_t run_worlds(struct mt19937 *g, struct mixture *m, struct mix_changes **list,
                           uint64_t *ret)
{
    static const uint64_t worlds[] = {4, 3, 8};
    struct plan_params params = m->params;
    uint64_t done = 0;

    for (uint32_t i = 0; i < ARRAY_SIZE(worlds); i++) {
        uint64_t step = 1 + draw(g, 12), more = draw(g, 12);
        uint64_t all = worlds[i] * params.batch_size;
        double weights[CHILDREN];

        params.world = worlds[i];
        params.mix.changes = *list;
        uint64_t base = done, at = base + (step + draw(g, (uint32_t)more + 20)) * all;
        done += collect(&params, 0, step, ret + done);
        draw_weights(g, params.mix.schedule.n, weights);
        add(list, at, params.mix.schedule.n, weights);
        params.mix.changes = *list;
        done += collect(&params, step, i == 2 ? UINT64_MAX : step + more, ret + done);
        assert_true(history_add(&params.before, worlds[i], step + more));
    }
    return done;
}

TEST(test_orders)
{
    static uint64_t before[LENGTH], order[LENGTH], got[LENGTH];
    struct mt19937 g;
    struct mixture m;

    mt19937_init(&g, 31);
    for (uint32_t round = 0; round < 60; round++) {
        struct mix_changes *list = NULL;
        uint32_t n_changes = draw(&g, CHANGES);

        draw_mixture(&g, &m);
        m.params.mix.schedule.points = m.points;
        run_whole(m.params, before);
        for (uint32_t i = 0; i < n_changes; i++) {
            double weights[CHILDREN];
            uint64_t at = draw(&g, LENGTH);

            draw_weights(&g, m.params.mix.schedule.n, weights);
            add(&list, at, m.params.mix.schedule.n, weights);
            m.params.mix.changes = list;
            run_whole(m.params, order);
            assert_memory_equal(order, before, at * sizeof *order);
            memcpy(before, order, sizeof order);
        }
        for (uint32_t i = 0; list && i < list->n_changes; i++)
            check_shares(&m, &list->items[i],
                         i + 1 < list->n_changes ? list->items[i + 1].position : LENGTH, order);
        check_turns(&m, before);
        check_any(&g, &m, before);
        list = mix_changes_unref(list);
        uint64_t n = run_worlds(&g, &m, &list, got);
        m.params.mix.changes = list;
        run_whole(m.params, order);
        assert_int_equal(n, LENGTH);
        assert_memory_equal(got, order, sizeof order);
        mix_changes_unref(list);
    }
}

/* As many changes as there may be, of a weight as small as may be: what is kept, and how long it
 * takes to find a place. */
TEST(test_many)
{
    double weights[] = {16383, 1};
    struct mix_point point = {.weights = weights};
    struct mix_schedule schedule = {.n = 2, .n_points = 1, .points = &point};
    struct mix_changes *list = NULL;
    struct mix_legs legs;

    for (uint64_t i = 0; i < DL_MAX_MIX_CHANGES; i++)
        add(&list, (i + 1) << 32, 2, weights);
    assert_int_equal(mix_legs_init(&legs, &schedule, list, 1, 0), 0);
    uint64_t last = (DL_MAX_MIX_CHANGES << 32) + 999, missing = mix_legs_missing(&legs, last);
    assert_in_range(missing, DL_MAX_MIX_CHANGES, (1 + DL_MAX_MIX_CHANGES) * 2 * 16384);
    (void)mix_legs_at(&legs, 5);
    assert_int_equal(legs.settled, 0);
    (void)mix_legs_at(&legs, last);
    assert_int_equal(mix_legs_missing(&legs, last), 0);
    for (uint64_t i = 0; i < DL_MAX_MIX_CHANGES; i++) {
        uint64_t had = legs.later[i].before[1], due = ((i + 1) << 32) / 16384;

        assert_in_range(had, due - i - 1, due + i + 1);
        assert_true(mix_legs_missing(&legs, ((i + 1) << 32) + 12345678) <= 2 * 16384);
    }
    mix_legs_deinit(&legs);
    mix_changes_unref(list);
}

/* ---- epochs with an order each --------------------------------------------------------------- */

enum { EPOCHS = 4, LONGEST = 9 };

/* The epoch's samples; how many. */
static uint64_t run_epoch(struct plan_params params, uint64_t *ret)
{
    struct plan *plan = NULL;

    assert_int_equal(plan_new(&params, &plan), 0);
    assert_int_equal(plan_prepare(plan), 0);
    uint64_t n = 0, steps = plan_steps(plan, 0);
    for (uint64_t step = 0; step < steps; step++)
        n += plan_step(plan, 0, step, &ret[n]);
    plan_free(plan);
    return n;
}

/* From its epoch on a change is what the spec says, in the length too. */
TEST(test_by_epochs)
{
    enum { MOST = 40000 };
    uint64_t *got = malloc(2 * MOST * sizeof *got), *want = got + MOST;
    uint32_t lengths[CHILDREN * 8];
    struct mt19937 g;

    mt19937_init(&g, 5);
    for (uint32_t i = 0; i < ARRAY_SIZE(lengths); i++)
        lengths[i] = 1 + draw(&g, LONGEST);
    for (int i = 0; i < 100; i++) {
        double weights[CHILDREN], changed[CHILDREN];
        struct mix_point spec = {.weights = weights}, point = {.weights = changed};
        uint64_t sizes[CHILDREN], position = draw(&g, EPOCHS);
        struct mix_changes *list = NULL;
        bool by_tokens = draw(&g, 2);
        struct plan_params params = {.sampler = PLAN_MIXTURE,
                                     .order = PLAN_NATIVE,
                                     .seed = draw(&g, 9),
                                     .world = 1,
                                     .batch_size = 3};

        params.mix = (struct plan_mix){
            .schedule = {.n = 1 + draw(&g, CHILDREN), .n_points = 1, .points = &spec},
            .sizes = sizes,
            .by = by_tokens ? MIX_BY_TOKENS : MIX_BY_SAMPLES,
            .stop = by_tokens || draw(&g, 2) ? MIX_STOP_FIRST : MIX_STOP_ALL};
        for (uint32_t k = 0; k < params.mix.schedule.n; k++) {
            params.length += sizes[k] = 1 + draw(&g, 8);
            weights[k] = 1 + draw(&g, 9);
            changed[k] = 1 + draw(&g, 9);
        }
        if (by_tokens) {
            params.batch_size = 0;
            params.tokens = (struct plan_tokens){.tokens = 20,
                                                 .lengths = lengths,
                                                 .strategy = PLAN_IN_TURN,
                                                 .leftover = PLAN_EMIT,
                                                 .multiple = 1,
                                                 .accumulate = 1};
        }
        add(&list, position, params.mix.schedule.n, changed);
        for (params.epoch = 0; params.epoch < EPOCHS; params.epoch++) {
            struct plan_params with = params, plain = params;
            uint64_t count, same;

            with.mix.changes = list;
            if (params.epoch >= position)
                plain.mix.schedule.points = &point;
            uint64_t n = run_epoch(plain, want);
            assert_int_equal(run_epoch(with, got), n);
            assert_memory_equal(got, want, n * sizeof *got);
            assert_int_equal(plan_mix_count(&with.mix, params.epoch, &count, NULL), 0);
            assert_int_equal(plan_mix_count(&plain.mix, params.epoch, &same, NULL), 0);
            assert_int_equal(count, same);
        }
        mix_changes_unref(list);
    }
    free(got);
}

TEST(test_refused)
{
    double weights[] = {1, 0}, both[] = {1, 1};
    uint64_t sizes[] = {3, 0}, count;
    struct mix_point point = {.weights = weights};
    struct plan_params params = {.length = 3,
                                 .sampler = PLAN_MIXTURE,
                                 .order = PLAN_NATIVE,
                                 .world = 1,
                                 .mix = {.schedule = {.n = 2, .n_points = 1, .points = &point},
                                         .sizes = sizes,
                                         .stop = MIX_STOP_NEVER,
                                         .length = 9}};
    struct plan_params other = params;
    struct mix_changes *list = NULL, *wide = NULL;
    struct dl_error err = {0};
    struct plan *plan;

    add(&list, 4, 2, both);
    params.mix.changes = list;
    assert_false(plan_params_equal(&params, &other));
    assert_int_equal(plan_mix_count(&params.mix, 0, &count, &err), -EINVAL);
    assert_string_equal(
        err.message,
        "number 1, counted from 0, has a weight, but no samples; write weight 0, or leave it out");
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    add(&list, 4, 2, weights);
    other.mix.changes = params.mix.changes = list;
    assert_true(plan_params_equal(&params, &other));
    params.mix.draw = MIX_DRAW_RANDOM;
    for (int draws = 0; draws < 2; draws++, params.mix.draw = MIX_DRAW_EXACT) {
        int i = 0, r;

        do {
            fail_in = i++;
            r = plan_new(&params, &plan);
            fail_in = -1;
            assert_true(r == 0 || r == -ENOMEM);
        } while (r < 0);
        assert_true(i > 6);
        plan_free(plan);
    }
    add(&wide, 4, 3, (double[]){1, 1, 1});
    params.mix.changes = wide;
    assert_int_equal(plan_new(&params, &plan), -EINVAL);
    mix_changes_unref(wide);
    mix_changes_unref(list);
}

/* One whose later changes are not to be known yet. */
TEST(test_before)
{
    double weights[] = {1, 2};
    struct mix_changes *list = NULL, *part;

    assert_int_equal(mix_changes_before(NULL, 5, &part), 0);
    assert_null(part);
    add(&list, 10, 2, weights);
    add(&list, 20, 2, weights);
    assert_int_equal(mix_changes_before(list, 21, &part), 0);
    assert_ptr_equal(part, list);
    mix_changes_unref(part);
    assert_int_equal(mix_changes_before(list, 10, &part), 0);
    assert_null(part);
    assert_int_equal(mix_changes_before(list, 20, &part), 0);
    assert_true(part->n_changes == 1 && part->items[0].position == 10);
    assert_true(mix_changes_within(part, list));
    mix_changes_unref(part);
    mix_changes_unref(list);
}
