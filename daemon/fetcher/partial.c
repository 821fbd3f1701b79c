#include "daemon/fetcher/partial.h"

#include "daemon/base/memory.h"

#include <stdio.h>

struct transfer_order partial_rest(const struct partial *partial,
                                   const struct transfer_order *order)
{
    struct transfer_order rest = *order;

    if (partial->bytes.len > 0) {
        rest.first += partial->bytes.len;
        rest.total = partial->total;
        rest.etag = partial->etag;
    }
    return rest;
}

/* Behind what came before it was asked for, in the place of what came since. */
static void partial_put(struct partial *partial, uint64_t at, struct dl_span body)
{
    partial->bytes.len = at;
    must_append(&partial->bytes, body.data, body.len);
}

void partial_keep(struct partial *partial, const struct transfer_order *order,
                  const struct transfer_order *asked, const struct remote_headers *headers,
                  struct dl_span body)
{
    const struct remote_range range = {asked->first, asked->last, asked->total, asked->etag};
    const char *etag = remote_headers_etag(headers);
    uint64_t at = asked->first - order->first, len;

    if (asked->page || (asked->unless && *asked->unless) || !*etag ||
        headers->first == REMOTE_UNKNOWN || headers->total == REMOTE_UNKNOWN ||
        remote_bytes_check(asked->place, headers, &range, &len, NULL) < 0)
        return;
    if (body.len >= len || at + body.len <= partial->bytes.len)
        return;
    partial_put(partial, at, body);
    partial->total = headers->total;
    (void)snprintf(partial->etag, sizeof partial->etag, "%s", etag);
}

struct dl_span partial_join(struct partial *partial, const struct transfer_order *order,
                            const struct transfer_order *asked, struct dl_span body)
{
    if (asked->first == order->first)
        return body;
    partial_put(partial, asked->first - order->first, body);
    return (struct dl_span){partial->bytes.data, partial->bytes.len};
}

void partial_forget(struct partial *partial)
{
    buffer_deinit(&partial->bytes);
}
