#include "daemon/fetcher/transfers.h"

#include "daemon/cluster/http.h"
#include "daemon/fetcher/hedge.h"
#include "daemon/fetcher/keys.h"
#include "daemon/serve/base/memory.h"
#include "proto/common/clock.h"
#include "proto/remote_wire.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include <utlist.h>

enum {
    /* At 20 ms to an answer and 100 KiB an object these fill 2 Gbit/s. */
    TRANSFERS_AT_ONCE = 96,
    TRANSFERS_SPARE = 16, /* of these, for what is needed soon */
    /* Others wait behind what is on its way: this is 2 Gbit/s for an eighth of a second. */
    TRANSFERS_AHEAD_BYTES = 32 << 20,
    TRY_MS = 60 * 1000,
    SILENT_S = 15,
};

/* A request, as it is sent. */
struct attempt {
    struct transfer *transfer;
    struct http_call *call; /* owned; NULL: it is not sent, or answered */
    struct remote_headers headers;
    bool headers_bad;
    bool is_signed;
    uint64_t keys; /* keys_number() of those that signed it */
};

struct transfer {
    struct transfers *transfers;
    struct transfer_order order;
    struct attempt attempts[2]; /* the second while the first takes long */
    unsigned tries;
    uint64_t bytes;               /* that it is thought to bring */
    uint64_t sent_ns;             /* when it was sent last, the first time */
    uv_timer_t *timer;            /* owned; in ->pausing until it goes on, in ->running until it is
                                     sent a second time */
    struct transfer *prev, *next; /* in one of the lists of transfers */
    struct transfer **list;
};

struct transfers {
    uv_loop_t *loop;
    struct http *http; /* owned */
    struct keys *keys; /* owned */
    struct sigv4_crypto crypto;
    bool has_crypto;
    /* `locked`: those that wait for keys. */
    struct transfer *urgent, *expected, *running, *pausing, *locked;
    uint32_t n_running, n; /* the latter: of all lists */
    uint64_t bytes;        /* that these are thought to bring */
    uint64_t typical;      /* bytes of an object whose size was not known */
    struct hedge hedge;
    struct remote_tally *tally; /* borrowed */
};

static void transfers_run(struct transfers *transfers);
static int transfer_start(struct attempt *attempt, struct dl_error *err);
static void transfer_hedge(struct transfer *transfer);

/* It is in its list, or leaves it. */
static void transfer_count_moved(struct transfer *transfer, int more)
{
    struct transfers *transfers = transfer->transfers;
    bool runs = transfer->list == &transfers->running;

    transfers->n_running += runs ? (uint32_t)more : 0;
    transfers->n += (uint32_t)more;
    transfers->bytes += more < 0 ? -transfer->bytes : transfer->bytes;
    remote_tally_add(transfers->tally, runs ? REMOTE_UNDER_WAY : REMOTE_WAITING, more);
}

static void transfer_move(struct transfer *transfer, struct transfer **to)
{
    if (transfer->list) {
        transfer_count_moved(transfer, -1);
        DL_DELETE(*transfer->list, transfer);
    }
    transfer->list = to;
    if (!to)
        return;
    transfer_count_moved(transfer, 1);
    DL_APPEND(*to, transfer);
}

static void transfer_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

/* Whatever of it is under way comes to nothing. */
static void transfer_withdraw(struct transfer *transfer)
{
    for (size_t i = 0; i < ARRAY_SIZE(transfer->attempts); i++) {
        http_cancel(transfer->attempts[i].call);
        transfer->attempts[i].call = NULL;
    }
    uv_timer_stop(transfer->timer);
}

static void transfer_free(struct transfer *transfer)
{
    transfer_withdraw(transfer);
    transfer_move(transfer, NULL);
    uv_close((uv_handle_t *)transfer->timer, transfer_timer_closed);
    free(transfer);
}

