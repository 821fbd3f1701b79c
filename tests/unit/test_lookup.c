/* Tables of bytes: any number of pixels, at any address, and nothing beside them. */
#include "daemon/data/decode/transform/lookup.h"
#include "tests/lib/harness.h"

enum { MOST = 77, BEHIND = 64 };

static uint8_t before(size_t i)
{
    return (uint8_t)(i * 167 + i / 256);
}

/* By one table where `tables` are none. */
static void check(size_t n, unsigned offset, const struct lookup_tables *tables,
                  const uint8_t *table)
{
    uint8_t room[MOST * PICTURE_PIXEL + 2 * BEHIND];
    size_t bytes = n * PICTURE_PIXEL;

    for (size_t i = 0; i < sizeof room; i++)
        room[i] = before(i);
    if (tables)
        lookup_each(room + offset, n, tables);
    else
        lookup_all(room + offset, n, table);
    for (size_t i = 0; i < sizeof room; i++) {
        bool inside = i >= offset && i < offset + bytes;
        size_t colour = (i - offset) % PICTURE_PIXEL;
        uint8_t wanted = before(i);
        if (inside && colour == PICTURE_COLOURS)
            continue;
        if (inside)
            wanted = tables ? tables->colour[colour][wanted] : table[wanted];
        if (room[i] != wanted)
            fail_msg("%s, %zu pixels from %u on: byte %zu is %u, not %u", tables ? "each" : "all",
                     n, offset, i, room[i], wanted);
    }
}

TEST(test_lookup)
{
    struct lookup_tables tables;

    for (unsigned c = 0; c < PICTURE_COLOURS; c++) {
        for (unsigned i = 0; i < LOOKUP_LEVELS; i++)
            tables.colour[c][i] = (uint8_t)(i * (31 + 2 * c) + 7 * c + (i >> 3));
    }
    for (size_t n = 0; n <= MOST; n++) {
        for (unsigned offset = 0; offset <= 5; offset += 5) {
            check(n, offset, &tables, NULL);
            check(n, offset, NULL, tables.colour[1]);
        }
    }
}
