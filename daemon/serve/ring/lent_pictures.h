/*
 * The arenas (pictures_cache.h, ids_cache.h) of a helper: one for each folder, first file, or
 * tokenizer's file that specs of the daemons name to which it lends workers, shared by all of
 * these, which run as one user. The first worker decides the size. Who uses one has locked its
 * first byte: it is freed when nobody has, as a process that has ended holds no lock, however it
 * ended. Main thread.
 */
#ifndef DL_RING_LENT_PICTURES_H
#define DL_RING_LENT_PICTURES_H

#include "proto/common/base.h"

enum { LENT_ARENAS = 64 };

struct lent_pictures {
    struct lent_arena {
        char *root; /* owned */
        bool ids;   /* of texts, by a tokenizer's file */
        uint64_t bytes;
        int fd; /* owned */
    } arenas[LENT_ARENAS];
    uint32_t n;
};

/* The one of that name, or a new one of *bytes, if all of them then have `most` at most: its
 * descriptor, borrowed; *bytes is its size. -EDQUOT, or another negative errno. */
int _nodiscard_ lent_pictures_find(struct lent_pictures *lent, const char *root, bool ids,
                                   uint64_t most, uint64_t *bytes);
/* Frees what nobody uses. */
void lent_pictures_tidy(struct lent_pictures *lent);
void lent_pictures_deinit(struct lent_pictures *lent);

#endif
