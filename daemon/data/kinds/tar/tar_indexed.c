/* Tar shards as a map-style dataset. */
#include "daemon/data/files/globs.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/kinds/index_files.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/tar/tar.h"
#include "daemon/data/kinds/tar/tar_archive.h"
#include "daemon/data/kinds/tar/tar_cached.h"
#include "daemon/data/kinds/tar/tar_index.h"
#include "daemon/data/kinds/tar/tar_sample.h"
#include "proto/common/bisect.h"
#include "proto/common/clock.h"

#include <errno.h>
#include <stdio.h>

/* What took less, or has fewer samples, is not worth a file in the cache. */
enum { TAR_WORTH_SAMPLES = 1024, TAR_WORTH_NS = 100 * 1000 * 1000 };

struct tar_indexed_shard {
    struct tar_archive archive; /* owned */
    struct tar_index index;     /* owned */
    uint64_t first;             /* sample: its first one */
    uint64_t n;
    bool known; /* where its samples begin */
};

struct tar_indexed {
    struct dataset base;
    struct file_list list;            /* owned */
    struct tar_indexed_shard *shards; /* owned; list.n of them */
    struct fields fields;             /* owned */
    struct shared_index shared;       /* owned; lent to shards, by */
    struct tar_cached cached;         /* what it has */
    uint64_t scanned;                 /* samples that were found by a walk along headers */
};

/* ---- samples -------------------------------------------------------------------------------- */

/* The shard that has sample `index`, below the length. */
static struct tar_indexed_shard *tar_indexed_shard_of(const struct tar_indexed *tar, uint64_t index)
{
    return &tar->shards[bisect_firsts(&tar->shards[0].first, sizeof *tar->shards, tar->list.n,
                                      index)];
}

/* For a shard of which only the number of samples is known. */
static int tar_indexed_learn(struct tar_indexed_shard *shard, struct dl_error *err)
{
    int r = shard->known ? 0 : tar_index_scan(&shard->archive.view, &shard->index, err);

    if (r < 0 || shard->known)
        return r;
    if (shard->index.n == shard->n) {
        shard->known = true;
        return 0;
    }
    r = dl_error_set(err, EINVAL, shard->archive.view.path,
                     "has %llu samples, but its index says %llu; recreate the index, or use "
                     "index: auto",
                     (ull)shard->index.n, (ull)shard->n);
    tar_index_deinit(&shard->index);
    return r;
}

static int tar_indexed_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                           struct sample *ret, struct dl_error *err)
{
    const struct tar_indexed *tar = container_of(ds, struct tar_indexed, base);
    const struct decoding decoding = {.fields = &tar->fields, .key = key, .index = index};

    struct tar_indexed_shard *shard = tar_indexed_shard_of(tar, index);
    int r = tar_indexed_learn(shard, err);
    if (r < 0)
        return r;
    uint64_t offset = tar_index_offset(&shard->index, index - shard->first);
    r = tar_make(&shard->archive.view, offset, &decoding, ret, err);
    if (r == TAR_END)
        return dl_error_set(err, EINVAL, shard->archive.view.path,
                            "has no sample at byte %llu, where its index says; recreate the "
                            "index, or use index: auto",
                            (ull)offset);
    return r;
}

static void tar_indexed_expect(struct dataset *ds, uint64_t index)
{
    const struct tar_indexed *tar = container_of(ds, struct tar_indexed, base);
    const struct tar_indexed_shard *shard = tar_indexed_shard_of(tar, index);

    if (!shard->known)
        return;
    const uint8_t *at =
        shard->archive.view.data + tar_index_offset(&shard->index, index - shard->first);
    __builtin_prefetch(at);
    remote_expect(at, REMOTE_UNTOLD_BYTES);
}

/* A shard is not scanned just for a name. */
static size_t tar_indexed_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct tar_indexed *tar = container_of(ds, struct tar_indexed, base);
    const struct tar_indexed_shard *shard = tar_indexed_shard_of(tar, index);

    if (!shard->known)
        return 0;
    return tar_put_name(&shard->archive.view, tar_index_offset(&shard->index, index - shard->first),
                        ret, room);
}

static void tar_indexed_close(struct dataset *ds)
{
    struct tar_indexed *tar = container_of(ds, struct tar_indexed, base);

    for (uint32_t i = 0; tar->shards && i < tar->list.n; i++) {
        tar_archive_close(&tar->shards[i].archive);
        tar_index_deinit(&tar->shards[i].index);
    }
    free(tar->shards);
    shared_index_deinit(&tar->shared);
    fields_close(&tar->fields);
    file_list_deinit(&tar->list);
    free(tar);
}

static const struct dataset_ops tar_indexed_ops = {.get = tar_indexed_get,
                                                   .name = tar_indexed_name,
                                                   .expect = tar_indexed_expect,
                                                   .close = tar_indexed_close};

/* ---- indices -------------------------------------------------------------------------------- */

enum { INDEX_ROOM = 2 * DL_BOUND_PATH_BYTES + 8 };

