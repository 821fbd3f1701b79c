/*
 * Many nodes and a store, in one process and in no time: the rendezvous played through with clocks
 * that are hours apart, jump and run at different rates, with messages that take their time or are
 * lost, nodes that die or sleep, and a store that goes away.
 *
 * All is drawn from one seed. After each write the state is checked: it survives its own bytes, a
 * complete round never changes, and nobody was taken out who lives.
 */
#ifndef DL_RDZV_SIM_H
#define DL_RDZV_SIM_H

#include "tests/lib/harness.h"
#include "tests/lib/splitmix.h"

#include "daemon/cluster/rendezvous/rendezvous.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define SIM_MS ((uint64_t)1000000)
#define SIM_S  (1000 * SIM_MS)

enum { SIM_ROUNDS = 4096 };
enum { SIM_TOLD = RDZV_WRITE + 1, SIM_KINDS }; /* beside those of rdzv_do: by a watch */

/* What lay in the store at one time; nodes that have read it share it. */
struct sim_version {
    struct rdzv_state state;
    uint64_t token;
    uint32_t refs;
};

enum sim_kind { SIM_TICK, SIM_ARRIVES, SIM_ANSWERED, SIM_CHANGED, SIM_READY, SIM_JOIN };

struct sim_event {
    uint64_t at, order;
    enum sim_kind kind;
    uint32_t node;
    uint64_t turn; /* TICK, ARRIVES, ANSWERED: of no meaning when the node is past it */
};

struct sim_node {
    struct rdzv rdzv;
    struct rdzv_node self;
    bool dead, asleep, cut;
    bool heir;           /* dead, and started again as another node */
    uint64_t since;      /* it died, slept or was cut off; of one that lives, it does again */
    uint64_t naps_until; /* until then it does not run; too short for anybody to take it for dead */
    /* Its clock: so much at `from`, and running at `rate` thousandths. */
    uint64_t from, shows, rate;
    uint64_t ticks, calls;
    /* Counted; may be NULL. `seen`: what there is, as seen last; `last`: the last that was any. */
    struct sim_version *seen, *last, *answer;
    struct sim_version *write; /* owned until it arrives */
    uint64_t token;            /* of the state that the write is to replace */
    enum rdzv_do does;
    bool won, fails;
    struct rdzv_card post;
    struct rdzv_found found;
    bool has_found;
    uint64_t page_bytes;
    struct rdzv_head head; /* answered, with the cards */
    bool has_head;
    struct rdzv_card *cards;
    uint32_t n_cards;
    enum rdzv_news news; /* latest; ROUND: it is in one */
    struct rdzv_place place;
    uint64_t round, stamp, rounds, opened, evicted, notices;
    struct dl_error error, notice;
};

struct sim_round {
    uint64_t round, stamp, members; /* hash of who has which rank */
};

struct sim {
    struct rdzv_settings set;
    struct sim_node *nodes;
    uint32_t n;
    struct sim_event *heap;
    size_t events, cap;
    uint64_t now, order, draws, tokens, seed;
    struct sim_version *store;              /* may be NULL: it holds nothing */
    struct dl_buffer pages[RDZV_PAGES_MAX]; /* of places, of the state of that token */
    uint64_t paged;
    struct rdzv_head head; /* as it lies there; it can be one that was left behind */
    uint32_t head_format;
    bool has_head;
    struct rdzv_card *cards; /* of each node; life RDZV_NUMBER_MAX: none */
    bool polls;              /* the store does not say that something has changed */
    bool finds;              /* it has pages of places, and owners take these for enough */
    uint32_t behind;         /* of 1,000 writes: the head stays as it was */
    bool down;
    uint64_t delay_ns; /* at most, of each message */
    uint64_t call_ns;  /* that the store takes for a call, and as much for each SIM_CALL_MORE bytes;
                          it does one after the other */
    uint64_t busy;     /* until then */
    uint32_t lose;     /* of 1,000 messages */
    uint64_t ready_ns; /* at most, until an owner stands still */
    struct sim_round complete[SIM_ROUNDS];
    uint32_t n_complete;
    uint64_t writes, lost_writes, reads, finds_done, removed, calls;
    uint64_t bytes; /* of what was written and read: of each kind of call, and of what was told */
    uint64_t bytes_of[SIM_KINDS], calls_of[SIM_KINDS];
    struct rdzv_state next;
};

