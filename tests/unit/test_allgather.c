/* What nodes that share a store have of each other. */
#include "tests/lib/harness.h"
#include "tests/lib/memory.h"
#include "tests/lib/uv_threads.h"

#include "daemon/cluster/progress/allgather_sum.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define MS ((uint64_t)1000000)

struct gathered {
    unsigned n;
    char values[3][16];
    struct dl_error error;
};

struct fixture {
    uv_loop_t loop;
    struct memory_store *store;
    struct backend *backends[3];
};

static void set_up(struct fixture *f)
{
    struct dl_error err = {0};

    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->store = memory_store_new();
    assert_non_null(f->store);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(memory_new(&f->loop, f->store, &f->backends[i], &err), 0);
}

static void tear_down(struct fixture *f)
{
    for (unsigned i = 0; i < 3; i++)
        backend_free(f->backends[i]);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    memory_store_free(f->store);
}

static void on_gathered(void *owner, const struct dl_span *values, const struct dl_error *error)
{
    struct gathered *gathered = owner;

    gathered->n++;
    if (error)
        gathered->error = *error;
    for (unsigned i = 0; values && i < 3; i++) {
        assert_true(values[i].len < sizeof gathered->values[i]);
        if (values[i].len > 0)
            memcpy(gathered->values[i], values[i].data, values[i].len);
    }
}

/* Node `self` of three has `value`, and waits for those whose place in `wanted` is an x. */
static struct allgather *gather_in(struct fixture *f, uint64_t round, unsigned self,
                                   const char *value, const char *wanted, uint64_t timeout,
                                   struct gathered *ret)
{
    struct allgather_node nodes[3] = {
        {.id = 7, .name = "a"}, {.id = 8, .name = "b"}, {.id = UINT64_MAX, .name = "c"}};
    struct allgather *g;
    struct allgather_options options = {.loop = &f->loop,
                                        .backend = f->backends[self],
                                        .key = "at/run/loader",
                                        .round = round,
                                        .nodes = nodes,
                                        .n = 3,
                                        .self = self,
                                        .value = span_str(value),
                                        .timeout_ns = timeout,
                                        .done = on_gathered,
                                        .owner = ret};

    *ret = (struct gathered){0};
    for (unsigned i = 0; i < 3; i++)
        nodes[i].wanted = wanted[i] == 'x';
    g = allgather_start(&options);
    assert_int_equal(ret->n, 0); /* never from inside */
    return g;
}

static struct allgather *gather(struct fixture *f, unsigned self, const char *value,
                                const char *wanted, uint64_t timeout, struct gathered *ret)
{
    return gather_in(f, 3, self, value, wanted, timeout, ret);
}

static void await(struct fixture *f, const struct gathered *gathered)
{
    while (gathered->n == 0)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(gathered->n, 1);
}

TEST(test_all_have_all)
{
    struct fixture f;
    struct gathered gathered[3];

    set_up(&f);
    gather(&f, 0, "one", "xxx", 60000 * MS, &gathered[0]);
    gather(&f, 1, "two", "xxx", 60000 * MS, &gathered[1]);
    for (unsigned i = 0; i < 20; i++)
        uv_run(&f.loop, UV_RUN_NOWAIT);
    assert_int_equal(gathered[0].n + gathered[1].n, 0);
    gather(&f, 2, "three", "xxx", 60000 * MS, &gathered[2]);
    for (unsigned i = 0; i < 3; i++) {
        await(&f, &gathered[i]);
        assert_int_equal(gathered[i].error.code, 0);
        assert_string_equal(gathered[i].values[0], "one");
        assert_string_equal(gathered[i].values[1], "two");
        assert_string_equal(gathered[i].values[2], "three");
    }
    /* In a round a value never changes: what was written first is what the node has of itself. */
    gather(&f, 1, "other", "xxx", 60000 * MS, &gathered[1]);
    await(&f, &gathered[1]);
    assert_string_equal(gathered[1].values[1], "two");
    tear_down(&f);
}

