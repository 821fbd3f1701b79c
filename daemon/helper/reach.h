/* A connection to a helper, proven in both directions (proof.h). Blocks for LINK_PROVE_S at most.
 */
#ifndef DL_HELPER_REACH_H
#define DL_HELPER_REACH_H

#include "proto/common/error.h"

/* Negative errno with `err`, which names the address. The descriptor is the caller's. */
int _nodiscard_ reach_helper(const char *address, const char *secret, int *ret,
                             struct dl_error *err);

/* Of either end: small messages leave at once, and a connection that is cut is noticed. */
void reach_tune(int fd);

#endif
