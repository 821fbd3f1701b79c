/*
 * Other nodes of the run, which keep other parts of the data on their disks: so that a block leaves
 * the store once per cluster.
 *
 * Who takes part: the daemon, a member of the run, leaves the node's address, room and token in the
 * store that the run meets in, and reads those of the others (daemon/cluster/world/peers_told.c).
 * It gives the list, and the socket that listens, to this process (daemon/fetcher/service.c), which
 * alone talks to them. Which node keeps a block follows from the list (daemon/cache/placement.h).
 *
 * A fetch asks memory, the disk, the node that owns the block, and the store. Of what the store
 * gives the owner gets a copy, if it has said that it wants one. A node that has not got a block
 * says so at once, and asks nobody for it. Of two that need the same block at the same time the
 * second waits for what the first one brings (promises.h): it asks again and again, and the owner
 * says each time that it is coming, until it is there or its promise has ended. Messages are in
 * daemon/remote/peer_wire.h.
 *
 * Rights: each node asks the store itself, with its user's keys, whether the object is the one that
 * was given, as for what its own disk keeps; until it has said so, and since each worker came, no
 * worker has any of it. Nodes of another user, by its number, are not asked.
 *
 * A node that does not answer in PEER_MS, refuses or breaks off is a miss; then it is not asked for
 * a while, longer each time. The sandbox of this process allows accept4() besides, if there are to
 * be peers; the socket was bound, and listens, when it gets it.
 *
 * Main thread only. Callbacks come from the loop, never from inside a call; after
 * peer_call_cancel() none comes.
 */
#ifndef DL_FETCHER_PEERS_H
#define DL_FETCHER_PEERS_H

#include "daemon/fetcher/kept.h"

struct peers;
struct peer_call;

enum { PEER_MS = 3000 };

struct peer_result {
    uint64_t n;          /* blocks that it is about: at least one; fewer than were asked for: of the
                            others nothing is said */
    bool again;          /* they may be there by now */
    bool wanted;         /* they are not there, and it is to be told by peers_bring(), or that they
                            are not to be had by peers_bring_not() */
    struct dl_span data; /* of all of them; NULL: they are not there */
    /* Of what object, where it was not known. */
    uint64_t bytes;
    const char *etag;
    int64_t modified;
};
typedef void peers_done(void *owner, const struct peer_result *result);

/* Borrows all. -EINVAL: this system cannot prove anything. */
int _nodiscard_ peers_new(uv_loop_t *loop, struct kept *kept, struct remote_tally *tally,
                          struct peers **ret, struct dl_error *err);
/* Nothing is under way. NULL is fine; returns NULL. */
struct peers *peers_free(struct peers *peers);

/* Where others ask: becomes the peers'. */
void peers_listen(struct peers *peers, int fd);
/* Who takes part: lines as peers_told.c writes them, "self ID" or "node ID CARD". */
void peers_set_list(struct peers *peers, struct dl_span text);

/* Asks whoever owns these blocks, which are of one group, for some of them. Of an object that is
 * not known, for the first one. NULL: they are to be had from the store; if that is since they are
 * this node's own, peers_came() says when they are here. All take NULL for `peers`. */
struct peer_call *peers_ask(struct peers *peers, const struct object *object, uint64_t first,
                            uint64_t n, peers_done *done, void *owner);
/* They were wanted. */
void peers_bring(struct peers *peers, const struct object *object, uint64_t first,
                 struct dl_span data);
void peers_bring_not(struct peers *peers, const struct object *object, uint64_t first, uint64_t n);
/* Another node keeps it, as far as one does. */
bool peers_leave_to_other(const struct peers *peers, const struct object *object, uint64_t block);
/* Somebody brings it to this node, which owns it. */
bool peers_have_promised(const struct peers *peers, const struct object *object, uint64_t block);
/* They are here, or do not come. */
void peers_came(struct peers *peers, const struct object *object, uint64_t first, uint64_t n);
/* NULL is fine; returns NULL. */
struct peer_call *peer_call_cancel(struct peer_call *call);

#endif
