/*
 * One interpreter over the field tables that messages.def makes; no message is known by name here.
 *
 * Encoding goes through msgpack-c's packer into the buffer's end and allocates only to grow it.
 * Decoding reads with the bounded reader of scan.h, after value_scan() has passed the payload: it
 * allocates nothing, and spans point into the payload.
 */
#include "proto/codec.h"

#include "proto/common/utf8.h"
#include "proto/frame.h"
#include "proto/scan.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <msgpack.h>
#include <stdio.h>

enum field_type { FIELD_U64, FIELD_STR, FIELD_BIN, FIELD_ANY, FIELD_LATER };

/* Or, of FIELD_LATER, no field: those behind it came with version `max`. */
struct field {
    const char *name;
    uint64_t max;    /* value, or bytes */
    uint32_t unit;   /* of bytes; 1 for texts */
    uint16_t offset; /* offset in struct dl_message */
    uint8_t type;    /* enum field_type */
};

#define AT(name, field) offsetof(struct dl_message, name.field)

#define MESSAGE(NAME, name, number, direction, fds, meaning) \
    static const struct field name##_fields[] = {
#define U64(name, field, max, meaning)       {#field, max, 1, AT(name, field), FIELD_U64},
#define STR(name, field, max, meaning)       {#field, max, 1, AT(name, field), FIELD_STR},
#define BIN(name, field, max, unit, meaning) {#field, max, unit, AT(name, field), FIELD_BIN},
#define ANY(name, field, meaning)            {#field, 0, 1, AT(name, field), FIELD_ANY},
#define LATER(name, version)                 {"", version, 1, 0, FIELD_LATER},
#define END(name) \
    }             \
    ;
#include "proto/messages.def"

/* A number given twice would be an initialiser given twice, which the compilers warn of. */
static const struct message_row {
    const char *name; /* NULL: no such message */
    const struct field *fields;
    uint32_t n_rows; /* of `fields` */
    uint8_t direction;
    uint8_t fds;
} codec_rows[] = {
#define MESSAGE(NAME, name, number, direction, fds, meaning) \
    [number] = {#NAME, name##_fields, ARRAY_SIZE(name##_fields), direction, fds},
#include "proto/messages.def"
};

static const struct message_row *codec_find(uint64_t number)
{
    return number < ARRAY_SIZE(codec_rows) && codec_rows[number].name ? &codec_rows[number] : NULL;
}

const char *message_name(uint32_t number)
{
    const struct message_row *row = codec_find(number);
    return row ? row->name : NULL;
}

int message_fds(uint32_t number)
{
    const struct message_row *row = codec_find(number);
    return row ? row->fds : -1;
}

uint32_t message_direction(uint32_t number)
{
    const struct message_row *row = codec_find(number);
    return row ? row->direction : 0;
}

/* ---- versions ----------------------------------------------------------------------------------
 */

/* Rows that a version has of a message. */
static uint32_t codec_rows_of(const struct message_row *row, uint64_t version)
{
    uint32_t n = 0;

    while (n < row->n_rows && (row->fields[n].type != FIELD_LATER || row->fields[n].max <= version))
        n++;
    return n;
}

/* Fields in the first `n` rows. */
static uint32_t codec_count(const struct message_row *row, uint32_t n)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++)
        count += row->fields[i].type != FIELD_LATER;
    return count;
}

/* Fields that must be there: all that it had in its first version. */
static uint32_t codec_least(const struct message_row *row)
{
    uint64_t first = row->fields[0].type == FIELD_LATER ? row->fields[0].max : DL_PROTOCOL_OLDEST;

    return codec_count(row, codec_rows_of(row, first));
}

/* ---- encode -------------------------------------------------------------------------------- */

/* The two forms a field has in its struct. */
static uint64_t codec_field_u64(const struct dl_message *msg, const struct field *field)
{
    uint64_t n;
    memcpy(&n, (const char *)msg + field->offset, sizeof n);
    return n;
}

