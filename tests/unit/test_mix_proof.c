/*
 * What plans over mixtures promise, over thousands of random ones: weights, schedules, stops, draws
 * and shares of either sort, in batches of samples and of tokens. Four ranks begin, three go on,
 * and eight end: together they have the unbroken run's samples, each as often; and of batches of
 * samples those of each step stand together in it. With stop: never the weights of some are changed
 * where one world ends, which the ranks before do not know of and the unbroken run does. Every
 * prefix of an exact order has each child's share, by sums that are written down here anew; and
 * where a child is a mixture itself, each of that one's, of the samples that it has been asked for,
 * by its own schedule, too. Any step is the same when it is asked for first.
 */
#include "proto/spec.h"
#include "tests/unit/plan_case.h"

#include <math.h>

enum {
    CASES = 2000,
    CHILDREN = 6,
    INNER = 3, /* children of one that is a mixture */
    LEAVES = CHILDREN * INNER,
    POINTS = 4,
    SIZE = 40,
    MOST = 3000,
    TOKENS = 64,
    LONGEST = 24,
    STRETCHES = 3
};

static const uint64_t worlds[STRETCHES] = {4, 3, 8};

struct mixture {
    struct plan_params params;
    struct mix_point points[POINTS];
    double weights[POINTS][CHILDREN];
    uint64_t sizes[LEAVES];
    uint64_t ends[CHILDREN]; /* in the concatenation */
    uint32_t lengths[LEAVES * SIZE];
    /* Of those that are mixtures. */
    struct spec_dataset children[CHILDREN], leaf[INNER];
    struct mix_point inner_points[CHILDREN][POINTS];
    double inner_weights[CHILDREN][POINTS][INNER];
    struct mix_changes *known[STRETCHES]; /* counted: changes that the ranks of each world know */
};

/* ---- a random one ---------------------------------------------------------------------------- */

static void draw_schedule(uint64_t *g, struct mixture *m)
{
    struct mix_schedule *schedule = &m->params.mix.schedule;
    uint64_t step = 0;

    *schedule = (struct mix_schedule){.n = 1 + below(g, CHILDREN),
                                      .n_points = 1 + below(g, POINTS),
                                      .points = m->points,
                                      .step_samples = 1 + below(g, 16)};
    for (uint32_t p = 0; p < schedule->n_points; p++) {
        m->points[p] = (struct mix_point){
            .step = step, .weights = m->weights[p], .ramp = p > 0 && below(g, 2)};
        step += 1 + below(g, 30);
        for (uint32_t i = 0; i < schedule->n; i++)
            m->weights[p][i] = below(g, 4) ? 1 + below(g, 20) : 0;
        m->weights[p][below(g, schedule->n)] += 1;
    }
}

static void draw_tokens(uint64_t *g, struct mixture *m)
{
    static const enum plan_strategy strategies[] = {PLAN_SORTED, PLAN_BUCKET, PLAN_PACK,
                                                    PLAN_IN_TURN};
    struct plan_tokens *tokens = &m->params.tokens;

    *tokens = (struct plan_tokens){.tokens = TOKENS,
                                   .lengths = m->lengths,
                                   .strategy = strategies[below(g, 4)],
                                   .leftover = PLAN_EMIT,
                                   .truncate = below(g, 2),
                                   .max_length = below(g, 3) ? 0 : 12,
                                   .interval = 4,
                                   .multiple = 1,
                                   .window = below(g, 3) ? 1 + below(g, 8) : 0,
                                   .accumulate = 1};
    tokens->row_length = tokens->strategy == PLAN_PACK ? 32 : 0;
    tokens->balance = tokens->strategy != PLAN_BUCKET && below(g, 3) == 0;
    tokens->linear = tokens->balance;
    tokens->accumulate = tokens->balance ? 1 + below(g, 3) : 1;
    for (size_t i = 0; i < LEAVES * SIZE; i++)
        m->lengths[i] = below(g, 20) ? 1 + below(g, LONGEST) : 0;
}

