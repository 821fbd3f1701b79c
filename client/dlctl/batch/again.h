/* Opening a loader whose batches are to be made once more. */
#ifndef DLCTL_AGAIN_H
#define DLCTL_AGAIN_H

#include "proto/error.h"

struct dl_client;
struct dl_loader;

/*
 * As open_operand(), where batches are wanted that were made before: a spec that has no seed is
 * given `seed`, which may be NULL. Without one it has to be that of a loader which has delivered
 * batches; a seed that is drawn now is none of theirs. What is refused here, and not by the
 * library, is told in `err`, whose code is 0 otherwise.
 */
int _nodiscard_ open_again(struct dl_client *client, const char *operand, const uint64_t *seed,
                           struct dl_loader **ret, struct dl_error *err);

#endif
