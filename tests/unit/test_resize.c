/* Resizing: the ways of resize_rows.h give the same bytes, and rows that come one by one, too. */
#include "daemon/data/decode/resize/resize_rows.h"
#include "tests/lib/harness.h"

#include <errno.h>

static const enum resize_filter filters[] = {RESIZE_BOX, RESIZE_BILINEAR, RESIZE_HAMMING,
                                             RESIZE_BICUBIC, RESIZE_LANCZOS};

/* Noise, with all of black and white in it: the greatest sums. */
static void make_noise(struct picture *p, struct image_size size)
{
    uint32_t state = size.height * 31 + size.width;

    assert_int_equal(picture_set(p, size, false), 0);
    for (size_t i = 0; i < picture_pixels(p) * PICTURE_PIXEL; i++) {
        state = state * 1664525 + 1013904223;
        unsigned v = state >> 24;
        p->pixels[i] = (uint8_t)(v < 64 ? 0 : v > 192 ? 255 : v);
    }
}

/* ---- the ways are alike -----------------------------------------------------------------------
 */

/* From width to width and height to height; of the last ones four outputs' inputs just fill a
 * register, or do not fit. */
static const uint32_t sizes[][2] = {
    {1, 1},    {1, 7},    {2, 3},    {3, 2},    {5, 224},  {7, 5},     {8, 8},     {16, 5},
    {33, 31},  {64, 63},  {97, 13},  {224, 97}, {313, 8},  {224, 500}, {500, 224}, {999, 3},
    {4500, 2}, {200, 50}, {224, 53}, {224, 52}, {213, 49}, {201, 49},
};

enum { GREAT = 17 }; /* outputs whose weights no filter has */

struct row {
    uint32_t in;
    uint32_t out;
    enum resize_filter filter;
};

/* Of the row's pixels without their fourth bytes, which end where their memory does. */
static void compare_narrow(const struct resize_kernels *kernels, const struct resize_axis *axis,
                           const uint8_t *pixels, struct row row, const uint8_t *wanted)
{
    static uint8_t given[1 << 14];
    uint8_t *narrow = malloc((size_t)row.in * 3);

    assert_non_null(narrow);
    for (size_t i = 0; i < (size_t)row.in * 3; i++)
        narrow[i] = pixels[i / 3 * PICTURE_PIXEL + i % 3];
    if (kernels->across_narrow(axis, narrow, given)) {
        for (size_t i = 0; i < (size_t)row.out * PICTURE_PIXEL; i++) {
            if (i % PICTURE_PIXEL < 3 && wanted[i] != given[i])
                fail_msg("%s, narrow, filter %d: %u to %u: byte %zu is %u, not %u", kernels->name,
                         row.filter, row.in, row.out, i, given[i], wanted[i]);
        }
    } else {
        /* Four outputs want more than a register has, or weights are great. */
        assert_true(row.in > 4 * row.out || row.out == GREAT);
    }
    free(narrow);
}

/* What a kernel makes of a row, or of a column of rows, with weights as the resizer sets them. */
static void compare_kernels(struct resizer *resizer, const struct picture *noise, struct row row)
{
    static uint8_t wanted[1 << 14], given[1 << 14];
    const struct resize_kernels *kernels, *plain = NULL;

    for (unsigned i = 0; (kernels = resize_kernels_get(i)); i++)
        plain = kernels;
    struct resize_rows rows = {.pixels = noise->pixels, .height = row.in, .bytes = 4 * 19};
    for (unsigned i = 0; (kernels = resize_kernels_get(i)) != plain; i++) {
        if (kernels->set_across)
            assert_int_equal(kernels->set_across(&resizer->across, row.in), 0);
        plain->across(&resizer->across, noise->pixels, wanted);
        kernels->across(&resizer->across, noise->pixels, given);
        if (memcmp(wanted, given, (size_t)row.out * PICTURE_PIXEL) != 0)
            fail_msg("%s across, filter %d: %u to %u", kernels->name, row.filter, row.in, row.out);
        if (kernels->across_narrow)
            compare_narrow(kernels, &resizer->across, noise->pixels, row, wanted);
        for (uint32_t y = 0; y < row.out; y++) {
            plain->down(&resizer->across, y, &rows, wanted);
            kernels->down(&resizer->across, y, &rows, given);
            if (memcmp(wanted, given, rows.bytes) != 0)
                fail_msg("%s down, filter %d: %u to %u", kernels->name, row.filter, row.in,
                         row.out);
        }
    }
}

TEST(test_kernels)
{
    struct resizer resizer = {0};
    struct picture noise = {0}, out = {0};

    make_noise(&noise, (struct image_size){.height = 4500, .width = 19});
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        for (size_t f = 0; f < ARRAY_SIZE(filters); f++) {
            struct row row = {sizes[i][0], sizes[i][1], filters[f]};
            struct picture line = noise;
            line.size = (struct image_size){.height = 1, .width = row.in};
            assert_int_equal(
                resizer_run(&resizer, &line, (struct image_size){1, row.out}, row.filter, &out), 0);
            if (row.in != row.out)
                compare_kernels(&resizer, &noise, row);
        }
    }
    picture_deinit(&noise);
    picture_deinit(&out);
    resizer_deinit(&resizer);
}

