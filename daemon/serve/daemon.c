#include "daemon/serve/daemon.h"

#include "daemon/base/blame.h"
#include "daemon/base/memory.h"
#include "daemon/serve/loader/length_table.h"
#include "daemon/serve/notify.h"
#include "daemon/serve/pool/remotes.h"
#include "daemon/serve/registry.h"
#include "daemon/serve/sizes.h"
#include "daemon/serve/threads.h"
#include "daemon/serve/views.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <utlist.h>

enum {
    PRIVATE_PATIENCE_MS = 30 * 1000, /* for a private daemon's first client */
    DAEMON_END_MS = 10 * 1000,       /* for what was ended to be gone, workers above all */
};

static void daemon_finish(struct daemon *d);

/* ---- other nodes ---------------------------------------------------------------------------- */

static void daemon_on_members_changed(void *context)
{
    struct daemon *d = context;

    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_world_go_on(s);
    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_ask_again(s);
}

static void daemon_on_world(void *context, enum world_event event, const struct dl_error *why)
{
    struct daemon *d = context;

    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_world_happens(s, event, why);
}

static void daemon_on_peers(void *context, const char *list)
{
    const struct daemon *d = context;

    if (d->remotes)
        remotes_set_peers(d->remotes, list);
}

/* The former list is not used any more: members of pools have their own copies. */
static void daemon_on_found(void *context, const struct config_dirs *addresses)
{
    struct daemon *d = context;
    uint32_t before = d->found.n;

    config_dirs_deinit(&d->found);
    d->found = (struct config_dirs){0};
    for (uint32_t i = 0; i < addresses->n; i++)
        config_dirs_add(&d->found, addresses->paths[i]);
    for (struct registered *e = d->loaders; d->found.n > before && e; e = registered_next(e))
        loader_meet_helpers(registered_loader(e));
}

/* Again with each configuration, since the store may be another; the helpers that are known stay
 * until something else is. */
static int daemon_look_for_helpers(struct daemon *d, const struct config *config,
                                   struct discovery **ret, struct dl_error *err)
{
    return discovery_watch(&d->loop, config, !d->members, daemon_on_found, d, ret, err);
}

static const struct members_events members_events = {
    .changed = daemon_on_members_changed, .happened = daemon_on_world, .peers = daemon_on_peers};

/* ---- sessions ------------------------------------------------------------------------------- */

static int daemon_make_view(void *context, const struct session *session, const char *name,
                            struct value *ret, struct dl_error *err)
{
    return views_make(context, session_uid(session), name, ret, err);
}

/* What the daemon's own user sees. */
static int daemon_make_page(void *context, const char *name, struct value *ret,
                            struct dl_error *err)
{
    return views_make(context, geteuid(), name, ret, err);
}

static bool daemon_any_stream(const struct daemon *d)
{
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct stream *stream;
        DL_FOREACH (loader_core(registered_loader(e))->streams, stream) {
            if (stream->sink) /* else no client has requested it */
                return true;
        }
    }
    return false;
}

static void daemon_on_deadline(uv_timer_t *timer)
{
    struct daemon *d = timer->data;

    if (d->draining || !d->sessions.head) /* no session: a private daemon whose owner never came */
        daemon_finish(d);
}

/* No new work from here on; the end comes with the last stream, or at the deadline. */
static void daemon_drain(struct daemon *d, bool with_deadline)
{
    if (!d->draining)
        log_about(LOG_INFO, &(struct log_fields){LOG_EVENT_DRAINING}, "draining");
    d->draining = true;
    daemon_on_members_changed(d); /* what waits is refused */
    if (with_deadline)
        uv_timer_start(&d->deadline, daemon_on_deadline, d->config.drain_timeout / 1000000, 0);
    if (!daemon_any_stream(d))
        daemon_finish(d);
}

static void daemon_on_drain(uv_timer_t *timer)
{
    daemon_drain(timer->data, false);
}

static void daemon_reload(struct daemon *d, struct dl_error *err);

static int daemon_control(void *context, struct session *session, const char *verb,
                          struct dl_error *err)
{
    struct daemon *d = context;
    uid_t uid = session_uid(session);

