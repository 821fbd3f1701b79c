/*
 * The course of a loader's epochs through the rounds of a cluster: where each round's world began,
 * what of the world before it is still to be done, and where nodes that meet go on. Pure.
 *
 * A *point* is a place in the order of an epoch: behind so many steps of so many ranks, and so on.
 * It is the same for all ranks. Each round has one where its world begins: the furthest that any
 * rank of the nodes that meet had been given. A rank that is not there yet goes on in the world
 * before, at its rank of then, until it is. So each sample comes once, though no two ranks are
 * at the same step when a round ends.
 *
 * Every node says its *word* in each new round: how far its ranks are, and where the rounds began
 * that it knows of. All who were in the last round hear the same words and so agree without
 * another one. Who has come anew says nothing that counts, unless nobody else was there before.
 *
 * What a rank is given again, of an epoch that it has had, is another *pass*: it comes behind
 * everything of the pass before.
 */
#ifndef DL_COURSE_H
#define DL_COURSE_H

#include "proto/codec.h"
#include "proto/error.h"
#include "proto/history.h"

struct course_point {
    uint64_t pass;
    uint64_t epoch;
    struct history history; /* everything before it */
};

enum course_order { COURSE_SAME, COURSE_BEFORE, COURSE_AFTER, COURSE_APART };
/* What `a` is to `b`; apart: of histories that have nothing to do with each other. */
enum course_order course_compare(const struct course_point *a, const struct course_point *b);

/* Behind `steps` steps of `world` ranks, `before` being theirs. False: no room in a history. */
bool _nodiscard_ course_point_at(struct course_point *ret, uint64_t pass, uint64_t epoch,
                                 const struct history *before, uint64_t world, uint64_t steps);
/* The other way: as START says it, for that many ranks; returns the step. */
uint64_t course_point_split(const struct course_point *point, uint64_t world,
                            struct history *ret_before);

/* For people: "epoch 3 behind 12 steps of 4 ranks and 5 of 6". */
enum { COURSE_TEXT_MAX = 256 };
void course_point_text(const struct course_point *point, char ret[static COURSE_TEXT_MAX]);

/* ---- the rounds that a node knows ---- */

enum { COURSE_ROUNDS = 8 };

struct course_round {
    uint64_t number;
    uint64_t first, world; /* the node's place: of its rank 0; world 0: it was not in it */
    bool known;            /* where it began */
    struct course_point begin;
};

struct course {
    struct course_round of[COURSE_ROUNDS]; /* by number */
    uint32_t n;
};

/* The node has a place in it. The oldest round gives way. */
void course_enter(struct course *course, uint64_t round, uint64_t first, uint64_t world);
void course_learn(struct course *course, uint64_t round, const struct course_point *begin);
const struct course_round *course_find(const struct course *course, uint64_t round);
/* The latest whose beginning is known; NULL: none. */
const struct course_round *course_latest(const struct course *course);
/* The first whose beginning is known, and that the node has a place in. */
const struct course_round *course_first(const struct course *course);

/* Of an epoch's stream in the world of that round, begun behind `before`: the step that it does not
 * go beyond; UINT64_MAX: to its end. */
uint64_t course_limit(const struct course *course, uint64_t round, uint64_t pass, uint64_t epoch,
                      const struct history *before);

/* ---- where a rank goes on ---- */

#define COURSE_NEW UINT64_MAX

/* What is known of a rank of this node. */
struct course_rank {
    uint64_t entered;           /* round in whose world it was last; COURSE_NEW: none */
    struct course_point given;  /* it was given nothing behind this, */
    struct course_point behind; /* and is behind this for sure; both unless COURSE_NEW */
};

#define COURSE_ANYWHERE UINT64_MAX /* in the place of an epoch: wherever the others are */

struct course_wish {
    uint64_t epoch;
    uint64_t step;         /* of the world that there is now, */
    struct history before; /* behind this */
};

struct course_place {
    uint64_t round, first, world; /* `first`: the rank of this node's rank 0 */
    uint64_t limit;               /* the step that it does not go beyond; UINT64_MAX: none */
    uint64_t pass, epoch, step;
    struct history before;
    bool moved; /* it was before all that is known here: what it lacks is lost */
};

/* There is a latest round, and the node has a place in it. 0; -EINVAL: it asks for what is not to
 * be had. */
int _nodiscard_ course_place(const struct course *course, const struct course_rank *rank,
                             const struct course_wish *wish, struct course_place *ret,
                             struct dl_error *err);

/* ---- what nodes say ---- */

struct course_word {
    uint64_t last; /* round whose beginning it knew; COURSE_NEW: none */
    bool says;     /* `at`: how far its ranks are */
    struct course_point at;
    struct course knows; /* rounds with their beginnings; places are not said */
};

/* As text, for people who look into the store. */
void course_word_write(const struct course_word *word, struct dl_buffer *out);
/* As it was said in that round: of those before it. */
bool _nodiscard_ course_word_read(struct dl_span bytes, uint64_t round, struct course_word *ret);

struct course_said {
    const char *node; /* its name */
    const struct course_word *word;
};

/* Where they go on. 0; 1: nobody knows. -EINVAL: two stand apart, with their names. */
int _nodiscard_ course_agree(const struct course_said *said, uint32_t n, struct course_point *ret,
                             struct dl_error *err);

#endif
