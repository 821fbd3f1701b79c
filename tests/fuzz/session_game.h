/*
 * What the parts of fuzz_session.c share: the game, its clients (session_clients.c) and the loaders
 * that they ask for.
 */
#ifndef DL_FUZZ_SESSION_GAME_H
#define DL_FUZZ_SESSION_GAME_H

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input.h"

#include "daemon/serve/session/session.h"
#include "proto/frame.h"

enum {
    CLIENTS = 3,
    HELD = 64,
    STREAMS = 16,
    LOADERS = 8,
    OLD_SPECS = 11,
    SPECS = 14,
    MIX_SPEC = 12,
    INDEX_SPEC = 13
};

struct game_spec {
    const char *text;
    uint64_t length;
    bool iterable;
    bool dispatched;
};
extern const struct game_spec game_specs[SPECS];

/* Of a loader's name, "s" and a digit, or a letter behind the tenth: which; -1: none of ours. */
int which_spec(const char *name, size_t len);

struct lease {
    uint32_t stream; /* 0: free */
    uint64_t step;
    uint64_t offset;
    uint64_t generation;
    uint32_t segment;
    uint32_t first; /* its rows of the slot */
    uint32_t samples;
    bool pinned;
};

struct told_stream {
    uint32_t id; /* 0: free */
    uint32_t loader;
    int spec;
    char job; /* '\0': none */
    uint64_t epoch;
    uint64_t world;
    uint64_t rank;
    uint64_t credits;
    uint64_t next; /* the least step that may come, in order */
    uint64_t seen; /* steps below 64 that came */
    bool any_order;
    bool finished;
    bool stopped; /* it goes with its last lease */
    bool is_fed;
    bool fed_end;
    uint32_t fed; /* steps */
};

struct told_loader {
    uint32_t id; /* 0: free */
    int spec;
    uint64_t credits;
    bool any_order;
    bool is_fed;
};

/*
 * What a client knows, of what it was told. One that broke the rules is hung up on some time, and
 * knows nothing any more.
 */
struct client {
    int sock; /* owned; -1: it has none */
    bool hello;
    bool at_fault;
    struct frame_reader reader;
    uint64_t requests;
    struct told_stream starting; /* what the answer to START is about */
    struct told_loader loaders[LOADERS];
    struct told_stream streams[STREAMS];
    struct lease leases[HELD];
    uint32_t segments[HELD]; /* told, not yet retired; 0: free */
};

struct game {
    struct input input;
    uv_loop_t loop;
    struct config config;
    struct quota *quota;
    struct scheduler *scheduler;
    struct crew *crew;
    struct quota_account *account;
    struct hosts *hosts;
    struct session_list sessions;
    uint32_t n_sessions;
    bool met; /* nodes have */
    struct weight_tables tables;
    uint64_t next_session;
    struct budget budget;
    struct fair fair;
    struct retired retired;
    uint32_t next_segment;
    bool told_sandbox;
    uint64_t stuck;
    struct loader *loaders[SPECS];
    struct client clients[CLIENTS];
};

/* Connects the client to the daemon; fuzz_session.c. */
void connect_client(struct game *g, struct client *c);

/* Takes what the daemon has told the client, and checks it against what it knows. */
void hear_all(const struct game *g, struct client *c);
void hang_up(struct client *c);
/* From now on it is only listened to for what a message is. */
void break_rules(struct client *c);
/* One event of the client's: which, and the rest is taken from the input. */
void play_client(struct game *g, struct client *c, uint8_t event);

#endif
