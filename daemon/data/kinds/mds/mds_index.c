#include "daemon/data/kinds/mds/mds_index.h"

#include <errno.h>
#include <jansson.h>

enum { MDS_VERSION = 2, COLUMNS_MAX = 4096 };

/* On the way through the file. */
struct mds_index_reading {
    const char *path;
    struct mds_index index;
    struct dl_error *err;
};

void mds_index_deinit(struct mds_index *index)
{
    for (uint32_t i = 0; i < index->n_columns; i++)
        mds_column_deinit(&index->columns[i]);
    free(index->columns);
    shard_files_deinit(&index->shards);
    *index = (struct mds_index){0};
}

static int mds_index_refuse(const struct mds_index_reading *rd, size_t shard, const char *what)
{
    return dl_error_set(rd->err, EINVAL, rd->path, "its shard %zu %s", shard, what);
}

static int mds_index_no_memory(const struct mds_index_reading *rd)
{
    return dl_error_set(rd->err, ENOMEM, rd->path, "out of memory for the index");
}

/* ---- columns -------------------------------------------------------------------------------- */

/* Column i of the shard; owned by the caller, also after an error. */
static int mds_index_read_column(struct mds_index_reading *rd, const json_t *shard, size_t number,
                                 size_t i, struct mds_column *ret)
{
    const char *name = json_string_value(json_array_get(json_object_get(shard, "column_names"), i));
    const char *encoding =
        json_string_value(json_array_get(json_object_get(shard, "column_encodings"), i));
    const json_t *size = json_array_get(json_object_get(shard, "column_sizes"), i);

    if (!name || !encoding || !size ||
        !(json_is_null(size) ||
          (json_integer_value(size) > 0 && json_integer_value(size) <= UINT32_MAX)))
        return mds_index_refuse(rd, number, "has a column without a valid name, encoding or size");
    ret->name = strdup(name);
    ret->encoding = strdup(encoding);
    ret->size = json_is_null(size) ? 0 : (uint32_t)json_integer_value(size);
    if (!ret->name || !ret->encoding)
        return mds_index_no_memory(rd);
    return mds_column_parse(ret, rd->path, rd->err);
}

static int mds_index_read_columns(struct mds_index_reading *rd, const json_t *shard, size_t n)
{
    int r = 0;

    rd->index.columns = calloc(n, sizeof *rd->index.columns);
    if (!rd->index.columns)
        return mds_index_no_memory(rd);
    for (size_t i = 0; r == 0 && i < n; i++) {
        rd->index.n_columns++;
        r = mds_index_read_column(rd, shard, 0, i, &rd->index.columns[i]);
    }
    return r;
}

static int mds_index_compare_columns(struct mds_index_reading *rd, const json_t *shard,
                                     size_t number, size_t n)
{
    bool equal = n == rd->index.n_columns;

    for (size_t i = 0; equal && i < n; i++) {
        struct mds_column column = {0};
        int r = mds_index_read_column(rd, shard, number, i, &column);
        equal = r == 0 && mds_columns_equal(&column, &rd->index.columns[i]);
        mds_column_deinit(&column);
        if (r < 0)
            return r;
    }
    return equal ? 0 : mds_index_refuse(rd, number, "has other columns than the first one");
}

/* ---- shards --------------------------------------------------------------------------------- */

static int mds_index_copy_name(struct mds_index_reading *rd, size_t number, const json_t *data,
                               char **ret)
{
    const char *name = json_string_value(json_object_get(data, "basename"));

    if (!name)
        return 0;
    if (!shard_file_good_name(name))
        return mds_index_refuse(rd, number,
                                "has a basename that is not a file below the directory");
    *ret = strdup(name);
    return *ret ? 0 : mds_index_no_memory(rd);
}

static int mds_index_read_shard(struct mds_index_reading *rd, const json_t *shard, size_t number)
{
    struct shard_file *entry = &rd->index.shards.files[number];
    const json_t *format = json_object_get(shard, "format");
    const json_t *raw = json_object_get(shard, "raw_data");
    json_int_t samples = json_integer_value(json_object_get(shard, "samples"));
    json_int_t bytes = json_integer_value(json_object_get(raw, "bytes"));
    size_t n = json_array_size(json_object_get(shard, "column_names"));
    int r;

    if (!json_is_string(format) || strcmp(json_string_value(format), "mds") != 0 ||
        json_integer_value(json_object_get(shard, "version")) != MDS_VERSION)
        return mds_index_refuse(rd, number,
                                "is not of format mds, version 2, which is what can be read");
    if (samples < 0 || bytes < 0 || bytes > UINT32_MAX || samples > bytes / 4 || n == 0 ||
        n > COLUMNS_MAX)
        return mds_index_refuse(rd, number, "has an impossible size or number of samples");
    entry->samples = (uint64_t)samples;
    entry->count = entry->samples;
    entry->raw_bytes = (uint64_t)bytes;
    if ((r = mds_index_copy_name(rd, number, raw, &entry->raw)) < 0 ||
        (r = mds_index_copy_name(rd, number, json_object_get(shard, "zip_data"), &entry->packed)) <
            0)
        return r;
    if (!entry->raw)
        return mds_index_refuse(rd, number, "has no raw_data.basename");
    return number == 0 ? mds_index_read_columns(rd, shard, n)
                       : mds_index_compare_columns(rd, shard, number, n);
}

static int mds_index_read(struct mds_index_reading *rd, const json_t *root)
{
    const json_t *list = json_object_get(root, "shards");
    size_t n = json_array_size(list);
    int r = 0;

    if (!json_is_array(list) || n > UINT32_MAX)
        return dl_error_set(rd->err, EINVAL, rd->path,
                            "has no list \"shards\", as MDSWriter writes it");
    rd->index.shards.files = calloc(max_u64(n, 1), sizeof *rd->index.shards.files);
    if (!rd->index.shards.files)
        return mds_index_no_memory(rd);
    for (size_t i = 0; r == 0 && i < n; i++) {
        rd->index.shards.n++;
        r = mds_index_read_shard(rd, json_array_get(list, i), i);
    }
    return r;
}

int mds_index_parse(const uint8_t *data, uint64_t bytes, const char *path, struct mds_index *ret,
                    struct dl_error *err)
{
    struct mds_index_reading rd = {.path = path, .err = err};
    json_error_t why;
    json_t *root = json_loadb((const char *)data, bytes, 0, &why);

    if (!root)
        return dl_error_set(err, EINVAL, path, "is not JSON: %s, in its line %d", why.text,
                            why.line);
    int r = mds_index_read(&rd, root);
    json_decref(root);
    if (r < 0)
        mds_index_deinit(&rd.index);
    else
        *ret = rd.index;
    return r;
}
