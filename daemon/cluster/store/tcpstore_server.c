#include "daemon/cluster/store/tcpstore_server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <utlist.h>

enum {
    BACKLOG = 4096, /* the kernel lowers it to net.core.somaxconn */
    ACCEPT_AT_ONCE = 64,
    PAUSE_MS = 100, /* when the process has no descriptors left */
    SERVER_READ_BYTES = 64 << 10,
    SERVER_READS_AT_ONCE = 4, /* then it is the others' turn */
    PEERS = 16384,
    STALL_MS = 60000,
    LINGER_TURNS = 32, /* of the loop, some 15 us in all */
    NAME_MAX_BYTES = 80,
};

struct conn {
    struct conn *prev, *next; /* server.conns, the oldest first */
    uv_poll_t poll;
    struct tcpstore_server *server;
    struct tcpstore_peer *peer; /* owned; NULL once it was let go */
    int fd;                     /* owned */
    int events;                 /* watched for */
    uint64_t moved_ms;          /* when bytes last went in or out */
};

struct tcpstore_server {
    struct tcpstore_server_options options;
    struct tcpstore *store; /* owned */
    struct conn *conns;
    uint32_t n_conns;
    uint32_t handles; /* not yet closed, those of conns included */
    int fd;           /* owned */
    uv_poll_t poll;
    uv_timer_t pause;
    uv_timer_t stall;
    uv_idle_t linger;
    int turns; /* that are left of those */
    uint8_t bytes[SERVER_READ_BYTES];
};

/* ---- the end of things ---------------------------------------------------------------------- */

static void tcpstore_server_release(struct tcpstore_server *s)
{
    assert(s->handles > 0);
    if (--s->handles > 0)
        return;
    assert(!s->conns);
    tcpstore_free(s->store);
    close_fdp(&s->fd);
    free(s);
}

static void tcpstore_server_on_conn_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    struct tcpstore_server *s = c->server;

    close_fdp(&c->fd);
    free(c);
    tcpstore_server_release(s);
}

