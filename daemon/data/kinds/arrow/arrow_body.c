#include "daemon/data/kinds/arrow/arrow_body.h"

#include "daemon/data/files/lz.h"
#include "daemon/data/files/unpack.h"
#include "proto/common/load.h"

#include <errno.h>

enum {
    DICTIONARY_RECORDS = 1,
    COMPRESSION_CODEC = 0,
    COMPRESSION_METHOD,
    METHOD_BUFFER = 0, /* each buffer separately */
    CODEC_LZ4 = 0,
    CODEC_ZSTD = 1,
    CODEC_OTHER,
    LENGTH = 8, /* in front of a compressed buffer; -1: not compressed */
    RATIO = 1024,
};
#define ALLOWED (UINT64_C(64) << 20)

struct body_making {
    const struct arrow_view *view;
    struct arrow_message *message;
    struct flat_vector buffers, variadic;
    int64_t codec;
    uint64_t bytes; /* when unpacked */
    struct arrow_body body;
    struct dl_error *err;
};

static int body_refuse(const struct body_making *m, const char *why)
{
    return arrow_batch_refuse(m->view, m->message, why, m->err);
}

struct flat_table arrow_body_records(struct arrow_message *message)
{
    return message->type == ARROW_DICTIONARY
               ? flat_sub(&message->flat, &message->header, DICTIONARY_RECORDS)
               : message->header;
}

/* How Arrow 0.17 named the codec, which came before the field in the batch; NULL: it did not. */
static const char *body_old_codec(struct arrow_message *message, uint32_t *ret_len)
{
    return message->is_version_4 ? arrow_pair(&message->flat, &message->pairs,
                                              "ARROW:experimental_compression", ret_len)
                                 : NULL;
}

bool arrow_body_is_packed(struct arrow_message *message)
{
    struct flat_table records = arrow_body_records(message);
    uint32_t len;

    return flat_sub(&message->flat, &records, RECORDS_COMPRESSION).at != 0 ||
           body_old_codec(message, &len);
}

static int64_t body_codec(struct arrow_message *message, struct flat_table *records)
{
    struct flat *flat = &message->flat;
    struct flat_table compression = flat_sub(flat, records, RECORDS_COMPRESSION);
    uint32_t len = 0;
    const char *old = body_old_codec(message, &len);

    if (compression.at != 0)
        return flat_int(flat, &compression, COMPRESSION_METHOD, 1, METHOD_BUFFER) == METHOD_BUFFER
                   ? flat_int(flat, &compression, COMPRESSION_CODEC, 1, CODEC_LZ4)
                   : CODEC_OTHER;
    if (old && len == 3 && strncasecmp(old, "lz4", len) == 0)
        return CODEC_LZ4;
    return old && len == 4 && strncasecmp(old, "zstd", len) == 0 ? CODEC_ZSTD : CODEC_OTHER;
}

uint64_t arrow_body_most(const struct arrow_message *message)
{
    return ALLOWED + RATIO * min_u64(message->body_bytes, UINT64_MAX >> 16);
}

/* ---- which buffers, and how large they are -------------------------------------------------- */

/* The packed bytes of buffer `i`; may be empty. */
static bool body_packed(const struct body_making *m, uint32_t i, const uint8_t **ret,
                        uint64_t *ret_bytes)
{
    const uint8_t *item = m->buffers.items + (uint64_t)RECORDS_BUFFER_BYTES * i;
    uint64_t offset = load_le64(item), bytes = load_le64(item + 8);

    *ret_bytes = bytes;
    if (offset > m->message->body_bytes || bytes > m->message->body_bytes - offset)
        return false;
    *ret = m->message->body + offset;
    return bytes == 0 || bytes >= LENGTH;
}

/* Assigns places to the next `n` buffers, or empties them. */
static bool body_place(struct body_making *m, uint64_t n, bool wanted)
{
    if (n > m->buffers.n - m->body.n)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *place = m->body.data + (uint64_t)RECORDS_BUFFER_BYTES * m->body.n;
        const uint8_t *packed;
        uint64_t bytes, size = 0;
        if (!body_packed(m, m->body.n++, &packed, &bytes))
            return false;
        if (wanted && bytes > 0)
            size = load_le64(packed) == UINT64_MAX ? bytes - LENGTH : load_le64(packed);
        if (size > INT64_MAX / 2 - m->bytes)
            return false;
        memcpy(place, &m->bytes, 8);
        memcpy(place + 8, &size, 8);
        m->bytes += (size + 63) & ~UINT64_C(63);
    }
    return true;
}

