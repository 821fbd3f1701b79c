/* Mixtures inside mixtures. See mix_nested.h. */
#include "daemon/plan/mix_nested.h"

#include "proto/spec.h"

#include <assert.h>
#include <errno.h>

/* Keeps the seeds of later epochs apart from those of children. */
#define MIX_NESTED_STREAM UINT64_C(0x6d69782063796365)

/* ---- steps of the outermost one -------------------------------------------------------------- */

/* A mixture that another one stands in. */
struct mix_around {
    const struct mix_around *around; /* that this one stands in; NULL: it is the outermost */
    const struct mix_shares *shares;
    uint64_t cycle; /* positions, after which its order begins again; 0: it does not */
    uint32_t child; /* which of its children the other one is */
};

static uint64_t mix_around_share(const struct mix_around *around, uint64_t position)
{
    const struct mix_shares *shares = around->shares;
    uint64_t at = min_u64(position, MIX_POSITIONS - 1);

    return mix_whole(mix_shares_at(shares, mix_shares_stretch(shares, at), around->child, at));
}

/* How many of the outermost mixture's first `position` samples are due to the child. */
static uint64_t mix_around_due(const struct mix_around *around, uint64_t position)
{
    uint64_t at = around->around ? mix_around_due(around->around, position) : position;

    if (around->cycle == 0)
        return mix_around_share(around, at);
    return at / around->cycle * mix_around_share(around, around->cycle) +
           mix_around_share(around, at % around->cycle);
}

/* Converts the schedule to the child's own samples; each entry gets at least one. */
static int mix_around_convert(const struct plan_mix *mix, struct mix_point *points,
                              struct mix_schedule *ret)
{
    const struct mix_schedule *schedule = &mix->schedule;
    uint64_t position;

    for (uint32_t i = 0; i < schedule->n_points; i++) {
        points[i] = schedule->points[i];
        if (mul_overflows(points[i].step, schedule->step_samples, &position) ||
            position >= MIX_POSITIONS)
            return -EINVAL;
        points[i].step = mix_around_due(mix->around, position);
        if (i > 0)
            points[i].step = max_u64(points[i].step, points[i - 1].step + 1);
    }
    *ret = *schedule;
    ret->points = points;
    ret->step_samples = 1;
    return 0;
}

/* ---- what a mixture inside another one is ---------------------------------------------------- */

static uint32_t mix_nested_leaves(const struct plan_mix *mix, uint32_t child)
{
    return mix->children ? spec_mixture_leaves(&mix->children[child]) : 1;
}

bool plan_mix_ends(const struct plan_mix *mix, uint64_t *ret)
{
    uint64_t end = 0;
    uint32_t leaf = 0;

    for (uint32_t i = 0; i < mix->schedule.n; i++) {
        for (uint32_t n = mix_nested_leaves(mix, i); n > 0; n--)
            if (add_overflows(end, mix->sizes[leaf++], &end))
                return false;
        ret[i] = end;
    }
    return true;
}

static bool mix_nested_is_mix(const struct plan_mix *mix, uint32_t child)
{
    return mix->children && mix->children[child].kind == DATASET_MIX;
}

/* Of a child that is a mixture; `leaf`: the first of its sizes. */
static struct plan_mix mix_nested_of(const struct plan_mix *mix, uint32_t child, uint32_t leaf)
{
    struct plan_mix inner = plan_mix_of(&mix->children[child]);

    inner.sizes = mix->sizes + leaf;
    return inner;
}

/* Says where the mixture is that `err` is about: "dataset.stop" is "dataset.datasets.1.stop". */
static int mix_nested_refuse(uint32_t child, int r, struct dl_error *err)
{
    struct dl_error inner, place;

    if (!err)
        return r;
    inner = *err;
    (void)dl_error_set(&place, 0, "", "dataset.datasets.%u%s", child,
                       inner.path + strlen("dataset"));
    return dl_error_set(err, -r, place.message, "%s", inner.message);
}

int plan_mix_flatten(const struct plan_mix *mix, uint64_t *sizes, struct plan_mix *ret,
                     struct dl_error *err)
{
    uint32_t leaf = 0;

    *ret = *mix;
    if (!mix->children)
        return 0;
    for (uint32_t i = 0; i < mix->schedule.n; i++) {
        sizes[i] = mix->sizes[leaf];
        if (mix_nested_is_mix(mix, i)) {
            struct plan_mix inner = mix_nested_of(mix, i, leaf);
            int r = plan_mix_count(&inner, 0, &sizes[i], err);
            if (r < 0)
                return mix_nested_refuse(i, r, err);
        }
        leaf += mix_nested_leaves(mix, i);
    }
    ret->sizes = sizes;
    ret->children = NULL;
    return 0;
}

/* ---- its order ------------------------------------------------------------------------------- */

/* The order and the children of one of its epochs, if they are not so already. */
static void mix_nested_key(struct mixed_nested *nested, uint64_t seed, uint64_t cycle)
{
    const struct sampler_key key = {.seed = seed, .epoch = cycle, .stream = MIX_NESTED_STREAM};

    if (nested->keyed && nested->seed == seed && nested->cycle == cycle)
        return;
    nested->keyed = true;
    nested->seed = seed;
    nested->cycle = cycle;
    uint64_t own = sampler_native_bits(&key, 0).high;
    mix_order_key(&nested->order, own, nested->own.epoch);
    mixed_children_key(&nested->own, own);
}

