/* What nodes that share a store have of each other. */
#include "tests/lib/harness.h"
#include "tests/lib/memory.h"
#include "tests/lib/uv_threads.h"

#include "daemon/cluster/allgather.h"

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

static void test_all_have_all(void **state)
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
static void test_rounds(void **state)
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
static void test_nonsense(void **state)
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

static void test_not_wanted(void **state)
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

static void test_missing(void **state)
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
static void test_store_away(void **state)
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
static void test_store_forgets(void **state)
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

static void test_cancel(void **state)
{
    struct fixture f;
    struct gathered gathered;

    set_up(&f);
    assert_null(allgather_cancel(NULL));
    assert_null(allgather_cancel(gather(&f, 0, "one", "xxx", 60000 * MS, &gathered)));
    tear_down(&f);
    assert_int_equal(gathered.n, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_all_have_all),  cmocka_unit_test(test_rounds),
    cmocka_unit_test(test_nonsense),      cmocka_unit_test(test_not_wanted),
    cmocka_unit_test(test_missing),       cmocka_unit_test(test_store_away),
    cmocka_unit_test(test_store_forgets), cmocka_unit_test(test_cancel),
};

UV_TEST_MAIN(tests)
