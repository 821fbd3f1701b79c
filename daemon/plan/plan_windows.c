/*
 * Padded batches of an order that is cut window by window (plan_lazy.h): by length, by bucket, or
 * in turn. Each batch is a row of the sequence. What fills no batch begins the next window; at the
 * end of a chain it is cut, too, and samples of several buckets may then share a batch.
 */
#include "daemon/plan/token_plan.h"

#include <assert.h>
#include <errno.h>

struct windowed {
    uint32_t *members;          /* owned; of the batches, one behind the other; then the others */
    uint32_t *left;             /* owned; in no batch */
    struct plan_batch *batches; /* owned; places in `members` */
    uint64_t n, n_left, n_batches;
};

static void plan_windows_deinit(struct windowed *w)
{
    free(w->members);
    free(w->left);
    free(w->batches);
}

/* The length that a batch of such a sample is budgeted with. */
static uint64_t plan_windows_bound(const struct token_plan *plan, uint32_t sample)
{
    uint64_t length = token_length(plan, sample), interval = plan->params.interval;

    return plan->params.strategy == PLAN_BUCKET ? ((length - 1) / interval + 1) * interval : length;
}

/* Where the batch ends that begins at `at`; *ret_full: no further sample fits, of its bucket unless
 * it `joins` others. */
static uint64_t plan_windows_batch_end(const struct token_plan *plan, const uint32_t *members,
                                       uint64_t at, uint64_t n, bool joins, bool *ret_full)
{
    bool one_bucket = plan->params.strategy == PLAN_BUCKET && !joins;
    uint64_t longest = plan_windows_bound(plan, members[at]), end = at + 1;

    for (; end < n; end++) {
        uint64_t bound = plan_windows_bound(plan, members[end]);

        if ((one_bucket && bound != longest) ||
            token_exceeds(&plan->params, end - at + 1, max_u64(bound, longest)))
            break;
        longest = max_u64(bound, longest);
    }
    *ret_full = (end < n && !one_bucket) || end - at >= token_fits(&plan->params, longest);
    return end;
}

static void plan_windows_add(struct windowed *w, const uint32_t *members, uint64_t count)
{
    memcpy(w->members + w->n, members, count * sizeof *members);
    w->batches[w->n_batches++] =
        (struct plan_batch){.first = (uint32_t)w->n, .count = (uint32_t)count};
    w->n += count;
}

static void plan_windows_cut(const struct token_plan *plan, const uint32_t *members, uint64_t n,
                             bool last, struct windowed *w)
{
    bool full;

    for (uint64_t at = 0, end; at < n; at = end) {
        end = plan_windows_batch_end(plan, members, at, n, false, &full);
        if (full) {
            plan_windows_add(w, members + at, end - at);
            continue;
        }
        memcpy(w->left + w->n_left, members + at, (end - at) * sizeof *members);
        w->n_left += end - at;
    }
    for (uint64_t at = 0, end; last && at < w->n_left; at = end) {
        end = plan_windows_batch_end(plan, w->left, at, w->n_left, true, &full);
        plan_windows_add(w, w->left + at, end - at);
    }
    w->n_left = last ? 0 : w->n_left;
    assert(w->n + w->n_left == n);
}

/* The batches become rows, in a shuffled order, with what is left behind them. */
static int plan_windows_write(struct token_plan *plan, const struct windowed *w, uint64_t window,
                              uint64_t *first)
{
    bool shuffled = plan->shuffled && plan->params.strategy != PLAN_IN_TURN;
    struct permute_native shuffle;
    uint64_t at = *first;
    int r = 0;

    if (shuffled)
        token_plan_shuffle(plan, SHUFFLE_ROWS, window, w->n_batches, &shuffle);
    for (uint64_t i = 0; r == 0 && i < w->n_batches; i++) {
        const struct plan_batch *batch = &w->batches[shuffled ? permute_native_at(&shuffle, i) : i];

        memcpy(plan->made.members + at, w->members + batch->first,
               batch->count * sizeof *w->members);
        r = plan_groups_add_row(&plan->made, at, at + batch->count);
        at += batch->count;
    }
    memcpy(plan->made.members + at, w->left, w->n_left * sizeof *w->left);
    *first = at;
    return r;
}

int token_batch_window(struct token_plan *plan, uint64_t window, uint64_t *first, bool last)
{
    _cleanup_(plan_windows_deinit) struct windowed w = {0};
    uint32_t *members = plan->made.members + *first;
    uint64_t n = plan->count - *first;
    struct plan_keys keys = token_keys(plan);

    if (n == 0)
        return 0;
    w.members = calloc(n, sizeof *w.members);
    w.left = calloc(n, sizeof *w.left);
    w.batches = calloc(n, sizeof *w.batches);
    if (!w.members || !w.left || !w.batches)
        return -ENOMEM;
    if (plan->params.strategy != PLAN_IN_TURN)
        plan_sort(&keys, members, w.left, n);
    plan_windows_cut(plan, members, n, last, &w);
    return plan_windows_write(plan, &w, window, first);
}
