#include "daemon/cluster/etcd.h"

#include "daemon/cluster/etcd_client.h"
#include "daemon/cluster/etcd_json.h"
#include "daemon/cluster/etcd_watch.h"
#include "daemon/serve/base/memory.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define PREFIX "/dloader/"

enum { TRIED_MAX = 640 };

static const uint64_t MS = 1000000;

/* Between a login or a grant that could not be asked for and the next. */
enum { AGAIN_MS = 500 };

/* A lease is kept alive as often also where another node has said that it lasts but a minute. */
enum { KEEP_MS_MAX = 20000 };

/* Of one call: how often a lease or a token may turn out to be gone. */
enum { RENEWALS_MAX = 3 };

/* A get or a set, from its call to its answer. */
struct call {
    struct etcd *etcd;
    bool sets;
    char key[sizeof PREFIX + BACKEND_KEY_MAX];
    uint64_t token;
    struct dl_buffer data; /* owned */
    backend_done done;
    void *owner;
    struct http_call *http; /* owned; NULL while it waits for a token, a lease, or the loop */
    uint64_t began;
    unsigned tries;    /* endpoints that were asked */
    unsigned renewals; /* of the lease or the token */
    char tried[TRIED_MAX];
    struct call *prev, *next; /* in etcd->calls */
};

struct etcd {
    struct backend backend;
    uv_loop_t *loop;
    struct etcd_client client;
    uint64_t timeout_ns, keep_s;

    struct call *calls;
    uv_timer_t soon;            /* they are begun, and `renewed` is said */
    struct http_call *renewing; /* of the token or the lease; owned */
    bool renews_token;
    bool has_lease; /* it was there when last asked about */
    bool is_renewed;
    uint64_t lease;            /* the run's; 0: there is to be none */
    struct http_call *keeping; /* owned */
    uv_timer_t keep;

    char watched[sizeof PREFIX + BACKEND_KEY_MAX]; /* "": nothing */
    struct etcd_watch *watch;                      /* owned */
    uint64_t created; /* revision at which that key came to be; 0: it was not there */
    void (*renewed)(void *context);
    void *context;

    unsigned open_handles;
    struct backend_health health;
};

static struct etcd *etcd_of(const struct backend *backend)
{
    return container_of(backend, struct etcd, backend);
}

static void etcd_at_soon(struct etcd *etcd);
static void etcd_on_soon(uv_timer_t *timer);

/* ---- answers -------------------------------------------------------------------------------- */

static struct call *etcd_call_free(struct call *call)
{
    http_cancel(call->http);
    buffer_deinit(&call->data);
    free(call);
    return NULL;
}

/* The call is done with; the owner may do anything, also free the backend. */
static void etcd_answer(struct call *call, const struct backend_answer *with)
{
    DL_DELETE(call->etcd->calls, call);
    call->done(call->owner, with);
    etcd_call_free(call);
}

static void etcd_answer_error(struct call *call, int code, const char *what)
{
    struct etcd *etcd = call->etcd;
    struct dl_error err = {0};

    dl_error_set(&err, code, "rendezvous.endpoint", "%s %s at etcd: %s; tried for %.1f s",
                 call->sets ? "writing" : "reading", call->key, what,
                 (double)(uv_now(etcd->loop) - call->began) / 1000);
    etcd->health.answers = false;
    etcd->health.failures++;
    etcd->health.latest = err;
    etcd_answer(call, &(struct backend_answer){.status = -err.code, .error = &err});
}

/* Whether the key is the same one that was there before. */
static void etcd_notice_created(struct call *call, const struct etcd_kv *kv)
{
    struct etcd *etcd = call->etcd;
    uint64_t created = kv->created;

    if (strcmp(call->key, etcd->watched) != 0)
        return;
    if (kv->won)
        created = call->token ? etcd->created : kv->written;
    if (etcd->created > 0 && created != etcd->created) {
        etcd->is_renewed = true;
        etcd_at_soon(etcd);
    }
    etcd->created = created;
}

static void etcd_answer_value(struct call *call, struct etcd_kv *kv)
{
    struct dl_span data = {kv->data.data, kv->data.len}, own = {call->data.data, call->data.len};
    struct backend_answer with = {.won = kv->won, .token = kv->revision, .data = data};

    call->etcd->health.answers = true;
    etcd_notice_created(call, kv);
    /* It was done by a try whose answer did not come. */
    if (call->sets && !kv->won && data.len == own.len && memcmp(data.data, own.data, own.len) == 0)
        with.won = true;
    if (kv->won) {
        with.token = kv->written;
        with.data = own;
    }
    etcd_answer(call, &with);
}

/* ---- endpoints ------------------------------------------------------------------------------ */

/* A call may take as long as it may; one that is stuck leaves time for the other endpoints. */
static uint64_t etcd_try_ns(const struct etcd *etcd)
{
    return etcd->timeout_ns / etcd->client.n;
}