static struct dl_span codec_field_span(const struct dl_message *msg, const struct field *field)
{
    struct dl_span span;
    memcpy(&span, (const char *)msg + field->offset, sizeof span);
    return span;
}

/* Refuses what the other side would refuse, and adds up the bytes the field may need. */
static int codec_check_field(const struct dl_message *msg, const struct field *field, size_t *bytes)
{
    struct dl_span span;

    if (field->type == FIELD_LATER)
        return 0;
    if (field->type == FIELD_U64) {
        *bytes += 9;
        return codec_field_u64(msg, field) > field->max ? -EMSGSIZE : 0;
    }
    span = codec_field_span(msg, field);
    if (span.len > (field->type == FIELD_ANY ? DL_MAX_FRAME_BYTES : field->max))
        return -EMSGSIZE;
    *bytes += 5 + span.len;
    if (field->type == FIELD_STR)
        return utf8_text(span.data, span.len) ? 0 : -EBADMSG;
    if (field->type == FIELD_BIN)
        return span.len % field->unit ? -EBADMSG : 0;
    return 0;
}

/* A field that the peer's version lacks must be 0 or empty. */
static int codec_check_left_out(const struct dl_message *msg, const struct message_row *row,
                                uint32_t n)
{
    if (n == 0)
        return -EPROTONOSUPPORT;
    for (uint32_t i = n; i < row->n_rows; i++) {
        const struct field *field = &row->fields[i];

        if (field->type == FIELD_U64
                ? codec_field_u64(msg, field) != 0
                : field->type != FIELD_LATER && codec_field_span(msg, field).len > 0)
            return -EPROTONOSUPPORT;
    }
    return 0;
}

/* msgpack-c's way out: the room was made before, so this cannot fail. */
static int codec_write_packed(void *data, const char *bytes, size_t len)
{
    struct dl_buffer *out = data;

    assert(len <= out->cap - out->len);
    memcpy(out->data + out->len, bytes, len);
    out->len += len;
    return 0;
}

/* ANY spans are counted as they are checked: they need the whole payload scanned at the end. */
static int codec_pack_field(msgpack_packer *packer, const struct dl_message *msg,
                            const struct field *field, uint32_t *n_any)
{
    struct dl_span span;
    int r;

    if (field->type == FIELD_LATER)
        return 0;
    if (field->type == FIELD_U64)
        return msgpack_pack_uint64(packer, codec_field_u64(msg, field));
    span = codec_field_span(msg, field);
    if (field->type == FIELD_STR) {
        r = msgpack_pack_str(packer, span.len);
    } else if (field->type == FIELD_BIN) {
        r = msgpack_pack_bin(packer, span.len);
    } else {
        r = value_scan(span.data, span.len, NULL);
        (*n_any)++;
    }
    if (r < 0 || span.len == 0)
        return r;
    return codec_write_packed(packer->data, (const char *)span.data, span.len);
}

static int codec_pack_payload(const struct dl_message *msg, const struct message_row *row,
                              uint32_t n, struct dl_buffer *out)
{
    msgpack_packer packer;
    size_t start = out->len;
    uint32_t n_any = 0;
    int r;

    msgpack_packer_init(&packer, out, codec_write_packed);
    r = msgpack_pack_array(&packer, codec_count(row, n) + 1);
    if (r == 0)
        r = msgpack_pack_uint64(&packer, msg->number);
    for (uint32_t i = 0; r == 0 && i < n; i++)
        r = codec_pack_field(&packer, msg, &row->fields[i], &n_any);
    if (r == 0 && out->len - start > DL_MAX_FRAME_BYTES)
        r = -EMSGSIZE;
    if (r == 0 && n_any > 0)
        r = value_scan(out->data + start, out->len - start, NULL);
    return r;
}

