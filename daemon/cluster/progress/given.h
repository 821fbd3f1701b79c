/*
 * Given: the changed weights (proto/mix_changes.h) of a loader, which each node of the cluster's
 * world is given by a client of its own, with the same step. Pure. Why all ranks plan by the same
 * ones is argued in daemon/docs/weights-agreed.md.
 *
 *   begin    each node reports, where a round begins, what it was given so far; all go on by what
 *            given_choose() takes of that
 *   give     a client names a step: its node plans nothing at or behind it
 *   compare  the nodes of the round tell each other what they were given; once all were given the
 *            same, it is in force, and nobody holds any more. Otherwise ranks get an error.
 */
#ifndef DL_GIVEN_H
#define DL_GIVEN_H

#include "proto/mix_changes.h"

/* Zero: it knows nothing. */
struct given {
    bool in;                    /* a round, whose list is known */
    bool has;                   /* it was in one: */
    struct mix_changes *list;   /* counted: that all nodes have, by which ranks read; before, what a
                                   rank has brought */
    struct mix_changes *wanted; /* counted: with the change that was given here; NULL: no change was
                                   that has yet to be compared */
    bool released;              /* ranks have waited in vain, and hold for it no longer */
    uint64_t compared;          /* changes of this round so far */
};

void given_deinit(struct given *given);

/* The first rank that is about to begin knows of that, where this node knows nothing. */
void given_bring(struct given *given, struct mix_changes *list);
/* What the node reports where a round begins; borrowed. */
struct mix_changes *given_report(const struct given *given);
/* Of the reports of nodes that know equally much, in an order that is the same for all: the list by
 * which these go on; borrowed. The longest, but that of the first counts where two nodes were given
 * different changes. */
struct mix_changes *given_choose(struct mix_changes *const *reports, uint32_t n);
/* The round begins with that list. False: it lacks what this node was given. */
bool _nodiscard_ given_begin(struct given *given, struct mix_changes *list);
/* The round is over. What is held is held on. */
void given_leave(struct given *given);

/* All that this node was given; borrowed. */
struct mix_changes *given_latest(const struct given *given);
/* Nothing is planned there or behind; UINT64_MAX: there is no such position. */
uint64_t given_hold(const struct given *given);
/* A client gives that list, which is the latest with one more change, in a round, where nothing has
 * yet to be compared. */
void given_give(struct given *given, struct mix_changes *list);
/* In a round: ranks here have waited for the others in vain, and do not any longer, until it is
 * given again. Should the others be given it, it is in force nevertheless. */
void given_release(struct given *given, bool released);
/* All nodes of the round were given that; or some were given another change. */
void given_agree(struct given *given);
void given_refuse(struct given *given);

#endif
