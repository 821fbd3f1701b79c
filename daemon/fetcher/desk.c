#include "daemon/fetcher/desk_private.h"

#include "daemon/base/memory.h"
#include "proto/fdpass.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include <utlist.h>

enum {
    DESK_RUN_BLOCKS = 16,   /* further ones that come with an answer to REMOTE_NEED */
    DESK_STAT_BYTES = 4096, /* of an object that may not be read at all */
    DESK_WINDOW_PART = 8,   /* of the memory a worker may have so much in use, */
    DESK_WINDOW_LEAST = 4,
    DESK_WINDOW_MOST = 4096,
};

/* ---- answers -------------------------------------------------------------------------------- */

/* The worker waits for it: there is room. */
static void asker_send(struct asker *asker, const struct remote_answer *answer, int fd)
{
    if (fdpass_send(asker->sock, answer, remote_answer_bytes(answer), &fd, fd >= 0, MSG_DONTWAIT) <
        0)
        (void)shutdown(asker->sock, SHUT_RDWR);
}

static void asker_end_question(struct asker *asker)
{
    struct object *object = steal_ptr(asker->object);

    asker->op = 0;
    asker->file = NULL;
    if (!object)
        return;
    if (asker->n > 0)
        blocks_leave(&asker->desk->objects, object, asker->first, asker->n);
    asker->first = asker->n = 0; /* no blocks concern the next one until it has some */
    object_leave(&asker->desk->objects, object);
}

void asker_answer(struct asker *asker, const struct remote_answer *answer, int fd)
{
    assert(asker->op != 0);
    asker_send(asker, answer, fd);
    asker_end_question(asker);
}

void asker_refuse(struct asker *asker, int code, const struct dl_error *err)
{
    struct remote_answer answer = {.code = -code};

    snprintf(answer.message, sizeof answer.message, "%s",
             err && err->message[0] ? err->message : strerror(-code));
    asker_answer(asker, &answer, -1);
}

static void asker_describe(const struct object *object, struct remote_answer *ret)
{
    *ret = (struct remote_answer){.sort = REMOTE_OBJECT,
                                  .bytes = object->bytes,
                                  .identity = object->identity,
                                  .modified = object->modified < 0 ? 0 : object->modified};
}

/* ---- files that a worker maps --------------------------------------------------------------- */

static struct asker_file *asker_find_file(struct asker *asker, uint32_t number)
{
    struct asker_file *file;

    HASH_FIND(hh, asker->files, &number, sizeof number, file);
    return file;
}

/* Its number. */
static uint32_t asker_add_file(struct asker *asker, struct object *object)
{
    struct asker_file *file = must_alloc(sizeof *file);

    file->number = ++asker->last_number;
    file->object = object;
    file->in_use = must_alloc(object->n_blocks + 1);
    object_use(object);
    HASH_ADD(hh, asker->files, number, sizeof file->number, file);
    return file->number;
}

static void asker_drop_blocks(struct asker *asker, struct asker_file *file, uint64_t first,
                              uint64_t n)
{
    for (uint64_t i = first; i < first + n; i++) {
        if (file->in_use[i])
            blocks_leave(&asker->desk->objects, file->object, i, 1);
        file->in_use[i] = 0;
    }
}

static void asker_remove_file(struct asker *asker, struct asker_file *file)
{
    asker_drop_blocks(asker, file, 0, file->object->n_blocks);
    HASH_DEL(asker->files, file);
    object_leave(&asker->desk->objects, file->object);
    free(file->in_use);
    free(file);
}

/* ---- questions that wait -------------------------------------------------------------------- */

static uint32_t desk_window(const struct desk *desk)
{
    uint64_t blocks = desk->objects.limit / REMOTE_BLOCK_BYTES / DESK_WINDOW_PART;

    return (uint32_t)min_u64(max_u64(blocks, DESK_WINDOW_LEAST), DESK_WINDOW_MOST);
}

/* A worker has them now: where they came from, the first time; then they were there. */
static void desk_count_given(struct desk *desk, struct object *object, uint64_t first, uint64_t n)
{
    struct remote_tally *tally = transfers_tally(desk->transfers);

    for (uint64_t i = first; i < first + n; i++) {
        const struct block *block = &object->blocks[i];

        remote_tally_add(tally,
                         block->given       ? REMOTE_FROM_MEMORY
                         : block->from_disk ? REMOTE_FROM_DISK
                         : block->from_peer ? REMOTE_FROM_PEERS
                                            : REMOTE_FROM_STORE,
                         (int64_t)object_bytes_of(object, i, 1));
        object_give(&desk->objects, object, i);
    }
}

