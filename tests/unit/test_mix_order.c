/*
 * The order of a mixture: over random mixtures and schedules, every child is at every position
 * within one sample of what it is due, whether positions are asked for in turn or at random; and
 * nothing shows a period. Every seed is fixed, so every run sees the same numbers.
 */
#include "daemon/plan/mix_order.h"

#include <errno.h>
#include <math.h>

#include "tests/unit/mix_case.h"

enum { CHILDREN = 12, POINTS = DL_BOUND_MIX_POINTS, FEW = 4, POSITIONS = 2500, LAGS = 300 };

struct mixture {
    struct mix_schedule schedule;
    struct mix_point points[POINTS];
    double weights[POINTS][CHILDREN];
};

/* Weights that are alike, far apart, round, or 0. */
static void draw_weights(struct mt19937 *g, uint32_t n, double *ret)
{
    uint32_t style = draw(g, 4);

    for (uint32_t i = 0; i < n; i++) {
        double unit = (draw(g, 1000) + 1) / 1000.0;

        ret[i] = style == 0   ? unit
                 : style == 1 ? pow(unit, 6) + 0.001
                 : style == 2 ? draw(g, 4)
                              : 1.0;
    }
    ret[draw(g, n)] = 1;
}

static void draw_mixture(struct mt19937 *g, uint32_t n_points, uint32_t longest, struct mixture *m)
{
    uint64_t step = 0;

    m->schedule = (struct mix_schedule){.n = 1 + draw(g, CHILDREN),
                                        .n_points = n_points,
                                        .points = m->points,
                                        .step_samples = 1 + draw(g, 3)};
    for (uint32_t p = 0; p < m->schedule.n_points; p++) {
        draw_weights(g, m->schedule.n, m->weights[p]);
        m->points[p] = (struct mix_point){
            .step = step, .weights = m->weights[p], .ramp = p > 0 && draw(g, 2) == 0};
        step += 1 + draw(g, draw(g, 2) ? 10 : longest);
    }
}

/* Of the position, by the schedule itself, in floating point. */
static double weight_at(const struct mixture *m, uint32_t child, uint64_t position)
{
    uint32_t p = m->schedule.n_points - 1;
    double unit = (double)m->schedule.step_samples, sum = 0, next_sum = 0;

    while ((double)m->points[p].step * unit > (double)position)
        p--;
    for (uint32_t i = 0; i < m->schedule.n; i++)
        sum += m->weights[p][i];
    double weight = m->weights[p][child] / sum;
    if (p + 1 == m->schedule.n_points || !m->points[p + 1].ramp)
        return weight;
    for (uint32_t i = 0; i < m->schedule.n; i++)
        next_sum += m->weights[p + 1][i];
    double begin = (double)m->points[p].step * unit, end = (double)m->points[p + 1].step * unit;
    double way = ((double)position - begin) / (end - begin);
    return weight + (m->weights[p + 1][child] / next_sum - weight) * way;
}

/* In turn: shares, numbers of each child's samples in order. Returns the order. */
static void check_in_turn(const struct mixture *m, uint64_t seed, struct mix_place *ret)
{
    struct mix_order order;
    uint64_t counts[CHILDREN] = {0};
    double due[CHILDREN] = {0};

    assert_int_equal(mix_order_init(&order, &m->schedule, seed, 3), 0);
    for (uint64_t k = 0; k < POSITIONS; k++) {
        uint32_t stretch = mix_shares_stretch(&order.shares, k);

        ret[k] = mix_order_at(&order, k);
        assert_true(ret[k].child < m->schedule.n);
        assert_int_equal(ret[k].nth, counts[ret[k].child]++);
        if (order.shares.stretches[stretch].era && order.shares.stretches[stretch].begin == k)
            for (uint32_t i = 0; i < m->schedule.n; i++) /* accounts are closed here */
                due[i] = (double)(counts[i] - (ret[k].child == i));
        for (uint32_t i = 0; i < m->schedule.n; i++) {
            mix_units share = mix_shares_at(&order.shares, stretch, i, k + 1);
            bool whole = mix_units_of(mix_whole(share)) == share;

            due[i] += weight_at(m, i, k);
            assert_true(counts[i] >= mix_whole(share));
            assert_true(counts[i] <= mix_whole(share) + !whole);
            assert_true(fabs((double)counts[i] - due[i]) < 1 + 1e-6);
        }
    }
    mix_order_deinit(&order);
}

static void check_at_random(struct mt19937 *g, const struct mixture *m, uint64_t seed,
                            const struct mix_place *expected)
{
    struct mix_order order;
    uint64_t counts[CHILDREN];

    assert_int_equal(mix_order_init(&order, &m->schedule, seed, 3), 0);
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t k = draw(g, POSITIONS);
        struct mix_place place = mix_order_at(&order, k);

        assert_int_equal(place.child, expected[k].child);
        assert_int_equal(place.nth, expected[k].nth);
        assert_int_equal(mix_order_missing(&order, k), 0);
        mix_order_counts(&order, k, counts);
        assert_int_equal(counts[place.child], place.nth);
    }
    mix_order_deinit(&order);
}

TEST(test_random_mixtures)
{
    static struct mix_place places[POSITIONS];
    struct mt19937 g;
    struct mixture m;

    mt19937_init(&g, 1);
    for (uint64_t round = 0; round < 150; round++) {
        draw_mixture(&g, 1 + draw(&g, FEW), 700, &m);
        check_in_turn(&m, round, places);
        check_at_random(&g, &m, round, places);
    }
}

