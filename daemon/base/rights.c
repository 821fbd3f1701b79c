#include "daemon/base/rights.h"

#include "proto/kinds.h"

#include <errno.h>

static const char rights_remedy[] = "start a daemon of your own (systemctl --user enable --now "
                                    "dloaderd.socket, or dloaderd --private)";

/* `key` lists the names that other users may use. */
static int rights_check_listed(const struct rights_asker *asker, const struct config_dirs *list,
                               const char *key, const char *place, const char *name,
                               struct dl_error *err)
{
    if (config_dirs_has(list, name))
        return 0;
    return dl_error_set(err, EPERM, place,
                        "%.256s is code that user %u names, and this daemon runs as user %u: %s, "
                        "or have it listed in %s of dloaderd.conf",
                        name, (unsigned)asker->uid, (unsigned)asker->own, rights_remedy, key);
}

static int rights_check_python(const struct rights_asker *asker, const struct spec_dataset *dataset,
                               struct dl_error *err)
{
    const char *interpreter = config_interpreter(asker->config);

    if (dataset->n_files > 0 && strcmp(dataset->files[0].path, interpreter) != 0)
        return dl_error_set(err, EPERM, "dataset.interpreter",
                            "%.256s is a program that user %u names, and this daemon runs as user "
                            "%u: leave the key out to use %s, or %s",
                            dataset->files[0].path, (unsigned)asker->uid, (unsigned)asker->own,
                            interpreter, rights_remedy);
    return rights_check_listed(asker, &asker->config->site.objects, "site.objects",
                               "dataset.object", dataset->object, err);
}

/* The worker checks what is read below data_roots, and with whose rights. */
static int rights_check_roots(const struct rights_asker *asker, const struct spec_dataset *dataset,
                              struct dl_error *err)
{
    if (asker->config->data_roots.n > 0)
        return 0;
    return dl_error_set(err, EPERM, "dataset.kind",
                        "%s reads files, and this daemon reads files only for its own user (user "
                        "%u): have data_roots set in dloaderd.conf, or %s",
                        dataset_kind_name(dataset->kind), (unsigned)asker->own, rights_remedy);
}

static int rights_check_dataset(const struct rights_asker *asker,
                                const struct spec_dataset *dataset, struct dl_error *err)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < dataset->n_datasets; i++)
        r = rights_check_dataset(asker, &dataset->datasets[i], err);
    if (r < 0)
        return r;
    if (files_sort_of(dataset->kind) == FILES_NONE)
        return 0;
    if (dataset->kind == DATASET_PYTHON)
        r = rights_check_python(asker, dataset, err);
    else if (dataset->chat == CHAT_JINJA2)
        r = dl_error_set(err, EPERM, "dataset.chat",
                         "jinja2 runs what user %u names as a template in Python, and this daemon "
                         "runs as user %u: write jinja, which C renders, or %s",
                         (unsigned)asker->uid, (unsigned)asker->own, rights_remedy);
    else if (dataset->kind == DATASET_PLUGIN)
        r = rights_check_listed(asker, &asker->config->site.plugins, "site.plugins", "dataset.path",
                                dataset->files[0].path, err);
    return r < 0 ? r : rights_check_roots(asker, dataset, err);
}

static int rights_check_collate(const struct rights_asker *asker,
                                const struct spec_collate *collate, struct dl_error *err)
{
    if (collate->kind == COLLATE_PYTHON && collate->object)
        return rights_check_listed(asker, &asker->config->site.objects, "site.objects",
                                   "collate.object", collate->object, err);
    if (collate->kind == COLLATE_PLUGIN)
        return rights_check_listed(asker, &asker->config->site.plugins, "site.plugins",
                                   "collate.path", collate->path, err);
    return 0;
}

/* All of its workers are then children of the client's process: python_choose() sees to that. */
static bool rights_is_hosted(const struct spec_dataset *dataset)
{
    bool hosted = dataset->kind == DATASET_PYTHON && dataset->host;

    for (uint32_t i = 0; !hosted && i < dataset->n_datasets; i++)
        hosted = rights_is_hosted(&dataset->datasets[i]);
    return hosted;
}

int rights_check(const struct rights_asker *asker, const struct dl_spec *spec, struct dl_error *err)
{
    if (!rights_is_other(asker))
        return 0;
    if (asker->private)
        return dl_error_set(err, EPERM, "",
                            "this daemon is private to user %u, and you are user %u: %s",
                            (unsigned)asker->own, (unsigned)asker->uid, rights_remedy);
    if (rights_is_hosted(&spec->dataset))
        return 0;
    int r = rights_check_dataset(asker, &spec->dataset, err);
    return r < 0 ? r : rights_check_collate(asker, &spec->collate, err);
}
