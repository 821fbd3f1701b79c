#include "daemon/cluster/store/tcpstore_client_private.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
    STEP_MS = 10000, /* for the name, the connection, the greeting: each */
    FIRST_DELAY_MS = 50,
    LAST_DELAY_MS = 3000,
    /* As many keys as no store has: what answers so is none. */
    SOME_KEYS_BITS = 40,
};

static void _printf_(2, 3) tcpstore_connect_say_why(struct tcpstore_client *c, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    if (vsnprintf(c->why, sizeof c->why, fmt, args) < 0)
        c->why[0] = '\0';
    va_end(args);
}

static const char *tcpstore_connect_dialect_name(enum tcpstore_dialect dialect)
{
    return dialect == TCPSTORE_V1 ? "torch 1" : "torch 2";
}

/* ---- the end -------------------------------------------------------------------------------- */

static void tcpstore_connect_on_poll_closed(uv_handle_t *handle)
{
    struct tcpstore_client *c = handle->data;

    close_fdp(&c->closing_fd);
    c->poll_closing = false;
    if (!c->ending)
        client_turn(c);
    client_release(c);
}

static void tcpstore_connect_hang_up(struct tcpstore_client *c)
{
    if (c->poll_open) {
        assert(!c->poll_closing);
        uv_poll_stop(&c->poll);
        c->poll_open = false;
        c->poll_closing = true;
        c->closing_fd = steal_fd(&c->fd);
        uv_close((uv_handle_t *)&c->poll, tcpstore_connect_on_poll_closed);
    }
    close_fdp(&c->fd);
    c->in.len = c->out.len = c->out_begin = 0;
    c->scan = (struct tcpstore_scan){0};
}

void connect_end(struct tcpstore_client *c, const char *why)
{
    tcpstore_connect_say_why(c, "%s", why);
    tcpstore_connect_hang_up(c);
    c->state = LINK_DOWN;
    c->retry_ms = client_now(c);
    c->delay_ms = FIRST_DELAY_MS;
}

void connect_free(struct tcpstore_client *c)
{
    tcpstore_connect_hang_up(c);
    if (c->looking_up)
        uv_cancel((uv_req_t *)&c->lookup);
    if (c->addresses)
        uv_freeaddrinfo(c->addresses);
    c->addresses = NULL;
}

/* Nothing more can be tried now. Delays differ from node to node, so that they do not all come at
 * once. */
static void tcpstore_connect_give_up(struct tcpstore_client *c)
{
    tcpstore_connect_hang_up(c);
    c->state = LINK_DOWN;
    c->attempts++;
    c->delay_ms = c->delay_ms > 0 ? min_u64(c->delay_ms * 3 / 2, LAST_DELAY_MS) : FIRST_DELAY_MS;
    c->retry_ms = client_now(c) + c->delay_ms / 2 + uv_hrtime() % (c->delay_ms + 1);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void tcpstore_connect_on_ready(uv_poll_t *poll, int status, int events)
{
    client_ready(poll->data, status, events);
}

void connect_watch(struct tcpstore_client *c)
{
    int events = UV_READABLE;

    if (!c->poll_open)
        return;
    if (c->state == LINK_CONNECTING)
        events = UV_WRITABLE;
    else if (c->out.len > c->out_begin)
        events |= UV_WRITABLE;
    uv_poll_start(&c->poll, events, tcpstore_connect_on_ready);
}

static int tcpstore_connect_open_socket(struct tcpstore_client *c)
{
    const int yes = 1;
    int r;

    c->fd = socket(c->address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd < 0)
        return -errno;
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    if (connect(c->fd, c->address->ai_addr, c->address->ai_addrlen) < 0 && errno != EINPROGRESS)
        return -errno;
    if ((r = uv_poll_init_socket(c->options.loop, &c->poll, c->fd)) < 0)
        return r;
    c->poll.data = c;
    c->poll_open = true;
    c->handles++;
    return 0;
}

/* To c->address, once the connection before is closed. */
static void tcpstore_connect_dial(struct tcpstore_client *c)
{
    int r;

    c->state = LINK_CONNECTING;
    c->step_ms = client_now(c) + STEP_MS;
    if (c->poll_closing)
        return;
    if ((r = tcpstore_connect_open_socket(c)) < 0) {
        tcpstore_connect_say_why(c, "%s", strerror(-r));
        connect_step(c, false);
        return;
    }
    connect_watch(c);
}

/* The other dialect, the next address, or nothing. */
static void tcpstore_connect_try_next(struct tcpstore_client *c)
{
    bool greeted = c->state == LINK_GREETING;

    tcpstore_connect_hang_up(c);
    if (greeted && c->options.dialect == TCPSTORE_ANY && !c->tried_other) {
        c->tried_other = true;
        c->dialect = c->dialect == TCPSTORE_V1 ? TCPSTORE_V2 : TCPSTORE_V1;
        tcpstore_connect_dial(c);
        return;
    }
    c->address = c->address ? c->address->ai_next : NULL;
    c->tried_other = false;
    if (c->address)
        tcpstore_connect_dial(c);
    else
        tcpstore_connect_give_up(c);
}

static void tcpstore_connect_greet(struct tcpstore_client *c)
{
    int r;

    c->state = LINK_GREETING;
    c->step_ms = client_now(c) + STEP_MS;
    c->nonce = (uint32_t)(uv_hrtime() >> 4);
    if (c->dialect == TCPSTORE_V2)
        r = tcpstore_put_hello(&c->out, c->nonce);
    else
        r = tcpstore_put_u8(&c->out, (uint8_t)tcpstore_op_byte(TCPSTORE_COUNT_KEYS, TCPSTORE_V1));
    if (r < 0)
        tcpstore_connect_try_next(c);
    else
        connect_watch(c);
}

void connect_step(struct tcpstore_client *c, bool ready)
{
    int code = 0;
    socklen_t len = sizeof code;

    if (c->state == LINK_CONNECTING && c->poll_closing)
        return;
    if (c->state == LINK_CONNECTING && !c->poll_open && c->fd < 0 && ready) {
        tcpstore_connect_dial(c);
        return;
    }
    if (c->state == LINK_CONNECTING && ready &&
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &code, &len) == 0) {
        if (code == 0) {
            tcpstore_connect_greet(c);
            return;
        }
        tcpstore_connect_say_why(c, "%s", strerror(code));
    } else if (client_now(c) >= c->step_ms) {
        tcpstore_connect_say_why(c, c->state == LINK_GREETING ? "the server there sends nothing"
                                                              : "no server answers there");
    }
    tcpstore_connect_try_next(c);
}

