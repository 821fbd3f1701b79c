#include "daemon/cluster/store/etcd_private.h"
#include "proto/common/figures.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint64_t MS = 1000000;

/* A lease is kept alive as often also where another node has said that it lasts but a minute. */
enum { KEEP_MS_MAX = 20000 };

/* ---- answers -------------------------------------------------------------------------------- */

static struct etcd_call *etcd_call_free(struct etcd_call *call)
{
    http_cancel(call->http);
    buffer_deinit(&call->data);
    for (struct backend_note *note = call->notes; note; note++) {
        free((char *)note->key);
        free((uint8_t *)note->data.data);
        if (!note->next)
            break;
    }
    free(call->notes);
    free(call);
    return NULL;
}

static bool etcd_call_writes(const struct etcd_call *call)
{
    return call->kind == ETCD_CALL_SET || call->kind == ETCD_CALL_PUT ||
           call->kind == ETCD_CALL_DROP;
}

/* The call is done with; the owner may do anything, also free the backend. */
static void etcd_answer(struct etcd_call *call, const struct backend_answer *with)
{
    DL_DELETE(call->etcd->calls, call);
    call->done(call->owner, with);
    etcd_call_free(call);
}

static uint64_t etcd_spent_ns(const struct etcd_call *call)
{
    return (uv_now(call->etcd->loop) - call->began) * MS;
}

void etcd_answer_error(struct etcd_call *call, int code, const char *what)
{
    struct etcd *etcd = call->etcd;
    struct dl_error err = {0};
    char tried[UNITS_MAX];

    format_seconds((double)(uv_now(etcd->loop) - call->began) / 1000, tried, sizeof tried);
    dl_error_set(&err, code, "rendezvous.endpoint", "%s %s at etcd: %s; tried for %s",
                 etcd_call_writes(call) ? "writing" : "reading", call->key, what, tried);
    if (etcd_spent_ns(call) >= etcd->patience.now_ns / 10 * 9)
        patience_late(&etcd->patience);
    etcd->health.answers = false;
    etcd->health.failures++;
    etcd->health.latest = err;
    etcd_answer(call, &(struct backend_answer){.status = -err.code, .error = &err});
}

/* Whether the watched key is the same one that was there before; 0: no key is watched. */
static void etcd_notice_created(struct etcd *etcd, uint64_t created)
{
    if (etcd->created > 0 && created != etcd->created) {
        etcd->is_renewed = true;
        etcd_at_soon(etcd, 0);
    }
    etcd->created = created;
}

/* Of a set that won the answer does not say when its key was created. */
static void etcd_notice_value(struct etcd_call *call, const struct etcd_kv *kv)
{
    struct etcd *etcd = call->etcd;
    bool of_key = call->kind == ETCD_CALL_GET || call->kind == ETCD_CALL_SET;
    uint64_t created = kv->created;

    if (strcmp(of_key ? call->key : call->other, etcd->watched) != 0 || !etcd->watched[0])
        return;
    if (kv->won)
        created = call->token ? etcd->created : kv->written;
    etcd_notice_created(etcd, created);
}

static void etcd_answer_value(struct etcd_call *call, struct etcd_kv *kv,
                              const struct etcd_list *list)
{
    struct dl_span data = {kv->data.data, kv->data.len}, own = {call->data.data, call->data.len};
    struct backend_answer with = {
        .won = kv->won, .token = kv->revision, .data = data, .items = list->items, .n = list->n};

    call->etcd->health.answers = true;
    patience_answered(&call->etcd->patience, etcd_spent_ns(call));
    etcd_notice_value(call, kv);
    /* It was done by a try whose answer did not come. */
    if (call->kind == ETCD_CALL_SET && !kv->won && data.len == own.len &&
        memcmp(data.data, own.data, own.len) == 0)
        with.won = true;
    if (kv->won) {
        with.token = kv->written;
        with.data = own;
    }
    etcd_answer(call, &with);
}

/* ---- endpoints ------------------------------------------------------------------------------ */

uint64_t etcd_try_ns(const struct etcd *etcd)
{
    return etcd->patience.now_ns / etcd->client.n;
}

static uint64_t etcd_left_ns(const struct etcd_call *call)
{
    uint64_t most = call->etcd->patience.now_ns, spent = etcd_spent_ns(call);

    return spent < most ? most - spent : 0;
}

