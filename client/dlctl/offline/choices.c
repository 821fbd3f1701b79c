/* Strategies and intervals, compared by their plans: see choices.h. */
#include "client/dlctl/offline/choices.h"

#include "client/dlctl/offline/offline.h"
#include "daemon/plan/permute.h"

#include <errno.h>

static const uint64_t INTERVALS[] = {1, 2, 4, 8, 16, 32, 64};

_Static_assert(ARRAY_SIZE(INTERVALS) + 2 == CHOICES_MAX, "a row each, one sorted, one packed");

enum { SORTED_WINDOW = 256 }; /* batch.window, where the spec is of something else */

/* What wider buckets, and with them fewer shapes, may cost. */
static const double WORTH = 0.01;

double choice_padding(const struct choice *choice)
{
    return 1 - (double)choice->totals.tokens / (double)choice->totals.padded;
}

double choice_fill(const struct choice *choice, uint64_t batch_tokens)
{
    return (double)choice->totals.tokens / (double)choice->totals.groups / (double)batch_tokens;
}

/* ---- the samples ---------------------------------------------------------------------------- */

static int choices_by_number(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The lengths of `count` samples of all n, in the dataset's order. */
static int choices_draw_lengths(const uint32_t *lengths, uint64_t n, uint64_t count, uint64_t seed,
                                uint32_t **ret)
{
    uint32_t *drawn = calloc(count, sizeof *drawn);
    struct permute_native perm;

    if (!drawn)
        return -ENOMEM;
    permute_native_init(&perm, n, seed, 0, 0);
    for (uint64_t i = 0; i < count; i++)
        drawn[i] = (uint32_t)permute_native_at(&perm, i);
    qsort(drawn, count, sizeof *drawn, choices_by_number);
    for (uint64_t i = 0; i < count; i++)
        drawn[i] = lengths[drawn[i]];
    *ret = drawn;
    return 0;
}

/* ---- the plans ------------------------------------------------------------------------------ */

/* The spec as it would be with this choice; it borrows all of `spec`. */
static struct dl_spec choices_spec_with(const struct dl_spec *spec, const struct choice *choice,
                                        enum leftover leftover)
{
    struct dl_spec with = *spec;
    bool same = spec->collate.kind != COLLATE_PACK && spec->batch.strategy == choice->strategy;

    with.num_samples = 0;
    with.batch.leftover = leftover;
    if (choice->strategy == 0)
        return with;
    with.batch.strategy = choice->strategy;
    with.batch.interval = max_u64(choice->interval, 1);
    if (!same)
        with.batch.window = choice->strategy == STRATEGY_SORTED ? SORTED_WINDOW : 0;
    if (spec->collate.kind == COLLATE_PACK)
        with.collate = (struct spec_collate){.kind = COLLATE_PAD, .multiple_of = 1};
    if (with.collate.to != PAD_TO_BUCKET || choice->strategy != STRATEGY_BUCKET)
        with.collate.to = PAD_TO_LONGEST;
    return with;
}

/* What is to be planned. */
struct job {
    const struct dl_spec *spec; /* borrowed, as `lengths` */
    const uint32_t *lengths;
    uint64_t planned;
    uint64_t samples; /* more than `planned`: these were drawn */
};

/* 0, or -ERANGE: no sample would fit. */
static int choices_work_out(const struct job *job, const struct choice *choice,
                            enum leftover leftover, struct plan_totals *ret, struct dl_error *err)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    const struct dl_spec with = choices_spec_with(job->spec, choice, leftover);
    struct plan_params params = plan_params_of(&with, job->planned);
    int r;

    if (choice->interval > params.tokens.tokens || plan_tokens_limit(&params.tokens) == 0)
        return -ERANGE;
    /* Of a mix, too: all of its samples, once. */
    if (job->planned < job->samples || plan_is_mix(&params)) {
        params.sampler = PLAN_SAMPLES;
        params.replacement = false;
    }
    params.tokens.lengths = job->lengths;
    r = plan_new(&params, &plan);
    if (r == 0)
        r = plan_prepare(plan);
    if (r < 0)
        return dl_error_set(err, -r, "dataset", "its batches of tokens cannot be planned: %s",
                            strerror(-r));
    *ret = *plan_totals(plan);
    return 0;
}

