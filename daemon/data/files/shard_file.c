#include "daemon/data/files/shard_file.h"

#include "daemon/data/files/remote.h"
#include "daemon/data/files/unpack.h"
#include "proto/common/bisect.h"

#include <errno.h>
#include <stdio.h>

static void shard_unpacked_unref(void *what)
{
    struct shard_unpacked *unpacked = what;

    if (!unpacked || --unpacked->refs > 0)
        return;
    free(unpacked->data);
    free(unpacked);
}

int shard_file_hold(const struct shard_file *file, struct arena *arena, struct dl_error *err)
{
    if (!file->unpacked)
        return 0;
    file->unpacked->refs++;
    if (arena_hold(arena, shard_unpacked_unref, file->unpacked) == 0)
        return 0;
    return dl_error_set(err, ENOMEM, "dataset", "out of memory for a sample");
}

/* ---- a file in memory ----------------------------------------------------------------------- */

static uint32_t shard_file_u32(const uint8_t *at, uint64_t i)
{
    uint32_t n;

    memcpy(&n, at + i * sizeof n, sizeof n);
    return n;
}

int shard_file_check(const uint8_t *data, uint64_t bytes, uint64_t samples, const char *path,
                     struct dl_error *err)
{
    if (bytes >= 8 && shard_file_u32(data, 0) == samples && samples <= bytes / 4 - 2 &&
        shard_file_u32(data, 1 + samples) == bytes)
        return 0;
    return dl_error_set(err, EINVAL, path,
                        "is not a shard of %llu samples and %llu bytes; it is truncated or "
                        "damaged, or index.json belongs to other shards",
                        (ull)samples, (ull)bytes);
}

int shard_file_find(const uint8_t *data, uint64_t bytes, uint64_t i, const char *path,
                    const uint8_t **ret, uint64_t *ret_bytes, struct dl_error *err)
{
    uint64_t begin = shard_file_u32(data, 1 + i), end = shard_file_u32(data, 2 + i);

    *ret = data + begin;
    *ret_bytes = end - begin;
    if (begin <= end && end <= bytes)
        return 0;
    return dl_error_set(
        err, EINVAL, path,
        "its sample %llu lies from byte %llu to %llu, outside its %llu bytes; the shard is damaged",
        (ull)i, (ull)begin, (ull)end, (ull)bytes);
}

