#include "daemon/data/kinds/arrow/arrow_files.h"
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/files/source.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>

enum { ARROW_WORDS = 256, ARROW_MOST_SHARDS = 100000 };

/* A directory that is looked at. */
struct arrow_folder {
    const char *root;
    const struct data_env *env;
    struct arrow_files *ret;
    struct dl_error *err;
};

static int arrow_folder_refuse(const struct arrow_folder *folder, const char *file, const char *why)
{
    return dl_error_set(folder->err, EINVAL, folder->root, "its %s %s", file, why);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* *ret is NULL if the file does not exist. */
static int arrow_folder_load(const struct arrow_folder *folder, const char *name, json_t **ret)
{
    char path[PATH_MAX];
    struct source source = {0};
    json_error_t why;

    *ret = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder->root, name) >= (int)sizeof path)
        return 0;
    int r = source_open(path, folder->env, &source, folder->err);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    *ret = json_loadb((const char *)source.data, source.bytes, 0, &why);
    source_close(&source);
    if (!*ret)
        return dl_error_set(folder->err, EINVAL, path, "is not JSON: %s, in its line %d", why.text,
                            why.line);
    return file_list_add(&folder->ret->others, path, folder->err);
}

/* "train, test" */
static void arrow_folder_say_splits(json_t *splits, char *out, size_t room)
{
    size_t len = 0, n = json_is_array(splits) ? json_array_size(splits) : json_object_size(splits);
    void *at = json_object_iter(splits);

    out[0] = '\0';
    for (size_t i = 0; i < n && len < room; i++) {
        const char *name =
            at ? json_object_iter_key(at) : json_string_value(json_array_get(splits, i));
        int more = snprintf(out + len, room - len, "%s%.64s", i > 0 ? ", " : "", name ? name : "?");
        len += more > 0 ? (size_t)more : 0;
        at = at ? json_object_iter_next(splits, at) : NULL;
    }
}

/* ---- what save_to_disk() wrote --------------------------------------------------------------- */

static int arrow_folder_add(const struct arrow_folder *folder, struct file_list *list,
                            const char *name)
{
    char path[PATH_MAX];

    if (!name || !name[0] || strchr(name, '/') || strcmp(name, "..") == 0)
        return arrow_folder_refuse(folder, "state.json",
                                   "names a file that is not in the directory");
    if (snprintf(path, sizeof path, "%s/%s", folder->root, name) >= (int)sizeof path)
        return arrow_folder_refuse(folder, "state.json", "names a file whose path is too long");
    return file_list_add(list, path, folder->err);
}

/* [{"filename": "data-00000-of-00001.arrow"}, ...] */
static int arrow_folder_add_named(const struct arrow_folder *folder, const json_t *files,
                                  struct file_list *list)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < json_array_size(files); i++)
        r = arrow_folder_add(
            folder, list, json_string_value(json_object_get(json_array_get(files, i), "filename")));
    return r;
}

static int arrow_folder_take_state(const struct arrow_folder *folder, json_t *state)
{
    const json_t *files = json_object_get(state, "_data_files");

    if (!json_is_array(files) || json_array_size(files) == 0)
        return arrow_folder_refuse(folder, "state.json", "has no _data_files; it is not a dataset");
    int r = arrow_folder_add_named(folder, files, &folder->ret->data);
    if (r == 0) /* until datasets 2.9, a selection was a file of its own */
        r = arrow_folder_add_named(folder, json_object_get(state, "_indices_data_files"),
                                   &folder->ret->indices);
    return r;
}

/* ---- what the cache has ---------------------------------------------------------------------- */

/* NAME-SPLIT.arrow, or NAME-SPLIT-00000-of-00002.arrow and so on. */
static int arrow_folder_add_split(const struct arrow_folder *folder, const char *split,
                                  const json_t *info)
{
    const char *name = json_string_value(json_object_get(info, "dataset_name"));
    size_t n = json_array_size(json_object_get(info, "shard_lengths"));
    char file[ARROW_WORDS];
    int r = 0;

    if (!name || n > ARROW_MOST_SHARDS)
        return arrow_folder_refuse(folder, "dataset_info.json",
                                   "does not say what its files are called; name them instead");
    for (size_t i = 0; r == 0 && i < max_u64(n, 1); i++) {
        if (n > 1)
            snprintf(file, sizeof file, "%.80s-%.80s-%05zu-of-%05zu.arrow", name, split, i, n);
        else
            snprintf(file, sizeof file, "%.80s-%.80s.arrow", name, split);
        r = arrow_folder_add(folder, &folder->ret->data, file);
    }
    return r;
}