/* The value of the next round takes the place of the one before, and never the other way round. */
TEST(test_rounds)
{
    struct fixture f;
    struct gathered before, gathered[2];

    set_up(&f);
    gather_in(&f, 9, 1, "two", "---", 60000 * MS, &gathered[1]);
    await(&f, &gathered[1]);
    gather_in(&f, 10, 0, "one", "xx-", 60000 * MS, &gathered[0]);
    for (unsigned i = 0; i < 20; i++)
        uv_run(&f.loop, UV_RUN_NOWAIT);
    assert_int_equal(gathered[0].n, 0); /* what it wrote in another round does not count */
    gather_in(&f, 10, 1, "more", "---", 60000 * MS, &gathered[1]);
    await(&f, &gathered[1]);
    await(&f, &gathered[0]);
    assert_int_equal(gathered[0].error.code, 0);
    assert_string_equal(gathered[0].values[1], "more");
    gather_in(&f, 12, 1, "later", "---", 60000 * MS, &gathered[1]);
    await(&f, &gathered[1]);
    assert_string_equal(gathered[1].values[1], "later");
    gather_in(&f, 11, 1, "late", "---", 60000 * MS, &before);
    await(&f, &before);
    assert_int_equal(before.error.code, ESTALE);
    assert_string_equal(before.error.message, "round 11 is over");
    gather_in(&f, 11, 0, "one", "xx-", 1, &before);
    await(&f, &before);
    assert_int_equal(before.error.code, ETIMEDOUT);
    tear_down(&f);
}

static void on_set(void *owner, const struct backend_answer *answer)
{
    assert_int_equal(answer->status, 0);
    ++*(unsigned *)owner;
}

/* What cannot be read counts as no value, and a node's own takes its place. */
TEST(test_nonsense)
{
    static const char *const texts[] = {"x",
                                        "round",
                                        "round 3",
                                        "round x\nword",
                                        "round 3 \nword",
                                        "round 03\nword",
                                        "round -3\nword",
                                        "round 99999999999999999999999\nword"};
    struct fixture f;
    struct gathered gathered;

    for (unsigned i = 0; i < ARRAY_SIZE(texts); i++) {
        unsigned done = 0;

        set_up(&f);
        for (uint64_t id = 7; id <= 8; id++) {
            char key[64];
            (void)snprintf(key, sizeof key, "at/run/loader/%016" PRIx64, id);
            backend_set(f.backends[2], key, 0, span_str(texts[i]), on_set, &done);
        }
        while (done < 2)
            uv_run(&f.loop, UV_RUN_ONCE);
        gather(&f, 0, "one", "x--", 60000 * MS, &gathered);
        await(&f, &gathered);
        assert_string_equal(gathered.values[0], "one");
        gather(&f, 0, "one", "xx-", 1, &gathered);
        await(&f, &gathered);
        assert_int_equal(gathered.error.code, ETIMEDOUT);
        tear_down(&f);
    }
}

TEST(test_not_wanted)
{
    struct fixture f;
    struct gathered gathered;

    set_up(&f);
    gather(&f, 1, "two", "---", 60000 * MS, &gathered);
    await(&f, &gathered);
    assert_int_equal(gathered.error.code, 0);
    assert_string_equal(gathered.values[0], "");
    assert_string_equal(gathered.values[1], "two");
    tear_down(&f);
}

TEST(test_missing)
{
    struct fixture f;
    struct gathered gathered[2];

    set_up(&f);
    gather(&f, 1, "two", "---", 60000 * MS, &gathered[1]);
    await(&f, &gathered[1]);
    gather(&f, 0, "one", "xxx", 1, &gathered[0]);
    await(&f, &gathered[0]);
    assert_int_equal(gathered[0].error.code, ETIMEDOUT);
    assert_non_null(strstr(gathered[0].error.message, "no rank of "));
    assert_non_null(strstr(gathered[0].error.message, "c requested"));
    tear_down(&f);
}

/* What fails is tried again, until its time is over. */
TEST(test_store_away)
{
    struct backend_health health = {0};
    struct fixture f;
    struct gathered gathered, other;

    set_up(&f);
    gather(&f, 1, "two", "---", 60000 * MS, &other);
    await(&f, &other);
    memory_store_take_away(f.store, true);
    gather(&f, 0, "one", "xx-", 60000 * MS, &gathered);
    while (health.failures < 2) {
        uv_run(&f.loop, UV_RUN_ONCE);
        backend_health(f.backends[0], &health);
    }
    assert_int_equal(gathered.n, 0);
    memory_store_take_away(f.store, false);
    await(&f, &gathered);
    assert_int_equal(gathered.error.code, 0);
    assert_string_equal(gathered.values[1], "two");
    memory_store_take_away(f.store, true);
    gather(&f, 2, "late", "xxx", 1, &gathered);
    await(&f, &gathered);
    assert_string_equal(gathered.error.message, "the store is away");
    tear_down(&f);
}

