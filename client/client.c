/* Sessions: connect, errors, queries, the end. */
#include "client/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

const char *dl_version(void)
{
    return DLOADER_VERSION;
}

void dl_client_set_progress(struct dl_client *client,
                            void (*tell)(void *data, uint64_t done, uint64_t all, const char *what),
                            void *data)
{
    client->progress.tell = tell;
    client->progress.data = data;
}

/* ---- connecting ---- */

/* HELLO and WELCOME. 0, or the latched error. */
static int client_exchange_hello(struct dl_client *client, const char *path, const char *agent,
                                 uint64_t timeout_ns)
{
    struct dl_message hello = client_hello_message(agent);
    size_t len = agent ? strlen(agent) : 0;
    int r;

    if (len > DL_MAX_NAME_BYTES)
        return connection_fail(&client->conn, EINVAL, "agent",
                               "a name of %zu bytes; it may have %llu", len,
                               (ull)DL_MAX_NAME_BYTES);
    client->call = (struct call){.answer = DL_MSG_WELCOME};
    r = client_call(client, &hello, timeout_ns);
    if (r < 0) /* latched already, unless the name cannot be sent */
        connection_fail(&client->conn, -r, "agent", "%s", client->error.message);
    if (r < 0 && client->conn.fatal.path[0] == '\0')
        dl_error_set(&client->conn.fatal, client->conn.fatal.code, path, "%s",
                     client->conn.fatal.message);
    return r;
}

/* How long a daemon may be away: what the environment says, or as usual. */
static uint64_t client_patience(void)
{
    const char *text = getenv("DLOADER_RECONNECT");
    char *end;
    double seconds;

    if (!text || !text[0])
        return PATIENCE;
    seconds = strtod(text, &end);
    return *end == '\0' && seconds >= 0 && seconds <= 1e9 ? (uint64_t)(seconds * NS_PER_S)
                                                          : PATIENCE;
}

/* An empty client; NULL: out of memory. */
static struct dl_client *client_new_empty(void)
{
    struct dl_client *client = calloc(1, sizeof *client);

    if (client) {
        client->fd = client->reconnect.watch = -1;
        client->reconnect.patience = client_patience();
    }
    return client;
}

/* Consumes fd. */
static int client_adopt_socket(struct dl_client *client, int fd, const char *path,
                               const char *agent, uint64_t timeout_ns)
{
    client->reclaim = reclaim_new(fd);
    if (!client->reclaim) {
        close(fd);
        return connection_fail(&client->conn, ENOMEM, "", "no memory for a session");
    }
    client->fd = fd;
    return client_exchange_hello(client, path, agent, timeout_ns);
}

int client_adopt(struct dl_client **ret, int fd, const char *path, const char *agent,
                 uint64_t timeout_ns)
{
    struct dl_client *client = client_new_empty();

    if (!client) {
        close(fd);
        *ret = NULL;
        return -ENOMEM;
    }
    *ret = client;
    return client_adopt_socket(client, fd, path, agent, timeout_ns) < 0 ? client_fatal(client) : 0;
}

/* For the day the daemon ends, which may be that of its WELCOME. */
static int client_remember_way(struct dl_client *client, const char *path, const char *agent)
{
    client->reconnect.path = strdup(path);
    client->reconnect.agent = agent ? strdup(agent) : NULL;
    if (client->reconnect.path && (!agent || client->reconnect.agent))
        return 0;
    return connection_fail(&client->conn, ENOMEM, "", "no memory for a session");
}