static void draw_inner(uint64_t *g, struct mixture *m, uint32_t child)
{
    struct spec_dataset *inner = &m->children[child];
    uint64_t step = 0;

    *inner = (struct spec_dataset){.kind = DATASET_MIX,
                                   .datasets = m->leaf,
                                   .n_datasets = 1 + below(g, INNER),
                                   .points = m->inner_points[child],
                                   .n_points = 1,
                                   .stop = MIX_STOP_FIRST + below(g, 3),
                                   .by = MIX_BY_SAMPLES,
                                   .draw = MIX_DRAW_EXACT};
    inner->length = inner->stop == MIX_STOP_NEVER ? 1 + below(g, 90) : 0;
    if (inner->stop == MIX_STOP_NEVER && below(g, 2)) {
        inner->n_points = 2 + below(g, POINTS - 1);
        inner->global_batch = 1 + below(g, 16);
    }
    for (uint32_t p = 0; p < inner->n_points; p++) {
        m->inner_points[child][p] = (struct mix_point){
            .step = step, .weights = m->inner_weights[child][p], .ramp = p > 0 && below(g, 2)};
        step += 1 + below(g, 30);
        for (uint32_t i = 0; i < inner->n_datasets; i++)
            m->inner_weights[child][p][i] = 1 + below(g, 9);
    }
}

/* The children, some of which are mixtures, and their sizes. */
static void draw_children(uint64_t *g, struct mixture *m)
{
    struct plan_mix *mix = &m->params.mix;
    bool nests = below(g, 3) == 0;
    uint32_t leaves = 0;

    for (uint32_t i = 0; i < INNER; i++)
        m->leaf[i].kind = DATASET_RANGE;
    for (uint32_t i = 0; i < mix->schedule.n; i++) {
        m->children[i].kind = DATASET_RANGE;
        if (nests && below(g, 2))
            draw_inner(g, m, i);
        for (uint32_t n = spec_mixture_leaves(&m->children[i]); n > 0; n--)
            m->params.length += m->sizes[leaves++] = 1 + below(g, SIZE);
    }
    mix->sizes = m->sizes;
    mix->children = nests ? m->children : NULL;
    assert_true(plan_mix_ends(mix, m->ends));
    assert_int_equal(m->ends[mix->schedule.n - 1], m->params.length);
}

static void draw_mixture(uint64_t seed, struct mixture *m)
{
    static const enum plan_shard modes[] = {PLAN_STRIDED, PLAN_BATCH, PLAN_SPLIT, PLAN_DISPATCH};
    uint64_t *g = &seed;

    *m = (struct mixture){.params = {.sampler = PLAN_MIXTURE, .world = 1}};
    struct plan_params *params = &m->params;
    params->order = below(g, 3) ? PLAN_NATIVE : PLAN_SEQUENTIAL;
    params->seed = next_random(g);
    params->epoch = below(g, 3);
    params->shard = modes[below(g, 4)];
    params->batch_size = params->shard == PLAN_SPLIT ? 24 : 1 + below(g, 9);
    draw_schedule(g, m);
    params->mix.stop = MIX_STOP_FIRST + below(g, 3);
    params->mix.draw = MIX_DRAW_EXACT;
    params->mix.by = MIX_BY_SAMPLES;
    params->mix.length = 1 + below(g, 400);
    draw_children(g, m);
    if (below(g, 2)) {
        draw_tokens(g, m);
        params->shard = PLAN_STRIDED;
        params->mix.by =
            params->mix.stop != MIX_STOP_ALL && below(g, 2) ? MIX_BY_TOKENS : MIX_BY_SAMPLES;
    }
    if (params->mix.stop == MIX_STOP_NEVER && params->mix.by == MIX_BY_SAMPLES && below(g, 4) == 0)
        params->mix.draw = MIX_DRAW_RANDOM;
}

/* Whether there is such an epoch, and it is no longer than we can hold. */
static bool can_be(const struct mixture *m, uint64_t *ret_count)
{
    struct dl_error err;

    if (plan_mix_count(&m->params.mix, m->params.epoch, ret_count, &err) < 0) {
        assert_int_equal(m->params.mix.stop == MIX_STOP_NEVER, 0);
        return false; /* stop: all, of one that never comes whole */
    }
    return *ret_count <= MOST;
}

/* It is told without a seed, by the choices of which an epoch may end a sample earlier or later. */
static void check_count(const struct mixture *m, uint64_t told, uint64_t n)
{
    if (m->params.mix.stop == MIX_STOP_NEVER)
        assert_int_equal(n, told);
    else
        assert_in_range(n + 1, told, told + 2);
}

/* ---- the unbroken run ------------------------------------------------------------------------ */

struct run {
    uint64_t samples[MOST];
    size_t n;
};

