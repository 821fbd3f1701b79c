/*
 * Steps of a mixture's batches of tokens, in an order that keeps the shares.
 *
 * The sampler's order has each child's share at every place. Batches that are sorted, in buckets or
 * packed do not keep that order, and one of them may consist of a single child. So the steps of a
 * mixture are not shuffled like those of other datasets. Each is in the list of the child that it
 * has most of; the lists are shuffled, window after window. Among the first few steps of each list,
 * the next is the one that leaves all children closest to what they have in the sampler's order
 * after as many tokens (or samples, if shares are of samples), by the sum of squared distances.
 *
 * Only the sampler's order is followed, and with it a schedule, random draws, and samples that were
 * left out. If a window runs short of a child, the next window is searched, too.
 */
#include "daemon/plan/token_plan.h"
#include "proto/common/bisect.h"

#include <assert.h>
#include <errno.h>

enum {
    PLAN_MIXED_RATE_BITS = 24,
    /* Steps considered as the next one: this many in all, but of each list at least one and at most
     * PLAN_MIXED_EACH. */
    PLAN_MIXED_LOOKS = 128,
    PLAN_MIXED_DEPTH = 8,
    /* The next window is looked at where fewer steps are left; and two more for each bucket, since
     * one fills sooner and another later. */
    PLAN_MIXED_FEW = 16,
};

#define PLAN_MIXED_NONE UINT32_MAX

/* A place in the sampler's order, and what each child has before it. */
struct mixed_place {
    uint64_t at, sum;
    uint64_t *weights; /* owned */
};

/* One that may come next. */
struct mixed_look {
    uint32_t unit;
    uint64_t sum;
    uint64_t *weights; /* what it has of each child; a part of mixed_steps.parts */
};

struct mixed_list {
    struct mixed_look *looks; /* of its first ones; a part of mixed_steps.looks */
    uint32_t n_looks;
    uint32_t first, last; /* of the list behind them; may be NONE */
};

struct mixed_steps {
    struct token_plan *plan;
    const struct token_children *children;
    const uint32_t *order; /* the sampler's, of `count` members */
    uint64_t count;
    uint64_t units, window;         /* in units, of which a step is one or a part */
    struct mixed_place here, ahead; /* as far as the steps so far; and some steps on */
    struct mixed_place had;         /* of the steps so far, without a place */
    uint64_t span;                  /* from `here` to `ahead` */
    uint64_t *rates;                /* owned; of `ahead` less `here`, in 2^-24 */
    struct mixed_list *lists;       /* owned; of each child */
    struct mixed_look *looks;       /* owned */
    uint64_t *parts;                /* owned */
    uint32_t *next;                 /* owned; behind each unit, in its list */
    uint32_t depth;                 /* looks of a list */
    uint64_t loaded;                /* units in lists, ever */
    uint64_t left;                  /* of these, not yet taken */
};

/* ---- the sampler's order --------------------------------------------------------------------- */

static uint32_t plan_mixed_child(const struct token_children *children, uint32_t index)
{
    return (uint32_t)bisect_ends(children->ends, children->n - 1, index);
}

static void plan_mixed_add(const struct mixed_steps *steps, uint32_t member, uint64_t *weights,
                           uint64_t *sum)
{
    uint64_t weight = steps->children->by_tokens ? token_length(steps->plan, member) : 1;

    weights[plan_mixed_child(steps->children, member)] += weight;
    *sum += weight;
}

static void plan_mixed_go_to(const struct mixed_steps *steps, struct mixed_place *place,
                             uint64_t sum)
{
    while (place->at < steps->count && place->sum < sum) {
        if (place->at + TOKEN_AHEAD < steps->count)
            __builtin_prefetch(&steps->plan->params.lengths[steps->order[place->at + TOKEN_AHEAD]]);
        plan_mixed_add(steps, steps->order[place->at++], place->weights, &place->sum);
    }
}

/* ---- the lists ------------------------------------------------------------------------------- */

static void plan_mixed_look(const struct mixed_steps *steps, struct mixed_look *look)
{
    const struct token_plan *plan = steps->plan;

    memset(look->weights, 0, steps->children->n * sizeof *look->weights);
    look->sum = 0;
    for (uint64_t g = 0; g < plan->unit; g++) {
        const struct plan_group *group = &plan->made.groups[look->unit * plan->unit + g];

        for (uint64_t i = 0; i < plan_groups_stretches(&plan->made, group); i++) {
            uint64_t end, member = plan_groups_stretch(&plan->made, group, i, &end);

            for (; member < end; member++)
                plan_mixed_add(steps, plan->made.members[member], look->weights, &look->sum);
        }
    }
}

