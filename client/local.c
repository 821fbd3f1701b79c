/*
 * Loaders whose batches are made in the client's own process: `workers: {count: 0}`.
 *
 * dlclient-local.so does the loading (local.h). A batch lies in private memory, in the form of a
 * slot of the daemon's ring, and is handled alike from there: batch_new(), leases, pins and
 * tensors. The memory of a released batch is reused; memory.limit bounds all of it.
 */
#include "client/internal.h"
#include "proto/shared/words.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

typedef unsigned long long ull; /* for printf */

/* ---- the module ---- */

/*
 * Looks beside the library: an installation may have been moved as a whole, and a wheel may lie
 * anywhere. False if the module is not there. A program that links the library statically is found
 * by argv[0], which the caller controls: a set-user-ID program ignores it, and no program accepts a
 * relative path.
 */
static bool local_module_beside(char *ret_path, size_t size)
{
    const char *name = strrchr(DLOADER_LOCAL_MODULE, '/') + 1;
    Dl_info self;
    int folder, len;

    if (getauxval(AT_SECURE) || !dladdr(DLOADER_LOCAL_MODULE, &self) || self.dli_fname[0] != '/')
        return false;
    folder = (int)(strrchr(self.dli_fname, '/') - self.dli_fname);
    len = snprintf(ret_path, size, "%.*s/%s", folder, self.dli_fname, name);
    return len > 0 && (size_t)len < size && access(ret_path, R_OK) == 0;
}

/* What the environment names, else one beside the library, else where it was installed. */
static const char *local_module_path(char *buffer, size_t size)
{
    const char *path = secure_getenv("DLOADER_LOCAL_MODULE");

    if (path && path[0])
        return path;
    return local_module_beside(buffer, size) ? buffer : DLOADER_LOCAL_MODULE;
}

static int local_refuse_module(struct dl_client *client, int code, const char *path,
                               const char *why)
{
    return client_fail(client, code, "workers.count",
                       "0 loads in this process, which needs a module of libdlclient: %s%s. "
                       "Install it, set DLOADER_LOCAL_MODULE to its path, or give 1 or more",
                       path, why);
}

static int local_load_module(struct dl_client *client)
{
    char buffer[PATH_MAX];
    const char *path;
    const struct local_table *table;
    void *module;

    if (client->table)
        return 0;
    path = local_module_path(buffer, sizeof buffer);
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        const char *why = dlerror(); /* which names the path */
        return local_refuse_module(client, ENOENT, "", why ? why : path);
    }
    table = dlsym(module, DL_LOCAL_TABLE);
    if (!table || table->version != DL_LOCAL_VERSION) {
        int r = local_refuse_module(client, EPROTONOSUPPORT, path,
                                    table ? " is of another release" : " is something else");
        dlclose(module);
        return r;
    }
    client->module = module;
    client->table = table;
    return 0;
}

void local_unload(struct dl_client *client)
{
    if (client->module)
        dlclose(client->module);
}

static const struct local_table *local_table_of(const struct dl_loader *loader)
{
    return loader->client->table;
}

/* ---- loaders ---- */

int local_loader_open(struct dl_loader *loader, const char *spec, size_t len, const char *base)
{
    struct dl_client *client = loader->client;
    struct local_facts facts;
    struct dl_error err = {0};
    int r = local_load_module(client);

    if (r < 0)
        return r;
    if (client->table->open(spec, len, base, client->has_seed ? &client->seed : NULL,
                            &loader->local, &err) < 0)
        return client_fail_with(client, &err);
    client->table->facts(loader->local, &facts);
    loader->name = strdup(facts.name);
    if (!loader->name) {
        local_loader_close(loader);
        return client_fail(client, ENOMEM, "", "no memory for a loader");
    }
    loader->credits = 1;
    loader->length = facts.length;
    loader->batch_size = facts.batch_size;
    loader->seed = facts.seed;
    loader->fingerprint = facts.fingerprint;
    loader->identity = facts.identity;
    loader->drop_last = facts.drop_last;
    loader->replicas = facts.replicas;
    loader->iterable = facts.iterable;
    loader->in_order = true;
    loader->memory.limit = facts.memory_limit;
    loader->memory.slot_bytes = facts.slot_bytes;
    return 0;
}

void local_loader_close(struct dl_loader *loader)
{
    struct private_memory *memory = &loader->memory;

    while (memory->spare) {
        struct mapping *next = memory->spare->next;

        mapping_unref(memory->spare);
        memory->spare = next;
    }
    local_table_of(loader)->close(loader->local);
    loader->local = NULL;
}

