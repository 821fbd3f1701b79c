/*
 * Lets time pass for a daemon without anybody waiting for it: preloaded, it makes the monotonic
 * clock be ahead of the machine's. A test says by how much in the file that CLOCK_AHEAD names, and
 * sees there when that holds: `daemon.advance()` in tests/lib/dltest.py.
 *
 * Time leaps only where the loop has nothing left to do but to wait: what was sent before is done
 * before, and timers that are due run next. Workers, clients and stores keep the machine's time, as
 * do libuv's waits for conditions.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    NS_PER_S = 1000000000,
    LOOK_MS = 5, /* how often a loop that waits looks into the file */
};

struct ahead {
    _Atomic int64_t wanted_ns; /* the test writes it */
    _Atomic int64_t now_ns;    /* what holds */
};

static struct ahead nothing, *ahead = &nothing;

__attribute__((constructor)) static void map_ahead(void)
{
    const char *path = getenv("CLOCK_AHEAD");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED)
        abort();
    close(fd);
    ahead = map;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
    int r = (int)syscall(SYS_clock_gettime, clock, ts);

    if (r == 0 && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)) {
        int64_t ns = ts->tv_nsec + atomic_load(&ahead->now_ns);
        ts->tv_sec += ns / NS_PER_S;
        ts->tv_nsec = ns % NS_PER_S;
    }
    return r;
}

static int look(int epfd, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
    return (int)syscall(SYS_epoll_pwait, epfd, events, n, timeout, mask, _NSIG / 8);
}

/* A wait for ever stands for a loop without a timer: it goes on. */
int epoll_pwait(int epfd, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
    for (;;) {
        bool leaps = timeout != 0 && atomic_load(&ahead->wanted_ns) != atomic_load(&ahead->now_ns);
        int wait = leaps ? 0 : timeout < 0 || timeout > LOOK_MS ? LOOK_MS : timeout;
        int r = look(epfd, events, n, wait, mask);
        if (r == 0 && leaps)
            atomic_store(&ahead->now_ns, atomic_load(&ahead->wanted_ns));
        if (r != 0 || timeout == wait || (leaps && timeout > 0))
            return r;
        timeout -= timeout < 0 ? 0 : wait;
    }
}

int epoll_wait(int epfd, struct epoll_event *events, int n, int timeout)
{
    return epoll_pwait(epfd, events, n, timeout, NULL);
}
