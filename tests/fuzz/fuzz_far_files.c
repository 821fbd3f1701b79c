/*
 * Files that a helper's worker reads from the daemon's machine: questions of the worker, and what
 * the network brings as their answers, in any order and with any numbers. Whatever comes, what the
 * worker is given is what the stand-in sent, of those bytes; each question has an answer; what is
 * asked for ahead stays within its window; and what neither may say is refused.
 *
 * Input: how much memory there is; then moves, as play() has them.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input.h"

#include "daemon/helper/far_files.h"
#include "proto/fdpass.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = REMOTE_BLOCK_BYTES, FILES_MOST = 8, MOVES_MOST = 200, SOME_BLOCKS = 24 };

struct opened {
    uint32_t number;
    int fd; /* owned */
    uint64_t bytes;
    uint8_t name;
};

struct game {
    struct input in;
    struct far_files files;
    int worker;   /* owned; its end */
    uint32_t op;  /* of its open question, or 0; then: */
    uint8_t name; /* of the file that it is about */
    struct opened *about;
    uint64_t first, bytes;
    struct opened opened[FILES_MOST];
    uint32_t n;
    struct dl_msg_h_read asked[NEAR_FILES_ASKED];
    uint8_t names[NEAR_FILES_ASKED]; /* of their files */
    uint64_t begin, end;
    bool fair; /* the worker has said nothing that it may not */
    int r;
};

/* Of the file of that name: how many there are, and what each is. */
static uint64_t bytes_of(uint8_t name)
{
    return name % 4 * (uint64_t)5 * BLOCK / 3 + name % 3;
}

static uint8_t byte_at(uint8_t name, uint64_t at)
{
    return (uint8_t)(name * 37 + at / BLOCK * 11 + at / 4096);
}

static void fill(uint8_t name, uint64_t first, uint64_t bytes, uint8_t *to)
{
    for (uint64_t at = first, n; at < first + bytes; at += n) {
        n = min_u64(4096 - at % 4096, first + bytes - at);
        memset(to + (at - first), byte_at(name, at), n);
    }
}

/* ---- the worker ----------------------------------------------------------------------------- */

static void check_bytes(uint8_t name, int fd, uint64_t first, uint64_t bytes)
{
    for (uint64_t at = first; at < first + bytes; at = at + BLOCK / 2) {
        uint8_t byte;

        FUZZ_ASSERT(pread(fd, &byte, 1, (off_t)at) == 1 && byte == byte_at(name, at));
    }
}

static void check_answer(struct game *g, const struct remote_answer *answer, int fd)
{
    struct stat st;

    FUZZ_ASSERT(g->op != 0 && answer->code >= 0);
    if (answer->code) {
        FUZZ_ASSERT(fd < 0 && answer->message[0]);
    } else if (g->op == REMOTE_NEED) {
        FUZZ_ASSERT(fd < 0 && answer->bytes >= g->bytes &&
                    answer->bytes <= g->about->bytes - g->first);
        check_bytes(g->about->name, g->about->fd, g->first, answer->bytes);
    } else if (g->op == REMOTE_WHOLE) {
        FUZZ_ASSERT(fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == answer->bytes);
        check_bytes(g->name, fd, 0, answer->bytes);
    } else if (g->op == REMOTE_LIST) {
        FUZZ_ASSERT(answer->bytes == 0
                        ? fd < 0
                        : fstat(fd, &st) == 0 && (uint64_t)st.st_size == answer->bytes);
    } else if (g->op == REMOTE_PAGED) {
        FUZZ_ASSERT(fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == answer->bytes);
        FUZZ_ASSERT(answer->window >= 4 && answer->sort == REMOTE_OBJECT);
        g->opened[g->n++] = (struct opened){
            .number = answer->object, .fd = dup(fd), .bytes = answer->bytes, .name = g->name};
    }
    g->op = 0;
}

static void hear(struct game *g)
{
    struct remote_answer answer;
    ssize_t n;
    int fd;

    while ((n = fdpass_recv_packet(g->worker, &answer, sizeof answer, MSG_DONTWAIT, &fd)) > 0) {
        FUZZ_ASSERT(n > (ssize_t)offsetof(struct remote_answer, message));
        check_answer(g, &answer, fd);
        close_fdp(&fd);
    }
}

