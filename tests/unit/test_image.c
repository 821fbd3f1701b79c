/* Decoding: partial against whole, faults of files, faults of specs, one decoder for many. */
#include "tests/lib/row.h"
#include "tests/unit/image_files.h"

#include <errno.h>

static struct image_decoder *decoder;

static int group_setup(void **state)
{
    return image_decoder_new(&decoder, NULL);
}

static int group_teardown(void **state)
{
    decoder = image_decoder_free(decoder);
    return 0;
}

static const struct spec_image as_it_is = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC};

static bool exact; /* files have to be */

static int decode_with(struct image_decoder *d, const struct spec_image *spec, const uint8_t *data,
                       size_t bytes, struct rng *rng, uint8_t **ret, struct image_size *ret_size,
                       struct dl_error *err)
{
    struct image_file file = {.data = data, .bytes = bytes, .path = "/some/file", .exact = exact};
    struct image_size source;
    int r;

    *ret = NULL;
    if ((r = image_open(d, &file, &source, err)) < 0)
        return r;
    *ret_size = image_result(spec, source);
    *ret = malloc((size_t)ret_size->height * ret_size->width * 3);
    assert_non_null(*ret);
    r = image_decode(d, spec, rng, *ret, err);
    if (r < 0) {
        free(*ret);
        *ret = NULL;
    }
    return r;
}

/* Of an image that is fine. The caller frees. */
static uint8_t *decoded(const struct spec_image *spec, const uint8_t *data, size_t bytes,
                        struct rng *rng, struct image_size *ret_size)
{
    struct dl_error err = {0};
    uint8_t *out;

    if (decode_with(decoder, spec, data, bytes, rng, &out, ret_size, &err) < 0)
        fail_msg("%s", err.message);
    return out;
}

static int refused(const struct spec_image *spec, const uint8_t *data, size_t bytes,
                   struct dl_error *err)
{
    /* Exactly as long as it claims, so that a sanitizer sees what is read behind it. */
    uint8_t *copy = malloc(bytes ? bytes : 1), *out;
    struct image_size size;
    struct rng rng;

    rng_init(&rng, 1, 2, 3);
    memcpy(copy, data, bytes);
    *err = (struct dl_error){0};
    int r = decode_with(decoder, spec, copy, bytes, &rng, &out, &size, err);
    free(out);
    free(copy);
    assert_int_equal(r, -err->code);
    if (r < 0)
        assert_string_equal(err->path, "/some/file");
    return -r;
}

/*
 * A part in the middle that is not scaled is that part of the whole image, to the byte, whatever
 * libjpeg leaves out. All widths: some begin where a block does, whose chroma needs its neighbour.
 */
static void check_windows(const uint8_t *data, size_t bytes)
{
    struct image_size whole_size, size;
    uint8_t *whole = decoded(&as_it_is, data, bytes, NULL, &whole_size);

    for (uint32_t h = 1; h <= whole_size.height; h += 1 + h / 2) {
        for (uint32_t w = 1; w <= whole_size.width; w += (uint32_t)harness_stride()) {
            struct spec_image spec = {.transform = TRANSFORM_CENTER_CROP,
                                      .layout = LAYOUT_HWC,
                                      .height = h,
                                      .width = w,
                                      .resize =
                                          (uint32_t)min_u64(whole_size.height, whole_size.width)};
            if (spec.resize < h || spec.resize < w)
                continue;
            struct image_crop crop;
            image_crop_choose(&spec, whole_size, NULL, &crop);
            assert_int_equal(crop.scaled.height, whole_size.height);
            uint8_t *out = decoded(&spec, data, bytes, NULL, &size);
            for (uint32_t y = 0; y < h; y++) {
                const uint8_t *want =
                    whole + ((size_t)(crop.top + y) * whole_size.width + crop.left) * 3;
                assert_memory_equal(out + (size_t)y * w * 3, want, (size_t)w * 3);
            }
            free(out);
        }
    }
    free(whole);
}

