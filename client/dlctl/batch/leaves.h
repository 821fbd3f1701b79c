/* The tree of a batch, leaf by leaf. */
#ifndef DLCTL_LEAVES_H
#define DLCTL_LEAVES_H

#include "client/dlclient.h"
#include "proto/base.h"

/*
 * Node `at`, which is a leaf, an object, or an empty dict, list or tuple. `path`: keys and
 * positions joined by dots, "" for the batch itself; valid in the call. What is not 0 ends the
 * walk.
 */
typedef int leaves_visit(void *data, const char *path, const struct dl_node *node, uint32_t at);

/*
 * Visits all of them, in preorder. An object's pickle, its first child, is not visited: it is node
 * `at` + 1; the tensors that it refers to are. 0, what `visit` said, or a negative errno.
 */
int _nodiscard_ leaves_walk(struct dl_batch *batch, leaves_visit *visit, void *data);

/* "tensor", "string", "object", ...; static. */
const char *leaves_kind_name(enum dl_node_kind kind);

#endif