bool shard_file_good_name(const char *name)
{
    if (strlen(name) > DL_BOUND_PATH_BYTES / 2)
        return false;
    for (const char *part = name;; part++) {
        size_t len = strcspn(part, "/");
        if (len == 0 || (len == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += len;
        if (!*part)
            return true;
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

static void shard_file_close(struct shard_file *file)
{
    source_close(&file->source);
    shard_unpacked_unref(file->unpacked);
    free(file->path);
    file->unpacked = NULL;
    file->path = NULL;
}

/* Takes `data` over. */
static int shard_file_keep(struct shard_file *file, uint8_t *data, uint64_t bytes, const char *path,
                           struct dl_error *err)
{
    struct shard_unpacked *unpacked = calloc(1, sizeof *unpacked);
    int r = unpacked ? shard_file_check(data, bytes, file->samples, path, err)
                     : dl_error_set(err, ENOMEM, path, "out of memory");

    if (r < 0) {
        free(data);
        free(unpacked);
        return r;
    }
    *unpacked = (struct shard_unpacked){.refs = 1, .bytes = bytes, .data = data};
    file->unpacked = unpacked;
    return 0;
}

static int shard_file_unpack(struct shard_file *file, const char *path, const struct data_env *env,
                             struct dl_error *err)
{
    struct source source = {0};
    uint8_t *data = NULL;
    uint64_t bytes = 0;
    int r = source_open(path, env, &source, err);

    if (r < 0)
        return r;
    enum compression by = compression_of(source.data, source.bytes);
    if (by == COMPRESSION_NONE)
        r = dl_error_set(err, EINVAL, path,
                         "uses a compression other than gzip and zstd; unpack it to %s", file->raw);
    else
        r = unpack(by, source.data, source.bytes, file->raw_bytes, path, &data, &bytes, err);
    source_close(&source);
    return r < 0 ? r : shard_file_keep(file, data, bytes, path, err);
}

static int shard_files_map(const struct shard_files *files, struct shard_file *file,
                           const char *path, struct dl_error *err)
{
    uint8_t *data = NULL;
    uint64_t bytes = 0;
    int r = source_open(path, files->env, &file->source, err), framed = SHARD_NOT_FRAMED;

    if (r < 0)
        return r;
    if (files->unframe)
        framed = files->unframe(file->source.data, file->source.bytes, path, &data, &bytes, err);
    r = framed;
    if (framed == 0)
        r = shard_file_keep(file, data, bytes, path, err);
    else if (framed == SHARD_NOT_FRAMED)
        r = shard_file_check(file->source.data, file->source.bytes, file->samples, path, err);
    if (framed == 0 || r < 0)
        source_close(&file->source);
    return r;
}

bool shard_file_is_packed(const struct shard_file *file, const char *root,
                          const struct data_env *env, char ret[static PATH_MAX])
{
    struct stat st;

    snprintf(ret, PATH_MAX, "%s/%s", root, file->raw);
    /* Of a link it matters that it is there, not where it leads. */
    if (!file->packed || source_stat(ret, false, env, &st) == 0)
        return false;
    snprintf(ret, PATH_MAX, "%s/%s", root, file->packed);
    return true;
}

static int shard_files_open(const struct shard_files *files, struct shard_file *file,
                            struct dl_error *err)
{
    char path[PATH_MAX];

    if (file->source.data || file->unpacked)
        return 0;
    bool packed = shard_file_is_packed(file, files->root, files->env, path);
    file->path = strdup(path);
    if (!file->path)
        return dl_error_set(err, ENOMEM, path, "out of memory");
    int r = packed ? shard_file_unpack(file, path, files->env, err)
                   : shard_files_map(files, file, path, err);
    if (r < 0)
        shard_file_close(file);
    return r;
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* How many bytes a file has that can be opened. */
static int shard_files_measure(const struct shard_files *files, const char *path, uint64_t *ret,
                               struct dl_error *err)
{
    struct source source = {0};
    _cleanup_fd_ int fd = -1;

    if (!source_is_remote(path, files->env))
        return source_open_file(path, files->env, &fd, ret, err);
    int r = source_open(path, files->env, &source, err); /* nothing of it is fetched for that */
    *ret = source.bytes;
    source_close(&source);
    return r;
}

static int shard_files_find(const struct shard_files *files, const struct shard_file *file,
                            struct dl_error *err)
{
    char path[PATH_MAX];
    uint64_t bytes;
    bool packed = shard_file_is_packed(file, files->root, files->env, path);
    int r = shard_files_measure(files, path, &bytes, err);

    if (r < 0 || packed || bytes == file->raw_bytes)
        return r;
    return dl_error_set(err, EINVAL, path,
                        "has %llu bytes, but index.json says %llu; it is truncated, or still being "
                        "written",
                        (ull)bytes, (ull)file->raw_bytes);
}

/* What they are, and their tables, before they are looked at one by one. */
static void shard_files_expect_all(const struct shard_files *files, const char *root,
                                   const struct data_env *env)
{
    char path[PATH_MAX];

    for (uint32_t i = 0; env->remote && remote_is_url(root) && i < files->n; i++) {
        snprintf(path, sizeof path, "%s/%s", root, files->files[i].raw);
        remote_expect_part(env->remote, path, 0,
                           max_u64(4 * (files->files[i].samples + 2), REMOTE_BLOCK_BYTES));
    }
}

int shard_files_list(const struct shard_files *files, const char *root, const struct data_env *env,
                     struct file_list *ret, struct dl_error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/index.json", root);
    int r = file_list_add(ret, path, err);
    shard_files_expect_all(files, root, env);
    for (uint32_t i = 0; r == 0 && i < files->n; i++) {
        (void)shard_file_is_packed(&files->files[i], root, env, path);
        r = file_list_add(ret, path, err);
    }
    if (r == 0)
        file_list_expect(ret, env); /* packed ones, too */
    return r;
}

int shard_files_begin(struct shard_files *files, uint64_t *ret_samples, struct dl_error *err)
{
    int r = 0;

    shard_files_expect_all(files, files->root, files->env);
    *ret_samples = 0;
    for (uint32_t i = 0; r == 0 && i < files->n; i++) {
        files->files[i].first = *ret_samples;
        *ret_samples += files->files[i].count;
        r = shard_files_find(files, &files->files[i], err);
    }
    return r;
}

struct shard_file *shard_files_of(const struct shard_files *files, uint64_t index)
{
    return &files->files[bisect_firsts(&files->files[0].first, sizeof *files->files, files->n,
                                       index)];
}

/* Those that were of no use for longest, but `keep`. */
static void shard_files_forget(struct shard_files *files, const struct shard_file *keep)
{
    while (files->unpacked > files->most_unpacked) {
        struct shard_file *oldest = NULL;
        for (uint32_t i = 0; i < files->n; i++) {
            struct shard_file *file = &files->files[i];
            if (file->unpacked && file != keep && (!oldest || file->used < oldest->used))
                oldest = file;
        }
        if (!oldest)
            return;
        files->unpacked -= oldest->unpacked->bytes;
        shard_file_close(oldest);
    }
}

int shard_files_use(struct shard_files *files, struct shard_file *file, const uint8_t **ret,
                    uint64_t *ret_bytes, struct dl_error *err)
{
    bool kept = file->unpacked != NULL;
    int r = shard_files_open(files, file, err);

    if (r < 0)
        return r;
    if (!file->unpacked) {
        *ret = file->source.data;
        *ret_bytes = file->source.bytes;
        return 0;
    }
    *ret = file->unpacked->data;
    *ret_bytes = file->unpacked->bytes;
    file->used = ++files->uses;
    if (!kept) {
        files->unpacked += file->unpacked->bytes;
        shard_files_forget(files, file);
    }
    return 0;
}

/* The sample itself: its place is in the file's table, which is read for it. A file that is
 * compressed as a whole is fetched when it is used. */
static void shard_files_expect_far(struct shard_files *files, struct shard_file *file,
                                   uint64_t index)
{
    const uint8_t *data, *at;
    uint64_t bytes;

    if (!file->unpacked && !file->packed &&
        shard_files_use(files, file, &data, &bytes, NULL) == 0 &&
        shard_file_find(data, bytes, index - file->first, file->path, &at, &bytes, NULL) == 0)
        remote_expect(at, bytes);
}

void shard_files_expect(struct shard_files *files, uint64_t index)
{
    struct shard_file *file = shard_files_of(files, index);

    if (files->env->remote && remote_is_url(files->root))
        shard_files_expect_far(files, file, index);
    else if (file->source.data)
        __builtin_prefetch(file->source.data + 4 * (1 + index - file->first));
}

size_t shard_files_name(const struct shard_files *files, uint64_t index, char *ret, size_t room)
{
    const struct shard_file *file = shard_files_of(files, index);

    if (!file->path) /* closed since */
        return dataset_put_name(files->root, "sample", index, ret, room);
    return dataset_put_name(file->path, "sample", index - file->first, ret, room);
}

void shard_files_deinit(struct shard_files *files)
{
    for (uint32_t i = 0; files->files && i < files->n; i++) {
        shard_file_close(&files->files[i]);
        free(files->files[i].raw);
        free(files->files[i].packed);
    }
    free(files->files);
    *files = (struct shard_files){0};
}