/* Files of the fuzzer's corpus, which Pillow wrote; behind two bytes of the fuzzer's own. */
static const char *const webps[] = {"webp_lossy",          "webp_lossless", "webp_alpha",
                                    "webp_lossless_alpha", "webp_animated", "webp_placed"};

static const char *const tiffs[] = {"tiff_strips",  "tiff_tiles",    "tiff_planes", "tiff_alpha",
                                    "tiff_palette", "tiff_deep",     "tiff_bits",   "tiff_cmyk",
                                    "tiff_lzw",     "tiff_packbits", "tiff_jpeg",   "tiff_zstd"};

static uint8_t *corpus(const char *name, size_t *ret)
{
    enum { HEAD = 2, ROOM = 1 << 16 };
    uint8_t *data = malloc(ROOM);
    char path[512];

    snprintf(path, sizeof path, IMAGE_CORPUS "/%s", name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, HEAD, file), HEAD);
    *ret = fread(data, 1, ROOM, file);
    fclose(file);
    assert_in_range(*ret, 1, ROOM - 1);
    return data;
}

TEST(test_windows_of_tiff)
{
    if (lacks_tiff())
        return;
    for (size_t i = 0; i < ARRAY_SIZE(tiffs); i++) {
        size_t bytes;
        uint8_t *data = corpus(tiffs[i], &bytes);
        check_windows(data, bytes);
        free(data);
    }
}

TEST(test_windows_of_webp)
{
    if (lacks_webp())
        return;
    for (size_t i = 0; i < ARRAY_SIZE(webps); i++) {
        size_t bytes;
        uint8_t *data = corpus(webps[i], &bytes);
        check_windows(data, bytes);
        free(data);
    }
}

TEST(test_windows)
{
    for (size_t i = 0; i < ARRAY_SIZE(jpeg_kinds); i++) {
        struct jpeg_options opt = jpeg_kinds[i];
        uint8_t *data;
        opt.height = 67;
        opt.width = 131;
        size_t bytes = make_jpeg(&opt, &data);
        check_windows(data, bytes);
        free(data);
    }
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        uint8_t *data;
        size_t bytes = make_png(41, 37, interlaced, &data);
        check_windows(data, bytes);
        free(data);
    }
}

/* Random boxes: the part that is decoded gives what all of it, resampled from there, would. */
TEST(test_random_boxes)
{
    struct spec_image spec = {.transform = TRANSFORM_RANDOM_CROP,
                              .layout = LAYOUT_CHW,
                              .height = 24,
                              .width = 18,
                              .flip = 0.5,
                              .scale = {0.001, 0.4},
                              .aspect = {0.2, 5}};

    for (size_t i = 0; i < ARRAY_SIZE(jpeg_kinds); i++) {
        struct jpeg_options opt = jpeg_kinds[i];
        uint8_t *data, *png;
        opt.height = 37;
        opt.width = 53; /* too small for libjpeg to reduce it */
        size_t bytes = make_jpeg(&opt, &data);
        struct image_size size;
        uint8_t *whole = decoded(&as_it_is, data, bytes, NULL, &size);
        struct png_output to = {0};
        png_image image = {.version = PNG_IMAGE_VERSION,
                           .width = size.width,
                           .height = size.height,
                           .format = PNG_FORMAT_RGB};
        png_alloc_size_t room = PNG_IMAGE_PNG_SIZE_MAX(image);
        to.data = malloc(room);
        assert_true(png_image_write_to_memory(&image, to.data, &room, 0, whole, 0, NULL));
        png = to.data;
        for (uint64_t n = 0; n < 300; n += harness_stride()) {
            struct rng a, b;
            rng_init(&a, 5, i, n);
            rng_init(&b, 5, i, n);
            uint8_t *part = decoded(&spec, data, bytes, &a, &size);
            uint8_t *want = decoded(&spec, png, room, &b, &size);
            assert_memory_equal(part, want, (size_t)size.height * size.width * 3);
            free(part);
            free(want);
        }
        free(whole);
        free(data);
        free(png);
    }
}

