#include "daemon/helper/far.h"

#include "daemon/data/files/source.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/helper/alike.h"
#include "daemon/helper/far_files.h"
#include "daemon/helper/far_pictures.h"
#include "daemon/helper/far_worker.h"
#include "daemon/helper/files_seen.h"
#include "daemon/helper/link_slot.h"
#include "daemon/helper/proof.h"
#include "daemon/helper/reach.h"
#include "daemon/helper/sent.h"
#include "daemon/worker/packed.h"
#include "daemon/worker/worker_socket.h"
#include "proto/common/clock.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Of a task, so that all messages to a worker that is at a long one have room in its socket. */
enum { FAR_FORESEEN = 2048 };

struct far_task {
    uint64_t number;
    uint32_t slot;
    bool put; /* into the worker's queue */
};

struct far {
    const char *program; /* borrowed */
    struct link link;
    struct frame_reader lender; /* until W_LEND has come */
    struct dl_buffer lend_bytes;
    struct dl_msg_w_lend lend; /* borrowed from these */
    int asks;                  /* owned; takes sockets for the process that fetches, or -1 */
    int lent;                  /* owned; of which each that lends a worker has locked a byte */
    struct far_worker worker;
    struct dl_buffer asked;            /* H_OPEN, while its object comes */
    struct sent object;                /* that */
    bool opened, ready;                /* the worker was told to open; it has */
    bool remote;                       /* it reads URLs */
    bool checksums;                    /* the stand-in wants them */
    struct far_files files;            /* of its machine, that the worker reads; or sock is -1 */
    struct far_task tasks[LINK_AHEAD]; /* a ring, the oldest at begin */
    uint64_t begin, end;
    bool comes; /* the bytes of the newest are on their way */
    uint64_t comes_bytes;
    uint32_t goes;   /* slot whose batch is on its way; LINK_AHEAD: none */
    uint64_t waited; /* ns that the worker had waited for files by its last task, in its life */
    uint64_t slow;   /* likewise, spent on slow samples */
    uint64_t said;   /* ns; when the stand-in was told something last */
};

static int far_say_alive(struct far *far)
{
    char place[DL_ERROR_PATH_MAX] = "";

    if (!link_is_idle(&far->link) || (clock_ns() - far->said) / 1000000 < LINK_ALIVE_MS)
        return 0;
    far->said = clock_ns();
    if (far->opened && !far->ready && far->worker.queues)
        (void)note_read_place(&far->worker.queues->note, place);
    return link_say(&far->link, &(struct dl_message){.number = DL_MSG_H_ALIVE,
                                                     .h_alive = {.place = span_str(place)}});
}

/* ---- lending -------------------------------------------------------------------------------- */

/* Blocks: the helper sends it at once. */
static int far_read_lend(struct far *far, int sock)
{
    struct dl_span payload;
    struct dl_message msg;
    int r = 0;

    while (r == 0) {
        ssize_t n = fdpass_recv(sock, &far->lender, 0);

        if (n <= 0)
            return n < 0 ? (int)n : -EPIPE;
        r = frame_reader_next(&far->lender, &payload);
    }
    if (r < 0 || (r = buffer_append(&far->lend_bytes, payload.data, payload.len)) < 0)
        return r;
    r = message_decode(far->lend_bytes.data, far->lend_bytes.len, TO_WORKER, &msg, NULL);
    if (r < 0 || msg.number != DL_MSG_W_LEND)
        return -EPROTO;
    far->lend = msg.w_lend;
    int fd = frame_reader_take_fd(&far->lender);
    if (fd < 0)
        return -EPROTO;
    far->asks = frame_reader_take_fd(&far->lender);
    far->lent = frame_reader_take_fd(&far->lender);
    reach_tune(fd);
    link_init(&far->link, fd);
    return 0;
}

/* One of those that the helper lends: until this process has ended, however that is. */
static int far_take_worker(const struct far *far)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    struct stat st;

    if (fstat(far->lent, &st) < 0)
        return -errno;
    for (; lock.l_start < st.st_size; lock.l_start++) {
        if (fcntl(far->lent, F_SETLK, &lock) == 0)
            return 0;
        if (errno != EAGAIN && errno != EACCES)
            return -errno;
    }
    return -EDQUOT;
}

