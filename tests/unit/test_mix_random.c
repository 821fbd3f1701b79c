/*
 * Mixtures drawn at random: NumPy's numbers for a seed; the order of Hugging Face's
 * interleave_datasets(); and any position, asked for in any order, being as in a plain run through
 * all of them, over random mixtures and schedules.
 */
#include "daemon/plan/pcg64.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>
#include <math.h>

#include "daemon/plan/mix_shares.h"
#include "daemon/plan/sampler.h"
#include "tests/unit/mix_case.h"

enum { CHILDREN = 6, POINTS = 3 };

/* numpy.random.default_rng(seed).bit_generator.random_raw(3), of NumPy 2. */
TEST(test_numpy)
{
    static const struct {
        uint64_t seed, draws[3];
    } rows[] = {
        {0, {0xa30febcfd9c2825f, 0x4510bdf882d9d721, 0x0a7d3da94ecde8b8}},
        {1, {0x8306bdf37922e4ff, 0xf35196bbc152a866, 0x24e7a4f608ec18cd}},
        {42, {0xc621fbcd16d92688, 0x705a5661a791ffc1, 0xdbcd12c26eda1624}},
        {UINT64_C(4294967301), {0xc6323ec321deb8d1, 0x78814821c73a0583, 0xb22536d8e0ec17c0}},
        {UINT64_MAX, {0xae163a7a8c47568f, 0xd86659f5f3382359, 0x01e52b195bc2d24a}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct pcg64 generator;

        for (uint64_t skipped = 0; skipped < 3; skipped++) {
            pcg64_init(&generator, rows[i].seed);
            pcg64_skip(&generator, skipped);
            for (uint64_t draw = skipped; draw < 3; draw++)
                assert_int_equal(pcg64_next(&generator), rows[i].draws[draw]);
        }
    }
}

TEST(test_skip)
{
    struct pcg64 walked, leapt;

    pcg64_init(&walked, 3);
    leapt = walked;
    for (uint64_t i = 0; i < 100000; i++)
        pcg64_next(&walked);
    pcg64_skip(&leapt, 99999);
    pcg64_next(&leapt);
    assert_int_equal(pcg64_next(&leapt), pcg64_next(&walked));
    pcg64_skip(&leapt, UINT64_MAX); /* and one more: 2^64, which has a way back */
    pcg64_skip(&leapt, 1);
    pcg64_skip(&walked, UINT64_C(1) << 63);
    pcg64_skip(&walked, UINT64_C(1) << 63);
    assert_int_equal(pcg64_next(&leapt), pcg64_next(&walked));
}

/* interleave_datasets(probabilities=, seed=) of datasets 5.2, in turn: how many, and what
 * sum · 1000003 + index comes to, over all. */
TEST(test_hugging_face)
{
    static const struct {
        uint64_t seed, sizes[4];
        double weights[4];
        uint32_t n;
        uint64_t length, first[4], sum;
    } rows[] = {
        {42, {50, 30, 20}, {0.5, 0.3, 0.2}, 3, 137, {50, 0, 80, 51}, 0xe136fed85244ea72},
        {7, {9, 4}, {0.7, 0.3}, 2, 14, {0, 9, 10, 1}, 0x1429326e82559f97},
        {UINT64_C(123456789012345),
         {5000, 3000, 1000, 10},
         {0.4, 0.35, 0.24, 0.01},
         4,
         12502,
         {5000, 0, 8000, 5001},
         0xa08235499f213c5e},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        double weights[4];
        struct mix_point point = {.weights = weights};
        struct plan_params params = {
            .sampler = PLAN_MIXTURE,
            .order = PLAN_SEQUENTIAL,
            .world = 1,
            .seed = rows[i].seed,
            .mix = {.schedule = {.n = rows[i].n, .n_points = 1, .points = &point},
                    .sizes = rows[i].sizes,
                    .stop = MIX_STOP_NEVER,
                    .draw = MIX_DRAW_RANDOM,
                    .length = rows[i].length}};
        struct sampler *sampler;
        uint64_t sum = 0;

        memcpy(weights, rows[i].weights, sizeof weights);
        for (uint32_t c = 0; c < rows[i].n; c++)
            params.length += rows[i].sizes[c];
        assert_int_equal(sampler_new(&params, &sampler), 0);
        assert_int_equal(sampler->count, rows[i].length);
        for (uint64_t k = 0; k < rows[i].length; k++) {
            uint64_t index = sampler->ops->at(sampler, k);

            if (k < 4)
                assert_int_equal(index, rows[i].first[k]);
            sum = sum * 1000003 + index;
        }
        assert_int_equal(sum, rows[i].sum);
        sampler_free(sampler);
    }
}

struct mixture {
    struct plan_params params;
    struct mix_point points[POINTS];
    double weights[POINTS][CHILDREN];
    uint64_t sizes[CHILDREN];
};

static void draw_mixture(struct mt19937 *g, struct mixture *m)
{
    uint64_t step = 0;

    *m = (struct mixture){.params = {.sampler = PLAN_MIXTURE,
                                     .order = PLAN_SEQUENTIAL,
                                     .seed = mt19937_next64(g),
                                     .world = 1,
                                     .batch_size = 1 + draw(g, 5),
                                     .mix = {.schedule = {.n = 1 + draw(g, CHILDREN),
                                                          .n_points = 1 + draw(g, POINTS),
                                                          .points = m->points,
                                                          .step_samples = 1 + draw(g, 300)},
                                             .sizes = m->sizes,
                                             .stop = MIX_STOP_NEVER,
                                             .draw = MIX_DRAW_RANDOM}}};
    for (uint32_t i = 0; i < m->params.mix.schedule.n; i++)
        m->params.length += m->sizes[i] = 1 + draw(g, 1000);
    for (uint32_t p = 0; p < m->params.mix.schedule.n_points; p++) {
        m->points[p] = (struct mix_point){
            .step = step, .weights = m->weights[p], .ramp = p > 0 && draw(g, 2) == 0};
        for (uint32_t i = 0; i < m->params.mix.schedule.n; i++)
            m->weights[p][i] = draw(g, 4);
        m->weights[p][draw(g, m->params.mix.schedule.n)] = 2.5;
        step += 1 + draw(g, 60);
    }
}

/* The order by the rule itself, in floating point; what lies beside an edge is left to either. */
static void check_run(const struct mixture *m, struct sampler *sampler, uint64_t n, uint64_t *ret)
{
    uint64_t counts[CHILDREN] = {0}, begins[CHILDREN + 1] = {0};
    const struct mix_schedule *schedule = &m->params.mix.schedule;
    struct mix_shares shares;
    struct pcg64 generator;

    for (uint32_t i = 0; i < schedule->n; i++)
        begins[i + 1] = begins[i] + m->sizes[i];
    assert_int_equal(mix_shares_init(&shares, schedule), 0);
    pcg64_init(&generator, m->params.seed);
    for (uint64_t k = 0; k < n; k++) {
        double point = ldexp((double)(pcg64_next(&generator) >> 11), -53), below = 0, weight = 0;
        uint64_t index = ret[k] = sampler->ops->at(sampler, k);
        uint32_t stretch = mix_shares_stretch(&shares, k), child = 0;

        while (index >= begins[child + 1])
            child++;
        for (uint32_t i = 0; i <= child; i++) {
            below += weight;
            weight = ldexp((double)mix_shares_weight(&shares, stretch, i, k), -MIX_UNIT_BITS);
        }
        assert_true(point > below - 1e-9 && point < below + weight + 1e-9 && weight > 0);
        assert_int_equal(index - begins[child], counts[child] % m->sizes[child]);
        counts[child]++;
    }
    mix_shares_deinit(&shares);
}

/* Far enough for counts to be thinned out; back and forth; and epochs that are pieces of it. */
TEST(test_any_order)
{
    enum { MIXTURES = 12, POSITIONS = 200000 };
    static uint64_t order[POSITIONS];
    struct mt19937 g;

    mt19937_init(&g, 22);
    for (int t = 0; t < MIXTURES; t++) {
        struct mixture m;
        struct sampler *sampler;

        draw_mixture(&g, &m);
        m.params.mix.schedule.points = m.points;
        m.params.mix.length = POSITIONS;
        assert_int_equal(sampler_new(&m.params, &sampler), 0);
        assert_true(sampler->bytes > 0);
        assert_int_equal(sampler->ops->missing(sampler, 1), 0);
        check_run(&m, sampler, POSITIONS, order);
        assert_true(sampler->ops->missing(sampler, POSITIONS / 2) < 3 * 8192);
        for (int i = 0; i < 100; i++) {
            uint64_t k = draw(&g, POSITIONS);

            assert_int_equal(sampler->ops->at(sampler, k), order[k]);
            assert_int_equal(sampler->ops->missing(sampler, k + 1), 0);
        }
        sampler_free(sampler);
        m.params.mix.length = 1000 + draw(&g, 5000);
        m.params.epoch = 1 + draw(&g, 20);
        assert_int_equal(sampler_new(&m.params, &sampler), 0);
        uint64_t first = m.params.epoch * m.params.mix.length;
        for (int i = 0; i < 20; i++) {
            uint64_t k = draw(&g, (uint32_t)m.params.mix.length);

            assert_int_equal(sampler->ops->at(sampler, k), order[first + k]);
        }
        sampler_free(sampler);
    }
}

TEST(test_refused)
{
    struct mt19937 g;
    struct mixture m;
    struct sampler *sampler;
    int i = 0, r;

    mt19937_init(&g, 1);
    draw_mixture(&g, &m);
    m.params.mix.schedule.points = m.points;
    m.params.mix.length = 9;
    m.params.mix.stop = MIX_STOP_ALL;
    assert_int_equal(sampler_new(&m.params, &sampler), -EINVAL);
    m.params.mix.stop = MIX_STOP_NEVER;
    m.params.mix.by = MIX_BY_TOKENS;
    assert_int_equal(sampler_new(&m.params, &sampler), -EINVAL);
    m.params.mix.by = MIX_BY_SAMPLES;
    do {
        fail_in = i++;
        r = sampler_new(&m.params, &sampler);
        fail_in = -1;
        assert_true(r == 0 || r == -ENOMEM);
    } while (r < 0);
    assert_true(i > 4);
    sampler_free(sampler);
}
