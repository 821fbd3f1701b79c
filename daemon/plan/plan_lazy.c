/* Windows of an order that is packed while its lengths are being taken: see plan_lazy.h. */
#include "daemon/plan/plan_lazy.h"

#include <assert.h>
#include <errno.h>

#include "daemon/plan/token_plan.h"
#include "proto/common/array.h"

/* ---- which rows are which steps -------------------------------------------------------------- */

/* Rows of one step, for all ranks of a world: with padding each is a batch. */
static uint64_t plan_lazy_group(const struct plan_tokens *tokens, uint64_t world)
{
    uint64_t each = tokens->strategy == PLAN_PACK ? tokens->tokens / tokens->row_length : 1;

    return each * min_u64(world, UINT64_C(1) << 32);
}

/* Rows that other world sizes have taken; or as many as there can be. */
static uint64_t plan_lazy_rows_before(const struct plan_tokens *tokens,
                                      const struct history *before)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < before->n; i++) {
        const struct history_stretch *stretch = &before->stretches[i];
        uint64_t group = plan_lazy_group(tokens, stretch->world), taken;

        if (mul_overflows(group, stretch->steps, &taken) || add_overflows(rows, taken, &rows))
            return UINT64_MAX;
    }
    return rows;
}

/* The first step all of whose rows lie at the mark or behind it. */
static uint64_t plan_lazy_first_step(const struct plan_tokens *tokens, uint64_t base,
                                     uint64_t world)
{
    uint64_t group = plan_lazy_group(tokens, world), rows = tokens->mark.rows;

    return rows > base ? (rows - base - 1) / group + 1 : 0;
}

uint64_t plan_first_step(const struct plan_params *params)
{
    const struct plan_tokens *tokens = &params->tokens;

    return tokens->lazy == 0
               ? 0
               : plan_lazy_first_step(tokens, plan_lazy_rows_before(tokens, &params->before),
                                      params->world);
}

bool token_lazy_takes_mark(const struct plan_tokens *tokens, uint64_t count)
{
    const struct lazy_mark *mark = &tokens->mark;
    uint64_t taken;

    return mark->window % LAZY_CHAIN == 0 && !mul_overflows(mark->window, tokens->lazy, &taken) &&
           taken <= count && mark->rows <= taken; /* a row has a sample at least */
}

/* ---- beginning ------------------------------------------------------------------------------- */

static int plan_lazy_add_mark(struct token_lazy *lazy, uint64_t rows)
{
    if (!array_reserve(lazy->marks, lazy->marks_room, lazy->n_marks + 1))
        return -ENOMEM;
    lazy->marks[lazy->n_marks++] = rows;
    return 0;
}

int token_lazy_begin(struct token_plan *plan, struct sampler *sampler)
{
    const struct plan_tokens *tokens = &plan->params;
    uint64_t base = plan_lazy_rows_before(tokens, &plan->before);
    uint64_t skipped = plan_lazy_first_step(tokens, base, plan->world);

    assert(tokens->lazy > 0 && !plan->prepared);
    int r = token_begin_order(plan, sampler);
    if (r < 0)
        return r;
    plan->lazy = (struct token_lazy){
        .count = sampler->count,
        .taken = tokens->mark.window * tokens->lazy,
        .windows = tokens->mark.window,
        .base = base,
        .start = base + skipped * plan_lazy_group(tokens, plan->world) - tokens->mark.rows,
        .skipped = skipped,
        .steps_before = skipped};
    plan->prepared = true;
    return plan_lazy_add_mark(&plan->lazy, tokens->mark.rows);
}

bool token_lazy_is_whole(const struct token_plan *plan)
{
    return plan->prepared && plan->lazy.taken == plan->lazy.count;
}

uint64_t token_lazy_window(const struct token_plan *plan, uint64_t *ret_first)
{
    *ret_first = plan->lazy.taken;
    return min_u64(plan->params.lazy, plan->lazy.count - plan->lazy.taken);
}

/* ---- cutting --------------------------------------------------------------------------------- */

