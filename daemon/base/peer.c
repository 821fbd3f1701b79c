#include "daemon/base/peer.h"

#include "proto/fdpass.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>

/* ---- its life ------------------------------------------------------------------------------- */

static void peer_on_event(uv_poll_t *poll, int status, int events);

/* libuv asks the kernel again at each start, even if the events are the same. */
static void peer_watch(struct peer *peer, int events)
{
    if (!peer->stopped && peer->watched != events)
        (void)uv_poll_start(&peer->poll, events, peer_on_event);
    peer->watched = events;
}

int peer_open(struct peer *peer, const struct peer_options *options, uv_loop_t *loop, int sock)
{
    *peer = (struct peer){.o = *options, .sock = sock};
    peer->poll.data = peer;
    int r = uv_poll_init(loop, &peer->poll, sock);
    if (r < 0)
        return r;
    peer->open = true;
    peer_watch(peer, UV_READABLE);
    return 0;
}

static void peer_on_closed(uv_handle_t *handle)
{
    struct peer *peer = handle->data;

    peer->open = false;
    peer->o.events->closed(peer->o.owner);
}

bool peer_close(struct peer *peer)
{
    if (!peer->open || uv_is_closing((uv_handle_t *)&peer->poll))
        return false;
    peer->stopped = true;
    uv_close((uv_handle_t *)&peer->poll, peer_on_closed);
    return true;
}

void peer_deinit(struct peer *peer)
{
    assert(!peer->open);
    frame_reader_deinit(&peer->reader);
    outbox_deinit(&peer->out);
    if (peer->o.events) /* else it was never opened */
        close_fdp(&peer->sock);
    *peer = (struct peer){.sock = -1};
}

void peer_stop(struct peer *peer)
{
    if (peer->open && !peer->stopped)
        (void)uv_poll_stop(&peer->poll);
    peer->stopped = true;
}

/* ---- sending -------------------------------------------------------------------------------- */

int peer_queue(struct peer *peer, const struct dl_message *msg, const int *fds, uint32_t n_fds)
{
    return outbox_append(&peer->out, msg, fds, n_fds);
}

size_t peer_pending(const struct peer *peer)
{
    return outbox_pending(&peer->out);
}

/* A peer that does not read its answers is not read either. */
static void peer_heed(struct peer *peer, size_t pending)
{
    bool was_deaf = peer->deaf;

    peer->deaf = peer->muted || (peer->o.mark && pending > peer->o.mark);
    peer_watch(peer, (peer->deaf ? 0 : UV_READABLE) | (pending ? UV_WRITABLE : 0));
    if (was_deaf && !peer->deaf && !peer->stopped && peer->o.events->heard)
        peer->o.events->heard(peer->o.owner); /* what was read before */
}

void peer_mute(struct peer *peer, bool muted)
{
    peer->muted = muted;
    if (!peer->stopped)
        peer_heed(peer, outbox_pending(&peer->out));
}

size_t peer_memory(const struct peer *peer)
{
    return peer->reader.cap + peer->out.bytes.cap;
}

uint32_t peer_descriptors(const struct peer *peer)
{
    return peer->reader.fd_count + peer->out.n_fds;
}

int peer_flush(struct peer *peer)
{
    int r = outbox_flush(&peer->out, peer->sock);

    if (r < 0)
        return r;
    size_t pending = outbox_pending(&peer->out);
    if (pending > peer->o.limit)
        return -ENOBUFS;
    peer_heed(peer, pending);
    return 0;
}

/* ---- what it says --------------------------------------------------------------------------- */

ssize_t peer_receive(struct peer *peer)
{
    return fdpass_recv(peer->sock, &peer->reader, MSG_DONTWAIT);
}

static int peer_refuse_fds(const struct peer *peer, struct dl_error *err)
{
    return dl_error_set(err, EPROTO, "frame", "%s", peer->o.fd_rule);
}

