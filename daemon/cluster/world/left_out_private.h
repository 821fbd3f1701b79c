/*
 * The inside of what is left out: left_out.c counts it and says it, left_out_told.c has newcomers
 * know of it. Nobody else includes it.
 */
#ifndef DL_LEFT_OUT_PRIVATE_H
#define DL_LEFT_OUT_PRIVATE_H

#include "daemon/cluster/world/members_private.h"

enum { TURNS_MAX = 8 };

struct absence {
    struct absence *prev, *next; /* left_out.absences */
    struct account_absence what;
    uint64_t id;   /* of the node; 0: a rank of this one */
    bool asking;   /* the store, how far the node was, */
    bool failed;   /* in vain: again at the next tick */
    bool has_word; /* its daemon ended under trainers that continue: */
    struct left_out_word word;
    uint64_t pass; /* that its ranks were in, at least, when it was missed */
    uint64_t heir; /* the daemon that took its place, */
    bool asking_heir, knows_heir;
    struct progress_point heir_began; /* whose ranks began there */
    bool said;                        /* in this epoch, with */
    uint64_t said_epoch, samples;
    struct account_range range;
};

struct left_out {
    struct left_out *prev, *next; /* members.left_outs */
    struct members *members;
    char *key, *name; /* owned */
    uint64_t batch;
    struct absence *absences; /* owned */
    uint32_t n;
    struct dl_buffer published; /* what the store has, or will have, */
    uint64_t token;             /* and what that is worth there */
    bool writing;
    struct dl_buffer due;        /* what is to be published next, meanwhile; empty: nothing */
    bool lost;                   /* it may not have it */
    struct progress_point ended; /* the end of the latest epoch that came to one */
    struct progress_point turns[TURNS_MAX]; /* where passes began in the middle of an epoch, */
    uint32_t n_turns;                       /* the last ones */
    /* left_out_told.c: what this node tells others of its absences, as the store has it, */
    struct dl_buffer told;
    bool telling, told_lost;
    bool came; /* and what others told it, if it came when the loader was read, in that epoch: */
    uint64_t came_epoch;
    bool coming;    /* and nothing of it is known yet */
    bool hearing;   /* the store is asked what they tell; */
    bool hears_end; /* since that epoch has ended, */
    bool heard_end; /* and has answered */
};

/* What the store was asked: the loader may be gone when it answers. */
struct left_out_call {
    struct left_out_call *prev, *next; /* members.left_out_calls */
    struct members *members;
    struct left_out *left_out; /* compared with those that there are */
    uint64_t node;             /* 0: what this one publishes */
};

/* ---- left_out.c ----------------------------------------------------------------------------- */

struct left_out_call *left_out_call(struct left_out *l, uint64_t node);
/* Who asked; NULL: it is gone. The call is, too. */
struct left_out *left_out_take(struct left_out_call *call);
/* The oldest gives way to it. */
struct absence *left_out_add(struct left_out *l, const struct left_out_node *node,
                             const struct progress_point *from);
/* Ranks have turned back: what is missing of it, in the pass that there is now. */
void left_out_turn(const struct left_out *l, struct absence *absence);
/* How far the node was, as the store has it. */
void left_out_ask(struct left_out *l, struct absence *absence);

/* ---- left_out_told.c ------------------------------------------------------------------------ */

/* An absence is another: those who come later shall know. */
void left_out_tell(struct left_out *l);
/* Now and then: what the store did not take. */
void left_out_tell_again(struct left_out *l);
/* The node is gone permanently, and forgotten. */
void left_out_untell(const struct left_out *l, uint64_t node);
/* What others tell at the epoch's end is not known yet. */
bool left_out_is_hearing(struct left_out *l, const struct progress_point *end);

#endif
