#include "daemon/cluster/store/tcpstore_private.h"

#include <assert.h>
#include <errno.h>
#include <utlist.h>

enum {
    /* Bytes that a peer may leave unread before its next requests wait. */
    PEER_ENOUGH_OUTPUT = 256 << 10,
    /* Bytes that an idle buffer keeps. */
    RETAINED_MAX = 16 << 10,
};

/* ---- peers ---------------------------------------------------------------------------------- */

struct tcpstore_peer *tcpstore_peer_new(struct tcpstore *store, void *owner)
{
    struct tcpstore_peer *peer = calloc(1, sizeof *peer);

    if (!peer)
        return NULL;
    peer->store = store;
    peer->owner = owner;
    DL_APPEND(store->peers, peer);
    store->counts.peers++;
    return peer;
}

static void tcpstore_peer_touch(struct tcpstore_peer *peer)
{
    if (!peer->touched)
        DL_APPEND2(peer->store->touched, peer, touched_prev, touched_next);
    peer->touched = true;
}

static void tcpstore_peer_untouch(struct tcpstore_peer *peer)
{
    if (peer->touched)
        DL_DELETE2(peer->store->touched, peer, touched_prev, touched_next);
    peer->touched = false;
}

struct tcpstore_peer *tcpstore_next_touched(struct tcpstore *store)
{
    struct tcpstore_peer *peer = store->touched;

    if (peer)
        tcpstore_peer_untouch(peer);
    return peer;
}

static void tcpstore_peer_drop_buffer(struct tcpstore_peer *peer, struct dl_buffer *buffer)
{
    assert(peer->store->counts.buffered_bytes >= buffer->cap);
    peer->store->counts.buffered_bytes -= buffer->cap;
    buffer_deinit(buffer);
}

static void tcpstore_peer_drop_output(struct tcpstore_peer *peer)
{
    tcpstore_peer_drop_buffer(peer, &peer->out);
    peer->out_begin = 0;
}

struct tcpstore_peer *tcpstore_peer_free(struct tcpstore_peer *peer)
{
    if (!peer)
        return NULL;
    for (int kind = 0; kind < TCPSTORE_LINKS; kind++)
        tcpstore_unlink_all(peer, (enum tcpstore_table)kind);
    tcpstore_peer_drop_buffer(peer, &peer->in);
    tcpstore_peer_drop_output(peer);
    tcpstore_peer_untouch(peer);
    DL_DELETE(peer->store->peers, peer);
    peer->store->counts.peers--;
    free(peer);
    return NULL;
}

/* Its interests stay until it is freed: the code that breaks it may be iterating over them. */
int tcpstore_break(struct tcpstore_peer *peer, int code, const char *why)
{
    if (!peer->why) {
        peer->why = why;
        peer->code = code;
        tcpstore_peer_drop_output(peer);
        if (!peer->reading_in) /* else a request in it is being done */
            tcpstore_peer_drop_buffer(peer, &peer->in);
        tcpstore_peer_touch(peer);
    }
    return -peer->code;
}

void *tcpstore_peer_owner(const struct tcpstore_peer *peer)
{
    return peer->owner;
}

const char *tcpstore_peer_why(const struct tcpstore_peer *peer)
{
    return peer->why;
}

bool tcpstore_peer_is_amid(const struct tcpstore_peer *peer)
{
    return peer->in.len > 0;
}

uint64_t tcpstore_peer_requests(const struct tcpstore_peer *peer)
{
    return peer->requests;
}

enum tcpstore_dialect tcpstore_peer_dialect(const struct tcpstore_peer *peer)
{
    return peer->dialect;
}

/* ---- buffers -------------------------------------------------------------------------------- */

static size_t tcpstore_peer_buffered(const struct tcpstore_peer *peer)
{
    return peer->in.cap + peer->out.cap;
}

/* Of those that are not broken; NULL: none of them holds anything. */
static struct tcpstore_peer *tcpstore_peer_most_buffered(const struct tcpstore *store)
{
    struct tcpstore_peer *largest = NULL, *peer;

    DL_FOREACH (store->peers, peer) {
        if (!peer->why &&
            tcpstore_peer_buffered(peer) > (largest ? tcpstore_peer_buffered(largest) : 0))
            largest = peer;
    }
    return largest;
}

/* Appends, and sees to it that all buffers together stay within the bound. */
static int tcpstore_peer_append(struct tcpstore_peer *peer, struct dl_buffer *buffer,
                                const void *data, size_t len)
{
    struct tcpstore *store = peer->store;
    size_t had = buffer->cap;
    int r;

    if (peer->why)
        return -peer->code;
    r = buffer_append(buffer, data, len);
    store->counts.buffered_bytes += buffer->cap - had;
    if (r < 0)
        return tcpstore_break(peer, ENOMEM, "there is no memory for its request");
    while (store->counts.buffered_bytes > store->limits.buffered_bytes) {
        struct tcpstore_peer *largest = tcpstore_peer_most_buffered(store);
        if (!largest) /* one whose request is being done is, and will be dropped in a moment */
            break;
        tcpstore_break(largest, ENOBUFS, "too much data is pending, most of it this client's");
    }
    return peer->why ? -peer->code : 0;
}

bool tcpstore_may_tell(const struct tcpstore_peer *peer, uint64_t bytes)
{
    return bytes <= peer->store->limits.output_bytes - (peer->out.len - peer->out_begin);
}

