#include "daemon/fetcher/attempt.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

enum {
    TRY_MS = 60 * 1000,
    SILENT_S = 15,
};

static bool order_is_conditional(const struct transfer_order *order)
{
    return order->unless && *order->unless;
}

/* ---- the request ---------------------------------------------------------------------------- */

/* The first one that makes no sense, for people. */
static void attempt_keep_line(struct attempt *attempt, struct dl_span line)
{
    char *to = attempt->bad_line;

    if (*to)
        return;
    for (size_t i = 0; i < line.len && i < sizeof attempt->bad_line - 1 && line.data[i] != '\r';
         i++)
        to[i] = line.data[i] < ' ' || line.data[i] > '~' ? '?' : (char)line.data[i];
}

static void attempt_on_header(void *owner, struct dl_span line)
{
    struct attempt *attempt = owner;

    if (remote_headers_line(&attempt->headers, (const char *)line.data, line.len, time(NULL)) < 0)
        attempt_keep_line(attempt, line);
}

static int attempt_send_signed(struct attempt *attempt, const struct attempt_means *means,
                               const struct transfer_order *order,
                               const struct remote_credentials *credentials, struct dl_error *err)
{
    const struct remote_asker asker = {.settings = keys_settings(means->keys),
                                       .credentials = credentials,
                                       .crypto = means->has_crypto ? &means->crypto : NULL,
                                       .now = time(NULL)};
    _cleanup_(remote_request_deinit) struct remote_request request = {0};
    int r = order->page ? remote_request_list(order->place, &asker, order->page, &request, err)
                        : remote_request_bytes(order->place, &asker, order->first, order->last,
                                               order->etag, &request, err);

    if (r < 0)
        return r;
    attempt->order = *order;
    attempt->came = 0;
    remote_headers_init(&attempt->headers);
    memset(attempt->bad_line, 0, sizeof attempt->bad_line);
    attempt->is_signed = request.n_own > 0;
    attempt->keys = keys_number(means->keys);
    char unless[REMOTE_ETAG_MAX + 32], *headers[REMOTE_HEADERS_MAX + 1];
    uint32_t n_headers = request.n_headers;
    memcpy(headers, request.headers, n_headers * sizeof *headers);
    if (order_is_conditional(order)) {
        snprintf(unless, sizeof unless, "If-None-Match: %s", order->unless);
        headers[n_headers++] = unless;
    }
    const struct http_request http = {.url = request.url,
                                      .headers = headers,
                                      .n_headers = n_headers,
                                      .redirected = order->place->kind != REMOTE_S3,
                                      .timeout_ns = TRY_MS * 1000000ULL,
                                      .silent_s = SILENT_S,
                                      .header = attempt_on_header,
                                      .some = means->some,
                                      .done = means->done,
                                      .owner = attempt};
    r = http_send(means->http, &http, &attempt->call);
    return r < 0 ? dl_error_set(err, -r, order->place->url, "libcurl cannot send its request") : 0;
}

int attempt_send(struct attempt *attempt, const struct attempt_means *means,
                 const struct transfer_order *order, struct dl_error *err)
{
    const struct remote_place *place = order->place;
    const struct remote_credentials *credentials = NULL;
    int r = place->kind == REMOTE_S3
                ? keys_take(means->keys, place->url[0] == 'g', &credentials, err)
                : 0;

    return r == 0 ? attempt_send_signed(attempt, means, order, credentials, err) : r;
}

/* ---- its answer ----------------------------------------------------------------------------- */

static int attempt_judge_bytes(const struct attempt *attempt, struct dl_span body,
                               struct dl_error *err)
{
    const struct transfer_order *order = &attempt->order;
    const struct remote_range range = {
        .first = order->first, .last = order->last, .total = order->total, .etag = order->etag};
    uint64_t len;
    int r = remote_bytes_check(order->place, &attempt->headers, &range, &len, err);

    if (r == -EBADMSG) /* others than asked for: something on the way is broken now and then */
        r = -EAGAIN;
    if (r == 0 && len != REMOTE_UNKNOWN && len != body.len)
        r = dl_error_set(err, EAGAIN, order->place->url,
                         "the answer has %zu of the %llu bytes that its header says", body.len,
                         (ull)len);
    return r;
}

int attempt_judge(const struct attempt *attempt, const struct http_answer *answer,
                  struct dl_error *err)
{
    const struct transfer_order *order = &attempt->order;
    const struct remote_place *place = order->place;
    int status = answer->status;

    if (status == 0)
        return dl_error_set(err, answer->lasts ? EIO : EAGAIN, place->url, "%s cannot be asked: %s",
                            remote_place_host(place), answer->why);
    if (*attempt->bad_line)
        return dl_error_set(
            err, EBADMSG, place->url,
            "%s answers with what makes no sense: \"%s\"; a proxy on the way may be "
            "broken",
            remote_place_host(place), attempt->bad_line);
    /* An object of no bytes has no first one. */
    if (status == 416 && !order->page && order->first == 0)
        return 0;
    if (status == 304 && order_is_conditional(order))
        return 0;
    if (status < 200 || status > 299)
        return remote_refusal(place, &attempt->headers, answer->body, attempt->is_signed, err);
    return order->page ? 0 : attempt_judge_bytes(attempt, answer->body, err);
}

enum remote_count attempt_cause(const struct http_answer *answer)
{
    if (answer->status == 429 || answer->status == 503)
        return REMOTE_THROTTLED;
    if (answer->status > 299)
        return REMOTE_SERVER_FAULTS;
    return answer->is_late ? REMOTE_TIMED_OUT : REMOTE_BROKEN_OFF;
}

bool attempt_has_old_keys(const struct attempt *attempt, const struct attempt_means *means, int r)
{
    return r == -EACCES && attempt->is_signed && attempt->order.place->kind == REMOTE_S3 &&
           keys_renew(means->keys, attempt->keys);
}
