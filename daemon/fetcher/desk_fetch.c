/* What is fetched: an object's first bytes, which say its size, and its blocks, from the disk,
 * another node or the store. What the store gives goes to disk first, if it is to be kept, and then
 * to who waits: what somebody has got is not fetched again after a crash. */
#include "daemon/fetcher/desk_private.h"

#include "daemon/serve/base/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include <utlist.h>
#include <xxhash.h>

enum {
    FETCH_BLOCKS = TRANSFER_BYTES_MAX / REMOTE_BLOCK_BYTES, /* a group's, too (placement.h) */
    FETCH_TABLE_PART = 8, /* of the memory one object's table of blocks may have so much */
};

/* Of one object, under way. */
struct fetch {
    struct desk *desk;
    struct object *object;        /* used */
    struct transfer *transfer;    /* at most one of these three */
    struct kept_task *task;       /* at the disk */
    struct peer_call *call;       /* at another node */
    struct fetch_offer *offer;    /* owned; what that gave of an object that was not known */
    bool wanted;                  /* that node's: it gets what the store gives */
    bool urgent;                  /* somebody waits for it */
    bool from_disk, from_peer;    /* its blocks came from there */
    uint64_t first, n;            /* blocks; n 0: its first bytes, */
    uint64_t bytes;               /* so many, if it is not known */
    uint64_t turn;                /* asked for then: desk->turn */
    struct fetch *prev, *next;    /* object->fetches */
    struct fetch *before, *after; /* desk->fetches */
};

/* The first block of an object that another node has, until the store says whether it is that one.
 */
struct fetch_offer {
    uint64_t bytes;
    char etag[REMOTE_ETAG_MAX];
    int64_t modified;
    size_t len;
    uint8_t data[];
};

/* It is not under way any more: who asks now begins another one. */
static void fetch_unlink(struct fetch *fetch)
{
    DL_DELETE(fetch->object->fetches, fetch);
    DL_DELETE2(fetch->desk->fetches, fetch, before, after);
    fetch->transfer = NULL;
}

static void fetch_free(struct fetch *fetch)
{
    object_leave(&fetch->desk->objects, fetch->object);
    free(fetch->offer);
    free(fetch);
}

/* ---- whom it concerns ----------------------------------------------------------------------- */

static bool fetch_concerns(const struct asker *asker, const struct object *object, uint64_t first,
                           uint64_t n)
{
    if (asker->op == 0 || asker->object != object || asker->walk)
        return false;
    if (n == 0) /* what it is */
        return asker->op != REMOTE_NEED;
    return asker->first < first + n && first < asker->first + asker->n;
}

static void fetch_tell_done(struct desk *desk, const struct object *object, uint64_t first,
                            uint64_t n)
{
    struct asker *asker, *next;

    DL_FOREACH_SAFE (desk->askers, asker, next) {
        if (fetch_concerns(asker, object, first, n))
            asker_serve(asker);
    }
}

/* What is no object may be a directory: then something begins with its name and a slash. */
static bool fetch_may_be_directory(const struct asker *asker, int code)
{
    return asker->op == REMOTE_STAT && (code == -ENOENT || code == -EINVAL) &&
           asker->object->place.kind != REMOTE_HTTP;
}

static void fetch_tell_failed(struct desk *desk, const struct object *object, uint64_t first,
                              uint64_t n, int code, const struct dl_error *err)
{
    struct asker *asker, *next;

    DL_FOREACH_SAFE (desk->askers, asker, next) {
        if (!fetch_concerns(asker, object, first, n))
            continue;
        if (n == 0 && fetch_may_be_directory(asker, code))
            desk_list(asker, object->url, true);
        else
            asker_refuse(asker, code, err);
    }
}

/* ---- blocks --------------------------------------------------------------------------------- */

static struct fetch *fetch_new(struct desk *desk, struct object *object, uint64_t first, uint64_t n,
                               bool urgent)
{
    struct fetch *fetch = must_alloc(sizeof *fetch);

    fetch->desk = desk;
    fetch->object = object;
    fetch->first = first;
    fetch->n = n;
    fetch->urgent = urgent;
    object_use(object);
    fetch->turn = ++desk->turn;
    DL_APPEND(object->fetches, fetch);
    DL_APPEND2(desk->fetches, fetch, before, after);
    return fetch;
}

