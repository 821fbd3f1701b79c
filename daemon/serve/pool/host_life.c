/* How a host begins and ends: host.h, host_private.h. */
#include "daemon/serve/pool/host_private.h"

#include "daemon/base/environment.h"
#include "daemon/base/memory.h"
#include "proto/common/library.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

#include <utlist.h>

enum {
    IDLE_MS = 60 * 1000,    /* until a host that nobody needs is ended */
    KILL_MS = 120 * 1000,   /* a worker that was to be killed must be reaped by then */
    FORK_MS = 20 * 1000,    /* a host of our own that is ready forks in milliseconds */
    HOST_END_MS = 5 * 1000, /* a host that was told to end must have by then */

    HOST_OUTGOING_LIMIT = 1 << 20, /* bytes; a host that lets so much wait is broken */
};

/* ---- its end -------------------------------------------------------------------------------- */

void host_unref(void *host)
{
    struct host *h = host;

    assert(h->handles > 0);
    if (--h->handles > 0)
        return;
    assert(!h->children);
    DL_DELETE(h->hosts->hosts, h);
    peer_deinit(&h->peer);
    free(h->interpreter);
    free(h);
}

static void host_on_close(uv_handle_t *handle)
{
    host_unref(handle->data);
}

static void host_close_handle(uv_handle_t *handle)
{
    if (handle->type != UV_UNKNOWN_HANDLE && !uv_is_closing(handle))
        uv_close(handle, host_on_close);
}

static void host_close_handles(struct host *h)
{
    h->state = HOST_DEAD;
    (void)peer_close(&h->peer);
    host_close_handle((uv_handle_t *)&h->errors);
    host_close_handle((uv_handle_t *)&h->timer);
    host_close_handle((uv_handle_t *)&h->handle);
}

const char *host_name(const struct host *h, char name[static HOST_NAMED_MAX])
{
    if (h->interpreter)
        snprintf(name, HOST_NAMED_MAX, "%s -m dloaderd.host (pid %d)", h->interpreter, h->pid);
    else
        snprintf(name, HOST_NAMED_MAX, "the host of process %d", h->pid);
    return name;
}

/* A process of the client's is only told to end, by its socket. */
static void host_kill_host(struct host *h)
{
    if (h->state == HOST_DEAD || h->reaped)
        return;
    if (h->interpreter)
        (void)uv_process_kill(&h->handle, SIGKILL);
    else
        (void)shutdown(h->peer.sock, SHUT_RDWR);
}

void host_fail(struct host *h, const char *fmt, ...)
{
    char what[sizeof h->why - 32];
    va_list args;

    if (h->state == HOST_DEAD)
        return;
    va_start(args, fmt);
    (void)vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (!*h->why)
        (void)snprintf(h->why, sizeof h->why, "was %s: %s",
                       h->interpreter ? "killed" : "disconnected", what);
    h->state = HOST_ENDING;
    peer_stop(&h->peer);
    host_kill_host(h);
    host_rearm(h);
}

void host_await_end(struct host *h)
{
    h->state = HOST_ENDING;
    peer_stop(&h->peer);
    host_rearm(h);
}

/* Nobody wants it any more: that the socket is closed tells it to end, once it can listen. */
static void host_tell_end(struct host *h)
{
    if (h->state == HOST_ENDING || h->state == HOST_DEAD)
        return;
    (void)shutdown(h->peer.sock, SHUT_RDWR);
    if (h->state == HOST_STARTING)
        host_kill_host(h);
    host_await_end(h);
}

void host_drop_child(struct host *h, struct host_child *child, const struct host_end *how)
{
    DL_DELETE(h->children, child);
    child->host = NULL;
    if (child->events)
        child->events->ended(child->owner, how);
    free(child);
}

/* Tells its workers that it is gone, and why. */
static void host_bury(struct host *h, const struct host_end *told)
{
    host_close_handles(h);
    while (h->children)
        host_drop_child(h, h->children, told);
}

