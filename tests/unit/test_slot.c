/*
 * The slot table against the table of slot.h, written out here once more: each event in each state
 * either leads where it says or aborts.
 */
#include "tests/lib/abort.h"

#include "daemon/serve/ring/slot.h"

enum { NEVER = -1 };

/* In the order of enum slot_event. A slot with one lease: its RELEASE frees it, RECALL does not.
 * ASSIGN and RETIRE are not slot_apply()'s. */
static const int expected[SLOT_STATES][SLOT_EVENTS] = {
    [SLOT_FREE] = {NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER},
    [SLOT_FILLING] = {NEVER, SLOT_READY, SLOT_FREE, NEVER, NEVER, NEVER, NEVER, NEVER},
    [SLOT_READY] = {NEVER, NEVER, NEVER, SLOT_LEASED, NEVER, NEVER, SLOT_FREE, NEVER},
    [SLOT_LEASED] = {NEVER, NEVER, NEVER, SLOT_LEASED, SLOT_FREE, SLOT_READY, NEVER, NEVER},
    [SLOT_RETIRED] = {NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER},
};

/* A table of one slot in `state`. */
static void bring(struct slot_table *table, enum slot_state state)
{
    slot_table_init(table, 1);
    if (state == SLOT_RETIRED)
        assert_true(slot_table_retire(table));
    if (state == SLOT_FILLING || state == SLOT_READY || state == SLOT_LEASED)
        assert_int_equal(slot_assign(table), 0);
    if (state == SLOT_READY || state == SLOT_LEASED)
        assert_int_equal(slot_apply(table, 0, SLOT_FILLED), SLOT_READY);
    if (state == SLOT_LEASED)
        assert_int_equal(slot_apply(table, 0, SLOT_LEASE), SLOT_LEASED);
    assert_int_equal(table->slots[0].state, state);
}

/* Counts and free list agree with the slots themselves. */
static void check(const struct slot_table *table)
{
    uint32_t counts[SLOT_STATES] = {0};
    uint32_t free_slots = 0;

    for (uint32_t i = 0; i < table->count; i++) {
        counts[table->slots[i].state]++;
        assert_int_equal(table->slots[i].leases > 0, table->slots[i].state == SLOT_LEASED);
    }
    assert_memory_equal(counts, table->in_state, sizeof counts);
    for (uint32_t i = table->free_head; i != SLOT_NONE; i = table->slots[i].next_free) {
        assert_true(i < table->count && free_slots < table->count);
        assert_int_equal(table->slots[i].state, SLOT_FREE);
        free_slots++;
    }
    assert_int_equal(free_slots, counts[SLOT_FREE]);
}

struct attempt {
    struct slot_table table;
    uint32_t slot;
    enum slot_event event;
};

static void apply(void *arg)
{
    struct attempt *attempt = arg;
    slot_apply(&attempt->table, attempt->slot, attempt->event);
}

TEST(test_every_pair)
{
    for (int from = 0; from < SLOT_STATES; from++) {
        for (int event = 0; event < SLOT_EVENTS; event++) {
            struct attempt attempt = {.event = (enum slot_event)event};
            int to = expected[from][event];

            bring(&attempt.table, (enum slot_state)from);
            check(&attempt.table);
            if (to == NEVER) {
                assert_true(call_aborts(apply, &attempt));
            } else {
                assert_int_equal(slot_apply(&attempt.table, 0, (enum slot_event)event), to);
                assert_int_equal(attempt.table.slots[0].state, to);
            }
            check(&attempt.table);
            slot_table_deinit(&attempt.table);
        }
    }
}

TEST(test_no_such_slot)
{
    struct attempt attempt = {.slot = 1, .event = SLOT_FILLED};

    bring(&attempt.table, SLOT_FILLING);
    assert_true(call_aborts(apply, &attempt));
    attempt.slot = SLOT_NONE;
    assert_true(call_aborts(apply, &attempt));
    slot_table_deinit(&attempt.table);
}

TEST(test_the_last_lease_frees)
{
    struct slot_table table;

    bring(&table, SLOT_LEASED);
    assert_int_equal(slot_apply(&table, 0, SLOT_LEASE), SLOT_LEASED);
    assert_int_equal(slot_apply(&table, 0, SLOT_LEASE), SLOT_LEASED);
    assert_int_equal(table.slots[0].leases, 3);
    assert_int_equal(slot_apply(&table, 0, SLOT_RELEASE), SLOT_LEASED);
    assert_int_equal(slot_apply(&table, 0, SLOT_RELEASE), SLOT_LEASED);
    check(&table);
    assert_int_equal(slot_assign(&table), SLOT_NONE);
    assert_int_equal(slot_apply(&table, 0, SLOT_RELEASE), SLOT_FREE);
    assert_int_equal(table.slots[0].leases, 0);
    check(&table);
    slot_table_deinit(&table);
}