static void transfer_end(struct attempt *attempt, int code, const struct dl_error *err,
                         struct dl_span body)
{
    struct transfer *transfer = attempt->transfer;
    struct transfers *transfers = transfer->transfers;
    const struct transfer_result result = {
        .code = code, .err = err, .headers = &attempt->headers, .body = body};

    transfer_withdraw(transfer);
    transfer_move(transfer, NULL);
    remote_tally_add(transfers->tally, REMOTE_FAILED, code < 0 && code != -ENOENT);
    transfer->order.done(transfer->order.owner, &result);
    transfer_free(transfer);
    transfers_run(transfers);
}

/* ---- repeating ------------------------------------------------------------------------------ */

static void transfer_on_timer(uv_timer_t *timer)
{
    struct transfer *transfer = timer->data;
    struct transfers *transfers = transfer->transfers;

    if (transfer->list == &transfers->running) {
        transfer_hedge(transfer);
        return;
    }
    transfer_move(transfer, transfer->order.urgent ? &transfers->urgent : &transfers->expected);
    transfers_run(transfers);
}

/* 0.1 s, 0.2 s, ... 10 s, each between a half and the whole, so that many do not come together; or
 * what the server asks for. */
static uint64_t transfer_pause_ms(const struct attempt *attempt)
{
    uint64_t whole = min_u64(100ULL << attempt->transfer->tries, 10 * 1000);
    int64_t asked = attempt->headers.retry_after;
    uint32_t chance = 0;

    if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) < 0)
        chance = (uint32_t)clock_ns();
    uint64_t pause = whole / 2 + chance % (whole / 2 + 1);
    return asked > 0 ? max_u64(pause, min_u64((uint64_t)asked, 30) * 1000) : pause;
}

static void transfer_repeat(const struct attempt *attempt)
{
    struct transfer *transfer = attempt->transfer;

    remote_tally_add(transfer->transfers->tally, REMOTE_REPEATED, 1);
    uv_timer_start(transfer->timer, transfer_on_timer, transfer_pause_ms(attempt), 0);
    transfer_move(transfer, &transfer->transfers->pausing);
}

/* ---- a second time -------------------------------------------------------------------------- */

static unsigned transfer_kind(const struct transfer *transfer)
{
    const struct transfer_order *order = &transfer->order;

    return hedge_kind_of(order->page ? 0 : order->last - order->first + 1);
}

/* It is being sent, or somebody waits for it from now on. */
static void transfer_watch(struct transfer *transfer)
{
    uint64_t after = hedge_after(&transfer->transfers->hedge, transfer_kind(transfer));
    uint64_t since = clock_ns() - transfer->sent_ns;

    if (!transfer->order.urgent || after == UINT64_MAX)
        return;
    uv_timer_start(transfer->timer, transfer_on_timer,
                   after > since ? (after - since) / 1000000 : 0, 0);
}

static void transfer_hedge(struct transfer *transfer)
{
    struct transfers *transfers = transfer->transfers;

    if (transfer->attempts[1].call || !hedge_take(&transfers->hedge))
        return;
    if (transfer_start(&transfer->attempts[1], NULL) == 0)
        remote_tally_add(transfers->tally, REMOTE_HEDGED, 1);
}

/* ---- an answer ------------------------------------------------------------------------------ */

static void transfer_on_header(void *owner, struct dl_span line)
{
    struct attempt *attempt = owner;

    if (remote_headers_line(&attempt->headers, (const char *)line.data, line.len, time(NULL)) < 0)
        attempt->headers_bad = true;
}

/* -EAGAIN: another try may do it. */
static int transfer_judge_bytes(const struct attempt *attempt, struct dl_span body,
                                struct dl_error *err)
{
    const struct transfer_order *order = &attempt->transfer->order;
    const struct remote_range range = {
        .first = order->first, .last = order->last, .total = order->total, .etag = order->etag};
    uint64_t len;
    int r = remote_bytes_check(order->place, &attempt->headers, &range, &len, err);