static void tcpstore_server_name_peer(int fd, char name[NAME_MAX_BYTES])
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;
    char host[INET6_ADDRSTRLEN + 16];
    char port[8];

    if (getpeername(fd, (struct sockaddr *)&address, &len) < 0 ||
        getnameinfo((struct sockaddr *)&address, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(name, NAME_MAX_BYTES, "a peer");
    else
        snprintf(name, NAME_MAX_BYTES, address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
                 port);
}

/* `why` is ours to tell; NULL: it went by itself. */
static void tcpstore_server_drop(struct conn *c, const char *why)
{
    struct tcpstore_server *s = c->server;
    char name[NAME_MAX_BYTES];

    if (!c->peer)
        return;
    if (why && s->options.dropped) {
        tcpstore_server_name_peer(c->fd, name);
        s->options.dropped(s->options.context, name, why);
    }
    c->peer = tcpstore_peer_free(c->peer);
    DL_DELETE(s->conns, c);
    s->n_conns--;
    uv_poll_stop(&c->poll);
    uv_close((uv_handle_t *)&c->poll, tcpstore_server_on_conn_closed);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void tcpstore_server_on_ready(uv_poll_t *poll, int status, int events);

static void tcpstore_server_watch(struct conn *c)
{
    int events = 0;

    if (tcpstore_peer_wants_input(c->peer))
        events |= UV_READABLE;
    if (tcpstore_peer_output(c->peer).len > 0)
        events |= UV_WRITABLE;
    if (events != c->events && uv_poll_start(&c->poll, events, tcpstore_server_on_ready) == 0)
        c->events = events;
}

static void tcpstore_server_on_idle(uv_idle_t *idle)
{
    struct tcpstore_server *s = idle->data;

    (void)sched_yield();
    if (--s->turns <= 0)
        uv_idle_stop(idle);
}

/* Who was answered asks again at once, mostly: to be awake then costs less than to be woken. It is
   no use to be awake in the place of the one who is to ask, though. */
static void tcpstore_server_linger(struct tcpstore_server *s)
{
    s->turns = LINGER_TURNS;
    uv_idle_start(&s->linger, tcpstore_server_on_idle);
}

/* What the socket takes now, once. False: the peer is gone. */
static bool tcpstore_server_send_some(struct conn *c)
{
    struct dl_span out = tcpstore_peer_output(c->peer);
    ssize_t n;

    if (out.len == 0)
        return true;
    n = send(c->fd, out.data, out.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    c->moved_ms = uv_now(c->server->options.loop);
    tcpstore_server_linger(c->server);
    /* It may do requests that waited, and break over them; then it is touched. */
    (void)!tcpstore_peer_sent(c->peer, (size_t)n);
    return true;
}

/* Sends all output. A peer whose socket is full gets its own when there is room again. */
static void tcpstore_server_settle(struct tcpstore_server *s)
{
    struct tcpstore_peer *peer;

    while ((peer = tcpstore_next_touched(s->store))) {
        struct conn *c = tcpstore_peer_owner(peer);
        const char *why = tcpstore_peer_why(peer);

        if (why) {
            tcpstore_server_drop(c, why);
            continue;
        }
        /* One whose answers make room for more requests takes turns with the others. */
        if (!(c->events & UV_WRITABLE) && !tcpstore_server_send_some(c))
            tcpstore_server_drop(c, NULL);
        else if (!tcpstore_peer_why(peer))
            tcpstore_server_watch(c);
    }
}

/* False: the peer is gone. */
static bool tcpstore_server_receive(struct conn *c)
{
    struct tcpstore_server *s = c->server;

    for (int i = 0; i < SERVER_READS_AT_ONCE && tcpstore_peer_wants_input(c->peer); i++) {
        ssize_t n = recv(c->fd, s->bytes, sizeof s->bytes, MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        if (n < 0)
            break;
        c->moved_ms = uv_now(s->options.loop);
        if (tcpstore_peer_feed(c->peer, s->bytes, (size_t)n) < 0 || (size_t)n < sizeof s->bytes)
            break;
    }
    return true;
}

static void tcpstore_server_on_ready(uv_poll_t *poll, int status, int events)
{
    struct conn *c = poll->data;
    struct tcpstore_server *s = c->server;
    bool alive = status == 0;
    bool answered;

    if (alive && (events & UV_WRITABLE))
        alive = tcpstore_server_send_some(c);
    if (alive && (events & UV_READABLE) && !tcpstore_peer_why(c->peer))
        alive = tcpstore_server_receive(c);
    if (!alive)
        tcpstore_server_drop(c, NULL);
    answered = c->peer && tcpstore_peer_output(c->peer).len > 0;
    tcpstore_server_settle(s);
    if (!c->peer)
        return;
    /* Only now: what was answered has mostly gone out, without the socket being watched for it. */
    tcpstore_server_watch(c);
    /* Requests without an answer, such as sets, come in many: their sender does not wait, and they
     * are read together. */
    if (!answered && !tcpstore_peer_is_amid(c->peer))
        (void)sched_yield();
}

/* ---- peers that end ------------------------------------------------------------------------- */

static void tcpstore_server_on_stall(uv_timer_t *timer)
{
    struct tcpstore_server *s = timer->data;
    uint64_t now = uv_now(s->options.loop);
    struct conn *c, *next;

    DL_FOREACH_SAFE (s->conns, c, next) {
        bool reads = tcpstore_peer_output(c->peer).len == 0;

        if (now - c->moved_ms < s->options.stall_ms)
            continue;
        if (!reads)
            tcpstore_server_drop(c, "it does not read its answers");
        else if (tcpstore_peer_is_amid(c->peer))
            tcpstore_server_drop(c, "it does not complete its request");
    }
}

/* ---- those who come ------------------------------------------------------------------------- */

static bool tcpstore_server_make_room(struct tcpstore_server *s)
{
    struct conn *c;

    if (s->n_conns < s->options.peers)
        return true;
    DL_FOREACH (s->conns, c) {
        if (tcpstore_peer_requests(c->peer) == 0) {
            tcpstore_server_drop(c, "too many clients are connected, and this one has no request");
            return true;
        }
    }
    return false;
}

static void tcpstore_server_set_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 60}, {IPPROTO_TCP, TCP_KEEPINTVL, 15},
        {IPPROTO_TCP, TCP_KEEPCNT, 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

/* Consumes `fd`. */
static int tcpstore_server_welcome(struct tcpstore_server *s, int fd)
{
    _cleanup_fd_ int given = fd;
    _cleanup_free_ struct conn *c = NULL;

    if (!tcpstore_server_make_room(s))
        return -ENFILE;
    c = calloc(1, sizeof *c);
    if (!c || !(c->peer = tcpstore_peer_new(s->store, c)))
        return -ENOMEM;
    if (uv_poll_init_socket(s->options.loop, &c->poll, fd) < 0) {
        tcpstore_peer_free(c->peer);
        return -EIO;
    }
    tcpstore_server_set_options(fd);
    c->server = s;
    c->fd = steal_fd(&given);
    c->poll.data = c;
    c->moved_ms = uv_now(s->options.loop);
    s->handles++;
    s->n_conns++;
    DL_APPEND(s->conns, c);
    tcpstore_server_watch(c);
    c = NULL;
    return 0;
}

static void tcpstore_server_on_connection(uv_poll_t *poll, int status, int events);

static void tcpstore_server_on_pause_over(uv_timer_t *timer)
{
    struct tcpstore_server *s = timer->data;

    uv_poll_start(&s->poll, UV_READABLE, tcpstore_server_on_connection);
}

static void tcpstore_server_on_connection(uv_poll_t *poll, int status, int events)
{
    struct tcpstore_server *s = poll->data;

    (void)status, (void)events;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0 && tcpstore_server_welcome(s, fd) == -ENFILE && s->options.dropped)
            s->options.dropped(s->options.context, "a newcomer", "too many clients are connected");
        if (fd >= 0 || errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            /* The connection stays readable: without a pause the loop would spin on it. */
            uv_poll_stop(&s->poll);
            uv_timer_start(&s->pause, tcpstore_server_on_pause_over, PAUSE_MS, 0);
        }
        return;
    }
}

/* ---- the port ------------------------------------------------------------------------------- */

static int tcpstore_server_bind_to(const struct sockaddr *address, socklen_t len)
{
    _cleanup_fd_ int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1, no = 0;

    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
        (address->sa_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) < 0) ||
        bind(fd, address, len) < 0)
        return -errno;
    return steal_fd(&fd);
}

