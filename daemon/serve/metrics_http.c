#include "daemon/serve/metrics_http.h"

#include "daemon/serve/base/loopback.h"
#include "daemon/serve/base/memory.h"
#include "daemon/serve/listener.h"
#include "proto/shared/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <utlist.h>

enum {
    BACKLOG = 64,
    VISITORS_MAX = 32,
    VISIT_MS = 10 * 1000,      /* from the connection to the last byte of the answer */
    REQUEST_BYTES = 16 * 1024, /* for one visitor's headers */
    FRESH_MS = 100,            /* the text is made no more often than this */
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
    struct MHD_Response *text; /* owned; NULL: none was made yet */
    uint64_t made_ms;
    struct visitor *visitors; /* the oldest first */
    uint32_t n_visitors;
    uint32_t handles;
    metrics_http_view view;
    void *context;
};

/* ---- answers -------------------------------------------------------------------------------- */

static void metrics_http_add_header(struct MHD_Response *response, const char *name,
                                    const char *value)
{
    (void)!MHD_add_response_header(response, name, value);
}

/* `data` is on the heap and becomes the response's. */
static struct MHD_Response *metrics_http_make_response(void *data, size_t len)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);

    if (!response) {
        free(data);
        return NULL;
    }
    /* Nobody asks often enough for a connection to be worth keeping. */
    metrics_http_add_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    return response;
}

static void metrics_http_views_deinit(struct value (*views)[METRICS_VIEWS])
{
    for (size_t i = 0; i < METRICS_VIEWS; i++)
        value_deinit(&(*views)[i]);
}

static int metrics_http_make_text(struct metrics_http *http, struct dl_buffer *out)
{
    _cleanup_(metrics_http_views_deinit)
    struct value views[METRICS_VIEWS] = {0};
    struct dl_error err = {0};
    int r = 0;

    for (size_t i = 0; i < METRICS_VIEWS && r == 0; i++)
        r = http->view(http->context, metrics_views[i], &views[i], &err);
    return r < 0 ? r : metrics_write(views, out);
}

/* All who ask within a short while get the same text: nobody keeps the daemon busy by asking. */
static struct MHD_Response *metrics_http_current_text(struct metrics_http *http)
{
    _cleanup_(buffer_deinit)
    struct dl_buffer text = {0};
    uint64_t now = uv_now(http->loop);

    if (http->text && now - http->made_ms < FRESH_MS)
        return http->text;
    if (metrics_http_make_text(http, &text) < 0)
        return NULL;
    struct MHD_Response *response = metrics_http_make_response(steal_ptr(text.data), text.len);
    if (!response)
        return NULL;
    metrics_http_add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                            "text/plain; version=0.0.4; charset=utf-8");
    if (http->text)
        MHD_destroy_response(http->text); /* who is still reading it keeps it */
    http->text = response;
    http->made_ms = now;
    return response;
}

