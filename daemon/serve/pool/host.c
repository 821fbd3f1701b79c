/* What a host says and gets: host.h, host_private.h. */
#include "daemon/serve/pool/host_private.h"

#include "daemon/base/memory.h"
#include "proto/common/open_files.h"

#include <errno.h>
#include <sys/socket.h>

#include <utlist.h>

/* ---- messages to it ------------------------------------------------------------------------- */

/* One that has not said which protocol it speaks gets no message yet. A socket that fails is
 * that of one that is dying; its exit will be reported. */
static void host_flush(struct host *h)
{
    bool full = h->state == HOST_READY ? peer_flush(&h->peer) == -ENOBUFS
                                       : peer_pending(&h->peer) > h->peer.o.limit;

    if (full)
        host_fail(h, "it does not accept messages");
}

static void host_say_unsent(struct host *h, int r)
{
    char remedy[OPEN_FILES_REMEDY_MAX];

    host_fail(h, "%s%s",
              r == -EMFILE ? "too many open files for a message to it"
                           : "it does not accept messages",
              open_files_remedy(-r, remedy));
}

static void host_send_message(struct host *h, const struct dl_message *msg, const int *fds,
                              uint32_t n_fds)
{
    if (h->state == HOST_ENDING || h->state == HOST_DEAD)
        return;
    int r = peer_queue(&h->peer, msg, fds, n_fds);
    if (r < 0)
        host_say_unsent(h, r);
    else
        host_flush(h);
}

/* ---- what it says --------------------------------------------------------------------------- */

static struct host_child *host_find_child(const struct host *h, uint64_t number)
{
    struct host_child *child;

    DL_FOREACH (h->children, child) {
        if (child->number == number)
            return child;
    }
    return NULL;
}

static void host_handle_started(struct host *h, struct host_child *child, uint64_t pid)
{
    struct host_end never = {
        .cause = "its Python host could not start it, and told its standard error why"};

    child->started = true;
    if (pid == 0)
        host_drop_child(h, child, &never);
    else if (child->events)
        child->events->started(child->owner, (int)pid);
}

static void host_on_message(void *owner, const struct dl_message *msg, struct dl_span payload)
{
    struct host *h = owner;
    const struct log_fields fields = host_log_fields(h);
    bool hosting = msg->number == DL_MSG_W_HOSTING;
    char name[HOST_NAMED_MAX];
    uint64_t number = msg->number == DL_MSG_W_STARTED ? msg->w_started.child : msg->w_exited.child;

    (void)payload;
    if (hosting && h->state == HOST_STARTING && msg->w_hosting.version == DL_WORKER_VERSION) {
        h->state = HOST_READY;
        h->hosted = true;
        log_about(LOG_INFO, &fields, "%s hosts workers", host_name(h, name));
        host_flush(h);
    } else if (hosting && h->state == HOST_STARTING) {
        host_fail(
            h,
            "it has version %llu of the protocol of workers, this daemon %d; install the same "
            "release of the package and the daemon",
            (ull)msg->w_hosting.version, DL_WORKER_VERSION);
    } else if (h->state != HOST_READY ||
               (msg->number != DL_MSG_W_STARTED && msg->number != DL_MSG_W_EXITED)) {
        host_fail(h, "it sent an unexpected %s", message_name(msg->number));
    } else if (number >= h->next_child) {
        host_fail(h, "it names a worker %llu that was not requested", (ull)number);
    } else {
        /* One that is not there any more has been heard of before. */
        struct host_child *child = host_find_child(h, number);
        if (child && msg->number == DL_MSG_W_STARTED)
            host_handle_started(h, child, msg->w_started.pid);
        else if (child)
            host_drop_child(h, child,
                            &(struct host_end){.status = (int)msg->w_exited.status,
                                               .signal = (int)msg->w_exited.signal});
        if (h->wait == WAIT_STARTED || h->wait == WAIT_REAPED)
            h->wait = WAIT_NONE; /* it follows its orders: time begins anew */
    }
    host_rearm(h);
}

static void host_on_lost(void *owner, int r)
{
    if (r == 0 || r == -ECONNRESET || r == -EPIPE)
        host_await_end(owner);
    else
        host_fail(owner, "its socket cannot be read: %s", strerror(-r));
}

static void host_on_violation(void *owner, const struct dl_error *err)
{
    bool sends_fds = err->code == EPROTO;

    host_fail(owner, "%s%s", sends_fds ? "" : "it sent an invalid message: ", err->message);
}

const struct peer_events host_peer_events = {.message = host_on_message,
                                             .lost = host_on_lost,
                                             .violates = host_on_violation,
                                             .closed = host_unref};

/* ---- its workers ---------------------------------------------------------------------------- */

int host_start_child(struct hosts *hosts, const struct host_child_options *o,
                     struct host_child **ret, struct dl_error *err)
{
    struct host *h = o->host;
    char name[HOST_NAMED_MAX];

    if (h && host_is_gone(h))
        return dl_error_set(err, ESRCH, "dataset.host", "%s %s", host_name(h, name),
                            *h->why ? h->why : "has ended");
    int r = h ? 0 : host_find_own(hosts, o->interpreter, o->loader, &h, err);
    if (r < 0)
        return r;
    h->uid = o->uid;
    struct host_child *child = must_alloc(sizeof *child);
    *child = (struct host_child){
        .host = h, .number = h->next_child++, .events = o->events, .owner = o->owner};
    DL_APPEND(h->children, child);
    host_send_message(
        h, &(struct dl_message){.number = DL_MSG_W_FORK, .w_fork = {.child = child->number}},
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
    host_send_message(
        h, &(struct dl_message){.number = DL_MSG_W_KILL, .w_kill = {.child = child->number}}, NULL,
        0);
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
