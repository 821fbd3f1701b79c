/* Other nodes in the place of daemon/fetcher/peers.h: each call ends when the test says so. */
#ifndef DL_TEST_REMOTE_OTHERS_H
#define DL_TEST_REMOTE_OTHERS_H

#include "daemon/fetcher/peers.h"
#include "tests/lib/splitmix.h"
#include "tests/unit/remote_store.h"

struct peer_call {
    size_t i; /* object */
    uint64_t bytes, modified;
    uint64_t first, n;
    char etag[REMOTE_ETAG_MAX];
    peers_done *done;
    void *owner;
    struct peer_call *prev, *next;
};

struct peers {
    struct peer_call *list;
    uint32_t n;
    uint64_t random;
    uint64_t asked, brought, came;
};

static struct peers others;

struct peer_call *peers_ask(struct peers *peers, const struct object *object, uint64_t first,
                            uint64_t n, peers_done *done, void *owner)
{
    struct peer_call *call;

    if (!peers || next_random(&peers->random) % 4 == 0)
        return NULL;
    assert_true(n > 0 && first / 16 == (first + n - 1) / 16);
    assert_true(object->bytes != REMOTE_UNKNOWN || (first == 0 && n == 1));
    peers->asked++;
    call = must_alloc(sizeof *call);
    *call = (struct peer_call){.i = object_of(object->url),
                               .bytes = object->bytes,
                               .first = first,
                               .n = n,
                               .done = done,
                               .owner = owner};
    snprintf(call->etag, sizeof call->etag, "%s", object->etag);
    DL_APPEND(peers->list, call);
    peers->n++;
    return call;
}

void peers_bring(struct peers *peers, const struct object *object, uint64_t first,
                 struct dl_span data)
{
    assert_true(peers && *object->etag && data.len > 0 && first < object->n_blocks);
    peers->brought++;
}

void peers_bring_not(struct peers *peers, const struct object *object, uint64_t first, uint64_t n)
{
    (void)object, (void)first;
    assert_true(peers && n > 0);
}

bool peers_leave_to_other(const struct peers *peers, const struct object *object, uint64_t block)
{
    (void)object;
    return peers && block % 3 == 1;
}

bool peers_have_promised(const struct peers *peers, const struct object *object, uint64_t block)
{
    (void)object;
    return peers && block % 5 == 3;
}

void peers_came(struct peers *peers, const struct object *object, uint64_t first, uint64_t n)
{
    (void)object, (void)first, (void)n;
    if (peers)
        peers->came++;
}

struct peer_call *peer_call_cancel(struct peer_call *call)
{
    if (call) {
        DL_DELETE(others.list, call);
        others.n--;
        free(call);
    }
    return NULL;
}

#endif
