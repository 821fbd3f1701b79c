/*
 * The roster of an epoch: which ranks, or sharers of a rank, its source waits for. Pure.
 *
 * A rank is
 *
 *   AWAITED   not there yet: the source keeps every step until this rank has taken its rows
 *   EXCUSED   it came, or reads from another source: it is not waited for
 *   DONE      it read the epoch to its end, or stopped it
 *
 * A roster outlives its source if some of the ranks died: a rank that comes back waits for the
 * others that died, and not for those that are DONE. A DONE rank that starts the epoch again begins
 * another pass, and the roster is dropped. At most ROSTERS_MAX are kept, the latest ones.
 *
 * That of companions, who come as they like, has no ranks, and waits for nobody.
 */
#ifndef DL_ROSTER_H
#define DL_ROSTER_H

#include "daemon/serve/core/stream.h"

enum { ROSTERS_MAX = 16 };

enum roster_mark { ROSTER_AWAITED, ROSTER_EXCUSED, ROSTER_DONE };

struct roster {
    uint64_t world;
    uint64_t awaited; /* ranks that are */
    uint64_t done;
    uint8_t marks[]; /* four ranks in a byte */
};

/* All are AWAITED. `world` 0: companions. */
struct roster *roster_new(uint64_t world);
/* What it takes: a byte for four ranks, and a little. */
uint64_t roster_bytes(const struct roster *roster);

enum roster_mark roster_of(const struct roster *roster, uint64_t rank);
/* It has come, whatever it was before. */
void roster_come(struct roster *roster, uint64_t rank);
/* If it is AWAITED, it is not any more. */
void roster_excuse(struct roster *roster, uint64_t rank);
void roster_excuse_all(struct roster *roster);
void roster_done(struct roster *roster, uint64_t rank);
/* Ranks that are DONE in the other one become DONE in this one. */
void roster_learn_done(struct roster *roster, const struct roster *other);
/* The same; and ranks that have come to the other's source are not AWAITED here. */
void roster_learn(struct roster *roster, const struct roster *other);
/* The lowest AWAITED rank; or UINT64_MAX. */
uint64_t roster_first_awaited(const struct roster *roster);

/* Whether two ranks read the same batches: of one job, epoch, world and history; two sharers must
 * also share a rank, and companions a rank, of any job. */
bool roster_same_epoch(const struct stream_params *a, const struct stream_params *b);
/* Whether they do in each epoch that both are in. */
bool roster_same_members(const struct stream_params *a, const struct stream_params *b);

struct roster_book {
    struct {
        struct stream_params epoch;
        struct roster *roster; /* owned; only its DONE ranks count */
    } entries[ROSTERS_MAX];    /* the oldest first */
    uint32_t n;
    uint64_t bytes; /* of all that are kept, by roster_bytes() */
};

void roster_book_deinit(struct roster_book *book);
/* All have left the epoch. Consumes the roster. */
void roster_book_keep(struct roster_book *book, const struct stream_params *epoch,
                      struct roster *roster);
/* Forgets the oldest one. False if the book is empty. */
bool roster_book_forget(struct roster_book *book);
/* The rank comes to the epoch. Returns the DONE ranks; NULL if nothing is known about it. */
const struct roster *roster_book_come(struct roster_book *book, const struct stream_params *rank);

#endif
