#include "daemon/data/kinds/arrow/arrow_message.h"
#include "proto/common/load.h"

#include <errno.h>

enum {
    MESSAGE_VERSION,
    MESSAGE_TYPE,
    MESSAGE_HEADER,
    MESSAGE_BODY_BYTES,
    MESSAGE_PAIRS,
    KEY_VALUE_KEY = 0,
    KEY_VALUE_VALUE,
    FOOTER_SCHEMA = 1,
    FOOTER_DICTIONARIES,
    FOOTER_RECORDS,
    MARK = 6, /* bytes of "ARROW1" */
    FOOTER_TAIL = 4 + MARK,
    FOOTER_BLOCK = 24,
    VERSION_4 = 3, /* as they are numbered: since Arrow 0.8 */
    VERSION_5,
};

static const char arrow_mark[] = "ARROW1";

static int arrow_message_refuse(const struct arrow_view *view, uint64_t at, const char *what,
                                struct dl_error *err)
{
    return dl_error_set(err, EINVAL, view->path,
                        "%s at byte %llu; it is truncated, damaged, or still being written", what,
                        (ull)at);
}

int arrow_batch_refuse(const struct arrow_view *view, const struct arrow_message *message,
                       const char *why, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, view->path,
                        "its batch at byte %llu %s; it is damaged: write the file again",
                        (ull)message->at, why);
}

/* Since Arrow 0.15 there is a mark before the size. ARROW_END, at the end of the data too. */
static int arrow_message_find(const struct arrow_view *view, uint64_t at, uint64_t *ret_metadata,
                              uint32_t *ret_size)
{
    if (at == view->bytes)
        return ARROW_END;
    if (at > view->bytes || view->bytes - at < 4)
        return -EINVAL;
    *ret_size = load_le32(view->data + at);
    *ret_metadata = at + 4;
    if (*ret_size == UINT32_MAX) {
        if (view->bytes - at < 8)
            return -EINVAL;
        *ret_size = load_le32(view->data + at + 4);
        *ret_metadata = at + 8;
    }
    if (*ret_size == 0)
        return ARROW_END;
    return *ret_size <= view->bytes - *ret_metadata ? 0 : -EINVAL;
}

int arrow_message_read(const struct arrow_view *view, uint64_t at, struct arrow_message *ret,
                       struct dl_error *err)
{
    struct arrow_message message = {.at = at};
    uint64_t metadata;
    int r = arrow_message_find(view, at, &metadata, &message.flat.bytes);

    if (r != 0)
        return r < 0 ? arrow_message_refuse(view, at, "ends in the middle of its message", err) : r;
    message.flat.data = view->data + metadata;
    struct flat_table root = flat_root(&message.flat);
    message.type = flat_int(&message.flat, &root, MESSAGE_TYPE, 1, 0);
    int64_t version = flat_int(&message.flat, &root, MESSAGE_VERSION, 2, 0);
    message.header = flat_sub(&message.flat, &root, MESSAGE_HEADER);
    message.is_version_4 = version == VERSION_4;
    message.pairs = flat_vector(&message.flat, &root, MESSAGE_PAIRS, 4);
    int64_t body = flat_int(&message.flat, &root, MESSAGE_BODY_BYTES, 8, 0);
    uint64_t begin = metadata + message.flat.bytes;
    if (message.flat.bad || root.at == 0 || message.header.at == 0)
        return arrow_message_refuse(view, at, "has no Arrow message", err);
    if (version < VERSION_4 || version > VERSION_5)
        return dl_error_set(err, EINVAL, view->path,
                            "is of version %d of Arrow's metadata; 4 and 5 can be read: write it "
                            "again",
                            (int)version + 1);
    if (body < 0 || (uint64_t)body > view->bytes - begin)
        return arrow_message_refuse(view, at, "ends in the middle of the data of its message", err);
    message.body = view->data + begin;
    message.body_bytes = (uint64_t)body;
    message.end = begin + (uint64_t)body;
    *ret = message;
    return 0;
}

const char *arrow_pair(struct flat *flat, const struct flat_vector *pairs, const char *key,
                       uint32_t *ret_len)
{
    size_t key_len = strlen(key);

    for (uint32_t i = 0; i < pairs->n; i++) {
        struct flat_table pair = flat_item(flat, pairs, i);
        uint32_t len;
        const char *own = flat_string(flat, &pair, KEY_VALUE_KEY, &len);
        if (own && len == key_len && memcmp(own, key, len) == 0)
            return flat_string(flat, &pair, KEY_VALUE_VALUE, ret_len);
    }
    return NULL;
}

bool arrow_is_file(const struct arrow_view *view)
{
    return view->bytes >= MARK && memcmp(view->data, arrow_mark, MARK) == 0;
}

int arrow_footer_read(const struct arrow_view *view, struct arrow_footer *ret, struct dl_error *err)
{
    struct arrow_footer footer = {0};
    uint64_t tail = view->bytes - FOOTER_TAIL;

    if (view->bytes < 8 + FOOTER_TAIL || memcmp(view->data + tail + 4, arrow_mark, MARK) != 0)
        return arrow_message_refuse(view, view->bytes, "has a footer without an end", err);
    footer.flat.bytes = load_le32(view->data + tail);
    if (footer.flat.bytes > tail)
        return arrow_message_refuse(view, tail, "has a footer larger than itself", err);
    footer.flat.data = view->data + tail - footer.flat.bytes;
    struct flat_table root = flat_root(&footer.flat);
    footer.schema = flat_sub(&footer.flat, &root, FOOTER_SCHEMA);
    footer.dictionaries = flat_vector(&footer.flat, &root, FOOTER_DICTIONARIES, FOOTER_BLOCK);
    footer.records = flat_vector(&footer.flat, &root, FOOTER_RECORDS, FOOTER_BLOCK);
    if (footer.flat.bad || footer.schema.at == 0)
        return arrow_message_refuse(view, tail, "has no Arrow footer", err);
    *ret = footer;
    return 0;
}

uint64_t arrow_block(const struct flat_vector *blocks, uint32_t i)
{
    uint64_t at;

    memcpy(&at, blocks->items + (uint64_t)FOOTER_BLOCK * i, sizeof at);
    return at;
}