static inline uint64_t sim_draw(struct sim *sim, uint64_t below)
{
    uint64_t n = next_random(&sim->draws);

    return below ? n % below : n;
}

static inline struct sim_version *sim_ref(struct sim_version *version)
{
    if (version)
        version->refs++;
    return version;
}

static inline void sim_unref(struct sim_version **version)
{
    if (*version && --(*version)->refs == 0) {
        rdzv_state_deinit(&(*version)->state);
        free(*version);
    }
    *version = NULL;
}

/* ---- what happens next ---------------------------------------------------------------------- */

static inline bool sim_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static inline void sim_plan(struct sim *sim, uint64_t at, enum sim_kind kind, uint32_t node,
                            uint64_t turn)
{
    struct sim_event event = {at, sim->order++, kind, node, turn};
    size_t i = sim->events++;

    if (sim->events > sim->cap) {
        sim->cap = sim->cap ? 2 * sim->cap : 256;
        sim->heap = realloc(sim->heap, sim->cap * sizeof *sim->heap);
        assert_non_null(sim->heap);
    }
    for (; i > 0 && sim_before(&event, &sim->heap[(i - 1) / 2]); i = (i - 1) / 2)
        sim->heap[i] = sim->heap[(i - 1) / 2];
    sim->heap[i] = event;
}

static inline struct sim_event sim_take(struct sim *sim)
{
    struct sim_event first = sim->heap[0], last = sim->heap[--sim->events];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < sim->events) {
        if (child + 1 < sim->events && sim_before(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!sim_before(&sim->heap[child], &last))
            break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return first;
}

/* ---- clocks --------------------------------------------------------------------------------- */

static inline uint64_t sim_clock(const struct sim *sim, const struct sim_node *node)
{
    return node->shows + (sim->now - node->from) / 1000 * node->rate;
}

static inline void sim_set_clock(struct sim *sim, struct sim_node *node, uint64_t shows,
                                 uint64_t rate)
{
    node->from = sim->now;
    node->shows = shows;
    node->rate = rate;
}

/* ---- what must hold ------------------------------------------------------------------------- */

static inline uint64_t sim_hash(uint64_t hash, uint64_t n)
{
    return (hash ^ n) * 0x100000001b3U;
}

static inline void sim_check_round(struct sim *sim, const struct rdzv_state *state)
{
    uint64_t hash = 0xcbf29ce484222325U;
    struct sim_round *latest = sim->n_complete ? &sim->complete[sim->n_complete - 1] : NULL;

    for (uint32_t i = 0; i < state->n; i++)
        if (state->nodes[i].member)
            hash = sim_hash(sim_hash(sim_hash(hash, state->nodes[i].id), state->nodes[i].life),
                            state->nodes[i].rank);
    if (latest && latest->round == state->round && latest->stamp == state->stamp) {
        assert_int_equal(latest->members, hash);
        return;
    }
    for (uint32_t i = 0; i < sim->n_complete; i++)
        if (sim->complete[i].round == state->round && sim->complete[i].stamp == state->stamp) {
            assert_int_equal(sim->complete[i].members, hash);
            return;
        }
    assert_true(sim->n_complete < SIM_ROUNDS);
    sim->complete[sim->n_complete++] = (struct sim_round){state->round, state->stamp, hash};
}

static inline uint64_t sim_ttl(const struct sim *sim)
{
    return rdzv_silence(&sim->set);
}

/* Nobody is taken out who lives and did not ask for it. */
static inline void sim_check_removed(struct sim *sim, const struct rdzv_state *before,
                                     const struct rdzv_state *after)
{
    for (uint32_t i = 0; i < before->n; i++) {
        const struct rdzv_node *node = &before->nodes[i];
        const struct rdzv_node *still = rdzv_state_find(after, node->id);

        if ((still && still->life == node->life) || after->writer == node->id)
            continue;
        const struct sim_node *member = &sim->nodes[node->id - 1];
        if (member->rdzv.want != RDZV_WANT_IN || member->rdzv.self.life != node->life)
            continue; /* it had given up on that life */
        bool away = member->dead || member->asleep || member->cut ||
                    sim->now - member->since < 2 * sim_ttl(sim);
        sim->removed++;
        if (!(away && member->since > 0))
            fail_msg("seed %" PRIu64 ": node %" PRIu64 " was taken out by node %" PRIu64
                     " at %" PRIu64 " ms, and lives",
                     sim->seed, node->id, after->writer, sim->now / SIM_MS);
    }
}

static inline void sim_check_bytes(const struct rdzv_state *state)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};
    _cleanup_(rdzv_state_deinit) struct rdzv_state again = {0};
    struct dl_error err = {0};

    rdzv_state_pack(state, &bytes);
    assert_true(bytes.len <= RDZV_BLOB_MAX);
    if (rdzv_state_unpack((struct dl_span){bytes.data, bytes.len}, &again, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(again.n, state->n);
}

static inline uint64_t sim_bytes_of(const struct rdzv_state *state)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};

    if (state)
        rdzv_state_pack(state, &bytes);
    return bytes.len;
}

