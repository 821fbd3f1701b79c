/*
 * What is kept of remote objects on disk (daemon/cache/block_store.h), by other threads: nothing
 * here waits for the disk. Where there is no store, because none is wanted, another daemon has it,
 * or the directory is of no use, nothing is there and nothing is kept.
 *
 * Main thread only. Callbacks come from the loop, never from inside a call; after kept_cancel()
 * none comes.
 */
#ifndef DL_REMOTE_KEPT_H
#define DL_REMOTE_KEPT_H

#include "daemon/cache/block_store.h"
#include "daemon/fetcher/objects.h"
#include "proto/remote_counts.h"

#include <uv.h>

struct kept;
struct kept_task;

enum { KEPT_BLOCKS = 16 }; /* of one task */

struct kept_result {
    struct dl_span data; /* of what was read: of the first blocks, as far as they can be */
    /* Of what object they are, where it was not known. */
    uint64_t bytes;
    const char *etag;
    int64_t modified;
    uint64_t checked; /* what kept_check() said of it; 0: nothing */
};
typedef void kept_done(void *owner, const struct kept_result *result);

/* `dir`: NULL or "": nothing is kept; `size`: bytes of all that is kept there (cache_room.h). Opens
 * the directory of its own below it at once, and its files by this descriptor alone. Says on stderr
 * what is wrong. */
struct kept *kept_new(uv_loop_t *loop, const char *dir, uint64_t size);
/* No task is under way that was not cancelled; those end when the loop runs. NULL is fine; returns
 * NULL. */
struct kept *kept_free(struct kept *kept);

/* Writes what is kept now, and what was damaged there. */
void kept_tell(const struct kept *kept, struct remote_tally *tally);

/* Whether the block may be there. */
bool kept_has(const struct kept *kept, const struct object *object, uint64_t block);
/* Its first block is of the object that the store of the object has: by a check of that turn. */
void kept_check(struct kept *kept, const struct object *object);
/* What is there of its first block is of another object. */
void kept_drop(struct kept *kept, const struct object *object);
/* Likewise of other blocks. */
void kept_drop_blocks(struct kept *kept, const struct object *object, uint64_t first, uint64_t n);

/* Which blocks come first; borrowed, and to be said again whenever it has changed. NULL: none do.
 */
void kept_set_placement(struct kept *kept, const struct placement *placement);
/* Whether the block would be kept if it came. */
bool kept_wants(const struct kept *kept, const struct object *object, uint64_t block);
/* For what other nodes look for here there is so much room, without any of that going; and such
 * blocks, one after another, take so much, or this many of `n` of them have room. */
uint64_t kept_room(const struct kept *kept);
uint64_t kept_taken(const struct object *object, uint64_t block);
uint64_t kept_fit(const struct object *object, uint64_t first, uint64_t n, uint64_t room);
/* Whether a block, which is this node's own, would be kept instead of others; also in the place of
 * another object's. */
bool kept_by_order(const struct kept *kept, const struct object *object, uint64_t block);

/* Reads blocks that may be there, at most KEPT_BLOCKS. Of an object whose size is not known, the
 * first one. What is damaged goes; what is of another object stays, as that may be the newer one.
 */
struct kept_task *kept_read(struct kept *kept, const struct object *object, uint64_t first,
                            uint64_t n, kept_done *done, void *owner);
/* Writes those blocks of `data` that are to be kept, *ret; if there is room, the first ones. The
 * result has all of them. NULL: none has to be written, or too much is being written. */
struct kept_task *kept_write(struct kept *kept, const struct object *object, uint64_t first,
                             struct dl_span data, enum store_terms terms, uint64_t *ret,
                             kept_done *done, void *owner);
/* NULL is fine; returns NULL. */
struct kept_task *kept_cancel(struct kept_task *task);

#endif
