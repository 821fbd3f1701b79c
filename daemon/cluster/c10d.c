#include "daemon/cluster/c10d.h"

#include "daemon/cluster/tcpstore_client.h"
#include "daemon/serve/base/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <utlist.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define PREFIX "/dloader/"

enum { TIMEOUT_MS = 5000 };

/* What nobody stores: compared and set with itself, it changes nothing, and comes back only where
 * there is nothing else. */
static const char NOTHING[] = "dloader: no value";

/* A get or a set, from its call to its answer. */
struct call {
    struct c10d *c10d;
    bool sets;
    bool writes; /* what the store was asked last: to put `data` in the place of `expected` */
    char key[sizeof PREFIX + BACKEND_KEY_MAX];
    uint64_t token;
    struct dl_buffer data;     /* owned */
    struct dl_buffer expected; /* owned */
    backend_done done;
    void *owner;
    uint64_t began;
    struct call *prev, *next; /* in c10d->calls */
};

struct c10d {
    struct backend backend;
    uv_loop_t *loop;
    struct tcpstore_client *client; /* owned */
    struct c10d_host *host;         /* owned */
    uint64_t timeout_ms;
    struct call *calls;
    uint64_t links; /* of the client, that are known of */
    void (*renewed)(void *context);
    void *context;
    char known_key[sizeof PREFIX + BACKEND_KEY_MAX]; /* "": none */
    struct dl_buffer known;                          /* what it was seen to have last */
    struct backend_health health;
};

static struct c10d *c10d_of(const struct backend *backend)
{
    return container_of(backend, struct c10d, backend);
}

static struct dl_span c10d_span_of(const struct dl_buffer *buffer)
{
    return (struct dl_span){buffer->data, buffer->len};
}

