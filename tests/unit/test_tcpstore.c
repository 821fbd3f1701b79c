/*
 * What the store does for its peers: captured conversations of PyTorch's clients, then what each
 * request does to keys and to others, then what the bounds are for. After every piece all books are
 * counted anew.
 */
#include "tests/unit/tcpstore_case.h"

#include "tests/unit/fail_alloc.h"

#include <errno.h>

#define HELLO_V2 "00 ce f7 85 3c 0d 90 1f 00 00 "

enum { PEERS = 3 };

struct world {
    struct tcpstore *store;
    struct tcpstore_peer *peers[PEERS];
};

static struct world *begin(const struct tcpstore_limits *limits)
{
    struct world *w = calloc(1, sizeof *w);

    assert_non_null(w);
    w->store = tcpstore_new(limits, 42);
    assert_non_null(w->store);
    for (int i = 0; i < PEERS; i++) {
        w->peers[i] = tcpstore_peer_new(w->store, w);
        assert_non_null(w->peers[i]);
    }
    return w;
}

static void end(struct world *w)
{
    for (int i = 0; i < PEERS; i++) {
        tcpstore_peer_free(w->peers[i]);
        tcpstore_check(w->store);
    }
    tcpstore_free(w->store);
    free(w);
}

/* All of v2, past their beginning. */
static struct world *begin_v2(const struct tcpstore_limits *limits)
{
    struct world *w = begin(limits);

    for (int i = 0; i < PEERS; i++) {
        assert_int_equal(feed(w->peers[i], HELLO_V2, 0), 0);
        hears(w->peers[i], "90 1f 00 00");
    }
    return w;
}

/* ---- conversations -------------------------------------------------------------------------- */

struct line {
    int peer;
    const char *says;
    const char *hears;
};

static const struct line v1_captures[] = {
    {0, "03 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00",
     "01 00 00 00 00 00 00 00"},
    {0, "00 02 00 00 00 00 00 00 00 2f 6b 02 00 00 00 00 00 00 00 76 31", ""},
    {0, "05 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b", "00"},
    {0, "02 02 00 00 00 00 00 00 00 2f 6b", "02 00 00 00 00 00 00 00 76 31"},
    {0, "00 '/n' '5'", ""},
    {0, "03 02 00 00 00 00 00 00 00 2f 6e f9 ff ff ff ff ff ff ff", "fe ff ff ff ff ff ff ff"},
    {0, "02 '/n'", "'-2'"},
    {0, "01 04 00 00 00 00 00 00 00 2f 6e 65 77 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 61",
     "01 00 00 00 00 00 00 00 61"},
    {0, "01 '/new' 'a' 'b'", "'b'"},
    {0,
     "01 04 00 00 00 00 00 00 00 2f 6e 65 77 02 00 00 00 00 00 00 00 7a 7a 01 00 00 00 00 00 00 00 "
     "63",
     "01 00 00 00 00 00 00 00 62"},
    {0,
     "01 07 00 00 00 00 00 00 00 2f 61 62 73 65 6e 74 03 00 00 00 00 00 00 00 65 78 70 01 00 00 00 "
     "00 00 00 00 63",
     "03 00 00 00 00 00 00 00 65 78 70"},
    {0, "04 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b 02 00 00 00 00 00 00 00 2f 7a",
     "01"},
    {0, "06", "04 00 00 00 00 00 00 00"},
    /* A wait that times out in silence; then the same connection goes on, and is not answered for
     * what it gave up. */
    {0, "05 01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 2f 6c 61 74 65", ""},
    {0, "00 '/late' 'x'", ""},
    {0, "05 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b", "00"},
    {0, "02 02 00 00 00 00 00 00 00 2f 6b", "02 00 00 00 00 00 00 00 76 31"},
    {1, "07 02 00 00 00 00 00 00 00 2f 6b", "03"},
    {0, "00 '/k' 'v2'", ""},
    {1, "",
     "00 02 00 00 00 00 00 00 00 2f 6b 02 00 00 00 00 00 00 00 76 31 02 00 00 00 00 00 00 00 76 "
     "32"},
    {0, "08 02 00 00 00 00 00 00 00 2f 6b", "01 00 00 00 00 00 00 00"},
    {1, "", "02 '/k' 'v2' ''"},
    {0, "08 '/k'", "#0"},
    {0, "03 '/k' #3", "#3"},
    {1, "", "01 '/k' '' '3'"},
};