TEST(test_layouts_and_mirror)
{
    static const enum image_transform transforms[] = {TRANSFORM_NONE, TRANSFORM_RESIZE,
                                                      TRANSFORM_CENTER_CROP};
    uint8_t *data;
    size_t bytes = make_png(19, 23, false, &data);

    for (size_t i = 0; i < ARRAY_SIZE(transforms); i++) {
        struct spec_image spec = {
            .transform = transforms[i], .layout = LAYOUT_HWC, .height = 11, .width = 7};
        if (spec.transform == TRANSFORM_NONE)
            spec.height = spec.width = 0;
        struct image_size size;
        struct rng rng;
        uint8_t *plain = decoded(&spec, data, bytes, NULL, &size);
        spec.layout = LAYOUT_CHW;
        uint8_t *planar = decoded(&spec, data, bytes, NULL, &size);
        spec.flip = 1;
        rng_init(&rng, 0, 0, 0);
        uint8_t *mirrored = decoded(&spec, data, bytes, &rng, &size);
        for (size_t y = 0; y < size.height; y++) {
            for (size_t x = 0; x < size.width; x++) {
                for (size_t c = 0; c < 3; c++) {
                    size_t row = (c * size.height + y) * size.width;
                    uint8_t want = plain[(y * size.width + x) * 3 + c];
                    assert_int_equal(planar[row + x], want);
                    assert_int_equal(mirrored[row + size.width - 1 - x], want);
                }
            }
        }
        free(plain);
        free(planar);
        free(mirrored);
    }
    free(data);
}

/* The grey of Pillow's convert("L"), whichever way the rows came. */
static void expect_grey(const uint8_t *data, size_t bytes, enum image_transform transform)
{
    struct spec_image spec = {.transform = transform, .layout = LAYOUT_HWC, .flip = 1};
    struct image_size size, want_size;
    struct rng rng;

    if (transform != TRANSFORM_NONE)
        spec.height = 5, spec.width = 6, spec.resize = 9;
    rng_init(&rng, 0, 0, 0);
    uint8_t *rgb = decoded(&spec, data, bytes, &rng, &want_size);
    for (int planar = 0; planar < 2; planar++) {
        spec.grey = true;
        spec.layout = planar ? LAYOUT_CHW : LAYOUT_HWC;
        rng_init(&rng, 0, 0, 0);
        uint8_t *grey = decoded(&spec, data, bytes, &rng, &size);
        assert_true(size.height == want_size.height && size.width == want_size.width);
        for (size_t i = 0; i < (size_t)size.height * size.width; i++) {
            const uint8_t *p = rgb + 3 * i;
            int want = (int)((p[0] * 19595U + p[1] * 38470U + p[2] * 7471U + 0x8000) >> 16);
            /* Scaled after it is grey: one step. */
            assert_in_range(grey[i] + 1, want + (transform == TRANSFORM_NONE),
                            want + 1 + (transform != TRANSFORM_NONE));
        }
        free(grey);
    }
    free(rgb);
}

TEST(test_grey)
{
    static const enum image_transform transforms[] = {TRANSFORM_NONE, TRANSFORM_RESIZE,
                                                      TRANSFORM_CENTER_CROP};
    uint64_t shape[3];

    for (size_t k = 0; k < ARRAY_SIZE(jpeg_kinds) + 1; k++) {
        uint8_t *data;
        struct jpeg_options options = jpeg_kinds[k % ARRAY_SIZE(jpeg_kinds)];
        options.height = 19;
        options.width = 23;
        size_t bytes = k < ARRAY_SIZE(jpeg_kinds) ? make_jpeg(&options, &data)
                                                  : make_png(19, 23, false, &data);
        for (size_t i = 0; i < ARRAY_SIZE(transforms); i++)
            expect_grey(data, bytes, transforms[i]);
        free(data);
    }
    struct spec_image spec = as_it_is;
    spec.grey = true;
    image_shape(&spec, (struct image_size){.height = 7, .width = 9}, shape);
    assert_memory_equal(shape, ((uint64_t[]){7, 9, 1}), sizeof shape);
}

