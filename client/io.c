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

int wait_fd(int fd, short events, uint64_t deadline)
{
    struct pollfd pfd = {.fd = fd, .events = events};

    for (;;) {
        bool forever = deadline == DEADLINE_NONE && !io_interrupt.check;
        uint64_t now = forever ? 0 : clock_ns(), left = deadline > now ? deadline - now : 0;
        struct timespec ts;
        int n;

        if (io_interrupt.check && left > INTERRUPT_PERIOD)
            left = INTERRUPT_PERIOD;
        ts = (struct timespec){(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
        n = ppoll(&pfd, 1, forever ? NULL : &ts, NULL);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (io_interrupt.check && io_interrupt.check(io_interrupt.data))
            return -EINTR;
        if (n == 0 && now >= deadline)
            return -ETIMEDOUT;
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

    if (epoch->feed.on && feed_may_wait(epoch))
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

/* 1: also for the end of the session, after which the client is away. */
static int io_receive(struct dl_client *client)
{
    ssize_t n = fdpass_recv(client->fd, &client->conn.in, MSG_DONTWAIT);

    if (n > 0)
        return 1;
    if (n == -EAGAIN)
        return 0;
    if (n == 0 || n == -ECONNRESET || n == -EPIPE)
        return client_lost(client, NULL, clock_ns()) < 0 ? connection_check(&client->conn) : 1;
    if (n == -EMFILE)
        return connection_fail(&client->conn, EMFILE, "",
                               "a segment's file descriptor was lost: this process can have no "
                               "more, or the daemon sent too many");
    return connection_fail(&client->conn, (int)-n, "", "reading from the daemon: %s",
                           strerror((int)-n));
}

/* One turn of the way back. While there is no socket, a timer stands in its place. */
static int io_go_back(struct dl_client *client)
{
    int r = reconnect_turn(client);

    if (r >= 0 && client->reconnect.away == AWAY_CONNECTING && reconnect_arm(client) < 0)
        return connection_check(&client->conn);
    return r;
}

int client_pump(struct dl_client *client)
{
    struct received in;
    int r = connection_check(&client->conn);

    if (r < 0)
        return r;
    if (client_is_away(client) &&
        ((r = io_go_back(client)) != 0 || client->reconnect.away == AWAY_CONNECTING))
        return r;
    r = io_receive(client);
    if (r <= 0)
        return r;
    in.now = clock_ns();
    while ((r = connection_next(&client->conn, &in.msg, &in.fd)) > 0)
        if ((r = client_dispatch(client, &in)) < 0)
            return r;
    /* An answer may belong to the client's way back: it must then send the next request now, since
     * the socket would not become readable again by itself. */
    if (r == 0 && client_is_away(client))
        r = io_go_back(client);
    return r < 0 ? r : 1;
}

int client_exchange(struct dl_client *client)
{
    int r = client_flush(client);

    return r < 0 ? r : client_pump(client);
}

int client_wait(struct dl_client *client, uint64_t deadline)
{
    uint64_t wake = client_is_away(client) ? away_wake(client) : DEADLINE_NONE;
    short output = connection_unsent(&client->conn) > 0 ? POLLOUT : 0;
    int r = wait_fd(client->fd, (short)(POLLIN | output), min_u64(deadline, wake));

    if (r == -ETIMEDOUT)
        return wake < deadline ? 0 : CLIENT_LATE;
    if (r == -EINTR)
        return connection_fail(&client->conn, EINTR, "",
                               "interrupted while waiting for the daemon's answer: the session "
                               "is over; connect again");
    if (r < 0)
        return connection_fail(&client->conn, -r, "", "waiting for the daemon: %s", strerror(-r));
    return 0;
}

int client_turn(struct dl_client *client, uint64_t deadline)
{
    int r = client_exchange(client);

    if (r == 0)
        return client_wait(client, deadline);
    return r > 0 && deadline != DEADLINE_NONE && clock_ns() >= deadline ? CLIENT_LATE : r;
}

int client_be_there(struct dl_client *client)
{
    while (client_is_away(client))
        if (client_turn(client, DEADLINE_NONE) < 0)
            break;
    return connection_check(&client->conn);
}

enum { ANSWER_LOST = 1 };

/* 0, ANSWER_LOST: the daemon ended before it answered, or the latched error. */
static int io_await_answer(struct dl_client *client, uint64_t timeout_ns)
{
    uint64_t deadline = deadline_after(timeout_ns);

    while (!client->call.done) {
        int r = client_turn(client, deadline);

        if (client->call.done) {      /* messages behind the answer are for the next call */
            r = client_flush(client); /* those before may have been batches of ended streams */
            (void)r;                  /* a failure is latched for the next call */
            return 0;
        }
        if (r < 0)
            return r;
        if (client_is_away(client))
            return ANSWER_LOST;
        if (r == CLIENT_LATE)
            return connection_fail(&client->conn, ETIMEDOUT, "",
                                   "the daemon did not answer within %g s (expected: %s)",
                                   (double)timeout_ns / (double)NS_PER_S,
                                   message_name(client->call.answer));
    }
    return 0;
}

/* START, which goes behind tables of weights; its loader has another number at another daemon. As
 * connection_send(); without a table it is as if the daemon refused it. */
static int io_send_start(struct dl_client *client, struct dl_message start)
{
    struct dl_epoch *epoch = client->call.epoch;
    int r = sample_weights_bring(epoch, &client->call.refused);

    client->call.done = client->call.refused.code != 0;
    start.start.loader = epoch->loader->id;
    if (r == 0)
        r = epoch_queue_start(epoch, &start);
    return client->call.done ? 0 : r;
}

/* The request, or the same to another daemon: 0, ANSWER_LOST, or a negative errno: latched, or else
 * it cannot be sent. */
static int io_ask_once(struct dl_client *client, const struct dl_message *msg, uint64_t timeout_ns)
{
    int r = client_be_there(client);

    if (r < 0)
        return r;
    client->call.done = false;
    client->call.refused = (struct dl_error){0};
    client_queue_pending(client);
    r = msg->number == DL_MSG_START ? io_send_start(client, *msg)
                                    : connection_send(&client->conn, msg);
    return r < 0 ? r : io_await_answer(client, timeout_ns);
}

/* The daemon shuts down and another will replace it: retry after a while. False if that takes too
 * long. */
static bool io_wait_for_another(struct dl_client *client, uint64_t deadline)
{
    uint64_t again = deadline_after(NS_PER_S / 20);

    if (client->call.refused.code != ESHUTDOWN || !client_may_reconnect(client) ||
        clock_ns() >= deadline)
        return false;
    while (!client_is_away(client)) {
        int r = client_turn(client, again);

        if (r < 0 || r == CLIENT_LATE)
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
