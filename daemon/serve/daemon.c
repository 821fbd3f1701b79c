#include "daemon/serve/daemon.h"

#include "daemon/serve/length_table.h"
#include "daemon/serve/notify.h"
#include "daemon/serve/views.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <utlist.h>

enum { PRIVATE_PATIENCE_MS = 30 * 1000 }; /* for a private daemon's first client */

struct registered {
    UT_hash_handle hh; /* daemon.loaders, by key */
    char *key;         /* owned; "uid:name" */
    struct loader *loader;
};

static void finish(struct daemon *d);

/* ---- loaders -------------------------------------------------------------------------------- */

struct registered *registered_next(const struct registered *entry)
{
    return entry->hh.next;
}

struct loader *registered_loader(const struct registered *entry)
{
    return entry->loader;
}

static struct registered *find(struct daemon *d, uid_t uid, const char *name)
{
    char key[DL_ERROR_PATH_MAX];
    struct registered *entry;

    snprintf(key, sizeof key, "%u:%s", (unsigned)uid, name);
    HASH_FIND_STR(d->loaders, key, entry);
    return entry;
}

static void on_gone(void *context, struct loader *loader)
{
    struct daemon *d = context;
    struct registered *entry;
    struct registered *next;

    HASH_ITER (hh, d->loaders, entry, next) {
        if (entry->loader != loader)
            continue;
        HASH_DEL(d->loaders, entry);
        free(entry->key);
        free(entry);
    }
}

static void on_retired(void *context, uint32_t segment)
{
    struct daemon *d = context;

    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_segment_retired(s, segment);
}

static int join(const struct registered *entry, const struct dl_spec *wanted, struct loader **ret,
                struct dl_error *err)
{
    struct dl_error difference = {0};

    if (spec_differs(loader_spec(entry->loader), wanted, &difference))
        return dl_error_set(err, EEXIST, difference.path,
                            "a loader named \"%s\" is open with another spec: %s", wanted->name,
                            difference.message);
    *ret = entry->loader;
    return 0;
}

static const struct loader_events loader_events = {SESSION_LOADER_EVENTS, .retired = on_retired,
                                                   .gone = on_gone};

/* What the loader's workers are run with; the object of its spec is taken from the session. */
static int choose_python(struct daemon *d, struct session *session, const struct dl_spec *spec,
                         struct python_run *ret, struct dl_error *err)
{
    struct python_asker asker = {
        .config = &d->config, .private = d->options.private, .uid = session_uid(session)};
    int r = python_choose(&asker, spec, ret, err);

    if (r == 0 && ret->pickle)
        r = session_take_object(session, ret->pickle, &ret->object, err);
    if (r < 0)
        python_run_deinit(ret);
    return r;
}

/* Where the data lies may differ from node to node; what is read, and how, does not. */
static int agree_on_seed(struct daemon *d, struct dl_spec *spec, uint64_t asked,
                         struct dl_error *err)
{
    uint64_t parts[STATE_PARTS];
    char key[STATE_PARTS * 16 + 1];

    if (spec_parts(spec, parts) < 0)
        return dl_error_set(err, ENOMEM, "seed", "out of memory");
    for (size_t i = 0; i < STATE_PARTS; i++)
        snprintf(key + 16 * i, 17, "%016llx", (unsigned long long)parts[i]);
    return members_seed(d->members, key, asked, &spec->seed, err);
}

/*
 * The seed of a spec that gives none: the one that was in force before, the one that all nodes have
 * agreed on, or a new one. 1: they have not yet.
 */
static int give_seed(struct daemon *d, struct dl_spec *spec, const uint64_t *seed, uint64_t asked,
                     struct dl_error *err)
{
    if (spec->has_seed)
        return 0;
    if (seed) {
        spec->seed = *seed;
        return 0;
    }
    if (d->members)
        return agree_on_seed(d, spec, asked, err);
    if (getrandom(&spec->seed, sizeof spec->seed, 0) != sizeof spec->seed)
        return dl_error_set(err, errno, "seed", "none can be drawn: %s", strerror(errno));
    /* Python and JSON have trouble above 2^53, torch above 2^63: enough are left. */
    spec->seed &= (1ull << 53) - 1;
    return 0;
}

