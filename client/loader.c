/* Loaders: the spec's text on its way to the daemon, and what came back. */
#include "client/internal.h"

#include "proto/value.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

static void loader_freep(struct dl_loader **loader)
{
    loader_free(*loader);
}

/* `base` as an absolute path, in `buf`. */
static int loader_absolute(struct dl_client *client, const char *base, char buf[PATH_MAX])
{
    char cwd[PATH_MAX];
    int n;

    if (base && base[0] == '/') {
        n = snprintf(buf, PATH_MAX, "%s", base);
    } else if (!getcwd(cwd, sizeof cwd)) {
        return client_fail(client, errno, "", "the current directory has no path: %s",
                           strerror(errno));
    } else {
        n = snprintf(buf, PATH_MAX, "%s%s%s", cwd, base && base[0] ? "/" : "", base ? base : "");
    }
    if (n < 0 || n >= PATH_MAX)
        return client_fail(client, ENAMETOOLONG, "",
                           "the directory '%.60s...' has more than %d "
                           "bytes",
                           base ? base : "", PATH_MAX - 1);
    return 0;
}

/* The spec as one msgpack string. */
static int loader_pack_text(struct dl_client *client, const char *spec, size_t len,
                            struct dl_buffer *out)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_(value_deinit) struct value value = {0};
    int r;

    if (len > DL_MAX_SPEC_TEXT)
        return client_fail(client, EINVAL, "", "a spec of %zu bytes; it may have %llu", len,
                           (ull)DL_MAX_SPEC_TEXT);
    if (len > 0 && memchr(spec, '\0', len))
        return client_fail(client, EINVAL, "", "the spec holds a NUL byte");
    text = strndup(len ? spec : "", len);
    r = text ? value_make_string(&value, text) : -ENOMEM;
    if (r == 0)
        r = value_pack(&value, out);
    if (r < 0)
        return client_fail(client, -r, "", "the spec cannot be sent: %s", strerror(-r));
    return 0;
}

enum { OPEN_HERE = 1 };

/* OPEN and its answer; OPEN_HERE: the daemon leaves the loading to us. */
static int loader_open_remote(struct dl_loader *loader)
{
    struct dl_client *client = loader->client;
    struct dl_message msg = loader_open_message(loader);
    int r;

    client->call =
        (struct call){.request = msg.open.request, .answer = DL_MSG_OPENED, .loader = loader};
    r = client_call(client, &msg, OPEN_TIMEOUT);
    loader->needs_open = client_is_away(client); /* it ended right behind its answer */
    /* Of no other key: a file system can refuse with the same errno. */
    return r == -ENOTSUP && strcmp(client->error.path, "workers.count") == 0 ? OPEN_HERE : r;
}

int dl_loader_open(struct dl_client *client, const char *spec, size_t len, const char *base,
                   struct dl_loader **ret)
{
    _cleanup_(loader_freep) struct dl_loader *loader = NULL;
    char dir[PATH_MAX];
    int r = client_begin(client);

    if (r == 0)
        r = loader_absolute(client, base, dir);
    if (r < 0)
        return r;
    loader = calloc(1, sizeof *loader);
    if (!loader)
        return client_fail(client, ENOMEM, "", "no memory for a loader");
    loader->client = client;
    r = loader_pack_text(client, spec, len, &loader->spec);
    if (r < 0)
        return r;
    loader->wants_writable = client->wants_writable;
    loader->wants_automatic = client->wants_automatic;
    loader->base = strdup(dir);
    if (!loader->base)
        return client_fail(client, ENOMEM, "", "no memory for a loader");
    r = OPEN_HERE;
    if (client->fd >= 0)
        r = loader_open_remote(loader);
    if (r == OPEN_HERE)
        r = local_loader_open(loader, len ? spec : "", len, dir);
    if (r < 0)
        return r;
    hosts_take(loader, spec, len);
    loader->next = client->loaders;
    client->loaders = loader;
    *ret = steal_ptr(loader);
    return 0;
}

/* Reads a whole file, maybe a pipe: one byte more than a spec may have, to detect excess. */
static int loader_read_text(struct dl_client *client, const char *path, struct dl_buffer *ret)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char chunk[4096];
    int r = 0;

    if (fd < 0)
        return client_fail(client, errno, path, "%s", strerror(errno));
    while (r == 0 && ret->len <= DL_MAX_SPEC_TEXT) {
        ssize_t n = read(fd, chunk, sizeof chunk);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return client_fail(client, errno, path, "%s", strerror(errno));
        if (n == 0)
            return 0;
        r = buffer_append(ret, chunk, (size_t)n);
    }
    if (r < 0)
        return client_fail(client, -r, path, "%s", strerror(-r));
    return client_fail(client, EINVAL, path, "longer than the %llu bytes that a spec may have",
                       (ull)DL_MAX_SPEC_TEXT);
}

int dl_loader_open_file(struct dl_client *client, const char *path, struct dl_loader **ret)
{
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};
    _cleanup_free_ char *dir = NULL;
    const char *slash = strrchr(path, '/');
    int r = client_begin(client);

    if (r == 0)
        r = loader_read_text(client, path, &text);
    if (r < 0)
        return r;
    if (slash) {
        dir = strndup(path, slash == path ? 1 : (size_t)(slash - path));
        if (!dir)
            return client_fail(client, ENOMEM, path, "no memory for its directory's path");
    }
    return dl_loader_open(client, (const char *)text.data, text.len, dir, ret);
}

/* Batches of the loader that the user still holds, pinned ones too. */
static void loader_give_batches_back(struct dl_loader *loader)
{
    struct dl_batch *batch = loader->client->batches;

    while (batch) {
        struct dl_batch *next = batch->next;

        if (batch->loader == loader)
            batch_give_back(batch);
        batch = next;
    }
}

struct dl_loader *dl_loader_close(struct dl_loader *loader)
{
    struct dl_message leave = {.number = DL_MSG_LEAVE};
    struct dl_client *client;
    int r;

    if (!loader)
        return NULL;
    client = loader->client;
    client_drain(client);
    while (loader->epochs)
        dl_epoch_end(loader->epochs);
    loader_give_batches_back(loader);
    loader->closed = true;
    leave.leave.loader = loader->id;
    if (loader->n_tensor_owned == 0)
        loader_end_and_free(loader);
    else if (!loader->local && !loader->needs_open)
        client_send(client, &leave); /* tensors hold its batches: they need no workers */
    r = client_flush(client);        /* a failure is latched for the next call */
    (void)r;
    return NULL;
}

const char *dl_loader_name(const struct dl_loader *loader)
{
    return loader->name;
}

uint64_t dl_loader_length(const struct dl_loader *loader)
{
    return loader->length;
}

int dl_loader_is_iterable(const struct dl_loader *loader)
{
    return loader->iterable;
}

uint32_t dl_loader_replicas(const struct dl_loader *loader)
{
    return loader->replicas > 1 ? loader->replicas : 1;
}

uint64_t dl_loader_batch_size(const struct dl_loader *loader)
{
    return loader->batch_size;
}

uint64_t dl_loader_seed(const struct dl_loader *loader)
{
    return loader->seed;
}

int dl_loader_in_order(const struct dl_loader *loader)
{
    return loader->in_order;
}

uint64_t dl_loader_fingerprint(const struct dl_loader *loader)
{
    return loader->fingerprint;
}
