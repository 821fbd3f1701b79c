/*
 * The frame reader against a second, simpler one that sees all bytes at once: however the stream is
 * cut into reads, the same frames come out, and the same verdict on a bad length.
 *
 * Input: one byte = how many of the next bytes are sizes of reads, used in turn; then the stream.
 */
#include "tests/fuzz/fuzz.h"

#include "proto/frame.h"
#include <errno.h>

/* Where the simple reader stands in the whole stream. */
struct whole {
    const uint8_t *data;
    size_t len;
    size_t at;
};

/* As frame_reader_next(), for the first `seen` bytes of the stream. */
static int whole_next(struct whole *whole, size_t seen, struct dl_span *ret)
{
    const uint8_t *head = whole->data + whole->at;
    uint64_t len = 0;

    if (seen - whole->at < FRAME_HEADER_BYTES)
        return 0;
    for (int i = FRAME_HEADER_BYTES - 1; i >= 0; i--)
        len = len * 256 + head[i];
    if (len < 1 || len > DL_MAX_FRAME_BYTES)
        return -EMSGSIZE;
    if (whole->at + FRAME_HEADER_BYTES + len > seen)
        return 0;
    *ret = (struct dl_span){head + FRAME_HEADER_BYTES, len};
    whole->at += FRAME_HEADER_BYTES + len;
    return 1;
}

/* Takes what can be taken from both; false once the stream is broken. */
static bool compare(struct frame_reader *reader, struct whole *whole, size_t seen)
{
    int r;

    do {
        struct dl_span got = {0}, want = {0};

        r = frame_reader_next(reader, &got);
        FUZZ_ASSERT(r == whole_next(whole, seen, &want));
        FUZZ_ASSERT(got.len == want.len);
        if (got.len > 0)
            FUZZ_ASSERT(memcmp(got.data, want.data, got.len) == 0);
    } while (r == 1);
    return r == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct frame_reader reader = {0};
    size_t n_sizes = len > 0 ? min_u64(data[0], len - 1) : 0, seen = 0;
    const uint8_t *sizes = data + 1;
    struct whole whole = {0};

    if (len > 0)
        whole = (struct whole){sizes + n_sizes, len - 1 - n_sizes, 0};
    for (size_t turn = 0; seen < whole.len; turn++) {
        size_t want = n_sizes > 0 ? (size_t)sizes[turn % n_sizes] + 1 : 64, room;
        uint8_t *space;

        if (frame_reader_reserve(&reader, want, &space, &room) < 0)
            break;
        FUZZ_ASSERT(room >= want);
        want = min_u64(want, whole.len - seen);
        memcpy(space, whole.data + seen, want);
        frame_reader_commit(&reader, want);
        seen += want;
        if (!compare(&reader, &whole, seen))
            break;
    }
    frame_reader_deinit(&reader);
    return 0;
}