/* ---- memory ---- */

static void local_drop(struct private_memory *memory, struct mapping *mapping)
{
    memory->bytes -= mapping->bytes;
    mapping_unref(mapping);
}

void local_loader_give_back(struct dl_loader *loader, struct mapping *mapping)
{
    struct private_memory *memory = &loader->memory;

    if (mapping->bytes < memory->slot_bytes) {
        local_drop(memory, mapping);
        return;
    }
    mapping->next = memory->spare;
    memory->spare = mapping;
}

/* Memory for the next batch: 0, or -ENOMEM with words, after which nothing has changed. */
static int local_take_memory(struct dl_loader *loader, struct mapping **ret)
{
    struct private_memory *memory = &loader->memory;
    struct mapping *mapping;

    while ((mapping = memory->spare)) {
        memory->spare = mapping->next;
        if (mapping->bytes >= memory->slot_bytes) {
            *ret = mapping;
            return 0;
        }
        local_drop(memory, mapping);
    }
    if (memory->slot_bytes > memory->limit - memory->bytes)
        return client_fail(loader->client, ENOMEM, "memory.limit",
                           "%llu bytes are held by pinned batches and tensors, and the next batch "
                           "takes %llu of %llu: release some, or raise it",
                           (ull)memory->bytes, (ull)memory->slot_bytes, (ull)memory->limit);
    mapping = mapping_new_private(memory->slot_bytes);
    if (!mapping)
        return client_fail(loader->client, ENOMEM, "", "no memory for a batch of %llu bytes",
                           (ull)memory->slot_bytes);
    memory->bytes += mapping->bytes;
    *ret = mapping;
    return 0;
}

/* A batch needs `need` bytes: all later ones get as much, and some more if there is plenty. */
static void local_enlarge(struct private_memory *memory, uint64_t need)
{
    uint64_t roomy = align_up(need + need / 4, SLOT_ALIGN);

    memory->slot_bytes = roomy <= memory->limit / 2 ? roomy : align_up(need, SLOT_ALIGN);
}

/* ---- epochs ---- */

static void local_warn_of_passing(struct dl_epoch *epoch, const struct local_facts *facts)
{
    char text[512];

    if (!facts->iterable || facts->can_skip || epoch->first == 0 || epoch->saved_states.workers)
        return;
    words_passing(facts->label, epoch->first, facts->batch_size, text, sizeof text);
    epoch->warning = strdup(text); /* without memory the warning is lost, which is harmless */
}

int local_epoch_start(struct dl_epoch *epoch, uint32_t rank)
{
    struct dl_loader *loader = epoch->loader;
    struct local_start where = {.epoch = epoch->number,
                                .step = epoch->first,
                                .rank = rank,
                                .world = (uint32_t)epoch->world,
                                .before = &epoch->before,
                                .state = saved_states_first(epoch),
                                .changes = weights_of(loader)};
    struct local_extent extent;
    struct local_facts facts;
    struct dl_error err = {0};

    if (local_table_of(loader)->start(loader->local, &where, &epoch->local, &extent, &err) < 0)
        return client_fail_with(loader->client, &err);
    local_table_of(loader)->facts(loader->local, &facts);
    loader->weights.known = true;
    epoch->steps = extent.steps;
    epoch->samples = extent.samples;
    epoch->feed.on = facts.fed;
    local_warn_of_passing(epoch, &facts);
    epoch->next = loader->epochs;
    loader->epochs = epoch;
    return 0;
}

void local_epoch_end(struct dl_epoch *epoch)
{
    local_table_of(epoch->loader)->end(epoch->local);
    epoch->local = NULL;
}

int local_epoch_feed(struct dl_epoch *epoch, const uint64_t *indices, size_t n)
{
    struct dl_error err = {0};

    if (local_table_of(epoch->loader)->feed(epoch->local, indices, n, &err) < 0)
        return client_fail_with(epoch->loader->client, &err);
    return 0;
}

void local_epoch_feed_end(struct dl_epoch *epoch)
{
    local_table_of(epoch->loader)->feed_end(epoch->local);
}

/* A step's own error, which must not be taken for what dl_epoch_next() says itself. */
static int local_step_failed(struct dl_epoch *epoch, struct dl_error *err)
{
    epoch->failed = epoch->first + epoch->received++;
    epoch->position = epoch->failed + 1;
    if (err->code == EAGAIN || err->code == ETIMEDOUT)
        err->code = EIO;
    return client_fail_with(epoch->loader->client, err);
}