/* A node that waits writes its value again, as it was, to a store that has lost it. */
TEST(test_store_forgets)
{
    struct fixture f;
    struct gathered gathered[3];

    set_up(&f);
    gather_in(&f, 2, 0, "old", "---", 60000 * MS, &gathered[0]);
    await(&f, &gathered[0]);
    gather(&f, 0, "one", "---", 60000 * MS, &gathered[0]);
    await(&f, &gathered[0]);
    gather(&f, 0, "other", "xxx", 60000 * MS, &gathered[0]);
    for (unsigned i = 0; i < 20; i++)
        uv_run(&f.loop, UV_RUN_NOWAIT);
    memory_store_forget(f.store);
    gather(&f, 1, "two", "xxx", 60000 * MS, &gathered[1]);
    gather(&f, 2, "three", "xxx", 60000 * MS, &gathered[2]);
    for (unsigned i = 0; i < 3; i++) {
        await(&f, &gathered[i]);
        assert_int_equal(gathered[i].error.code, 0);
        assert_string_equal(gathered[i].values[0], "one");
        assert_string_equal(gathered[i].values[2], "three");
    }
    tear_down(&f);
}

/* ---- many nodes ----------------------------------------------------------------------------- */

enum { CROWD_MAX = 256 };

struct crowd {
    uv_loop_t loop;
    struct memory_store *store;
    uint32_t n;
    uint64_t timeout;
    bool differ; /* each has something else to say */
    struct crowd_node {
        struct crowd *crowd;
        struct backend *backend;
        struct allgather *allgather;
        bool done;
        struct dl_error error;
    } nodes[CROWD_MAX];
};

static void crowd_say(const struct crowd *crowd, uint32_t i, char ret[static 64])
{
    (void)snprintf(ret, 64, "1\nlast 12\nat 0 3 64:%u\nround 12 0 3 64:5\n", crowd->differ ? i : 7);
}

static void crowd_set_up(struct crowd *crowd, uint32_t n, bool lists, bool differ)
{
    *crowd = (struct crowd){.n = n, .timeout = 60000 * MS, .differ = differ};
    assert_int_equal(uv_loop_init(&crowd->loop), 0);
    crowd->store = memory_store_new();
    assert_non_null(crowd->store);
    if (!lists)
        memory_store_list_little(crowd->store);
    for (uint32_t i = 0; i < n; i++) {
        crowd->nodes[i].crowd = crowd;
        assert_int_equal(memory_new(&crowd->loop, crowd->store, &crowd->nodes[i].backend, NULL), 0);
    }
}

static void crowd_tear_down(struct crowd *crowd)
{
    for (uint32_t i = 0; i < crowd->n; i++)
        backend_free(crowd->nodes[i].backend);
    uv_run(&crowd->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&crowd->loop), 0);
    memory_store_free(crowd->store);
}

/* Of each that it has waited for it has what that has said. */
static void on_crowd_gathered(void *owner, const struct dl_span *values,
                              const struct dl_error *error)
{
    struct crowd_node *node = owner;
    char said[64];

    assert_false(node->done);
    node->done = true;
    node->allgather = NULL;
    if (error)
        node->error = *error;
    for (uint32_t i = 0; values && i < node->crowd->n; i++) {
        crowd_say(node->crowd, i, said);
        assert_true(values[i].len == 0 || (values[i].len == strlen(said) &&
                                           memcmp(values[i].data, said, values[i].len) == 0));
        node->error.code += values[i].len == 0;
    }
}

