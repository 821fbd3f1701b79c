/*
 * Finding the next daemon after one has ended: the errands of core/away.c. Nothing here blocks:
 * reconnect_turn() does what can be done now, and every reader calls it, be it a waiting call or
 * the user's event loop. While there is no socket, a timer has its descriptor's number and becomes
 * readable when the next try is due.
 */
#include "client/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

/* ---- the descriptor ---- */

/* `fd` (consumed) takes the place of the client's, under its number. 0, or latched. */
static int reconnect_take_place(struct dl_client *client, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    int watch = client->reconnect.watch, r;

    if (watch >= 0)
        (void)epoll_ctl(watch, EPOLL_CTL_DEL, client->fd, NULL);
    r = dup3(fd, client->fd, O_CLOEXEC) < 0 ? -errno : 0;
    close(fd);
    if (r == 0 && watch >= 0 && epoll_ctl(watch, EPOLL_CTL_ADD, client->fd, &event) < 0)
        r = -errno;
    return r < 0 ? connection_fail(&client->conn, -r, "", "the socket cannot be replaced: %s",
                                   strerror(-r))
                 : 0;
}

/* The timer that stands in the socket's place. 0, or latched. */
static int reconnect_put_timer(struct dl_client *client)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

    if (fd < 0)
        return connection_fail(&client->conn, errno, "", "timerfd_create: %s", strerror(errno));
    return reconnect_take_place(client, fd);
}

int reconnect_arm(struct dl_client *client)
{
    uint64_t at = max_u64(client->reconnect.next_try, 1); /* 0 would disarm it */
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)}};

    if (client->reconnect.armed == at)
        return 0;
    if (!client->reconnect.armed && reconnect_put_timer(client) < 0)
        return connection_check(&client->conn);
    client->reconnect.armed = at;
    if (timerfd_settime(client->fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0)
        return 0;
    return connection_fail(&client->conn, errno, "", "timerfd_settime: %s", strerror(errno));
}

/* ---- errands ---- */

/* Another user who listens there may go away again. */
static int reconnect_connect(struct dl_client *client, const struct errand *errand)
{
    struct reconnect *rc = &client->reconnect;
    int fd = -1, r = client_dial(rc->path, 0, &fd, &rc->cause);

    (void)errand;
    if (r == 0) {
        if (reconnect_take_place(client, fd) < 0)
            return connection_check(&client->conn);
        rc->armed = 0;
    }
    return away_dialed(client, r == 0, clock_ns());
}

static int reconnect_bring_hosts(struct dl_client *client, const struct errand *errand)
{
    uint64_t ended;
    int r = hosts_send(client, errand->hosts, &ended);

    return away_brought_hosts(client, errand->loader, r, ended, clock_ns());
}

static int reconnect_bring_tables(struct dl_client *client, const struct errand *errand)
{
    struct dl_error err = {0};
    int r = sample_weights_bring(errand->epoch, &err);

    return r < 0 && !err.code ? r : away_brought_tables(client, errand->epoch, &err, clock_ns());
}

static int (*const reconnect_errands[])(struct dl_client *client, const struct errand *errand) = {
    [ERRAND_DIAL] = reconnect_connect,
    [ERRAND_HOSTS] = reconnect_bring_hosts,
    [ERRAND_TABLES] = reconnect_bring_tables,
};

/* On to the next answer that it waits for, since nothing else would wake it. */
int reconnect_turn(struct dl_client *client)
{
    struct errand errand;
    int r;

    do {
        r = away_turn(client, clock_ns(), &errand);
        if (errand.kind != ERRAND_NONE)
            r = reconnect_errands[errand.kind](client, &errand);
    } while (r > 0 && client_is_away(client) && client->reconnect.call.done);
    return r;
}

void reconnect_deinit(struct dl_client *client)
{
    struct reconnect *rc = &client->reconnect;

    close_fdp(&rc->watch);
    free(rc->path);
    free(rc->agent);
    client->hosts = hosts_free(client->hosts);
}

/* ---- for the user ---- */

void dl_client_set_reconnect(struct dl_client *client, uint64_t timeout_ns)
{
    client->reconnect.patience = timeout_ns;
}

/* epoll would not notice that another file has taken the number, so the user watches an epoll
 * descriptor of ours. If it cannot be made, at least the number stays the same. */
int dl_client_fd(struct dl_client *client)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct reconnect *rc = &client->reconnect;

    if (client->fd < 0 || rc->watch >= 0 || !client_may_reconnect(client))
        return rc->watch >= 0 ? rc->watch : client->fd;
    rc->watch = epoll_create1(EPOLL_CLOEXEC);
    if (rc->watch >= 0 && epoll_ctl(rc->watch, EPOLL_CTL_ADD, client->fd, &event) < 0)
        close_fdp(&rc->watch);
    return rc->watch >= 0 ? rc->watch : client->fd;
}
