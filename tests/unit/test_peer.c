/* A peer over a socket that the loop watches: what it says, what it may not, what waits for it. */
#include "tests/lib/harness.h"
#include "tests/lib/uv_threads.h"

#include "daemon/base/peer.h"
#include "proto/fdpass.h"

#include <errno.h>
#include <sys/socket.h>

enum { LIMIT = 4096 };

static struct play {
    uv_loop_t loop;
    struct peer peer;
    int theirs;
    unsigned messages, paused, closed, lost, violations, heard;
    int lost_by;
    struct dl_error err;
    bool stops; /* at the next message */
} play;

static void on_heard(void *owner)
{
    (void)owner;
    play.heard++;
}

static void on_message(void *owner, const struct dl_message *msg, struct dl_span payload)
{
    assert_ptr_equal(owner, &play);
    assert_int_equal(msg->number, DL_MSG_STOP);
    assert_true(payload.len > 0);
    play.messages++;
    if (play.stops)
        peer_stop(&play.peer);
}

static void on_paused(void *owner)
{
    (void)owner;
    play.paused++;
}

static void on_lost(void *owner, int r)
{
    (void)owner;
    play.lost++;
    play.lost_by = r;
    peer_stop(&play.peer);
}

static void on_violation(void *owner, const struct dl_error *err)
{
    (void)owner;
    play.violations++;
    play.err = *err;
    peer_stop(&play.peer);
}

static void on_closed(void *owner)
{
    (void)owner;
    play.closed++;
}

static const struct peer_events events = {.message = on_message,
                                          .paused = on_paused,
                                          .lost = on_lost,
                                          .violates = on_violation,
                                          .closed = on_closed};

/* Who is read when it is its turn. */
static const struct peer_events events_in_turn = {.heard = on_heard,
                                                  .message = on_message,
                                                  .paused = on_paused,
                                                  .lost = on_lost,
                                                  .violates = on_violation,
                                                  .closed = on_closed};

