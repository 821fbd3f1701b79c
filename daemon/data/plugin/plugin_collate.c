/* Collating by a plug-in. */
#include "daemon/data/plugin/plugin_private.h"

#include <errno.h>

struct plugin_collate {
    struct plugin *plugin;                     /* owned */
    struct dl_plugin_sample *samples;          /* owned; the plug-in's arguments, `room` of each */
    const struct dl_plugin_sample **addresses; /* owned */
    size_t room;
};

int plugin_collate_open(const struct spec_collate *spec, const struct data_env *env,
                        struct plugin_collate **ret, struct dl_error *err)
{
    _cleanup_free_ struct plugin_collate *collate = calloc(1, sizeof *collate);
    struct plugin_choice choice = {
        .role = PLUGIN_COLLATE, .path = spec->path, .config = &spec->config, .place = "collate"};

    if (!collate)
        return dl_error_set(err, ENOMEM, "collate", "out of memory");
    int r = plugin_new(&choice, env, &collate->plugin, err);
    if (r < 0)
        return r;
    *ret = steal_ptr(collate);
    return 0;
}

struct plugin_collate *plugin_collate_close(struct plugin_collate *collate)
{
    if (!collate)
        return NULL;
    plugin_free(collate->plugin);
    free(collate->samples);
    free(collate->addresses);
    free(collate);
    return NULL;
}

static int plugin_make_room(struct plugin_collate *collate, size_t n)
{
    if (n <= collate->room)
        return 0;
    struct dl_plugin_sample *samples = calloc(n, sizeof *samples);
    const struct dl_plugin_sample **addresses = calloc(n, sizeof *addresses);
    if (!samples || !addresses) {
        free(samples);
        free(addresses);
        return -ENOMEM;
    }
    free(collate->samples);
    free(collate->addresses);
    collate->samples = samples;
    collate->addresses = addresses;
    collate->room = n;
    return 0;
}

int plugin_collate(struct plugin_collate *collate, const struct sample *samples,
                   const uint64_t *numbers, size_t n, struct sample *ret, struct dl_error *err)
{
    struct plugin *p = collate->plugin;
    struct dl_error why = {0};
    struct dl_plugin_sample built = {.sample = ret, .why = &why};

    if (plugin_make_room(collate, n) < 0)
        return dl_error_set(err, ENOMEM, p->path, "out of memory");
    for (size_t i = 0; i < n; i++) {
        /* Without `why` nothing builds on them: they are read only, though not by their type. */
        collate->samples[i].sample = (struct sample *)(uintptr_t)&samples[i];
        collate->addresses[i] = &collate->samples[i];
    }
    p->said.code = 0;
    int r = p->table.collate(p->handle, collate->addresses, numbers, n, &built);
    return plugin_judge_sample(p, r, &built, "collate()", err);
}
