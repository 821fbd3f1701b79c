#include "daemon/cluster/etcd.h"

#include "daemon/cluster/etcd_json.h"
#include "daemon/cluster/http.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { URL_MAX = 320, TRIED_MAX = 640, SAID_MAX = 160 };

static const uint64_t MS = 1000000;

/* Between a watch that broke and the next; between a login or a grant that found no memory and a
 * try. */
enum { AGAIN_MS = 500 };

/* A lease is kept alive as often also where another node has said that it lasts but a minute. */
enum { KEEP_MS_MAX = 20000 };

/* Of one call: how often a lease or a token may turn out to be gone. */
enum { RENEWALS_MAX = 3 };

/* A get or a set, from its call to its answer. */
struct call {
    struct etcd *etcd;
    bool sets;
    char key[BACKEND_KEY_MAX];
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
    struct http *http;                   /* owned */
    char *endpoints[ETCD_ENDPOINTS_MAX]; /* owned; "http://host:port" */
    unsigned n, current;
    char *prefix, *user, *password; /* owned; user may be NULL */
    uint64_t timeout_ns, keep_s;

    struct call *calls;
    char *token;                /* owned; NULL: none yet */
    uint64_t lease;             /* the run's; 0: there is to be none */
    struct http_call *renewing; /* of the token or the lease; owned */
    struct http_call *keeping;  /* of the lease; owned */
    bool has_lease;             /* it was there when last asked about */
    bool renews_token;
    uv_timer_t soon; /* calls to be begun, `renewed` and `changed` to be said */
    uv_timer_t keep;

    char watched[BACKEND_KEY_MAX]; /* "": nothing */
    void (*changed)(void *owner);
    void *owner;
    uint64_t created; /* revision at which that key came to be; 0: it was not there */
    void (*renewed)(void *context);
    void *context;
    struct http_call *watching; /* owned */
    bool has_changed, is_renewed, watch_broke;
    uv_timer_t rewatch;

    unsigned open_handles;
    struct backend_health health;
};

static struct etcd *of(const struct backend *backend)
{
    return container_of(backend, struct etcd, backend);
}

static void at_soon(struct etcd *etcd);
static void begin_watch(uv_timer_t *timer);
static void on_soon(uv_timer_t *timer);

/* ---- answers -------------------------------------------------------------------------------- */

static struct call *call_free(struct call *call)
{
    http_cancel(call->http);
    buffer_deinit(&call->data);
    free(call);
    return NULL;
}

/* The call is done with; the owner may do anything, also free the backend. */
static void answer(struct call *call, const struct backend_answer *with)
{
    DL_DELETE(call->etcd->calls, call);
    call->done(call->owner, with);
    call_free(call);
}

static void answer_error(struct call *call, int code, const char *what)
{
    struct etcd *etcd = call->etcd;
    struct dl_error err = {0};

    dl_error_set(&err, code, "rendezvous.endpoint", "%s %s at etcd: %s; tried for %.1f s",
                 call->sets ? "writing" : "reading", call->key, what,
                 (double)(uv_now(etcd->loop) - call->began) / 1000);
    etcd->health.answers = false;
    etcd->health.failures++;
    etcd->health.latest = err;
    answer(call, &(struct backend_answer){.status = -err.code, .error = &err});
}

/* Whether the key is the same one that was there before. */
static void notice_created(struct call *call, const struct etcd_kv *kv)
{
    struct etcd *etcd = call->etcd;
    uint64_t created = kv->created;

    if (strcmp(call->key, etcd->watched) != 0)
        return;
    if (kv->won)
        created = call->token ? etcd->created : kv->written;
    if (etcd->created > 0 && created != etcd->created) {
        etcd->is_renewed = true;
        at_soon(etcd);
    }
    etcd->created = created;
}

