#include "daemon/data/kinds/litdata/litdata_index.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>

/* On the way through the file. */
struct litdata_index_reading {
    const char *path;
    struct litdata_index index;
    const char *suffix; /* of chunks compressed as a whole, "zstd"; or NULL */
    struct dl_error *err;
};

void litdata_index_deinit(struct litdata_index *index)
{
    for (uint32_t i = 0; index->leaves && i < index->shape.leaves; i++)
        free(index->leaves[i].format);
    free(index->leaves);
    free(index->tokens);
    litdata_shape_deinit(&index->shape);
    shard_files_deinit(&index->chunks);
    *index = (struct litdata_index){0};
}

static int litdata_index_refuse(const struct litdata_index_reading *rd, const char *why)
{
    return dl_error_set(rd->err, EINVAL, rd->path, "its %s", why);
}

static int litdata_index_refuse_chunk(const struct litdata_index_reading *rd, size_t chunk,
                                      const char *why)
{
    return dl_error_set(rd->err, EINVAL, rd->path, "its chunk %zu %s", chunk, why);
}

static int litdata_index_no_memory(const struct litdata_index_reading *rd)
{
    return dl_error_set(rd->err, ENOMEM, rd->path, "out of memory for the index");
}

/* ---- config --------------------------------------------------------------------------------- */

static int litdata_index_read_leaves(struct litdata_index_reading *rd, const json_t *formats)
{
    struct litdata_index *index = &rd->index;

    if (json_array_size(formats) != index->shape.leaves)
        return litdata_index_refuse(rd, "config.data_format has not as many formats as its "
                                        "config.data_spec has leaves");
    index->leaves = calloc(max_u64(index->shape.leaves, 1), sizeof *index->leaves);
    if (!index->leaves)
        return litdata_index_no_memory(rd);
    for (uint32_t i = 0; i < index->shape.leaves; i++) {
        const char *format = json_string_value(json_array_get(formats, i));
        if (!format)
            return litdata_index_refuse(rd, "config.data_format has a format that is not text");
        index->leaves[i].format = strdup(format);
        if (!index->leaves[i].format)
            return litdata_index_no_memory(rd);
        litdata_leaf_parse(&index->leaves[i]);
    }
    return 0;
}

/* Checks the loader it was written for: others have another layout. */
static int litdata_index_check_loader(struct litdata_index_reading *rd, const json_t *config,
                                      bool *ret_tokens)
{
    const char *loader = json_string_value(json_object_get(config, "item_loader"));

    *ret_tokens = loader && strcmp(loader, "TokensLoader") == 0;
    if (loader && strcmp(loader, "ParquetLoader") == 0)
        return litdata_index_refuse(rd, "chunks are Parquet files; read them by kind: parquet");
    if (loader && strcmp(loader, "PyTreeLoader") != 0 && !*ret_tokens)
        return dl_error_set(rd->err, EINVAL, rd->path,
                            "was written for a %.60s; those of PyTreeLoader and TokensLoader can "
                            "be read",
                            loader);
    if (*ret_tokens && (rd->index.shape.leaves != 1 || rd->index.leaves[0].sort != LITDATA_ROW))
        return litdata_index_refuse(
            rd, "items are for a TokensLoader, but are not tensors of one dimension");
    return 0;
}

static int litdata_index_read_config(struct litdata_index_reading *rd, const json_t *config,
                                     bool *ret_tokens)
{
    const char *spec = json_string_value(json_object_get(config, "data_spec"));
    const char *level = json_string_value(json_object_get(config, "compression_level"));
    const json_t *encryption = json_object_get(config, "encryption");
    int r;

    if (!json_is_object(config) || !json_is_array(json_object_get(config, "data_format")))
        return litdata_index_refuse(rd, "config has no data_format; it is not litData's");
    if (encryption && !json_is_null(encryption))
        return litdata_index_refuse(rd, "chunks are encrypted, which cannot be read");
    if (!spec)
        return litdata_index_refuse(rd, "config has no data_spec");
    if (!level || strcmp(level, "chunk") == 0)
        rd->suffix = json_string_value(json_object_get(config, "compression"));
    rd->index.packs_items = level && strcmp(level, "sample") == 0;
    if ((r = litdata_shape_parse(spec, rd->path, &rd->index.shape, rd->err)) < 0 ||
        (r = litdata_index_read_leaves(rd, json_object_get(config, "data_format"))) < 0)
        return r;
    return litdata_index_check_loader(rd, config, ret_tokens);
}

/* ---- chunks --------------------------------------------------------------------------------- */

/* "chunk-0-0.zstd.bin" was "chunk-0-0.bin" before; *ret stays NULL if the name has no such part:
 * the chunk is not compressed. */