/* What others have taken, or a step before the first, is in no group, and is not counted. */
static void plan_lazy_pass_over(struct token_plan *plan)
{
    const struct plan_groups *made = &plan->made;
    struct token_lazy *lazy = &plan->lazy;

    for (; lazy->row < min_u64(lazy->start, made->n_rows); lazy->row++)
        for (uint64_t i = made->rows[lazy->row]; i < made->rows[lazy->row + 1]; i++)
            plan->totals.overlong -= plan->params.lengths[made->members[i]] > plan->limit;
}

/* Groups of the rows that none has yet. */
static int plan_lazy_cut_groups(struct token_plan *plan)
{
    struct token_lazy *lazy = &plan->lazy;
    uint64_t group = plan_lazy_group(&plan->params, plan->world);
    bool emit = token_lazy_is_whole(plan) && plan->params.leftover == PLAN_EMIT;

    while (plan->made.n_rows - lazy->row >= (emit ? 1 : group)) {
        uint64_t count = min_u64(group, plan->made.n_rows - lazy->row);
        int r = token_plan_add(plan, lazy->row, count);

        if (r < 0)
            return r;
        token_plan_count_group(plan, &plan->made.groups[plan->made.n_groups - 1]);
        lazy->row += count;
    }
    return 0;
}

int token_lazy_cut(struct token_plan *plan, struct sampler *sampler)
{
    struct token_lazy *lazy = &plan->lazy;
    uint64_t first, n = token_lazy_window(plan, &first);

    if (sampler->ops->lacks) {
        sampler->ops->extend(sampler, first + n);
        lazy->count = sampler->count;
        if (sampler->known < min_u64(first + n, lazy->count))
            return 0;
        n = token_lazy_window(plan, &first);
    }
    lazy->steps_before = lazy->skipped + plan->made.n_groups;
    int r = 0;
    if (plan->params.split)
        r = token_take_parts(plan, sampler, first, first + n);
    else
        token_take_positions(plan, sampler, first, first + n);
    if (r < 0)
        return r;
    lazy->taken += n;
    bool whole = token_lazy_is_whole(plan), ends = (lazy->windows + 1) % LAZY_CHAIN == 0;
    r = (plan->params.strategy == PLAN_PACK ? token_pack_window : token_batch_window)(
        plan, lazy->windows++, &lazy->first, whole || ends);
    if (r < 0)
        return r;
    plan_lazy_pass_over(plan);
    r = plan_lazy_cut_groups(plan);
    if (r == 0 && ends)
        r = plan_lazy_add_mark(lazy, plan->params.mark.rows + plan->made.n_rows);
    plan->totals.groups = plan->made.n_groups;
    if (whole && lazy->row < plan->made.n_rows)
        plan->totals.leftover = lazy->first - plan->made.rows[lazy->row];
    return r;
}

/* ---- views ----------------------------------------------------------------------------------- */

uint64_t token_lazy_row(const struct token_plan *plan, uint64_t step)
{
    uint64_t row;

    return mul_overflows(step, plan_lazy_group(&plan->params, plan->world), &row) ||
                   add_overflows(row, plan_lazy_rows_before(&plan->params, &plan->before), &row)
               ? UINT64_MAX
               : row;
}

struct lazy_mark token_lazy_mark(const struct token_plan *plan, uint64_t step)
{
    const struct token_lazy *lazy = &plan->lazy;
    uint64_t row = token_lazy_row(plan, step);
    uint64_t i = plan->children.by_tokens ? 0 : lazy->n_marks - 1;

    while (i > 0 && lazy->marks[i] > row)
        i--;
    return (struct lazy_mark){plan->params.mark.window + i * LAZY_CHAIN, lazy->marks[i]};
}

uint64_t token_lazy_position(const struct token_plan *plan, uint64_t step)
{
    const struct token_lazy *lazy = &plan->lazy;
    double before = (double)plan->params.mark.rows;
    double row = before + (double)plan->made.groups[step - lazy->skipped].first;

    return (uint64_t)((double)lazy->taken * (row / (before + (double)plan->made.n_rows)));
}
