/*
 * Every decoder. What decodes must encode, and decode again to the same message: the second
 * encoding is byte for byte the first one.
 *
 * Input: one byte = who sent it (a mask of enum message_direction); then the payload.
 */
#include "tests/fuzz/fuzz.h"

#include "proto/codec.h"
#include "proto/common/utf8.h"
#include "proto/frame.h"
#include "proto/value.h"

static void check_error(const struct dl_error *err, int r)
{
    FUZZ_ASSERT(r < 0 && err->code == -r);
    FUZZ_ASSERT(err->message[0] != '\0');
    FUZZ_ASSERT(utf8_text((const uint8_t *)err->message, strlen(err->message)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct dl_buffer first = {0}, second = {0};
    struct dl_error err = {0};
    struct dl_message msg;
    uint32_t directions;
    int r;

    if (len == 0)
        return 0;
    directions = data[0];
    r = message_decode(data + 1, len - 1, directions, &msg, &err);
    if (r < 0) {
        check_error(&err, r);
        return 0;
    }
    FUZZ_ASSERT(value_scan(data + 1, len - 1, NULL) == 0);
    FUZZ_ASSERT(message_name(msg.number) != NULL);
    FUZZ_ASSERT(message_direction(msg.number) & directions);

    bool whole = msg.version == DL_PROTOCOL_VERSION;
    msg.version = 0; /* some of a version's fields may be there, and set */
    FUZZ_ASSERT(message_encode(&msg, &first) == 0);
    FUZZ_ASSERT(!whole || first.len - FRAME_HEADER_BYTES <= len - 1); /* the shortest forms */
    FUZZ_ASSERT(message_decode(first.data + FRAME_HEADER_BYTES, first.len - FRAME_HEADER_BYTES,
                               directions, &msg, NULL) == 0);
    FUZZ_ASSERT(message_encode(&msg, &second) == 0);
    FUZZ_ASSERT(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    buffer_deinit(&first);
    buffer_deinit(&second);
    return 0;
}