    if (r == -EBADMSG) /* others than asked for: something on the way is broken now and then */
        r = -EAGAIN;

    if (r == 0 && len != REMOTE_UNKNOWN && len != body.len)
        r = dl_error_set(err, EAGAIN, order->place->url,
                         "the answer has %zu of the %llu bytes that its header says", body.len,
                         (unsigned long long)len);
    return r;
}

static bool transfer_is_conditional(const struct transfer *transfer)
{
    return transfer->order.unless && *transfer->order.unless;
}

static int transfer_judge(const struct attempt *attempt, const struct http_answer *answer,
                          struct dl_error *err)
{
    const struct transfer *transfer = attempt->transfer;
    const struct remote_place *place = transfer->order.place;
    int status = answer->status;

    if (status == 0)
        return dl_error_set(err, answer->lasts ? EIO : EAGAIN, place->url, "%s cannot be asked: %s",
                            remote_place_host(place), answer->why);
    if (attempt->headers_bad)
        return dl_error_set(err, EBADMSG, place->url, "%s answers with headers that make no sense",
                            remote_place_host(place));
    /* An object of no bytes has no first one. */
    if (status == 416 && !transfer->order.page && transfer->order.first == 0)
        return 0;
    if (status == 304 && transfer_is_conditional(transfer))
        return 0;
    if (status < 200 || status > 299)
        return remote_refusal(place, &attempt->headers, answer->body, attempt->is_signed, err);
    return transfer->order.page ? 0 : transfer_judge_bytes(attempt, answer->body, err);
}

/* Of an answer that another try may better. */
static enum remote_count transfer_cause(const struct http_answer *answer)
{
    if (answer->status == 429 || answer->status == 503)
        return REMOTE_THROTTLED;
    if (answer->status > 299)
        return REMOTE_SERVER_FAULTS;
    return answer->is_late ? REMOTE_TIMED_OUT : REMOTE_BROKEN_OFF;
}

/* Refused by keys that are others by now. */
static bool transfer_has_old_keys(const struct attempt *attempt, int r)
{
    const struct transfer *transfer = attempt->transfer;

    return r == -EACCES && attempt->is_signed && transfer->order.place->kind == REMOTE_S3 &&
           keys_renew(transfer->transfers->keys, attempt->keys);
}

static void transfer_on_answer(void *owner, const struct http_answer *answer)
{
    struct attempt *attempt = owner;
    struct transfer *transfer = attempt->transfer;
    struct transfers *transfers = transfer->transfers;
    struct dl_error err = {0};
    int r = transfer_judge(attempt, answer, &err);

    attempt->call = NULL;
    remote_tally_add(transfers->tally, REMOTE_RECEIVED, (int64_t)answer->body.len);
    if (r == -EAGAIN)
        remote_tally_add(transfers->tally, transfer_cause(answer), 1);
    if (transfer_has_old_keys(attempt, r))
        r = -EAGAIN;
    if (r == -EAGAIN && (transfer->attempts[0].call || transfer->attempts[1].call))
        return; /* the other one may do */
    transfer_withdraw(transfer);
    if (r == -EAGAIN && ++transfer->tries < TRANSFER_TRIES) {
        transfer_repeat(attempt);
        transfers_run(transfers);
        return;
    }
    if (r == 0 && transfer->order.total == REMOTE_UNKNOWN)
        transfers->typical = (7 * transfers->typical + answer->body.len) / 8;
    if (r == 0)
        hedge_note(&transfers->hedge, transfer_kind(transfer), clock_ns() - transfer->sent_ns);
    transfer_end(attempt,
                 r == -EAGAIN && err.code == EAGAIN ? -EIO
                 : r == 0                           ? 0
                                                    : -err.code,
                 &err, answer->body);
}

/* ---- a request ------------------------------------------------------------------------------ */