/* The child that a unit has most of. `scratch`: for what it has. */
static uint32_t plan_mixed_most(const struct mixed_steps *steps, uint32_t unit, uint64_t *scratch)
{
    struct mixed_look look = {.unit = unit};
    uint32_t most = 0;

    look.weights = scratch;
    plan_mixed_look(steps, &look);
    for (uint32_t i = 1; i < steps->children->n; i++)
        most = look.weights[i] > look.weights[most] ? i : most;
    return most;
}

static void plan_mixed_append(struct mixed_steps *steps, struct mixed_list *list, uint32_t unit)
{
    steps->next[unit] = PLAN_MIXED_NONE;
    if (list->first == PLAN_MIXED_NONE)
        list->first = unit;
    else
        steps->next[list->last] = unit;
    list->last = unit;
}

static void plan_mixed_fill_looks(struct mixed_steps *steps, struct mixed_list *list)
{
    while (list->n_looks < steps->depth && list->first != PLAN_MIXED_NONE) {
        struct mixed_look *look = &list->looks[list->n_looks++];

        look->unit = list->first;
        list->first = steps->next[list->first];
        plan_mixed_look(steps, look);
    }
}

/* The next window's units, in a shuffled order. */
static void plan_mixed_load(struct mixed_steps *steps)
{
    uint64_t first = steps->loaded, n = min_u64(steps->window, steps->units - first);
    uint64_t *scratch = steps->parts; /* its first part is of no list */
    struct permute_native shuffle;

    token_plan_shuffle(steps->plan, SHUFFLE_GROUPS, first / steps->window, n, &shuffle);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t unit = (uint32_t)(first + permute_native_at(&shuffle, i));

        plan_mixed_append(steps, &steps->lists[plan_mixed_most(steps, unit, scratch)], unit);
    }
    for (uint32_t i = 0; i < steps->children->n; i++)
        plan_mixed_fill_looks(steps, &steps->lists[i]);
    steps->loaded += n;
    steps->left += n;
}

/* Whether a child is behind by more than half a step and its list is empty. */
static bool plan_mixed_lacks(const struct mixed_steps *steps)
{
    uint64_t step = steps->had.sum / max_u64(steps->loaded - steps->left, 1);
    bool lacks = false;

    for (uint32_t i = 0; i < steps->children->n; i++)
        lacks = lacks || (steps->lists[i].n_looks == 0 &&
                          steps->had.weights[i] + step / 2 < steps->here.weights[i]);
    return lacks;
}

static void plan_mixed_load_enough(struct mixed_steps *steps)
{
    uint64_t few = PLAN_MIXED_FEW + 2 * (uint64_t)steps->plan->n_buckets;

    while (steps->loaded < steps->units && steps->left < few)
        plan_mixed_load(steps);
    if (steps->loaded < steps->units && steps->left < 2 * steps->window && plan_mixed_lacks(steps))
        plan_mixed_load(steps);
}

/* ---- which one comes ------------------------------------------------------------------------- */

static void plan_mixed_rate(struct mixed_steps *steps)
{
    uint64_t sum = max_u64(steps->ahead.sum - steps->here.sum, 1);

    for (uint32_t i = 0; i < steps->children->n; i++) {
        unsigned __int128 part = steps->ahead.weights[i] - steps->here.weights[i];

        steps->rates[i] = (uint64_t)((part << PLAN_MIXED_RATE_BITS) / sum);
    }
}

/* How far the children are from where they should be, were this one next. */
static unsigned __int128 plan_mixed_distance(const struct mixed_steps *steps,
                                             const struct mixed_look *look)
{
    unsigned __int128 sum = 0;

    for (uint32_t i = 0; i < steps->children->n; i++) {
        uint64_t due =
            (uint64_t)((unsigned __int128)steps->rates[i] * look->sum >> PLAN_MIXED_RATE_BITS);
        int64_t off =
            (int64_t)(steps->had.weights[i] + look->weights[i] - steps->here.weights[i] - due);

        sum += (unsigned __int128)((__int128)off * off);
    }
    return sum;
}

/* The list, and the place in it. */
static struct mixed_list *plan_mixed_choose(const struct mixed_steps *steps, uint32_t *ret)
{
    struct mixed_list *chosen = NULL;
    unsigned __int128 least = 0;

