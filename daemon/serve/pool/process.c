#include "daemon/serve/pool/process.h"

#include "daemon/base/environment.h"
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/base/peer.h"
#include "daemon/base/relay.h"
#include "daemon/serve/pool/remotes.h"
#include "daemon/serve/ring/indexes.h"
#include "daemon/serve/ring/pictures.h"
#include "proto/common/library.h"
#include "proto/common/open_files.h"
#include "proto/common/sealed.h"
#include "proto/remote_wire.h"
#include "proto/shared/remote_environment.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { PROCESS_OUTGOING_LIMIT = 4 << 20 }; /* bytes; a worker that lets so much wait is broken */

struct process {
    uv_process_t handle;      /* unless a host runs it */
    struct host_child *child; /* then; NULL once it has ended */
    int pid;                  /* 0: not known yet */
    uv_poll_t bell_poll;
    uv_pipe_t errors; /* the worker's standard error */
    uint32_t handles; /* open ones; freed at 0 */
    bool running;
    bool fetches;   /* it was given a way to remote files */
    bool abandoned; /* process_free() was called */
    struct peer peer;
    int queues_fd;                /* owned; until it opens the dataset */
    int task_bell;                /* owned */
    int done_bell;                /* owned */
    struct worker_queues *queues; /* owned mapping */
    uint64_t slow_ns;             /* that it has told */
    uint64_t remote_ns;           /* likewise */
    struct way way;               /* likewise */
    struct last_words words;
    char read_space[1024];
    char *label; /* owned */
    uid_t uid;
    uint32_t number;
    const struct process_events *events; /* borrowed */
    void *owner;                         /* borrowed */
};

/* ---- its end -------------------------------------------------------------------------------- */

static void process_release(struct process *p)
{
    if (p->handles > 0 || !p->abandoned)
        return;
    if (p->queues)
        munmap(p->queues, sizeof *p->queues);
    close_fdp(&p->queues_fd);
    close_fdp(&p->task_bell);
    close_fdp(&p->done_bell);
    peer_deinit(&p->peer);
    free(p->label);
    free(p);
}

static void process_unref(void *owner)
{
    struct process *p = owner;

    assert(p->handles > 0);
    p->handles--;
    process_release(p);
}

static void process_on_close(uv_handle_t *handle)
{
    process_unref(handle->data);
}

static void process_close_handle(uv_handle_t *handle)
{
    if (handle->type != UV_UNKNOWN_HANDLE && !uv_is_closing(handle))
        uv_close(handle, process_on_close);
}

static void process_close_handles(struct process *p)
{
    (void)peer_close(&p->peer);
    process_close_handle((uv_handle_t *)&p->bell_poll);
    process_close_handle((uv_handle_t *)&p->errors);
    /* The process handle stays until the child is reaped. */
    if (!p->running)
        process_close_handle((uv_handle_t *)&p->handle);
}

/* What it said last may still be in the pipe, and this handle has no other chance to read it. */
static void process_hear_out(struct process *p)
{
    int fd;

    if (uv_fileno((uv_handle_t *)&p->errors, &fd) == 0)
        last_words_read(&p->words, fd);
    relay_end(p->words.relay, &p->words.lines);
}

struct process *process_free(struct process *p)
{
    if (!p)
        return NULL;
    p->abandoned = true;
    p->events = NULL;
    process_hear_out(p);
    if (p->child) {
        p->child = host_child_free(p->child);
        p->running = false;
    }
    process_kill(p);
    process_close_handles(p);
    process_release(p);
    return NULL;
}

void process_kill(struct process *p)
{
    if (p->running && p->child)
        host_kill_child(p->child);
    else if (p->running)
        (void)uv_process_kill(&p->handle, SIGKILL);
}

void process_hand_over(struct process *p, const struct process_events *events, void *owner)
{
    p->events = events;
    p->owner = owner;
}

int process_pid(const struct process *p)
{
    return p->pid;
}

/* Tells of its end, with what it said last. */
static void process_has_ended(struct process *p, const struct host_end *end)
{
    char words[LAST_WORDS + 32], name[64], cause[2 * LAST_WORDS + 1024];
    const char *signal = end->signal ? library_signal_name(end->signal) : NULL;

    process_hear_out(p);
    last_words_told(&p->words, words);
    if (p->pid)
        snprintf(name, sizeof name, "worker %u (pid %d)", p->number, p->pid);
    else
        snprintf(name, sizeof name, "worker %u", p->number);
    if (end->cause)
        snprintf(cause, sizeof cause, "%s ended with its host: %s%s", name, end->cause, words);
    else if (end->signal)
        snprintf(cause, sizeof cause, "%s was killed by SIG%s%s", name, signal ? signal : "?",
                 words);
    else
        snprintf(cause, sizeof cause, "%s exited with status %d%s", name, end->status, words);
    p->events->exited(p->owner, end->signal, cause);
}

