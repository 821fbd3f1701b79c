#include "daemon/fetcher/peer_server.h"

#include "daemon/base/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include <utlist.h>

enum {
    VISITS_MAX = 256,
    VISIT_PROMISE_MS = 1000,      /* for what is promised; less than PEER_MS, */
    VISIT_REQUEST_MS = 10 * 1000, /* and until all of a request is here, or an answer is gone, */
    VISIT_IDLE_MS = 60 * 1000,    /* and between two */
    VISIT_READ_BYTES = 64 * 1024,
    VISIT_READS = 2,
};

struct peer_server {
    uv_loop_t *loop;
    struct kept *kept;
    struct promises *promises;
    const struct sigv4_crypto *crypto;
    struct remote_tally *tally; /* borrowed, all */
    char token[PEER_TOKEN_MAX];
    uv_poll_t poll;
    int fd; /* owned; -1: it does not listen */
    struct visit *visits;
    uint32_t n_visits;
};

/* One connection, and the request that is under way on it. */
struct visit {
    struct peer_server *server;
    uv_tcp_t tcp;
    uv_timer_t timer;
    uint32_t handles;    /* that are not closed */
    struct dl_buffer in; /* what has come: of the request, and what may follow it */
    size_t head;         /* bytes of its lines; 0: not all are here */
    char *lines;         /* owned: these; the request borrows from it */
    struct peer_request request;
    bool asked;      /* it is there: nothing more is read until it is answered */
    unsigned failed; /* so often the first block that was there was damaged, or another object's */
    struct kept_task *task;
    uint64_t n_kept; /* of what it brings */
    struct promise_wait *wait;
    uv_write_t write;
    bool writing;
    char *out; /* owned: what is written */
    bool last; /* then it is closed */
    struct visit *prev, *next;
};

static void visit_serve(struct visit *visit);
static void visit_go_on(struct visit *visit);

/* ---- a connection --------------------------------------------------------------------------- */

static void visit_end_request(struct visit *visit)
{
    visit->task = kept_cancel(visit->task);
    visit->wait = promise_wait_cancel(visit->wait);
    free(steal_ptr(visit->lines));
    free(steal_ptr(visit->request.ask.where));
    visit->request = (struct peer_request){0};
    visit->head = 0;
    visit->asked = false;
    visit->failed = 0;
}

static void visit_on_closed(uv_handle_t *handle)
{
    struct visit *visit = handle->data;

    if (--visit->handles > 0)
        return;
    free(visit->out);
    buffer_deinit(&visit->in);
    free(visit);
}

static void visit_close(struct visit *visit)
{
    if (uv_is_closing((uv_handle_t *)&visit->tcp))
        return;
    visit_end_request(visit);
    promises_end_of(visit->server->promises, visit);
    DL_DELETE(visit->server->visits, visit);
    visit->server->n_visits--;
    uv_close((uv_handle_t *)&visit->tcp, visit_on_closed);
    uv_close((uv_handle_t *)&visit->timer, visit_on_closed);
}

static void visit_on_timer(uv_timer_t *timer)
{
    visit_close(timer->data);
}