static const struct line v2_captures[] = {
    {0, "00 ce f7 85 3c 0d 90 1f 00 00", "90 1f 00 00"},
    {0, "04 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00",
     "01 00 00 00 00 00 00 00"},
    {0, "01 02 00 00 00 00 00 00 00 2f 6b 02 00 00 00 00 00 00 00 76 31", ""},
    {0, "06 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b", "00"},
    {0, "03 02 00 00 00 00 00 00 00 2f 6b", "02 00 00 00 00 00 00 00 76 31"},
    {0, "04 02 00 00 00 00 00 00 00 2f 6e 05 00 00 00 00 00 00 00", "05 00 00 00 00 00 00 00"},
    {0, "01 '/new' 'a'", ""},
    {0,
     "02 04 00 00 00 00 00 00 00 2f 6e 65 77 01 00 00 00 00 00 00 00 61 01 00 00 00 00 00 00 00 62",
     "01 00 00 00 00 00 00 00 62"},
    {0, "05 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 6b", "00"},
    {0, "06 01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 2f 6c 61 74 65", ""},
    {0, "0c", "01"},
    {0, "07", "04 00 00 00 00 00 00 00"},
    {0, "08 02 00 00 00 00 00 00 00 2f 6b", "01 00 00 00 00 00 00 00"},
    {0, "09 03 00 00 00 00 00 00 00 2f 61 70 02 00 00 00 00 00 00 00 78 31", ""},
    {0, "09 '/ap' 'x2' 03 '/ap'", "'x1x2'"},
    {0,
     "0b 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 6d 31 01 00 00 00 00 00 00 00 41 03 00 "
     "00 00 00 00 00 00 2f 6d 32 02 00 00 00 00 00 00 00 42 42",
     ""},
    {0, "06 #2 '/m1' '/m2'", "00"},
    {0,
     "0a 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2f 6d 31 03 00 00 00 00 00 00 00 2f 6d 32",
     "01 00 00 00 00 00 00 00 41 02 00 00 00 00 00 00 00 42 42"},
    {0, "12 04 00 00 00 00 00 00 00 2f 62 61 72 01 00 00 00 00 00 00 00", "00"},
    {0, "12 05 00 00 00 00 00 00 00 2f 62 61 72 32 02 00 00 00 00 00 00 00", ""},
    {0, "0c", "01"},
    {0, "0e '/q' 'x' 10 '/q' 0e '/q' 'yy' 0f '/q' 0f '/q' 0f '/q'", "#1 #2 'x' #1 'yy' #0"},
};

static void play(const struct line *lines, size_t n, size_t piece)
{
    struct world *w = begin(&tcpstore_default_limits);

    for (size_t i = 0; i < n; i++) {
        assert_int_equal(feed(w->peers[lines[i].peer], lines[i].says, piece), 0);
        hears(w->peers[lines[i].peer], lines[i].hears);
    }
    end(w);
}

TEST(test_conversations_that_were_captured)
{
    for (size_t piece = 0; piece < 4; piece++) {
        play(v1_captures, ARRAY_SIZE(v1_captures), piece);
        play(v2_captures, ARRAY_SIZE(v2_captures), piece);
    }
}