static inline bool sim_knows(const struct sim_node *node, uint32_t format)
{
    return format >= node->rdzv.formats.least && format <= node->rdzv.formats.greatest;
}

/* Nobody is in a state that it cannot read. */
static inline void sim_check_format(const struct sim *sim, const struct rdzv_state *state)
{
    for (uint32_t i = 0; i < state->n; i++)
        if (!sim_knows(&sim->nodes[state->nodes[i].id - 1], state->format))
            fail_msg("seed %" PRIu64 ": format %u with node %" PRIu64, sim->seed, state->format,
                     state->nodes[i].id);
}

/* What heads and cards have, and a call besides. */
enum { SIM_SMALL_BYTES = 64, SIM_CALL_BYTES = 400, SIM_CALL_MORE = 16384 };

static inline struct rdzv_head sim_head_of(const struct rdzv_state *state)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};
    struct rdzv_head head;

    rdzv_head_pack(state, &bytes);
    assert_true(rdzv_head_unpack((struct dl_span){bytes.data, bytes.len}, &head));
    assert_true(head.nonce == state->nonce && head.round == state->round &&
                head.complete == state->complete && head.n == state->n);
    return head;
}

static inline uint64_t sim_delay(struct sim *sim)
{
    return sim->delay_ns / 10 + sim_draw(sim, sim->delay_ns);
}

static inline void sim_tell_watchers(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n && !sim->polls; i++)
        sim_plan(sim, sim->now + sim_delay(sim), SIM_CHANGED, i, 0);
}

static inline void sim_commit(struct sim *sim, struct sim_version *version)
{
    sim_check_bytes(&version->state);
    sim_check_format(sim, &version->state);
    if (sim->store)
        sim_check_removed(sim, &sim->store->state, &version->state);
    if (version->state.complete)
        sim_check_round(sim, &version->state);
    sim_unref(&sim->store);
    version->token = ++sim->tokens;
    sim->store = sim_ref(version);
    sim->writes++;
    if (sim->behind > 0 && sim_draw(sim, 1000) < sim->behind)
        return;
    sim->head = sim_head_of(&version->state);
    sim->head_format = version->state.format;
    sim->has_head = true;
    sim_tell_watchers(sim);
}

