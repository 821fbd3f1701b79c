/*
 * The daemon's log: lines on standard error with the priority prefix that systemd's journal reads
 * (`<4>text`), or, where standard error is the journal, entries with the fields of log.def. Silent
 * in health: info is for start and stop, warning for a peer or a worker that misbehaves, error for
 * what an operator must mend. Lines about any user (client_uid) but the daemon's own are limited,
 * and those beyond the limit counted: log_budget.h. Main thread only.
 */
#ifndef DL_LOG_H
#define DL_LOG_H

#include "proto/common/base.h"

enum log_level { LOG_ERROR = 3, LOG_WARNING = 4, LOG_INFO = 6, LOG_DEBUG = 7 };

void log_set_level(enum log_level level);
/* Of lines about one user at once: limits.log_lines. */
void log_set_lines(uint64_t lines);
/* How many lines about that user were left out, since the start. */
uint64_t log_lines_left_out(uint64_t uid);
int _nodiscard_ log_level_from_name(const char *name, enum log_level *ret);

enum log_event {
    LOG_EVENT_NONE,
#define FIELD(name, type, key, meaning)
#define EVENT(name, id, meaning) LOG_EVENT_##name,
#include "daemon/base/log.def"
#undef FIELD
#undef EVENT
};

/* 0 is a number like any other. */
struct log_number {
    bool given;
    uint64_t n;
};
#define LOG_N(number)    ((struct log_number){.given = true, .n = (uint64_t)(number)})

#define LOG_FIELD_TEXT   const char *
#define LOG_FIELD_NUMBER struct log_number

/* What an entry is about; unset fields are left out. Its text must name them as well: most readers
 * see nothing else. */
struct log_fields {
    enum log_event event;
#define FIELD(name, type, key, meaning) LOG_FIELD_##type name;
#define EVENT(name, id, meaning)
#include "daemon/base/log.def"
#undef FIELD
#undef EVENT
};

/* `about` may be NULL. */
void log_about(enum log_level level, const struct log_fields *about, const char *fmt, ...)
    _printf_(3, 4);

#define log_error(...)   log_about(LOG_ERROR, NULL, __VA_ARGS__)
#define log_warning(...) log_about(LOG_WARNING, NULL, __VA_ARGS__)
#define log_info(...)    log_about(LOG_INFO, NULL, __VA_ARGS__)
#define log_debug(...)   log_about(LOG_DEBUG, NULL, __VA_ARGS__)

/* About one loader of a user: log_loader(LOG_INFO, name, uid, "%s: ...", name) */
#define log_loader(level, name, uid, ...) \
    log_about(level, &(struct log_fields){.loader = (name), .client_uid = LOG_N(uid)}, __VA_ARGS__)

#endif
