/*
 * A loader's core played by many clients and workers, in one process and in no time: readers that
 * are slow, pin, stop, die and come back; workers that fail, die and are replaced; memory that does
 * not suffice. What to do next is drawn from a seed, or read from a fuzzer's input.
 *
 * A naive model, which keeps a record of each client's epoch and knows no queues, says what must
 * hold: each step comes once, in its turn, or a fault where something failed; no more than the
 * credits are out; a worker is given no more than it has room for, and slots do only what slot.h
 * allows; a companion has nothing to read while all workers are idle no longer than it may be held
 * up. Once all clients release what they have, everything comes to its end, and nothing is
 * left.
 */
#ifndef DL_CORE_SIM_H
#define DL_CORE_SIM_H

#include "daemon/serve/core/core.h"

struct sim_rules {
    uint32_t ranks, workers;
    uint32_t steps; /* of each rank's epoch; of an iterable dataset: rounds of a replica, or less */
    uint32_t credits;  /* of a stream */
    uint32_t slots;    /* of a segment */
    uint32_t segments; /* that there is memory for */
    uint32_t leases;   /* that the user may have; 0: any number */
    uint64_t overhead; /* bytes of the daemon's own memory, likewise */
    uint32_t retries;
    uint32_t
        sharers;     /* of `ranks`, so many that follow each other read the same batches; 0: none */
    uint64_t bypass; /* with any_order, not iterable; 0: any number */
    uint32_t window; /* all are companions that may be so many steps apart (share.window), */
    uint64_t wait;   /* and hold each other up so long, ns; */
    bool slices;     /* each third one's batches are these, a half, or a quarter of them */
    bool any_order, iterable, dispatch, job;
    bool calm;    /* nobody dies, and nothing fails */
    bool resizes; /* 2 workers at first, then 1 to `workers`; steps must not be bound to one */
    bool grows; /* slots turn out too small: all segments retire, any worker takes what there is for
                   larger ones, and that one gives back what else it has */
};

struct sim_totals {
    uint64_t events, batches, faults, finished, parked, resumed, kills, starved, refused;
    uint64_t resizes;
    uint64_t most;        /* steps in a stream's window, at most */
    uint64_t made;        /* steps that workers were given */
    uint64_t outgrew;     /* of these, did not fit, */
    uint64_t kept;        /* and came to the same worker again */
    uint64_t left, moved; /* companions left behind; that took from another source than before */
    uint64_t unpaid;      /* sources that the user may not have */
};

/* Plays `events` drawn from `seed`, or (`data`) all those of the input, and to the end from there.
 * What does not hold ends the process. */
void sim_play(const struct sim_rules *rules, uint64_t seed, uint64_t events, const uint8_t *data,
              size_t len, struct sim_totals *totals);

#endif
