#include "daemon/cluster/store/http.h"

#include "daemon/base/memory.h"

#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>
#include <utlist.h>

enum { HTTP_ADDRESS_MAX = 48 };

struct http {
    uv_loop_t *loop;
    CURLM *multi; /* owned */
    uv_timer_t timer;
    char *ca, *cert, *key; /* owned; may be NULL */
    struct networks denied;
    struct http_call *calls;
    struct sock *socks;
};

struct http_call {
    struct http *http;
    CURL *easy;                 /* owned */
    struct curl_slist *headers; /* owned */
    char *body;                 /* owned */
    struct http_request request;
    struct dl_buffer answer;
    size_t header_bytes;
    bool too_long;
    char denied[HTTP_ADDRESS_MAX]; /* an address that it was not connected to; "": none */
    char why[CURL_ERROR_SIZE];
    struct http_call *prev, *next; /* in http->calls */
};

/* One of curl's sockets. */
struct sock {
    uv_poll_t poll;
    struct http *http;
    curl_socket_t fd;
    struct sock *prev, *next; /* in http->socks */
};

/* ---- sockets and time ----------------------------------------------------------------------- */

static void http_finish_calls(struct http *http);

static void http_on_poll(uv_poll_t *poll, int status, int events)
{
    struct sock *sock = container_of(poll, struct sock, poll);
    struct http *http = sock->http;
    int flags = 0, running;

    if (status < 0)
        flags = CURL_CSELECT_ERR;
    if (events & UV_READABLE)
        flags |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        flags |= CURL_CSELECT_OUT;
    (void)curl_multi_socket_action(http->multi, sock->fd, flags, &running);
    http_finish_calls(http);
}

static void http_on_timer(uv_timer_t *timer)
{
    struct http *http = container_of(timer, struct http, timer);
    int running;

    (void)curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    http_finish_calls(http);
}

static int http_set_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct http *http = arg;

    if (timeout_ms < 0)
        uv_timer_stop(&http->timer);
    else
        uv_timer_start(&http->timer, http_on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

static void http_on_sock_closed(uv_handle_t *handle)
{
    free(container_of(handle, struct sock, poll));
}

static void http_close_sock(struct sock *sock)
{
    DL_DELETE(sock->http->socks, sock);
    (void)uv_poll_stop(&sock->poll);
    uv_close((uv_handle_t *)&sock->poll, http_on_sock_closed);
}

static struct sock *http_open_sock(struct http *http, curl_socket_t fd)
{
    struct sock *sock = must_alloc(sizeof *sock);

    sock->http = http;
    sock->fd = fd;
    if (uv_poll_init_socket(http->loop, &sock->poll, fd) < 0) {
        free(sock);
        return NULL;
    }
    DL_APPEND(http->socks, sock);
    (void)curl_multi_assign(http->multi, fd, sock);
    return sock;
}

/* Curl says what it waits for on a socket. A socket that cannot be watched ends by its time. */
static int http_watch_sock(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    struct http *http = arg;
    struct sock *sock = known;
    int events = 0;

    if (what == CURL_POLL_REMOVE) {
        if (sock)
            http_close_sock(sock);
        (void)curl_multi_assign(http->multi, fd, NULL);
        return 0;
    }
    if (!sock)
        sock = http_open_sock(http, fd);
    if (!sock)
        return 0;
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT)
        events |= UV_READABLE;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT)
        events |= UV_WRITABLE;
    (void)uv_poll_start(&sock->poll, events, http_on_poll);
    return 0;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static struct http_call *http_call_free(struct http_call *call)
{
    if (call->easy)
        curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->headers);
    buffer_deinit(&call->answer);
    free(call->body);
    free(call);
    return NULL;
}

struct http_call *http_cancel(struct http_call *call)
{
    if (!call)
        return NULL;
    DL_DELETE(call->http->calls, call);
    (void)curl_multi_remove_handle(call->http->multi, call->easy);
    return http_call_free(call);
}

