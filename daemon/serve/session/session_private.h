/*
 * The inside of a session. Only these files include it:
 *
 *   session.c            socket and life
 *   session_requests.c   the client's requests
 *   session_open.c       its OPEN
 *   session_tells.c      loaders' events, sent to the client
 *   session_mix.c        changes of weights, and clients' lists of them
 *   session_tables.c     weights of samples that it brings
 *   session_headspace.c  a request whose answer comes later
 *   session_world.c      a change of the cluster's world
 */
#ifndef DL_SESSION_PRIVATE_H
#define DL_SESSION_PRIVATE_H

#include "daemon/base/peer.h"
#include "daemon/serve/session/brought.h"
#include "daemon/serve/session/position_memory.h"
#include "daemon/serve/session/session.h"
#include "proto/pages.h"

#include <sys/socket.h>

/* What a client's own batches are, where they are parts of the loader's (share.size). */
struct own_batches {
    struct slices slices; /* .n 0: they are the loader's, and the rest is not set */
    uint64_t fingerprint;
    uint64_t parts[STATE_PARTS];
};

/* A loader this session opened. */
struct opened {
    struct loader_user user;
    UT_hash_handle hh; /* session.opened, by id */
    struct session *session;
    uint32_t id;
    uint64_t request;
    struct own_batches own;
    struct dataset_states dataset_states; /* from DATASET_STATE, until the next START */
    struct former_place former;           /* from PLACE, until the next START, */
    bool placed;                          /* if there was one */
};

struct client_stream {
    UT_hash_handle hh; /* session.streams, by id */
    struct session *session;
    struct stream *stream; /* owned by the loader, ended by us */
    struct opened *opened; /* borrowed */
    uint32_t id;
    uint64_t request;             /* START's, until it is answered */
    bool cluster;                 /* its world is the cluster's, */
    struct shared_loader *shared; /* borrowed; NULL: it cannot resume in another world */
    uint64_t local;               /* of this node's rank */
    struct resume_place place;
    struct rank_position
        *position;   /* owned: the steps that its client uses; NULL: it does not say */
    bool stopped;    /* by its client; it ends with its last lease */
    bool end_due;    /* all was delivered, but the client does not know yet, */
    uint64_t end_ns; /* since then only because other nodes are waited for; 0: it has leases yet */
};

struct sent_segment {
    UT_hash_handle hh; /* session.segments, by id */
    uint32_t id;
};

/* From TABLE. */
struct session_table {
    struct weight_table *table; /* counted; NULL: it was invalid */
    uint64_t n;
    uint64_t sum;
    struct dl_error why; /* then */
};

struct session_tables {
    struct session_table *all; /* owned array of DL_BOUND_MIX_CHANGES; or NULL */
    uint32_t n;
    struct table_bringing *bringing; /* borrowed from the mapping thread; or NULL; of */
    uint64_t wanted_n, wanted_sum;
    bool muted; /* the session is not heard until it is there */
};

struct opening;

/* A request that cannot be answered yet, as it arrived. */
struct waiting {
    struct waiting *prev, *next; /* session.waiting */
    uint64_t asked;              /* ns */
    struct opening *opening;     /* owned; of OPEN, which needs no payload */
    size_t bytes;                /* that it takes */
    size_t len;
    uint8_t payload[];
};

struct session {
    struct session *prev, *next; /* session_list */
    struct session_options o;
    struct peer peer;
    struct turn turn;
    bool muted;                    /* its socket is not watched until its turn */
    struct quota_account *account; /* borrowed */
    struct ucred who;
    struct credentials *credentials; /* owned */
    char *agent;                     /* owned; NULL before HELLO */
    uint32_t version;                /* of the protocol, agreed with HELLO; 0 before */
    struct opened *opened;
    struct client_stream *streams;
    struct sent_segment *segments; /* those the client was sent */
    struct brought brought;        /* hosts that no loader has taken yet */
    struct pictures_list pictures; /* of its own hosts, which are kept as long as it lasts */
    struct waiting *waiting;       /* owned (utlist) */
    struct opening *opening;       /* borrowed from the thread that reads it; or NULL */
    uint32_t n_waiting;
    size_t waiting_bytes;
    uint64_t view_bytes;
    struct mix_changes *changes; /* counted; for the next START, of the loader of this id: */
    uint64_t changes_of;
    struct session_tables tables; /* for the next START or WEIGHTS */
    uint64_t dataset_state_bytes; /* of states, for the loader that they were sent for last */
    uint64_t paid_bytes;          /* of what it takes, charged to its user, */
    uint64_t paid_descriptors;
    uint64_t asked;     /* when the request being retried first arrived; 0: it is a new one */
    uint32_t last_sent; /* the segment looked up last, which is mostly the next one as well */
    struct value view;  /* the latest one, while rows are left to send; its next row */
    uint32_t view_row;
    struct headspace_asker asker;
    uint64_t asker_request;
    uint32_t next_id;
    bool ending;
    bool violated; /* it ends because the client broke the protocol or did not read */
};

