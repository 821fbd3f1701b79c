/* A state, its head and a card as bytes. What comes from the store is a stranger's: each number is
 * looked at. */
#include "daemon/cluster/rendezvous/rendezvous_format.h"
#include "daemon/cluster/rendezvous/rendezvous_nodes.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <inttypes.h>

/* A head of an earlier release ends before `why`, or before those in front but the last; a card
 * before the formats, or before whom it replaces. */
enum {
    FIELDS = 15,
    HEAD_FIELDS = 10,
    HEAD_LATER_FIELDS = 3,
    HEAD_FRONT_FIELDS = RDZV_FRONT - 1,
    CARD_FIELDS = 9,
    FORMAT_FIELDS = 2,
    CARD_LATER_FIELDS = 1
};
enum { PAGE_FIELDS = 5, PLACE_FIELDS = 5 };
enum { FLAG_COMPLETE = 1, FLAG_ENOUGH = 2, FLAG_CLOSED = 4 };
enum { FLAG_READY = 2, FLAG_IN = 4 };

/* ---- writing -------------------------------------------------------------------------------- */

static uint32_t rdzv_blob_format(const struct rdzv_state *state)
{
    return state->format ? state->format : RDZV_FORMATS.least;
}

void rdzv_state_pack(const struct rdzv_state *state, struct dl_buffer *out)
{
    uint64_t flags = (state->complete ? FLAG_COMPLETE : 0U) | (state->enough ? FLAG_ENOUGH : 0U);
    const struct rdzv_rules *rules = &state->rules;
    const uint64_t numbers[] = {rdzv_blob_format(state),
                                state->seq,
                                state->writer,
                                state->nonce,
                                state->round,
                                flags,
                                state->stamp,
                                state->quorum,
                                rules->min,
                                rules->max,
                                rules->beat_ns,
                                rules->missed};

    rdzv_bytes_put_array(out, FIELDS);
    rdzv_bytes_put_uints(out, numbers, ARRAY_SIZE(numbers));
    rdzv_bytes_put_text(out, state->closed);
    rdzv_bytes_put_text(out, state->why);
    rdzv_nodes_pack(state, rdzv_blob_format(state), out);
}

void rdzv_head_pack(const struct rdzv_state *state, struct dl_buffer *out)
{
    uint64_t flags = (state->complete ? FLAG_COMPLETE : 0U) | (state->closed[0] ? FLAG_CLOSED : 0U);
    const struct rdzv_rules *rules = &state->rules;
    const uint64_t numbers[HEAD_FIELDS] = {rdzv_blob_format(state),
                                           state->nonce,
                                           state->round,
                                           flags,
                                           state->stamp,
                                           state->n,
                                           rules->min,
                                           rules->max,
                                           rules->beat_ns,
                                           rules->missed};

    uint64_t front[RDZV_FRONT];

    rdzv_state_front(state, front);
    rdzv_bytes_put_array(out, HEAD_FIELDS + HEAD_LATER_FIELDS + HEAD_FRONT_FIELDS);
    rdzv_bytes_put_uints(out, numbers, HEAD_FIELDS);
    rdzv_bytes_put_text(out, state->complete ? "" : state->why);
    rdzv_bytes_put_uint(out, front[RDZV_FRONT - 1]);
    rdzv_bytes_put_uint(out, rdzv_state_count(state).members);
    rdzv_bytes_put_uints(out, front, HEAD_FRONT_FIELDS);
}

void rdzv_card_pack(const struct rdzv_card *card, struct dl_buffer *out)
{
    uint64_t flags = (card->in ? FLAG_IN : 0U) | (card->ready ? FLAG_READY : 0U);
    const uint64_t numbers[] = {RDZV_CARD, card->id,        card->life,  card->beat,
                                flags,     card->ready_for, card->rules, card->local};
    const uint64_t formats[FORMAT_FIELDS] = {card->formats.least, card->formats.greatest};

    rdzv_bytes_put_array(out, CARD_FIELDS + FORMAT_FIELDS + CARD_LATER_FIELDS);
    rdzv_bytes_put_uints(out, numbers, ARRAY_SIZE(numbers));
    rdzv_bytes_put_text(out, card->name);
    rdzv_bytes_put_uints(out, formats, FORMAT_FIELDS);
    rdzv_bytes_put_uint(out, card->replaces);
}

