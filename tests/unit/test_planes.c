/* Planes of pixels: any number of pixels, at any address, and nothing beside them. */
#include "daemon/data/decode/transform/planes.h"
#include "tests/lib/harness.h"

enum { MOST = 131, BEHIND = 64, LARGE = 130 * 128 };

static void check_at(const uint8_t *pixels, size_t n, uint32_t channels, bool near, unsigned offset)
{
    static _Alignas(64) uint8_t room[3 * LARGE + 2 * BEHIND];
    uint8_t *out = room + offset;
    size_t bytes = n * channels;

    memset(room, 0xa5, sizeof room);
    planes_write(pixels, n, channels, near, out);
    for (size_t i = 0; i < bytes; i++) {
        if (out[i] != pixels[i % n * PICTURE_PIXEL + i / n])
            fail_msg("%zu pixels, %u channels: byte %zu is %u, not %u", n, channels, i, out[i],
                     pixels[i % n * PICTURE_PIXEL + i / n]);
    }
    for (size_t i = 0; i < sizeof room; i++) {
        if ((i < offset || i >= offset + bytes) && room[i] != 0xa5)
            fail_msg("%zu pixels, %u channels: byte %zu was written, of %zu from %u on", n,
                     channels, i, bytes, offset);
    }
}

static void check(const uint8_t *pixels, size_t n, uint32_t channels, unsigned offset)
{
    check_at(pixels, n, channels, false, offset);
    check_at(pixels, n, channels, true, offset);
}

TEST(test_planes)
{
    uint8_t pixels[MOST * PICTURE_PIXEL + 1];

    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 167 + i / 256);
    for (size_t n = 1; n <= MOST; n++) {
        for (uint32_t channels = 1; channels <= 3; channels++) {
            check(pixels, n, channels, 0);
            check(pixels + 1, n, channels, 5);
        }
    }
}

/* What is written past the cache: at a multiple of 32, and of so many pixels. */
TEST(test_large)
{
    static uint8_t pixels[LARGE * PICTURE_PIXEL];

    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 167 + i / 256);
    check(pixels, LARGE, 3, 0);
    check(pixels, LARGE, 3, 32);
    check(pixels, LARGE, 3, 16);
    check(pixels, LARGE - 1, 3, 0);
    check(pixels, LARGE - 32, 3, 0);
    check(pixels, LARGE, 1, 0);
}
