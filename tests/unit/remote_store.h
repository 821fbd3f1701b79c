/*
 * A store of objects behind daemon/fetcher/transfers.h, in memory: each transfer ends when the test
 * says so. An object is at s3://bucket/ and its number; its version is its ETag and its date, and
 * what its bytes depend on.
 */
#ifndef DL_TEST_REMOTE_STORE_H
#define DL_TEST_REMOTE_STORE_H

#include "daemon/base/memory.h"
#include "daemon/fetcher/objects.h"
#include "daemon/fetcher/transfers.h"
#include "tests/unit/remote_case.h"

#include <stdio.h>

#include <utlist.h>

enum { STORE_ROOM = 5 }; /* transfers, with which none is begun that nobody needs soon */

struct transfer {
    struct transfer_order order;
    struct transfer *prev, *next;
};

struct transfers {
    struct remote_tally tally;
    struct remote_settings settings;
    struct transfer *list;
    uint32_t n;
};

static struct transfers store;

static void store_begin(void)
{
    static const char *const env[] = {"AWS_ENDPOINT_URL=http://127.0.0.1:9", NULL};

    store = (struct transfers){.settings = settings_of(env)};
}

const struct remote_settings *transfers_settings(const struct transfers *transfers)
{
    return &transfers->settings;
}

int transfers_check(const struct transfers *transfers, struct dl_error *err)
{
    (void)transfers;
    (void)err;
    return 0;
}

struct remote_tally *transfers_tally(const struct transfers *transfers)
{
    return (struct remote_tally *)&transfers->tally;
}

void transfers_tell(const struct transfers *transfers)
{
    (void)transfers;
}

uint64_t transfers_guess(const struct transfers *transfers, uint64_t asked)
{
    (void)transfers;
    return min_u64(asked, REMOTE_BLOCK_BYTES);
}

bool transfers_have_room(const struct transfers *transfers)
{
    return transfers->n < STORE_ROOM;
}

struct transfer *transfers_begin(struct transfers *transfers, const struct transfer_order *order)
{
    struct transfer *transfer = must_alloc(sizeof *transfer);

    transfer->order = *order;
    DL_APPEND(transfers->list, transfer);
    transfers->n++;
    return transfer;
}

void transfer_hurry(struct transfer *transfer)
{
    transfer->order.urgent = true;
}

struct transfer *transfer_cancel(struct transfer *transfer)
{
    if (transfer) {
        DL_DELETE(store.list, transfer);
        store.n--;
        free(transfer);
    }
    return NULL;
}

static size_t _unused_ object_of(const char *url)
{
    return (size_t)(url[strlen("s3://bucket/")] - '0');
}

/* ---- what comes of them -------------------------------------------------------------------- */

static void end_transfer(struct transfer *transfer, const struct transfer_result *result)
{
    struct transfer_order order = transfer->order;

    transfer_cancel(transfer);
    order.done(order.owner, result);
}

static void fail_transfer(struct transfer *transfer, int code)
{
    struct dl_error err = {0};

    (void)dl_error_set(&err, -code, transfer->order.place->url, "the test's store says so");
    end_transfer(transfer, &(struct transfer_result){.code = code, .err = &err});
}

static uint8_t content_at(size_t i, uint64_t version, uint64_t at)
{
    return (uint8_t)(at / REMOTE_BLOCK_BYTES * 7 + i * 31 + version * 101);
}

/* Of object `i`, which has that version and size. */
static void give_bytes(struct transfer *transfer, size_t i, uint64_t version, uint64_t size)
{
    static uint8_t content[TRANSFER_BYTES_MAX];
    const struct transfer_order *order = &transfer->order;
    uint64_t last = min_u64(order->last + 1, size), first = min_u64(order->first, last);
    struct remote_headers headers;

    remote_headers_init(&headers);
    headers.status = size == 0 ? 416 : 206;
    headers.total = size;
    headers.modified = (int64_t)version;
    snprintf(headers.etag, sizeof headers.etag, "\"%llu\"", (unsigned long long)version);
    if (order->etag && *order->etag && strcmp(order->etag, headers.etag) != 0) {
        fail_transfer(transfer, -ESTALE);
        return;
    }
    if (order->unless && strcmp(order->unless, headers.etag) == 0) {
        headers.status = 304;
        last = first;
    }
    for (uint64_t at = first; at < last; at += REMOTE_BLOCK_BYTES)
        memset(content + (at - first), content_at(i, version, at),
               min_u64(REMOTE_BLOCK_BYTES, last - at));
    end_transfer(transfer,
                 &(struct transfer_result){.headers = &headers, .body = {content, last - first}});
}

#endif
