#include "daemon/serve/notify.h"

#if HAVE_SYSTEMD

#include <errno.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <time.h>

void notify_ready(const char *status)
{
    (void)sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_reloading(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
                     (ull)now.tv_sec * 1000000u + (ull)now.tv_nsec / 1000u);
}

void notify_stopping(void)
{
    (void)sd_notify(0, "STOPPING=1");
}

void notify_watchdog(void)
{
    (void)sd_notify(0, "WATCHDOG=1");
}

uint64_t notify_watchdog_ms(void)
{
    uint64_t usec = 0;

    return sd_watchdog_enabled(0, &usec) > 0 ? max_u64(usec / 2000, 1) : 0;
}

int notify_listen_fd(void)
{
    int n = sd_listen_fds(1);

    if (n <= 0)
        return n < 0 ? n : -1;
    if (n > 1 || sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, 1, NULL, 0) <= 0)
        return -ENOTSOCK;
    return SD_LISTEN_FDS_START;
}

#else

void notify_ready(const char *status)
{
    (void)status;
}

void notify_reloading(void)
{
}

void notify_stopping(void)
{
}

void notify_watchdog(void)
{
}

uint64_t notify_watchdog_ms(void)
{
    return 0;
}

int notify_listen_fd(void)
{
    return -1;
}

#endif
