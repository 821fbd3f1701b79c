/*
 * A request of a transfer, as it is sent once: signed by the keys that there are now; and what
 * becomes of its answer.
 *
 * Main thread only.
 */
#ifndef DL_REMOTE_ATTEMPT_H
#define DL_REMOTE_ATTEMPT_H

#include "daemon/cluster/store/http.h"
#include "daemon/fetcher/keys.h"
#include "daemon/fetcher/transfers.h"

/* What sends them. */
struct attempt_means {
    struct http *http; /* borrowed, both */
    struct keys *keys;
    struct sigv4_crypto crypto;
    bool has_crypto;
    /* As http_request's; their owner is the attempt. */
    size_t (*some)(void *attempt, struct dl_span body);
    void (*done)(void *attempt, const struct http_answer *answer);
};

struct attempt {
    struct transfer *transfer;
    struct transfer_order order; /* what was left to ask for (partial.h) */
    struct http_call *call;      /* owned; NULL: it is not sent, or answered */
    struct remote_headers headers;
    char bad_line[80]; /* of the headers; "": none is */
    uint64_t came;     /* bytes of the body */
    bool is_signed;
    uint64_t keys; /* keys_number() of those that signed it */
};

/* 1: not before there are keys. */
int _nodiscard_ attempt_send(struct attempt *attempt, const struct attempt_means *means,
                             const struct transfer_order *order, struct dl_error *err);

/* 0, or a negative errno with `err`; -EAGAIN: another try may do it. */
int _nodiscard_ attempt_judge(const struct attempt *attempt, const struct http_answer *answer,
                              struct dl_error *err);
/* Of one that another try may better. */
enum remote_count attempt_cause(const struct http_answer *answer);
/* It is refused by keys that are others by now; `r`: as it was judged. */
bool attempt_has_old_keys(const struct attempt *attempt, const struct attempt_means *means, int r);

#endif
