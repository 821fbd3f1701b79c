#include "daemon/serve/metrics_http.h"

#include "daemon/base/address.h"
#include "daemon/base/allowance.h"
#include "daemon/base/listener.h"
#include "daemon/base/memory.h"
#include "daemon/serve/page/answers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <time.h>
#include <utlist.h>

enum {
    METRICS_BACKLOG = 1024, /* connections that wait during a pause are not refused */
    VISITORS_MAX = 32,
    VISIT_MS = 10 * 1000,      /* from the connection to the last byte of the answer */
    REQUEST_BYTES = 16 * 1024, /* for one visitor's headers */
    URL_MAX = INET6_ADDRSTRLEN + 32,
};

/* A connection. Its descriptor is the server's: it is shut down here, and closed there. */
struct visitor {
    int fd;
    uint64_t came_ms;
    bool shut;
    struct visitor *prev, *next; /* in metrics_http.visitors */
};

struct metrics_http {
    uv_loop_t *loop;
    uv_poll_t poll; /* of the server's own epoll descriptor */
    uv_timer_t timer;
    struct MHD_Daemon *server;
    struct listener *listener;
    struct answers *answers;  /* owned */
    struct allowance time;    /* of the loop */
    bool paused;              /* its time is used up: it neither reads nor accepts */
    struct visitor *visitors; /* the oldest first */
    uint32_t n_visitors;
    uint32_t handles;
};

/* Headers are there; what the request has besides is not waited for. */
static enum MHD_Result metrics_http_on_request(void *context, struct MHD_Connection *connection,
                                               const char *url, const char *method,
                                               const char *version, const char *upload,
                                               size_t *upload_size, void **of_request)
{
    struct metrics_http *http = context;

    (void)version, (void)upload, (void)of_request;
    *upload_size = 0; /* request bodies are ignored */
    return answers_give(http->answers, connection, url, method);
}

/* ---- visitors ------------------------------------------------------------------------------- */

static void metrics_http_on_visitor(void *context, struct MHD_Connection *connection,
                                    void **of_socket, enum MHD_ConnectionNotificationCode code)
{
    struct metrics_http *http = context;
    struct visitor *v;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        v = must_alloc(sizeof *v);
        v->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        v->came_ms = uv_now(http->loop);
        DL_APPEND(http->visitors, v);
        http->n_visitors++;
        *of_socket = v;
    } else if ((v = *of_socket)) {
        DL_DELETE(http->visitors, v);
        http->n_visitors--;
        free(v);
    }
}

/* The oldest visitor not hung up on yet; or NULL. */
static struct visitor *metrics_http_oldest(const struct metrics_http *http)
{
    struct visitor *v = http->visitors;

    while (v && v->shut)
        v = v->next;
    return v;
}

static void metrics_http_hang_up(struct visitor *v)
{
    (void)shutdown(v->fd, SHUT_RDWR); /* the server sees it and closes */
    v->shut = true;
}

static void metrics_http_on_timer(uv_timer_t *timer);
static void metrics_http_on_event(uv_poll_t *poll, int status, int events);

