/*
 * Progress: how far a loader's ranks are, over the rounds of a cluster: where each round's world
 * began, what of the world before it is still to be done, and where ranks resume. Pure.
 *
 * A *point* is a place in the order of an epoch: after some steps of some number of ranks, then
 * some of another number, and so on. It is the same for all ranks. Each round has one where its
 * world begins: the furthest that any rank of the nodes that meet had been given. A rank that is
 * not there yet resumes in the world before, at its rank of then, until it is. So each sample comes
 * once, though no two ranks are at the same step when a round ends.
 *
 * In each new round every node publishes a *report*: how far its ranks are, and where the rounds
 * began that it knows of. All who were in the last round read the same reports, and so come to the
 * same result without talking again. The report of a new node counts only if all nodes are new.
 *
 * When a rank asks again for an epoch that it has had, that is another *pass*: its points come
 * after all points of the pass before. So it is when ranks go back to before a change of the number
 * of ranks: what they had from there on counts as never given, and all of it is shared out anew.
 */
#ifndef DL_PROGRESS_H
#define DL_PROGRESS_H

#include "proto/codec.h"
#include "proto/common/error.h"
#include "proto/history.h"

struct progress_point {
    uint64_t pass;
    uint64_t epoch;
    struct history history; /* everything before it */
};

enum progress_order { PROGRESS_SAME, PROGRESS_BEFORE, PROGRESS_AFTER, PROGRESS_UNRELATED };
/* What `a` is to `b`; unrelated: neither is on the way to the other. */
enum progress_order progress_compare(const struct progress_point *a,
                                     const struct progress_point *b);

/* Behind `steps` steps of `world` ranks, `before` being theirs. False: no room in a history. */
bool _nodiscard_ progress_point_after(struct progress_point *ret, uint64_t pass, uint64_t epoch,
                                      const struct history *before, uint64_t world, uint64_t steps);
/* The other way: as START says it, for that many ranks; returns the step. */
uint64_t progress_point_split(const struct progress_point *point, uint64_t world,
                              struct history *ret_before);

/* For people: "epoch 3 behind 12 steps of 4 ranks and 5 of 6". */
enum { PROGRESS_TEXT_MAX = 256 };
void progress_point_text(const struct progress_point *point, char ret[static PROGRESS_TEXT_MAX]);

/* For the store: " 0 3 4:12 6:5" and the line's end: pass, epoch, and steps of each world. */
void progress_point_write(const struct progress_point *point, struct dl_buffer *out);
/* `*at`, of a text that ends with a NUL, is then behind it. False: the text has none. */
bool _nodiscard_ progress_point_read(const char **at, struct progress_point *ret);
/* Past this text, if it comes next. */
bool progress_take_text(const char **at, const char *text);

/* ---- the rounds that a node knows ---- */

enum { PROGRESS_ROUNDS = 8 };

struct progress_round {
    uint64_t number;
    uint64_t first, world; /* `first`: the rank of the node's rank 0; world 0: it was not in it */
    bool known;            /* where it began */
    struct progress_point begin;
};

struct progress {
    struct progress_round rounds[PROGRESS_ROUNDS]; /* by number */
    uint32_t n;
};

/* The node has a place in it. The oldest round gives way. */
void progress_enter(struct progress *progress, uint64_t round, uint64_t first, uint64_t world);
void progress_learn(struct progress *progress, uint64_t round, const struct progress_point *begin);
const struct progress_round *progress_find(const struct progress *progress, uint64_t round);
/* The latest whose beginning is known; NULL: none. */
const struct progress_round *progress_latest(const struct progress *progress);
/* The first whose beginning is known, and that the node has a place in. */
const struct progress_round *progress_first(const struct progress *progress);

/* Behind the step that a rank at that point takes next. False: the node does not know the world. */
bool progress_next(const struct progress *progress, const struct progress_point *point,
                   struct progress_point *ret);

/* Of an epoch's stream in the world of that round, of `world` ranks, begun behind `before`: the
 * step that it ends before; UINT64_MAX: it goes to the end of the epoch. */
uint64_t progress_limit(const struct progress *progress, uint64_t round, uint64_t world,
                        uint64_t pass, uint64_t epoch, const struct history *before);

/* ---- where a rank resumes ---- */

#define PROGRESS_NO_ROUND UINT64_MAX

/* What is known of a rank of this node. */
struct progress_rank {
    uint64_t entered; /* round in whose world it was last; PROGRESS_NO_ROUND: none */
    /* Bounds of its position, unless PROGRESS_NO_ROUND: at least `behind`, at most `given`. */
    struct progress_point given;
    struct progress_point behind;
    bool left; /* its client has left its stream by itself, before the end of that */
};

/* The place that a rank had in the world that it was in last, as its client knows it: a daemon that
 * was started anew was in no world before. */
struct former_place {
    uint64_t rank, world; /* world 0: it was in none */
};

#define RESUME_ANYWHERE UINT64_MAX /* in place of an epoch: where the other nodes are */

struct resume_request {
    uint64_t epoch;
    uint64_t step;         /* of the world that there is now, */
    struct history before; /* behind this */
    uint64_t local;        /* its rank on this node */
    struct former_place former;
    /* The place that the node's rank 0 had, by others, in a world of that size; world 0: none.
     * NULL: they say nothing. */
    struct former_place (*tell)(const void *teller, uint64_t world);
    const void *teller;
};

struct resume_place {
    uint64_t round, first, world; /* `first`: the rank of this node's rank 0 */
    uint64_t limit;               /* the step that it ends before; UINT64_MAX: none */
    uint64_t pass, epoch, step;
    struct history before;
    bool turns; /* it goes back to here in the middle of an epoch: another pass begins, for all */
    /* Steps of its own between where it was and here, which nobody takes; UINT64_MAX: all that it
     * had left of its epoch. Where it was: */
    uint64_t lost;
    struct progress_point from;
};

/* There is a latest round, and the node has a place in it. 0; -EINVAL: the request cannot be
 * granted. */
int _nodiscard_ progress_resume(const struct progress *progress, const struct progress_rank *rank,
                                const struct resume_request *request, struct resume_place *ret,
                                struct dl_error *err);

/*
 * No node knows where the round begins, since all daemons are new; but the rank that asks has the
 * place that it had before, of this node whose rank 0 is `first` of `world`. Where its world began
 * is then as good as any other place at which nobody is yet: each rank continues at its own step,
 * as if nothing had happened. False: the round begins elsewhere now, or never had a beginning.
 */
bool progress_begin_as_before(const struct resume_request *request, uint64_t first, uint64_t world,
                              struct progress_point *ret);

/* ---- reports of nodes ---- */

struct progress_report {
    uint64_t last; /* latest round whose beginning the node knew; PROGRESS_NO_ROUND: none */
    bool has_point;
    struct progress_point point; /* the furthest that its ranks were given */
    struct progress known;       /* rounds with their beginnings; places are not reported */
};

/* As text, for people who look into the store. */
void progress_report_write(const struct progress_report *report, struct dl_buffer *out);
/* As it was written in that round: it tells of rounds before. */
bool _nodiscard_ progress_report_read(struct dl_span bytes, uint64_t round,
                                      struct progress_report *ret);

struct node_report {
    const char *node; /* its name */
    const struct progress_report *report;
};

/* Where the nodes resume. 0; 1: none of them knows. -EINVAL: two points are unrelated; the error
 * names both nodes. */
int _nodiscard_ progress_merge(const struct node_report *reports, uint32_t n,
                               struct progress_point *ret, struct dl_error *err);

#endif
