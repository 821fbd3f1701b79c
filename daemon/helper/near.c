#include "daemon/helper/near.h"

#include "daemon/helper/alike.h"
#include "daemon/helper/files_seen.h"
#include "daemon/helper/link.h"
#include "daemon/helper/link_slot.h"
#include "daemon/helper/near_files.h"
#include "daemon/helper/reach.h"
#include "daemon/helper/sent.h"
#include "daemon/worker/packed.h"
#include "daemon/worker/segments.h"
#include "daemon/worker/worker_socket.h"
#include "proto/common/clock.h"
#include "proto/queue.h"
#include "proto/slot_fill.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* A task that the helper has. */
struct given {
    struct queue_task task;
    uint64_t since; /* ns; when it was sent */
};

struct near {
    int sock;                     /* borrowed; to the daemon */
    int task_bell, done_bell;     /* owned */
    struct worker_queues *queues; /* owned mapping; NULL until W_OPEN */
    struct frame_reader reader;
    struct segment *segments; /* owned array */
    uint32_t n_segments;
    struct reach_place place; /* zeroed until W_REACH */
    struct sent sent;         /* what the helper is sent of the program; zeroed: nothing */
    struct near_files files;  /* that it may read */
    struct link link;
    uint64_t heard;                 /* ns; when the helper said something last */
    bool ready;                     /* its worker has opened the dataset */
    bool serves;                    /* it reads files of this machine */
    struct given given[LINK_AHEAD]; /* a ring, the oldest at begin */
    uint64_t begin, end;
    struct way way;            /* as the daemon knows it */
    uint64_t measured;         /* ns; when the network's round trip was looked at last */
    uint64_t came;             /* ns; when the first bytes of `done` had come */
    struct dl_msg_h_done done; /* of the oldest, while its bytes come */
    struct slot_header header; /* of that */
};

static int near_say(struct near *near, const struct dl_message *msg)
{
    return worker_socket_send(near->sock, msg, -1);
}

static int near_say_failed(struct near *near, uint32_t segment, const struct dl_error *err)
{
    return near_say(near, &(struct dl_message){.number = DL_MSG_W_FAILED,
                                               .w_failed = {.segment = segment,
                                                            .code = (uint64_t)err->code,
                                                            .path = span_str(err->path),
                                                            .message = span_str(err->message)}});
}

/* ---- opening -------------------------------------------------------------------------------- */

static int near_map_queues(struct near *near, uint64_t bytes)
{
    _cleanup_fd_ int fd = frame_reader_take_fd(&near->reader);

    near->task_bell = frame_reader_take_fd(&near->reader);
    near->done_bell = frame_reader_take_fd(&near->reader);
    if (near->done_bell < 0 || bytes != sizeof *near->queues)
        return -EPROTO;
    near->queues = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (near->queues == MAP_FAILED) {
        near->queues = NULL;
        return -errno;
    }
    return 0;
}

/* What the dataset is here, which the helper compares with its own. */
struct near_seen {
    struct files_seen files;
    char python[ALIKE_MAX]; /* "": it is not Python's */
    struct dl_span object;  /* of the program, pickled; borrowed from near->sent */
};

static int near_look_python(struct near *near, const struct dl_spec *spec, struct near_seen *ret,
                            struct dl_error *err)
{
    const struct reach_place *place = &near->place;
    const char *sent = spec_sent(spec);

    if (!sent)
        return alike_ask(place->interpreter, spec, place->any_versions, NULL, ret->python, err);
    int r = sent_open(&near->sent, sent, err);
    return r < 0 ? r : sent_read(&near->sent, place->any_versions, ret->python, &ret->object, err);
}

static int near_look(struct near *near, const struct dl_msg_w_open *msg, struct near_seen *ret,
                     struct dl_error *err)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    _cleanup_(packed_env_deinit) struct packed_env places = {0};
    int r = packed_spec_read(msg->spec, &spec, err);

    if (r == 0)
        r = packed_env_read(&places, msg->roots, msg->seen_as, err);
    if (r == 0)
        r = files_seen_make(&spec, &places.env, &ret->files, err);
    if (r == 0 && alike_matters(&spec))
        r = near_look_python(near, &spec, ret, err);
    return r;
}

