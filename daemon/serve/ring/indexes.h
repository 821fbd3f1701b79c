/*
 * What the workers of a loader share of what they know of their dataset's files
 * (daemon/data/files/shared_index.h): the first one that opens the dataset sends it, in sealed
 * memfds, and they are kept for the loader's life. Their bytes are charged to its user, and are
 * never looked at here. Main thread.
 */
#ifndef DL_RING_INDEXES_H
#define DL_RING_INDEXES_H

#include "daemon/serve/ring/charge.h"
#include "proto/spec.h"

struct index {
    char *place; /* owned; of the dataset in the spec */
    uint32_t form;
    int fd; /* owned */
    struct charge charge;
};

/* All zero: there are none. */
struct index_list {
    struct index *items; /* owned */
    uint32_t n;
};

/* How many the spec's dataset, and those inside it, have. */
uint32_t index_list_wanted(const struct spec_dataset *dataset);

/*
 * Adds one that a worker has sent; consumes `fd`, also on failure. The first one of a place and
 * form stays: others are dropped. -EPROTO: it is no sealed memfd; -EDQUOT, -ENOMEM: it is more than
 * the payer may have, or the system has.
 */
int _nodiscard_ index_list_add(struct index_list *list, const struct payer *payer,
                               struct dl_span place, uint32_t form, int fd, struct dl_error *err);
void index_list_deinit(struct index_list *list); /* zeroes it */

#endif
