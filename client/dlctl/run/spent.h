/*
 * What a loader's time has gone to so far, as the daemon's views say it; and from two of these,
 * what it went to between them. Pure, but for spent_ask().
 */
#ifndef DLCTL_SPENT_H
#define DLCTL_SPENT_H

#include "proto/shared/verdict.h"
#include "proto/value.h"

struct dl_client;

struct spent {
    bool known;   /* the daemon has one loader of that name: else what follows is not set */
    uint64_t pid; /* of the daemon */
    uint64_t batches;
    bool own_shares;                /* its dataset is iterable */
    uint64_t ns[STAGES];            /* of all of them */
    uint64_t starved_ns;            /* while a reader waited for memory */
    char *starved_by;               /* owned; the setting that left none; NULL: none has */
    struct verdict_store store;     /* all of it, of all loaders; span_ns is 0 */
    struct verdict_worker *workers; /* owned */
    size_t n_workers;
};
void spent_deinit(struct spent *spent);

enum spent_view {
    SPENT_STATUS,
    SPENT_LOADERS,
    SPENT_WORKERS,
    SPENT_TIMES,
    SPENT_REMOTE,
    SPENT_VIEWS
};

/* From the daemon's answers. 0 or -ENOMEM. */
int _nodiscard_ spent_read(const struct value views[static SPENT_VIEWS], const char *loader,
                           struct spent *ret);

/* Asks for them. What the daemon does not answer is not known; -ENOMEM. */
int _nodiscard_ spent_ask(struct dl_client *client, const char *loader, struct spent *ret);

/*
 * Of a client that has read in between, for `span_ns`, and has waited for `waited_ns` of that; it
 * has got `batches`. False: there is nothing to say, since the daemon, or the loader, is not the
 * one that it was, or too few batches came.
 */
bool spent_verdict(const struct spent *before, const struct spent *after, uint64_t span_ns,
                   uint64_t waited_ns, uint64_t batches, struct verdict *ret);

#endif