static int arrow_folder_take_info(const struct arrow_folder *folder, json_t *info)
{
    json_t *splits = json_object_get(info, "splits");
    char words[ARROW_WORDS];
    void *first = json_object_iter(splits);

    if (json_object_size(splits) == 1)
        return arrow_folder_add_split(folder, json_object_iter_key(first),
                                      json_object_iter_value(first));
    arrow_folder_say_splits(splits, words, sizeof words);
    return dl_error_set(folder->err, EINVAL, folder->root,
                        "is a cache of the splits %s; name the files of one, such as "
                        "paths: '%s/*-%s*.arrow'",
                        words[0] ? words : "(none)", folder->root,
                        first ? json_object_iter_key(first) : "train");
}

/* ---- a directory ----------------------------------------------------------------------------- */

static int arrow_folder_refuse_unknown(const struct arrow_folder *folder, json_t *splits)
{
    char words[ARROW_WORDS];

    if (!splits)
        return dl_error_set(folder->err, EINVAL, folder->root,
                            "is a directory without state.json or dataset_info.json, as "
                            "save_to_disk() of Hugging Face's datasets writes them; name its "
                            "files instead, such as paths: '%s/*.arrow'",
                            folder->root);
    const char *first = json_string_value(json_array_get(splits, 0));
    arrow_folder_say_splits(splits, words, sizeof words);
    return dl_error_set(folder->err, EINVAL, folder->root,
                        "is a DatasetDict of %s; name the directory of one, such as %s/%s",
                        words[0] ? words : "(none)", folder->root, first ? first : "train");
}

static int arrow_folder_take(const struct arrow_folder *folder)
{
    static const struct {
        const char *name;
        int (*take)(const struct arrow_folder *folder, json_t *json);
    } files[] = {
        {"state.json", arrow_folder_take_state},
        {"dataset_info.json", arrow_folder_take_info},
    };
    json_t *json = NULL;
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++) {
        r = arrow_folder_load(folder, files[i].name, &json);
        if (r < 0 || !json)
            continue;
        r = files[i].take(folder, json);
        json_decref(json);
        return r;
    }
    if (r == 0)
        r = arrow_folder_load(folder, "dataset_dict.json", &json);
    if (r == 0)
        r = arrow_folder_refuse_unknown(folder, json_object_get(json, "splits"));
    json_decref(json);
    return r;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int arrow_files_take(const char *path, bool alone, const struct data_env *env,
                            struct arrow_files *ret, struct dl_error *err)
{
    struct arrow_folder folder = {.root = path, .env = env, .ret = ret, .err = err};
    struct stat st;

    if (source_stat(path, true, env, &st) < 0 || !S_ISDIR(st.st_mode))
        return file_list_add(&ret->data, path, err);
    int r = arrow_folder_take(&folder);
    if (r == 0 && ret->indices.n > 0 && !alone)
        r = dl_error_set(err, EINVAL, path,
                         "has a selection of its rows (indices), which can be read only if it is "
                         "the only path; join datasets with kind: concat");
    return r;
}

int arrow_files_find(const struct spec_dataset *spec, const struct data_env *env,
                     struct arrow_files *ret, struct dl_error *err)
{
    struct file_list named = {0};
    struct arrow_files files = {0};
    int r = file_list_make(spec, env, &named, err);

    for (uint32_t i = 0; r == 0 && i < named.n; i++)
        r = arrow_files_take(named.paths[i], named.n == 1, env, &files, err);
    file_list_deinit(&named);
    if (r < 0)
        arrow_files_deinit(&files);
    else
        *ret = files;
    return r;
}

void arrow_files_deinit(struct arrow_files *files)
{
    file_list_deinit(&files->data);
    file_list_deinit(&files->indices);
    file_list_deinit(&files->others);
}

static int arrow_files_append(const struct file_list *from, struct file_list *to,
                              struct dl_error *err)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < from->n; i++)
        r = file_list_add(to, from->paths[i], err);
    return r;
}

int arrow_list_files(const struct spec_dataset *spec, const struct data_env *env,
                     struct file_list *ret, struct dl_error *err)
{
    struct arrow_files files = {0};
    int r = arrow_files_find(spec, env, &files, err);

    if (r < 0)
        return r;
    if ((r = arrow_files_append(&files.others, ret, err)) == 0 &&
        (r = arrow_files_append(&files.data, ret, err)) == 0)
        r = arrow_files_append(&files.indices, ret, err);
    if (r == 0)
        file_list_expect(ret, env);
    arrow_files_deinit(&files);
    return r;
}
