#include "daemon/base/log.h"

#include "daemon/base/log_budget.h"
#include "daemon/base/memory.h"
#include "proto/common/url.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/uio.h>
#include <time.h>

#include <uthash.h>

#if HAVE_SYSTEMD
#include <sys/stat.h>

#define SD_JOURNAL_SUPPRESS_LOCATION /* it would be this file's, always */
#include <systemd/sd-journal.h>
#endif

static enum log_level max_level = LOG_INFO;

static const struct {
    const char *name;
    enum log_level level;
} log_levels[] = {
    {"error", LOG_ERROR}, {"warning", LOG_WARNING}, {"info", LOG_INFO}, {"debug", LOG_DEBUG}};

void log_set_level(enum log_level level)
{
    max_level = level;
}

int log_level_from_name(const char *name, enum log_level *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(log_levels); i++) {
        if (strcmp(name, log_levels[i].name) == 0) {
            *ret = log_levels[i].level;
            return 0;
        }
    }
    return -EINVAL;
}

/* ---- systemd's journal, where it reads our standard error -------------------------------------
 */

#if HAVE_SYSTEMD

/* systemd says so in $JOURNAL_STREAM. */
static bool log_journal_is_stderr(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char ours[64];
    struct stat st;

    if (!stream || fstat(STDERR_FILENO, &st) < 0)
        return false;
    snprintf(ours, sizeof ours, "%llu:%llu", (ull)st.st_dev, (ull)st.st_ino);
    return strcmp(stream, ours) == 0;
}

/* One entry of fields "KEY=value", in which the value may be anything. A negative errno: it was not
 * taken. */
static int log_journal_send(const struct iovec *fields, int n)
{
    return sd_journal_sendv(fields, n);
}

#else

static bool log_journal_is_stderr(void)
{
    return false;
}

static int log_journal_send(const struct iovec *fields, int n)
{
    (void)fields, (void)n;
    return -ENOSYS;
}

#endif

/* ---- entries of the journal ----------------------------------------------------------------- */

#define FIELD(name, type, key, meaning) +1
#define EVENT(name, id, meaning)
enum {
    N_FIELDS = 4 /* text, priority, origin, event */
#include "daemon/base/log.def"
    ,
    FIELD_BYTES = 1024, /* longer ones are cut */
    LOG_LINE_BYTES = 2048,
};
#undef FIELD
#undef EVENT

struct entry {
    struct iovec fields[N_FIELDS];
    char texts[N_FIELDS][FIELD_BYTES];
    int n;
};

static void log_add_field(struct entry *entry, const char *fmt, ...) _printf_(2, 3);
static void log_add_field(struct entry *entry, const char *fmt, ...)
{
    char *text = entry->texts[entry->n];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, FIELD_BYTES, fmt, args);
    va_end(args);
    entry->fields[entry->n++] = (struct iovec){text, strlen(text)};
}

static void log_add_text(struct entry *entry, const char *key, const char *value)
{
    if (value)
        log_add_field(entry, "%s=%s", key, value);
}

static void log_add_number(struct entry *entry, const char *key, struct log_number value)
{
    if (value.given)
        log_add_field(entry, "%s=%llu", key, (ull)value.n);
}

static void log_add_fields(struct entry *entry, const struct log_fields *about)
{
    static const char *const ids[] = {
        [LOG_EVENT_NONE] = NULL,
#define FIELD(name, type, key, meaning)
#define EVENT(name, id, meaning) [LOG_EVENT_##name] = (id),
#include "daemon/base/log.def"
#undef FIELD
#undef EVENT
    };

    log_add_text(entry, "MESSAGE_ID", ids[about->event]);
#define ADD_TEXT                        log_add_text
#define ADD_NUMBER                      log_add_number
#define FIELD(name, type, key, meaning) ADD_##type(entry, #key, about->name);
#define EVENT(name, id, meaning)
#include "daemon/base/log.def"
#undef FIELD
#undef EVENT
#undef ADD_TEXT
#undef ADD_NUMBER
}

/* `line` begins with "MESSAGE=". */
static int log_send_entry(enum log_level level, const struct log_fields *about, char *line)
{
    struct entry entry = {.n = 0};

    entry.fields[entry.n++] = (struct iovec){line, strlen(line)};
    log_add_field(&entry, "PRIORITY=%d", (int)level);
    log_add_text(&entry, "SYSLOG_IDENTIFIER", "dloaderd");
    if (about)
        log_add_fields(&entry, about);
    return log_journal_send(entry.fields, entry.n);
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* One log entry is one line, whatever text a peer got into it. */
static void log_write(enum log_level level, const struct log_fields *about, const char *fmt,
                      va_list args) __attribute__((format(printf, 3, 0)));
static void log_write(enum log_level level, const struct log_fields *about, const char *fmt,
                      va_list args)
{
    static const char key[] = "MESSAGE=";
    char line[sizeof key + LOG_LINE_BYTES] = "MESSAGE=";
    char *text = line + strlen(key);

    vsnprintf(text, LOG_LINE_BYTES, fmt, args);
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ')
            *c = ' ';
    }
    url_hide_secrets(text);
    if (!log_journal_is_stderr() || log_send_entry(level, about, line) < 0)
        fprintf(stderr, "<%d>dloaderd: %s\n", (int)level, text);
}

static void log_write_line(enum log_level level, const struct log_fields *about, const char *fmt,
                           ...) _printf_(3, 4);
static void log_write_line(enum log_level level, const struct log_fields *about, const char *fmt,
                           ...)
{
    va_list args;

    va_start(args, fmt);
    log_write(level, about, fmt, args);
    va_end(args);
}

/* ---- no user fills the log ------------------------------------------------------------------- */

/* Kept for ever: there are not many users. */
struct log_user {
    UT_hash_handle hh; /* log_users, by uid */
    uint64_t uid;
    struct log_budget budget;
};

static struct log_user *log_users;
static uint64_t log_lines = LOG_LINES_AT_ONCE;

void log_set_lines(uint64_t lines)
{
    log_lines = lines;
}

uint64_t log_lines_left_out(uint64_t uid)
{
    const struct log_user *user;

    HASH_FIND(hh, log_users, &uid, sizeof uid, user);
    return user ? user->budget.all_left_out : 0;
}

static uint64_t log_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Lines that were left out are counted as soon as there is room for one. */
static void log_tell_left_out(uint64_t now)
{
    for (struct log_user *user = log_users; user; user = user->hh.next) {
        uint64_t n = log_budget_left_out(&user->budget, log_lines, now);
        const struct log_fields about = {.client_uid = LOG_N(user->uid)};

        if (n > 0)
            log_write_line(LOG_WARNING, &about, "uid %llu: %llu more lines were left out",
                           (ull)user->uid, (ull)n);
    }
}

static bool log_has_room(uint64_t uid, uint64_t now)
{
    struct log_user *user;

    HASH_FIND(hh, log_users, &uid, sizeof uid, user);
    if (!user) {
        user = must_alloc(sizeof *user);
        user->uid = uid;
        HASH_ADD(hh, log_users, uid, sizeof user->uid, user);
    }
    return log_budget_take(&user->budget, log_lines, now);
}

void log_about(enum log_level level, const struct log_fields *about, const char *fmt, ...)
{
    va_list args;
    uint64_t now;

    if (level > max_level)
        return;
    now = log_now();
    log_tell_left_out(now);
    if (about && about->client_uid.given && about->client_uid.n != geteuid() &&
        !log_has_room(about->client_uid.n, now))
        return;
    va_start(args, fmt);
    log_write(level, about, fmt, args);
    va_end(args);
}