/* All, as one that was started again. */
static inline void sim_forget(struct sim *sim)
{
    sim_unref(&sim->store);
    sim->has_head = false;
    for (uint32_t i = 0; i < sim->n; i++)
        sim->cards[i].life = RDZV_NUMBER_MAX;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static inline void sim_count(struct sim *sim, unsigned kind, uint64_t bytes)
{
    sim->bytes += bytes;
    sim->bytes_of[kind] += bytes;
    sim->calls_of[kind]++;
    if (kind != SIM_TOLD)
        sim->busy += sim->call_ns * bytes / SIM_CALL_MORE;
}

/* When the store comes to a call that is made now. */
static inline uint64_t sim_arrival(struct sim *sim)
{
    sim->busy = max_u64(sim->busy, sim->now + sim_delay(sim)) + sim->call_ns;
    return sim->busy;
}

static inline void sim_ask(struct sim *sim, uint32_t number, const struct rdzv_out *out)
{
    struct sim_node *node = &sim->nodes[number];

    node->does = out->store;
    node->post = out->card;
    node->calls++;
    sim->calls++;
    sim->reads += out->store == RDZV_READ;
    sim->finds_done += out->store == RDZV_FIND;
    if (out->store == RDZV_WRITE) {
        sim_unref(&node->write);
        node->write = calloc(1, sizeof *node->write);
        assert_non_null(node->write);
        node->write->refs = 1;
        node->write->state = sim->next;
        sim->next = (struct rdzv_state){0};
        node->token = node->seen ? node->seen->token : 0;
    }
    sim_plan(sim, sim->call_ns ? sim_arrival(sim) : sim->now + sim_delay(sim), SIM_ARRIVES, number,
             node->calls);
}

static inline void sim_tell(struct sim *sim, uint32_t number, const struct rdzv_out *out,
                            const struct rdzv_state *state)
{
    struct sim_node *node = &sim->nodes[number];

    if (out->news == RDZV_ROUND && node->rounds > 0 && node->stamp == state->stamp) {
        const struct rdzv_place place = rdzv_state_place(state, node->self.id);

        assert_memory_equal(&place, &node->place, sizeof place); /* as it was found */
        return;
    }
    node->news = out->news;
    if (out->news == RDZV_PLACED) {
        assert_true(node->rounds == 0 || node->rdzv.round > node->round);
        node->news = RDZV_ROUND;
        node->place = out->place;
        node->round = node->rdzv.round;
        node->stamp = node->rdzv.stamp;
        node->rounds++;
    }
    if (out->news == RDZV_ROUND) {
        node->place = rdzv_state_place(state, node->self.id);
        assert_true(node->place.rank < node->place.nodes && node->place.nodes <= sim->set.max);
        assert_true(node->place.first + node->self.local <= node->place.world);
        assert_true(node->rounds == 0 || state->round > node->round);
        node->round = state->round;
        node->stamp = state->stamp;
        node->rounds++;
    }
    if (out->news == RDZV_OPENED || out->news == RDZV_EVICTED) {
        node->opened += out->news == RDZV_OPENED;
        node->evicted += out->news == RDZV_EVICTED;
        sim_plan(sim, sim->now + sim_draw(sim, sim->ready_ns), SIM_READY, number, 0);
    }
    if (out->error.code)
        node->error = out->error;
}

static inline void sim_note(struct sim_node *node, const struct rdzv_out *out)
{
    if (out->notice.code) {
        node->notice = out->notice;
        node->notices++;
    }
}

static inline void sim_step(struct sim *sim, uint32_t number, struct rdzv_event *event)
{
    struct sim_node *node = &sim->nodes[number];
    struct rdzv_out out;

    event->now = sim_clock(sim, node);
    rdzv_step(&node->rdzv, event, &sim->next, &out);
    sim_note(node, &out);
    if (out.news != RDZV_NO_NEWS)
        sim_tell(sim, number, &out, event->state);
    if (out.drops && !sim->down && !node->cut)
        sim->cards[out.dropped - 1].life = RDZV_NUMBER_MAX;
    if (out.store != RDZV_NOTHING)
        sim_ask(sim, number, &out);
    node->ticks++;
    if (out.wake == UINT64_MAX)
        return;
    uint64_t wait = (out.wake - event->now) / node->rate * 1000;
    sim_plan(sim, sim->now + wait + 1000, SIM_TICK, number, node->ticks);
}

static inline void sim_owner(struct sim *sim, uint32_t number, enum rdzv_event_type type)
{
    struct rdzv_event event = {.type = type, .reason = "all is done"};

    sim_step(sim, number, &event);
}

/* ---- the store ------------------------------------------------------------------------------ */

static inline bool sim_is_lost(struct sim *sim)
{
    return sim->lose > 0 && sim_draw(sim, 1000) < sim->lose;
}

static inline void sim_write(struct sim *sim, struct sim_node *node)
{
    if ((sim->store ? sim->store->token : 0) == node->token) {
        sim_commit(sim, node->write);
        node->won = true;
    } else {
        sim->lost_writes++;
    }
}

static inline void sim_look(struct sim *sim, struct sim_node *node)
{
    node->n_cards = 0;
    for (uint32_t i = 0; i < sim->n; i++)
        if (sim->cards[i].life != RDZV_NUMBER_MAX)
            node->cards[node->n_cards++] = sim->cards[i];
}

static inline void sim_drop_pages(struct sim *sim)
{
    for (size_t i = 0; i < RDZV_PAGES_MAX; i++)
        buffer_deinit(&sim->pages[i]);
}

/* As it was written with the state that completed the round. */
static inline struct dl_span sim_page(struct sim *sim, uint32_t number)
{
    struct dl_buffer *page = &sim->pages[number];

    if (sim->paged != sim->store->token)
        sim_drop_pages(sim);
    sim->paged = sim->store->token;
    if (page->len == 0)
        rdzv_page_pack(&sim->store->state, number, page);
    return (struct dl_span){page->data, page->len};
}

static inline void sim_find(struct sim *sim, struct sim_node *node)
{
    const struct rdzv_state *state = sim->store ? &sim->store->state : NULL;
    uint32_t pages = rdzv_pages(sim->head.members);

    node->has_found = false;
    node->page_bytes = 0;
    if (!state || !state->complete || pages == 0 ||
        rdzv_pages(rdzv_state_count(state).members) != pages)
        return;
    struct dl_span page = sim_page(sim, (uint32_t)(node->self.id % pages));
    node->page_bytes = page.len;
    node->has_found = rdzv_page_find(page, node->self.id, &node->found);
}

/* Of a call: what goes there and comes back. */
static inline void sim_count_call(struct sim *sim, const struct sim_node *node)
{
    const struct rdzv_state *state = sim->store ? &sim->store->state : NULL;
    bool whole = node->does == RDZV_READ || node->does == RDZV_WRITE;
    uint64_t bytes = SIM_CALL_BYTES + SIM_SMALL_BYTES + (whole ? sim_bytes_of(state) : 0);

    if (node->does == RDZV_LOOK)
        bytes += (uint64_t)node->n_cards * (SIM_SMALL_BYTES + 100);
    if (node->does == RDZV_FIND)
        bytes += node->page_bytes;
    sim_count(sim, node->does, bytes);
}

/* What is asked is done there, of what there is now. */
static inline void sim_do(struct sim *sim, uint32_t number)
{
    struct sim_node *node = &sim->nodes[number];

    if (node->does == RDZV_WRITE)
        sim_write(sim, node);
    else if (node->does == RDZV_POST)
        sim->cards[number] = node->post;
    else if (node->does == RDZV_LOOK)
        sim_look(sim, node);
    else if (node->does == RDZV_FIND)
        sim_find(sim, node);
    node->answer = sim_ref(sim->store);
    node->head = sim->head;
    node->has_head = sim->has_head && sim_knows(node, sim->head_format);
    sim_count_call(sim, node);
}

/* A call reaches the store, is done there, and is answered; or fails, at any of these. */
static inline void sim_arrives(struct sim *sim, uint32_t number)
{
    struct sim_node *node = &sim->nodes[number];
    uint64_t back = sim->now + sim_delay(sim);

    node->fails = sim->down || node->cut || sim_is_lost(sim);
    node->won = false;
    sim_unref(&node->answer);
    if (!node->fails)
        sim_do(sim, number);
    sim_unref(&node->write);
    node->fails |= sim_is_lost(sim); /* the answer */
    if (node->fails)
        back += 2 * SIM_S;
    sim_plan(sim, back, SIM_ANSWERED, number, node->calls);
}

static inline void sim_fill_event(struct sim_node *node, struct rdzv_event *event)
{
    const struct sim_version *now = event->type == RDZV_SEEN ? node->answer : node->seen;

    event->head = node->has_head ? &node->head : NULL;
    event->found = node->has_found ? &node->found : NULL;
    event->cards = node->cards;
    event->n_cards = node->n_cards;
    event->state = now ? &now->state : NULL;
    event->last = node->last ? &node->last->state : NULL;
}

/* As member.c does it: what is there is of a format that this node cannot read. */
static inline void sim_refuse_format(struct sim_node *node, struct rdzv_event *event,
                                     struct dl_error *error)
{
    bool reads = event->type == RDZV_SEEN && node->answer;

    if (!reads || sim_knows(node, node->answer->state.format))
        return;
    *error = (struct dl_error){.code = EPROTONOSUPPORT, .message = "another format"};
    event->type = RDZV_FAILING;
}

static inline void sim_answered(struct sim *sim, uint32_t number)
{
    struct sim_node *node = &sim->nodes[number];
    struct dl_error error = {.code = ETIMEDOUT, .message = "the store did not answer for 2 s"};
    struct rdzv_event event = {.type = RDZV_HEAD, .won = node->won, .error = &error};

    if (node->fails || node->cut)
        event.type = RDZV_FAILING;
    else if (node->does == RDZV_READ || node->does == RDZV_WRITE)
        event.type = RDZV_SEEN;
    else if (node->does == RDZV_LOOK)
        event.type = RDZV_LOOKED;
    else if (node->does == RDZV_FIND)
        event.type = RDZV_FOUND;
    sim_refuse_format(node, &event, &error);
    sim_fill_event(node, &event);
    if (event.type == RDZV_SEEN) {
        sim_unref(&node->seen);
        node->seen = sim_ref(node->answer);
    }
    sim_step(sim, number, &event);
    if (event.type == RDZV_SEEN && node->answer) {
        sim_unref(&node->last);
        node->last = sim_ref(node->answer);
    }
}

static inline void sim_changed(struct sim *sim, uint32_t number)
{
    struct sim_node *node = &sim->nodes[number];
    struct rdzv_event event = {.type = RDZV_CHANGED};

    if (sim->has_head && sim_knows(node, sim->head_format))
        event.head = &sim->head;
    sim_count(sim, SIM_TOLD, SIM_CALL_BYTES / 2);
    if (!node->cut && !sim->down && !sim_is_lost(sim))
        sim_step(sim, number, &event);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static inline void sim_init(struct sim *sim, uint32_t n, uint64_t seed)
{
    sim->n = n;
    sim->draws = seed;
    sim->now = SIM_S;
    sim->delay_ns = sim->delay_ns ? sim->delay_ns : 2 * SIM_MS;
    sim->ready_ns = sim->ready_ns ? sim->ready_ns : 100 * SIM_MS;
    sim->nodes = calloc(n, sizeof *sim->nodes);
    sim->cards = calloc(n, sizeof *sim->cards);
    assert_true(sim->nodes && sim->cards);
    for (uint32_t i = 0; i < n; i++) {
        struct sim_node *node = &sim->nodes[i];

        node->self = (struct rdzv_node){.id = i + 1, .local = 1 + i % 8};
        (void)snprintf(node->self.name, sizeof node->self.name, "node%u", i);
        rdzv_init(&node->rdzv, &sim->set, &node->self, sim->polls);
        if (sim->finds)
            rdzv_go_by_places(&node->rdzv);
        node->cards = calloc(n, sizeof *node->cards);
        assert_non_null(node->cards);
        sim->cards[i].life = RDZV_NUMBER_MAX;
        sim_set_clock(sim, node, sim_draw(sim, 1000) * SIM_S, 1000);
    }
}

static inline void sim_deinit(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->n; i++) {
        rdzv_deinit(&sim->nodes[i].rdzv);
        free(sim->nodes[i].cards);
        sim_unref(&sim->nodes[i].seen);
        sim_unref(&sim->nodes[i].last);
        sim_unref(&sim->nodes[i].answer);
        sim_unref(&sim->nodes[i].write);
    }
    sim_unref(&sim->store);
    sim_drop_pages(sim);
    rdzv_state_deinit(&sim->next);
    free(sim->cards);
    free(sim->nodes);
    free(sim->heap);
}

static inline void sim_event(struct sim *sim, const struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->node];

    if (node->dead)
        return;
    if (node->asleep) { /* it will see to it then */
        struct sim_event later = *event;

        if (event->kind == SIM_ARRIVES && event->turn == node->calls)
            sim_arrives(sim, event->node); /* under way already */
        else if (event->kind != SIM_ARRIVES && event->kind != SIM_CHANGED)
            sim_plan(sim, sim->now + 100 * SIM_MS, later.kind, later.node, later.turn);
        return;
    }
    if (sim->now < node->naps_until && event->kind != SIM_ARRIVES) { /* all that came, at once */
        sim_plan(sim, node->naps_until, event->kind, event->node, event->turn);
        return;
    }
    switch (event->kind) {
    case SIM_TICK:
        if (event->turn == node->ticks)
            sim_owner(sim, event->node, RDZV_TICK);
        break;
    case SIM_ARRIVES:
        if (event->turn == node->calls)
            sim_arrives(sim, event->node);
        break;
    case SIM_ANSWERED:
        if (event->turn == node->calls)
            sim_answered(sim, event->node);
        break;
    case SIM_CHANGED:
        sim_changed(sim, event->node);
        break;
    case SIM_READY:
        sim_owner(sim, event->node, RDZV_READY);
        break;
    case SIM_JOIN:
        sim_owner(sim, event->node, RDZV_JOIN);
        break;
    }
}

/* Until then, or until `done` says so. */
static inline bool sim_run(struct sim *sim, uint64_t until, bool (*done)(const struct sim *sim))
{
    while (sim->events > 0 && sim->heap[0].at <= until) {
        struct sim_event event = sim_take(sim);

        sim->now = event.at;
        sim_event(sim, &event);
        if (done && done(sim))
            return true;
    }
    sim->now = until;
    return false;
}

/* All who live are in one complete round, and nobody else is; their ranks are those of it. */
static inline bool sim_all_in(const struct sim *sim)
{
    const struct rdzv_state *state = sim->store ? &sim->store->state : NULL;
    uint32_t alive = 0;

    if (!state || !state->complete)
        return false;
    for (uint32_t i = 0; i < sim->n; i++) {
        const struct sim_node *node = &sim->nodes[i];

        if (node->dead || node->rdzv.want != RDZV_WANT_IN)
            continue;
        alive++;
        if (!node->rdzv.in_round || node->round != state->round || node->stamp != state->stamp)
            return false;
    }
    return alive == rdzv_state_count(state).members && alive == state->n;
}

#endif
