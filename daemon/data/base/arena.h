/*
 * An arena: memory that is taken bit by bit and released all at once. What a batch's samples
 * are made of while the batch is being made. Not thread-safe.
 */
#ifndef DL_DATA_ARENA_H
#define DL_DATA_ARENA_H

#include "proto/common/base.h"

struct arena_chunk;
struct arena_hold;

struct arena {                  /* all zero: empty */
    struct arena_chunk *chunks; /* owned list; the first is in use */
    struct arena_hold *holds;   /* owned list, in the chunks */
    size_t used;                /* of the first */
};

/* 64-byte aligned, not zeroed; stays until the arena is cleared. NULL: out of memory. */
void *arena_alloc(struct arena *arena, size_t bytes);

/*
 * Keeps something outside of the arena as long as the arena's memory: release(what) is called when
 * the arena is cleared, the latest first; or at once, before -ENOMEM is returned.
 */
int _nodiscard_ arena_hold(struct arena *arena, void (*release)(void *what), void *what);

/* Gives everything back, but keeps one chunk as large as was needed for the next batch. */
void arena_clear(struct arena *arena);
void arena_deinit(struct arena *arena);

#endif