TEST(test_result_size)
{
    struct spec_image spec = {.transform = TRANSFORM_RESIZE, .height = 3, .width = 5};
    struct image_size source = {.height = 7, .width = 9}, size;
    uint64_t shape[3];

    size = image_result(&spec, source);
    assert_true(size.height == 3 && size.width == 5);
    spec.layout = LAYOUT_CHW;
    image_shape(&spec, size, shape);
    assert_memory_equal(shape, ((uint64_t[]){3, 3, 5}), sizeof shape);
    size = image_result(&as_it_is, source);
    assert_true(size.height == 7 && size.width == 9);
    image_shape(&as_it_is, size, shape);
    assert_memory_equal(shape, ((uint64_t[]){7, 9, 3}), sizeof shape);
}

/* ---- faults --------------------------------------------------------------------------------- */

TEST(test_no_image)
{
    struct dl_error err;

    assert_int_equal(refused(&as_it_is, (const uint8_t *)"", 0, &err), EINVAL);
    assert_error(&err, EINVAL, "/some/file",
                 "has 0 bytes, and is not an image; replace the file, or remove it");
    assert_int_equal(refused(&as_it_is, (const uint8_t *)"GIF89a__", 8, &err), EINVAL);
    assert_error(&err, EINVAL, "/some/file",
                 "is GIF, which is not supported; convert it to PNG, or remove it");
    assert_int_equal(refused(&as_it_is, (const uint8_t *)"<html>__", 8, &err), EINVAL);
    assert_error(
        &err, EINVAL, "/some/file",
        "is not an image of a known format: it begins with the bytes 3c 68 74 6d; convert it to "
        "JPEG, PNG, WebP or TIFF, or remove it");
    assert_int_equal(refused(&as_it_is, (const uint8_t *)"\xff\xd8\xff\xd9____", 8, &err), EINVAL);
    assert_error_has(&err, "the image is corrupt (");
}

static const struct spec_image top_left_part = {.transform = TRANSFORM_RANDOM_CROP,
                                                .height = 9,
                                                .width = 9,
                                                .layout = LAYOUT_HWC,
                                                .scale = {0.01, 0.02},
                                                .aspect = {1, 1}};

/* Cut anywhere, whatever part is wanted: an error in words, and the next image is fine. */
static void check_cuts(const uint8_t *data, size_t bytes, size_t step)
{
    struct dl_error err;

    for (size_t n = 0; n < bytes; n += step * harness_stride()) {
        assert_int_equal(refused(&as_it_is, data, n, &err), EINVAL);
        assert_int_equal(refused(&top_left_part, data, n, &err), EINVAL);
    }
    assert_int_equal(refused(&as_it_is, data, bytes - 1, &err), EINVAL);
    assert_error(&err, EINVAL, "/some/file",
                 "the image file is truncated: it ends before the image does; replace the file, "
                 "or remove it");
    assert_int_equal(refused(&as_it_is, data, bytes, &err), 0);
}

/* As PIL: read if the end alone is missing, and libjpeg did not look for more. */
static void check_cut_jpeg(const uint8_t *data, size_t bytes)
{
    enum { END = 10 };
    struct dl_error err;

    for (size_t n = 0; n + END < bytes; n += 7 * harness_stride()) {
        assert_int_equal(refused(&as_it_is, data, n, &err), EINVAL);
        assert_int_equal(refused(&top_left_part, data, n, &err), EINVAL);
    }
}

TEST(test_truncated)
{
    for (size_t i = 0; i < ARRAY_SIZE(jpeg_kinds); i++) {
        struct jpeg_options opt = jpeg_kinds[i];
        uint8_t *data;
        opt.height = 40;
        opt.width = 50;
        size_t bytes = make_jpeg(&opt, &data);
        exact = true;
        check_cuts(data, bytes, 7);
        exact = false;
        check_cut_jpeg(data, bytes);
        free(data);
    }
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        uint8_t *data;
        size_t bytes = make_png(20, 30, interlaced, &data);
        check_cuts(data, bytes, 3);
        free(data);
    }
}

