/*
 * How much faster a trainer would be if its loader cost nothing. Pure: events come in, and the
 * phase decides what the loader does.
 *
 * No batch is delivered twice. First the trainer is watched as it is. Then batches are held back
 * until the ring is full, and delivered all at once, while workers do nothing: as long as they
 * last, the trainer has a perfect loader. This is repeated until enough steps were seen.
 *
 *   phase   the loader                  next phase
 *   WATCH   works as usual              HOLD: enough steps, or some after a long time
 *                                       ENDED: no reader, or too few steps for a long time
 *   HOLD    loads, and delivers         BURST: nothing is left to load, or time is up, and
 *           nothing                     HEADSPACE_LEAST batches are there
 *                                       APART: no reader, or the epoch has no more
 *                                       ENDED: the ring is too small, or time is up
 *   BURST   delivers, and begins no     HOLD, or ENDED (enough steps): all was used
 *           task                        APART: no more for them, or no progress
 *   APART   works as usual              HOLD: there is more, for a reader in progress
 *                                       ENDED: not so for a while
 *   ENDED   works as usual
 *
 * A step is the time from one batch that is released (or pinned) to the next of the same rank. The
 * first one of a burst does not count, since the trainer starts up again in it; nor do the
 * trainers' own pauses, in a burst or before. HOLD always ends after HEADSPACE_HOLD_NS; BURST when
 * no batch was given back for at most HEADSPACE_IDLE_NS. So neither can last for ever if the caller
 * looks often enough.
 */
#ifndef DL_HEADSPACE_H
#define DL_HEADSPACE_H

#include "proto/common/base.h"
#include "proto/common/error.h"

enum headspace_phase {
    HEADSPACE_WATCH,
    HEADSPACE_HOLD,
    HEADSPACE_BURST,
    HEADSPACE_APART,
    HEADSPACE_ENDED
};

enum {
    HEADSPACE_LEAST = 3,           /* batches of a burst: the step of the first does not count */
    HEADSPACE_STEPS_MAX = 10000,   /* of each rank */
    HEADSPACE_FEW = 4,             /* steps, of all ranks: fewer give no result */
    HEADSPACE_BARREN = 8,          /* bursts one after another without a step: it is given up */
    HEADSPACE_PACES_MAX = 1 << 16, /* steps of all ranks: more are not waited for */
};

#define HEADSPACE_S        ((uint64_t)1000000000)
#define HEADSPACE_WATCH_NS (20 * HEADSPACE_S) /* then some steps do */
#define HEADSPACE_STALL_NS (60 * HEADSPACE_S) /* and then it has stopped */
#define HEADSPACE_HOLD_NS  (10 * HEADSPACE_S)
#define HEADSPACE_IDLE_NS  (30 * HEADSPACE_S)
#define HEADSPACE_APART_NS (30 * HEADSPACE_S)

/* A stream that is being read. */
struct headspace_rank {
    uint64_t key;    /* its own, for ever */
    uint32_t leased; /* what its client has; pins count as released */
    uint32_t ready;  /* loaded for it, and not delivered */
    bool ending;     /* no more will be loaded for it */
};

struct headspace_now {
    uint64_t ns;
    const struct headspace_rank *ranks;
    size_t n_ranks;
    bool full;            /* no worker is at anything, and there is nothing to begin */
    const char *starving; /* the setting that limits it; NULL: windows are full */
};

struct headspace_spread {
    double mean_ns;
    double quartile_ns[3];
};

struct headspace_result {
    uint64_t steps; /* in bursts, of all ranks */
    uint64_t watched;
    uint32_t ranks;
    uint32_t bursts;
    double ahead; /* batches of a burst and rank, in the mean */
    struct headspace_spread as_is, perfect;
    double speedup;    /* as_is to perfect */
    double by_waiting; /* the gain that waiting times suggest; 1: clients report no waits */
};

struct headspace;

struct headspace *headspace_new(uint32_t steps, uint64_t now);
struct headspace *headspace_free(struct headspace *h);

enum headspace_phase headspace_phase(const struct headspace *h);

/* The rank's client gave `n` batches back, and reports how long it has waited for batches since its
 * last report. n may be 0. */
void headspace_returned(struct headspace *h, uint64_t key, uint32_t n, uint64_t waited_ns,
                        uint64_t now);

/* After anything may have changed, and now and then. True: the phase is another. */
bool headspace_look(struct headspace *h, const struct headspace_now *now);

/* Of one that has ENDED: 0, or a negative errno with `err`. */
int _nodiscard_ headspace_result(struct headspace *h, struct headspace_result *ret,
                                 struct dl_error *err);

enum { HEADSPACE_WORDS = 160 };
void headspace_words(const struct headspace_result *result, char text[static HEADSPACE_WORDS]);

#endif
