/*
 * Calls that do a part, are interrupted, fail, or come to the end: which is what a script says.
 */
#include "tests/lib/harness.h"

#include "proto/common/fd_io.h"
#include <errno.h>

enum { CALLS_MAX = 4, END = 0 };

/* How many bytes each call does, or a negative errno; and which byte of the file is next. */
static struct {
    ssize_t results[CALLS_MAX];
    size_t n, next;
} script;

static uint8_t file[64];

static ssize_t scripted(size_t len)
{
    ssize_t result = script.results[script.n++];

    assert_true(script.n <= CALLS_MAX);
    assert_true(result <= (ssize_t)len);
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}

ssize_t __wrap_read(int fd, void *to, size_t len);
ssize_t __wrap_read(int fd, void *to, size_t len)
{
    ssize_t n = scripted(len);

    assert_int_equal(fd, 7);
    if (n > 0)
        memcpy(to, file + script.next, (size_t)n);
    script.next += n > 0 ? (size_t)n : 0;
    return n;
}

/* What pread() is in the C library, where files are large. */
ssize_t __wrap_pread64(int fd, void *to, size_t len, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t len, off_t at)
{
    assert_int_equal(at, script.next);
    return __wrap_read(fd, to, len);
}

ssize_t __wrap_write(int fd, const void *from, size_t len);
ssize_t __wrap_write(int fd, const void *from, size_t len)
{
    ssize_t n = scripted(len);

    assert_int_equal(fd, 7);
    if (n > 0)
        memcpy(file + script.next, from, (size_t)n);
    script.next += n > 0 ? (size_t)n : 0;
    return n;
}

ssize_t __wrap_pwrite64(int fd, const void *from, size_t len, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t len, off_t at)
{
    assert_int_equal(at, script.next);
    return __wrap_write(fd, from, len);
}

static void begin(const ssize_t results[static CALLS_MAX], size_t next)
{
    memset(&script, 0, sizeof script);
    memcpy(script.results, results, CALLS_MAX * sizeof *results);
    script.next = next;
}

/* Of 10 bytes. */
static const struct {
    ssize_t results[CALLS_MAX];
    size_t calls;
    int64_t read;
    int write;
} rows[] = {
    {{10}, 1, 10, 0},         {{4, 6}, 2, 10, 0},
    {{-EINTR, 10}, 2, 10, 0}, {{9, -EINTR, -EINTR, 1}, 4, 10, 0},
    {{END}, 1, 0, -ENOSPC},   {{9, END}, 2, 9, -ENOSPC},
    {{-EIO}, 1, -EIO, -EIO},  {{3, -ENOSPC}, 2, -ENOSPC, -ENOSPC},
};

TEST(test_reads)
{
    uint8_t to[11];

    for (size_t i = 0; i < sizeof file; i++)
        file[i] = (uint8_t)i;
    for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
        bool by_offset = i % 2;
        size_t at = by_offset ? 20 : 0;

        begin(rows[i / 2].results, at);
        memset(to, 0xEE, sizeof to);
        int64_t n = by_offset ? fd_pread_all(7, to, 10, at) : fd_read_all(7, to, 10);
        assert_int_equal(n, rows[i / 2].read);
        assert_int_equal(script.n, rows[i / 2].calls);
        assert_memory_equal(to, file + at, n > 0 ? (size_t)n : 0);
        assert_int_equal(to[10], 0xEE);
    }
}

TEST(test_writes)
{
    for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
        bool by_offset = i % 2;
        size_t at = by_offset ? 20 : 0;

        memset(file, 0, sizeof file);
        begin(rows[i / 2].results, at);
        int r =
            by_offset ? fd_pwrite_all(7, "0123456789", 10, at) : fd_write_all(7, "0123456789", 10);
        assert_int_equal(r, rows[i / 2].write);
        assert_int_equal(script.n, rows[i / 2].calls);
        assert_memory_equal(file + at, "0123456789", script.next - at);
    }
}

/* The kernel is not asked: of a descriptor that is none, too. */
TEST(test_nothing)
{
    begin((const ssize_t[CALLS_MAX]){0}, 0);
    assert_int_equal(fd_read_all(-1, NULL, 0), 0);
    assert_int_equal(fd_pread_all(-1, NULL, 0, 5), 0);
    assert_int_equal(fd_write_all(-1, NULL, 0), 0);
    assert_int_equal(fd_pwrite_all(-1, NULL, 0, 5), 0);
    assert_int_equal(script.n, 0);
}
