/* A state as bytes. What comes from the store is a stranger's: each number is looked at. */
#include "daemon/cluster/rendezvous_state.h"

#include "daemon/serve/base/memory.h"

#include "proto/scan.h"
#include "proto/utf8.h"

#include <errno.h>
#include <inttypes.h>

enum { FIELDS = 13, NODE_FIELDS = 8 };
enum { FLAG_COMPLETE = 1, FLAG_ENOUGH = 2 };
enum { FLAG_MEMBER = 1, FLAG_READY = 2 };

/* ---- writing -------------------------------------------------------------------------------- */

/* A head: its first byte, and a number of 1, 2, 4 or 8 bytes after it. */
static void put_head(struct dl_buffer *out, uint8_t first, uint64_t number, unsigned width)
{
    uint8_t bytes[9] = {first};

    for (unsigned i = 0; i < width; i++)
        bytes[1 + i] = (uint8_t)(number >> 8 * (width - 1 - i));
    must_append(out, bytes, 1 + width);
}

static void put_uint(struct dl_buffer *out, uint64_t n)
{
    if (n < 0x80)
        put_head(out, (uint8_t)n, 0, 0);
    else if (n <= UINT8_MAX)
        put_head(out, 0xcc, n, 1);
    else if (n <= UINT16_MAX)
        put_head(out, 0xcd, n, 2);
    else
        put_head(out, n <= UINT32_MAX ? 0xce : 0xcf, n, n <= UINT32_MAX ? 4 : 8);
}

static void put_array(struct dl_buffer *out, uint32_t n)
{
    if (n < 16)
        put_head(out, (uint8_t)(0x90 | n), 0, 0);
    else
        put_head(out, 0xdd, n, 4);
}

static void put_text(struct dl_buffer *out, const char *text)
{
    size_t len = strlen(text);

    if (len < 32)
        put_head(out, (uint8_t)(0xa0 | len), 0, 0);
    else
        put_head(out, 0xd9, len, 1);
    must_append(out, text, len);
}

static void put_uints(struct dl_buffer *out, const uint64_t *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_uint(out, numbers[i]);
}

static void put_node(struct dl_buffer *out, const struct rdzv_node *node)
{
    uint64_t flags = (node->member ? FLAG_MEMBER : 0U) | (node->ready ? FLAG_READY : 0U);
    const uint64_t numbers[] = {node->id,   node->life,  node->beat, 0,
                                node->rank, node->local, flags};

    put_array(out, NODE_FIELDS);
    put_uints(out, numbers, ARRAY_SIZE(numbers));
    put_text(out, node->name);
}

void rdzv_state_pack(const struct rdzv_state *state, struct dl_buffer *out)
{
    uint64_t flags = (state->complete ? FLAG_COMPLETE : 0U) | (state->enough ? FLAG_ENOUGH : 0U);
    const uint64_t numbers[] = {RDZV_VERSION, state->seq, state->writer, state->nonce,
                                state->round, flags,      state->stamp,  state->quorum,
                                state->min,   state->max};

    put_array(out, FIELDS);
    put_uints(out, numbers, ARRAY_SIZE(numbers));
    put_text(out, state->closed);
    put_text(out, state->why);
    put_array(out, state->n);
    for (uint32_t i = 0; i < state->n; i++)
        put_node(out, &state->nodes[i]);
}

/* ---- reading -------------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at;
    size_t left;
    bool bad;
};

static struct token take(struct reader *in, enum token_type type)
{
    struct token token = {0};

    if (in->bad || token_read(in->at, in->left, &token) < 0 || token.type != type) {
        in->bad = true;
        return (struct token){0};
    }
    in->at += token.head;
    in->left -= token.head;
    return token;
}

static uint64_t take_uint(struct reader *in, uint64_t least, uint64_t most)
{
    uint64_t n = take(in, TOKEN_UINT).n;

    in->bad |= n < least || n > most;
    return in->bad ? 0 : n;
}

/* Fits, and can be shown: texts of other nodes come into logs and onto terminals. */
static void take_text(struct reader *in, char *ret, size_t size)
{
    size_t len = take(in, TOKEN_STR).n;

    if (in->bad || len >= size || !utf8_text(in->at, len)) {
        in->bad = true;
        return;
    }
    for (size_t i = 0; i < len; i++)
        in->bad |= in->at[i] < 0x20 || in->at[i] == 0x7f;
    memcpy(ret, in->at, len);
    ret[len] = 0;
    in->at += len;
    in->left -= len;
}