static void answer_value(struct call *call, struct etcd_kv *kv)
{
    struct dl_span data = {kv->data.data, kv->data.len}, own = {call->data.data, call->data.len};
    struct backend_answer with = {.won = kv->won, .token = kv->revision, .data = data};

    call->etcd->health.answers = true;
    notice_created(call, kv);
    /* It was done by a try whose answer did not come. */
    if (call->sets && !kv->won && data.len == own.len && memcmp(data.data, own.data, own.len) == 0)
        with.won = true;
    if (kv->won) {
        with.token = kv->written;
        with.data = own;
    }
    answer(call, &with);
}

/* ---- endpoints ------------------------------------------------------------------------------ */

static const char *here(const struct etcd *etcd)
{
    return etcd->endpoints[etcd->current];
}

static int post(struct etcd *etcd, const char *path, char *body, struct http_request request,
                struct http_call **ret)
{
    char url[URL_MAX + 64];
    int r = -ENOMEM;

    (void)snprintf(url, sizeof url, "%s/v3/%s", here(etcd), path);
    request.url = url;
    request.body = body;
    request.token = etcd->token;
    if (body)
        r = http_post(etcd->http, &request, ret);
    free(body);
    return r;
}

/* A call may take as long as it may; one that is stuck leaves time for the other endpoints. */
static uint64_t try_ns(const struct etcd *etcd)
{
    return etcd->timeout_ns / etcd->n;
}

static uint64_t left_ns(const struct call *call)
{
    uint64_t spent = (uv_now(call->etcd->loop) - call->began) * MS;

    return spent < call->etcd->timeout_ns ? call->etcd->timeout_ns - spent : 0;
}

/* It may be a stranger, or etcd that does not look at the request: its first line says most. */
static void say_strange(const struct http_answer *with, char *text, size_t size)
{
    const uint8_t *line = with->body.data;
    size_t len = min_u64(with->body.len, SAID_MAX);

    for (size_t i = 0; i < len; i++)
        if (line[i] == '\n' || line[i] == '\0')
            len = i;
    (void)snprintf(text, size, "answers with status %d, and not in JSON as etcd does%s%.*s",
                   with->status, len > 0 ? ": " : "", (int)len, len > 0 ? (const char *)line : "");
}

/* What is wrong with an answer, in words; false: it is one to work with. */
static bool is_failure(const struct http_answer *with, int *ret_code, char *text, size_t size)
{
    char said[256];

    *ret_code = -1;
    if (with->status == 200)
        return false;
    if (with->status == 0) {
        (void)snprintf(text, size, "%s", with->why);
        return true;
    }
    *ret_code = etcd_read_error(with->body, said, sizeof said);
    if (*ret_code >= 0)
        (void)snprintf(text, size, "%s", said);
    else
        say_strange(with, text, size);
    return true;
}

/* Another may do better: it was not there, or said that it cannot serve now. */
static bool is_worth_another(const struct http_answer *with, int code)
{
    return with->status == 0 || with->status >= 500 || code == ETCD_UNAVAILABLE || code < 0;
}

/* What this endpoint said is noted. False: each was asked. Else the next is asked from now on, by
 * this call and the others. */