void tcpstore_tell(struct tcpstore_peer *peer, const void *data, size_t len)
{
    if (peer->why)
        return;
    if (!tcpstore_may_tell(peer, len))
        tcpstore_break(peer, ENOBUFS, "it does not read its answers");
    else if (tcpstore_peer_append(peer, &peer->out, data, len) == 0)
        tcpstore_peer_touch(peer);
}

void tcpstore_tell_u8(struct tcpstore_peer *peer, uint8_t value)
{
    tcpstore_tell(peer, &value, sizeof value);
}

void tcpstore_tell_i64(struct tcpstore_peer *peer, int64_t value)
{
    uint8_t bytes[8];

    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
    tcpstore_tell(peer, bytes, sizeof bytes);
}

void tcpstore_tell_span(struct tcpstore_peer *peer, struct dl_span span)
{
    tcpstore_tell_i64(peer, (int64_t)span.len);
    if (span.len > 0)
        tcpstore_tell(peer, span.data, span.len);
}

/* ---- input ---------------------------------------------------------------------------------- */

bool tcpstore_peer_wants_input(const struct tcpstore_peer *peer)
{
    return !peer->why && peer->out.len - peer->out_begin < PEER_ENOUGH_OUTPUT;
}

static int tcpstore_peer_sniff(struct tcpstore_peer *peer, const uint8_t *data, size_t len)
{
    int r = tcpstore_sniff(data, len, &peer->dialect);

    return r < 0 ? tcpstore_break(peer, EPROTO,
                                  "it does not speak the protocol of a TCPStore's "
                                  "client")
                 : r;
}

static int tcpstore_peer_scan(struct tcpstore_peer *peer, const uint8_t *data, size_t len,
                              struct tcpstore_request *ret)
{
    int r = 1;

    if (peer->dialect == TCPSTORE_ANY)
        r = tcpstore_peer_sniff(peer, data, len);
    if (r <= 0)
        return r;
    r = tcpstore_scan_request(&peer->scan, peer->dialect, data, len, ret);
    return r < 0 ? tcpstore_break(peer, EPROTO,
                                  "its request is not one of a TCPStore's, or too "
                                  "large")
                 : r;
}

/* Does the requests that are whole; returns the bytes they had, or a negative errno. */
static ssize_t tcpstore_peer_do_requests(struct tcpstore_peer *peer, const uint8_t *data,
                                         size_t len)
{
    size_t at = 0;

    while (at < len && tcpstore_peer_wants_input(peer)) {
        struct tcpstore_request request;
        int r = tcpstore_peer_scan(peer, data + at, len - at, &request);

        if (r == 0)
            break;
        if (r > 0)
            r = tcpstore_do(peer, &request);
        if (r < 0)
            return r;
        peer->requests++;
        at += request.bytes;
    }
    return peer->why ? -peer->code : (ssize_t)at;
}

/* Those that had to wait, and what came after them. */
static int tcpstore_peer_do_buffered(struct tcpstore_peer *peer)
{
    ssize_t done;

    if (peer->in.len == 0)
        return 0;
    peer->reading_in = true;
    done = tcpstore_peer_do_requests(peer, peer->in.data, peer->in.len);
    peer->reading_in = false;
    if (done < 0) {
        tcpstore_peer_drop_buffer(peer, &peer->in);
        return (int)done;
    }
    peer->in.len -= (size_t)done;
    if (done > 0 && peer->in.len > 0)
        memmove(peer->in.data, peer->in.data + done, peer->in.len);
    if (peer->in.len == 0 && peer->in.cap > RETAINED_MAX)
        tcpstore_peer_drop_buffer(peer, &peer->in);
    return 0;
}

int tcpstore_peer_feed(struct tcpstore_peer *peer, const uint8_t *data, size_t len)
{
    ssize_t done;
    int r;

    if (peer->why)
        return -peer->code;
    if (peer->in.len > 0) {
        r = tcpstore_peer_append(peer, &peer->in, data, len);
        return r < 0 ? r : tcpstore_peer_do_buffered(peer);
    }
    done = tcpstore_peer_do_requests(peer, data, len);
    if (done < 0)
        return (int)done;
    if ((size_t)done == len)
        return 0;
    return tcpstore_peer_append(peer, &peer->in, data + done, len - (size_t)done);
}

/* ---- output --------------------------------------------------------------------------------- */

struct dl_span tcpstore_peer_output(const struct tcpstore_peer *peer)
{
    size_t len = peer->out.len - peer->out_begin;

    return (struct dl_span){.data = len > 0 ? peer->out.data + peer->out_begin : NULL, .len = len};
}

int tcpstore_peer_sent(struct tcpstore_peer *peer, size_t len)
{
    bool waited = !tcpstore_peer_wants_input(peer);

    assert(len <= peer->out.len - peer->out_begin);
    peer->out_begin += len;
    if (peer->out_begin == peer->out.len) {
        peer->out_begin = peer->out.len = 0;
        if (peer->out.cap > RETAINED_MAX)
            tcpstore_peer_drop_buffer(peer, &peer->out);
    } else if (peer->out_begin > peer->out.len / 2) {
        peer->out.len -= peer->out_begin;
        memmove(peer->out.data, peer->out.data + peer->out_begin, peer->out.len);
        peer->out_begin = 0;
    }
    return waited && tcpstore_peer_wants_input(peer) ? tcpstore_peer_do_buffered(peer) : 0;
}