    if (uid != 0 && uid != geteuid())
        return dl_error_set(err, EPERM, verb,
                            "only the daemon's own user (uid %u) and root may; you are uid %u",
                            (unsigned)geteuid(), (unsigned)uid);
    if (strcmp(verb, "stop") == 0) {
        uv_timer_start(&d->deadline, daemon_on_deadline, 0, 0); /* once the answer is on its way */
        d->draining = true;
    } else if (strcmp(verb, "drain") == 0) {
        if (!d->draining)
            uv_timer_start(&d->deadline, daemon_on_drain, 0, 0);
    } else if (strcmp(verb, "reload") == 0) {
        daemon_reload(d, err);
        return -err->code;
    } else if (strcmp(verb, "close-run") == 0) {
        return members_close(d->members, err);
    } else {
        return dl_error_set(err, EINVAL, verb, "the verbs are stop, drain, reload and close-run");
    }
    return 0;
}

static void daemon_end_loaders(struct daemon *d)
{
    registry_free(d);
    hosts_end(d->hosts);
    d->remotes = remotes_free(d->remotes);
    d->scheduler = scheduler_free(d->scheduler);
}

static void daemon_on_ended(void *context, struct session *session)
{
    struct daemon *d = context;
    bool owners = d->owners_session && session_id(session) == d->owners_session;

    session_list_remove(&d->sessions, session);
    shared_loaders_forget_session(d->members, session);
    if (d->stopping && !d->sessions.head)
        daemon_end_loaders(d);
    if (d->stopping)
        return;
    if (owners || (d->options.private && !d->sessions.head) ||
        (d->draining && !daemon_any_stream(d)))
        daemon_finish(d);
}

static int daemon_may_start(void *context, struct dl_error *err)
{
    const struct daemon *d = context;

    if (d->draining)
        return dl_error_set(err, ESHUTDOWN, "", "the daemon is shutting down");
    return 0;
}

static int daemon_find_place(void *context, const struct shared_loader_request *request,
                             struct shared_loader **ret, struct resume_place *ret_place,
                             struct dl_error *err)
{
    const struct daemon *d = context;

    return shared_loader_place(d->members, request, ret, ret_place, err);
}

static struct shared_loader *daemon_find_shared(void *context, const void *loader, uint32_t *ret_n)
{
    const struct daemon *d = context;

    return given_weights_find(d->members, loader, ret_n);
}

static void daemon_on_stream_ended(void *context)
{
    struct daemon *d = context;

    if (d->draining && !daemon_any_stream(d))
        daemon_finish(d);
}

static const struct session_events session_events = {.find_loader = registry_find,
                                                     .find_open = registry_find_open,
                                                     .view = daemon_make_view,
                                                     .control = daemon_control,
                                                     .may_start = daemon_may_start,
                                                     .place = daemon_find_place,
                                                     .find_shared = daemon_find_shared,
                                                     .stream_ended = daemon_on_stream_ended,
                                                     .ended = daemon_on_ended};

static void daemon_refuse_connection(const struct dl_error *err)
{
    log_about(LOG_WARNING, &(struct log_fields){LOG_EVENT_CONNECTION_REFUSED},
              "a connection was refused: %s: %s", err->path, err->message);
}

static void daemon_on_came(void *context, int fd, const struct ucred *who)
{
    struct daemon *d = context;
    struct session_options options = {.loop = &d->loop,
                                      .fd = fd,
                                      .who = *who,
                                      .id = ++d->next_session,
                                      .life = d->life,
                                      .quota = d->quota,
                                      .by_group = d->config.limits.charge == CONFIG_CHARGE_CGROUP,
                                      .scheduler = d->scheduler,
                                      .crew = d->crew,
                                      .tables = &d->tables,
                                      .budget = &d->budget,
                                      .events = &session_events,
                                      .context = d};
    struct session *session;
    struct dl_error err = {0};

    int r = session_new(&options, &session, &err);
    if (r < 0 && r != -EDQUOT)
        daemon_refuse_connection(&err);
    if (r < 0)
        return;
    d->sessions_ever++;
    session_list_add(&d->sessions, session);
}

/* ---- signals and service manager ------------------------------------------------------------ */

/* With what the command line and the environment say. */
static int daemon_load_config(const struct daemon *d, struct config *config, struct dl_error *err)
{
    int r = config_load(d->options.config_path, config, err);

    if (r < 0)
        return r;
    if (d->options.socket) {
        free(config->socket);
        config->socket = must_strdup(d->options.socket);
    }
    if (d->options.log_level)
        (void)!log_level_from_name(d->options.log_level, &config->log_level);
    length_cache_locate(&config->cache.dir);
    return 0;
}

