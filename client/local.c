/*
 * Loaders whose batches are made in the client's own process: `workers: {count: 0}`.
 *
 * dlclient-local.so does the loading (local.h). A batch lies in private memory, in the form of a
 * slot of the daemon's ring, and is handled alike from there: batch_new(), leases, pins and
 * tensors. The memory of a released batch is reused; memory.limit bounds all of it.
 */
#include "client/internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

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

int local_take_memory(struct dl_loader *loader, struct mapping **ret)
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