static void begin_as(bool sends_fds, const struct peer_events *as, size_t mark)
{
    const struct peer_options how = {.from = FROM_CLIENT,
                                     .limit = LIMIT,
                                     .mark = mark,
                                     .sends_fds = sends_fds,
                                     .fd_rule = "no descriptors here",
                                     .events = as,
                                     .owner = &play};
    int pair[2];

    play = (struct play){0};
    assert_int_equal(uv_loop_init(&play.loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    play.theirs = pair[1];
    assert_int_equal(peer_open(&play.peer, &how, &play.loop, pair[0]), 0);
}

static void begin(bool sends_fds)
{
    begin_as(sends_fds, &events, 0);
}

static void end(void)
{
    assert_true(peer_close(&play.peer));
    assert_false(peer_close(&play.peer));
    uv_run(&play.loop, UV_RUN_DEFAULT);
    assert_int_equal(play.closed, 1);
    peer_deinit(&play.peer);
    peer_deinit(&play.peer);
    close_fdp(&play.theirs);
    assert_int_equal(uv_loop_close(&play.loop), 0);
}

/* `n` messages at once, with a descriptor if `fd` is one. */
static void say(unsigned n, int fd)
{
    struct dl_buffer bytes = {0};

    for (unsigned i = 0; i < n; i++)
        assert_int_equal(message_encode(&(struct dl_message){.number = DL_MSG_STOP}, &bytes), 0);
    assert_int_equal(fdpass_send(play.theirs, bytes.data, bytes.len, &fd, fd >= 0, 0), bytes.len);
    buffer_deinit(&bytes);
}

TEST(test_messages)
{
    begin(false);
    say(3, -1);
    uv_run(&play.loop, UV_RUN_ONCE);
    assert_int_equal(play.messages, 3);
    assert_int_equal(play.paused, 1);
    say(1, -1);
    peer_read(&play.peer);
    peer_read(&play.peer); /* nothing has come */
    assert_int_equal(play.messages, 4);
    assert_int_equal(play.paused, 2);
    play.stops = true;
    say(3, -1);
    uv_run(&play.loop, UV_RUN_ONCE);
    assert_int_equal(play.messages, 5);
    assert_int_equal(play.paused, 2);
    peer_read(&play.peer); /* it is not heard any more */
    assert_int_equal(play.messages, 5);
    end();
}

/* In turns: so many messages in each, and what is left in the next; the first even if time is up.
 */
TEST(test_turns)
{
    static const struct {
        uint32_t messages;
        uint64_t ends_ns;
        unsigned seen;
        bool more;
    } rows[] = {{3, UINT64_MAX, 3, true},
                {UINT32_MAX, 0, 4, true},
                {2, UINT64_MAX, 6, true},
                {UINT32_MAX, UINT64_MAX, 8, false},
                {UINT32_MAX, UINT64_MAX, 8, false}};

    begin_as(false, &events_in_turn, 0);
    say(8, -1);
    uv_run(&play.loop, UV_RUN_ONCE);
    assert_int_equal(play.heard, 1);
    assert_int_equal(play.messages, 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(peer_read_some(&play.peer, rows[i].messages, rows[i].ends_ns),
                         rows[i].more);
        assert_int_equal(play.messages, rows[i].seen);
    }
    assert_int_equal(play.paused, 4);
    end();
}

/* Who leaves more than the mark unread is not heard, not even what was read of it before. */
TEST(test_deaf)
{
    static uint8_t seen[1 << 16];
    const struct dl_message msg = {.number = DL_MSG_STOP};

    begin_as(false, &events_in_turn, LIMIT / 2);
    say(2, -1);
    uv_run(&play.loop, UV_RUN_ONCE);
    assert_true(peer_read_some(&play.peer, 1, UINT64_MAX));
    while (peer_pending(&play.peer) <= LIMIT / 2) {
        assert_int_equal(peer_queue(&play.peer, &msg, NULL, 0), 0);
        assert_int_equal(peer_flush(&play.peer), 0);
    }
    play.heard = 0;
    say(1, -1);
    assert_false(peer_read_some(&play.peer, 1, UINT64_MAX));
    for (int i = 0; i < 3; i++)
        uv_run(&play.loop, UV_RUN_NOWAIT);
    assert_int_equal(play.heard, 0);
    assert_int_equal(play.messages, 1);
    while (play.heard == 0) {
        (void)!recv(play.theirs, seen, sizeof seen, MSG_DONTWAIT);
        uv_run(&play.loop, UV_RUN_NOWAIT);
    }
    assert_true(peer_pending(&play.peer) <= LIMIT / 2);
    (void)!peer_read_some(&play.peer, 2, UINT64_MAX);
    (void)!peer_read_some(&play.peer, 2, UINT64_MAX);
    assert_int_equal(play.messages, 3);
    end();
}

TEST(test_lost)
{
    begin(false);
    say(1, -1);
    close_fdp(&play.theirs);
    while (play.lost == 0)
        uv_run(&play.loop, UV_RUN_ONCE);
    assert_int_equal(play.messages, 1);
    assert_int_equal(play.lost_by, 0);
    end();
}

/* It hangs up without having read all: libuv calls that an error, and watches the socket no more.
 */
TEST(test_lost_with_more_to_read)
{
    begin(false);
    assert_int_equal(peer_queue(&play.peer, &(struct dl_message){.number = DL_MSG_STOP}, NULL, 0),
                     0);
    assert_int_equal(peer_flush(&play.peer), 0);
    say(3, -1);
    close_fdp(&play.theirs);
    for (int i = 0; i < 1000 && play.lost == 0; i++)
        uv_run(&play.loop, UV_RUN_NOWAIT);
    assert_int_equal(play.messages, 3);
    assert_int_equal(play.lost, 1);
    assert_int_equal(play.lost_by, -ECONNRESET);
    end();
}

TEST(test_violations)
{
    static const uint8_t long_frame[] = {0xff, 0xff, 0xff, 0xff}, garbage[] = {1, 0, 0, 0, 0xc1};

    begin(false);
    assert_int_equal(write(play.theirs, long_frame, sizeof long_frame), sizeof long_frame);
    uv_run(&play.loop, UV_RUN_ONCE);
    assert_non_null(strstr(play.err.message, "a frame has 1 to "));
    end();
    begin(false);
    assert_int_equal(write(play.theirs, garbage, sizeof garbage), sizeof garbage);
    uv_run(&play.loop, UV_RUN_ONCE);
    assert_int_equal(play.violations, 1);
    assert_int_equal(play.messages, 0);
    end();
}

/* Of one that may send them, one that its message does not take is one too many. */
TEST(test_descriptors)
{
    for (int sends = 0; sends < 2; sends++) {
        begin(sends);
        say(1, play.theirs);
        uv_run(&play.loop, UV_RUN_ONCE);
        assert_int_equal(play.messages, sends);
        assert_int_equal(play.violations, 1);
        assert_int_equal(play.err.code, EPROTO);
        assert_non_null(strstr(play.err.message, "no descriptors here"));
        end();
    }
}

/* What a peer does not read waits, up to the limit, and goes when it reads. */
TEST(test_what_waits)
{
    static uint8_t seen[1 << 16];
    const struct dl_message msg = {.number = DL_MSG_STOP};
    int r;

    begin(false);
    do {
        assert_int_equal(peer_queue(&play.peer, &msg, NULL, 0), 0);
        r = peer_flush(&play.peer);
    } while (r == 0);
    assert_int_equal(r, -ENOBUFS);
    assert_true(peer_pending(&play.peer) > LIMIT);
    while (recv(play.theirs, seen, sizeof seen, MSG_DONTWAIT) > 0)
        continue;
    assert_int_equal(peer_flush(&play.peer), 0);
    while (peer_pending(&play.peer) > 0) {
        (void)!recv(play.theirs, seen, sizeof seen, MSG_DONTWAIT);
        uv_run(&play.loop, UV_RUN_NOWAIT);
    }
    close_fdp(&play.theirs);
    assert_int_equal(peer_queue(&play.peer, &msg, NULL, 0), 0);
    assert_int_equal(peer_flush(&play.peer), -EPIPE);
    end();
}
