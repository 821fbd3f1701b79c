/* What the fetcher holds: a block that somebody uses stays, what is held keeps to its limit, and an
 * object that nobody uses or holds is forgotten: by many random steps, beside a model that counts.
 */
#include "tests/lib/harness.h"

#include "daemon/fetcher/objects.h"
#include "tests/lib/splitmix.h"
#include "tests/unit/remote_case.h"

#include <stdio.h>

enum {
    BLOCK = REMOTE_BLOCK_BYTES,
    OBJECTS = 6,
    BLOCKS_MOST = 24, /* of one: some are larger than what is held in memory of our own */
    STEPS = 20000,
    LIMIT = 12 * BLOCK,
};

/* One of the objects as the test knows it. */
struct known {
    struct object *object; /* NULL: nobody uses it; it may be forgotten */
    uint64_t bytes;
    uint32_t users[BLOCKS_MOST];
    bool forgotten[BLOCKS_MOST]; /* it was there when its plan was */
};

struct sim {
    struct objects objects;
    struct known known[OBJECTS];
    uint64_t random;
    uint8_t *content;
};

static uint64_t below(struct sim *sim, uint64_t n)
{
    return next_random(&sim->random) % n;
}

static uint64_t blocks_in(const struct known *known)
{
    return (known->bytes + BLOCK - 1) / BLOCK;
}

/* What byte `at` of object `i` is. */
static uint8_t content_at(size_t i, uint64_t at)
{
    return (uint8_t)(at / 997 * 7 + at % 251 + i * 31);
}

static void find_object(struct sim *sim, size_t i)
{
    static const char *const no_env[] = {NULL};
    struct known *known = &sim->known[i];
    char url[64];

    snprintf(url, sizeof url, "https://host/%zu", i);
    struct object *object = objects_find(&sim->objects, url);
    if (object) {
        object_use(object);
    } else {
        struct remote_settings settings = settings_of(no_env);
        struct remote_place place = place_of(url, &settings);
        object = objects_add(&sim->objects, url, &place);
        remote_settings_deinit(&settings);
    }
    if (object->bytes == REMOTE_UNKNOWN)
        assert_int_equal(object_learn(object, known->bytes, "\"e\"", -1), 0);
    assert_int_equal(object->bytes, known->bytes);
    known->object = object;
}

static void put_block(struct sim *sim, size_t i, uint64_t block)
{
    struct object *object = sim->known[i].object;
    uint64_t bytes = object_bytes_of(object, block, 1);

    object_await(&sim->objects, object, block, 1);
    if (below(sim, 8) == 0) {
        object_give_up(&sim->objects, object, block, 1);
        return;
    }
    for (uint64_t at = 0; at < bytes; at++)
        sim->content[at] = content_at(i, block * BLOCK + at);
    sim->known[i].forgotten[block] = false;
    assert_int_equal(
        object_put(&sim->objects, object, block, (struct dl_span){sim->content, bytes}), 0);
}