/* Read, with grey or smooth parts; refused where pixels have to be those of any libjpeg-turbo. */
TEST(test_early_end)
{
    for (size_t i = 0; i < ARRAY_SIZE(jpeg_kinds); i++) {
        struct jpeg_options opt = jpeg_kinds[i];
        struct dl_error err;
        uint8_t *data;
        opt.height = 40;
        opt.width = 50;
        size_t bytes = make_jpeg(&opt, &data);
        uint8_t *scan = memmem(data, bytes, "\xff\xda", 2);
        uint8_t *next = memmem(scan, bytes - (size_t)(scan - data), "\xff\xc4", 2);
        uint8_t *end = next ? next : scan + (bytes - (size_t)(scan - data)) / 2;
        memcpy(end, "\xff\xd9", 2);
        bytes = (size_t)(end - data) + 2;
        assert_int_equal(refused(&as_it_is, data, bytes, &err), 0);
        assert_int_equal(refused(&top_left_part, data, bytes, &err), 0);
        exact = true;
        assert_int_equal(refused(&as_it_is, data, bytes, &err), EINVAL);
        assert_error_has(&err, "the image is corrupt (");
        if (opt.progressive)
            assert_error_has(&err, "(a progressive JPEG without all its scans)");
        exact = false;
        free(data);
    }
}

TEST(test_truncated_webp)
{
    if (lacks_webp())
        return;
    for (size_t i = 0; i < ARRAY_SIZE(webps); i++) {
        size_t bytes;
        uint8_t *data = corpus(webps[i], &bytes);
        check_cuts(data, bytes, 7);
        free(data);
    }
}

/* Cut anywhere, or any byte changed to anything: decoded or refused in words. What libtiff does not
 * need of the end may be missing. */
TEST(test_bad_tiff)
{
    struct dl_error err;

    if (lacks_tiff())
        return;
    for (size_t i = 0; i < ARRAY_SIZE(tiffs); i++) {
        size_t bytes, wrong = 0, tried = 0;
        uint8_t *data = corpus(tiffs[i], &bytes);
        for (size_t n = 0; n < bytes; n += 1 + bytes / 80, tried++)
            wrong += refused(&as_it_is, data, n, &err) != 0;
        if (wrong < tried * 9 / 10)
            fail_msg("%s: %zu of %zu cuts are refused", tiffs[i], wrong, tried);
        for (size_t at = 0; at < bytes; at += 1 + bytes / 250) {
            uint8_t was = data[at];
            data[at] = (uint8_t)(was ^ (1U << at % 8));
            struct image_file file = {.data = data, .bytes = bytes, .path = "/some/file"};
            struct image_size size;
            if (image_open(decoder, &file, &size, &err) == 0 &&
                (uint64_t)size.height * size.width < 1 << 20)
                (void)refused(&as_it_is, data, bytes, &err);
            data[at] = was;
        }
        assert_int_equal(refused(&as_it_is, data, bytes, &err), 0);
        free(data);
    }
}

/* Tags say how much is allocated: what the file's size does not justify is refused. */
TEST(test_bombs_of_tiff)
{
    size_t bytes;
    struct dl_error err;

    if (lacks_tiff())
        return;
    uint8_t *data = corpus("tiff_strips", &bytes);
    uint8_t *tag = memmem(data, bytes, "\x00\x01\x04\x00\x01\x00\x00\x00", 8);
    assert_non_null(tag);
    memcpy(tag + 8, "\xff\xff\xff\x7f", 4); /* the width */
    assert_int_equal(refused(&as_it_is, data, bytes, &err), EFBIG);
    assert_error_has(&err, "more than 1024 MiB when decoded");
    free(data);

    data = corpus("tiff_tiles", &bytes);
    tag = memmem(data, bytes, "\x42\x01\x04\x00\x01\x00\x00\x00", 8);
    assert_non_null(tag);
    memcpy(tag + 8, "\x00\x00\x01\x00", 4); /* a tile's width */
    assert_int_equal(refused(&as_it_is, data, bytes, &err), EINVAL);
    assert_error_has(&err, "its tiles are much larger than the picture");
    free(data);
}