/* Descriptors were lost: the peer sent too many, or this process cannot open more. */
static int peer_say_fds_lost(const struct peer *peer, struct dl_error *err)
{
    _cleanup_fd_ int probe = fcntl(peer->sock, F_DUPFD_CLOEXEC, 3);

    if (probe >= 0)
        return peer_refuse_fds(peer, err);
    return dl_error_set(err, EMFILE, "frame",
                        "a file descriptor was lost: the daemon can have no more");
}

/*
 * Descriptors arrive with the first byte of their frame: after all complete frames, more than the
 * one incomplete frame can have is too many.
 */
static bool peer_has_too_many_fds(const struct peer *peer)
{
    bool on_its_way = peer->reader.begin < peer->reader.end;

    return peer->reader.fd_count > (peer->o.sends_fds && on_its_way);
}

int peer_take(struct peer *peer, struct dl_message *ret, struct dl_span *ret_payload,
              struct dl_error *err)
{
    int r = frame_reader_next(&peer->reader, ret_payload);

    if (r == 0)
        return peer_has_too_many_fds(peer) ? peer_refuse_fds(peer, err) : 0;
    if (r < 0)
        return dl_error_set(err, EMSGSIZE, "frame", "a frame has 1 to %llu bytes",
                            (ull)DL_MAX_FRAME_BYTES);
    r = message_decode(ret_payload->data, ret_payload->len, peer->o.from, ret, err);
    return r < 0 ? r : 1;
}

/* Whether anything came. */
static bool peer_hear(struct peer *peer)
{
    struct dl_error err = {0};
    ssize_t n = peer_receive(peer);

    if (n == -EAGAIN)
        return false;
    if (n == -EMFILE || (!peer->o.sends_fds && peer->reader.fd_count > 0)) {
        frame_reader_deinit(&peer->reader); /* closes unexpected descriptors */
        (void)!peer_say_fds_lost(peer, &err);
        peer->o.events->violates(peer->o.owner, &err);
    } else if (n <= 0) {
        peer->o.events->lost(peer->o.owner, (int)n);
    }
    return true;
}

/* Hands out the next message; false: no whole one is there. */
static bool peer_hand_out(struct peer *peer)
{
    const struct peer_events *events = peer->o.events;
    struct dl_span payload;
    struct dl_message msg;
    struct dl_error err = {0};
    int r = peer_take(peer, &msg, &payload, &err);

    if (r > 0)
        events->message(peer->o.owner, &msg, payload);
    else if (r < 0)
        events->violates(peer->o.owner, &err);
    assert(r >= 0 || peer->stopped);
    return r > 0;
}

bool peer_read_some(struct peer *peer, uint32_t messages, uint64_t ends_ns)
{
    if (peer->stopped || peer->deaf)
        return false;
    bool more = peer_hand_out(peer); /* what was read before */
    uint32_t n = more;
    if (!more && !peer->stopped)
        more = peer_hear(peer);
    if (!more)
        return false;
    while (more && !peer->stopped && !peer->deaf && n < messages &&
           (n == 0 || uv_hrtime() < ends_ns)) {
        more = peer_hand_out(peer);
        n++;
    }
    frame_reader_trim(&peer->reader);
    if (!peer->stopped && peer->o.events->paused)
        peer->o.events->paused(peer->o.owner);
    return more && !peer->stopped && !peer->deaf;
}

void peer_read(struct peer *peer)
{
    (void)peer_read_some(peer, UINT32_MAX, UINT64_MAX);
}

static void peer_on_event(uv_poll_t *poll, int status, int events)
{
    struct peer *peer = poll->data;
    int r = status >= 0 && (events & UV_WRITABLE) ? peer_flush(peer) : 0;

    if (r < 0)
        peer->o.events->lost(peer->o.owner, r);
    if (!peer->stopped && status >= 0 && (events & UV_READABLE) && peer->o.events->heard)
        peer->o.events->heard(peer->o.owner);
    else if (status < 0 || (events & UV_READABLE))
        peer_read(peer);
    /* libuv watches no socket any more that has an error, though there may be more to read. */
    if (status < 0 && !peer->stopped)
        peer->o.events->lost(peer->o.owner, -ECONNRESET);
}
