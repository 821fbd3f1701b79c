#include "daemon/fetcher/kept.h"

#include "daemon/base/memory.h"
#include "daemon/cache/cache_room.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum {
    KEPT_WRITING_MOST = 64 << 20, /* bytes; a disk that is slower than the net does not get all */
    KEPT_RETRY_MS = 1000,         /* whether the other process has gone */
    KEPT_LOOK_BYTES = 16 << 20,   /* so often, by what is written, or */
    KEPT_LOOK_PART = 64,          /* this part of all: how much room others have left */
};

struct kept {
    uv_loop_t *loop;
    uv_timer_t retry;
    char *path;    /* owned */
    int around;    /* owned; the directory it is in, where others keep files; -1: nothing is kept */
    int dir;       /* owned; likewise */
    uint64_t size; /* of all that is there */
    uint64_t unlooked;         /* bytes that were written since others' files were looked at */
    bool looks;                /* a task does */
    struct block_store *store; /* owned; NULL: it is not open */
    const struct placement *placement; /* borrowed; NULL: none */
    bool lost;                         /* its files were removed */
    bool told_busy, told_full, told_failed;
    bool freed;
    uint32_t n_handles; /* the timer, and tasks under way */
    uint64_t writing;   /* bytes */
    uint64_t spoilt;    /* blocks that were damaged, or of an object that is another one by now */
};

struct kept_task {
    uv_work_t work;
    struct kept *kept;
    kept_done *done; /* NULL: it was cancelled */
    void *owner;
    char *where; /* owned */
    /* The object; bytes REMOTE_UNKNOWN: whichever it is. */
    uint64_t bytes;
    char etag[REMOTE_ETAG_MAX];
    int64_t modified;
    uint64_t checked;
    uint64_t first;      /* block */
    uint8_t *data;       /* owned; of all blocks */
    uint64_t data_bytes; /* of a read: up to the first one that could not be */
    bool looks;          /* how much room others have left: */
    uint64_t limit;
    uint32_t n; /* of these: */
    union {
        struct block_read reads[KEPT_BLOCKS];
        struct block_write writes[KEPT_BLOCKS];
    };
    bool failed;     /* one of them could not be read */
    uint32_t spoilt; /* of them: kept->spoilt */
};

/* ---- the store ------------------------------------------------------------------------------ */

static void kept_on_retry(uv_timer_t *timer);

static uint64_t kept_limit(const struct kept *kept)
{
    return cache_room_blocks(kept->size, disk_cache_bytes(kept->around));
}

static void kept_open(struct kept *kept)
{
    struct dl_error err = {0};
    int r = block_store_open(kept->dir, kept_limit(kept), &kept->store, &err);

    if (r == 0)
        block_store_place(kept->store, kept->placement);
    if (r == -EBUSY)
        (void)uv_timer_start(&kept->retry, kept_on_retry, KEPT_RETRY_MS, 0);
    if (r == 0 || (r == -EBUSY && kept->told_busy))
        return;
    kept->told_busy = true;
    fprintf(stderr, "dloaderd: cache.dir: %s/%s: %s; nothing of remote files is kept on disk%s\n",
            kept->path, err.path, err.message,
            r == -EBUSY ? " until that ends: give each daemon a directory of its own" : "");
    if (r != -EBUSY)
        close_fdp(&kept->dir);
}

static void kept_on_retry(uv_timer_t *timer)
{
    kept_open(container_of(timer, struct kept, retry));
}

