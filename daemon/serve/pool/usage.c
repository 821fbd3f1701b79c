#include "daemon/serve/pool/usage.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

enum { TEXT_MAX = 256 }; /* seven numbers */

/* The next number of a line; *text is then behind it. */
static bool next_number(const char **text, uint64_t *ret)
{
    char *end;

    while (**text == ' ')
        (*text)++;
    if (!isdigit((unsigned char)**text))
        return false;
    errno = 0;
    *ret = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0 && (*end == ' ' || *end == '\n' || *end == '\0');
}

/* size resident shared ... */
bool usage_parse_statm(const char *text, uint64_t *ret_pages)
{
    uint64_t size, resident, shared;

    if (!next_number(&text, &size) || !next_number(&text, &resident) ||
        !next_number(&text, &shared))
        return false;
    *ret_pages = resident > shared ? resident - shared : 0;
    return true;
}

/* A file of /proc comes whole with the first read. */
static bool read_own_bytes(int pid, uint64_t *ret)
{
    long page = sysconf(_SC_PAGESIZE);
    char path[64], text[TEXT_MAX];
    uint64_t pages;
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    do {
        n = read(fd, text, TEXT_MAX - 1);
    } while (n < 0 && errno == EINTR);
    if (n <= 0 || page <= 0)
        return false;
    text[n] = '\0';
    if (!usage_parse_statm(text, &pages))
        return false;
    *ret = pages * (uint64_t)page;
    return true;
}

/* Cheaper than /proc/PID/stat, and it counts ns where that counts ticks of 10 ms. */
static bool read_cpu_ns(int pid, uint64_t *ret)
{
    struct timespec ts;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &ts) < 0)
        return false;
    *ret = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
    return true;
}

bool usage_read(int pid, struct usage *ret)
{
    struct usage usage;

    if (!read_cpu_ns(pid, &usage.cpu_ns) || !read_own_bytes(pid, &usage.bytes))
        return false;
    *ret = usage;
    return true;
}
