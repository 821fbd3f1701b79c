/* Members over a store in memory, in one loop, in real time with short times; and that store as a
 * backend like others. */
#include "tests/lib/harness.h"
#include "tests/lib/memory.h"
#include "tests/lib/uv_threads.h"

#include "daemon/cluster/member.h"

#include <errno.h>
#include <stdio.h>

static const uint64_t MS = 1000000;

/* ---- the store as a backend ----------------------------------------------------------------- */

struct said {
    bool won, done;
    int status;
    uint64_t token;
    char data[32];
};

static void on_done(void *owner, const struct backend_answer *answer)
{
    struct said *said = owner;

    assert_false(said->done);
    *said = (struct said){answer->won, true, answer->status, answer->token, ""};
    if (answer->data.len > 0)
        memcpy(said->data, answer->data.data, answer->data.len);
}

static void no_more(void *owner, struct dl_span data)
{
    (void)data;
    (*(unsigned *)owner)++;
}

static struct said get(uv_loop_t *loop, struct backend *backend)
{
    struct said said = {0};

    backend_get(backend, "key", on_done, &said);
    assert_false(said.done); /* never from inside a call */
    uv_run(loop, UV_RUN_DEFAULT);
    assert_true(said.done);
    return said;
}

static struct said set(uv_loop_t *loop, struct backend *backend, uint64_t token, const char *text)
{
    struct said said = {0};

    backend_set(backend, "key", token, (struct dl_span){(const uint8_t *)text, strlen(text)},
                on_done, &said);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_true(said.done);
    return said;
}

static void expect(struct said said, bool won, uint64_t token, const char *data)
{
    assert_int_equal(said.status, 0);
    assert_int_equal(said.won, won);
    assert_int_equal(said.token, token);
    assert_string_equal(said.data, data);
}