/* IPv6 with IPv4 in it; where there is no IPv6, IPv4. */
static int tcpstore_server_bind_any(uint16_t port)
{
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = htons(port)};
    const struct sockaddr_in four = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY), .sin_port = htons(port)};
    int fd = tcpstore_server_bind_to((const struct sockaddr *)&six, sizeof six);

    if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL || fd == -ENOPROTOOPT)
        fd = tcpstore_server_bind_to((const struct sockaddr *)&four, sizeof four);
    return fd;
}

static int tcpstore_server_bind_host(const char *host, uint16_t port)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char service[8];
    int fd;

    snprintf(service, sizeof service, "%u", (unsigned)port);
    if (getaddrinfo(host, service, &hints, &found) != 0)
        return -EINVAL;
    fd = tcpstore_server_bind_to(found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return fd;
}

static int tcpstore_server_open_port(struct tcpstore_server *s, struct dl_error *err)
{
    const char *host = s->options.host ? s->options.host : "*";
    unsigned port = s->options.port;
    int fd = s->options.fd;

    if (fd < 0)
        fd = s->options.host ? tcpstore_server_bind_host(s->options.host, s->options.port)
                             : tcpstore_server_bind_any(s->options.port);
    if (fd == -EINVAL)
        return dl_error_set(err, EINVAL, host,
                            "is not a numeric address; give one of this machine's, or none to "
                            "listen at all of them");
    if (fd == -EADDRINUSE)
        return dl_error_set(err, EADDRINUSE, host,
                            "another program listens on port %u; stop it or choose another port",
                            port);
    if (fd < 0)
        return dl_error_set(err, -fd, host, "cannot listen on port %u: %s", port, strerror(-fd));
    s->fd = fd;
    if (listen(fd, BACKLOG) < 0)
        return dl_error_set(err, errno, host, "cannot listen on port %u: %s", port,
                            strerror(errno));
    return 0;
}

