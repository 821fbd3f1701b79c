/*
 * What nodes that are gone leave out of a loader's epochs (account.h). This node publishes how far
 * its ranks are; of a node that is not in a new round it reads what that one published last. At an
 * epoch's end it says what is missing.
 *
 * Each shared loader has one. Main thread only.
 */
#ifndef DL_LEFT_OUT_H
#define DL_LEFT_OUT_H

#include "daemon/cluster/account.h"
#include "proto/value.h"

struct members;
struct left_out;

/* A node of a round. */
struct left_out_node {
    uint64_t id;
    char name[64];
    uint64_t first, local, world; /* its ranks */
};

/* `key` is the loader's in the store, `name` for people; both are copied. */
struct left_out *left_out_new(struct members *members, const char *key, const char *name,
                              uint64_t batch);
struct left_out *left_out_free(struct left_out *left_out); /* NULL is fine; returns NULL */

/* All ranks of this node are at `least`, and had begun at `began` here, at most: trainers that went
 * on under another daemon at the beginning of all. */
void left_out_publish(struct left_out *left_out, const struct progress_point *least,
                      const struct progress_point *began);
/* The node is gone, or nothing is heard of it; its ranks were at `begin` at least. */
void left_out_gone(struct left_out *left_out, const struct left_out_node *node,
                   const struct progress_point *begin);
/* It was told of the node since the others last went on. */
bool left_out_knows(const struct left_out *left_out, uint64_t node);
/* The others went on there. */
void left_out_went_on(struct left_out *left_out, const struct progress_point *point);
/* A rank goes on at `to`, though it asked for `from`. */
void left_out_moved(struct left_out *left_out, const struct left_out_node *node,
                    const struct progress_point *from, const struct progress_point *to);

/* This node is new to the loader, which others have read up to `begin`: what was left out before it
 * came they tell by the store. */
void left_out_came(struct left_out *left_out, const struct progress_point *begin);
/* The store has lost what nodes have told there. */
void left_out_store_lost(struct left_out *left_out);

/* What others tell, or what a node that is gone had published, is being read; or another daemon has
 * taken the place of one whose share lacks something up to `end`, and has not said yet whether the
 * same ranks go on.
 */
bool left_out_is_asking(struct left_out *left_out, const struct progress_point *end);
/* Up to `end` of an epoch: samples at most. */
uint64_t left_out_count(const struct left_out *left_out, const struct progress_point *end);
/* The epoch ends: 0: nothing is missing; -ENOTRECOVERABLE with what is. */
int _nodiscard_ left_out_say(struct left_out *left_out, const struct progress_point *end,
                             struct dl_error *err);

/* For members_view.c: samples said to be missing, of all loaders since the start; and a list of
 * which. 0 or -ENOMEM. */
uint64_t left_out_total(const struct members *members);
int _nodiscard_ left_out_view(const struct members *members, struct value *rows);
/* For members.c. Now and then: */
void left_out_ask_again(struct members *members);
/* nothing is answered any more. */
void left_out_deinit(struct members *members);

#endif
