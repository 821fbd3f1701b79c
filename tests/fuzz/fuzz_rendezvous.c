/*
 * States of a rendezvous: whatever the bytes are, they are refused in words, or a state that is
 * written and read again as the same; and a node that sees it, wanting in or out, writes one that
 * can be read.
 */
#include "daemon/cluster/rendezvous/rendezvous.h"

#include "tests/fuzz/fuzz.h"

static void check_again(const struct rdzv_state *state)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0}, twice = {0};
    _cleanup_(rdzv_state_deinit) struct rdzv_state again = {0};
    struct dl_error err = {0};

    rdzv_state_pack(state, &bytes);
    FUZZ_ASSERT(bytes.len <= RDZV_BLOB_MAX);
    FUZZ_ASSERT(rdzv_state_unpack((struct dl_span){bytes.data, bytes.len}, &again, &err) == 0);
    rdzv_state_pack(&again, &twice);
    FUZZ_ASSERT(twice.len == bytes.len && memcmp(twice.data, bytes.data, bytes.len) == 0);
    buffer_deinit(&twice);
}

/* Numbers that are as large as can be cannot be counted up; no node counts that far. */
static bool is_at_the_end(const struct rdzv_state *state)
{
    uint64_t most = max_u64(state->seq, max_u64(state->round, state->quorum));

    for (uint32_t i = 0; i < state->n; i++)
        most = max_u64(most, state->nodes[i].life);
    return most > RDZV_NUMBER_MAX - 100;
}

static void check_small(struct dl_span data)
{
    struct rdzv_found found;
    struct rdzv_head head;
    struct rdzv_card card;
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};

    (void)rdzv_head_unpack(data, &head);
    if (rdzv_page_find(data, 5, &found))
        FUZZ_ASSERT(found.stamp > 0 && found.place.rank < found.place.nodes &&
                    found.place.first <= found.place.world);
    if (!rdzv_card_unpack(data, &card))
        return;
    rdzv_card_pack(&card, &bytes);
    FUZZ_ASSERT(rdzv_card_unpack((struct dl_span){bytes.data, bytes.len}, &card));
}

static void see(const struct rdzv_state *state, enum rdzv_event_type request, uint64_t id)
{
    _cleanup_(rdzv_state_deinit) struct rdzv_state next = {0};
    struct rdzv_settings set = RDZV_DEFAULTS;
    struct rdzv_node self = {.id = id, .local = 2, .name = "fuzz"};
    struct rdzv_out out;
    struct rdzv rdzv;
    struct rdzv_head head = {.nonce = state->nonce,
                             .round = state->round,
                             .stamp = state->stamp,
                             .complete = state->complete,
                             .closed = state->closed[0],
                             .n = state->n,
                             .rules = state->rules};

    set.min = state->rules.min;
    set.max = state->rules.max;
    set.missed = state->rules.missed;
    set.beat_ns = state->rules.beat_ns;
    if (rdzv_settings_check(&set, NULL) < 0)
        return;
    rdzv_init(&rdzv, &set, &self, id % 2);
    if (rdzv_state_find(state, id))
        rdzv.self.life = rdzv_state_find(state, id)->life;
    rdzv.present = true;
    rdzv.any = id % 2;
    rdzv.round = id % 5;
    struct rdzv_event event = {.type = RDZV_JOIN, .now = 1, .reason = "fuzz"};
    rdzv_step(&rdzv, &event, &next, &out);
    event.type = request;
    rdzv_step(&rdzv, &event, &next, &out);
    for (unsigned i = 0; i < 60; i++) {
        event = (struct rdzv_event){.type = RDZV_TICK, .now = event.now + 1000000000};
        rdzv_step(&rdzv, &event, &next, &out);
        if (rdzv.doing == RDZV_NOTHING)
            continue;
        event = (struct rdzv_event){.type = RDZV_HEAD,
                                    .now = event.now + 1000,
                                    .state = state,
                                    .head = &head,
                                    .cards = &rdzv.card,
                                    .n_cards = rdzv.has_card};
        if (rdzv.doing == RDZV_READ || rdzv.doing == RDZV_WRITE)
            event.type = RDZV_SEEN;
        else if (rdzv.doing == RDZV_LOOK)
            event.type = RDZV_LOOKED;
        rdzv_step(&rdzv, &event, &next, &out);
        FUZZ_ASSERT(out.news != RDZV_FAILED || out.error.message[0]);
        if (out.store == RDZV_WRITE)
            check_again(&next);
    }
    rdzv_deinit(&rdzv);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    _cleanup_(rdzv_state_deinit) struct rdzv_state state = {0};
    struct dl_error err = {0};

    check_small((struct dl_span){data, len});
    if (rdzv_state_unpack((struct dl_span){data, len}, &state, &err) < 0) {
        FUZZ_ASSERT(err.code && err.message[0] && !state.nodes && state.n == 0);
        return 0;
    }
    check_again(&state);
    if (state.n > 64 || is_at_the_end(&state))
        return 0;
    static const enum rdzv_event_type requests[] = {RDZV_READY, RDZV_LEAVE, RDZV_CLOSE};
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        see(&state, requests[i], 12345);
        if (state.n > 0)
            see(&state, requests[i], state.nodes[0].id);
    }
    return 0;
}
