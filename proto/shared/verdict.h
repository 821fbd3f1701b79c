/*
 * Where the time goes, in words: the stages of a batch, and the verdict on a loader over its last
 * seconds. Pure.
 *
 * Everything follows from whether a trainer waits for batches. If it hardly waits, faster loading
 * gains nothing, and what its workers do with their time says how much room is left. If one of
 * several ranks waits much more than the others, the others wait for it in turn, with their
 * gradients. Otherwise the loader is too slow: the stage that takes most of its workers' time is
 * the one to look at. If a few samples take most of that, they are; if one worker alone is busy,
 * its work is. If the workers are not busy, finished batches wait for others; if they wait for a
 * processor, processors are short; if they wait for remote files, the store is too slow, or refuses
 * requests. If batches of other machines' workers, or the files that these are served, are on
 * their way for most of the time, the network is too slow. Each verdict ends with what to do.
 */
#ifndef DL_VERDICT_H
#define DL_VERDICT_H

#include "proto/common/base.h"

/*
 * The stages of a batch, which it passes one after another:
 *
 *   queued     planned, and queued behind other batches of its worker
 *   fetch      its samples are read and made
 *   collate    they become a batch; no time where rows are collated as they are read
 *   handover   it is made, and the daemon has not seen it yet
 *   ready      it waits for those before it, or for its client to release others
 *   held       its client has it, and has not asked for the next one
 *
 * The first four are the loader's. A trainer waits for their sum only if nothing is loaded ahead.
 */
enum stage {
    STAGE_QUEUED,
    STAGE_FETCH,
    STAGE_COLLATE,
    STAGE_HANDOVER,
    STAGE_READY,
    STAGE_HELD,
    STAGES
};

const char *stage_name(enum stage stage);

/* The stage of that name, or STAGES. */
enum stage stage_of(const char *name);

struct verdict_rank {
    uint64_t rank;
    uint64_t span_ns;   /* it was read for so long, */
    uint64_t waited_ns; /* and its trainer waited this part of it */
    uint64_t batches;   /* delivered meanwhile */
};

struct verdict_worker {
    uint64_t fetch_ns;
    uint64_t collate_ns;
    uint64_t slow_ns; /* of fetch_ns: samples that took far longer than is usual */
    uint64_t
        cpu_wait_ns; /* that it was ready to run, and had no processor; 0: also if nobody knows */
    uint64_t remote_ns;    /* of fetch_ns: waiting for remote files */
    bool away;             /* it is another machine's, and ready; then: */
    uint64_t way_ns;       /* batches were on their way from there, or files to there */
    uint64_t way_bytes;    /* that came from there */
    uint64_t served_bytes; /* that went there */
};

/* What stores did for all loaders of the daemon. */
struct verdict_store {
    uint64_t span_ns;
    uint64_t bytes;     /* that came */
    uint64_t requests;  /* that were sent; of these */
    uint64_t throttled; /* number of requests that the store refused: it wants fewer */
    uint64_t held_back; /* of requests that were sent later for that */
    uint64_t given;     /* bytes that workers got, also of what was there */
};

struct verdict_case {
    const struct verdict_rank *ranks; /* those that are being read */
    size_t n_ranks;
    const struct verdict_worker *workers;
    size_t n_workers;
    bool own_shares;      /* each worker has samples of its own, as of an iterable dataset */
    uint64_t span_ns;     /* of the workers' times, and of these: */
    uint64_t batches;     /* that were delivered */
    uint64_t ns[STAGES];  /* of all of them */
    const char *starving; /* the setting that leaves no memory for a batch; NULL: none */
    struct verdict_store store;
};

enum verdict_kind {
    VERDICT_IDLE,     /* nobody reads */
    VERDICT_EARLY,    /* too little was read yet */
    VERDICT_MEMORY,   /* starved by memory */
    VERDICT_STORE,    /* starved by storage */
    VERDICT_THROTTLE, /* throttled by the store */
    VERDICT_RANK,     /* one rank waits, the others do not: `rank` */
    VERDICT_LOADER,   /* trainers wait: for `stage`, perhaps of one `worker` */
    VERDICT_TRAINER,  /* they do not, and workers have time to spare */
    VERDICT_HEALTHY   /* they do not, and workers are busy */
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
