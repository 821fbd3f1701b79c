#include "daemon/serve/usage.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum { TEXT_MAX = 1024 }; /* numbers, and a name of 16 bytes */

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

/* Past a field that is no number, or perhaps one below 0. */
static bool skip(const char **text, unsigned fields)
{
    for (; fields > 0; fields--) {
        *text += strspn(*text, " ");
        size_t len = strcspn(*text, " \n");
        if (len == 0)
            return false;
        *text += len;
    }
    return true;
}

/* pid (name) state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime:
 * the name may hold anything, blanks and brackets too, so it ends at the last bracket. */
bool usage_parse_stat(const char *text, uint64_t *ret_ticks)
{
    const char *at = strrchr(text, ')');
    uint64_t user, kernel;

    if (!at)
        return false;
    at++;
    if (!skip(&at, 11) || !next_number(&at, &user) || !next_number(&at, &kernel))
        return false;
    return !add_overflows(user, kernel, ret_ticks);
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
static bool read_text(int pid, const char *name, char text[static TEXT_MAX])
{
    char path[64];
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    do {
        n = read(fd, text, TEXT_MAX - 1);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return true;
}

bool usage_read(int pid, struct usage *ret)
{
    long hertz = sysconf(_SC_CLK_TCK), page = sysconf(_SC_PAGESIZE);
    char text[TEXT_MAX];
    uint64_t ticks, pages;

    if (hertz <= 0 || page <= 0)
        return false;
    if (!read_text(pid, "stat", text) || !usage_parse_stat(text, &ticks))
        return false;
    if (!read_text(pid, "statm", text) || !usage_parse_statm(text, &pages))
        return false;
    ret->cpu_ns = ticks * (1000000000 / (uint64_t)hertz);
    ret->bytes = pages * (uint64_t)page;
    return true;
}