static bool rdzv_blob_is_on_page(const struct rdzv_node *node, uint32_t page, uint32_t pages)
{
    return node->member && node->id % pages == page;
}

void rdzv_page_pack(const struct rdzv_state *state, uint32_t page, struct dl_buffer *out)
{
    struct rdzv_count count = rdzv_state_count(state);
    uint32_t pages = rdzv_pages(count.members), n = 0;
    uint64_t world = 0;

    for (uint32_t i = 0; i < state->n; i++) {
        world += state->nodes[i].member ? state->nodes[i].local : 0;
        n += rdzv_blob_is_on_page(&state->nodes[i], page, pages);
    }
    const uint64_t top[] = {rdzv_blob_format(state), state->stamp, count.members, world};
    rdzv_bytes_put_array(out, PAGE_FIELDS);
    rdzv_bytes_put_uints(out, top, ARRAY_SIZE(top));
    rdzv_bytes_put_array(out, n);
    for (uint32_t i = 0; i < state->n; i++) {
        const struct rdzv_node *node = &state->nodes[i];

        if (!rdzv_blob_is_on_page(node, page, pages))
            continue;
        struct rdzv_place place = rdzv_state_place(state, node->id);
        const uint64_t numbers[] = {node->id, node->life, i, place.rank, place.first};
        rdzv_bytes_put_array(out, PLACE_FIELDS);
        rdzv_bytes_put_uints(out, numbers, ARRAY_SIZE(numbers));
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

static void rdzv_blob_take_rules(struct rdzv_reader *in, struct rdzv_rules *rules)
{
    rules->min = (uint32_t)rdzv_bytes_take_uint(in, 1, RDZV_NODES_MAX);
    rules->max = (uint32_t)rdzv_bytes_take_uint(in, rules->min, RDZV_NODES_MAX);
    rules->beat_ns = rdzv_bytes_take_uint(in, 0, RDZV_NUMBER_MAX);
    rules->missed = (uint32_t)rdzv_bytes_take_uint(in, 0, UINT32_MAX);
}

static void rdzv_blob_take_top(struct rdzv_reader *in, struct rdzv_state *state)
{
    state->seq = rdzv_bytes_take_uint(in, 0, RDZV_NUMBER_MAX);
    state->writer = rdzv_bytes_take_uint(in, 0, UINT64_MAX);
    state->nonce = rdzv_bytes_take_uint(in, 0, UINT64_MAX);
    state->round = rdzv_bytes_take_uint(in, 0, RDZV_NUMBER_MAX);
    uint64_t flags = rdzv_bytes_take_uint(in, 0, FLAG_COMPLETE | FLAG_ENOUGH);
    state->complete = flags & FLAG_COMPLETE;
    state->enough = flags & FLAG_ENOUGH;
    state->stamp = rdzv_bytes_take_uint(in, 0, RDZV_NUMBER_MAX);
    state->quorum = rdzv_bytes_take_uint(in, 0, RDZV_NUMBER_MAX);
    rdzv_blob_take_rules(in, &state->rules);
    rdzv_bytes_take_text(in, state->closed, sizeof state->closed);
    rdzv_bytes_take_text(in, state->why, sizeof state->why);
}

/* What a node relies on: no more members than places, and in a complete round each rank once. */
static bool rdzv_blob_makes_sense(const struct rdzv_state *state)
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
    if (ranks > DL_MAX_WORLD_SIZE || count.members > state->rules.max)
        return false;
    return !state->complete ||
           (count.members > 0 && count.ready == count.members && state->stamp > 0);
}

static bool rdzv_blob_knows(uint64_t format)
{
    return format >= RDZV_FORMATS.least && format <= RDZV_FORMATS.greatest;
}

static int rdzv_blob_refuse(uint64_t format, struct dl_error *err)
{
    char known[RDZV_FORMATS_TEXT_MAX];

    rdzv_formats_text(&RDZV_FORMATS, known);
    return dl_error_set(err, EPROTONOSUPPORT, "rendezvous",
                        "the state in the store is of format %" PRIu64
                        ", and this release knows %s; run a release on all nodes that knows the "
                        "same, or choose another rendezvous.id",
                        format, known);
}

static int rdzv_blob_unpack(struct rdzv_reader *in, struct rdzv_state *ret, struct dl_error *err)
{
    uint64_t fields = rdzv_bytes_take(in, TOKEN_ARRAY).n; /* looked at once the format is known */
    uint64_t format = rdzv_bytes_take_uint(in, 0, UINT64_MAX);

    if (!in->bad && !rdzv_blob_knows(format))
        return rdzv_blob_refuse(format, err);
    ret->format = (uint32_t)format;
    in->bad |= fields < FIELDS;
    rdzv_blob_take_top(in, ret);
    rdzv_nodes_unpack(in, ret->format, ret);
    rdzv_bytes_skip(in, in->bad ? 0 : fields - FIELDS);
    if (in->bad || in->left > 0 || !rdzv_blob_makes_sense(ret))
        return dl_error_set(err, EBADMSG, "rendezvous",
                            "the store's value is not a state of a rendezvous; something else "
                            "uses its key: choose another rendezvous.id");
    return 0;
}

int rdzv_state_unpack(struct dl_span data, struct rdzv_state *ret, struct dl_error *err)
{
    struct rdzv_reader in = {.at = data.data, .left = data.len};

    rdzv_state_deinit(ret);
    int r = rdzv_blob_unpack(&in, ret, err);
    if (r < 0)
        rdzv_state_deinit(ret);
    return r;
}

/* Of a release that says nothing of formats it is the only one that it knows. */
static void rdzv_blob_take_formats(struct rdzv_reader *in, uint64_t *more, struct rdzv_formats *ret)
{
    *ret = (struct rdzv_formats){RDZV_CARD, RDZV_CARD};
    if (*more < FORMAT_FIELDS)
        return;
    ret->least = (uint32_t)rdzv_bytes_take_uint(in, 1, UINT32_MAX);
    ret->greatest = (uint32_t)rdzv_bytes_take_uint(in, ret->least, UINT32_MAX);
    *more -= FORMAT_FIELDS;
}

bool rdzv_head_unpack(struct dl_span data, struct rdzv_head *ret)
{
    struct rdzv_reader in = {.at = data.data, .left = data.len};
    uint64_t more;

    *ret = (struct rdzv_head){0};
    more = rdzv_bytes_take_fields(&in, HEAD_FIELDS);
    if (!rdzv_blob_knows(rdzv_bytes_take_uint(&in, 0, UINT64_MAX)))
        return false;
    ret->nonce = rdzv_bytes_take_uint(&in, 0, UINT64_MAX);
    ret->round = rdzv_bytes_take_uint(&in, 0, RDZV_NUMBER_MAX);
    uint64_t flags = rdzv_bytes_take_uint(&in, 0, FLAG_COMPLETE | FLAG_CLOSED);
    ret->complete = flags & FLAG_COMPLETE;
    ret->closed = flags & FLAG_CLOSED;
    ret->stamp = rdzv_bytes_take_uint(&in, 0, RDZV_NUMBER_MAX);
    ret->n = (uint32_t)rdzv_bytes_take_uint(&in, 0, RDZV_NODES_MAX);
    rdzv_blob_take_rules(&in, &ret->rules);
    if (more >= HEAD_LATER_FIELDS) {
        rdzv_bytes_take_text(&in, ret->why, sizeof ret->why);
        ret->front[RDZV_FRONT - 1] = rdzv_bytes_take_uint(&in, 0, UINT64_MAX);
        ret->members = (uint32_t)rdzv_bytes_take_uint(&in, 0, RDZV_NODES_MAX);
        more -= HEAD_LATER_FIELDS;
    }
    if (more >= HEAD_FRONT_FIELDS) {
        for (uint32_t i = 0; i < HEAD_FRONT_FIELDS; i++)
            ret->front[i] = rdzv_bytes_take_uint(&in, 0, UINT64_MAX);
        more -= HEAD_FRONT_FIELDS;
    }
    rdzv_bytes_skip(&in, more);
    return !in.bad && in.left == 0;
}

bool rdzv_card_unpack(struct dl_span data, struct rdzv_card *ret)
{
    struct rdzv_reader in = {.at = data.data, .left = data.len};
    uint64_t more;

    *ret = (struct rdzv_card){0};
    more = rdzv_bytes_take_fields(&in, CARD_FIELDS);
    if (rdzv_bytes_take_uint(&in, RDZV_CARD, RDZV_CARD) != RDZV_CARD)
        return false;
    ret->id = rdzv_bytes_take_uint(&in, 0, UINT64_MAX);
    ret->life = rdzv_bytes_take_uint(&in, 0, RDZV_NUMBER_MAX);
    ret->beat = rdzv_bytes_take_uint(&in, 0, RDZV_NUMBER_MAX);
    uint64_t flags = rdzv_bytes_take_uint(&in, 0, FLAG_IN | FLAG_READY);
    ret->in = flags & FLAG_IN;
    ret->ready = flags & FLAG_READY;
    ret->ready_for = rdzv_bytes_take_uint(&in, 0, RDZV_NUMBER_MAX);
    ret->rules = rdzv_bytes_take_uint(&in, 0, UINT64_MAX);
    ret->local = (uint32_t)rdzv_bytes_take_uint(&in, 0, RDZV_LOCAL_MAX);
    rdzv_bytes_take_text(&in, ret->name, sizeof ret->name);
    rdzv_blob_take_formats(&in, &more, &ret->formats);
    if (more >= CARD_LATER_FIELDS) {
        ret->replaces = rdzv_bytes_take_uint(&in, 0, UINT64_MAX);
        more -= CARD_LATER_FIELDS;
    }
    rdzv_bytes_skip(&in, more);
    return !in.bad && in.left == 0;
}

/* True: it is the one of that id. */
static bool rdzv_blob_take_place(struct rdzv_reader *in, uint64_t id, struct rdzv_found *ret)
{
    uint64_t more = rdzv_bytes_take_fields(in, PLACE_FIELDS);
    struct rdzv_found found = *ret;

    uint64_t whose = rdzv_bytes_take_uint(in, 0, UINT64_MAX);
    found.life = rdzv_bytes_take_uint(in, 0, RDZV_NUMBER_MAX);
    found.index = (uint32_t)rdzv_bytes_take_uint(in, 0, RDZV_NODES_MAX - 1);
    found.place.rank = (uint32_t)rdzv_bytes_take_uint(in, 0, RDZV_NODES_MAX - 1);
    found.place.first = rdzv_bytes_take_uint(in, 0, DL_MAX_WORLD_SIZE);
    rdzv_bytes_skip(in, more);
    in->bad |= found.place.rank >= found.place.nodes || found.place.first > found.place.world;
    if (in->bad || whose != id)
        return false;
    *ret = found;
    return true;
}

bool rdzv_page_find(struct dl_span data, uint64_t id, struct rdzv_found *ret)
{
    struct rdzv_reader in = {.at = data.data, .left = data.len};
    bool found = false;
    uint64_t more;

    *ret = (struct rdzv_found){0};
    more = rdzv_bytes_take_fields(&in, PAGE_FIELDS);
    if (!rdzv_blob_knows(rdzv_bytes_take_uint(&in, 0, UINT64_MAX)))
        return false;
    ret->stamp = rdzv_bytes_take_uint(&in, 1, RDZV_NUMBER_MAX);
    ret->place.nodes = (uint32_t)rdzv_bytes_take_uint(&in, 1, RDZV_NODES_MAX);
    ret->place.world = rdzv_bytes_take_uint(&in, 0, DL_MAX_WORLD_SIZE);
    for (uint64_t n = rdzv_bytes_take(&in, TOKEN_ARRAY).n; n > 0 && !in.bad; n--)
        found |= rdzv_blob_take_place(&in, id, ret);
    rdzv_bytes_skip(&in, in.bad ? 0 : more);
    return found && !in.bad && in.left == 0;
}
