#include "daemon/data/kinds/arrow/flat.h"
#include "proto/common/load.h"

enum { FLAT_OFFSET = 4, FLAT_VTABLE_HEAD = 4 };

static bool flat_holds(struct flat *flat, uint64_t at, uint64_t bytes)
{
    bool holds = at <= flat->bytes && bytes <= flat->bytes - at;

    flat->bad |= !holds;
    return holds;
}

static struct flat_table flat_refuse(struct flat *flat)
{
    flat->bad = true;
    return (struct flat_table){0};
}

/* A table begins with the distance of its vtable: the sizes of both, then where each field is. */
static struct flat_table flat_table_at(struct flat *flat, uint64_t at)
{
    struct flat_table table = {.at = (uint32_t)at};
    int32_t back;

    if (at == 0 || !flat_holds(flat, at, FLAT_OFFSET))
        return flat_refuse(flat);
    memcpy(&back, flat->data + at, sizeof back);
    int64_t vtable = (int64_t)at - back;
    if (vtable < 0 || !flat_holds(flat, (uint64_t)vtable, FLAT_VTABLE_HEAD))
        return flat_refuse(flat);
    uint32_t size = load_le16(flat->data + (uint64_t)vtable);
    table.vtable = (uint32_t)vtable;
    table.bytes = load_le16(flat->data + (uint64_t)vtable + 2);
    if (size < FLAT_VTABLE_HEAD || !flat_holds(flat, (uint64_t)vtable, size) ||
        !flat_holds(flat, at, table.bytes))
        return flat_refuse(flat);
    table.fields = (size - FLAT_VTABLE_HEAD) / 2;
    return table;
}

/* Where the field's `width` bytes are; 0: absent. */
static uint32_t flat_field(struct flat *flat, const struct flat_table *table, uint32_t id,
                           uint32_t width)
{
    if (table->at == 0 || id >= table->fields)
        return 0;
    uint32_t offset = load_le16(flat->data + table->vtable + FLAT_VTABLE_HEAD + 2 * (uint64_t)id);
    if (offset == 0)
        return 0;
    if (offset < FLAT_OFFSET || offset + width > table->bytes) {
        flat->bad = true;
        return 0;
    }
    return table->at + offset;
}

/* What the offset at `at` leads to. */
static uint64_t flat_follow(const struct flat *flat, uint32_t at)
{
    return (uint64_t)at + load_le32(flat->data + at);
}

struct flat_table flat_root(struct flat *flat)
{
    if (!flat_holds(flat, 0, FLAT_OFFSET))
        return (struct flat_table){0};
    return flat_table_at(flat, flat_follow(flat, 0));
}

int64_t flat_int(struct flat *flat, const struct flat_table *table, uint32_t id, uint32_t width,
                 int64_t fallback)
{
    uint32_t at = flat_field(flat, table, id, width);
    const uint8_t *from = flat->data + at;
    int64_t n = fallback;
    int32_t n32;
    int16_t n16;

    if (at == 0)
        return fallback;
    switch (width) {
    case 1:
        return (int8_t)*from;
    case 2:
        memcpy(&n16, from, sizeof n16);
        return n16;
    case 4:
        memcpy(&n32, from, sizeof n32);
        return n32;
    default:
        memcpy(&n, from, sizeof n);
        return n;
    }
}

struct flat_table flat_sub(struct flat *flat, const struct flat_table *table, uint32_t id)
{
    uint32_t at = flat_field(flat, table, id, FLAT_OFFSET);

    return at == 0 ? (struct flat_table){0} : flat_table_at(flat, flat_follow(flat, at));
}

struct flat_vector flat_vector(struct flat *flat, const struct flat_table *table, uint32_t id,
                               uint32_t size)
{
    uint32_t at = flat_field(flat, table, id, FLAT_OFFSET);

    if (at == 0)
        return (struct flat_vector){0};
    uint64_t begin = flat_follow(flat, at);
    if (!flat_holds(flat, begin, FLAT_OFFSET))
        return (struct flat_vector){0};
    uint32_t n = load_le32(flat->data + begin);
    begin += FLAT_OFFSET;
    if (!flat_holds(flat, begin, (uint64_t)n * size))
        return (struct flat_vector){0};
    return (struct flat_vector){.items = flat->data + begin, .at = (uint32_t)begin, .n = n};
}

const char *flat_string(struct flat *flat, const struct flat_table *table, uint32_t id,
                        uint32_t *ret_len)
{
    struct flat_vector text = flat_vector(flat, table, id, 1);

    *ret_len = text.n;
    return (const char *)text.items;
}

struct flat_table flat_item(struct flat *flat, const struct flat_vector *vector, uint32_t i)
{
    uint32_t at = vector->at + FLAT_OFFSET * i;

    return flat_table_at(flat, flat_follow(flat, at));
}
