#include "daemon/fetcher/transfers.h"

#include "daemon/cluster/http.h"
#include "daemon/fetcher/keys.h"
#include "daemon/serve/base/memory.h"
#include "proto/common/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include <utlist.h>

enum {
    /* At 20 ms to an answer and 100 KiB an object these fill 2 Gbit/s. */
    TRANSFERS_AT_ONCE = 96,
    TRY_MS = 60 * 1000,
};

struct transfer {
    struct transfers *transfers;
    struct transfer_order order;
    struct http_call *call; /* owned; NULL: it waits for its turn, or to be repeated */
    struct remote_headers headers;
    bool headers_bad;
    bool is_signed;
    uint64_t keys; /* keys_number() of those that signed it */
    unsigned tries;
    uv_timer_t *pause;            /* owned; NULL: it does not wait to be repeated */
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
    uint32_t n_running;
    struct remote_tally *tally; /* borrowed */
};

static void transfers_run(struct transfers *transfers);

/* It is in its list, or leaves it. */
static void transfer_count_moved(struct transfer *transfer, int more)
{
    struct transfers *transfers = transfer->transfers;
    bool runs = transfer->list == &transfers->running;

    transfers->n_running += runs ? (uint32_t)more : 0;
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

static void transfer_pause_closed(uv_handle_t *handle)
{
    free(handle);
}

static void transfer_end_pause(struct transfer *transfer)
{
    if (!transfer->pause)
        return;
    uv_timer_stop(transfer->pause);
    uv_close((uv_handle_t *)transfer->pause, transfer_pause_closed);
    transfer->pause = NULL;
}

static void transfer_end(struct transfer *transfer, int code, const struct dl_error *err,
                         struct dl_span body)
{
    struct transfers *transfers = transfer->transfers;
    const struct transfer_result result = {
        .code = code, .err = err, .headers = &transfer->headers, .body = body};

    transfer_move(transfer, NULL);
    remote_tally_add(transfers->tally, REMOTE_FAILED, code < 0 && code != -ENOENT);
    transfer->order.done(transfer->order.owner, &result);
    free(transfer);
    transfers_run(transfers);
}

/* ---- repeating ------------------------------------------------------------------------------ */

static void transfer_on_pause(uv_timer_t *timer)
{
    struct transfer *transfer = timer->data;

    transfer_end_pause(transfer);
    transfer_move(transfer, transfer->order.urgent ? &transfer->transfers->urgent
                                                   : &transfer->transfers->expected);
    transfers_run(transfer->transfers);
}

/* 0.1 s, 0.2 s, ... 10 s, each between a half and the whole, so that many do not come together; or
 * what the server asks for. */
static uint64_t transfer_pause_ms(const struct transfer *transfer)
{
    uint64_t whole = min_u64(100ULL << transfer->tries, 10 * 1000);
    int64_t asked = transfer->headers.retry_after;
    uint32_t chance = 0;

    if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) < 0)
        chance = (uint32_t)clock_ns();
    uint64_t pause = whole / 2 + chance % (whole / 2 + 1);
    return asked > 0 ? max_u64(pause, min_u64((uint64_t)asked, 30) * 1000) : pause;
}

static void transfer_repeat(struct transfer *transfer)
{
    remote_tally_add(transfer->transfers->tally, REMOTE_REPEATED, 1);
    transfer->pause = must_alloc(sizeof *transfer->pause);
    (void)uv_timer_init(transfer->transfers->loop, transfer->pause);
    transfer->pause->data = transfer;
    uv_timer_start(transfer->pause, transfer_on_pause, transfer_pause_ms(transfer), 0);
    transfer_move(transfer, &transfer->transfers->pausing);
}

/* ---- an answer ------------------------------------------------------------------------------ */

static void transfer_on_header(void *owner, struct dl_span line)
{
    struct transfer *transfer = owner;

    if (remote_headers_line(&transfer->headers, (const char *)line.data, line.len, time(NULL)) < 0)
        transfer->headers_bad = true;
}

/* -EAGAIN: another try may do it. */
static int transfer_judge_bytes(const struct transfer *transfer, struct dl_span body,
                                struct dl_error *err)
{
    const struct transfer_order *order = &transfer->order;
    const struct remote_range range = {
        .first = order->first, .last = order->last, .total = order->total, .etag = order->etag};
    uint64_t len;
    int r = remote_bytes_check(order->place, &transfer->headers, &range, &len, err);

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

static int transfer_judge(const struct transfer *transfer, const struct http_answer *answer,
                          struct dl_error *err)
{
    const struct remote_place *place = transfer->order.place;
    int status = answer->status;