static bool host_has_wanted_child(const struct host *h)
{
    const struct host_child *child;

    DL_FOREACH (h->children, child) {
        if (child->events)
            return true;
    }
    return false;
}

/* One that was brought: its socket is all that there was of it. */
static void host_part(struct host *h)
{
    char name[HOST_NAMED_MAX], cause[HOST_NAMED_MAX + sizeof h->why + 8];
    const struct log_fields fields = host_log_fields(h);

    snprintf(cause, sizeof cause, "%s %s", host_name(h, name), *h->why ? h->why : "has ended");
    if (host_has_wanted_child(h))
        log_about(LOG_WARNING, &fields, "%s", cause);
    host_bury(h,
              &(struct host_end){
                  .signal = SIGKILL, .cause = cause, .never = !h->hosted, .place = "dataset.host"});
}

static void host_on_exit_(uv_process_t *handle, int64_t status, int signal)
{
    struct host *h = handle->data;
    char words[LAST_WORDS + 32], how[64], name[HOST_NAMED_MAX],
        cause[LAST_WORDS + 128 + HOST_NAMED_MAX + sizeof h->why];
    const struct log_fields fields = host_log_fields(h);
    int fd;

    h->reaped = true;
    if (h->state == HOST_STARTING || h->state == HOST_READY)
        peer_read(&h->peer); /* what it said last: that it was ready, or how a worker ended */
    /* One that something else has killed may fare better the next time. */
    bool killed = signal && !*h->why;
    struct host_end told = {.signal = SIGKILL,
                            .cause = cause,
                            .never = !h->hosted && !killed,
                            .place = "dataset.interpreter"};
    if (uv_fileno((uv_handle_t *)&h->errors, &fd) == 0)
        last_words_read(&h->words, fd);
    if (signal)
        snprintf(how, sizeof how, "was killed by SIG%s",
                 library_signal_name(signal) ? library_signal_name(signal) : "?");
    else
        snprintf(how, sizeof how, "exited with status %d", (int)status);
    snprintf(cause, sizeof cause, "%s %s%s%s", host_name(h, name), *h->why ? h->why : how,
             h->hosted || *h->why ? ""
             : killed             ? " before it was ready"
                      : " before it was ready (it needs the package dloaderd of this release)",
             last_words_told(&h->words, words));
    if (h->children || signal || status)
        log_about(LOG_WARNING, &fields, "%s", cause);
    host_bury(h, &told);
}

/* How long it may take to start a worker; 0: as long as it likes. */
static uint64_t host_fork_ms(const struct host *h)
{
    uint64_t patience = h->hosts->o.config->python_timeout / 1000000;

    return h->interpreter && patience ? min_u64(patience, FORK_MS) : patience;
}

/* And to end one. */
static uint64_t host_kill_ms(const struct host *h)
{
    uint64_t patience = h->hosts->o.config->python_timeout / 1000000;

    return h->interpreter && patience ? min_u64(patience, KILL_MS) : KILL_MS;
}

static void host_on_timer(uv_timer_t *timer)
{
    struct host *h = timer->data;
    enum host_wait wait = h->wait;
    double patience = (double)h->hosts->o.config->python_timeout / 1e9;
    double fork_patience = (double)host_fork_ms(h) / 1e3;

    h->wait = WAIT_NONE;
    switch (wait) {
    case WAIT_READY:
        host_fail(h, "it was not ready within python_timeout (%g s)", patience);
        break;
    case WAIT_STARTED:
        host_fail(h, "it did not start a worker within %s%g s%s",
                  fork_patience < patience ? "" : "python_timeout (", fork_patience,
                  fork_patience < patience ? "" : ")");
        break;
    case WAIT_REAPED:
        host_fail(h, "it did not end a worker within %g s", (double)host_kill_ms(h) / 1e3);
        break;
    case WAIT_IDLE:
        host_tell_end(h);
        break;
    case WAIT_END:
        if (h->interpreter)
            host_kill_host(h);
        else
            host_part(h);
        break;
    case WAIT_NONE:
        break;
    }
}

