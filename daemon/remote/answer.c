#include "daemon/remote/answer.h"

#include "daemon/remote/date.h"
#include "daemon/remote/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>

void remote_headers_init(struct remote_headers *headers)
{
    *headers = (struct remote_headers){
        .length = REMOTE_UNKNOWN,
        .first = REMOTE_UNKNOWN,
        .last = REMOTE_UNKNOWN,
        .total = REMOTE_UNKNOWN,
        .modified = -1,
        .retry_after = -1,
        .linked_size = REMOTE_UNKNOWN,
    };
}

/* Decimal digits at the span's beginning, which are passed over; false: there are none, or too many
 * for a size of a file. */
static bool answer_take_number(struct dl_span *span, uint64_t *ret)
{
    uint64_t n = 0;
    size_t used = 0;

    for (; used < span->len && isdigit(span->data[used]); used++)
        if (mul_overflows(n, 10, &n) || add_overflows(n, span->data[used] - '0', &n) ||
            n > INT64_MAX)
            return false;
    span->data += used;
    span->len -= used;
    *ret = n;
    return used > 0;
}

static bool answer_take_text(struct dl_span *span, const char *text)
{
    size_t n = strlen(text);

    if (span->len < n || strncasecmp((const char *)span->data, text, n) != 0)
        return false;
    span->data += n;
    span->len -= n;
    return true;
}

static bool answer_size(struct dl_span value, uint64_t *ret)
{
    uint64_t n;

    if (!answer_take_number(&value, &n) || value.len > 0 || (*ret != REMOTE_UNKNOWN && *ret != n))
        return false;
    *ret = n;
    return true;
}

/* "bytes 0-9/100", "bytes 0-9/" and a star, "bytes" star "/100". */
static bool answer_range(struct dl_span value, struct remote_headers *headers)
{
    uint64_t first = REMOTE_UNKNOWN, last = REMOTE_UNKNOWN, total = REMOTE_UNKNOWN;

    if (headers->first != REMOTE_UNKNOWN || headers->total != REMOTE_UNKNOWN ||
        !answer_take_text(&value, "bytes "))
        return false;
    if (!answer_take_text(&value, "*") &&
        (!answer_take_number(&value, &first) || !answer_take_text(&value, "-") ||
         !answer_take_number(&value, &last) || first > last))
        return false;
    if (!answer_take_text(&value, "/") ||
        (!answer_take_text(&value, "*") && !answer_take_number(&value, &total)) || value.len > 0 ||
        (last != REMOTE_UNKNOWN && last >= total))
        return false;
    headers->first = first;
    headers->last = last;
    headers->total = total;
    return true;
}

/* Where it fits and has no control characters; else it counts as not said. */
static void answer_text(struct dl_span value, char *ret, size_t size)
{
    ret[0] = '\0';
    if (value.len >= size || (value.len > 0 && memchr(value.data, '\0', value.len)))
        return;
    if (value.len > 0)
        memcpy(ret, value.data, value.len);
    ret[value.len] = '\0';
    if (!text_is_plain(ret))
        ret[0] = '\0';
}

static int64_t answer_retry(struct dl_span value, int64_t now)
{
    struct dl_span digits = value;
    uint64_t seconds;

    if (answer_take_number(&digits, &seconds) && digits.len == 0)
        return (int64_t)min_u64(seconds, INT32_MAX);
    int64_t date = date_of_http(value);
    return date < 0 ? -1 : date < now ? 0 : date - now;
}

/* ---- Link ----------------------------------------------------------------------------------- */

/* Of a URL's query the value of cursor=, decoded. */
static void answer_cursor(struct dl_span url, struct remote_headers *headers)
{
    static const char name[] = "cursor=";
    const uint8_t *at = url.len > 0 ? memchr(url.data, '?', url.len) : NULL;

    while (at) {
        size_t left = url.len - (size_t)(++at - url.data);
        const uint8_t *end = left > 0 ? memchr(at, '&', left) : NULL;
        struct dl_span one = {at, end ? (size_t)(end - at) : left};

        if (answer_take_text(&one, name)) {
            answer_text(one, headers->cursor, sizeof headers->cursor);
            size_t n = strlen(headers->cursor);
            bool is_good = text_decode(headers->cursor, &n, true);

            headers->cursor[is_good ? n : 0] = '\0';
            return;
        }
        at = end;
    }
}