static int transfer_send(struct attempt *attempt, const struct remote_credentials *credentials,
                         struct dl_error *err)
{
    const struct transfer *transfer = attempt->transfer;
    struct transfers *transfers = transfer->transfers;
    const struct transfer_order *order = &transfer->order;
    const struct remote_asker asker = {.settings = keys_settings(transfers->keys),
                                       .credentials = credentials,
                                       .crypto = transfers->has_crypto ? &transfers->crypto : NULL,
                                       .now = time(NULL)};
    _cleanup_(remote_request_deinit)
    struct remote_request request = {0};
    int r = order->page ? remote_request_list(order->place, &asker, order->page, &request, err)
                        : remote_request_bytes(order->place, &asker, order->first, order->last,
                                               order->etag, &request, err);

    if (r < 0)
        return r;
    remote_headers_init(&attempt->headers);
    attempt->headers_bad = false;
    attempt->is_signed = request.n_own > 0;
    attempt->keys = keys_number(transfers->keys);
    char unless[REMOTE_ETAG_MAX + 32], *headers[REMOTE_HEADERS_MAX + 1];
    uint32_t n_headers = request.n_headers;
    memcpy(headers, request.headers, n_headers * sizeof *headers);
    if (transfer_is_conditional(transfer)) {
        snprintf(unless, sizeof unless, "If-None-Match: %s", order->unless);
        headers[n_headers++] = unless;
    }
    const struct http_request http = {.url = request.url,
                                      .headers = headers,
                                      .n_headers = n_headers,
                                      .redirected = order->place->kind != REMOTE_S3,
                                      .timeout_ns = TRY_MS * 1000000ULL,
                                      .silent_s = SILENT_S,
                                      .header = transfer_on_header,
                                      .done = transfer_on_answer,
                                      .owner = attempt};
    r = http_send(transfers->http, &http, &attempt->call);
    return r < 0 ? dl_error_set(err, -r, order->place->url, "libcurl cannot send its request") : 0;
}

/* 1: not before there are keys. */
static int transfer_start(struct attempt *attempt, struct dl_error *err)
{
    struct transfers *transfers = attempt->transfer->transfers;
    const struct remote_place *place = attempt->transfer->order.place;
    const struct remote_credentials *credentials = NULL;
    int r = place->kind == REMOTE_S3
                ? keys_take(transfers->keys, place->url[0] == 'g', &credentials, err)
                : 0;

    if (r == 0)
        r = transfer_send(attempt, credentials, err);
    if (r != 0)
        return r;
    remote_tally_add(transfers->tally, REMOTE_REQUESTS, 1);
    return 0;
}

static void transfers_run(struct transfers *transfers)
{
    while (transfers->n_running < TRANSFERS_AT_ONCE && (transfers->urgent || transfers->expected)) {
        struct transfer *transfer = transfers->urgent ? transfers->urgent : transfers->expected;
        struct dl_error err = {0};

        transfer_move(transfer, &transfers->running);
        transfer->sent_ns = clock_ns();
        int r = transfer_start(&transfer->attempts[0], &err);
        if (r == 1)
            transfer_move(transfer, &transfers->locked);
        else if (r < 0)
            transfer_end(&transfer->attempts[0], r, &err, (struct dl_span){0});
        else {
            hedge_sent(&transfers->hedge);
            transfer_watch(transfer);
        }
    }
}

static void transfers_on_keys(void *owner)
{
    struct transfers *transfers = owner;
    struct transfer *transfer, *next;

    DL_FOREACH_SAFE (transfers->locked, transfer, next)
        transfer_move(transfer, transfer->order.urgent ? &transfers->urgent : &transfers->expected);
    transfers_run(transfers);
}

bool transfers_have_room(const struct transfers *transfers)
{
    return transfers->n < TRANSFERS_AT_ONCE - TRANSFERS_SPARE &&
           transfers->bytes < TRANSFERS_AHEAD_BYTES;
}