TEST(test_all_keys_are_listed)
{
    struct world *w = begin_v2(&tcpstore_default_limits);
    struct dl_span out;

    /* What only is waited for, or queued, is no key. */
    assert_int_equal(feed(w->peers[0], "01 '/a' '' 0e '/q' 'x' 01 'init/' '1' 11", 0), 0);
    assert_int_equal(feed(w->peers[1], "06 #1 '/b'", 0), 0);
    out = tcpstore_peer_output(w->peers[0]);
    assert_int_equal(out.len, 8 + 8 + 2 + 8 + 5);
    assert_int_equal(out.data[0], 2);
    assert_non_null(memmem(out.data, out.len, "\2\0\0\0\0\0\0\0/a", 10));
    assert_non_null(memmem(out.data, out.len, "\5\0\0\0\0\0\0\0init/", 13));
    end(w);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static const struct line waits[] = {
    /* Of three keys one is there; each of the others counts once. */
    {0, "01 'a' '1'", ""},
    {1, "06 #3 'a' 'b' 'c'", ""},
    {0, "01 'b' '1'", ""},
    {0, "01 'b' '2'", ""},
    {1, "", ""},
    {0, "04 'c' #1", "#1"},
    {1, "", "00"},
    /* The same key twice: one SET is for both. None: at once. */
    {1, "06 #2 'd' 'd'", ""},
    {0, "09 'd' 'x'", ""},
    {1, "06 #0", "00 00"},
    /* What was there and is deleted again has been counted. */
    {1, "06 #2 'e' 'f'", ""},
    {0, "01 'e' '1' 08 'e' 01 'f' '1'", "#1"},
    {1, "", "00"},
    /* COMPARE_SET wakes where it stores, and not where it does not. */
    {1, "06 #1 'g'", ""},
    {0, "02 'g' 'exp' 'x'", "'exp'"},
    {1, "", ""},
    {0, "02 'g' '' 'x'", "'x'"},
    {1, "", "00"},
    {0, "02 'g' 'x' 'y'", "'y'"},
    {0, "02 'g' 'x' 'z'", "'y'"},
    /* MULTI_SET is many. */
    {1, "06 #2 'h' 'i'", ""},
    {0, "0b #2 'h' '' 'i' ''", ""},
    {1, "", "00"},
    /* A wait that is cancelled is not answered later; cancelling nothing is answered too. */
    {1, "06 #1 'j'", ""},
    {1, "0c", "01"},
    {0, "01 'j' '1'", ""},
    {1, "0c", "01"},
    /* Other requests meanwhile are answered; a second wait takes the place of the first. */
    {1, "06 #1 'k' 07", "#9"},
    {1, "06 #1 'l'", ""},
    {0, "01 'k' '1'", ""},
    {1, "", ""},
    {0, "01 'l' '1'", ""},
    {1, "", "00"},
    /* A push wakes one, who waited longest; a queue that has something is there. */
    {1, "06 #1 'q'", ""},
    {2, "06 #1 'q'", ""},
    {0, "0e 'q' 'x'", ""},
    {1, "", "00"},
    {2, "", ""},
    {1, "05 #1 'q' 0f 'q' 05 #1 'q'", "00 #1 'x' 01"},
    {0, "0e 'q' 'y'", ""},
    {2, "", "00"},
    /* As many as are said have come. */
    {0, "12 'bar' #3", ""},
    {1, "12 'bar' #3", ""},
    {0, "", ""},
    {2, "12 'bar' #3", "00"},
    {0, "", "00"},
    {1, "", "00"},
    {0, "03 'bar'", "'3'"},
    /* Who gives up stays counted. */
    {0, "12 'baz' #2", ""},
    {0, "0c", "01"},
    {1, "12 'baz' #2", "00"},
    {0, "", ""},
};

TEST(test_waiting)
{
    struct world *w = begin_v2(&tcpstore_default_limits);

    for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
        assert_int_equal(feed(w->peers[waits[i].peer], waits[i].says, 0), 0);
        hears(w->peers[waits[i].peer], waits[i].hears);
    }
    assert_int_equal(tcpstore_count(w->store).waits, 0);
    end(w);
}

TEST(test_who_goes_waits_no_longer)
{
    struct world *w = begin_v2(&tcpstore_default_limits);
    uint64_t bytes = tcpstore_count(w->store).stored_bytes;

    assert_int_equal(feed(w->peers[0], "06 #3 'a' 'b' 'a'", 0), 0);
    assert_int_equal(tcpstore_count(w->store).waits, 3);
    w->peers[0] = tcpstore_peer_free(w->peers[0]);
    assert_int_equal(tcpstore_count(w->store).waits, 0);
    assert_int_equal(tcpstore_count(w->store).stored_bytes, bytes);
    assert_int_equal(feed(w->peers[1], "01 'a' '1'", 0), 0);
    end(w);
}

