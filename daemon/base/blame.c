#include "daemon/base/blame.h"

#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/base/own_file.h"
#include "proto/common/fd_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

static const int blame_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

enum { BLAME_STACK = 64 * 1024 };

/* A signal handler can reach only such variables. */
static _Thread_local uint64_t blame_now;
static struct {
    int fd; /* owned; appended to; -1: crashes are not noted */
    char *path;
    struct blame_death deaths[BLAME_MAX]; /* of the daemons before */
    size_t n;
    struct sigaction before[ARRAY_SIZE(blame_signals)];
    stack_t stack; /* for the handler, where the other one is full */
} blame_state = {.fd = -1};

/* ---- the list of deaths --------------------------------------------------------------------- */

static bool blame_counts(const struct blame_death *death, uint64_t now)
{
    return death->time <= now && now - death->time < BLAME_SECONDS;
}

uint32_t blame_count(const struct blame_death *deaths, size_t n, uint64_t key, uint64_t now,
                     uint64_t *ret_last)
{
    uint32_t count = 0;

    *ret_last = 0;
    for (size_t i = 0; i < n; i++) {
        if (deaths[i].key != key || !blame_counts(&deaths[i], now))
            continue;
        count++;
        *ret_last = max_u64(*ret_last, deaths[i].time);
    }
    return count;
}

uint64_t blame_key(uid_t uid, uint32_t kind, const void *data, size_t len)
{
    uint64_t seed = (uint64_t)uid << 32 | kind;

    return max_u64(XXH3_64bits_withSeed(data, len, seed), 1);
}

uint64_t blame_swap(uint64_t key)
{
    uint64_t before = blame_now;

    blame_now = key;
    return before;
}

void blame_backp(const uint64_t *before)
{
    blame_now = *before;
}

uint64_t blame_at(void)
{
    return blame_now;
}

int blame_check(uint64_t key, const char *what, struct dl_error *err)
{
    uint64_t last, now = (uint64_t)time(NULL);
    uint32_t count =
        blame_state.n ? blame_count(blame_state.deaths, blame_state.n, key, now, &last) : 0;

    if (count < BLAME_DEATHS)
        return 0;
    return dl_error_set(err, EPERM, what,
                        "the daemon has crashed %u times while it worked on this, so it is refused "
                        "for another %llu min; report the crash (see the daemon's log). Restarting "
                        "the daemon allows it again",
                        count, (ull)((last + BLAME_SECONDS - now + 59) / 60));
}

/* ---- the signals ----------------------------------------------------------------------------- */

/* Passes on to the former handler: by repeating the access, or the signal. */
static void blame_on_crash(int number)
{
    struct blame_death death = {.key = blame_now, .time = (uint64_t)time(NULL)};

    if (death.key && blame_state.fd >= 0)
        (void)!write(blame_state.fd, &death, sizeof death);
    for (size_t i = 0; i < ARRAY_SIZE(blame_signals); i++) {
        if (blame_signals[i] == number)
            (void)sigaction(number, &blame_state.before[i], NULL);
    }
    (void)raise(number);
}

static void blame_handle_signals(void)
{
    struct sigaction action = {.sa_handler = blame_on_crash, .sa_flags = SA_ONSTACK};

    blame_state.stack = (stack_t){.ss_sp = must_alloc(BLAME_STACK), .ss_size = BLAME_STACK};
    (void)sigaltstack(&blame_state.stack, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(blame_signals); i++)
        (void)sigaction(blame_signals[i], &action, &blame_state.before[i]);
}

static void blame_leave_signals(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(blame_signals); i++)
        (void)sigaction(blame_signals[i], &blame_state.before[i], NULL);
    (void)sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    free(blame_state.stack.ss_sp);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Keeps those that count. 1: there are others, which had better go; or a record is not whole. */
static int blame_read(int fd)
{
    uint64_t now = (uint64_t)time(NULL);
    struct blame_death death;
    ssize_t got;
    int r = 0;

    while ((got = read(fd, &death, sizeof death)) == (ssize_t)sizeof death) {
        if (death.key == 0 || !blame_counts(&death, now)) {
            r = 1;
            continue;
        }
        if (blame_state.n == BLAME_MAX) {
            memmove(blame_state.deaths, blame_state.deaths + 1, --blame_state.n * sizeof death);
            r = 1;
        }
        blame_state.deaths[blame_state.n++] = death;
    }
    return got < 0 ? -errno : got > 0 ? 1 : r;
}

/* Replaces the file by a new one, so that a crash on the way loses nothing. */
static int blame_write(const char *path, int *ret)
{
    _cleanup_free_ char *fresh = NULL;
    size_t bytes = blame_state.n * sizeof blame_state.deaths[0];

    if (asprintf(&fresh, "%s.new", path) < 0) {
        fresh = NULL;
        return -ENOMEM;
    }
    (void)unlink(fresh);
    int r = own_file_open(fresh, O_APPEND | O_EXCL, ret);
    if (r < 0)
        return r;
    r = fd_write_all(*ret, blame_state.deaths, bytes);
    return r == 0 && rename(fresh, path) < 0 ? -errno : r;
}

int blame_open(const char *path, struct dl_error *err)
{
    _cleanup_fd_ int old = -1, fresh = -1;
    int r = own_file_open(path, O_APPEND, &old);

    if (r == 0)
        r = blame_read(old);
    if (r == 1)
        r = blame_write(path, &fresh);
    if (r < 0) {
        blame_state.n = 0;
        return dl_error_set(err, -r, path, "cannot record crashes of the daemon here: %s",
                            strerror(-r));
    }
    blame_state.path = must_strdup(path);
    blame_state.fd = fresh >= 0 ? steal_fd(&fresh) : steal_fd(&old);
    blame_handle_signals();
    if (blame_state.n > 0)
        log_warning("previous daemons crashed %zu times within an hour while they worked for "
                    "clients; a request that crashed two of them is refused",
                    blame_state.n);
    return 0;
}

void blame_close(void)
{
    if (blame_state.fd < 0)
        return;
    blame_leave_signals();
    (void)unlink(blame_state.path);
    free(blame_state.path);
    close_fdp(&blame_state.fd);
    blame_state.path = NULL;
    blame_state.n = 0;
}