static void process_on_exit_(uv_process_t *handle, int64_t status, int signal)
{
    struct process *p = handle->data;

    p->running = false;
    if (p->abandoned)
        process_close_handles(p);
    else
        process_has_ended(p, &(struct host_end){.status = (int)status, .signal = signal});
}

static void process_on_child_started(void *owner, int pid)
{
    struct process *p = owner;

    p->pid = pid;
}

static void process_on_child_ended(void *owner, const struct host_end *end)
{
    struct process *p = owner;
    struct dl_error err = {0};

    p->running = false;
    p->child = NULL;
    if (end->never) {
        dl_error_set(&err, EIO, end->place, "%s", end->cause);
        p->events->failed(p->owner, 0, &err);
    }
    if (!p->abandoned)
        process_has_ended(p, end);
}

static const struct host_child_events child_events = {.started = process_on_child_started,
                                                      .ended = process_on_child_ended};

/* ---- what it says --------------------------------------------------------------------------- */

static void process_on_alloc(uv_handle_t *handle, size_t want, uv_buf_t *buf)
{
    struct process *p = handle->data;

    (void)want;
    *buf = uv_buf_init(p->read_space, sizeof p->read_space);
}

static void process_on_errors(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct process *p = stream->data;

    if (n < 0) {
        uv_read_stop(stream);
        return;
    }
    last_words_add(&p->words, buf->base, (size_t)n);
    log_debug("%s: worker %u: %.*s", p->label, p->number, (int)n, buf->base);
}

/* A worker that breaks the protocol is killed; its exit is then handled as any other. */
static void process_violation(struct process *p, const char *what)
{
    log_about(LOG_WARNING,
              &(struct log_fields){.loader = p->label,
                                   .worker = LOG_N(p->number),
                                   .worker_pid = LOG_N(p->pid),
                                   .client_uid = LOG_N(p->uid)},
              "%s: worker %u (pid %d) is killed: %s", p->label, p->number, p->pid, what);
    peer_stop(&p->peer);
    process_kill(p);
}

static void process_on_indexed(struct process *p, const struct dl_msg_w_indexed *what)
{
    int fd = frame_reader_take_fd(&p->peer.reader);

    if (fd < 0)
        process_violation(p, "W_INDEXED came without its file descriptor");
    else
        p->events->indexed(p->owner, what, fd);
}

static void process_on_message(void *owner, const struct dl_message *msg, struct dl_span payload)
{
    struct process *p = owner;
    struct dl_error err = {0};

    (void)payload;

    switch (msg->number) {
    case DL_MSG_W_OPENING:
        p->events->opening(p->owner, &msg->w_opening);
        break;
    case DL_MSG_W_INDEXED:
        process_on_indexed(p, &msg->w_indexed);
        break;
    case DL_MSG_W_READY:
        p->events->ready(p->owner, &msg->w_ready);
        break;
    case DL_MSG_W_LOOKED:
        p->events->looked(p->owner, msg->w_looked.identity);
        break;
    case DL_MSG_W_MAPPED:
        p->events->mapped(p->owner, (uint32_t)msg->w_mapped.id);
        break;
    case DL_MSG_W_FAILED: {
        _cleanup_free_ char *path = span_dup(msg->w_failed.path);
        _cleanup_free_ char *text = span_dup(msg->w_failed.message);
        dl_error_set(&err, msg->w_failed.code ? (int)msg->w_failed.code : EIO, path ? path : "",
                     "%s", text ? text : "");
        p->events->failed(p->owner, (uint32_t)msg->w_failed.segment, &err);
        break;
    }
    default:
        break;
    }
}

static void process_on_lost(void *owner, int r)
{
    struct process *p = owner;

    (void)r; /* its exit tells why */
    peer_stop(&p->peer);
    process_kill(p);
}

static void process_on_violation(void *owner, const struct dl_error *err)
{
    struct process *p = owner;

    frame_reader_deinit(&p->peer.reader); /* descriptors that came are closed now */
    process_violation(p, err->message);
}

static const struct peer_events process_peer_events = {.message = process_on_message,
                                                       .lost = process_on_lost,
                                                       .violates = process_on_violation,
                                                       .closed = process_unref};

static void process_on_bell(uv_poll_t *poll, int status, int events)
{
    struct process *p = poll->data;
    eventfd_t count;

    (void)status, (void)events;
    (void)eventfd_read(p->done_bell, &count);
    p->events->completed(p->owner);
}