bool etcd_try_next(struct etcd_call *call, const char *why, bool worth)
{
    struct etcd *etcd = call->etcd;
    size_t len = strlen(call->tried);

    (void)snprintf(call->tried + len, sizeof call->tried - len, "%s%s: %s", len ? "; " : "",
                   etcd_client_here(&etcd->client), why);
    if (!worth || ++call->tries >= etcd->client.n)
        return false;
    etcd_client_turn(&etcd->client);
    return true;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void etcd_run(struct etcd_call *call);

/* What a call has to have first: false, when it is there. */
static int etcd_read(const struct etcd_call *call, struct dl_span body, struct etcd_kv *kv,
                     struct etcd_list *list)
{
    *list = (struct etcd_list){0};
    *kv = (struct etcd_kv){0};
    switch (call->kind) {
    case ETCD_CALL_GET:
        return etcd_read_range(body, kv);
    case ETCD_CALL_SET:
        return etcd_read_txn(body, kv);
    case ETCD_CALL_PUT:
        return etcd_read_put(body, kv);
    case ETCD_CALL_LIST:
        return etcd_read_list(body, strlen(call->key), list, kv);
    case ETCD_CALL_DROP:
        break;
    }
    return 0;
}

static void etcd_on_value(struct etcd_call *call, const struct http_answer *with)
{
    struct etcd *etcd = call->etcd;
    struct etcd_list list;
    struct etcd_kv kv;
    int r = etcd_read(call, with->body, &kv, &list);

    if (r == 0 && call->kind == ETCD_CALL_LIST)
        etcd_keep_history_short(etcd, list.revision);
    if (r < 0 && etcd_try_next(call, "answers nonsense", true))
        etcd_run(call);
    else if (r < 0)
        etcd_answer_error(call, EBADMSG, call->tried);
    else
        etcd_answer_value(call, &kv, &list);
    if (r == 0) {
        buffer_deinit(&kv.data);
        etcd_list_deinit(&list);
    }
}

static bool etcd_call_leases(const struct etcd_call *call)
{
    return call->kind == ETCD_CALL_SET || call->kind == ETCD_CALL_PUT;
}

static void etcd_on_called(void *owner, const struct http_answer *with)
{
    struct etcd_call *call = owner;
    struct etcd *etcd = call->etcd;
    char why[320];
    int code;

    call->http = NULL;
    if (!etcd_client_failed(with, &code, why, sizeof why)) {
        etcd_on_value(call, with);
        return;
    }
    bool lost_token = etcd_client_token_lost(&etcd->client, code, why);
    bool lost_lease = code == ETCD_NOT_FOUND && strstr(why, "lease") && etcd_call_leases(call);
    if ((lost_token || lost_lease) && call->renewals++ < RENEWALS_MAX) {
        if (lost_lease)
            etcd->has_lease = false;
        else
            free(steal_ptr(etcd->client.token));
        etcd_run(call);
        return;
    }
    if (etcd_try_next(call, why, etcd_client_may_turn(with, code)))
        etcd_run(call);
    else
        etcd_answer_error(call, with->status == 0 ? ETIMEDOUT : EIO, call->tried);
}

static char *etcd_body_of(const struct etcd_call *call)
{
    struct dl_span data = {call->data.data, call->data.len};
    const char *other = call->other[0] ? call->other : NULL;
    uint64_t lease = call->etcd->lease;

    switch (call->kind) {
    case ETCD_CALL_GET:
        return etcd_range_body(call->key);
    case ETCD_CALL_SET:
        return etcd_txn_body(call->key, call->token, data, lease, call->notes);
    case ETCD_CALL_PUT:
        return etcd_put_body(call->key, data, lease, other);
    case ETCD_CALL_LIST:
        return etcd_list_body(call->key, other);
    case ETCD_CALL_DROP:
        return etcd_drop_body(call->key);
    }
    return NULL;
}

static void etcd_run(struct etcd_call *call)
{
    static const char *const paths[] = {[ETCD_CALL_GET] = "kv/range",
                                        [ETCD_CALL_SET] = "kv/txn",
                                        [ETCD_CALL_PUT] = "kv/txn",
                                        [ETCD_CALL_LIST] = "kv/txn",
                                        [ETCD_CALL_DROP] = "kv/deleterange"};
    struct etcd *etcd = call->etcd;
    struct http_request request = {.timeout_ns = min_u64(etcd_try_ns(etcd), etcd_left_ns(call)),
                                   .done = etcd_on_called,
                                   .owner = call};

    if (request.timeout_ns == 0) {
        etcd_answer_error(call, ETIMEDOUT, call->tried[0] ? call->tried : "no time was left");
        return;
    }
    if (etcd_keep_renew(etcd, etcd_call_leases(call)))
        return;
    if (etcd_client_post(&etcd->client, paths[call->kind], etcd_body_of(call), request,
                         &call->http) < 0)
        etcd_answer_error(call, EINVAL,
                          "the request cannot be made: the user's name must be UTF-8, and its "
                          "token at most 1000 bytes");
}

struct etcd_call *etcd_first_waiting(const struct etcd *etcd)
{
    struct etcd_call *call;

    DL_FOREACH (etcd->calls, call)
        if (!call->http)
            return call;
    return NULL;
}

/* Each runs, is answered, or waits on: for what all wait for. */
static void etcd_run_waiting(struct etcd *etcd)
{
    struct etcd_call *call, *last = NULL;

    while ((call = etcd_first_waiting(etcd)) && call != last) {
        last = call;
        etcd_run(call);
    }
}

/* ---- from the loop, never from inside a call ------------------------------------------------ */

static void etcd_on_soon(uv_timer_t *timer)
{
    struct etcd *etcd = container_of(timer, struct etcd, soon);
    bool renewed = etcd->is_renewed;

    etcd->is_renewed = false;
    etcd_run_waiting(etcd);
    if (renewed && etcd->renewed)
        etcd->renewed(etcd->context);
}

void etcd_at_soon(struct etcd *etcd, uint64_t ms)
{
    if (!uv_is_closing((uv_handle_t *)&etcd->soon))
        uv_timer_start(&etcd->soon, etcd_on_soon, ms, 0);
}

/* ---- the backend ---------------------------------------------------------------------------- */

/* `other`: what else is asked; NULL: nothing. */
static struct etcd_call *etcd_begin(struct backend *backend, enum etcd_call_kind kind,
                                    const char *key, const char *other, struct dl_span data,
                                    backend_done done, void *owner)
{
    struct etcd *etcd = etcd_of(backend);
    struct etcd_call *call = must_alloc(sizeof *call);

    etcd->health.calls++;
    *call = (struct etcd_call){.etcd = etcd, .kind = kind, .done = done, .owner = owner};
    must_append(&call->data, data.data, data.len);
    call->began = uv_now(etcd->loop);
    (void)snprintf(call->key, sizeof call->key, "%s%s", etcd->prefix, key);
    if (other)
        (void)snprintf(call->other, sizeof call->other, "%s%s", etcd->prefix, other);
    DL_APPEND(etcd->calls, call);
    etcd_at_soon(etcd, 0);
    return call;
}

static void etcd_get(struct backend *backend, const char *key, backend_done done, void *owner)
{
    (void)etcd_begin(backend, ETCD_CALL_GET, key, NULL, (struct dl_span){0}, done, owner);
}

static void etcd_copy_notes(struct etcd_call *call, const struct backend_note *from)
{
    uint32_t n = 0;

    for (const struct backend_note *note = from; note; note = note->next)
        n++;
    assert(n <= BACKEND_NOTES_MAX);
    call->notes = n > 0 ? must_alloc(n * sizeof *call->notes) : NULL;
    for (uint32_t i = 0; i < n; i++, from = from->next) {
        char key[BACKEND_PREFIX_MAX + BACKEND_KEY_MAX];
        uint8_t *data = must_alloc(max_u64(from->data.len, 1));

        (void)snprintf(key, sizeof key, "%s%s", call->etcd->prefix, from->key);
        memcpy(data, from->data.data, from->data.len);
        call->notes[i] = (struct backend_note){.key = must_strdup(key),
                                               .data = {data, from->data.len},
                                               .next = i + 1 < n ? &call->notes[i + 1] : NULL};
    }
}

static void etcd_set(struct backend *backend, const char *key, uint64_t token, struct dl_span data,
                     const struct backend_note *note, backend_done done, void *owner)
{
    assert(data.len > 0 && data.len <= BACKEND_VALUE_MAX);
    struct etcd_call *call = etcd_begin(backend, ETCD_CALL_SET, key, NULL, data, done, owner);

    call->token = token;
    etcd_copy_notes(call, note);
}

static void etcd_put(struct backend *backend, const char *key, struct dl_span data, const char *ask,
                     backend_done done, void *owner)
{
    assert(data.len > 0 && data.len <= BACKEND_VALUE_MAX);
    (void)etcd_begin(backend, ETCD_CALL_PUT, key, ask, data, done, owner);
}

static void etcd_list(struct backend *backend, const char *prefix, const char *ask,
                      backend_done done, void *owner)
{
    (void)etcd_begin(backend, ETCD_CALL_LIST, prefix, ask, (struct dl_span){0}, done, owner);
}

static void etcd_drop(struct backend *backend, const char *key, backend_done done, void *owner)
{
    (void)etcd_begin(backend, ETCD_CALL_DROP, key, NULL, (struct dl_span){0}, done, owner);
}

static void etcd_watch(struct backend *backend, const char *key, backend_changed changed,
                       void *owner)
{
    struct etcd *etcd = etcd_of(backend);

    assert(!etcd->watched[0]);
    (void)snprintf(etcd->watched, sizeof etcd->watched, "%s%s", etcd->prefix, key);
    etcd->watch = etcd_watch_new(etcd->loop, &etcd->client, etcd->watched, changed, owner);
}

static void etcd_health(const struct backend *backend, struct backend_health *ret)
{
    const struct etcd *etcd = etcd_of(backend);

    *ret = etcd->health;
    (void)snprintf(ret->endpoint, sizeof ret->endpoint, "%s", etcd_client_here(&etcd->client));
}

static void etcd_on_closed(uv_handle_t *handle)
{
    struct etcd *etcd = handle->data;

    if (--etcd->open_handles == 0)
        free(etcd);
}

static void etcd_open_timer(struct etcd *etcd, uv_timer_t *timer)
{
    (void)uv_timer_init(etcd->loop, timer);
    timer->data = etcd;
    etcd->open_handles++;
}

static void etcd_free(struct backend *backend)
{
    struct etcd *etcd = etcd_of(backend);
    struct etcd_call *call, *next;

    DL_FOREACH_SAFE (etcd->calls, call, next) {
        DL_DELETE(etcd->calls, call);
        etcd_call_free(call);
    }
    etcd->renewed = NULL;
    etcd->watch = etcd_watch_free(etcd->watch);
    etcd_client_deinit(&etcd->client);
    uv_close((uv_handle_t *)&etcd->soon, etcd_on_closed);
    uv_close((uv_handle_t *)&etcd->keep, etcd_on_closed);
}

static const struct backend_ops etcd_ops = {.lists_all = true,
                                            .notes_many = true,
                                            .get = etcd_get,
                                            .set = etcd_set,
                                            .put = etcd_put,
                                            .list = etcd_list,
                                            .drop = etcd_drop,
                                            .watch = etcd_watch,
                                            .health = etcd_health,
                                            .free = etcd_free};

/* No id is 0, or negative. */
static uint64_t etcd_lease_of(const char *prefix, const char *run)
{
    char text[BACKEND_PREFIX_MAX + BACKEND_KEY_MAX];
    int len = snprintf(text, sizeof text, "%s%s", prefix, run);

    return (XXH3_64bits(text, (size_t)len) & INT64_MAX) | 1;
}

int etcd_new(const struct etcd_options *options, struct backend **ret, struct dl_error *err)
{
    struct etcd *etcd = must_alloc(sizeof *etcd);

    etcd->backend.ops = &etcd_ops;
    etcd->loop = options->loop;
    etcd->patience = patience_of(options->timeout_ns ? options->timeout_ns : 5000 * MS,
                                 options->timeout_most_ns);
    etcd->keep_s = options->keep_s;
    backend_copy_prefix(etcd->prefix, options->prefix);
    etcd->lease = options->keep_s > 0 ? etcd_lease_of(etcd->prefix, options->run) : 0;
    etcd->renewed = options->renewed;
    etcd->context = options->context;
    int r = etcd_client_init(&etcd->client, options, err);
    if (r < 0) {
        etcd_client_deinit(&etcd->client);
        free(etcd);
        return r;
    }
    etcd_open_timer(etcd, &etcd->soon);
    etcd_open_timer(etcd, &etcd->keep);
    if (etcd->lease > 0)
        uv_timer_start(&etcd->keep, etcd_keep_lease, 0,
                       min_u64(etcd->keep_s * 1000 / 3, KEEP_MS_MAX));
    *ret = &etcd->backend;
    return 0;
}

int etcd_move(struct backend *backend, const char *endpoints, const char *password,
              struct dl_error *err)
{
    return etcd_client_move(&container_of(backend, struct etcd, backend)->client, endpoints,
                            password, err);
}