/* Otherwise any user who may connect could read all files that the daemon can. */
static int daemon_check_shared(const struct daemon *d, const struct config *config,
                               struct dl_error *err)
{
    if (!d->shared || config->data_roots.n > 0)
        return 0;
    return dl_error_set(err, EINVAL, "data_roots",
                        "other users may connect to %s, so name the directories that they may read "
                        "from, such as data_roots: [/srv], or keep them out with socket_mode: "
                        "\"0600\" (SocketMode=0600 of a socket unit)",
                        config->socket);
}

/* Opens the new metrics address, if it has changed, beside the former one; else *ret stays. */
static int daemon_move_metrics(struct daemon *d, const struct config *config,
                               struct metrics_http **ret, struct dl_error *err)
{
    if (strcmp(config->metrics.listen, d->config.metrics.listen) == 0)
        return 0;
    return metrics_http_new(&d->loop, config, daemon_make_page, d, ret, err);
}

static void daemon_refuse_config(const struct dl_error *err)
{
    log_about(LOG_ERROR, &(struct log_fields){LOG_EVENT_CONFIG_REFUSED},
              "the configuration was not changed: %s: %s", err->path, err->message);
}

/* What later requests may have. */
static void daemon_set_limits(struct daemon *d, const struct config_limits *limits)
{
    quota_set_limits(d->quota, limits);
    crew_set_limit(d->crew, limits->threads);
    log_set_lines(limits->log_lines);
}

static void daemon_reload(struct daemon *d, struct dl_error *err)
{
    struct config config = {0};
    struct metrics_http *metrics = d->metrics, *unused = NULL;
    struct discovery *discovery = NULL;
    char *socket = d->config.socket;

    notify_reloading();
    if (daemon_load_config(d, &config, err) < 0) {
        daemon_refuse_config(err);
    } else if (daemon_check_shared(d, &config, err) < 0 || remotes_check(&config, err) < 0 ||
               members_check(&config.rendezvous, *config.helpers.run, err) < 0 ||
               config_find_worker(&config, err) < 0 ||
               daemon_move_metrics(d, &config, &metrics, err) < 0 ||
               daemon_look_for_helpers(d, &config, &discovery, err) < 0 ||
               members_reload(d->members, &d->config.rendezvous, &config.rendezvous, err) < 0) {
        daemon_refuse_config(err);
        discovery_free(discovery);
        config_deinit(&config);
        unused = metrics != d->metrics ? metrics : NULL;
    } else {
        unused = metrics != d->metrics ? d->metrics : NULL;
        d->metrics = metrics;
        discovery_free(d->discovery);
        d->discovery = discovery;
        free(config.socket); /* a socket that clients know does not move */
        config.socket = steal_ptr(socket);
        d->config.socket = NULL;
        config_deinit(&d->config);
        d->config = config;
        metrics_http_set_token(d->metrics, config.metrics.token);
        log_set_level(config.log_level);
        daemon_set_limits(d, &config.limits);
        log_about(LOG_INFO, &(struct log_fields){LOG_EVENT_RELOADED}, "reloaded %s",
                  d->options.config_path ? d->options.config_path : "the defaults");
    }
    metrics_http_free(unused);
    notify_ready("serving");
}

static void daemon_on_reload(uv_timer_t *timer)
{
    struct dl_error err = {0};

    daemon_reload(timer->data, &err);
}

static void daemon_on_signal(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;

    if (number == SIGHUP) /* once a turn of the loop, which a flood of signals would else hold up */
        uv_timer_start(&d->reload, daemon_on_reload, 0, 0);
    else if (d->draining)
        daemon_finish(d); /* the second request */
    else
        daemon_drain(d, true);
}

static void daemon_on_watchdog(uv_timer_t *timer)
{
    (void)timer;
    notify_watchdog();
}

/* ---- beginning and end ---------------------------------------------------------------------- */