/* Weights that three digits do not hold, and those just within: no filter here has them. */
TEST(test_great_weights)
{
    static const int32_t greatest[] = {127 * 65536 + 127 * 256 + 127, 127 * 65536 + 127 * 256 + 128,
                                       -128 * 65536 - 128 * 256 - 128};
    enum { WIDTH = 40 };
    struct resizer resizer = {0};
    struct picture noise = {0}, out = {0};

    make_noise(&noise, (struct image_size){.height = 64, .width = 19});
    for (size_t i = 0; i < ARRAY_SIZE(greatest); i++) {
        struct picture line = noise;
        line.size = (struct image_size){.height = 1, .width = WIDTH};
        assert_int_equal(
            resizer_run(&resizer, &line, (struct image_size){1, GREAT}, RESIZE_BILINEAR, &out), 0);
        for (size_t k = 0; k < GREAT; k++) {
            int32_t *weights = resizer.across.weights + k * resizer.across.taps;
            memset(weights, 0, resizer.across.taps * sizeof *weights);
            weights[k % resizer.across.count[k]] = greatest[i];
        }
        compare_kernels(&resizer, &noise, (struct row){WIDTH, GREAT, RESIZE_BILINEAR});
    }
    picture_deinit(&noise);
    picture_deinit(&out);
    resizer_deinit(&resizer);
}

/* ---- row by row -------------------------------------------------------------------------------
 */

static const struct rows_case {
    struct image_size in;
    struct image_size out;
    struct picture_part part;
    bool whole; /* Pillow has it the other way round */
} rows_cases[] = {
    {{50, 70}, {20, 30}, {0, 0, 50, 70}, false},    {{50, 70}, {20, 69}, {0, 0, 50, 70}, true},
    {{50, 70}, {20, 70}, {0, 0, 50, 70}, true},     {{50, 70}, {50, 30}, {0, 0, 50, 70}, false},
    {{50, 70}, {90, 130}, {0, 0, 50, 70}, false},   {{50, 70}, {50, 70}, {0, 0, 50, 70}, false},
    {{50, 70}, {60, 70}, {0, 0, 50, 70}, false},    {{50, 70}, {20, 30}, {.5, .25, 49, 69}, false},
    {{50, 70}, {50, 70}, {.5, .25, 49, 69}, false}, {{1, 1}, {9, 9}, {0, 0, 1, 1}, false},
};

static void assert_same_window(const struct picture *given, const struct picture *whole,
                               const struct picture_box *window)
{
    assert_int_equal(given->size.height, window->size.height);
    assert_int_equal(given->size.width, window->size.width);
    for (uint32_t y = 0; y < window->size.height; y++)
        for (uint32_t x = 0; x < window->size.width; x++) {
            const uint8_t *want = picture_row(whole, (uint32_t)window->top + y) +
                                  ((size_t)window->left + x) * PICTURE_PIXEL;
            assert_memory_equal(picture_row(given, y) + (size_t)x * PICTURE_PIXEL, want, 3);
        }
}

/* Row by row, or as a whole where it has to be. */
static void resize_rows(struct resizer *resizer, const struct resize_source *source,
                        const struct resize_goal *goal, const struct picture *in, bool whole,
                        struct picture *out)
{
    assert_int_equal(resizer_begin(resizer, source, goal), !whole);
    if (whole) {
        assert_int_equal(resizer_whole(resizer, in, out), 0);
        return;
    }
    for (uint32_t y = 0; y < in->size.height; y++)
        resizer_row(resizer, picture_row(in, y));
    assert_int_equal(resizer_end(resizer, out), 0);
}

TEST(test_rows)
{
    struct resizer one = {0}, other = {0};
    struct picture in = {0}, wanted = {0}, given = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows_cases); i++) {
        const struct rows_case *c = &rows_cases[i];
        const struct resize_source source = {c->in, c->in, c->part};
        make_noise(&in, c->in);
        for (enum resize_filter filter = RESIZE_BOX; filter <= RESIZE_LANCZOS; filter++) {
            struct resize_goal goal = resize_goal_of(c->out, filter);
            assert_int_equal(resizer_begin(&one, &source, &goal), !c->whole);
            assert_int_equal(resizer_whole(&one, &in, &wanted), 0);
            resize_rows(&other, &source, &goal, &in, c->whole, &given);
            assert_same_window(&given, &wanted, &goal.window);
            goal.window = (struct picture_box){
                c->out.height / 3, c->out.width / 4, {c->out.height / 2 + 1, c->out.width / 2 + 1}};
            resize_rows(&other, &source, &goal, &in, c->whole, &given);
            assert_same_window(&given, &wanted, &goal.window);
        }
    }
    picture_deinit(&in);
    picture_deinit(&wanted);
    picture_deinit(&given);
    resizer_deinit(&one);
    resizer_deinit(&other);
}

TEST(test_too_large)
{
    const struct image_size size = {1 << 15, 1 << 15};
    const struct resize_goal goal = resize_goal_of(size, RESIZE_BOX);
    struct resizer resizer = {0};

    assert_int_equal(resizer_begin(&resizer,
                                   &(struct resize_source){size, size, {0, 0, 1 << 15, 1 << 15}},
                                   &goal),
                     -EFBIG);
    resizer_deinit(&resizer);
}