/* The stretch of a position as a reader of the schedule from its beginning finds it. */
static uint32_t stretch_in_turn(const struct mix_shares *shares, uint64_t position)
{
    uint32_t stretch = 0;

    while (stretch + 1 < shares->n_stretches && shares->stretches[stretch + 1].begin <= position)
        stretch++;
    return stretch;
}

/* Schedules of as many entries as there may be: shares hold in and at the end of each. */
TEST(test_long_schedules)
{
    static struct mix_place places[POSITIONS];
    static struct mixture m;
    struct mt19937 g;

    mt19937_init(&g, 2);
    for (uint64_t round = 0; round < 8; round++) {
        struct mix_order order;

        draw_mixture(&g, POINTS, 10, &m);
        assert_int_equal(mix_order_init(&order, &m.schedule, round, 3), 0);
        assert_int_equal(order.shares.n_stretches, DL_MAX_MIX_POINTS);
        for (uint64_t k = 0; k < POSITIONS; k++)
            assert_int_equal(mix_shares_stretch(&order.shares, k),
                             stretch_in_turn(&order.shares, k));
        assert_int_equal(mix_shares_stretch(&order.shares, MIX_POSITIONS - 1), POINTS - 1);
        mix_order_deinit(&order);
        check_in_turn(&m, round, places);
        check_at_random(&g, &m, round, places);
    }
}

/* How often the child `lag` positions on is the same one, less what chance would have: 0 of draws,
 * and 1 - chance of what repeats itself. */
static double echo(const uint8_t *children, uint32_t n, uint32_t lag, double chance)
{
    uint32_t same = 0;

    for (uint32_t i = 0; i + lag < n; i++)
        same += children[i] == children[i + lag];
    return (double)same / (n - lag) - chance;
}

TEST(test_no_periods)
{
    static const double mixtures[][5] = {{1, 1, 1, 1, 0},
                                         {0.5, 0.25, 0.125, 0.125, 0},
                                         {0.4, 0.3, 0.15, 0.1, 0.05},
                                         {7, 5, 3, 2, 1}};
    enum { N = 30000 };
    static uint8_t children[N];

    for (size_t t = 0; t < ARRAY_SIZE(mixtures); t++) {
        double weights[5], sum = 0, chance = 0;
        struct mix_point point = {.weights = weights};
        struct mix_schedule schedule = {.n = 5, .n_points = 1, .points = &point};
        struct mix_order order;

        for (uint32_t i = 0; i < 5; i++)
            sum += weights[i] = mixtures[t][i];
        for (uint32_t i = 0; i < 5; i++)
            chance += weights[i] / sum * weights[i] / sum;
        assert_int_equal(mix_order_init(&order, &schedule, 5, 0), 0);
        for (uint32_t k = 0; k < N; k++)
            children[k] = (uint8_t)mix_order_at(&order, k).child;
        double worst = 0;
        for (uint32_t lag = 32; lag < LAGS; lag++)
            worst = fmax(worst, fabs(echo(children, N, lag, chance)));
        assert_true(worst < 0.06);
        mix_order_deinit(&order);
    }
}

TEST(test_far_and_small)
{
    double weights[] = {10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
    struct mix_point point = {.weights = weights};
    struct mix_schedule schedule = {.n = 10, .n_points = 1, .points = &point};
    struct mix_order order;

    assert_int_equal(mix_order_init(&order, &schedule, 5, 0), 0);
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t k = (UINT64_C(1) << 40) + i * 1000003;
        struct mix_place place = mix_order_at(&order, k);
        double due = (double)k * weights[place.child] / 55;

        assert_true(fabs((double)place.nth - due) < 1.01);
    }
    assert_true(mix_order_bytes(&order) <= 1024);
    assert_true(mix_order_missing(&order, UINT64_C(1) << 45) < 1000);
    mix_order_deinit(&order);
}

TEST(test_refused)
{
    double one[] = {1}, zero[] = {0}, bad[] = {-1}, small[] = {1, 1e-6}, huge[] = {1e308, 1e308};
    struct mix_point points[] = {{.weights = one}, {.step = 1, .weights = one}};
    const struct {
        struct mix_schedule schedule;
        double *weights;
        uint64_t first, second;
    } cases[] = {
        {{.n = 0, .n_points = 1}, one, 0, 1},
        {{.n = 257, .n_points = 1}, one, 0, 1},
        {{.n = 1, .n_points = 0}, one, 0, 1},
        {{.n = 1, .n_points = DL_MAX_MIX_POINTS + 1}, one, 0, 1},
        {{.n = 1, .n_points = 1}, zero, 0, 1},
        {{.n = 1, .n_points = 1}, bad, 0, 1},
        {{.n = 1, .n_points = 1}, one, 1, 2},
        {{.n = 2, .n_points = 1}, small, 0, 1},
        {{.n = 2, .n_points = 1}, huge, 0, 1},
        {{.n = 1, .n_points = 2, .step_samples = 1}, one, 0, 0},
        {{.n = 1, .n_points = 2, .step_samples = 0}, one, 0, 1},
        {{.n = 1, .n_points = 2, .step_samples = 2}, one, 0, UINT64_MAX},
        {{.n = 1, .n_points = 2, .step_samples = 1}, one, 0, MIX_POSITIONS + 1},
    };
    struct mix_order order;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct mix_schedule schedule = cases[i].schedule;

        points[0] = (struct mix_point){.step = cases[i].first, .weights = cases[i].weights};
        points[1].step = cases[i].second;
        schedule.points = points;
        assert_int_equal(mix_order_init(&order, &schedule, 0, 0), -EINVAL);
    }
}