/* "DIR/NAME.tar.idx", Energon's, or "DIR/NAME.idx", DALI's: the first that is there. */
static void tar_indexed_index_path(const char *dir, const char *shard, const struct data_env *env,
                                   char path[static INDEX_ROOM])
{
    const char *slash = strrchr(shard, '/'), *base = slash ? slash + 1 : shard;
    size_t len = strlen(base);
    struct stat st;

    snprintf(path, INDEX_ROOM, "%s/%s.idx", dir, base);
    if (source_stat(path, false, env, &st) < 0 && len > 4 && strcmp(base + len - 4, ".tar") == 0)
        snprintf(path, INDEX_ROOM, "%s/%.*s.idx", dir, (int)(len - 4), base);
}

static int tar_indexed_read_index(const char *dir, struct tar_indexed_shard *shard,
                                  const struct data_env *env, struct dl_error *err)
{
    char path[INDEX_ROOM];
    struct source source = {0};

    int r = source_allows(dir, dir, env, err);
    if (r < 0)
        return r;
    tar_indexed_index_path(dir, shard->archive.view.path, env, path);
    r = source_open(path, env, &source, err);
    if (r < 0)
        return r;
    r = tar_index_parse(source.data, source.bytes, path, &shard->archive.view, &shard->index, err);
    source_close(&source);
    return r;
}

static int tar_indexed_count(const struct tar_counts *counts, const char *index,
                             struct tar_indexed_shard *shard, struct dl_error *err)
{
    const char *path = shard->archive.view.path;

    if (tar_counts_find(counts, path, &shard->n) < 0)
        return dl_error_set(err, ENOENT, index, "has no shard named %s; recreate it", path);
    /* A sample needs at least a header: more samples are impossible. */
    if (shard->n > shard->archive.view.bytes / TAR_BLOCK)
        return dl_error_set(err, EINVAL, index,
                            "says that %s has %llu samples, for which it is "
                            "too small; recreate it",
                            path, (ull)shard->n);
    return 0;
}

/* As it is kept, or by a walk along its headers. */
static int tar_indexed_scan(struct tar_indexed *tar, struct tar_indexed_shard *shard,
                            struct dl_error *err)
{
    if (tar_cached_find(&tar->cached, &shard->archive.st, &shard->index))
        return 0;
    int r = tar_index_scan(&shard->archive.view, &shard->index, err);
    tar->scanned += r < 0 ? 0 : shard->index.n;
    return r;
}

/* `counts` of wids' index, or NULL. */
static int tar_indexed_find_samples(struct tar_indexed *tar, const struct spec_dataset *spec,
                                    const struct tar_counts *counts,
                                    struct tar_indexed_shard *shard, const struct data_env *env,
                                    struct dl_error *err)
{
    int r;

    if (counts)
        return tar_indexed_count(counts, spec->index_path, shard, err);
    r = spec->index == INDEX_FILE ? tar_indexed_read_index(spec->index_path, shard, env, err)
                                  : tar_indexed_scan(tar, shard, err);
    if (r < 0)
        return r;
    shard->known = true;
    shard->n = shard->index.n;
    return 0;
}

static int tar_indexed_open_shard(struct tar_indexed *tar, uint32_t i,
                                  const struct spec_dataset *spec, const struct tar_counts *counts,
                                  const struct data_env *env, struct dl_error *err)
{
    struct tar_indexed_shard *shard = &tar->shards[i];
    const char *path = tar->list.paths[i];
    enum compression by;
    int r = tar_archive_check(path, env, &by, err);

    if (r < 0)
        return r;
    if (by != COMPRESSION_NONE)
        return dl_error_set(err, EINVAL, path,
                            "is compressed by %s, so its samples cannot be read by an index; "
                            "unpack it, or read it as a stream with index: off",
                            compression_name(by));
    r = tar_archive_open(path, env, &shard->archive, err);
    if (r < 0)
        return r;
    shard->first = tar->base.length;
    r = tar_indexed_find_samples(tar, spec, counts, shard, env, err);
    tar->base.length += r < 0 ? 0 : shard->n;
    return r;
}

static bool tar_indexed_is_json(const char *path)
{
    size_t len = path ? strlen(path) : 0;

    return len > 5 && strcmp(path + len - 5, ".json") == 0;
}

static int tar_indexed_open_shards(struct tar_indexed *tar, const struct spec_dataset *spec,
                                   const struct data_env *env, struct dl_error *err)
{
    bool wids = tar_indexed_is_json(spec->index_path);
    struct tar_counts counts = {0};
    struct source source = {0};
    int r = wids ? source_open(spec->index_path, env, &source, err) : 0;

    if (r == 0 && wids)
        r = tar_counts_parse(source.data, source.bytes, spec->index_path, &counts, err);
    for (uint32_t i = 0; r == 0 && i < tar->list.n; i++) {
        r = tar_indexed_open_shard(tar, i, spec, wids ? &counts : NULL, env, err);
        data_tell(env, "shards indexed", i + 1, tar->list.n);
    }
    tar_counts_deinit(&counts);
    source_close(&source);
    return r;
}

