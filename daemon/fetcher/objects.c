#include "daemon/fetcher/objects.h"

#include "daemon/base/memory.h"
#include "proto/common/fd_io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

#include <utlist.h>

enum { OBJECT_OWN_BYTES = 4 << 20 }; /* larger ones are in a memfd from the beginning */

void objects_init(struct objects *objects, uint64_t limit)
{
    *objects = (struct objects){.limit = limit};
}

static void object_free(struct object *object)
{
    remote_place_deinit(&object->place);
    free(object->url);
    free(object->where);
    free(object->blocks);
    free(object->data);
    close_fdp(&object->fd);
    free(object);
}

/* If nothing holds it any more. */
static void objects_let_go(struct objects *objects, struct object *object)
{
    if (object->users > 0 || object->held > 0)
        return;
    if (!object->replaced)
        HASH_DEL(objects->table, object);
    object_free(object);
}

void objects_deinit(struct objects *objects)
{
    uint64_t limit = objects->limit;

    objects->limit = 0;
    (void)objects_have_room(objects, 0);
    objects->limit = limit;
    assert(!objects->table && objects->held == 0 && objects->ahead == 0);
}

struct object *objects_find(struct objects *objects, const char *url)
{
    struct object *object;

    HASH_FIND_STR(objects->table, url, object);
    return object;
}

struct object *objects_add(struct objects *objects, const char *url, struct remote_place *place)
{
    struct object *object = must_alloc(sizeof *object);

    object->url = must_strdup(url);
    if (asprintf(&object->where, "%s %s", place->origin, url) < 0)
        object->where = must_have(NULL);
    object->place = *place;
    *place = (struct remote_place){0};
    object->bytes = REMOTE_UNKNOWN;
    object->modified = -1;
    object->fd = -1;
    object->users = 1;
    HASH_ADD_KEYPTR(hh, objects->table, object->url, strlen(object->url), object);
    return object;
}

void object_use(struct object *object)
{
    object->users++;
}

void object_leave(struct objects *objects, struct object *object)
{
    assert(object->users > 0);
    object->users--;
    objects_let_go(objects, object);
}

/* ---- blocks --------------------------------------------------------------------------------- */

void blocks_use(struct objects *objects, struct object *object, uint64_t first, uint64_t n)
{
    assert(first + n <= object->n_blocks);
    for (struct block *block = object->blocks + first; n > 0; block++, n--) {
        if (block->users++ == 0 && block->state == BLOCK_THERE)
            DL_DELETE(objects->idle, block);
    }
}

void blocks_leave(struct objects *objects, struct object *object, uint64_t first, uint64_t n)
{
    assert(first + n <= object->n_blocks);
    for (struct block *block = object->blocks + first; n > 0; block++, n--) {
        assert(block->users > 0);
        if (--block->users > 0 || block->state != BLOCK_THERE)
            continue;
        if (block->kept)
            DL_PREPEND(objects->idle, block);
        else
            DL_APPEND(objects->idle, block);
    }
    (void)objects_have_room(objects, 0);
}

void blocks_touch(struct objects *objects, struct object *object, uint64_t first, uint64_t n)
{
    assert(first + n <= object->n_blocks);
    for (struct block *block = object->blocks + first; n > 0; block++, n--) {
        if (block->state != BLOCK_THERE || block->users > 0 || block->kept)
            continue;
        DL_DELETE(objects->idle, block);
        DL_APPEND(objects->idle, block);
    }
}

static void block_count(struct objects *objects, struct block *block, bool is_held)
{
    struct object *object = block->object;
    uint64_t bytes = object_bytes_of(object, (uint64_t)(block - object->blocks), 1);

    object->held += is_held ? bytes : -bytes;
    objects->held += is_held ? bytes : -bytes;
    if (is_held || block->ahead)
        objects->ahead += is_held ? bytes : -bytes;
    block->ahead = is_held;
}

void object_no_more_ahead(struct objects *objects, struct object *object, uint64_t first,
                          uint64_t n)
{
    for (uint64_t i = first; i < first + n; i++) {
        if (object->blocks[i].ahead)
            objects->ahead -= object_bytes_of(object, i, 1);
        object->blocks[i].ahead = false;
    }
}

void object_give(struct objects *objects, struct object *object, uint64_t block)
{
    assert(object->blocks[block].state == BLOCK_THERE);
    object_no_more_ahead(objects, object, block, 1);
    object->blocks[block].given = true;
}

void objects_forget_ahead(struct objects *objects, uint64_t planner)
{
    struct object *object, *next;

    HASH_ITER (hh, objects->table, object, next) {
        if (object->planner != planner)
            continue;
        object->planner = 0;
        object_no_more_ahead(objects, object, 0, object->n_blocks);
    }
}

static void objects_drop(struct objects *objects, struct block *block)
{
    struct object *object = block->object;
    uint64_t begin = (uint64_t)(block - object->blocks) * REMOTE_BLOCK_BYTES;

    DL_DELETE(objects->idle, block);
    block->state = BLOCK_ABSENT;
    block_count(objects, block, false);
    if (object->fd >= 0)
        (void)fallocate(object->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
                        REMOTE_BLOCK_BYTES);
    else if (object->held == 0)
        free(steal_ptr(object->data));
    objects_let_go(objects, object);
}

