#include "daemon/data/mds/mds_shard.h"

#include "daemon/data/unpack.h"

#include <errno.h>
#include <stdio.h>

struct mds_unpacked *mds_unpacked_ref(struct mds_unpacked *unpacked)
{
    unpacked->refs++;
    return unpacked;
}

void mds_unpacked_unref(void *what)
{
    struct mds_unpacked *unpacked = what;

    if (!unpacked || --unpacked->refs > 0)
        return;
    free(unpacked->data);
    free(unpacked);
}

static uint32_t mds_shard_u32(const uint8_t *at, uint64_t i)
{
    uint32_t n;

    memcpy(&n, at + i * sizeof n, sizeof n);
    return n;
}

int mds_shard_check(const uint8_t *data, uint64_t bytes, uint64_t samples, const char *path,
                    struct dl_error *err)
{
    if (bytes >= 8 && mds_shard_u32(data, 0) == samples && samples <= bytes / 4 - 2 &&
        mds_shard_u32(data, 1 + samples) == bytes)
        return 0;
    return dl_error_set(err, EINVAL, path,
                        "is no shard of %llu samples and %llu bytes; it is truncated or damaged, "
                        "or index.json is not its own",
                        (unsigned long long)samples, (unsigned long long)bytes);
}

/* ---- opening -------------------------------------------------------------------------------- */

static int mds_shard_unpack(struct mds_shard *shard, const char *path, const struct data_env *env,
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
                         "is compressed in a way that cannot be read; gzip and zstd can: unpack it "
                         "to %s",
                         shard->entry->raw);
    else
        r = unpack(by, source.data, source.bytes, shard->entry->raw_bytes, path, &data, &bytes,
                   err);
    source_close(&source);
    if (r < 0)
        return r;
    struct mds_unpacked *unpacked = calloc(1, sizeof *unpacked);
    r = unpacked ? mds_shard_check(data, bytes, shard->entry->samples, path, err)
                 : dl_error_set(err, ENOMEM, path, "out of memory");
    if (r < 0) {
        free(data);
        free(unpacked);
        return r;
    }
    *unpacked = (struct mds_unpacked){.refs = 1, .bytes = bytes, .data = data};
    shard->unpacked = unpacked;
    return 0;
}

static int mds_shard_map(struct mds_shard *shard, const char *path, const struct data_env *env,
                         struct dl_error *err)
{
    int r = source_open(path, env, &shard->source, err);

    if (r < 0)
        return r;
    r = mds_shard_check(shard->source.data, shard->source.bytes, shard->entry->samples, path, err);
    if (r < 0)
        source_close(&shard->source);
    return r;
}

bool mds_shard_is_packed(const struct mds_shard_entry *entry, const char *root,
                         const struct data_env *env, char ret[static PATH_MAX])
{
    struct stat st;

    snprintf(ret, PATH_MAX, "%s/%s", root, entry->raw);
    /* Of a link it matters that it is there, not where it leads. */
    if (!entry->packed || source_stat(ret, false, env, &st) == 0)
        return false;
    snprintf(ret, PATH_MAX, "%s/%s", root, entry->packed);
    return true;
}

int mds_shard_open(struct mds_shard *shard, const char *root, const struct data_env *env,
                   struct dl_error *err)
{
    char path[PATH_MAX];

    if (shard->source.data || shard->unpacked)
        return 0;
    bool packed = mds_shard_is_packed(shard->entry, root, env, path);
    shard->path = strdup(path);
    if (!shard->path)
        return dl_error_set(err, ENOMEM, path, "out of memory");
    int r = packed ? mds_shard_unpack(shard, path, env, err) : mds_shard_map(shard, path, env, err);
    if (r < 0)
        mds_shard_close(shard);
    return r;
}

void mds_shard_close(struct mds_shard *shard)
{
    source_close(&shard->source);
    mds_unpacked_unref(shard->unpacked);
    free(shard->path);
    shard->unpacked = NULL;
    shard->path = NULL;
}

/* ---- samples -------------------------------------------------------------------------------- */

int mds_shard_find(const uint8_t *data, uint64_t bytes, uint64_t i, const char *path,
                   const uint8_t **ret, uint64_t *ret_bytes, struct dl_error *err)
{
    uint64_t begin = mds_shard_u32(data, 1 + i), end = mds_shard_u32(data, 2 + i);

    *ret = data + begin;
    *ret_bytes = end - begin;
    if (begin <= end && end <= bytes)
        return 0;
    return dl_error_set(err, EINVAL, path,
                        "its sample %llu lies from byte %llu to %llu, and not in its %llu bytes; "
                        "the shard is damaged",
                        (unsigned long long)i, (unsigned long long)begin, (unsigned long long)end,
                        (unsigned long long)bytes);
}

bool mds_shard_split(const struct mds_index *index, const uint8_t *data, uint64_t bytes,
                     struct mds_value *ret)
{
    const uint8_t *sizes = data;
    uint64_t head = 0;

    for (uint32_t c = 0; c < index->n_columns; c++)
        head += index->columns[c].size ? 0 : 4;
    if (head > bytes)
        return false;
    data += head;
    bytes -= head;
    for (uint32_t c = 0; c < index->n_columns; c++) {
        uint64_t size = index->columns[c].size;
        if (size == 0) {
            size = mds_shard_u32(sizes, 0);
            sizes += 4;
        }
        if (size > bytes)
            return false;
        ret[c].column = &index->columns[c];
        ret[c].data = data;
        ret[c].size = size;
        data += size;
        bytes -= size;
    }
    return bytes == 0;
}
