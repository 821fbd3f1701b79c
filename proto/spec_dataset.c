/*
 * The dataset's own keys: path, paths, dtype, shape. Paths are joined and normalised as text only:
 * the files need not exist where the spec is read.
 */
#include "proto/common/utf8.h"
#include "proto/remote_wire.h"
#include "proto/spec_table.h"
#include "proto/tree.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* "." and empty parts vanish, ".." takes the part before it with it; in place. Begins with '/'. */
static void spec_dataset_normalise(char *path)
{
    char *out = path;

    for (const char *part = path; *part;) {
        part += strspn(part, "/");
        size_t len = strcspn(part, "/");
        if (len == 2 && part[0] == '.' && part[1] == '.') {
            while (out > path && *--out != '/')
                ;
        } else if (len > 0 && !(len == 1 && part[0] == '.')) {
            *out++ = '/';
            memmove(out, part, len);
            out += len;
        }
        part += len;
    }
    if (out == path)
        *out++ = '/';
    *out = '\0';
}

/* "ftp://host/file": it would be looked for in a folder named "ftp:". */
static bool spec_dataset_is_url(const char *path)
{
    static const char scheme[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-";
    size_t len = strspn(path, scheme);

    return len > 0 && strncmp(path + len, "://", 3) == 0;
}

bool spec_is_remote(const struct spec_dataset *dataset)
{
    for (uint32_t i = 0; i < dataset->n_files; i++) {
        if (dataset->files[i].path && remote_is_url(dataset->files[i].path))
            return true;
    }
    for (uint32_t i = 0; i < dataset->n_datasets; i++) {
        if (spec_is_remote(&dataset->datasets[i]))
            return true;
    }
    return (dataset->model && remote_is_url(dataset->model)) ||
           (dataset->chat_template && remote_is_url(dataset->chat_template)) ||
           (dataset->pictures_root && remote_is_url(dataset->pictures_root)) ||
           (dataset->index_path && remote_is_url(dataset->index_path));
}

/* As it is, but that nothing stands behind the name of a directory. */
static int spec_take_url(const struct spec_reading *rd, const char *url, char **ret)
{
    size_t len = strlen(url);

    while (strncmp(url, "http", 4) != 0 && len > 1 && url[len - 1] == '/' && url[len - 2] != '/')
        len--;
    *ret = strndup(url, len);
    return *ret ? 0 : spec_no_memory(rd);
}

int spec_resolve_path(const struct spec_reading *rd, const char *place, const struct value *v,
                      char **ret)
{
    _cleanup_free_ char *joined = NULL;
    char shown[SPEC_SHOWN_MAX];

    if (v->type != VALUE_STRING || !v->string[0])
        return dl_error_set(rd->err, EINVAL, place, "%s is not the path of a file%s",
                            spec_show(v, shown), spec_quote_hint(v));
    bool remote = remote_is_url(v->string);
    if (!remote && spec_dataset_is_url(v->string))
        return dl_error_set(rd->err, EINVAL, place,
                            "%s is not read from there: s3://, gs://, hf://, https:// and http:// "
                            "are; mount it and give its path, or read it with a plug-in or a "
                            "Python dataset",
                            spec_show(v, shown));
    bool relative = v->string[0] != '/';
    if (!remote && relative && !rd->base)
        return dl_error_set(rd->err, EINVAL, place,
                            "%s is relative, and there is no directory to start from; "
                            "give the path from /",
                            spec_show(v, shown));
    if (remote) {
        int r = spec_take_url(rd, v->string, &joined);
        if (r < 0)
            return r;
    } else if (asprintf(&joined, "%s/%s", relative ? rd->base : "", v->string) < 0) {
        joined = NULL;
        return spec_no_memory(rd);
    } else {
        spec_dataset_normalise(joined);
    }
    if (strlen(joined) > DL_MAX_PATH_BYTES)
        return dl_error_set(rd->err, EINVAL, place,
                            "%s is a path of %zu bytes, above the maximum of %" PRIu64,
                            spec_show(v, shown), strlen(joined), DL_MAX_PATH_BYTES);
    *ret = steal_ptr(joined);
    return 0;
}

/* Batches are addressed as "pair.0": a dot in a field's name would be another level. */
bool spec_good_field(const char *field, size_t len)
{
    if (len == 0 || len > DL_MAX_NAME_BYTES || memchr(field, '.', len))
        return false;
    for (const uint8_t *c = (const uint8_t *)field; len > 0; c++, len--)
        if (*c < 0x20 || *c == 0x7F || (c[0] == 0xC2 && c[1] < 0xA0))
            return false;
    return true;
}

static int spec_dataset_refuse_field(const struct spec_reading *rd, const struct spec_key *key,
                                     const struct value *v)
{
    return spec_refuse(rd, key, v,
                       "is not a field's name: 1 to %" PRIu64
                       " bytes without dots and control characters",
                       DL_MAX_NAME_BYTES);
}

static int spec_dataset_compare_fields(const void *a, const void *b)
{
    const struct spec_file *left = a, *right = b;
    return strcmp(left->field, right->field);
}

static int spec_dataset_add_file(struct spec_reading *rd, const char *place, const char *field,
                                 const struct value *path)
{
    struct spec_dataset *dataset = &rd->spec->dataset;
    struct spec_file *file = &dataset->files[dataset->n_files];

    int r = spec_resolve_path(rd, place, path, &file->path);
    if (r < 0)
        return r;
    dataset->n_files++;
    if (field) {
        file->field = strdup(field);
        if (!file->field)
            return spec_no_memory(rd);
    }
    return 0;
}

static int spec_dataset_alloc_files(struct spec_reading *rd, uint32_t n)
{
    rd->spec->dataset.files = calloc(n, sizeof *rd->spec->dataset.files);
    return rd->spec->dataset.files ? 0 : spec_no_memory(rd);
}

int spec_read_path(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    char place[DL_ERROR_PATH_MAX];

    spec_place(rd, key, place);
    if (spec_key_in(key, "collate"))
        return spec_resolve_path(rd, place, v, &rd->spec->collate.path);
    if (strcmp(key->key, "model") == 0) /* beside the files */
        return spec_resolve_path(rd, place, v, &rd->spec->dataset.model);
    if (strcmp(key->key, "chat_template") == 0)
        return spec_resolve_path(rd, place, v, &rd->spec->dataset.chat_template);
    if (key->type == KEY_PATHS && rd->spec->dataset.kind == DATASET_PYTHON)
        return spec_resolve_path(rd, place, v, &rd->spec->dataset.pictures_root);
    int r = spec_dataset_alloc_files(rd, 1);
    return r < 0 ? r : spec_dataset_add_file(rd, place, NULL, v);
}

/* A list, or a map of fields. */
static int spec_dataset_read_several(struct spec_reading *rd, const struct spec_key *key,
                                     const struct value *v)
{
    struct spec_dataset *dataset = &rd->spec->dataset;
    char paths[DL_ERROR_PATH_MAX], place[DL_ERROR_PATH_MAX];

    spec_place(rd, key, paths);
    int r = spec_dataset_alloc_files(rd, v->count);
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        const struct value *item = &v->items[i];
        struct value name = {.type = VALUE_STRING, .string = item->key};
        if (item->key && !spec_good_field(item->key, strlen(item->key)))
            return spec_dataset_refuse_field(rd, key, &name);
        if (item->key)
            spec_place_below(paths, item->key, place);
        else
            spec_place_item(paths, i, place);
        r = spec_dataset_add_file(rd, place, item->key, item);
    }
    if (r == 0 && v->type == VALUE_MAP)
        qsort(dataset->files, dataset->n_files, sizeof *dataset->files,
              spec_dataset_compare_fields);
    return r;
}

