/*
 * Which blocks of remote objects a disk keeps where there is not room for all: those of the lowest
 * order, a keyed hash of what they are. So a part is pinned: whatever the order in which an epoch
 * is read, room for a share c of the data serves the share c of each epoch after the first, where
 * the blocks used last would serve far less (c² or so: what is read at random is gone before it
 * returns).
 *
 * What is not asked for any more makes room: what was not while much more passed than is read in
 * two epochs, in which, whatever their orders, each block is asked for. How much an epoch reads is
 * known by the part of it that is kept, which the orders tell, and by how long blocks wait to be
 * asked for again.
 *
 * A slot is a place for one block. It is free; or on the shelf; or taken off it, until it is given
 * back. Slots that are busy do not make room for others.
 *
 * Pure, but for memory. One thread.
 */
#ifndef DL_BLOCK_SHELF_H
#define DL_BLOCK_SHELF_H

#include "proto/common/base.h"

#define SHELF_NONE UINT32_MAX

enum { SHELF_SLOTS_MOST = 1 << 25 };

struct shelf_slot {
    uint64_t key;     /* 0: nothing is in it */
    uint64_t used;    /* shelf->passed when it was asked for last */
    uint64_t checked; /* these five are the owner's; 0 when a block comes */
    uint32_t point;
    bool there;
    bool unwanted;
    bool copy;
    uint16_t busy;  /* by how many; such a one stays */
    uint32_t order; /* the lowest stay */
    uint32_t bytes;
    uint32_t next; /* in its chain, or the next free one */
    uint32_t at;   /* in the heap */
};

struct shelf {
    struct shelf_slot *slots; /* owned */
    uint32_t *heap;           /* owned; of the slots on the shelf; none has a greater order than */
    uint32_t *chains;         /* that above it. Owned; by key; as many as there is room for slots */
    uint32_t room, n_slots;   /* a power of 2, or 0; of those that were ever used */
    uint32_t n;               /* on the shelf */
    uint32_t free;            /* first of a list */
    uint32_t hand;            /* where to look next for one that nobody asks for any more */
    uint64_t bytes, limit;    /* of those on the shelf */
    uint32_t first;           /* those of no greater order come first: */
    uint64_t first_bytes;     /* bytes of these */
    uint64_t passed;          /* bytes that were asked for ever */
    uint64_t bits;            /* of all orders on the shelf */
    uint64_t waited;          /* how much passed at most until one was asked for again */
};

void shelf_init(struct shelf *shelf, uint64_t limit);
void shelf_deinit(struct shelf *shelf); /* zeroes it; a zeroed one is fine */

/* Those of no greater order come first: each, if it has not been said. */
void shelf_set_first(struct shelf *shelf, uint32_t order);

/* The one in that slot has another order by now. */
void shelf_reorder(struct shelf *shelf, uint32_t slot, uint32_t order);

/* The slot with that key, or SHELF_NONE. */
uint32_t shelf_find(const struct shelf *shelf, uint64_t key);
/* Bytes are asked for, that are on the shelf or not. */
void shelf_pass(struct shelf *shelf, uint64_t bytes);
/* This one is. */
void shelf_use(struct shelf *shelf, uint32_t slot);

/* Whether there is room for `bytes` more. */
bool shelf_fits(const struct shelf *shelf, uint64_t bytes);
/* Whether there would be if only those were there that come first. */
bool shelf_fits_first(const struct shelf *shelf, uint64_t bytes);
/* The one that goes next so that a block of that order may come; SHELF_NONE: it is not to come. */
uint32_t shelf_victim(struct shelf *shelf, uint32_t order);
/* One of the greatest order of those that are not busy; SHELF_NONE: all are. */
uint32_t shelf_greatest(const struct shelf *shelf);

/* A block with a key that is not there. *ret: its slot. -ENOMEM, -ENOSPC: no slots are left. */
int _nodiscard_ shelf_add(struct shelf *shelf, uint64_t key, uint32_t order, uint32_t bytes,
                          uint32_t *ret);
/* Nothing finds it any more; its slot is no other's yet, and is given back once it is not busy. */
void shelf_take_off(struct shelf *shelf, uint32_t slot);
void shelf_give_back(struct shelf *shelf, uint32_t slot);

/* An empty shelf gets `n` slots: then blocks are loaded, each into its own, and then all others are
 * free. -ENOMEM, -ENOSPC. */
int _nodiscard_ shelf_begin_load(struct shelf *shelf, uint32_t n);
/* False: another slot has that key. */
bool shelf_load(struct shelf *shelf, uint32_t slot, uint64_t key, uint32_t order, uint32_t bytes);
void shelf_end_load(struct shelf *shelf);

#endif
