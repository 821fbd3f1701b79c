#include "daemon/helper/link.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>

void link_init(struct link *link, int fd)
{
    *link = (struct link){.fd = fd, .most = LINK_UNPROVEN_BYTES};
}

void link_deinit(struct link *link)
{
    link->tls = tls_free(link->tls);
    close_fdp(&link->fd);
    buffer_deinit(&link->in);
    buffer_deinit(&link->out);
}

/* ---- what comes ----------------------------------------------------------------------------- */

/* How many bytes; 0: none are there yet. */
static int64_t link_receive(const struct link *link, void *to, uint64_t room)
{
    while (!link->tls) {
        ssize_t n = recv(link->fd, to, room, MSG_DONTWAIT);

        if (n > 0)
            return n;
        if (n == 0 || errno == ECONNRESET)
            return -EPIPE;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
    return tls_receive(link->tls, to, room);
}

static int link_read_head(struct link *link)
{
    int64_t n = link_receive(link, link->head + link->have, sizeof link->head - link->have);

    if (n <= 0)
        return n < 0 ? (int)n : -EAGAIN;
    link->came += (uint64_t)n;
    link->have += (size_t)n;
    if (link->have < sizeof link->head)
        return 0;
    link->payload = (uint64_t)link->head[0] | (uint64_t)link->head[1] << 8 |
                    (uint64_t)link->head[2] << 16 | (uint64_t)link->head[3] << 24;
    link->in.len = 0;
    return link->payload == 0 || link->payload > link->most ? -EMSGSIZE : 0;
}

/* Memory is taken as bytes come: a peer that announces a long frame has to send it. */
static int link_read_payload(struct link *link)
{
    enum { STEP = 64 * 1024 };
    size_t room = (size_t)min_u64(link->payload - link->in.len, STEP);
    int r = buffer_reserve(&link->in, room);
    int64_t n = r < 0 ? r : link_receive(link, link->in.data + link->in.len, room);

    if (n <= 0)
        return n < 0 ? (int)n : -EAGAIN;
    link->came += (uint64_t)n;
    link->in.len += (size_t)n;
    return 0;
}

static int link_read_raw(struct link *link)
{
    int64_t n = link_receive(link, link->raw, link->raw_left);

    if (n <= 0)
        return n < 0 ? (int)n : -EAGAIN;
    link->came += (uint64_t)n;
    link->raw += n;
    link->raw_left -= (uint64_t)n;
    return 0;
}

/* Of a large batch many packets come, and most of them are not worth a turn each. What TLS has read
 * already does not count for the socket. */
static void link_set_low(struct link *link)
{
    uint64_t low = link->raw_comes && !link->tls ? min_u64(link->raw_left, LINK_AT_ONCE) : 0;
    bool rises = low > link->low;

    if (low == link->low || (rises && low < LINK_AT_ONCE))
        return;
    const int bytes = (int)max_u64(low, 1);
    (void)setsockopt(link->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
    link->low = low;
}

int link_read(struct link *link, enum link_news *ret)
{
    int r = 0;

    *ret = LINK_NOTHING;
    while (r == 0 && *ret == LINK_NOTHING) {
        if (link->raw_comes) {
            r = link_read_raw(link);
            if (r == 0 && link->raw_left == 0) {
                link->raw_comes = false;
                *ret = LINK_RAW;
            }
        } else if (link->have < sizeof link->head) {
            r = link_read_head(link);
        } else {
            r = link_read_payload(link);
            if (r == 0 && link->in.len == link->payload) {
                link->have = 0;
                *ret = LINK_FRAME;
            }
        }
    }
    if (r == -EAGAIN)
        link_set_low(link);
    return r == -EAGAIN ? 0 : r;
}

struct dl_span link_payload(const struct link *link)
{
    return (struct dl_span){link->in.data, link->in.len};
}

void link_expect(struct link *link, void *to, uint64_t bytes)
{
    assert(bytes > 0 && !link->raw_comes && link->have == 0);
    link->raw = to;
    link->raw_left = bytes;
    link->raw_comes = true;
}

/* ---- what goes ------------------------------------------------------------------------------ */

/* What is sent makes room, where the next always comes before all is. */
static void link_tidy(struct link *link)
{
    if (link->out_at < link->out.len / 2 || link->out_at == 0)
        return;
    link->out.len -= link->out_at;
    memmove(link->out.data, link->out.data + link->out_at, link->out.len);
    link->out_at = 0;
}

int link_say(struct link *link, const struct dl_message *msg)
{
    assert(link->body.len == 0);
    link_tidy(link);
    return message_encode(msg, &link->out);
}

int link_add(struct link *link, struct dl_span bytes)
{
    assert(link->body.len == 0);
    link_tidy(link);
    return buffer_append(&link->out, bytes.data, bytes.len);
}

void link_add_body(struct link *link, struct dl_span bytes)
{
    assert(link->body.len == 0);
    link->body = bytes;
}

/* How many of them were sent; 0: the socket takes none. */
static int64_t link_send(const struct link *link, const void *data, uint64_t len, int flags)
{
    while (!link->tls) {
        ssize_t n = send(link->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL | flags);

        if (n >= 0)
            return n;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 0;
        if (errno != EINTR)
            return errno == ECONNRESET ? -EPIPE : -errno;
    }
    return tls_send(link->tls, data, len);
}

int link_write(struct link *link)
{
    while (link->out_at < link->out.len) {
        int64_t n = link_send(link, link->out.data + link->out_at, link->out.len - link->out_at,
                              link->body.len > 0 ? MSG_MORE : 0);
        if (n <= 0)
            return (int)n;
        link->out_at += (size_t)n;
    }
    link->out.len = link->out_at = 0;
    while (link->body.len > 0) {
        int64_t n = link_send(link, link->body.data, link->body.len, 0);
        if (n <= 0)
            return (int)n;
        link->body.data += n;
        link->body.len -= (size_t)n;
    }
    return 0;
}

bool link_is_idle(const struct link *link)
{
    return link->out.len == 0 && link->body.len == 0;
}
