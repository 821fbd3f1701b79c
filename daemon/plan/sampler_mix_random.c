/*
 * Mixtures whose children are drawn at random: MIX_DRAW_RANDOM. The child at position k is where
 * the k-th number of NumPy's generator for the loader's seed, of 53 bits, lies among the weights
 * there: what numpy's Generator.choice(children, p=weights) draws, and so Hugging Face's
 * interleave_datasets(probabilities=, seed=). (NumPy adds weights up in doubles, and here they are
 * integers, so a draw in about 2^53 may differ.) With PLAN_SEQUENTIAL children are taken in turn,
 * as there.
 *
 * Which of a child's samples comes depends on all earlier draws. The counts at the beginning of a
 * window are kept for the latest windows, among which ranks go back and forth, and for a few of
 * all, spaced as needed. Draws are repeated from the nearest one before.
 */
#include <errno.h>

#include "daemon/plan/mix_timeline.h"
#include "daemon/plan/pcg64.h"
#include "daemon/plan/sampler_mix.h"

enum { DRAWN_WINDOW = 1024, DRAWN_LAST = 64, DRAWN_SPARSE = 64 };

#define DRAWN_NONE UINT64_MAX

struct drawn_mix {
    struct sampler base;
    struct mixed_children own;
    struct mix_timeline timeline; /* owned */
    struct pcg64 fresh;           /* before the first draw */
    uint64_t first;               /* position of the order where the epoch begins */
    uint64_t window;              /* the current one; or DRAWN_NONE */
    uint8_t child[DRAWN_WINDOW];
    uint16_t earlier[DRAWN_WINDOW]; /* samples of that child before it, in the window */
    uint64_t last[DRAWN_LAST];      /* windows; or DRAWN_NONE */
    uint64_t apart;                 /* windows between two of the sparse ones: 0, apart, … */
    uint32_t n_sparse;
    uint64_t *counts; /* owned; of each child: before the window in hand, behind it, and before
                         those in `last` and the sparse ones */
};

static uint64_t *sampler_drawn_counts(const struct drawn_mix *drawn, uint32_t row)
{
    return drawn->counts + (uint64_t)row * drawn->timeline.n;
}

enum { DRAWN_BEFORE, DRAWN_BEHIND, DRAWN_ROWS };

static uint64_t *sampler_drawn_last(const struct drawn_mix *drawn, uint64_t i)
{
    return sampler_drawn_counts(drawn, DRAWN_ROWS + (uint32_t)i);
}

static uint64_t *sampler_drawn_sparse(const struct drawn_mix *drawn, uint64_t i)
{
    return sampler_drawn_counts(drawn, DRAWN_ROWS + DRAWN_LAST + (uint32_t)i);
}

static void sampler_drawn_copy(const struct drawn_mix *drawn, uint64_t *to, const uint64_t *from)
{
    memcpy(to, from, drawn->timeline.n * sizeof *to);
}

/* ---- the kept counts ------------------------------------------------------------------------- */

/* Every second one makes room for as many further on. */
static void sampler_drawn_thin_out(struct drawn_mix *drawn)
{
    for (uint32_t i = 1; i < DRAWN_SPARSE / 2; i++)
        sampler_drawn_copy(drawn, sampler_drawn_sparse(drawn, i),
                           sampler_drawn_sparse(drawn, 2 * i));
    drawn->n_sparse = DRAWN_SPARSE / 2;
    drawn->apart *= 2;
}

/* The counts before the window in hand are known from now on. */
static void sampler_drawn_note(struct drawn_mix *drawn)
{
    const uint64_t *before = sampler_drawn_counts(drawn, DRAWN_BEFORE);
    uint64_t place = drawn->window % DRAWN_LAST;

    drawn->last[place] = drawn->window;
    sampler_drawn_copy(drawn, sampler_drawn_last(drawn, place), before);
    if (drawn->window != drawn->n_sparse * drawn->apart)
        return;
    if (drawn->n_sparse == DRAWN_SPARSE)
        sampler_drawn_thin_out(drawn);
    sampler_drawn_copy(drawn, sampler_drawn_sparse(drawn, drawn->n_sparse++), before);
}

/* The nearest window at or before this one whose beginning is known; *ret: its counts, or NULL for
 * 0. */
static uint64_t sampler_drawn_nearest(const struct drawn_mix *drawn, uint64_t window,
                                      const uint64_t **ret)
{
    uint64_t nearest = 0;

    *ret = NULL;
    if (drawn->n_sparse > 0) {
        uint64_t i = min_u64(window / drawn->apart, drawn->n_sparse - 1);

        nearest = i * drawn->apart;
        *ret = sampler_drawn_sparse(drawn, i);
    }
    if (drawn->window < window && drawn->window + 1 >= nearest) {
        nearest = drawn->window + 1;
        *ret = sampler_drawn_counts(drawn, DRAWN_BEHIND);
    }
    for (uint32_t i = 0; i < DRAWN_LAST; i++) {
        if (drawn->last[i] == DRAWN_NONE || drawn->last[i] > window || drawn->last[i] < nearest)
            continue;
        nearest = drawn->last[i];
        *ret = sampler_drawn_last(drawn, i);
    }
    return nearest;
}

/* ---- draws ----------------------------------------------------------------------------------- */

/* The weights up to each child, in units. */
static void sampler_drawn_sum_up(const struct mix_spot *spot, mix_units *ret)
{
    mix_units sum = 0;

    for (uint32_t i = 0; i < spot->shares->n; i++)
        ret[i] = sum += mix_spot_weight(spot, i);
}

