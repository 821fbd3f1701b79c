/*
 * dlclient-local.so: loading in the client's own process, for libdlclient. The pipeline is the one
 * that workers run; here are the spec, as the daemon reads it, and the words of its errors.
 */
#include "client/local.h"
#include "daemon/data/local.h"
#include "proto/shared/weight_files.h"
#include "proto/shared/words.h"
#include "proto/yaml.h"

#include <errno.h>
#include <sys/random.h>

_Static_assert(LOCAL_END == DL_END, "one meaning on both sides");

struct module_loader {
    struct dl_spec spec; /* owned */
    struct data_env env; /* borrows `plugins` */
    /* "/", so all of them: one's own process chooses what is loaded into it. */
    char root[2], *plugins[1];
    struct local *local; /* owned */
    uint64_t fingerprint;
    struct state_identity identity;
};

static void local_module_close(struct module_loader *loader)
{
    local_free(loader->local);
    spec_deinit(&loader->spec);
    free(loader);
}

static void local_module_closep(struct module_loader **loader)
{
    if (*loader)
        local_module_close(*loader);
}

static int local_module_read_spec(struct module_loader *loader, const struct value *value,
                                  const char *base, const uint64_t *seed, struct dl_error *err)
{
    struct dl_spec *spec = &loader->spec;
    int r;

    if (value->type == VALUE_STRING)
        return dl_error_set(err, ENOENT, "name",
                            "only a daemon can open a loader by its name (\"%s\"), and there is "
                            "none here; connect to one, or give the whole spec",
                            value->string);
    r = spec_from_value(value, base, spec, err);
    if (r < 0)
        return r;
    if (spec->workers > 0)
        return dl_error_set(err, EINVAL, "workers.count",
                            "%u needs a daemon; connect to one, or write 0", spec->workers);
    if (!spec->has_seed && seed)
        spec->seed = *seed;
    else if (!spec->has_seed && getrandom(&spec->seed, sizeof spec->seed, 0) != sizeof spec->seed)
        return dl_error_set(err, errno, "seed", "cannot draw a random one: %s", strerror(errno));
    /* As the daemon draws it. */
    if (!spec->has_seed)
        spec->seed &= (1ull << 53) - 1;
    if (spec_fingerprint(spec, &loader->fingerprint) < 0)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    return 0;
}

static int local_module_check_memory(const struct module_loader *loader, struct dl_error *err)
{
    uint64_t need = local_slot_bytes(loader->local), limit = loader->spec.memory_limit;

    if (need <= limit)
        return 0;
    return dl_error_set(err, ENOMEM, "memory.limit",
                        "%llu bytes are less than one batch, which takes %llu; raise it, or lower "
                        "batch.size",
                        (ull)limit, (ull)need);
}

static int local_module_identify(struct module_loader *loader, struct dl_error *err)
{
    struct state_identity *identity = &loader->identity;

    if (spec_parts(&loader->spec, identity->parts) < 0)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    identity->dataset = local_content(loader->local);
    identity->length = local_length(loader->local);
    identity->order = spec_state_order(&loader->spec);
    identity->seed = loader->spec.seed;
    identity->workers = local_is_iterable(loader->local) ? 1 : 0;
    return 0;
}

static int local_module_open(const char *text, size_t len, const char *base, const uint64_t *seed,
                             struct module_loader **ret, struct dl_error *err)
{
    _cleanup_(local_module_closep) struct module_loader *loader = calloc(1, sizeof *loader);
    _cleanup_(value_deinit) struct value value = {0};
    int r;

    if (!loader)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    loader->root[0] = '/';
    loader->plugins[0] = loader->root;
    loader->env = (struct data_env){.plugins = loader->plugins, .n_plugins = 1};
    r = yaml_parse(text, len, "spec", &value, err);
    if (r == 0)
        r = local_module_read_spec(loader, &value, base, seed, err);
    if (r == 0)
        r = local_new(&loader->spec, &loader->env, &loader->local, err);
    if (r == 0)
        r = local_module_identify(loader, err);
    if (r == 0)
        r = local_module_check_memory(loader, err);
    if (r == 0)
        *ret = steal_ptr(loader);
    return r;
}