static int make_loader(struct daemon *d, struct session *session, struct dl_spec *spec,
                       struct loader **ret, struct dl_error *err)
{
    char key[DL_ERROR_PATH_MAX];
    struct loader_options options = {.loop = &d->loop,
                                     .config = &d->config,
                                     .hosts = d->hosts,
                                     .account = session_account(session),
                                     .uid = session_uid(session),
                                     .next_segment = &d->next_segment,
                                     .told_sandbox = &d->told_sandbox,
                                     .events = &loader_events,
                                     .context = d};

    snprintf(key, sizeof key, "%u:%s", (unsigned)options.uid, spec->name);
    int r = choose_python(d, session, spec, &options.python, err);
    if (r == 0)
        r = loader_new(&options, spec, ret, err);
    if (r < 0)
        return r;
    struct registered *entry = must_alloc(sizeof *entry);
    entry->key = must_strdup(key);
    entry->loader = *ret;
    HASH_ADD_KEYPTR(hh, d->loaders, entry->key, strlen(entry->key), entry);
    return 0;
}

/* Of who gives no seed: the loader's is not the one that was in force before, or that nodes agree
 * on. */
static bool has_other_seed(const struct daemon *d, const struct loader *loader,
                           const struct dl_spec *spec, const uint64_t *seed)
{
    const struct dl_spec *theirs = loader_spec(loader);

    if (spec->has_seed)
        return false; /* spec_differs() says it */
    return seed ? theirs->seed != *seed : d->members && theirs->has_seed;
}

/*
 * A spec without a name has one made from its fingerprint, which leaves out seed, workers and
 * memory: those who differ in these get "…-2" and so on instead of a refusal, also where the seed
 * is one that a former daemon has drawn, or all nodes have to agree on one. An object's number says
 * nothing of what is in it: who sends one without a name has the loader alone.
 */
static void find_free_name(struct daemon *d, uid_t uid, const uint64_t *seed, struct dl_spec *spec)
{
    _cleanup_free_ char *stem = must_strdup(spec->name);
    const struct registered *entry;
    struct dl_error difference;
    bool alone = python_pickle(spec) != 0;

    for (unsigned i = 2; (entry = find(d, uid, spec->name)) &&
                         (alone || has_other_seed(d, entry->loader, spec, seed) ||
                          spec_differs(loader_spec(entry->loader), spec, &difference));
         i++) {
        free(spec->name);
        if (asprintf(&spec->name, "%s-%u", stem, i) < 0)
            spec->name = must_strdup(stem);
    }
}

/* The loader that is joined has one: what came with this OPEN must not keep its memory. */
static void drop_object(struct session *session, const struct dl_spec *spec)
{
    uint64_t number = python_pickle(spec);
    int fd;

    if (number && session_take_object(session, number, &fd, NULL) == 0)
        close(fd);
}

static int find_loader(void *context, struct session *session, const struct value *spec_value,
                       const char *base, const uint64_t *seed, uint64_t asked, struct loader **ret,
                       struct dl_error *err)
{
    struct daemon *d = context;
    _cleanup_(spec_deinit)
    struct dl_spec spec = {0};
    const struct registered *entry;
    int r;

    if (spec_value->type == VALUE_STRING) {
        entry = find(d, session_uid(session), spec_value->string);
        if (!entry)
            return dl_error_set(err, ENOENT, "name",
                                "no loader named \"%s\" is open; open it by its spec first",
                                spec_value->string);
        *ret = entry->loader;
        return 0;
    }
    if (d->draining)
        return dl_error_set(err, ESHUTDOWN, "", "the daemon is shutting down");
    if ((r = spec_from_value(spec_value, base, &spec, err)) < 0)
        return r;
    if (spec.workers == 0)
        return dl_error_set(err, ENOTSUP, "workers.count", /* libdlclient then does it */
                            "0 loads in the client's own process, which the daemon has no part "
                            "in; give 1 or more");
    if (!value_get(spec_value, "name"))
        find_free_name(d, session_uid(session), seed, &spec);
    entry = find(d, session_uid(session), spec.name);
    if (!entry) {
        r = give_seed(d, &spec, seed, asked, err);
        return r != 0 ? r : make_loader(d, session, &spec, ret, err);
    }
    r = join(entry, &spec, ret, err);
    if (r == 0)
        drop_object(session, &spec);
    return r;
}

