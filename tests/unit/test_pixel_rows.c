/* Rows of pixels: any number of pixels, at any address, and nothing beside them. */
#include "daemon/data/decode/image/pixel_rows.h"
#include "tests/lib/harness.h"

enum { MOST = 131, BEHIND = 32, MARK = 0xa5 };

static uint8_t room[MOST * PICTURE_PIXEL + 2 * BEHIND];

/* A row whose bytes end where its memory does, which a sanitizer watches. */
static uint8_t *row_of(size_t bytes)
{
    uint8_t *row = malloc(bytes ? bytes : 1);

    assert_non_null(row);
    for (size_t i = 0; i < bytes; i++)
        row[i] = (uint8_t)(i * 167 + i / 256);
    memset(room, MARK, sizeof room);
    return row;
}

static void check_beside(size_t from, size_t bytes)
{
    for (size_t i = 0; i < sizeof room; i++) {
        if ((i < from || i >= from + bytes) && room[i] != MARK)
            fail_msg("byte %zu was written, of %zu from %zu on", i, bytes, from);
    }
}

static void check_pixels(const uint8_t *in, size_t step, const uint8_t *out, size_t n)
{
    size_t other = PICTURE_PIXEL + PICTURE_COLOURS - step;

    for (size_t i = 0; i < n * PICTURE_COLOURS; i++) {
        size_t x = i / PICTURE_COLOURS, c = i % PICTURE_COLOURS;
        if (out[x * other + c] != in[x * step + c])
            fail_msg("%zu pixels: colour %zu of pixel %zu is %u, not %u", n, c, x,
                     out[x * other + c], in[x * step + c]);
    }
}

TEST(test_narrow)
{
    for (size_t n = 0; n <= MOST; n++) {
        uint8_t *row = row_of(n * PICTURE_PIXEL);
        pixel_rows_narrow(row, n, room + n % BEHIND);
        check_pixels(row, PICTURE_PIXEL, room + n % BEHIND, n);
        check_beside(n % BEHIND, n * PICTURE_COLOURS);
        free(row);
    }
}

TEST(test_widen)
{
    for (size_t n = 0; n <= MOST; n++) {
        uint8_t *row = row_of(n * PICTURE_COLOURS);
        pixel_rows_widen(row, n, room + n % BEHIND);
        check_pixels(row, PICTURE_COLOURS, room + n % BEHIND, n);
        check_beside(n % BEHIND, n * PICTURE_PIXEL);
        free(row);
    }
}

TEST(test_spread)
{
    for (size_t n = 0; n <= MOST; n++) {
        uint8_t *row = row_of(n), *out = room + n % BEHIND;
        pixel_rows_spread(row, n, out);
        for (size_t i = 0; i < n * PICTURE_PIXEL; i++)
            assert_int_equal(out[i], row[i / PICTURE_PIXEL]);
        check_beside(n % BEHIND, n * PICTURE_PIXEL);
        free(row);
    }
}