void object_drop(struct objects *objects, struct object *object, uint64_t first, uint64_t n)
{
    assert(object->users > 0);
    for (uint64_t i = first; i < first + n; i++) {
        if (object->blocks[i].state == BLOCK_THERE && object->blocks[i].users == 0)
            objects_drop(objects, &object->blocks[i]);
    }
}

void objects_replace(struct objects *objects, struct object *object)
{
    assert(!object->replaced);
    HASH_DEL(objects->table, object);
    object->replaced = true;
    object_drop(objects, object, 0, object->n_blocks);
}

bool objects_have_room(struct objects *objects, uint64_t bytes)
{
    while (objects->held + bytes > objects->limit && objects->idle)
        objects_drop(objects, objects->idle);
    return objects->held + bytes <= objects->limit;
}

int object_learn(struct object *object, uint64_t bytes, const char *etag, int64_t modified)
{
    assert(object->bytes == REMOTE_UNKNOWN);
    uint64_t n = blocks_of(bytes);
    _cleanup_fd_ int fd = -1;
    _cleanup_free_ struct block *blocks =
        n && bytes <= INT64_MAX ? calloc(n, sizeof *blocks) : NULL;

    if (bytes > INT64_MAX)
        return -EFBIG;
    if (n && !blocks)
        return -ENOMEM;
    if (bytes > OBJECT_OWN_BYTES) {
        fd = memfd_create("dloader-remote", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
            return -errno;
    }
    for (uint64_t i = 0; i < n; i++)
        blocks[i].object = object;
    object->bytes = bytes;
    object->n_blocks = n;
    object->blocks = steal_ptr(blocks);
    object->fd = steal_fd(&fd);
    object->modified = modified;
    snprintf(object->etag, sizeof object->etag, "%s", etag);
    return 0;
}

void object_await(struct objects *objects, struct object *object, uint64_t first, uint64_t n)
{
    for (struct block *block = object->blocks + first; n > 0; block++, n--) {
        assert(block->state == BLOCK_ABSENT);
        block->state = BLOCK_COMING;
        block->given = false;
        block_count(objects, block, true);
    }
}

void object_give_up(struct objects *objects, struct object *object, uint64_t first, uint64_t n)
{
    for (struct block *block = object->blocks + first; n > 0; block++, n--) {
        assert(block->state == BLOCK_COMING);
        block->state = BLOCK_ABSENT;
        block_count(objects, block, false);
    }
}

int object_put(struct objects *objects, struct object *object, uint64_t first, struct dl_span data)
{
    uint64_t n = blocks_of(data.len);
    int r = 0;

    assert(first + n <= object->n_blocks && data.len == object_bytes_of(object, first, n));
    if (object->fd >= 0)
        r = fd_pwrite_all(object->fd, data.data, data.len, first * REMOTE_BLOCK_BYTES);
    else if (!object->data && !(object->data = malloc(object->bytes)))
        r = -ENOMEM;
    if (r < 0)
        return r;
    if (object->data)
        memcpy(object->data + first * REMOTE_BLOCK_BYTES, data.data, data.len);
    for (struct block *block = object->blocks + first; n > 0; block++, n--) {
        assert(block->state == BLOCK_COMING);
        block->state = BLOCK_THERE;
        block->from_disk = block->from_peer = block->kept = false;
        if (block->users == 0)
            DL_APPEND(objects->idle, block);
    }
    return 0;
}

uint64_t object_lacks(const struct object *object, uint64_t block, uint64_t n)
{
    uint64_t lacks = 0;

    assert(block + n <= object->n_blocks);
    for (uint64_t i = block; i < block + n; i++)
        lacks += object->blocks[i].state == BLOCK_ABSENT ? object_bytes_of(object, i, 1) : 0;
    return lacks;
}

uint64_t object_there(const struct object *object, uint64_t block, uint64_t n)
{
    uint64_t there = 0;

    assert(block + n <= object->n_blocks);
    while (there < n && object->blocks[block + there].state == BLOCK_THERE)
        there++;
    return there;
}

/* Who gets it may not write to it. */
static int object_open_again(int fd, int *ret)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    *ret = open(path, O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? -errno : 0;
}

static int object_copy_memory(int from, int to, uint64_t bytes)
{
    off_t at = 0;

    while ((uint64_t)at < bytes) {
        ssize_t n = sendfile(to, from, &at, min_u64(bytes - (uint64_t)at, 1 << 30));

        if (n <= 0)
            return n < 0 ? -errno : -EIO;
    }
    return 0;
}

static int object_copy(const struct object *object, int *ret)
{
    _cleanup_fd_ int fd = memfd_create("dloader-remote", MFD_CLOEXEC);
    int r = 0;

    if (fd < 0 || ftruncate(fd, (off_t)object->bytes) < 0)
        return -errno;
    if (object->fd >= 0)
        r = object_copy_memory(object->fd, fd, object->bytes);
    else if (object->data)
        r = fd_write_all(fd, object->data, object->bytes);
    if (r == 0)
        *ret = steal_fd(&fd);
    return r;
}

int object_open(struct object *object, bool mapped, int *ret)
{
    _cleanup_fd_ int fd = -1;
    int r;

    assert(object->bytes != REMOTE_UNKNOWN);
    if (mapped && object->fd >= 0)
        return object_open_again(object->fd, ret);
    if ((r = object_copy(object, &fd)) < 0 || (r = object_open_again(fd, ret)) < 0)
        return r;
    if (mapped) {
        object->fd = steal_fd(&fd);
        free(steal_ptr(object->data));
    }
    return 0;
}
