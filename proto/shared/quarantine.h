/*
 * Quarantine: the bad samples of a loader, each once, and how many there may be. The daemon keeps
 * one for each loader, and so does loading in one's own process: batches are counted in the order
 * in which they are delivered, so that the same one is the first to be too many. Pure.
 */
#ifndef DL_QUARANTINE_H
#define DL_QUARANTINE_H

#include "proto/slot_bad.h"

/* Of an iterable dataset, whose replica a sample's number counts in; all 0: map-style. */
struct bad_place {
    uint32_t rank;
    uint32_t world;
    uint32_t worker;
};

struct bad_sample {
    struct bad_place place;
    uint64_t index;
    uint64_t seen; /* times */
    int code;
    char *text; /* owned; what the dataset said at first; NULL: it is not remembered */
};

enum { QUARANTINE_TOLD = 1024 /* samples whose text is remembered */ };

struct quarantine {             /* all zero: nothing, and nothing may be */
    uint64_t limit;             /* spec_max_bad() */
    struct bad_sample *samples; /* owned; n of them, ordered by place and index */
    uint32_t n;
    uint32_t room;
    uint64_t unlisted; /* that came without their numbers, which count each time */
};

void quarantine_deinit(struct quarantine *q);

/* How many there are, as far as that can be told. */
uint64_t quarantine_count(const struct quarantine *q);

enum bad_verdict {
    BAD_KNOWN, /* it has come before */
    BAD_NEW,   /* it comes for the first time */
    BAD_ABOVE, /* it is one more than there may be, and is not kept */
};

/* One that came; without memory it counts as unlisted. `ret` (may be NULL): it, borrowed until the
 * next call; NULL: it is not kept. */
enum bad_verdict quarantine_admit(struct quarantine *q, const struct bad_place *place,
                                  const struct slot_bad *bad, const struct bad_sample **ret);

/* `n` that are only counted. */
enum bad_verdict quarantine_admit_unlisted(struct quarantine *q, uint32_t n);

/*
 * All of a batch, in order. True: it may go on; `named` is called for each that is new. False, with
 * `err`: one is too many, and the batch is an error.
 */
bool _nodiscard_ quarantine_take(struct quarantine *q, const struct bad_place *place,
                                 const struct bad_list *list,
                                 void (*named)(void *owner, const struct bad_sample *sample),
                                 void *owner, struct dl_error *err);

#endif