static int litdata_index_raw_name(const struct litdata_index_reading *rd, const char *name,
                                  char **ret)
{
    char suffix[64];
    const char *at = NULL;

    if (rd->suffix && snprintf(suffix, sizeof suffix, ".%s.", rd->suffix) < (int)sizeof suffix)
        at = strstr(name, suffix);
    if (!at)
        return 0;
    const char *rest = at + strlen(suffix) - 1;
    size_t room = strlen(name) + 1;
    *ret = calloc(1, room);
    if (!*ret)
        return litdata_index_no_memory(rd);
    snprintf(*ret, room, "%.*s%s", (int)(at - name), name, rest);
    return 0;
}

static int litdata_index_take_name(struct litdata_index_reading *rd, const char *name,
                                   struct shard_file *chunk)
{
    int r = litdata_index_raw_name(rd, name, &chunk->raw);

    if (r < 0)
        return r;
    char **as_it_lies = chunk->raw ? &chunk->packed : &chunk->raw;
    *as_it_lies = strdup(name);
    return *as_it_lies ? 0 : litdata_index_no_memory(rd);
}

static int litdata_index_read_tokens(struct litdata_index_reading *rd, const json_t *chunk,
                                     size_t number)
{
    const struct shard_file *file = &rd->index.chunks.files[number];
    json_int_t dim = json_integer_value(json_object_get(chunk, "dim"));
    uint64_t room = file->raw_bytes - 4 * (file->samples + 2), bytes;

    /* Tokens have a type: litdata_index_check_loader(). */
    bytes = dtype_bytes(rd->index.leaves[0].dtype);
    if (dim < 0 || (uint64_t)dim > room / bytes)
        return litdata_index_refuse_chunk(rd, number, "has an impossible number of tokens");
    rd->index.tokens[number] = (uint64_t)dim;
    return 0;
}

static int litdata_index_read_chunk(struct litdata_index_reading *rd, const json_t *chunk,
                                    size_t number)
{
    struct shard_file *file = &rd->index.chunks.files[number];
    const char *name = json_string_value(json_object_get(chunk, "filename"));
    json_int_t bytes = json_integer_value(json_object_get(chunk, "chunk_bytes"));
    json_int_t items = json_integer_value(json_object_get(chunk, "chunk_size"));

    if (!name || !shard_file_good_name(name))
        return litdata_index_refuse_chunk(rd, number,
                                          "has a filename that is not a file below the directory");
    /* A table of places must fit; also for compressed chunks, which are smaller. */
    if (items <= 0 || bytes < 8 || bytes > UINT32_MAX || items > bytes / 4 - 2)
        return litdata_index_refuse_chunk(rd, number, "has an impossible size or number of items");
    file->samples = (uint64_t)items;
    file->count = file->samples;
    file->raw_bytes = (uint64_t)bytes;
    int r = litdata_index_take_name(rd, name, file);
    return r == 0 && rd->index.tokens ? litdata_index_read_tokens(rd, chunk, number) : r;
}

static int litdata_index_read(struct litdata_index_reading *rd, const json_t *root)
{
    const json_t *list = json_object_get(root, "chunks");
    size_t n = json_array_size(list);
    bool tokens = false;

    if (!json_is_array(list) || n > UINT32_MAX)
        return dl_error_set(rd->err, EINVAL, rd->path,
                            "has no list \"chunks\", as litData's optimize() writes it");
    int r = litdata_index_read_config(rd, json_object_get(root, "config"), &tokens);
    if (r < 0)
        return r;
    rd->index.chunks.files = calloc(max_u64(n, 1), sizeof *rd->index.chunks.files);
    if (tokens)
        rd->index.tokens = calloc(max_u64(n, 1), sizeof *rd->index.tokens);
    if (!rd->index.chunks.files || (tokens && !rd->index.tokens))
        return litdata_index_no_memory(rd);
    for (size_t i = 0; r == 0 && i < n; i++) {
        rd->index.chunks.n++;
        r = litdata_index_read_chunk(rd, json_array_get(list, i), i);
    }
    return r;
}

int litdata_index_parse(const uint8_t *data, uint64_t bytes, const char *path,
                        struct litdata_index *ret, struct dl_error *err)
{
    struct litdata_index_reading rd = {.path = path, .err = err};
    json_error_t why;
    json_t *root = json_loadb((const char *)data, bytes, 0, &why);

    if (!root)
        return dl_error_set(err, EINVAL, path, "is not JSON: %s, in its line %d", why.text,
                            why.line);
    int r = litdata_index_read(&rd, root);
    json_decref(root);
    if (r < 0)
        litdata_index_deinit(&rd.index);
    else
        *ret = rd.index;
    return r;
}
