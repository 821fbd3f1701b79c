/*
 * What is known and held of remote objects: size, ETag, and the blocks that are there, in memory.
 *
 * A block is held as long as somebody uses it, and then as long as there is room: of those that
 * nobody uses the one that was used, or expected, longest ago goes first. An object without blocks
 * and users is forgotten.
 *
 * Main thread only. No I/O.
 */
#ifndef DL_REMOTE_OBJECTS_H
#define DL_REMOTE_OBJECTS_H

#include "daemon/remote/answer.h"
#include "proto/remote_wire.h"

#include <uthash.h>

struct fetch;

enum block_state { BLOCK_ABSENT, BLOCK_COMING, BLOCK_THERE };

struct block {
    struct block *prev, *next; /* objects->idle: it is there, and nobody uses it */
    struct object *object;
    uint32_t users;
    uint8_t state;  /* enum block_state */
    bool given;     /* to a worker, since it came */
    bool ahead;     /* it counts in objects->ahead */
    bool from_disk; /* it came from there, */
    bool from_peer; /* or from another node's */
    bool kept;      /* it is there: it goes before others */
};

struct object {
    UT_hash_handle hh;
    char *url;                 /* owned */
    char *where;               /* owned; the URL, and of which server */
    struct remote_place place; /* owned */
    uint32_t users;            /* besides its blocks' */
    uint64_t bytes;            /* REMOTE_UNKNOWN: not asked yet */
    char etag[REMOTE_ETAG_MAX];
    int64_t modified; /* -1: not known */
    uint64_t n_blocks;
    uint64_t held;        /* bytes of blocks that are coming or there */
    struct block *blocks; /* owned; NULL: size not known, or 0 */
    /* Its bytes: in memory of our own, until somebody maps it; then in a memfd. */
    uint8_t *data; /* owned; NULL: nothing is held */
    int fd;        /* owned; -1: none */
    bool replaced; /* by another one at its URL: it is no more in the table */
    /* desk_fetch.c's: */
    uint64_t identity; /* another one when the object is another */
    uint64_t checked;  /* desk->turn when the store was asked last, with success, what it is */
    struct fetch *fetches;
    uint64_t planner; /* whose plan it was fetched ahead for last; 0: nobody's */
};

struct objects {
    struct object *table;
    struct block *idle; /* the one used longest ago first */
    uint64_t held;      /* bytes, of all */
    uint64_t ahead;     /* of these: no worker was given them yet, and one may come for them */
    uint64_t limit;
};

void objects_init(struct objects *objects, uint64_t limit);
void objects_deinit(struct objects *objects); /* nobody uses any */

/* The one at that URL; NULL: none is known. */
struct object *objects_find(struct objects *objects, const char *url);
/* A new one, by its place, which becomes the object's; used once. */
struct object *objects_add(struct objects *objects, const char *url, struct remote_place *place);

/* Another one is at its URL: who uses it keeps it, and nobody finds it any more. Used by the
 * caller. */
void objects_replace(struct objects *objects, struct object *object);

void object_use(struct object *object);
void object_leave(struct objects *objects, struct object *object); /* it may be gone then */

void blocks_use(struct objects *objects, struct object *object, uint64_t first, uint64_t n);
void blocks_leave(struct objects *objects, struct object *object, uint64_t first, uint64_t n);

/* They will be read soon: of those that nobody uses others go first. */
void blocks_touch(struct objects *objects, struct object *object, uint64_t first, uint64_t n);

/* Whether `bytes` more may be held, after what nobody uses has gone. */
bool objects_have_room(struct objects *objects, uint64_t bytes);

/* What its first answer says. -ENOMEM, -EFBIG, ... */
int _nodiscard_ object_learn(struct object *object, uint64_t bytes, const char *etag,
                             int64_t modified);

/* Absent blocks are coming, or coming ones are not any more. */
void object_await(struct objects *objects, struct object *object, uint64_t first, uint64_t n);
void object_give_up(struct objects *objects, struct object *object, uint64_t first, uint64_t n);
/* Blocks that were coming are there: their bytes. -errno: nothing has changed. */
int _nodiscard_ object_put(struct objects *objects, struct object *object, uint64_t first,
                           struct dl_span data);

/* These count as ahead no more: nobody comes for them, or they have another place to wait. */
void object_no_more_ahead(struct objects *objects, struct object *object, uint64_t first,
                          uint64_t n);
/* Blocks that are there, and that nobody uses, go. The object is used by the caller. */
void object_drop(struct objects *objects, struct object *object, uint64_t first, uint64_t n);

/* The plan is another one by now: nobody comes for what was fetched for it. */
void objects_forget_ahead(struct objects *objects, uint64_t planner);

/* A worker is given a block that is there. */
void object_give(struct objects *objects, struct object *object, uint64_t block);

/* How many bytes `n` blocks from `block` on have, which the object has. */
static inline uint64_t object_bytes_of(const struct object *object, uint64_t block, uint64_t n)
{
    return min_u64(object->bytes - block * REMOTE_BLOCK_BYTES, n * REMOTE_BLOCK_BYTES);
}

static inline uint64_t blocks_of(uint64_t bytes)
{
    return bytes / REMOTE_BLOCK_BYTES + (bytes % REMOTE_BLOCK_BYTES > 0);
}

/* How many bytes of the `n` blocks from `block` on are neither there nor coming. */
uint64_t object_lacks(const struct object *object, uint64_t block, uint64_t n);

/* How many of the `n` blocks from `block` on are there, one after another. */
uint64_t object_there(const struct object *object, uint64_t block, uint64_t n);

/*
 * A descriptor to its bytes, read-only; the caller's. With `mapped`, what is not there yet shows in
 * it when it is, and what goes is zeroes; without, all blocks are there, and it is a copy. -errno.
 */
int _nodiscard_ object_open(struct object *object, bool mapped, int *ret);

#endif
