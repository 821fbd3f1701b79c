/* What `run` and `check` found, and how they print it: one JSON object or a few lines. */
#ifndef DLCTL_OUTCOME_H
#define DLCTL_OUTCOME_H

#include "client/dlctl/options.h"
#include "client/dlctl/run/digest.h"
#include "client/dlctl/run/progress.h"
#include "client/dlctl/run/stats.h"
#include "proto/shared/verdict.h"
#include "proto/value.h"

/* One tensor of the first batch, or one text. */
struct leaf {
    char *path;        /* owned; keys and positions joined by dots, "" for a lone tensor */
    const char *dtype; /* static; of text its kind, "string" or "bytes" */
    uint32_t ndim;
    uint64_t shape[DIGEST_DIMS];
    bool is_text;
    char quoted[48]; /* text: how the first string begins; "": no string */
    bool has_stats;
    struct stats stats;
};

/* One epoch of a `run`. */
struct epoch_outcome {
    uint64_t epoch;
    uint64_t batches;
    double seconds;
    double first_batch_s; /* from its start to its first batch; < 0: no batch */
    double wait_s;
};

#define OUTCOME_UNKNOWN UINT64_MAX /* an iterable dataset does not say */

struct outcome {
    char *name;      /* owned */
    uint64_t length; /* or OUTCOME_UNKNOWN, as may be `steps` */
    uint64_t steps;  /* of an epoch: of the rank with the most, among those asked for */
    uint64_t seed;
    struct tally tally;
    double seconds;           /* of iterating */
    double open_s;            /* run: until the loader was open */
    char digest[DIGEST_TEXT]; /* "" = not asked for */
    struct leaf *leaves;      /* owned; check only */
    size_t n_leaves;
    struct epoch_outcome *epochs; /* owned; run only */
    struct value plan;            /* owned; run only: the daemon's row of the last epoch, or null */
    size_t n_epochs;
    bool has_verdict; /* run only: the daemon knows where the time went */
    struct verdict verdict;
    struct value bad; /* owned; check only: rows of bad samples; null: on_error is raise */
};

void outcome_deinit(struct outcome *outcome);
int _nodiscard_ outcome_set_name(struct outcome *outcome, const char *name);
/* Copies both. 0 or -ENOMEM. */
int _nodiscard_ outcome_add_leaf(struct outcome *outcome, const char *path,
                                 const struct leaf *leaf);
int _nodiscard_ outcome_add_epoch(struct outcome *outcome, const struct epoch_outcome *epoch);

/* Prints it; returns an exit status. */
int outcome_report(const struct options *o, const struct outcome *outcome);

#endif
