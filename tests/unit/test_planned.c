/* What the plan knows, taken out of a slot that anything may have written to. */
#include "daemon/data/base/planned.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>

enum { SLOT_BYTES = 4096 };

static _Alignas(64) uint8_t slot[SLOT_BYTES];

/* A planned block, and what is wrong with it. */
struct row {
    uint32_t samples, rows, cut;
    uint32_t lists[8];
    uint64_t bytes;   /* 0: as many as there are */
    const char *text; /* NULL: nothing is */
};

#define DAMAGED "the slot's header is damaged: "

static const struct row rows[] = {
    {3, 0, 0, {5, 1, 7}, 0, NULL},
    {3, 0, 7, {5, 1, 7}, 0, NULL},
    {3, 2, 0, {5, 1, 7, 1, 2}, 0, NULL},
    {3, 3, 0, {5, 1, 7, 1, 1, 1}, 0, NULL},
    {3, 2, 0, {5, 1, 7, 1, 2}, 200, NULL},                     /* more room than is needed */
    {3, 2, SLOT_SPLIT | 7, {5, 1, 7, 1, 2, 0, 4, 9}, 0, NULL}, /* with parts of samples */
    {3, 2, SLOT_SPLIT | 7, {5, 1, 7, 1, 2}, 40, DAMAGED "the plan is cut off"},
    {3, 0, 6, {5, 1, 7}, 0, DAMAGED "a planned length is invalid"},
    {3, 0, 0, {5, 0, 7}, 0, DAMAGED "a planned length is invalid"},
    {3, 0, 0, {5, 1, 7}, 8, DAMAGED "the plan is cut off"},
    {3, 0, 0, {5, 1, 7}, 16, DAMAGED "the plan is cut off"},
    {3, 2, 0, {5, 1, 7, 1, 2}, 32, DAMAGED "the plan is cut off"},
    {3, UINT32_MAX, 0, {5, 1, 7, 1, 2}, 40, DAMAGED "the plan is cut off"},
    {3, 2, 0, {5, 1, 7, 1, 1}, 0, DAMAGED "the planned rows are those of other samples"},
    {3, 2, 0, {5, 1, 7, 1, 3}, 0, DAMAGED "the planned rows are those of other samples"},
    {3, 2, 0, {5, 1, 7, 4, UINT32_MAX}, 0, DAMAGED "the planned rows are those of other samples"},
    {3, 2, 0, {5, 1, 7, 3, 0}, 0, DAMAGED "a planned row is empty"},
};

static struct slot_task put(const struct row *row)
{
    uint64_t begins = row->cut & SLOT_SPLIT ? row->samples : 0;
    uint64_t bytes = slot_planned_bytes(row->samples, row->rows + begins);
    struct slot_task task = {.samples = row->samples, .planned = row->bytes ? row->bytes : bytes};

    assert_true(slot_prepare(slot, SLOT_BYTES, &task));
    struct slot_planned *planned = slot_planned(slot, row->samples);
    planned->cut = row->cut;
    planned->rows = row->rows;
    memcpy(planned->lists, row->lists, sizeof row->lists);
    assert_true(slot_read_task(slot, SLOT_BYTES, &task));
    return task;
}

TEST(test_blocks)
{
    struct planned planned = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct slot_task task = put(&rows[i]);
        struct dl_error err = {0};
        int r = planned_read(&planned, slot, &task, &err);
        assert_int_equal(r, rows[i].text ? -EINVAL : 0);
        if (r < 0) {
            assert_error(&err, EINVAL, "", rows[i].text);
            continue;
        }
        memset(slot, 0xff, sizeof slot); /* nothing of it is looked at again */
        assert_int_equal(planned.cut, rows[i].cut & ~SLOT_SPLIT);
        assert_int_equal(planned.rows, rows[i].rows);
        assert_memory_equal(planned.lengths, rows[i].lists, rows[i].samples * 4);
        assert_memory_equal(planned.in_row, rows[i].lists + rows[i].samples, rows[i].rows * 4);
        assert_int_equal(!!planned.begins, !!(rows[i].cut & SLOT_SPLIT));
        if (planned.begins)
            assert_memory_equal(planned.begins, rows[i].lists + rows[i].samples + rows[i].rows, 12);
    }
    planned_deinit(&planned);
    planned_deinit(&planned);
}

TEST(test_no_memory)
{
    struct planned planned = {0};
    struct dl_error err = {0};
    struct slot_task task = put(&rows[0]);

    fail_in = 0;
    assert_int_equal(planned_read(&planned, slot, &task, &err), -ENOMEM);
    assert_int_equal(planned_read(&planned, slot, &task, &err), 0);
    fail_in = 0;
    assert_int_equal(planned_read(&planned, slot, &task, &err), 0); /* its memory is kept */
    fail_in = -1;
    planned_deinit(&planned);
}
