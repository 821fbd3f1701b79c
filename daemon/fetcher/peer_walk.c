/* Along the chain of a block: who has it is asked, and who keeps it gets it (chain.h). */
#include "daemon/fetcher/peers_private.h"

#include "daemon/base/memory.h"

/* ---- the turn ------------------------------------------------------------------------------- */

static void peer_take_nothing(struct peer_call *call, int status, struct dl_span body)
{
    (void)status, (void)body;
    peer_call_free(call);
}

/* Those that wait for these blocks, at the node that gave the turn, ask again. */
static void peer_turn_end(struct peers *peers, const struct chain *chain,
                          const struct peer_ask *ask, uint64_t first, uint64_t n)
{
    struct peer_ask ended = *ask;
    uint64_t id;

    if (!chain_has_turn(chain) || n == 0)
        return;
    id = chain->nodes[chain->turn].id;
    if (peers_is_self(peers, id)) {
        promises_end(peers->promises, ask->where, first, n);
        return;
    }
    ended.method = PEER_DELETE;
    ended.first = first;
    ended.n = n;
    struct peer_call *call = peer_call_new(peers, &ended);
    call->take = peer_take_nothing;
    if (!peer_call_begin(call, id))
        peer_call_free(call);
}

/* Its text is borrowed. */
static struct peer_ask peers_ask_of(const struct object *object, uint64_t first, uint64_t n)
{
    bool known = object->bytes != REMOTE_UNKNOWN;
    struct peer_ask ask = {.first = first,
                           .n = n,
                           .bytes = known ? object->bytes : 0,
                           .modified = known ? object->modified : -1,
                           .where = object->where};

    if (known)
        memcpy(ask.etag, object->etag, sizeof ask.etag);
    return ask;
}

void peers_end_turn(struct peers *peers, struct chain *chain, const struct object *object,
                    uint64_t first)
{
    struct peer_ask ask = peers_ask_of(object, first, chain->blocks);

    if (peers)
        peer_turn_end(peers, chain, &ask, first, chain->blocks);
    *chain = (struct chain){0};
}

/* ---- asking --------------------------------------------------------------------------------- */

/* The answer is of the object that was asked for, and as long as it says. */
static bool peer_call_fits(const struct peer_call *call, struct dl_span body)
{
    const struct peer_answer *answer = &call->answer;
    struct peer_ask given = {.first = call->ask.first, .n = answer->n, .bytes = answer->bytes};

    if (answer->n == 0 || answer->n > call->ask.n || !*answer->etag || answer->bytes > INT64_MAX ||
        (given.first + given.n - 1) * REMOTE_BLOCK_BYTES >= given.bytes)
        return false;
    if (call->ask.bytes &&
        (call->ask.bytes != answer->bytes || strcmp(call->ask.etag, answer->etag) != 0))
        return false;
    return body.len == peer_ask_bytes(&given);
}

/* Of the blocks only the first `n` are meant from now on. */
static void peer_ask_trim(struct peer_call *call, uint64_t n)
{
    struct peer_ask *ask = &call->ask;

    if (n >= ask->n)
        return;
    peer_turn_end(call->peers, &call->chain, ask, ask->first + n, ask->n - n);
    ask->n = call->chain.blocks = n;
}

static void peer_ask_end(struct peer_call *call, struct peer_result result)
{
    if (result.again || result.data.len > 0)
        peer_turn_end(call->peers, &call->chain, &call->ask, call->ask.first, call->ask.n);
    call->done(call->owner, &result);
    peer_call_free(call);
}

static void peer_ask_on_promise_over(void *owner)
{
    struct peer_call *call = owner;

    call->wait = NULL;
    peer_ask_end(call, (struct peer_result){.n = call->ask.n, .again = true});
}

/* Blocks, one after another, that are not here; nor promised, if this node gives the turn. */
static uint64_t peer_ask_run_here(const struct peer_call *call, const struct object *object)
{
    const struct peers *peers = call->peers;
    const struct peer_ask *ask = &call->ask;
    bool gives = !chain_has_turn(&call->chain);
    uint64_t n = 1;

    while (n < ask->n && !kept_has(peers->kept, object, ask->first + n) &&
           !(gives && promises_have(peers->promises, ask->where, ask->first + n)))
        n++;
    return n;
}

enum peer_walk { WALK_OVER, WALK_WAITS, WALK_HERE };

/* It is this node that is asked. Over: it has not got them. */
static enum peer_walk peer_ask_here(struct peer_call *call)
{
    struct peers *peers = call->peers;
    const struct peer_ask *ask = &call->ask;
    const struct object object = peer_ask_object(ask);
    bool gives = !chain_has_turn(&call->chain);