/* A file of some bytes may claim any size: what is above the limit is not decoded, and a picture of
 * which there is next to nothing is no picture. */
TEST(test_bomb_of_webp)
{
    uint8_t data[] = "RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\xff\0\xff\xff\0";
    struct dl_error err;
    size_t bytes;

    if (lacks_webp())
        return;
    assert_int_equal(refused(&as_it_is, data, sizeof data - 1, &err), EINVAL);
    assert_error_has(&err, "the image is corrupt (its chunks do not form a WebP picture)");
    /* The canvas of an animation may be larger than its frames. */
    uint8_t *placed = corpus("webp_placed", &bytes);
    memcpy(placed + 24, "\x1f\x4e\0\x1f\x4e\0", 6);
    assert_int_equal(refused(&as_it_is, placed, bytes, &err), EFBIG);
    assert_error_has(&err, "is 20000 × 20000 pixels, more than 1024 MiB when decoded");
    free(placed);
}

/* Any byte changed to anything: decoded or refused, never more. */
TEST(test_corrupt)
{
    struct jpeg_options opt = {.height = 24, .width = 40, .components = 3, .h_samp = 2};
    struct dl_error err;
    unsigned wrong[4] = {0};

    for (int kind = 0; kind < (image_webp_is_built() ? 4 : 3); kind++) {
        uint8_t *data;
        size_t bytes;
        opt.progressive = kind == 1;
        if (kind < 3)
            bytes = kind < 2 ? make_jpeg(&opt, &data) : make_png(13, 17, false, &data);
        else
            data = corpus("webp_alpha", &bytes);
        for (size_t i = 0; i < bytes; i += harness_stride()) {
            uint8_t was = data[i];
            data[i] = (uint8_t)(was ^ (1U << i % 8));
            /* Sizes that grew cost time: those are test_bombs's. */
            struct image_file file = {.data = data, .bytes = bytes, .path = "/some/file"};
            struct image_size size;
            if (image_open(decoder, &file, &size, &err) < 0 ||
                ((uint64_t)size.height * size.width < 1 << 20 &&
                 refused(&as_it_is, data, bytes, &err) != 0))
                wrong[kind]++;
            data[i] = was;
        }
        assert_int_equal(refused(&as_it_is, data, bytes, &err), 0);
        free(data);
    }
    for (int kind = 0; kind < (image_webp_is_built() ? 4 : 3); kind++)
        assert_true(wrong[kind] > 20 / harness_stride());
}

