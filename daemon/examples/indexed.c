/*
 * A map-style dataset that knows the lengths of its samples: tokens in the two files that
 * Megatron-LM's preprocessing writes, an index and the tokens themselves.
 *
 *   dataset: {kind: plugin, path: /.../indexed.so, config: {path: /.../corpus}}
 *   batch: {tokens: 16384}
 *   collate: {kind: pad}
 *
 * A sample is a dict of `tokens`, one sequence as it lies in corpus.bin, of the integer type that
 * corpus.idx names. Nothing is copied, and no sequence is looked at to know how long it is: the
 * index has it, and lengths() hands it on.
 *
 *   cc -shared -fPIC indexed.c $(pkg-config --cflags --libs dloader-plugin jansson) -o indexed.so
 */
#include <dloader-plugin.h>
#include <jansson.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The index, its numbers little-endian, as this machine's are: 9 bytes "MMIDIDX" and two NUL; u64
 * version, 1; u8 type of the tokens; u64 number of sequences; u64 number of documents; for each
 * sequence i32 its length; for each u64 where it begins in the other file, in bytes; and more,
 * about documents, which is not looked at.
 */
enum { MAGIC_BYTES = 9, TYPE_AT = 17, COUNT_AT = 18, HEADER_BYTES = 34, PATH_ROOM = 4096 };
static const char magic[MAGIC_BYTES + 1] = "MMIDIDX\0\0";

static const struct type {
    uint32_t type;
    uint32_t bytes;
} types[] = {
    {0, 0},
    {DL_PLUGIN_UINT8, 1},
    {DL_PLUGIN_INT8, 1},
    {DL_PLUGIN_INT16, 2},
    {DL_PLUGIN_INT32, 4},
    {DL_PLUGIN_INT64, 8},
    {0, 0}, /* of real numbers, which are no tokens */
    {0, 0},
    {DL_PLUGIN_UINT16, 2},
};

struct indexed {
    const struct dl_plugin_host *host;
    const char *lengths; /* i32 each; in the index, mapped by the host, at no even place */
    const char *begins;  /* u64 each */
    const char *tokens;  /* the other file */
    uint64_t bytes;      /* of it */
    uint64_t n;
    struct type type;
};

/* ---- samples -------------------------------------------------------------------------------- */

/* A length below 0 counts as none. */
static uint64_t length_at(const struct indexed *indexed, uint64_t i)
{
    int32_t length;

    memcpy(&length, indexed->lengths + i * sizeof length, sizeof length);
    return length > 0 ? (uint64_t)length : 0;
}

static int indexed_length(void *handle, uint64_t *ret)
{
    const struct indexed *indexed = handle;

    *ret = indexed->n;
    return 0;
}

static int indexed_lengths(void *handle, uint64_t first, uint64_t n, uint64_t *ret)
{
    for (uint64_t i = 0; i < n; i++)
        ret[i] = length_at(handle, first + i);
    return 0;
}

static int indexed_get(void *handle, uint64_t index, struct dl_plugin_sample *sample,
                       struct dl_plugin_rng *rng)
{
    const struct indexed *indexed = handle;
    const struct dl_plugin_host *host = indexed->host;
    uint64_t n = length_at(indexed, index), begin;

    memcpy(&begin, indexed->begins + index * sizeof begin, sizeof begin);
    if (begin > indexed->bytes || n > (indexed->bytes - begin) / indexed->type.bytes)
        return host->fail(host, EINVAL,
                          "its %llu tokens from byte %llu on lie outside the file of tokens, which "
                          "has %llu bytes: the two files are not of one corpus",
                          (unsigned long long)n, (unsigned long long)begin,
                          (unsigned long long)indexed->bytes);
    host->begin(sample, DL_PLUGIN_DICT, NULL);
    host->tensor(sample, "tokens", indexed->type.type, 1, &n, indexed->tokens + begin);
    return host->end(sample);
}

/* ---- opening -------------------------------------------------------------------------------- */

static int read_index(struct indexed *indexed, const char *path, const char *index, uint64_t bytes)
{
    const struct dl_plugin_host *host = indexed->host;
    static const uint64_t version = 1;
    uint8_t type;

    if (bytes < HEADER_BYTES || memcmp(index, magic, MAGIC_BYTES) != 0 ||
        memcmp(index + MAGIC_BYTES, &version, sizeof version) != 0)
        return host->fail(host, EINVAL,
                          "%s: is not an index of version 1: it does not begin as one", path);
    type = (uint8_t)index[TYPE_AT];
    if (type >= sizeof types / sizeof types[0] || types[type].bytes == 0)
        return host->fail(host, EINVAL, "%s: %u is not a type of tokens", path, type);
    indexed->type = types[type];
    memcpy(&indexed->n, index + COUNT_AT, sizeof indexed->n);
    if (indexed->n > (bytes - HEADER_BYTES) / (sizeof(int32_t) + sizeof(uint64_t)))
        return host->fail(host, EINVAL, "%s: is too short for the %llu sequences it says it has",
                          path, (unsigned long long)indexed->n);
    indexed->lengths = index + HEADER_BYTES;
    indexed->begins = indexed->lengths + indexed->n * sizeof(int32_t);
    return 0;
}

static int map_both(struct indexed *indexed, const char *prefix)
{
    const struct dl_plugin_host *host = indexed->host;
    char path[PATH_ROOM];
    const void *data;
    uint64_t bytes;
    int r;

    if (snprintf(path, sizeof path, "%s.idx", prefix) >= PATH_ROOM)
        return host->fail(host, ENAMETOOLONG, "%.200s...: is not a path", prefix);
    r = host->map(host, path, &data, &bytes);
    if (r == 0)
        r = read_index(indexed, path, data, bytes);
    if (r < 0)
        return r;
    snprintf(path, sizeof path, "%s.bin", prefix);
    r = host->map(host, path, &data, &indexed->bytes);
    indexed->tokens = data;
    return r;
}

static int indexed_open(const struct dl_plugin_host *host, const char *config, void **ret)
{
    struct indexed *indexed = calloc(1, sizeof *indexed);
    json_t *json = json_loads(config, 0, NULL);
    const char *prefix;
    int r;

    if (!indexed) {
        r = host->fail(host, ENOMEM, "out of memory");
    } else if (!json || json_unpack(json, "{s:s}", "path", &prefix) < 0) {
        r = host->fail(host, EINVAL,
                       "config is not {path: the two files' without .idx, .bin}: "
                       "%.200s",
                       config);
    } else {
        indexed->host = host;
        r = map_both(indexed, prefix);
    }
    json_decref(json);
    if (r < 0)
        free(indexed);
    else
        *ret = indexed;
    return r;
}

static void indexed_close(void *handle)
{
    free(handle);
}

static const struct dl_plugin indexed_plugin = {
    .abi = DL_PLUGIN_ABI,
    .size = sizeof indexed_plugin,
    .open = indexed_open,
    .close = indexed_close,
    .length = indexed_length,
    .get = indexed_get,
    .lengths = indexed_lengths,
};

const struct dl_plugin *dl_plugin_entry(void)
{
    return &indexed_plugin;
}