/* ---- encrypting: waits ---------------------------------------------------------------------- */

static int far_encrypt(struct far *far)
{
    const uint64_t until = clock_ns() + LINK_PROVE_S * UINT64_C(1000000000);
    _cleanup_free_ char *certificate = span_dup(far->lend.certificate);
    _cleanup_free_ char *key = span_dup(far->lend.key);
    _cleanup_free_ char *authority = span_dup(far->lend.authority);
    struct dl_error err = {0};

    if (!certificate || !key || !authority)
        return -ENOMEM;
    int r = reach_encrypt(&far->link, &(struct tls_files){certificate, key, authority}, true, until,
                          &err);
    if (err.code)
        fprintf(stderr, "dloaderd: %s: %s\n", err.path, err.message);
    return r;
}

/* ---- proving: blocks, until an alarm ends the process --------------------------------------- */

static int far_hear(struct far *far, enum message_number wanted, struct dl_message *ret)
{
    struct pollfd one = {.fd = far->link.fd, .events = POLLIN};
    enum link_news news = LINK_NOTHING;
    int r = link_write(&far->link);

    while (r == 0 && news != LINK_FRAME) {
        r = link_read(&far->link, &news);
        if (r == 0 && news != LINK_FRAME && poll(&one, 1, -1) < 0 && errno != EINTR)
            r = -errno;
    }
    if (r == 0)
        r = message_decode(link_payload(&far->link).data, link_payload(&far->link).len, TO_HELPER,
                           ret, NULL);
    return r == 0 && ret->number != wanted ? -EBADMSG : r;
}

static int far_prove(struct far *far)
{
    char nonce[PROOF_NONCE_MAX], proof[PEER_PROOF_MAX];
    _cleanup_free_ char *secret = span_dup(far->lend.secret);
    struct sigv4_crypto crypto;
    struct dl_message msg;

    if (!secret || !*secret || !sigv4_crypto_find(&crypto))
        return -ENOENT;
    int r = proof_nonce(nonce);
    if (r == 0)
        r = link_say(&far->link,
                     &(struct dl_message){.number = DL_MSG_H_CHALLENGE,
                                          .h_challenge = {.release = span_str(DLOADER_VERSION),
                                                          .nonce = span_str(nonce)}});
    if (r == 0)
        r = far_hear(far, DL_MSG_H_PROOF, &msg);
    if (r < 0)
        return r;
    _cleanup_free_ char *near = span_dup(msg.h_proof.nonce);
    if (!near || !proof_holds(&crypto, secret, "near", near, nonce, msg.h_proof.proof))
        return -EACCES;
    if (*proof_compare_releases(msg.h_proof.release))
        return -EPROTO;
    proof_make(&crypto, secret, "far", near, nonce, proof);
    far->link.most = DL_MAX_FRAME_BYTES;
    return link_say(&far->link, &(struct dl_message){.number = DL_MSG_H_WELCOME,
                                                     .h_welcome = {.proof = span_str(proof)}});
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Files may be slow, and the stand-in waits for a word. */
static void far_on_progress(void *owner, const char *what, uint64_t done, uint64_t all)
{
    struct far *far = owner;

    (void)what, (void)done, (void)all;
    if (far_say_alive(far) == 0)
        (void)!link_write(&far->link); /* one that is lost shows elsewhere */
}

/* That folders whose files have no sums are there. */
static int far_find_folders(const struct spec_dataset *dataset, const struct data_env *env,
                            struct dl_error *err)
{
    struct stat st;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < dataset->n_files; i++) {
        const char *path = dataset->files[i].path;

        if (path && !remote_is_url(path) && !strpbrk(path, "*?[{\\"))
            r = source_stat(path, true, env, &st);
        if (r < 0)
            (void)dl_error_set(err, -r, path, "%s", strerror(-r));
    }
    for (uint32_t i = 0; r == 0 && i < dataset->n_datasets; i++)
        r = far_find_folders(&dataset->datasets[i], env, err);
    return r;
}