/* The loop has not run dry: a worker was killed and does not end. */
static void daemon_on_end(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

/* Ends sessions, loaders and all handles; the loop then runs dry. */
static void daemon_finish(struct daemon *d)
{
    struct dl_error err = {0};

    if (d->stopping)
        return;
    d->stopping = d->draining = true;
    notify_stopping();
    log_about(LOG_INFO, &(struct log_fields){LOG_EVENT_STOPPING}, "stopping");
    door_close(&d->door);
    d->metrics = metrics_http_free(d->metrics);
    daemon_on_world(d, WORLD_LEFT, NULL); /* reports to the other nodes how far the ranks got */
    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_world_forget(s);
    d->members = members_end(d->members);
    d->discovery = discovery_free(d->discovery);
    /* Clients can keep reading received batches: no slot is refilled any more. */
    for (struct registered *e = d->loaders; e; e = registered_next(e))
        loader_halt(registered_loader(e));
    dl_error_set(&err, ESHUTDOWN, "", "the daemon is shutting down");
    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_end(s, &err);
    if (!d->sessions.head)
        daemon_end_loaders(d); /* else when the last session has let go of them */
    threads_hold_signals(SIG_BLOCK);
    for (size_t i = 0; i < ARRAY_SIZE(d->signals); i++)
        uv_close((uv_handle_t *)&d->signals[i], NULL);
    uv_close((uv_handle_t *)&d->watchdog, NULL);
    uv_close((uv_handle_t *)&d->deadline, NULL);
    uv_close((uv_handle_t *)&d->sizes, NULL);
    uv_close((uv_handle_t *)&d->due, NULL);
    uv_close((uv_handle_t *)&d->reload, NULL);
    if (d->owner_fd >= 0)
        uv_close((uv_handle_t *)&d->owner, NULL);
    retired_end(&d->retired);
    uv_timer_start(&d->end, daemon_on_end, DAEMON_END_MS, 0);
}

static void daemon_default_socket(struct config *config)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    _cleanup_free_ char *dir = NULL;

    if (geteuid() == 0 || !runtime || strcmp(config->socket, "/run/dloaderd/socket") != 0) {
        if (geteuid() == 0 && strncmp(config->socket, "/run/dloaderd/", 14) == 0)
            (void)mkdir("/run/dloaderd", 0755);
        return;
    }
    if (asprintf(&dir, "%s/dloaderd", runtime) < 0)
        return;
    (void)mkdir(dir, 0700);
    free(config->socket);
    if (asprintf(&config->socket, "%s/socket", dir) < 0)
        config->socket = must_strdup("");
}

/* The configured path is not the one when the service manager listens for us. */
static void daemon_name_passed(struct config *config, int fd)
{
    struct sockaddr_un address = {0};
    socklen_t len = sizeof address;

    if (getsockname(fd, (struct sockaddr *)&address, &len) < 0 || len > sizeof address)
        return;
    free(config->socket);
    config->socket = strndup(address.sun_path, sizeof address.sun_path);
    if (!config->socket)
        config->socket = must_strdup("");
}

/* Whether other users may connect. If unknown for a passed socket, assume that they may. */
static bool daemon_is_shared(const struct config *config, bool passed)
{
    const mode_t others = S_IWGRP | S_IWOTH;
    struct stat st;

    if (!passed)
        return config->socket_mode & others;
    return config->socket[0] != '/' || stat(config->socket, &st) < 0 || (st.st_mode & others);
}

static int daemon_configure(struct daemon *d, struct dl_error *err)
{
    enum log_level level;
    int r = daemon_load_config(d, &d->config, err);

    if (r < 0)
        return r;
    if (d->options.log_level && log_level_from_name(d->options.log_level, &level) < 0)
        return dl_error_set(err, EINVAL, "--log-level",
                            "\"%s\" is not one of error, warning, info, debug",
                            d->options.log_level);
    r = members_check(&d->config.rendezvous, *d->config.helpers.run, err);
    if (r < 0)
        return r;
    if (!d->options.socket)
        daemon_default_socket(&d->config);
    log_set_level(d->config.log_level);
    return config_find_worker(&d->config, err);
}

static void daemon_on_owner(uv_poll_t *handle, int status, int events)
{
    (void)status, (void)events;
    log_info("the process that started it has ended");
    daemon_finish(handle->data);
}

/*
 * A private daemon ends with the process that made its first client's connection, and not only with
 * the connection: a child that it forked may have a copy and not even know. It is not watched if
 * the kernel has no pidfds, or if its number is 0, in another pid namespace. If its number was
 * reused by now, the owner is gone, so the daemon never ends too early.
 */
static void daemon_watch_owner(struct daemon *d)
{
    struct ucred owner;
    socklen_t len = sizeof owner;

    if (getsockopt(d->options.client, SOL_SOCKET, SO_PEERCRED, &owner, &len) < 0 || owner.pid <= 0)
        return;
    _cleanup_fd_ int fd = (int)syscall(SYS_pidfd_open, owner.pid, 0);
    if (fd < 0 && errno == ESRCH) { /* it has ended already */
        d->draining = true;
        uv_timer_start(&d->deadline, daemon_on_deadline, 0, 0);
    }
    if (fd < 0 || uv_poll_init(&d->loop, &d->owner, fd) < 0)
        return;
    d->owner_fd = steal_fd(&fd);
    d->owner.data = d;
    (void)uv_poll_start(&d->owner, UV_READABLE, daemon_on_owner);
}

