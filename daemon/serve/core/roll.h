/*
 * The roll: which ranks of an epoch a source waits for, and what of that is known for the time when
 * all of them have left it. Pure.
 *
 * A rank is
 *
 *   AWAITED   it has yet to come: no step is given up before it had its rows
 *   EXCUSED   it has come, or goes on elsewhere: it holds up nobody by not being there
 *   DONE      it has read the epoch to its end, or has left it of its own will
 *
 * Of an epoch that all ranks have left, and some of them by dying, it is kept who is DONE: whoever
 * comes back to it waits for the others that have died, and not for these. A rank that was DONE and
 * starts the epoch anew shows that all of it begins again: then nothing is known. At most
 * ROLLS_KEPT are kept; the oldest gives way.
 */
#ifndef DL_ROLL_H
#define DL_ROLL_H

#include "daemon/serve/core/stream.h"

enum { ROLLS_KEPT = 16 };

enum roll_mark { ROLL_AWAITED, ROLL_EXCUSED, ROLL_DONE };

struct roll {
    uint64_t world;
    uint64_t awaited; /* ranks that are */
    uint64_t done;
    uint8_t marks[]; /* four ranks in a byte */
};

/* All are AWAITED. */
struct roll *roll_new(uint64_t world);

enum roll_mark roll_of(const struct roll *roll, uint64_t rank);
/* It is there now, whatever it was before. */
void roll_come(struct roll *roll, uint64_t rank);
/* If it is AWAITED, it is not any more. */
void roll_excuse(struct roll *roll, uint64_t rank);
void roll_excuse_all(struct roll *roll);
void roll_done(struct roll *roll, uint64_t rank);
/* Who is DONE in the other one, is so in this one. */
void roll_learn_done(struct roll *roll, const struct roll *other);
/* Likewise; and who has come to the other's source is not AWAITED at this one. */
void roll_learn(struct roll *roll, const struct roll *other);
/* The lowest rank that is AWAITED; UINT64_MAX: none is. */
uint64_t roll_first_awaited(const struct roll *roll);

/* Whether two ranks read the same batches: of one job, epoch, world and history. */
bool roll_same_epoch(const struct stream_params *a, const struct stream_params *b);

struct roll_book {
    struct {
        struct stream_params epoch;
        struct roll *roll; /* owned; only who is DONE counts */
    } kept[ROLLS_KEPT];    /* the oldest first */
    uint32_t n;
};

void roll_book_deinit(struct roll_book *book);
/* All have left the epoch. Consumes the roll. */
void roll_book_keep(struct roll_book *book, const struct stream_params *epoch, struct roll *roll);
/* The rank comes to the epoch. Who is DONE with it; NULL: nothing is known of it. */
const struct roll *roll_book_come(struct roll_book *book, const struct stream_params *rank);

#endif
