/* The socket of a client: all system calls that can wait, and the one blocking request. */
#include "client/internal.h"

#include "proto/fdpass.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

uint64_t deadline_after(uint64_t timeout_ns)
{
    return deadline_of(clock_ns(), timeout_ns);
}

/* How often the check is called: a handler may have run in another thread, without interrupting
 * this wait. */
#define INTERRUPT_PERIOD (NS_PER_S / 10)
static _Thread_local struct {
    int (*check)(void *data);
    void *data;
} io_interrupt;

void dl_set_interrupt(int (*check)(void *data), void *data)
{
    io_interrupt.check = check;
    io_interrupt.data = data;
}

static int io_wait_once(int fd, short events, uint64_t deadline)
{
    struct pollfd pfd = {.fd = fd, .events = events};

    for (;;) {
        struct timespec ts = {0};
        uint64_t now = 0;
        int n;

        if (deadline != DEADLINE_NONE) {
            now = clock_ns();
            if (now < deadline) {
                ts.tv_sec = (time_t)((deadline - now) / NS_PER_S);
                ts.tv_nsec = (long)((deadline - now) % NS_PER_S);
            }
        }
        n = ppoll(&pfd, 1, deadline == DEADLINE_NONE ? NULL : &ts, NULL);
        if (n > 0)
            return 0;
        if (n == 0 && now >= deadline)
            return -ETIMEDOUT;
        if (n < 0 && (errno != EINTR || io_interrupt.check))
            return -errno;
    }
}

int wait_fd(int fd, short events, uint64_t deadline)
{
    if (!io_interrupt.check)
        return io_wait_once(fd, events, deadline);
    for (;;) {
        uint64_t slice = deadline_after(INTERRUPT_PERIOD);
        int r = io_wait_once(fd, events, min_u64(slice, deadline));

        if (r != -ETIMEDOUT && r != -EINTR)
            return r;
        if (io_interrupt.check(io_interrupt.data))
            return -EINTR;
        if (r == -ETIMEDOUT && slice >= deadline)
            return r;
    }
}

int client_flush(struct dl_client *client)
{
    if (client->reconnect.away == AWAY_CONNECTING) /* no socket yet, so nothing to write */
        return connection_check(&client->conn);
    for (;;) {
        int fd;
        struct dl_span out = connection_output(&client->conn, &fd);
        ssize_t n;

        if (out.len == 0)
            return connection_check(&client->conn);
        n = fdpass_send(client->fd, out.data, out.len, &fd, fd >= 0, MSG_DONTWAIT);
        if (n > 0)
            connection_written(&client->conn, (size_t)n);
        else if (n == -EAGAIN || n == 0)
            return 0;
        else if (n == -EPIPE || n == -ECONNRESET) /* why is in what can still be read */
            connection_hang_up(&client->conn);
        else
            return connection_fail(&client->conn, (int)-n, "", "%s the daemon: %s",
                                   fd >= 0 ? "passing a file descriptor to" : "writing to",
                                   strerror((int)-n));
    }
}

void epoch_flush_if_due(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;
    int r;

    if (feed_may_wait(epoch))
        return;
    epoch->n_feeds = 0;
    if (epoch->count == 0 ||
        epoch->n_releases + epoch->n_pins + epoch->n_former_returned >= epoch->flush_at)
        epoch_queue_pending(epoch);
    if (connection_unsent(&client->conn) > 0) {
        r = client_flush(client); /* a failure is latched for the next call */
        (void)r;
    }
}

static int io_receive(struct dl_client *client)
{
    ssize_t n = fdpass_recv(client->fd, &client->conn.in, MSG_DONTWAIT);

    if (n > 0)
        return 1;
    if (n == -EAGAIN)
        return 0;
    if (n == 0 || n == -ECONNRESET || n == -EPIPE)
        return client_lost(client, NULL, clock_ns());
    if (n == -EMFILE)
        return connection_fail(&client->conn, EMFILE, "",
                               "a segment's file descriptor was lost: this process can have no "
                               "more, or the daemon sent too many");
    return connection_fail(&client->conn, (int)-n, "", "reading from the daemon: %s",
                           strerror((int)-n));
}

static int io_pump(struct dl_client *client)
{
    struct dl_message msg;
    int fd = -1;
    int r = connection_check(&client->conn);

    if (r < 0)
        return r;
    if (client_is_away(client) && (r = reconnect_turn(client)) != 0)
        return r;
    if (client->reconnect.away == AWAY_CONNECTING)
        return 0;
    r = io_receive(client);
    if (r <= 0)
        return r;
    while ((r = connection_next(&client->conn, &msg, &fd)) > 0) {
        r = client_dispatch(client, &msg, fd, clock_ns());
        if (r < 0)
            return r;
    }
    /* An answer may belong to the client's way back: it must then send the next request now, since
     * the socket would not become readable again by itself. */
    if (r == 0 && client_is_away(client))
        r = reconnect_turn(client);
    return r < 0 ? r : 1;
}

int client_pump(struct dl_client *client)
{
    int r = io_pump(client);

    return r >= 0 && reconnect_arm(client) < 0 ? connection_check(&client->conn) : r;
}

