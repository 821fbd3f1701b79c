/* What the disk keeps of remote objects: room for a share of the data serves that share of each
 * later epoch, in whatever order it is read; what nobody reads any more makes room; and by many
 * random steps, beside a model that looks at all.
 */
#include "tests/lib/harness.h"

#include "daemon/cache/block_shelf.h"
#include "tests/lib/splitmix.h"

#include <math.h>
#include <stdio.h>

enum { BLOCKS = 6000, FEW = 120, EPOCHS = 4, SWITCHED = 14, MODEL_KEYS = 300, STEPS = 60000 };

/* ---- shares --------------------------------------------------------------------------------- */

static uint32_t order_of(uint64_t key)
{
    return (uint32_t)(next_random(&key) >> 32);
}

/* Small ones and large ones, as blocks of pictures are. */
static uint32_t bytes_of(uint64_t key)
{
    uint64_t random = ~key;

    return 4096 * (uint32_t)(1 + next_random(&random) % 64);
}

/* As the store does. True: it was there. */
static bool ask(struct shelf *shelf, uint64_t key)
{
    uint32_t slot = shelf_find(shelf, key), victim, bytes = bytes_of(key);

    shelf_pass(shelf, bytes);
    if (slot != SHELF_NONE) {
        shelf_use(shelf, slot);
        return true;
    }
    while (!shelf_fits(shelf, bytes) &&
           (victim = shelf_victim(shelf, order_of(key))) != SHELF_NONE) {
        shelf_take_off(shelf, victim);
        shelf_give_back(shelf, victim);
    }
    if (shelf_fits(shelf, bytes)) {
        assert_int_equal(shelf_add(shelf, key, order_of(key), bytes, &slot), 0);
        shelf->slots[slot].there = true;
    }
    assert_true(shelf->bytes <= shelf->limit);
    return false;
}

static void shuffle(uint64_t *keys, uint64_t n, uint64_t *random)
{
    for (uint64_t i = n - 1; i > 0; i--) {
        uint64_t other = next_random(random) % (i + 1), key = keys[i];
        keys[i] = keys[other];
        keys[other] = key;
    }
}

/* The share of an epoch's bytes that were there. */
static double read_epoch(struct shelf *shelf, uint64_t *keys, uint64_t n, uint64_t *random)
{
    uint64_t there = 0, all = 0;

    shuffle(keys, n, random);
    for (size_t i = 0; i < n; i++) {
        all += bytes_of(keys[i]);
        there += ask(shelf, keys[i]) ? bytes_of(keys[i]) : 0;
    }
    return (double)there / (double)all;
}

static uint64_t make_keys(uint64_t *keys, uint64_t n, uint64_t first)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < n; i++)
        bytes += bytes_of(keys[i] = first + i);
    return bytes;
}

static void check_shares(uint64_t n, uint64_t first, double delta)
{
    static uint64_t keys[BLOCKS];
    uint64_t bytes = make_keys(keys, n, first), random = first;

    for (int per_cent = 10; per_cent <= 100; per_cent += 15) {
        struct shelf shelf;

        shelf_init(&shelf, bytes / 100 * (uint64_t)per_cent);
        assert_true(read_epoch(&shelf, keys, n, &random) == 0);
        for (int epoch = 1; epoch < EPOCHS; epoch++) {
            double share = read_epoch(&shelf, keys, n, &random) * 100;
            if (fabs(share - per_cent) > delta)
                fail_msg("room for %d %%, and epoch %d is served to %.1f %%", per_cent, epoch,
                         share);
        }
        shelf_deinit(&shelf);
    }
}

TEST(test_shares)
{
    check_shares(BLOCKS, 1, 0.5);
}

/* Of few blocks a part is less even, and their orders tell less of how many there are. */
TEST(test_few)
{
    for (uint64_t i = 0; i < 300; i++)
        check_shares(FEW, 1000 * i + 1, 6);
}

/* Other data of the same size is read from now on: the first one's blocks go. */
TEST(test_forgotten)
{
    static uint64_t first[BLOCKS], second[BLOCKS];
    uint64_t bytes = make_keys(first, BLOCKS, 1), random = 2;
    struct shelf shelf;
    double share = 0;

    make_keys(second, BLOCKS, BLOCKS + 1);
    shelf_init(&shelf, bytes / 2);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        (void)read_epoch(&shelf, first, BLOCKS, &random);
    for (int epoch = 0; epoch < SWITCHED; epoch++)
        share = read_epoch(&shelf, second, BLOCKS, &random);
    assert_true(fabs(share - 0.5) < 0.02);
    for (size_t i = 0; i < BLOCKS; i++)
        assert_int_equal(shelf_find(&shelf, first[i]), SHELF_NONE);
    shelf_deinit(&shelf);
}

/* ---- random steps --------------------------------------------------------------------------- */

struct model {
    struct shelf shelf;
    uint64_t random;
    uint32_t slot[MODEL_KEYS]; /* of key i + 1; SHELF_NONE: it is not there */
    uint32_t order[MODEL_KEYS];
};

static void add_one(struct model *model, size_t i)
{
    uint32_t order = (uint32_t)(next_random(&model->random) % 50), slot;

    assert_int_equal(shelf_add(&model->shelf, i + 1, order, bytes_of(i), &slot), 0);
    for (size_t other = 0; other < MODEL_KEYS; other++)
        assert_true(model->slot[other] != slot);
    model->slot[i] = slot;
    model->order[i] = order;
    model->shelf.slots[slot].busy = next_random(&model->random) % 4 == 0;
}

static void take_one_off(struct model *model, size_t i)
{
    model->shelf.slots[model->slot[i]].busy = 0;
    shelf_take_off(&model->shelf, model->slot[i]);
    shelf_give_back(&model->shelf, model->slot[i]);
    model->slot[i] = SHELF_NONE;
}

static void check_model(struct model *model)
{
    uint64_t bytes = 0;
    uint32_t n = 0, idle = 0, most = 0;

    for (size_t i = 0; i < MODEL_KEYS; i++) {
        assert_int_equal(shelf_find(&model->shelf, i + 1), model->slot[i]);
        if (model->slot[i] == SHELF_NONE)
            continue;
        n++;
        bytes += bytes_of(i);
        if (model->shelf.slots[model->slot[i]].busy > 0)
            continue;
        idle++;
        most = (uint32_t)max_u64(most, model->order[i]);
    }
    assert_int_equal(model->shelf.n, n);
    assert_int_equal(model->shelf.bytes, bytes);
    uint32_t greatest = shelf_greatest(&model->shelf);
    assert_int_equal(greatest == SHELF_NONE, idle == 0);
    if (greatest != SHELF_NONE)
        assert_int_equal(model->shelf.slots[greatest].order, most);
}

TEST(test_random_steps)
{
    struct model model = {.random = 3};

    shelf_init(&model.shelf, UINT64_MAX);
    memset(model.slot, 0xff, sizeof model.slot);
    for (int step = 0; step < STEPS; step++) {
        size_t i = next_random(&model.random) % MODEL_KEYS;
        if (model.slot[i] == SHELF_NONE)
            add_one(&model, i);
        else
            take_one_off(&model, i);
        if (step % 16 == 0)
            check_model(&model);
    }
    assert_true(model.shelf.n_slots <= MODEL_KEYS); /* those that are free are taken again */
    shelf_deinit(&model.shelf);
}
