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
    uint64_t asked, brought;
    int64_t turns; /* that have not ended */
};

static struct peers others;

/* All, some, or none are this one's turn. */
static struct chain others_chain(struct peers *peers, uint64_t n)
{
    const uint64_t ids[] = {1, 2, 3};
    struct chain chain;

    chain_begin(&chain, ids, 3, n);
    for (int i = 0; i < 3; i++)
        chain_take_absent(&chain, next_random(&peers->random) % 3 * REMOTE_BLOCK_BYTES,
                          next_random(&peers->random) % 2);
    peers->turns++;
    return chain;
}

struct peer_call *peers_ask(struct peers *peers, const struct object *object, uint64_t first,
                            uint64_t n, struct chain *ret, peers_done *done, void *owner)
{
    struct peer_call *call;

    *ret = (struct chain){0};
    if (!peers)
        return NULL;
    switch (next_random(&peers->random) % 8) {
    case 0:
        return NULL;
    case 1:
        *ret = others_chain(peers, 1 + next_random(&peers->random) % n);
        return NULL;
    }
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

enum store_terms peers_terms(const struct peers *peers, struct chain *chain,
                             const struct object *object, uint64_t first)
{
    if (chain->n == 0)
        return peers_leave_to_other(peers, object, first) ? STORE_COPY : STORE_BY_ORDER;
    return (enum store_terms)(first % 3);
}

void peers_bring(struct peers *peers, struct chain *chain, const struct object *object,
                 uint64_t first, struct dl_span data, uint64_t n_here)
{
    if (chain->n == 0 || n_here == blocks_of(data.len))
        return;
    assert_true(peers && *object->etag && data.len > 0 && first < object->n_blocks);
    assert_true(n_here < blocks_of(data.len));
    chain->blocks = n_here;
    peers->brought++;
    if (n_here == 0)
        peers_end_turn(peers, chain, object, first);
}

/* Each of them ends, once. */
void peers_end_turn(struct peers *peers, struct chain *chain, const struct object *object,
                    uint64_t first)
{
    (void)object, (void)first;
    if (peers && chain_has_turn(chain))
        peers->turns--;
    *chain = (struct chain){0};
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