/* Without memory the warning is lost, which is harmless. */
static void local_set_warning(struct dl_epoch *epoch, const char *text)
{
    free(epoch->warning);
    epoch->warning = strdup(text);
}

/* The next batch in `mapping`: as the table's next(). */
static int local_make(struct dl_epoch *epoch, struct mapping *mapping, struct local_batch *ret,
                      struct dl_error *err)
{
    struct dl_loader *loader = epoch->loader;

    *ret = (struct local_batch){.slot = mapping->base, .bytes = mapping->bytes};
    int r = local_table_of(loader)->next(loader->local, epoch->local, ret, err);
    if (ret->warning)
        local_set_warning(epoch, ret->warning);
    if (r != -ENOBUFS)
        return r;
    if (align_up(ret->used, SLOT_ALIGN) > loader->memory.limit)
        return local_table_of(loader)->give_up(loader->local, epoch->local, ret, err);
    assert(ret->used > mapping->bytes);
    return -ENOBUFS;
}

/* Nothing is left to make, as far as is known without trying. */
static bool local_is_at_end(const struct dl_epoch *epoch)
{
    if (epoch->feed.on)
        return epoch->feed.ended && epoch->received == epoch->feed.steps;
    return !epoch->loader->iterable && epoch->received == epoch->steps - epoch->first;
}

/* 0 and a batch's memory, or what dl_epoch_next() says. */
static int local_load_batch(struct dl_epoch *epoch, struct mapping **ret,
                            struct local_batch *ret_batch)
{
    struct dl_loader *loader = epoch->loader;
    struct mapping *mapping = NULL;
    struct dl_error err = {0};
    int r;

    for (;;) {
        r = local_take_memory(loader, &mapping);
        if (r < 0)
            return local_is_at_end(epoch) ? DL_END : r;
        r = local_make(epoch, mapping, ret_batch, &err);
        if (r == 0)
            break;
        local_loader_give_back(loader, mapping);
        if (r == DL_END)
            return r;
        if (r == -ENODATA)
            return client_fail(loader->client, ENODATA, "",
                               "every step that was fed was received; feed more, or feed the end");
        if (r != -ENOBUFS)
            return local_step_failed(epoch, &err);
        local_enlarge(&loader->memory, ret_batch->used);
    }
    *ret = mapping;
    return 0;
}

static void local_warn_of_length(struct dl_epoch *epoch, uint32_t samples)
{
    const struct dl_loader *loader = epoch->loader;
    struct local_facts facts;
    char text[512];

    epoch->made += samples;
    if (!loader->iterable || epoch->length_reported || epoch->made <= loader->length)
        return;
    epoch->length_reported = true;
    local_table_of(loader)->facts(loader->local, &facts);
    words_too_many(facts.label, loader->length, epoch->made, text, sizeof text);
    local_set_warning(epoch, text);
}

int local_epoch_next(struct dl_epoch *epoch, struct dl_batch **ret)
{
    struct dl_client *client = epoch->loader->client;
    struct entry entry = {0};
    const struct slot_header *header;
    struct local_batch made;
    struct dl_batch *batch;
    uint64_t begin = clock_ns();
    int r;

    if (epoch->phase == EPOCH_OVER)
        return DL_END;
    r = local_load_batch(epoch, &entry.mapping, &made);
    epoch->wait_ns += clock_ns() - begin;
    if (r == DL_END) {
        epoch->phase = EPOCH_OVER;
        epoch->outcome = EPOCH_HAD_ALL;
    }
    if (r != 0)
        return r;
    entry.slot = entry.mapping->base;
    header = (const struct slot_header *)(const void *)entry.slot;
    entry.descriptor = (struct dl_descriptor){.step = header->step,
                                              .generation = header->generation,
                                              .bytes = made.used,
                                              .samples = header->samples,
                                              .repeated = made.repeated};
    epoch->received++;
    epoch->position = header->step + 1;
    local_warn_of_length(epoch, header->samples - made.repeated);
    r = batch_new(epoch, &entry, &batch);
    if (connection_check(&client->conn) < 0)
        return client_fatal(client);
    if (r < 0)
        epoch->failed = entry.descriptor.step;
    else
        *ret = epoch->current = batch;
    return r;
}
