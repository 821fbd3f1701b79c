/*
 * Indexes of files shared by the workers of a loader (daemon/data/files/shared_index.h): the first
 * worker that opens the dataset sends them in sealed memfds, and they are kept for the loader's
 * life. Their bytes are charged to its user, and the daemon never looks at them. Main thread.
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

/* All zero is empty. */
struct index_list {
    struct index *items; /* owned */
    uint32_t n;
};

/* How many the spec's dataset, and those inside it, have. */
uint32_t index_list_wanted(const struct spec_dataset *dataset);

/*
 * Adds an index sent by a worker; consumes `fd`, also on failure. The first one for a place and
 * form stays: others are dropped. -EPROTO: not a sealed memfd; -EDQUOT, -ENOMEM: above the payer's
 * or the system's limit.
 */
int _nodiscard_ index_list_add(struct index_list *list, const struct payer *payer,
                               struct dl_span place, uint32_t form, int fd, struct dl_error *err);
void index_list_deinit(struct index_list *list); /* zeroes it */

#endif
