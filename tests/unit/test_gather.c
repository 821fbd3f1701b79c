/* What nodes that share a store hear of each other. */
#include "tests/lib/harness.h"
#include "tests/lib/memory.h"
#include "tests/lib/uv_threads.h"

#include "daemon/cluster/gather.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define MS ((uint64_t)1000000)

struct heard {
    unsigned n;
    char words[3][16];
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

static void on_heard(void *owner, const struct dl_span *words, const struct dl_error *error)
{
    struct heard *heard = owner;

    heard->n++;
    if (error)
        heard->error = *error;
    for (unsigned i = 0; words && i < 3; i++) {
        assert_true(words[i].len < sizeof heard->words[i]);
        if (words[i].len > 0)
            memcpy(heard->words[i], words[i].data, words[i].len);
    }
}

/* Node `self` of three says `word`, and waits for those whose place in `wanted` is an x. */
static struct gather *say_in(struct fixture *f, uint64_t round, unsigned self, const char *word,
                             const char *wanted, uint64_t timeout, struct heard *ret)
{
    struct gather_node nodes[3] = {
        {.id = 7, .name = "a"}, {.id = 8, .name = "b"}, {.id = UINT64_MAX, .name = "c"}};
    struct gather *g;
    struct gather_options options = {.loop = &f->loop,
                                     .backend = f->backends[self],
                                     .key = "at/run/loader",
                                     .round = round,
                                     .nodes = nodes,
                                     .n = 3,
                                     .self = self,
                                     .word = span_str(word),
                                     .timeout_ns = timeout,
                                     .done = on_heard,
                                     .owner = ret};

    *ret = (struct heard){0};
    for (unsigned i = 0; i < 3; i++)
        nodes[i].wanted = wanted[i] == 'x';
    g = gather(&options);
    assert_int_equal(ret->n, 0); /* never from inside */
    return g;
}

static struct gather *say(struct fixture *f, unsigned self, const char *word, const char *wanted,
                          uint64_t timeout, struct heard *ret)
{
    return say_in(f, 3, self, word, wanted, timeout, ret);
}

static void await(struct fixture *f, const struct heard *heard)
{
    while (heard->n == 0)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(heard->n, 1);
}

static void test_all_hear_all(void **state)
{
    struct fixture f;
    struct heard heard[3];

    (void)state;
    set_up(&f);
    say(&f, 0, "one", "xxx", 60000 * MS, &heard[0]);
    say(&f, 1, "two", "xxx", 60000 * MS, &heard[1]);
    for (unsigned i = 0; i < 20; i++)
        uv_run(&f.loop, UV_RUN_NOWAIT);
    assert_int_equal(heard[0].n + heard[1].n, 0);
    say(&f, 2, "three", "xxx", 60000 * MS, &heard[2]);
    for (unsigned i = 0; i < 3; i++) {
        await(&f, &heard[i]);
        assert_int_equal(heard[i].error.code, 0);
        assert_string_equal(heard[i].words[0], "one");
        assert_string_equal(heard[i].words[1], "two");
        assert_string_equal(heard[i].words[2], "three");
    }
    /* In a round a word never changes: what was said first is what the node hears of itself. */
    say(&f, 1, "other", "xxx", 60000 * MS, &heard[1]);
    await(&f, &heard[1]);
    assert_string_equal(heard[1].words[1], "two");
    tear_down(&f);
}

/* The word of the next round takes the place of the one before, and never the other way round. */
static void test_rounds(void **state)
{
    struct fixture f;
    struct heard before, heard[2];

    (void)state;
    set_up(&f);
    say_in(&f, 9, 1, "two", "---", 60000 * MS, &heard[1]);
    await(&f, &heard[1]);
    say_in(&f, 10, 0, "one", "xx-", 60000 * MS, &heard[0]);
    for (unsigned i = 0; i < 20; i++)
        uv_run(&f.loop, UV_RUN_NOWAIT);
    assert_int_equal(heard[0].n, 0); /* what it said in another round does not count */
    say_in(&f, 10, 1, "more", "---", 60000 * MS, &heard[1]);
    await(&f, &heard[1]);
    await(&f, &heard[0]);
    assert_int_equal(heard[0].error.code, 0);
    assert_string_equal(heard[0].words[1], "more");
    say_in(&f, 12, 1, "later", "---", 60000 * MS, &heard[1]);
    await(&f, &heard[1]);
    assert_string_equal(heard[1].words[1], "later");
    say_in(&f, 11, 1, "late", "---", 60000 * MS, &before);
    await(&f, &before);
    assert_int_equal(before.error.code, ESTALE);
    assert_string_equal(before.error.message, "round 11 is over");
    say_in(&f, 11, 0, "one", "xx-", 1, &before);
    await(&f, &before);
    assert_int_equal(before.error.code, ETIMEDOUT);
    tear_down(&f);
}

static void on_set(void *owner, const struct backend_answer *answer)
{
    assert_int_equal(answer->status, 0);
    ++*(unsigned *)owner;
}

/* What is no word counts as none, and one's own takes its place. */
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
    struct heard heard;