/* Processor time of this thread, whatever else runs. */
static uint64_t metrics_http_spent_ns(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Lets the server work, and charges the time since `began_ns`. */
static void metrics_http_run(struct metrics_http *http, uint64_t began_ns)
{
    (void)MHD_run(http->server);
    allowance_charge(&http->time, metrics_http_spent_ns() - began_ns, uv_hrtime());
}

/* Visitors wait while others have the loop, and are neither read from nor let in. */
static void metrics_http_pause(struct metrics_http *http)
{
    http->paused = true;
    listener_pause(http->listener, true);
    uv_poll_stop(&http->poll);
}

/* New connections come first: existing ones could use up all the time. */
static void metrics_http_resume(struct metrics_http *http)
{
    http->paused = false;
    (void)uv_poll_start(&http->poll, UV_READABLE, metrics_http_on_event);
    listener_pause(http->listener, false);
}

/* Until the server wants to be run, or a visitor has been here for long enough; UINT64_MAX: nothing
 * is waited for. */
static uint64_t metrics_http_wait_ms(const struct metrics_http *http)
{
    unsigned long long wait = UINT64_MAX;
    const struct visitor *v = metrics_http_oldest(http);

    if (MHD_get_timeout(http->server, &wait) != MHD_YES)
        wait = UINT64_MAX;
    if (v) {
        uint64_t age = uv_now(http->loop) - v->came_ms;
        wait = min_u64(wait, age < VISIT_MS ? VISIT_MS - age : 0);
    }
    return wait;
}

/* Runs the server, and comes back when its time, or a visitor's, is over; or when there is time for
 * it again. */
static void metrics_http_go_on(struct metrics_http *http, uint64_t began_ns)
{
    metrics_http_run(http, began_ns);
    uint64_t now = uv_hrtime(), due = allowance_due(&http->time, now);
    uint64_t wait = due > now ? (due - now) / 1000000 + 1 : metrics_http_wait_ms(http);

    if (due > now)
        metrics_http_pause(http);
    if (wait == UINT64_MAX)
        uv_timer_stop(&http->timer);
    else
        uv_timer_start(&http->timer, metrics_http_on_timer, wait, 0);
}

static void metrics_http_on_timer(uv_timer_t *timer)
{
    struct metrics_http *http = timer->data;
    struct visitor *v;

    while ((v = metrics_http_oldest(http)) && uv_now(http->loop) - v->came_ms >= VISIT_MS)
        metrics_http_hang_up(v);
    if (http->paused)
        metrics_http_resume(http);
    if (!http->paused)
        metrics_http_go_on(http, metrics_http_spent_ns());
}

static void metrics_http_on_event(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    metrics_http_go_on(poll->data, metrics_http_spent_ns());
}

/* A new connection always gets room: silent connections cannot keep it out. */
static void metrics_http_on_accepted(void *context, int fd)
{
    static const union address nobody = {.v4 = {.sin_family = AF_INET}};
    struct metrics_http *http = context;
    uint64_t began = metrics_http_spent_ns();

    if (http->n_visitors >= VISITORS_MAX) {
        struct visitor *v = metrics_http_oldest(http);
        if (v)
            metrics_http_hang_up(v);
        (void)MHD_run(http->server);
    }
    (void)!MHD_add_connection(http->server, fd, &nobody.any, address_len(&nobody));
    metrics_http_go_on(http, began);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static int metrics_http_cannot_listen(struct dl_error *err, const char *listen_at, int code)
{
    const char *remedy = "";

    if (code == EADDRINUSE)
        remedy = "; choose another port";
    else if (code == EAFNOSUPPORT)
        remedy = "; if the unit denies the daemon the network, see METRICS in dloaderd.conf(5)";
    return dl_error_set(err, code, "metrics.listen", "cannot listen on %s: %s%s", listen_at,
                        strerror(code), remedy);
}

static int metrics_http_bind_address(const char *listen_at, const union address *address,
                                     struct dl_error *err)
{
    _cleanup_fd_ int fd =
        socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;

    if (fd < 0)
        return metrics_http_cannot_listen(err, listen_at, errno);
    /* A daemon that follows another need not wait for connections that are only remembered. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &address->any, address_len(address)) < 0 || listen(fd, METRICS_BACKLOG) < 0)
        return metrics_http_cannot_listen(err, listen_at, errno);
    return steal_fd(&fd);
}

/* Says the port, which may have been chosen by the kernel. */
static void metrics_http_tell(int fd)
{
    union address address = {0};
    socklen_t len = sizeof address;
    char host[INET6_ADDRSTRLEN] = "";
    bool v6;

    if (getsockname(fd, &address.any, &len) < 0)
        return;
    v6 = address.any.sa_family == AF_INET6;
    inet_ntop(address.any.sa_family,
              v6 ? (const void *)&address.v6.sin6_addr : (const void *)&address.v4.sin_addr, host,
              sizeof host);
    log_info("metrics are at http://%s%s%s:%u/metrics, and a page at /", v6 ? "[" : "", host,
             v6 ? "]" : "", (unsigned)ntohs(v6 ? address.v6.sin6_port : address.v4.sin_port));
}

static int metrics_http_start_server(struct metrics_http *http, struct dl_error *err)
{
    int r;

    errno = ENOMEM; /* unless the library says better */
    /* One connection more may be on its way out for each that is let in. */
    http->server = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, metrics_http_on_request, http,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)(2 * VISITORS_MAX),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
        metrics_http_on_visitor, http, MHD_OPTION_END);
    r = -errno;
    if (http->server) {
        int fd = MHD_get_daemon_info(http->server, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
        r = uv_poll_init(http->loop, &http->poll, fd);
    }
    if (r == -ENOPKG)
        return dl_error_set(err, ENOPKG, "metrics.listen",
                            "this system has no libmicrohttpd.so.12; install it (libmicrohttpd12 "
                            "of Debian and Ubuntu, libmicrohttpd of Fedora), or leave the setting "
                            "out and read the metrics with \"dlctl metrics\"");
    if (r < 0)
        return dl_error_set(err, -r, "metrics.listen", "cannot start an HTTP server: %s",
                            strerror(-r));
    uv_timer_init(http->loop, &http->timer);
    http->handles = 2;
    http->poll.data = http->timer.data = http;
    (void)uv_poll_start(&http->poll, UV_READABLE, metrics_http_on_event);
    return 0;
}

/* A Unix socket is as open as the daemon's own: its permissions and its group are the same. */
static int metrics_http_listen_at_path(struct metrics_http *http, const struct config *config,
                                       struct dl_error *err)
{
    struct config at = {.socket = config->metrics.listen,
                        .socket_mode = config->socket_mode,
                        .socket_group = config->socket_group};
    struct dl_error why = {0};
    int r =
        listener_new(http->loop, &at, -1, metrics_http_on_accepted, http, &http->listener, &why);

    if (r < 0)
        return dl_error_set(err, why.code, "metrics.listen", "cannot listen at %s: %s", why.path,
                            why.message);
    log_info("metrics and a page are served at the socket %s", config->metrics.listen);
    return 0;
}

static int metrics_http_listen(struct metrics_http *http, const struct config *config,
                               struct dl_error *err)
{
    const char *listen_at = config->metrics.listen;
    union address address;
    int fd;

    if (address_is_path(listen_at))
        return metrics_http_listen_at_path(http, config, err);
    if (address_parse(listen_at, &address) < 0)
        return metrics_http_cannot_listen(err, listen_at, EINVAL);
    if ((fd = metrics_http_bind_address(listen_at, &address, err)) < 0)
        return fd;
    int r =
        listener_new(http->loop, NULL, fd, metrics_http_on_accepted, http, &http->listener, err);
    if (r == 0)
        metrics_http_tell(fd);
    return r;
}

static bool metrics_http_is_local(const char *listen_at)
{
    union address address;

    return address_is_path(listen_at) ||
           (address_parse(listen_at, &address) == 0 && address_is_local(&address));
}

int metrics_http_new(uv_loop_t *loop, const struct config *config, page_view view, void *context,
                     struct metrics_http **ret, struct dl_error *err)
{
    const struct config_metrics *metrics = &config->metrics;

    *ret = NULL;
    if (!*metrics->listen)
        return 0;
    struct metrics_http *http = must_alloc(sizeof *http);
    http->loop = loop;
    http->answers =
        answers_new(loop, metrics_http_is_local(metrics->listen), metrics->token, view, context);
    int r = metrics_http_listen(http, config, err);
    if (r == 0)
        r = metrics_http_start_server(http, err);
    if (r < 0) {
        metrics_http_free(http);
        return r;
    }
    *ret = http;
    return 0;
}

void metrics_http_set_token(struct metrics_http *http, const char *token)
{
    if (http)
        answers_set_token(http->answers, token);
}

static void metrics_http_on_closed(uv_handle_t *handle)
{
    struct metrics_http *http = handle->data;

    if (--http->handles == 0)
        free(http);
}

struct metrics_http *metrics_http_free(struct metrics_http *http)
{
    if (!http)
        return NULL;
    http->listener = listener_free(http->listener);
    if (http->handles)
        uv_poll_stop(&http->poll); /* before the server closes the descriptor */
    if (http->server)
        MHD_stop_daemon(http->server); /* and each visitor's connection */
    http->answers = answers_free(http->answers);
    if (!http->handles) {
        free(http);
        return NULL;
    }
    uv_close((uv_handle_t *)&http->poll, metrics_http_on_closed);
    uv_close((uv_handle_t *)&http->timer, metrics_http_on_closed);
    return NULL;
}
