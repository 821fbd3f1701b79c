#include "daemon/serve/ring/slot.h"

#include "daemon/base/memory.h"

#include <assert.h>

#define REFUSED (-1)

static const int8_t slot_transitions[SLOT_STATES][SLOT_EVENTS] = {
    [SLOT_FREE] = {[SLOT_ASSIGN] = SLOT_FILLING,
                   [SLOT_FILLED] = REFUSED,
                   [SLOT_ABORT] = REFUSED,
                   [SLOT_LEASE] = REFUSED,
                   [SLOT_RELEASE] = REFUSED,
                   [SLOT_RECALL] = REFUSED,
                   [SLOT_DISCARD] = REFUSED,
                   [SLOT_RETIRE] = SLOT_RETIRED},
    [SLOT_FILLING] = {[SLOT_ASSIGN] = REFUSED,
                      [SLOT_FILLED] = SLOT_READY,
                      [SLOT_ABORT] = SLOT_FREE,
                      [SLOT_LEASE] = REFUSED,
                      [SLOT_RELEASE] = REFUSED,
                      [SLOT_RECALL] = REFUSED,
                      [SLOT_DISCARD] = REFUSED,
                      [SLOT_RETIRE] = REFUSED},
    [SLOT_READY] = {[SLOT_ASSIGN] = REFUSED,
                    [SLOT_FILLED] = REFUSED,
                    [SLOT_ABORT] = REFUSED,
                    [SLOT_LEASE] = SLOT_LEASED,
                    [SLOT_RELEASE] = REFUSED,
                    [SLOT_RECALL] = REFUSED,
                    [SLOT_DISCARD] = SLOT_FREE,
                    [SLOT_RETIRE] = REFUSED},
    /* RELEASE: to FREE with the last lease, see slot_apply(). */
    [SLOT_LEASED] = {[SLOT_ASSIGN] = REFUSED,
                     [SLOT_FILLED] = REFUSED,
                     [SLOT_ABORT] = REFUSED,
                     [SLOT_LEASE] = SLOT_LEASED,
                     [SLOT_RELEASE] = SLOT_LEASED,
                     [SLOT_RECALL] = SLOT_READY,
                     [SLOT_DISCARD] = REFUSED,
                     [SLOT_RETIRE] = REFUSED},
    [SLOT_RETIRED] = {REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED},
};

void slot_table_init(struct slot_table *table, uint32_t count)
{
    *table = (struct slot_table){
        .slots = must_alloc(count * sizeof *table->slots), .count = count, .free_head = 0};
    for (uint32_t i = 0; i < count; i++)
        table->slots[i].next_free = i + 1 < count ? i + 1 : SLOT_NONE;
    if (count == 0)
        table->free_head = SLOT_NONE;
    table->in_state[SLOT_FREE] = count;
}

void slot_table_deinit(struct slot_table *table)
{
    free(table->slots);
    *table = (struct slot_table){0};
}

static enum slot_state slot_move(struct slot_table *table, uint32_t index, enum slot_state to)
{
    struct slot *slot = &table->slots[index];

    table->in_state[slot->state]--;
    table->in_state[to]++;
    slot->state = to;
    return to;
}

uint32_t slot_assign(struct slot_table *table)
{
    uint32_t index = table->free_head;

    if (index == SLOT_NONE)
        return SLOT_NONE;
    struct slot *slot = &table->slots[index];
    assert(slot->state == SLOT_FREE);
    table->free_head = slot->next_free;
    slot->generation++;
    slot_move(table, index, (enum slot_state)slot_transitions[SLOT_FREE][SLOT_ASSIGN]);
    return index;
}

enum slot_state slot_apply(struct slot_table *table, uint32_t index, enum slot_event event)
{
    assert(index < table->count);
    struct slot *slot = &table->slots[index];
    int8_t to = slot_transitions[slot->state][event];

    assert(to != REFUSED && event != SLOT_ASSIGN && event != SLOT_RETIRE);
    if (event == SLOT_LEASE)
        slot->leases++;
    if (event == SLOT_RELEASE && --slot->leases == 0)
        to = SLOT_FREE;
    if (event == SLOT_RECALL) {
        assert(slot->leases == 1);
        slot->leases = 0;
    }
    if (to == SLOT_FREE) {
        slot->next_free = table->free_head;
        table->free_head = index;
    }
    return slot_move(table, index, (enum slot_state)to);
}

bool slot_table_retire(struct slot_table *table)
{
    while (table->free_head != SLOT_NONE) {
        uint32_t index = table->free_head;
        table->free_head = table->slots[index].next_free;
        slot_move(table, index, (enum slot_state)slot_transitions[SLOT_FREE][SLOT_RETIRE]);
    }
    return table->in_state[SLOT_RETIRED] == table->count;
}

const char *slot_state_name(enum slot_state state)
{
    static const char *const names[SLOT_STATES] = {"free", "filling", "ready", "leased", "retired"};
    return names[state];
}