void connect_greeted(struct tcpstore_client *c)
{
    struct tcpstore_fields fields = {.at = c->in.data};
    size_t whole = c->dialect == TCPSTORE_V2 ? 4 : 8;
    bool good;

    if (c->in.len < whole)
        return;
    if (c->dialect == TCPSTORE_V2)
        good = tcpstore_take_u32(&fields) == c->nonce;
    else
        good = (uint64_t)tcpstore_take_i64(&fields) >> SOME_KEYS_BITS == 0;
    if (!good || c->in.len > whole) {
        tcpstore_connect_say_why(c, "the server there is not a TCPStore, or not that of %s",
                                 tcpstore_connect_dialect_name(c->dialect));
        tcpstore_connect_try_next(c);
        return;
    }
    c->in.len = 0;
    c->state = LINK_UP;
    c->links++;
    c->attempts = 0;
    c->delay_ms = 0;
}

/* ---- the name ------------------------------------------------------------------------------- */

static void tcpstore_connect_on_resolved(uv_getaddrinfo_t *lookup, int status,
                                         struct addrinfo *found)
{
    struct tcpstore_client *c = lookup->data;

    c->looking_up = false;
    if (c->ending) {
        uv_freeaddrinfo(found);
        client_release(c);
        return;
    }
    if (c->addresses)
        uv_freeaddrinfo(c->addresses);
    c->addresses = found;
    c->address = found;
    if (status < 0 || !found) {
        tcpstore_connect_say_why(c, "the name cannot be looked up: %s", uv_strerror(status));
        tcpstore_connect_give_up(c);
    } else {
        c->tried_other = false;
        tcpstore_connect_dial(c);
    }
    client_turn(c);
    client_release(c);
}

void connect_begin(struct tcpstore_client *c)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[8];
    int r;

    if (c->state != LINK_DOWN || c->looking_up || client_now(c) < c->retry_ms)
        return;
    if (c->dialect == TCPSTORE_ANY)
        c->dialect = c->options.dialect == TCPSTORE_V1 ? TCPSTORE_V1 : TCPSTORE_V2;
    snprintf(port, sizeof port, "%u", (unsigned)c->options.port);
    c->lookup.data = c;
    r = uv_getaddrinfo(c->options.loop, &c->lookup, tcpstore_connect_on_resolved, c->host, port,
                       &hints);
    if (r < 0) {
        tcpstore_connect_say_why(c, "the name cannot be looked up: %s", uv_strerror(r));
        tcpstore_connect_give_up(c);
        return;
    }
    c->looking_up = true;
    c->handles++;
    c->state = LINK_RESOLVING;
    c->step_ms = UINT64_MAX; /* it ends by itself */
}
