/* The frame reader: bytes in any pieces, lengths of any size, descriptors in order and never lost.
 */
#include "tests/lib/harness.h"

#include "proto/frame.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static int fail_in = -1; /* reallocations of proto/ until one fails; -1 = none does */
static size_t largest;   /* ever asked for */

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_realloc(void *old, size_t size)
{
    largest = max_u64(largest, size);
    return fail_in >= 0 && fail_in-- == 0 ? NULL : __real_realloc(old, size);
}

static void feed(struct frame_reader *reader, const uint8_t *data, size_t len, size_t want)
{
    uint8_t *space;
    size_t room;

    while (len > 0) {
        assert_int_equal(frame_reader_reserve(reader, want, &space, &room), 0);
        assert_true(room >= want);
        room = min_u64(room, len);
        memcpy(space, data, room);
        frame_reader_commit(reader, room);
        data += room;
        len -= room;
    }
}

static size_t put_frame(uint8_t *out, const void *payload, uint32_t len)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(len >> (8 * i));
    memcpy(out + 4, payload, len);
    return 4 + len;
}

static void assert_next(struct frame_reader *reader, const char *payload)
{
    struct dl_span span = {0};

    assert_int_equal(frame_reader_next(reader, &span), 1);
    assert_int_equal(span.len, strlen(payload));
    assert_memory_equal(span.data, payload, span.len);
}

static void assert_none(struct frame_reader *reader)
{
    struct dl_span span = {(const uint8_t *)"same", 4}, before = span;

    assert_int_equal(frame_reader_next(reader, &span), 0);
    assert_memory_equal(&span, &before, sizeof span);
}

/* Two frames, cut at every pair of places. */
TEST(test_every_split)
{
    uint8_t bytes[64];
    size_t len = put_frame(bytes, "first", 5);

    len += put_frame(bytes + len, "2nd", 3);
    for (size_t a = 0; a <= len; a++)
        for (size_t b = a; b <= len; b++) {
            struct frame_reader reader = {0};
            size_t ends[] = {a, b, len}, at = 0;
            int seen = 0;

            for (int i = 0; i < 3; i++) {
                feed(&reader, bytes + at, ends[i] - at, 1);
                at = ends[i];
                if (at >= 9 && seen == 0) {
                    assert_next(&reader, "first");
                    seen = 1;
                }
                if (at == len && seen == 1) {
                    assert_next(&reader, "2nd");
                    seen = 2;
                }
                assert_none(&reader);
            }
            assert_int_equal(seen, 2);
            frame_reader_deinit(&reader);
        }
}

TEST(test_many_in_one_read)
{
    struct frame_reader reader = {0};
    uint8_t bytes[10000];
    size_t len = 0;
    char text[16];

    for (int i = 0; i < 1000; i++)
        len += put_frame(bytes + len, text, (uint32_t)snprintf(text, sizeof text, "%d", i));
    for (int turn = 0; turn < 3; turn++) {
        feed(&reader, bytes, len, len);
        for (int i = 0; i < 1000; i++) {
            snprintf(text, sizeof text, "%d", i);
            assert_next(&reader, text);
        }
        assert_none(&reader);
    }
    frame_reader_deinit(&reader);
}