static void asker_serve_open(struct asker *asker, bool mapped)
{
    struct object *object = asker->object;
    struct remote_answer answer;
    _cleanup_fd_ int fd = -1;
    int r = object_open(object, mapped, &fd);

    if (r < 0) {
        asker_refuse(asker, r, NULL);
        return;
    }
    asker_describe(object, &answer);
    if (mapped) {
        answer.object = asker_add_file(asker, object);
        answer.window = desk_window(asker->desk);
    } else {
        desk_count_given(asker->desk, object, 0, object->n_blocks);
    }
    asker_answer(asker, &answer, fd);
}

static void asker_serve_whole(struct asker *asker)
{
    struct object *object = asker->object;

    if (asker->n == 0 && object->n_blocks > 0) {
        asker->first = 0;
        asker->n = object->n_blocks;
        blocks_use(&asker->desk->objects, object, 0, asker->n);
        desk_want(asker->desk, object, 0, asker->n, true);
    }
    if (object_there(object, 0, object->n_blocks) == object->n_blocks)
        asker_serve_open(asker, false);
}

/* How many blocks it gets at most: those that it needs, and what follows, if that is there anyway.
 * Of its window, the half: what else it reads by the same instruction stays with it. */
static uint64_t asker_run(const struct asker *asker)
{
    uint64_t run = min_u64(asker->n + DESK_RUN_BLOCKS, desk_window(asker->desk) / 2);

    return min_u64(max_u64(run, asker->n), asker->object->n_blocks - asker->first);
}

static void asker_serve_need(struct asker *asker)
{
    struct object *object = asker->object;
    uint64_t most = asker_run(asker);
    uint64_t there = object_there(object, asker->first, most);
    struct remote_answer answer;

    if (there < asker->n)
        return;
    for (uint64_t i = asker->first; i < asker->first + there; i++) {
        if (asker->file->in_use[i])
            continue;
        blocks_use(&asker->desk->objects, object, i, 1);
        desk_count_given(asker->desk, object, i, 1);
        asker->file->in_use[i] = 1;
    }
    asker_describe(object, &answer);
    answer.bytes = object_bytes_of(object, asker->first, there);
    answer.waited = asker->waited;
    asker_answer(asker, &answer, -1);
}

static uint64_t desk_probe_bytes(uint32_t op)
{
    switch (op) {
    case REMOTE_STAT:
        return DESK_STAT_BYTES;
    case REMOTE_PAGED:
        return REMOTE_BLOCK_BYTES;
    default:
        return TRANSFER_BYTES_MAX;
    }
}

bool asker_knows(const struct asker *asker, const struct object *object)
{
    return object->bytes != REMOTE_UNKNOWN && object->checked >= asker->since;
}

void asker_serve(struct asker *asker)
{
    struct remote_answer answer;

    if (asker->op != REMOTE_NEED && !asker_knows(asker, asker->object)) {
        desk_probe(asker->desk, asker->object, desk_probe_bytes(asker->op));
        return;
    }
    switch (asker->op) {
    case REMOTE_STAT:
        asker_describe(asker->object, &answer);
        asker_answer(asker, &answer, -1);
        break;
    case REMOTE_WHOLE:
        asker_serve_whole(asker);
        break;
    case REMOTE_PAGED:
        asker_serve_open(asker, true);
        break;
    default:
        asker_serve_need(asker);
    }
}

/* ---- questions ------------------------------------------------------------------------------ */

/* Used by the caller. Negative errno with `err`. */
static int desk_find_object(struct desk *desk, const char *url, struct object **ret,
                            struct dl_error *err)
{
    struct object *object = objects_find(&desk->objects, url);
    struct remote_place place;

    if (object) {
        object_use(object);
    } else {
        int r = transfers_check(desk->transfers, err);
        if (r == 0)
            r = remote_place_parse(url, transfers_settings(desk->transfers), &place, err);
        if (r < 0)
            return r;
        object = objects_add(&desk->objects, url, &place);
    }
    *ret = object;
    return 0;
}

static void asker_ask_url(struct asker *asker, const char *url)
{
    struct desk *desk = asker->desk;
    struct dl_error err = {0};
    int r = desk_find_object(desk, url, &asker->object, &err);

    if (r < 0)
        asker_refuse(asker, r, &err);
    else
        asker_serve(asker);
}

void asker_ask_again(struct asker *asker)
{
    struct object *object = asker->object;
    uint32_t op = asker->op;

    object_use(object);
    asker_end_question(asker);
    asker->op = op;
    asker_ask_url(asker, object->url);
    object_leave(&asker->desk->objects, object);
}

