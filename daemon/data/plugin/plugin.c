/* One open plug-in: each call of it is judged by its result. */
#include "daemon/data/base/place.h"
#include "daemon/data/plugin/plugin_private.h"

#include <dlfcn.h>
#include <errno.h>

enum { ERRNO_MAX = 4095 };

struct plugin *plugin_free(struct plugin *p)
{
    if (!p)
        return NULL;
    if (p->opened && p->table.close)
        p->table.close(p->handle);
    plugin_host_deinit(p);
    if (p->library)
        (void)dlclose(p->library);
    free(p->config);
    free(p->path);
    free(p);
    return NULL;
}

/* Some codes mean to the loader that nothing is wrong; no plug-in can say that. */
static int plugin_error_code(int code)
{
    return code > ERRNO_MAX || code == EAGAIN || code == ENOBUFS || code == ENODATA ? EIO : code;
}

int plugin_judge(struct plugin *p, int r, const struct dl_error *why, const char *what,
                 struct dl_error *err)
{
    if (r == 0)
        return 0;
    if (r > 0)
        return dl_error_set(err, EPROTO, p->path,
                            "%s: it returned %d instead of 0 or a negative errno", what, r);
    if (p->said.code)
        return dl_error_set(err, plugin_error_code(p->said.code), p->path, "%s: %s", what,
                            p->said.message);
    if (why && why->code)
        return dl_error_set(err, why->code, p->path, "%s: %s", what, why->message);
    /* INT_MIN cannot be negated. */
    int code = r < -ERRNO_MAX ? EIO : -r;
    return dl_error_set(err, plugin_error_code(code), p->path,
                        "%s: it failed with %d (%s) without a message", what, r, strerror(code));
}

int plugin_judge_sample(struct plugin *p, int r, const struct dl_plugin_sample *built,
                        const char *what, struct dl_error *err)
{
    struct dl_error fault = {0};

    r = plugin_judge(p, r, built->why, what, err);
    if (r < 0 || sample_check(built->sample, &fault) == 0)
        return r;
    if (built->why->code)
        fault = *built->why;
    return dl_error_set(err, fault.code, p->path, "%s: %s", what, fault.message);
}

static int plugin_start(struct plugin *p, struct dl_error *err)
{
    int r;

    p->said.code = 0;
    r = plugin_judge(p, p->table.open(&p->host, p->config, &p->handle), NULL, "open()", err);
    if (r < 0)
        return r;
    p->opened = true;
    if (!p->table.init || p->env->workers == 0)
        return 0;
    struct dl_plugin_worker worker = {
        .number = p->env->worker, .count = p->env->workers, .seed = p->env->seed};
    p->said.code = 0;
    return plugin_judge(p, p->table.init(p->handle, &worker), NULL, "init()", err);
}

int plugin_new(const struct plugin_choice *choice, const struct data_env *env, struct plugin **ret,
               struct dl_error *err)
{
    _cleanup_(plugin_freep) struct plugin *p = calloc(1, sizeof *p);
    char place[DL_ERROR_PATH_MAX];
    int r;

    if (!p)
        return dl_error_set(err, ENOMEM, choice->place, "out of memory");
    p->env = env;
    place_key(place, choice->place, "config");
    if ((r = plugin_config_text(choice->config, place, &p->config, err)) < 0 ||
        (r = plugin_load(p, choice->path, choice->role, err)) < 0)
        return r;
    plugin_host_init(p);
    r = plugin_start(p, err);
    if (r < 0)
        return r;
    *ret = steal_ptr(p);
    return 0;
}
