/* What an object is: its first bytes, which say its size, from the disk, another node or the store.
 * What the disk or another node has is given once the store says that it is still that one. */
#include "daemon/fetcher/fetch.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <stdio.h>

#include <utlist.h>
#include <xxhash.h>

enum { FETCH_TABLE_PART = 8 }; /* of the memory one object's table of blocks may have so much */

/* The etag of a web server is a file's size and second: other files of it have the same one. */
static uint64_t fetch_identity(const struct object *object, const char *etag, uint64_t bytes,
                               int64_t modified)
{
    uint64_t seed = bytes ^ (*etag ? 0 : (uint64_t)modified * 0x9e3779b97f4a7c15);

    seed = XXH3_64bits_withSeed(object->where, strlen(object->where), seed);
    return XXH3_64bits_withSeed(etag, strlen(etag), seed);
}

/* As much of them as are whole blocks, or the object's end. */
static void fetch_put_first(struct fetch *fetch, struct dl_span body)
{
    struct desk *desk = fetch->desk;
    struct object *object = fetch->object;
    uint64_t n = body.len == object->bytes ? object->n_blocks : body.len / REMOTE_BLOCK_BYTES;

    if (n == 0)
        return;
    body.len = object_bytes_of(object, 0, n);
    object_await(&desk->objects, object, 0, n);
    struct fetch *first = fetch_new(desk, object, 0, n, true);
    if ((first->for_disk = fetch->for_disk && !fetch->urgent))
        object_no_more_ahead(&desk->objects, object, 0, n);
    first->chain = fetch->chain;
    first->chain.blocks = n;
    fetch->chain = (struct chain){0};
    fetch_keep(first, body);
}

/* Of an object of no bytes there is no first one: 416. */
static uint64_t fetch_size(const struct transfer_result *result)
{
    uint64_t bytes = remote_headers_size(result->headers);

    if (result->headers->status == 416)
        return 0;
    return bytes == REMOTE_UNKNOWN && result->headers->status == 200 ? result->body.len : bytes;
}

/* What a server says is believed as far as there is memory to keep track of it. */
static bool fetch_can_track(const struct fetch *fetch, uint64_t bytes)
{
    return blocks_of(bytes) <= fetch->desk->objects.limit / FETCH_TABLE_PART / sizeof(struct block);
}

static int fetch_learn(const struct fetch *fetch, uint64_t bytes, const char *etag,
                       int64_t modified, struct dl_error *err)
{
    struct object *object = fetch->object;
    int r = object_learn(object, bytes, etag, modified);

    if (r < 0)
        return dl_error_set(err, -r, object->url, "its %llu bytes cannot be held: %s", (ull)bytes,
                            strerror(-r));
    object->identity = fetch_identity(object, etag, bytes, modified);
    return 0;
}

static int fetch_take_first(struct fetch *fetch, const struct transfer_result *result,
                            struct dl_error *err)
{
    const char *url = fetch->object->url;
    uint64_t bytes = fetch_size(result);

    if (bytes == REMOTE_UNKNOWN)
        return dl_error_set(err, EBADMSG, url, "the server does not say how many bytes it has");
    if (!fetch_can_track(fetch, bytes))
        return dl_error_set(err, EFBIG, url,
                            "the server says that it has %llu bytes, for which remote.held of "
                            "dloaderd.conf(5) is too little",
                            (ull)bytes);
    int r = fetch_learn(fetch, bytes, remote_headers_etag(result->headers),
                        result->headers->modified, err);
    if (r == 0 && bytes > 0)
        fetch_put_first(fetch, result->body);
    return r;
}

/* The store says that what another node gave is what it has. */
static int fetch_accept(const struct fetch *fetch, struct dl_error *err)
{
    const struct fetch_offer *offer = fetch->offer;
    int r = fetch_learn(fetch, offer->bytes, offer->etag, offer->modified, err);

    if (r < 0)
        return r;
    object_await(&fetch->desk->objects, fetch->object, 0, 1);
    struct fetch *first = fetch_new(fetch->desk, fetch->object, 0, 1, fetch->urgent);
    first->from_peer = true;
    fetch_keep(first, (struct dl_span){offer->data, offer->len});
    return 0;
}

/* Whether what the store says of a known object is that one. */
static bool fetch_is_same(const struct object *object, const struct transfer_result *result)
{
    const struct remote_headers *headers = result->headers;

    return headers->status == 304 ||
           fetch_identity(object, remote_headers_etag(headers), fetch_size(result),
                          headers->modified) == object->identity;
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

/* What its first bytes are not. */
static void fetch_go_on(const struct fetch *fetch)
{
    struct desk *desk = fetch->desk;
    bool for_disk = desk->for_disk;

    desk->for_disk = fetch->for_disk;
    desk_expect(desk, fetch->object, fetch->from, fetch->expected);
    desk->for_disk = for_disk;
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
        r = fetch_take_first(fetch, result, &err);
    peers_end_turn(desk->peers, &fetch->chain, object, 0); /* there is no whole block to bring */
    if (fetch_is_replaced(object, result)) {
        fetch_tell_replaced(desk, object);
    } else if (r < 0) {
        fetch_tell_failed(desk, object, 0, 0, r, &err);
    } else {
        object->checked = fetch->turn;
        kept_check(desk->kept, object);
        fetch_go_on(fetch);
        fetch_tell_done(desk, object, 0, 0);
        if (fetch->anew)
            desk_probe_expected(desk, object, 0, fetch->bytes, fetch->from, fetch->expected);
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

/* The store says its size together with the object's. */
static bool fetch_take_offer(struct fetch *fetch, const struct peer_result *result)
{
    if (result->data.len == 0 || !fetch_can_track(fetch, result->bytes))
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
    fetch->chain = result->chain;
    (void)fetch_take_offer(fetch, result);
    fetch_ask_first(fetch);
}

/* The object that the disk has is the one that the store had at that time. */
static void fetch_recall(struct fetch *fetch, const struct kept_result *result)
{
    struct desk *desk = fetch->desk;
    struct object *object = fetch->object;

    if (fetch_learn(fetch, result->bytes, result->etag, result->modified, NULL) < 0)
        return;
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
    fetch_go_on(fetch);
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
        fetch->call =
            peers_ask(desk->peers, object, 0, 1, &fetch->chain, fetch_on_first_offered, fetch);
    if (!fetch->call)
        fetch_ask_first(fetch);
}

static struct fetch *desk_find_probe(const struct object *object)
{
    struct fetch *fetch;

    DL_FOREACH (object->fetches, fetch)
        if (fetch->n == 0)
            break;
    return fetch;
}

bool object_is_probed(const struct object *object)
{
    return desk_find_probe(object) != NULL;
}

void desk_probe(struct desk *desk, struct object *object, uint64_t bytes)
{
    struct fetch *fetch = desk_find_probe(object);

    if (fetch) {
        fetch->urgent = true;
        if (fetch->transfer)
            transfer_hurry(fetch->transfer);
        return;
    }
    fetch = fetch_new(desk, object, 0, 0, true);
    fetch->bytes = bytes;
    fetch_probe(fetch);
}

void desk_probe_expected(struct desk *desk, struct object *object, uint64_t since, uint64_t bytes,
                         uint64_t first, uint64_t expected)
{
    struct fetch *fetch = desk_find_probe(object);
    bool is_new = !fetch;

    if (is_new) {
        fetch = fetch_new(desk, object, 0, 0, false);
        fetch->bytes = bytes;
    }
    fetch->from = first;
    fetch->expected = expected;
    fetch->anew |= fetch->turn < since;
    if (is_new)
        fetch_probe(fetch);
}
