/*
 * Datasets of the client's own on their way to the daemon: OBJECT, whose descriptor travels with
 * the first byte of its message.
 */
#include "client/internal.h"

#include "proto/fdpass.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

/* What came is taken in, so that neither side waits for the other. 0, or the latched error. */
static int make_way(struct dl_client *client, uint64_t deadline)
{
    int r = client_pump(client);

    if (r == 0)
        r = client_wait(client, deadline);
    else if (r > 0 && clock_ns() >= deadline)
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

        if (out.len == 0) /* the daemon hung up, or another one gets it: its end is read later */
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

/* ---- for the next daemon ---- */

enum { OBJECTS_MAX = 16 }; /* as many as a daemon keeps that no loader has taken */

struct object *objects_free(struct object *list)
{
    while (list) {
        struct object *next = list->next;

        close_fdp(&list->fd);
        free(list);
        list = next;
    }
    return NULL;
}

/* The newest first. */
static int keep(struct dl_client *client, int fd, uint64_t number)
{
    struct object *object = calloc(1, sizeof *object), *last = client->objects;

    if (!object)
        return client_fail(client, ENOMEM, "dataset.pickle", "no memory to keep it");
    object->number = number;
    object->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (object->fd < 0) {
        free(object);
        return client_fail(client, errno, "dataset.pickle", "its descriptor cannot be kept: %s",
                           strerror(errno));
    }
    object->next = client->objects;
    client->objects = object;
    for (int i = 1; i < OBJECTS_MAX - 1 && last; i++)
        last = last->next;
    if (last)
        last->next = objects_free(last->next);
    return 0;
}

/* Whether "pickle" is followed by the number somewhere in the text. What merely looks like it does
 * no harm: the object goes with another loader. */
static bool names(const char *text, size_t len, uint64_t number)
{
    static const char key[] = "pickle";

    for (const char *at = text; (at = memmem(at, len - (size_t)(at - text), key, strlen(key)));) {
        uint64_t found = 0;

        at += strlen(key);
        while (at < text + len && !isalnum((unsigned char)*at))
            at++;
        for (; at < text + len && isdigit((unsigned char)*at); at++)
            found = found * 10 + (uint64_t)(*at - '0');
        if (found == number)
            return true;
    }
    return false;
}

void objects_take(struct dl_loader *loader, const char *spec, size_t len)
{
    struct object **link = &loader->client->objects;

    while (*link) {
        struct object *object = *link;

        if (!names(spec, len, object->number)) {
            link = &object->next;
            continue;
        }
        *link = object->next;
        object->next = loader->objects;
        loader->objects = object;
    }
}

int object_send(struct dl_client *client, const struct object *object)
{
    struct dl_message msg = {.number = DL_MSG_OBJECT};
    struct dl_span out;
    ssize_t n;

    msg.object.object = object->number;
    client_send(client, &msg);
    out = connection_output(&client->conn);
    n = fdpass_send(client->fd, out.data, out.len, &object->fd, 1, MSG_DONTWAIT);
    if (n < 0 || (size_t)n != out.len)
        return n < 0 ? (int)n : -EAGAIN;
    connection_written(&client->conn, (size_t)n);
    return 0;
}

/* ---- now ---- */

/* A client that can lose its daemon keeps the object. 1: it was sent already, to a new daemon. */
static int prepare(struct dl_client *client, int fd, uint64_t object, uint64_t deadline)
{
    int r = client_may_reconnect(client) ? keep(client, fd, object) : 0;

    if (r < 0)
        return r;
    client_queue_pending(client);
    r = flush_all(client, deadline);
    if (r == 0 && client_is_away(client)) {
        r = reconnect_await(client, DEADLINE_NONE);
        return r < 0 ? client_fatal(client) : 1;
    }
    return r < 0 ? client_fatal(client) : 0;
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
    r = prepare(client, fd, object, deadline);
    if (r != 0)
        return r < 0 ? r : 0;
    msg.object.object = object;
    client_send(client, &msg);
    r = send_with(client, fd, deadline);
    return r < 0 ? client_fatal(client) : 0;
}
