/*
 * The inside of a shared loader: shared_loader.c places ranks, reports.c tells and learns how far
 * the ranks of other nodes are. Nobody else includes it.
 */
#ifndef DL_SHARED_LOADER_PRIVATE_H
#define DL_SHARED_LOADER_PRIVATE_H

#include "daemon/cluster/world/given_weights.h"
#include "daemon/cluster/world/members_private.h"

struct shared_rank {
    struct progress_rank progress;
    const void *session, *stream; /* that it reads with; only compared */
    bool report_due;              /* its client knows what it had, and has not said so yet */
    bool asks;                    /* it has no stream, and its client will ask for the next step */
    bool goes_on;                 /* its trainer was there before this daemon was */
    struct progress_point began;  /* where it was first here; if it continues: zero */
};

/* The reports of one round, while they are gathered. */
struct report_round {
    struct report_round *prev, *next; /* shared_loader.report_rounds */
    struct shared_loader *shared;
    struct allgather *allgather;
    uint64_t number; /* of the round */
    bool settled;    /* where that begins is known by now, and what others report does not count */
    struct allgather_node *nodes; /* owned: of that round */
    uint32_t n, self;
};

/* Its changed weights; see given_weights.h. */
struct given_weights {
    bool compares; /* a change is compared with those of others */
    bool told;     /* the loader has all of given.list */
    struct given given;
    void *loader; /* borrowed: of its ranks that are here; NULL: none is */
    const struct given_weights_ops *ops;
    char text[GIVEN_TEXT_MAX]; /* of the change that was given last: as others are told */
    struct dl_error failure;   /* why it is not compared; code 0: nothing */
};

/* restarts.c: when a launcher has started all ranks again. */
struct restart {
    uint64_t number;                /* the last one; 0: none, */
    struct progress_point at;       /* which was there */
    uint64_t asked_ns, asked_round; /* it is asked whether there is another, */
    uint64_t next;                  /* its number; 0: there was none, */
    struct progress_point next_at;
    uint64_t decided_ns;   /* where the ranks that have come back resume */
    struct dl_buffer said; /* as the store has it, or will have; empty: nothing */
    bool is_lost;          /* it may not have it */
};

struct shared_loader {
    struct shared_loader *prev, *next; /* members.shared_loaders */
    struct members *members;
    struct quota_account *account; /* borrowed: the first to read it here */
    char *key;                     /* owned */
    uint32_t users;                /* streams that know it */
    struct left_out *left_out;     /* owned */
    struct progress progress;
    struct former_place former; /* of this node's rank 0, as its ranks' clients have said it */
    struct shared_rank *ranks;  /* owned; members.local of them */
    struct report_round *report_rounds; /* owned */
    struct allgather_node *others; /* owned: nodes that were in a round with it, since the latest
                                   round whose beginning it knows */
    uint32_t n_others;
    struct dl_buffer published; /* its report of the latest round that was merged: */
    uint64_t published_round;   /* this one */
    struct dl_error failure; /* of the latest round of reports; code 0: none, or it is not over */
    uint64_t failed_ns;
    /* At an epoch's end it was last looked which node is late; and one was: */
    uint64_t looked_ns, late_ns;
    struct given_weights given;
    struct restart restart;
};

/* ---- reports.c ------------------------------------------------------------------------------ */

/* A rank's client knows more, and has not said so yet. */
bool reports_are_due(const struct shared_loader *shared);
/* Where the latest round began. */
bool reports_know_begin(const struct shared_loader *shared);
/* NULL: those of that round are not being gathered. */
struct report_round *reports_find(const struct shared_loader *shared, uint64_t number);
/* A node whose ranks were in an earlier round reports by itself, once no report of a rank is due.
 */
void reports_write_if_known(struct shared_loader *shared);
/* The first rank asks, of a node that is new to the loader. */
void reports_write_as_new(struct shared_loader *shared, const struct resume_request *request);
/* Nobody will report more: the round begins there, whatever becomes of the reports. */
void reports_settle(struct shared_loader *shared, const struct progress_point *begin);
void reports_cancel(struct shared_loader *shared);

/* ---- restarts.c ----------------------------------------------------------------------------- */

/* The rank may be the first that comes back of all: 0: it is known where these resume; 1: not yet.
 */
int _nodiscard_ restarts_meet(struct shared_loader *shared,
                              const struct shared_loader_request *request, struct dl_error *err);
/* Clients of this node's ranks have come, or gone: others are to know whether its ranks rest. */
void restarts_say(struct shared_loader *shared);
void restarts_end(struct shared_loader *shared);

/* ---- given_weights.c ------------------------------------------------------------------------ */

void given_weights_end(struct shared_loader *shared);
/* The latest round begins with that list. */
void given_weights_begin_round(struct shared_loader *shared, struct mix_changes *list);
/* No rank is here any more. */
void given_weights_detach(struct shared_loader *shared);
bool given_weights_are_idle(const struct shared_loader *shared);

#endif