static void visit_have_patience(struct visit *visit, uint64_t ms)
{
    uv_timer_start(&visit->timer, visit_on_timer, ms, 0);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void visit_on_written(uv_write_t *write, int status)
{
    struct visit *visit = write->data;

    visit->writing = false;
    free(steal_ptr(visit->out));
    if (uv_is_closing((uv_handle_t *)&visit->tcp))
        return;
    if (status < 0 || visit->last) {
        visit_close(visit);
        return;
    }
    visit_have_patience(visit, VISIT_IDLE_MS);
    visit_go_on(visit);
}

/* `head`: the status, and lines of the answer's own, each with its end. */
static void visit_write(struct visit *visit, const char *head, struct dl_span body)
{
    char end[128];
    int len = snprintf(end, sizeof end, "Content-Length: %zu\r\n%s\r\n", body.len,
                       visit->last ? "Connection: close\r\n" : "");
    size_t bytes = strlen(head) + (size_t)len + body.len;
    uv_buf_t buf;

    assert(!visit->writing);
    visit->out = must_have(malloc(bytes));
    memcpy(visit->out, head, strlen(head));
    memcpy(visit->out + strlen(head), end, (size_t)len);
    if (body.len > 0)
        memcpy(visit->out + strlen(head) + (size_t)len, body.data, body.len);
    buf = uv_buf_init(visit->out, (unsigned)bytes);
    visit_end_request(visit);
    visit->writing = true;
    visit->write.data = visit;
    visit_have_patience(visit, VISIT_REQUEST_MS);
    if (uv_write(&visit->write, (uv_stream_t *)&visit->tcp, &buf, 1, visit_on_written) < 0) {
        visit->writing = false;
        visit_close(visit);
    }
}

/* It was no request, or one without the right: whatever follows it is not looked at. */
static void visit_refuse(struct visit *visit, const char *status)
{
    char head[128];

    (void)snprintf(head, sizeof head, "HTTP/1.1 %s\r\n", status);
    visit->last = true;
    visit->in.len = 0;
    visit_write(visit, head, (struct dl_span){0});
}

static void visit_answer(struct visit *visit, const char *status, const struct peer_answer *answer,
                         struct dl_span body)
{
    const struct peer_server *server = visit->server;
    char line[PEER_LINE_MAX], proof[PEER_PROOF_MAX], head[2 * PEER_LINE_MAX];

    peer_answer_write(answer, line);
    peer_prove_answer(server->crypto, server->token, visit->request.proof, answer, body, proof);
    (void)snprintf(head, sizeof head, "HTTP/1.1 %s\r\nDloader-Peer: %s %s\r\n", status, line,
                   proof);
    remote_tally_add(server->tally, REMOTE_TO_PEERS, (int64_t)body.len);
    visit_write(visit, head, body);
}

/* ---- requests ------------------------------------------------------------------------------- */

struct object peer_ask_object(const struct peer_ask *ask)
{
    struct object object = {.where = ask->where,
                            .bytes = ask->bytes ? ask->bytes : REMOTE_UNKNOWN,
                            .modified = ask->modified};

    memcpy(object.etag, ask->etag, sizeof object.etag);
    return object;
}

static void visit_on_read(void *owner, const struct kept_result *result)
{
    struct visit *visit = owner;
    struct peer_answer answer = {
        .n = blocks_of(result->data.len), .bytes = result->bytes, .modified = result->modified};

    visit->task = NULL;
    if (answer.n == 0 || !*result->etag) {
        visit->failed++;
        visit_serve(visit);
        return;
    }
    (void)snprintf(answer.etag, sizeof answer.etag, "%s", result->etag);
    visit_answer(visit, "200 OK", &answer, result->data);
}

static void visit_on_promise_over(void *owner)
{
    struct visit *visit = owner;

    visit->wait = NULL;
    visit->failed = 0;
    visit_serve(visit);
}

static void visit_on_promise_lasts(uv_timer_t *timer)
{
    struct visit *visit = timer->data;
    const struct peer_answer answer = {.n = 1, .bytes = PEER_COMING, .modified = -1};

    visit_answer(visit, "404 Not Found", &answer, (struct dl_span){0});
}

static void visit_wait(struct visit *visit)
{
    const struct peer_ask *ask = &visit->request.ask;

    visit->wait = promises_wait(visit->server->promises, ask->where, ask->first,
                                visit_on_promise_over, visit);
    if (!uv_is_active((uv_handle_t *)&visit->timer))
        uv_timer_start(&visit->timer, visit_on_promise_lasts, VISIT_PROMISE_MS, 0);
}

/* How many blocks, one after another, are there, or are neither there nor promised. */
static uint64_t visit_run(const struct visit *visit, const struct object *object, bool there)
{
    const struct peer_ask *ask = &visit->request.ask;
    bool may_wait = !there && ask->method == PEER_GET;
    uint64_t n = 1;

    while (n < ask->n && kept_has(visit->server->kept, object, ask->first + n) == there &&
           !(may_wait && promises_have(visit->server->promises, ask->where, ask->first + n)))
        n++;
    return n;
}

/* Another object's is replaced when that of this one comes: who asks may be behind the times. */
static void visit_say_absent(struct visit *visit, const struct object *object)
{
    const struct kept *kept = visit->server->kept;
    const struct peer_ask *ask = &visit->request.ask;
    struct peer_answer answer = {.n = visit_run(visit, object, false),
                                 .wanted = ask->method == PEER_GET,
                                 .bytes = kept_room(kept) / PEER_PAGE * PEER_PAGE,
                                 .modified = -1};

    if (kept_by_order(kept, object, ask->first))
        answer.bytes |= PEER_BY_ORDER;
    if (answer.wanted)
        promises_make(visit->server->promises, ask->where, ask->first, answer.n, visit);
    visit_answer(visit, "404 Not Found", &answer, (struct dl_span){0});
}

static void visit_get(struct visit *visit)
{
    struct peer_server *server = visit->server;
    const struct peer_ask *ask = &visit->request.ask;
    const struct object object = peer_ask_object(ask);

    /* The right one may have come while another was read. */
    if (visit->failed < VISIT_READS && kept_has(server->kept, &object, ask->first)) {
        uint64_t n = ask->bytes ? visit_run(visit, &object, true) : 1;
        visit->task = kept_read(server->kept, &object, ask->first, n, visit_on_read, visit);
    } else if (ask->method == PEER_GET && promises_have(server->promises, ask->where, ask->first)) {
        visit_wait(visit);
    } else {
        visit_say_absent(visit, &object);
    }
}

/* `n` blocks of what was promised are there; 0: it does not come. */
static void visit_end_promise(struct visit *visit, uint64_t n)
{
    const struct peer_ask *ask = &visit->request.ask;
    const struct peer_answer answer = {.n = n, .modified = -1};

    promises_end(visit->server->promises, ask->where, ask->first, n);
    visit_answer(visit, n > 0 ? "200 OK" : "404 Not Found", &answer, (struct dl_span){0});
}

static void visit_on_put(void *owner, const struct kept_result *result)
{
    struct visit *visit = owner;

    (void)result;
    visit->task = NULL;
    visit_end_promise(visit, visit->n_kept);
}

/* What is there under that name is older: it was said not to be there, or the store has another. */
static void visit_put(struct visit *visit)
{
    struct peer_server *server = visit->server;
    const struct peer_ask *ask = &visit->request.ask;
    const struct object object = peer_ask_object(ask);
    struct dl_span body = {visit->in.data + visit->head, visit->request.length};
    bool if_room = ask->method == PEER_POST;
    char sum[PEER_PROOF_MAX];

    peer_sum(server->crypto, body, sum);
    if (!peer_proofs_same(sum, visit->request.sum)) {
        visit_refuse(visit, "400 Bad Request");
        return;
    }
    if (promises_have(server->promises, ask->where, ask->first))
        promises_make(server->promises, ask->where, ask->first, ask->n, visit);
    kept_drop_blocks(server->kept, &object, ask->first, ask->n);
    visit->task =
        kept_write(server->kept, &object, ask->first, body,
                   if_room ? STORE_IF_ROOM : STORE_BY_ORDER, &visit->n_kept, visit_on_put, visit);
    if (!if_room)
        visit->n_kept = ask->n;
    if (!visit->task)
        visit_on_put(visit, NULL);
}

static void visit_serve(struct visit *visit)
{
    switch (visit->request.ask.method) {
    case PEER_GET:
    case PEER_LOOK:
        visit_get(visit);
        break;
    case PEER_PUT:
    case PEER_POST:
        visit_put(visit);
        break;
    case PEER_DELETE:
        visit_end_promise(visit, visit->request.ask.n);
    }
}

/* ---- what comes ----------------------------------------------------------------------------- */

/* Its lines are here: what is asked, and by whom. False: it was refused. */
static bool visit_read_head(struct visit *visit)
{
    struct peer_server *server = visit->server;
    struct peer_request *request = &visit->request;
    char proof[PEER_PROOF_MAX];

    visit->lines = span_dup((struct dl_span){visit->in.data, visit->head});
    visit->lines = must_have(visit->lines);
    if (peer_request_read(visit->lines, request) < 0) {
        visit_refuse(visit, "400 Bad Request");
        return false;
    }
    peer_prove_ask(server->crypto, server->token, request->ask.method, request->target,
                   request->sum, proof);
    if (*server->token && peer_proofs_same(proof, request->proof))
        return true;
    remote_tally_add(server->tally, REMOTE_PEERS_REFUSED, 1);
    visit_refuse(visit, "403 Forbidden");
    return false;
}

/* The lines of a request, if they are all here. False: it has to wait, or was refused. */
static bool visit_find_head(struct visit *visit)
{
    const char *end = memmem(visit->in.data, min_u64(visit->in.len, PEER_HEAD_MAX), "\r\n\r\n", 4);

    if (visit->head > 0)
        return true;
    if (!end && visit->in.len >= PEER_HEAD_MAX)
        visit_refuse(visit, "431 Request Header Fields Too Large");
    if (!end)
        return false;
    visit->head = (size_t)((const uint8_t *)end - visit->in.data) + 4;
    return visit_read_head(visit);
}

/* A request that is here as a whole begins. */
static void visit_go_on(struct visit *visit)
{
    if (visit->asked || visit->writing || visit->in.len == 0 || !visit_find_head(visit) ||
        visit->in.len < visit->head + visit->request.length)
        return;
    visit->asked = true;
    uv_timer_stop(&visit->timer);
    size_t whole = visit->head + visit->request.length;
    visit_serve(visit);
    if (uv_is_closing((uv_handle_t *)&visit->tcp) || visit->last)
        return;
    memmove(visit->in.data, visit->in.data + whole, visit->in.len - whole);
    visit->in.len -= whole;
    if (visit->in.len == 0 && visit->in.cap > 2 * VISIT_READ_BYTES) /* it may not bring more */
        buffer_deinit(&visit->in);
}

static void visit_on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct visit *visit = handle->data;

    (void)suggested;
    if (buffer_reserve(&visit->in, VISIT_READ_BYTES) < 0)
        *buf = uv_buf_init(NULL, 0);
    else
        *buf = uv_buf_init((char *)visit->in.data + visit->in.len, VISIT_READ_BYTES);
}