static enum MHD_Result metrics_http_say(struct MHD_Connection *connection, unsigned status,
                                        const char *why)
{
    struct MHD_Response *response = metrics_http_make_response(must_strdup(why), strlen(why));

    if (!response)
        return MHD_NO;
    metrics_http_add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        metrics_http_add_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static const char *metrics_http_text_of(const struct value *view, const char *key)
{
    const struct value *v = value_get(view, key);

    return v && v->type == VALUE_STRING ? v->string : "";
}

/* Whether clients that come now are served. */
static enum MHD_Result metrics_http_say_ready(struct metrics_http *http,
                                              struct MHD_Connection *connection)
{
    _cleanup_(value_deinit)
    struct value view = {0};
    struct dl_error err = {0};
    char text[1100];

    if (http->view(http->context, "status", &view, &err) < 0)
        return metrics_http_say(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "Out of memory.\n");
    if (strcmp(metrics_http_text_of(&view, "ready"), "yes") == 0)
        return metrics_http_say(connection, MHD_HTTP_OK, "ready\n");
    (void)snprintf(text, sizeof text, "not ready: %s\n", metrics_http_text_of(&view, "not_ready"));
    return metrics_http_say(connection, MHD_HTTP_SERVICE_UNAVAILABLE, text);
}

/* Headers are there; what the request has besides is not waited for. */
static enum MHD_Result metrics_http_on_request(void *context, struct MHD_Connection *connection,
                                               const char *url, const char *method,
                                               const char *version, const char *upload,
                                               size_t *upload_size, void **of_request)
{
    struct metrics_http *http = context;

    (void)version, (void)upload, (void)of_request;
    *upload_size = 0; /* nobody wants it */
    bool health = strcmp(url, "/healthz") == 0, readiness = strcmp(url, "/readyz") == 0;
    if (!health && !readiness && strcmp(url, "/metrics") != 0)
        return metrics_http_say(connection, MHD_HTTP_NOT_FOUND,
                                "The metrics are at /metrics; there are /healthz and /readyz.\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return metrics_http_say(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                                "Metrics can only be read: GET.\n");
    if (health)
        return metrics_http_say(connection, MHD_HTTP_OK, "ok\n");
    if (readiness)
        return metrics_http_say_ready(http, connection);
    struct MHD_Response *text = metrics_http_current_text(http);
    if (!text)
        return metrics_http_say(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "Out of memory.\n");
    return MHD_queue_response(connection, MHD_HTTP_OK, text);
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

/* The oldest who was not hung up on yet; NULL: there is none. */
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

/* Lets the server do what is to do, and comes back when its time, or a visitor's, is over. */
static void metrics_http_go_on(struct metrics_http *http)
{
    unsigned long long wait = UINT64_MAX;

    (void)MHD_run(http->server);
    if (MHD_get_timeout(http->server, &wait) != MHD_YES)
        wait = UINT64_MAX;
    const struct visitor *v = metrics_http_oldest(http);
    if (v) {
        uint64_t age = uv_now(http->loop) - v->came_ms;
        wait = min_u64(wait, age < VISIT_MS ? VISIT_MS - age : 0);
    }
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
    metrics_http_go_on(http);
}

static void metrics_http_on_event(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    metrics_http_go_on(poll->data);
}

/* There is always room for who comes: connections that say nothing do not keep others out. */
static void metrics_http_on_accepted(void *context, int fd)
{
    static const union loopback nobody = {.v4 = {.sin_family = AF_INET}};
    struct metrics_http *http = context;

    if (http->n_visitors >= VISITORS_MAX) {
        struct visitor *v = metrics_http_oldest(http);
        if (v)
            metrics_http_hang_up(v);
        (void)MHD_run(http->server);
    }
    (void)!MHD_add_connection(http->server, fd, &nobody.any, loopback_len(&nobody));
    metrics_http_go_on(http);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static int metrics_http_cannot_listen(struct dl_error *err, const char *listen_at, int code)
{
    const char *remedy = "";

    if (code == EADDRINUSE)
        remedy = "; choose another port";
    else if (code == EAFNOSUPPORT)
        remedy = "; a unit that keeps the daemon from the network needs what METRICS in "
                 "dloaderd.conf(5) says";
    return dl_error_set(err, code, "metrics.listen", "cannot listen on %s: %s%s", listen_at,
                        strerror(code), remedy);
}

static int metrics_http_bind_address(const char *listen_at, const union loopback *address,
                                     struct dl_error *err)
{
    _cleanup_fd_ int fd =
        socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;

    if (fd < 0)
        return metrics_http_cannot_listen(err, listen_at, errno);
    /* A daemon that follows another need not wait for connections that are only remembered. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &address->any, loopback_len(address)) < 0 || listen(fd, BACKLOG) < 0)
        return metrics_http_cannot_listen(err, listen_at, errno);
    return steal_fd(&fd);
}

/* Says the port, which may have been chosen by the kernel. */
static void metrics_http_tell(int fd)
{
    union loopback address = {0};
    socklen_t len = sizeof address;
    char host[INET6_ADDRSTRLEN] = "";
    bool v6;

    if (getsockname(fd, &address.any, &len) < 0)
        return;
    v6 = address.any.sa_family == AF_INET6;
    inet_ntop(address.any.sa_family,
              v6 ? (const void *)&address.v6.sin6_addr : (const void *)&address.v4.sin_addr, host,
              sizeof host);
    log_info("metrics are at http://%s%s%s:%u/metrics", v6 ? "[" : "", host, v6 ? "]" : "",
             (unsigned)ntohs(v6 ? address.v6.sin6_port : address.v4.sin_port));
}

static int metrics_http_start_server(struct metrics_http *http, struct dl_error *err)
{
    int r = -ENOMEM;

    /* One connection more may be on its way out for each that is let in. */
    http->server = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, metrics_http_on_request, http,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)(2 * VISITORS_MAX),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
        metrics_http_on_visitor, http, MHD_OPTION_END);
    if (http->server) {
        int fd = MHD_get_daemon_info(http->server, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
        r = uv_poll_init(http->loop, &http->poll, fd);
    }
    if (r < 0)
        return dl_error_set(err, -r, "metrics.listen", "cannot start an HTTP server: %s",
                            strerror(-r));
    uv_timer_init(http->loop, &http->timer);
    http->handles = 2;
    http->poll.data = http->timer.data = http;
    (void)uv_poll_start(&http->poll, UV_READABLE, metrics_http_on_event);
    return 0;
}

int metrics_http_new(uv_loop_t *loop, const char *listen_at, metrics_http_view view, void *context,
                     struct metrics_http **ret, struct dl_error *err)
{
    union loopback address;
    int fd, r;

    *ret = NULL;
    if (!*listen_at)
        return 0;
    if (loopback_parse(listen_at, &address) < 0)
        return metrics_http_cannot_listen(err, listen_at, EINVAL);
    if ((fd = metrics_http_bind_address(listen_at, &address, err)) < 0)
        return fd;
    struct metrics_http *http = must_alloc(sizeof *http);
    http->loop = loop;
    http->view = view;
    http->context = context;
    r = listener_new(loop, NULL, fd, metrics_http_on_accepted, http, &http->listener, err);
    if (r == 0)
        r = metrics_http_start_server(http, err);
    if (r < 0) {
        metrics_http_free(http);
        return r;
    }
    metrics_http_tell(fd);
    *ret = http;
    return 0;
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
    if (http->text)
        MHD_destroy_response(http->text);
    if (!http->handles) {
        free(http);
        return NULL;
    }
    uv_close((uv_handle_t *)&http->poll, metrics_http_on_closed);
    uv_close((uv_handle_t *)&http->timer, metrics_http_on_closed);
    return NULL;
}
