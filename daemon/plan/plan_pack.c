/*
 * Strategy pack: rows of one length, filled with samples. Within a window the longest sample comes
 * first, and goes into the row with the least space that it fits into (best fit decreasing); or
 * samples come in the order, and go into the first row with room (first fit). The
 * rows that are not needed for full groups are taken apart again: their samples begin the next
 * window. Those are the emptiest, so that no batch has a row that is half empty.
 */
#include "daemon/plan/token_plan.h"

#include "proto/common/array.h"

#include <assert.h>
#include <errno.h>

#define NO_ROW UINT32_MAX

/* Which spaces some row has: a tree of bits, 64 to a word; a bit above says that a word below is
 * not 0. So the next space of a row is found in as many looks as there are levels, twice. */
enum { LEVELS = 6 };

struct spaces {
    uint64_t *levels[LEVELS]; /* the lowest first; all in one allocation, the lowest's */
    unsigned n_levels;
    size_t words; /* of all levels */
};

struct packing {
    struct spaces spaces;
    uint32_t *newest; /* of the rows with that space, where its bit is set */
    /* Of each row of the window; there are at most as many as members. */
    uint32_t *next; /* another row with the same space; later: the row's place */
    uint32_t *space;
    uint32_t *turn; /* rows in the order in which they are emitted */
    size_t next_room, space_room, turn_room;
    uint32_t n_rows;
    uint64_t *squares; /* of each row: the sum of its lengths' squares; where costs are balanced, */
    struct token_priced *priced; /* as these are */
    size_t squares_room, priced_room;
    /* Of each member of the window. */
    uint32_t *row_of;
    uint32_t *scratch;
    size_t row_of_room, scratch_room;
};

static void plan_pack_packing_deinit(struct packing *pk)
{
    free(pk->spaces.levels[0]);
    free(pk->newest);
    free(pk->next);
    free(pk->space);
    free(pk->turn);
    free(pk->squares);
    free(pk->priced);
    free(pk->row_of);
    free(pk->scratch);
}

/* ---- spaces --------------------------------------------------------------------------------- */

/* Each level has a bit more than there are words below: plan_pack_spaces_find() may look at it. */
static int plan_pack_spaces_init(struct spaces *spaces, uint32_t greatest)
{
    size_t words[LEVELS] = {0};
    size_t n = greatest;

    do {
        n = n / 64 + 1;
        words[spaces->n_levels++] = n;
        spaces->words += n;
    } while (n > 1);
    spaces->levels[0] = calloc(spaces->words, sizeof *spaces->levels[0]);
    if (!spaces->levels[0])
        return -ENOMEM;
    for (unsigned i = 1; i < spaces->n_levels; i++)
        spaces->levels[i] = spaces->levels[i - 1] + words[i - 1];
    return 0;
}

static void plan_pack_spaces_clear(struct spaces *spaces)
{
    memset(spaces->levels[0], 0, spaces->words * sizeof *spaces->levels[0]);
}

static bool plan_pack_spaces_has(const struct spaces *spaces, uint32_t space)
{
    return spaces->levels[0][space / 64] >> space % 64 & 1;
}

static void plan_pack_spaces_add(struct spaces *spaces, uint32_t space)
{
    for (unsigned i = 0; i < spaces->n_levels; i++, space /= 64)
        spaces->levels[i][space / 64] |= UINT64_C(1) << space % 64;
}

static void plan_pack_spaces_remove(struct spaces *spaces, uint32_t space)
{
    for (unsigned i = 0; i < spaces->n_levels; i++, space /= 64)
        if (spaces->levels[i][space / 64] &= ~(UINT64_C(1) << space % 64))
            return;
}

/* The smallest space ≥ `least`; false if every space is smaller. */
static bool plan_pack_spaces_find(const struct spaces *spaces, uint32_t least, uint32_t *ret)
{
    uint64_t at = least, found = 0;
    unsigned level = 0;

    for (;; level++, at = at / 64 + 1) {
        if (level == spaces->n_levels)
            return false;
        found = spaces->levels[level][at / 64] >> at % 64;
        if (found)
            break;
    }
    at += (unsigned)__builtin_ctzll(found);
    while (level-- > 0)
        at = at * 64 + (unsigned)__builtin_ctzll(spaces->levels[level][at]);
    *ret = (uint32_t)at;
    return true;
}

/* ---- best fit ------------------------------------------------------------------------------- */