    if (!call->was_here && kept_has(peers->kept, &object, ask->first))
        return WALK_HERE;
    if (gives && promises_have(peers->promises, ask->where, ask->first)) {
        call->wait =
            promises_wait(peers->promises, ask->where, ask->first, peer_ask_on_promise_over, call);
        return WALK_WAITS;
    }
    peer_ask_trim(call, peer_ask_run_here(call, &object));
    if (gives)
        promises_make(peers->promises, ask->where, ask->first, ask->n, NULL);
    chain_take_absent(&call->chain, kept_room(peers->kept),
                      kept_by_order(peers->kept, &object, ask->first));
    return WALK_OVER;
}

/* Over: nobody is left to be asked. */
static enum peer_walk peer_ask_walk(struct peer_call *call)
{
    const struct peers *peers = call->peers;
    struct chain *chain = &call->chain;
    enum peer_walk walk = WALK_OVER;

    while (walk == WALK_OVER && chain->at < chain->n && peers->placement.n > 0) {
        uint64_t id = chain->nodes[chain->at].id;

        call->ask.method = chain_has_turn(chain) ? PEER_LOOK : PEER_GET;
        if (peers_is_self(peers, id))
            walk = peer_ask_here(call);
        else if (peer_call_begin(call, id))
            walk = WALK_WAITS;
        else
            chain_pass(chain);
    }
    return walk;
}

static void peer_ask_go_on(struct peer_call *call)
{
    enum peer_walk walk = peer_ask_walk(call);
    struct peer_result result = {.n = call->ask.n, .again = walk == WALK_HERE};

    if (walk == WALK_WAITS)
        return;
    if (walk == WALK_OVER)
        result.chain = call->chain;
    peer_ask_end(call, result);
}

static void peer_ask_take_blocks(struct peer_call *call, struct dl_span body)
{
    const struct peer_answer *answer = &call->answer;
    struct peer_result result = {.n = answer->n,
                                 .data = body,
                                 .bytes = answer->bytes,
                                 .etag = answer->etag,
                                 .modified = answer->modified};

    chain_begin(&result.chain, &call->id, 1, answer->n);
    result.chain.nodes[0].by_order = true;
    peer_ask_end(call, result);
}

static void peer_ask_take(struct peer_call *call, int status, struct dl_span body)
{
    const struct peer_answer *answer = &call->answer;
    bool comes = status == 404 && answer->bytes == PEER_COMING;

    if (status == 200 && peer_call_fits(call, body)) {
        peer_ask_take_blocks(call, body);
        return;
    }
    if (status == 404 && !comes) {
        peer_ask_trim(call, max_u64(answer->n, 1));
        chain_take_absent(&call->chain, answer->bytes / PEER_PAGE * PEER_PAGE,
                          answer->bytes & PEER_BY_ORDER);
    } else if (!comes || chain_has_turn(&call->chain)) {
        chain_pass(&call->chain);
    }
    peer_ask_go_on(call);
}

struct peer_call *peers_ask(struct peers *peers, const struct object *object, uint64_t first,
                            uint64_t n, struct chain *ret, peers_done *done, void *owner)
{
    uint32_t chain[PLACEMENT_CHAIN], n_chain;
    uint64_t ids[PLACEMENT_CHAIN];
    const struct peer_ask ask = peers_ask_of(object, first, n);

    *ret = (struct chain){0};
    if (!peers || peers->placement.n < 2 || object->replaced || (ask.bytes && !*object->etag))
        return NULL;
    n_chain = placement_chain(&peers->placement, placement_point(object->where, first), chain);
    for (uint32_t i = 0; i < n_chain; i++)
        ids[i] = peers->list[chain[i]].id;
    struct peer_call *call = peer_call_new(peers, &ask);
    call->take = peer_ask_take;
    call->was_here = kept_has(peers->kept, object, first);
    call->done = done;
    call->owner = owner;
    chain_begin(&call->chain, ids, n_chain, n);
    if (peer_ask_walk(call) != WALK_OVER)
        return call;
    *ret = call->chain;
    peer_call_free(call);
    return NULL;
}

/* ---- bringing ------------------------------------------------------------------------------- */

enum store_terms peers_terms(const struct peers *peers, struct chain *chain,
                             const struct object *object, uint64_t first)
{
    if (chain->n == 0)
        return peers_leave_to_other(peers, object, first) ? STORE_COPY : STORE_BY_ORDER;
    chain->at = 0;
    for (uint32_t i = 0; i < chain->n; i++)
        if (chain->nodes[i].room > 0 && peers_is_self(peers, chain->nodes[i].id))
            chain->nodes[i].room = kept_room(peers->kept);
    if (chain_find_room(chain, kept_taken(object, first)))
        return peers_is_self(peers, chain->nodes[chain->at].id) ? STORE_IF_ROOM : STORE_COPY;
    uint32_t last = chain_by_order(chain);
    return last != CHAIN_NONE && peers_is_self(peers, chain->nodes[last].id) ? STORE_BY_ORDER
                                                                             : STORE_COPY;
}

static void peer_bring_end(struct peer_call *call, bool turn_is_over)
{
    if (!turn_is_over)
        peer_turn_end(call->peers, &call->chain, &call->ask, call->turn_first, call->chain.blocks);
    peer_call_free(call);
}

