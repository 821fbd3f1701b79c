/* What the daemon dies of: noted by those who crash, read by the next, forgotten by and by. */
#include "tests/lib/harness.h"

#include "daemon/base/blame.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *path_of(const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", harness_tmpdir(), name);
    return path;
}

static void open_at(const char *path)
{
    struct dl_error err = {0};

    if (blame_open(path, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
}

static uint64_t key_of(const char *what)
{
    return blame_key(1000, 2, what, strlen(what));
}

static bool is_refused(uint64_t key)
{
    struct dl_error err = {0};
    int r = blame_check(key, "OPEN", &err);

    assert_true(r == 0 || r == -EPERM);
    if (r < 0)
        assert_non_null(strstr(err.message, "the daemon has crashed 2 times while it worked on "));
    return r < 0;
}

TEST(test_counting)
{
    const struct blame_death deaths[] = {{7, 1000}, {8, 1000}, {7, 1500}, {7, 9000}, {7, 1200}};
    uint64_t last;

    assert_int_equal(blame_count(deaths, 5, 7, 2000, &last), 3);
    assert_int_equal(last, 1500);
    assert_int_equal(blame_count(deaths, 5, 7, 1000 + BLAME_SECONDS, &last), 2);
    assert_int_equal(blame_count(deaths, 5, 7, 1500 + BLAME_SECONDS, &last), 0);
    assert_int_equal(last, 0);
    assert_int_equal(blame_count(deaths, 5, 9, 2000, &last), 0);
    assert_int_equal(blame_count(deaths, 0, 7, 2000, &last), 0);
}

TEST(test_keys)
{
    assert_true(key_of("a spec") == key_of("a spec"));
    assert_true(key_of("a spec") != key_of("another"));
    assert_true(blame_key(1, 2, "x", 1) != blame_key(2, 2, "x", 1));
    assert_true(blame_key(1, 2, "x", 1) != blame_key(1, 3, "x", 1));
    assert_true(blame_key(1, 2, NULL, 0) != blame_key(1, 3, NULL, 0));
    assert_int_equal(blame_swap(5), 0);
    assert_int_equal(blame_at(), 5);
    assert_int_equal(blame_swap(0), 5);
}

/* ---- ways to go ---- */

static void *die_in_a_thread(void *key)
{
    (void)blame_swap(*(uint64_t *)key);
    abort();
}

static uint64_t overflow_the_stack(volatile uint64_t *above)
{
    volatile uint64_t here[512] = {*above};

    if (*above == 0)
        return 0;
    return overflow_the_stack(here) + here[7];
}

enum way { BY_ABORT, BY_FAULT, BY_STACK, BY_THREAD, BY_KILL, IN_ORDER };

static void die(enum way way, uint64_t key)
{
    volatile uint64_t seed = 1;
    void *forbidden = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t thread;

    (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer would have more to say */
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    open_at(path_of("crashes"));
    (void)blame_swap(way == BY_THREAD ? 0 : key);
    switch (way) {
    case BY_ABORT:
        abort();
    case BY_FAULT:
        *(volatile char *)forbidden = 1;
        break;
    case BY_STACK:
        _exit((int)overflow_the_stack(&seed));
    case BY_THREAD:
        (void)pthread_create(&thread, NULL, die_in_a_thread, &key);
        (void)pthread_join(thread, NULL);
        break;
    case BY_KILL:
        (void)kill(getpid(), SIGKILL);
        break;
    case IN_ORDER:
        blame_close();
        break;
    }
    _exit(0);
}

static int let_die(enum way way, uint64_t key)
{
    int status = 0;
    (void)harness_tmpdir(); /* for both */
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        die(way, key);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static size_t count_noted(void)
{
    struct stat st = {0};

    return stat(path_of("crashes"), &st) == 0 ? (size_t)st.st_size / sizeof(struct blame_death) : 0;
}

TEST(test_each_way_to_go)
{
    static const struct {
        enum way way;
        int signal;
    } ways[] = {
        {BY_ABORT, SIGABRT}, {BY_FAULT, SIGSEGV}, {BY_STACK, SIGSEGV}, {BY_THREAD, SIGABRT}};

    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        uint64_t key = key_of("poison") + 2 * i;
        for (unsigned times = 1; times <= 2; times++) {
            assert_int_equal(let_die(ways[i].way, key), ways[i].signal);
            assert_int_equal(count_noted(), times);
        }
        assert_int_equal(let_die(BY_KILL, key_of("innocent")), SIGKILL);
        assert_int_equal(let_die(BY_ABORT, 0), SIGABRT);
        assert_int_equal(count_noted(), 2);
        open_at(path_of("crashes"));
        assert_true(is_refused(key));
        assert_false(is_refused(key_of("innocent")));
        blame_close();
        assert_false(is_refused(key));
        assert_int_equal(count_noted(), 0);
    }
    assert_int_equal(let_die(BY_ABORT, key_of("poison")), SIGABRT);
    assert_int_equal(let_die(IN_ORDER, key_of("poison")), 0);
    assert_int_equal(let_die(BY_ABORT, key_of("poison")), SIGABRT);
    open_at(path_of("crashes"));
    assert_false(is_refused(key_of("poison")));
    blame_close();
}

/* ---- the file ---- */

TEST(test_what_a_file_may_be)
{
    uint64_t now = (uint64_t)time(NULL);
    struct blame_death deaths[BLAME_MAX + 9] = {{0}};
    struct dl_error err = {0};

    /* More than are kept, some of them too old, one of the future, and a torn one. */
    for (size_t i = 0; i < BLAME_MAX + 8; i++)
        deaths[i] = (struct blame_death){i / 2 + 1, now};
    deaths[BLAME_MAX + 2].time = now - BLAME_SECONDS;
    deaths[BLAME_MAX + 4].time = now + 1000;
    const char *path = harness_file("many", deaths, sizeof deaths - 5);
    open_at(path);
    assert_false(is_refused(1));
    assert_true(is_refused(BLAME_MAX / 2));
    assert_false(is_refused(BLAME_MAX / 2 + 2));
    assert_false(is_refused(BLAME_MAX / 2 + 3));
    assert_true(is_refused(BLAME_MAX / 2 + 4));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, BLAME_MAX * sizeof deaths[0]);
    blame_close();
    assert_int_equal(access(path, F_OK), -1);

    assert_int_equal(blame_open("/nonexistent/crashes", &err), -ENOENT);
    assert_non_null(strstr(err.message, "cannot record crashes of the daemon here: No such file"));
    assert_int_equal(blame_open(harness_tmpdir(), &err), -EISDIR);
    path = harness_file("linked", "x", 1);
    assert_int_equal(link(path, path_of("other")), 0);
    assert_int_equal(blame_open(path, &err), -EPERM);
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    assert_int_equal(blame_open(path_of("pipe"), &err), -EPERM);
    blame_close();
}