static void take_head(struct reader *in, struct rdzv_state *state)
{
    state->seq = take_uint(in, 0, RDZV_NUMBER_MAX);
    state->writer = take_uint(in, 0, UINT64_MAX);
    state->nonce = take_uint(in, 0, UINT64_MAX);
    state->round = take_uint(in, 0, RDZV_NUMBER_MAX);
    uint64_t flags = take_uint(in, 0, FLAG_COMPLETE | FLAG_ENOUGH);
    state->complete = flags & FLAG_COMPLETE;
    state->enough = flags & FLAG_ENOUGH;
    state->stamp = take_uint(in, 0, RDZV_NUMBER_MAX);
    state->quorum = take_uint(in, 0, RDZV_NUMBER_MAX);
    state->min = (uint32_t)take_uint(in, 1, RDZV_NODES_MAX);
    state->max = (uint32_t)take_uint(in, state->min, RDZV_NODES_MAX);
    take_text(in, state->closed, sizeof state->closed);
    take_text(in, state->why, sizeof state->why);
}

static void take_node(struct reader *in, struct rdzv_node *node)
{
    in->bad |= take(in, TOKEN_ARRAY).n != NODE_FIELDS;
    node->id = take_uint(in, 0, UINT64_MAX);
    node->life = take_uint(in, 0, RDZV_NUMBER_MAX);
    node->beat = take_uint(in, 0, RDZV_NUMBER_MAX);
    (void)take_uint(in, 0, UINT64_MAX); /* has no meaning */
    node->rank = (uint32_t)take_uint(in, 0, UINT32_MAX);
    node->local = (uint32_t)take_uint(in, 0, RDZV_LOCAL_MAX);
    uint64_t flags = take_uint(in, 0, FLAG_MEMBER | FLAG_READY);
    node->member = flags & FLAG_MEMBER;
    node->ready = flags & FLAG_READY;
    take_text(in, node->name, sizeof node->name);
}

/* The smallest node has 9 bytes: a count that says more than is there costs nothing. */
static void take_nodes(struct reader *in, struct rdzv_state *state)
{
    uint64_t n = take(in, TOKEN_ARRAY).n;

    if (in->bad || n > RDZV_NODES_MAX || n > in->left / (1 + NODE_FIELDS)) {
        in->bad = true;
        return;
    }
    if (n == 0)
        return;
    state->nodes = must_alloc(n * sizeof *state->nodes);
    state->n = state->cap = (uint32_t)n;
    for (uint32_t i = 0; i < n && !in->bad; i++) {
        take_node(in, &state->nodes[i]);
        in->bad |= i > 0 && state->nodes[i].id <= state->nodes[i - 1].id;
    }
}

/* What a node relies on: no more members than places, and in a complete round each rank once. */
static bool makes_sense(const struct rdzv_state *state)
{
    struct rdzv_count count = rdzv_state_count(state);
    bool taken[RDZV_NODES_MAX] = {false};
    uint64_t ranks = 0;

    for (uint32_t i = 0; i < state->n; i++) {
        const struct rdzv_node *node = &state->nodes[i];

        ranks += node->local;
        if (!node->member && node->rank != RDZV_NO_RANK)
            return false;
        if (!node->member || !state->complete)
            continue;
        if (node->rank >= count.members || taken[node->rank])
            return false;
        taken[node->rank] = true;
    }
    if (ranks > DL_MAX_WORLD_SIZE || count.members > state->max)
        return false;
    return !state->complete ||
           (count.members > 0 && count.ready == count.members && state->stamp > 0);
}

static int unpack(struct reader *in, struct rdzv_state *ret, struct dl_error *err)
{
    uint64_t fields = take(in, TOKEN_ARRAY).n;
    uint64_t version = take_uint(in, 0, UINT64_MAX);

    if (!in->bad && version != RDZV_VERSION)
        return dl_error_set(err, EPROTONOSUPPORT, "rendezvous",
                            "the state in the store is of version %" PRIu64
                            ", and this release knows version %d; run the same release on all "
                            "nodes, or take another rendezvous.id",
                            version, RDZV_VERSION);
    in->bad |= fields != FIELDS;
    take_head(in, ret);
    take_nodes(in, ret);
    if (in->bad || in->left > 0 || !makes_sense(ret))
        return dl_error_set(err, EBADMSG, "rendezvous",
                            "what the store holds is no state of a rendezvous; something else "
                            "uses its key: take another rendezvous.id");
    return 0;
}

int rdzv_state_unpack(struct dl_span data, struct rdzv_state *ret, struct dl_error *err)
{
    struct reader in = {.at = data.data, .left = data.len};

    rdzv_state_deinit(ret);
    int r = unpack(&in, ret, err);
    if (r < 0)
        rdzv_state_deinit(ret);
    return r;
}