int client_connect(struct dl_client **ret, const char *path, const char *agent, uint64_t timeout_ns)
{
    uint64_t deadline = deadline_after(timeout_ns);
    char buf[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    struct dl_client *client = client_new_empty();
    int fd = -1, r;

    *ret = client;
    if (!client)
        return -ENOMEM;
    r = client_find_daemon(&client->conn, buf, sizeof buf, deadline, &path, &fd);
    if (r == 0 && (r = client_remember_way(client, path, agent)) < 0)
        close_fdp(&fd);
    if (r == 0) {
        uint64_t now = clock_ns();

        r = client_adopt_socket(client, fd, path, agent, now < deadline ? deadline - now : 0);
    }
    return r < 0 ? client_fatal(client) : 0;
}

int dl_client_connect(struct dl_client **ret, const char *socket_path, const char *agent)
{
    return client_connect(ret, socket_path, agent, CONNECT_TIMEOUT);
}

int dl_client_connect_local(struct dl_client **ret)
{
    struct dl_client *client = client_new_empty();

    *ret = client;
    if (!client)
        return -ENOMEM;
    client->reclaim = reclaim_new(-1);
    if (client->reclaim)
        return 0;
    connection_fail(&client->conn, ENOMEM, "", "no memory for a session");
    return client_fatal(client);
}

static struct dl_loader *client_first_open(const struct dl_client *client)
{
    struct dl_loader *loader = client->loaders;

    while (loader && loader->closed)
        loader = loader->next;
    return loader;
}

struct dl_client *dl_client_close(struct dl_client *client)
{
    struct dl_loader *loader;
    bool leased;
    int r;

    if (!client)
        return NULL;
    client_drain(client);
    while ((loader = client_first_open(client)))
        dl_loader_close(loader);
    assert(!client->batches);
    client_drain_last(client);
    leased = client->loaders != NULL;
    /* Loaders with batches that tensors still hold: the daemon keeps them while the socket is
     * open. */
    while (client->loaders)
        loader_free(client->loaders);
    /* What the daemon does not take now it finds out from the socket's end. */
    r = client_flush(client);
    (void)r;
    /* Tensors of detached batches need no session, nor does a copy of the descriptor in a child. */
    if (!leased && client->fd >= 0)
        shutdown(client->fd, SHUT_RDWR);
    while (client->pool) {
        struct dl_batch *next = client->pool->next;

        free(client->pool);
        client->pool = next;
    }
    for (uint32_t i = 0; i < client->n_segments; i++)
        mapping_unref(client->segments[i]);
    free(client->segments);
    free(client->stopped);
    free(client->detail);
    reconnect_deinit(client);
    pin_unref(client->pin);
    buffer_deinit(&client->answer);
    connection_deinit(&client->conn);
    reclaim_unref(client->reclaim);
    local_unload(client);
    free(client);
    return NULL;
}

void dl_client_abandon(struct dl_client *client)
{
    if (!client)
        return;
    if (client->reclaim)
        reclaim_abandon(client->reclaim);
    client->fd = -1;
    close_fdp(&client->reconnect.watch);
    connection_abandon(&client->conn);
    client->hosts = hosts_free(client->hosts);
    for (struct dl_loader *loader = client->loaders; loader; loader = loader->next)
        loader->hosts = hosts_free(loader->hosts);
    (void)connection_fail(&client->conn, ECHILD, "",
                          "this session belongs to the parent of this forked process; open "
                          "another one here");
}

const char *dl_client_error(const struct dl_client *client)
{
    return client ? client->error_text : "out of memory";
}

const char *dl_client_error_path(const struct dl_client *client)
{
    return client ? client->error.path : "";
}

const char *dl_client_error_detail(const struct dl_client *client)
{
    return client && client->detail ? client->detail : "";
}

int dl_client_is_usable(const struct dl_client *client)
{
    return client && connection_check(&client->conn) == 0;
}

int dl_client_dispatch(struct dl_client *client)
{
    int r = client_begin(client);

    if (r < 0 || client->fd < 0)
        return r;
    /* One read: what came before an end of stream can be consumed before the end is noticed. */
    r = client_pump(client);
    if (r >= 0) {
        client_queue_pending(client);
        r = client_flush(client);
    }
    return r < 0 ? client_fatal(client) : 0;
}

void dl_client_set_writable(struct dl_client *client, int writable)
{
    client->wants_writable = writable;
}

void dl_client_set_automatic(struct dl_client *client, int automatic)
{
    client->wants_automatic = automatic;
}

void dl_client_set_seed(struct dl_client *client, uint64_t seed)
{
    client->has_seed = true;
    client->seed = seed & ((UINT64_C(1) << 53) - 1);
}

/* ---- page-locking ---- */

int dl_pin_check(char *why, size_t size)
{
    struct dl_error err = {0};
    int r = pin_check(&err);

    if (size > 0)
        snprintf(why, size, "%s", err.message);
    return r;
}

int dl_client_pin(struct dl_client *client)
{
    struct dl_error err = {0};
    int r = client_begin(client);

    if (r < 0)
        return r;
    if (!client->pin && pin_new(&client->pin, &err) < 0)
        return client_fail_with(client, &err);
    for (uint32_t i = 0; r == 0 && i < client->n_segments; i++)
        r = mapping_pin(client->segments[i], client->pin, &err);
    if (r < 0)
        client->pin = pin_unref(client->pin);
    return r < 0 ? client_fail_with(client, &err) : 0;
}
