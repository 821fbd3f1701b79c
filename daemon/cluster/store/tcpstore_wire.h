/*
 * The bytes of PyTorch's TCPStore: requests and replies, in the dialect of torch 1 (v1) and that of
 * torch 2 (v2). Nothing on the wire says which; a v2 connection begins with VALIDATE and a magic
 * number, which no v1 request can look like.
 *
 * A scan goes over bytes that come in pieces and says when one request or reply is whole; it
 * remembers how far it came, so that no byte is looked at twice. Then its fields are read in place.
 * Pure: no I/O, no memory of its own. Any thread.
 */
#ifndef DL_TCPSTORE_WIRE_H
#define DL_TCPSTORE_WIRE_H

#include "proto/codec.h"

enum tcpstore_dialect { TCPSTORE_ANY, TCPSTORE_V1, TCPSTORE_V2 };

enum tcpstore_op {
#define OP(NAME, v1, v2, request, reply) TCPSTORE_##NAME,
#include "daemon/cluster/store/tcpstore_ops.def"
#undef OP
    TCPSTORE_OPS,
};

enum {
    /* As PyTorch's own server has them; bytes, and keys of one request. */
    TCPSTORE_KEY_MAX = 8192,
    TCPSTORE_VALUE_MAX = 8 << 20,
    TCPSTORE_KEYS_MAX = 131072,
    /* Bytes of one request or reply. */
    TCPSTORE_MESSAGE_MAX = 64 << 20,

    TCPSTORE_MAGIC = 0x3C85F7CE,

    /* Replies to CHECK; to WAIT, BARRIER and CANCEL_WAIT; to WATCH, and what is pushed after it. */
    TCPSTORE_READY = 0,
    TCPSTORE_NOT_READY = 1,
    TCPSTORE_STOP_WAITING = 0,
    TCPSTORE_WAIT_CANCELED = 1,
    TCPSTORE_KEY_UPDATED = 0,
    TCPSTORE_KEY_CREATED = 1,
    TCPSTORE_KEY_DELETED = 2,
    TCPSTORE_KEY_WATCHED = 3,
};

const char *tcpstore_op_name(enum tcpstore_op op); /* "SET", ... */
/* The fields of a request and of its reply, as tcpstore_ops.def has them. */
const char *tcpstore_op_request(enum tcpstore_op op);
const char *tcpstore_op_reply(enum tcpstore_op op);

/* ---- taking apart --------------------------------------------------------------------------- */

/* How far one message has been looked at; zeroed: not at all. */
struct tcpstore_scan {
    const char *field; /* the next one's letter; NULL: not begun */
    const char *group; /* the first of those that repeat; NULL: none do */
    uint64_t left;     /* repetitions, this one included */
    size_t at;         /* bytes that are known to be well */
};

/* Fields of a message that is whole, in order; reading beyond it is a bug. */
struct tcpstore_fields {
    const uint8_t *at; /* borrowed from the message */
};

struct tcpstore_request {
    enum tcpstore_op op;
    size_t bytes;   /* whole */
    uint64_t count; /* of repetitions, where there are any; else 1 */
    struct tcpstore_fields fields;
};

/*
 * Which dialect a connection's first bytes are in: 1 and *ret, 0 when more are needed, -EBADMSG
 * for neither.
 */
int _nodiscard_ tcpstore_sniff(const uint8_t *data, size_t len, enum tcpstore_dialect *ret);

/*
 * One request from the beginning of `data`, which is what the last call was given and more, with
 * its `scan`. 1 and *ret, valid as long as `data`, and the scan is zeroed; 0 when more bytes are
 * needed; -EBADMSG: no such request in this dialect, or one beyond the limits.
 */
int _nodiscard_ tcpstore_scan_request(struct tcpstore_scan *scan, enum tcpstore_dialect dialect,
                                      const uint8_t *data, size_t len,
                                      struct tcpstore_request *ret);

/*
 * Likewise the reply to a request with `keys` keys; *ret_bytes is its length. A request without a
 * reply has one of 0 bytes.
 */
int _nodiscard_ tcpstore_scan_reply(struct tcpstore_scan *scan, enum tcpstore_op op, uint64_t keys,
                                    const uint8_t *data, size_t len, size_t *ret_bytes);

struct dl_span tcpstore_take_span(struct tcpstore_fields *fields);
int64_t tcpstore_take_i64(struct tcpstore_fields *fields);
uint32_t tcpstore_take_u32(struct tcpstore_fields *fields);

/* ---- putting together ----------------------------------------------------------------------- */

/* The byte that a request begins with; -1: the dialect does not have that request. */
int tcpstore_op_byte(enum tcpstore_op op, enum tcpstore_dialect dialect);

/* Each appends; 0 or -ENOMEM, and then `out` may have a part of it. */
int _nodiscard_ tcpstore_put_u8(struct dl_buffer *out, uint8_t value);
int _nodiscard_ tcpstore_put_u32(struct dl_buffer *out, uint32_t value);
int _nodiscard_ tcpstore_put_i64(struct dl_buffer *out, int64_t value);
int _nodiscard_ tcpstore_put_span(struct dl_buffer *out, struct dl_span span);

/* VALIDATE and PING in one, as a v2 connection begins; the same number comes back. */
int _nodiscard_ tcpstore_put_hello(struct dl_buffer *out, uint32_t nonce);

/* ---- numbers as values ---------------------------------------------------------------------- */

/*
 * The number that a value begins with, as C++'s stoll() reads it: blanks, a sign, digits; what
 * follows is nobody's business. -EBADMSG: no number, or none that fits.
 */
int _nodiscard_ tcpstore_number(struct dl_span value, int64_t *ret);

#endif
