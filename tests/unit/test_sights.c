/* What nodes in front see of the others' heartbeats, for all: see sights.h. Each node here has a
 * store and a clock of its own looks; what it sees of the others is what the test says. */
#include "tests/lib/harness.h"
#include "tests/lib/memory.h"
#include "tests/lib/uv_threads.h"

#include "daemon/cluster/world/members_private.h"

#include <inttypes.h>
#include <stdio.h>

enum { NODES_MAX = 256, POLL_NS = 1000 };

struct member {
    uint64_t id, looked_ns, looks;
};

static struct world {
    uv_loop_t loop;
    struct memory_store *store;
    uint32_t n;
    uint64_t late; /* the id of a node; 0: of none */
    uint64_t told; /* times that something new was known */
    struct members all[NODES_MAX];
    struct member member[NODES_MAX];
} world;

uint64_t member_id(const struct member *member)
{
    return member->id;
}

uint64_t member_looked_ns(const struct member *member)
{
    return member->looked_ns;
}

void member_look(struct member *member)
{
    member->looks++;
}

bool members_watch_is_late(const struct members *m, uint64_t id)
{
    (void)m;
    return id == world.late;
}

static void on_changed(void *context)
{
    (void)context;
    world.told++;
}

static const struct members_events events = {.changed = on_changed};

static void set_up(uint32_t n)
{
    world = (struct world){.n = n};
    assert_int_equal(uv_loop_init(&world.loop), 0);
    world.store = memory_store_new();
    assert_non_null(world.store);
    for (uint32_t i = 0; i < n; i++) {
        struct members *m = &world.all[i];

        *m = (struct members){.id = "run",
                              .events = &events,
                              .member = &world.member[i],
                              .state = MEMBERS_IN,
                              .sums = true,
                              .poll_ns = POLL_NS,
                              .n_nodes = n,
                              .self = i,
                              .shared_loaders = (struct shared_loader *)&world};
        world.member[i].id = 1000 + i;
        m->nodes = calloc(n, sizeof *m->nodes);
        assert_non_null(m->nodes);
        for (uint32_t k = 0; k < n; k++)
            m->nodes[k].id = 1000 + k;
        assert_int_equal(memory_new(&world.loop, world.store, &m->backend, NULL), 0);
    }
}

static void tear_down(void)
{
    for (uint32_t i = 0; i < world.n; i++) {
        backend_free(world.all[i].backend);
        sights_deinit(&world.all[i]);
        free(world.all[i].nodes);
    }
    uv_run(&world.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&world.loop), 0);
    memory_store_free(world.store);
}

/* Nodes from `from` to `to` have looked; those behind ask. */
static void turn(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        world.member[i].looked_ns = uv_hrtime();
        sights_tick(&world.all[i]);
    }
    for (uint32_t i = RDZV_FRONT; i < world.n; i++)
        sights_ask(&world.all[i]);
    for (unsigned i = 0; i < 4; i++)
        uv_run(&world.loop, UV_RUN_NOWAIT);
}

static uint64_t looks_of(uint32_t from)
{
    uint64_t looks = 0;

    for (uint32_t i = from; i < world.n; i++)
        looks += world.member[i].looks;
    return looks;
}

/* All know soon, at so many bytes each however many they are; and nobody looks himself. */
TEST(test_all_know)
{
    static const uint32_t counts[] = {17, 64, 192};
    uint64_t few = 0;

    for (size_t row = 0; row < ARRAY_SIZE(counts); row++) {
        set_up(counts[row]);
        uint64_t begun = uv_hrtime();
        for (unsigned i = 0; i < 4; i++)
            turn(0, RDZV_FRONT);
        for (uint32_t i = RDZV_FRONT; i < world.n; i++) {
            assert_true(sights_seen_ns(&world.all[i]) >= begun);
            assert_false(sights_is_late(&world.all[i], 1005));
        }
        uint64_t bytes = memory_store_bytes(world.store) / world.n;
        printf("# %u nodes: %" PRIu64 " bytes a node\n", world.n, bytes);
        few = row == 0 ? bytes : few;
        assert_true(bytes <= few);
        world.late = 1005;
        for (unsigned i = 0; i < 3; i++)
            turn(0, RDZV_FRONT);
        for (uint32_t i = RDZV_FRONT; i < world.n; i++) {
            assert_true(sights_is_late(&world.all[i], 1005));
            assert_false(sights_is_late(&world.all[i], 1006));
        }
        assert_int_equal(looks_of(0), 0);
        assert_true(world.told > 0);
        tear_down();
    }
}

/* Who is in front says nothing new: the next is asked, and in the end each looks itself. */
TEST(test_front_is_silent)
{
    set_up(20);
    turn(0, RDZV_FRONT);
    for (unsigned i = 0; i < 8; i++)
        turn(1, RDZV_FRONT);
    for (uint32_t i = RDZV_FRONT; i < world.n; i++)
        assert_true(sights_seen_ns(&world.all[i]) > 0);
    assert_int_equal(looks_of(0), 0);
    for (unsigned i = 0; i < 16; i++)
        turn(0, 0);
    for (uint32_t i = RDZV_FRONT; i < world.n; i++)
        assert_true(world.member[i].looks > 0);
    /* In the next round all begin anew. */
    for (uint32_t i = 0; i < world.n; i++) {
        sights_enter_round(&world.all[i]);
        world.member[i].looks = 0;
        assert_int_equal(sights_seen_ns(&world.all[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        turn(0, RDZV_FRONT);
    for (uint32_t i = RDZV_FRONT; i < world.n; i++)
        assert_true(sights_seen_ns(&world.all[i]) > 0);
    assert_int_equal(looks_of(0), 0);
    tear_down();
}

/* What was written before this node asked says nothing of now. */
TEST(test_old_words)
{
    set_up(20);
    world.late = 1005;
    turn(0, RDZV_FRONT);
    turn(0, 0);
    for (uint32_t i = RDZV_FRONT; i < world.n; i++)
        assert_int_equal(sights_seen_ns(&world.all[i]), 0);
    tear_down();
}

/* Of few nodes, and of some that do not know of it, each looks itself; and in front, too. */
TEST(test_each_looks)
{
    set_up(16);
    turn(0, RDZV_FRONT);
    assert_int_equal(memory_store_bytes(world.store), 0);
    assert_int_equal(looks_of(RDZV_FRONT), world.n - RDZV_FRONT);
    tear_down();
    set_up(20);
    for (uint32_t i = 0; i < world.n; i++)
        world.all[i].sums = false;
    turn(0, RDZV_FRONT);
    assert_int_equal(memory_store_bytes(world.store), 0);
    assert_int_equal(looks_of(RDZV_FRONT), world.n - RDZV_FRONT);
    sights_ask(&world.all[0]);
    tear_down();
}
