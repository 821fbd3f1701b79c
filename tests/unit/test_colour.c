/* Colours changed by vectors beside the same sums one by one, as Pillow 13's C files have them. */
#include "daemon/data/decode/image/colour.h"
#include "tests/lib/harness.h"

#include <math.h>

enum { SIDE = 256, ALL = SIDE * SIDE, COLOURS = 1 << 24 };

static struct picture picture;

static int group_setup(void **state)
{
    return picture_set(&picture, (struct image_size){.height = SIDE, .width = SIDE}, false);
}

static int group_teardown(void **state)
{
    picture_deinit(&picture);
    return 0;
}

static void set_pixel(unsigned i, uint32_t colour)
{
    for (unsigned c = 0; c < 3; c++)
        picture.pixels[i * PICTURE_PIXEL + c] = (uint8_t)(colour >> 8 * c);
}

static uint32_t get_pixel(unsigned i)
{
    const uint8_t *px = picture.pixels + (size_t)i * PICTURE_PIXEL;

    return px[0] | (uint32_t)px[1] << 8 | (uint32_t)px[2] << 16;
}

/* ---- hue --------------------------------------------------------------------------------------
 */

struct hsv {
    int hue;
    int saturation;
    int value;
};

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* rgb2hsv_row() of Convert.c; fmod() of what is below 2. */
static struct hsv hsv_of(uint32_t colour)
{
    int r = colour & 255, g = colour >> 8 & 255, b = colour >> 16;
    int most = larger(r, larger(g, b)), least = -larger(-r, larger(-g, -b));
    float range = (float)(most - least), h;

    if (most == least)
        return (struct hsv){.value = most};
    float share = range / (float)most;
    float rc = (float)(most - r) / range, gc = (float)(most - g) / range;
    float bc = (float)(most - b) / range;
    if (r == most)
        h = bc - gc;
    else if (g == most)
        h = (float)(2.0 + (double)rc - (double)bc);
    else
        h = (float)(4.0 + (double)gc - (double)rc);
    double turn = (double)h / 6.0 + 1.0;
    h = (float)(turn >= 1 ? turn - 1 : turn);
    return (struct hsv){
        .hue = (int)((double)h * 255.0), .saturation = (int)((double)share * 255.0), .value = most};
}

static uint32_t rounded(double value)
{
    return (uint32_t)(int)(value + 0.5);
}

/* hsv2rgb() of Convert.c. */
static uint32_t colour_of(const struct hsv *hsv)
{
    uint32_t v = (uint32_t)hsv->value;
    double sixths = (double)(float)hsv->hue * 6.0 / 255.0, whole = floor(sixths), level = v;
    float rest = (float)(sixths - whole), share = (float)((double)hsv->saturation / 255.0);
    float product = share * rest;
    uint32_t p = rounded(level * (1.0 - (double)share));
    uint32_t q = rounded(level * (1.0 - (double)product));
    uint32_t t = rounded(level * (1.0 - (double)share * (1.0 - (double)rest)));
    const uint32_t colours[][3] = {{v, t, p}, {q, v, p}, {p, v, t},
                                   {p, q, v}, {t, p, v}, {v, p, q}};
    const uint32_t *c = colours[(int)whole % 6];

    return c[0] | c[1] << 8 | c[2] << 16;
}

static void check_hue(unsigned shift, unsigned first, unsigned step)
{
    for (unsigned i = 0; i < ALL; i++)
        set_pixel(i, (first + i * step) % COLOURS);
    colour_hue(&picture, (shift + 0.5) / 255);
    for (unsigned i = 0; i < ALL; i++) {
        uint32_t colour = (first + i * step) % COLOURS;
        struct hsv hsv = hsv_of(colour);
        hsv.hue = (hsv.hue + (int)shift) % 256;
        if (get_pixel(i) != colour_of(&hsv))
            fail_msg("%06x, turned by %u, is %06x, not %06x", colour, shift, get_pixel(i),
                     colour_of(&hsv));
    }
}

/* There and back: each hue, saturation and value that a colour has. */
TEST(test_hue_of_each_colour)
{
    for (unsigned first = 0; first < COLOURS; first += ALL * (unsigned)harness_stride())
        check_hue(0, first, 1);
}

/* Each turn of 65536 colours from everywhere, others each time. */
TEST(test_each_turn_of_hue)
{
    for (unsigned shift = 0; shift < 255; shift += (unsigned)harness_stride())
        check_hue(shift, shift * 65537, 257);
}

/* ---- blending ---------------------------------------------------------------------------------
 */

/* Blend.c in float32. */
static uint32_t blended(int from, int to, float factor)
{
    float level = (float)from + factor * (float)(to - from);

    return level <= 0 ? 0 : level >= 255 ? 255 : (uint32_t)level;
}

static uint32_t pixel_blended(int from, uint32_t colour, float factor)
{
    return blended(from, colour & 255, factor) | blended(from, colour >> 8 & 255, factor) << 8 |
           blended(from, (int)(colour >> 16), factor) << 16;
}

/* L of convert("L"). */
static int grey_of(uint32_t colour)
{
    return (int)(((colour & 255) * 19595 + (colour >> 8 & 255) * 38470 + (colour >> 16) * 7471 +
                  0x8000) >>
                 16);
}

static uint32_t some_colour(unsigned i)
{
    return i * 2654435761U >> 8;
}

static const float factors[] = {0, 0.2F, 0.6F, 0.99999F, 1, 1.00001F, 1.4F, 1.9F, 17};

TEST(test_brightness)
{
    for (unsigned f = 0; f < sizeof factors / sizeof factors[0]; f++) {
        for (unsigned i = 0; i < ALL; i++)
            set_pixel(i, some_colour(i));
        colour_brightness(&picture, (double)factors[f]);
        for (unsigned i = 0; i < ALL; i++)
            assert_int_equal(get_pixel(i), pixel_blended(0, some_colour(i), factors[f]));
    }
}

TEST(test_contrast)
{
    double sum = 0;

    for (unsigned i = 0; i < ALL; i++)
        sum += grey_of(some_colour(i));
    for (unsigned f = 0; f < sizeof factors / sizeof factors[0]; f++) {
        for (unsigned i = 0; i < ALL; i++)
            set_pixel(i, some_colour(i));
        colour_contrast(&picture, (double)factors[f]);
        for (unsigned i = 0; i < ALL; i++)
            assert_int_equal(get_pixel(i),
                             pixel_blended((int)(sum / ALL + 0.5), some_colour(i), factors[f]));
    }
}

TEST(test_saturation)
{
    for (unsigned f = 0; f < sizeof factors / sizeof factors[0]; f++) {
        for (unsigned i = 0; i < ALL; i++)
            set_pixel(i, some_colour(i));
        colour_saturation(&picture, (double)factors[f]);
        for (unsigned i = 0; i < ALL; i++) {
            uint32_t colour = some_colour(i);
            assert_int_equal(get_pixel(i), pixel_blended(grey_of(colour), colour, factors[f]));
        }
    }
}

TEST_GROUP(group_setup, group_teardown)