static size_t http_on_data(char *data, size_t size, size_t n, void *arg)
{
    struct http_call *call = arg;
    struct dl_buffer *answer = &call->answer;

    if (answer->len + size * n > HTTP_BODY_MAX || buffer_append(answer, data, size * n) < 0) {
        call->too_long = true;
        return 0;
    }
    if (call->request.some) {
        size_t taken =
            call->request.some(call->request.owner, (struct dl_span){answer->data, answer->len});

        assert(taken <= answer->len);
        if (taken > 0)
            memmove(answer->data, answer->data + taken, answer->len - taken);
        answer->len -= taken;
    }
    return size * n;
}

static size_t http_on_header(char *data, size_t size, size_t n, void *arg)
{
    struct http_call *call = arg;

    call->header_bytes += size * n;
    if (call->header_bytes > HTTP_HEADERS_MAX) {
        call->too_long = true;
        return 0;
    }
    call->request.header(call->request.owner, (struct dl_span){(const uint8_t *)data, size * n});
    return size * n;
}

/* Of a name's addresses each that is tried comes here, of a redirect's, too. */
static curl_socket_t http_on_open(void *arg, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct http_call *call = arg;

    (void)purpose;
    if (networks_have(&call->http->denied, &to->addr)) {
        if (getnameinfo(&to->addr, to->addrlen, call->denied, sizeof call->denied, NULL, 0,
                        NI_NUMERICHOST) != 0)
            snprintf(call->denied, sizeof call->denied, "its address");
        return CURL_SOCKET_BAD;
    }
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

/* What is said of a call that failed, and whether the next one fails, too. */
static void http_explain(struct http_call *call, CURLcode code, struct http_answer *ret)
{
    /* As some releases of libcurl say of a line of a header that is too long. */
    bool too_long = call->too_long || code == CURLE_OUT_OF_MEMORY;
    ret->lasts = too_long || code == CURLE_UNSUPPORTED_PROTOCOL ||
                 code == CURLE_TOO_MANY_REDIRECTS || code == CURLE_PEER_FAILED_VERIFICATION ||
                 code == CURLE_SSL_CACERT_BADFILE;
    if (call->denied[0] && code == CURLE_COULDNT_CONNECT) {
        snprintf(call->why, sizeof call->why,
                 "%s is in a network that no URL may lead to: see remote.denied in "
                 "dloaderd.conf(5)",
                 call->denied);
        ret->lasts = true;
    }
    /* What says something else than "HTTP/" is taken for a server of before 1992. */
    bool other = code == CURLE_UNSUPPORTED_PROTOCOL && strstr(call->why, "HTTP/0.9");
    ret->why = too_long       ? "the answer is too long"
               : other        ? "it does not answer in HTTP; look at the URL's port"
               : call->why[0] ? call->why
                              : curl_easy_strerror(code);
}

static void http_finish_call(struct http_call *call, CURLcode code)
{
    struct http_answer answer = {.body = {call->answer.data, call->answer.len}};
    long status = 0;

    DL_DELETE(call->http->calls, call);
    (void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    answer.status = code == CURLE_OK ? (int)status : 0;
    answer.is_late = code == CURLE_OPERATION_TIMEDOUT;
    http_explain(call, code, &answer);
    (void)curl_multi_remove_handle(call->http->multi, call->easy);
    call->request.done(call->request.owner, &answer);
    http_call_free(call);
}

static void http_finish_calls(struct http *http)
{
    struct CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(http->multi, &left))) {
        struct http_call *call;

        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        http_finish_call(call, code);
    }
}

static void http_set_tls(struct http_call *call)
{
    const struct http *http = call->http;

    if (http->ca)
        curl_easy_setopt(call->easy, CURLOPT_CAINFO, http->ca);
    if (http->cert)
        curl_easy_setopt(call->easy, CURLOPT_SSLCERT, http->cert);
    if (http->key)
        curl_easy_setopt(call->easy, CURLOPT_SSLKEY, http->key);
}

