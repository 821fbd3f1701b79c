#include "daemon/cluster/rendezvous/rendezvous_nodes.h"

#include "daemon/base/memory.h"

#include "proto/common/utf8.h"

#include <stdio.h>
#include <stdlib.h>

enum { NODE_FIELDS = 6, COLUMNS = 6, ID_BYTES = 8, NAME_FIELDS = 2 };
enum { NODE_MEMBER = 1, NODE_READY = 2 };

static uint64_t rdzv_nodes_flags(const struct rdzv_node *node)
{
    return (node->member ? NODE_MEMBER : 0U) | (node->ready ? NODE_READY : 0U);
}

static void rdzv_nodes_take_flags(struct rdzv_node *node, uint64_t flags)
{
    node->member = flags & NODE_MEMBER;
    node->ready = flags & NODE_READY;
}

/* ---- one by one ----------------------------------------------------------------------------- */

static void rdzv_nodes_put_row(struct dl_buffer *out, const struct rdzv_node *node)
{
    const uint64_t numbers[] = {node->id, node->life, node->rank, node->local,
                                rdzv_nodes_flags(node)};

    rdzv_bytes_put_array(out, NODE_FIELDS);
    rdzv_bytes_put_uints(out, numbers, ARRAY_SIZE(numbers));
    rdzv_bytes_put_text(out, node->name);
}

static void rdzv_nodes_take_row(struct rdzv_reader *in, struct rdzv_node *node)
{
    uint64_t more = rdzv_bytes_take_fields(in, NODE_FIELDS);

    node->id = rdzv_bytes_take_uint(in, 0, UINT64_MAX);
    node->life = rdzv_bytes_take_uint(in, 0, RDZV_NUMBER_MAX);
    node->rank = (uint32_t)rdzv_bytes_take_uint(in, 0, UINT32_MAX);
    node->local = (uint32_t)rdzv_bytes_take_uint(in, 0, RDZV_LOCAL_MAX);
    rdzv_nodes_take_flags(node, rdzv_bytes_take_uint(in, 0, NODE_MEMBER | NODE_READY));
    rdzv_bytes_take_text(in, node->name, sizeof node->name);
    rdzv_bytes_skip(in, more);
}

/* Memory for `n` nodes of at least `bytes` each: a count beyond what the input holds costs nothing.
 * False: it is 0, or the input is bad. */
static bool rdzv_nodes_make(struct rdzv_reader *in, uint64_t n, uint64_t bytes,
                            struct rdzv_state *ret)
{
    in->bad |= n > RDZV_NODES_MAX || n > in->left / bytes;
    if (in->bad || n == 0)
        return false;
    ret->nodes = must_alloc(n * sizeof *ret->nodes);
    ret->n = ret->cap = (uint32_t)n;
    return true;
}

static void rdzv_nodes_take_rows(struct rdzv_reader *in, struct rdzv_state *ret)
{
    uint64_t n = rdzv_bytes_take(in, TOKEN_ARRAY).n;

    if (!rdzv_nodes_make(in, n, 1 + NODE_FIELDS, ret))
        return;
    for (uint32_t i = 0; i < n && !in->bad; i++)
        rdzv_nodes_take_row(in, &ret->nodes[i]);
}

/* ---- by columns ----------------------------------------------------------------------------- */

enum column { COLUMN_LIFE, COLUMN_RANK, COLUMN_LOCAL, COLUMN_FLAGS };

static const struct {
    uint64_t most;
    uint32_t step; /* from one node of a run to the next */
} rdzv_columns[] = {
    [COLUMN_LIFE] = {RDZV_NUMBER_MAX, 0},
    [COLUMN_RANK] = {UINT32_MAX, 1},
    [COLUMN_LOCAL] = {RDZV_LOCAL_MAX, 0},
    [COLUMN_FLAGS] = {NODE_MEMBER | NODE_READY, 0},
};