static bool try_next(struct call *call, const char *why, bool worth)
{
    struct etcd *etcd = call->etcd;
    size_t len = strlen(call->tried);

    (void)snprintf(call->tried + len, sizeof call->tried - len, "%s%s: %s", len ? "; " : "",
                   here(etcd), why);
    if (!worth || ++call->tries >= etcd->n)
        return false;
    etcd->current = (etcd->current + 1) % etcd->n;
    return true;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void run(struct call *call);

/* What a call has to have first: false, when it is there. */
static bool renew(struct etcd *etcd, bool sets);

static void on_value(struct call *call, const struct http_answer *with)
{
    struct etcd_kv kv;
    int r = call->sets ? etcd_read_txn(with->body, &kv) : etcd_read_range(with->body, &kv);

    if (r == -ENOMEM)
        answer_error(call, ENOMEM, "out of memory");
    else if (r < 0 && try_next(call, "answers nonsense", true))
        run(call);
    else if (r < 0)
        answer_error(call, EBADMSG, call->tried);
    else
        answer_value(call, &kv);
    if (r == 0)
        buffer_deinit(&kv.data);
}

/* Tokens live in the memory of etcd. */
static bool is_token_lost(const struct etcd *etcd, int code, const char *why)
{
    return etcd->user && (code == ETCD_UNAUTHENTICATED ||
                          (code == ETCD_INVALID && strstr(why, "user name is empty")));
}

static void on_called(void *owner, const struct http_answer *with)
{
    struct call *call = owner;
    struct etcd *etcd = call->etcd;
    char why[320];
    int code;

    call->http = NULL;
    if (!is_failure(with, &code, why, sizeof why)) {
        on_value(call, with);
        return;
    }
    bool lost_token = is_token_lost(etcd, code, why);
    bool lost_lease = code == ETCD_NOT_FOUND && strstr(why, "lease") && call->sets;
    if ((lost_token || lost_lease) && call->renewals++ < RENEWALS_MAX) {
        if (lost_lease)
            etcd->has_lease = false;
        else
            free(steal_ptr(etcd->token));
        run(call);
        return;
    }
    if (try_next(call, why, is_worth_another(with, code)))
        run(call);
    else
        answer_error(call, with->status == 0 ? ETIMEDOUT : EIO, call->tried);
}

static void run(struct call *call)
{
    struct etcd *etcd = call->etcd;
    struct http_request request = {
        .timeout_ns = min_u64(try_ns(etcd), left_ns(call)), .done = on_called, .owner = call};

    if (request.timeout_ns == 0) {
        answer_error(call, ETIMEDOUT, call->tried[0] ? call->tried : "there was no time");
        return;
    }
    if (renew(etcd, call->sets))
        return;
    char *body = call->sets
                     ? etcd_txn_body(call->key, call->token,
                                     (struct dl_span){call->data.data, call->data.len}, etcd->lease)
                     : etcd_range_body(call->key);
    if (post(etcd, call->sets ? "kv/txn" : "kv/range", body, request, &call->http) < 0)
        answer_error(call, ENOMEM, "out of memory");
}

/* One that waits for the loop, a token or a lease. */
static struct call *first_waiting(const struct etcd *etcd)
{
    struct call *call;

    DL_FOREACH (etcd->calls, call)
        if (!call->http)
            return call;
    return NULL;
}

/* Each runs, is answered, or waits on: for what all wait for. */
static void run_waiting(struct etcd *etcd)
{
    struct call *call, *last = NULL;

    while ((call = first_waiting(etcd)) && call != last) {
        last = call;
        run(call);
    }
}

/* ---- the token and the lease ----------------------------------------------------------------- */

static void on_kept(void *owner, const struct http_answer *with)
{
    struct etcd *etcd = owner;
    bool alive = true;

    etcd->keeping = NULL;
    if (with->status == 200 && etcd_read_keepalive(with->body, &alive) == 0 && !alive)
        etcd->has_lease = false; /* the next that writes sees to it */
}

/* Also of a node that only reads. */
static void keep_lease(uv_timer_t *timer)
{
    struct etcd *etcd = container_of(timer, struct etcd, keep);
    struct http_request request = {.timeout_ns = etcd->timeout_ns, .done = on_kept, .owner = etcd};

    if (!etcd->keeping)
        (void)post(etcd, "lease/keepalive", etcd_keepalive_body(etcd->lease), request,
                   &etcd->keeping);
}

/* Nobody gets on without: the first call says why, and whether another endpoint is to be tried. The
 * calls run again soon. */
static void renewal_failed(struct etcd *etcd, const struct http_answer *with, int code,
                           const char *why)
{
    struct call *call = first_waiting(etcd);
    char text[400];

    (void)snprintf(text, sizeof text, "%s: %s", etcd->renews_token ? "logging in" : "a lease", why);
    if (!call)
        return;
    if (!etcd->renews_token && is_token_lost(etcd, code, why) && call->renewals++ < RENEWALS_MAX) {
        free(steal_ptr(etcd->token));
        return;
    }
    if (try_next(call, text, is_worth_another(with, code)))
        at_soon(etcd);
    else
        answer_error(call, with->status == 0 ? ETIMEDOUT : EACCES, call->tried);
}

static void on_renewed(void *owner, const struct http_answer *with)
{
    struct etcd *etcd = owner;
    char why[320];
    int code, r;

    etcd->renewing = NULL;
    bool failed = is_failure(with, &code, why, sizeof why);
    if (!failed) {
        r = etcd->renews_token ? etcd_read_user(with->body, &etcd->token)
                               : etcd_read_grant(with->body);
        failed = r < 0;
        (void)snprintf(why, sizeof why, "%s", "answers nonsense");
    } else if (!etcd->renews_token && code == ETCD_PRECONDITION && strstr(why, "exists")) {
        failed = false; /* another node was first, and may be gone */
        keep_lease(&etcd->keep);
    }
    if (!failed && !etcd->renews_token)
        etcd->has_lease = true;
    at_soon(etcd); /* the others, after the owner of the first may have freed all */
    if (failed)
        renewal_failed(etcd, with, code, why);
}

static bool renew(struct etcd *etcd, bool sets)
{
    struct http_request request = {.timeout_ns = try_ns(etcd), .done = on_renewed, .owner = etcd};
    char *body;

    if (etcd->renewing)
        return true;
    etcd->renews_token = etcd->user && !etcd->token;
    if (!etcd->renews_token && !(sets && etcd->lease > 0 && !etcd->has_lease))
        return false;
    body = etcd->renews_token ? etcd_user_body(etcd->user, etcd->password)
                              : etcd_grant_body(etcd->lease, etcd->keep_s);
    if (post(etcd, etcd->renews_token ? "auth/authenticate" : "lease/grant", body, request,
             &etcd->renewing) < 0)
        uv_timer_start(&etcd->soon, on_soon, AGAIN_MS, 0);
    return true;
}

/* ---- the watch ------------------------------------------------------------------------------ */

static void say_changed(struct etcd *etcd)
{
    etcd->has_changed = true;
    at_soon(etcd);
}

/* Whole lines: something came of the key, or the watch has begun, or is over. */
static size_t on_watched(void *owner, struct dl_span data)
{
    struct etcd *etcd = owner;
    const uint8_t *end;
    size_t taken = 0;

    while ((end = memchr(data.data + taken, '\n', data.len - taken))) {
        size_t len = (size_t)(end - (data.data + taken));
        bool goes_on = false;
        int r = etcd_read_watch((struct dl_span){data.data + taken, len}, &goes_on);

        if (r < 0 || !goes_on)
            etcd->watch_broke = true;
        taken += len + 1;
        say_changed(etcd);
    }
    return taken;
}

static void on_watch_over(void *owner, const struct http_answer *with)
{
    struct etcd *etcd = owner;

    etcd->watching = NULL;
    /* A call that fails at this endpoint goes to the next; so does the watch that follows it. */
    uv_timer_start(&etcd->rewatch, begin_watch, AGAIN_MS, 0);
    say_changed(etcd);
}

static void begin_watch(uv_timer_t *timer)
{
    struct etcd *etcd = container_of(timer, struct etcd, rewatch);
    struct http_request request = {.some = on_watched, .done = on_watch_over, .owner = etcd};

    etcd->watch_broke = false;
    etcd->watching = http_cancel(etcd->watching);
    bool must_wait = etcd->user && !etcd->token; /* a call gets it one */
    if (must_wait ||
        post(etcd, "watch", etcd_watch_body(etcd->watched), request, &etcd->watching) < 0)
        uv_timer_start(&etcd->rewatch, begin_watch, AGAIN_MS, 0);
}

/* ---- from the loop, never from inside a call ------------------------------------------------- */

static void on_soon(uv_timer_t *timer)
{
    struct etcd *etcd = container_of(timer, struct etcd, soon);
    bool changed = etcd->has_changed, renewed = etcd->is_renewed;

    etcd->has_changed = etcd->is_renewed = false;
    if (etcd->watch_broke && !uv_is_active((uv_handle_t *)&etcd->rewatch))
        uv_timer_start(&etcd->rewatch, begin_watch, AGAIN_MS, 0);
    run_waiting(etcd);
    if (renewed && etcd->renewed)
        etcd->renewed(etcd->context);
    if (changed && etcd->changed)
        etcd->changed(etcd->owner);
}

static void at_soon(struct etcd *etcd)
{
    if (!uv_is_closing((uv_handle_t *)&etcd->soon))
        uv_timer_start(&etcd->soon, on_soon, 0, 0);
}

/* ---- the backend ---------------------------------------------------------------------------- */

static void begin(struct etcd *etcd, const struct call *what, const char *key, struct dl_span data)
{
    struct call *call = calloc(1, sizeof *call);

    etcd->health.calls++;
    /* Without memory for a call there is none for its failure, either. */
    if (!call || (data.len > 0 && buffer_append(&call->data, data.data, data.len) < 0))
        abort();
    struct dl_buffer bytes = call->data;
    *call = *what;
    call->data = bytes;
    call->etcd = etcd;
    call->began = uv_now(etcd->loop);
    (void)snprintf(call->key, sizeof call->key, "%s%s", etcd->prefix, key);
    DL_APPEND(etcd->calls, call);
    at_soon(etcd);
}

static void etcd_get(struct backend *backend, const char *key, backend_done done, void *owner)
{
    begin(of(backend), &(struct call){.done = done, .owner = owner}, key, (struct dl_span){0});
}

static void etcd_set(struct backend *backend, const char *key, uint64_t token, struct dl_span data,
                     backend_done done, void *owner)
{
    assert(data.len > 0 && data.len <= BACKEND_VALUE_MAX);
    begin(of(backend), &(struct call){.sets = true, .token = token, .done = done, .owner = owner},
          key, data);
}

static void etcd_watch(struct backend *backend, const char *key, void (*changed)(void *owner),
                       void *owner)
{
    struct etcd *etcd = of(backend);

    assert(!etcd->watched[0]);
    (void)snprintf(etcd->watched, sizeof etcd->watched, "%s%s", etcd->prefix, key);
    etcd->changed = changed;
    etcd->owner = owner;
    uv_timer_start(&etcd->rewatch, begin_watch, 0, 0);
}

static void etcd_health(const struct backend *backend, struct backend_health *ret)
{
    const struct etcd *etcd = of(backend);

    *ret = etcd->health;
    (void)snprintf(ret->endpoint, sizeof ret->endpoint, "%s", here(etcd));
}

static void etcd_forget(struct etcd *etcd)
{
    for (unsigned i = 0; i < etcd->n; i++)
        free(etcd->endpoints[i]);
    free(etcd->prefix);
    free(etcd->user);
    if (etcd->password)
        explicit_bzero(etcd->password, strlen(etcd->password));
    free(etcd->password);
    free(etcd->token);
    free(etcd);
}

static void on_closed(uv_handle_t *handle)
{
    struct etcd *etcd = handle->data;

    if (--etcd->open_handles == 0)
        etcd_forget(etcd);
}

static void open_timer(struct etcd *etcd, uv_timer_t *timer)
{
    (void)uv_timer_init(etcd->loop, timer);
    timer->data = etcd;
    etcd->open_handles++;
}

static void etcd_free(struct backend *backend)
{
    struct etcd *etcd = of(backend);
    struct call *call, *next;

    DL_FOREACH_SAFE (etcd->calls, call, next) {
        DL_DELETE(etcd->calls, call);
        call_free(call);
    }
    etcd->changed = NULL;
    etcd->renewed = NULL;
    http_cancel(etcd->renewing);
    http_cancel(etcd->keeping);
    http_cancel(etcd->watching);
    etcd->http = http_free(etcd->http);
    uv_close((uv_handle_t *)&etcd->soon, on_closed);
    uv_close((uv_handle_t *)&etcd->keep, on_closed);
    uv_close((uv_handle_t *)&etcd->rewatch, on_closed);
}

static const struct backend_ops ops = {.get = etcd_get,
                                       .set = etcd_set,
                                       .watch = etcd_watch,
                                       .health = etcd_health,
                                       .free = etcd_free};

/* ---- what it is given ----------------------------------------------------------------------- */

/* "host", "host:port", "[v6]:port", "https://host": with what is left out. */
static int add_endpoint(struct etcd *etcd, const char *text, size_t len, struct dl_error *err)
{
    char url[URL_MAX];
    bool has_scheme = strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0;
    size_t host_at = has_scheme ? (size_t)(strstr(text, "://") - text) + 3 : 0;

    while (len > host_at && text[len - 1] == '/')
        len--;
    (void)snprintf(url, sizeof url, "%s%.*s", has_scheme ? "" : "http://", (int)len, text);
    const char *host = strstr(url, "://") + 3, *bracket = strchr(host, ']');
    if (len <= host_at || len > URL_MAX - 32 || strpbrk(host, "/ ?#@\\\"'"))
        return dl_error_set(err, EINVAL, "rendezvous.endpoint",
                            "%.*s: is not [http[s]://]host[:port]", (int)min_u64(len, 200), text);
    if (etcd->n == ETCD_ENDPOINTS_MAX)
        return dl_error_set(err, EINVAL, "rendezvous.endpoint", "more than %d endpoints",
                            ETCD_ENDPOINTS_MAX);
    if (!strchr(bracket ? bracket : host, ':'))
        (void)snprintf(url + strlen(url), sizeof url - strlen(url), ":2379");
    etcd->endpoints[etcd->n] = strdup(url);
    if (!etcd->endpoints[etcd->n])
        return dl_error_set(err, ENOMEM, "rendezvous", "out of memory");
    etcd->n++;
    return 0;
}

static int add_endpoints(struct etcd *etcd, const char *text, struct dl_error *err)
{
    int r = 0;

    do {
        text += strspn(text, " ");
        size_t len = strcspn(text, ",");
        size_t word = len;

        while (word > 0 && text[word - 1] == ' ')
            word--;
        r = add_endpoint(etcd, text, word, err);
        text += len;
    } while (r == 0 && *text++ == ',');
    return r;
}

/* No id is 0, or negative. */
static uint64_t lease_of(const char *prefix, const char *run)
{
    uint64_t hash = XXH3_64bits_withSeed(run, strlen(run), XXH3_64bits(prefix, strlen(prefix)));

    return (hash & INT64_MAX) | 1;
}

static int set_texts(struct etcd *etcd, const struct etcd_options *options, struct dl_error *err)
{
    const char *prefix = options->prefix ? options->prefix : "/dloader/";

    etcd->timeout_ns = options->timeout_ns ? options->timeout_ns : 5000 * MS;
    etcd->keep_s = options->keep_s;
    etcd->lease = options->keep_s > 0 ? lease_of(prefix, options->run) : 0;
    etcd->prefix = strdup(prefix);
    etcd->user = options->user ? strdup(options->user) : NULL;
    etcd->password = options->user ? strdup(options->password ? options->password : "") : NULL;
    if (!etcd->prefix || (options->user && (!etcd->user || !etcd->password)))
        return dl_error_set(err, ENOMEM, "rendezvous", "out of memory");
    return add_endpoints(etcd, options->endpoints, err);
}

int etcd_new(const struct etcd_options *options, struct backend **ret, struct dl_error *err)
{
    struct etcd *etcd = calloc(1, sizeof *etcd);
    struct http_options http = {options->loop, options->ca, options->cert, options->key};

    if (!etcd)
        return dl_error_set(err, ENOMEM, "rendezvous", "out of memory");
    etcd->backend.ops = &ops;
    etcd->loop = options->loop;
    etcd->renewed = options->renewed;
    etcd->context = options->context;
    int r = set_texts(etcd, options, err);
    if (r == 0)
        r = http_new(&http, &etcd->http, err);
    if (r < 0) {
        etcd_forget(etcd);
        return r;
    }
    open_timer(etcd, &etcd->soon);
    open_timer(etcd, &etcd->keep);
    open_timer(etcd, &etcd->rewatch);
    if (etcd->lease > 0)
        uv_timer_start(&etcd->keep, keep_lease, 0, min_u64(etcd->keep_s * 1000 / 3, KEEP_MS_MAX));
    *ret = &etcd->backend;
    return 0;
}
