/*
 * Changed weights in the game of client_sim.h: a mixture's, or those of samples. What the daemon
 * knows of them ends with it; its successor learns it from the client. What must hold: the list
 * that a START tells has all changes that the program was told of, and those of samples come with
 * the tables that the epoch needs.
 */
#ifndef DL_CLIENT_SIM_WEIGHTS_H
#define DL_CLIENT_SIM_WEIGHTS_H

#include "tests/lib/core_sim_private.h"

#include "proto/codec.h"
#include "proto/mix_changes.h"

enum { SIM_TABLES_MAX = 4 };

struct sim_weights {
    struct mix_changes *list, *told; /* the daemon's; what the client has told for a START */
    struct weight_table *tables[SIM_TABLES_MAX]; /* that this daemon has */
    uint32_t answered,
        known; /* changes when INFO was sent last; that the program knows to be made */
    uint64_t changed, again, brought; /* counts */
};

typedef void sim_say(const struct dl_message *msg);

/* The daemon has ended. */
void sim_weights_forget(struct sim_weights *w);
/* True: it was one of these messages. `epoch`: the one that is read. */
bool sim_weights_take(struct sim_weights *w, struct sim *sim, const struct dl_message *msg, int fd,
                      uint64_t loader, uint64_t epoch, sim_say *say);
/* Before STARTED. */
void sim_weights_start(struct sim_weights *w, struct sim *sim, const struct dl_msg_start *start,
                       sim_say *say);
/* Another client changes the weights of a mixture. */
void sim_weights_change(struct sim_weights *w, struct sim *sim, uint64_t loader, sim_say *say);

#endif
