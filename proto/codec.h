/*
 * Messages as structs, and their bytes. codec.c is the only protocol file that sees msgpack.
 *
 * Decoding is bounded before msgpack-c sees a byte: value_scan() walks the payload with a node and
 * depth budget first (msgpack-c 4.0.0 reserves what an array header claims: five bytes make it ask
 * for 137 GB). Then number, field count, types and maxima are checked against messages.def.
 * Pure; strings and spans of a decoded message are borrowed from the payload it was decoded from.
 */
#ifndef DL_CODEC_H
#define DL_CODEC_H

#include "proto/common/bytes.h"
#include "proto/common/error.h"
#include "proto/limits.h"

/*
 * What this release speaks, and the oldest that it still speaks: that of the release before it.
 *
 *   3  the messages without what messages.def has below LATER(…, 4)
 *   4  with what is below LATER(…, 4); STARTED without steps may be of a plan, too
 */
enum { DL_PROTOCOL_VERSION = 4, DL_PROTOCOL_OLDEST = 3 };
#define DL_PROTOCOL_SPOKEN "3 and 4" /* in words */

/* Of workers and their daemon: W_* messages, queue.h and segment_layout.h, which are of one build
 * or the same. */
enum { DL_WORKER_VERSION = 1 };
/* The environment variable in which the daemon passes a worker its version. */
#define DL_WORKER_VERSION_VARIABLE "DLOADER_WORKER_VERSION"

enum message_number {
#define MESSAGE(NAME, name, number, direction, fds, meaning) DL_MSG_##NAME = number,
#include "proto/messages.def"
};

enum message_direction {
    FROM_CLIENT = 1,
    FROM_DAEMON = 2,
    TO_WORKER = 4,
    FROM_WORKER = 8,
    TO_HELPER = 16,
    FROM_HELPER = 32,
};

#define MESSAGE(NAME, name, number, direction, fds, meaning) struct dl_msg_##name {
#define U64(name, field, max, meaning)                       uint64_t field;
#define STR(name, field, max, meaning)                       struct dl_span field;
#define BIN(name, field, max, unit, meaning)                 struct dl_span field;
#define ANY(name, field, meaning)                            struct dl_span field;
#define END(name) \
    }             \
    ;
#include "proto/messages.def"

/* A decoded message: `number` says which member of the union is valid. */
struct dl_message {
    enum message_number number;
    uint32_t version; /* of the protocol, that has these fields; encoding: 0: the newest */
    union {
#define MESSAGE(NAME, name, number, direction, fds, meaning) struct dl_msg_##name name;
#include "proto/messages.def"
    };
};

/* "HELLO", ...; NULL for a number that names no message. */
const char *message_name(uint32_t number);

/* Descriptors the message carries, and who may send it; -1 / 0 for an unknown number. */
int message_fds(uint32_t number);
uint32_t message_direction(uint32_t number);

/*
 * Appends the whole frame of `msg` (header and payload) to `out`. Returns 0, -ENOMEM, -EMSGSIZE
 * when a field or the frame exceeds its maximum, or -EBADMSG when a text is not UTF-8 without NUL,
 * bytes are not a multiple of their unit, an ANY is not one msgpack value, or the number is
 * unknown; -EPROTONOSUPPORT if msg->version lacks the message or a field that is set. On error
 * `out` is unchanged. Whatever was encoded can be decoded. An ANY nests one level less deep than
 * DL_MAX_VALUE_DEPTH: the message's own array is the first.
 */
int _nodiscard_ message_encode(const struct dl_message *msg, struct dl_buffer *out);

/*
 * Decodes one payload that came from a peer in one of `directions` (a mask). Returns 0, or -EBADMSG
 * / -EMSGSIZE with `err` saying which message and field; `ret` is then untouched. A sender may
 * leave out trailing fields of later versions; they become 0 or empty, and ret->version is the
 * newest version whose fields are all present.
 */
int _nodiscard_ message_decode(const uint8_t *payload, size_t len, uint32_t directions,
                               struct dl_message *ret, struct dl_error *err);

#endif