/* As arrow_column.c goes through them. */
static bool body_place_fields(struct body_making *m, const struct arrow_schema *schema)
{
    uint32_t more = 0;

    for (uint32_t i = 0, next; i < schema->n; i = next) {
        const struct arrow_field *field = &schema->fields[i];
        uint64_t n = field->has_dictionary ? 2 : field->n_buffers;
        next = field->has_dictionary ? i + field->span : i + 1;
        if (field->is_view && !field->has_dictionary) {
            if (more >= m->variadic.n)
                return false;
            uint64_t parts = load_le64(m->variadic.items + 8 * (uint64_t)more++);
            if (parts > m->buffers.n)
                return false;
            n += parts;
        }
        if (!body_place(m, n, field->slot != ARROW_NONE))
            return false;
    }
    return m->body.n == m->buffers.n;
}

/* ---- unpacking ------------------------------------------------------------------------------ */

static int body_unpack_one(const struct body_making *m, const uint8_t *packed, uint64_t bytes,
                           uint8_t *out, uint64_t size)
{
    bool plain = load_le64(packed) == UINT64_MAX;

    packed += LENGTH;
    bytes -= LENGTH;
    if (plain)
        memcpy(out, packed, bytes);
    else if (size > 0 && m->codec == CODEC_LZ4)
        return lz4_unpack_frame(packed, bytes, out, size);
    else if (size > 0)
        return unpack_exactly(COMPRESSION_ZSTD, packed, bytes, out, size);
    return 0;
}

static int body_unpack_all(struct body_making *m)
{
    for (uint32_t i = 0; i < m->body.n; i++) {
        const uint8_t *place = m->body.data + (uint64_t)RECORDS_BUFFER_BYTES * i, *packed;
        uint64_t bytes;
        if (load_le64(place + 8) == 0 || !body_packed(m, i, &packed, &bytes))
            continue;
        int r = body_unpack_one(m, packed, bytes, m->body.from + load_le64(place),
                                load_le64(place + 8));
        if (r == -ENOTSUP)
            return dl_error_set(m->err, ENOTSUP, m->view->path,
                                "is compressed by zstd, which this build cannot unpack");
        if (r == -ENOMEM)
            return dl_error_set(m->err, ENOMEM, m->view->path, "out of memory for a batch");
        if (r < 0)
            return body_refuse(m, "has a buffer that cannot be unpacked");
    }
    return 0;
}

/* The places, and behind them room for what they lead to. */
static int body_make_room(struct body_making *m)
{
    uint64_t head =
        ((uint64_t)RECORDS_BUFFER_BYTES * max_u64(m->buffers.n, 1) + 63) & ~UINT64_C(63);

    if (m->bytes > arrow_body_most(m->message))
        return body_refuse(m, "claims to unpack to more than its compressed bytes can hold");
    uint8_t *data = realloc(m->body.data, head + m->bytes);
    if (!data)
        return dl_error_set(m->err, ENOMEM, m->view->path, "out of memory for a batch");
    m->body.data = data;
    m->body.from = data + head;
    m->body.bytes = m->bytes;
    return 0;
}

int arrow_body_unpack(const struct arrow_view *view, struct arrow_message *message,
                      const struct arrow_schema *schema, struct arrow_body *ret,
                      struct dl_error *err)
{
    struct body_making m = {.view = view, .message = message, .err = err};
    struct flat *flat = &message->flat;
    struct flat_table records = arrow_body_records(message);
    int r;

    m.codec = body_codec(message, &records);
    m.buffers = flat_vector(flat, &records, RECORDS_BUFFERS, RECORDS_BUFFER_BYTES);
    m.variadic = flat_vector(flat, &records, RECORDS_VARIADIC, 8);
    if (flat->bad)
        return body_refuse(&m, "has no metadata that can be read");
    if (m.codec != CODEC_LZ4 && m.codec != CODEC_ZSTD)
        return dl_error_set(err, ENOTSUP, view->path,
                            "is compressed neither by LZ4's frames nor by zstd; write it again "
                            "with one of these");
    m.body.data = calloc(max_u64(m.buffers.n, 1), RECORDS_BUFFER_BYTES);
    if (!m.body.data)
        return dl_error_set(err, ENOMEM, view->path, "out of memory for a batch");
    bool placed = schema ? body_place_fields(&m, schema) : body_place(&m, m.buffers.n, true);
    r = placed ? body_make_room(&m)
               : body_refuse(&m, "does not have the buffers of its schema's columns");
    if (r == 0)
        r = body_unpack_all(&m);
    if (r < 0)
        arrow_body_deinit(&m.body);
    else
        *ret = m.body;
    return r;
}

void arrow_body_deinit(struct arrow_body *body)
{
    free(body->data);
    *body = (struct arrow_body){0};
}