static void put_u16(uint8_t *at, unsigned value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* The frame header of a JPEG: height and width stand 5 bytes after its marker. */
static uint8_t *frame_of(uint8_t *data, size_t bytes, uint8_t marker)
{
    uint8_t *frame = memmem(data, bytes, (uint8_t[]){0xff, marker}, 2);

    assert_non_null(frame);
    return frame;
}

TEST(test_bombs)
{
    struct jpeg_options opt = {.height = 16, .width = 16, .components = 3};
    struct dl_error err;
    uint8_t *data;
    size_t bytes = make_jpeg(&opt, &data);
    uint8_t *frame = frame_of(data, bytes, 0xc0);

    put_u16(frame + 5, 65500);
    put_u16(frame + 7, 65500);
    assert_int_equal(refused(&as_it_is, data, bytes, &err), EFBIG);
    assert_error(&err, EFBIG, "/some/file",
                 "is 65500 × 65500 pixels, more than 1024 MiB when decoded; scale it down");
    put_u16(frame + 7, 0);
    assert_int_equal(refused(&as_it_is, data, bytes, &err), EINVAL);
    free(data);

    /* All of its coefficients at once. */
    opt.progressive = true;
    bytes = make_jpeg(&opt, &data);
    frame = frame_of(data, bytes, 0xc2);
    put_u16(frame + 5, 16000);
    put_u16(frame + 7, 20000);
    assert_int_equal(refused(&top_left_part, data, bytes, &err), EFBIG);
    assert_error(&err, EFBIG, "/some/file",
                 "is a progressive JPEG that needs more than 1024 MiB to decode; make it smaller, "
                 "or store it as baseline JPEG");
    free(data);

    bytes = make_png(3, 3, false, &data);
    put_u16(data + 16, 1);
    put_u16(data + 20, 1);
    uint32_t crc = (uint32_t)crc32(crc32(0, NULL, 0), data + 12, 17);
    put_u16(data + 29, crc >> 16);
    put_u16(data + 31, crc & 0xffff);
    assert_int_equal(refused(&as_it_is, data, bytes, &err), EFBIG);
    assert_error_has(&err, "is 65539 × 65539 pixels, more than 1024 MiB when decoded");
    free(data);
}

/* Each scan costs a pass over all blocks. */
TEST(test_many_scans)
{
    struct jpeg_options opt = {.height = 64, .width = 64, .components = 3, .many_scans = true};
    struct dl_error err;
    uint8_t *data;
    size_t bytes = make_jpeg(&opt, &data);

    assert_int_equal(refused(&as_it_is, data, bytes, &err), EINVAL);
    assert_error(&err, EINVAL, "/some/file",
                 "the image is corrupt (more than 128 scans); replace the file, or remove it");
    free(data);
}

/* A file without tables must not be read with those of the file before it. */
TEST(test_tables_do_not_stay)
{
    struct jpeg_options plain = {.height = 40, .width = 40, .components = 3, .no_huffman = true};
    struct jpeg_options own = {
        .height = 40, .width = 40, .components = 1, .optimise = true, .quality = 30};
    struct image_size size;
    uint8_t *bare, *other, *want = NULL, *got = NULL;
    size_t bare_bytes = make_jpeg(&plain, &bare), other_bytes = make_jpeg(&own, &other);
    struct dl_error err = {0};
    struct image_decoder *fresh = NULL;

    assert_int_equal(image_decoder_new(&fresh, NULL), 0);
    int alone = decode_with(fresh, &as_it_is, bare, bare_bytes, NULL, &want, &size, &err);
    image_decoder_free(fresh);
    free(decoded(&as_it_is, other, other_bytes, NULL, &size));
    int after = decode_with(decoder, &as_it_is, bare, bare_bytes, NULL, &got, &size, &err);
    assert_int_equal(alone, after);
    if (alone == 0)
        assert_memory_equal(got, want, (size_t)size.height * size.width * 3);
    free(got);
    free(want);
    free(bare);
    free(other);
}

TEST(test_extra_bytes_are_no_fault)
{
    struct jpeg_options opt = {.height = 16, .width = 16, .components = 3};
    struct dl_error err;
    uint8_t *data;
    size_t bytes = make_jpeg(&opt, &data);
    uint8_t *longer = calloc(1, bytes + 50);

    /* Behind the end: cameras append previews. */
    memcpy(longer, data, bytes);
    assert_int_equal(refused(&as_it_is, longer, bytes + 50, &err), 0);
    /* Between two markers. */
    memcpy(longer, data, 2);
    memcpy(longer + 2, "\x12\x34\x56", 3);
    memcpy(longer + 5, data + 2, bytes - 2);
    assert_int_equal(refused(&as_it_is, longer, bytes + 3, &err), EINVAL); /* not at the start */
    free(longer);
    free(data);
}

/* ---- specs ---------------------------------------------------------------------------------- */

TEST(test_specs)
{
    static const struct {
        struct spec_image spec;
        const char *path; /* NULL: fine */
        const char *message;
    } table[] = {
        ROW({.transform = TRANSFORM_NONE}, NULL, NULL),
        ROW({.transform = TRANSFORM_RESIZE, .height = 1, .width = 65535}, NULL, NULL),
        ROW({.transform = TRANSFORM_CENTER_CROP, .height = 224, .width = 224}, NULL, NULL),
        ROW({.transform = TRANSFORM_CENTER_CROP, .height = 9, .width = 9, .resize = 9}, NULL, NULL),
        ROW({.transform = TRANSFORM_RANDOM_CROP,
             .height = 9,
             .width = 9,
             .scale = {0.08, 1},
             .aspect = {0.75, 1.5}},
            NULL, NULL),
        ROW({.transform = 0}, "dataset.transform", "is none, resize, center_crop or random_crop"),
        ROW({.transform = 9}, "dataset.transform", "is none, resize, center_crop or random_crop"),
        ROW({.transform = TRANSFORM_RESIZE, .height = 1}, "dataset.size",
            "is missing, or 0; a transform needs a size"),
        ROW({.transform = TRANSFORM_RESIZE, .height = 65535, .width = 65535}, "dataset.size",
            "is more than 1 GiB for one image; choose a smaller one"),
        ROW({.transform = TRANSFORM_CENTER_CROP, .height = 9, .width = 8, .resize = 8},
            "dataset.resize", "is smaller than the crop; choose a larger one"),
        ROW({.transform = TRANSFORM_NONE, .flip = 1.01}, "dataset.flip",
            "is a probability: between 0 and 1"),
        ROW({.transform = TRANSFORM_NONE, .flip = -1}, "dataset.flip",
            "is a probability: between 0 and 1"),
        ROW({.transform = TRANSFORM_RANDOM_CROP,
             .height = 9,
             .width = 9,
             .scale = {0, 1},
             .aspect = {1, 1}},
            "dataset.scale", "is two shares of the image's area: above 0, up to 1, smaller first"),
        ROW({.transform = TRANSFORM_RANDOM_CROP,
             .height = 9,
             .width = 9,
             .scale = {0.5, 1.5},
             .aspect = {1, 1}},
            "dataset.scale", "is two shares of the image's area: above 0, up to 1, smaller first"),
        ROW({.transform = TRANSFORM_RANDOM_CROP,
             .height = 9,
             .width = 9,
             .scale = {0.5, 1},
             .aspect = {2, 1}},
            "dataset.aspect", "is two ratios of width to height: above 0, smaller first"),
    };

    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct dl_error err = {0};
        int r = image_check_spec(&table[i].spec, "dataset", &err);
        assert_int_equal(r, table[i].path ? -EINVAL : 0);
        if (table[i].path)
            assert_error(&err, EINVAL, table[i].path, table[i].message);
    }
}