/* The samples in the order of one rank that has them one by one, or as many tokens at a time. */
static void run_unbroken(struct plan_params params, struct run *ret)
{
    uint64_t indices[TOKENS];

    params.batch_size = 1;
    params.shard = PLAN_STRIDED;
    _cleanup_plan_ struct plan *plan = prepared(params);

    ret->n = 0;
    for (uint64_t step = 0; step < plan_steps(plan, 0); step++) {
        size_t n = plan_step(plan, 0, step, indices);

        assert_in_range(ret->n + n, 1, MOST);
        memcpy(ret->samples + ret->n, indices, n * sizeof *indices);
        ret->n += n;
    }
}

/* ---- four ranks, three, eight ---------------------------------------------------------------- */

/* One step of all ranks: returns how many samples. */
static size_t step_of_all(struct plan *plan, uint64_t world, uint64_t step, uint64_t *ret)
{
    size_t n = 0;

    for (uint64_t rank = 0; rank < world; rank++)
        if (step < plan_steps(plan, rank))
            n += plan_step(plan, rank, step, ret + n);
    return n;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static void check_same(uint64_t *a, const uint64_t *b, size_t n)
{
    uint64_t sorted[MOST];

    memcpy(sorted, b, n * sizeof *b);
    qsort(sorted, n, sizeof *sorted, by_number);
    qsort(a, n, sizeof *a, by_number);
    assert_memory_equal(a, sorted, n * sizeof *a);
}

/* The first `steps` of what is left for so many ranks. Returns whether there is more. NULL: there
 * is nothing to compare with yet. */
static bool run_stretch(const struct plan_params *params, uint64_t steps, const struct run *whole,
                        struct run *so_far)
{
    _cleanup_plan_ struct plan *plan = prepared(*params);
    uint64_t step = 0, most = plan_steps(plan, 0);

    for (; step < min_u64(steps, most); step++) {
        uint64_t *at = so_far->samples + so_far->n, room[MOST];
        size_t n = step_of_all(plan, params->world, step, room);

        assert_in_range(so_far->n + n, 1, whole ? whole->n : MOST);
        memcpy(at, room, n * sizeof *room);
        if (whole && params->tokens.tokens == 0)
            check_same(at, whole->samples + so_far->n, n);
        so_far->n += n;
    }
    return step < most;
}

static uint64_t steps_of_stretch(uint64_t *g, size_t i)
{
    return i + 1 == STRETCHES ? UINT64_MAX : below(g, 6);
}

static void check_chain(struct mixture *m, uint64_t seed, const struct run *whole)
{
    struct plan_params params = m->params;
    static struct run all;

    all.n = 0;
    for (size_t i = 0; i < STRETCHES; i++) {
        uint64_t steps = steps_of_stretch(&seed, i);

        params.world = worlds[i];
        plan_set_changes(&params, m->known[i]);
        if (!run_stretch(&params, steps, whole, &all))
            break;
        if (steps > 0)
            assert_true(history_add(&params.before, worlds[i], steps));
    }
    assert_int_equal(all.n, whole->n);
    check_same(all.samples, whole->samples, all.n);
}

/* ---- changes of weights between -------------------------------------------------------------- */

static struct mix_changes *change_weights(uint64_t *g, const struct mixture *m, uint64_t position,
                                          const struct mix_changes *before)
{
    double weights[CHILDREN];
    const struct mix_change change = {.position = position, .weights = weights};
    uint32_t n = m->params.mix.schedule.n;
    struct mix_changes *list = NULL;

    for (uint32_t i = 0; i < n; i++)
        weights[i] = below(g, 4) ? 1 + below(g, 20) : 0;
    weights[below(g, n)] += 1;
    assert_int_equal(mix_changes_with(before, &change, n, &list), 0);
    return list;
}

/* Where a world of check_chain() ends, as it will be by the same seed. */
static void draw_changes(struct mixture *m, uint64_t seed)
{
    struct plan_params params = m->params;
    uint64_t g = seed + 1;
    static struct run all;
    bool more = true;

    all.n = 0;
    for (size_t i = 0; i + 1 < STRETCHES && more; i++) {
        uint64_t steps = steps_of_stretch(&seed, i);

        params.world = worlds[i];
        plan_set_changes(&params, m->known[i]);
        more = run_stretch(&params, steps, NULL, &all);
        if (!more)
            break;
        m->known[i + 1] =
            change_weights(&g, m, params.epoch * params.mix.length + all.n, m->known[i]);
        if (steps > 0)
            assert_true(history_add(&params.before, worlds[i], steps));
    }
    for (size_t i = 1; !more && i < STRETCHES; i++)
        if (!m->known[i])
            m->known[i] = mix_changes_ref(m->known[i - 1]);
    plan_set_changes(&m->params, m->known[STRETCHES - 1]);
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* A child's weight at a position, of all children's: between two points in a straight line. */
static double weight_at(const struct mix_schedule *schedule, uint32_t child, uint64_t position)
{
    double weight = 0;

    for (uint32_t p = 0; p < schedule->n_points; p++) {
        const struct mix_point *point = &schedule->points[p], *next = point + 1;
        uint64_t begin = point->step * schedule->step_samples, end;
        double sum = 0, next_sum = 0;

        if (begin > position)
            break;
        for (uint32_t i = 0; i < schedule->n; i++)
            sum += point->weights[i];
        weight = point->weights[child] / sum;
        if (p + 1 == schedule->n_points || !next->ramp)
            continue;
        for (uint32_t i = 0; i < schedule->n; i++)
            next_sum += next->weights[i];
        end = next->step * schedule->step_samples;
        if (position < end)
            weight += (next->weights[child] / next_sum - weight) * (double)(position - begin) /
                      (double)(end - begin);
    }
    return weight;
}

static bool all_take_part(const struct mix_schedule *schedule)
{
    bool all = true;

    for (uint32_t p = 0; p < schedule->n_points; p++)
        for (uint32_t i = 0; i < schedule->n; i++)
            all = all && schedule->points[p].weights[i] > 0;
    return all;
}

static uint32_t child_of(const struct mixture *m, uint64_t index)
{
    uint32_t child = 0;

    while (index >= m->ends[child])
        child++;
    return child;
}

/* Likewise, with changes. */
static double changed_weight_at(const struct mixture *m, uint32_t child, uint64_t position)
{
    const struct mix_changes *changes = m->params.mix.changes;
    uint32_t n = m->params.mix.schedule.n, at = changes ? changes->n_changes : 0;
    double sum = 0;

    while (at > 0 && changes->items[at - 1].position > position)
        at--;
    if (at == 0)
        return weight_at(&m->params.mix.schedule, child, position);
    for (uint32_t i = 0; i < n; i++)
        sum += changes->items[at - 1].weights[i];
    return changes->items[at - 1].weights[child] / sum;
}

/* Of an exact order by samples, before it is cut into batches. Where children come and go, or
 * weights are changed, accounts are closed each time: what is owed then is below a sample each
 * time. */
static void check_shares(const struct mixture *m, const struct run *whole)
{
    const struct mix_schedule *schedule = &m->params.mix.schedule;
    uint32_t changes = m->params.mix.changes ? m->params.mix.changes->n_changes : 0;
    double one = (all_take_part(schedule) ? 1 + 1e-6 : 1.0 + 2 * POINTS) + changes;
    uint64_t first =
        m->params.mix.stop == MIX_STOP_NEVER ? m->params.epoch * m->params.mix.length : 0;
    double due[CHILDREN] = {0}, had[CHILDREN] = {0};

    if (first > 0)
        return; /* it begins in the midst of the order */
    for (size_t k = 0; k < whole->n; k++) {
        uint32_t child = child_of(m, whole->samples[k]);

        assert_true(changed_weight_at(m, child, k) > 0 || !all_take_part(schedule));
        had[child]++;
        for (uint32_t i = 0; i < schedule->n; i++) {
            due[i] += changed_weight_at(m, i, k);
            assert_true(fabs(had[i] - due[i]) < one);
        }
    }
}

/* None of a child's samples comes again before all have come, and an epoch ends where its children
 * do. Of an order that begins with the epoch, one by one. */
static void check_passes(const struct mixture *m, const struct run *whole)
{
    const struct plan_mix *mix = &m->params.mix;
    static uint32_t times[CHILDREN][SIZE];
    uint64_t had[CHILDREN] = {0};

    if (mix->children || (mix->stop == MIX_STOP_NEVER && m->params.epoch > 0))
        return;
    memset(times, 0, sizeof times);
    for (size_t k = 0; k < whole->n; k++) {
        uint32_t child = child_of(m, whole->samples[k]);
        uint64_t index = whole->samples[k] - (child > 0 ? m->ends[child - 1] : 0);

        had[child]++;
        assert_true(++times[child][index] <= (had[child] + m->sizes[child] - 1) / m->sizes[child]);
    }
    for (uint32_t i = 0; i < mix->schedule.n; i++) {
        if (mix->stop == MIX_STOP_FIRST)
            assert_true(had[i] <= m->sizes[i]);
        if (mix->stop == MIX_STOP_ALL)
            assert_true(had[i] == 0 || had[i] >= m->sizes[i]);
    }
}

/* ---- a mixture in it ------------------------------------------------------------------------- */

/* What one of its epochs, or with MIX_STOP_NEVER all of them, has so far. */
struct inner_run {
    uint64_t had[INNER];
    double due[INNER];
    uint32_t times[INNER][SIZE];
    uint64_t n;
};

/* What its children are due of any of its first samples; where it has a schedule, to within so
 * much. */
struct inner_due {
    struct mix_point points[POINTS]; /* at its own samples */
    struct mix_schedule schedule;
    double slack;
};

/* A step of an inner one begins at the sample that it is due of all before the step. */
static void find_inner_due(const struct mixture *m, uint32_t child, struct inner_due *ret)
{
    const struct spec_dataset *inner = &m->children[child];
    const struct mix_schedule *outer = &m->params.mix.schedule;
    double due = 0;
    uint64_t k = 0;

    ret->schedule = (struct mix_schedule){.n = inner->n_datasets,
                                          .n_points = inner->n_points,
                                          .points = ret->points,
                                          .step_samples = 1};
    ret->slack = (inner->n_points - 1) * (all_take_part(outer) ? 1.5 : 1.5 + 2 * POINTS);
    for (uint32_t p = 0; p < inner->n_points; p++) {
        ret->points[p] = inner->points[p];
        for (; k < inner->points[p].step * inner->global_batch; k++)
            due += weight_at(outer, child, k);
        ret->points[p].step = (uint64_t)due;
        if (p > 0)
            ret->points[p].step = max_u64(ret->points[p].step, ret->points[p - 1].step + 1);
    }
}

/* One more sample of it: shares hold of what it was given, and none comes before all others have.
 */
static void check_inner_sample(const struct spec_dataset *inner, const struct inner_due *inner_due,
                               const uint64_t *sizes, uint64_t index, struct inner_run *run)
{
    uint32_t child = 0;

    for (; index >= sizes[child]; child++)
        index -= sizes[child];
    run->had[child]++;
    assert_true(++run->times[child][index] <= (run->had[child] + sizes[child] - 1) / sizes[child]);
    for (uint32_t i = 0; i < inner->n_datasets; i++)
        run->due[i] += weight_at(&inner_due->schedule, i, run->n);
    run->n++;
    for (uint32_t i = 0; i < inner->n_datasets; i++)
        assert_true(fabs((double)run->had[i] - run->due[i]) < 1 + 1e-6 + inner_due->slack);
}

static void check_inner_end(const struct spec_dataset *inner, const uint64_t *sizes,
                            const struct inner_run *run)
{
    for (uint32_t i = 0; i < inner->n_datasets; i++) {
        if (inner->stop == MIX_STOP_FIRST)
            assert_true(run->had[i] <= sizes[i]);
        if (inner->stop == MIX_STOP_ALL)
            assert_true(run->had[i] >= sizes[i]);
    }
}

/* Returns how many of its epochs were whole. */
static unsigned check_inner(const struct mixture *m, uint32_t child, const uint64_t *sizes,
                            const struct run *whole)
{
    const struct spec_dataset *inner = &m->children[child];
    uint64_t begin = child > 0 ? m->ends[child - 1] : 0, size;
    struct inner_run run = {.n = 0};
    struct inner_due due;
    unsigned epochs = 0;

    find_inner_due(m, child, &due);
    struct plan_mix alone = plan_mix_of(inner);
    alone.sizes = sizes;
    assert_int_equal(plan_mix_count(&alone, 0, &size, NULL), 0);
    for (size_t k = 0; k < whole->n; k++) {
        if (child_of(m, whole->samples[k]) != child)
            continue;
        check_inner_sample(inner, &due, sizes, whole->samples[k] - begin, &run);
        if (run.n < size || inner->stop == MIX_STOP_NEVER)
            continue;
        check_inner_end(inner, sizes, &run);
        run = (struct inner_run){.n = 0};
        epochs++;
    }
    return epochs;
}

/* Of an order that begins with the epoch, one by one. Returns how many epochs were whole. */
static unsigned check_all_inner(const struct mixture *m, const struct run *whole)
{
    const struct plan_mix *mix = &m->params.mix;
    const uint64_t *sizes = m->sizes;
    unsigned epochs = 0;

    if (!mix->children || (mix->stop == MIX_STOP_NEVER && m->params.epoch > 0))
        return 0;
    for (uint32_t i = 0; i < mix->schedule.n; i++) {
        if (m->children[i].kind == DATASET_MIX)
            epochs += check_inner(m, i, sizes, whole);
        sizes += spec_mixture_leaves(&m->children[i]);
    }
    return epochs;
}

/* Shares of tokens are within the longest sample. */
static void check_token_shares(const struct mixture *m, const struct run *whole)
{
    double had[CHILDREN] = {0}, sum = 0;
    const double *weights = m->points[0].weights;

    for (size_t k = 0; k < whole->n; k++) {
        uint32_t length = m->lengths[whole->samples[k]];

        length = (uint32_t)min_u64(length, plan_tokens_limit(&m->params.tokens));
        had[child_of(m, whole->samples[k])] += length;
        sum += length;
    }
    double all = 0;
    for (uint32_t i = 0; i < m->params.mix.schedule.n; i++)
        all += weights[i];
    for (uint32_t i = 0; i < m->params.mix.schedule.n; i++)
        assert_true(fabs(had[i] - sum * weights[i] / all) < 1.5 * LONGEST);
}

/* ---- any step -------------------------------------------------------------------------------- */

static void check_seeks(const struct mixture *m, uint64_t seed)
{
    struct plan_params params = m->params;
    uint64_t once[MOST], again[MOST];

    params.world = 3;
    _cleanup_plan_ struct plan *in_turn = prepared(params), *anywhere = prepared(params);
    uint64_t steps = plan_steps(in_turn, 1);

    for (uint64_t step = 0; step < steps; step++)
        plan_step(in_turn, 1, step, once);
    for (unsigned i = 0; steps > 0 && i < 5; i++) {
        uint64_t step = below(&seed, (uint32_t)steps);
        size_t n = plan_step(in_turn, 1, step, once);

        assert_int_equal(plan_step(anywhere, 1, step, again), n);
        assert_memory_equal(once, again, n * sizeof *once);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

struct tally {
    unsigned checked, exact, tokens, schedules, nested, inner_epochs, inner_steps, changed;
};

static void check_mixture(uint64_t seed, struct tally *tally)
{
    static struct mixture m;
    static struct run whole;
    uint64_t count;

    draw_mixture(seed, &m);
    if (!can_be(&m, &count))
        return;
    bool by_tokens = m.params.tokens.tokens > 0;
    if (!by_tokens && m.params.mix.stop == MIX_STOP_NEVER && seed % 2)
        draw_changes(&m, seed);
    run_unbroken(m.params, &whole);
    if (!by_tokens && m.params.mix.draw == MIX_DRAW_EXACT)
        check_shares(&m, &whole);
    if (!by_tokens) {
        check_count(&m, count, whole.n);
        check_passes(&m, &whole);
        tally->inner_epochs += check_all_inner(&m, &whole);
    }
    if (m.params.mix.by == MIX_BY_TOKENS && m.params.mix.schedule.n_points == 1 &&
        m.params.epoch == 0)
        check_token_shares(&m, &whole);
    check_chain(&m, seed, &whole);
    check_seeks(&m, seed);
    tally->checked++;
    tally->changed += m.params.mix.changes != NULL;
    tally->exact += !by_tokens && m.params.mix.draw == MIX_DRAW_EXACT;
    tally->tokens += m.params.mix.by == MIX_BY_TOKENS;
    tally->schedules += m.params.mix.schedule.n_points > 1;
    tally->nested += m.params.mix.children != NULL;
    for (uint32_t i = 0; !by_tokens && i < m.params.mix.schedule.n; i++)
        tally->inner_steps += m.children[i].n_points > 1;
    for (size_t i = 0; i < STRETCHES; i++)
        mix_changes_unref(m.known[i]);
}

TEST(test_random_mixtures)
{
    struct tally tally = {0};

    for (uint64_t seed = 0; seed < CASES; seed++)
        check_mixture(seed, &tally);
    assert_in_range(tally.checked, CASES * 3 / 4, CASES);
    assert_in_range(tally.exact, CASES / 4, CASES);
    assert_in_range(tally.tokens, CASES / 8, CASES);
    assert_in_range(tally.schedules, CASES / 2, CASES);
    assert_in_range(tally.nested, CASES / 5, CASES);
    assert_in_range(tally.inner_epochs, CASES / 10, UINT32_MAX);
    assert_in_range(tally.inner_steps, CASES / 20, UINT32_MAX);
    assert_in_range(tally.changed, CASES / 20, CASES);
}