static int spec_dataset_refuse_number(const struct spec_reading *rd, const struct spec_key *key,
                                      uint32_t count, uint64_t most)
{
    char place[DL_ERROR_PATH_MAX];

    spec_place(rd, key, place);
    if (most > 1)
        return dl_error_set(rd->err, EINVAL, place,
                            "%" PRIu32 " paths are above the maximum of %" PRIu64 "%s", count, most,
                            most == key->max ? "; write patterns with *" : "");
    return dl_error_set(
        rd->err, EINVAL, place,
        "%" PRIu32 " paths, but a dataset of kind %s has one; %sgive each its own dataset, and "
        "join them with kind: concat",
        count, dataset_kind_name(rd->spec->dataset.kind),
        spec_paths_of(rd->spec->dataset.kind) == PATHS_BY_FIELD
            ? "write {field: path, ...} for the fields of a sample, or "
            : "");
}

int spec_read_paths(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    static const char *const words[] = {
        [PATHS_ONE] = "is not the path of a file",
        [PATHS_BY_FIELD] = "is neither a mapping of fields to files nor one path",
        [PATHS_MANY] = "is neither a path nor a list of paths",
    };
    enum spec_paths paths = spec_paths_of(rd->spec->dataset.kind);
    bool by_field = v->type == VALUE_MAP && paths == PATHS_BY_FIELD;
    uint64_t most = by_field ? DL_MAX_DATASET_FILES : paths == PATHS_MANY ? key->max : 1;

    if (v->type == VALUE_STRING)
        return spec_read_path(rd, key, v);
    if ((v->type != VALUE_ARRAY && !by_field) || v->count == 0)
        return spec_refuse(rd, key, v, "%s%s%s", words[paths],
                           v->type == VALUE_ARRAY || by_field ? ": it is empty" : "",
                           spec_quote_hint(v));
    if (v->count > most)
        return spec_dataset_refuse_number(rd, key, v->count, most);
    if (paths == PATHS_ONE)
        return spec_read_path(rd, key, &v->items[0]);
    return spec_dataset_read_several(rd, key, v);
}