static void say(struct game *g, const struct remote_question *question)
{
    size_t bytes = offsetof(struct remote_question, url) + strlen(question->url) + 1;

    FUZZ_ASSERT(send(g->worker, question, bytes, 0) == (ssize_t)bytes);
    g->r = far_files_read(&g->files);
    FUZZ_ASSERT(g->r == 0 || !g->fair);
}

static void ask_of_path(struct game *g)
{
    static const uint32_t ops[] = {REMOTE_STAT, REMOTE_LIST, REMOTE_WHOLE, REMOTE_PAGED};
    struct remote_question question = {.op = ops[take(&g->in) % 4], .url = "/f/?"};

    if (question.op == REMOTE_PAGED && g->n == FILES_MOST)
        return;
    g->name = take(&g->in) % 12;
    g->op = question.op;
    question.url[3] = (char)('a' + g->name);
    say(g, &question);
}

/* Of a file that it has open, or perhaps none. */
static void ask_of_blocks(struct game *g, uint32_t op)
{
    struct opened *about = g->n > 0 ? &g->opened[take(&g->in) % g->n] : NULL;
    struct remote_question question = {.op = op, .object = about ? about->number : take(&g->in)};
    uint64_t first = take_number(&g->in), bytes = take_number(&g->in);

    if (!about || first * BLOCK >= about->bytes) {
        g->fair = g->fair && (op == REMOTE_EXPECT || op == REMOTE_AHEAD);
        question.first = first * 977;
        question.bytes = bytes * 977;
    } else {
        question.first = first * BLOCK;
        question.bytes = min_u64(max_u64(bytes, 1) * BLOCK, about->bytes - question.first);
        g->fair = g->fair && (question.bytes <= NEAR_FILES_MOST || op >= REMOTE_EXPECT) &&
                  (question.bytes <= NEAR_FILES_MOST || op != REMOTE_DROP);
    }
    if (op == REMOTE_NEED) {
        g->op = op;
        g->about = about;
        g->first = question.first;
        g->bytes = question.bytes;
    }
    say(g, &question);
}

static void close_file(struct game *g)
{
    struct remote_question question = {.op = REMOTE_CLOSE};

    if (g->n == 0)
        return;
    struct opened *one = &g->opened[take(&g->in) % g->n];
    question.object = one->number;
    close_fdp(&one->fd);
    *one = g->opened[--g->n];
    say(g, &question);
}

static void say_anything(struct game *g)
{
    struct remote_question question = {0};
    size_t len;
    const uint8_t *bytes = take_bytes(&g->in, 32, &len);

    g->fair = false;
    g->op = REMOTE_STAT; /* any: it may be answered */
    if (len > 0)
        memcpy(&question, bytes, len);
    if (question.op == REMOTE_NEED || question.op == REMOTE_PAGED || question.op == REMOTE_WHOLE)
        question.op = REMOTE_STAT;
    say(g, &question);
    if (g->files.state == FAR_FILES_IDLE)
        g->op = 0;
}

/* ---- the stand-in --------------------------------------------------------------------------- */

static void check_ahead(const struct game *g)
{
    const struct far_blocks *blocks = &g->files.blocks;
    uint64_t n = 0;

    for (uint32_t i = 0; i < blocks->n; i++) {
        const struct far_file *file = &blocks->files[i];

        for (uint64_t b = 0; b < min_u64(file->bytes / BLOCK, SOME_BLOCKS); b++)
            n += file->blocks[b] == FAR_BLOCK_COMES || file->blocks[b] == FAR_BLOCK_THERE;
    }
    FUZZ_ASSERT(n <= blocks->window + NEAR_FILES_MOST / BLOCK);
}