/* Both generations share one store. */
TEST(test_dialects_meet)
{
    struct world *w = begin_v2(&tcpstore_default_limits);
    struct tcpstore_peer *old = tcpstore_peer_new(w->store, NULL);

    assert_int_equal(feed(old, "07 '/k' 05 #1 '/k'", 0), 0);
    hears(old, "03");
    assert_int_equal(tcpstore_peer_dialect(old), TCPSTORE_V1);
    assert_int_equal(feed(w->peers[0], "09 '/k' 'ab' 09 '/k' 'c'", 0), 0);
    hears(old, "01 '/k' '' 'ab' 00 00 '/k' 'ab' 'abc'");
    assert_int_equal(feed(old, "02 '/k'", 0), 0);
    hears(old, "'abc'");
    tcpstore_peer_free(old);
    end(w);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static const struct line numbers[] = {
    {0, "04 'n' #0", "#0"},
    {0, "01 'n' ' 12xyz' 04 'n' #1 03 'n'", "#13 '13'"},
    {0, "01 'n' '9223372036854775807' 04 'n' #1", "#-9223372036854775808"},
    {0, "04 'n' #-1", "#9223372036854775807"},
};

TEST(test_adding)
{
    struct world *w = begin_v2(&tcpstore_default_limits);

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        assert_int_equal(feed(w->peers[0], numbers[i].says, 0), 0);
        hears(w->peers[0], numbers[i].hears);
    }
    end(w);
}

/* ---- those who are let go ------------------------------------------------------------------- */

/* The next touched peer that is broken. */
static struct tcpstore_peer *next_broken(struct tcpstore *store)
{
    struct tcpstore_peer *peer;

    while ((peer = tcpstore_next_touched(store)) && !tcpstore_peer_why(peer))
        ;
    return peer;
}

TEST(test_what_is_against_the_rules_breaks_one_peer)
{
    static const struct {
        const char *says;
        int code;
    } rows[] = {
        {"47 45 54 20 2f", EPROTO},
        {"00 ce f7 85 3d", 0},                  /* it may yet become a v1 SET, */
        {"00 ce f7 85 3d 00 00 00 00", EPROTO}, /* but not one of a key of 1 GB */
        {HELLO_V2 "00 ce f7 85 3c", EPROTO},    /* it begins twice */
        {HELLO_V2 "ff", EPROTO},
        {HELLO_V2 "01 'x' 'abc' 04 'x' #1", EINVAL},
        {HELLO_V2 "01 'x' '' 04 'x' #1", EINVAL},
        {HELLO_V2 "01 'x' '' 12 'x' #1", EINVAL},
        {HELLO_V2 "12 'y' #0", EINVAL},
        {HELLO_V2 "12 'y' #-1", EINVAL},
        {HELLO_V2 "01 #9000", EPROTO},
        {"02 'absent'", ENOENT}, /* what v1 has no other answer for */
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        for (size_t piece = 0; piece < 2; piece++) {
            struct world *w = begin(&tcpstore_default_limits);

            assert_int_equal(feed(w->peers[0], rows[i].says, piece), -rows[i].code);
            assert_ptr_equal(next_broken(w->store), rows[i].code ? w->peers[0] : NULL);
            assert_int_equal(tcpstore_peer_why(w->peers[0]) != NULL, rows[i].code != 0);
            if (rows[i].code != 0) {
                assert_int_equal(feed(w->peers[0], "06", 0), -rows[i].code);
                assert_int_equal(tcpstore_peer_output(w->peers[0]).len, 0);
                assert_false(tcpstore_peer_wants_input(w->peers[0]));
            }
            assert_int_equal(feed(w->peers[1], HELLO_V2 "01 'x' '1' 03 'x'", 0), 0);
            hears(w->peers[1], "90 1f 00 00 '1'");
            end(w);
        }
    }
}