static void plan_pack_push_row(struct packing *pk, uint32_t row, uint32_t space)
{
    pk->space[row] = space;
    pk->next[row] = plan_pack_spaces_has(&pk->spaces, space) ? pk->newest[space] : NO_ROW;
    pk->newest[space] = row;
    plan_pack_spaces_add(&pk->spaces, space);
}

/* The row with the least space that `length` fits into; else a new row. */
static uint32_t plan_pack_pop_row(struct packing *pk, uint32_t length, uint32_t row_length)
{
    uint32_t space, row;

    if (!plan_pack_spaces_find(&pk->spaces, length, &space)) {
        row = pk->n_rows++;
        pk->space[row] = row_length;
        return row;
    }
    row = pk->newest[space];
    pk->newest[space] = pk->next[row];
    if (pk->next[row] == NO_ROW)
        plan_pack_spaces_remove(&pk->spaces, space);
    return row;
}

static int plan_pack_make_room_for_row(struct packing *pk)
{
    size_t rows = pk->n_rows + UINT64_C(1);

    return array_reserve(pk->next, pk->next_room, rows) &&
                   array_reserve(pk->space, pk->space_room, rows) &&
                   array_reserve(pk->turn, pk->turn_room, rows)
               ? 0
               : -ENOMEM;
}

/* Members are sorted: the longest is the last. A member's row is in row_of. */
static int plan_pack_fit(struct token_plan *plan, struct packing *pk, const uint32_t *members,
                         size_t n)
{
    pk->n_rows = 0;
    plan_pack_spaces_clear(&pk->spaces);
    for (size_t i = n; i-- > 0;) {
        uint32_t length = token_length(plan, members[i]);
        int r = pk->n_rows < pk->turn_room ? 0 : plan_pack_make_room_for_row(pk);
        if (r < 0)
            return r;
        uint32_t row = plan_pack_pop_row(pk, length, plan->params.row_length);

        pk->row_of[i] = row;
        plan_pack_push_row(pk, row, pk->space[row] - length);
    }
    return 0;
}

/* ---- first fit ------------------------------------------------------------------------------ */

/* Members are in the order. A tree of the greatest spaces has a leaf for each row, those without a
 * member too; node n has children 2n and 2n + 1. */
static int plan_pack_first_fit(struct token_plan *plan, struct packing *pk, const uint32_t *members,
                               size_t n)
{
    size_t leaves = 1;

    while (leaves < n)
        leaves *= 2;
    _cleanup_free_ uint32_t *spaces = calloc(2 * leaves, sizeof *spaces);
    if (!spaces)
        return -ENOMEM;
    for (size_t i = 1; i < 2 * leaves; i++)
        spaces[i] = plan->params.row_length;
    pk->n_rows = 0;
    for (size_t i = 0, at = 1; i < n; i++, at = 1) {
        uint32_t length = token_length(plan, members[i]);

        while (at < leaves)
            at = 2 * at + (spaces[2 * at] < length);
        pk->row_of[i] = (uint32_t)(at - leaves);
        pk->n_rows = (uint32_t)max_u64(pk->n_rows, at - leaves + 1);
        for (spaces[at] -= length; at > 1; at /= 2)
            spaces[at / 2] = (uint32_t)max_u64(spaces[at], spaces[at ^ 1]);
    }
    int r = plan_pack_make_room_for_row(pk);
    if (r == 0)
        memcpy(pk->space, spaces + leaves, pk->n_rows * sizeof *pk->space);
    return r;
}

/* ---- which rows come, and when -------------------------------------------------------------- */

/*
 * Puts `kept` rows in front of the others, in `turn`: the fullest; but at the end of an epoch that
 * drops the others, any: else the samples that pack badly would be left out each time.
 */
static void plan_pack_choose(const struct token_plan *plan, struct packing *pk, uint64_t window,
                             uint64_t kept, bool any)
{
    struct plan_keys keys = {pk->space, UINT32_MAX, plan->params.row_length};
    struct permute_native shuffle;
    uint32_t *chosen = pk->scratch, n = 0;

    for (uint32_t row = 0; row < pk->n_rows; row++)
        pk->turn[row] = row;
    if (plan->shuffled)
        token_plan_shuffle(plan, SHUFFLE_ROWS, window, any ? pk->n_rows : kept, &shuffle);
    if (any && plan->shuffled) {
        for (uint32_t i = 0; i < pk->n_rows; i++)
            pk->turn[i] = (uint32_t)permute_native_at(&shuffle, i);
        return;
    }
    plan_sort(&keys, pk->turn, pk->scratch, pk->n_rows);
    for (uint32_t i = 0; i < pk->n_rows; i++)
        pk->next[pk->turn[i]] = i < kept;
    for (uint32_t row = 0; row < pk->n_rows; row++)
        if (pk->next[row])
            chosen[n++] = row;
    for (uint32_t i = 0; i < kept; i++)
        pk->turn[i] = chosen[plan->shuffled ? permute_native_at(&shuffle, i) : i];
}

