/* Numbers that all who share a store take from it. */
#include "tests/lib/harness.h"
#include "tests/lib/memory.h"
#include "tests/lib/uv_threads.h"

#include "daemon/cluster/progress/agree.h"

#include <errno.h>

#define MS ((uint64_t)1000000)

struct agreed {
    unsigned n;
    uint64_t number;
    int code;
};

struct fixture {
    uv_loop_t loop;
    struct memory_store *store;
    struct backend *one, *two;
};

static void set_up(struct fixture *f)
{
    struct dl_error err = {0};

    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->store = memory_store_new();
    assert_non_null(f->store);
    assert_int_equal(memory_new(&f->loop, f->store, &f->one, &err), 0);
    assert_int_equal(memory_new(&f->loop, f->store, &f->two, &err), 0);
}

static void tear_down(struct fixture *f)
{
    backend_free(f->one);
    backend_free(f->two);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    memory_store_free(f->store);
}

static void on_agreed(void *owner, uint64_t number, const struct dl_error *error)
{
    struct agreed *agreed = owner;

    agreed->n++;
    agreed->number = number;
    agreed->code = error ? error->code : 0;
}

static struct agreement *propose(struct fixture *f, struct backend *backend, const char *key,
                                 uint64_t number, uint64_t timeout, struct agreed *ret)
{
    struct agreement *agreement;
    struct agree_options options = {.loop = &f->loop,
                                    .backend = backend,
                                    .key = key,
                                    .proposal = number,
                                    .timeout_ns = timeout,
                                    .done = on_agreed,
                                    .owner = ret};

    *ret = (struct agreed){0};
    agreement = agree(&options);
    assert_int_equal(ret->n, 0); /* never from inside */
    return agreement;
}

/* Nothing but the whole test has a time limit. */
static void await(struct fixture *f, const struct agreed *agreed)
{
    while (agreed->n == 0)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(agreed->n, 1);
}

TEST(test_first_wins)
{
    struct fixture f;
    struct agreed a, b;

    set_up(&f);
    propose(&f, f.one, "seed", UINT64_MAX, 60000 * MS, &a);
    await(&f, &a);
    assert_int_equal(a.code, 0);
    assert_true(a.number == UINT64_MAX);
    propose(&f, f.one, "seed", 5, 60000 * MS, &a); /* and never again */
    propose(&f, f.two, "seed", 6, 60000 * MS, &b);
    await(&f, &a);
    await(&f, &b);
    assert_true(a.number == UINT64_MAX && b.number == UINT64_MAX);
    propose(&f, f.one, "other", 7, 60000 * MS, &a);
    await(&f, &a);
    assert_int_equal(a.number, 7);
    tear_down(&f);
}

/* What fails is tried again, until its time is over. */
TEST(test_store_away)
{
    struct backend_health health = {0};
    struct fixture f;
    struct agreed a;

    set_up(&f);
    memory_store_take_away(f.store, true);
    propose(&f, f.one, "seed", 0, 60000 * MS, &a);
    while (health.failures == 0) {
        uv_run(&f.loop, UV_RUN_ONCE);
        backend_health(f.one, &health);
    }
    assert_int_equal(a.n, 0);
    memory_store_take_away(f.store, false);
    await(&f, &a);
    assert_int_equal(a.code, 0);
    assert_int_equal(a.number, 0);
    memory_store_take_away(f.store, true);
    propose(&f, f.one, "late", 7, 1, &a);
    await(&f, &a);
    assert_int_not_equal(a.code, 0);
    tear_down(&f);
}

static void on_put(void *owner, const struct backend_answer *answer)
{
    assert_true(answer->won);
    ++*(unsigned *)owner;
}

TEST(test_nonsense)
{
    static const char *const texts[] = {
        "12x", "x", "-1", " 1", "18446744073709551616", "111111111111111111111111111111"};
    struct fixture f;
    struct agreed a;

    set_up(&f);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        const char key[] = {'k', (char)('a' + i), 0};
        struct dl_span text = {(const uint8_t *)texts[i], strlen(texts[i])};
        unsigned put = 0;

        backend_set(f.one, key, 0, text, on_put, &put);
        while (put == 0)
            uv_run(&f.loop, UV_RUN_ONCE);
        propose(&f, f.two, key, 7, 60000 * MS, &a);
        await(&f, &a);
        assert_int_equal(a.code, EBADMSG);
    }
    tear_down(&f);
}

TEST(test_cancel)
{
    struct fixture f;
    struct agreed a;

    set_up(&f);
    agree_cancel(propose(&f, f.one, "seed", 1, 60000 * MS, &a));
    tear_down(&f);
    assert_int_equal(a.n, 0);
}
