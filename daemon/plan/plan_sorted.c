/*
 * Strategy sorted: windows of the order, sorted by length and cut into groups. What a window
 * leaves over are its longest members; they stand at its end, and so at the start of the next.
 * Without `even` a window is cut into batches, and these make groups.
 */
#include "daemon/plan/token_plan.h"

#include "proto/common/array.h"

#include <assert.h>
#include <errno.h>

/*
 * Members first..end-1 are sorted. Returns where the first group ends; `first` when they are too
 * few for a full one. A group is full, too, when the members that are left are fewer than the
 * ranks and already too long.
 */
static uint64_t plan_sorted_group_end(const struct token_plan *plan, uint64_t first, uint64_t end)
{
    const uint32_t *members = plan->made.members;
    uint64_t deep = 0; /* members for each rank that fit */

    for (;; deep++) {
        uint64_t next = first + (deep + 1) * plan->world;
        uint32_t last = token_length(plan, members[min_u64(next, end) - 1]);

        if (token_exceeds(&plan->params, deep + 1, last))
            return first + deep * plan->world;
        if (next > end)
            return first;
    }
}

/* Cuts full groups off the front until no full group is left, or one would begin at `stop` or
 * later. */
static int plan_sorted_cut_front(struct token_plan *plan, uint64_t *first, uint64_t stop,
                                 uint64_t end)
{
    while (*first < stop) {
        uint64_t next = plan_sorted_group_end(plan, *first, end);

        if (next == *first)
            return 0;
        int r = token_plan_add(plan, *first, next - *first);
        if (r < 0)
            return r;
        *first = next;
    }
    return 0;
}

/* Cuts full groups off the back: the longest member says how many there are in one. */
static int plan_sorted_cut_back(struct token_plan *plan, uint64_t first, uint64_t *end)
{
    while (*end > first) {
        uint32_t longest = token_length(plan, plan->made.members[*end - 1]);
        uint64_t count = token_fits(&plan->params, longest) * plan->world;

        if (count > *end - first)
            return 0;
        int r = token_plan_add(plan, *end - count, count);
        if (r < 0)
            return r;
        *end -= count;
    }
    return 0;
}

/*
 * The end of an epoch that drops its leftover. If the last window were only cut from the front,
 * every epoch would leave out the same few samples, the longest. So it is cut from both ends, and
 * the leftover lies anywhere.
 */
static int plan_sorted_cut_last_dropping(struct token_plan *plan, uint64_t first, uint64_t end)
{
    struct permute_native anywhere;
    uint64_t stop = end;

    if (plan->shuffled) {
        token_plan_shuffle(plan, SHUFFLE_END, 0, end - first + 1, &anywhere);
        stop = first + permute_native_at(&anywhere, 0);
    }
    int r = plan_sorted_cut_front(plan, &first, stop, end);
    if (r == 0)
        r = plan_sorted_cut_back(plan, first, &end);
    if (r == 0)
        r = plan_sorted_cut_front(plan, &first, end, end);
    assert(first <= end);
    plan->totals.leftover = end - first;
    return r;
}

/* Cuts one window, sorted. What it leaves begins at *first. */
static int plan_sorted_cut_window(struct token_plan *plan, uint64_t *first, uint64_t end)
{
    if (end == plan->count && plan->params.leftover == PLAN_DROP) {
        int r = plan_sorted_cut_last_dropping(plan, *first, end);

        *first = end;
        return r;
    }
    return plan_sorted_cut_front(plan, first, end, end);
}

/* ---- batches, where ranks need not have equally many samples -------------------------------- */

/* Where the batch ends that begins at `first`; `first` when there are too few members for a full
 * one. */
static uint64_t plan_sorted_batch_end(const struct token_plan *plan, uint64_t first, uint64_t end)
{
    const uint32_t *members = plan->made.members;

    for (uint64_t at = first; at < end; at++)
        if (token_exceeds(&plan->params, at - first + 1, token_length(plan, members[at])))
            return at;
    return first;
}

/* Cuts full batches off the front until no full batch is left, or one would begin at `stop` or
 * later. */
static int plan_sorted_batches_front(struct token_plan *plan, uint64_t *first, uint64_t stop,
                                     uint64_t end)
{
    while (*first < stop) {
        uint64_t next = plan_sorted_batch_end(plan, *first, end);

        if (next == *first)
            return 0;
        int r = plan_groups_add_batch(&plan->made, *first, next - *first);
        if (r < 0)
            return r;
        *first = next;
    }
    return 0;
}