/* As many of the bytes as it has. Where it ends is known by now. */
void desk_expect(struct desk *desk, struct object *object, uint64_t first, uint64_t bytes)
{
    if (first == REMOTE_FROM_END)
        first = object->bytes - min_u64(object->bytes, bytes);
    if (first >= object->bytes)
        return;
    bytes = min_u64(bytes, object->bytes - first);
    uint64_t block = first / REMOTE_BLOCK_BYTES;
    if (bytes > 0)
        desk_want(desk, object, block, (first + bytes - 1) / REMOTE_BLOCK_BYTES + 1 - block, false);
}

void asker_expect(struct asker *asker, struct object *object, uint64_t first, uint64_t bytes)
{
    struct desk *desk = asker->desk;
    /* A part of a block would not be kept. */
    uint64_t probe = min_u64(first == REMOTE_FROM_END ? 0 : bytes, TRANSFER_BYTES_MAX);

    probe = probe > DESK_STAT_BYTES ? blocks_of(probe) * REMOTE_BLOCK_BYTES : DESK_STAT_BYTES;
    if (asker_knows(asker, object))
        desk_expect(desk, object, first, bytes);
    else if (objects_have_room(&desk->objects, transfers_guess(desk->transfers, probe)))
        desk_probe_expected(desk, object, asker->since, probe, first, bytes);
}

/* Nobody waits for it. */
static void asker_expect_question(struct asker *asker, struct object *object,
                                  const struct remote_question *question)
{
    if (question->op == REMOTE_AHEAD)
        asker_put_ahead(asker, object, question->first, question->bytes);
    else
        asker_expect(asker, object, question->first, question->bytes);
}

static void asker_expect_url(struct asker *asker, const struct remote_question *question)
{
    size_t len = strlen(question->url);
    struct object *object;

    if (question->op == REMOTE_EXPECT && question->url[len - 1] == '/') {
        char url[REMOTE_ASKED_MAX];

        memcpy(url, question->url, len);
        url[len - 1] = '\0';
        desk_list_expect(asker, url);
        return;
    }
    if (desk_find_object(asker->desk, question->url, &object, NULL) < 0)
        return;
    asker_expect_question(asker, object, question);
    object_leave(&asker->desk->objects, object);
}

/* False: they are none of the file's. */
static bool asker_blocks_of(const struct asker_file *file, const struct remote_question *question,
                            uint64_t *ret_first, uint64_t *ret_n)
{
    const struct object *object = file ? file->object : NULL;

    if (!object || question->bytes == 0 || question->first % REMOTE_BLOCK_BYTES != 0 ||
        question->first >= object->bytes || question->bytes > object->bytes - question->first)
        return false;
    *ret_first = question->first / REMOTE_BLOCK_BYTES;
    *ret_n = blocks_of(question->bytes);
    return true;
}

static bool asker_ask_file(struct asker *asker, const struct remote_question *question)
{
    struct desk *desk = asker->desk;
    struct asker_file *file = asker_find_file(asker, question->object);
    uint64_t first, n;

    if (question->op == REMOTE_CLOSE) {
        if (file)
            asker_remove_file(asker, file);
        return file != NULL;
    }
    if (!asker_blocks_of(file, question, &first, &n))
        return false;
    if (question->op == REMOTE_DROP) {
        asker_drop_blocks(asker, file, first, n);
        return true;
    }
    if (question->op == REMOTE_EXPECT || question->op == REMOTE_AHEAD) {
        asker_expect_question(asker, file->object, question);
        return true;
    }
    asker->op = REMOTE_NEED;
    asker->file = file;
    asker->object = file->object;
    object_use(file->object);
    asker->first = first;
    asker->n = n;
    blocks_use(&desk->objects, file->object, first, n);
    desk_want(desk, file->object, first, n, true);
    asker->waited = false;
    asker_serve(asker);
    asker->waited = asker->op != 0 && transfers_have_room(desk->transfers);
    return true;
}

/* False: it is no question, or comes while another one is open. */
static bool asker_ask(struct asker *asker, const struct remote_question *question)
{
    const char *url = question->url;
    bool has_answer = question->op <= REMOTE_NEED;

    if (has_answer && asker->op != 0)
        return false;
    switch (question->op) {
    case REMOTE_STAT:
    case REMOTE_WHOLE:
    case REMOTE_PAGED:
        asker->op = question->op;
        asker_ask_url(asker, url);
        return true;
    case REMOTE_LIST:
        asker->op = REMOTE_LIST;
        desk_list(asker, url, false);
        return true;
    case REMOTE_ANEW:
        asker_forget_ahead(asker);
        return true;
    case REMOTE_EXPECT:
    case REMOTE_AHEAD:
        if (*url) {
            asker_expect_url(asker, question);
            return true;
        }
        return asker_ask_file(asker, question);
    case REMOTE_NEED:
    case REMOTE_DROP:
    case REMOTE_CLOSE:
        return asker_ask_file(asker, question);
    default:
        return false;
    }
}