/* Of that name, of all users; NULL: none, or several. */
static const struct registered *find_anyones(const struct daemon *d, const char *name)
{
    const struct registered *found = NULL;

    for (const struct registered *e = d->loaders; e; e = e->hh.next) {
        if (strcmp(loader_spec(e->loader)->name, name) != 0)
            continue;
        if (found)
            return NULL;
        found = e;
    }
    return found;
}

/* The daemon's own user and root may ask about what is others'. */
static int find_open(void *context, struct session *session, const char *name, struct loader **ret,
                     struct dl_error *err)
{
    struct daemon *d = context;
    uid_t uid = session_uid(session);
    const struct registered *entry = find(d, uid, name);

    if (!entry && (uid == 0 || uid == geteuid()))
        entry = find_anyones(d, name);
    if (!entry)
        return dl_error_set(err, ENOENT, name, "no loader of that name is open; see dlctl loaders");
    *ret = entry->loader;
    return 0;
}

static void free_loaders(struct daemon *d)
{
    struct registered *entry;
    struct registered *next;

    HASH_ITER (hh, d->loaders, entry, next) {
        struct loader *loader = entry->loader;
        on_gone(d, loader);
        loader_free(loader);
    }
    hosts_end(d->hosts);
}

/* ---- other nodes ---------------------------------------------------------------------------- */

static void on_members_changed(void *context)
{
    struct daemon *d = context;

    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_world_go_on(s);
    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_ask_again(s);
}

static void on_world_paused(void *context, const struct dl_error *why)
{
    struct daemon *d = context;

    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_world_pause(s, why);
}

static void on_world_round(void *context)
{
    struct daemon *d = context;

    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_world_note(s);
}

static void on_world_over(void *context, const struct dl_error *why)
{
    struct daemon *d = context;

    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_world_over(s, why);
}

static const struct members_events members_events = {.changed = on_members_changed,
                                                     .paused = on_world_paused,
                                                     .round = on_world_round,
                                                     .over = on_world_over};

/* ---- sessions ------------------------------------------------------------------------------- */

static int make_view(void *context, const char *name, struct value *ret, struct dl_error *err)
{
    return views_make(context, name, ret, err);
}

static bool any_stream(const struct daemon *d)
{
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct stream *stream;
        DL_FOREACH (loader_streams(e->loader), stream) {
            if (stream->sink) /* else nobody has asked for it */
                return true;
        }
    }
    return false;
}

static void on_deadline(uv_timer_t *timer)
{
    struct daemon *d = timer->data;

    if (d->draining || !d->sessions.head) /* the latter: private, and nobody came */
        finish(d);
}

/* No new work from here on; the end comes with the last stream, or at the deadline. */
static void drain(struct daemon *d, bool with_deadline)
{
    if (!d->draining)
        log_about(LOG_INFO, &(struct log_fields){LOG_EVENT_DRAINING}, "draining");
    d->draining = true;
    on_members_changed(d); /* what waits is refused */
    if (with_deadline)
        uv_timer_start(&d->deadline, on_deadline, d->config.drain_timeout / 1000000, 0);
    if (!any_stream(d))
        finish(d);
}

static void on_drain(uv_timer_t *timer)
{
    drain(timer->data, false);
}

static void reload(struct daemon *d, struct dl_error *err);

static int control(void *context, struct session *session, const char *verb, struct dl_error *err)
{
    struct daemon *d = context;
    uid_t uid = session_uid(session);

    if (uid != 0 && uid != geteuid())
        return dl_error_set(err, EPERM, verb,
                            "only the daemon's own user (uid %u) and root may; you are uid %u",
                            (unsigned)geteuid(), (unsigned)uid);
    if (strcmp(verb, "stop") == 0) {
        uv_timer_start(&d->deadline, on_deadline, 0, 0); /* once the answer is on its way */
        d->draining = true;
    } else if (strcmp(verb, "drain") == 0) {
        if (!d->draining)
            uv_timer_start(&d->deadline, on_drain, 0, 0);
    } else if (strcmp(verb, "reload") == 0) {
        reload(d, err);
        return -err->code;
    } else {
        return dl_error_set(err, EINVAL, verb, "the verbs are stop, drain and reload");
    }
    return 0;
}

