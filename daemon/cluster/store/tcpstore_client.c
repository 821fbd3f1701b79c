#include "daemon/cluster/store/tcpstore_client_private.h"

#include "daemon/base/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <utlist.h>

enum {
    CLIENT_TIMEOUT_MS = 60000,
    CLIENT_ENOUGH_OUTPUT = 1 << 20,
    CLIENT_READ_BYTES = 64 << 10,
    CLIENT_READS_AT_ONCE = 16,
};

uint64_t client_now(const struct tcpstore_client *c)
{
    return uv_now(c->options.loop);
}

const char *tcpstore_client_endpoint(const struct tcpstore_client *client)
{
    return client->endpoint;
}

enum tcpstore_dialect tcpstore_client_dialect(const struct tcpstore_client *client)
{
    return client->state == LINK_UP ? client->dialect : TCPSTORE_ANY;
}

uint64_t tcpstore_client_links(const struct tcpstore_client *client)
{
    return client->links;
}

/* ---- requests ------------------------------------------------------------------------------- */

static int tcpstore_client_put_field(struct dl_buffer *out, char letter,
                                     const struct tcpstore_question *q, size_t *keys,
                                     size_t *values)
{
    struct dl_span span;

    if (letter == 'i')
        return tcpstore_put_i64(out, q->number);
    if (letter == 'u')
        return tcpstore_put_u32(out, (uint32_t)q->number);
    span = letter == 'k' ? q->keys[(*keys)++] : q->values[(*values)++];
    if (span.len > (letter == 'k' ? TCPSTORE_KEY_MAX : TCPSTORE_VALUE_MAX))
        return -EINVAL;
    return tcpstore_put_span(out, span);
}

static int tcpstore_client_put_body(struct dl_buffer *out, const struct tcpstore_question *q)
{
    const char *field = tcpstore_op_request(q->op);
    size_t keys = 0, values = 0;
    int r = 0;

    if (*field == '*') {
        field++;
        if (q->times > TCPSTORE_KEYS_MAX)
            return -EINVAL;
        r = tcpstore_put_i64(out, (int64_t)q->times);
    }
    for (uint64_t i = 0; i < q->times && r == 0; i++) {
        for (const char *at = field; *at && r == 0; at++)
            r = tcpstore_client_put_field(out, *at, q, &keys, &values);
        if (out->len > TCPSTORE_MESSAGE_MAX - 1)
            return -EINVAL;
    }
    return r;
}

static void tcpstore_client_free_request(struct client_request *request)
{
    buffer_deinit(&request->body);
    free(request);
}

static void tcpstore_client_free_list(struct client_request **list)
{
    while (*list) {
        struct client_request *request = *list;
        DL_DELETE(*list, request);
        tcpstore_client_free_request(request);
    }
}

static bool tcpstore_client_has_reply(const struct client_request *request)
{
    return *tcpstore_op_reply(request->question.op);
}

/* Its answer may take as long as it likes; nothing is sent behind it. */
static bool tcpstore_client_is_wait(const struct client_request *request)
{
    return request->question.op == TCPSTORE_WAIT || request->question.op == TCPSTORE_BARRIER;
}

static void tcpstore_client_on_timer(uv_timer_t *timer)
{
    client_turn(timer->data);
}

