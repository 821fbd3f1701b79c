#include "daemon/cluster/store/c10d_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <utlist.h>

enum { C10D_TIMEOUT_MS = 5000, C10D_MS_NS = 1000000 };

/* ---- answers -------------------------------------------------------------------------------- */

static void c10d_call_free(struct c10d_call *call)
{
    for (uint32_t i = 0; i < call->n_listed; i++) {
        free(call->listed[i].name);
        buffer_deinit(&call->listed[i].data);
    }
    free(call->listed);
    buffer_deinit(&call->data);
    buffer_deinit(&call->note);
    buffer_deinit(&call->expected);
    buffer_deinit(&call->asked);
    free(call);
}

void c10d_answer(struct c10d_call *call, const struct backend_answer *with)
{
    struct c10d *c10d = call->c10d;

    if (with->status == 0)
        patience_answered(&c10d->patience, (uv_now(c10d->loop) - call->began) * C10D_MS_NS);
    DL_DELETE(c10d->calls, call);
    call->done(call->owner, with);
    c10d_call_free(call);
}

void c10d_answer_error(struct c10d_call *call, int code, const char *what)
{
    bool reads = call->kind == C10D_CALL_GET || call->kind == C10D_CALL_LIST;
    struct c10d *c10d = call->c10d;
    struct dl_error err = {0};

    dl_error_set(&err, code, "rendezvous.endpoint", "%s %s at the TCPStore %s: %s",
                 reads ? "reading" : "writing", call->key, tcpstore_client_endpoint(c10d->client),
                 what);
    if (code == ETIMEDOUT && tcpstore_client_dialect(c10d->client) != TCPSTORE_ANY)
        patience_late(&c10d->patience);
    c10d->health.answers = false;
    c10d->health.failures++;
    c10d->health.latest = err;
    c10d_answer(call, &(struct backend_answer){.status = -err.code, .error = &err});
}

static void c10d_answer_value(struct c10d_call *call, struct dl_span data, bool won)
{
    struct c10d *c10d = call->c10d;

    c10d->health.answers = true;
    memcpy(c10d->known_key, call->key, sizeof call->key);
    c10d_put(&c10d->known, data);
    c10d_answer(call,
                &(struct backend_answer){.won = won, .token = c10d_token_of(data), .data = data});
}

void c10d_answer_nothing(struct c10d_call *call)
{
    call->c10d->health.answers = true;
    c10d_answer(call, &(struct backend_answer){0});
}

/* ---- the store ------------------------------------------------------------------------------ */

static void c10d_on_answer(void *owner, const struct tcpstore_answer *with);

void c10d_ask_for(struct c10d_call *call, enum tcpstore_op op, const char *key,
                  const struct dl_span *values, tcpstore_done done, void *owner)
{
    struct c10d *c10d = call->c10d;
    uint64_t most_ms = c10d->patience.now_ns / C10D_MS_NS, spent = uv_now(c10d->loop) - call->began;
    const struct dl_span span = span_str(key);
    const struct tcpstore_question question = {.op = op,
                                               .keys = &span,
                                               .values = values,
                                               .times = 1,
                                               .timeout_ms = spent < most_ms ? most_ms - spent : 1};

    if (tcpstore_client_dialect(c10d->client) == TCPSTORE_ANY)
        c10d_host_try(c10d->host);
    int r = tcpstore_client_ask(c10d->client, &question, done, owner);
    assert(r == 0); /* keys and values are as long as a backend's may be */
}

static void c10d_ask(struct c10d_call *call, struct dl_span expected, struct dl_span desired)
{
    const struct dl_span values[] = {expected, desired};

    c10d_ask_for(call, TCPSTORE_COMPARE_SET, call->key, values, c10d_on_answer, call);
}