    (void)state;
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
        say(&f, 0, "one", "x--", 60000 * MS, &heard);
        await(&f, &heard);
        assert_string_equal(heard.words[0], "one");
        say(&f, 0, "one", "xx-", 1, &heard);
        await(&f, &heard);
        assert_int_equal(heard.error.code, ETIMEDOUT);
        tear_down(&f);
    }
}

static void test_not_wanted(void **state)
{
    struct fixture f;
    struct heard heard;

    (void)state;
    set_up(&f);
    say(&f, 1, "two", "---", 60000 * MS, &heard);
    await(&f, &heard);
    assert_int_equal(heard.error.code, 0);
    assert_string_equal(heard.words[0], "");
    assert_string_equal(heard.words[1], "two");
    tear_down(&f);
}

static void test_missing(void **state)
{
    struct fixture f;
    struct heard heard[2];

    (void)state;
    set_up(&f);
    say(&f, 1, "two", "---", 60000 * MS, &heard[1]);
    await(&f, &heard[1]);
    say(&f, 0, "one", "xxx", 1, &heard[0]);
    await(&f, &heard[0]);
    assert_int_equal(heard[0].error.code, ETIMEDOUT);
    assert_non_null(strstr(heard[0].error.message, "no rank of "));
    assert_non_null(strstr(heard[0].error.message, "c has asked"));
    tear_down(&f);
}

/* What fails is tried again, until its time is over. */
static void test_store_away(void **state)
{
    struct backend_health health = {0};
    struct fixture f;
    struct heard heard, other;

    (void)state;
    set_up(&f);
    say(&f, 1, "two", "---", 60000 * MS, &other);
    await(&f, &other);
    memory_store_take_away(f.store, true);
    say(&f, 0, "one", "xx-", 60000 * MS, &heard);
    while (health.failures < 2) {
        uv_run(&f.loop, UV_RUN_ONCE);
        backend_health(f.backends[0], &health);
    }
    assert_int_equal(heard.n, 0);
    memory_store_take_away(f.store, false);
    await(&f, &heard);
    assert_int_equal(heard.error.code, 0);
    assert_string_equal(heard.words[1], "two");
    memory_store_take_away(f.store, true);
    say(&f, 2, "late", "xxx", 1, &heard);
    await(&f, &heard);
    assert_string_equal(heard.error.message, "the store is away");
    tear_down(&f);
}

/* Whoever waits says its word again, as it was, to a store that has lost it. */
static void test_store_forgets(void **state)
{
    struct fixture f;
    struct heard heard[3];

    (void)state;
    set_up(&f);
    say_in(&f, 2, 0, "old", "---", 60000 * MS, &heard[0]);
    await(&f, &heard[0]);
    say(&f, 0, "one", "---", 60000 * MS, &heard[0]);
    await(&f, &heard[0]);
    say(&f, 0, "other", "xxx", 60000 * MS, &heard[0]);
    for (unsigned i = 0; i < 20; i++)
        uv_run(&f.loop, UV_RUN_NOWAIT);
    memory_store_forget(f.store);
    say(&f, 1, "two", "xxx", 60000 * MS, &heard[1]);
    say(&f, 2, "three", "xxx", 60000 * MS, &heard[2]);
    for (unsigned i = 0; i < 3; i++) {
        await(&f, &heard[i]);
        assert_int_equal(heard[i].error.code, 0);
        assert_string_equal(heard[i].words[0], "one");
        assert_string_equal(heard[i].words[2], "three");
    }
    tear_down(&f);
}

static void test_cancel(void **state)
{
    struct fixture f;
    struct heard heard;

    (void)state;
    set_up(&f);
    assert_null(gather_cancel(NULL));
    assert_null(gather_cancel(say(&f, 0, "one", "xxx", 60000 * MS, &heard)));
    tear_down(&f);
    assert_int_equal(heard.n, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_all_hear_all),  cmocka_unit_test(test_rounds),
    cmocka_unit_test(test_nonsense),      cmocka_unit_test(test_not_wanted),
    cmocka_unit_test(test_missing),       cmocka_unit_test(test_store_away),
    cmocka_unit_test(test_store_forgets), cmocka_unit_test(test_cancel),
};

int main(void)
{
    uv_threads_start();
    harness_begin();
    return harness_end(__FILE__, cmocka_run_group_tests(tests, NULL, NULL));
}
