/*
 * What came of a body before it broke off: the next request asks for the rest, and no more. Only of
 * an object with an ETag, which the rest must have, too, and of a server that gives ranges.
 *
 * Main thread only. No I/O.
 */
#ifndef DL_REMOTE_PARTIAL_H
#define DL_REMOTE_PARTIAL_H

#include "daemon/fetcher/transfers.h"

struct partial { /* all zero: nothing came */
    struct dl_buffer bytes;
    uint64_t total; /* of the object */
    char etag[REMOTE_ETAG_MAX];
};

/* What is left to ask for of an order; borrows the ETag. */
struct transfer_order partial_rest(const struct partial *partial,
                                   const struct transfer_order *order);

/* What the answer to `asked`, which was left of `order`, brought before it broke off. */
void partial_keep(struct partial *partial, const struct transfer_order *order,
                  const struct transfer_order *asked, const struct remote_headers *headers,
                  struct dl_span body);

/* The whole: `body` is that of the answer to `asked`. Borrowed from either. */
struct dl_span partial_join(struct partial *partial, const struct transfer_order *order,
                            const struct transfer_order *asked, struct dl_span body);

void partial_forget(struct partial *partial);

#endif