/* Rows of one step, for all ranks. */
static uint64_t plan_pack_group(const struct token_plan *plan)
{
    return plan->params.tokens / plan->params.row_length * plan->world;
}

/* Rows of a unit of steps; UINT64_MAX: more than there can be. */
static uint64_t plan_pack_unit(const struct token_plan *plan)
{
    uint64_t rows;

    return mul_overflows(plan_pack_group(plan), plan->unit, &rows) ? UINT64_MAX : rows;
}

/* What each of the rows costs that stand first in `turn`. */
static void plan_pack_price(const struct token_plan *plan, struct packing *pk,
                            const uint32_t *members, size_t n, uint64_t kept)
{
    memset(pk->squares, 0, pk->n_rows * sizeof *pk->squares);
    for (size_t i = 0; i < n; i++) {
        uint64_t length = token_length(plan, members[i]);

        pk->squares[pk->row_of[i]] += length * length;
    }
    for (uint64_t i = 0; i < kept; i++) {
        uint32_t row = pk->turn[i], tokens = plan->params.row_length - pk->space[row];

        pk->priced[i] = (struct token_priced){token_cost(plan, tokens, pk->squares[row]), row};
    }
}

/* Deals the rows that come first in `turn` by cost: `kept` of them; those behind the last whole
 * unit are single steps. */
static int plan_pack_balance(const struct token_plan *plan, struct packing *pk,
                             const uint32_t *members, size_t n, uint64_t kept)
{
    uint64_t each = plan->params.tokens / plan->params.row_length, unit = plan_pack_unit(plan);
    uint64_t whole = kept - kept % unit;

    if (!array_reserve(pk->squares, pk->squares_room, pk->n_rows) ||
        !array_reserve(pk->priced, pk->priced_room, kept))
        return -ENOMEM;
    plan_pack_price(plan, pk, members, n, kept);
    int r = token_deal(plan, pk->priced, whole, each, plan->unit, pk->turn);
    if (r < 0)
        return r;
    return token_deal(plan, pk->priced + whole, kept - whole, each, 1, pk->turn + whole);
}

/* Writes the members anew, row by row in their turn, each row's as they came into it; rows
 * 0..added-1 of it are taken down. */
static int plan_pack_write_rows(struct token_plan *plan, struct packing *pk, uint64_t first,
                                size_t n, uint64_t added)
{
    uint32_t *members = plan->made.members + first;
    uint32_t *places = pk->next; /* of each row; first its size */
    uint64_t at = 0;

    memset(places, 0, pk->n_rows * sizeof *places);
    for (size_t i = 0; i < n; i++)
        places[pk->row_of[i]]++;
    for (uint32_t i = 0; i < pk->n_rows; i++) {
        uint32_t size = places[pk->turn[i]];

        if (i < added) {
            int r = plan_groups_add_row(&plan->made, first + at, first + at + size);
            if (r < 0)
                return r;
        }
        places[pk->turn[i]] = (uint32_t)at;
        at += size;
    }
    assert(at == n);
    for (size_t k = 0; k < n; k++) {
        size_t i = plan->params.fill == PLAN_FIRST_FIT ? k : n - 1 - k;

        pk->scratch[places[pk->row_of[i]]++] = members[i];
    }
    memcpy(members, pk->scratch, n * sizeof *members);
    return 0;
}

/* Groups of the rows that were added since there were `before`. */
static int plan_pack_cut_rows(struct token_plan *plan, uint64_t before, uint64_t group)
{
    while (before < plan->made.n_rows) {
        uint64_t count = min_u64(group, plan->made.n_rows - before);
        int r = token_plan_add(plan, before, count);
        if (r < 0)
            return r;
        before += count;
    }
    return 0;
}

