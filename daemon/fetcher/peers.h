/*
 * Other nodes of the run, which keep other parts of the data on their disks: so that a block leaves
 * the store once per cluster.
 *
 * Who takes part: the daemon, a member of the run, leaves the node's address, room and token in the
 * store that the run meets in, and reads those of the others (daemon/cluster/world/peers_told.c).
 * It gives the list, and the socket that listens, to this process (daemon/fetcher/service.c), which
 * alone talks to them. Which node keeps a block follows from the list (daemon/cache/placement.h).
 *
 * A fetch asks memory, the disk, the nodes of the block's chain, and the store; what that gives is
 * brought to the one of the chain that has room (chain.h), which may be this one. A node that has
 * not got a block says so at once, and asks nobody for it. Of two that need the same block at the
 * same time the second waits for what the first one brings (promises.h): it asks again and again,
 * and the node that gave the first one the turn says each time that it is coming, until it is where
 * it is to be found or the promise has ended. Messages are in daemon/remote/peer_wire.h.
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

#include "daemon/fetcher/chain.h"
#include "daemon/fetcher/kept.h"

struct peers;
struct peer_call;

enum { PEER_MS = 3000 };

struct peer_result {
    uint64_t n;          /* blocks that it is about: at least one; fewer than were asked for: of the
                            others nothing is said */
    bool again;          /* they may be here by now */
    struct dl_span data; /* of all of them; NULL: nobody has them */
    struct chain chain;  /* then: to whom they are to be brought, or that they are not to be had;
                            else to whom what the store has instead */
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

/* Asks for some of these blocks, which are of one group, those who may have them. Of an object that
 * is not known, for the first one. NULL: ret->blocks of them, or, if it has no nodes, all are to be
 * had from the store. Until peers_end_turn() or peers_bring() other nodes wait for them. All take
 * NULL for `peers`. */
struct peer_call *peers_ask(struct peers *peers, const struct object *object, uint64_t first,
                            uint64_t n, struct chain *ret, peers_done *done, void *owner);
/* How this node keeps them, now that they are known. */
enum store_terms peers_terms(const struct peers *peers, struct chain *chain,
                             const struct object *object, uint64_t first);
/* Then the others get them, but for the first `n_here`, which this one keeps for them: their turn
 * remains the caller's. */
void peers_bring(struct peers *peers, struct chain *chain, const struct object *object,
                 uint64_t first, struct dl_span data, uint64_t n_here);
/* They are here, or do not come: the turn is over. */
void peers_end_turn(struct peers *peers, struct chain *chain, const struct object *object,
                    uint64_t first);
/* Another node keeps it, as far as there is room. */
bool peers_leave_to_other(const struct peers *peers, const struct object *object, uint64_t block);
/* Somebody brings it to this node, which owns it. */
bool peers_have_promised(const struct peers *peers, const struct object *object, uint64_t block);
/* NULL is fine; returns NULL. */
struct peer_call *peer_call_cancel(struct peer_call *call);

#endif