static void fetch_mark_kept(const struct fetch *fetch)
{
    const struct object *object = fetch->object;

    for (uint64_t i = fetch->first; i < fetch->first + fetch->n; i++) {
        object->blocks[i].kept = kept_has(fetch->desk->kept, object, i);
        object->blocks[i].from_disk = fetch->from_disk;
        object->blocks[i].from_peer = fetch->from_peer;
    }
    if (fetch->first == 0)
        kept_check(fetch->desk->kept, object);
}

/* Its blocks are here, or cannot be had. */
static void fetch_finish(struct fetch *fetch, int r, struct dl_span data,
                         const struct dl_error *err)
{
    struct desk *desk = fetch->desk;
    struct object *object = fetch->object;
    uint64_t first = fetch->first, n = fetch->n;

    fetch_unlink(fetch);
    peers_came(desk->peers, object, first, n);
    if (r == 0)
        r = object_put(&desk->objects, object, first, data);
    if (r < 0) {
        object_give_up(&desk->objects, object, first, n);
        fetch_tell_failed(desk, object, first, n, r, err);
    } else {
        fetch_mark_kept(fetch);
        fetch_tell_done(desk, object, first, n);
    }
    fetch_free(fetch);
}

static void fetch_on_written(void *owner, const struct kept_result *result)
{
    fetch_finish(owner, 0, result->data, NULL);
}

/* They came from the store, or another node. */
static void fetch_keep(struct fetch *fetch, struct dl_span data)
{
    fetch->task =
        kept_write(fetch->desk->kept, fetch->object, fetch->first, data, fetch_on_written, fetch);
    if (!fetch->task)
        fetch_finish(fetch, 0, data, NULL);
}

static void fetch_on_blocks(void *owner, const struct transfer_result *result)
{
    struct fetch *fetch = owner;
    int r = result->code;

    fetch->transfer = NULL;
    if (r == 0 && result->body.len != object_bytes_of(fetch->object, fetch->first, fetch->n))
        r = -EBADMSG;
    if (r < 0) {
        fetch_finish(fetch, r, result->body, result->err);
        return;
    }
    if (fetch->wanted)
        peers_bring(fetch->desk->peers, fetch->object, fetch->first, result->body);
    fetch_keep(fetch, result->body);
}

static void fetch_ask_blocks(struct fetch *fetch)
{
    const struct object *object = fetch->object;
    uint64_t begin = fetch->first * REMOTE_BLOCK_BYTES;
    uint64_t bytes = object_bytes_of(object, fetch->first, fetch->n);

    fetch->transfer =
        transfers_begin(fetch->desk->transfers, &(struct transfer_order){.place = &object->place,
                                                                         .first = begin,
                                                                         .last = begin + bytes - 1,
                                                                         .total = object->bytes,
                                                                         .etag = object->etag,
                                                                         .unless = "",
                                                                         .urgent = fetch->urgent,
                                                                         .done = fetch_on_blocks,
                                                                         .owner = fetch});
}

static void fetch_ask_peer(struct fetch *fetch);

static void fetch_on_read(void *owner, const struct kept_result *result)
{
    struct fetch *fetch = owner;

    fetch->task = NULL;
    fetch->from_disk = result->data.len > 0;
    if (fetch->from_disk)
        fetch_finish(fetch, 0, result->data, NULL);
    else
        fetch_ask_peer(fetch);
}

static void fetch_begin(struct fetch *fetch);

/* Those behind the first `n` begin by themselves. */
static void fetch_split(struct fetch *fetch, uint64_t n)
{
    if (n >= fetch->n)
        return;
    struct fetch *rest =
        fetch_new(fetch->desk, fetch->object, fetch->first + n, fetch->n - n, fetch->urgent);
    fetch->n = n;
    fetch_begin(rest);
}

static void fetch_on_peer(void *owner, const struct peer_result *result)
{
    struct fetch *fetch = owner;

    fetch->call = NULL;
    if (result->again) {
        fetch_begin(fetch);
        return;
    }
    fetch_split(fetch, result->n);
    fetch->wanted = result->wanted;
    fetch->from_peer = result->data.len > 0;
    if (fetch->from_peer)
        fetch_keep(fetch, result->data);
    else
        fetch_ask_blocks(fetch);
}

