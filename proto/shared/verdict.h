/*
 * Where the time goes, in words: of a loader, over the last while. Pure.
 *
 * A trainer waits for batches, or it does not: everything follows from that. Who hardly waits has
 * nothing to win here, and what its workers do with their time says how much room is left. Where
 * one of several ranks waits much more than the others, these wait for it in turn, with their
 * gradients. Otherwise the loader is too slow, and the stage that takes most of its workers' time
 * is the one to look at; where the workers are not busy, batches that are made wait for others, and
 * where they wait for a processor, it is these that are short. What is said ends with what to do.
 */
#ifndef DL_VERDICT_H
#define DL_VERDICT_H

#include "proto/shared/stage.h"

struct verdict_rank {
    uint64_t rank;
    uint64_t span_ns;   /* it was read for so long, */
    uint64_t waited_ns; /* and its trainer waited for so much of that */
    uint64_t batches;   /* delivered meanwhile */
};

struct verdict_worker {
    uint64_t fetch_ns;
    uint64_t collate_ns;
    uint64_t
        cpu_wait_ns; /* that it was ready to run, and had no processor; 0: also if nobody knows */
};

struct verdict_case {
    const struct verdict_rank *ranks; /* those that are being read */
    size_t n_ranks;
    const struct verdict_worker *workers;
    size_t n_workers;
    uint64_t span_ns;     /* of the workers' times, and of these: */
    uint64_t batches;     /* that were delivered */
    uint64_t ns[STAGES];  /* of all of them */
    const char *starving; /* the setting that leaves no memory for a batch; NULL: none */
};

enum verdict_kind {
    VERDICT_IDLE,    /* nobody reads */
    VERDICT_EARLY,   /* too little was read yet */
    VERDICT_MEMORY,  /* starved by memory */
    VERDICT_RANK,    /* one rank waits, the others do not: `rank` */
    VERDICT_LOADER,  /* trainers wait: for `stage`, perhaps of one `worker` */
    VERDICT_TRAINER, /* they do not, and workers have time to spare */
    VERDICT_HEALTHY  /* they do not, and workers are busy */
};

/* Of the words; and of those without the epoch before. */
enum { VERDICT_TEXT_MAX = 640, VERDICT_LATEST_MAX = 480 };
#define VERDICT_NO_WORKER UINT32_MAX

struct verdict {
    enum verdict_kind kind;
    enum stage stage;
    uint64_t rank;
    uint32_t worker;  /* VERDICT_NO_WORKER: all alike */
    bool cores_short; /* LOADER: workers wait for a processor */
    uint64_t lost_ns; /* that all trainers together waited */
    char text[VERDICT_TEXT_MAX];
};

void verdict_find(const struct verdict_case *c, struct verdict *ret);

#endif
