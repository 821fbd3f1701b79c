/*
 * What a TCPStore server keeps and does: keys with values, queues, waits, barriers, watches, for
 * peers that speak either dialect of tcpstore_wire.h. Bytes of a peer go in, bytes for it and for
 * others come out; tcpstore_server.h carries them. Pure: no I/O, no clock.
 *
 * A peer is any stranger who can reach the port. What all together may take of memory is bounded:
 * what is stored, and apart from it what is on its way in and out; when the latter is used up, the
 * peer that holds the most of it is let go, so that one who holds back halves of requests or does
 * not read harms none but himself. Such a peer, and one that breaks the rules, is "broken" from
 * then on: tcpstore_peer_why() says why, nothing is read from it or kept for it, and its owner
 * frees it.
 *
 * What differs from PyTorch's servers, to its clients' advantage:
 *   - in v1, which cannot cancel a wait, a request of a peer that waits means that its wait has
 *     timed out: the wait is dropped, and no late answer shifts the ones that follow;
 *   - COMPARE_SET that stores wakes those who wait, as other stores do;
 *   - a MULTI_SET is done once and whole, however many pieces it arrives in.
 */
#ifndef DL_TCPSTORE_H
#define DL_TCPSTORE_H

#include "daemon/cluster/store/tcpstore_wire.h"

struct tcpstore_limits {
    uint64_t stored_bytes;   /* keys, values, queues, waits, watches, and the books on them */
    uint64_t buffered_bytes; /* on their way to and from all peers */
    uint64_t output_bytes;   /* on their way to one peer */
    uint64_t keys;
};

/* What a store has whose owner has no opinion: 256 MiB, 256 MiB, 64 MiB, 1,000,000. */
extern const struct tcpstore_limits tcpstore_default_limits;

struct tcpstore;
struct tcpstore_peer;

/* `seed` makes the hash table's order nobody's guess. NULL when out of memory. */
struct tcpstore *tcpstore_new(const struct tcpstore_limits *limits, uint64_t seed);
/* After all its peers. NULL is fine; returns NULL. */
struct tcpstore *tcpstore_free(struct tcpstore *store);

/* `owner` is the caller's own, see tcpstore_peer_owner(). NULL when out of memory. */
struct tcpstore_peer *tcpstore_peer_new(struct tcpstore *store, void *owner);
/* Its waits and watches end; what it stored stays. NULL is fine; returns NULL. */
struct tcpstore_peer *tcpstore_peer_free(struct tcpstore_peer *peer);

void *tcpstore_peer_owner(const struct tcpstore_peer *peer);

/* Why it is broken; NULL: it is not. */
const char *tcpstore_peer_why(const struct tcpstore_peer *peer);

/*
 * Bytes of the peer, in order. Whole requests are done at once, unless the peer has not taken what
 * it was told before: then they wait for tcpstore_peer_sent(). 0, or a negative errno: it is
 * broken.
 */
int _nodiscard_ tcpstore_peer_feed(struct tcpstore_peer *peer, const uint8_t *data, size_t len);

/* What the peer is to be told, valid until the store is next called; then how much of it went. */
struct dl_span tcpstore_peer_output(const struct tcpstore_peer *peer);
int _nodiscard_ tcpstore_peer_sent(struct tcpstore_peer *peer, size_t len);

/* Whether more input is welcome: not while it leaves what it was told. */
bool tcpstore_peer_wants_input(const struct tcpstore_peer *peer);
/* Whether a request of it has begun and not ended. */
bool tcpstore_peer_is_amid(const struct tcpstore_peer *peer);
/* Requests that it made so far. */
uint64_t tcpstore_peer_requests(const struct tcpstore_peer *peer);
enum tcpstore_dialect tcpstore_peer_dialect(const struct tcpstore_peer *peer);

/*
 * The next peer for which there is something to do, output or an end, since it was last asked for;
 * NULL: none. To be called until then after each feed or sent.
 */
struct tcpstore_peer *tcpstore_next_touched(struct tcpstore *store);

struct tcpstore_counts {
    uint64_t keys;
    uint64_t stored_bytes;
    uint64_t buffered_bytes;
    uint64_t waits;
    uint64_t peers;
};
struct tcpstore_counts tcpstore_count(const struct tcpstore *store);

/* For tests: counts everything anew and aborts unless the books agree. */
void tcpstore_check(const struct tcpstore *store);

#endif