TEST(test_lengths)
{
    static const struct {
        uint32_t len;
        int result;
    } cases[] = {
        {0, -EMSGSIZE},
        {1, 0},
        {DL_BOUND_FRAME_BYTES, 0},
        {DL_BOUND_FRAME_BYTES + 1, -EMSGSIZE},
        {UINT32_MAX, -EMSGSIZE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct frame_reader reader = {0};
        struct dl_span span;
        uint8_t header[4];

        for (int k = 0; k < 4; k++)
            header[k] = (uint8_t)(cases[i].len >> (8 * k));
        feed(&reader, header, 3, 64);
        assert_none(&reader); /* no verdict before the header is whole */
        feed(&reader, header + 3, 1, 64);
        assert_int_equal(frame_reader_next(&reader, &span), cases[i].result);
        feed(&reader, (const uint8_t *)"\1\0\0\0x", 5, 64);
        if (cases[i].result < 0) /* and it stays broken */
            assert_int_equal(frame_reader_next(&reader, &span), cases[i].result);
        frame_reader_deinit(&reader);
    }
}

/* The largest frames, in pieces that fit no boundary; memory stays below the promise. */
TEST(test_largest)
{
    enum { PIECE = 65536, FRAMES = 3 };
    size_t size = FRAME_HEADER_BYTES + DL_MAX_FRAME_BYTES, got = 0;
    uint8_t *bytes = malloc(size * FRAMES);
    struct frame_reader reader = {0};
    struct dl_span span;
    int r;

    assert_non_null(bytes);
    for (int i = 0; i < FRAMES; i++) {
        memset(bytes + i * size, 'a' + i, size);
        memcpy(bytes + i * size, (uint8_t[]){0, 0, 0x10, 0}, 4);
    }
    largest = 0;
    for (size_t at = 0; at < size * FRAMES; at += 60000) {
        feed(&reader, bytes + at, min_u64(60000, size * FRAMES - at), PIECE);
        while ((r = frame_reader_next(&reader, &span)) == 1) {
            assert_int_equal(span.len, DL_MAX_FRAME_BYTES);
            assert_memory_equal(span.data, bytes + got * size + 4, span.len);
            got++;
        }
        assert_int_equal(r, 0);
    }
    assert_int_equal(got, FRAMES);
    assert_true(largest <= size + PIECE);
    frame_reader_deinit(&reader);
    free(bytes);
}

/* Announcing much costs nothing before the bytes come. */
TEST(test_announcing_is_cheap)
{
    struct frame_reader reader = {0};

    largest = 0;
    feed(&reader, (const uint8_t *)"\0\0\x10\0", 4, 4096);
    assert_none(&reader);
    feed(&reader, (const uint8_t *)"x", 1, 4096);
    assert_none(&reader);
    assert_true(largest <= 3 * 4096);
    frame_reader_deinit(&reader);
}

/* Frames not taken do not pile up. */
TEST(test_refuses_to_hoard)
{
    struct frame_reader reader = {0};
    uint8_t *space;
    size_t room;
    int r;

    while ((r = frame_reader_reserve(&reader, 65536, &space, &room)) == 0) {
        assert_true(reader.cap <= FRAME_HEADER_BYTES + DL_MAX_FRAME_BYTES + 65536);
        room = min_u64(room, 65535);
        for (size_t i = 0; i < room; i += 5)
            memcpy(space + i, "\1\0\0\0x", 5);
        frame_reader_commit(&reader, room);
    }
    assert_int_equal(r, -ENOBUFS);
    assert_next(&reader, "x");
    frame_reader_deinit(&reader);
}

TEST(test_out_of_memory)
{
    struct frame_reader reader = {0};
    uint8_t *space = NULL;
    size_t room = 7;

    fail_in = 0;
    assert_int_equal(frame_reader_reserve(&reader, 16, &space, &room), -ENOMEM);
    assert_null(space);
    assert_int_equal(room, 7);
    assert_int_equal(frame_reader_reserve(&reader, SIZE_MAX, &space, &room), -ENOMEM);
    feed(&reader, (const uint8_t *)"\3\0\0\0ab", 6, 6);
    fail_in = 0;
    assert_int_equal(frame_reader_reserve(&reader, 1 << 16, &space, &room), -ENOMEM);
    fail_in = -1;
    feed(&reader, (const uint8_t *)"c", 1, 1); /* what was there still is */
    assert_next(&reader, "abc");
    frame_reader_deinit(&reader);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

TEST(test_fds)
{
    struct frame_reader reader = {0};
    int fds[FRAME_FD_QUEUE + 1];

    assert_int_equal(frame_reader_take_fd(&reader), -1);
    for (int i = 0; i <= FRAME_FD_QUEUE; i++) {
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(fds[i] >= 0);
        assert_int_equal(frame_reader_push_fd(&reader, fds[i]), i < FRAME_FD_QUEUE ? 0 : -EMFILE);
    }
    assert_false(is_open(fds[FRAME_FD_QUEUE])); /* consumed, even though refused */
    for (int i = 0; i < FRAME_FD_QUEUE / 2; i++) {
        assert_int_equal(frame_reader_take_fd(&reader), fds[i]); /* oldest first */
        assert_true(is_open(fds[i]));
        close(fds[i]);
    }
    frame_reader_deinit(&reader);
    for (int i = FRAME_FD_QUEUE / 2; i < FRAME_FD_QUEUE; i++)
        assert_false(is_open(fds[i]));
    assert_int_equal(frame_reader_take_fd(&reader), -1);
}