/* ---- session.c ------------------------------------------------------------------------------ */

/* Queues a message, with a copy of `fd` unless it is -1. */
void session_queue(struct session *s, const struct dl_message *msg, int fd);
/* Queues it and sends what the socket takes. */
void session_send(struct session *s, const struct dl_message *msg);
void session_send_error(struct session *s, uint64_t request, const struct dl_error *err);
void session_flush(struct session *s);
/* Charges its user for the memory and the descriptors that it takes by now. It ends if that is too
 * much. */
void session_pay(struct session *s);
void session_end_stream(struct session *s, struct client_stream *cs);
void session_close_loader(struct session *s, struct opened *opened);
void session_pump(struct session *s); /* its loaders */

/* It cannot be answered yet: consumes it. 0, or negative with `err`: a violation. */
int _nodiscard_ session_keep_opening(struct session *s, struct opening *opening, uint64_t asked,
                                     struct dl_error *err);
/* The session ends, for it has broken the protocol, or takes too much. */
void session_violates(struct session *s, const struct dl_error *err);

/* ---- session_mix.c -------------------------------------------------------------------------- */

/* 0, or negative with `err`: a violation. */
int _nodiscard_ session_keep_changes(struct session *s, const struct dl_msg_changes *msg,
                                     struct dl_error *err);
/* Applies the list that the client sent before START for this loader. */
int _nodiscard_ session_bring_changes(struct session *s, struct opened *opened,
                                      const struct dl_msg_start *msg,
                                      const struct stream_params *params,
                                      struct shared_loader *shared, struct dl_error *err);
/* 0, or negative with `err`. */
int _nodiscard_ session_mix(struct session *s, const struct dl_msg_mix *msg, struct dl_error *err);

/* 0, or negative with `err`. */
int _nodiscard_ session_weights(struct session *s, const struct dl_msg_weights *msg,
                                struct dl_error *err);

/* ---- session_tables.c ----------------------------------------------------------------------- */

/* 0, or negative with `err`: a violation. */
int _nodiscard_ session_tables_bring(struct session *s, const struct dl_msg_table *msg,
                                     struct dl_error *err);
/* The table of that sum, counted. 0, or negative with the reason in `err`. */
int _nodiscard_ session_tables_take(const struct session *s, uint64_t sum,
                                    struct weight_table **ret, struct dl_error *err);
/* Gives a list its missing tables that were brought. 0, or negative with the reason why one was
 * unusable. */
int _nodiscard_ session_tables_give(const struct session *s, struct mix_changes *changes,
                                    struct dl_error *err);
void session_tables_drop(struct session *s);
void session_tables_leave(struct session *s); /* with one that is being mapped */

/* ---- session_open.c ------------------------------------------------------------------------- */

/* 0, or negative with `err`: a violation. */
int session_open(struct session *s, const struct dl_msg_open *msg, struct dl_error *err);
/* Answers it: 0; 1: it cannot be answered yet. */
int session_try_opening(struct session *s, struct opening *opening, uint64_t asked,
                        struct dl_error *err);
void session_forget_opening(struct session *s);
struct opening *opening_free(struct opening *opening); /* NULL is fine */
/* Why it waits for room, and the loader's name; NULL: it does not. */
const struct dl_error *opening_waits(const struct opening *opening, const char **ret_name);
size_t opening_bytes(const struct opening *opening);

/* ---- session_requests.c --------------------------------------------------------------------- */

/* Handles the message. 0, or negative with `err`: a violation. 1: it cannot be answered yet. */
int session_handle(struct session *s, const struct dl_message *m, struct dl_error *err);
/* Answers a request with a value. */
int _nodiscard_ session_send_info(struct session *s, uint64_t request, const struct value *v,
                                  struct dl_error *err);

/* ---- session_tells.c ------------------------------------------------------------------------ */

/* The answer to START. */
void session_answer_start(struct client_stream *cs, const struct loader_extent *extent);
void session_fault_with(struct stream *stream, uint64_t number, const struct dl_error *err,
                        const char *detail, bool final, bool at_once);

/* All steps were delivered. */
void session_tells_end(struct client_stream *cs);

/* ---- session_headspace.c -------------------------------------------------------------------- */

/* The answer comes with session_measured(). */
int _nodiscard_ session_ask_headspace(struct session *s, const struct dl_msg_headspace *msg,
                                      struct dl_error *err);

/* ---- session_world.c ------------------------------------------------------------------------ */

/* Takes the stream out of the cluster's world: its client has stopped it, or is gone. */
/* Its stream has begun at its place, in the shared loader. */
void session_join_world(struct client_stream *cs);
void session_leave_world(struct client_stream *cs, bool stopped);
/* Sends the end of the epoch for a stream that was given all of it (end_due), once its client has
 * released that, and the fate of the other nodes' shares is known. Else does nothing. */
void session_world_finish(struct client_stream *cs);

#endif
