/* What is fetched: an object's blocks, from the disk, another node or the store. What the store
 * gives goes to disk first, if it is to be kept, and then to who waits: what somebody has got is
 * not fetched again after a crash. */
#include "daemon/fetcher/fetch.h"

#include "daemon/base/memory.h"

#include <errno.h>

#include <utlist.h>

enum { FETCH_BLOCKS = TRANSFER_BYTES_MAX / REMOTE_BLOCK_BYTES }; /* a group's, too (placement.h) */

/* It is not under way any more: who asks now begins another one. */
void fetch_unlink(struct fetch *fetch)
{
    DL_DELETE(fetch->object->fetches, fetch);
    DL_DELETE2(fetch->desk->fetches, fetch, before, after);
    fetch->transfer = NULL;
}

void fetch_free(struct fetch *fetch)
{
    object_leave(&fetch->desk->objects, fetch->object);
    free(fetch->offer);
    free(fetch);
}

/* ---- whom it concerns ----------------------------------------------------------------------- */

bool fetch_concerns(const struct asker *asker, const struct object *object, uint64_t first,
                    uint64_t n)
{
    if (asker->op == 0 || asker->object != object || asker->walk)
        return false;
    if (n == 0) /* what it is */
        return asker->op != REMOTE_NEED;
    return asker->first < first + n && first < asker->first + asker->n;
}

void fetch_tell_done(struct desk *desk, const struct object *object, uint64_t first, uint64_t n)
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

void fetch_tell_failed(struct desk *desk, const struct object *object, uint64_t first, uint64_t n,
                       int code, const struct dl_error *err)
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

struct fetch *fetch_new(struct desk *desk, struct object *object, uint64_t first, uint64_t n,
                        bool urgent)
{
    struct fetch *fetch = must_alloc(sizeof *fetch);

    fetch->desk = desk;
    fetch->object = object;
    fetch->first = first;
    fetch->n = n;
    fetch->urgent = urgent;
    fetch->for_disk = desk->for_disk;
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

static void fetch_leave_to_disk(const struct fetch *fetch)
{
    struct object *object = fetch->object;

    for (uint64_t i = fetch->first; i < fetch->first + fetch->n; i++)
        if (object->blocks[i].kept)
            object_drop(&fetch->desk->objects, object, i, 1);
}

/* Its blocks are here, or cannot be had. */
static void fetch_finish(struct fetch *fetch, int r, struct dl_span data,
                         const struct dl_error *err)
{
    struct desk *desk = fetch->desk;
    struct object *object = fetch->object;
    uint64_t first = fetch->first, n = fetch->n;

    fetch_unlink(fetch);
    peers_end_turn(desk->peers, &fetch->chain, object, first);
    if (r == 0)
        r = object_put(&desk->objects, object, first, data);
    if (r < 0) {
        object_give_up(&desk->objects, object, first, n);
        fetch_tell_failed(desk, object, first, n, r, err);
    } else {
        fetch_mark_kept(fetch);
        fetch_tell_done(desk, object, first, n);
        if (fetch->for_disk)
            fetch_leave_to_disk(fetch);
    }
    fetch_free(fetch);
}

static void fetch_on_written(void *owner, const struct kept_result *result)
{
    fetch_finish(owner, 0, result->data, NULL);
}

/* They came from the store, or another node. */
void fetch_keep(struct fetch *fetch, struct dl_span data)
{
    const struct desk *desk = fetch->desk;
    struct object *object = fetch->object;
    enum store_terms terms = STORE_COPY;
    uint64_t n;

    if (fetch->unread)
        kept_drop_blocks(desk->kept, object, fetch->first, fetch->n);
    if (!fetch->from_peer)
        terms = peers_terms(desk->peers, &fetch->chain, object, fetch->first);
    fetch->task =
        kept_write(desk->kept, object, fetch->first, data, terms, &n, fetch_on_written, fetch);
    if (!fetch->from_peer && terms != STORE_BY_ORDER)
        peers_bring(desk->peers, &fetch->chain, object, fetch->first, data,
                    terms == STORE_IF_ROOM ? n : 0);
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
    if (r < 0)
        fetch_finish(fetch, r, result->body, result->err);
    else
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

static void fetch_begin(struct fetch *fetch);

/* Those behind the first `n` begin by themselves. */
static void fetch_split(struct fetch *fetch, uint64_t n)
{
    if (n >= fetch->n)
        return;
    struct fetch *rest =
        fetch_new(fetch->desk, fetch->object, fetch->first + n, fetch->n - n, fetch->urgent);
    rest->for_disk = fetch->for_disk;
    fetch->n = n;
    fetch_begin(rest);
}

static void fetch_on_read(void *owner, const struct kept_result *result)
{
    struct fetch *fetch = owner;
    uint64_t n = blocks_of(result->data.len);
    bool again = n == 0 && !fetch->unread;

    fetch->task = NULL;
    fetch_split(fetch, max_u64(n, 1));
    fetch->from_disk = n > 0;
    fetch->unread = n == 0;
    if (fetch->from_disk)
        fetch_finish(fetch, 0, result->data, NULL);
    else if (again) /* the right one may have come while another was read */
        fetch_begin(fetch);
    else
        fetch_ask_peer(fetch);
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
    fetch->chain = result->chain;
    fetch->from_peer = result->data.len > 0;
    if (fetch->from_peer)
        fetch_keep(fetch, result->data);
    else
        fetch_ask_blocks(fetch);
}

static void fetch_ask_peer(struct fetch *fetch)
{
    fetch->call = peers_ask(fetch->desk->peers, fetch->object, fetch->first, fetch->n,
                            &fetch->chain, fetch_on_peer, fetch);
    if (fetch->call)
        return;
    if (fetch->chain.n > 0)
        fetch_split(fetch, fetch->chain.blocks);
    fetch_ask_blocks(fetch);
}

/* Where a block is to be had. */
enum fetch_source { FETCH_KEPT, FETCH_PROMISED, FETCH_ELSEWHERE };

static enum fetch_source fetch_source_of(const struct fetch *fetch, uint64_t block)
{
    const struct desk *desk = fetch->desk;

    if (kept_has(desk->kept, fetch->object, block))
        return FETCH_KEPT;
    return peers_have_promised(desk->peers, fetch->object, block) ? FETCH_PROMISED
                                                                  : FETCH_ELSEWHERE;
}

/* Its blocks are all coming. Those of one source are asked for together. */
static void fetch_begin(struct fetch *fetch)
{
    const struct desk *desk = fetch->desk;
    const struct object *object = fetch->object;
    enum fetch_source source = fetch_source_of(fetch, fetch->first);
    uint64_t n = 1;

    while (n < fetch->n && fetch_source_of(fetch, fetch->first + n) == source)
        n++;
    fetch_split(fetch, n);
    if (source == FETCH_KEPT)
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

    blocks_touch(&desk->objects, object, first, n);
    if (urgent)
        fetch_hurry(object, first, n);
    else if (!objects_have_room(&desk->objects, object_lacks(object, first, n)))
        return;
    for (uint64_t at = first, run; at < end; at += max_u64(run, 1)) {
        run = desk_run(desk, object, at, end);
        if (run == 0)
            continue;
        object_await(&desk->objects, object, at, run);
        if (desk->for_disk)
            object_no_more_ahead(&desk->objects, object, at, run);
        fetch_begin(fetch_new(desk, object, at, run, urgent));
    }
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