static void http_set_up(struct http_call *call)
{
    const struct http_request *request = &call->request;
    long timeout_ms = (long)(request->timeout_ns / 1000000);
    CURL *easy = call->easy;

    curl_easy_setopt(easy, CURLOPT_URL, request->url);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    if (call->body) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE,
                         (long)(request->body_bytes ? request->body_bytes : strlen(call->body)));
    }
    if (request->method)
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
    if (request->header) {
        curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, http_on_header);
        curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    }
    if (request->redirected) {
        bool tls = strncmp(request->url, "https:", 6) == 0;

        curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
        curl_easy_setopt(easy, CURLOPT_MAXREDIRS, 5L);
        curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
    }
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, http_on_data);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->why);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    /* By HTTP/2 objects of 100 KiB came as fast from 200 ms away (0.96 to 1.08 times), and the
     * first batch as late; S3 does not speak it. */
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                     timeout_ms > 0 || !request->timeout_ns ? timeout_ms : 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms > 0 ? timeout_ms : 5000L);
    if (request->silent_s) {
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)request->silent_s);
    }
    /* A stream that is silent may be one that is dead. */
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 10L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 5L);
    if (call->http->denied.n > 0) {
        curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, http_on_open);
        curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, call);
    }
    http_set_tls(call);
}

static void http_add_header(struct http_call *call, const char *line)
{
    struct curl_slist *more = curl_slist_append(call->headers, line);

    call->headers = must_have(more);
}

static bool http_set_headers(struct http_call *call)
{
    const struct http_request *request = &call->request;
    char token[1024], type[128];

    if (request->body) {
        snprintf(type, sizeof type, "Content-Type: %s",
                 request->type ? request->type : "application/json");
        http_add_header(call, type);
        /* Curl sends Expect: 100-continue with long bodies, and waits: not with this. */
        http_add_header(call, "Expect:");
    }
    if (request->token) {
        if ((size_t)snprintf(token, sizeof token, "Authorization: %s", request->token) >=
            sizeof token)
            return false;
        http_add_header(call, token);
    }
    for (uint32_t i = 0; i < request->n_headers; i++)
        http_add_header(call, request->headers[i]);
    return true;
}

int http_send(struct http *http, const struct http_request *request, struct http_call **ret)
{
    struct http_call *call = must_alloc(sizeof *call);

    call->http = http;
    call->request = *request;
    call->easy = must_have(curl_easy_init());
    if (request->body && request->body_bytes)
        call->body =
            memcpy(must_have(malloc(request->body_bytes)), request->body, request->body_bytes);
    else if (request->body)
        call->body = must_strdup(request->body);
    if (!http_set_headers(call)) {
        http_call_free(call);
        return -EINVAL;
    }
    http_set_up(call);
    if (curl_multi_add_handle(http->multi, call->easy) != CURLM_OK) {
        http_call_free(call);
        return -EINVAL;
    }
    DL_APPEND(http->calls, call);
    *ret = call;
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static char *http_copy_text(const char *text)
{
    return text ? must_strdup(text) : NULL;
}

static void http_forget(struct http *http)
{
    if (http->multi)
        curl_multi_cleanup(http->multi);
    free(http->ca);
    free(http->cert);
    free(http->key);
    free(http);
    curl_global_cleanup();
}

int http_new(const struct http_options *options, struct http **ret, struct dl_error *err)
{
    CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);

    if (code != CURLE_OK)
        return dl_error_set(err, EIO, options->owner, "libcurl cannot be used: %s",
                            curl_easy_strerror(code));
    struct http *http = must_alloc(sizeof *http);
    http->loop = options->loop;
    http->multi = must_have(curl_multi_init());
    http->ca = http_copy_text(options->ca);
    http->cert = http_copy_text(options->cert);
    http->key = http_copy_text(options->key);
    if (options->denied)
        http->denied = *options->denied;
    (void)uv_timer_init(http->loop, &http->timer);
    if (options->kept)
        curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)options->kept);
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, http_watch_sock);
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, http_set_timer);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    *ret = http;
    return 0;
}

static void http_on_timer_closed(uv_handle_t *handle)
{
    http_forget(container_of(handle, struct http, timer));
}

struct http *http_free(struct http *http)
{
    struct http_call *call, *next;
    struct sock *sock, *sock_next;

    if (!http)
        return NULL;
    DL_FOREACH_SAFE (http->calls, call, next)
        http_cancel(call);
    /* What is left of curl closes its sockets by itself, and they are not to be watched then. */
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, NULL);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, NULL);
    DL_FOREACH_SAFE (http->socks, sock, sock_next)
        http_close_sock(sock);
    uv_timer_stop(&http->timer);
    uv_close((uv_handle_t *)&http->timer, http_on_timer_closed);
    return NULL;
}