static bool be_asked(struct game *g)
{
    struct dl_msg_h_read read;
    struct dl_buffer out = {0};

    if (!far_files_ask(&g->files, &read))
        return false;
    FUZZ_ASSERT(g->end - g->begin < NEAR_FILES_ASKED);
    FUZZ_ASSERT(
        message_encode(&(struct dl_message){.number = DL_MSG_H_READ, .h_read = read}, &out) == 0);
    buffer_deinit(&out);
    g->names[g->end % NEAR_FILES_ASKED] =
        read.path.len == 4 ? (uint8_t)(read.path.data[3] - 'a') : 0;
    g->asked[g->end++ % NEAR_FILES_ASKED] = read;
    check_ahead(g);
    return true;
}

/* As near_files.c does. */
static struct dl_msg_h_part right_answer(const struct dl_msg_h_read *read, uint8_t name)
{
    struct dl_msg_h_part part = {.sort = REMOTE_OBJECT, .size = bytes_of(name), .modified = 7};

    if (read->what == NEAR_FILES_LIST)
        return (struct dl_msg_h_part){.bytes = (uint64_t)name * 8};
    if (read->what == NEAR_FILES_BYTES)
        part.bytes = min_u64(read->bytes, part.size - min_u64(part.size, read->first));
    return part;
}

static void give_answer(struct game *g, bool right)
{
    if (g->begin == g->end)
        return;
    const struct dl_msg_h_read *read = &g->asked[g->begin % NEAR_FILES_ASKED];
    uint8_t name = g->names[g->begin++ % NEAR_FILES_ASKED], *to;
    struct dl_msg_h_part part = right_answer(read, name);

    if (!right) {
        uint8_t what = take(&g->in);

        part.code = what & 1 ? take(&g->in) : 0;
        part.sort = what & 2 ? take(&g->in) % 3 : part.sort;
        part.size = what & 4 ? take_number(&g->in) * 7919 & INT64_MAX : part.size;
        part.bytes = what & 8 ? take_number(&g->in) * 4099 % (NEAR_FILES_MOST + 1) : part.bytes;
        part.bytes = part.code && !(what & 16) ? 0 : part.bytes;
    }
    g->r = far_files_on_part(&g->files, &part, &to);
    FUZZ_ASSERT(g->r == 0 || (!right && g->r == -EBADMSG));
    if (g->r < 0 || !to)
        return;
    FUZZ_ASSERT(part.bytes > 0);
    fill(name, read->first, part.bytes, to);
    g->r = far_files_take(&g->files);
    FUZZ_ASSERT(g->r == 0);
}

/* ---- the game ------------------------------------------------------------------------------- */

static void play(struct game *g)
{
    uint8_t move = take(&g->in) % 12;

    if (move < 5 && g->op != 0)
        move = 6; /* it waits */
    switch (move) {
    case 0:
        ask_of_path(g);
        break;
    case 1:
        ask_of_blocks(g, REMOTE_NEED);
        break;
    case 2:
        ask_of_blocks(g, take(&g->in) % 2 ? REMOTE_EXPECT : REMOTE_AHEAD);
        break;
    case 3:
        ask_of_blocks(g, REMOTE_DROP);
        break;
    case 4:
        close_file(g);
        break;
    case 5:
        if (g->op == 0)
            say_anything(g);
        break;
    case 6:
    case 7:
        (void)be_asked(g);
        break;
    case 8:
        give_answer(g, false);
        break;
    default:
        give_answer(g, true);
    }
    if (g->r == 0)
        hear(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct game g = {.in = {data, len}, .fair = true};

    if (far_files_init(&g.files, (1 + take(&g.in) % 12) * (uint64_t)8 * BLOCK, &g.worker) < 0)
        return 0;
    for (int i = 0; i < MOVES_MOST && g.in.len > 0 && g.r == 0; i++)
        play(&g);
    while (g.r == 0 && (be_asked(&g) || g.begin < g.end)) {
        give_answer(&g, true);
        if (g.r == 0)
            hear(&g);
    }
    FUZZ_ASSERT(g.r < 0 || g.op == 0); /* nobody waits in vain */
    while (g.n > 0)
        close_fdp(&g.opened[--g.n].fd);
    close(g.worker);
    far_files_deinit(&g.files);
    return 0;
}