/* One that sends more than the request before it is answered is none of ours. Of 0 bytes libuv
 * tells where there are no more for now: also behind the last one of a request. */
static void visit_on_data(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct visit *visit = stream->data;

    (void)buf;
    if (n == 0)
        return;
    if (n < 0 || visit->asked) {
        visit_close(visit);
        return;
    }
    if (visit->last)
        return;
    if (visit->in.len == 0)
        visit_have_patience(visit, VISIT_REQUEST_MS);
    visit->in.len += (size_t)n;
    visit_go_on(visit);
}

static void peer_server_take(struct peer_server *server, int fd)
{
    struct visit *visit = must_alloc(sizeof *visit);

    visit->server = server;
    (void)uv_tcp_init(server->loop, &visit->tcp);
    (void)uv_timer_init(server->loop, &visit->timer);
    visit->tcp.data = visit->timer.data = visit;
    visit->handles = 2;
    DL_APPEND(server->visits, visit);
    server->n_visits++;
    if (uv_tcp_open(&visit->tcp, fd) < 0) {
        close(fd);
        visit_close(visit);
        return;
    }
    (void)uv_tcp_nodelay(&visit->tcp, 1);
    visit_have_patience(visit, VISIT_REQUEST_MS);
    if (uv_read_start((uv_stream_t *)&visit->tcp, visit_on_room, visit_on_data) < 0)
        visit_close(visit);
}

