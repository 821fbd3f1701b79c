#include "daemon/cache/block_shelf.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

enum {
    SHELF_SLOTS_LEAST = 64,
    SHELF_PATIENCE = 4, /* epochs */
    SHELF_LOOKS = 8,    /* at slots that may be forgotten, for each block that comes */
};

void shelf_init(struct shelf *shelf, uint64_t limit)
{
    *shelf = (struct shelf){.limit = limit, .free = SHELF_NONE, .first = UINT32_MAX};
}

void shelf_deinit(struct shelf *shelf)
{
    free(shelf->slots);
    free(shelf->heap);
    free(shelf->chains);
    *shelf = (struct shelf){.free = SHELF_NONE};
}

/* ---- by key --------------------------------------------------------------------------------- */

static uint32_t *shelf_chain(const struct shelf *shelf, uint64_t key)
{
    return &shelf->chains[key & (shelf->room - 1)];
}

uint32_t shelf_find(const struct shelf *shelf, uint64_t key)
{
    uint32_t slot = shelf->room > 0 ? *shelf_chain(shelf, key) : SHELF_NONE;

    while (slot != SHELF_NONE && shelf->slots[slot].key != key)
        slot = shelf->slots[slot].next;
    return slot;
}

static void shelf_link(struct shelf *shelf, uint32_t slot)
{
    uint32_t *chain = shelf_chain(shelf, shelf->slots[slot].key);

    shelf->slots[slot].next = *chain;
    *chain = slot;
}

static void shelf_unlink(struct shelf *shelf, uint32_t slot)
{
    uint32_t *link = shelf_chain(shelf, shelf->slots[slot].key);

    while (*link != slot)
        link = &shelf->slots[*link].next;
    *link = shelf->slots[slot].next;
}

/* ---- by order ------------------------------------------------------------------------------- */

static uint32_t shelf_order_at(const struct shelf *shelf, uint32_t at)
{
    return shelf->slots[shelf->heap[at]].order;
}

static void shelf_place(struct shelf *shelf, uint32_t at, uint32_t slot)
{
    shelf->heap[at] = slot;
    shelf->slots[slot].at = at;
}

