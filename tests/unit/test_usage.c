/* What the kernel says a process has used: its text by table, this process, and a child. */
#include "daemon/serve/pool/usage.h"
#include "tests/lib/harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

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

TEST(test_texts)
{
    uint64_t n;

    for (size_t i = 0; i < ARRAY_SIZE(statms); i++) {
        n = 0;
        print_message("# row %zu\n", i);
        assert_int_equal(usage_parse_statm(statms[i].text, &n), statms[i].good);
        if (statms[i].good)
            assert_int_equal(n, statms[i].pages);
    }
}

TEST(test_schedstat)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t waited;
    } rows[] = {
        {"123 456 7\n", true, 456}, {"123 456\n", false, 0}, {"", false, 0}, {"x", false, 0}};
    uint64_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(usage_parse_schedstat(rows[i].text, &n), rows[i].good);
        if (rows[i].good)
            assert_int_equal(n, rows[i].waited);
    }
    assert_false(usage_read_cpu_wait(INT32_MAX, &n)); /* above any process there can be */
}

#if defined(__SANITIZE_THREAD__)
#define WITH_THREAD_SANITIZER true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_THREAD_SANITIZER true
#endif
#endif
#ifndef WITH_THREAD_SANITIZER
#define WITH_THREAD_SANITIZER false
#endif

static void *map(int flags, size_t len)
{
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    memset(at, 1, len);
    return at;
}

/* Its own pages count, and those that it shares do not. The kernel's counts of pages lag behind by
 * up to some 64 for each thread, so both are far more. */
TEST(test_own_memory)
{
    enum { LEN = 64 << 20 };
    struct usage before, shared, own;

    if (WITH_THREAD_SANITIZER)
        return; /* what it keeps of a shared page is the process's own */
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

TEST(test_own_time)
{
    struct usage usage;
    uint64_t before = cpu_clock_ns();

    assert_true(usage_read(getpid(), &usage));
    assert_true(before <= usage.cpu_ns);
    assert_true(usage.cpu_ns <= cpu_clock_ns());
}

/* One that has computed for a while, and says so. */
TEST(test_another_process)
{
    enum { COMPUTED_NS = 20 * 1000 * 1000 };
    struct usage usage;
    int fds[2], status;
    char byte;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        while (cpu_clock_ns() < COMPUTED_NS)
            ;
        if (write(fds[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(fds[0], &byte, 1), 1);
    assert_true(usage_read(pid, &usage));
    assert_true(usage.cpu_ns >= COMPUTED_NS);
    assert_true(usage.bytes > 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

TEST(test_no_process)
{
    struct usage usage;
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(usage_read(pid, &usage));
}