static int near_begin(struct near *near, const struct dl_msg_w_open *msg, struct dl_error *err)
{
    struct near_seen *seen = calloc(1, sizeof *seen);
    int r = seen ? near_look(near, msg, seen, err) : -ENOMEM;

    if (r == 0 && near->place.serves)
        r = near_files_open(&near->files, msg, err);
    if (r == 0)
        r = reach_helper(&near->place, &near->link, err);
    if (r == 0) {
        near->heard = clock_ns();
        r = link_say(&near->link,
                     &(struct dl_message){
                         .number = DL_MSG_H_OPEN,
                         .h_open = {.worker = msg->worker,
                                    .workers = msg->workers,
                                    .spec = msg->spec,
                                    .files = seen->files.n,
                                    .sums = {(const uint8_t *)seen->files.sums,
                                             seen->files.n_sums * sizeof seen->files.sums[0]},
                                    .python = span_str(seen->python),
                                    .object = seen->object.len,
                                    .checksums = near->place.checksums,
                                    .serves = near->place.serves}});
    }
    if (r == 0)
        link_add_body(&near->link, seen->object);
    free(seen);
    return r;
}

static int near_handle_open(struct near *near, const struct dl_msg_w_open *msg)
{
    struct dl_error err = {0};
    int r =
        near->queues || !near->place.address ? -EPROTO : near_map_queues(near, msg->queue_bytes);

    if (r < 0)
        return r;
    if ((r = near_begin(near, msg, &err)) == 0)
        return 0;
    if (!err.code)
        (void)dl_error_set(&err, -r, near->place.address, "the helper cannot be used: %s",
                           strerror(-r));
    return near_say_failed(near, 0, &err);
}

/* ---- the daemon's messages ------------------------------------------------------------------ */

static int near_handle_reach(struct near *near, const struct dl_msg_w_reach *msg)
{
    return near->place.address ? -EPROTO : reach_place_read(&near->place, msg);
}

static int near_handle_segment(struct near *near, const struct dl_msg_w_segment *msg)
{
    _cleanup_fd_ int fd = frame_reader_take_fd(&near->reader);
    struct dl_error err = {0};
    int r = segments_add(&near->segments, &near->n_segments, msg, fd, &err);

    if (r < 0)
        return err.code ? near_say_failed(near, (uint32_t)msg->id, &err) : r;
    return near_say(near, &(struct dl_message){.number = DL_MSG_W_MAPPED, .w_mapped = {msg->id}});
}