/* Serves the connection that a private daemon's owner passed to it at start. */
static void daemon_serve_owner(struct daemon *d)
{
    if (d->options.client >= 0) {
        struct ucred owner = {0};
        struct dl_error err = {0};

        if (credentials_peer(d->options.client, &owner, &err) < 0) {
            daemon_refuse_connection(&err);
            close_fdp(&d->options.client);
            return;
        }
        (void)fcntl(d->options.client, F_SETFD, FD_CLOEXEC);
        daemon_watch_owner(d);
        daemon_on_came(d, d->options.client, &owner);
        d->owners_session = d->next_session;
    }
}

/* A random number by which clients tell daemons apart. A private daemon is never restarted. */
static int daemon_draw_life(struct daemon *d, struct dl_error *err)
{
    while (!d->options.private && d->life == 0) {
        if (getrandom(&d->life, sizeof d->life, 0) != sizeof d->life)
            return dl_error_set(err, errno, "", "cannot draw a random number: %s", strerror(errno));
    }
    return 0;
}

/* Where clients and Prometheus come to. */
static int daemon_listen_for_all(struct daemon *d, struct dl_error *err)
{
    int passed = notify_listen_fd();

    if (passed < -1)
        return dl_error_set(err, -passed, "LISTEN_FDS",
                            "the service manager must pass exactly one listening Unix stream "
                            "socket");
    if (passed >= 0)
        daemon_name_passed(&d->config, passed);
    d->shared = !d->options.private && daemon_is_shared(&d->config, passed >= 0);
    int r = daemon_check_shared(d, &d->config, err);
    if (r < 0 || (r = remotes_check(&d->config, err)) < 0)
        return r;
    threads_hold_signals(SIG_BLOCK);
    const struct door_options door = {.loop = &d->loop,
                                      .config = &d->config,
                                      .passed = passed,
                                      .scheduler = d->scheduler,
                                      .quota = d->quota,
                                      .came = daemon_on_came,
                                      .context = d};
    r = door_open(&d->door, &door, err);
    if (r < 0)
        return r;
    return metrics_http_new(&d->loop, &d->config, daemon_make_page, d, &d->metrics, err);
}

/* Signals, which are held until now; the service manager's patience, and that with a client. */
static void daemon_begin_to_watch(struct daemon *d)
{
    uint64_t period = notify_watchdog_ms();

    for (size_t i = 0; i < ARRAY_SIZE(d->signals); i++) {
        uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        uv_signal_start(&d->signals[i], daemon_on_signal, threads_signals[i]);
    }
    threads_hold_signals(SIG_UNBLOCK);
    uv_timer_init(&d->loop, &d->watchdog);
    uv_timer_init(&d->loop, &d->deadline);
    uv_timer_init(&d->loop, &d->reload);
    uv_timer_init(&d->loop, &d->end);
    uv_unref((uv_handle_t *)&d->end);
    d->deadline.data = d->reload.data = d;
    registry_begin(d);
    sizes_begin(d);
    if (period)
        uv_timer_start(&d->watchdog, daemon_on_watchdog, period, period);
    if (d->options.private)
        uv_timer_start(&d->deadline, daemon_on_deadline, PRIVATE_PATIENCE_MS, 0);
}

/* A file for the next daemon: in the service manager's directory, which outlives this daemon, or
 * beside its own socket. Both paths are shorter than PATH_MAX. */
static void daemon_name_file(const struct daemon *d, const char *name, char path[static PATH_MAX])
{
    const char *dir = getenv("RUNTIME_DIRECTORY");
    bool given = dir && dir[0] == '/';

    (void)snprintf(path, PATH_MAX, "%s%s%s", given ? dir : d->config.socket, given ? "/" : ".",
                   name);
}

static void daemon_note_crashes(const struct daemon *d)
{
    struct dl_error err = {0};
    char path[PATH_MAX];

    if (d->options.private) /* it is never restarted */
        return;
    daemon_name_file(d, "crashes", path);
    if (blame_open(path, &err) < 0)
        log_info("%s: %s", err.path, err.message);
}