static void local_module_facts(const struct module_loader *loader, struct local_facts *ret)
{
    const struct dl_spec *spec = &loader->spec;

    *ret = (struct local_facts){.name = spec->name,
                                .label = spec_dataset_label(&spec->dataset),
                                .length = local_length(loader->local),
                                .batch_size = spec->batch_size ? spec_most_samples(spec) : 0,
                                .seed = spec->seed,
                                .fingerprint = loader->fingerprint,
                                .identity = loader->identity,
                                .slot_bytes = local_slot_bytes(loader->local),
                                .memory_limit = spec->memory_limit,
                                .drop_last = spec->drop_last,
                                .replicas = spec->replicas,
                                .iterable = local_is_iterable(loader->local),
                                .can_skip = local_can_skip(loader->local),
                                .fed = spec->sampler == SAMPLER_CLIENT};
}

static int local_module_start(struct module_loader *loader, const struct local_start *how,
                              struct local_pass **ret, struct local_extent *ret_extent,
                              struct dl_error *err)
{
    _cleanup_(mix_changes_unrefp) struct mix_changes *changes = NULL;
    struct local_where where = {.epoch = how->epoch,
                                .rank = how->rank,
                                .world = how->world,
                                .step = how->step,
                                .before = *how->before,
                                .state = how->state};
    char dir[PATH_MAX];
    int r = mix_changes_read(how->changes, &changes);

    if (r < 0)
        return dl_error_set(err, -r, "state", "its changed weights are invalid: %s", strerror(-r));
    weight_files_dir(dir);
    r = weight_files_fill(dir, changes, how->epoch, err);
    if (r < 0)
        return r;
    where.changes = changes;
    r = local_start(loader->local, &where, ret, err);

    if (r == 0)
        *ret_extent = (struct local_extent){local_steps(*ret), local_samples(*ret)};
    return r;
}

static void local_module_end(struct local_pass *pass)
{
    local_end(pass);
}

/* "step 7 of epoch 0 (samples 3, 9): ", as the daemon says it; there is no worker to name. */
static int local_module_tell(const struct module_loader *loader, const struct local_batch *batch,
                             struct dl_error *err)
{
    const struct slot_header *header = batch->slot;
    char name[384] = "a step";

    if (header->generation != 0) { /* else there was no room even for its indices */
        size_t at = words_step(header->step, header->epoch, name, sizeof name);
        if (local_is_iterable(loader->local))
            name[at - 1] = '\0';
        else
            words_samples(slot_indices(batch->slot), header->samples, name + at, sizeof name - at);
    }
    return dl_error_set(err, err->code, spec_dataset_label(&loader->spec.dataset), "%s: %s%s%s",
                        name, err->path, err->path[0] ? ": " : "", err->message);
}

static int local_module_next(struct module_loader *loader, struct local_pass *pass,
                             struct local_batch *batch, struct dl_error *err)
{
    uint64_t step;
    int r;

    if (batch->bytes >= SLOT_HEADER_BYTES)
        memset(batch->slot, 0, SLOT_HEADER_BYTES);
    r = local_next(pass, batch->slot, batch->bytes, &step, &batch->used, err);
    batch->repeated = local_repeated(pass);
    batch->warning = local_warning(loader->local);
    if (r >= 0 || r == -ENOBUFS || r == -ENODATA)
        return r;
    return local_module_tell(loader, batch, err);
}

static int local_module_give_up(struct module_loader *loader, struct local_pass *pass,
                                const struct local_batch *batch, struct dl_error *err)
{
    local_skip(pass);
    dl_error_set(err, ENOMEM, "", "this batch takes %llu bytes and the limit is %llu",
                 (ull)batch->used, (ull)loader->spec.memory_limit);
    return local_module_tell(loader, batch, err);
}

/* How libdlclient finds the rest. */
extern const struct local_table dlclient_local;
DL_API const struct local_table dlclient_local = {.version = DL_LOCAL_VERSION,
                                                  .open = local_module_open,
                                                  .close = local_module_close,
                                                  .facts = local_module_facts,
                                                  .start = local_module_start,
                                                  .end = local_module_end,
                                                  .next = local_module_next,
                                                  .give_up = local_module_give_up,
                                                  .feed = local_feed,
                                                  .feed_end = local_feed_end};