/* Those from `from` on, up to `to`, wait for those from `wanted` on. */
static void crowd_gather(struct crowd *crowd, uint64_t round, uint32_t from, uint32_t to,
                         uint32_t wanted)
{
    struct allgather_node nodes[CROWD_MAX];
    char said[64];

    for (uint32_t i = 0; i < crowd->n; i++) {
        nodes[i] = (struct allgather_node){.id = 1000 + i, .wanted = i >= wanted};
        (void)snprintf(nodes[i].name, sizeof nodes[i].name, "node%u", i);
    }
    for (uint32_t i = from; i < to; i++) {
        crowd->nodes[i].done = false;
        crowd->nodes[i].error = (struct dl_error){0};
        crowd_say(crowd, i, said);
        struct allgather_options options = {.loop = &crowd->loop,
                                            .backend = crowd->nodes[i].backend,
                                            .key = "course/run-17/0123456789abcdef0123456789abcdef",
                                            .round = round,
                                            .nodes = nodes,
                                            .n = crowd->n,
                                            .self = i,
                                            .value = span_str(said),
                                            .timeout_ns = crowd->timeout,
                                            .sums = true,
                                            .done = on_crowd_gathered,
                                            .owner = &crowd->nodes[i]};
        crowd->nodes[i].allgather = allgather_start(&options);
    }
}

/* `lacks`: of how many nodes each had nothing, as it did not wait for them. */
static void crowd_await(struct crowd *crowd, uint32_t from, uint32_t to, int lacks)
{
    for (uint32_t i = from; i < to; i++) {
        while (!crowd->nodes[i].done)
            uv_run(&crowd->loop, UV_RUN_ONCE);
        assert_int_equal(crowd->nodes[i].error.code, lacks);
    }
}

static uint64_t crowd_cost(uint32_t n, bool lists, bool differ)
{
    static struct crowd crowd;

    crowd_set_up(&crowd, n, lists, differ);
    for (uint64_t round = 3; round < 5;
         round++) { /* the second one finds what the first has left */
        crowd_gather(&crowd, round, 0, n / 2, 0);
        for (unsigned i = 0; i < 3 * n; i++)
            uv_run(&crowd.loop, UV_RUN_NOWAIT);
        crowd_gather(&crowd, round, n / 2, n, 0);
        crowd_await(&crowd, 0, n, 0);
    }
    uint64_t bytes = memory_store_bytes(crowd.store);
    crowd_tear_down(&crowd);
    return bytes / n;
}

/* What a node costs hardly grows with their number. Where all say something else, what it reads is
 * a little of each. */
TEST(test_cost)
{
    static const uint32_t counts[] = {16, 64, 128, 192};

    for (unsigned row = 0; row < 4; row++) {
        bool lists = row & 1, differ = row & 2;
        uint64_t few = crowd_cost(counts[0], lists, differ);

        for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
            uint64_t bytes = crowd_cost(counts[i], lists, differ);

            printf("# %u nodes, lists %d, all differ %d: %" PRIu64 " bytes a node\n", counts[i],
                   lists, differ, bytes);
            assert_true(bytes <= 5 * few / 4 + (differ ? UINT64_C(256) * counts[i] : 0));
        }
    }
}

/* Nodes at the front that the others do not wait for, and that come late: these go on without them,
 * and they find what is there. */
TEST(test_newcomers_in_front)
{
    static struct crowd crowd;

    for (unsigned lists = 0; lists < 2; lists++) {
        crowd_set_up(&crowd, 40, lists, true);
        crowd_gather(&crowd, 3, 10, 40, 10);
        crowd_await(&crowd, 10, 40, 10);
        crowd_gather(&crowd, 3, 0, 10, 0);
        crowd_await(&crowd, 0, 10, 0);
        crowd_tear_down(&crowd);
    }
}

/* The node in front says its own, and then nothing more. */
TEST(test_front_ends)
{
    static struct crowd crowd;

    for (unsigned lists = 0; lists < 2; lists++) {
        crowd_set_up(&crowd, 40, lists, true);
        crowd.timeout = 3000 * MS;
        crowd_gather(&crowd, 3, 0, 20, 0);
        for (unsigned i = 0; i < 100; i++)
            uv_run(&crowd.loop, UV_RUN_NOWAIT);
        for (unsigned i = 0; i < 10; i++)
            crowd.nodes[i].allgather = allgather_cancel(crowd.nodes[i].allgather);
        for (unsigned i = 0; i < 10; i++) {
            backend_free(crowd.nodes[i].backend);
            assert_int_equal(memory_new(&crowd.loop, crowd.store, &crowd.nodes[i].backend, NULL),
                             0);
        }
        crowd_gather(&crowd, 3, 20, 40, 0);
        crowd_await(&crowd, 10, 40, 0);
        crowd_tear_down(&crowd);
    }
}