/* ---- what it hears -------------------------------------------------------------------------- */

static void process_send_message(struct process *p, const struct dl_message *msg, const int *fds,
                                 uint32_t n_fds)
{
    char what[64 + OPEN_FILES_REMEDY_MAX], remedy[OPEN_FILES_REMEDY_MAX];
    int r = peer_queue(&p->peer, msg, fds, n_fds);

    (void)snprintf(what, sizeof what, "%s%s",
                   r == -EMFILE ? "too many open files for a message to it"
                                : "it does not accept messages",
                   open_files_remedy(-r, remedy));
    /* A socket that fails is that of one that is dying; its exit will be reported. */
    if (r < 0 || peer_flush(&p->peer) == -ENOBUFS)
        process_violation(p, what);
}

void process_send_segment(struct process *p, const struct segment *segment)
{
    process_send_message(p,
                         &(struct dl_message){.number = DL_MSG_W_SEGMENT,
                                              .w_segment = {.id = segment->id,
                                                            .bytes = segment->bytes,
                                                            .slot_bytes = segment->slot_bytes,
                                                            .slots = segment->slots.count}},
                         &segment->fd, 1);
}

void process_send_unmap(struct process *p, uint32_t segment)
{
    if (p->running)
        process_send_message(
            p, &(struct dl_message){.number = DL_MSG_W_UNMAP, .w_unmap = {.id = segment}}, NULL, 0);
}

void process_send_forget(struct process *p, uint32_t stream)
{
    if (p->running)
        process_send_message(
            p, &(struct dl_message){.number = DL_MSG_W_FORGET, .w_forget = {.stream = stream}},
            NULL, 0);
}

void process_send_expect(struct process *p, bool anew, struct dl_span indices)
{
    /* One that is at a long task does not read what is not needed. */
    if (p->running && p->fetches && (anew || peer_pending(&p->peer) == 0))
        process_send_message(p,
                             &(struct dl_message){.number = DL_MSG_W_EXPECT,
                                                  .w_expect = {.anew = anew, .indices = indices}},
                             NULL, 0);
}

void process_send_look(struct process *p, struct dl_span spec)
{
    if (p->running)
        process_send_message(
            p, &(struct dl_message){.number = DL_MSG_W_LOOK, .w_look = {.spec = spec}}, NULL, 0);
}

bool process_put_task(struct process *p, const struct queue_task *task)
{
    return task_put(p->queues, task);
}

void process_ring(struct process *p)
{
    if (queue_must_wake(&p->queues->tasks))
        (void)eventfd_write(p->task_bell, 1);
}

bool process_take_done(struct process *p, struct queue_done *ret)
{
    do {
        if (done_take(p->queues, ret))
            return true;
    } while (!queue_sleep(&p->queues->done));
    return false;
}

bool process_take_note(struct process *p, struct dl_error *ret)
{
    return note_take(&p->queues->note, ret);
}

uint32_t process_read_place(const struct process *p, char ret[static DL_ERROR_PATH_MAX])
{
    return note_read_place(&p->queues->note, ret);
}

bool process_take_slow(struct process *p, struct slow_sample *ret)
{
    return slow_take(&p->queues->slow, ret);
}

uint64_t process_take_slow_ns(struct process *p)
{
    uint64_t before = p->slow_ns;

    p->slow_ns = slow_spent(&p->queues->slow);
    return p->slow_ns - min_u64(before, p->slow_ns);
}

uint64_t process_take_remote_ns(struct process *p)
{
    uint64_t before = p->remote_ns;

    p->remote_ns = slow_remote(&p->queues->slow);
    return p->remote_ns - min_u64(before, p->remote_ns);
}

void process_take_way(struct process *p, struct way *total)
{
    struct way before = p->way, now = way_read(&p->queues->way);

    p->way = now;
    total->sent_bytes += now.sent_bytes - min_u64(before.sent_bytes, now.sent_bytes);
    total->received_bytes +=
        now.received_bytes - min_u64(before.received_bytes, now.received_bytes);
    total->way_ns += now.way_ns - min_u64(before.way_ns, now.way_ns);
    total->round_trip_ns = now.round_trip_ns;
}

/* ---- its beginning -------------------------------------------------------------------------- */