/* Reserves some for the daemon itself, and to tell the next client why it is refused. */
static int daemon_bound_descriptors(struct daemon *d, struct dl_error *err)
{
    enum { LEAST = 64, RESERVE = 128 };
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    if (limit.rlim_cur < LEAST)
        return dl_error_set(err, EMFILE, "", "a daemon needs at least %d open files", LEAST);
    uint64_t all = limit.rlim_cur - min_u64(limit.rlim_cur / 4, RESERVE);
    quota_set_total(d->quota, QUOTA_DESCRIPTORS, all, d->options.private ? all : all / 2);
    return 0;
}

/* Once the configuration was checked as a whole. */
static int daemon_meet_peers(struct daemon *d, struct dl_error *err)
{
    const struct peer_card *card = NULL;
    int r = remotes_listen(d->remotes, &card, err);

    if (r == 0 && card)
        members_tell_peers(d->members, card);
    return r;
}

static int daemon_begin(struct daemon *d, struct dl_error *err)
{
    char path[PATH_MAX];
    int r = daemon_configure(d, err);

    if (r < 0)
        return r;
    d->quota = quota_new(&d->config.limits);
    d->crew = crew_new(&d->loop, threads_count());
    daemon_set_limits(d, &d->config.limits);
    budget_init(&d->budget, &d->config.limits.memory);
    d->budget.look = pictures_set_settle;
    d->budget.looker = &d->pictures;
    retired_begin(&d->retired, &d->loop, &d->budget);
    r = daemon_bound_descriptors(d, err);
    d->scheduler = scheduler_new(&d->loop, session_take_turn);
    d->relay = d->options.errors >= 0 ? relay_new(d->options.errors) : NULL;
    d->hosts = hosts_new(&(struct hosts_options){
        .loop = &d->loop, .config = &d->config, .private = d->options.private, .relay = d->relay});
    d->remotes = remotes_new(&d->loop, &d->config);
    d->next_segment = 1;
    d->begun_ns = uv_hrtime();
    if (r == 0 && (r = daemon_draw_life(d, err)) == 0)
        r = members_new(&d->loop, &d->config.rendezvous, &members_events, d, &d->members, err);
    if (r == 0)
        r = daemon_look_for_helpers(d, &d->config, &d->discovery, err);
    if (r < 0 || (r = daemon_listen_for_all(d, err)) < 0 || (r = daemon_meet_peers(d, err)) < 0)
        return r;
    daemon_note_crashes(d);
    daemon_begin_to_watch(d);
    daemon_serve_owner(d);
    daemon_name_file(d, "node", path);
    members_join(d->members, path);
    return 0;
}

/* Runs until nothing is left. Workers blocked in the kernel, on storage that does not answer, are
 * left to the system, which ends them as soon as it can. */
static void daemon_serve(struct daemon *d)
{
    uv_run(&d->loop, UV_RUN_DEFAULT);
    if (d->stopping && uv_loop_alive(&d->loop)) {
        log_warning("the daemon exits before all of its workers: they were killed, but wait in the "
                    "kernel, usually for storage that does not answer");
        blame_close();
        _exit(0);
    }
    if (d->end.type == UV_TIMER)
        uv_close((uv_handle_t *)&d->end, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
}

int daemon_run(const struct daemon_options *options)
{
    struct daemon d = {.options = *options, .owner_fd = -1};
    struct dl_error err = {0};
    int r = uv_loop_init(&d.loop);

    if (r < 0) {
        log_error("cannot create an event loop: %s", uv_strerror(r));
        return 1;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    if (threads_make(&d.loop, &d.first_work) < 0) {
        int unused = uv_loop_close(&d.loop);
        assert(unused == 0);
        return 1;
    }
    r = daemon_begin(&d, &err);
    if (r < 0) {
        log_error("%s%s%s", err.path, *err.path ? ": " : "", err.message);
        d.members = members_end(d.members);
        d.discovery = discovery_free(d.discovery);
        d.remotes = remotes_free(d.remotes);
        door_close(&d.door);
        d.scheduler = scheduler_free(d.scheduler);
        if (d.retired.budget)
            retired_end(&d.retired);
    } else {
        log_about(LOG_INFO, &(struct log_fields){LOG_EVENT_STARTED}, "listening on %s",
                  d.config.socket);
        notify_ready("serving");
    }
    daemon_serve(&d);
    assert(!d.loaders && !d.sessions.head);
    blame_close();
    hosts_free(d.hosts);
    crew_free(d.crew);
    close_fdp(&d.owner_fd);
    relay_free(d.relay);
    quota_free(d.quota);
    config_deinit(&d.config);
    config_dirs_deinit(&d.found);
    int left = uv_loop_close(&d.loop);
    assert(left == 0);
    return r < 0 ? 1 : 0;
}
