/* Shared by peers.c (who takes part), peer_calls.c (requests) and peer_walk.c (along a chain). */
#ifndef DL_FETCHER_PEERS_PRIVATE_H
#define DL_FETCHER_PEERS_PRIVATE_H

#include "daemon/cluster/store/http.h"
#include "daemon/fetcher/peer_server.h"
#include "daemon/fetcher/peers.h"

enum {
    PEERS_AT_ONCE = 64,             /* requests; others wait */
    PEERS_KEPT = 256,               /* connections: one that closes ends the turns that it gave */
    PEERS_BRINGING_MOST = 64 << 20, /* bytes; what others lack beyond it they do not get */
};

struct peer {
    uint64_t id;
    struct peer_card card;
    uint64_t away_until, away_ms; /* of the loop; 0: it did not fail last time */
};

struct peers {
    uv_loop_t *loop;
    struct kept *kept; /* borrowed, both */
    struct remote_tally *tally;
    struct sigv4_crypto crypto;
    uv_timer_t later;  /* those that wait go on, from the loop */
    struct http *http; /* owned, and all that follow */
    struct promises *promises;
    struct peer_server *server;
    struct placement placement;
    struct peer *list;                          /* as in the placement */
    struct peer_call *running, *waiting, *here; /* of these what is brought to this node */
    uint32_t n_running;
    uint64_t bringing; /* bytes */
};

/* What is asked of nodes, or brought to them, one after another. */
struct peer_call {
    struct peers *peers;
    struct peer_call **in; /* the list that it is in; NULL: it waits for something of this node */
    struct peer_call *prev, *next;
    uint64_t id; /* of the node; it may be gone from the list by now */
    struct peer_ask ask;
    struct chain chain;
    char *target, *url; /* owned */
    char proof[PEER_PROOF_MAX], sum[PEER_PROOF_MAX];
    char token[PEER_TOKEN_MAX];
    struct http_call *call;
    struct peer_answer answer;
    bool answered;
    /* It has: by 200 or 404, or, 0, it cannot say anything. */
    void (*take)(struct peer_call *call, int status, struct dl_span body);
    /* peer_walk.c's: */
    struct promise_wait *wait; /* for what is promised to this node */
    struct kept_task *task;
    bool was_here;    /* in this node's place for them is another object's */
    peers_done *done; /* NULL: they are brought, and nobody waits */
    void *owner;
    uint8_t *data;       /* owned; NULL: they are asked for */
    struct dl_span left; /* of it, from ask.first on: nobody has taken it yet */
    uint64_t bringing;   /* bytes */
    uint64_t turn_first; /* chain.blocks from there on wait for the turn to end */
    bool put;            /* it was brought by order */
};

struct peer *peers_find(const struct peers *peers, uint64_t id);
bool peer_is_away(const struct peers *peers, const struct peer *peer);
void peer_note_failed(struct peers *peers, struct peer *peer, const char *why);
bool peers_is_self(const struct peers *peers, uint64_t id);

struct peer_call *peer_call_new(struct peers *peers, const struct peer_ask *ask);
void peer_call_free(struct peer_call *call);
/* False: that node is not to be asked. */
bool peer_call_begin(struct peer_call *call, uint64_t id);
/* It is this node's turn; or nobody's. */
void peer_call_stay(struct peer_call *call);
void peer_call_rest(struct peer_call *call);
/* Those go on that wait until there are fewer. */
void peers_run(struct peers *peers);

#endif