static void shelf_rise(struct shelf *shelf, uint32_t at)
{
    uint32_t slot = shelf->heap[at];

    while (at > 0 && shelf_order_at(shelf, (at - 1) / 2) < shelf->slots[slot].order) {
        shelf_place(shelf, at, shelf->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    shelf_place(shelf, at, slot);
}

static void shelf_sink(struct shelf *shelf, uint32_t at)
{
    uint32_t slot = shelf->heap[at];

    for (uint32_t below; (below = 2 * at + 1) < shelf->n; at = below) {
        if (below + 1 < shelf->n && shelf_order_at(shelf, below + 1) > shelf_order_at(shelf, below))
            below++;
        if (shelf_order_at(shelf, below) <= shelf->slots[slot].order)
            break;
        shelf_place(shelf, at, shelf->heap[below]);
    }
    shelf_place(shelf, at, slot);
}

/* Of the heap from there on. Those that are busy are few: what is being read or written. */
static uint32_t shelf_greatest_of(const struct shelf *shelf, uint32_t at)
{
    uint32_t slot = at < shelf->n ? shelf->heap[at] : SHELF_NONE;

    if (slot == SHELF_NONE || shelf->slots[slot].busy == 0)
        return slot;
    uint32_t left = shelf_greatest_of(shelf, 2 * at + 1);
    uint32_t right = shelf_greatest_of(shelf, 2 * at + 2);
    if (left == SHELF_NONE || right == SHELF_NONE)
        return left == SHELF_NONE ? right : left;
    return shelf->slots[left].order >= shelf->slots[right].order ? left : right;
}

uint32_t shelf_greatest(const struct shelf *shelf)
{
    return shelf_greatest_of(shelf, 0);
}

/* ---- what goes ------------------------------------------------------------------------------ */

void shelf_pass(struct shelf *shelf, uint64_t bytes)
{
    shelf->passed += bytes;
}

void shelf_use(struct shelf *shelf, uint32_t slot)
{
    struct shelf_slot *is = &shelf->slots[slot];

    shelf->waited = max_u64(shelf->waited, shelf->passed - is->used);
    is->used = shelf->passed;
}

bool shelf_fits(const struct shelf *shelf, uint64_t bytes)
{
    return bytes <= shelf->limit && shelf->bytes <= shelf->limit - bytes;
}

bool shelf_fits_first(const struct shelf *shelf, uint64_t bytes)
{
    return bytes <= shelf->limit && shelf->first_bytes <= shelf->limit - bytes;
}

/* Bits of an order: a logarithm. */
static uint32_t shelf_bits(uint32_t order)
{
    return 32 - (uint32_t)__builtin_clz(order | 1);
}

/*
 * How many bytes pass while all is asked for that anybody asks for: two epochs at most. How long
 * blocks have waited tells it, with a quarter to spare, once some have for half an epoch. Until
 * then, in the first one, its size is known by the orders of what is kept, by their geometric mean,
 * for which a few that fill gaps do not count much, with much to spare: the mean logarithm of what
 * is even from 0 to T is that of T less 1.44, and bits are half a bit more than it.
 */
static uint64_t shelf_patience(const struct shelf *shelf)
{
    double part = exp2((double)shelf->bits / (double)shelf->n + 0.94 - 32);
    double epoch = (double)shelf->bytes / part;

    return (double)shelf->waited > epoch ? 2 * shelf->waited : (uint64_t)(SHELF_PATIENCE * epoch);
}

/* One that nobody asks for any more, as far as it is found in a few looks. */
static uint32_t shelf_forgotten(struct shelf *shelf)
{
    uint64_t patience = shelf_patience(shelf);

    for (int i = 0; i < SHELF_LOOKS; i++) {
        uint32_t slot = shelf->hand = (shelf->hand + 1) % shelf->n_slots;
        const struct shelf_slot *is = &shelf->slots[slot];

        if (is->key != 0 && is->there && is->busy == 0 && shelf->passed - is->used > patience)
            return slot;
    }
    return SHELF_NONE;
}

uint32_t shelf_victim(struct shelf *shelf, uint32_t order)
{
    uint32_t slot = shelf->n > 0 ? shelf_forgotten(shelf) : SHELF_NONE;

    if (slot != SHELF_NONE)
        return slot;
    slot = shelf_greatest(shelf);
    return slot != SHELF_NONE && shelf->slots[slot].order > order ? slot : SHELF_NONE;
}

/* ---- what is there ------------------------------------------------------------------------ */

static uint64_t shelf_bytes_first(const struct shelf *shelf, uint32_t slot)
{
    const struct shelf_slot *is = &shelf->slots[slot];

    return is->order <= shelf->first ? is->bytes : 0;
}

static void shelf_count(struct shelf *shelf, uint32_t slot)
{
    shelf->bytes += shelf->slots[slot].bytes;
    shelf->first_bytes += shelf_bytes_first(shelf, slot);
    shelf->bits += shelf_bits(shelf->slots[slot].order);
}

static void shelf_discount(struct shelf *shelf, uint32_t slot)
{
    shelf->bytes -= shelf->slots[slot].bytes;
    shelf->first_bytes -= shelf_bytes_first(shelf, slot);
    shelf->bits -= shelf_bits(shelf->slots[slot].order);
}

/* ---- what comes ----------------------------------------------------------------------------- */

static int shelf_resize(struct shelf *shelf, uint32_t room)
{
    struct shelf_slot *slots = realloc(shelf->slots, room * sizeof *slots);

    if (!slots)
        return -ENOMEM;
    shelf->slots = slots;
    uint32_t *heap = realloc(shelf->heap, room * sizeof *heap);
    if (!heap)
        return -ENOMEM;
    shelf->heap = heap;
    uint32_t *chains = realloc(shelf->chains, room * sizeof *chains);
    if (!chains)
        return -ENOMEM;
    shelf->chains = chains;
    shelf->room = room;
    memset(chains, 0xff, room * sizeof *chains);
    for (uint32_t at = 0; at < shelf->n; at++)
        shelf_link(shelf, heap[at]);
    return 0;
}

static int shelf_make_room(struct shelf *shelf, uint32_t n)
{
    uint32_t room = shelf->room > 0 ? shelf->room : SHELF_SLOTS_LEAST;

    if (n > SHELF_SLOTS_MOST)
        return -ENOSPC;
    while (room < n)
        room *= 2;
    return room > shelf->room ? shelf_resize(shelf, room) : 0;
}

static void shelf_put(struct shelf *shelf, uint32_t slot, uint64_t key, uint32_t order,
                      uint32_t bytes)
{
    assert(key != 0 && shelf->n < shelf->n_slots);
    shelf->slots[slot] =
        (struct shelf_slot){.key = key, .used = shelf->passed, .order = order, .bytes = bytes};
    shelf_link(shelf, slot);
    shelf_place(shelf, shelf->n++, slot);
    shelf_rise(shelf, shelf->n - 1);
    shelf_count(shelf, slot);
}

int shelf_add(struct shelf *shelf, uint64_t key, uint32_t order, uint32_t bytes, uint32_t *ret)
{
    uint32_t slot = shelf->free;

    assert(shelf_find(shelf, key) == SHELF_NONE);
    if (slot == SHELF_NONE) {
        int r = shelf_make_room(shelf, shelf->n_slots + 1);
        if (r < 0)
            return r;
        slot = shelf->n_slots++;
    } else {
        shelf->free = shelf->slots[slot].next;
    }
    shelf_put(shelf, slot, key, order, bytes);
    *ret = slot;
    return 0;
}

void shelf_take_off(struct shelf *shelf, uint32_t slot)
{
    struct shelf_slot *is = &shelf->slots[slot];
    uint32_t at = is->at, last = shelf->heap[shelf->n - 1];

    assert(is->key != 0 && shelf->heap[at] == slot);
    shelf_unlink(shelf, slot);
    shelf->n--;
    if (last != slot) {
        shelf_place(shelf, at, last);
        shelf_rise(shelf, at);
        shelf_sink(shelf, shelf->slots[last].at);
    }
    shelf_discount(shelf, slot);
    *is = (struct shelf_slot){.busy = is->busy};
}

void shelf_set_first(struct shelf *shelf, uint32_t order)
{
    shelf->first = order;
    shelf->first_bytes = 0;
    for (uint32_t at = 0; at < shelf->n; at++)
        shelf->first_bytes += shelf_bytes_first(shelf, shelf->heap[at]);
}

void shelf_reorder(struct shelf *shelf, uint32_t slot, uint32_t order)
{
    struct shelf_slot *is = &shelf->slots[slot];

    assert(is->key != 0);
    if (is->order == order)
        return;
    shelf_discount(shelf, slot);
    is->order = order;
    shelf_count(shelf, slot);
    shelf_rise(shelf, is->at);
    shelf_sink(shelf, is->at);
}

void shelf_give_back(struct shelf *shelf, uint32_t slot)
{
    assert(shelf->slots[slot].key == 0 && shelf->slots[slot].busy == 0);
    shelf->slots[slot].next = shelf->free;
    shelf->free = slot;
}

/* ---- what was there ------------------------------------------------------------------------- */

int shelf_begin_load(struct shelf *shelf, uint32_t n)
{
    assert(shelf->n_slots == 0);
    int r = n > 0 ? shelf_make_room(shelf, n) : 0;

    if (r < 0)
        return r;
    shelf->n_slots = n;
    if (n > 0)
        memset(shelf->slots, 0, n * sizeof *shelf->slots);
    return 0;
}

bool shelf_load(struct shelf *shelf, uint32_t slot, uint64_t key, uint32_t order, uint32_t bytes)
{
    assert(slot < shelf->n_slots && shelf->slots[slot].key == 0);
    if (shelf_find(shelf, key) != SHELF_NONE)
        return false;
    shelf_put(shelf, slot, key, order, bytes);
    shelf->slots[slot].there = true;
    return true;
}

/* The last ones are as if they had never been; of the others the first is taken first. */
void shelf_end_load(struct shelf *shelf)
{
    while (shelf->n_slots > 0 && shelf->slots[shelf->n_slots - 1].key == 0)
        shelf->n_slots--;
    for (uint32_t slot = shelf->n_slots; slot-- > 0;) {
        if (shelf->slots[slot].key == 0)
            shelf_give_back(shelf, slot);
    }
}
