/* Framing, numbering and the latch of a session: connection.h. */
#include "client/core/connection.h"

#include "proto/common/array.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

static void connection_drop_output(struct connection *conn)
{
    while (conn->n_fds > 0)
        close_fdp(&conn->fds[--conn->n_fds].fd);
    conn->sent = conn->out.len = 0;
}

void connection_abandon(struct connection *conn)
{
    for (int fd; (fd = frame_reader_take_fd(&conn->in)) >= 0;)
        close(fd); /* of a message that is on its way */
    connection_drop_output(conn);
}

void connection_deinit(struct connection *conn)
{
    frame_reader_deinit(&conn->in);
    connection_drop_output(conn);
    buffer_deinit(&conn->out);
    free(conn->fds);
}

int connection_fail(struct connection *conn, int code, const char *path, const char *fmt, ...)
{
    char text[DL_ERROR_MESSAGE_MAX];
    va_list args;

    if (conn->fatal.code == 0) {
        va_start(args, fmt);
        vsnprintf(text, sizeof text, fmt, args);
        va_end(args);
        dl_error_set(&conn->fatal, code, path, "%s", text);
    }
    return connection_check(conn);
}

uint64_t connection_request(struct connection *conn)
{
    return ++conn->last_request;
}

/* What a daemon of before version 4 does well without. */
static void connection_leave_out(struct dl_message *msg)
{
    if (msg->number == DL_MSG_START) {
        msg->start.mark_window = msg->start.mark_rows = 0; /* only saves time */
        msg->start.passed = (struct dl_span){0}; /* they come once more, and go back unseen */
    }
    if (msg->number == DL_MSG_OPEN)
        msg->open.automatic = 0; /* as many workers as it has by default */
}

int connection_send(struct connection *conn, const struct dl_message *msg)
{
    int r = connection_check(conn);

    if (r < 0 || conn->hung_up)
        return r;
    if (conn->out.len - conn->sent > CONNECTION_OUTPUT_MAX)
        return connection_fail(conn, EPROTO, "",
                               "the daemon has stopped reading; %zu bytes are "
                               "unsent",
                               conn->out.len - conn->sent);
    struct dl_message sent = *msg;
    sent.version = conn->version;
    if (sent.version && sent.version < 4)
        connection_leave_out(&sent);
    r = message_encode(&sent, &conn->out);
    if (r == -ENOMEM)
        return connection_fail(conn, -r, "", "no memory for a message to the daemon");
    return r;
}

int connection_send_fd(struct connection *conn, const struct dl_message *msg, int fd)
{
    _cleanup_fd_ int owned = fd;
    size_t at = conn->out.len;

    if (!array_reserve(conn->fds, conn->cap_fds, conn->n_fds + UINT64_C(1)))
        return connection_fail(conn, ENOMEM, "", "no memory for a message to the daemon");
    int r = connection_send(conn, msg);
    if (r == 0 && !conn->hung_up)
        conn->fds[conn->n_fds++] = (struct sent_fd){at, steal_fd(&owned)};
    assert(conn->n_fds <= conn->cap_fds);
    return r;
}

size_t connection_unsent(const struct connection *conn)
{
    return conn->fatal.code ? 0 : conn->out.len - conn->sent;
}

struct dl_span connection_output(const struct connection *conn, int *ret_fd)
{
    bool with_fd = conn->n_fds > 0 && conn->fds[0].at == conn->sent;
    size_t end = conn->n_fds > with_fd ? conn->fds[with_fd].at : conn->out.len;

    *ret_fd = with_fd ? conn->fds[0].fd : -1;
    if (connection_unsent(conn) == 0)
        return (struct dl_span){0};
    return (struct dl_span){conn->out.data + conn->sent, end - conn->sent};
}

void connection_written(struct connection *conn, size_t len)
{
    if (len > 0 && conn->n_fds > 0 && conn->fds[0].at == conn->sent) {
        close_fdp(&conn->fds[0].fd);
        memmove(&conn->fds[0], &conn->fds[1], --conn->n_fds * sizeof conn->fds[0]);
    }
    conn->sent += len;
    assert(conn->sent <= conn->out.len);
    if (conn->sent == conn->out.len)
        conn->sent = conn->out.len = 0;
}

void connection_hang_up(struct connection *conn)
{
    conn->hung_up = true;
    connection_drop_output(conn);
}

int connection_next(struct connection *conn, struct dl_message *ret, int *ret_fd)
{
    struct dl_error err = {0};
    struct dl_span payload;
    int r = connection_check(conn);

    if (r < 0)
        return r;
    r = frame_reader_next(&conn->in, &payload);
    if (r < 0)
        return connection_fail(conn, EPROTO, "",
                               "the daemon announced a message that is empty or longer than %llu "
                               "bytes",
                               (ull)DL_MAX_FRAME_BYTES);
    if (r == 0) {
        /* Descriptors arrive with the first byte of their message or before it. */
        if (conn->in.begin == conn->in.end && conn->in.fd_count > 0)
            return connection_fail(conn, EPROTO, "", "%u file descriptors came with no message",
                                   conn->in.fd_count);
        return 0;
    }
    r = message_decode(payload.data, payload.len, FROM_DAEMON, ret, &err);
    if (r == -ENOMEM)
        return connection_fail(conn, ENOMEM, "", "no memory to decode a message");
    if (r < 0)
        return connection_fail(conn, EPROTO, err.path, "%s", err.message);
    *ret_fd = message_fds(ret->number) > 0 ? frame_reader_take_fd(&conn->in) : -1;
    if (message_fds(ret->number) > 0 && *ret_fd < 0)
        return connection_fail(conn, EPROTO, "", "%s came without its file descriptor",
                               message_name(ret->number));
    return 1;
}

int connection_end(struct connection *conn)
{
    if (conn->in.begin != conn->in.end)
        return connection_fail(conn, ECONNRESET, "",
                               "the daemon closed the connection in the middle of a message");
    return connection_fail(conn, ECONNRESET, "", "the daemon closed the session");
}

void connection_restart(struct connection *conn)
{
    uint64_t last_request = conn->last_request;

    connection_deinit(conn);
    *conn = (struct connection){.last_request = last_request};
    assert(connection_unsent(conn) == 0);
}