static void peer_bring_go_on(struct peer_call *call);

/* The node that they were brought to has taken `n` of them. */
static void peer_bring_advance(struct peer_call *call, uint64_t n)
{
    const struct chain *chain = &call->chain;
    struct peer_ask *ask = &call->ask;

    if (call->left.len <= n * REMOTE_BLOCK_BYTES) {
        peer_bring_end(call, chain->at == chain->turn && ask->first == call->turn_first &&
                                 !peers_is_self(call->peers, chain->nodes[chain->at].id));
        return;
    }
    ask->first += n;
    call->left.data += n * REMOTE_BLOCK_BYTES;
    call->left.len -= n * REMOTE_BLOCK_BYTES;
    chain_pass(&call->chain);
    peer_bring_go_on(call);
}

static void peer_bring_take(struct peer_call *call, int status, struct dl_span body)
{
    uint64_t n = status == 200 ? min_u64(call->answer.n, call->ask.n) : 0;

    (void)body;
    if (call->put && n < call->ask.n)
        peer_bring_end(call, false);
    else
        peer_bring_advance(call, n);
}

static void peer_bring_on_kept(void *owner, const struct kept_result *result)
{
    struct peer_call *call = owner;

    (void)result;
    call->task = NULL;
    peer_call_rest(call);
    peer_bring_advance(call, call->ask.n);
}

/* This node has room for it by now: it may be here, as a copy. Not over: it takes some. */
static enum peer_walk peer_bring_here(struct peer_call *call)
{
    struct peer_ask *ask = &call->ask;
    const struct object object = peer_ask_object(ask);
    struct dl_span data = {call->left.data, peer_ask_bytes(ask)};

    call->task = kept_write(call->peers->kept, &object, ask->first, data, STORE_IF_ROOM, &ask->n,
                            peer_bring_on_kept, call);
    if (call->task) {
        peer_call_stay(call);
        return WALK_WAITS;
    }
    return ask->n > 0 ? WALK_HERE : WALK_OVER;
}

/* To a node with room. Over: none has any. */
static enum peer_walk peer_bring_walk(struct peer_call *call)
{
    struct chain *chain = &call->chain;
    struct peer_ask *ask = &call->ask;
    const struct object object = peer_ask_object(ask);

    ask->method = PEER_POST;
    for (; chain_find_room(chain, kept_taken(&object, ask->first)); chain_pass(chain)) {
        const struct chain_node *node = &chain->nodes[chain->at];
        enum peer_walk walk = WALK_OVER;

        ask->n = kept_fit(&object, ask->first, blocks_of(call->left.len), node->room);
        if (peers_is_self(call->peers, node->id))
            walk = peer_bring_here(call);
        else if (peer_call_begin(call, node->id))
            walk = WALK_WAITS;
        if (walk != WALK_OVER)
            return walk;
    }
    return WALK_OVER;
}

/* False: nobody takes it instead of others. */
static bool peer_bring_by_order(struct peer_call *call)
{
    uint32_t last = chain_by_order(&call->chain);

    if (last == CHAIN_NONE || peers_is_self(call->peers, call->chain.nodes[last].id))
        return false;
    call->put = true;
    call->chain.at = last;
    call->ask.method = PEER_PUT;
    call->ask.n = blocks_of(call->left.len);
    return peer_call_begin(call, call->chain.nodes[last].id);
}

static void peer_bring_go_on(struct peer_call *call)
{
    switch (peer_bring_walk(call)) {
    case WALK_HERE:
        peer_bring_advance(call, call->ask.n);
        break;
    case WALK_OVER:
        if (!peer_bring_by_order(call))
            peer_bring_end(call, false);
        break;
    case WALK_WAITS:
        break;
    }
}

void peers_bring(struct peers *peers, struct chain *chain, const struct object *object,
                 uint64_t first, struct dl_span data, uint64_t n_here)
{
    uint64_t n = blocks_of(data.len);
    const struct chain whole = *chain;

    if (!peers || chain->n == 0 || n_here == n)
        return;
    chain->blocks = n_here;
    struct peer_ask ask = peers_ask_of(object, first + n_here, n - n_here);
    if (!*object->etag || object->replaced || peers->bringing + data.len > PEERS_BRINGING_MOST) {
        peer_turn_end(peers, &whole, &ask, ask.first, ask.n);
        return;
    }
    struct peer_call *call = peer_call_new(peers, &ask);
    call->take = peer_bring_take;
    call->chain = whole;
    call->chain.at += n_here > 0;
    call->chain.blocks = ask.n;
    call->turn_first = ask.first;
    call->bringing = data.len;
    peers->bringing += data.len;
    call->data = memcpy(must_have(malloc(data.len)), data.data, data.len);
    call->left = (struct dl_span){call->data + n_here * REMOTE_BLOCK_BYTES,
                                  data.len - n_here * REMOTE_BLOCK_BYTES};
    peer_bring_go_on(call);
}
