/*
 * The daemon's log: lines on standard error with the priority prefix that systemd's journal reads
 * (`<4>text`). Silent in health: info is for start and stop, warning for a peer or a worker that
 * misbehaves, error for what an operator must mend. Main thread only.
 */
#ifndef DL_LOG_H
#define DL_LOG_H

#include "proto/base.h"

enum log_level { LOG_ERROR = 3, LOG_WARNING = 4, LOG_INFO = 6, LOG_DEBUG = 7 };

void log_set_level(enum log_level level);
int _nodiscard_ log_level_from_name(const char *name, enum log_level *ret);

void log_line(enum log_level level, const char *fmt, ...) _printf_(2, 3);

#define log_error(...)   log_line(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_info(...)    log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)   log_line(LOG_DEBUG, __VA_ARGS__)

/*
 * Memory of the daemon's own book-keeping, zeroed. Running out of it ends the process: a daemon
 * that cannot keep its books must not go on half alive; the service manager restarts it. What a
 * client can make large (segments, plans, buffers) is bounded and checked instead.
 */
void *must_alloc(size_t size);
void *must_realloc(void *mem, size_t size);
char *must_strdup(const char *text);

#endif
