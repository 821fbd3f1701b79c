/*
 * The daemon: composition root. It builds the parts, knows all of them, and takes them down in
 * reverse.
 */
#ifndef DL_DAEMON_H
#define DL_DAEMON_H

#include "daemon/cluster/world/discovery.h"
#include "daemon/cluster/world/members.h"
#include "daemon/serve/metrics_http.h"
#include "daemon/serve/session/door.h"
#include "daemon/serve/session/session.h"

#include <uv.h>

struct daemon_options {
    const char *config_path; /* may be NULL */
    const char *socket;      /* NULL: as configured */
    const char *log_level;   /* NULL: as configured */
    bool private;            /* ends when its last client leaves, or its owner ends */
    /* Of a private one: */
    int client; /* consumed: the first client's connection; may be -1 */
    int errors; /* consumed: where Python workers' standard error goes; -1: nowhere */
};

/* What lives in the daemon. The views read it, and the registry has its loaders. */
struct daemon {
    struct daemon_options options;
    struct config config;
    uv_loop_t loop;
    uv_work_t first_work;
    uv_signal_t signals[3]; /* SIGTERM, SIGINT, SIGHUP */
    uv_timer_t watchdog;
    uv_timer_t deadline;     /* of a drain; or of a private daemon's first client */
    uv_timer_t anew;         /* sessions ask again for what was not known yet */
    uv_timer_t reload;       /* requested by a signal */
    uv_timer_t sizes;        /* when loaders' workers are counted: sizes.h; */
    uv_timer_t due;          /* those that were held back go on */
    uv_timer_t end;          /* of what was ended */
    uv_poll_t owner;         /* of a private daemon, where owner_fd is >= 0 */
    uint64_t owners_session; /* whose end ends the daemon; 0 without --client */
    int owner_fd;            /* owned; a pidfd: readable when the process has ended; may be -1 */
    struct door door;
    struct quota *quota;
    struct scheduler *scheduler;
    struct crew *crew;
    struct relay *relay; /* owned; may be NULL */
    struct hosts *hosts;
    struct remotes *remotes;
    struct members *members;      /* owned; NULL: not in a cluster */
    struct discovery *discovery;  /* owned; NULL: it does not look for helpers */
    struct config_dirs found;     /* helpers, by that */
    struct metrics_http *metrics; /* owned; NULL: not configured */
    struct session_list sessions;
    struct registered *loaders; /* registry.h */
    struct past *past;          /* owned; the registry's */
    uint64_t next_past;
    uint64_t life; /* drawn at the start; 0: private */
    uint64_t next_session;
    uint64_t sessions_ever;
    struct fair fair;       /* of loaders that are open */
    struct budget budget;   /* of all rings */
    struct retired retired; /* of them: segments that clients still map */
    struct pictures_set pictures;
    struct weight_tables tables;
    uint32_t next_segment;
    bool told_sandbox;
    bool shared;    /* users other than its own may connect */
    uint64_t stuck; /* workers that were killed and do not end */
    uint64_t begun_ns;
    bool draining;
    bool stopping;
};

/* Runs until it is stopped. Returns the process's exit status. */
int daemon_run(const struct daemon_options *options);

#endif
