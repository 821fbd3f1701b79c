/*
 * How far a rank of a cluster's world is, in memory that its client and the daemon share: the
 * client counts the steps that it uses, and the daemon reads them whenever it has to, also while
 * the client waits for other ranks in a collective and reads no message.
 *
 * The word is the number of the step behind the last one used. The daemon closes it when the world
 * ends before all that was delivered was used: by one atomic operation it learns the position, and
 * the client uses no further step. So both know the same position, though neither has waited for
 * the other. A closed word stays closed; the next stream has another.
 *
 * Nothing else is read on the strength of it, so any order of memory would do: what counts is that
 * the word has one order of its changes.
 *
 * The daemon doubts what it reads: it lies between what was released and what was delivered.
 */
#ifndef DL_POSITION_H
#define DL_POSITION_H

#include "proto/common/base.h"
#include <stdatomic.h>

enum { POSITION_BYTES = 4096 };

#define POSITION_CLOSED (UINT64_C(1) << 63)

struct rank_position {
    _Atomic uint64_t word;
};
_Static_assert(sizeof(struct rank_position) == 8, "shared layout");

/* The client is about to use the step before `behind`. False: it may not, the word is closed. */
static inline bool position_advance(struct rank_position *position, uint64_t behind)
{
    uint64_t was = atomic_load(&position->word);

    while (!(was & POSITION_CLOSED))
        if (atomic_compare_exchange_weak(&position->word, &was, behind))
            return true;
    return false;
}

/* The daemon closes it, and gets the step behind the last one used. */
static inline uint64_t position_close(struct rank_position *position)
{
    return atomic_fetch_or(&position->word, POSITION_CLOSED) & ~POSITION_CLOSED;
}

#endif
