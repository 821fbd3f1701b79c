/* Records of where datasets stand, lists of them, in slots and for a stream. */
#include "tests/lib/harness.h"

#include "daemon/serve/core/dataset_states.h"
#include "proto/limits.h"
#include "proto/slot_fill.h"

#include <endian.h>
#include <errno.h>

enum { RECORD_MAX = DATASET_STATE_HEAD_BYTES + 16 };

static struct dl_span make(uint64_t round, const char *state, uint8_t ret[static RECORD_MAX])
{
    struct dataset_state head = {
        .round = round, .position = 40, .good = 30, .rank = 1, .world = 3, .ended = true};
    size_t len = strlen(state);

    dataset_state_write_head(&head, ret);
    for (size_t i = 0; i < len; i++)
        ret[DATASET_STATE_HEAD_BYTES + i] = (uint8_t)state[i];
    return (struct dl_span){ret, DATASET_STATE_HEAD_BYTES + len};
}

TEST(test_record)
{
    uint8_t bytes[RECORD_MAX];
    struct dl_span record = make(7, "here", bytes);
    struct dataset_state got;

    assert_true(dataset_state_read(record, &got));
    assert_true(got.round == 7 && got.position == 40 && got.good == 30 && got.ended);
    assert_true(got.rank == 1 && got.world == 3);
    assert_int_equal(got.state.len, 4);
    assert_memory_equal(got.state.data, "here", 4);
    assert_true(dataset_state_read(make(7, "", bytes), &got));
    assert_int_equal(got.state.len, 0);
}

TEST(test_no_record)
{
    static const struct {
        size_t at;
        uint64_t number;
    } cases[] = {
        {0, 0},   /* round */
        {16, 41}, /* more good ones than there are */
        {24, 3},  /* rank, of 3 */
        {32, 0},  /* world */
        {32, DL_MAX_WORLD_SIZE + 1},
        {40, 2}, /* ended */
    };
    uint8_t bytes[RECORD_MAX];
    struct dataset_state got;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dl_span record = make(7, "here", bytes);
        uint64_t number = htole64(cases[i].number);
        memcpy(bytes + cases[i].at, &number, sizeof number);
        assert_false(dataset_state_read(record, &got));
    }
    assert_false(dataset_state_read((struct dl_span){0}, &got));
    assert_false(dataset_state_read((struct dl_span){bytes, DATASET_STATE_HEAD_BYTES - 1}, &got));
}

TEST(test_list)
{
    _cleanup_(buffer_deinit) struct dl_buffer whole = {0};
    uint8_t bytes[RECORD_MAX];
    struct dl_span record, rest;
    uint32_t worker;
    size_t at = 0;

    assert_int_equal(buffer_append(&whole, "token", 5), 0);
    struct dl_buffer list = {0};
    assert_int_equal(dataset_state_list_add(&list, 2, make(7, "two", bytes)), 0);
    assert_int_equal(dataset_state_list_add(&list, 5, make(8, "", bytes)), 0);
    assert_int_equal(dataset_state_list_end(&list), 0);
    assert_int_equal(buffer_append(&whole, list.data, list.len), 0);
    rest = (struct dl_span){whole.data, whole.len};
    struct dl_span cut = dataset_state_split(&rest);
    assert_int_equal(rest.len, 5);
    assert_int_equal(cut.len, list.len);
    assert_int_equal(dataset_state_list_next(cut, &at, &worker, &record), 1);
    assert_int_equal(worker, 2);
    assert_int_equal(record.len, DATASET_STATE_HEAD_BYTES + 3);
    assert_int_equal(dataset_state_list_next(cut, &at, &worker, &record), 1);
    assert_int_equal(worker, 5);
    assert_int_equal(dataset_state_list_next(cut, &at, &worker, &record), 0);
    assert_int_equal(dataset_state_split(&rest).len, 0); /* there is one only */
    buffer_deinit(&list);
}

