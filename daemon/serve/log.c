#include "daemon/serve/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static enum log_level max_level = LOG_INFO;

static const struct {
    const char *name;
    enum log_level level;
} levels[] = {
    {"error", LOG_ERROR}, {"warning", LOG_WARNING}, {"info", LOG_INFO}, {"debug", LOG_DEBUG}};

void log_set_level(enum log_level level)
{
    max_level = level;
}

int log_level_from_name(const char *name, enum log_level *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
        if (strcmp(name, levels[i].name) == 0) {
            *ret = levels[i].level;
            return 0;
        }
    }
    return -EINVAL;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[2048];
    va_list args;

    if (level > max_level)
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    /* One log entry is one line, whatever a peer managed to get into it. */
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < ' ')
            *c = ' ';
    }
    fprintf(stderr, "<%d>dloaderd: %s\n", (int)level, line);
}

static void *check(void *mem)
{
    if (!mem) {
        log_error("out of memory");
        _exit(1);
    }
    return mem;
}

void *must_alloc(size_t size)
{
    return check(calloc(1, size));
}

void *must_realloc(void *mem, size_t size)
{
    return check(realloc(mem, size));
}

char *must_strdup(const char *text)
{
    return check(strdup(text));
}