static void on_ended(void *context, struct session *session)
{
    struct daemon *d = context;

    session_list_remove(&d->sessions, session);
    worlds_left(d->members, session);
    if (d->stopping && !d->sessions.head)
        free_loaders(d);
    if (d->stopping)
        return;
    if ((d->options.private && !d->sessions.head) || (d->draining && !any_stream(d)))
        finish(d);
}

static int may_start(void *context, struct dl_error *err)
{
    const struct daemon *d = context;

    if (d->draining)
        return dl_error_set(err, ESHUTDOWN, "", "the daemon is shutting down");
    return 0;
}

static int find_place(void *context, const struct world_wish *wish, struct world **ret,
                      struct course_place *ret_place, struct dl_error *err)
{
    const struct daemon *d = context;

    return worlds_place(d->members, wish, ret, ret_place, err);
}

static void on_stream_ended(void *context)
{
    struct daemon *d = context;

    if (d->draining && !any_stream(d))
        finish(d);
}

static const struct session_events session_events = {.find_loader = find_loader,
                                                     .find_open = find_open,
                                                     .view = make_view,
                                                     .control = control,
                                                     .may_start = may_start,
                                                     .place = find_place,
                                                     .stream_ended = on_stream_ended,
                                                     .ended = on_ended};

static void on_accepted(void *context, int fd)
{
    struct daemon *d = context;
    struct session_options options = {.loop = &d->loop,
                                      .fd = fd,
                                      .id = ++d->next_session,
                                      .life = d->life,
                                      .quota = d->quota,
                                      .events = &session_events,
                                      .context = d};
    struct session *session;
    struct dl_error err = {0};

    if (session_new(&options, &session, &err) < 0) {
        log_about(LOG_WARNING, &(struct log_fields){LOG_EVENT_CONNECTION_REFUSED},
                  "a connection is refused: %s: %s", err.path, err.message);
        return;
    }
    d->sessions_ever++;
    session_list_add(&d->sessions, session);
}

/* ---- signals and service manager ------------------------------------------------------------ */

static void apply_options(struct daemon *d, struct config *config)
{
    if (d->options.socket) {
        free(config->socket);
        config->socket = must_strdup(d->options.socket);
    }
    if (d->options.log_level)
        (void)!log_level_from_name(d->options.log_level, &config->log_level);
    /* Its owner could as well run the plug-in's code in a program of their own. */
    if (d->options.private && config->plugins.n == 0)
        config_dirs_add(&config->plugins, "/");
    length_cache_locate(&config->cache);
}

/* Where the metrics are to be read from now on; what was there before stays until that works. */
static int move_metrics(struct daemon *d, const struct config *config, struct dl_error *err)
{
    struct metrics_http *moved;

    if (strcmp(config->metrics.listen, d->config.metrics.listen) == 0)
        return 0;
    int r = metrics_http_new(&d->loop, config->metrics.listen, make_view, d, &moved, err);
    if (r < 0)
        return r;
    metrics_http_free(d->metrics);
    d->metrics = moved;
    return 0;
}

static void refuse_config(const struct dl_error *err)
{
    log_about(LOG_ERROR, &(struct log_fields){LOG_EVENT_CONFIG_REFUSED},
              "the configuration stays as it was: %s: %s", err->path, err->message);
}

static void reload(struct daemon *d, struct dl_error *err)
{
    struct config config = {0};
    char *socket = d->config.socket;

    notify_reloading();
    if (config_load(d->options.config_path, &config, err) < 0) {
        refuse_config(err);
    } else if (members_check(&config.rendezvous, err) < 0 || config_find_worker(&config, err) < 0 ||
               move_metrics(d, &config, err) < 0) {
        refuse_config(err);
        config_deinit(&config);
    } else {
        apply_options(d, &config);
        free(config.socket); /* a socket that clients know does not move */
        config.socket = steal_ptr(socket);
        d->config.socket = NULL;
        config_deinit(&d->config);
        d->config = config;
        log_set_level(config.log_level);
        quota_set_limits(d->quota, &config.limits);
        log_about(LOG_INFO, &(struct log_fields){LOG_EVENT_RELOADED}, "reloaded %s",
                  d->options.config_path ? d->options.config_path : "the defaults");
    }
    notify_ready("serving");
}

static const int signal_numbers[] = {SIGTERM, SIGINT, SIGHUP};