static bool c10d_is_same(struct dl_span a, struct dl_span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static struct dl_span c10d_nothing(void)
{
    return span_str(NOTHING);
}

static uint64_t c10d_token_of(struct dl_span data)
{
    uint64_t hash = XXH3_64bits(data.data, data.len);

    return hash ? hash : 1;
}

static void c10d_put(struct dl_buffer *ret, struct dl_span data)
{
    ret->len = 0;
    must_append(ret, data.data, data.len);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void c10d_call_free(struct call *call)
{
    buffer_deinit(&call->data);
    buffer_deinit(&call->expected);
    free(call);
}

/* The call is done with; the owner may do anything, also free the backend. */
static void c10d_answer(struct call *call, const struct backend_answer *with)
{
    DL_DELETE(call->c10d->calls, call);
    call->done(call->owner, with);
    c10d_call_free(call);
}

static void c10d_answer_error(struct call *call, int code, const char *what)
{
    struct c10d *c10d = call->c10d;
    struct dl_error err = {0};

    dl_error_set(&err, code, "rendezvous.endpoint", "%s %s at the TCPStore %s: %s",
                 call->sets ? "writing" : "reading", call->key,
                 tcpstore_client_endpoint(c10d->client), what);
    c10d->health.answers = false;
    c10d->health.failures++;
    c10d->health.latest = err;
    c10d_answer(call, &(struct backend_answer){.status = -err.code, .error = &err});
}

static void c10d_answer_value(struct call *call, struct dl_span data, bool won)
{
    struct c10d *c10d = call->c10d;

    c10d->health.answers = true;
    memcpy(c10d->known_key, call->key, sizeof call->key);
    c10d_put(&c10d->known, data);
    c10d_answer(call,
                &(struct backend_answer){.won = won, .token = c10d_token_of(data), .data = data});
}

static void c10d_answer_nothing(struct call *call)
{
    call->c10d->health.answers = true;
    c10d_answer(call, &(struct backend_answer){0});
}

/* ---- the store ------------------------------------------------------------------------------ */

static void c10d_on_answer(void *owner, const struct tcpstore_answer *with);

static void c10d_ask(struct call *call, struct dl_span expected, struct dl_span desired)
{
    struct c10d *c10d = call->c10d;
    uint64_t spent = uv_now(c10d->loop) - call->began;
    const struct dl_span key = span_str(call->key), values[] = {expected, desired};
    const struct tcpstore_question question = {
        .op = TCPSTORE_COMPARE_SET,
        .keys = &key,
        .values = values,
        .times = 1,
        .timeout_ms = spent < c10d->timeout_ms ? c10d->timeout_ms - spent : 1};

    if (tcpstore_client_dialect(c10d->client) == TCPSTORE_ANY)
        c10d_host_try(c10d->host);
    int r = tcpstore_client_ask(c10d->client, &question, c10d_on_answer, call);
    assert(r == 0); /* keys and values are as long as a backend's may be */
}

static void c10d_read_value(struct call *call)
{
    call->writes = false;
    c10d_ask(call, c10d_nothing(), c10d_nothing());
}

static void c10d_write_value(struct call *call, struct dl_span expected)
{
    call->writes = true;
    c10d_put(&call->expected, expected);
    c10d_ask(call, expected, c10d_span_of(&call->data));
}

/* What is there now. A set came here for the bytes that its token is of. */
static void c10d_on_read(struct call *call, struct dl_span current)
{
    bool absent = c10d_is_same(current, c10d_nothing());

    if (absent)
        c10d_answer_nothing(call);
    else if (!call->sets || c10d_token_of(current) != call->token)
        c10d_answer_value(call, current, false);
    else if (c10d_is_same(current, c10d_span_of(&call->data)))
        c10d_answer_value(call, current, true);
    else
        c10d_write_value(call, current);
}

/* Where the key has something else, the store says what; where it has nothing and something was
 * expected, it says that again. */
static void c10d_on_written(struct call *call, struct dl_span current)
{
    struct dl_span expected = c10d_span_of(&call->expected);

    if (c10d_is_same(current, c10d_span_of(&call->data)))
        c10d_answer_value(call, current, true);
    else if (expected.len > 0 && c10d_is_same(current, expected))
        c10d_answer_nothing(call);
    else if (expected.len == 0 && c10d_is_same(current, c10d_nothing()))
        c10d_write_value(call, c10d_nothing()); /* somebody stored it after all */
    else
        c10d_answer_value(call, current, false);
}

static void c10d_notice_link(struct c10d *c10d)
{
    uint64_t links = tcpstore_client_links(c10d->client);
    bool renewed = c10d->links > 0 && links != c10d->links;

    c10d->links = links;
    if (renewed && c10d->renewed)
        c10d->renewed(c10d->context);
}

static void c10d_on_answer(void *owner, const struct tcpstore_answer *with)
{
    struct call *call = owner;
    struct tcpstore_fields fields = with->fields;

    if (with->status < 0) {
        c10d_answer_error(call, -with->status, with->error->message);
        return;
    }
    c10d_notice_link(call->c10d);
    struct dl_span current = tcpstore_take_span(&fields);
    if (current.len > BACKEND_VALUE_MAX)
        c10d_answer_error(call, EBADMSG,
                          "the store's value is too large for a dloaderd; "
                          "something else uses this key");
    else if (call->writes)
        c10d_on_written(call, current);
    else
        c10d_on_read(call, current);
}

/* ---- the backend ---------------------------------------------------------------------------- */

static struct call *c10d_begin(struct c10d *c10d, const char *key, backend_done done, void *owner)
{
    struct call *call = must_alloc(sizeof *call);

    c10d->health.calls++;
    call->c10d = c10d;
    call->done = done;
    call->owner = owner;
    call->began = uv_now(c10d->loop);
    (void)snprintf(call->key, sizeof call->key, PREFIX "%s", key);
    DL_APPEND(c10d->calls, call);
    return call;
}

static void c10d_get(struct backend *backend, const char *key, backend_done done, void *owner)
{
    c10d_read_value(c10d_begin(c10d_of(backend), key, done, owner));
}

static void c10d_set(struct backend *backend, const char *key, uint64_t token, struct dl_span data,
                     backend_done done, void *owner)
{
    struct c10d *c10d = c10d_of(backend);
    struct call *call = c10d_begin(c10d, key, done, owner);
    struct dl_span known = c10d_span_of(&c10d->known);

    assert(data.len > 0 && data.len <= BACKEND_VALUE_MAX && !c10d_is_same(data, c10d_nothing()));
    call->sets = true;
    call->token = token;
    c10d_put(&call->data, data);
    if (token == 0)
        c10d_write_value(call, (struct dl_span){0});
    else if (strcmp(c10d->known_key, call->key) == 0 && c10d_token_of(known) == token &&
             !c10d_is_same(known,
                           data)) /* of which an answer would not say if it was there before */
        c10d_write_value(call, known);
    else
        c10d_read_value(call);
}

static void c10d_health(const struct backend *backend, struct backend_health *ret)
{
    const struct c10d *c10d = c10d_of(backend);

    *ret = c10d->health;
    (void)snprintf(ret->endpoint, sizeof ret->endpoint, "%s",
                   tcpstore_client_endpoint(c10d->client));
    ret->here = c10d_host_serves(c10d->host);
    ret->peers = c10d_host_peers(c10d->host);
}

static void c10d_free(struct backend *backend)
{
    struct c10d *c10d = c10d_of(backend);
    struct call *call, *next;

    tcpstore_client_free(c10d->client);
    c10d_host_free(c10d->host);
    DL_FOREACH_SAFE (c10d->calls, call, next)
        c10d_call_free(call);
    buffer_deinit(&c10d->known);
    free(c10d);
}

static const struct backend_ops ops = {
    .get = c10d_get, .set = c10d_set, .health = c10d_health, .free = c10d_free};

/* ---- what it is given ----------------------------------------------------------------------- */

static int c10d_say_wrong(const char *text, const char *what, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "rendezvous.endpoint",
                        "%.200s: %s; write host:port of the one TCPStore, or [address]:port", text,
                        what);
}

int c10d_endpoint(const char *text, char **ret_host, uint16_t *ret_port, struct dl_error *err)
{
    bool bracketed = *text == '[';
    const char *host = text + bracketed, *end = strchr(text, bracketed ? ']' : ':');
    unsigned long port = C10D_PORT;
    char *rest;

    if (!bracketed && end && strchr(end + 1, ':')) /* an address in numbers alone */
        end = NULL;
    if (bracketed && !end)
        return c10d_say_wrong(text, "has a [ without a ]", err);
    size_t len = end ? (size_t)(end - host) : strlen(host);
    const char *after = end ? end + bracketed : "";
    if (len == 0 || len > 253 || strcspn(text, "/ ,;?#@\\\"'") < strlen(text))
        return c10d_say_wrong(text, "is not such an address", err);
    if (*after) {
        port = after[1] >= '0' && after[1] <= '9' ? strtoul(after + 1, &rest, 10) : 0;
        if (*after != ':' || port == 0 || port > UINT16_MAX || *rest)
            return c10d_say_wrong(text, "has no port from 1 to 65535", err);
    }
    *ret_host = must_alloc(len + 1);
    memcpy(*ret_host, host, len);
    *ret_port = (uint16_t)port;
    return 0;
}

static int c10d_open_both(struct c10d *c10d, const struct c10d_options *options,
                          struct dl_error *err)
{
    _cleanup_free_ char *host = NULL;
    uint16_t port = 0;
    int r = c10d_endpoint(options->endpoint, &host, &port, err);

    if (r < 0)
        return r;
    c10d->timeout_ms = options->timeout_ns / 1000000;
    if (c10d->timeout_ms == 0)
        c10d->timeout_ms = TIMEOUT_MS;
    c10d->client = tcpstore_client_new(&(struct tcpstore_client_options){
        .loop = options->loop, .host = host, .port = port, .timeout_ms = c10d->timeout_ms});
    c10d->host = c10d_host_new(&(struct c10d_host_options){.loop = options->loop,
                                                           .host = host,
                                                           .port = port,
                                                           .hosting = options->hosting,
                                                           .said = options->said,
                                                           .context = options->context});
    return 0;
}

int c10d_new(const struct c10d_options *options, struct backend **ret, struct dl_error *err)
{
    struct c10d *c10d = must_alloc(sizeof *c10d);

    c10d->backend.ops = &ops;
    c10d->loop = options->loop;
    c10d->renewed = options->renewed;
    c10d->context = options->context;
    int r = c10d_open_both(c10d, options, err);
    if (r < 0) {
        c10d_free(&c10d->backend);
        return r;
    }
    c10d_host_try(c10d->host);
    *ret = &c10d->backend;
    return 0;
}