static uint64_t rdzv_nodes_get(const struct rdzv_node *node, enum column column)
{
    switch (column) {
    case COLUMN_LIFE:
        return node->life;
    case COLUMN_RANK:
        return (uint32_t)(node->rank + 1); /* RDZV_NO_RANK is the greatest */
    case COLUMN_LOCAL:
        return node->local;
    case COLUMN_FLAGS:
        return rdzv_nodes_flags(node);
    }
    return 0;
}

static void rdzv_nodes_set(struct rdzv_node *node, enum column column, uint64_t number)
{
    switch (column) {
    case COLUMN_LIFE:
        node->life = number;
        break;
    case COLUMN_RANK:
        node->rank = (uint32_t)(number - 1);
        break;
    case COLUMN_LOCAL:
        node->local = (uint32_t)number;
        break;
    case COLUMN_FLAGS:
        rdzv_nodes_take_flags(node, number);
        break;
    }
}

static void rdzv_nodes_put_ids(struct dl_buffer *out, const struct rdzv_node *const *nodes,
                               uint32_t n)
{
    rdzv_bytes_put_bin(out, n * ID_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t bytes[ID_BYTES];

        for (unsigned k = 0; k < ID_BYTES; k++)
            bytes[k] = (uint8_t)(nodes[i]->id >> 8 * (ID_BYTES - 1 - k));
        must_append(out, bytes, sizeof bytes);
    }
}

/* How many nodes from the first on are one run. */
static uint32_t rdzv_nodes_run(const struct rdzv_node *const *nodes, uint32_t n, enum column column)
{
    uint64_t first = rdzv_nodes_get(nodes[0], column), step = rdzv_columns[column].step;
    uint32_t len = 1;

    while (len < n && rdzv_nodes_get(nodes[len], column) == first + len * step)
        len++;
    return len;
}

static void rdzv_nodes_put_runs(struct dl_buffer *out, const struct rdzv_node *const *nodes,
                                uint32_t n, enum column column)
{
    uint32_t runs = 0;

    for (uint32_t i = 0; i < n; runs++)
        i += rdzv_nodes_run(nodes + i, n - i, column);
    rdzv_bytes_put_array(out, 2 * runs);
    for (uint32_t i = 0; i < n;) {
        uint32_t len = rdzv_nodes_run(nodes + i, n - i, column);

        rdzv_bytes_put_uint(out, len);
        rdzv_bytes_put_uint(out, rdzv_nodes_get(nodes[i], column));
        i += len;
    }
}

/* Whole characters: what is left is a text. */
static uint32_t rdzv_nodes_shared(const char *before, const char *name)
{
    uint32_t same = 0;

    while (name[same] && name[same] == before[same])
        same++;
    while (same > 0 && ((uint8_t)name[same] & 0xc0) == 0x80)
        same--;
    return same;
}

static void rdzv_nodes_put_names(struct dl_buffer *out, const struct rdzv_node *const *nodes,
                                 uint32_t n)
{
    rdzv_bytes_put_array(out, NAME_FIELDS * n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = i > 0 ? rdzv_nodes_shared(nodes[i - 1]->name, nodes[i]->name) : 0;

        rdzv_bytes_put_uint(out, shared);
        rdzv_bytes_put_text(out, nodes[i]->name + shared);
    }
}

static void rdzv_nodes_put_columns(struct dl_buffer *out, const struct rdzv_state *state)
{
    _cleanup_free_ const struct rdzv_node **nodes =
        must_alloc(max_u64(state->n, 1) * sizeof *nodes);

    for (uint32_t i = 0; i < state->n; i++)
        nodes[i] = &state->nodes[i];
    qsort(nodes, state->n, sizeof *nodes, rdzv_state_compare_nodes);
    rdzv_bytes_put_array(out, COLUMNS);
    rdzv_nodes_put_ids(out, nodes, state->n);
    for (enum column column = COLUMN_LIFE; column <= COLUMN_FLAGS; column++)
        rdzv_nodes_put_runs(out, nodes, state->n, column);
    rdzv_nodes_put_names(out, nodes, state->n);
}