/* Cut at any byte, and with any byte changed: never read beyond its end. */
TEST(test_damaged_list)
{
    struct dl_buffer list = {0};
    uint8_t bytes[RECORD_MAX];

    assert_int_equal(dataset_state_list_add(&list, 2, make(7, "two", bytes)), 0);
    assert_int_equal(dataset_state_list_end(&list), 0);
    for (size_t i = 0; i < list.len; i++) {
        for (int how = 0; how < 2; how++) {
            size_t len = how ? list.len : i;
            uint8_t *copy = malloc(len ? len : 1); /* as large as it is, for the sanitizer */
            struct dl_span record, whole = {copy, len};
            uint32_t worker;
            size_t at = 0;
            int r = 1;

            memcpy(copy, list.data, len);
            if (how)
                copy[i] ^= 0xff;
            struct dl_span cut = dataset_state_split(&whole);
            assert_true(how || cut.len == 0);
            while (cut.len > 0 && r > 0)
                r = dataset_state_list_next(cut, &at, &worker, &record);
            assert_true(at <= len);
            free(copy);
        }
    }
    buffer_deinit(&list);
}

TEST(test_in_a_slot)
{
    static _Alignas(64) char slot[1024];
    struct slot_header *header = (void *)slot;
    uint8_t bytes[RECORD_MAX];
    struct slot_task got, task = {.samples = 3, .stream = 1, .world = 1};
    struct dl_span record;
    uint64_t used;

    task.state = make(7, "here", bytes);
    memset(slot, 0xaa, sizeof slot);
    assert_false(slot_prepare(slot, slot_state_end(&task) - 1, &task));
    assert_true(slot_prepare(slot, slot_state_end(&task), &task));
    assert_true(slot_read_task(slot, slot_state_end(&task), &got));
    assert_int_equal(got.state.len, task.state.len);
    assert_memory_equal(got.state.data, bytes, task.state.len);
    assert_false(slot_read_task(slot, slot_state_end(&task) - 1, &got));
    /* The image goes over it; and what the worker says of it stands behind. */
    slot_put_batch(slot, 3, &(struct batch_layout){.used = 300});
    assert_true(slot_read_state(slot, sizeof slot, &record) && record.len == 0);
    used = 300;
    assert_false(slot_put_state(slot, 320, bytes, (struct dl_span){(const void *)"new", 3}, &used));
    assert_int_equal(used, 320 + DATASET_STATE_HEAD_BYTES + 3);
    used = 300;
    assert_true(
        slot_put_state(slot, sizeof slot, bytes, (struct dl_span){(const void *)"new", 3}, &used));
    assert_int_equal(header->used, used);
    assert_true(slot_read_state(slot, sizeof slot, &record));
    assert_int_equal(record.len, DATASET_STATE_HEAD_BYTES + 3);
    assert_memory_equal(record.data + DATASET_STATE_HEAD_BYTES, "new", 3);
    for (uint64_t off = 1; off < 8; off++) {
        header->state_off = 320 + off;
        assert_false(slot_read_state(slot, sizeof slot, &record));
    }
    header->state_off = sizeof slot - 8;
    assert_false(slot_read_state(slot, sizeof slot, &record));
    header->state_off = SLOT_HEADER_BYTES;
    header->state_len = DATASET_STATE_MAX + 1;
    assert_false(slot_read_state(slot, UINT64_MAX / 2, &record));
}

/* Whose each sample is, behind the batch. */
TEST(test_origins_in_slot)
{
    static _Alignas(TREE_ALIGN) uint8_t slot[1024];
    struct slot_header *header = (struct slot_header *)(void *)slot;
    uint64_t used = 300;

    assert_null(slot_read_origins(slot, sizeof slot, 0));
    assert_null(slot_put_origins(slot, 302, 3, &used));
    assert_int_equal(used, 303);
    used = 300;
    uint8_t *origins = slot_put_origins(slot, 303, 3, &used);
    assert_ptr_equal(origins, slot + 300);
    assert_int_equal(header->used, 303);
    assert_ptr_equal(slot_read_origins(slot, sizeof slot, 3), origins);
    assert_ptr_equal(slot_read_origins(slot, 303, 3), origins);
    static const uint64_t bad[] = {1, SLOT_HEADER_BYTES - 1, 1022, 1024, 1025, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        header->origins_off = bad[i];
        assert_null(slot_read_origins(slot, sizeof slot, 3));
    }
    header->origins_off = 300;
    assert_null(slot_read_origins(slot, sizeof slot, UINT64_MAX));
}