/* <URL>; rel="next", <URL>; rel="…" (RFC 8288). */
static void answer_link(struct dl_span value, struct remote_headers *headers)
{
    const uint8_t *end = value.data + value.len, *at = value.data;

    while (at < end) {
        const uint8_t *open = memchr(at, '<', (size_t)(end - at));
        const uint8_t *close = open ? memchr(open, '>', (size_t)(end - open)) : NULL;

        if (!close)
            return;
        const uint8_t *next = memchr(close, '<', (size_t)(end - close));
        const uint8_t *stop = next ? next : end;
        size_t n = (size_t)(stop - close);
        if (memmem(close, n, "rel=\"next\"", 10) || memmem(close, n, "rel=next", 8)) {
            headers->has_next = true;
            answer_cursor((struct dl_span){open + 1, (size_t)(close - open) - 1}, headers);
        }
        at = stop;
    }
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Behind a redirect: what the Hub has said of the file is true of it wherever its bytes lie. */
static void answer_begin(struct remote_headers *headers)
{
    struct remote_headers before = *headers;

    remote_headers_init(headers);
    if (before.status < 300 || before.status > 399)
        return;
    headers->linked_size = before.linked_size;
    memcpy(headers->linked_etag, before.linked_etag, sizeof before.linked_etag);
    memcpy(headers->commit, before.commit, sizeof before.commit);
}

/* "HTTP/1.1 206 …", "HTTP/2 206". */
static int answer_status(struct dl_span line, struct remote_headers *headers)
{
    const uint8_t *space = memchr(line.data, ' ', line.len);
    uint64_t status = 0;

    answer_begin(headers);
    if (!space)
        return -EBADMSG;
    struct dl_span rest = {space + 1, line.len - (size_t)(space + 1 - line.data)};
    if (!answer_take_number(&rest, &status) || status < 100 || status > 999)
        return -EBADMSG;
    headers->status = (int)status;
    return 0;
}

static int answer_field(struct dl_span name, struct dl_span value, struct remote_headers *h,
                        int64_t now)
{
    const struct {
        const char *name;
        char *to;
        size_t size;
    } texts[] = {
        {"etag", h->etag, sizeof h->etag},
        {"x-linked-etag", h->linked_etag, sizeof h->linked_etag},
        {"x-repo-commit", h->commit, sizeof h->commit},
        {"x-amz-bucket-region", h->region, sizeof h->region},
        {"x-error-message", h->words, sizeof h->words},
    };
#define IS(text) \
    (name.len == sizeof(text) - 1 && strncasecmp((const char *)name.data, text, name.len) == 0)

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (name.len == strlen(texts[i].name) &&
            strncasecmp((const char *)name.data, texts[i].name, name.len) == 0)
            answer_text(value, texts[i].to, texts[i].size);
    if (IS("content-length"))
        return answer_size(value, &h->length) ? 0 : -EBADMSG;
    if (IS("x-linked-size"))
        return answer_size(value, &h->linked_size) ? 0 : -EBADMSG;
    if (IS("content-range"))
        return answer_range(value, h) ? 0 : -EBADMSG;
    if (IS("last-modified"))
        h->modified = date_of_http(value);
    else if (IS("retry-after"))
        h->retry_after = answer_retry(value, now);
    else if (IS("content-encoding"))
        h->is_coded |= value.len > 0 && !(answer_take_text(&value, "identity") && value.len == 0);
    else if (IS("link"))
        answer_link(value, h);
#undef IS
    return 0;
}

int remote_headers_line(struct remote_headers *headers, const char *line, size_t len, int64_t now)
{
    struct dl_span whole = text_trim((struct dl_span){(const uint8_t *)line, len}), name = whole;
    struct dl_span probe = whole;

    if (answer_take_text(&probe, "HTTP/"))
        return answer_status(whole, headers);
    const uint8_t *colon = whole.len > 0 ? memchr(whole.data, ':', whole.len) : NULL;
    if (!colon)
        return 0;
    name.len = (size_t)(colon - whole.data);
    struct dl_span value = {colon + 1, whole.len - name.len - 1};
    return answer_field(name, text_trim(value), headers, now);
}

uint64_t remote_headers_size(const struct remote_headers *headers)
{
    if (headers->linked_size != REMOTE_UNKNOWN)
        return headers->linked_size;
    if (headers->total != REMOTE_UNKNOWN)
        return headers->total;
    return headers->status == 200 && !headers->is_coded ? headers->length : REMOTE_UNKNOWN;
}

const char *remote_headers_etag(const struct remote_headers *headers)
{
    return *headers->linked_etag ? headers->linked_etag : headers->etag;
}