int message_encode(const struct dl_message *msg, struct dl_buffer *out)
{
    const struct message_row *row = codec_find(msg->number);
    size_t room = FRAME_HEADER_BYTES + 10; /* the heads of the array and of the number */
    size_t start = out->len, len;
    int r;

    if (!row)
        return -EBADMSG;
    uint32_t n = codec_rows_of(row, msg->version ? msg->version : DL_PROTOCOL_VERSION);
    r = codec_check_left_out(msg, row, n);
    for (uint32_t i = 0; r == 0 && i < n; i++)
        r = codec_check_field(msg, &row->fields[i], &room);
    if (r < 0)
        return r;
    r = buffer_reserve(out, room);
    if (r < 0)
        return r;
    out->len += FRAME_HEADER_BYTES;
    r = codec_pack_payload(msg, row, n, out);
    if (r < 0) {
        out->len = start;
        return r;
    }
    len = out->len - start - FRAME_HEADER_BYTES;
    for (size_t i = 0; i < FRAME_HEADER_BYTES; i++)
        out->data[start + i] = (uint8_t)(len >> (8 * i));
    return 0;
}

/* ---- decode -------------------------------------------------------------------------------- */

/* What is left of a payload, and which field of which message is being read. */
struct reader {
    const uint8_t *data;
    size_t len;
    const struct message_row *row;
    uint32_t n_fields; /* that it has */
    const struct field *field;
    struct dl_error *err;
};

/* Fails with "MESSAGE.field" as the place. */
static int _printf_(3, 4) codec_refuse(const struct reader *reader, int code, const char *fmt, ...)
{
    char place[DL_ERROR_PATH_MAX], text[DL_ERROR_MESSAGE_MAX];
    va_list args;

    snprintf(place, sizeof place, "%s.%s", reader->row->name, reader->field->name);
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return dl_error_set(reader->err, code, place, "%s", text);
}

static int codec_read_any(struct reader *reader, struct dl_span *ret)
{
    size_t len;
    int r = value_scan(reader->data, reader->len, &len);

    if (r < 0)
        return codec_refuse(reader, -r, "is not a msgpack value");
    *ret = (struct dl_span){reader->data, len};
    reader->data += len;
    reader->len -= len;
    return 0;
}

static int codec_read_u64(struct reader *reader, uint64_t *ret)
{
    const struct field *field = reader->field;
    struct token token;

    if (token_read(reader->data, reader->len, &token) < 0 || token.type != TOKEN_UINT)
        return codec_refuse(reader, EBADMSG, "is not an unsigned integer");
    if (token.n > field->max)
        return codec_refuse(reader, EMSGSIZE, "%" PRIu64 " is above its maximum of %" PRIu64,
                            token.n, field->max);
    reader->data += token.head;
    reader->len -= token.head;
    *ret = token.n;
    return 0;
}

static int codec_read_bytes(struct reader *reader, struct dl_span *ret)
{
    const struct field *field = reader->field;
    bool text = field->type == FIELD_STR;
    struct token token;

    if (token_read(reader->data, reader->len, &token) < 0 ||
        token.type != (text ? TOKEN_STR : TOKEN_BIN))
        return codec_refuse(reader, EBADMSG, "is not %s", text ? "a string" : "binary data");
    if (token.n > field->max)
        return codec_refuse(reader, EMSGSIZE, "%" PRIu64 " bytes are above its maximum of %" PRIu64,
                            token.n, field->max);
    struct dl_span span = {reader->data + token.head, (size_t)token.n};
    if (text && !utf8_text(span.data, span.len))
        return codec_refuse(reader, EBADMSG, "is not UTF-8 text without NUL");
    if (span.len % field->unit)
        return codec_refuse(reader, EBADMSG, "%zu bytes are not a multiple of %" PRIu32, span.len,
                            field->unit);
    reader->data += token.head + span.len;
    reader->len -= token.head + span.len;
    *ret = span;
    return 0;
}