static int process_spawn(struct process *p, const struct process_options *o, int child_sock)
{
    char near[] = "--near", *args[] = {(char *)o->path, o->helper ? near : NULL, NULL};
    /* A stand-in asks the interpreter of Python's workers, in whose place it is. */
    bool python = o->python->interpreter, own = python && hosts_private(o->hosts);
    char **environment = own ? NULL : environment_new(python ? &o->config->python_path : NULL);
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&p->errors},
        {.flags = UV_INHERIT_FD, .data.fd = child_sock},
    };
    /* In a session of its own: a signal to its process group does not reach the daemon. */
    uv_process_options_t options = {.exit_cb = process_on_exit_,
                                    .flags = UV_PROCESS_DETACHED,
                                    .file = o->path,
                                    .args = args,
                                    .env = environment,
                                    .cwd = own ? NULL : "/",
                                    .stdio = stdio,
                                    .stdio_count = 4};

    p->handles++;
    int r = uv_spawn(o->loop, &p->handle, &options);
    environment_free(environment);
    if (r == 0)
        p->pid = p->handle.pid;
    return r;
}

/* The same by a host: it gets the ends that a child of our own would inherit. */
static int process_fork_off(struct process *p, const struct process_options *o, int child_sock,
                            struct dl_error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    _cleanup_fd_ int told = ends[1];
    int r = uv_pipe_open(&p->errors, ends[0]);
    if (r < 0) {
        close(ends[0]);
        return r;
    }
    return host_start_child(o->hosts,
                            &(struct host_child_options){.host = o->python->host,
                                                         .interpreter = o->python->interpreter,
                                                         .loader = o->python,
                                                         .uid = o->uid,
                                                         .sock = child_sock,
                                                         .errors = told,
                                                         .events = &child_events,
                                                         .owner = p},
                            &p->child, err);
}

static int process_make_queues(struct process *p)
{
    _cleanup_fd_ int fd = sealed_memory("dloader-queues", sizeof *p->queues);

    if (fd < 0)
        return fd;
    p->queues = mmap(NULL, sizeof *p->queues, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p->queues == MAP_FAILED) {
        p->queues = NULL;
        return -errno;
    }
    p->task_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->done_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->task_bell < 0 || p->done_bell < 0)
        return -errno;
    p->queues_fd = steal_fd(&fd);
    return 0;
}

static int process_watch(struct process *p, uv_loop_t *loop)
{
    int r = uv_poll_init(loop, &p->bell_poll, p->done_bell);
    if (r < 0)
        return r;
    p->handles++;
    r = uv_poll_start(&p->bell_poll, UV_READABLE, process_on_bell);
    if (r < 0)
        return r;
    return uv_read_start((uv_stream_t *)&p->errors, process_on_alloc, process_on_errors);
}

/* What a client brings runs by its own rights, on what it sends itself. */
static bool process_is_foreign(const struct process_options *o)
{
    return o->foreign && !o->python->host_number;
}

/* Root may read all. */
static struct dl_span process_reader(const struct process_options *o)
{
    const struct credentials *reader = process_is_foreign(o) ? o->reader : NULL;

    if (!reader || reader->ids[0] == 0)
        return (struct dl_span){0};
    return (struct dl_span){.data = (const uint8_t *)reader->ids,
                            .len = reader->n * sizeof reader->ids[0]};
}

static void process_send_open(struct process *p, const struct process_options *o)
{
    process_send_message(
        p,
        &(struct dl_message){
            .number = DL_MSG_W_OPEN,
            .w_open = {.worker = o->number % o->workers,
                       .workers = o->workers,
                       .queue_bytes = o->helper ? sizeof *p->queues : WORKER_QUEUES_BYTES,
                       .spec = o->spec,
                       .roots = o->roots,
                       .seen_as = o->seen_as,
                       .plugins = o->plugins,
                       .sandbox = o->sandbox,
                       .reader = process_reader(o),
                       .foreign = process_is_foreign(o),
                       .cache = span_str(o->cache),
                       .uid = o->uid}},
        (int[]){p->queues_fd, p->task_bell, p->done_bell}, 3);
}

static void process_send_pictures(struct process *p, const struct pictures_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const struct pictures *pictures = list->items[i];
        struct dl_span root = span_str(pictures_root(pictures));
        uint64_t bytes = pictures_bytes(pictures);
        int fd = pictures_fd(pictures);
        struct dl_message pages = {.number = DL_MSG_W_PICTURES,
                                   .w_pictures = {.root = root, .bytes = bytes}};
        struct dl_message ids = {.number = DL_MSG_W_IDS, .w_ids = {.model = root, .bytes = bytes}};

        process_send_message(p, pictures_has_ids(pictures) ? &ids : &pages, &fd, 1);
    }
}

