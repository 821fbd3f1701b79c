/*
 * Answers what workers ask about remote files (proto/remote_wire.h), from what is held of them and
 * by transfers. Each worker has a socket of its own; what is wrong with a packet ends that one.
 *
 * Main thread only.
 */
#ifndef DL_REMOTE_DESK_H
#define DL_REMOTE_DESK_H

#include "daemon/fetcher/kept.h"
#include "daemon/fetcher/peers.h"
#include "daemon/fetcher/transfers.h"

struct desk;

/* `limit`: bytes that are held at most, besides what workers have in use. */
struct desk *desk_new(uv_loop_t *loop, struct transfers *transfers, struct kept *kept,
                      uint64_t limit);
struct desk *desk_free(struct desk *desk); /* NULL is fine; returns NULL */

/* `unused`: called when the last worker has gone; NULL: nobody wants to know. */
void desk_on_unused(struct desk *desk, void (*unused)(void *owner), void *owner);

/* Other nodes, which keep other parts; NULL: none do. Borrowed. */
void desk_set_peers(struct desk *desk, struct peers *peers);

/* There are workers. */
bool desk_is_used(const struct desk *desk);

/* A worker, by its socket, which becomes the desk's. What others of its `loader` that are there
 * have learned of the store it need not ask again; 0: it has no others. */
void desk_add(struct desk *desk, int sock, uint64_t loader);

#endif