TEST(test_a_key_that_is_not_there_is_empty_in_v2)
{
    struct world *w = begin_v2(&tcpstore_default_limits);

    assert_int_equal(feed(w->peers[0], "03 'absent' 01 'b' '1' 0a #2 'absent' 'b'", 0), 0);
    hears(w->peers[0], "'' '' '1'");
    end(w);
}

/* ---- bounds --------------------------------------------------------------------------------- */

static void feed_set(struct tcpstore_peer *peer, const char *key, size_t len, int expected)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = bytes_of("01");
    _cleanup_free_ uint8_t *value = calloc(1, len + 1);
    const struct dl_span span = {.data = value, .len = len};

    assert_non_null(value);
    assert_int_equal(tcpstore_put_span(&bytes, span_str(key)), 0);
    assert_int_equal(tcpstore_put_span(&bytes, span), 0);
    assert_int_equal(tcpstore_peer_feed(peer, bytes.data, bytes.len), expected);
    tcpstore_check(peer->store);
}

TEST(test_stored_bytes_are_bounded)
{
    static const char *const more[] = {
        "01 'another' '0123456789012345678901234567890123456789'",
        "09 'one' '01234567890123456789012345678901234567890123456789'",
        "0e 'queue' '01234567890123456789012345678901234567890123456789'",
        "06 #9 'a' 'b' 'c' 'd' 'e' 'f' 'g' 'h' 'i'",
        "04 'a number that counts something or other' #1 04 'two' #1 04 'three' #1",
        "12 'a barrier of a rather long name, too long' #5 04 'two' #1 04 'three' #1",
    };
    struct tcpstore_limits limits = tcpstore_default_limits;

    limits.stored_bytes = 1600;
    for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
        struct world *w = begin_v2(&limits);
        uint64_t before;

        feed_set(w->peers[0], "one", 1200, 0);
        before = tcpstore_count(w->store).stored_bytes;
        assert_int_equal(feed(w->peers[1], more[i], 0), -ENOSPC);
        w->peers[1] = tcpstore_peer_free(w->peers[1]);
        assert_true(tcpstore_count(w->store).stored_bytes <= limits.stored_bytes);
        /* What was there before is there still, and there is room again when it goes. */
        assert_int_equal(feed(w->peers[0], "05 #1 'one' 08 'one'", 0), 0);
        hears(w->peers[0], "00 #1");
        assert_true(tcpstore_count(w->store).stored_bytes < before);
        feed_set(w->peers[2], "one", 700, 0);
        end(w);
    }
}

TEST(test_keys_are_bounded)
{
    struct tcpstore_limits limits = tcpstore_default_limits;
    struct world *w;

    limits.keys = 2;
    w = begin_v2(&limits);
    assert_int_equal(feed(w->peers[0], "01 'a' '1' 01 'b' '1' 01 'a' '2'", 0), 0);
    assert_int_equal(feed(w->peers[0], "01 'c' '1'", 0), -ENOSPC);
    assert_int_equal(feed(w->peers[1], "08 'a' 04 'c' #1", 0), 0);
    hears(w->peers[1], "#1 #1");
    assert_int_equal(tcpstore_count(w->store).keys, 2);
    end(w);
}

TEST(test_a_value_does_not_grow_beyond_its_bound)
{
    struct world *w = begin_v2(&tcpstore_default_limits);

    feed_set(w->peers[0], "a", TCPSTORE_VALUE_MAX, 0);
    assert_int_equal(feed(w->peers[1], "09 'a' 'x'", 0), -ENOSPC);
    end(w);
}

/* Who does not read is not answered further, until it does. */
TEST(test_requests_wait_while_answers_are_not_read)
{
    struct world *w = begin_v2(&tcpstore_default_limits);
    struct tcpstore_peer *peer = w->peers[0];
    struct dl_span out;
    size_t n = 0;

    feed_set(peer, "a", 300000, 0);
    assert_int_equal(feed(peer, "03 'a' 01 'done' '1' 03 'a' 03 'a' 07", 0), 0);
    assert_false(tcpstore_peer_wants_input(peer));
    assert_true(tcpstore_peer_is_amid(peer));
    assert_int_equal(feed(w->peers[1], "05 #1 'done'", 0), 0);
    hears(w->peers[1], "01"); /* not yet */
    while ((out = tcpstore_peer_output(peer)).len > 0) {
        size_t some = min_u64(out.len, 50000);
        assert_true(out.len < 600000);
        assert_int_equal(tcpstore_peer_sent(peer, some), 0);
        tcpstore_check(w->store);
        n += some;
    }
    assert_int_equal(n, 3 * 300008 + 8);
    assert_true(tcpstore_peer_wants_input(peer));
    assert_int_equal(feed(w->peers[1], "05 #1 'done'", 0), 0);
    hears(w->peers[1], "00");
    end(w);
}