/* By the helper's own rights and places, whatever the daemon's are. */
static int far_check_files(struct far *far, const struct dl_msg_h_open *msg,
                           const struct dl_spec *spec, const struct data_progress *progress,
                           struct dl_error *err)
{
    _cleanup_(packed_env_deinit) struct packed_env places = {0};
    int r = packed_env_read(&places, far->lend.roots, far->lend.seen_as, err);

    places.env.progress = progress;
    if (r == 0)
        r = files_seen_compare(spec, &places.env, msg->files, msg->sums, err);
    return r == 0 && msg->serves && msg->files == 0
               ? far_find_folders(&spec->dataset, &places.env, err)
               : r;
}

/* It has all of them, and reads them by itself: neither code, nor what is behind URLs. */
static bool far_is_of_files(const struct spec_dataset *dataset)
{
    enum files_sort sort = files_sort_of(dataset->kind);

    for (uint32_t i = 0; i < dataset->n_datasets; i++) {
        if (!far_is_of_files(&dataset->datasets[i]))
            return false;
    }
    return sort != FILES_CODE && sort != FILES_PLUGIN;
}

/* Files that are not here, or other ones: those of the daemon's machine, if it gives them. */
static int far_choose_files(struct far *far, const struct dl_msg_h_open *msg,
                            const struct dl_spec *spec, const struct data_progress *progress,
                            int *ret_worker, struct dl_error *err)
{
    int r = far_check_files(far, msg, spec, progress, err);

    if (r == 0 || r == -ENOMEM || !msg->serves || !far_is_of_files(&spec->dataset) ||
        spec_is_remote(&spec->dataset))
        return r;
    fprintf(stderr, "dloaderd: files are read from the daemon's machine: %s: %s\n", err->path,
            err->message);
    *err = (struct dl_error){0};
    return far_files_init(&far->files, far->lend.memory, ret_worker);
}

/* That Python here makes the same samples. */
static int far_check_python(const struct dl_msg_h_open *msg, const struct far_worker_kind *kind,
                            struct dl_error *err)
{
    _cleanup_free_ char *theirs = span_dup(msg->python);
    char ours[ALIKE_MAX];

    if (!theirs)
        return -ENOMEM;
    int r = alike_answer(kind->interpreter, theirs, kind->progress, ours, err);
    return r < 0 ? r : alike_compare(theirs, ours, err);
}

/* By the helper's own credentials. */
static int far_offer_remote(struct far *far)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    _cleanup_fd_ int ours = pair[0];
    _cleanup_fd_ int theirs = pair[1];
    ssize_t n = fdpass_send(far->asks, "", 1, &theirs, 1, 0);
    return n < 0 ? (int)n : far_worker_offer(&far->worker, ours, REMOTE_WIRE_VERSION);
}

static int far_start_worker(struct far *far, const struct dl_msg_h_open *msg, struct dl_error *err)
{
    const struct data_progress progress = {.tell = far_on_progress, .owner = far};
    struct far_worker_kind kind = {.program = far->program,
                                   .object = far->object.bytes ? far->object.fd : -1,
                                   .progress = &progress};
    _cleanup_free_ char *interpreter = span_dup(far->lend.interpreter);
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    _cleanup_fd_ int files = -1;
    int r = interpreter ? packed_spec_read(msg->spec, &spec, err) : -ENOMEM;

    if (r == 0)
        r = far_choose_files(far, msg, &spec, &progress, &files, err);
    if (r == 0 && alike_matters(&spec)) {
        kind.interpreter = interpreter;
        r = far_check_python(msg, &kind, err);
    }
    if (r == 0)
        r = far_worker_start(&far->worker, &kind, far->lend.memory, err);
    far->remote = spec_is_remote(&spec.dataset);
    if (r == 0 && far->remote)
        r = far_offer_remote(far);
    if (r == 0 && files >= 0)
        r = far_worker_offer(&far->worker, files, REMOTE_WIRE_SERVED);
    if (r == 0)
        r = far_pictures_offer(far->asks, &far->worker, &spec.dataset);
    return r;
}

