/*
 * Datasets of the client's own on their way to the daemon: OBJECT, whose descriptor travels with
 * the first byte of its message.
 */
#include "client/internal.h"

#include "proto/fdpass.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

/* What came is taken in, so that neither side waits for the other. 0, or the latched error. */
static int make_way(struct dl_client *client, uint64_t deadline)
{
    int r = client_pump(client);

    if (r == 0)
        r = client_wait(client, deadline);
    else if (r > 0 && now_ns() >= deadline)
        r = -ETIMEDOUT;
    if (r == -ETIMEDOUT)
        return connection_fail(&client->conn, ETIMEDOUT, "",
                               "the daemon did not read an OBJECT within %.3g s",
                               (double)REQUEST_TIMEOUT / (double)NS_PER_S);
    return r < 0 ? r : 0;
}

/* All that was queued before is on its way. */
static int flush_all(struct dl_client *client, uint64_t deadline)
{
    int r;

    for (;;) {
        r = client_flush(client);
        if (r < 0 || connection_output(&client->conn).len == 0)
            return r;
        r = make_way(client, deadline);
        if (r < 0)
            return r;
    }
}

/* The first bytes of what is queued, with `fd`; the rest goes as all output does. */
static int send_with(struct dl_client *client, int fd, uint64_t deadline)
{
    for (;;) {
        struct dl_span out = connection_output(&client->conn);
        ssize_t n;
        int r = 0;

        if (out.len == 0) /* the daemon hung up: why, is in what can still be read */
            return connection_check(&client->conn);
        n = fdpass_send(client->fd, out.data, out.len, &fd, 1, MSG_DONTWAIT);
        if (n > 0) {
            connection_written(&client->conn, (size_t)n);
            return client_flush(client);
        }
        if (n == -EPIPE || n == -ECONNRESET)
            connection_hang_up(&client->conn);
        else if (n == -EAGAIN || n == 0)
            r = make_way(client, deadline);
        else
            r = connection_fail(&client->conn, (int)-n, "", "sending an object to the daemon: %s",
                                strerror((int)-n));
        if (r < 0)
            return r;
    }
}

int dl_client_attach(struct dl_client *client, int fd, uint64_t object)
{
    struct dl_message msg = {.number = DL_MSG_OBJECT};
    uint64_t deadline;
    int r = client_begin(client);

    if (r < 0)
        return r;
    if (client->fd < 0)
        return client_fail(client, ENOTSUP, "dataset.pickle",
                           "this client has no daemon to send an object to");
    if (object == 0)
        return client_fail(client, EINVAL, "dataset.pickle", "0 is no number of an object");
    if (fcntl(fd, F_GETFD) < 0)
        return client_fail(client, EBADF, "dataset.pickle", "%d is no open file descriptor", fd);
    deadline = deadline_after(REQUEST_TIMEOUT);
    client_queue_pending(client);
    r = flush_all(client, deadline);
    if (r < 0)
        return client_fatal(client);
    msg.object.object = object;
    client_send(client, &msg);
    r = send_with(client, fd, deadline);
    return r < 0 ? client_fatal(client) : 0;
}
