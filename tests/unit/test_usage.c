/* What the kernel says a process has used: its texts by table, and this process. */
#include "daemon/serve/usage.h"
#include "tests/lib/harness.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define TO_TIMES " S 1 2 3 0 -1 4194560 5 6 7 8"

static const struct {
    const char *text;
    bool good;
    uint64_t ticks;
} stats[] = {
    {"7 (python3)" TO_TIMES " 30 12 0 0 20 0 1\n", true, 42},
    {"7 (a) b (c) 1)" TO_TIMES " 1 2 3\n", true, 3},
    {"7 ()" TO_TIMES " 0 0", true, 0},
    {"7 (a" TO_TIMES " 1 2", false, 0},
    {"7 (a)" TO_TIMES " 1", false, 0},
    {"7 (a)" TO_TIMES, false, 0},
    {"7 (a)" TO_TIMES " x 2", false, 0},
    {"7 (a)" TO_TIMES " 1 2x", false, 0},
    {"7 (a)" TO_TIMES " -1 2", false, 0},
    {"7 (a)" TO_TIMES " 18446744073709551615 1", false, 0},
    {"7 (a)" TO_TIMES " 18446744073709551616 1", false, 0},
    {"7 (a) S 1", false, 0},
    {"", false, 0},
};

static const struct {
    const char *text;
    bool good;
    uint64_t pages;
} statms[] = {
    {"900 70 20 1 0 50 0\n", true, 50},
    {"0 0 0 0 0 0 0\n", true, 0},
    {"9 2 3\n", true, 0},
    {"9 2\n", false, 0},
    {"", false, 0},
    {"a b c\n", false, 0},
};

static void test_texts(void **state)
{
    uint64_t n;

    for (size_t i = 0; i < ARRAY_SIZE(stats); i++) {
        n = 0;
        print_message("# stat %zu\n", i);
        assert_int_equal(usage_parse_stat(stats[i].text, &n), stats[i].good);
        if (stats[i].good)
            assert_int_equal(n, stats[i].ticks);
    }
    for (size_t i = 0; i < ARRAY_SIZE(statms); i++) {
        n = 0;
        print_message("# statm %zu\n", i);
        assert_int_equal(usage_parse_statm(statms[i].text, &n), statms[i].good);
        if (statms[i].good)
            assert_int_equal(n, statms[i].pages);
    }
}

static void *map(int flags, size_t len)
{
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    memset(at, 1, len);
    return at;
}

/* Its own pages count, and those that it shares do not. The kernel's counts of pages lag behind by
 * up to some 64 for each thread, so both are far more. */
static void test_own_memory(void **state)
{
    enum { LEN = 64 << 20 };
    struct usage before, shared, own;

    assert_true(usage_read(getpid(), &before));
    void *segment = map(MAP_SHARED, LEN);
    assert_true(usage_read(getpid(), &shared));
    void *memory = map(MAP_PRIVATE, LEN);
    assert_true(usage_read(getpid(), &own));
    assert_true(shared.bytes < before.bytes + LEN / 2);
    assert_true(own.bytes > shared.bytes + LEN / 2);
    assert_int_equal(munmap(segment, LEN), 0);
    assert_int_equal(munmap(memory, LEN), 0);
}

static uint64_t cpu_clock_ns(void)
{
    struct timespec ts;

    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts), 0);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* By another clock, up to the two ticks that each of its two parts is cut off by. */
static void test_own_time(void **state)
{
    const uint64_t ticks = 4 * UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK);
    struct usage usage;
    uint64_t before;

    while ((before = cpu_clock_ns()) < 200 * 1000 * 1000)
        ;
    assert_true(usage_read(getpid(), &usage));
    assert_true(usage.cpu_ns + ticks >= before);
    assert_true(usage.cpu_ns <= cpu_clock_ns() + ticks);
}

static void test_no_process(void **state)
{
    struct usage usage;
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(usage_read(pid, &usage));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_texts),
    cmocka_unit_test(test_own_memory),
    cmocka_unit_test(test_own_time),
    cmocka_unit_test(test_no_process),
};

TEST_MAIN(tests)