/* A block that is there has its bytes, in a descriptor, too. */
static void check_block(struct sim *sim, size_t i, uint64_t block)
{
    struct object *object = sim->known[i].object;
    uint64_t at = block * BLOCK + below(sim, object_bytes_of(object, block, 1));
    bool mapped = below(sim, 2) == 0;
    uint8_t byte;
    int fd;

    if (object_there(object, block, 1) == 0)
        return;
    assert_int_equal(object_open(object, mapped, &fd), 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    assert_int_equal(byte, content_at(i, at));
    assert_int_equal(pwrite(fd, &byte, 1, 0), -1); /* who gets it may only read */
    close(fd);
}

static void forget_ahead(struct sim *sim, uint64_t planner)
{
    for (size_t i = 0; i < OBJECTS; i++) {
        struct known *known = &sim->known[i];

        for (uint64_t block = 0; known->object && block < blocks_in(known); block++)
            known->forgotten[block] |= known->object->planner == planner &&
                                       known->object->blocks[block].state == BLOCK_THERE;
    }
    objects_forget_ahead(&sim->objects, planner);
}

static void take_step(struct sim *sim)
{
    size_t i = below(sim, OBJECTS);
    struct known *known = &sim->known[i];

    if (!known->object)
        find_object(sim, i);
    uint64_t block = below(sim, blocks_in(known));
    switch (below(sim, 8)) {
    case 0:
    case 1:
        if (known->object->blocks[block].state == BLOCK_ABSENT)
            put_block(sim, i, block);
        break;
    case 2:
        blocks_use(&sim->objects, known->object, block, 1);
        known->users[block]++;
        break;
    case 3:
        if (known->users[block] > 0) {
            known->users[block]--;
            blocks_leave(&sim->objects, known->object, block, 1);
        }
        break;
    case 4:
        check_block(sim, i, block);
        break;
    case 5:
        if (known->object->blocks[block].state == BLOCK_THERE)
            object_give(&sim->objects, known->object, block);
        break;
    case 6:
        if (below(sim, 8) == 0)
            known->object->planner = 1 + below(sim, 2);
        else if (below(sim, 8) == 0)
            forget_ahead(sim, 1 + below(sim, 2));
        break;
    default:
        (void)objects_have_room(&sim->objects, 0);
    }
}

/* What is there, by looking at each block. */
static void check_counts(const struct sim *sim)
{
    uint64_t held = 0, ahead = 0;

    for (size_t i = 0; i < OBJECTS; i++) {
        const struct known *known = &sim->known[i];
        for (uint64_t block = 0; known->object && block < blocks_in(known); block++) {
            uint64_t bytes = object_bytes_of(known->object, block, 1);
            const struct block *is = &known->object->blocks[block];
            assert_int_equal(is->users, known->users[block]);
            held += is->state == BLOCK_THERE ? bytes : 0;
            ahead += is->state == BLOCK_THERE && !is->given && !known->forgotten[block] ? bytes : 0;
            assert_int_equal(object_lacks(known->object, block, 1),
                             is->state == BLOCK_THERE ? 0 : bytes);
        }
    }
    assert_int_equal(held, sim->objects.held);
    assert_int_equal(ahead, sim->objects.ahead);
}

static void leave_all(struct sim *sim)
{
    for (size_t i = 0; i < OBJECTS; i++) {
        struct known *known = &sim->known[i];
        for (uint64_t block = 0; known->object && block < blocks_in(known); block++) {
            for (; known->users[block] > 0; known->users[block]--)
                blocks_leave(&sim->objects, known->object, block, 1);
        }
        if (known->object)
            object_leave(&sim->objects, known->object);
        known->object = NULL;
    }
}

TEST(test_random_steps)
{
    static const uint64_t sizes[OBJECTS] = {1,          BLOCK,         BLOCK + 1, 5 * BLOCK - 1,
                                            24 * BLOCK, 23 * BLOCK + 7};
    struct sim sim = {.random = 1, .content = calloc(1, BLOCK)};

    objects_init(&sim.objects, LIMIT);
    for (size_t i = 0; i < OBJECTS; i++)
        sim.known[i].bytes = sizes[i];
    for (int step = 0; step < STEPS; step++) {
        take_step(&sim);
        check_counts(&sim);
    }
    leave_all(&sim);
    assert_true(sim.objects.held <= LIMIT);
    objects_deinit(&sim.objects); /* which asserts that nothing is left */
    free(sim.content);
}

/* Of what nobody uses the one goes first that was used longest ago; what is used never goes. */
TEST(test_which_goes)
{
    struct sim sim = {.random = 2, .content = calloc(1, BLOCK)};
    struct object *object;

    objects_init(&sim.objects, 3 * BLOCK);
    sim.known[0].bytes = 5 * BLOCK;
    find_object(&sim, 0);
    object = sim.known[0].object;
    for (uint64_t block = 0; block < 3; block++) {
        object_await(&sim.objects, object, block, 1);
        assert_int_equal(
            object_put(&sim.objects, object, block, (struct dl_span){sim.content, BLOCK}), 0);
    }
    blocks_use(&sim.objects, object, 0, 1); /* used last, and not used any more */
    blocks_leave(&sim.objects, object, 0, 1);
    blocks_use(&sim.objects, object, 2, 1);
    assert_true(objects_have_room(&sim.objects, BLOCK));
    assert_int_equal(object->blocks[1].state, BLOCK_ABSENT);
    assert_int_equal(object->blocks[0].state, BLOCK_THERE);
    assert_true(objects_have_room(&sim.objects, 2 * BLOCK));
    assert_int_equal(object->blocks[0].state, BLOCK_ABSENT);
    assert_false(objects_have_room(&sim.objects, 3 * BLOCK));
    assert_int_equal(object->blocks[2].state, BLOCK_THERE);
    sim.known[0].users[2] = 1;
    leave_all(&sim);
    objects_deinit(&sim.objects);
    free(sim.content);
}

/* An object that is forgotten is another one when it is asked for again. */
TEST(test_forgotten)
{
    struct sim sim = {.random = 3};

    objects_init(&sim.objects, BLOCK);
    sim.known[0].bytes = BLOCK;
    find_object(&sim, 0);
    leave_all(&sim);
    assert_null(objects_find(&sim.objects, "https://host/0"));
    objects_deinit(&sim.objects);
}