void c10d_read_key(struct c10d_call *call, const char *key, tcpstore_done done, void *owner)
{
    const struct dl_span values[] = {c10d_nothing(), c10d_nothing()};

    c10d_ask_for(call, TCPSTORE_COMPARE_SET, key, values, done, owner);
}

static void c10d_read_value(struct c10d_call *call)
{
    call->writes = false;
    c10d_ask(call, c10d_nothing(), c10d_nothing());
}

static void c10d_write_value(struct c10d_call *call, struct dl_span expected)
{
    call->writes = true;
    c10d_put(&call->expected, expected);
    c10d_ask(call, expected, c10d_span_of(&call->data));
}

/* What is there now. A set came here for the bytes that its token is of. */
static void c10d_on_read(struct c10d_call *call, struct dl_span current)
{
    bool absent = c10d_is_same(current, c10d_nothing());

    if (absent)
        c10d_answer_nothing(call);
    else if (call->kind != C10D_CALL_SET || c10d_token_of(current) != call->token)
        c10d_answer_value(call, current, false);
    else if (c10d_is_same(current, c10d_span_of(&call->data)))
        c10d_answer_value(call, current, true);
    else
        c10d_write_value(call, current);
}

static void c10d_on_noted(void *owner, const struct tcpstore_answer *with)
{
    struct c10d_call *call = owner;

    (void)with; /* it is not said again: a node that missed it reads the value itself */
    c10d_answer_value(call, c10d_span_of(&call->data), true);
}

static void c10d_answer_won(struct c10d_call *call)
{
    const struct dl_span note = c10d_span_of(&call->note);

    if (call->other[0])
        c10d_ask_for(call, TCPSTORE_SET, call->other, &note, c10d_on_noted, call);
    else
        c10d_answer_value(call, c10d_span_of(&call->data), true);
}

/* Where the key has something else, the store says what; where it has nothing and something was
 * expected, it says that again. */
static void c10d_on_written(struct c10d_call *call, struct dl_span current)
{
    struct dl_span expected = c10d_span_of(&call->expected);

    if (c10d_is_same(current, c10d_span_of(&call->data)))
        c10d_answer_won(call);
    else if (expected.len > 0 && c10d_is_same(current, expected))
        c10d_answer_nothing(call);
    else if (expected.len == 0 && c10d_is_same(current, c10d_nothing()))
        c10d_write_value(call, c10d_nothing()); /* somebody stored it after all */
    else
        c10d_answer_value(call, current, false);
}

void c10d_notice_link(struct c10d *c10d)
{
    uint64_t links = tcpstore_client_links(c10d->client);
    bool renewed = c10d->links > 0 && links != c10d->links;

    c10d->links = links;
    if (renewed && c10d->renewed)
        c10d->renewed(c10d->context);
}

bool c10d_take(struct c10d_call *call, const struct tcpstore_answer *with, struct dl_span *ret)
{
    struct tcpstore_fields fields = with->fields;

    if (with->status < 0) {
        c10d_answer_error(call, -with->status, with->error->message);
        return false;
    }
    c10d_notice_link(call->c10d);
    *ret = tcpstore_take_span(&fields);
    if (ret->len <= BACKEND_VALUE_MAX)
        return true;
    c10d_answer_error(call, EBADMSG,
                      "the store's value is too large for a dloaderd; "
                      "something else uses this key");
    return false;
}

static void c10d_on_answer(void *owner, const struct tcpstore_answer *with)
{
    struct c10d_call *call = owner;
    struct dl_span current;

    if (!c10d_take(call, with, &current))
        return;
    if (call->writes)
        c10d_on_written(call, current);
    else
        c10d_on_read(call, current);
}

/* ---- the backend ---------------------------------------------------------------------------- */