/* While nobody handles them, these would end the daemon before it has cleared up. */
static void hold_signals(int how)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(signal_numbers); i++)
        sigaddset(&set, signal_numbers[i]);
    (void)pthread_sigmask(how, &set, NULL);
}

static void do_nothing(uv_work_t *work)
{
    (void)work;
}

/*
 * Makes the loop's threads with signals held, as they stay: any of these threads could take one
 * that comes when nobody handles them any more, and that would end the daemon before it has cleared
 * up.
 */
static void make_threads(struct daemon *d)
{
    hold_signals(SIG_BLOCK);
    (void)uv_queue_work(&d->loop, &d->first_work, do_nothing, NULL);
    hold_signals(SIG_UNBLOCK);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;
    struct dl_error err = {0};

    if (number == SIGHUP)
        reload(d, &err);
    else if (d->draining)
        finish(d); /* asked twice */
    else
        drain(d, true);
}

static void on_watchdog(uv_timer_t *timer)
{
    (void)timer;
    notify_watchdog();
}

/* ---- beginning and end ---------------------------------------------------------------------- */

/* Ends sessions, loaders and all handles; the loop then runs dry. */
static void finish(struct daemon *d)
{
    struct dl_error err = {0};

    if (d->stopping)
        return;
    d->stopping = d->draining = true;
    notify_stopping();
    log_about(LOG_INFO, &(struct log_fields){LOG_EVENT_STOPPING}, "stopping");
    d->listener = listener_free(d->listener);
    d->metrics = metrics_http_free(d->metrics);
    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_world_forget(s);
    d->members = members_end(d->members);
    /* What clients have received they go on reading: no slot of it is filled again. */
    for (struct registered *e = d->loaders; e; e = registered_next(e))
        loader_halt(e->loader);
    dl_error_set(&err, ESHUTDOWN, "", "the daemon is shutting down");
    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_end(s, &err);
    if (!d->sessions.head)
        free_loaders(d); /* else when the last session has let go of them */
    hold_signals(SIG_BLOCK);
    for (size_t i = 0; i < ARRAY_SIZE(d->signals); i++)
        uv_close((uv_handle_t *)&d->signals[i], NULL);
    uv_close((uv_handle_t *)&d->watchdog, NULL);
    uv_close((uv_handle_t *)&d->deadline, NULL);
    if (d->owner_fd >= 0)
        uv_close((uv_handle_t *)&d->owner, NULL);
}

static void default_socket(struct config *config)
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
static void name_passed(struct config *config, int fd)
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

static int configure(struct daemon *d, struct dl_error *err)
{
    enum log_level level;
    int r = config_load(d->options.config_path, &d->config, err);

    if (r < 0)
        return r;
    if (d->options.log_level && log_level_from_name(d->options.log_level, &level) < 0)
        return dl_error_set(err, EINVAL, "--log-level",
                            "\"%s\" is not one of error, warning, info, debug",
                            d->options.log_level);
    r = members_check(&d->config.rendezvous, err);
    if (r < 0)
        return r;
    apply_options(d, &d->config);
    if (!d->options.socket)
        default_socket(&d->config);
    log_set_level(d->config.log_level);
    return config_find_worker(&d->config, err);
}

static void on_owner(uv_poll_t *handle, int status, int events)
{
    (void)status, (void)events;
    log_info("the process that started it has ended");
    finish(handle->data);
}

/*
 * A private daemon ends with the process that made its first client's connection, and not only with
 * the connection: a child that it forked may have a copy and not even know. It is not watched where
 * the kernel has no pidfds, or does not see it in our pid namespace, when its number is 0. Should
 * the number be another process's by now, the owner is gone, so that no end is too early.
 */
static void watch_owner(struct daemon *d)
{
    struct ucred owner;
    socklen_t len = sizeof owner;

    if (getsockopt(d->options.client, SOL_SOCKET, SO_PEERCRED, &owner, &len) < 0 || owner.pid <= 0)
        return;
    _cleanup_fd_ int fd = (int)syscall(SYS_pidfd_open, owner.pid, 0);
    if (fd < 0 && errno == ESRCH) { /* it has ended already */
        d->draining = true;
        uv_timer_start(&d->deadline, on_deadline, 0, 0);
    }
    if (fd < 0 || uv_poll_init(&d->loop, &d->owner, fd) < 0)
        return;
    d->owner_fd = steal_fd(&fd);
    d->owner.data = d;
    (void)uv_poll_start(&d->owner, UV_READABLE, on_owner);
}

