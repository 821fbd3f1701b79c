#include "daemon/data/kinds/tar/tar.h"
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/base/rng.h"
#include "daemon/data/files/globs.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/kinds/tar/tar_archive.h"
#include "daemon/data/kinds/tar/tar_sample.h"
#include "proto/common/array.h"

#include <errno.h>
#include <sys/mman.h>

struct tar {
    struct dataset base;
    const struct data_env *env; /* borrowed */
    struct file_list list;      /* owned: the shards */
    struct fields fields;       /* owned */
    uint32_t raw;               /* what bytes become; 0: they stay */
    uint64_t shuffle;
    bool divide;
};

/*
 * One pass over one shard. Counted: by the replica that goes through it, by each sample of it that
 * waits, and by the arena of each that was handed out, which may outlive the dataset.
 */
struct tar_shard {
    uint32_t refs;
    uint32_t number;            /* in the list */
    const char *path;           /* borrowed from the list */
    struct tar_archive archive; /* owned */
    struct dl_error *why; /* owned; it could not be opened; NULL: it is open, or memory is short */
    bool open;
};

/* A sample that was found and not yet made; or a place where there should have been one. */
struct tar_item {
    struct tar_shard *shard; /* counted */
    uint64_t offset;
    uint64_t ordinal; /* in the shard */
};

struct tar_iter {
    struct dataset_iter base;
    const struct tar *tar; /* borrowed */
    struct sample_key key;
    uint32_t *order; /* owned: the numbers of this replica's shards */
    uint32_t n_order;
    uint32_t next;     /* of order: the shard to open */
    uint32_t expected; /* likewise: the first one that nobody was told of */

    struct tar_shard *shard; /* counted; NULL: open the next one */
    uint64_t offset;         /* in it, of the next sample */
    uint64_t ordinal;

    struct tar_item *buffer; /* owned: the samples to draw from */
    uint64_t n_buffer;
    uint64_t buffer_room;
    struct rng rng;       /* draws from it */
    struct tar_item made; /* the last one; its shard is counted only by the sample */
};

/* ---- shards --------------------------------------------------------------------------------- */

static struct tar_shard *tar_shard_ref(struct tar_shard *shard)
{
    shard->refs++;
    return shard;
}

static void tar_shard_unref(void *what)
{
    struct tar_shard *shard = what;

    if (!shard || --shard->refs > 0)
        return;
    tar_archive_close(&shard->archive);
    free(shard->why);
    free(shard);
}

/* NULL: out of memory. A shard that cannot be opened has the reason. */
static struct tar_shard *tar_shard_open(const struct tar *tar, uint32_t number)
{
    struct tar_shard *shard = calloc(1, sizeof *shard);
    struct dl_error why = {0};

    if (!shard)
        return NULL;
    shard->refs = 1;
    shard->number = number;
    shard->path = tar->list.paths[number];
    shard->open = tar_archive_open(shard->path, tar->env, &shard->archive, &why) == 0;
    if (!shard->open && (shard->why = malloc(sizeof why)))
        *shard->why = why;
    if (shard->archive.source.bytes > 0)
        (void)madvise((void *)shard->archive.source.data, shard->archive.source.bytes,
                      MADV_SEQUENTIAL);
    return shard;
}

/* The shard in hand and those that are read after it, whole, in their order: what is fetched of
 * them is as much as the link carries and the memory holds. */
enum { TAR_NEXT = 16 };

static void tar_expect_next(struct tar_iter *it)
{
    struct remote *remote = it->tar->env->remote;
    uint32_t end = (uint32_t)min_u64((uint64_t)it->next + TAR_NEXT, it->n_order);

    if (!remote)
        return;
    remote_look_ahead(remote, false);
    for (; it->expected < end; it->expected++) {
        const char *path = it->tar->list.paths[it->order[it->expected]];

        if (it->expected + 1 >= it->next && remote_is_url(path))
            remote_expect_part(remote, path, 0, UINT64_MAX);
    }
    remote_look_ahead_off(remote);
}

/* Of a pass that ends before its shards do: nobody reads them by now. */
static void tar_expect_no_more(const struct tar_iter *it)
{
    struct remote *remote = it->tar->env->remote;

    if (!remote || it->expected <= it->next)
        return;
    remote_look_ahead(remote, true);
    remote_look_ahead_off(remote);
}

/* ---- from shards to items ------------------------------------------------------------------- */

