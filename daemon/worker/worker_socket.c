#include "daemon/worker/worker_socket.h"

#include "proto/common/open_files.h"
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

int worker_socket_send(int sock, const struct dl_message *msg, int fd)
{
    _cleanup_(buffer_deinit) struct dl_buffer out = {0};
    int r = message_encode(msg, &out);

    for (size_t at = 0; r == 0 && at < out.len;) {
        ssize_t n = fdpass_send(sock, out.data + at, out.len - at, &fd, at == 0 && fd >= 0, 0);
        if (n < 0)
            r = (int)n;
        else
            at += (size_t)n;
    }
    return r;
}

int worker_socket_read(int sock, struct frame_reader *reader, const char *program,
                       worker_handle_fn *handle, void *owner)
{
    char remedy[OPEN_FILES_REMEDY_MAX];
    ssize_t n = fdpass_recv(sock, reader, MSG_DONTWAIT);

    if (n == -EAGAIN)
        return 0;
    if (n == -EMFILE)
        fprintf(stderr, "%s: a file descriptor was lost%s\n", program,
                open_files_remedy(EMFILE, remedy));
    if (n <= 0)
        return n == 0 || n == -ECONNRESET ? -EPIPE : (int)n;
    for (;;) {
        struct dl_span payload;
        struct dl_message msg;
        struct dl_error err = {0};
        int r = frame_reader_next(reader, &payload);

        if (r <= 0)
            return r;
        r = message_decode(payload.data, payload.len, TO_WORKER, &msg, &err);
        if (r == 0)
            r = handle(owner, &msg);
        if (r < 0) {
            if (r != -EPIPE)
                fprintf(stderr, "%s: %s\n", program, err.code ? err.message : strerror(-r));
            return r;
        }
    }
}