static void fetch_ask_peer(struct fetch *fetch)
{
    fetch->call =
        peers_ask(fetch->desk->peers, fetch->object, fetch->first, fetch->n, fetch_on_peer, fetch);
    if (!fetch->call)
        fetch_ask_blocks(fetch);
}

/* Its blocks are all coming. */
static void fetch_begin(struct fetch *fetch)
{
    struct desk *desk = fetch->desk;
    const struct object *object = fetch->object;
    bool is_kept = kept_has(desk->kept, object, fetch->first);
    uint64_t n = 1;

    while (n < fetch->n && kept_has(desk->kept, object, fetch->first + n) == is_kept)
        n++;
    fetch_split(fetch, n);
    if (is_kept)
        fetch->task = kept_read(desk->kept, object, fetch->first, n, fetch_on_read, fetch);
    else
        fetch_ask_peer(fetch);
}

static void fetch_hurry(const struct object *object, uint64_t first, uint64_t n)
{
    struct fetch *fetch;

    DL_FOREACH (object->fetches, fetch) {
        if (fetch->first >= first + n || first >= fetch->first + fetch->n)
            continue;
        fetch->urgent = true;
        if (fetch->transfer)
            transfer_hurry(fetch->transfer);
    }
}

/* How many blocks from `at` on are absent; where there are other nodes, of one group, which one of
 * them owns. */
static uint64_t desk_run(const struct desk *desk, const struct object *object, uint64_t at,
                         uint64_t end)
{
    uint64_t begin = at;

    end = min_u64(end, at - (desk->peers ? at % FETCH_BLOCKS : 0) + FETCH_BLOCKS);
    while (at < end && object->blocks[at].state == BLOCK_ABSENT)
        at++;
    return at - begin;
}

void desk_want(struct desk *desk, struct object *object, uint64_t first, uint64_t n, bool urgent)
{
    uint64_t end = first + n;

    if (urgent)
        fetch_hurry(object, first, n);
    else if (!objects_have_room(&desk->objects, object_lacks(object, first, n)))
        return;
    for (uint64_t at = first, run; at < end; at += max_u64(run, 1)) {
        run = desk_run(desk, object, at, end);
        if (run == 0)
            continue;
        object_await(&desk->objects, object, at, run);
        fetch_begin(fetch_new(desk, object, at, run, urgent));
    }
}

/* ---- first bytes ---------------------------------------------------------------------------- */

static uint64_t fetch_identity(const char *etag, uint64_t bytes, int64_t modified)
{
    uint64_t seed = bytes ^ (*etag ? 0 : (uint64_t)modified * 0x9e3779b97f4a7c15);

    return XXH3_64bits_withSeed(etag, strlen(etag), seed);
}

/* As much of them as are whole blocks, or the object's end. */
static void fetch_put_first(struct desk *desk, struct object *object, struct dl_span body,
                            bool wanted)
{
    uint64_t n = body.len == object->bytes ? object->n_blocks : body.len / REMOTE_BLOCK_BYTES;

    if (n == 0)
        return;
    body.len = object_bytes_of(object, 0, n);
    if (wanted)
        peers_bring(desk->peers, object, 0, body);
    object_await(&desk->objects, object, 0, n);
    fetch_keep(fetch_new(desk, object, 0, n, true), body);
}

/* Of an object of no bytes there is no first one: 416. */
static uint64_t fetch_size(const struct transfer_result *result)
{
    uint64_t bytes = remote_headers_size(result->headers);

    if (result->headers->status == 416)
        return 0;
    return bytes == REMOTE_UNKNOWN && result->headers->status == 200 ? result->body.len : bytes;
}

static int fetch_learn(const struct fetch *fetch, const struct transfer_result *result,
                       struct dl_error *err)
{
    struct desk *desk = fetch->desk;
    struct object *object = fetch->object;
    const char *etag = remote_headers_etag(result->headers);
    uint64_t bytes = fetch_size(result);
    int r;

