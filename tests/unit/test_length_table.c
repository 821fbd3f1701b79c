/* The lengths of a loader: counted, and kept in a cache that threads read and write. */
#include "tests/lib/harness.h"

#include "daemon/cache/lengths_cache.h"
#include "daemon/serve/loader/length_table.h"
#include "tests/lib/uv_threads.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>

enum { SAMPLES = 1000, FINGERPRINT = 77 };

struct fixture {
    uv_loop_t loop;
    struct crew *crew;
    char dir[64];
    int calls;
    int r;
    uint64_t overlong;
    struct dl_error err;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    strcpy(f->dir, "/tmp/test_length_table-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->crew = crew_new(&f->loop, 4);
    *state = f;
    return 0;
}

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    uv_run(&f->loop, UV_RUN_DEFAULT);
    crew_free(f->crew);
    int r = uv_loop_close(&f->loop);
    nftw(f->dir, unlink_one, 8, FTW_DEPTH | FTW_PHYS);
    free(f);
    return r;
}

static void done(void *owner, int r, const struct lengths_found *found, const struct dl_error *err)
{
    struct fixture *f = owner;

    f->calls++;
    f->r = r;
    f->overlong = found->overlong;
    f->err = *err;
}

static const struct lengths_rule rule = {
    .tokens = {.tokens = 512, .strategy = PLAN_SORTED, .multiple = 1, .max_length = 512}};

static struct length_table *table_new(void)
{
    struct length_table *table = NULL;

    assert_int_equal(length_table_new(SAMPLES, &(struct payer){0}, &table, NULL), 0);
    return table;
}

static struct length_cache_for cache_of(struct fixture *f)
{
    return (struct length_cache_for){.crew = f->crew, .uid = 1000, .dir = f->dir};
}

static void store(struct fixture *f, struct length_table *table)
{
    struct length_cache_for cache = cache_of(f);

    length_cache_store(&cache, FINGERPRINT, table, "test");
}

static struct length_cache_load *begin_load(struct fixture *f, struct length_table *table,
                                            const struct lengths_rule *by)
{
    struct length_cache_for cache = cache_of(f);

    return length_cache_load(&cache, FINGERPRINT, table, by, done, f);
}

static struct length_table *table_of(uint32_t step)
{
    struct length_table *table = table_new();

    for (uint32_t i = 0; i < SAMPLES; i++)
        table->values[i] = 1 + i * step;
    return table;
}

static struct length_table *load(struct fixture *f, const struct lengths_rule *by)
{
    struct length_table *table = table_new();

    assert_non_null(begin_load(f, table, by));
    uv_run(&f->loop, UV_RUN_DEFAULT);
    return table;
}

TEST(test_what_is_stored_is_loaded, setup, teardown)
{
    struct fixture *f = *state;
    struct length_table *table = table_of(1);

    store(f, table);
    length_table_unref(table); /* the thread has a reference of its own */
    uv_run(&f->loop, UV_RUN_DEFAULT);
    table = load(f, &rule);
    assert_int_equal(f->calls, 1);
    assert_int_equal(f->r, 0);
    assert_int_equal(f->overlong, SAMPLES - 512);
    for (uint32_t i = 0; i < SAMPLES; i++)
        assert_int_equal(table->values[i], 1 + i);
    length_table_unref(table);
}

TEST(test_there_is_none, setup, teardown)
{
    struct fixture *f = *state;

    length_table_unref(load(f, &rule));
    assert_int_equal(f->calls, 1);
    assert_int_equal(f->r, -ENOENT);
}

TEST(test_what_is_there_may_be_refused, setup, teardown)
{
    struct fixture *f = *state;
    struct length_table *table = table_of(1);
    struct lengths_rule strict = rule;

    strict.overlong = OVERLONG_ERROR;
    store(f, table);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    length_table_unref(table);
    length_table_unref(load(f, &strict));
    assert_int_equal(f->r, -EINVAL);
    assert_string_equal(f->err.path, "batch.overlong");
    assert_non_null(strstr(f->err.message, "sample 512 has 513 tokens"));
}

TEST(test_nobody_waits_any_more, setup, teardown)
{
    struct fixture *f = *state;
    struct length_cache_load *loads[2 * CREW_JOBS];

    for (size_t i = 0; i < ARRAY_SIZE(loads); i++) {
        struct length_table *table = table_new();
        loads[i] = begin_load(f, table, &rule);
        length_table_unref(table);
    }
    for (size_t i = 0; i < ARRAY_SIZE(loads); i++)
        length_cache_forget(loads[i]); /* threads have some, and the others wait for these */
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(f->calls, 0);
}

/* Its user's memory, also while only a thread has it. */
TEST(test_it_is_charged, setup, teardown)
{
    struct fixture *f = *state;
    struct quota *quota = quota_new(&(struct config_limits){.bytes = 4 * SAMPLES});
    struct quota_account *account = quota_account(quota, 1000);
    struct payer payer = {.account = account};
    struct length_table *table = NULL, *other = NULL;
    struct dl_error err = {0};

    assert_int_equal(length_table_new(SAMPLES, &payer, &table, &err), 0);
    assert_int_equal(quota_in_use(account, QUOTA_BYTES), 4 * SAMPLES);
    assert_int_equal(length_table_new(1, &payer, &other, &err), -EDQUOT);
    assert_string_equal(err.path, "limits.bytes");
    struct length_cache_load *l = begin_load(f, table, &rule);
    length_table_unref(table);
    length_cache_forget(l);
    assert_int_equal(quota_in_use(account, QUOTA_BYTES), 4 * SAMPLES);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(quota_in_use(account, QUOTA_BYTES), 0);
    quota_free(quota);
}

TEST(test_a_cache_that_cannot_be_written, setup, teardown)
{
    struct fixture *f = *state;
    struct length_table *table = table_of(1);

    strcpy(f->dir, "/proc/nowhere");
    store(f, table);
    uv_run(&f->loop, UV_RUN_DEFAULT); /* is told in the log, and no more */
    length_table_unref(table);
}

TEST(test_where_it_is)
{
    char *dir = strdup("auto");

    setenv("CACHE_DIRECTORY", "/var/cache/dloaderd", 1);
    length_cache_locate(&dir);
    assert_string_equal(dir, "/var/cache/dloaderd");
    length_cache_locate(&dir); /* is said already */
    unsetenv("CACHE_DIRECTORY");
    setenv("XDG_CACHE_HOME", "/home/x/cache", 1);
    free(dir);
    dir = strdup("auto");
    length_cache_locate(&dir);
    assert_string_equal(dir, "/home/x/cache/dloader");
    free(dir);
    dir = strdup("");
    length_cache_locate(&dir);
    assert_string_equal(dir, "");
    free(dir);
}