/* Cuts full batches off the back. */
static int plan_sorted_batches_back(struct token_plan *plan, uint64_t first, uint64_t *end)
{
    while (*end > first) {
        uint32_t longest = token_length(plan, plan->made.members[*end - 1]);
        uint64_t count = token_fits(&plan->params, longest);

        if (count > *end - first)
            return 0;
        int r = plan_groups_add_batch(&plan->made, *end - count, count);
        if (r < 0)
            return r;
        *end -= count;
    }
    return 0;
}

static int plan_sorted_is_before(const void *a, const void *b)
{
    const struct plan_batch *one = a, *two = b;

    return one->first < two->first ? -1 : one->first > two->first;
}

/* Takes the batches out that are too many for whole groups: those about the place `gap`. */
static void plan_sorted_drop_batches(struct token_plan *plan, uint64_t before, uint64_t gap)
{
    struct plan_groups *made = &plan->made;
    struct plan_batch *batches = made->batches + before;
    uint64_t n = made->n_batches - before, drop = n % (plan->unit * plan->world), at = 0;

    if (n == 0)
        return;
    qsort(batches, n, sizeof *batches, plan_sorted_is_before);
    while (at < n - drop && batches[at + drop].first <= gap)
        at++;
    memmove(batches + at, batches + at + drop, (n - drop - at) * sizeof *batches);
    made->n_batches -= drop;
    assert((made->n_batches - before) % (plan->unit * plan->world) == 0);
}

/* As plan_sorted_cut_last_dropping(). */
static int plan_sorted_batches_last_dropping(struct token_plan *plan, uint64_t first)
{
    uint64_t before = plan->made.n_batches, end = plan->count, stop = end, all = end - first;
    struct permute_native anywhere;

    if (plan->shuffled) {
        token_plan_shuffle(plan, SHUFFLE_END, 0, all + 1, &anywhere);
        stop = first + permute_native_at(&anywhere, 0);
    }
    int r = plan_sorted_batches_front(plan, &first, stop, end);
    if (r == 0)
        r = plan_sorted_batches_back(plan, first, &end);
    if (r == 0)
        r = plan_sorted_batches_front(plan, &first, end, end);
    if (r < 0)
        return r;
    plan_sorted_drop_batches(plan, before, first);
    plan->totals.leftover = all;
    for (uint64_t i = before; i < plan->made.n_batches; i++)
        plan->totals.leftover -= plan->made.batches[i].count;
    return token_group_batches(plan, before, &before);
}

/* Cuts one window, sorted. What it leaves begins at *first. */
static int plan_sorted_batches_window(struct token_plan *plan, uint64_t *first, uint64_t end)
{
    uint64_t before = plan->made.n_batches, grouped = before;

    if (end == plan->count && plan->params.leftover == PLAN_DROP)
        return plan_sorted_batches_last_dropping(plan, *first);
    int r = plan_sorted_batches_front(plan, first, end, end);
    if (r < 0)
        return r;
    if (end == plan->count)
        return token_group_last_batches(plan, before, *first);
    r = token_group_batches(plan, before, &grouped);
    if (grouped < plan->made.n_batches)
        *first = plan->made.batches[grouped].first;
    plan->made.n_batches = grouped;
    return r;
}

/* ---- windows -------------------------------------------------------------------------------- */

static bool plan_sorted_cuts_batches(const struct token_plan *plan)
{
    return !plan->even && (plan->world > 1 || plan->params.balance);
}

int token_cut_sorted(struct token_plan *plan)
{
    _cleanup_free_ uint32_t *scratch = NULL;
    struct plan_keys keys = token_keys(plan);
    bool batches = plan_sorted_cuts_batches(plan);
    size_t room = 0;
    uint64_t first = 0, end = 0;

    while (end < plan->count) {
        end = max_u64(token_plan_window(plan, first), end + 1);
        assert(first < end && end <= plan->count);
        if (!array_reserve(scratch, room, end - first))
            return -ENOMEM;
        plan_sort(&keys, plan->made.members + first, scratch, end - first);
        int r = batches ? plan_sorted_batches_window(plan, &first, end)
                        : plan_sorted_cut_window(plan, &first, end);
        if (r < 0)
            return r;
    }
    return first < end && !batches ? token_plan_add(plan, first, end - first) : 0;
}
