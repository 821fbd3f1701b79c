/*
 * Balance: rows or batches of a window dealt to steps and ranks so that the ranks of each step, and
 * of the steps of one unit together, have like costs. plan_tokens.h has the rules.
 */
#include "daemon/plan/token_plan.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

/* ---- costs ---------------------------------------------------------------------------------- */

enum { FRACTION_BITS = 24 };

struct token_costs token_costs_of(const struct plan_tokens *tokens)
{
    struct token_costs costs = {0};
    uint64_t longest = token_padded(tokens, plan_tokens_limit(tokens));
    uint64_t greatest = max_u64(tokens->tokens, longest);
    unsigned __int128 most;

    if (!tokens->balance)
        return costs;
    costs.linear = (uint64_t)llround(ldexp(tokens->linear, FRACTION_BITS));
    costs.square = (uint64_t)llround(ldexp(tokens->square, FRACTION_BITS));
    /* No row or batch costs more: the square of a sum is at least the sum of the squares. */
    most = (unsigned __int128)greatest * greatest * costs.square +
           (unsigned __int128)greatest * costs.linear;
    while (most >> costs.shift >> 63)
        costs.shift++;
    return costs;
}

uint64_t token_cost(const struct token_plan *plan, uint64_t tokens, uint64_t squares)
{
    const struct token_costs *costs = &plan->costs;
    unsigned __int128 sum =
        (unsigned __int128)tokens * costs->linear + (unsigned __int128)squares * costs->square;

    return (uint64_t)(sum >> costs->shift);
}

/* ---- dealing -------------------------------------------------------------------------------- */

static int plan_balance_costlier(const void *a, const void *b)
{
    const struct token_priced *one = a, *two = b;

    if (one->cost != two->cost)
        return one->cost > two->cost ? -1 : 1;
    return one->item < two->item ? -1 : one->item > two->item;
}

/* What a rank has of the unit in hand. */
struct rank_load {
    unsigned __int128 cost;
    uint32_t rank;
    uint32_t place; /* before, so that equals stay as they are */
};

static int plan_balance_lighter(const void *a, const void *b)
{
    const struct rank_load *one = a, *two = b;

    if (one->cost != two->cost)
        return one->cost < two->cost ? -1 : 1;
    return one->place < two->place ? -1 : one->place > two->place;
}

/* Unit u has groups u, u + units, … of the sorted items; it is known by its first item. */
struct unit_place {
    uint32_t least;
    uint32_t unit;
};

static int plan_balance_earlier(const void *a, const void *b)
{
    const struct unit_place *one = a, *two = b;

    return one->least < two->least ? -1 : one->least > two->least;
}

/* What all units of one dealing have in common. */
struct dealing {
    const struct token_priced *items; /* sorted */
    uint64_t world;
    uint64_t each;
    uint64_t unit;
    uint64_t units;
    struct rank_load *loads; /* of each rank */
};

static const struct token_priced *plan_balance_group(const struct dealing *deal, uint64_t unit,
                                                     uint64_t stratum)
{
    return deal->items + (stratum * deal->units + unit) * deal->each * deal->world;
}

/* Units in the order of their first items: as near to the order of the items as can be. */
static void plan_balance_order_units(const struct dealing *deal, struct unit_place *places)
{
    uint64_t size = deal->each * deal->world;

    for (uint64_t u = 0; u < deal->units; u++) {
        places[u] = (struct unit_place){UINT32_MAX, (uint32_t)u};
        for (uint64_t stratum = 0; stratum < deal->unit; stratum++) {
            const struct token_priced *items = plan_balance_group(deal, u, stratum);

            for (uint64_t i = 0; i < size; i++)
                if (items[i].item < places[u].least)
                    places[u].least = items[i].item;
        }
        assert(places[u].least < UINT32_MAX);
    }
    qsort(places, deal->units, sizeof *places, plan_balance_earlier);
}

/* One item for each rank: the costliest to the one that has the least. */
static void plan_balance_deal_layer(const struct dealing *deal, const struct token_priced *items,
                                    uint32_t *turn)
{
    for (uint64_t i = 0; i < deal->world; i++)
        deal->loads[i].place = (uint32_t)i;
    qsort(deal->loads, deal->world, sizeof *deal->loads, plan_balance_lighter);
    for (uint64_t i = 0; i < deal->world; i++) {
        turn[deal->loads[i].rank] = items[i].item;
        deal->loads[i].cost += items[i].cost;
    }
}

/* Its groups come in another order in each unit, and ranks take turns in being the first. */
static void plan_balance_deal_unit(const struct dealing *deal, uint64_t unit, uint32_t *turn)
{
    for (uint64_t i = 0; i < deal->world; i++)
        deal->loads[i] = (struct rank_load){.rank = (uint32_t)((i + unit) % deal->world)};
    for (uint64_t step = 0; step < deal->unit; step++) {
        const struct token_priced *items =
            plan_balance_group(deal, unit, (step + unit) % deal->unit);

        for (uint64_t layer = 0; layer < deal->each; layer++, turn += deal->world)
            plan_balance_deal_layer(deal, items + layer * deal->world, turn);
    }
}

int token_deal(const struct token_plan *plan, struct token_priced *items, size_t n, uint64_t each,
               uint64_t unit, uint32_t *turn)
{
    uint64_t size = each * unit * plan->world;
    struct dealing deal = {
        .items = items, .world = plan->world, .each = each, .unit = unit, .units = n / size};

    assert(n % size == 0);
    if (n == 0)
        return 0;
    _cleanup_free_ struct unit_place *places = calloc(deal.units, sizeof *places);
    _cleanup_free_ struct rank_load *loads = calloc(deal.world, sizeof *loads);

    if (!places || !loads)
        return -ENOMEM;
    deal.loads = loads;
    qsort(items, n, sizeof *items, plan_balance_costlier);
    plan_balance_order_units(&deal, places);
    for (uint64_t u = 0; u < deal.units; u++)
        plan_balance_deal_unit(&deal, places[u].unit, turn + u * size);
    return 0;
}