/* Of an object that is not known more is asked for than most have. */
static uint64_t transfer_guess(const struct transfer *transfer)
{
    const struct transfer_order *order = &transfer->order;
    uint64_t asked = order->page ? 0 : order->last - order->first + 1;

    return order->total == REMOTE_UNKNOWN ? min_u64(asked, transfer->transfers->typical) : asked;
}

struct transfer *transfers_begin(struct transfers *transfers, const struct transfer_order *order)
{
    struct transfer *transfer = must_alloc(sizeof *transfer);

    assert(order->page || order->last - order->first < TRANSFER_BYTES_MAX);
    transfer->transfers = transfers;
    transfer->order = *order;
    for (size_t i = 0; i < ARRAY_SIZE(transfer->attempts); i++)
        transfer->attempts[i].transfer = transfer;
    /* Not from inside this call: it may fail at once. */
    transfer->timer = must_alloc(sizeof *transfer->timer);
    (void)uv_timer_init(transfers->loop, transfer->timer);
    transfer->timer->data = transfer;
    transfer->bytes = transfer_guess(transfer);
    uv_timer_start(transfer->timer, transfer_on_timer, 0, 0);
    transfer_move(transfer, &transfers->pausing);
    return transfer;
}

void transfer_hurry(struct transfer *transfer)
{
    struct transfers *transfers = transfer->transfers;

    if (transfer->order.urgent)
        return;
    transfer->order.urgent = true;
    if (transfer->list == &transfers->expected)
        transfer_move(transfer, &transfers->urgent);
    else if (transfer->list == &transfers->running)
        transfer_watch(transfer);
}

struct transfer *transfer_cancel(struct transfer *transfer)
{
    if (transfer)
        transfer_free(transfer);
    return NULL;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static const char *transfers_getenv(const char *name, void *of)
{
    (void)of;
    return getenv(name);
}

const struct remote_settings *transfers_settings(const struct transfers *transfers)
{
    return keys_settings(transfers->keys);
}

int transfers_check(const struct transfers *transfers, struct dl_error *err)
{
    return keys_check(transfers->keys, err);
}

bool transfers_are_stale(struct transfers *transfers)
{
    bool stale = keys_look(transfers->keys);

    transfers_on_keys(transfers); /* who waits for former ones waits for those that are there now */
    return stale;
}

const char *transfers_identity_file(const struct transfers *transfers)
{
    return keys_identity_file(transfers->keys);
}

struct remote_tally *transfers_tally(const struct transfers *transfers)
{
    return transfers->tally;
}

int transfers_new(uv_loop_t *loop, struct remote_tally *tally, const struct networks *denied,
                  struct transfers **ret, struct dl_error *err)
{
    const struct http_options options = {.loop = loop,
                                         .owner = "remote files",
                                         .ca = getenv("AWS_CA_BUNDLE"),
                                         .kept = TRANSFERS_AT_ONCE,
                                         .denied = denied};
    struct transfers *transfers = must_alloc(sizeof *transfers);
    const struct keys_options keys = {.loop = loop,
                                      .get = transfers_getenv,
                                      .ca = options.ca,
                                      .changed = transfers_on_keys,
                                      .owner = transfers};
    int r = keys_new(&keys, &transfers->keys, err);

    transfers->loop = loop;
    transfers->tally = tally;
    transfers->typical = REMOTE_BLOCK_BYTES;
    transfers->has_crypto = sigv4_crypto_find(&transfers->crypto);
    if (r == 0)
        r = http_new(&options, &transfers->http, err);
    if (r < 0) {
        transfers_free(transfers);
        return r;
    }
    *ret = transfers;
    return 0;
}

struct transfers *transfers_free(struct transfers *transfers)
{
    if (!transfers)
        return NULL;
    assert(!transfers->urgent && !transfers->expected && !transfers->running &&
           !transfers->pausing && !transfers->locked);
    http_free(transfers->http);
    keys_free(transfers->keys);
    free(transfers);
    return NULL;
}
