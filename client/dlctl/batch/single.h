/* One batch of a loader, in an epoch of its own, so that no other client's batches, order or place
 * are touched. */
#ifndef DLCTL_SINGLE_H
#define DLCTL_SINGLE_H

#include "client/dlclient.h"
#include "client/dlctl/options.h"

struct single {
    const struct options *o;
    struct dl_client *client; /* owned */
    struct dl_loader *loader; /* the client's */
    struct dl_epoch *epoch;   /* the loader's */
    struct dl_batch *batch;   /* the epoch's */
    const void *state;        /* borrowed; NULL: the place is what the options say */
    size_t state_len;
    bool chooses; /* where the client is the sampler and no samples are named: the first ones */
    bool fed;     /* the client is the sampler */
};

void single_deinit(struct single *s);

/*
 * The batch of the loader, which the caller has opened, at the place that the options or the state
 * say; what the daemon has to say of it is reported. 0; DL_END: there is no such step; -ENODATA:
 * the client is the sampler, and nothing was fed; or a negative errno.
 */
int _nodiscard_ single_load(struct single *s);

/* Reports that there is no such step; returns an exit status. */
int single_no_such_step(const struct single *s);

#endif
