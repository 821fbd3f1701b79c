/*
 * A program's Python host, brought to the daemon.
 */
#include "client/internal.h"

#include <errno.h>
#include <fcntl.h>

/* A client that can lose its daemon keeps the host. Returns 1 if a daemon that took over meanwhile
 * already has it. */
static int bring_host_prepare(struct dl_client *client, int channel, uint64_t number)
{
    int r = client_may_reconnect(client) ? hosts_keep(client, channel, number) : 0;

    if (r < 0)
        return r;
    client_queue_pending(client);
    r = reconnect_await(client, DEADLINE_NONE);
    if (r < 0)
        return client_fatal(client);
    const struct brought_host *host = *hosts_find(client, number);
    return host && host->has_it == client->incarnation;
}

int dl_client_bring_host(struct dl_client *client, int channel, uint64_t number)
{
    struct dl_message msg = {.number = DL_MSG_HOST, .host = {.host = number}};
    _cleanup_fd_ int sock = -1;
    int r = client_begin(client);

    if (r < 0)
        return r;
    if (client->fd < 0)
        return client_fail(client, ENOTSUP, "dataset.host",
                           "this client has no daemon to bring a host to");
    if (number == 0)
        return client_fail(client, EINVAL, "dataset.host",
                           "0 is not a host's number; use 1 or "
                           "more");
    if (fcntl(channel, F_GETFD) < 0)
        return client_fail(client, EBADF, "dataset.host", "%d is not an open file descriptor",
                           channel);
    r = bring_host_prepare(client, channel, number);
    if (r != 0)
        return r < 0 ? r : 0;
    if ((r = hosts_connect(channel, &sock)) < 0) {
        hosts_forget(client, number);
        return client_fail(client, -r, "dataset.host",
                           "the host cannot be reached by its channel: %s", strerror(-r));
    }
    r = connection_send_fd(&client->conn, &msg, steal_fd(&sock));
    if (r == 0)
        r = client_flush_all(client, deadline_after(REQUEST_TIMEOUT));
    return r < 0 ? client_fatal(client) : 0;
}