static void kept_open_dir(struct kept *kept, const char *around)
{
    struct dl_error err = {0};

    if (disk_cache_make_dir(kept->path, &err) == 0) {
        kept->around = open(around, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        kept->dir = open(kept->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (kept->dir < 0)
            dl_error_set(&err, errno, kept->path, "it cannot be opened: %s", strerror(errno));
    }
    if (kept->dir < 0)
        fprintf(stderr, "dloaderd: cache.dir: %s: %s; nothing of remote files is kept on disk\n",
                err.path, err.message);
}

struct kept *kept_new(uv_loop_t *loop, const char *dir, uint64_t size)
{
    struct kept *kept = must_alloc(sizeof *kept);

    kept->loop = loop;
    kept->around = kept->dir = -1;
    kept->size = size;
    kept->n_handles = 1;
    (void)uv_timer_init(loop, &kept->retry);
    uv_unref((uv_handle_t *)&kept->retry);
    if (!dir || !*dir)
        return kept;
    if (asprintf(&kept->path, "%s/" CACHE_BLOCKS, dir) < 0)
        kept->path = must_have(NULL);
    kept_open_dir(kept, dir);
    if (kept->dir >= 0)
        kept_open(kept);
    return kept;
}

/* Its files were removed: their room is the file system's once they are closed. The directory may
 * still be there for new ones. */
static void kept_reopen(struct kept *kept)
{
    kept->lost = false;
    kept->store = block_store_close(kept->store);
    kept_open(kept);
}

/* A task has ended, or the timer. */
static void kept_let_go(struct kept *kept)
{
    if (--kept->n_handles == 1 && kept->lost && !kept->freed)
        kept_reopen(kept);
    if (kept->n_handles > 0)
        return;
    assert(kept->freed && kept->writing == 0);
    block_store_close(kept->store);
    close_fdp(&kept->dir);
    close_fdp(&kept->around);
    free(kept->path);
    free(kept);
}

static void kept_on_closed(uv_handle_t *handle)
{
    kept_let_go(container_of((uv_timer_t *)handle, struct kept, retry));
}

struct kept *kept_free(struct kept *kept)
{
    if (!kept)
        return NULL;
    kept->freed = true;
    uv_close((uv_handle_t *)&kept->retry, kept_on_closed);
    return NULL;
}

/* Once for each of what may happen to a disk. */
static void kept_say(struct kept *kept, int r)
{
    if (r == -ESTALE) {
        if (!kept->lost)
            fprintf(stderr, "dloaderd: cache.dir: %s: its files were removed\n", kept->path);
        kept->lost = true;
    } else if (r == -ENOSPC || r == -EDQUOT || r == -EFBIG) {
        if (!kept->told_full)
            fprintf(stderr,
                    "dloaderd: cache.dir: %s: %s: no more of remote files is kept than there is "
                    "room for; make room, or lower cache.size\n",
                    kept->path, strerror(-r));
        kept->told_full = true;
    } else {
        if (!kept->told_failed)
            fprintf(stderr,
                    "dloaderd: cache.dir: %s: it cannot be written: %s; what is there is read\n",
                    kept->path, strerror(-r));
        kept->told_failed = true;
    }
}

static struct block_store *kept_store(const struct kept *kept)
{
    return kept->lost ? NULL : kept->store;
}

void kept_tell(const struct kept *kept, struct remote_tally *tally)
{
    const struct shelf *shelf = kept->store ? block_store_shelf(kept->store) : NULL;

    remote_tally_write(tally, REMOTE_KEPT, shelf ? shelf->bytes : 0);
    remote_tally_write(tally, REMOTE_KEPT_LIMIT, shelf ? shelf->limit : 0);
    remote_tally_write(tally, REMOTE_SPOILT, kept->spoilt);
}

bool kept_has(const struct kept *kept, const struct object *object, uint64_t block)
{
    return kept_store(kept) && block_store_has(kept->store, object->where, block);
}

void kept_check(struct kept *kept, const struct object *object)
{
    if (kept_store(kept) && !object->replaced)
        block_store_check(kept->store, object->where, 0, object->checked);
}

void kept_drop(struct kept *kept, const struct object *object)
{
    kept_drop_blocks(kept, object, 0, 1);
}

void kept_drop_blocks(struct kept *kept, const struct object *object, uint64_t first, uint64_t n)
{
    for (uint64_t i = first; i < first + n; i++)
        if (kept_has(kept, object, i))
            block_store_drop(kept->store, object->where, i);
}

void kept_set_placement(struct kept *kept, const struct placement *placement)
{
    kept->placement = placement;
    if (kept->store)
        block_store_place(kept->store, placement);
}

bool kept_wants(const struct kept *kept, const struct object *object, uint64_t block)
{
    return kept_store(kept) && block_store_wants(kept->store, object->where, block);
}

static bool kept_owns(const struct kept *kept, const struct object *object, uint64_t block)
{
    uint32_t point = placement_point(object->where, block);

    return !kept->placement || placement_owner(kept->placement, point) == kept->placement->self;
}

bool kept_by_order(const struct kept *kept, const struct object *object, uint64_t block)
{
    return kept_owns(kept, object, block) &&
           (kept_wants(kept, object, block) || kept_has(kept, object, block));
}

uint64_t kept_room(const struct kept *kept)
{
    return kept_store(kept) ? block_store_room(kept->store) : 0;
}

uint64_t kept_taken(const struct object *object, uint64_t block)
{
    return block_store_taken(&(struct block_name){.where = object->where,
                                                  .block = block,
                                                  .etag = object->etag,
                                                  .modified = object->modified,
                                                  .bytes = object->bytes});
}

uint64_t kept_fit(const struct object *object, uint64_t first, uint64_t n, uint64_t room)
{
    uint64_t fit = 0;

    for (uint64_t taken; fit < n && (taken = kept_taken(object, first + fit)) <= room; fit++)
        room -= taken;
    return fit;
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static struct kept_task *kept_task_new(struct kept *kept, const struct object *object,
                                       uint64_t first, kept_done *done, void *owner)
{
    struct kept_task *task = must_alloc(sizeof *task);

    task->kept = kept;
    task->done = done;
    task->owner = owner;
    task->where = must_strdup(object->where);
    task->bytes = object->bytes;
    memcpy(task->etag, object->etag, sizeof task->etag);
    task->modified = object->modified;
    task->first = first;
    return task;
}

static void kept_task_free(struct kept_task *task)
{
    free(task->where);
    free(task->data);
    free(task);
}

static void kept_task_begin(struct kept_task *task, uv_work_cb run, uv_after_work_cb ended)
{
    int r = uv_queue_work(task->kept->loop, &task->work, run, ended);

    assert(r == 0);
    task->kept->n_handles++;
}

static void kept_task_tell(const struct kept_task *task, struct dl_span data)
{
    const struct kept_result result = {.data = data,
                                       .bytes = task->bytes,
                                       .etag = task->etag,
                                       .modified = task->modified,
                                       .checked = task->checked};

    if (task->done)
        task->done(task->owner, &result);
}

static void kept_task_end(struct kept_task *task)
{
    struct kept *kept = task->kept;

    kept_task_free(task);
    kept_let_go(kept);
}

struct kept_task *kept_cancel(struct kept_task *task)
{
    if (task)
        task->done = NULL;
    return NULL;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Whether it is a block of the object, as long as it has to be. */
static bool kept_task_fits(const struct kept_task *task, const struct block_read *read)
{
    const struct block_name *name = &read->name;
    uint64_t at = read->block * REMOTE_BLOCK_BYTES;

    if (!read->good || strcmp(name->etag, task->etag) != 0 || name->bytes != task->bytes ||
        (!*name->etag && name->modified != task->modified))
        return false;
    return at < name->bytes && read->data.len == min_u64(name->bytes - at, REMOTE_BLOCK_BYTES);
}

/* Of an object that was not known the first one says which it is. */
static bool kept_task_learn(struct kept_task *task, const struct block_read *read)
{
    if (task->bytes != REMOTE_UNKNOWN || !read->good)
        return true;
    if (strlen(read->name.etag) >= sizeof task->etag)
        return false;
    task->bytes = read->name.bytes;
    task->modified = read->name.modified;
    snprintf(task->etag, sizeof task->etag, "%s", read->name.etag);
    return true;
}

static void kept_run_read(uv_work_t *work)
{
    struct kept_task *task = container_of(work, struct kept_task, work);

    task->data = malloc(task->n * (size_t)REMOTE_BLOCK_BYTES);
    task->failed = !task->data;
    for (uint32_t i = 0; i < task->n; i++) {
        struct block_read *read = &task->reads[i];

        block_read_run(read);
        bool fits = kept_task_learn(task, read) && kept_task_fits(task, read);
        task->spoilt += !read->good || (!fits && !task->failed);
        task->failed = task->failed || !fits;
        if (task->failed)
            continue;
        memcpy(task->data + task->data_bytes, read->data.data, read->data.len);
        task->data_bytes += read->data.len;
    }
}

static void kept_on_read(uv_work_t *work, int status)
{
    struct kept_task *task = container_of(work, struct kept_task, work);
    struct kept *kept = task->kept;

    (void)status;
    kept->spoilt += task->spoilt;
    for (uint32_t i = 0; i < task->n; i++)
        block_read_end(kept->store, &task->reads[i]);
    kept_task_tell(task, (struct dl_span){task->data, task->data_bytes});
    kept_task_end(task);
}

struct kept_task *kept_read(struct kept *kept, const struct object *object, uint64_t first,
                            uint64_t n, kept_done *done, void *owner)
{
    struct kept_task *task = kept_task_new(kept, object, first, done, owner);

    assert(n > 0 && n <= KEPT_BLOCKS && kept_store(kept));
    if (object->bytes == REMOTE_UNKNOWN)
        task->checked = block_store_checked(kept->store, task->where, first);
    for (; task->n < n; task->n++) {
        bool there =
            block_read_begin(kept->store, task->where, first + task->n, &task->reads[task->n]);
        assert(there);
    }
    kept_task_begin(task, kept_run_read, kept_on_read);
    return task;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void kept_run_write(uv_work_t *work)
{
    struct kept_task *task = container_of(work, struct kept_task, work);

    for (uint32_t i = 0; i < task->n; i++)
        block_write_run(&task->writes[i]);
    if (task->looks)
        task->limit = kept_limit(task->kept);
}

/* What others keep beside it takes room. */
static void kept_look(struct kept_task *task)
{
    struct kept *kept = task->kept;

    kept->unlooked += task->data_bytes;
    if (kept->looks || kept->unlooked < min_u64(KEPT_LOOK_BYTES, kept->size / KEPT_LOOK_PART))
        return;
    kept->unlooked = 0;
    kept->looks = task->looks = true;
}

static void kept_looked(const struct kept_task *task)
{
    struct kept *kept = task->kept;

    if (!task->looks)
        return;
    kept->looks = false;
    block_store_limit(kept->store, task->limit);
}

static void kept_on_written(uv_work_t *work, int status)
{
    struct kept_task *task = container_of(work, struct kept_task, work);
    struct kept *kept = task->kept;

    (void)status;
    kept->writing -= task->data_bytes;
    for (uint32_t i = 0; i < task->n; i++) {
        block_write_end(kept->store, &task->writes[i]);
        if (task->writes[i].r < 0)
            kept_say(kept, task->writes[i].r);
    }
    kept_looked(task);
    kept_task_tell(task, (struct dl_span){task->data, task->data_bytes});
    kept_task_end(task);
}

/* Those blocks that the store takes, of its copy. How many they are: also those that were there,
 * which are not written again. */
static uint64_t kept_task_offer(struct kept_task *task, struct dl_span data, enum store_terms terms)
{
    struct block_store *store = task->kept->store;
    struct block_name name = {.where = task->where,
                              .block = task->first,
                              .etag = task->etag,
                              .modified = task->modified,
                              .bytes = task->bytes};
    uint64_t n_kept = 0;

    for (uint64_t at = 0; at < data.len; at += REMOTE_BLOCK_BYTES, name.block++) {
        struct dl_span block = {data.data + at, min_u64(data.len - at, REMOTE_BLOCK_BYTES)};
        bool owned = terms == STORE_IF_ROOM && block_store_own(store, name.where, name.block);
        bool begun =
            !owned && block_write_begin(store, &name, block, terms, &task->writes[task->n]);

        if (!owned && !begun && terms == STORE_IF_ROOM)
            break;
        task->n += begun;
        n_kept += owned || begun;
    }
    return n_kept;
}

static void kept_task_copy(struct kept_task *task, struct dl_span data)
{
    task->data = must_have(malloc(data.len));
    memcpy(task->data, data.data, data.len);
    for (uint32_t i = 0; i < task->n; i++)
        task->writes[i].data.data = task->data + (task->writes[i].data.data - data.data);
    task->data_bytes = data.len;
}

struct kept_task *kept_write(struct kept *kept, const struct object *object, uint64_t first,
                             struct dl_span data, enum store_terms terms, uint64_t *ret,
                             kept_done *done, void *owner)
{
    *ret = 0;
    if (!kept_store(kept) || object->replaced || kept->writing + data.len > KEPT_WRITING_MOST)
        return NULL;
    struct kept_task *task = kept_task_new(kept, object, first, done, owner);
    *ret = kept_task_offer(task, data, terms);
    if (task->n == 0) {
        kept_task_free(task);
        return NULL;
    }
    kept_task_copy(task, data);
    kept->writing += task->data_bytes;
    kept_look(task);
    kept_task_begin(task, kept_run_write, kept_on_written);
    return task;
}
