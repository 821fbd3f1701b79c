#include "daemon/helper/far_files.h"

#include "daemon/helper/near_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

enum { WINDOW_LEAST = 4, WINDOW_MOST = 4096, WINDOW_PART = 8 };

struct far_file {
    uint32_t number;
    int fd; /* owned; its blocks, where the worker has them */
    uint64_t bytes;
    char *path; /* owned */
};

int far_files_init(struct far_files *files, uint64_t memory, int *ret_worker)
{
    int pair[2];

    *files = (struct far_files){.sock = -1, .whole = -1, .memory = memory};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    files->sock = pair[0];
    *ret_worker = pair[1];
    return 0;
}

static void far_files_drop(struct far_files *files, struct far_file *file)
{
    close_fdp(&file->fd);
    free(file->path);
    *file = files->files[--files->n];
}

void far_files_deinit(struct far_files *files)
{
    while (files->n > 0)
        far_files_drop(files, &files->files[0]);
    free(files->files);
    free(files->part);
    if (files->sock >= 0) {
        close_fdp(&files->whole);
        close_fdp(&files->sock);
    }
}

/* ---- answers -------------------------------------------------------------------------------- */

/* The worker waits for it: there is room. */
static int far_files_answer(struct far_files *files, const struct remote_answer *answer, int fd)
{
    union {
        struct cmsghdr align;
        uint8_t space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {(void *)(uintptr_t)answer,
                        offsetof(struct remote_answer, message) + strlen(answer->message) + 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd >= 0) {
        msg.msg_control = control.space;
        msg.msg_controllen = sizeof control.space;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    files->state = FAR_FILES_IDLE;
    return sendmsg(files->sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -ECHILD : 0;
}

static int far_files_refuse(struct far_files *files, int code)
{
    struct remote_answer answer = {.code = code};

    close_fdp(&files->whole);
    snprintf(answer.message, sizeof answer.message, "%s (on the daemon's machine)", strerror(code));
    return far_files_answer(files, &answer, -1);
}

static struct remote_answer far_files_describe(const struct far_files *files)
{
    const struct dl_msg_h_part *head = &files->head;
    const uint64_t what[] = {head->size, head->modified};
    const char *path = files->question.url;

    return (struct remote_answer){
        .sort = (uint32_t)head->sort,
        .bytes = head->size,
        .identity = XXH3_64bits_withSeed(path, strlen(path), XXH3_64bits(what, sizeof what)),
        .modified = (int64_t)head->modified};
}

static int far_files_memory(uint64_t bytes)
{
    int fd = memfd_create("dloader-file", MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, (off_t)bytes) < 0)
        close_fdp(&fd);
    return fd;
}

/* ---- what the stand-in says ----------------------------------------------------------------- */

/* It takes memory by and by. */
static int far_files_open_map(struct far_files *files)
{
    struct remote_answer answer = far_files_describe(files);
    struct far_file *grown = realloc(files->files, (files->n + 1) * sizeof *grown);

    if (!grown)
        return far_files_refuse(files, ENOMEM);
    files->files = grown;
    struct far_file file = {.number = ++files->last_number,
                            .fd = far_files_memory(answer.bytes),
                            .bytes = answer.bytes,
                            .path = strdup(files->question.url)};
    if (file.fd < 0 || !file.path) {
        close_fdp(&file.fd);
        free(file.path);
        return far_files_refuse(files, ENOMEM);
    }
    files->files[files->n++] = file;
    answer.object = file.number;
    answer.window = (uint32_t)min_u64(
        max_u64(files->memory / WINDOW_PART / REMOTE_BLOCK_BYTES, WINDOW_LEAST), WINDOW_MOST);
    return far_files_answer(files, &answer, file.fd);
}

static int far_files_go_on(struct far_files *files)
{
    struct remote_answer answer = {
        .sort = REMOTE_OBJECT, .bytes = files->whole_bytes, .identity = files->head.modified};

    if (files->at < files->whole_bytes) {
        files->state = FAR_FILES_TO_ASK;
        return 0;
    }
    (void)lseek(files->whole, 0, SEEK_SET);
    int r = far_files_answer(files, &answer, files->whole);
    close_fdp(&files->whole);
    return r;
}

static int far_files_begin_whole(struct far_files *files)
{
    files->whole_bytes = files->head.size;
    files->at = 0;
    files->whole = files->whole_bytes > files->memory ? -1 : far_files_memory(files->whole_bytes);
    return files->whole < 0 ? far_files_refuse(files, ENOMEM) : far_files_go_on(files);
}

static int far_files_take_whole(struct far_files *files)
{
    uint64_t n = files->head.bytes;

    if (n == 0 || pwrite(files->whole, files->part, n, (off_t)files->at) != (ssize_t)n)
        return far_files_refuse(files, EIO); /* it has become shorter */
    files->at += n;
    return far_files_go_on(files);
}

static int far_files_take_list(struct far_files *files)
{
    struct remote_answer answer = {.sort = REMOTE_DIRECTORY, .bytes = files->head.bytes};
    _cleanup_fd_ int fd = files->head.bytes ? far_files_memory(0) : -1;

    if (files->head.bytes &&
        (fd < 0 || pwrite(fd, files->part, files->head.bytes, 0) != (ssize_t)files->head.bytes))
        return far_files_refuse(files, ENOMEM);
    return far_files_answer(files, &answer, fd);
}

static struct far_file *far_files_find(const struct far_files *files)
{
    for (uint32_t i = 0; i < files->n; i++) {
        if (files->files[i].number == files->question.object)
            return &files->files[i];
    }
    return NULL;
}

static int far_files_take_block(struct far_files *files)
{
    const struct remote_question *asked = &files->question;
    const struct remote_answer answer = {.bytes = asked->bytes, .waited = true};
    const struct far_file *file = far_files_find(files);

    if (files->head.bytes != asked->bytes ||
        pwrite(file->fd, files->part, asked->bytes, (off_t)asked->first) != (ssize_t)asked->bytes)
        return far_files_refuse(files, EIO);
    return far_files_answer(files, &answer, -1);
}

int far_files_on_part(struct far_files *files, const struct dl_msg_h_part *msg, uint8_t **ret)
{
    *ret = NULL;
    if (files->sock < 0 || files->state != FAR_FILES_ASKED || msg->bytes > NEAR_FILES_MOST)
        return -EBADMSG;
    files->head = *msg;
    if (!files->part && !(files->part = malloc(NEAR_FILES_MOST)))
        return -ENOMEM;
    if (msg->bytes == 0)
        return far_files_take(files);
    *ret = files->part;
    return 0;
}

int far_files_take(struct far_files *files)
{
    const struct dl_msg_h_part *head = &files->head;

    if (head->code)
        return far_files_refuse(files, (int)head->code);
    switch (files->question.op) {
    case REMOTE_LIST:
        return far_files_take_list(files);
    case REMOTE_NEED:
        return far_files_take_block(files);
    case REMOTE_STAT: {
        const struct remote_answer answer = far_files_describe(files);

        return far_files_answer(files, &answer, -1);
    }
    default:
        break;
    }
    if (files->whole >= 0)
        return far_files_take_whole(files);
    if (head->sort != REMOTE_OBJECT)
        return far_files_refuse(files, EISDIR);
    return (files->question.op == REMOTE_PAGED ? far_files_open_map : far_files_begin_whole)(files);
}

/* ---- what the worker says ------------------------------------------------------------------- */

/* False: they are none of the file's. */
static bool far_files_blocks_fit(const struct far_files *files)
{
    const struct remote_question *asked = &files->question;
    const struct far_file *file = far_files_find(files);

    return file && asked->first % REMOTE_BLOCK_BYTES == 0 && asked->bytes > 0 &&
           asked->bytes <= NEAR_FILES_MOST && asked->first < file->bytes &&
           asked->bytes <= file->bytes - asked->first;
}

static int far_files_on_question(struct far_files *files)
{
    struct far_file *file = far_files_find(files);

    switch (files->question.op) {
    case REMOTE_STAT:
    case REMOTE_LIST:
    case REMOTE_WHOLE:
    case REMOTE_PAGED:
        files->state = FAR_FILES_TO_ASK;
        return 0;
    case REMOTE_NEED:
        files->state = FAR_FILES_TO_ASK;
        return far_files_blocks_fit(files) ? 0 : -EPROTO;
    case REMOTE_DROP:
        if (!far_files_blocks_fit(files))
            return -EPROTO;
        (void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)files->question.first, (off_t)files->question.bytes);
        return 0;
    case REMOTE_CLOSE:
        if (file)
            far_files_drop(files, file);
        return file ? 0 : -EPROTO;
    case REMOTE_EXPECT:
    case REMOTE_AHEAD:
    case REMOTE_ANEW:
        return 0;
    default:
        return -EPROTO;
    }
}

int far_files_read(struct far_files *files)
{
    struct remote_question *question = &files->question;
    ssize_t n = 1;

    while (files->state == FAR_FILES_IDLE) {
        n = recv(files->sock, question, sizeof *question, MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        if (n == 0)
            return -ECHILD;
        if (n <= (ssize_t)offsetof(struct remote_question, url))
            return -EPROTO;
        ((char *)question)[n - 1] = '\0';
        int r = far_files_on_question(files);
        if (r < 0)
            return r;
    }
    return 0;
}

struct dl_msg_h_read far_files_ask(struct far_files *files)
{
    const struct remote_question *asked = &files->question;
    struct dl_msg_h_read msg = {.what = NEAR_FILES_STAT, .path = span_str(asked->url)};

    files->state = FAR_FILES_ASKED;
    if (asked->op == REMOTE_LIST)
        msg.what = NEAR_FILES_LIST;
    if (asked->op == REMOTE_NEED) {
        msg = (struct dl_msg_h_read){.what = NEAR_FILES_BYTES,
                                     .path = span_str(far_files_find(files)->path),
                                     .first = asked->first,
                                     .bytes = asked->bytes};
    } else if (files->whole >= 0) {
        msg.what = NEAR_FILES_BYTES;
        msg.first = files->at;
        msg.bytes = min_u64(files->whole_bytes - files->at, NEAR_FILES_MOST);
    }
    return msg;
}