static int near_on_message(void *owner, const struct dl_message *msg)
{
    struct near *near = owner;

    switch (msg->number) {
    case DL_MSG_W_REACH:
        return near_handle_reach(near, &msg->w_reach);
    case DL_MSG_W_OPEN:
        return near_handle_open(near, &msg->w_open);
    case DL_MSG_W_SEGMENT:
        return near_handle_segment(near, &msg->w_segment);
    case DL_MSG_W_UNMAP:
        segments_drop(near->segments, &near->n_segments, msg->w_unmap.id);
        return 0;
    case DL_MSG_W_FORGET: /* before it is ready, there is nothing to forget */
        return near->ready ? link_say(&near->link, msg) : 0;
    default:
        return -EPROTO;
    }
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static void *near_slot(const struct near *near, const struct queue_task *task, uint64_t *ret_bytes)
{
    return segments_find_slot(near->segments, near->n_segments, task, ret_bytes);
}

static bool near_has_room(const struct near *near)
{
    return near->ready && near->end - near->begin < LINK_AHEAD;
}

static int near_give(struct near *near, const struct queue_task *task)
{
    uint64_t slot_bytes = 0;
    const void *slot = near_slot(near, task, &slot_bytes);
    struct slot_task what;

    if (!slot || !slot_read_task(slot, slot_bytes, &what))
        return -EPROTO; /* the daemon's own */
    uint64_t bytes = slot_state_end(&what);
    int r = link_say(&near->link,
                     &(struct dl_message){
                         .number = DL_MSG_H_TASK,
                         .h_task = {.task = task->task, .slot_bytes = slot_bytes, .bytes = bytes}});
    if (r == 0)
        r = link_add(&near->link, (struct dl_span){slot, bytes});
    near->way.sent_bytes += bytes;
    near->given[near->end++ % LINK_AHEAD] = (struct given){.task = *task, .since = clock_ns()};
    return r;
}

static int near_give_tasks(struct near *near)
{
    struct queue_task task;
    int r = 0;

    while (r == 0 && near_has_room(near) && task_take(near->queues, &task))
        r = near_give(near, &task);
    return r;
}

/* TCP measures it anyway, of small segments and large ones alike. */
static void near_measure(struct near *near, uint64_t now)
{
    struct tcp_info info;
    socklen_t len = sizeof info;

    if (near->measured != 0 && (now - near->measured) / 1000000 < LINK_ALIVE_MS)
        return;
    near->measured = now;
    if (getsockopt(near->link.fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0)
        near->way.round_trip_ns = UINT64_C(1000) * info.tcpi_rtt;
}

/* Of a task. What it is served comes by this connection; what is behind URLs it fetches itself. */
static void near_count_wait(struct near *near, uint64_t ns)
{
    if (near->serves)
        near->way.way_ns += ns;
    else
        slow_tell_remote(&near->queues->slow, slow_remote(&near->queues->slow) + ns);
}

/* The clocks of two machines differ, so a task began as long ago as it took, but not before it was
 * sent. */
static int near_finish(struct near *near)
{
    const struct dl_msg_h_done *msg = &near->done;
    const struct given *given = &near->given[near->begin % LINK_AHEAD];
    uint64_t now = clock_ns(), cost = min_u64(msg->cost, now - given->since);
    struct queue_done done = {.task = msg->task,
                              .bytes = msg->used,
                              .code = (uint32_t)msg->code,
                              .samples = (uint32_t)msg->samples,
                              .began_ns = now - cost,
                              .cost_ns = cost,
                              .collate_ns = min_u64(msg->collate, cost)};
    uint64_t slot_bytes;
    void *slot = near_slot(near, &given->task, &slot_bytes);

    if (near->place.checksums && link_done_sum(&near->header, slot, msg->bytes) != msg->sum)
        return -EILSEQ;
    link_done_put(slot, &near->header);
    near->begin++;
    near->way.received_bytes += msg->bytes;
    near->way.way_ns += now - near->came;
    near_count_wait(near, min_u64(msg->waited, cost));
    slow_spend(&near->queues->slow, min_u64(msg->slow, cost));
    near_measure(near, now);
    way_tell(&near->queues->way, &near->way);
    (void)done_put(near->queues, &done); /* there is room: see worker.c */
    if (queue_must_wake(&near->queues->done))
        (void)eventfd_write(near->done_bell, 1);
    return 0;
}

static int near_on_done(struct near *near, const struct dl_msg_h_done *msg)
{
    const struct given *given = &near->given[near->begin % LINK_AHEAD];
    uint64_t slot_bytes = 0;
    char *slot = near->begin == near->end ? NULL : near_slot(near, &given->task, &slot_bytes);

    if (!slot || !link_done_fits(msg, given->task.task, slot_bytes))
        return -EBADMSG;
    near->done = *msg;
    near->came = clock_ns();
    memcpy(&near->header, msg->header.data, sizeof near->header);
    if (msg->bytes == 0)
        return near_finish(near);
    link_expect(&near->link, slot + SLOT_HEADER_BYTES, msg->bytes);
    return 0;
}

/* ---- the helper's messages ------------------------------------------------------------------ */

static int near_on_read(struct near *near, const struct dl_msg_h_read *msg)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};
    struct dl_msg_h_part part;

    if (link_unsent(&near->link) > (uint64_t)NEAR_FILES_ASKED * NEAR_FILES_MOST)
        return -EBADMSG; /* it asks for more than it takes */
    near->serves = true;
    int r = near_files_read(&near->files, msg, &part, &bytes);

    if (r == 0)
        r = link_say(&near->link, &(struct dl_message){.number = DL_MSG_H_PART, .h_part = part});
    if (r == 0 && bytes.len > 0)
        r = link_add(&near->link, (struct dl_span){bytes.data, bytes.len});
    near->way.sent_bytes += bytes.len;
    return r < 0 ? r : link_write(&near->link);
}

/* The daemon reads them before the batch, unless it has many to read. */
static void near_on_slow(struct near *near, const struct dl_msg_h_slow *msg)
{
    struct slow_sample slow = {
        .index = msg->index, .epoch = msg->epoch, .ns = msg->took, .together = msg->together};

    memcpy(slow.name, msg->name.data, min_u64(msg->name.len, sizeof slow.name - 1));
    (void)!slow_put(&near->queues->slow, &slow);
}

static int near_on_gone(const struct near *near, struct dl_span why)
{
    _cleanup_free_ char *text = span_dup(why);
    struct dl_error fit; /* to be shown */

    (void)dl_error_set(&fit, 1, "", "%s", text ? text : "");
    fprintf(stderr, "helper %s: %s\n", near->place.address, fit.message);
    return -ESHUTDOWN;
}

static int near_on_frame(struct near *near)
{
    struct dl_span payload = link_payload(&near->link);
    struct dl_message msg;
    struct dl_error err = {0};
    char place[DL_ERROR_PATH_MAX + 1] = "";
    int r = message_decode(payload.data, payload.len, FROM_HELPER | FROM_WORKER, &msg, &err);

    if (r < 0)
        return r;
    switch (msg.number) {
    case DL_MSG_W_READY:
        if (near->ready)
            return -EBADMSG;
        near->ready = true;
        return near_say(near, &msg);
    case DL_MSG_W_OPENING:
        return near->ready ? -EBADMSG : near_say(near, &msg);
    case DL_MSG_W_FAILED:
        return msg.w_failed.segment != 0 ? -EBADMSG : near_say(near, &msg);
    case DL_MSG_H_ALIVE:
        memcpy(place, msg.h_alive.place.data, min_u64(msg.h_alive.place.len, DL_ERROR_PATH_MAX));
        if (!near->ready)
            note_place(&near->queues->note, place);
        return 0;
    case DL_MSG_H_DONE:
        return near_on_done(near, &msg.h_done);
    case DL_MSG_H_SLOW:
        near_on_slow(near, &msg.h_slow);
        return 0;
    case DL_MSG_H_READ:
        return near_on_read(near, &msg.h_read);
    case DL_MSG_H_GONE:
        return near_on_gone(near, msg.h_gone.why);
    default:
        return -EBADMSG;
    }
}

