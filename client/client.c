/* Sessions: connect, errors, queries, the end. */
#include "client/internal.h"

#include "client/daemon_user.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The socket's queue of connections is full: so long one waits in it for a place at a time. */
#define CONNECT_WAIT (NS_PER_S / 10)

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

static int client_connect_failure(struct connection *conn, const char *path, int code)
{
    static const struct {
        int code;
        const char *text;
    } remedies[] = {
        {ENOENT, "no socket there: start dloaderd, or set DLOADER_SOCKET to where it listens"},
        {ENOTDIR, "no socket there: start dloaderd, or set DLOADER_SOCKET to where it listens"},
        {ECONNREFUSED, "no daemon listens there; start dloaderd"},
        {EACCES, "permission denied by the daemon's socket_mode and socket_group; to use the "
                 "system's service, join the group dloaderd and log in again"},
        {EPROTOTYPE, "a socket of another kind, not dloaderd's; name dloaderd's socket"},
        {EAGAIN, "dloaderd accepts no connections"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(remedies); i++)
        if (remedies[i].code == code)
            return connection_fail(conn, code == EAGAIN ? ETIMEDOUT : code, path, "%s",
                                   remedies[i].text);
    return connection_fail(conn, code, path, "connect: %s", strerror(code));
}

/* A connected socket is kept if it is a daemon's for this user. 0, or the latched error. */
static int client_check_daemon(struct connection *conn, const char *path, int *fd)
{
    struct dl_error err = {0};

    if (daemon_user_check(*fd, &err) == 0)
        return 0;
    close_fdp(fd);
    return connection_fail(conn, err.code, path, "%s", err.message);
}

/*
 * Returns 0 and a connected socket, or the latched error. While the daemon's queue is full, this
 * waits in connect(), in turn: a client that only polled could find the queue full for ever.
 */
static int client_open_socket(struct connection *conn, const char *path, uint64_t deadline,
                              int *ret)
{
    size_t len = strlen(path), max = sizeof(((struct sockaddr_un *)NULL)->sun_path);
    int r;

    if (len == 0)
        return connection_fail(conn, ENOENT, "", "the path of the daemon's socket is empty");
    if (len >= max)
        return connection_fail(conn, ENAMETOOLONG, path,
                               "a socket's path can have %zu bytes, this one has %zu; choose a "
                               "shorter one",
                               max - 1, len);
    r = client_dial(path, 0, ret);
    while (r < 0) {
        uint64_t now = clock_ns();

        if (r != -EAGAIN || now >= deadline)
            return client_connect_failure(conn, path, -r);
        if ((r = wait_fd(-1, 0, now)) != -ETIMEDOUT) /* checks for an interrupt */
            return connection_fail(conn, r == -EINTR ? EINTR : EIO, path, "waiting to connect");
        r = client_dial(path, min_u64(CONNECT_WAIT, deadline - now), ret);
    }
    return client_check_daemon(conn, path, ret);
}

/* Where the user's own daemon listens. False if there is no such place; `why` may hold the
 * reason. */
static bool client_own_path(char *buf, size_t size, struct dl_error *why)
{
    const char *dir = daemon_user_runtime_dir(why);
    int n = dir ? snprintf(buf, size, "%s/dloaderd/socket", dir) : 0;

    return n > 0 && (size_t)n < size;
}

/* Adds to the failure why the user's own daemon was not tried. */
static void client_add_to_failure(struct connection *conn, const struct dl_error *why)
{
    const struct dl_error failed = conn->fatal;

    (void)!dl_error_set(&conn->fatal, failed.code, failed.path, "%s; $XDG_RUNTIME_DIR, %s, %s",
                        failed.message, why->path, why->message);
}

/*
 * The default daemon: $DLOADER_SOCKET; else the user's own, if it listens, since it may run the
 * user's code; else the system's. As client_open_socket(); *ret_path is static, the environment's,
 * or in `buf`.
 */
static int client_open_default(struct connection *conn, char *buf, size_t size, uint64_t deadline,
                               const char **ret_path, int *ret)
{
    const char *env = getenv("DLOADER_SOCKET");
    struct dl_error why = {0};

    *ret_path = env && env[0] ? env : "/run/dloaderd/socket";
    if (*ret_path != env && client_own_path(buf, size, &why)) {
        int r = client_dial(buf, 0, ret);

        if (r != -ENOENT && r != -ENOTDIR && r != -ECONNREFUSED)
            *ret_path = buf;
        if (r == 0)
            return client_check_daemon(conn, buf, ret);
    }
    int r = client_open_socket(conn, *ret_path, deadline, ret);
    if (r < 0 && why.code)
        client_add_to_failure(conn, &why);
    return r;
}

/* HELLO and WELCOME. 0, or the latched error. */
static int client_exchange_hello(struct dl_client *client, const char *path, const char *agent,
                                 uint64_t timeout_ns)
{
    struct dl_message hello = client_hello_message(client, agent);
    size_t len = agent ? strlen(agent) : 0;
    int r;

    if (len > DL_MAX_NAME_BYTES)
        return connection_fail(&client->conn, EINVAL, "agent",
                               "a name of %zu bytes; it may have %llu", len,
                               (unsigned long long)DL_MAX_NAME_BYTES);
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
        client->says = DL_PROTOCOL_VERSION;
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

/* For the day the daemon ends. */
static int client_remember_way(struct dl_client *client, const char *path, const char *agent)
{
    client->reconnect.path = strdup(path);
    client->reconnect.agent = agent ? strdup(agent) : NULL;
    if (client->reconnect.path && (!agent || client->reconnect.agent))
        return 0;
    return connection_fail(&client->conn, ENOMEM, "", "no memory for a session");
}

static int client_connect_saying(struct dl_client **ret, uint32_t version, const char *path,
                                 const char *agent, uint64_t deadline)
{
    char buf[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    struct dl_client *client = client_new_empty();
    int fd = -1, r;

    *ret = client;
    if (!client)
        return -ENOMEM;
    client->says = version;
    r = path ? client_open_socket(&client->conn, path, deadline, &fd)
             : client_open_default(&client->conn, buf, sizeof buf, deadline, &path, &fd);
    if (r == 0) {
        uint64_t now = clock_ns();

        r = client_adopt_socket(client, fd, path, agent, now < deadline ? deadline - now : 0);
    }
    if (r == 0)
        r = client_remember_way(client, path, agent);
    return r < 0 ? client_fatal(client) : 0;
}

int client_connect(struct dl_client **ret, const char *path, const char *agent, uint64_t timeout_ns)
{
    uint64_t deadline = deadline_after(timeout_ns);
    int r = client_connect_saying(ret, DL_PROTOCOL_VERSION, path, agent, deadline);
    struct dl_client *refused = *ret;

    if (r != -EPROTONOSUPPORT)
        return r;
    r = client_connect_saying(ret, DL_PROTOCOL_OLDEST, path, agent, deadline);
    if (r == -EPROTONOSUPPORT) { /* our first message used our newest version */
        dl_client_close(*ret);
        *ret = refused;
        return r;
    }
    dl_client_close(refused);
    return r;
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

/* ---- queries ---- */

/* Sends a request that INFO answers and keeps the answer in client->answer, after the rows before
 * `row`. */
static int client_ask_from(struct dl_client *client, struct dl_message *msg, uint64_t *request,
                           uint32_t row, uint64_t timeout_ns)
{
    if (client->fd < 0)
        return client_fail(client, ENOTCONN, "",
                           "this client has no daemon; connect with "
                           "dl_client_connect()");
    *request = connection_request(&client->conn);
    client->call = (struct call){.request = *request, .answer = DL_MSG_INFO, .has_more = row > 0};
    return client_call(client, msg, timeout_ns);
}

int client_ask(struct dl_client *client, struct dl_message *msg, uint64_t *request,
               uint64_t timeout_ns)
{
    return client_ask_from(client, msg, request, 0, timeout_ns);
}

static int client_check_word(struct dl_client *client, const char *what, const char *word)
{
    size_t len = word ? strlen(word) : 0;

    if (len == 0 || len > 32)
        return client_fail(client, EINVAL, what, "'%.40s' has %zu bytes, not 1 to 32",
                           word ? word : "", len);
    return 0;
}

int dl_client_query(struct dl_client *client, const char *view, const void **ret_data,
                    size_t *ret_len)
{
    struct dl_message msg = {.number = DL_MSG_QUERY};
    int r = client_begin(client);
    uint32_t row = 0;

    if (r == 0)
        r = client_check_word(client, "view", view);
    if (r < 0)
        return r;
    msg.query.view = span_str(view);
    do {
        msg.query.row = row;
        r = client_ask_from(client, &msg, &msg.query.request, row, REQUEST_TIMEOUT);
        row = client->call.next;
    } while (r == 0 && row > 0);
    if (r < 0)
        return r;
    *ret_data = client->answer.data;
    *ret_len = client->answer.len;
    return 0;
}

int dl_client_control(struct dl_client *client, const char *verb)
{
    struct dl_message msg = {.number = DL_MSG_CONTROL};
    int r = client_begin(client);

    if (r == 0)
        r = client_check_word(client, "verb", verb);
    if (r < 0)
        return r;
    msg.control.verb = span_str(verb);
    return client_ask(client, &msg, &msg.control.request, REQUEST_TIMEOUT);
}

int dl_client_headspace(struct dl_client *client, const char *loader, uint32_t steps,
                        const void **ret_data, size_t *ret_len)
{
    struct dl_message msg = {.number = DL_MSG_HEADSPACE};
    int r = client_begin(client);

    if (r == 0 && (!loader || !*loader || strlen(loader) > DL_MAX_NAME_BYTES))
        r = client_fail(client, EINVAL, "loader", "a loader's name has 1 to %llu bytes",
                        (unsigned long long)DL_MAX_NAME_BYTES);
    if (r == 0 && (steps == 0 || steps > 10000))
        r = client_fail(client, EINVAL, "steps", "%u, where 1 to 10000 can be measured", steps);
    if (r < 0)
        return r;
    msg.headspace.loader = span_str(loader);
    msg.headspace.steps = steps;
    /* The trainer takes as long as it takes. */
    r = client_ask(client, &msg, &msg.headspace.request, DEADLINE_NONE);
    if (r < 0)
        return r;
    *ret_data = client->answer.data;
    *ret_len = client->answer.len;
    return 0;
}
