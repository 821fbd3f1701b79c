/*
 * Ids that a tokenizer made of texts, in memory that the workers of one user share, so that each
 * text is tokenized once: a packed batch needs a text for its length, and again for its ids.
 *
 * A text is known by a hash of it and of what makes its ids, 128 bits: whichever file it is in,
 * whichever process reads it. So a file may change, and nothing here has to know.
 *
 * An arena is one memfd: a header, an index, and records, one behind another. Three quarters of the
 * room for records are filled once, and stay: an epoch finds as much of itself there as there was
 * room for, whatever its order. In the rest, a ring, new records are written over the oldest ones:
 * where there is not room for all, what was measured a moment ago is still there when its batch is
 * made.
 *
 * Who writes takes room by one addition, and puts the record's place into the index, in any of the
 * few places that its hash has there. Nobody waits: a reader copies the ids and then their
 * checksum decides, whether the record was overwritten meanwhile, or its writer died, or another
 * process of the user wrote nonsense. What is not found is tokenized again.
 *
 * The daemon makes arenas and reads counts; functions may block on the kernel. A struct ids_cache
 * is of one thread.
 */
#ifndef DL_IDS_CACHE_H
#define DL_IDS_CACHE_H

#include "proto/common/error.h"

#define IDS_CACHE_LEAST (UINT64_C(1) << 16)
#define IDS_CACHE_MOST  (UINT64_C(1) << 42)

struct ids_arena; /* the mapped memory */

/* A process's view of an arena. All zero: no arena. */
struct ids_cache {
    struct ids_arena *arena; /* owned mapping; NULL: none */
    int fd;                  /* owned, for allocating pages before they are touched */
    uint64_t bytes;
    uint64_t *allocated; /* owned; a bit of each stretch whose pages are there */
    uint32_t *ids;       /* owned; of the last text that was found */
    size_t ids_room;
};

struct ids_key {
    uint64_t low, high;
};

struct ids_counts {
    uint64_t used_bytes; /* of the arena's size: index and records */
    uint64_t texts;      /* that were put there, those overwritten included */
    uint64_t hits;       /* texts that were found */
    uint64_t misses;     /* and that were not */
};

/* Of an arena, where so many are asked for; 0: too few. */
static inline uint64_t ids_cache_bytes(uint64_t asked)
{
    uint64_t bytes = min_u64(asked, IDS_CACHE_MOST) / 16 * 16;

    return bytes < IDS_CACHE_LEAST ? 0 : bytes;
}

/* Writes the header of an arena into `base`, the zeroed memory of `bytes`, within the two limits
 * above, and a multiple of 16. */
void ids_arena_init(void *base, uint64_t bytes);
/* What is in it, by what its writers say: at most its size. */
void ids_arena_counts(const void *base, uint64_t bytes, struct ids_counts *ret);
/* Bytes of the header alone: to map for the counts. */
uint64_t ids_arena_header(void);

/* Maps the arena in `fd`, which is taken, also on failure. -EPROTO: it is none of `bytes`;
 * -ENOMEM, ... */
int _nodiscard_ ids_cache_open(struct ids_cache *cache, int fd, uint64_t bytes);
void ids_cache_close(struct ids_cache *cache); /* zeroes it; a zeroed one is fine */

/* `maker`: a hash of the tokenizer and of how it is asked. */
struct ids_key ids_key_of(uint64_t maker, const void *text, size_t n);

/* The ids, which stay until the next call. Counts a hit, or a miss. */
bool _nodiscard_ ids_cache_find(struct ids_cache *cache, const struct ids_key *key,
                                const uint32_t **ret, size_t *ret_n);

/* They were made. Left out if there is no memory for them, or they are too many for the ring. */
void ids_cache_put(struct ids_cache *cache, const struct ids_key *key, const uint32_t *ids,
                   size_t n);

#endif