/* ---- askers --------------------------------------------------------------------------------- */

static void asker_closed(uv_handle_t *handle)
{
    free(container_of(handle, struct asker, poll));
}

static void asker_free(struct asker *asker)
{
    struct asker_file *file, *next;

    desk_walk_cancel(asker);
    asker_forget_ahead(asker);
    asker_end_question(asker);
    HASH_ITER (hh, asker->files, file, next)
        asker_remove_file(asker, file);
    DL_DELETE(asker->desk->askers, asker);
    uv_poll_stop(&asker->poll);
    close_fdp(&asker->sock);
    uv_close((uv_handle_t *)&asker->poll, asker_closed);
    if (!asker->desk->askers && asker->desk->unused)
        asker->desk->unused(asker->desk->owner);
}

/* Packets of one client at once: others have questions, too. */
enum { DESK_PACKETS = 64 };

static void asker_on_poll(uv_poll_t *poll, int status, int events)
{
    struct asker *asker = container_of(poll, struct asker, poll);
    struct remote_question question;

    (void)events;
    for (int i = 0; i < DESK_PACKETS; i++) {
        ssize_t n = status < 0 ? 0 : recv(asker->sock, &question, sizeof question, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        bool good = n > (ssize_t)offsetof(struct remote_question, url);
        if (good)
            ((char *)&question)[n - 1] = '\0';
        if (n > 0 && !(good && asker_ask(asker, &question)))
            fprintf(stderr, "dloaderd: a worker asks for a remote file in a way that is none; it "
                            "gets no answer any more\n");
        else if (n > 0)
            continue;
        asker_free(asker);
        return;
    }
}

/* When the first of its loader's workers that are there came. */
static uint64_t desk_since(struct desk *desk, uint64_t loader)
{
    const struct asker *asker;

    DL_FOREACH (desk->askers, asker)
        if (loader != 0 && asker->loader == loader)
            return asker->since;
    desk->newest = ++desk->turn;
    return desk->newest;
}

void desk_add(struct desk *desk, int sock, uint64_t loader)
{
    struct asker *asker = must_alloc(sizeof *asker);

    asker->desk = desk;
    asker->sock = sock;
    asker->loader = loader;
    asker->number = ++desk->turn;
    asker->since = desk_since(desk, loader);
    if (uv_poll_init(desk->loop, &asker->poll, sock) < 0) {
        close(sock);
        free(asker);
        return;
    }
    DL_APPEND(desk->askers, asker);
    (void)uv_poll_start(&asker->poll, UV_READABLE, asker_on_poll);
}

void desk_on_unused(struct desk *desk, void (*unused)(void *owner), void *owner)
{
    if (!desk)
        return;
    desk->unused = unused;
    desk->owner = owner;
}

void desk_set_peers(struct desk *desk, struct peers *peers)
{
    desk->peers = peers;
}

bool desk_is_used(const struct desk *desk)
{
    return desk->askers != NULL;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void desk_tell_held(const struct desk *desk)
{
    struct remote_tally *tally = transfers_tally(desk->transfers);

    remote_tally_write(tally, REMOTE_OBJECTS, HASH_COUNT(desk->objects.table));
    remote_tally_write(tally, REMOTE_HELD, desk->objects.held);
    remote_tally_write(tally, REMOTE_LIMIT, desk->objects.limit);
    kept_tell(desk->kept, tally);
    transfers_tell(desk->transfers);
}

/* When all that has happened is dealt with: what is told then stays true while nothing happens, and
 * nobody is woken for it. */
static void desk_on_prepare(uv_prepare_t *prepare)
{
    desk_go_ahead(prepare->data);
    desk_tell_held(prepare->data);
}

struct desk *desk_new(uv_loop_t *loop, struct transfers *transfers, struct kept *kept,
                      uint64_t limit)
{
    struct desk *desk = must_alloc(sizeof *desk);

    desk->loop = loop;
    desk->transfers = transfers;
    desk->kept = kept;
    objects_init(&desk->objects, limit);
    desk->prepare.data = desk;
    (void)uv_prepare_init(loop, &desk->prepare);
    (void)uv_prepare_start(&desk->prepare, desk_on_prepare);
    uv_unref((uv_handle_t *)&desk->prepare);
    return desk;
}

static void desk_closed(uv_handle_t *handle)
{
    free(handle->data);
}

struct desk *desk_free(struct desk *desk)
{
    struct asker *asker, *next;

    if (!desk)
        return NULL;
    DL_FOREACH_SAFE (desk->askers, asker, next)
        asker_free(asker);
    desk_stop(desk);
    objects_deinit(&desk->objects);
    (void)uv_prepare_stop(&desk->prepare);
    uv_close((uv_handle_t *)&desk->prepare, desk_closed);
    return NULL;
}