/* Images of one line or column, scaled to anything. */
TEST(test_thin)
{
    static const struct image_size sizes[] = {{1, 1}, {1, 300}, {300, 1}, {2, 3}};
    static const uint32_t results[] = {1, 2, 7, 100};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        uint8_t *data;
        struct jpeg_options opt = {.height = sizes[i].height,
                                   .width = sizes[i].width,
                                   .components = 3,
                                   .h_samp = 2,
                                   .v_samp = 2};
        size_t bytes = make_jpeg(&opt, &data);
        for (size_t j = 0; j < ARRAY_SIZE(results) * ARRAY_SIZE(results); j++) {
            for (int t = TRANSFORM_RESIZE; t <= TRANSFORM_RANDOM_CROP; t++) {
                struct spec_image spec = {.transform = (enum image_transform)t,
                                          .layout = j % 2 ? LAYOUT_CHW : LAYOUT_HWC,
                                          .height = results[j % 4],
                                          .width = results[j / 4],
                                          .scale = {0.08, 1},
                                          .aspect = {0.75, 1.33}};
                struct image_size size;
                struct rng rng;
                rng_init(&rng, j, 0, 0);
                free(decoded(&spec, data, bytes, &rng, &size));
            }
        }
        free(data);
    }
}

TEST_GROUP(group_setup, group_teardown)
