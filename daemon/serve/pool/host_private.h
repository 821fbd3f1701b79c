/* What the two rooms of host.h share: host_life.c, a host's beginning and end, and host.c. */
#ifndef DL_HOST_PRIVATE_H
#define DL_HOST_PRIVATE_H

#include "daemon/base/log.h"
#include "daemon/base/peer.h"
#include "daemon/base/relay.h"
#include "daemon/serve/pool/host.h"

enum { HOST_NAMED_MAX = 512 }; /* of one in a message; a longer path is cut */

enum host_state { HOST_STARTING, HOST_READY, HOST_ENDING, HOST_DEAD };

/* What a host's timer waits for. */
enum host_wait { WAIT_NONE, WAIT_READY, WAIT_STARTED, WAIT_REAPED, WAIT_IDLE, WAIT_END };

struct host_child {
    struct host_child *prev, *next; /* host.children (utlist) */
    struct host *host;              /* borrowed; NULL while `ended` runs */
    uint32_t number;
    bool started;
    bool killed;
    const struct host_child_events *events; /* NULL: nobody wants to know any more */
    void *owner;
};

struct host {
    struct host *prev, *next; /* hosts.hosts (utlist) */
    struct hosts *hosts;      /* borrowed */
    uv_process_t handle;
    struct peer peer;
    uv_pipe_t errors;
    uv_timer_t timer;
    uint32_t handles; /* open ones, and the user of host_adopt(); freed at 0 */
    enum host_state state;
    enum host_wait wait;
    char *interpreter;           /* owned; NULL: a client has brought it */
    const void *loader;          /* whose workers it has, or had last; for comparison only */
    uid_t uid;                   /* whose loader that is, or was last, for the log */
    int pid;                     /* its own; of one that was brought its client's */
    struct host_child *children; /* owned list */
    uint32_t next_child;
    bool hosted; /* it could start workers once */
    bool reaped;
    struct last_words words;
    char read_space[1024];
    char why[256]; /* what it was killed for, or disconnected; "" = nothing */
};

struct hosts {
    struct hosts_options o;
    struct host *hosts; /* owned list */
};

/* ---- host_life.c ---- */

/* What it is called in a message. */
const char *host_name(const struct host *h, char name[static HOST_NAMED_MAX]);
/* What the log has of it besides. */
static inline struct log_fields host_log_fields(const struct host *h)
{
    return (struct log_fields){.client_uid = LOG_N(h->uid)};
}
/* It is of no more use; its workers learn it when it is reaped. */
void host_fail(struct host *h, const char *fmt, ...) _printf_(2, 3);
/* One handle fewer; frees it with the last. */
void host_unref(void *host);
/* It ends by itself, or else is killed. */
void host_await_end(struct host *h);
/* The worker has ended like that. */
void host_drop_child(struct host *h, struct host_child *child, const struct host_end *how);
/* The timer runs for what is waited for; if it does so already, it is left alone. */
void host_rearm(struct host *h);
/* The loader's own of that interpreter, or one without workers, or a new one. */
int _nodiscard_ host_find_own(struct hosts *hosts, const char *interpreter, const void *loader,
                              struct host **ret, struct dl_error *err);

/* ---- host.c ---- */

/* As whom the host is listened to; owner: the host. */
extern const struct peer_events host_peer_events;

#endif
