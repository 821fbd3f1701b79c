/*
 * Quarantine: the bad samples of a loader, each once, and their limit. The daemon keeps one for
 * each loader, and so does in-process loading: batches are counted in order of delivery, so that
 * both reach the limit at the same sample. Pure.
 */
#ifndef DL_QUARANTINE_H
#define DL_QUARANTINE_H

#include "proto/slot_bad.h"

/* The replica of an iterable dataset in which a sample's number counts; all 0: map-style. */
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
    char *text; /* owned; the dataset's first message; NULL: not kept */
};

enum { QUARANTINE_TOLD = 1024 /* samples whose text is kept */ };

struct quarantine {             /* all zero: nothing, and nothing may be */
    uint64_t limit;             /* spec_max_bad() */
    struct bad_sample *samples; /* owned; n of them, ordered by place and index */
    uint32_t n;
    uint32_t room;
    uint64_t unlisted; /* that came without their numbers, which count each time */
};

void quarantine_deinit(struct quarantine *q);

/* How many bad samples there are, as far as known. */
uint64_t quarantine_count(const struct quarantine *q);

enum bad_verdict {
    BAD_KNOWN, /* it has come before */
    BAD_NEW,   /* it comes for the first time */
    BAD_ABOVE, /* one above the limit; it is not kept */
};

/* One that came; without memory it counts as unlisted. `ret` (may be NULL): it, borrowed until the
 * next call; NULL: it is not kept. */
enum bad_verdict quarantine_admit(struct quarantine *q, const struct bad_place *place,
                                  const struct slot_bad *bad, const struct bad_sample **ret);

/* `n` that are only counted. */
enum bad_verdict quarantine_admit_unlisted(struct quarantine *q, uint32_t n);

/*
 * Takes all bad samples of a batch, in order. True: loading may continue; `named` is called for
 * each new one. False, with `err`: the limit was exceeded, and the batch is an error.
 */
bool _nodiscard_ quarantine_take(struct quarantine *q, const struct bad_place *place,
                                 const struct bad_list *list,
                                 void (*named)(void *owner, const struct bad_sample *sample),
                                 void *owner, struct dl_error *err);

#endif