static int far_refuse(struct far *far, int r, struct dl_error *err)
{
    if (!err->code)
        (void)dl_error_set(err, -r, "", "the helper cannot open the dataset: %s", strerror(-r));
    return link_say(&far->link,
                    &(struct dl_message){.number = DL_MSG_W_FAILED,
                                         .w_failed = {.code = (uint64_t)err->code,
                                                      .path = span_str(err->path),
                                                      .message = span_str(err->message)}});
}

static int far_open(struct far *far, const struct dl_msg_h_open *msg)
{
    struct dl_msg_w_open open = {.worker = msg->worker,
                                 .workers = msg->workers,
                                 .spec = msg->spec,
                                 .roots = far->lend.roots,
                                 .seen_as = far->lend.seen_as,
                                 .plugins = far->lend.plugins,
                                 .cache = far->lend.cache,
                                 .uid = far->lend.uid};
    struct dl_error err = {0};

    far->opened = true;
    far->checksums = msg->checksums;
    int r = far_start_worker(far, msg, &err);
    sent_deinit(&far->object); /* its host has read it */
    open.sandbox = far->worker.python.pid ? far->lend.python_sandbox : far->lend.sandbox;
    if (r == 0)
        r = far_worker_open(&far->worker, &open);
    return r < 0 ? far_refuse(far, r, &err) : 0;
}

/* What follows it is waited for first, with the message as it came. */
static int far_on_open(struct far *far, const struct dl_msg_h_open *msg)
{
    struct dl_span payload = link_payload(&far->link);

    if (far->opened || far->asked.len > 0)
        return -EBADMSG;
    if (msg->object == 0)
        return far_open(far, msg);
    int r = msg->object > far->lend.memory ? -ENOMEM : sent_room(&far->object, msg->object);
    if (r == 0)
        r = buffer_append(&far->asked, payload.data, payload.len);
    if (r == 0)
        link_expect(&far->link, far->object.bytes, msg->object);
    return r;
}

