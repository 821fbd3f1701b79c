/*
 * libdlclient and a loader's core (core_sim.h) played together, in one process, one thread and a
 * time of their own: the client through its public functions, at one end of a socket pair; at the
 * other a session that does no more than translate messages. Workers fail and die, and the daemon
 * is killed between any two events, in the middle of a message or after a last word, and follows
 * itself some time later. What to do next is drawn from a seed.
 *
 * What must hold is what a user sees: each step of an epoch comes once, in its turn, over all of
 * the daemons' lives and the worlds of their cluster; changed weights are never forgotten; what is
 * in a batch stays there as long as the user has it; nobody waits for ever; and no client returns
 * what it was not lent.
 */
#ifndef DL_CLIENT_SIM_H
#define DL_CLIENT_SIM_H

#include <stdbool.h>
#include <stdint.h>

struct client_sim_rules {
    uint32_t workers, steps, credits, slots, segments;
    bool any_order, iterable, job;
    bool mix, tables; /* weights change: of a mixture, by others too; of samples */
    bool cluster;     /* the nodes' world changes, and the client follows */
    bool calm;        /* no daemon ends, and nothing fails */
};

struct client_sim_totals {
    uint64_t events, batches, faults, ended, stopped, kills, words, cuts, pinned, former, again;
    uint64_t changed, told, tables; /* weights; to another daemon; tables that were brought */
    uint64_t worlds;                /* in which an epoch was continued */
};

/* Plays so many events drawn from `seed`, and to the end from there. What does not hold ends the
 * process. */
void client_sim_play(const struct client_sim_rules *rules, uint64_t seed, uint64_t events,
                     struct client_sim_totals *totals);

#endif
