#include "daemon/helper/far_files.h"

#include "proto/common/sealed.h"
#include "proto/fdpass.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    WINDOW_LEAST = FAR_BLOCKS_AT_ONCE,
    WINDOW_MOST = 4096,
    WINDOW_PART = 8, /* of the memory the worker may have so much in use, and as much may be there
                        before it needs it */
    RUN_BLOCKS = 16, /* further ones that come with an answer to REMOTE_NEED */
};

int far_files_init(struct far_files *files, uint64_t memory, int *ret_worker)
{
    uint64_t window = memory / WINDOW_PART / REMOTE_BLOCK_BYTES;
    int pair[2];

    *files = (struct far_files){
        .sock = -1,
        .whole = -1,
        .memory = memory,
        .blocks = {.window = (uint32_t)min_u64(max_u64(window, WINDOW_LEAST), WINDOW_MOST)}};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    files->sock = pair[0];
    *ret_worker = pair[1];
    return 0;
}

void far_files_deinit(struct far_files *files)
{
    far_blocks_deinit(&files->blocks);
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
    ssize_t n =
        fdpass_send(files->sock, answer, remote_answer_bytes(answer), &fd, fd >= 0, MSG_DONTWAIT);

    files->state = FAR_FILES_IDLE;
    return n < 0 ? -ECHILD : 0;
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

/* As much as it needs is there: that, and what follows, if that is there anyway. Or it comes. */
static int far_files_give(struct far_files *files)
{
    struct far_range run = files->needed;
    struct far_file *file = far_blocks_find(&files->blocks, run.file);
    uint64_t blocks = far_file_range(file, files->question.first, file->bytes).n;

    run.n = (uint32_t)min_u64(max_u64(min_u64(run.n + RUN_BLOCKS, files->blocks.window / 2), run.n),
                              blocks);
    uint32_t there = far_range_there(file, &run);
    if (there < files->needed.n) {
        bool missing = far_range_missing(file, &files->needed) != UINT64_MAX;

        files->waited = true;
        files->state = missing ? FAR_FILES_TO_ASK : FAR_FILES_ASKED;
        return 0;
    }
    run.n = there;
    far_blocks_take(&files->blocks, &run);
    const struct remote_answer answer = {.bytes = far_range_bytes(file, &run),
                                         .waited = files->waited};
    return far_files_answer(files, &answer, -1);
}

/* ---- what the stand-in says ----------------------------------------------------------------- */

/* It takes memory by and by. */
static int far_files_open_map(struct far_files *files)
{
    struct remote_answer answer = far_files_describe(files);
    struct far_file *file;
    /* Who says how large a file is, is not taken at its word. */
    int r = far_blocks_add(&files->blocks, files->question.url, answer.bytes, files->memory, &file);

    if (r < 0)
        return far_files_refuse(files, -r);
    answer.object = file->number;
    answer.window = files->blocks.window;
    return far_files_answer(files, &answer, file->fd);
}

static int far_files_begin_whole(struct far_files *files)
{
    if (files->head.sort != REMOTE_OBJECT)
        return -EISDIR;
    files->described = far_files_describe(files);
    files->at = 0;
    files->whole =
        files->head.size > files->memory ? -1 : memfd_create("dloader-file", MFD_CLOEXEC);
    return files->whole < 0 ? -ENOMEM : 0;
}

/* The first of its parts says how large it is. */
static int far_files_take_whole(struct far_files *files)
{
    uint64_t n = files->head.bytes;
    int r = files->whole < 0 ? far_files_begin_whole(files) : 0;

    if (r < 0)
        return far_files_refuse(files, -r);
    uint64_t left = files->described.bytes - files->at;
    if (n != min_u64(left, NEAR_FILES_MOST) ||
        pwrite(files->whole, files->part, n, (off_t)files->at) != (ssize_t)n)
        return far_files_refuse(files, EIO); /* it has become shorter */
    files->at += n;
    files->state = FAR_FILES_TO_ASK;
    if (n < left)
        return 0;
    r = far_files_answer(files, &files->described, files->whole);
    close_fdp(&files->whole);
    return r;
}

static int far_files_take_list(struct far_files *files)
{
    struct remote_answer answer = {.sort = REMOTE_DIRECTORY, .bytes = files->head.bytes};
    _cleanup_fd_ int fd =
        answer.bytes ? sealed_new("dloader-names", files->part, answer.bytes) : -1;

    return answer.bytes && fd < 0 ? far_files_refuse(files, ENOMEM)
                                  : far_files_answer(files, &answer, fd);
}

static int far_files_take_blocks(struct far_files *files, const struct far_range *range)
{
    const struct far_range *needed = &files->needed;
    bool came = far_blocks_came(&files->blocks, range, files->part, files->head.bytes);

    if (files->state == FAR_FILES_IDLE || files->question.op != REMOTE_NEED)
        return 0;
    if (!came && range->file == needed->file && range->first < needed->first + needed->n &&
        needed->first < range->first + range->n)
        return far_files_refuse(files, files->head.code ? (int)files->head.code : EIO);
    return far_files_give(files);
}

int far_files_on_part(struct far_files *files, const struct dl_msg_h_part *msg, uint8_t **ret)
{
    *ret = NULL;
    if (files->begin == files->end ||
        msg->bytes > (msg->code ? 0 : files->asks[files->begin % NEAR_FILES_ASKED].most))
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
    const struct far_range range = files->asks[files->begin++ % NEAR_FILES_ASKED].range;
    const struct dl_msg_h_part *head = &files->head;

    if (range.n > 0)
        return far_files_take_blocks(files, &range);
    if (head->code)
        return far_files_refuse(files, (int)head->code);
    switch (files->question.op) {
    case REMOTE_LIST:
        return far_files_take_list(files);
    case REMOTE_STAT: {
        const struct remote_answer answer = far_files_describe(files);

        return far_files_answer(files, &answer, -1);
    }
    case REMOTE_WHOLE:
        return far_files_take_whole(files);
    default:
        return head->sort == REMOTE_OBJECT ? far_files_open_map(files)
                                           : far_files_refuse(files, EISDIR);
    }
}

/* ---- what the worker says ------------------------------------------------------------------- */

static struct far_file *far_files_find(const struct far_files *files)
{
    return far_blocks_find(&files->blocks, files->question.object);
}

/* False: they are none of the file's. */
static bool far_files_blocks_fit(const struct far_files *files, const struct far_file *file)
{
    const struct remote_question *asked = &files->question;

    return file && asked->first % REMOTE_BLOCK_BYTES == 0 && asked->bytes > 0 &&
           asked->bytes <= NEAR_FILES_MOST && asked->first < file->bytes &&
           asked->bytes <= file->bytes - asked->first;
}

static int far_files_on_blocks(struct far_files *files)
{
    const struct remote_question *asked = &files->question;
    struct far_file *file = far_files_find(files);

    if (!far_files_blocks_fit(files, file))
        return -EPROTO;
    const struct far_range range = far_file_range(file, asked->first, asked->bytes);
    if (asked->op == REMOTE_DROP) {
        far_range_drop(file, &range);
        return 0;
    }
    files->needed = range;
    files->waited = false;
    return far_files_give(files);
}

static int far_files_on_question(struct far_files *files)
{
    const struct remote_question *asked = &files->question;
    struct far_file *file = far_files_find(files);

    switch (asked->op) {
    case REMOTE_STAT:
    case REMOTE_LIST:
    case REMOTE_WHOLE:
    case REMOTE_PAGED:
        files->state = FAR_FILES_TO_ASK;
        return 0;
    case REMOTE_NEED:
    case REMOTE_DROP:
        return far_files_on_blocks(files);
    case REMOTE_CLOSE:
        if (file)
            far_blocks_remove(&files->blocks, file);
        return file ? 0 : -EPROTO;
    case REMOTE_EXPECT:
    case REMOTE_AHEAD:
        if (file && !*asked->url)
            far_blocks_expect(&files->blocks, file, asked->first, asked->bytes);
        return 0;
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

/* ---- what to ask ---------------------------------------------------------------------------- */

static struct dl_msg_h_read far_files_ask_blocks(const struct far_files *files,
                                                 const struct far_range *range)
{
    const struct far_file *file = far_blocks_find(&files->blocks, range->file);

    return (struct dl_msg_h_read){.what = NEAR_FILES_BYTES,
                                  .path = span_str(file->path),
                                  .first = range->first * REMOTE_BLOCK_BYTES,
                                  .bytes = far_range_bytes(file, range)};
}

/* Of what it needs, as many blocks as nobody has asked for. */
static struct far_range far_files_ask_needed(struct far_files *files)
{
    const struct far_range *needed = &files->needed;
    struct far_file *file = far_blocks_find(&files->blocks, needed->file);
    struct far_range range = {.file = needed->file, .first = far_range_missing(file, needed)};

    while (range.first + range.n < needed->first + needed->n &&
           file->blocks[range.first + range.n] == FAR_BLOCK_NONE)
        range.n++;
    far_range_ask(file, &range);
    files->state =
        far_range_missing(file, needed) != UINT64_MAX ? FAR_FILES_TO_ASK : FAR_FILES_ASKED;
    return range;
}

static struct dl_msg_h_read far_files_ask_path(struct far_files *files)
{
    const struct remote_question *asked = &files->question;
    struct dl_msg_h_read msg = {.what = NEAR_FILES_STAT, .path = span_str(asked->url)};

    files->state = FAR_FILES_ASKED;
    if (asked->op == REMOTE_LIST)
        msg.what = NEAR_FILES_LIST;
    if (asked->op == REMOTE_WHOLE) {
        msg.what = NEAR_FILES_BYTES;
        msg.first = files->whole < 0 ? 0 : files->at;
        msg.bytes = NEAR_FILES_MOST;
    }
    return msg;
}

bool far_files_ask(struct far_files *files, struct dl_msg_h_read *ret)
{
    struct far_range range = {0};

    if (files->sock < 0 || files->end - files->begin == NEAR_FILES_ASKED)
        return false;
    if (files->state == FAR_FILES_TO_ASK && files->question.op == REMOTE_NEED)
        range = far_files_ask_needed(files);
    else if (files->state != FAR_FILES_TO_ASK && !far_blocks_next(&files->blocks, &range))
        return false;
    *ret = range.n > 0 ? far_files_ask_blocks(files, &range) : far_files_ask_path(files);
    files->asks[files->end++ % NEAR_FILES_ASKED] = (struct far_ask){
        .range = range, .most = ret->what == NEAR_FILES_LIST ? NEAR_FILES_MOST : ret->bytes};
    return true;
}