uint64_t mixed_nested_index(struct mixed_nested *nested, uint64_t seed, uint64_t nth)
{
    uint64_t cycle = nested->endless ? 0 : nth / nested->size;

    mix_nested_key(nested, seed, cycle);
    struct mix_place place = mix_order_at(&nested->order, nth - cycle * nested->size);
    assert(place.child < nested->own.n);
    return mixed_children_index(&nested->own, place.child, place.nth);
}

uint64_t mixed_nested_missing(const struct mixed_nested *nested, uint64_t nth)
{
    const struct mix_shares *shares = &nested->order.shares;
    uint64_t at = nested->endless ? nth : nth % nested->size;
    uint64_t missing = mix_order_missing(&nested->order, at);

    for (uint32_t i = 0; i < shares->n; i++)
        missing += mixed_children_missing(
            &nested->own, i,
            mix_whole(mix_shares_at(shares, mix_shares_stretch(shares, at), i, at)));
    return missing;
}

/* ---- making one ------------------------------------------------------------------------------ */

static int mix_nested_order(struct mix_order *order, const struct plan_mix *mix)
{
    struct mix_schedule schedule;
    struct mix_point *points;

    if (mix->schedule.n_points == 1)
        return mix_order_init(order, &mix->schedule, 0, 0);
    if (!mix->around || mix->stop != MIX_STOP_NEVER)
        return -EINVAL;
    points = calloc(mix->schedule.n_points, sizeof *points);
    if (!points)
        return -ENOMEM;
    int r = mix_around_convert(mix, points, &schedule);
    if (r == 0)
        r = mix_order_init(order, &schedule, 0, 0);
    free(points);
    return r;
}

static int mixed_children_nest(struct mixed_children *own, const struct plan_mix *mix,
                               struct mix_around *around);

static int mix_nested_fill(struct mixed_nested *nested, const struct plan_mix *mix, uint64_t epoch,
                           bool in_turn)
{
    int r = plan_mix_count(mix, 0, &nested->size, NULL);

    if (r == 0 && nested->size == 0)
        r = -EINVAL;
    if (r == 0)
        r = mix_nested_order(&nested->order, mix);
    if (r < 0)
        return r;
    nested->endless = mix->stop == MIX_STOP_NEVER;
    assert(nested->order.shares.n == mix->schedule.n);
    if (!nested->endless)
        nested->order.plain = (nested->size - 1) / MIX_WINDOW * MIX_WINDOW;
    r = mixed_children_init(&nested->own, mix, 0, epoch, in_turn);
    if (r < 0)
        return r;
    struct mix_around around = {.around = mix->around,
                                .shares = &nested->order.shares,
                                .cycle = nested->endless ? 0 : nested->size};
    return mixed_children_nest(&nested->own, mix, &around);
}

int mixed_nested_new(const struct plan_mix *mix, uint64_t epoch, bool in_turn,
                     struct mixed_nested **ret)
{
    struct mixed_nested *nested = calloc(1, sizeof *nested);
    int r = nested ? mix_nested_fill(nested, mix, epoch, in_turn) : -ENOMEM;

    if (r < 0) {
        mixed_nested_free(nested);
        return r;
    }
    *ret = nested;
    return 0;
}

struct mixed_nested *mixed_nested_free(struct mixed_nested *nested)
{
    if (nested) {
        mix_order_deinit(&nested->order);
        mixed_children_deinit(&nested->own);
        free(nested);
    }
    return NULL;
}

uint64_t mixed_nested_bytes(const struct mixed_nested *nested)
{
    return sizeof *nested - sizeof nested->order + mix_order_bytes(&nested->order) +
           mixed_children_bytes(&nested->own);
}

static int mixed_children_nest(struct mixed_children *own, const struct plan_mix *mix,
                               struct mix_around *around)
{
    uint32_t leaf = 0;
    int r = 0;

    if (!mix->children)
        return 0;
    own->nested = calloc(mix->schedule.n, sizeof(struct mixed_nested *));
    if (!own->nested)
        return -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < mix->schedule.n; i++) {
        if (mix_nested_is_mix(mix, i)) {
            struct plan_mix inner = mix_nested_of(mix, i, leaf);
            around->child = i;
            inner.around = around;
            r = mixed_nested_new(&inner, own->epoch, own->in_turn, &own->nested[i]);
        }
        leaf += mix_nested_leaves(mix, i);
    }
    return r;
}

static bool mix_nested_has_steps(const struct plan_mix *mix)
{
    bool steps = false;

    for (uint32_t i = 0; mix->children && i < mix->schedule.n; i++)
        steps = steps ||
                (mix_nested_is_mix(mix, i) && (mix->children[i].n_points > 1 ||
                                               spec_mixture_has_inner_steps(&mix->children[i])));
    return steps;
}

int mixed_children_nest_all(struct mixed_children *own, const struct plan_mix *mix)
{
    struct mix_around around = {.shares = NULL};
    struct mix_order order = {.seed = 0};
    int r = 0;

    /* Its shares are known with its order: where accounts are closed they depend on it. */
    if (mix_nested_has_steps(mix))
        r = mix_order_init(&order, &mix->schedule, 0, 0);
    around.shares = &order.shares;
    if (r == 0)
        r = mixed_children_nest(own, mix, &around);
    mix_order_deinit(&order);
    return r;
}
