#include "daemon/cluster/store/tcpstore_wire.h"

#include "proto/common/load.h"

#include <assert.h>
#include <errno.h>

struct op_info {
    const char *name;
    int v1, v2; /* the byte a request begins with; -1: none */
    const char *request;
    const char *reply;
};

static const struct op_info tcpstore_infos[TCPSTORE_OPS] = {
#define OP(NAME, v1, v2, request, reply) [TCPSTORE_##NAME] = {#NAME, v1, v2, request, reply},
#include "daemon/cluster/store/tcpstore_ops.def"
#undef OP
};

const char *tcpstore_op_name(enum tcpstore_op op)
{
    return tcpstore_infos[op].name;
}

const char *tcpstore_op_request(enum tcpstore_op op)
{
    return tcpstore_infos[op].request;
}

const char *tcpstore_op_reply(enum tcpstore_op op)
{
    return tcpstore_infos[op].reply;
}

int tcpstore_op_byte(enum tcpstore_op op, enum tcpstore_dialect dialect)
{
    return dialect == TCPSTORE_V1 ? tcpstore_infos[op].v1 : tcpstore_infos[op].v2;
}

/* ---- numbers -------------------------------------------------------------------------------- */

int tcpstore_put_u8(struct dl_buffer *out, uint8_t value)
{
    return buffer_append(out, &value, 1);
}

int tcpstore_put_u32(struct dl_buffer *out, uint32_t value)
{
    uint8_t bytes[4];

    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return buffer_append(out, bytes, sizeof bytes);
}

static int tcpstore_wire_put_u64(struct dl_buffer *out, uint64_t value)
{
    uint8_t bytes[8];

    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return buffer_append(out, bytes, sizeof bytes);
}

int tcpstore_put_i64(struct dl_buffer *out, int64_t value)
{
    return tcpstore_wire_put_u64(out, (uint64_t)value);
}

int tcpstore_put_span(struct dl_buffer *out, struct dl_span span)
{
    int r = tcpstore_wire_put_u64(out, span.len);

    return r < 0 ? r : buffer_append(out, span.data, span.len);
}

int tcpstore_put_hello(struct dl_buffer *out, uint32_t nonce)
{
    int r = tcpstore_put_u8(out, (uint8_t)tcpstore_infos[TCPSTORE_VALIDATE].v2);

    if (r == 0)
        r = tcpstore_put_u32(out, TCPSTORE_MAGIC);
    if (r == 0)
        r = tcpstore_put_u8(out, (uint8_t)tcpstore_infos[TCPSTORE_PING].v2);
    return r < 0 ? r : tcpstore_put_u32(out, nonce);
}

static bool tcpstore_wire_is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

int tcpstore_number(struct dl_span value, int64_t *ret)
{
    size_t at = 0, digits;
    bool negative = false;
    int64_t number = 0;

    while (at < value.len && tcpstore_wire_is_blank(value.data[at]))
        at++;
    if (at < value.len && (value.data[at] == '-' || value.data[at] == '+'))
        negative = value.data[at++] == '-';
    for (digits = at; at < value.len && value.data[at] >= '0' && value.data[at] <= '9'; at++) {
        int digit = value.data[at] - '0';
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, negative ? -digit : digit, &number))
            return -EBADMSG;
    }
    if (at == digits)
        return -EBADMSG;
    *ret = number;
    return 0;
}

/* ---- scans ---------------------------------------------------------------------------------- */

/* The whole of the next field, of which `len` bytes are there: 1 and its length, 0, or -EBADMSG. */
static int tcpstore_wire_measure(char letter, const uint8_t *at, size_t len, size_t *ret)
{
    size_t fixed = letter == 'b' ? 1 : letter == 'u' ? 4 : 8;

    if (len < fixed)
        return 0;
    *ret = fixed;
    if (letter == 'k' || letter == 'v') {
        uint64_t n = load_le64(at);
        if (n > (letter == 'k' ? TCPSTORE_KEY_MAX : TCPSTORE_VALUE_MAX))
            return -EBADMSG;
        *ret += (size_t)n;
    }
    return *ret <= len;
}

/* What comes `n` times begins here; n = 0: not at all. */
static void tcpstore_wire_begin_group(struct tcpstore_scan *scan, uint64_t n)
{
    scan->group = scan->field;
    scan->left = n;
    if (n == 0)
        scan->field += strlen(scan->field);
}

/* A field that says how often the next ones come. */
static int tcpstore_wire_scan_number(struct tcpstore_scan *scan, const uint8_t *at)
{
    uint64_t n = load_le64(at);
    bool maybe = *scan->field == '?';

    scan->field++;
    if (!maybe && n > TCPSTORE_KEYS_MAX)
        return -EBADMSG;
    tcpstore_wire_begin_group(scan, maybe ? (int64_t)n > 0 : n);
    return 0;
}