/* That a worker starts, and then that it ends when it is to. */
static enum host_wait host_wait_for_children(const struct host *h)
{
    enum host_wait wait = WAIT_NONE;
    const struct host_child *child;

    DL_FOREACH (h->children, child) {
        if (!child->started)
            return WAIT_STARTED;
        if (child->killed)
            wait = WAIT_REAPED;
    }
    return wait;
}

static enum host_wait host_what_to_wait_for(const struct host *h)
{
    if (h->state == HOST_ENDING)
        return WAIT_END;
    if (h->state == HOST_STARTING)
        return WAIT_READY;
    if (h->children)
        return host_wait_for_children(h);
    return h->interpreter && !h->hosts->o.private ? WAIT_IDLE : WAIT_NONE;
}

void host_rearm(struct host *h)
{
    uint64_t patience = h->hosts->o.config->python_timeout / 1000000;
    /* Of one that was brought its socket is all that there is: it ends at once, but in the loop. */
    uint64_t ms[] = {[WAIT_READY] = patience,
                     [WAIT_STARTED] = host_fork_ms(h),
                     [WAIT_REAPED] = host_kill_ms(h),
                     [WAIT_IDLE] = IDLE_MS,
                     [WAIT_END] = h->interpreter ? HOST_END_MS : 0};
    enum host_wait wait = host_what_to_wait_for(h);

    if ((wait == WAIT_READY || wait == WAIT_STARTED) && patience == 0)
        wait = WAIT_NONE;
    if (wait == h->wait || h->state == HOST_DEAD)
        return;
    h->wait = wait;
    if (wait == WAIT_NONE)
        uv_timer_stop(&h->timer);
    else
        uv_timer_start(&h->timer, host_on_timer, ms[wait], 0);
}

/* ---- its beginning -------------------------------------------------------------------------- */

static void host_on_alloc(uv_handle_t *handle, size_t want, uv_buf_t *buf)
{
    struct host *h = handle->data;

    (void)want;
    *buf = uv_buf_init(h->read_space, sizeof h->read_space);
}

static void host_on_errors(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct host *h = stream->data;

    if (n < 0) {
        uv_read_stop(stream);
        return;
    }
    last_words_add(&h->words, buf->base, (size_t)n);
    log_debug("%s: %.*s", h->interpreter, (int)n, buf->base);
}

static int host_spawn(struct host *h, int child_sock)
{
    const struct hosts_options *o = &h->hosts->o;
    char *args[] = {h->interpreter, (char *)"-m", (char *)"dloaderd.host", NULL};
    /* What a dataset prints goes where its user has the daemon's output. */
    bool prints = o->private && fcntl(STDOUT_FILENO, F_GETFD) >= 0;
    char **environment = o->private ? NULL : environment_new(&o->config->python_path);
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = prints ? UV_INHERIT_FD : UV_IGNORE, .data.fd = STDOUT_FILENO},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&h->errors},
        {.flags = UV_INHERIT_FD, .data.fd = child_sock},
    };
    /* In a session of its own: a signal to its process group does not reach the daemon. */
    uv_process_options_t options = {.exit_cb = host_on_exit_,
                                    .flags = UV_PROCESS_DETACHED,
                                    .file = h->interpreter,
                                    .args = args,
                                    .env = environment,
                                    /* Relative paths in its user's environment stay good. */
                                    .cwd = o->private ? NULL : "/",
                                    .stdio = stdio,
                                    .stdio_count = 4};

    h->handles++;
    int r = uv_spawn(o->loop, &h->handle, &options);
    environment_free(environment);
    return r;
}

/* Consumes `sock`, the daemon's end. */
static struct host *host_new(struct hosts *hosts, int sock)
{
    struct host *h = must_alloc(sizeof *h);

    h->hosts = hosts;
    h->peer.sock = sock;
    h->handle.data = h->errors.data = h->timer.data = h;
    DL_APPEND(hosts->hosts, h);
    uv_timer_init(hosts->o.loop, &h->timer);
    h->handles++;
    return h;
}

