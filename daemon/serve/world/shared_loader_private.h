/*
 * The inside of a shared loader: shared_loader.c places ranks, reports.c tells and learns how far
 * the ranks of other nodes are. Nobody else includes it.
 */
#ifndef DL_SHARED_LOADER_PRIVATE_H
#define DL_SHARED_LOADER_PRIVATE_H

#include "daemon/serve/world/members_private.h"

struct shared_rank {
    struct progress_rank progress;
    const void *session, *stream; /* that it reads with; only compared */
    bool report_due;              /* its client knows what it had, and has not said so yet */
    bool goes_on;                 /* its trainer was there before this daemon was */
    struct progress_point began;  /* where it was first here; if it goes on: zero */
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

struct shared_loader {
    struct shared_loader *prev, *next; /* members.shared_loaders */
    struct members *members;
    struct quota_account *account; /* borrowed: who was the first to read it here */
    char *key;                     /* owned */
    uint32_t users;                /* streams that know it */
    struct left_out *left_out;     /* owned */
    struct progress progress;
    struct shared_rank *ranks;          /* owned; members.local of them */
    struct report_round *report_rounds; /* owned */
    struct allgather_node *others; /* owned: nodes that were in a round with it, since the latest
                                   round whose beginning it knows */
    uint32_t n_others;
    struct dl_buffer published; /* its report of the latest round that was merged: */
    uint64_t published_round;   /* this one */
    struct dl_error failure;    /* of the latest round of reports; code 0: none, or it goes on */
    uint64_t failed_ns;
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

#endif