int tcpstore_client_ask(struct tcpstore_client *c, const struct tcpstore_question *question,
                        tcpstore_done done, void *owner)
{
    struct client_request *request = must_alloc(sizeof *request);
    uint64_t timeout_ms = question->timeout_ms > 0 ? question->timeout_ms : c->options.timeout_ms;
    int r = tcpstore_client_put_body(&request->body, question);

    if (r == -ENOMEM)
        must_have(NULL);
    if (r < 0) {
        tcpstore_client_free_request(request);
        return r;
    }
    request->question = *question;
    request->question.keys = request->question.values = NULL;
    request->done = done;
    request->owner = owner;
    request->asked_ms = client_now(c);
    request->deadline_ms = request->asked_ms + timeout_ms;
    DL_APPEND(c->queue, request);
    uv_timer_start(&c->timer, tcpstore_client_on_timer, 0, 0);
    return 0;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Takes the request out of its list. False: the client was freed meanwhile. */
static bool tcpstore_client_answer(struct tcpstore_client *c, struct client_request **list,
                                   struct client_request *request,
                                   const struct tcpstore_answer *with)
{
    tcpstore_done done = request->cancelled ? NULL : request->done;
    void *owner = request->owner;

    DL_DELETE(*list, request);
    tcpstore_client_free_request(request);
    if (done)
        done(owner, with);
    return !c->ending;
}

static bool tcpstore_client_fail(struct tcpstore_client *c, struct client_request **list,
                                 struct client_request *request, const struct dl_error *err)
{
    const struct tcpstore_answer with = {.status = -err->code, .error = err};

    return tcpstore_client_answer(c, list, request, &with);
}

/* What was sent and not answered never will be. */
static bool tcpstore_client_fail_flight(struct tcpstore_client *c, int code, const char *why)
{
    struct client_request *lost = c->flight;
    struct dl_error err = {0};
    bool alive = true;

    c->flight = NULL;
    while (lost && alive) {
        (void)!dl_error_set(&err, code, c->endpoint,
                            "%s was sent, and then %s; it may or may not have been done",
                            tcpstore_op_name(lost->question.op), why);
        alive = tcpstore_client_fail(c, &lost, lost, &err);
    }
    tcpstore_client_free_list(&lost);
    return alive;
}

static bool tcpstore_client_lose(struct tcpstore_client *c, int code, const char *why)
{
    connect_end(c, why);
    return tcpstore_client_fail_flight(c, code, why);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void tcpstore_client_say_late(const struct tcpstore_client *c,
                                     const struct client_request *request, bool sent,
                                     struct dl_error *err)
{
    const char *name = tcpstore_op_name(request->question.op);
    double s = (double)(request->deadline_ms - request->asked_ms) / 1000;

    if (sent && tcpstore_client_is_wait(request))
        (void)!dl_error_set(err, ETIMEDOUT, c->endpoint, "the value did not come within %.1f s", s);
    else if (sent || c->state == LINK_UP)
        (void)!dl_error_set(err, ETIMEDOUT, c->endpoint,
                            "%s was not answered within %.1f s; the store is reachable, but "
                            "stuck or very busy",
                            name, s);
    else
        (void)!dl_error_set(err, ETIMEDOUT, c->endpoint,
                            "no TCPStore answered within %.1f s (%u attempts; the last: %s); "
                            "start it there, or correct the endpoint",
                            s, c->attempts, *c->why ? c->why : "no answer yet");
}

/* Ends a wait that was sent: cancels it in the store, or where that is not possible, leaves the
 * store. */
static bool tcpstore_client_cancel_wait(struct tcpstore_client *c, struct client_request *request)
{
    struct dl_error err = {0};
    const struct tcpstore_answer with = {.status = -ETIMEDOUT, .error = &err};
    tcpstore_done done = request->done;
    void *owner = request->owner;

    tcpstore_client_say_late(c, request, true, &err);
    request->cancelled = true;
    request->deadline_ms = client_now(c) + c->options.timeout_ms;
    if (c->dialect == TCPSTORE_V1 ||
        tcpstore_put_u8(&c->out, (uint8_t)tcpstore_op_byte(TCPSTORE_CANCEL_WAIT, c->dialect)) < 0) {
        DL_DELETE(c->flight, request);
        tcpstore_client_free_request(request);
        done(owner, &with);
        return !c->ending &&
               tcpstore_client_lose(c, ECONNRESET, "a wait on the same connection failed");
    }
    done(owner, &with);
    return !c->ending;
}

static bool tcpstore_client_expire_flight(struct tcpstore_client *c)
{
    struct client_request *request;
    struct dl_error err = {0};

    DL_FOREACH (c->flight, request) {
        if (request->deadline_ms > client_now(c))
            continue;
        if (tcpstore_client_is_wait(request) && !request->cancelled)
            return tcpstore_client_cancel_wait(c, request);
        tcpstore_client_say_late(c, request, true, &err);
        return tcpstore_client_fail(c, &c->flight, request, &err) &&
               tcpstore_client_lose(c, ECONNRESET, "an earlier request was not answered in time");
    }
    return true;
}

static bool tcpstore_client_expire_queue(struct tcpstore_client *c)
{
    struct client_request *request;
    struct dl_error err = {0};

    for (request = c->queue; request;) {
        if (request->deadline_ms > client_now(c)) {
            request = request->next;
            continue;
        }
        tcpstore_client_say_late(c, request, false, &err);
        if (!tcpstore_client_fail(c, &c->queue, request, &err))
            return false;
        request = c->queue; /* the caller may have asked for more from its callback */
    }
    return true;
}

/* Asked for by somebody who was just answered, after what was there had been sent. */
static bool tcpstore_client_has_more(const struct tcpstore_client *c)
{
    bool waits = c->flight && tcpstore_client_is_wait(c->flight->prev);

    return c->state == LINK_UP && c->queue && c->out.len == c->out_begin && !waits;
}

static void tcpstore_client_arm(struct tcpstore_client *c)
{
    uint64_t at = UINT64_MAX, now = client_now(c);
    const struct client_request *request;

    if (tcpstore_client_has_more(c))
        at = now;

    DL_FOREACH (c->queue, request) {
        at = min_u64(at, request->deadline_ms);
    }
    DL_FOREACH (c->flight, request) {
        at = min_u64(at, request->deadline_ms);
    }
    if (c->state == LINK_CONNECTING || c->state == LINK_GREETING)
        at = min_u64(at, c->step_ms);
    if (c->state == LINK_DOWN && c->queue)
        at = min_u64(at, c->retry_ms);
    if (at == UINT64_MAX)
        uv_timer_stop(&c->timer);
    else
        uv_timer_start(&c->timer, tcpstore_client_on_timer, at > now ? at - now : 0, 0);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Moves what may go out now from the queue to the flight. */
static bool tcpstore_client_send_queue(struct tcpstore_client *c)
{
    while (c->queue && c->out.len - c->out_begin < CLIENT_ENOUGH_OUTPUT) {
        struct client_request *request = c->queue;
        int byte = tcpstore_op_byte(request->question.op, c->dialect);
        struct dl_error err = {0};

        if (c->flight && tcpstore_client_is_wait(c->flight->prev)) /* its head's prev is the last */
            break;
        if (byte < 0) {
            (void)!dl_error_set(
                &err, EOPNOTSUPP, c->endpoint, "the store there is of torch %d, which has no %s",
                c->dialect == TCPSTORE_V1 ? 1 : 2, tcpstore_op_name(request->question.op));
            if (!tcpstore_client_fail(c, &c->queue, request, &err))
                return false;
            continue;
        }
        DL_DELETE(c->queue, request);
        DL_APPEND(c->flight, request);
        must_append(&c->out, &(uint8_t){(uint8_t)byte}, 1);
        must_append(&c->out, request->body.data, request->body.len);
        buffer_deinit(&request->body);
    }
    return true;
}

static bool tcpstore_client_flush(struct tcpstore_client *c)
{
    while (c->out.len > c->out_begin) {
        ssize_t n = send(c->fd, c->out.data + c->out_begin, c->out.len - c->out_begin,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n < 0)
            return false;
        c->out_begin += (size_t)n;
    }
    c->out.len = c->out_begin = 0;
    return true;
}

/* One reply; 1: there was one, 0: not yet, -1: the connection or the client is gone. */
static int tcpstore_client_take_reply(struct tcpstore_client *c, size_t *at)
{
    struct client_request *request = c->flight;
    struct tcpstore_answer with = {0};
    size_t bytes = 0;
    int r;

    if (!request || !tcpstore_client_has_reply(request)) {
        if (request && c->out.len == 0) /* sent, and that is all */
            return tcpstore_client_answer(c, &c->flight, request, &with) ? 1 : -1;
        if (*at == c->in.len)
            return 0;
        (void)!tcpstore_client_lose(c, EPROTO, "the store sent an answer without a request");
        return -1;
    }
    r = tcpstore_scan_reply(&c->scan, request->question.op, request->question.times,
                            c->in.len > *at ? c->in.data + *at : NULL, c->in.len - *at, &bytes);
    if (r < 0)
        (void)!tcpstore_client_lose(c, EPROTO,
                                    "the store sent an answer that is not a "
                                    "TCPStore's");
    if (r <= 0)
        return r;
    with.fields.at = bytes > 0 ? c->in.data + *at : NULL;
    *at += bytes;
    /* The answer to a wait that was on its way as it was cancelled. */
    if (request->cancelled && with.fields.at[0] == TCPSTORE_STOP_WAITING)
        return 1;
    return tcpstore_client_answer(c, &c->flight, request, &with) ? 1 : -1;
}

/* False: the connection or the client is gone. */
static bool tcpstore_client_take_replies(struct tcpstore_client *c)
{
    size_t at = 0;
    int r;

    while ((r = tcpstore_client_take_reply(c, &at)) > 0)
        ;
    if (r < 0)
        return false;
    c->in.len -= at;
    if (at > 0 && c->in.len > 0)
        memmove(c->in.data, c->in.data + at, c->in.len);
    return true;
}

/* 1: as much as there was; 0: nothing more will come. */
static int tcpstore_client_receive(struct tcpstore_client *c)
{
    uint8_t bytes[CLIENT_READ_BYTES];

    for (int i = 0; i < CLIENT_READS_AT_ONCE; i++) {
        ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 1;
        if (n <= 0 || buffer_append(&c->in, bytes, (size_t)n) < 0)
            return 0;
        if ((size_t)n < sizeof bytes)
            return 1;
    }
    return 1;
}

/* ---- turns ---------------------------------------------------------------------------------- */

void client_ready(struct tcpstore_client *c, int status, int events)
{
    bool closed = status < 0;

    if (c->state == LINK_CONNECTING) {
        connect_step(c, true);
    } else if (events & UV_READABLE || closed) {
        closed = closed || tcpstore_client_receive(c) == 0;
        if (c->state == LINK_GREETING && c->in.len > 0)
            connect_greeted(c);
        else if (c->state == LINK_GREETING && closed) {
            snprintf(c->why, sizeof c->why,
                     "the server there closes connections of a client of "
                     "torch %d",
                     c->dialect == TCPSTORE_V1 ? 1 : 2);
            connect_step(c, false);
        }
        if (c->state == LINK_UP && (!tcpstore_client_take_replies(c) || closed) && !c->ending &&
            c->state == LINK_UP)
            (void)!tcpstore_client_lose(c, ECONNRESET, "the connection was lost");
    }
    if (!c->ending)
        client_turn(c);
}

void client_turn(struct tcpstore_client *c)
{
    if (c->ending || !tcpstore_client_expire_flight(c) || !tcpstore_client_expire_queue(c))
        return;
    if (c->queue)
        connect_begin(c);
    if ((c->state == LINK_CONNECTING || c->state == LINK_GREETING) &&
        (client_now(c) >= c->step_ms || (c->state == LINK_CONNECTING && !c->poll_open)))
        connect_step(c, client_now(c) < c->step_ms);
    if (c->state == LINK_UP && !tcpstore_client_send_queue(c))
        return;
    if (c->poll_open && c->state >= LINK_GREETING) {
        if (!tcpstore_client_flush(c)) {
            if (c->state == LINK_GREETING)
                connect_step(c, false);
            else if (!tcpstore_client_lose(c, ECONNRESET, "the connection was lost"))
                return;
        } else if (c->state == LINK_UP && !tcpstore_client_take_replies(c) && c->ending) {
            return;
        }
    }
    connect_watch(c);
    tcpstore_client_arm(c);
}

/* ---- all ------------------------------------------------------------------------------------ */

static void tcpstore_client_destroy(struct tcpstore_client *c)
{
    buffer_deinit(&c->in);
    buffer_deinit(&c->out);
    free(c->host);
    free(c->endpoint);
    free(c);
}

void client_release(struct tcpstore_client *c)
{
    assert(c->handles > 0);
    if (--c->handles == 0)
        tcpstore_client_destroy(c);
}

static void tcpstore_client_on_timer_closed(uv_handle_t *handle)
{
    client_release(handle->data);
}

struct tcpstore_client *tcpstore_client_new(const struct tcpstore_client_options *options)
{
    struct tcpstore_client *c = must_alloc(sizeof *c);
    const char *form = options->host && strchr(options->host, ':') ? "[%s]:%u" : "%s:%u";

    c->options = *options;
    c->options.host = NULL;
    if (c->options.timeout_ms == 0)
        c->options.timeout_ms = CLIENT_TIMEOUT_MS;
    c->fd = c->closing_fd = -1;
    c->host = must_strdup(options->host);
    if (asprintf(&c->endpoint, form, options->host, (unsigned)options->port) < 0)
        must_have(NULL);
    uv_timer_init(options->loop, &c->timer);
    c->timer.data = c;
    c->handles = 1;
    return c;
}

struct tcpstore_client *tcpstore_client_free(struct tcpstore_client *c)
{
    if (!c)
        return NULL;
    c->ending = true;
    tcpstore_client_free_list(&c->queue);
    tcpstore_client_free_list(&c->flight);
    connect_free(c);
    uv_timer_stop(&c->timer);
    uv_close((uv_handle_t *)&c->timer, tcpstore_client_on_timer_closed);
    return NULL;
}
