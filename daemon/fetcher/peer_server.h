/*
 * Gives other nodes' daemons the blocks that this node keeps on disk, and takes those that it would
 * keep (daemon/remote/peer_wire.h). Who does not prove the token gets nothing but a refusal, and
 * nothing of its body is read.
 *
 * A block that is not there is a 404 at once: nothing is fetched, and nobody else is asked, for
 * another node. Who asks has promised to bring it then (promises.h), here if there is room, or to
 * another one of its chain (chain.h): those who ask meanwhile wait.
 *
 * What is given says which object it is of, and no more: whether that is the one that the store
 * has, and whether its user may read it, the node that asks has to hear from the store itself.
 *
 * Main thread only.
 */
#ifndef DL_FETCHER_PEER_SERVER_H
#define DL_FETCHER_PEER_SERVER_H

#include "daemon/fetcher/kept.h"
#include "daemon/fetcher/promises.h"
#include "daemon/remote/peer_wire.h"

struct peer_server;

/* All borrowed. */
struct peer_server *peer_server_new(uv_loop_t *loop, struct kept *kept, struct promises *promises,
                                    const struct sigv4_crypto *crypto, struct remote_tally *tally);
/* Connections end. Its memory goes when the loop has closed its handles. NULL is fine; returns
 * NULL.
 */
struct peer_server *peer_server_free(struct peer_server *server);

/* A socket that listens, in the place of the one before; becomes the server's. */
void peer_server_listen(struct peer_server *server, int fd);
/* What others have to prove; "": nobody can. */
void peer_server_set_token(struct peer_server *server, const char *token);

/* What is asked for, as the disk knows objects. */
struct object peer_ask_object(const struct peer_ask *ask);

#endif
