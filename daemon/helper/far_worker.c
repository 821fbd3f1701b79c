#include "daemon/helper/far_worker.h"

#include "daemon/worker/worker_socket.h"
#include "proto/common/library.h"
#include "proto/common/sealed.h"
#include "proto/remote_wire.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* ---- the process ---------------------------------------------------------------------------- */

static int far_worker_memory(const char *name, uint64_t bytes, int *ret, void **ret_base)
{
    _cleanup_fd_ int fd = sealed_memory(name, bytes);

    if (fd < 0)
        return fd;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    *ret_base = base;
    *ret = steal_fd(&fd);
    return 0;
}

/* This very program, as the daemon starts it. */
static void far_worker_exec(const char *program, int sock)
{
    char *args[] = {(char *)(uintptr_t)program, NULL};

    if (sock == WORKER_SOCKET ? fcntl(sock, F_SETFD, 0) == 0 : dup2(sock, WORKER_SOCKET) >= 0)
        (void)execve("/proc/self/exe", args, environ);
    _exit(127);
}

static int far_worker_run(struct far_worker *worker, const struct far_worker_kind *kind, int sock,
                          struct dl_error *err)
{
    if (kind->interpreter)
        return far_python_start(&worker->python, kind->interpreter, sock, kind->object,
                                kind->progress, err);
    worker->pid = fork();
    if (worker->pid < 0) {
        worker->pid = 0;
        return -errno;
    }
    if (worker->pid == 0)
        far_worker_exec(kind->program, sock);
    return 0;
}

int far_worker_start(struct far_worker *worker, const struct far_worker_kind *kind, uint64_t memory,
                     struct dl_error *err)
{
    void *queues = NULL;
    int pair[2];

    worker->memory = memory;
    worker->next_segment = 1;
    worker->sock = worker->queues_fd = -1;
    worker->task_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    worker->done_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->task_bell < 0 || worker->done_bell < 0)
        return -errno;
    int r =
        far_worker_memory("dloader-queues", sizeof *worker->queues, &worker->queues_fd, &queues);
    if (r < 0)
        return r;
    worker->queues = queues;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    _cleanup_fd_ int theirs = pair[1];
    worker->sock = pair[0];
    return far_worker_run(worker, kind, theirs, err);
}

static void far_slot_drop(struct far_slot *slot)
{
    if (slot->base)
        munmap(slot->base, SEGMENT_HEADER_BYTES + slot->slot_bytes);
    *slot = (struct far_slot){0};
}

void far_worker_deinit(struct far_worker *worker)
{
    if (worker->pid > 0) {
        (void)kill(worker->pid, SIGKILL);
        (void)waitpid(worker->pid, NULL, 0);
    }
    far_python_deinit(&worker->python);
    for (uint32_t i = 0; i < LINK_AHEAD; i++)
        far_slot_drop(&worker->slots[i]);
    if (worker->queues) {
        munmap(worker->queues, sizeof *worker->queues);
        close_fdp(&worker->sock);
        close_fdp(&worker->queues_fd);
        close_fdp(&worker->task_bell);
        close_fdp(&worker->done_bell);
    }
    frame_reader_deinit(&worker->reader);
}

void far_worker_obituary(struct far_worker *worker, char *ret, size_t room)
{
    int status = 0;

    if (worker->python.pid)
        status = far_python_reap(&worker->python);
    else
        (void)kill(worker->pid, SIGKILL); /* it may have closed its socket only */
    if (worker->pid > 0 && waitpid(worker->pid, &status, 0) == worker->pid)
        worker->pid = 0;
    const char *signal = WIFSIGNALED(status) ? library_signal_name(WTERMSIG(status)) : NULL;
    if (WIFSIGNALED(status))
        snprintf(ret, room, "its worker was killed by SIG%s", signal ? signal : "?");
    else
        snprintf(ret, room, "its worker exited with status %d; its log has more",
                 WEXITSTATUS(status));
}

/* ---- messages ------------------------------------------------------------------------------- */

static int far_worker_send(const struct far_worker *worker, const struct dl_message *msg,
                           const int *fds, uint32_t n_fds)
{
    _cleanup_(buffer_deinit) struct dl_buffer out = {0};
    int r = message_encode(msg, &out);

    for (size_t at = 0; r == 0 && at < out.len;) {
        ssize_t n =
            fdpass_send(worker->sock, out.data + at, out.len - at, fds, at == 0 ? n_fds : 0, 0);
        if (n < 0)
            r = (int)n;
        else
            at += (size_t)n;
    }
    return r;
}