/* Puts `n` members from `first` on into rows. */
static int plan_pack_fill(struct token_plan *plan, struct packing *pk, uint64_t first, size_t n)
{
    struct plan_keys keys = token_keys(plan);

    if (!array_reserve(pk->row_of, pk->row_of_room, n) ||
        !array_reserve(pk->scratch, pk->scratch_room, n))
        return -ENOMEM;
    if (plan->params.fill == PLAN_FIRST_FIT)
        return plan_pack_first_fit(plan, pk, plan->made.members + first, n);
    plan_sort(&keys, plan->made.members + first, pk->scratch, n);
    return plan_pack_fit(plan, pk, plan->made.members + first, n);
}

/* One window. What it leaves begins at *first. */
static int plan_pack_window(struct token_plan *plan, struct packing *pk, uint64_t window,
                            uint64_t *first, uint64_t end)
{
    uint64_t group = plan_pack_group(plan), before = plan->made.n_rows;
    size_t n = end - *first;
    int r = plan_pack_fill(plan, pk, *first, n);

    if (r < 0)
        return r;
    bool last = end == plan->count, emit = last && plan->params.leftover == PLAN_EMIT;
    uint64_t kept = pk->n_rows - pk->n_rows % (emit ? group : plan_pack_unit(plan));
    plan_pack_choose(plan, pk, window, kept, last && plan->params.leftover == PLAN_DROP);
    if (plan->params.balance)
        r = plan_pack_balance(plan, pk, plan->made.members + *first, n, kept);
    if (r < 0)
        return r;
    r = plan_pack_write_rows(plan, pk, *first, n, emit ? pk->n_rows : kept);
    if (r == 0)
        r = plan_pack_cut_rows(plan, before, group);
    if (plan->made.n_rows > before)
        *first = plan->made.rows[plan->made.n_rows];
    return r;
}

static int plan_pack_packing_init(struct packing *pk, const struct token_plan *plan)
{
    pk->newest = calloc(plan->params.row_length + UINT64_C(1), sizeof *pk->newest);
    return pk->newest ? plan_pack_spaces_init(&pk->spaces, plan->params.row_length) : -ENOMEM;
}

/* Rows of the members as they come: a row ends where the next one has no room. */
static int plan_pack_in_order(struct token_plan *plan, uint64_t *first, bool last)
{
    uint64_t at = *first, tokens = 0;
    int r = 0;

    for (uint64_t i = *first; r == 0 && i < plan->count; i++) {
        uint32_t length = token_length(plan, plan->made.members[i]);

        if (tokens + length > plan->params.row_length) {
            r = plan_groups_add_row(&plan->made, at, i);
            at = i;
            tokens = 0;
        }
        tokens += length;
    }
    if (r == 0 && last && at < plan->count) {
        r = plan_groups_add_row(&plan->made, at, plan->count);
        at = plan->count;
    }
    *first = at;
    return r;
}

int token_pack_window(struct token_plan *plan, uint64_t window, uint64_t *first, bool last)
{
    if (plan->params.fill == PLAN_CUT) {
        int r = token_cut_members(plan, *first);
        return r < 0 ? r : plan_pack_in_order(plan, first, last);
    }
    if (plan->params.fill == PLAN_NEXT_FIT)
        return plan_pack_in_order(plan, first, last);
    _cleanup_(plan_pack_packing_deinit) struct packing pk = {0};
    size_t n = plan->count - *first;

    if (n == 0)
        return 0;
    int r = plan_pack_packing_init(&pk, plan);
    if (r == 0)
        r = plan_pack_fill(plan, &pk, *first, n);
    if (r < 0)
        return r;
    uint64_t kept = pk.n_rows - !last;
    plan_pack_choose(plan, &pk, window, kept, false);
    r = plan_pack_write_rows(plan, &pk, *first, n, kept);
    if (r == 0 && kept > 0)
        *first = plan->made.rows[plan->made.n_rows];
    return r;
}

int token_cut_rows(struct token_plan *plan)
{
    _cleanup_(plan_pack_packing_deinit) struct packing pk = {0};
    uint64_t first = 0, end = 0;
    int r = plan_pack_packing_init(&pk, plan);

    for (uint64_t window = 0; r == 0 && end < plan->count; window++) {
        end = max_u64(token_plan_window(plan, first), end + 1);
        r = plan_pack_window(plan, &pk, window, &first, end);
    }
    plan->totals.leftover = end - first;
    return r;
}