/* The eight things that PyTorch's backends promise, and who watches hears. */
TEST(test_backend)
{
    struct memory_store *store = memory_store_new();
    struct backend *backend, *other;
    unsigned changes = 0;
    uv_loop_t loop;

    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(memory_new(&loop, store, &backend, NULL), 0);
    assert_int_equal(memory_new(&loop, store, &other, NULL), 0);
    assert_true(backend_watch(other, "key", no_more, &changes));
    expect(get(&loop, backend), false, 0, "");
    expect(set(&loop, backend, 77, "none"), false, 0, ""); /* of what is not there */
    struct said one = set(&loop, backend, 0, "one");
    expect(one, true, one.token, "one");
    expect(get(&loop, other), false, one.token, "one");
    struct said two = set(&loop, other, one.token, "two");
    expect(two, true, two.token, "two");
    assert_int_not_equal(one.token, two.token);
    expect(set(&loop, backend, one.token, "old"), false, two.token, "two");
    expect(set(&loop, backend, 0, "new"), false, two.token, "two");
    expect(set(&loop, backend, 999, "bad"), false, two.token, "two");
    assert_int_equal(changes, 2);
    memory_store_take_away(store, true);
    assert_int_equal(get(&loop, backend).status, -ETIMEDOUT);
    memory_store_take_away(store, false);
    memory_store_forget(store);
    expect(get(&loop, backend), false, 0, "");
    struct said never = {0};
    backend_get(backend, "key", on_done, &never);
    backend_free(backend);
    backend_free(other);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_false(never.done);
    memory_store_free(store);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- members -------------------------------------------------------------------------------- */

enum { NODES = 5 };

struct node {
    struct world *world;
    struct member *member;
    const struct backend *backend; /* the member's */
    bool in_round;
    struct rdzv_place place;
    uint64_t round;
    unsigned rounds, overs, ends;
    enum rdzv_news how;
    struct dl_error error;
};

struct world {
    uv_loop_t loop;
    struct memory_store *store;
    struct node nodes[NODES];
    bool frees; /* members are done with at their end */
};

static void on_round(void *owner, const struct rdzv_state *state, const struct rdzv_place *place)
{
    struct node *node = owner;

    node->in_round = true;
    node->place = *place;
    node->round = state->round;
    node->rounds++;
}

static void on_over(void *owner, bool evicted, const char *why)
{
    struct node *node = owner;

    assert_true(!evicted && why[0]);
    node->in_round = false;
    node->overs++;
    member_ready(node->member);
}

static void on_ended(void *owner, enum rdzv_news how, const struct dl_error *err)
{
    struct node *node = owner;

    node->in_round = false;
    node->ends++;
    node->how = how;
    if (err)
        node->error = *err;
    if (node->world->frees)
        node->member = member_free(node->member);
}

static const struct member_events events = {on_round, on_over, on_ended};

static void begin(struct world *world, uint32_t min, uint32_t max)
{
    /* Beats are slow beside what a busy machine does to a test: nobody is taken for dead here. */
    struct rdzv_settings settings = {min,      max,        10,        60000 * MS,
                                     300 * MS, 60000 * MS, 3000 * MS, 40 * MS};

    *world = (struct world){.store = memory_store_new()};
    assert_int_equal(uv_loop_init(&world->loop), 0);
    for (unsigned i = 0; i < NODES; i++) {
        struct node *node = &world->nodes[i];
        char name[16];
        struct member_options options = {.loop = &world->loop,
                                         .run = "run",
                                         .settings = &settings,
                                         .name = name,
                                         .local = 1 + i,
                                         .events = &events,
                                         .owner = node};

        node->world = world;
        (void)snprintf(name, sizeof name, "node%u", i);
        assert_int_equal(memory_new(&world->loop, world->store, &options.backend, NULL), 0);
        node->backend = options.backend;
        assert_int_equal(member_new(&options, &node->member, NULL), 0);
    }
}

static void end(struct world *world)
{
    for (unsigned i = 0; i < NODES; i++)
        world->nodes[i].member = member_free(world->nodes[i].member);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    memory_store_free(world->store);
    assert_int_equal(uv_loop_close(&world->loop), 0);
}

/* Until `n` nodes are in a round of `n`; the program's alarm ends what does not end. */
static void wait_round(struct world *world, unsigned n)
{
    unsigned in;

    do {
        uv_run(&world->loop, UV_RUN_ONCE);
        in = 0;
        for (unsigned i = 0; i < NODES; i++)
            in += world->nodes[i].in_round && world->nodes[i].place.nodes == n;
    } while (in < n);
}

static void wait_end(struct world *world, unsigned i)
{
    while (world->nodes[i].ends == 0)
        uv_run(&world->loop, UV_RUN_ONCE);
}

TEST(test_meet)
{
    struct world world;
    uint64_t first = 0;

    begin(&world, 2, NODES);
    for (unsigned i = 0; i < NODES; i++)
        member_join(world.nodes[i].member);
    wait_round(&world, NODES);
    for (unsigned i = 0; i < NODES; i++) {
        assert_int_equal(world.nodes[i].place.rank, i);
        assert_int_equal(world.nodes[i].place.first, first);
        assert_int_equal(world.nodes[i].place.world, 15);
        first += 1 + i;
    }
    assert_int_equal(member_state(world.nodes[0].member)->n, NODES);
    assert_non_null(
        rdzv_state_find(member_state(world.nodes[0].member), member_id(world.nodes[3].member)));
    uint64_t beat, age;
    assert_true(member_beat(world.nodes[0].member, member_id(world.nodes[0].member), &beat, &age));
    assert_true(age < 60000 * MS);
    assert_false(member_beat(world.nodes[0].member, 99, &beat, &age));
    struct backend_health health;
    backend_health(world.nodes[0].backend, &health);
    assert_true(health.answers && health.calls > 0 && health.failures == 0);
    end(&world);
}

/* One leaves, one comes, and each time the others stop and say how far they are. */
TEST(test_change)
{
    struct world world;

    begin(&world, 2, NODES);
    for (unsigned i = 0; i < 4; i++)
        member_join(world.nodes[i].member);
    wait_round(&world, 4);
    member_leave(world.nodes[1].member);
    wait_round(&world, 3);
    assert_int_equal(world.nodes[1].how, RDZV_LEFT);
    assert_int_equal(world.nodes[3].place.rank, 1); /* it takes the place */
    member_join(world.nodes[4].member);
    wait_round(&world, 4);
    assert_int_equal(world.nodes[4].place.rank, 3);
    assert_int_equal(world.nodes[0].place.rank, 0);
    assert_true(world.nodes[0].overs >= 2);
    end(&world);
}

TEST(test_store)
{
    struct world world;

    begin(&world, 2, NODES);
    for (unsigned i = 0; i < 3; i++)
        member_join(world.nodes[i].member);
    wait_round(&world, 3);
    memory_store_take_away(world.store, true);
    struct backend_health health;
    do {
        uv_run(&world.loop, UV_RUN_ONCE);
        backend_health(world.nodes[0].backend, &health);
    } while (health.failures == 0);
    memory_store_forget(world.store);
    memory_store_take_away(world.store, false);
    uint64_t calls = health.calls; /* the members come before one who knows nothing */
    do {
        uv_run(&world.loop, UV_RUN_ONCE);
        backend_health(world.nodes[0].backend, &health);
    } while (health.calls < calls + 5);
    member_join(world.nodes[3].member);
    wait_round(&world, 4);
    assert_int_equal(world.nodes[0].overs, 1); /* only for the one that came */
    end(&world);
}

/* The last that an owner hears may be the last that it wants. */
TEST(test_ends)
{
    struct world world;

    begin(&world, 2, NODES);
    world.frees = true;
    member_leave(world.nodes[4].member); /* never was in */
    assert_int_equal(world.nodes[4].ends, 0);
    wait_end(&world, 4);
    for (unsigned i = 0; i < 3; i++)
        member_join(world.nodes[i].member);
    wait_round(&world, 3);
    member_leave(world.nodes[0].member);
    wait_end(&world, 0);
    member_close(world.nodes[1].member, "all is read");
    wait_end(&world, 1);
    wait_end(&world, 2);
    member_join(world.nodes[3].member);
    wait_end(&world, 3);
    for (unsigned i = 1; i < 4; i++) {
        assert_int_equal(world.nodes[i].how, RDZV_CLOSED);
        assert_string_equal(world.nodes[i].error.message, "is closed: all is read; choose "
                                                          "another");
    }
    end(&world);
}

static void leave(void *owner, const struct backend_answer *answer)
{
    struct node *node = owner;

    assert_true(answer->won);
    member_leave(node->member);
}

/* What the store has for one that is out comes between its owner's request and the answer to it. */
TEST(test_end_is_told)
{
    const struct dl_span text = span_str("changed");
    struct backend *backend;
    struct world world;

    begin(&world, 2, NODES);
    assert_int_equal(memory_new(&world.loop, world.store, &backend, NULL), 0);
    /* It is told of the change before it is asked to leave, and hears of both afterwards. */
    backend_set(backend, "rendezvous/run", 0, text, leave, &world.nodes[4]);
    uv_run(&world.loop, UV_RUN_DEFAULT);
    assert_int_equal(world.nodes[4].ends, 1);
    assert_int_equal(world.nodes[4].how, RDZV_LEFT);
    backend_free(backend);
    end(&world);
}

TEST(test_options)
{
    struct rdzv_settings settings = RDZV_DEFAULTS, bad = RDZV_DEFAULTS;
    char name[100] = {0};
    uv_loop_t loop;

    bad.max = 0;
    memset(name, 'x', sizeof name - 1);
    const struct {
        const char *run, *name;
        const struct rdzv_settings *settings;
        uint32_t local;
        const char *path;
    } rows[] = {{"", "a", &settings, 1, "rendezvous.id"},
                {"run", "", &settings, 1, "rendezvous.node"},
                {"run", name, &settings, 1, "rendezvous.node"},
                {"run", "a", &settings, RDZV_LOCAL_MAX + 1, "rendezvous.local_ranks"},
                {"run", "a", &bad, 1, "rendezvous.nodes"}};
    assert_int_equal(uv_loop_init(&loop), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct memory_store *store = memory_store_new();
        struct member_options options = {.loop = &loop,
                                         .run = rows[i].run,
                                         .name = rows[i].name,
                                         .settings = rows[i].settings,
                                         .local = rows[i].local,
                                         .events = &events};
        struct member *member;
        struct dl_error err = {0};

        assert_int_equal(memory_new(&loop, store, &options.backend, NULL), 0);
        assert_int_equal(member_new(&options, &member, &err), -EINVAL);
        assert_string_equal(err.path, rows[i].path);
        uv_run(&loop, UV_RUN_DEFAULT);
        memory_store_free(store);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
}
