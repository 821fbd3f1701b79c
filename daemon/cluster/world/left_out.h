/*
 * What nodes that are gone leave out of a loader's epochs (account.h). This node publishes how far
 * its ranks are; of a node that is not in a new round it reads what that one published last. At an
 * epoch's end it says what is missing.
 *
 * Each shared loader has one. Main thread only.
 */
#ifndef DL_LEFT_OUT_H
#define DL_LEFT_OUT_H

#include "daemon/cluster/progress/account.h"
#include "proto/value.h"

struct members;
struct left_out;

/* A node of a round. */
struct left_out_node {
    uint64_t id;
    char name[64];
    uint64_t first, local, world; /* its ranks */
    bool came;                    /* it was not in the round before */
};

/* `key` is the loader's in the store, `name` for people; both are copied. */
struct left_out *left_out_new(struct members *members, const char *key, const char *name,
                              uint64_t batch);
struct left_out *left_out_free(struct left_out *left_out); /* NULL is fine; returns NULL */

/* This daemon ends, and its ranks continue: the furthest is there; and the last of those that
 * are not at the epoch's end, which takes its next step once it has a daemon again. In lock step
 * no rank goes beyond that before. */
struct left_out_word {
    struct progress_point furthest, last;
    bool has_last;
};

/* All ranks of this node are at `least`, and had begun at `began` here, at most: trainers that went
 * on under another daemon at the beginning of all. `word`: NULL: this daemon continues, or none
 * does.
 */
void left_out_publish(struct left_out *left_out, const struct progress_point *least,
                      const struct progress_point *began, const struct left_out_word *word);
/* What is to be published is not in the store yet. */
bool left_outs_are_writing(const struct members *members);
/* The node is gone, or nothing is heard of it; its ranks were at `begin` at least. */
void left_out_gone(struct left_out *left_out, const struct left_out_node *node,
                   const struct progress_point *begin);
/* It was told of the node since the others last went on. */
bool left_out_knows(const struct left_out *left_out, uint64_t node);
/* The place in a world of that size that this node's ranks had when an earlier daemon served them,
 * as others tell; world 0: it is not known. */
struct former_place left_out_former(const struct left_out *left_out, uint64_t world);
/* What others tell is being read for the first time. */
bool left_out_is_coming(const struct left_out *left_out);
/* How far nodes were that have gone just now is being asked. */
bool left_out_is_learning(const struct left_out *left_out);
/*
 * Where the others continue without those that have gone just now, or with those of this round that
 * are back: not before `*point`; nor before what the former have left as their word, or where the
 * others went on without the latter. Their trainers may live, and be as far as that.
 */
void left_out_raise(const struct left_out *left_out, const struct progress *progress,
                    struct progress_point *point);
/* Ranks of this node have gone on without a node of that name. */
bool left_outs_miss(const struct members *members, const char *name);
/* The others went on there. */
void left_out_went_on(struct left_out *left_out, const struct progress_point *point);
/* All ranks go back to there, in the middle of an epoch, and another pass begins: nothing is
 * missing of what the one before had from there on. */
void left_out_turned(struct left_out *left_out, const struct progress_point *at);
/* A rank continues at `to`, though it asked for `from`. */
void left_out_moved(struct left_out *left_out, const struct left_out_node *node,
                    const struct progress_point *from, const struct progress_point *to);

/* This node is new to the loader, which others have read up to `begin`: what was left out before it
 * came they tell by the store. */
void left_out_came(struct left_out *left_out, const struct progress_point *begin);
/* The store has lost what nodes have told there. */
void left_out_store_lost(struct left_out *left_out);

/* What others tell, or what a node that is gone had published, is being read; or another daemon has
 * taken the place of one whose share lacks something up to `end`, and has not said yet whether the
 * same ranks continue.
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