static void rdzv_nodes_take_ids(struct rdzv_reader *in, struct rdzv_state *ret)
{
    uint64_t len = rdzv_bytes_take(in, TOKEN_BIN).n;

    in->bad |= len % ID_BYTES != 0;
    if (!rdzv_nodes_make(in, len / ID_BYTES, ID_BYTES, ret))
        return;
    for (uint32_t i = 0; i < ret->n; i++)
        for (unsigned k = 0; k < ID_BYTES; k++)
            ret->nodes[i].id = ret->nodes[i].id << 8 | *in->at++;
    in->left -= len;
}

static void rdzv_nodes_take_runs(struct rdzv_reader *in, struct rdzv_state *ret, enum column column)
{
    uint64_t most = rdzv_columns[column].most, step = rdzv_columns[column].step;
    uint64_t left = rdzv_bytes_take(in, TOKEN_ARRAY).n;
    uint32_t at = 0;

    while (left >= 2 && !in->bad) {
        uint64_t len = rdzv_bytes_take_uint(in, 1, ret->n - at);
        uint64_t first = rdzv_bytes_take_uint(in, 0, most);

        in->bad |= first + (len - 1) * step > most;
        for (uint64_t i = 0; i < len && !in->bad; i++)
            rdzv_nodes_set(&ret->nodes[at++], column, first + i * step);
        left -= 2;
    }
    in->bad |= left > 0 || at < ret->n;
}

static void rdzv_nodes_take_name(struct rdzv_reader *in, const char *before, char *ret)
{
    uint64_t shared = rdzv_bytes_take_uint(in, 0, strlen(before));

    snprintf(ret, RDZV_NAME_MAX, "%.*s", (int)shared, before);
    rdzv_bytes_take_text(in, ret + shared, RDZV_NAME_MAX - shared);
    in->bad |= !utf8_text((const uint8_t *)ret, strlen(ret));
}

static void rdzv_nodes_take_names(struct rdzv_reader *in, struct rdzv_state *ret)
{
    in->bad |= rdzv_bytes_take(in, TOKEN_ARRAY).n != (uint64_t)NAME_FIELDS * ret->n;
    for (uint32_t i = 0; i < ret->n && !in->bad; i++)
        rdzv_nodes_take_name(in, i > 0 ? ret->nodes[i - 1].name : "", ret->nodes[i].name);
}

static int rdzv_nodes_compare_ids(const void *a, const void *b)
{
    const struct rdzv_node *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static void rdzv_nodes_take_columns(struct rdzv_reader *in, struct rdzv_state *ret)
{
    uint64_t more = rdzv_bytes_take_fields(in, COLUMNS);

    rdzv_nodes_take_ids(in, ret);
    for (enum column column = COLUMN_LIFE; column <= COLUMN_FLAGS; column++)
        rdzv_nodes_take_runs(in, ret, column);
    rdzv_nodes_take_names(in, ret);
    rdzv_bytes_skip(in, in->bad ? 0 : more);
    if (ret->n > 0)
        qsort(ret->nodes, ret->n, sizeof *ret->nodes, rdzv_nodes_compare_ids);
}

/* ---- both ----------------------------------------------------------------------------------- */

void rdzv_nodes_pack(const struct rdzv_state *state, uint32_t format, struct dl_buffer *out)
{
    if (format >= RDZV_COLUMNS) {
        rdzv_nodes_put_columns(out, state);
        return;
    }
    rdzv_bytes_put_array(out, state->n);
    for (uint32_t i = 0; i < state->n; i++)
        rdzv_nodes_put_row(out, &state->nodes[i]);
}

void rdzv_nodes_unpack(struct rdzv_reader *in, uint32_t format, struct rdzv_state *ret)
{
    if (format >= RDZV_COLUMNS)
        rdzv_nodes_take_columns(in, ret);
    else
        rdzv_nodes_take_rows(in, ret);
    for (uint32_t i = 1; i < ret->n && !in->bad; i++)
        in->bad |= ret->nodes[i].id <= ret->nodes[i - 1].id;
}