static void tcpstore_wire_scan_next(struct tcpstore_scan *scan)
{
    scan->field++;
    if (*scan->field == '\0' && scan->group && --scan->left > 0)
        scan->field = scan->group;
}

/* 1 when the message is whole, up to scan->at. */
static int tcpstore_wire_scan_fields(struct tcpstore_scan *scan, const uint8_t *data, size_t len)
{
    while (*scan->field) {
        bool number = *scan->field == '*' || *scan->field == '?';
        size_t n = 0;
        int r;

        if (len == scan->at) /* then `data` may be NULL */
            return 0;
        r = tcpstore_wire_measure(*scan->field, data + scan->at, len - scan->at, &n);

        if (r >= 0 && (n > TCPSTORE_MESSAGE_MAX || scan->at + n > TCPSTORE_MESSAGE_MAX))
            return -EBADMSG;
        if (r <= 0)
            return r;
        if (number && (r = tcpstore_wire_scan_number(scan, data + scan->at)) < 0)
            return r;
        if (!number)
            tcpstore_wire_scan_next(scan);
        scan->at += n;
    }
    return 1;
}

static int tcpstore_wire_find_op(enum tcpstore_dialect dialect, uint8_t byte, enum tcpstore_op *ret)
{
    for (int op = 0; op < TCPSTORE_OPS; op++) {
        if (tcpstore_op_byte((enum tcpstore_op)op, dialect) == byte) {
            *ret = (enum tcpstore_op)op;
            return 0;
        }
    }
    return -EBADMSG;
}

int tcpstore_sniff(const uint8_t *data, size_t len, enum tcpstore_dialect *ret)
{
    enum tcpstore_op op;

    if (len == 0)
        return 0;
    if (data[0] == tcpstore_infos[TCPSTORE_VALIDATE].v2) {
        if (len < 5)
            return 0;
        if (load_le32(data + 1) == TCPSTORE_MAGIC) {
            *ret = TCPSTORE_V2;
            return 1;
        }
    }
    if (tcpstore_wire_find_op(TCPSTORE_V1, data[0], &op) < 0)
        return -EBADMSG;
    *ret = TCPSTORE_V1;
    return 1;
}

int tcpstore_scan_request(struct tcpstore_scan *scan, enum tcpstore_dialect dialect,
                          const uint8_t *data, size_t len, struct tcpstore_request *ret)
{
    enum tcpstore_op op;
    int r;

    if (len == 0)
        return 0;
    if (tcpstore_wire_find_op(dialect, data[0], &op) < 0)
        return -EBADMSG;
    if (!scan->field)
        *scan = (struct tcpstore_scan){.field = tcpstore_infos[op].request, .at = 1};
    if ((r = tcpstore_wire_scan_fields(scan, data, len)) <= 0)
        return r;
    *ret = (struct tcpstore_request){.op = op, .bytes = scan->at, .count = 1};
    ret->fields.at = data + 1;
    if (tcpstore_infos[op].request[0] == '*')
        ret->count = (uint64_t)tcpstore_take_i64(&ret->fields);
    *scan = (struct tcpstore_scan){0};
    return 1;
}

int tcpstore_scan_reply(struct tcpstore_scan *scan, enum tcpstore_op op, uint64_t keys,
                        const uint8_t *data, size_t len, size_t *ret_bytes)
{
    int r;

    if (!scan->field) {
        *scan = (struct tcpstore_scan){.field = tcpstore_infos[op].reply};
        if (*scan->field == '+') {
            scan->field++;
            tcpstore_wire_begin_group(scan, keys);
        }
    }
    if ((r = tcpstore_wire_scan_fields(scan, data, len)) <= 0)
        return r;
    *ret_bytes = scan->at;
    *scan = (struct tcpstore_scan){0};
    return 1;
}

/* ---- fields --------------------------------------------------------------------------------- */

struct dl_span tcpstore_take_span(struct tcpstore_fields *fields)
{
    struct dl_span span = {.data = fields->at + 8, .len = (size_t)load_le64(fields->at)};

    assert(span.len <= TCPSTORE_VALUE_MAX);
    fields->at += 8 + span.len;
    return span;
}

int64_t tcpstore_take_i64(struct tcpstore_fields *fields)
{
    uint64_t value = load_le64(fields->at);

    fields->at += 8;
    return (int64_t)value;
}

uint32_t tcpstore_take_u32(struct tcpstore_fields *fields)
{
    uint32_t value = load_le32(fields->at);

    fields->at += 4;
    return value;
}