    for (uint32_t i = 0; i < steps->children->n; i++) {
        struct mixed_list *list = &steps->lists[i];

        for (uint32_t j = 0; j < list->n_looks; j++) {
            unsigned __int128 distance = plan_mixed_distance(steps, &list->looks[j]);

            if (!chosen || distance < least) {
                least = distance;
                chosen = list;
                *ret = j;
            }
        }
    }
    return chosen;
}

static uint32_t plan_mixed_take(struct mixed_steps *steps, struct mixed_list *list, uint32_t i)
{
    assert(i < list->n_looks && steps->left > 0);
    struct mixed_look taken = list->looks[i];

    for (uint32_t c = 0; c < steps->children->n; c++)
        steps->had.weights[c] += taken.weights[c];
    steps->had.sum += taken.sum;
    steps->left--;
    list->n_looks--;
    memmove(&list->looks[i], &list->looks[i + 1], (list->n_looks - i) * sizeof taken);
    list->looks[list->n_looks].weights = taken.weights; /* its memory is free again */
    plan_mixed_fill_looks(steps, list);
    return taken.unit;
}

static void plan_mixed_run(struct mixed_steps *steps, uint32_t *turn)
{
    for (uint64_t at = 0; at < steps->units; at++) {
        uint32_t place = 0;

        plan_mixed_go_to(steps, &steps->here, steps->had.sum);
        plan_mixed_go_to(steps, &steps->ahead, steps->here.sum + steps->span);
        plan_mixed_load_enough(steps);
        plan_mixed_rate(steps);
        struct mixed_list *list = plan_mixed_choose(steps, &place);
        assert(list);
        turn[at] = plan_mixed_take(steps, list, place);
    }
    assert(steps->left == 0 && steps->loaded == steps->units);
}

/* ---- making it ------------------------------------------------------------------------------- */

static void plan_mixed_deinit(struct mixed_steps *steps)
{
    free(steps->here.weights);
    free(steps->ahead.weights);
    free(steps->had.weights);
    free(steps->rates);
    free(steps->lists);
    free(steps->looks);
    free(steps->parts);
    free(steps->next);
}

static int plan_mixed_alloc(struct mixed_steps *steps)
{
    uint64_t n = steps->children->n, looks = n * steps->depth;

    steps->here.weights = calloc(n, sizeof *steps->here.weights);
    steps->ahead.weights = calloc(n, sizeof *steps->ahead.weights);
    steps->had.weights = calloc(n, sizeof *steps->had.weights);
    steps->rates = calloc(n, sizeof *steps->rates);
    steps->lists = calloc(n, sizeof *steps->lists);
    steps->looks = calloc(looks, sizeof *steps->looks);
    steps->parts = calloc((looks + 1) * n, sizeof *steps->parts);
    steps->next = calloc(steps->units, sizeof *steps->next);
    return steps->here.weights && steps->ahead.weights && steps->had.weights && steps->rates &&
                   steps->lists && steps->looks && steps->parts && steps->next
               ? 0
               : -ENOMEM;
}

static int plan_mixed_init(struct mixed_steps *steps)
{
    const struct token_plan *plan = steps->plan;
    uint64_t n = steps->children->n, window = plan->params.window / plan->unit, sum = 0;

    steps->window = window == 0 ? steps->units : min_u64(window, steps->units);
    steps->depth = (uint32_t)min_u64(max_u64(PLAN_MIXED_LOOKS / n, 1), PLAN_MIXED_DEPTH);
    if (plan_mixed_alloc(steps) < 0)
        return -ENOMEM;
    for (uint64_t i = 0; i < n; i++)
        steps->lists[i] =
            (struct mixed_list){.looks = steps->looks + i * steps->depth, .first = PLAN_MIXED_NONE};
    for (uint64_t i = 0; i < n * steps->depth; i++)
        steps->looks[i].weights = steps->parts + (i + 1) * n;
    for (uint64_t i = 0; i < steps->count; i++)
        sum += steps->children->by_tokens ? token_length(plan, steps->order[i]) : 1;
    steps->span = max_u64(sum / steps->units, 1) * PLAN_MIXED_FEW;
    return 0;
}

int token_order_mixed(struct token_plan *plan, const uint32_t *order, uint64_t count)
{
    _cleanup_(plan_mixed_deinit) struct mixed_steps steps = {.plan = plan,
                                                             .children = &plan->children,
                                                             .order = order,
                                                             .count = count,
                                                             .units = token_plan_units(plan)};

    if (steps.units == 0)
        return 0;
    plan->turn = calloc(steps.units, sizeof *plan->turn);
    int r = plan->turn ? plan_mixed_init(&steps) : -ENOMEM;
    if (r == 0)
        plan_mixed_run(&steps, plan->turn);
    return r;
}
