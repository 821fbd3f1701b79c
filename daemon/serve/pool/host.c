/* What a host says and is told: host.h, host_private.h. */
#include "daemon/serve/pool/host_private.h"

#include "daemon/serve/base/memory.h"
#include "proto/fdpass.h"

#include <errno.h>
#include <sys/socket.h>

#include <utlist.h>

enum { OUTGOING_LIMIT = 1 << 20 }; /* bytes; a host that lets so much wait is broken */

/* ---- what it is told ------------------------------------------------------------------------ */

/* One that has not said which protocol it speaks is told nothing yet. */
static void flush(struct host *h)
{
    if (h->state != HOST_READY)
        return;
    /* A failure means that it is dying; its exit will be reported. */
    (void)!outbox_flush(&h->out, h->sock);
    uv_poll_start(&h->socket_poll, UV_READABLE | (outbox_pending(&h->out) ? UV_WRITABLE : 0),
                  host_on_socket);
}

void host_on_socket(uv_poll_t *poll, int status, int events)
{
    struct host *h = poll->data;

    if (status < 0)
        events = UV_READABLE;
    if (events & UV_WRITABLE)
        flush(h);
    if (events & UV_READABLE)
        host_read(h);
}

static void send_message(struct host *h, const struct dl_message *msg, const int *fds,
                         uint32_t n_fds)
{
    if (h->state == HOST_ENDING || h->state == HOST_DEAD)
        return;
    int r = outbox_append(&h->out, msg, fds, n_fds);
    if (r < 0 || outbox_pending(&h->out) > OUTGOING_LIMIT) {
        host_fail(h, "it cannot be told what to do");
        return;
    }
    flush(h);
}

/* ---- what it says --------------------------------------------------------------------------- */

static struct host_child *find_child(const struct host *h, uint64_t number)
{
    struct host_child *child;

    DL_FOREACH (h->children, child) {
        if (child->number == number)
            return child;
    }
    return NULL;
}

static void handle_started(struct host *h, struct host_child *child, uint64_t pid)
{
    struct host_end never = {.cause = "its Python host could not start it"};

    child->started = true;
    if (pid == 0)
        host_drop_child(h, child, &never);
    else if (child->events)
        child->events->started(child->owner, (int)pid);
}

static void handle_message(struct host *h, const struct dl_message *msg)
{
    bool hosting = msg->number == DL_MSG_W_HOSTING;
    char name[HOST_NAMED_MAX];
    uint64_t number = msg->number == DL_MSG_W_STARTED ? msg->w_started.child : msg->w_exited.child;

    if (hosting && h->state == HOST_STARTING && msg->w_hosting.version == DL_PROTOCOL_VERSION) {
        h->state = HOST_READY;
        h->hosted = true;
        log_info("%s hosts workers", host_name(h, name));
        flush(h);
    } else if (hosting && h->state == HOST_STARTING) {
        host_fail(h,
                  "it speaks version %llu of the protocol, not %d; install the same release "
                  "of dloader and dloaderd",
                  (unsigned long long)msg->w_hosting.version, DL_PROTOCOL_VERSION);
    } else if (h->state != HOST_READY ||
               (msg->number != DL_MSG_W_STARTED && msg->number != DL_MSG_W_EXITED)) {
        host_fail(h, "it says %s out of turn", message_name(msg->number));
    } else if (number >= h->next_child) {
        host_fail(h, "it speaks of a worker %llu that nobody asked for",
                  (unsigned long long)number);
    } else {
        /* One that is not there any more has been heard of before. */
        struct host_child *child = find_child(h, number);
        if (child && msg->number == DL_MSG_W_STARTED)
            handle_started(h, child, msg->w_started.pid);
        else if (child)
            host_drop_child(h, child,
                            &(struct host_end){.status = (int)msg->w_exited.status,
                                               .signal = (int)msg->w_exited.signal});
        if (h->wait == WAIT_STARTED || h->wait == WAIT_REAPED)
            h->wait = WAIT_NONE; /* it does what it is told: time begins anew */
    }
    host_rearm(h);
}

void host_read(struct host *h)
{
    ssize_t n = fdpass_recv(h->sock, &h->reader, MSG_DONTWAIT);

    if (n == -EAGAIN)
        return;
    if (n == 0 || n == -ECONNRESET)
        host_await_end(h);
    else if (n < 0)
        host_fail(h, "its socket cannot be read: %s", strerror((int)-n));
    else if (h->reader.fd_count > 0)
        host_fail(h, "it sends file descriptors");
    while (h->state == HOST_STARTING || h->state == HOST_READY) {
        struct dl_span payload;
        struct dl_message msg;
        struct dl_error err = {0};
        int r = frame_reader_next(&h->reader, &payload);

        if (r == 0)
            return;
        if (r > 0)
            r = message_decode(payload.data, payload.len, FROM_WORKER, &msg, &err);
        if (r < 0)
            host_fail(h, "what it says is no message: %s", err.code ? err.message : strerror(-r));
        else
            handle_message(h, &msg);
    }
}

/* ---- its workers ---------------------------------------------------------------------------- */

int host_start_child(struct hosts *hosts, const struct host_child_options *o,
                     struct host_child **ret, struct dl_error *err)
{
    struct host *h = o->host;
    char name[HOST_NAMED_MAX];

    if (h && host_is_gone(h))
        return dl_error_set(err, ESRCH, "dataset.host", "%s %s", host_name(h, name),
                            *h->why ? h->why : "has ended");
    int r = h ? 0 : host_find_own(hosts, o->interpreter, &h, err);
    if (r < 0)
        return r;
    struct host_child *child = must_alloc(sizeof *child);
    *child = (struct host_child){
        .host = h, .number = h->next_child++, .events = o->events, .owner = o->owner};
    DL_APPEND(h->children, child);
    send_message(h,
                 &(struct dl_message){.number = DL_MSG_W_FORK, .w_fork = {.child = child->number}},
                 (int[]){o->sock, o->errors}, 2);
    host_rearm(h);
    *ret = child;
    return 0;
}

void host_kill_child(struct host_child *child)
{
    struct host *h = child->host;

    if (!h || child->killed)
        return;
    child->killed = true;
    send_message(h,
                 &(struct dl_message){.number = DL_MSG_W_KILL, .w_kill = {.child = child->number}},
                 NULL, 0);
    host_rearm(h);
}

struct host_child *host_child_free(struct host_child *child)
{
    if (!child)
        return NULL;
    child->events = NULL;
    host_kill_child(child);
    return NULL;
}