    if (bytes == REMOTE_UNKNOWN)
        return dl_error_set(err, EBADMSG, object->url,
                            "the server does not say how many bytes it has");
    /* What a server says is believed as far as there is memory to keep track of it. */
    if (blocks_of(bytes) > desk->objects.limit / FETCH_TABLE_PART / sizeof(struct block))
        return dl_error_set(err, EFBIG, object->url,
                            "the server says that it has %llu bytes, for which remote.held of "
                            "dloaderd.conf(5) is too little",
                            (unsigned long long)bytes);
    r = object_learn(object, bytes, etag, result->headers->modified);
    if (r < 0)
        return dl_error_set(err, -r, object->url, "its %llu bytes cannot be held: %s",
                            (unsigned long long)bytes, strerror(-r));
    object->identity = fetch_identity(etag, bytes, result->headers->modified);
    if (bytes > 0)
        fetch_put_first(desk, object, result->body, fetch->wanted || fetch->offer);
    return 0;
}

/* The store says that what another node gave is what it has. */
static int fetch_accept(const struct fetch *fetch, struct dl_error *err)
{
    struct desk *desk = fetch->desk;
    struct object *object = fetch->object;
    const struct fetch_offer *offer = fetch->offer;
    int r = object_learn(object, offer->bytes, offer->etag, offer->modified);

    if (r < 0)
        return dl_error_set(err, -r, object->url, "its %llu bytes cannot be held: %s",
                            (unsigned long long)offer->bytes, strerror(-r));
    object->identity = fetch_identity(offer->etag, offer->bytes, offer->modified);
    object_await(&desk->objects, object, 0, 1);
    struct fetch *first = fetch_new(desk, object, 0, 1, fetch->urgent);
    first->from_peer = true;
    fetch_keep(first, (struct dl_span){offer->data, offer->len});
    return 0;
}

/* Whether what the store says of a known object is that one. */
static bool fetch_is_same(const struct object *object, const struct transfer_result *result)
{
    const struct remote_headers *headers = result->headers;

    return headers->status == 304 ||
           fetch_identity(remote_headers_etag(headers), fetch_size(result), headers->modified) ==
               object->identity;
}

static void fetch_tell_replaced(struct desk *desk, struct object *object)
{
    struct asker *asker, *next;

    kept_drop(desk->kept, object);
    objects_replace(&desk->objects, object);
    DL_FOREACH_SAFE (desk->askers, asker, next) {
        if (fetch_concerns(asker, object, 0, 0))
            asker_ask_again(asker);
    }
}

/* What is no more there is another one, too: who asks hears why. */
static bool fetch_is_replaced(const struct object *object, const struct transfer_result *result)
{
    if (object->bytes == REMOTE_UNKNOWN || object->replaced)
        return false;
    return result->code == 0 ? !fetch_is_same(object, result) : result->code == -ENOENT;
}

static void fetch_on_first(void *owner, const struct transfer_result *result)
{
    struct fetch *fetch = owner;
    struct desk *desk = fetch->desk;
    struct object *object = fetch->object;
    struct dl_error err = {0};
    int r = result->code;

    fetch_unlink(fetch);
    if (r < 0)
        err = *result->err;
    else if (object->bytes == REMOTE_UNKNOWN && fetch->offer && result->headers->status == 304)
        r = fetch_accept(fetch, &err);
    else if (object->bytes == REMOTE_UNKNOWN)
        r = fetch_learn(fetch, result, &err);
    if (r < 0)
        peers_came(desk->peers, object, 0, 1);
    if (fetch_is_replaced(object, result)) {
        fetch_tell_replaced(desk, object);
    } else if (r < 0) {
        fetch_tell_failed(desk, object, 0, 0, r, &err);
    } else {
        object->checked = fetch->turn;
        kept_check(desk->kept, object);
        fetch_tell_done(desk, object, 0, 0);
    }
    fetch_free(fetch);
}

static void fetch_ask_first(struct fetch *fetch)
{
    const struct object *object = fetch->object;
    bool is_known = object->bytes != REMOTE_UNKNOWN;

    fetch->transfer = transfers_begin(
        fetch->desk->transfers,
        &(struct transfer_order){.place = &object->place,
                                 .last = is_known ? 0 : fetch->bytes - 1,
                                 .total = REMOTE_UNKNOWN,
                                 .etag = "",
                                 .unless = fetch->offer ? fetch->offer->etag : object->etag,
                                 .urgent = fetch->urgent,
                                 .done = fetch_on_first,
                                 .owner = fetch});
}