/* `full` in an epoch whose full batches are `scale` times as many; all others are as many. */
static uint64_t choices_extend(uint64_t all, uint64_t full, double scale)
{
    return (uint64_t)((double)full * scale + 0.5) + all - full;
}

/* All samples, and apart from them what makes full batches: they grow with the dataset, and the
 * end of the epoch does not. */
static int choices_extrapolate(const struct job *job, const struct choice *choice,
                               struct plan_totals *totals, struct dl_error *err)
{
    struct plan_totals full = {0};
    int r = choices_work_out(job, choice, LEFTOVER_DROP, &full, err);

    if (r < 0)
        return r;
    /* By tokens: what makes no full batch is longer than the rest. */
    double tokens = (double)totals->tokens * (double)job->samples / (double)job->planned;
    double rest = tokens - (double)(totals->tokens - full.tokens);
    double scale = full.tokens ? rest / (double)full.tokens : 1;

    *totals = (struct plan_totals){
        .groups = choices_extend(totals->groups, full.groups, scale),
        .tokens = choices_extend(totals->tokens, full.tokens, scale),
        .padded = choices_extend(totals->padded, full.padded, scale),
    };
    return 0;
}

static int choices_add(const struct job *job, struct choice choice, struct choices *ret,
                       struct dl_error *err)
{
    struct plan_totals *totals = &choice.totals;
    int r = choices_work_out(job, &choice, LEFTOVER_EMIT, totals, err);

    if (r == 0 && job->planned < job->samples)
        r = choices_extrapolate(job, &choice, totals, err);
    if (r == 0 && totals->groups > 0)
        ret->rows[ret->n++] = choice;
    return r == -ERANGE ? 0 : r;
}

/* ---- what is good --------------------------------------------------------------------------- */

static double choices_fill_of(const struct choices *c, uint32_t row)
{
    return choice_fill(&c->rows[row], c->batch_tokens);
}

static void choices_judge(struct choices *c)
{
    double fullest = 0;

    c->best = 0;
    c->wide = UINT32_MAX;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->rows[i].interval && choices_fill_of(c, i) > fullest)
            fullest = choices_fill_of(c, i);
    for (uint32_t i = 0; i < c->n; i++)
        if (c->rows[i].interval && choices_fill_of(c, i) >= fullest - WORTH)
            c->wide = i;
    /* Buckets have to be better, not as good: the rows before them need no interval. */
    for (uint32_t i = 1; i < c->n; i++)
        if ((!c->rows[i].interval || i == c->wide) &&
            choices_fill_of(c, i) > choices_fill_of(c, c->best))
            c->best = i;
}

int choices_make(const struct dl_spec *spec, const uint32_t *lengths, uint64_t n,
                 struct choices *ret, struct dl_error *err)
{
    struct job job = {
        .spec = spec, .lengths = lengths, .planned = min_u64(n, CHOICES_SAMPLES), .samples = n};
    _cleanup_free_ uint32_t *drawn = NULL;
    int r = spec_check_length(spec, n, err);

    if (r < 0)
        return r;
    *ret = (struct choices){.planned = job.planned, .batch_tokens = spec->batch.tokens};
    if (job.planned < n) {
        if (choices_draw_lengths(lengths, n, job.planned, spec->seed, &drawn) < 0)
            return dl_error_set(err, ENOMEM, "dataset", "%s", strerror(ENOMEM));
        job.lengths = drawn;
    }
    if (spec->collate.kind == COLLATE_PACK)
        r = choices_add(&job, (struct choice){0}, ret, err);
    if (r == 0)
        r = choices_add(&job, (struct choice){.strategy = STRATEGY_SORTED}, ret, err);
    for (size_t i = 0; i < ARRAY_SIZE(INTERVALS) && r == 0; i++)
        r = choices_add(
            &job, (struct choice){.strategy = STRATEGY_BUCKET, .interval = INTERVALS[i]}, ret, err);
    choices_judge(ret);
    return r;
}