TEST(test_what_was_freed_last_is_assigned_first)
{
    struct slot_table table;
    bool seen[4] = {false};

    slot_table_init(&table, 4);
    for (int i = 0; i < 4; i++) {
        uint32_t slot = slot_assign(&table);
        assert_true(slot < 4 && !seen[slot]);
        seen[slot] = true;
        check(&table);
    }
    assert_int_equal(slot_assign(&table), SLOT_NONE);

    /* Freed by each of the three ways. */
    slot_apply(&table, 2, SLOT_ABORT);
    slot_apply(&table, 0, SLOT_FILLED);
    slot_apply(&table, 0, SLOT_DISCARD);
    slot_apply(&table, 3, SLOT_FILLED);
    slot_apply(&table, 3, SLOT_LEASE);
    slot_apply(&table, 3, SLOT_RELEASE);
    check(&table);
    assert_int_equal(slot_assign(&table), 3);
    assert_int_equal(slot_assign(&table), 0);
    slot_apply(&table, 0, SLOT_ABORT);
    assert_int_equal(slot_assign(&table), 0);
    assert_int_equal(slot_assign(&table), 2);
    assert_int_equal(slot_assign(&table), SLOT_NONE);
    check(&table);
    slot_table_deinit(&table);
}

TEST(test_generations_count_assignments)
{
    struct slot_table table;

    slot_table_init(&table, 2);
    assert_int_equal(table.slots[0].generation, 0);
    for (uint64_t n = 1; n <= 5; n++) {
        uint32_t slot = slot_assign(&table);
        assert_int_equal(slot, 0);
        assert_int_equal(table.slots[0].generation, n);
        slot_apply(&table, 0, SLOT_FILLED);
        slot_apply(&table, 0, SLOT_LEASE);
        slot_apply(&table, 0, SLOT_RELEASE);
        assert_int_equal(table.slots[0].generation, n);
    }
    assert_int_equal(table.slots[1].generation, 0);
    slot_table_deinit(&table);
}

TEST(test_retiring_waits_for_readers_and_writers)
{
    struct slot_table table;

    slot_table_init(&table, 4);
    for (int i = 0; i < 3; i++)
        assert_int_equal(slot_assign(&table), i);
    slot_apply(&table, 1, SLOT_FILLED);
    slot_apply(&table, 2, SLOT_FILLED);
    slot_apply(&table, 2, SLOT_LEASE);

    assert_false(slot_table_retire(&table));
    check(&table);
    assert_int_equal(table.in_state[SLOT_RETIRED], 1);
    assert_int_equal(slot_assign(&table), SLOT_NONE);
    assert_false(slot_table_retire(&table));
    slot_apply(&table, 0, SLOT_ABORT);
    assert_false(slot_table_retire(&table));
    slot_apply(&table, 1, SLOT_DISCARD);
    assert_false(slot_table_retire(&table));
    slot_apply(&table, 2, SLOT_RELEASE);
    assert_true(slot_table_retire(&table));
    check(&table);
    assert_int_equal(table.in_state[SLOT_RETIRED], 4);
    assert_int_equal(slot_assign(&table), SLOT_NONE);
    assert_true(slot_table_retire(&table));
    slot_table_deinit(&table);
}

TEST(test_empty_and_large_tables)
{
    struct slot_table table;

    slot_table_init(&table, 0);
    check(&table);
    assert_int_equal(slot_assign(&table), SLOT_NONE);
    assert_true(slot_table_retire(&table));
    slot_table_deinit(&table);

    slot_table_init(&table, 65536);
    check(&table);
    for (uint32_t i = 0; i < 65536; i++)
        assert_int_equal(slot_assign(&table), i);
    assert_int_equal(slot_assign(&table), SLOT_NONE);
    check(&table);
    slot_table_deinit(&table);
    slot_table_deinit(&table);
}

TEST(test_names)
{
    static const char *const names[] = {"free", "filling", "ready", "leased", "retired"};

    for (int i = 0; i < SLOT_STATES; i++)
        assert_string_equal(slot_state_name((enum slot_state)i), names[i]);
}