static int host_watch(struct host *h)
{
    const struct peer_options how = {.from = FROM_WORKER,
                                     .limit = HOST_OUTGOING_LIMIT,
                                     .fd_rule = "it sends file descriptors",
                                     .events = &host_peer_events,
                                     .owner = h};
    int r = peer_open(&h->peer, &how, h->hosts->o.loop, h->peer.sock);

    if (r == 0)
        h->handles++;
    return r;
}

static int host_start(struct host *h, int child_sock)
{
    int r = host_watch(h);

    if (r < 0)
        return r;
    r = uv_pipe_init(h->hosts->o.loop, &h->errors, 0);
    if (r < 0)
        return r;
    h->handles++;
    if ((r = host_spawn(h, child_sock)) < 0)
        return r;
    h->pid = h->handle.pid;
    /* From here on it is there, and its exit tells all. */
    if (uv_read_start((uv_stream_t *)&h->errors, host_on_alloc, host_on_errors) < 0)
        host_fail(h, "it cannot be watched");
    host_rearm(h);
    return 0;
}

static int host_start_new(struct hosts *hosts, const char *interpreter, struct host **ret,
                          struct dl_error *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return dl_error_set(err, errno, "dataset.interpreter", "cannot start %s: %s", interpreter,
                            strerror(errno));
    _cleanup_fd_ int child_sock = pair[1];
    struct host *h = host_new(hosts, pair[0]);
    h->interpreter = must_strdup(interpreter);
    h->words.relay = hosts->o.relay;
    int r = host_start(h, child_sock);
    if (r < 0) {
        host_close_handles(h);
        return dl_error_set(err, -r, "dataset.interpreter", "cannot start %s: %s", interpreter,
                            uv_strerror(r));
    }
    *ret = h;
    return 0;
}

int host_find_own(struct hosts *hosts, const char *interpreter, const void *loader,
                  struct host **ret, struct dl_error *err)
{
    struct host *h, *found = NULL;
    int r = 0;

    DL_FOREACH (hosts->hosts, h) {
        if (!h->interpreter || host_is_gone(h) || strcmp(h->interpreter, interpreter) != 0)
            continue;
        if (h->loader == loader || (!found && !h->children))
            found = h;
        if (h->loader == loader)
            break;
    }
    if (!found)
        r = host_start_new(hosts, interpreter, &found, err);
    if (r < 0)
        return r;
    found->loader = loader;
    *ret = found;
    return 0;
}

/* ---- brought by a client -------------------------------------------------------------------- */

int host_adopt(struct hosts *hosts, int sock, int pid, struct host **ret, struct dl_error *err)
{
    struct host *h = host_new(hosts, sock);
    int r = host_watch(h);

    if (r < 0) {
        host_close_handles(h);
        return dl_error_set(err, -r, "dataset.host", "its socket cannot be watched: %s",
                            uv_strerror(r));
    }
    h->pid = pid;
    h->handles++; /* of the user that has it from here */
    host_rearm(h);
    *ret = h;
    return 0;
}

bool host_is_gone(const struct host *h)
{
    return h->state != HOST_STARTING && h->state != HOST_READY;
}

struct host *host_release(struct host *h)
{
    if (!h)
        return NULL;
    assert(!host_has_wanted_child(h));
    host_tell_end(h);
    host_unref(h);
    return NULL;
}

/* ---- all of them ---------------------------------------------------------------------------- */

struct hosts *hosts_new(const struct hosts_options *options)
{
    struct hosts *hosts = must_alloc(sizeof *hosts);

    hosts->o = *options;
    return hosts;
}

struct relay *hosts_relay(const struct hosts *hosts)
{
    return hosts->o.relay;
}

bool hosts_private(const struct hosts *hosts)
{
    return hosts->o.private;
}

void hosts_end(struct hosts *hosts)
{
    struct host *h;

    DL_FOREACH (hosts->hosts, h) {
        host_tell_end(h);
    }
}

struct hosts *hosts_free(struct hosts *hosts)
{
    assert(!hosts || !hosts->hosts);
    free(hosts);
    return NULL;
}