static uint32_t sampler_drawn_choose(const mix_units *sums, uint64_t bits)
{
    mix_units point = (mix_units)(bits >> 11) << (MIX_UNIT_BITS - 53);
    uint32_t child = 0;

    while (point >= sums[child])
        child++; /* the last sum is above any point */
    return child;
}

/* The window in hand; its counts before are there. */
static void sampler_drawn_draw(struct drawn_mix *drawn)
{
    uint64_t begin = drawn->window * DRAWN_WINDOW;
    const uint64_t *before = sampler_drawn_counts(drawn, DRAWN_BEFORE);
    uint64_t *behind = sampler_drawn_counts(drawn, DRAWN_BEHIND);
    mix_units sums[DL_BOUND_MIX_CHILDREN];
    struct pcg64 generator = drawn->fresh;

    pcg64_skip(&generator, begin);
    sampler_drawn_copy(drawn, behind, before);
    for (uint32_t place = 0; place < DRAWN_WINDOW; place++) {
        struct mix_spot spot = mix_timeline_spot(&drawn->timeline, begin + place);

        if (place == 0 || !mix_spot_is_as_before(&spot))
            sampler_drawn_sum_up(&spot, sums);
        uint32_t child = sampler_drawn_choose(sums, pcg64_next(&generator));

        drawn->child[place] = (uint8_t)child;
        drawn->earlier[place] = (uint16_t)(behind[child]++ - before[child]);
    }
}

static void sampler_drawn_find(struct drawn_mix *drawn, uint64_t window)
{
    const uint64_t *known;
    uint64_t *before = sampler_drawn_counts(drawn, DRAWN_BEFORE);
    uint64_t at = sampler_drawn_nearest(drawn, window, &known);

    if (known)
        sampler_drawn_copy(drawn, before, known);
    else
        memset(before, 0, drawn->timeline.n * sizeof *before);
    for (; at <= window; at++) {
        if (drawn->window == at - 1)
            sampler_drawn_copy(drawn, before, sampler_drawn_counts(drawn, DRAWN_BEHIND));
        drawn->window = at;
        sampler_drawn_note(drawn);
        sampler_drawn_draw(drawn);
    }
}

/* ---- the sampler ----------------------------------------------------------------------------- */

static uint64_t sampler_drawn_at(struct sampler *sampler, uint64_t position)
{
    struct drawn_mix *drawn = container_of(sampler, struct drawn_mix, base);
    uint64_t at = drawn->first + position, place = at % DRAWN_WINDOW;

    if (drawn->window != at / DRAWN_WINDOW)
        sampler_drawn_find(drawn, at / DRAWN_WINDOW);
    uint32_t child = drawn->child[place];
    const uint64_t *before = sampler_drawn_counts(drawn, DRAWN_BEFORE);
    return mixed_children_index(&drawn->own, child, before[child] + drawn->earlier[place]);
}

/* A draw takes as long as two shuffled samples (plan_backlog()), with many children three. */
static uint64_t sampler_drawn_missing(const struct sampler *sampler, uint64_t end)
{
    const struct drawn_mix *drawn = container_of(sampler, const struct drawn_mix, base);
    uint64_t window = (drawn->first + end - 1) / DRAWN_WINDOW;
    const uint64_t *known;

    if (window == drawn->window)
        return 0;
    return 3 * DRAWN_WINDOW * (window - sampler_drawn_nearest(drawn, window, &known));
}

static void sampler_drawn_free(struct sampler *sampler)
{
    struct drawn_mix *drawn = container_of(sampler, struct drawn_mix, base);

    mixed_children_deinit(&drawn->own);
    mix_timeline_deinit(&drawn->timeline);
    free(drawn->counts);
    free(drawn);
}

static int sampler_drawn_fill(struct drawn_mix *drawn, const struct plan_params *params)
{
    const struct plan_mix *mix = &params->mix;
    uint64_t rows = DRAWN_ROWS + DRAWN_LAST + DRAWN_SPARSE;
    int r = plan_mix_count(mix, params->epoch, &drawn->base.count, NULL);

    if (r == 0)
        r = mixed_children_of(&drawn->own, params);
    if (r == 0)
        r = mix_timeline_init(&drawn->timeline, &mix->schedule, mix->changes);
    if (r < 0)
        return r;
    drawn->counts = calloc(rows * mix->schedule.n, sizeof *drawn->counts);
    if (!drawn->counts)
        return -ENOMEM;
    drawn->base.bytes = sizeof *drawn + mix_timeline_bytes(&drawn->timeline) +
                        rows * mix->schedule.n * sizeof *drawn->counts;
    pcg64_init(&drawn->fresh, params->seed);
    drawn->first = params->epoch * mix->length;
    drawn->window = DRAWN_NONE;
    drawn->apart = 1;
    for (uint32_t i = 0; i < DRAWN_LAST; i++)
        drawn->last[i] = DRAWN_NONE;
    return 0;
}

int sampler_mix_random_new(const struct plan_params *params, struct sampler **ret)
{
    static const struct sampler_kind_ops ops = {
        .missing = sampler_drawn_missing, .at = sampler_drawn_at, .free = sampler_drawn_free};
    if (params->mix.stop != MIX_STOP_NEVER || params->mix.by == MIX_BY_TOKENS)
        return -EINVAL;
    struct drawn_mix *drawn = calloc(1, sizeof *drawn);

    if (!drawn)
        return -ENOMEM;
    drawn->base.ops = &ops;
    int r = sampler_drawn_fill(drawn, params);
    if (r < 0) {
        sampler_drawn_free(&drawn->base);
        return r;
    }
    *ret = &drawn->base;
    return 0;
}
