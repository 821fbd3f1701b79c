#include "daemon/serve/core/dataset_states.h"

#include "daemon/base/memory.h"

static struct replica_states *dataset_states_replica(struct dataset_states *states,
                                                     uint32_t replica)
{
    if (replica >= states->n) {
        struct replica_states *grown = must_alloc((replica + 1) * sizeof *grown);
        if (states->n > 0)
            memcpy(grown, states->replicas, states->n * sizeof *grown);
        free(states->replicas);
        states->bytes += (replica + 1 - states->n) * sizeof *grown;
        states->replicas = grown;
        states->n = replica + 1;
    }
    return &states->replicas[replica];
}

/* Another process may write to the memory: copy first, then check the copy. */
static bool dataset_states_copy(struct dl_span from, struct state_record *ret)
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
    record.stream = ret->stream;
    free(ret->bytes);
    *ret = record;
    return true;
}

bool dataset_states_bring(struct dataset_states *states, uint32_t replica, struct dl_span record)
{
    struct state_record *brought = &dataset_states_replica(states, replica)->brought;
    uint64_t before = brought->len, bytes = states->brought_bytes - before + record.len;

    if (bytes > DATASET_STATES_MAX || !dataset_states_copy(record, brought))
        return false;
    states->brought_bytes = bytes;
    states->bytes += record.len - before;
    return true;
}

bool dataset_states_learn(struct dataset_states *states, uint32_t replica, struct dl_span record)
{
    struct state_record *latest = &dataset_states_replica(states, replica)->latest;
    size_t before = latest->len;

    if (!dataset_states_copy(record, latest))
        return false;
    states->bytes += latest->len - before;
    return true;
}

bool dataset_states_carry(struct dataset_states *states, uint32_t replica, uint32_t stream,
                          struct dl_span record)
{
    struct state_record *latest = &dataset_states_replica(states, replica)->latest;

    if (latest->stream > stream)
        return true;
    latest->stream = stream;
    return dataset_states_learn(states, replica, record);
}

/* The stream that begins has passed nothing yet. */
static void dataset_states_begin(struct state_record *record, uint32_t stream)
{
    struct dataset_state state;

    record->stream = stream;
    record->round = 0;
    if (dataset_state_read((struct dl_span){record->bytes, record->len}, &state))
        dataset_state_write_head(&(struct dataset_state){.rank = state.rank, .world = state.world},
                                 record->bytes);
}

struct dl_span dataset_states_enter(struct dataset_states *states, uint32_t replica,
                                    uint32_t stream, uint64_t round)
{
    struct state_record *latest = replica < states->n ? &states->replicas[replica].latest : NULL;

    if (latest && latest->bytes && latest->stream < stream)
        dataset_states_begin(latest, stream);
    return latest && latest->stream == stream ? dataset_states_find(states, replica, round)
                                              : (struct dl_span){0};
}

struct dl_span dataset_states_find(const struct dataset_states *states, uint32_t replica,
                                   uint64_t round)
{
    const struct state_record *found = NULL;

    if (replica < states->n) {
        const struct replica_states *known = &states->replicas[replica];

        if (known->latest.bytes && known->latest.round <= round)
            found = &known->latest;
        else if (known->brought.bytes && known->brought.round <= round)
            found = &known->brought;
    }
    return found ? (struct dl_span){found->bytes, found->len} : (struct dl_span){0};
}

void dataset_states_deinit(struct dataset_states *states)
{
    for (uint32_t i = 0; i < states->n; i++) {
        free(states->replicas[i].brought.bytes);
        free(states->replicas[i].latest.bytes);
    }
    free(states->replicas);
    *states = (struct dataset_states){0};
}