uint16_t tcpstore_server_port(const struct tcpstore_server *server)
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;

    if (getsockname(server->fd, (struct sockaddr *)&address, &len) < 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

struct tcpstore_counts tcpstore_server_count(const struct tcpstore_server *server)
{
    return tcpstore_count(server->store);
}

/* ---- all ------------------------------------------------------------------------------------ */

static void tcpstore_server_set_defaults(struct tcpstore_server_options *options)
{
    static const struct tcpstore_limits none;

    if (memcmp(&options->limits, &none, sizeof none) == 0)
        options->limits = tcpstore_default_limits;
    if (options->peers == 0)
        options->peers = PEERS;
    if (options->stall_ms == 0)
        options->stall_ms = STALL_MS;
}

static int tcpstore_server_begin(struct tcpstore_server *s, struct dl_error *err)
{
    uint64_t seed = 0, every_ms = max_u64(s->options.stall_ms / 4, 1);
    int r;

    /* Early in a machine's life there may be none: then who knows this program may guess it. */
    (void)!getrandom(&seed, sizeof seed, GRND_NONBLOCK);
    if (!(s->store = tcpstore_new(&s->options.limits, seed)))
        return dl_error_set(err, ENOMEM, "", "there is no memory for a store");
    if ((r = tcpstore_server_open_port(s, err)) < 0)
        return r;
    if ((r = uv_poll_init_socket(s->options.loop, &s->poll, s->fd)) < 0)
        return dl_error_set(err, -r, "", "the store's port cannot be watched: %s", uv_strerror(r));
    uv_timer_init(s->options.loop, &s->pause);
    uv_timer_init(s->options.loop, &s->stall);
    uv_idle_init(s->options.loop, &s->linger);
    s->linger.data = s;
    s->handles = 4;
    s->poll.data = s->pause.data = s->stall.data = s;
    uv_timer_start(&s->stall, tcpstore_server_on_stall, every_ms, every_ms);
    if ((r = uv_poll_start(&s->poll, UV_READABLE, tcpstore_server_on_connection)) < 0)
        return dl_error_set(err, -r, "", "the store's port cannot be watched: %s", uv_strerror(r));
    return 0;
}

int tcpstore_server_new(const struct tcpstore_server_options *options, struct tcpstore_server **ret,
                        struct dl_error *err)
{
    struct tcpstore_server *s = calloc(1, sizeof *s);
    int given = options->fd, r;

    if (!s) {
        close_fdp(&given);
        return dl_error_set(err, ENOMEM, "", "there is no memory for a store");
    }
    s->options = *options;
    s->fd = options->fd;
    tcpstore_server_set_defaults(&s->options);
    if ((r = tcpstore_server_begin(s, err)) < 0) {
        tcpstore_server_free(s);
        return r;
    }
    s->options.host = NULL; /* the caller's */
    *ret = s;
    return 0;
}

static void tcpstore_server_on_closed(uv_handle_t *handle)
{
    tcpstore_server_release(handle->data);
}

struct tcpstore_server *tcpstore_server_free(struct tcpstore_server *s)
{
    if (!s)
        return NULL;
    if (s->handles == 0) { /* it had not begun */
        tcpstore_free(s->store);
        close_fdp(&s->fd);
        free(s);
        return NULL;
    }
    while (s->conns)
        tcpstore_server_drop(s->conns, NULL);
    uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, tcpstore_server_on_closed);
    uv_close((uv_handle_t *)&s->pause, tcpstore_server_on_closed);
    uv_close((uv_handle_t *)&s->stall, tcpstore_server_on_closed);
    uv_close((uv_handle_t *)&s->linger, tcpstore_server_on_closed);
    return NULL;
}