/* One never comes: all know which. */
TEST(test_names_of_many)
{
    static struct crowd crowd;

    for (unsigned lists = 0; lists < 2; lists++) {
        crowd_set_up(&crowd, 20, lists, false);
        crowd.timeout = 200 * MS;
        crowd_gather(&crowd, 3, 0, 13, 0);
        crowd_gather(&crowd, 3, 14, 20, 0);
        for (unsigned i = 0; i < 20; i++) {
            while (i != 13 && !crowd.nodes[i].done)
                uv_run(&crowd.loop, UV_RUN_ONCE);
            if (i != 13)
                assert_non_null(
                    strstr(crowd.nodes[i].error.message, " no rank of node13 requested"));
        }
        crowd_tear_down(&crowd);
    }
}

/* ---- the sum as bytes ----------------------------------------------------------------------- */

static enum allgather_sum_age read_sum(const char *text, struct dl_buffer values[static 6])
{
    return allgather_sum_read(span_str(text), 3, 0xabc, values, 6);
}

TEST(test_sum)
{
    static const char text[] = "round 3 of 0000000000000abc\n2 4\nb\n\n3 0-2,5\none\n";
    static const struct {
        const char *text;
        enum allgather_sum_age age;
        unsigned values;
    } rows[] = {
        {text, ALLGATHER_SUM_NOW, 5},
        {"", ALLGATHER_SUM_NONE, 0},
        {"round 3\none", ALLGATHER_SUM_NONE, 0},
        {"round 03 of 0000000000000abc\n3 0\none\n", ALLGATHER_SUM_NONE, 0},
        {"round 3 of abc\n3 0\none\n", ALLGATHER_SUM_NONE, 0},
        {"round 2 of 0000000000000abc\n3 0\none\n", ALLGATHER_SUM_OLD, 0},
        {"round 3 of 0000000000000abd\n3 0\none\n", ALLGATHER_SUM_OLD, 0},
        {"round 4 of 0000000000000abc\n3 0\none\n", ALLGATHER_SUM_LATER, 0},
        {"round 3 of 0000000000000abc\n", ALLGATHER_SUM_NOW, 0},
        {"round 3 of 0000000000000abc\n3 6\none\n", ALLGATHER_SUM_NOW, 0},
        {"round 3 of 0000000000000abc\n3 0,6\none\n", ALLGATHER_SUM_NOW, 0},
        {"round 3 of 0000000000000abc\n3 2-1\none\n", ALLGATHER_SUM_NOW, 0},
        {"round 3 of 0000000000000abc\n3 \none\n", ALLGATHER_SUM_NOW, 0},
        {"round 3 of 0000000000000abc\n03 0\none\n", ALLGATHER_SUM_NOW, 0},
        {"round 3 of 0000000000000abc\n0 0\n\n", ALLGATHER_SUM_NOW, 0},
        {"round 3 of 0000000000000abc\n4 0\none", ALLGATHER_SUM_NOW, 0},
        {"round 3 of 0000000000000abc\n99999999999999999999 0\none\n", ALLGATHER_SUM_NOW, 0},
        {"round 3 of 0000000000000abc\n3 0\none\n3 1\ntw", ALLGATHER_SUM_NOW, 1},
    };
    struct dl_buffer again = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_buffer values[6] = {0};
        unsigned n = 0;

        assert_int_equal(read_sum(rows[i].text, values), rows[i].age);
        for (unsigned k = 0; k < 6; k++)
            n += values[k].len > 0;
        assert_int_equal(n, rows[i].values);
        if (i == 0)
            allgather_sum_write(3, 0xabc, values, 6, &again);
        for (unsigned k = 0; k < 6; k++)
            buffer_deinit(&values[k]);
    }
    assert_int_equal(again.len, strlen(text));
    assert_memory_equal(again.data, text, again.len);
    buffer_deinit(&again);
}

TEST(test_cancel)
{
    struct fixture f;
    struct gathered gathered;

    set_up(&f);
    assert_null(allgather_cancel(NULL));
    assert_null(allgather_cancel(gather(&f, 0, "one", "xxx", 60000 * MS, &gathered)));
    tear_down(&f);
    assert_int_equal(gathered.n, 0);
}