/* Whose size is told by the store, with the object's own. */
static bool fetch_take_offer(struct fetch *fetch, const struct peer_result *result)
{
    const struct desk *desk = fetch->desk;

    if (result->data.len == 0 ||
        blocks_of(result->bytes) > desk->objects.limit / FETCH_TABLE_PART / sizeof(struct block))
        return false;
    fetch->offer = must_alloc(sizeof *fetch->offer + result->data.len);
    fetch->offer->bytes = result->bytes;
    snprintf(fetch->offer->etag, sizeof fetch->offer->etag, "%s", result->etag);
    fetch->offer->modified = result->modified;
    fetch->offer->len = result->data.len;
    memcpy(fetch->offer->data, result->data.data, result->data.len);
    return true;
}

static void fetch_probe(struct fetch *fetch);

static void fetch_on_first_offered(void *owner, const struct peer_result *result)
{
    struct fetch *fetch = owner;

    fetch->call = NULL;
    if (result->again) {
        fetch_probe(fetch);
        return;
    }
    fetch->wanted = !fetch_take_offer(fetch, result) && result->wanted;
    fetch_ask_first(fetch);
}

/* The object that the disk has is the one that the store had at that time. */
static void fetch_recall(struct fetch *fetch, const struct kept_result *result)
{
    struct desk *desk = fetch->desk;
    struct object *object = fetch->object;

    if (object_learn(object, result->bytes, result->etag, result->modified) < 0)
        return;
    object->identity = fetch_identity(result->etag, result->bytes, result->modified);
    object->checked = result->checked;
    object_await(&desk->objects, object, 0, 1);
    if (object_put(&desk->objects, object, 0, result->data) < 0)
        object_give_up(&desk->objects, object, 0, 1);
    else
        object->blocks[0].kept = object->blocks[0].from_disk = true;
}

/* No worker has any of it before the store has said to this process, since the worker came, that it
 * is still that one: by that the right to read it is proven, too. */
static void fetch_on_recalled(void *owner, const struct kept_result *result)
{
    struct fetch *fetch = owner;
    struct desk *desk = fetch->desk;
    struct object *object = fetch->object;

    fetch->task = NULL;
    if (result->data.len > 0)
        fetch_recall(fetch, result);
    if (object->bytes == REMOTE_UNKNOWN || object->checked < desk->newest) {
        fetch_ask_first(fetch);
        return;
    }
    fetch_unlink(fetch);
    fetch_tell_done(desk, object, 0, 0);
    fetch_free(fetch);
}

/* Another node is asked for a whole block alone: less of the object is not kept. */
static void fetch_probe(struct fetch *fetch)
{
    const struct desk *desk = fetch->desk;
    struct object *object = fetch->object;
    bool is_known = object->bytes != REMOTE_UNKNOWN;

    if (!is_known && kept_has(desk->kept, object, 0)) {
        fetch->task = kept_read(desk->kept, object, 0, 1, fetch_on_recalled, fetch);
        return;
    }
    if (!is_known && fetch->bytes >= REMOTE_BLOCK_BYTES)
        fetch->call = peers_ask(desk->peers, object, 0, 1, fetch_on_first_offered, fetch);
    if (!fetch->call)
        fetch_ask_first(fetch);
}

void desk_probe(struct desk *desk, struct object *object, uint64_t bytes, bool urgent)
{
    struct fetch *fetch;

    DL_FOREACH (object->fetches, fetch) {
        if (fetch->n > 0)
            continue;
        fetch->urgent |= urgent;
        if (urgent && fetch->transfer)
            transfer_hurry(fetch->transfer);
        return;
    }
    fetch = fetch_new(desk, object, 0, 0, urgent);
    fetch->bytes = bytes;
    fetch_probe(fetch);
}

void desk_stop(struct desk *desk)
{
    struct fetch *fetch, *next;

    for (fetch = desk->fetches; fetch; fetch = next) {
        next = fetch->after;
        transfer_cancel(fetch->transfer);
        kept_cancel(fetch->task);
        peer_call_cancel(fetch->call);
        if (fetch->n > 0)
            object_give_up(&desk->objects, fetch->object, fetch->first, fetch->n);
        fetch_unlink(fetch);
        fetch_free(fetch);
    }
}
