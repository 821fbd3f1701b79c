#include "daemon/data/kinds/kinds.h"

#include "daemon/data/decode/tokenizer/chat_file.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/dataset_fingerprint.h"
#include "daemon/data/kinds/tokenized.h"

#include <errno.h>

/* ---- files ---------------------------------------------------------------------------------- */

static int kinds_list_nothing(const struct spec_dataset *spec, const struct data_env *env,
                              struct file_list *ret, struct dl_error *err)
{
    if (files_sort_of(spec->kind) == FILES_PLUGIN || files_sort_of(spec->kind) == FILES_CODE)
        return dl_error_set(err, ENOTSUP, "dataset.kind", "is code, whose files are not known");
    return 0;
}

static int kinds_list_named(const struct spec_dataset *spec, const struct data_env *env,
                            struct file_list *ret, struct dl_error *err)
{
    int r = 0;

    for (uint32_t i = 0; i < spec->n_files && r == 0; i++)
        r = file_list_add(ret, spec->files[i].path, err);
    if (r == 0)
        file_list_expect(ret, env);
    return r;
}

/* ---- the table ------------------------------------------------------------------------------ */

static const struct {
    dataset_opener *open;
    dataset_lister *list;
} kinds_functions[] = {
#define LISTER_NOTHING(name)  kinds_list_nothing
#define LISTER_NAMED(name)    kinds_list_named
#define LISTER_PATTERNS(name) file_list_make
#define LISTER_OWN(name)      name##_list_files
#define DATASET(NAME, name, style, files, list, ...) \
    [DATASET_##NAME] = {name##_open, LISTER_##list(name)},
#include "proto/kinds.def"
};

static bool kinds_has(enum dataset_kind kind)
{
    return kind < ARRAY_SIZE(kinds_functions) && kinds_functions[kind].open;
}

/* A template, and the file of its tokens if there is one. */
static int kinds_list_chat(const struct spec_dataset *spec, const struct data_env *env,
                           struct file_list *list, struct dl_error *err)
{
    _cleanup_fd_ int fd = -1;
    char beside[DL_BOUND_PATH_BYTES];
    struct dl_error absent = {0};
    uint64_t bytes;
    int r = file_list_add(list, spec->chat_template, err);

    if (r == 0 && chat_file_beside(spec, beside) &&
        source_open_file(beside, env, &fd, &bytes, &absent) == 0)
        r = file_list_add(list, beside, err);
    return r;
}

int spec_files_list(const struct spec_dataset *spec, const struct data_env *env,
                    struct file_list *ret, struct dl_error *err)
{
    _cleanup_(file_list_deinit) struct file_list list = {0};
    int r = kinds_has(spec->kind) ? kinds_functions[spec->kind].list(spec, env, &list, err) : 0;

    if (r == 0 && spec->model)
        r = file_list_add(&list, spec->model, err);
    if (r == 0 && spec->chat_template)
        r = kinds_list_chat(spec, env, &list, err);
    if (r < 0)
        return r;
    *ret = list;
    list = (struct file_list){0};
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

int python_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                struct dataset **ret, struct dl_error *err)
{
    if (env->open_python)
        return env->open_python(spec, place, env, ret, err);
    return dl_error_set(err, ENOTSUP, place,
                        "a dataset of kind python needs a Python interpreter; open the loader "
                        "at a daemon, whose workers have one");
}

int dataset_open_at(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                    struct dataset **ret, struct dl_error *err)
{
    if (!kinds_has(spec->kind))
        return dl_error_set(err, EINVAL, "dataset.kind", "%u is not a kind of dataset",
                            (unsigned)spec->kind);
    enum files_sort sort = files_sort_of(spec->kind);
    if (sort == FILES_PLUGIN || sort == FILES_CODE)
        data_turn_to(env, ""); /* what others' code waits for is not known */
    int r = kinds_functions[spec->kind].open(spec, place, env, ret, err);
    if (r == 0 && tokenized_is_asked_for(spec))
        r = tokenized_open(spec, place, env, ret, err);
    if (r == 0)
        (*ret)->raw = spec->raw; /* after that: a text may be bytes */
    if (r == 0 && (*ret)->content == 0) {
        r = dataset_fingerprint(spec, env, &(*ret)->content, err);
        if (r < 0)
            *ret = dataset_close(*ret);
    }
    return r;
}

int dataset_open(const struct spec_dataset *spec, const struct data_env *env, struct dataset **ret,
                 struct dl_error *err)
{
    return dataset_open_at(spec, "dataset", env, ret, err);
}