static void peer_server_on_poll(uv_poll_t *poll, int status, int events)
{
    struct peer_server *server = container_of(poll, struct peer_server, poll);
    int fd;

    (void)status, (void)events;
    while ((fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (server->n_visits < VISITS_MAX)
            peer_server_take(server, fd);
        else
            close(fd);
    }
}

/* ---- the whole ------------------------------------------------------------------------------ */

struct peer_server *peer_server_new(uv_loop_t *loop, struct kept *kept, struct promises *promises,
                                    const struct sigv4_crypto *crypto, struct remote_tally *tally)
{
    struct peer_server *server = must_alloc(sizeof *server);

    *server = (struct peer_server){.loop = loop,
                                   .kept = kept,
                                   .promises = promises,
                                   .crypto = crypto,
                                   .tally = tally,
                                   .fd = -1};
    return server;
}

static void peer_server_on_closed(uv_handle_t *handle)
{
    struct peer_server *server = container_of((uv_poll_t *)handle, struct peer_server, poll);

    close_fdp(&server->fd);
    free(server);
}

struct peer_server *peer_server_free(struct peer_server *server)
{
    if (!server)
        return NULL;
    while (server->visits)
        visit_close(server->visits);
    if (server->fd >= 0)
        uv_close((uv_handle_t *)&server->poll, peer_server_on_closed);
    else
        free(server);
    return NULL;
}

/* Once in the life of a process. */
void peer_server_listen(struct peer_server *server, int fd)
{
    if (server->fd >= 0 || uv_poll_init(server->loop, &server->poll, fd) < 0) {
        close(fd);
        return;
    }
    server->fd = fd;
    (void)uv_poll_start(&server->poll, UV_READABLE, peer_server_on_poll);
}

void peer_server_set_token(struct peer_server *server, const char *token)
{
    (void)snprintf(server->token, sizeof server->token, "%s", token);
}
