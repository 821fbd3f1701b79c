/*
 * A session: one client's connection. It decodes the client's messages, and answers or passes them
 * on.
 *
 * A refused request gets ERROR with its number, and the session stays. A violation of the protocol
 * (bad frame, wrong order, unknown id, a lease it does not hold) gets ERROR with request 0 if the
 * socket accepts it, and the session ends. Within one turn of the loop, everything that it held is
 * returned.
 *
 * A request that must wait for other nodes, or for their store, is kept as it came, and retried by
 * session_ask_again().
 *
 * Main thread only. A session is never freed inside a call to it.
 */
#ifndef DL_SESSION_H
#define DL_SESSION_H

#include "daemon/cluster/world/given_weights.h"
#include "daemon/cluster/world/shared_loader.h"
#include "daemon/cluster/world/world_rules.h"
#include "daemon/serve/loader/loader.h"
#include "daemon/serve/loader/weight_tables.h"
#include "daemon/serve/session/scheduler.h"

#include <sys/socket.h>
#include <uv.h>

struct session;

/* What a client wants to open. */
struct loader_wanted {
    char *name;          /* owned; an open loader's; NULL: a loader of that spec */
    struct dl_spec spec; /* owned */
    bool named;          /* by the spec itself */
};

struct session_events {
    /*
     * The loader for this user, made (the spec is then moved) or joined. `seed`: for a spec without
     * one; may be NULL. 0, or a negative errno with `err`. 1: not yet; retry with the same `asked`,
     * the time (ns) of the first request.
     */
    int (*find_loader)(void *context, struct session *session, struct loader_wanted *wanted,
                       const uint64_t *seed, uint64_t asked, struct loader **ret,
                       struct dl_error *err);
    /* See shared_loader_place(). As find_loader. */
    int (*place)(void *context, const struct shared_loader_request *request,
                 struct shared_loader **ret, struct resume_place *ret_place, struct dl_error *err);
    /* See given_weights_find(). */
    struct shared_loader *(*find_shared)(void *context, const void *loader, uint32_t *ret_n);
    /* The open loader of that name that the session's user may ask about; see find_loader. */
    int (*find_open)(void *context, struct session *session, const char *name, struct loader **ret,
                     struct dl_error *err);
    /* A view as the session's user may see it. */
    int (*view)(void *context, const struct session *session, const char *name, struct value *ret,
                struct dl_error *err);
    int (*control)(void *context, struct session *session, const char *verb, struct dl_error *err);
    /* May a stream start now? 0, or a negative errno with `err`. */
    int (*may_start)(void *context, struct dl_error *err);
    void (*stream_ended)(void *context);
    /* It ended; `session` is freed after the call. */
    void (*ended)(void *context, struct session *session);
};

struct session_options {
    uv_loop_t *loop;
    int fd;           /* consumed, also on failure */
    struct ucred who; /* of credentials_peer() */
    uint64_t id;
    uint64_t life; /* of the daemon, for WELCOME */
    struct quota *quota;
    bool by_group;                       /* charged: the client's control group, else its user */
    struct scheduler *scheduler;         /* borrowed, of session_take_turn() */
    struct crew *crew;                   /* borrowed */
    struct weight_tables *tables;        /* borrowed */
    struct budget *budget;               /* borrowed */
    const struct session_events *events; /* borrowed, static */
    void *context;
};

/* Reads the peer's rights, and charges its uid or control group. -EDQUOT: it got the reason and was
 * disconnected. */
int _nodiscard_ session_new(const struct session_options *options, struct session **ret,
                            struct dl_error *err);

/* Says why if `err` is given, and closes. The end comes with `ended`. */
void session_end(struct session *session, const struct dl_error *err);

/* For scheduler_new(). */
uint64_t session_take_turn(struct turn *turn, uint64_t now);

/* What could not be answered may be by now. */
void session_ask_again(struct session *session);

/* session_world.c: the cluster's world has an event: streams are treated by world_actions[], and
 * clients get `why`; */
void session_world_happens(struct session *session, enum world_event event,
                           const struct dl_error *why);
/* waiting streams continue to where nodes have agreed. */
void session_world_go_on(struct session *session);
/* Of the stream's epoch: samples at most that other nodes have left out. */
uint64_t session_left_out(const struct stream *stream);
/* All shared loaders are gone. */
void session_world_forget(struct session *session);

/* Events of loaders: see struct loader_events. */
void session_loader_opened(struct loader_user *user, const struct dl_error *err);
void session_loader_progress(struct loader_user *user, uint64_t done, uint64_t all,
                             const char *what);
void session_started(struct stream *stream, const struct loader_extent *extent,
                     const struct dl_error *err);
void session_deliver(struct stream *stream, struct step *const *steps, uint32_t n);
void session_fault(struct stream *stream, uint64_t number, const struct dl_error *err,
                   const char *detail, bool final);
void session_finished(struct stream *stream);
void session_warning(struct stream *stream, const char *message);
void session_changed(struct loader_user *user);
void session_measured(struct headspace_asker *asker, const struct headspace_result *result,
                      const struct dl_error *err);

/* The part of a struct loader_events that sessions handle. */
#define SESSION_LOADER_EVENTS                                                             \
    .progress = session_loader_progress, .opened = session_loader_opened,                 \
    .started = session_started, .deliver = session_deliver, .fault = session_fault,       \
    .finished = session_finished, .warning = session_warning, .changed = session_changed, \
    .measured = session_measured

void session_segment_retired(struct session *session, uint32_t segment);

/* The host that the client has brought: see brought.h. */
int _nodiscard_ session_take_host(struct session *session, uint64_t number, int *ret_sock,
                                  struct dl_error *err);

uint64_t session_id(const struct session *session);
int session_pid(const struct session *session); /* of the client, when it connected */
uid_t session_uid(const struct session *session);
const struct credentials *session_credentials(const struct session *session);
struct quota_account *session_account(const struct session *session);

struct session_view {
    uint64_t id;
    uid_t uid;
    pid_t pid;
    const char *agent;
    uint32_t loaders;
    uint32_t streams;
    uint32_t leased;
    uint32_t pinned;
    uint64_t pending_bytes;
    const char *opens;            /* the loader for which there is no room yet; or NULL, */
    const struct dl_error *waits; /* why, */
    uint64_t waits_ns;            /* and how long */
};
void session_view(const struct session *session, struct session_view *ret);

/* The session that a stream's batches go to. */
const struct session *stream_session(const struct stream *stream);

struct session_list {
    struct session *head; /* utlist; owned by the daemon */
};
struct session *session_next(const struct session *session);
void session_list_add(struct session_list *list, struct session *session);
void session_list_remove(struct session_list *list, struct session *session);

#endif