/* What whoever started a private daemon wants of it before having connected to its socket. */
static void serve_owner(struct daemon *d)
{
    struct python_asker asker = {
        .config = &d->config, .private = d->options.private, .uid = geteuid()};
    struct dl_error err = {0};
    const char *interpreter;

    if (d->options.client >= 0) {
        (void)fcntl(d->options.client, F_SETFD, FD_CLOEXEC);
        watch_owner(d);
        on_accepted(d, d->options.client);
    }
    if (!d->options.host)
        return;
    if (python_choose_interpreter(&asker, d->options.host, &interpreter, &err) < 0)
        log_warning("--host: %s", err.message);
    else
        hosts_prepare(d->hosts, interpreter);
}

/* What tells clients one daemon from the next. Nobody starts a private one anew. */
static int draw_life(struct daemon *d, struct dl_error *err)
{
    while (!d->options.private && d->life == 0) {
        if (getrandom(&d->life, sizeof d->life, 0) != sizeof d->life)
            return dl_error_set(err, errno, "", "no random number can be drawn: %s",
                                strerror(errno));
    }
    return 0;
}

static int begin(struct daemon *d, struct dl_error *err)
{
    int r = configure(d, err);

    if (r < 0)
        return r;
    d->quota = quota_new(&d->config.limits);
    d->relay = d->options.errors >= 0 ? relay_new(d->options.errors) : NULL;
    d->hosts = hosts_new(&(struct hosts_options){
        .loop = &d->loop, .config = &d->config, .private = d->options.private, .relay = d->relay});
    d->next_segment = 1;
    d->begun_ns = uv_hrtime();
    r = draw_life(d, err);
    if (r < 0)
        return r;
    r = members_new(&d->loop, &d->config.rendezvous, &members_events, d, &d->members, err);
    if (r < 0)
        return r;
    int passed = notify_listen_fd();
    if (passed < -1)
        return dl_error_set(err, -passed, "LISTEN_FDS",
                            "the service manager must pass one listening Unix stream socket");
    if (passed >= 0)
        name_passed(&d->config, passed);
    hold_signals(SIG_BLOCK);
    r = listener_new(&d->loop, &d->config, passed, on_accepted, d, &d->listener, err);
    if (r < 0)
        return r;
    r = metrics_http_new(&d->loop, d->config.metrics.listen, make_view, d, &d->metrics, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(d->signals); i++) {
        uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        uv_signal_start(&d->signals[i], on_signal, signal_numbers[i]);
    }
    hold_signals(SIG_UNBLOCK);
    uv_timer_init(&d->loop, &d->watchdog);
    uv_timer_init(&d->loop, &d->deadline);
    d->deadline.data = d;
    uint64_t period = notify_watchdog_ms();
    if (period)
        uv_timer_start(&d->watchdog, on_watchdog, period, period);
    if (d->options.private)
        uv_timer_start(&d->deadline, on_deadline, PRIVATE_PATIENCE_MS, 0);
    serve_owner(d);
    members_join(d->members);
    return 0;
}

int daemon_run(const struct daemon_options *options)
{
    struct daemon d = {.options = *options, .owner_fd = -1};
    struct dl_error err = {0};
    int r = uv_loop_init(&d.loop);

    if (r < 0) {
        log_error("no event loop: %s", uv_strerror(r));
        return 1;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    make_threads(&d);
    r = begin(&d, &err);
    if (r < 0) {
        log_error("%s%s%s", err.path, *err.path ? ": " : "", err.message);
        d.members = members_end(d.members);
        d.listener = listener_free(d.listener);
    } else {
        log_about(LOG_INFO, &(struct log_fields){LOG_EVENT_STARTED}, "listening on %s",
                  d.config.socket);
        notify_ready("serving");
    }
    uv_run(&d.loop, UV_RUN_DEFAULT);
    assert(!d.loaders && !d.sessions.head);
    hosts_free(d.hosts);
    close_fdp(&d.owner_fd);
    relay_free(d.relay);
    quota_free(d.quota);
    config_deinit(&d.config);
    int left = uv_loop_close(&d.loop);
    assert(left == 0);
    return r < 0 ? 1 : 0;
}