static int codec_read_field(struct reader *reader, struct dl_message *msg)
{
    char *to = (char *)msg + reader->field->offset;
    struct dl_span span = {0};
    uint64_t n = 0;
    int r;

    if (reader->field->type == FIELD_U64) {
        r = codec_read_u64(reader, &n);
        if (r == 0)
            memcpy(to, &n, sizeof n);
        return r;
    }
    r = reader->field->type == FIELD_ANY ? codec_read_any(reader, &span)
                                         : codec_read_bytes(reader, &span);
    if (r == 0)
        memcpy(to, &span, sizeof span);
    return r;
}

static int codec_check_count(struct reader *reader, uint64_t n)
{
    const struct message_row *row = reader->row;
    uint32_t least = codec_least(row), most = codec_count(row, row->n_rows);

    if (n >= least && n <= most) {
        reader->n_fields = (uint32_t)n;
        return 0;
    }
    if (least == most)
        return dl_error_set(reader->err, EBADMSG, row->name,
                            "has %" PRIu64 " fields instead of %" PRIu32, n, most);
    return dl_error_set(reader->err, EBADMSG, row->name,
                        "has %" PRIu64 " fields instead of %" PRIu32 " to %" PRIu32, n, least,
                        most);
}

/* The head every message has: an array that starts with a number this sender may use. */
static int codec_read_head(struct reader *reader, uint32_t directions)
{
    struct token array, number;
    const struct message_row *row;

    if (token_read(reader->data, reader->len, &array) < 0 || array.type != TOKEN_ARRAY ||
        array.n == 0)
        return dl_error_set(reader->err, EBADMSG, "message", "is not an array with a number first");
    reader->data += array.head;
    reader->len -= array.head;
    if (token_read(reader->data, reader->len, &number) < 0 || number.type != TOKEN_UINT)
        return dl_error_set(reader->err, EBADMSG, "message", "does not start with its number");
    reader->data += number.head;
    reader->len -= number.head;

    row = codec_find(number.n);
    if (!row)
        return dl_error_set(reader->err, EBADMSG, "message", "number %" PRIu64 " is unknown",
                            number.n);
    if (!(row->direction & directions))
        return dl_error_set(reader->err, EBADMSG, row->name, "is not a message of this sender");
    reader->row = row;
    return codec_check_count(reader, array.n - 1);
}

/* The newest version that has no more fields of the message than came. */
static uint32_t codec_version(const struct reader *reader)
{
    uint32_t version = DL_PROTOCOL_VERSION;

    while (version > DL_PROTOCOL_OLDEST &&
           codec_count(reader->row, codec_rows_of(reader->row, version)) > reader->n_fields)
        version--;
    return version;
}

static int codec_read_fields(struct reader *reader, struct dl_message *msg)
{
    uint32_t left = reader->n_fields;
    int r = 0;

    for (uint32_t i = 0; r == 0 && left > 0; i++) {
        reader->field = &reader->row->fields[i];
        if (reader->field->type == FIELD_LATER)
            continue;
        r = codec_read_field(reader, msg);
        left--;
    }
    return r;
}

int message_decode(const uint8_t *payload, size_t len, uint32_t directions, struct dl_message *ret,
                   struct dl_error *err)
{
    struct reader reader = {.data = payload, .len = len, .err = err};
    struct dl_message msg = {0};
    int r;

    if (len > DL_MAX_FRAME_BYTES)
        return dl_error_set(err, EMSGSIZE, "message", "%zu bytes are above the maximum of %" PRIu64,
                            len, DL_MAX_FRAME_BYTES);
    r = value_scan(payload, len, NULL);
    if (r < 0)
        return dl_error_set(err, -r, "message",
                            r == -EMSGSIZE ? "is nested too deep or has too many elements"
                                           : "is not exactly one whole msgpack value");
    r = codec_read_head(&reader, directions);
    if (r < 0)
        return r;
    assert(reader.row);
    r = codec_read_fields(&reader, &msg);
    if (r < 0)
        return r;
    assert(reader.len == 0); /* the scan found one value, and its fields were all read */
    msg.number = (enum message_number)(reader.row - codec_rows);
    msg.version = codec_version(&reader);
    *ret = msg;
    return 0;
}