int client_wait(struct dl_client *client, uint64_t deadline)
{
    uint64_t wake = client_is_away(client) ? away_wake(client) : DEADLINE_NONE;
    short events = POLLIN;
    int r;

    if (connection_unsent(&client->conn) > 0)
        events |= POLLOUT;
    r = wait_fd(client->fd, events, min_u64(deadline, wake));
    if (r == -ETIMEDOUT && wake < deadline)
        return 0;
    if (r == -EINTR)
        return connection_fail(&client->conn, EINTR, "",
                               "interrupted while waiting for the daemon's answer: the session "
                               "is over; connect again");
    if (r < 0 && r != -ETIMEDOUT)
        return connection_fail(&client->conn, -r, "", "waiting for the daemon: %s", strerror(-r));
    return r;
}

/* What came is taken in meanwhile, so that neither side waits for the other. */
int client_flush_all(struct dl_client *client, uint64_t deadline)
{
    int r;

    while ((r = client_flush(client)) == 0 && connection_unsent(&client->conn) > 0) {
        r = client_pump(client);
        if (r == 0)
            r = client_wait(client, deadline);
        else if (r > 0 && clock_ns() >= deadline)
            r = -ETIMEDOUT;
        if (r == -ETIMEDOUT)
            return connection_fail(
                &client->conn, ETIMEDOUT, "",
                "the daemon did not read a message with a file descriptor within %g s",
                (double)REQUEST_TIMEOUT / (double)NS_PER_S);
        if (r < 0)
            return r;
    }
    return r;
}

int reconnect_await(struct dl_client *client, uint64_t deadline)
{
    while (client_is_away(client)) {
        int r = client_flush(client);

        if (r == 0)
            r = client_pump(client);
        if (r == 0 && client_is_away(client))
            r = client_wait(client, deadline);
        if (r < 0)
            return r;
    }
    return connection_check(&client->conn);
}

enum { ANSWER_LOST = 1 };

/* 0, ANSWER_LOST: the daemon ended before it answered, or the latched error. */
static int io_await_answer(struct dl_client *client, uint64_t timeout_ns)
{
    uint64_t deadline = deadline_after(timeout_ns);

    while (!client->call.done) {
        int r = client_flush(client);

        if (r == 0)
            r = client_pump(client);
        if (client->call.done) /* messages behind the answer are for the next call */
            return 0;
        if (r >= 0 && client_is_away(client))
            return ANSWER_LOST;
        if (r == 0)
            r = client_wait(client, deadline);
        else if (r > 0 && clock_ns() >= deadline)
            r = -ETIMEDOUT;
        if (r == -ETIMEDOUT)
            return connection_fail(&client->conn, ETIMEDOUT, "",
                                   "the daemon did not answer within %g s (expected: %s)",
                                   (double)timeout_ns / (double)NS_PER_S,
                                   message_name(client->call.answer));
        if (r < 0)
            return r;
    }
    return 0;
}

/* The request, or the same to another daemon: 0, ANSWER_LOST, or a negative errno: latched, or else
 * it cannot be sent. */
static int io_ask_once(struct dl_client *client, const struct dl_message *msg, uint64_t timeout_ns)
{
    struct dl_message again = *msg;
    int r = client_is_away(client) ? reconnect_await(client, DEADLINE_NONE) : 0;

    if (r < 0)
        return r;
    client->call.done = false;
    client->call.refused.code = 0;
    if (msg->number == DL_MSG_START) /* another daemon has another number for it */
        again.start.loader = client->call.epoch->loader->id;
    client_queue_pending(client);
    if (msg->number == DL_MSG_START) {
        struct dl_error err = {0};

        r = sample_weights_bring(client->call.epoch, &err);
        client->call.refused = err;
        if (r < 0 && err.code)
            return 0; /* as if it were refused */
        if (r < 0)
            return r;
        client_send_place(client->call.epoch);
        weights_send(client->call.epoch->loader);
    }
    r = connection_send(&client->conn, &again);
    return r < 0 ? r : io_await_answer(client, timeout_ns);
}

/* The daemon shuts down and another will replace it: retry after a while. False if that takes too
 * long. */
static bool io_wait_for_another(struct dl_client *client, uint64_t deadline)
{
    uint64_t again = deadline_after(NS_PER_S / 20);
    int r = 0;

    if (client->call.refused.code != ESHUTDOWN || !client_may_reconnect(client) ||
        clock_ns() >= deadline)
        return false;
    while (r >= 0 && !client_is_away(client)) {
        r = client_flush(client);
        if (r == 0)
            r = client_pump(client);
        if (r == 0 && !client_is_away(client))
            r = client_wait(client, again);
        if (clock_ns() >= again)
            break;
    }
    return connection_check(&client->conn) == 0;
}

int client_call(struct dl_client *client, const struct dl_message *msg, uint64_t timeout_ns)
{
    uint64_t deadline = deadline_after(client->reconnect.patience);
    int r;

    if (client->call_timeout > 0)
        timeout_ns = client->call_timeout;
    do {
        r = io_ask_once(client, msg, timeout_ns);
    } while ((r == ANSWER_LOST && msg->number != DL_MSG_CONTROL && msg->number != DL_MSG_MIX &&
              msg->number != DL_MSG_WEIGHTS) ||
             (r == 0 && io_wait_for_another(client, deadline)));
    client->call.answer = 0;
    if (r < 0 && connection_check(&client->conn) == 0)
        return client_fail(client, EINVAL, "", "%s cannot be sent: %s", message_name(msg->number),
                           r == -EMSGSIZE ? "it is too long" : "a text is not UTF-8");
    if (r == ANSWER_LOST)
        return client_fail(client, ECONNRESET, "",
                           "the daemon ended before it answered; it may or may not have carried "
                           "out the request");
    if (r < 0)
        return client_fatal(client);
    if (client->call.refused.code)
        return client_fail_with(client, &client->call.refused);
    return 0;
}