static struct c10d_call *c10d_begin(struct c10d *c10d, enum c10d_call_kind kind, const char *key,
                                    const char *other, backend_done done, void *owner)
{
    struct c10d_call *call = must_alloc(sizeof *call);

    c10d->health.calls++;
    *call = (struct c10d_call){.c10d = c10d, .kind = kind, .done = done, .owner = owner};
    call->began = uv_now(c10d->loop);
    (void)snprintf(call->key, sizeof call->key, "%s%s", c10d->prefix, key);
    if (other)
        (void)snprintf(call->other, sizeof call->other, "%s%s", c10d->prefix, other);
    (void)snprintf(call->directory, sizeof call->directory, "%.*s%s",
                   (int)(c10d_name_of(call) - call->key), call->key, C10D_DIRECTORY);
    DL_APPEND(c10d->calls, call);
    return call;
}

static void c10d_get(struct backend *backend, const char *key, backend_done done, void *owner)
{
    c10d_read_value(c10d_begin(c10d_of(backend), C10D_CALL_GET, key, NULL, done, owner));
}

static void c10d_set(struct backend *backend, const char *key, uint64_t token, struct dl_span data,
                     const struct backend_note *note, backend_done done, void *owner)
{
    struct c10d *c10d = c10d_of(backend);
    struct c10d_call *call =
        c10d_begin(c10d, C10D_CALL_SET, key, note ? note->key : NULL, done, owner);
    struct dl_span known = c10d_span_of(&c10d->known);

    assert(data.len > 0 && data.len <= BACKEND_VALUE_MAX && !c10d_is_same(data, c10d_nothing()));
    call->token = token;
    c10d_put(&call->data, data);
    if (note)
        c10d_put(&call->note, note->data);
    if (token == 0)
        c10d_write_value(call, (struct dl_span){0});
    else if (strcmp(c10d->known_key, call->key) == 0 && c10d_token_of(known) == token &&
             !c10d_is_same(known,
                           data)) /* of which an answer would not say if it was there before */
        c10d_write_value(call, known);
    else
        c10d_read_value(call);
}

static void c10d_put_value(struct backend *backend, const char *key, struct dl_span data,
                           const char *ask, backend_done done, void *owner)
{
    struct c10d_call *call = c10d_begin(c10d_of(backend), C10D_CALL_PUT, key, ask, done, owner);

    assert(data.len > 0 && data.len <= BACKEND_VALUE_MAX);
    c10d_put(&call->data, data);
    c10d_list_begin(call);
}

static void c10d_list(struct backend *backend, const char *prefix, const char *ask,
                      backend_done done, void *owner)
{
    c10d_list_begin(c10d_begin(c10d_of(backend), C10D_CALL_LIST, prefix, ask, done, owner));
}

static void c10d_drop(struct backend *backend, const char *key, backend_done done, void *owner)
{
    c10d_list_begin(c10d_begin(c10d_of(backend), C10D_CALL_DROP, key, NULL, done, owner));
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
    struct c10d_call *call, *next;

    tcpstore_client_free(c10d->client);
    c10d_host_free(c10d->host);
    DL_FOREACH_SAFE (c10d->calls, call, next)
        c10d_call_free(call);
    buffer_deinit(&c10d->known);
    free(c10d);
}

static const struct backend_ops c10d_ops = {.get = c10d_get,
                                            .set = c10d_set,
                                            .put = c10d_put_value,
                                            .list = c10d_list,
                                            .drop = c10d_drop,
                                            .health = c10d_health,
                                            .free = c10d_free};

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
    uint64_t timeout_ms =
        options->timeout_ns / C10D_MS_NS ? options->timeout_ns / C10D_MS_NS : C10D_TIMEOUT_MS;
    c10d->patience = patience_of(timeout_ms * C10D_MS_NS, options->timeout_most_ns);
    c10d->client = tcpstore_client_new(&(struct tcpstore_client_options){
        .loop = options->loop, .host = host, .port = port, .timeout_ms = timeout_ms});
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

    c10d->backend.ops = &c10d_ops;
    c10d->loop = options->loop;
    backend_copy_prefix(c10d->prefix, options->prefix);
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
