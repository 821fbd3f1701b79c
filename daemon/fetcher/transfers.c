#include "daemon/fetcher/transfers.h"

#include "daemon/base/memory.h"
#include "daemon/fetcher/attempt.h"
#include "daemon/fetcher/depth.h"
#include "daemon/fetcher/hedge.h"
#include "daemon/fetcher/host_limit.h"
#include "daemon/fetcher/partial.h"
#include "proto/common/clock.h"
#include "proto/remote_wire.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include <uthash.h>
#include <utlist.h>

enum {
    TRANSFERS_SPARE = 16, /* of the requests that may be under way: for what is needed soon */
    HEDGE_AGAIN_MS = 100, /* one that may not be sent a second time yet is looked at again */
};

/* Where requests go: what it refuses concerns all of them. */
struct host {
    UT_hash_handle hh;
    char *origin; /* owned */
    struct host_limit limit;
    struct transfer *urgent, *expected; /* those that wait for room there */
    uint32_t users;                     /* transfers */
    struct host *prev, *next;           /* transfers->hosts */
};

struct transfer {
    struct transfers *transfers;
    struct host *host; /* used */
    struct transfer_order order;
    struct attempt attempts[2]; /* the second while the first takes long */
    struct partial partial;
    unsigned tries;
    bool held_back;               /* it was counted as such */
    uint64_t bytes;               /* that it is thought to bring yet */
    uint64_t sent_ns;             /* when it was sent last, the first time */
    uv_timer_t *timer;            /* owned; in ->pausing until it goes on, in ->running until it is
                                     sent a second time */
    struct transfer *prev, *next; /* in one of the lists of transfers */
    struct transfer **list;
};

struct transfers {
    uv_loop_t *loop;
    struct attempt_means means; /* owned */
    uv_timer_t *wake;           /* owned; when some may be sent that wait */
    struct host *table, *hosts; /* owned; the next one's turn is the first's */
    /* `locked`: those that wait for keys. */
    struct transfer *running, *pausing, *locked;
    uint32_t n_running, n; /* the latter: of all lists */
    uint64_t bytes;        /* that these are thought to bring yet */
    uint64_t typical;      /* bytes of an object whose size was not known */
    struct hedge hedge;
    struct depth depth;
    struct remote_tally *tally; /* borrowed */
};

static void transfers_run(struct transfers *transfers);
static void transfer_hedge(struct transfer *transfer);

/* ---- hosts ---------------------------------------------------------------------------------- */

static struct host *host_find(struct transfers *transfers, const char *origin)
{
    struct host *host;

    HASH_FIND_STR(transfers->table, origin, host);
    if (host)
        return host;
    host = must_alloc(sizeof *host);
    host->origin = must_strdup(origin);
    HASH_ADD_KEYPTR(hh, transfers->table, host->origin, strlen(host->origin), host);
    DL_APPEND(transfers->hosts, host);
    return host;
}

static void host_free(struct transfers *transfers, struct host *host)
{
    HASH_DEL(transfers->table, host);
    DL_DELETE(transfers->hosts, host);
    free(host->origin);
    free(host);
}

static bool host_is_slowed(const struct host *host)
{
    return host->limit.at_once > 0 || host_limit_opens_after(&host->limit, clock_ns()) > 0;
}

/* One that throttles is remembered. */
static void host_leave(struct transfers *transfers, struct host *host)
{
    if (--host->users == 0 && !host_is_slowed(host))
        host_free(transfers, host);
}

/* ---- where a transfer is -------------------------------------------------------------------- */