TEST(test_output_to_one_is_bounded)
{
    struct tcpstore_limits limits = tcpstore_default_limits;
    struct world *w;

    limits.output_bytes = 100000;
    w = begin_v2(&limits);
    feed_set(w->peers[0], "a", 60000, 0);
    /* A small request with a large answer is refused before that is made. */
    assert_int_equal(feed(w->peers[0], "0a #2 'a' 'a'", 0), -ENOBUFS);
    /* One who watches and does not read is let go by another's SET. */
    struct tcpstore_peer *watcher = tcpstore_peer_new(w->store, NULL);
    assert_int_equal(feed(watcher, "07 'a'", 0), 0);
    while (tcpstore_next_touched(w->store))
        ;
    assert_int_equal(feed(w->peers[1], "01 'a' 'x' 01 'a' 'y'", 0), 0);
    feed_set(w->peers[1], "a", 60000, 0);
    assert_ptr_equal(next_broken(w->store), watcher);
    assert_int_equal(feed(w->peers[1], "03 'absent'", 0), 0);
    hears(w->peers[1], "''");
    tcpstore_peer_free(watcher);
    end(w);
}

/* Halves of requests that never end cost the one who holds the most of them. */
TEST(test_buffers_are_bounded_together)
{
    struct tcpstore_limits limits = tcpstore_default_limits;
    _cleanup_free_ uint8_t *much = calloc(1, 1 << 20);
    struct world *w;
    int broken = 0;

    assert_non_null(much);
    limits.buffered_bytes = 1 << 20;
    w = begin_v2(&limits);
    assert_int_equal(feed(w->peers[0], "01 'small' #100 41", 0), 0);
    for (int i = 1; i < PEERS; i++) {
        assert_int_equal(feed(w->peers[i], "01 'large' #8000000", 0), 0);
        for (int j = 0; j < 10 && !tcpstore_peer_why(w->peers[i]); j++) {
            (void)!tcpstore_peer_feed(w->peers[i], much, 60000);
            tcpstore_check(w->store);
        }
        broken += next_broken(w->store) != NULL;
    }
    assert_true(broken > 0);
    assert_null(tcpstore_peer_why(w->peers[0]));
    end(w);
}

/* Wherever memory ends, one peer does, or nobody; the books agree, and others go on. */
TEST(test_without_memory)
{
    static const char *const says[] = {
        "01 'a' 'x' 09 'a' '0123456789012345678901234567890123456789' 03 'a'",
        "06 #2 'b' 'c'",
        "0e 'q' 'x' 0f 'q'",
        "12 'd' #2",
        "04 'n' #1",
        "02 'cs' '' 'x'",
        "01 'half' #9",
    };

    for (int k = 0; k < 40; k++) {
        struct world *w = begin_v2(&tcpstore_default_limits);

        for (size_t i = 0; i < ARRAY_SIZE(says); i++) {
            struct dl_buffer bytes = bytes_of(says[i]);
            fail_in = k;
            (void)!tcpstore_peer_feed(w->peers[0], bytes.data, bytes.len);
            fail_in = -1;
            tcpstore_check(w->store);
            buffer_deinit(&bytes);
        }
        assert_int_equal(feed(w->peers[1], "01 'z' '1' 03 'z'", 0), 0);
        hears(w->peers[1], "'1'");
        end(w);
    }
    fail_in = 0;
    assert_null(tcpstore_new(&tcpstore_default_limits, 0));
    fail_in = -1;
}