static void process_send_indexes(struct process *p, const struct index_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const struct index *index = &list->items[i];

        process_send_message(
            p,
            &(struct dl_message){.number = DL_MSG_W_INDEX,
                                 .w_index = {.place = span_str(index->place), .form = index->form}},
            &index->fd, 1);
    }
}

/* By the credentials of who opened the loader. A worker that gets none says why its files cannot be
 * had. That of a client's own host compares environments: its program reads by its own. */
static void process_send_remote(struct process *p, const struct process_options *o)
{
    struct dl_error err = {0};
    _cleanup_fd_ int fd = -1;

    if (!o->remotes || o->python->interpreter)
        return;
    if (o->foreign && !o->reader)
        return; /* the kernel has not said who that is */
    struct dl_msg_w_remote told = {.version = REMOTE_WIRE_VERSION,
                                   .environment =
                                       o->python->host_number ? remote_environment(o->foreign) : 0};
    if (remotes_connect(o->remotes, o->foreign ? o->reader : NULL, o->loader, &fd, &err) < 0)
        log_about(err.code == EPERM ? LOG_DEBUG : LOG_ERROR, NULL, "loader %s: %s: %s", o->label,
                  err.path, err.message);
    else
        process_send_message(p, &(struct dl_message){.number = DL_MSG_W_REMOTE, .w_remote = told},
                             &fd, 1);
    p->fetches = fd >= 0;
}

static const uint8_t process_nil[] = {0xc0}; /* of msgpack */

/* What workers of this machine share is of no use to one of another. */
static void process_send_reach(struct process *p, const struct process_options *o)
{
    const struct config_helpers *helpers = &o->config->helpers;
    const char *interpreter = o->python->interpreter;

    process_send_message(
        p,
        &(struct dl_message){.number = DL_MSG_W_REACH,
                             .w_reach = {.address = span_str(o->helper),
                                         .secret = span_str(helpers->secret),
                                         .certificate = span_str(helpers->certificate),
                                         .key = span_str(helpers->key),
                                         .authority = span_str(helpers->authority),
                                         .interpreter = span_str(interpreter ? interpreter : ""),
                                         .any_versions = helpers->versions == CONFIG_VERSIONS_ANY,
                                         .checksums = helpers->checksums,
                                         .serves = helpers->serve}},
        NULL, 0);
}

static void process_send_shared(struct process *p, const struct process_options *o)
{
    process_send_pictures(p, o->pictures);
    process_send_indexes(p, o->indexes);
    process_send_remote(p, o);
    if (o->looks)
        process_send_look(p, (struct dl_span){process_nil, sizeof process_nil});
}

void process_open(struct process *p, const struct process_options *o)
{
    assert(p->queues_fd >= 0);
    if (o->helper)
        process_send_reach(p, o);
    else
        process_send_shared(p, o);
    process_send_open(p, o);
    close_fdp(&p->queues_fd);
}

static int process_begin(struct process *p, const struct process_options *o, struct dl_error *err)
{
    _cleanup_fd_ int child_sock = -1;
    int pair[2];
    int r = process_make_queues(p);

    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    child_sock = pair[1];
    const struct peer_options how = {.from = FROM_WORKER,
                                     .limit = PROCESS_OUTGOING_LIMIT,
                                     .sends_fds = true,
                                     .fd_rule = "it sends file descriptors that nobody asked for",
                                     .events = &process_peer_events,
                                     .owner = p};
    r = peer_open(&p->peer, &how, o->loop, pair[0]);
    if (r < 0)
        return r;
    p->handles++;
    r = uv_pipe_init(o->loop, &p->errors, 0);
    if (r < 0)
        return r;
    p->handles++;
    r = python_runs(o->python) && !o->helper ? process_fork_off(p, o, child_sock, err)
                                             : process_spawn(p, o, child_sock);
    if (r < 0)
        return r;
    p->running = true;
    return process_watch(p, o->loop);
}

int process_start(const struct process_options *o, struct process **ret, struct dl_error *err)
{
    struct process *p = must_alloc(sizeof *p);

    p->peer.sock = p->queues_fd = p->task_bell = p->done_bell = -1;
    p->events = o->events;
    p->owner = o->owner;
    p->words.relay = python_runs(o->python) && !o->helper ? hosts_relay(o->hosts) : NULL;
    p->number = o->number;
    p->label = must_strdup(o->label);
    p->uid = o->uid;
    p->handle.data = p->bell_poll.data = p->errors.data = p;

    int r = process_begin(p, o, err);
    if (r < 0) {
        if (!err->code)
            dl_error_set(err, -r, "worker", "cannot start %s: %s", o->path, uv_strerror(r));
        process_free(p);
        return r;
    }
    *ret = p;
    return 0;
}