/* Why the helper is of no use any more. */
static int near_lose(const struct near *near, int r)
{
    if (r == -ESHUTDOWN) /* said */
        return r;
    fprintf(stderr, "helper %s: %s\n", near->place.address,
            r == -EPIPE       ? "it has closed the connection, or has died"
            : r == -ETIMEDOUT ? "it has not answered for 5 s: it was stopped, or the network is cut"
            : r == -EILSEQ    ? "a batch's sum differs: its bytes were changed on the way"
            : r == -EBADMSG || r == -EMSGSIZE || r == -EKEYREJECTED
                ? "what it sends is not of this protocol"
                : strerror(-r));
    return -ESHUTDOWN;
}

static int near_hear(struct near *near)
{
    enum link_news news = LINK_NOTHING;
    uint64_t came = near->link.came;
    int r;

    do {
        r = link_read(&near->link, &news);
        if (r == 0 && news == LINK_FRAME)
            r = near_on_frame(near);
        else if (r == 0 && news == LINK_RAW)
            r = near_finish(near);
    } while (r == 0 && news != LINK_NOTHING);
    if (near->link.came != came)
        near->heard = clock_ns();
    return r;
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* ms until the helper has been silent for too long; 0: it has. */
static int near_patience(const struct near *near)
{
    uint64_t silent = (clock_ns() - near->heard) / 1000000;

    return (int)(LINK_PATIENCE_MS - min_u64(silent, LINK_PATIENCE_MS));
}

static int near_send(struct near *near)
{
    int r = near_give_tasks(near);

    if (r == 0)
        r = link_write(&near->link);
    return r < 0 ? near_lose(near, r) : 0;
}

/* After a poll: a stand-in that was stopped itself, or waits for many bytes of a slow helper, finds
 * what has come meanwhile. */
static int near_turn_link(struct near *near, short events)
{
    int r = 0;

    if (near->link.fd < 0)
        return 0;
    if (events & ~POLLOUT || near_patience(near) == 0)
        r = near_hear(near);
    if (r == 0 && near_patience(near) == 0)
        r = -ETIMEDOUT;
    return r < 0 ? near_lose(near, r) : near_send(near);
}

static int near_wait(struct near *near)
{
    struct pollfd fds[3] = {{.fd = near->sock, .events = POLLIN},
                            {.fd = near->link.fd, .events = POLLIN},
                            {.fd = -1, .events = POLLIN}};
    eventfd_t count;

    if (near->link.fd >= 0 && !link_is_idle(&near->link))
        fds[1].events |= POLLOUT;
    if (near_has_room(near)) {
        if (!queue_sleep(&near->queues->tasks))
            return near_send(near);
        fds[2].fd = near->task_bell;
    }
    if (poll(fds, ARRAY_SIZE(fds), near->link.fd < 0 ? -1 : near_patience(near)) < 0 &&
        errno != EINTR)
        return -errno;
    if (near->queues)
        queue_awake(&near->queues->tasks);
    if (fds[2].revents)
        (void)eventfd_read(near->task_bell, &count);
    int r = near_turn_link(near, fds[1].revents);
    if (r == 0 && fds[0].revents)
        r = worker_socket_read(near->sock, &near->reader, "dloader-worker", near_on_message, near);
    return r;
}

static void near_deinit(struct near *near)
{
    while (near->n_segments > 0)
        segments_drop(near->segments, &near->n_segments, near->segments[0].id);
    free(near->segments);
    if (near->queues)
        munmap(near->queues, sizeof *near->queues);
    link_deinit(&near->link);
    frame_reader_deinit(&near->reader);
    close_fdp(&near->task_bell);
    close_fdp(&near->done_bell);
    reach_place_deinit(&near->place);
    sent_deinit(&near->sent);
    near_files_deinit(&near->files);
}

int near_run(int sock)
{
    _cleanup_(near_deinit) struct near near = {
        .sock = sock, .task_bell = -1, .done_bell = -1, .link = {.fd = -1}};
    int r = 0;

    while (r == 0)
        r = near_wait(&near);
    return r == -EPIPE ? 0 : 1;
}
