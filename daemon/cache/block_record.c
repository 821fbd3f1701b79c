#include "daemon/cache/block_record.h"

#include <xxhash.h>

/* Then come: where, the ETag, the data; texts without an end. */
struct record_head {
    uint64_t check; /* XXH3 of all that follows */
    uint32_t where_bytes, etag_bytes, data_bytes;
    uint32_t reserved;
    uint64_t block;
    uint64_t object_bytes;
    int64_t modified;
};
_Static_assert(sizeof(struct record_head) == 48, "the format of the file");

size_t record_head_bytes(const struct block_name *name)
{
    return sizeof(struct record_head) + strlen(name->where) + strlen(name->etag);
}

void record_fill_head(const struct block_name *name, size_t data_bytes, uint8_t *head)
{
    const struct record_head fixed = {.where_bytes = (uint32_t)strlen(name->where),
                                      .etag_bytes = (uint32_t)strlen(name->etag),
                                      .data_bytes = (uint32_t)data_bytes,
                                      .block = name->block,
                                      .object_bytes = name->bytes,
                                      .modified = name->modified};

    memcpy(head, &fixed, sizeof fixed);
    memcpy(head + sizeof fixed, name->where, fixed.where_bytes);
    memcpy(head + sizeof fixed + fixed.where_bytes, name->etag, fixed.etag_bytes);
}

static uint64_t record_check(const uint8_t *head, size_t head_bytes, struct dl_span data)
{
    uint64_t seed = XXH3_64bits(head + sizeof(uint64_t), head_bytes - sizeof(uint64_t));

    return XXH3_64bits_withSeed(data.data, data.len, seed);
}

void record_seal(uint8_t *head, size_t head_bytes, struct dl_span data)
{
    uint64_t check = record_check(head, head_bytes, data);

    memcpy(head, &check, sizeof check);
}

bool record_read(struct dl_span record, struct block_name *ret_name, char **ret_etag,
                 struct dl_span *ret_data, const char *where)
{
    struct record_head fixed;
    size_t where_bytes = strlen(where);

    if (record.len < sizeof fixed)
        return false;
    memcpy(&fixed, record.data, sizeof fixed);
    uint64_t head_bytes = sizeof fixed + (uint64_t)fixed.where_bytes + fixed.etag_bytes;
    if (fixed.where_bytes != where_bytes || head_bytes + fixed.data_bytes > record.len)
        return false;
    const struct dl_span data = {record.data + head_bytes, fixed.data_bytes};
    const char *texts = (const char *)record.data + sizeof fixed;
    if (record_check(record.data, head_bytes, data) != fixed.check ||
        memcmp(texts, where, where_bytes) != 0 ||
        !(*ret_etag = strndup(texts + where_bytes, fixed.etag_bytes)))
        return false;
    *ret_data = data;
    *ret_name = (struct block_name){.where = where,
                                    .block = fixed.block,
                                    .etag = *ret_etag,
                                    .modified = fixed.modified,
                                    .bytes = fixed.object_bytes};
    return true;
}