/* It is in its list, or leaves it. */
static void transfer_count_moved(struct transfer *transfer, int more)
{
    struct transfers *transfers = transfer->transfers;
    bool runs = transfer->list == &transfers->running;

    transfers->n_running += runs ? (uint32_t)more : 0;
    if (runs && more > 0)
        host_limit_sent(&transfer->host->limit);
    else if (runs)
        host_limit_ended(&transfer->host->limit);
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

/* Until there is room, here and at the host. */
static void transfer_wait(struct transfer *transfer)
{
    struct host *host = transfer->host;

    if (!transfer->held_back && !host_limit_has_room(&host->limit, clock_ns())) {
        transfer->held_back = true;
        remote_tally_add(transfer->transfers->tally, REMOTE_HELD_BACK, 1);
    }
    transfer_move(transfer, transfer->order.urgent ? &host->urgent : &host->expected);
}

static void timer_closed(uv_handle_t *handle)
{
    free(handle);
}

/* 1: not before there are keys. */
static int transfer_send(struct transfer *transfer, struct attempt *attempt, struct dl_error *err)
{
    struct transfers *transfers = transfer->transfers;
    const struct transfer_order rest = partial_rest(&transfer->partial, &transfer->order);
    int r = attempt_send(attempt, &transfers->means, &rest, err);

    remote_tally_add(transfers->tally, REMOTE_REQUESTS, r == 0);
    return r;
}

/* It is under way no more. To its host the second one is a request like others. */
static void transfer_forget(struct transfer *transfer, struct attempt *attempt)
{
    if (attempt->call && attempt == &transfer->attempts[1])
        host_limit_ended(&transfer->host->limit);
    attempt->call = NULL;
}

/* Whatever of it is under way comes to nothing. */
static void transfer_withdraw(struct transfer *transfer)
{
    for (size_t i = 0; i < ARRAY_SIZE(transfer->attempts); i++) {
        http_cancel(transfer->attempts[i].call);
        transfer_forget(transfer, &transfer->attempts[i]);
    }
    uv_timer_stop(transfer->timer);
}

static void transfer_free(struct transfer *transfer)
{
    transfer_withdraw(transfer);
    transfer_move(transfer, NULL);
    uv_close((uv_handle_t *)transfer->timer, timer_closed);
    host_leave(transfer->transfers, transfer->host);
    partial_forget(&transfer->partial);
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
    transfer_wait(transfer);
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

    uint64_t now = clock_ns();

    if (transfer->attempts[1].call)
        return;
    if (!host_limit_has_room(&transfer->host->limit, now) || !hedge_take(&transfers->hedge, now)) {
        uv_timer_start(transfer->timer, transfer_on_timer, HEDGE_AGAIN_MS, 0);
        return;
    }
    if (transfer_send(transfer, &transfer->attempts[1], NULL) != 0)
        return;
    host_limit_sent(&transfer->host->limit);
    remote_tally_add(transfers->tally, REMOTE_HEDGED, 1);
}

uint64_t transfers_guess(const struct transfers *transfers, uint64_t asked)
{
    return min_u64(asked, transfers->typical);
}

static uint64_t transfer_guess(const struct transfer *transfer)
{
    const struct transfer_order *order = &transfer->order;
    uint64_t asked = order->page ? 0 : order->last - order->first + 1;

    return order->total == REMOTE_UNKNOWN ? transfers_guess(transfer->transfers, asked) : asked;
}

/* ---- an answer ------------------------------------------------------------------------------ */

static void transfer_tell_host(const struct attempt *attempt, bool is_refused)
{
    const struct transfer *transfer = attempt->transfer;
    const struct host_answer answer = {.sent_ns = transfer->sent_ns,
                                       .refused = is_refused,
                                       .after_s = attempt->headers.retry_after};

    host_limit_answered(&transfer->host->limit, &answer, clock_ns(),
                        depth_requests(&transfer->transfers->depth));
}

/* What an answer says of those to come: how long they take, and how much there is of an object. */
static void transfer_note(const struct attempt *attempt, uint64_t bytes)
{
    const struct transfer *transfer = attempt->transfer;
    struct transfers *transfers = transfer->transfers;

    if (transfer->order.total == REMOTE_UNKNOWN)
        transfers->typical = (7 * transfers->typical + bytes) / 8;
    hedge_note(&transfers->hedge, transfer_kind(transfer), clock_ns() - transfer->sent_ns);
    depth_note_whole(&transfers->depth, attempt->came);
}

/* An answer that is of no use, but that its bytes may be the first ones. */
static void transfer_keep(struct attempt *attempt, const struct http_answer *answer)
{
    struct transfer *transfer = attempt->transfer;

    remote_tally_add(transfer->transfers->tally, attempt_cause(answer), 1);
    if (!*attempt->bad_line)
        partial_keep(&transfer->partial, &transfer->order, &attempt->order, &attempt->headers,
                     answer->body);
}

/* Room for others as it comes, not when all of it has: those that share a link end together, and
 * until an answer to the next ones began nothing would come. */
static void transfer_expect_less(struct transfer *transfer, uint64_t came)
{
    uint64_t whole = transfer_guess(transfer);
    uint64_t left = min_u64(transfer->bytes, whole - min_u64(whole, came));

    transfer->transfers->bytes -= transfer->bytes - left;
    transfer->bytes = left;
}

static size_t transfer_on_some(void *owner, struct dl_span body)
{
    struct attempt *attempt = owner;
    struct transfer *transfer = attempt->transfer;
    struct depth *depth = &transfer->transfers->depth;
    uint64_t now = clock_ns();

    if (attempt->came == 0)
        depth_note_begin(depth, now - transfer->sent_ns);
    depth_note_came(depth, now, body.len - attempt->came);
    attempt->came = body.len;
    transfer_expect_less(transfer, transfer->partial.bytes.len + body.len);
    return 0;
}

static void transfer_on_answer(void *owner, const struct http_answer *answer)
{
    struct attempt *attempt = owner;
    struct transfer *transfer = attempt->transfer;
    struct transfers *transfers = transfer->transfers;
    struct dl_span body = answer->body;
    struct dl_error err = {0};
    int r = attempt_judge(attempt, answer, &err);

    transfer_forget(transfer, attempt);
    remote_tally_add(transfers->tally, REMOTE_RECEIVED, (int64_t)body.len);
    if (r == -EAGAIN)
        transfer_keep(attempt, answer);
    if (answer->status > 0)
        transfer_tell_host(attempt, r == -EAGAIN && attempt_cause(answer) == REMOTE_THROTTLED);
    if (attempt_has_old_keys(attempt, &transfers->means, r))
        r = -EAGAIN;
    if (r == -EAGAIN && (transfer->attempts[0].call || transfer->attempts[1].call))
        return; /* the other one may do */
    transfer_withdraw(transfer);
    if (r < 0 && r != -EAGAIN && transfer->partial.bytes.len > 0) {
        partial_forget(&transfer->partial); /* what is wrong, an answer to the whole says */
        r = -EAGAIN;
    }
    if (r == -EAGAIN && ++transfer->tries < TRANSFER_TRIES) {
        transfer_repeat(attempt);
        transfers_run(transfers);
        return;
    }
    if (r == 0) {
        body = partial_join(&transfer->partial, &transfer->order, &attempt->order, body);
        transfer_note(attempt, body.len);
    }
    transfer_end(attempt,
                 r == -EAGAIN && err.code == EAGAIN ? -EIO
                 : r == 0                           ? 0
                                                    : -err.code,
                 &err, body);
}

/* ---- who is next ---------------------------------------------------------------------------- */

/* The next one that there is room for: one that somebody waits for, of each host in turn. */
static struct transfer *transfers_next(struct transfers *transfers)
{
    uint64_t now = clock_ns();
    struct host *host;

    for (int urgent = 1; urgent >= 0; urgent--) {
        DL_FOREACH (transfers->hosts, host) {
            struct transfer *first = urgent ? host->urgent : host->expected;
            if (!first || !host_limit_has_room(&host->limit, now))
                continue;
            DL_DELETE(transfers->hosts, host);
            DL_APPEND(transfers->hosts, host);
            return first;
        }
    }
    return NULL;
}

static void transfer_send_first(struct transfer *transfer)
{
    struct transfers *transfers = transfer->transfers;
    struct dl_error err = {0};

    transfer_move(transfer, &transfers->running);
    transfer->sent_ns = clock_ns();
    int r = transfer_send(transfer, &transfer->attempts[0], &err);
    if (r == 1)
        transfer_move(transfer, &transfers->locked);
    else if (r < 0)
        transfer_end(&transfer->attempts[0], r, &err, (struct dl_span){0});
    else {
        hedge_sent(&transfers->hedge);
        transfer_watch(transfer);
    }
}

static void transfers_on_wake(uv_timer_t *timer)
{
    transfers_run(timer->data);
}

/* Of hosts that have said when to come again, the first. */
static void transfers_wait_for_hosts(struct transfers *transfers)
{
    uint64_t now = clock_ns(), first = UINT64_MAX;
    const struct host *host;

    DL_FOREACH (transfers->hosts, host) {
        uint64_t after = host_limit_opens_after(&host->limit, now);
        if (after > 0 && (host->urgent || host->expected))
            first = min_u64(first, after);
    }
    if (first < UINT64_MAX)
        uv_timer_start(transfers->wake, transfers_on_wake, first / 1000000 + 1, 0);
}

static void transfers_run(struct transfers *transfers)
{
    struct transfer *next;

    while (transfers->n_running < depth_requests(&transfers->depth) &&
           (next = transfers_next(transfers)))
        transfer_send_first(next);
    transfers_wait_for_hosts(transfers);
}

static void transfers_on_keys(void *owner)
{
    struct transfers *transfers = owner;
    struct transfer *transfer, *next;

    DL_FOREACH_SAFE (transfers->locked, transfer, next)
        transfer_wait(transfer);
    transfers_run(transfers);
}

bool transfers_have_room(const struct transfers *transfers)
{
    return transfers->n < depth_requests(&transfers->depth) - TRANSFERS_SPARE &&
           transfers->bytes < depth_bytes(&transfers->depth);
}

struct transfer *transfers_begin(struct transfers *transfers, const struct transfer_order *order)
{
    struct transfer *transfer = must_alloc(sizeof *transfer);

    assert(order->page || order->last - order->first < TRANSFER_BYTES_MAX);
    transfer->transfers = transfers;
    transfer->order = *order;
    transfer->host = host_find(transfers, order->place->origin);
    transfer->host->users++;
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
    if (transfer->order.urgent)
        return;
    transfer->order.urgent = true;
    if (transfer->list == &transfer->host->expected)
        transfer_move(transfer, &transfer->host->urgent);
    else if (transfer->list == &transfer->transfers->running)
        transfer_watch(transfer);
}

struct transfer *transfer_cancel(struct transfer *transfer)
{
    if (transfer) {
        /* Others may have waited for it; not from inside this call. */
        uv_timer_start(transfer->transfers->wake, transfers_on_wake, 0, 0);
        transfer_free(transfer);
    }
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
    return keys_settings(transfers->means.keys);
}

int transfers_check(const struct transfers *transfers, struct dl_error *err)
{
    return keys_check(transfers->means.keys, err);
}

bool transfers_are_stale(struct transfers *transfers)
{
    bool stale = keys_look(transfers->means.keys);

    transfers_on_keys(transfers); /* who waits for former ones waits for those that are there now */
    return stale;
}

const char *transfers_identity_file(const struct transfers *transfers)
{
    return keys_identity_file(transfers->means.keys);
}

struct remote_tally *transfers_tally(const struct transfers *transfers)
{
    return transfers->tally;
}

void transfers_tell(const struct transfers *transfers)
{
    const struct host *host;
    uint64_t slowed = 0, at_once = 0;

    DL_FOREACH (transfers->hosts, host) {
        bool is_closed = host_limit_opens_after(&host->limit, clock_ns()) > 0;
        if (host->users == 0)
            continue;
        slowed += host_is_slowed(host);
        at_once += is_closed ? 0 : host->limit.at_once;
    }
    remote_tally_write(transfers->tally, REMOTE_SLOWED_HOSTS, slowed);
    remote_tally_write(transfers->tally, REMOTE_SLOWED_AT_ONCE, at_once);
}

int transfers_new(uv_loop_t *loop, struct remote_tally *tally, const struct networks *denied,
                  struct transfers **ret, struct dl_error *err)
{
    const struct http_options options = {.loop = loop,
                                         .owner = "remote files",
                                         .ca = getenv("AWS_CA_BUNDLE"),
                                         .kept = DEPTH_REQUESTS_MOST,
                                         .denied = denied};
    struct transfers *transfers = must_alloc(sizeof *transfers);
    const struct keys_options keys = {.loop = loop,
                                      .get = transfers_getenv,
                                      .ca = options.ca,
                                      .changed = transfers_on_keys,
                                      .owner = transfers};
    int r = keys_new(&keys, &transfers->means.keys, err);

    transfers->loop = loop;
    transfers->tally = tally;
    transfers->typical = REMOTE_BLOCK_BYTES;
    transfers->means.some = transfer_on_some;
    transfers->means.done = transfer_on_answer;
    transfers->means.has_crypto = sigv4_crypto_find(&transfers->means.crypto);
    transfers->wake = must_alloc(sizeof *transfers->wake);
    (void)uv_timer_init(loop, transfers->wake);
    transfers->wake->data = transfers;
    if (r == 0)
        r = http_new(&options, &transfers->means.http, err);
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
    assert(transfers->n == 0);
    while (transfers->hosts)
        host_free(transfers, transfers->hosts);
    uv_close((uv_handle_t *)transfers->wake, timer_closed);
    http_free(transfers->means.http);
    keys_free(transfers->means.keys);
    free(transfers);
    return NULL;
}