/* A failure is an item, too: making it reports the error. */
static int tar_scan_next(struct tar_iter *it, struct tar_item *ret)
{
    for (;;) {
        if (!it->shard) {
            if (it->next == it->n_order)
                return DATASET_END;
            it->shard = tar_shard_open(it->tar, it->order[it->next++]);
            if (!it->shard)
                return -ENOMEM;
            tar_expect_next(it);
            it->offset = 0;
            it->ordinal = 0;
        }
        struct tar_item item = {it->shard, it->offset, it->ordinal++};
        int r = it->shard->open ? tar_scan(&it->shard->archive.view, &it->offset, NULL) : -EINVAL;
        if (r == 0) {
            tar_shard_ref(it->shard);
        } else {
            it->shard = NULL;
            if (r == TAR_END) {
                tar_shard_unref(item.shard);
                continue;
            }
        }
        *ret = item;
        return 0;
    }
}

static int tar_put(struct tar_iter *it, struct tar_item item)
{
    if (!array_reserve(it->buffer, it->buffer_room, it->n_buffer + 1)) {
        tar_shard_unref(item.shard);
        return -ENOMEM;
    }
    it->buffer[it->n_buffer++] = item;
    return 0;
}

/* The next item. Its shard is counted for the caller. */
static int tar_draw(struct tar_iter *it, struct tar_item *ret)
{
    struct tar_item item;
    int r = 0;

    if (it->tar->shuffle == 0)
        return tar_scan_next(it, ret);
    while (it->n_buffer < it->tar->shuffle && (r = tar_scan_next(it, &item)) == 0) {
        r = tar_put(it, item);
        if (r < 0)
            return r;
    }
    if (r < 0)
        return r;
    if (it->n_buffer == 0)
        return DATASET_END;
    uint64_t drawn = rng_below(&it->rng, it->n_buffer);
    *ret = it->buffer[drawn];
    it->buffer[drawn] = it->buffer[--it->n_buffer];
    return 0;
}

/* ---- the replica ---------------------------------------------------------------------------- */

static int tar_refuse_shard(const struct tar_shard *shard, struct dl_error *err)
{
    if (!shard->why)
        return dl_error_set(err, ENOMEM, shard->path, "out of memory for the shard");
    return dl_error_set(err, shard->why->code, shard->path, "%s", shard->why->message);
}

static size_t tar_iter_name(struct dataset_iter *iter, char *ret, size_t room)
{
    const struct tar_item *made = &container_of(iter, struct tar_iter, base)->made;

    return tar_put_name(&made->shard->archive.view, made->offset, ret, room);
}

static int tar_make_raw(struct tar_iter *it, struct sample *ret, struct dl_error *err)
{
    char name[DL_ERROR_PATH_MAX] = "";
    struct dl_error why = {0};
    int r = sample_bytes_to_numbers(ret, it->tar->raw, &why);

    if (r == 0)
        return 0;
    tar_iter_name(&it->base, name, sizeof name);
    return dl_error_set(err, -r, name, "%s", why.message);
}

static int tar_iter_next(struct dataset_iter *iter, struct sample *ret, struct dl_error *err)
{
    struct tar_iter *it = container_of(iter, struct tar_iter, base);
    struct tar_item item;
    int r;

    r = tar_draw(it, &item);
    if (r < 0)
        return dl_error_set(err, -r, "dataset", "out of memory for a shard");
    if (r != 0)
        return r;
    const struct tar_shard *shard = item.shard;
    if (!shard->open) {
        r = tar_refuse_shard(shard, err);
        tar_shard_unref(item.shard);
        return r;
    }
    it->made = item;
    /* What the sample points to stays mapped until the batch is made. */
    if (arena_hold(ret->arena, tar_shard_unref, item.shard) < 0)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory for a sample");
    const struct decoding decoding = {.fields = &it->tar->fields,
                                      .key = &it->key,
                                      .index =
                                          (uint64_t)shard->number << 32 | (uint32_t)item.ordinal};
    r = tar_make(&shard->archive.view, item.offset, &decoding, ret, err);
    if (r == TAR_END)
        return dl_error_set(err, EIO, shard->path, "was changed while it was read");
    return r == 0 && it->tar->raw ? tar_make_raw(it, ret, err) : r;
}

static int tar_iter_skip(struct dataset_iter *iter, uint64_t n, uint64_t *ret)
{
    struct tar_iter *it = container_of(iter, struct tar_iter, base);
    struct tar_item item;
    uint64_t passed;
    int r = 0;

    for (passed = 0; passed < n; passed++) {
        r = tar_draw(it, &item);
        if (r == DATASET_END)
            break;
        if (r == 0)
            tar_shard_unref(item.shard);
    }
    if (ret)
        *ret = passed;
    return r == DATASET_END ? r : 0;
}