static uint64_t found(const struct dataset_states *states, uint32_t replica, uint64_t round)
{
    struct dataset_state got;

    return dataset_state_read(dataset_states_find(states, replica, round), &got) ? got.round : 0;
}

/* The latest that is not behind what is wanted, else what was brought. */
TEST(test_of_a_stream)
{
    static const struct {
        uint32_t replica;
        uint64_t round, found;
    } cases[] = {{2, 4, 0},   {2, 5, 5}, {2, 8, 5}, {2, 9, 9}, {2, 100, 9},
                 {0, 100, 0}, {1, 3, 3}, {1, 2, 0}, {7, 9, 0}};
    _cleanup_(dataset_states_deinit) struct dataset_states states = {0};
    uint8_t bytes[RECORD_MAX];

    assert_true(dataset_states_bring(&states, 2, make(5, "a", bytes)));
    assert_true(dataset_states_learn(&states, 2, make(7, "b", bytes)));
    assert_true(dataset_states_learn(&states, 2, make(9, "c", bytes)));
    assert_true(dataset_states_learn(&states, 1, make(3, "d", bytes)));
    assert_false(dataset_states_learn(&states, 2, make(0, "e", bytes)));
    assert_false(dataset_states_bring(&states, 0, (struct dl_span){0}));
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(found(&states, cases[i].replica, cases[i].round), cases[i].found);
}

static uint64_t entered(struct dataset_states *states, uint32_t replica, uint32_t stream,
                        uint64_t round)
{
    struct dataset_state got;

    if (!dataset_state_read_first(dataset_states_enter(states, replica, stream, round), &got))
        return 0;
    assert_int_equal(got.state.len, 1);
    return got.round * 1000 + got.position * 100 + got.state.data[0];
}

/* What a stream begins with is where the one before ended, by which it has passed nothing. */
TEST(test_from_stream_to_stream)
{
    _cleanup_(dataset_states_deinit) struct dataset_states states = {0};
    struct dataset_state head = {.round = 3, .position = 5, .good = 5, .ended = true, .world = 1};
    uint8_t bytes[DATASET_STATE_HEAD_BYTES + 1];
    struct dl_span record = {bytes, sizeof bytes};

    bytes[sizeof bytes - 1] = 7;
    dataset_state_write_head(&head, bytes);
    assert_int_equal(entered(&states, 2, 1, 9), 0);
    assert_true(dataset_states_carry(&states, 2, 1, record));
    assert_int_equal(entered(&states, 2, 1, 2), 0);
    assert_int_equal(entered(&states, 2, 1, 3), 3507);
    assert_int_equal(entered(&states, 1, 1, 3), 0);
    assert_int_equal(entered(&states, 2, 4, 0), 7);
    assert_int_equal(entered(&states, 2, 1, 3), 0); /* it is over */
    assert_true(dataset_states_carry(&states, 2, 1, record));
    assert_int_equal(entered(&states, 2, 4, 0), 7);
    assert_true(dataset_states_carry(&states, 2, 4, record));
    assert_int_equal(entered(&states, 2, 4, 3), 3507);
}

/* A client that brings very much takes no more memory than one that brings much. */
TEST(test_no_more_than_that)
{
    _cleanup_free_ uint8_t *bytes = calloc(1, DATASET_STATE_MAX);
    struct dataset_state head = {.round = 1, .world = 1};
    struct dl_span record = {bytes, DATASET_STATE_MAX};
    _cleanup_(dataset_states_deinit) struct dataset_states states = {0};
    uint32_t n = 0;

    dataset_state_write_head(&head, bytes);
    while (n < 1000 && dataset_states_bring(&states, n, record))
        n++;
    assert_int_equal(n, DATASET_STATES_MAX / DATASET_STATE_MAX);
    assert_true(dataset_states_bring(&states, 0, record)); /* in place of what it said before */
    record.len = DATASET_STATE_HEAD_BYTES;
    assert_true(dataset_states_bring(&states, n, record));
}
