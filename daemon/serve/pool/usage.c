#include "daemon/serve/pool/usage.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

enum { USAGE_TEXT_MAX = 256 }; /* seven numbers */

/* The next number of a line; *text is then behind it. */
static bool usage_next_number(const char **text, uint64_t *ret)
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

    if (!usage_next_number(&text, &size) || !usage_next_number(&text, &resident) ||
        !usage_next_number(&text, &shared))
        return false;
    *ret_pages = resident > shared ? resident - shared : 0;
    return true;
}

/* Computed, waited, time slices. */
bool usage_parse_schedstat(const char *text, uint64_t *ret_ns)
{
    uint64_t computed, waited, slices;

    if (!usage_next_number(&text, &computed) || !usage_next_number(&text, &waited) ||
        !usage_next_number(&text, &slices))
        return false;
    *ret_ns = waited;
    return true;
}

/* A file of /proc comes whole with the first read. */
static bool usage_read_file(int pid, const char *name, char text[static USAGE_TEXT_MAX])
{
    char path[64];
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    do {
        n = read(fd, text, USAGE_TEXT_MAX - 1);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return true;
}

static bool usage_read_own_bytes(int pid, uint64_t *ret)
{
    long page = sysconf(_SC_PAGESIZE);
    char text[USAGE_TEXT_MAX];
    uint64_t pages;

    if (page <= 0 || !usage_read_file(pid, "statm", text) || !usage_parse_statm(text, &pages))
        return false;
    *ret = pages * (uint64_t)page;
    return true;
}

bool usage_read_cpu_wait(int pid, uint64_t *ret_ns)
{
    char text[USAGE_TEXT_MAX];

    return usage_read_file(pid, "schedstat", text) && usage_parse_schedstat(text, ret_ns);
}

/* Cheaper than /proc/PID/stat, and it counts ns where that counts ticks of 10 ms. */
static bool usage_read_cpu_ns(int pid, uint64_t *ret)
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

    if (!usage_read_cpu_ns(pid, &usage.cpu_ns) || !usage_read_own_bytes(pid, &usage.bytes))
        return false;
    *ret = usage;
    return true;
}
