#include "daemon/serve/core/states.h"

#include "daemon/serve/base/memory.h"

static struct replica_states *states_replica(struct states *states, uint32_t replica)
{
    if (replica >= states->n) {
        struct replica_states *grown = must_alloc((replica + 1) * sizeof *grown);
        if (states->n > 0)
            memcpy(grown, states->of, states->n * sizeof *grown);
        free(states->of);
        states->of = grown;
        states->n = replica + 1;
    }
    return &states->of[replica];
}

/* It may lie in memory that another process writes to: what is checked is the copy. */
static bool states_copy(struct dl_span from, struct state_record *ret)
{
    struct dataset_state state;

    if (from.len == 0 || from.len > DATASET_STATE_MAX)
        return false;
    struct state_record record = {.bytes = must_alloc(from.len), .len = from.len};
    memcpy(record.bytes, from.data, from.len);
    if (!dataset_state_read((struct dl_span){record.bytes, record.len}, &state)) {
        free(record.bytes);
        return false;
    }
    record.round = state.round;
    free(ret->bytes);
    *ret = record;
    return true;
}

bool states_bring(struct states *states, uint32_t replica, struct dl_span record)
{
    struct state_record *brought = &states_replica(states, replica)->brought;
    uint64_t bytes = states->brought_bytes - brought->len + record.len;

    if (bytes > DATASET_STATES_MAX || !states_copy(record, brought))
        return false;
    states->brought_bytes = bytes;
    return true;
}

bool states_learn(struct states *states, uint32_t replica, struct dl_span record)
{
    struct state_record *latest = &states_replica(states, replica)->latest;
    size_t before = latest->len;

    if (!states_copy(record, latest))
        return false;
    states->latest_bytes += latest->len - before;
    return true;
}

uint64_t states_bytes(const struct states *states)
{
    return states->brought_bytes + states->latest_bytes + states->n * sizeof *states->of;
}

struct dl_span states_find(const struct states *states, uint32_t replica, uint64_t round)
{
    const struct state_record *found = NULL;

    if (replica < states->n) {
        const struct replica_states *of = &states->of[replica];

        if (of->latest.bytes && of->latest.round <= round)
            found = &of->latest;
        else if (of->brought.bytes && of->brought.round <= round)
            found = &of->brought;
    }
    return found ? (struct dl_span){found->bytes, found->len} : (struct dl_span){0};
}

void states_deinit(struct states *states)
{
    for (uint32_t i = 0; i < states->n; i++) {
        free(states->of[i].brought.bytes);
        free(states->of[i].latest.bytes);
    }
    free(states->of);
    *states = (struct states){0};
}