static uint64_t etcd_left_ns(const struct call *call)
{
    uint64_t spent = (uv_now(call->etcd->loop) - call->began) * MS;

    return spent < call->etcd->timeout_ns ? call->etcd->timeout_ns - spent : 0;
}

/* What this endpoint said is noted. False: each was asked. Else the next is asked from now on, by
 * this call and the others. */
static bool etcd_try_next(struct call *call, const char *why, bool worth)
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

static void etcd_run(struct call *call);

/* What a call has to have first: false, when it is there. */
static bool etcd_renew(struct etcd *etcd, bool sets);

static void etcd_on_value(struct call *call, const struct http_answer *with)
{
    struct etcd_kv kv;
    int r = call->sets ? etcd_read_txn(with->body, &kv) : etcd_read_range(with->body, &kv);

    if (r < 0 && etcd_try_next(call, "answers nonsense", true))
        etcd_run(call);
    else if (r < 0)
        etcd_answer_error(call, EBADMSG, call->tried);
    else
        etcd_answer_value(call, &kv);
    if (r == 0)
        buffer_deinit(&kv.data);
}

static void etcd_on_called(void *owner, const struct http_answer *with)
{
    struct call *call = owner;
    struct etcd *etcd = call->etcd;
    char why[320];
    int code;

    call->http = NULL;
    if (!etcd_client_failed(with, &code, why, sizeof why)) {
        etcd_on_value(call, with);
        return;
    }
    bool lost_token = etcd_client_token_lost(&etcd->client, code, why);
    bool lost_lease = code == ETCD_NOT_FOUND && strstr(why, "lease") && call->sets;
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

static void etcd_run(struct call *call)
{
    struct etcd *etcd = call->etcd;
    struct http_request request = {.timeout_ns = min_u64(etcd_try_ns(etcd), etcd_left_ns(call)),
                                   .done = etcd_on_called,
                                   .owner = call};

    if (request.timeout_ns == 0) {
        etcd_answer_error(call, ETIMEDOUT, call->tried[0] ? call->tried : "no time was left");
        return;
    }
    if (etcd_renew(etcd, call->sets))
        return;
    char *body = call->sets
                     ? etcd_txn_body(call->key, call->token,
                                     (struct dl_span){call->data.data, call->data.len}, etcd->lease)
                     : etcd_range_body(call->key);
    if (etcd_client_post(&etcd->client, call->sets ? "kv/txn" : "kv/range", body, request,
                         &call->http) < 0)
        etcd_answer_error(call, EINVAL,
                          "the request cannot be made: the user's name must be UTF-8, and its "
                          "token at most 1000 bytes");
}

/* One that waits for the loop, a token or a lease. */
static struct call *etcd_first_waiting(const struct etcd *etcd)
{
    struct call *call;

    DL_FOREACH (etcd->calls, call)
        if (!call->http)
            return call;
    return NULL;
}

/* Each runs, is answered, or waits on: for what all wait for. */
static void etcd_run_waiting(struct etcd *etcd)
{
    struct call *call, *last = NULL;

    while ((call = etcd_first_waiting(etcd)) && call != last) {
        last = call;
        etcd_run(call);
    }
}

/* ---- the token and the lease ---------------------------------------------------------------- */

static void etcd_on_kept(void *owner, const struct http_answer *with)
{
    struct etcd *etcd = owner;
    bool alive;

    etcd->keeping = NULL;
    if (with->status == 200 && etcd_read_keepalive(with->body, &alive) == 0)
        etcd->has_lease = alive; /* if not, the next that writes sees to it */
}

/* Also of a node that only reads. */
static void etcd_keep_lease(uv_timer_t *timer)
{
    struct etcd *etcd = container_of(timer, struct etcd, keep);
    struct http_request request = {
        .timeout_ns = etcd->timeout_ns, .done = etcd_on_kept, .owner = etcd};

    if (!etcd->keeping)
        (void)!etcd_client_post(&etcd->client, "lease/keepalive", etcd_keepalive_body(etcd->lease),
                                request, &etcd->keeping);
}

/* Nobody gets on without: the first call says why, and whether another endpoint is to be tried. The
 * calls run again soon. */
static void etcd_renewal_failed(struct etcd *etcd, const struct http_answer *with, int code,
                                const char *why)
{
    struct call *call = etcd_first_waiting(etcd);
    char text[400];

    (void)snprintf(text, sizeof text, "%s: %s", etcd->renews_token ? "logging in" : "a lease", why);
    if (!call)
        return;
    if (!etcd->renews_token && etcd_client_token_lost(&etcd->client, code, why) &&
        call->renewals++ < RENEWALS_MAX) {
        free(steal_ptr(etcd->client.token));
        return;
    }
    if (etcd_try_next(call, text, etcd_client_may_turn(with, code)))
        etcd_at_soon(etcd);
    else
        etcd_answer_error(call, with->status == 0 ? ETIMEDOUT : EACCES, call->tried);
}

static void etcd_on_renewed(void *owner, const struct http_answer *with)
{
    struct etcd *etcd = owner;
    char why[320];
    int code, r;

    etcd->renewing = NULL;
    bool failed = etcd_client_failed(with, &code, why, sizeof why);
    if (!failed) {
        r = etcd->renews_token ? etcd_read_user(with->body, &etcd->client.token)
                               : etcd_read_grant(with->body);
        failed = r < 0;
        (void)snprintf(why, sizeof why, "%s", "answers nonsense");
    } else if (!etcd->renews_token && code == ETCD_PRECONDITION && strstr(why, "exists")) {
        failed = false; /* another node was first, and may be gone */
        etcd_keep_lease(&etcd->keep);
    }
    if (!failed && !etcd->renews_token)
        etcd->has_lease = true;
    etcd_at_soon(etcd); /* the others, after the owner of the first may have freed all */
    if (failed)
        etcd_renewal_failed(etcd, with, code, why);
}

static bool etcd_renew(struct etcd *etcd, bool sets)
{
    struct http_request request = {
        .timeout_ns = etcd_try_ns(etcd), .done = etcd_on_renewed, .owner = etcd};
    char *body;

    if (etcd->renewing)
        return true;
    etcd->renews_token = etcd->client.user && !etcd->client.token;
    if (!etcd->renews_token && !(sets && etcd->lease > 0 && !etcd->has_lease))
        return false;
    body = etcd->renews_token ? etcd_user_body(etcd->client.user, etcd->client.password)
                              : etcd_grant_body(etcd->lease, etcd->keep_s);
    if (etcd_client_post(&etcd->client, etcd->renews_token ? "auth/authenticate" : "lease/grant",
                         body, request, &etcd->renewing) < 0)
        uv_timer_start(&etcd->soon, etcd_on_soon, AGAIN_MS, 0);
    return true;
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

static void etcd_at_soon(struct etcd *etcd)
{
    if (!uv_is_closing((uv_handle_t *)&etcd->soon))
        uv_timer_start(&etcd->soon, etcd_on_soon, 0, 0);
}

/* ---- the backend ---------------------------------------------------------------------------- */

static void etcd_begin(struct etcd *etcd, const struct call *what, const char *key,
                       struct dl_span data)
{
    struct call *call = must_alloc(sizeof *call);

    etcd->health.calls++;
    *call = *what;
    must_append(&call->data, data.data, data.len);
    call->etcd = etcd;
    call->began = uv_now(etcd->loop);
    (void)snprintf(call->key, sizeof call->key, PREFIX "%s", key);
    DL_APPEND(etcd->calls, call);
    etcd_at_soon(etcd);
}

static void etcd_get(struct backend *backend, const char *key, backend_done done, void *owner)
{
    etcd_begin(etcd_of(backend), &(struct call){.done = done, .owner = owner}, key,
               (struct dl_span){0});
}

static void etcd_set(struct backend *backend, const char *key, uint64_t token, struct dl_span data,
                     backend_done done, void *owner)
{
    assert(data.len > 0 && data.len <= BACKEND_VALUE_MAX);
    etcd_begin(etcd_of(backend),
               &(struct call){.sets = true, .token = token, .done = done, .owner = owner}, key,
               data);
}

static void etcd_watch(struct backend *backend, const char *key, void (*changed)(void *owner),
                       void *owner)
{
    struct etcd *etcd = etcd_of(backend);

    assert(!etcd->watched[0]);
    (void)snprintf(etcd->watched, sizeof etcd->watched, PREFIX "%s", key);
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
    struct call *call, *next;

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

static const struct backend_ops ops = {.get = etcd_get,
                                       .set = etcd_set,
                                       .watch = etcd_watch,
                                       .health = etcd_health,
                                       .free = etcd_free};

/* No id is 0, or negative. */
static uint64_t etcd_lease_of(const char *run)
{
    char text[sizeof PREFIX + BACKEND_KEY_MAX];
    int len = snprintf(text, sizeof text, PREFIX "%s", run);

    return (XXH3_64bits(text, (size_t)len) & INT64_MAX) | 1;
}

int etcd_new(const struct etcd_options *options, struct backend **ret, struct dl_error *err)
{
    struct etcd *etcd = must_alloc(sizeof *etcd);

    etcd->backend.ops = &ops;
    etcd->loop = options->loop;
    etcd->timeout_ns = options->timeout_ns ? options->timeout_ns : 5000 * MS;
    etcd->keep_s = options->keep_s;
    etcd->lease = options->keep_s > 0 ? etcd_lease_of(options->run) : 0;
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