    if (status == 0)
        return dl_error_set(err, answer->lasts ? EIO : EAGAIN, place->url, "%s cannot be asked: %s",
                            remote_place_host(place), answer->why);
    if (transfer->headers_bad)
        return dl_error_set(err, EBADMSG, place->url, "%s answers with headers that make no sense",
                            remote_place_host(place));
    /* An object of no bytes has no first one. */
    if (status == 416 && !transfer->order.page && transfer->order.first == 0)
        return 0;
    if (status == 304 && transfer_is_conditional(transfer))
        return 0;
    if (status < 200 || status > 299)
        return remote_refusal(place, &transfer->headers, answer->body, transfer->is_signed, err);
    return transfer->order.page ? 0 : transfer_judge_bytes(transfer, answer->body, err);
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
static bool transfer_has_old_keys(const struct transfer *transfer, int r)
{
    return r == -EACCES && transfer->is_signed && transfer->order.place->kind == REMOTE_S3 &&
           keys_renew(transfer->transfers->keys, transfer->keys);
}

static void transfer_on_answer(void *owner, const struct http_answer *answer)
{
    struct transfer *transfer = owner;
    struct remote_tally *tally = transfer->transfers->tally;
    struct dl_error err = {0};
    int r = transfer_judge(transfer, answer, &err);

    transfer->call = NULL;
    remote_tally_add(tally, REMOTE_RECEIVED, (int64_t)answer->body.len);
    if (r == -EAGAIN)
        remote_tally_add(tally, transfer_cause(answer), 1);
    if (transfer_has_old_keys(transfer, r))
        r = -EAGAIN;
    if (r == -EAGAIN && ++transfer->tries < TRANSFER_TRIES) {
        transfer_repeat(transfer);
        transfers_run(transfer->transfers);
    } else {
        transfer_end(transfer,
                     r == -EAGAIN && err.code == EAGAIN ? -EIO
                     : r == 0                           ? 0
                                                        : -err.code,
                     &err, answer->body);
    }
}

/* ---- a request ------------------------------------------------------------------------------ */

static int transfer_send(struct transfer *transfer, const struct remote_credentials *credentials,
                         struct dl_error *err)
{
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
    remote_headers_init(&transfer->headers);
    transfer->headers_bad = false;
    transfer->is_signed = request.n_own > 0;
    transfer->keys = keys_number(transfers->keys);
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
                                      .header = transfer_on_header,
                                      .done = transfer_on_answer,
                                      .owner = transfer};
    r = http_send(transfers->http, &http, &transfer->call);
    return r < 0 ? dl_error_set(err, -r, order->place->url, "libcurl cannot send its request") : 0;
}

/* 1: not before there are keys. */
static int transfer_start(struct transfer *transfer, struct dl_error *err)
{
    const struct remote_place *place = transfer->order.place;
    const struct remote_credentials *credentials = NULL;
    int r = place->kind == REMOTE_S3
                ? keys_take(transfer->transfers->keys, place->url[0] == 'g', &credentials, err)
                : 0;

    return r != 0 ? r : transfer_send(transfer, credentials, err);
}

static void transfers_run(struct transfers *transfers)
{
    while (transfers->n_running < TRANSFERS_AT_ONCE && (transfers->urgent || transfers->expected)) {
        struct transfer *transfer = transfers->urgent ? transfers->urgent : transfers->expected;
        struct dl_error err = {0};

        transfer_move(transfer, &transfers->running);
        int r = transfer_start(transfer, &err);
        remote_tally_add(transfers->tally, REMOTE_REQUESTS, r == 0);
        if (r == 1)
            transfer_move(transfer, &transfers->locked);
        else if (r < 0)
            transfer_end(transfer, r, &err, (struct dl_span){0});
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

struct transfer *transfers_begin(struct transfers *transfers, const struct transfer_order *order)
{
    struct transfer *transfer = must_alloc(sizeof *transfer);

    assert(order->page || order->last - order->first < TRANSFER_BYTES_MAX);
    transfer->transfers = transfers;
    transfer->order = *order;
    /* Not from inside this call: it may fail at once. */
    transfer->pause = must_alloc(sizeof *transfer->pause);
    (void)uv_timer_init(transfers->loop, transfer->pause);
    transfer->pause->data = transfer;
    uv_timer_start(transfer->pause, transfer_on_pause, 0, 0);
    transfer_move(transfer, &transfers->pausing);
    return transfer;
}

void transfer_hurry(struct transfer *transfer)
{
    transfer->order.urgent = true;
    if (transfer->list == &transfer->transfers->expected)
        transfer_move(transfer, &transfer->transfers->urgent);
}

struct transfer *transfer_cancel(struct transfer *transfer)
{
    if (!transfer)
        return NULL;
    transfer_end_pause(transfer);
    http_cancel(transfer->call);
    transfer_move(transfer, NULL);
    free(transfer);
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
