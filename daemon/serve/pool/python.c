#include "daemon/serve/pool/python.h"

#include "daemon/base/memory.h"

#include <errno.h>

void python_run_deinit(struct python_run *run)
{
    host_release(run->host);
    free(run->interpreter);
    free(run->fallback);
    *run = (struct python_run){0};
}

/* ---- what the spec says --------------------------------------------------------------------- */

/* The Python datasets of a spec, of which all must agree: a loader's workers are of one kind. */
struct found {
    uint32_t n;
    uint32_t n_hosted;       /* of these, with a host */
    const char *interpreter; /* NULL: none is named */
    uint64_t host;
    bool renders;    /* another part has a template for jinja2 */
    bool may_render; /* or one that C may not know */
};

static int python_look(const struct spec_dataset *dataset, struct found *found,
                       struct dl_error *err)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < dataset->n_datasets; i++)
        r = python_look(&dataset->datasets[i], found, err);
    found->renders = found->renders || dataset->chat == CHAT_JINJA2;
    found->may_render = found->may_render || dataset->chat == CHAT_JINJA;
    if (r < 0 || dataset->kind != DATASET_PYTHON)
        return r;
    const char *interpreter = dataset->n_files ? dataset->files[0].path : NULL;
    if (interpreter && found->interpreter && strcmp(interpreter, found->interpreter) != 0)
        return dl_error_set(err, EINVAL, "dataset.interpreter",
                            "parts of one dataset name both %s and %s; use one interpreter for "
                            "all parts",
                            found->interpreter, interpreter);
    if (dataset->host && found->host && dataset->host != found->host)
        return dl_error_set(err, EINVAL, "dataset.host",
                            "parts of one dataset name both %llu and %llu; use one host for all "
                            "parts",
                            (ull)found->host, (ull)dataset->host);
    found->n++;
    found->n_hosted += dataset->host != 0;
    found->interpreter = interpreter ? interpreter : found->interpreter;
    found->host = dataset->host ? dataset->host : found->host;
    return 0;
}

uint64_t python_host_number(const struct dl_spec *spec)
{
    struct found found = {0};

    return python_look(&spec->dataset, &found, NULL) == 0 ? found.host : 0;
}

bool python_in_turn(const struct dl_spec *spec)
{
    return spec->dataset.kind == DATASET_PYTHON && spec->collate.kind == COLLATE_PYTHON &&
           spec_is_in_order(spec) && (!spec_sent(spec) || spec_carries_state(spec));
}

/* ---- what runs it -------------------------------------------------------------------------- */

/* The one that is `named`, or the default, borrowed: 0; -EPERM: it is not one of those there are.
 */
static int python_choose_interpreter(const struct config *config, const char *named,
                                     const char **ret, struct dl_error *err)
{
    const struct config_dirs *listed = &config->python;

    *ret = named ? named : config_interpreter(config);
    if (listed->n == 0 || config_dirs_has(listed, *ret))
        return 0;
    return dl_error_set(err, EPERM, "dataset.interpreter",
                        "%s is not in the daemon's configuration (python); use %s%s", *ret,
                        listed->paths[0], listed->n > 1 ? " or another one listed there" : "");
}

int python_choose(const struct config *config, const struct dl_spec *spec, struct python_run *ret,
                  struct dl_error *err)
{
    struct found found = {0};
    const char *interpreter = NULL;
    int r = python_look(&spec->dataset, &found, err);

    *ret = (struct python_run){0};
    if (r < 0 || (found.n == 0 && !found.renders && !found.may_render))
        return r;
    if (found.n_hosted > 0 && found.n_hosted < found.n)
        return dl_error_set(err, EINVAL, "dataset.host",
                            "%llu has a part of the dataset, and object names another part; "
                            "give the host both, or name both by object",
                            (ull)found.host);
    if (found.host) {
        ret->host_number = found.host;
        return 0;
    }
    r = python_choose_interpreter(config, found.interpreter, &interpreter, err);
    if (r < 0)
        return r;
    *(found.n > 0 || found.renders ? &ret->interpreter : &ret->fallback) = must_strdup(interpreter);
    return 0;
}

bool python_fall_back(struct python_run *run)
{
    if (!run->fallback)
        return false;
    run->interpreter = steal_ptr(run->fallback);
    return true;
}