static int far_on_object(struct far *far)
{
    struct dl_message msg;
    int r = message_decode(far->asked.data, far->asked.len, TO_HELPER, &msg, NULL);

    return r < 0 ? r : far_open(far, &msg.h_open);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

/* In order, as far as their slots are mapped. */
static void far_put_tasks(struct far *far)
{
    bool any = false;

    for (uint64_t i = far->begin; i < far->end - far->comes; i++) {
        struct far_task *task = &far->tasks[i % LINK_AHEAD];
        const struct far_slot *slot = &far->worker.slots[task->slot];

        if (task->put)
            continue;
        if (!slot->mapped)
            break;
        const struct queue_task record = {.task = task->number, .segment = slot->id};
        (void)task_put(far->worker.queues, &record); /* there is room for LINK_AHEAD */
        task->put = any = true;
    }
    if (any && queue_must_wake(&far->worker.queues->tasks))
        (void)eventfd_write(far->worker.task_bell, 1);
}

static int far_on_task(struct far *far, const struct dl_msg_h_task *msg)
{
    uint32_t slot;

    if (!far->ready || far->end - far->begin >= LINK_AHEAD || !link_task_fits(msg))
        return -EBADMSG;
    int r = far_worker_take(&far->worker, msg->slot_bytes, &slot);
    if (r < 0)
        return r;
    far->tasks[far->end++ % LINK_AHEAD] = (struct far_task){.number = msg->task, .slot = slot};
    far->comes = true;
    far->comes_bytes = msg->bytes;
    link_expect(&far->link, far_slot_at(&far->worker, slot), msg->bytes);
    return 0;
}

/* The worker reads this before its next task. */
static int far_foresee(struct far *far, const char *slot, uint64_t slot_bytes)
{
    uint64_t indices[FAR_FORESEEN];
    struct slot_task task;

    if (!far->remote || !slot_read_task(slot, slot_bytes, &task) || task.what != SLOT_BATCH)
        return 0;
    size_t n = (size_t)min_u64(task.samples, FAR_FORESEEN);
    for (size_t i = 0; i < n; i++)
        indices[i] = htole64(task.indices[i]);
    return far_worker_expect(&far->worker,
                             (struct dl_span){(const uint8_t *)indices, n * sizeof *indices});
}

/* The bytes of the newest are there: they must be a task, and nothing else. */
static int far_on_task_bytes(struct far *far)
{
    const struct far_task *task = &far->tasks[(far->end - 1) % LINK_AHEAD];
    const char *slot = far_slot_at(&far->worker, task->slot);
    uint64_t slot_bytes = far->worker.slots[task->slot].slot_bytes;

    if (!link_task_holds(slot, slot_bytes, far->comes_bytes))
        return -EBADMSG;
    far->comes = false;
    far_put_tasks(far);
    return far_foresee(far, slot, slot_bytes);
}

/* How many bytes of the slot the other side needs. The worker is not trusted. */
static uint64_t far_count_bytes(const struct queue_done *done, const struct slot_header *header,
                                uint64_t slot_bytes)
{
    uint64_t end = done->code == 0                                  ? done->bytes
                   : done->code == ENOBUFS || done->code == ENODATA ? SLOT_HEADER_BYTES
                                                                    : header->used;

    return max_u64(min_u64(end, slot_bytes), SLOT_HEADER_BYTES) - SLOT_HEADER_BYTES;
}

static int far_send_done(struct far *far, const struct queue_done *done)
{
    const struct far_task *task = &far->tasks[far->begin % LINK_AHEAD];
    const char *slot = far_slot_at(&far->worker, task->slot);
    uint64_t waited = slow_remote(&far->worker.queues->slow);
    uint64_t slow_ns = slow_spent(&far->worker.queues->slow);
    struct slot_header header;

    memcpy(&header, slot, sizeof header);
    uint64_t bytes = far_count_bytes(done, &header, far->worker.slots[task->slot].slot_bytes);
    int r = far_worker_tell_slow(&far->worker, &far->link);
    if (r == 0)
        r = link_say(&far->link,
                     &(struct dl_message){
                         .number = DL_MSG_H_DONE,
                         .h_done = {.task = done->task,
                                    .code = min_u64(done->code, 4095),
                                    .used = min_u64(done->bytes, DL_MAX_SEGMENT_BYTES),
                                    .samples = done->samples,
                                    .cost = done->cost_ns,
                                    .collate = done->collate_ns,
                                    .header = {(const uint8_t *)&header, sizeof header},
                                    .bytes = bytes,
                                    .sum = far->checksums ? link_done_sum(&header, slot, bytes) : 0,
                                    .waited = waited - min_u64(far->waited, waited),
                                    .slow = slow_ns - min_u64(far->slow, slow_ns)}});
    if (r < 0)
        return r;
    far->waited = waited;
    far->slow = slow_ns;
    link_add_body(&far->link,
                  (struct dl_span){(const uint8_t *)slot + SLOT_HEADER_BYTES, (size_t)bytes});
    far->goes = task->slot;
    far->begin++;
    return 0;
}

/* Before batches, as the worker waits for it. */
static int far_ask_for_file(struct far *far, const struct dl_msg_h_read *msg)
{
    int r = link_say(&far->link, &(struct dl_message){.number = DL_MSG_H_READ, .h_read = *msg});

    far->said = clock_ns();
    return r < 0 ? r : link_write(&far->link);
}

/* One batch at a time: others wait in the worker's queue. */
static int far_send_batches(struct far *far)
{
    struct dl_msg_h_read read;
    struct queue_done done;
    int r = link_write(&far->link);

    while (r == 0 && link_is_idle(&far->link)) {
        if (far_files_ask(&far->files, &read)) {
            r = far_ask_for_file(far, &read);
            continue;
        }
        if (far->goes < LINK_AHEAD)
            far->worker.slots[far->goes].busy = false;
        far->goes = LINK_AHEAD;
        if (!far->ready || !done_take(far->worker.queues, &done))
            break;
        const struct far_task *task = &far->tasks[far->begin % LINK_AHEAD];
        if (far->begin == far->end || !task->put || done.task != task->number)
            return -EPROTO;
        far->said = clock_ns();
        r = far_send_done(far, &done);
        if (r == 0)
            r = link_write(&far->link);
    }
    return r;
}

/* ---- what the stand-in says ----------------------------------------------------------------- */

static int far_on_part(struct far *far, const struct dl_msg_h_part *msg)
{
    uint8_t *to;
    int r = far_files_on_part(&far->files, msg, &to);

    if (r == 0 && to)
        link_expect(&far->link, to, msg->bytes);
    return r;
}

static int far_on_raw(struct far *far)
{
    if (!far->opened)
        return far_on_object(far);
    return far->comes ? far_on_task_bytes(far) : far_files_take(&far->files);
}

static int far_on_frame(struct far *far)
{
    struct dl_span payload = link_payload(&far->link);
    struct dl_message msg;
    int r = message_decode(payload.data, payload.len, TO_HELPER | TO_WORKER, &msg, NULL);

    if (r < 0)
        return r;
    if (msg.number == DL_MSG_H_OPEN)
        return far_on_open(far, &msg.h_open);
    if (msg.number == DL_MSG_W_FORGET)
        return far->ready ? far_worker_forget(&far->worker, &msg) : -EBADMSG;
    if (msg.number == DL_MSG_H_PART)
        return far_on_part(far, &msg.h_part);
    return msg.number == DL_MSG_H_TASK ? far_on_task(far, &msg.h_task) : -EBADMSG;
}

static int far_read_link(struct far *far)
{
    enum link_news news = LINK_NOTHING;
    int r;

    do {
        r = link_read(&far->link, &news);
        if (r == 0 && news == LINK_FRAME)
            r = far_on_frame(far);
        else if (r == 0 && news == LINK_RAW)
            r = far_on_raw(far);
    } while (r == 0 && news != LINK_NOTHING);
    return r;
}

/* ---- what the worker says ------------------------------------------------------------------- */

static int far_on_word(struct far *far, const struct dl_message *msg)
{
    switch (msg->number) {
    case DL_MSG_W_MAPPED:
        if (far_worker_mapped(&far->worker, msg->w_mapped.id) < 0)
            return -EPROTO;
        far_put_tasks(far);
        return 0;
    case DL_MSG_W_INDEXED: /* for other workers, of which there are none */
        return frame_reader_take_fd(&far->worker.reader);
    case DL_MSG_W_READY:
        if (far->ready)
            return -EPROTO;
        far->ready = true;
        break;
    case DL_MSG_W_OPENING:
        break;
    case DL_MSG_W_FAILED:
        if (msg->w_failed.segment != 0)
            return -ENOMEM;
        break;
    default:
        return -EPROTO;
    }
    return far->ready && msg->number == DL_MSG_W_OPENING ? 0 : link_say(&far->link, msg);
}

static int far_read_words(struct far *far)
{
    ssize_t n = fdpass_recv(far->worker.sock, &far->worker.reader, MSG_DONTWAIT);
    struct dl_span payload;
    struct dl_message msg;

    if (n <= 0)
        return n == -EAGAIN ? 0 : n == 0 || n == -ECONNRESET ? -ECHILD : (int)n;
    int r;
    while ((r = frame_reader_next(&far->worker.reader, &payload)) > 0) {
        if (message_decode(payload.data, payload.len, FROM_WORKER, &msg, NULL) < 0)
            return -EPROTO;
        int fd = far_on_word(far, &msg);
        if (msg.number == DL_MSG_W_INDEXED)
            close_fdp(&fd);
        else if (fd < 0)
            return fd;
    }
    return r;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static int far_wait(struct far *far)
{
    const bool works = far->worker.queues != NULL;
    const bool asks = far->files.state == FAR_FILES_IDLE;
    struct pollfd fds[4] = {{.fd = far->link.fd, .events = POLLIN},
                            {.fd = works ? far->worker.sock : -1, .events = POLLIN},
                            {.fd = works ? far->worker.done_bell : -1, .events = POLLIN},
                            {.fd = asks ? far->files.sock : -1, .events = POLLIN}};
    eventfd_t count;

    if (!link_is_idle(&far->link))
        fds[0].events |= POLLOUT;
    else if (works && !queue_sleep(&far->worker.queues->done))
        return far_send_batches(far);
    if (poll(fds, ARRAY_SIZE(fds), LINK_ALIVE_MS) < 0 && errno != EINTR)
        return -errno;
    if (works)
        queue_awake(&far->worker.queues->done);
    if (fds[2].revents)
        (void)eventfd_read(far->worker.done_bell, &count);
    int r = fds[0].revents & ~POLLOUT ? far_read_link(far) : 0;
    if (r == 0 && fds[1].revents)
        r = far_read_words(far);
    if (r == 0 && fds[3].revents)
        r = far_files_read(&far->files);
    if (r == 0)
        r = far_say_alive(far);
    return r < 0 ? r : far_send_batches(far);
}

/* The stand-in hears why, if nothing is in between. */
static void far_end(struct far *far, int r)
{
    char why[256];

    if (r == -ECHILD)
        far_worker_obituary(&far->worker, why, sizeof why);
    else
        snprintf(why, sizeof why, "%s",
                 r == -ENOMEM ? "it has no memory for batches of this size; raise limits.bytes "
                                "of the helper's configuration"
                 : r == -EBADMSG || r == -EMSGSIZE
                     ? "what the daemon's side sends is not of this protocol"
                 : r == -EPROTO ? "its worker does not follow the protocol"
                 : r == -EDQUOT ? "all its workers are lent; raise helpers.lend of its "
                                  "configuration, or ask for fewer by helpers.count"
                                : strerror(-r));
    fprintf(stderr, "dloaderd: a helper's end has ended: %s\n", why);
    if (far->link.body.len > 0)
        return;
    if (link_say(&far->link, &(struct dl_message){.number = DL_MSG_H_GONE,
                                                  .h_gone = {.why = span_str(why)}}) == 0)
        (void)!link_write(&far->link);
}

static void far_deinit(struct far *far)
{
    far_worker_deinit(&far->worker);
    far_files_deinit(&far->files);
    link_deinit(&far->link);
    frame_reader_deinit(&far->lender);
    buffer_deinit(&far->lend_bytes);
    buffer_deinit(&far->asked);
    close_fdp(&far->asks);
    close_fdp(&far->lent);
    sent_deinit(&far->object);
}

int far_run(int sock, const char *program)
{
    _cleanup_(far_deinit) struct far far = {.link = {.fd = -1},
                                            .asks = -1,
                                            .lent = -1,
                                            .goes = LINK_AHEAD,
                                            .files = {.sock = -1},
                                            .program = program};

    (void)alarm(LINK_PROVE_S);
    int r = far_read_lend(&far, sock);
    if (r == 0)
        r = far_encrypt(&far);
    if (r == 0)
        r = far_prove(&far);
    (void)alarm(0);
    if (r < 0) {
        fprintf(stderr, "dloaderd: a connection is refused: %s\n",
                r == -EACCES                      ? "it does not prove that it knows the secret"
                : r == -EPROTO                    ? "it is of another release of dloaderd"
                : r == -EBADMSG || r == -EMSGSIZE ? "it is no dloaderd"
                : r == -EPIPE                     ? "it hangs up"
                : r == -EKEYREJECTED              ? "TLS with certificates of both is not agreed on"
                : r == -ENOENT                    ? SIGV4_NO_CRYPTO
                                                  : strerror(-r));
        return 1;
    }
    far.said = clock_ns();
    r = far_take_worker(&far);
    while (r == 0)
        r = far_wait(&far);
    if (r == -EPIPE || r == -ETIMEDOUT)
        return 0;
    far_end(&far, r);
    return 1;
}