static void tar_iter_close(struct dataset_iter *iter)
{
    struct tar_iter *it = container_of(iter, struct tar_iter, base);

    tar_expect_no_more(it);
    for (uint64_t i = 0; i < it->n_buffer; i++)
        tar_shard_unref(it->buffer[i].shard);
    tar_shard_unref(it->shard);
    free(it->buffer);
    free(it->order);
    free(it);
}

static const struct dataset_iter_ops tar_iter_ops = {
    .next = tar_iter_next, .skip = tar_iter_skip, .name = tar_iter_name, .close = tar_iter_close};

/* ---- the dataset ---------------------------------------------------------------------------- */

/* Counters of the keyed generator that no sample has: one for the epoch's order of shards. */
static void tar_order_rng(struct rng *rng, const struct sample_key *key)
{
    rng_init(rng, key->seed, key->epoch, UINT64_MAX - key->base);
}

/* Puts all shards in the epoch's order, and keeps this replica's. */
static uint32_t tar_choose_shards(const struct tar *tar, const struct replica_params *params,
                                  uint32_t *order)
{
    uint32_t world = tar->divide && params->world > 0 ? params->world : 1;
    uint32_t workers = tar->divide && params->workers > 0 ? params->workers : 1;
    uint32_t rank = world > 1 ? params->rank : 0, worker = workers > 1 ? params->worker : 0;
    uint32_t n = 0;
    struct rng rng;

    for (uint32_t i = 0; i < tar->list.n; i++)
        order[i] = i;
    tar_order_rng(&rng, &params->key);
    for (uint32_t i = tar->list.n; tar->shuffle > 0 && i > 1; i--) {
        uint32_t j = (uint32_t)rng_below(&rng, i), last = order[i - 1];
        order[i - 1] = order[j];
        order[j] = last;
    }
    for (uint32_t i = 0; i < tar->list.n; i++) {
        if (i % world == rank && i / world % workers == worker)
            order[n++] = order[i];
    }
    return n;
}

static int tar_iterate(struct dataset *ds, const struct replica_params *params,
                       struct dataset_iter **ret, struct dl_error *err)
{
    const struct tar *tar = container_of(ds, struct tar, base);
    struct tar_iter *it = calloc(1, sizeof *it);
    uint32_t *order = calloc(tar->list.n, sizeof *order);

    if (!it || !order) {
        free(it);
        free(order);
        return dl_error_set(err, ENOMEM, "dataset", "out of memory for the order of the shards");
    }
    it->base.ops = &tar_iter_ops;
    it->tar = tar;
    it->key = params->key;
    it->order = order;
    it->n_order = tar_choose_shards(tar, params, order);
    rng_init(&it->rng, params->seed, params->key.epoch, 0);
    *ret = &it->base;
    return 0;
}

static void tar_close(struct dataset *ds)
{
    struct tar *tar = container_of(ds, struct tar, base);

    fields_close(&tar->fields);
    file_list_deinit(&tar->list);
    free(tar);
}

static const struct dataset_ops tar_ops = {.iterate = tar_iterate, .close = tar_close};

/* Found missing now, not hours later. */
static int tar_check_shards(const struct tar *tar, struct dl_error *err)
{
    for (uint32_t i = 0; i < tar->list.n; i++) {
        enum compression by;
        int r = tar_archive_check(tar->list.paths[i], tar->env, &by, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* All files must exist; their content is checked later, and compressed ones are unpacked when they
 * are read. */
static int tar_open_stream(const struct spec_dataset *spec, const char *place,
                           const struct data_env *env, struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct tar *tar = calloc(1, sizeof *tar);
    int r;

    if (!tar)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &tar->base;
    ds->ops = &tar_ops;
    ds->length = DATASET_LENGTH_UNKNOWN;
    ds->can_skip = true;
    tar->env = env;
    tar->shuffle = spec->shuffle;
    tar->divide = spec->divide;
    tar->raw = spec->raw;
    if ((r = fields_open(&tar->fields, spec, true, place, err)) < 0)
        return r;
    if ((r = file_list_make(spec, env, &tar->list, err)) < 0 ||
        (r = tar_check_shards(tar, err)) < 0)
        return r;
    *ret = steal_ptr(ds);
    return 0;
}

int tar_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
             struct dataset **ret, struct dl_error *err)
{
    return (spec->index > INDEX_OFF ? tar_indexed_open : tar_open_stream)(spec, place, env, ret,
                                                                          err);
}
