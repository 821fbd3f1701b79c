/*
 * Bytes of TCPStore clients for tests, written as they are captured: "05 01 00". Between quotation
 * marks stands text as a key or a value goes out, its length before it: 'k' is 01 00.. 6b. #5 is a
 * whole number of eight bytes.
 */
#ifndef DL_TEST_TCPSTORE_CASE_H
#define DL_TEST_TCPSTORE_CASE_H

#include "daemon/cluster/store/tcpstore_private.h"
#include "tests/lib/harness.h"

#include <ctype.h>

static inline const char *put_quoted(const char *at, struct dl_buffer *out)
{
    const char *end = strchr(at, '\'');

    assert_non_null(end);
    const struct dl_span text = {.data = (const uint8_t *)at, .len = (size_t)(end - at)};
    assert_int_equal(tcpstore_put_span(out, text), 0);
    return end + 1;
}

static inline struct dl_buffer bytes_of(const char *text)
{
    struct dl_buffer out = {0};
    char *end;

    while (*text) {
        if (isspace((unsigned char)*text)) {
            text++;
        } else if (*text == '\'') {
            text = put_quoted(text + 1, &out);
        } else if (*text == '#') {
            assert_int_equal(tcpstore_put_i64(&out, strtoll(text + 1, &end, 10)), 0);
            text = end;
        } else {
            assert_int_equal(tcpstore_put_u8(&out, (uint8_t)strtoul(text, &end, 16)), 0);
            assert_ptr_not_equal(text, end);
            text = end;
        }
    }
    return out;
}

/* The peer sends `bytes` in pieces of so many (0: all at once). */
static inline int feed(struct tcpstore_peer *peer, const char *text, size_t piece)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = bytes_of(text);
    size_t n;
    int r = 0;

    for (size_t at = 0; at < bytes.len && r == 0; at += n) {
        n = piece > 0 ? min_u64(piece, bytes.len - at) : bytes.len;
        /* A block of its own, so that ASan sees one byte too far. */
        uint8_t *copy = malloc(n);
        assert_non_null(copy);
        memcpy(copy, bytes.data + at, n);
        r = tcpstore_peer_feed(peer, copy, n);
        free(copy);
        tcpstore_check(peer->store);
    }
    return r;
}

/* The peer has been told exactly this, and now takes it. */
static inline void hears(struct tcpstore_peer *peer, const char *text)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = bytes_of(text);
    struct dl_span out = tcpstore_peer_output(peer);

    assert_int_equal(out.len, bytes.len);
    if (bytes.len > 0)
        assert_memory_equal(out.data, bytes.data, bytes.len);
    assert_int_equal(tcpstore_peer_sent(peer, out.len), 0);
    tcpstore_check(peer->store);
}

#endif