int spec_read_field_name(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    if (v->type != VALUE_STRING)
        return spec_refuse(rd, key, v, "is not a string%s", spec_quote_hint(v));
    bool path = rd->spec->dataset.kind != DATASET_TEXT && spec_good_leaf(v->string);
    if (!path && !spec_good_field(v->string, strlen(v->string)))
        return spec_dataset_refuse_field(rd, key, v);
    struct spec_dataset *dataset = &rd->spec->dataset;
    char **to = strcmp(key->key, "second") == 0   ? &dataset->second
                : strcmp(key->key, "prompt") == 0 ? &dataset->prompt
                : strcmp(key->key, "tools") == 0  ? &dataset->tools
                                                  : &dataset->field;
    *to = strdup(v->string);
    return *to ? 0 : spec_no_memory(rd);
}

/* Only a tokenizer.json names its tokens. */
int spec_read_token(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    bool named = rd->spec->dataset.tokenizer == TOKENIZER_HUGGINGFACE;

    if (v->type == VALUE_NULL ||
        (v->type == VALUE_INT && v->integer >= 0 && (uint64_t)v->integer <= key->max) ||
        (named && v->type == VALUE_STRING && v->string[0] &&
         strlen(v->string) <= DL_MAX_NAME_BYTES))
        return value_copy(v, (struct value *)(void *)((char *)rd->spec + key->offset)) < 0
                   ? spec_no_memory(rd)
                   : 0;
    if (named)
        return spec_refuse(rd, key, v,
                           "is neither the number of a token, from 0 to %" PRIu64
                           ", nor its text, of 1 to %" PRIu64 " bytes",
                           key->max, (uint64_t)DL_MAX_NAME_BYTES);
    return spec_refuse(rd, key, v,
                       "is not the number of a token, from 0 to %" PRIu64
                       "; only a tokenizer.json has their texts",
                       key->max);
}

bool spec_token_dtype(uint32_t dtype)
{
    return dtype == DL_DTYPE_UINT16 || dtype == DL_DTYPE_UINT32 || dtype == DL_DTYPE_INT32 ||
           dtype == DL_DTYPE_INT64;
}

/* Which of the types the key has in a dataset of the kind. Not every byte is a bool. */
static bool spec_dataset_takes_dtype(const struct spec_key *key, enum dataset_kind kind,
                                     uint32_t dtype)
{
    if (strcmp(key->key, "raw") == 0)
        return dtype != DL_DTYPE_BOOL;
    if (kind == DATASET_TOKENS)
        return spec_token_dtype(dtype);
    return kind == DATASET_RECORDS || dtype == DL_DTYPE_FLOAT32 || dtype == DL_DTYPE_INT16;
}

int spec_read_dtype(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    static const char *const names[] = {
#define DTYPE(NAME, number, bytes, name, numpy, dlpack) name,
#include "proto/dtype.def"
#undef DTYPE
    };
    enum dataset_kind kind = rd->spec->dataset.kind;
    struct word_list list;
    uint32_t dtype;

    if (v->type == VALUE_STRING && dtype_from_name(v->string, &dtype) == 0 &&
        spec_dataset_takes_dtype(key, kind, dtype)) {
        memcpy((char *)rd->spec + key->offset, &dtype, sizeof dtype);
        return 0;
    }
    word_list_begin(&list, v->type == VALUE_STRING ? v->string : "");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (dtype_from_name(names[i], &dtype) == 0 && spec_dataset_takes_dtype(key, kind, dtype))
            word_list_add(&list, names[i]);
    return spec_refuse(rd, key, v, "is not one of %s%s%s%s", list.text,
                       list.best ? "; did you mean " : "", list.best ? list.best : "",
                       list.best ? "?" : "");
}

int spec_read_shape(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    struct spec_dataset *dataset = &rd->spec->dataset;
    char shape[DL_ERROR_PATH_MAX], place[DL_ERROR_PATH_MAX], shown[SPEC_SHOWN_MAX];
    uint64_t bytes;

    spec_place(rd, key, shape);
    if (v->type != VALUE_ARRAY)
        return spec_refuse(rd, key, v, "is not a list of positive integers, such as [28, 28]");
    if (v->count > key->max)
        return dl_error_set(rd->err, EINVAL, shape,
                            "%" PRIu32 " dimensions are above the maximum of %" PRIu64
                            " (a batch has one more)",
                            v->count, key->max);
    for (uint32_t i = 0; i < v->count; i++) {
        const struct value *item = &v->items[i];
        spec_place_item(shape, i, place);
        if (item->type != VALUE_INT || item->integer < 1)
            return dl_error_set(rd->err, EINVAL, place, "%s is not a positive integer",
                                spec_show(item, shown));
        dataset->shape[i] = (uint64_t)item->integer;
    }
    dataset->ndim = v->count;
    if (!tensor_bytes(dataset->dtype, dataset->ndim, dataset->shape, &bytes))
        return dl_error_set(rd->err, EINVAL, shape,
                            "a sample of this shape and dtype would have 2^63 bytes or more");
    return 0;
}