int far_worker_offer(struct far_worker *worker, int fd, uint64_t version)
{
    return far_worker_send(
        worker, &(struct dl_message){.number = DL_MSG_W_REMOTE, .w_remote = {.version = version}},
        &fd, 1);
}

int far_worker_expect(struct far_worker *worker, struct dl_span indices)
{
    return far_worker_send(
        worker, &(struct dl_message){.number = DL_MSG_W_EXPECT, .w_expect = {.indices = indices}},
        NULL, 0);
}

int far_worker_forget(struct far_worker *worker, const struct dl_message *msg)
{
    return far_worker_send(worker, msg, NULL, 0);
}

int far_worker_tell_slow(const struct far_worker *worker, struct link *link)
{
    struct slow_sample slow;
    int r = 0;

    /* No more than there is room for: it may write what it likes there. */
    for (int n = 0; r == 0 && n < SLOW_SAMPLES && slow_take(&worker->queues->slow, &slow); n++) {
        r = link_say(link, &(struct dl_message){.number = DL_MSG_H_SLOW,
                                                .h_slow = {.index = slow.index,
                                                           .epoch = slow.epoch,
                                                           .took = slow.ns,
                                                           .together = slow.together,
                                                           .name = span_str(slow.name)}});
        if (r == -EBADMSG) /* its name was cut within a letter */
            r = 0;
    }
    return r;
}

int far_worker_keep(const struct far_worker *worker, const struct dl_message *msg, int fd)
{
    return far_worker_send(worker, msg, &fd, 1);
}

int far_worker_open(struct far_worker *worker, struct dl_msg_w_open *msg)
{
    const int fds[] = {worker->queues_fd, worker->task_bell, worker->done_bell};

    msg->queue_bytes = WORKER_QUEUES_BYTES;
    int r = far_worker_send(worker, &(struct dl_message){.number = DL_MSG_W_OPEN, .w_open = *msg},
                            fds, ARRAY_SIZE(fds));
    close_fdp(&worker->queues_fd);
    return r;
}

/* ---- slots ---------------------------------------------------------------------------------- */

static int far_worker_replace(struct far_worker *worker, struct far_slot *slot, uint64_t slot_bytes)
{
    uint64_t bytes = SEGMENT_HEADER_BYTES + slot_bytes;
    _cleanup_fd_ int fd = -1;
    void *base = NULL;
    int r = 0;

    if (slot_bytes > DL_MAX_SEGMENT_BYTES / 2 || LINK_AHEAD * bytes > worker->memory)
        return -ENOMEM;
    if (slot->id)
        r = far_worker_send(
            worker, &(struct dl_message){.number = DL_MSG_W_UNMAP, .w_unmap = {.id = slot->id}},
            NULL, 0);
    far_slot_drop(slot);
    if (r == 0)
        r = far_worker_memory("dloader-slot", bytes, &fd, &base);
    if (r < 0)
        return r;
    *slot = (struct far_slot){.id = worker->next_segment++, .slot_bytes = slot_bytes, .base = base};
    return far_worker_send(
        worker,
        &(struct dl_message){
            .number = DL_MSG_W_SEGMENT,
            .w_segment = {.id = slot->id, .bytes = bytes, .slot_bytes = slot_bytes, .slots = 1}},
        &fd, 1);
}

int far_worker_take(struct far_worker *worker, uint64_t slot_bytes, uint32_t *ret)
{
    uint32_t found = LINK_AHEAD;
    int r = 0;

    for (uint32_t i = 0; i < LINK_AHEAD; i++) {
        const struct far_slot *slot = &worker->slots[i];

        if (!slot->busy && (found == LINK_AHEAD || slot->slot_bytes == slot_bytes))
            found = i;
    }
    if (found == LINK_AHEAD)
        return -EBUSY;
    if (worker->slots[found].slot_bytes != slot_bytes)
        r = far_worker_replace(worker, &worker->slots[found], slot_bytes);
    worker->slots[found].busy = true;
    *ret = found;
    return r;
}

int far_worker_mapped(struct far_worker *worker, uint64_t id)
{
    for (uint32_t i = 0; i < LINK_AHEAD; i++) {
        struct far_slot *slot = &worker->slots[i];

        if (id != 0 && slot->id == id && !slot->mapped) {
            slot->mapped = true;
            return 0;
        }
    }
    return -EPROTO;
}