/* ---- sharing -------------------------------------------------------------------------------- */

/* Shards look there from now on, and what they had goes. */
static void tar_indexed_lend(struct tar_indexed *tar)
{
    for (uint32_t i = 0; i < tar->list.n; i++) {
        struct tar_index cached;
        if (!tar_cached_find(&tar->cached, &tar->shards[i].archive.st, &cached))
            continue;
        tar_index_deinit(&tar->shards[i].index);
        tar->shards[i].index = cached;
    }
}

static void tar_indexed_make(const struct tar_indexed *tar, struct dl_buffer *ret)
{
    _cleanup_free_ struct tar_cached_item *items = calloc(tar->list.n, sizeof *items);

    for (uint32_t i = 0; items && i < tar->list.n; i++)
        items[i] = (struct tar_cached_item){&tar->shards[i].archive.st, &tar->shards[i].index};
    if (items)
        (void)!tar_cached_make(items, tar->list.n, ret);
}

/*
 * Shares what is known by now with other workers, and with later processes if `key` is not 0.
 * Without memory for it nothing changes.
 */
static void tar_indexed_share(struct tar_indexed *tar, const char *place, uint64_t key,
                              const struct data_env *env)
{
    struct shared_index before = tar->shared;
    struct dl_buffer bytes = {0};

    if (tar->scanned > 0) {
        tar_indexed_make(tar, &bytes);
    } else { /* all of it was kept, and is this process's own */
        bytes = (struct dl_buffer){(uint8_t *)(uintptr_t)before.data, before.bytes, before.bytes};
        before = (struct shared_index){0};
    }
    if (bytes.len == 0)
        return;
    shared_index_make(env, place, SHARED_INDEX_TAR, key, &bytes, &tar->shared);
    if (key)
        index_files_keep(env->index_files, key,
                         (struct dl_span){tar->shared.data, tar->shared.bytes});
    if (tar_cached_view(tar->shared.data, tar->shared.bytes, &tar->cached) == 0)
        tar_indexed_lend(tar);
    shared_index_deinit(&before);
}

/* By another worker, or in the cache; *ret_given: the former. */
static void tar_indexed_find(struct tar_indexed *tar, const char *place, uint64_t key,
                             const struct data_env *env, bool *ret_given)
{
    struct dl_buffer found = {0};

    *ret_given = shared_index_find(env, place, SHARED_INDEX_TAR, &tar->shared);
    if (!*ret_given && key && index_files_find(env->index_files, key, &found) == 0)
        tar->shared = (struct shared_index){.data = found.data, .bytes = found.len};
    if (tar_cached_view(tar->shared.data, tar->shared.bytes, &tar->cached) == 0)
        return;
    shared_index_deinit(&tar->shared);
    *ret_given = false;
}

/* By scans, except for what is already known. */
static int tar_indexed_open_known(struct tar_indexed *tar, const struct spec_dataset *spec,
                                  const char *place, const struct data_env *env,
                                  struct dl_error *err)
{
    uint64_t key = tar_cached_key(spec), began = clock_ns();
    bool given, worth;

    tar_indexed_find(tar, place, key, env, &given);
    int r = tar_indexed_open_shards(tar, spec, env, err);
    if (r < 0)
        return r;
    worth = tar->scanned > 0 &&
            (tar->base.length >= TAR_WORTH_SAMPLES || clock_ns() - began > TAR_WORTH_NS);
    if (worth || (env->indexes && !given))
        tar_indexed_share(tar, place, worth ? key : 0, env);
    return 0;
}

/* The shards, and the files of the index, if any. */
int tar_list_files(const struct spec_dataset *spec, const struct data_env *env,
                   struct file_list *ret, struct dl_error *err)
{
    char path[INDEX_ROOM];
    int r = file_list_make(spec, env, ret, err);

    if (r < 0 || !spec->index_path)
        return r;
    if (tar_indexed_is_json(spec->index_path))
        return file_list_add(ret, spec->index_path, err);
    for (uint32_t i = 0, n = ret->n; r == 0 && i < n; i++) {
        tar_indexed_index_path(spec->index_path, ret->paths[i], env, path);
        r = file_list_add(ret, path, err);
    }
    return r;
}

int tar_indexed_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                     struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct tar_indexed *tar = calloc(1, sizeof *tar);
    int r;

    if (!tar)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &tar->base;
    ds->ops = &tar_indexed_ops;
    if ((r = fields_open(&tar->fields, spec, true, place, err)) < 0 ||
        (r = file_list_make(spec, env, &tar->list, err)) < 0)
        return r;
    tar->shards = calloc(tar->list.n, sizeof *tar->shards);
    if (!tar->shards)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    r = spec->index == INDEX_AUTO ? tar_indexed_open_known(tar, spec, place, env, err)
                                  : tar_indexed_open_shards(tar, spec, env, err);
    if (r < 0)
        return r;
    *ret = steal_ptr(ds);
    return 0;
}
