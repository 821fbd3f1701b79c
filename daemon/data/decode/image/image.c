/* Decoding and resampling, row by row. */
#include "daemon/data/decode/image/image.h"
#include "daemon/data/base/place.h"
#include "daemon/data/decode/image/pixel_rows.h"
#include "daemon/data/decode/resize/resample.h"

#include <assert.h>
#include <errno.h>

/*
 * How much larger than the result an image reduced by the inverse DCT must be: with less, the box
 * filter that the DCT is shows. tests/unit/image_pil.py has the difference in figures.
 */
static const double reduce_gap = 1.5;

struct image_decoder {
    struct image_codec *codecs[IMAGE_CODECS_MAX]; /* owned; NULL behind the last */
    struct image_codec *codec; /* of the image that is open; NULL: none is, or it is `open` */
    struct image_pixels open;  /* pixels NULL: none are */
    struct image_file file;
    struct image_size source;
    struct resample_axis across, down;
    struct resample_ring ring;
    uint8_t *row_memory; /* owned */
    uint8_t *row;        /* one row as the codec gives it */
    size_t row_room;
};

int image_check_size(struct image_size size, const char *path, struct dl_error *err)
{
    if (size.height == 0 || size.width == 0)
        return image_refuse_corrupt(path, "it has no pixels", err);
    if ((uint64_t)size.height * size.width > IMAGE_BYTES_MAX / PICTURE_COLOURS)
        return dl_error_set(err, EFBIG, path,
                            "is %u × %u pixels, more than %llu MiB when decoded; scale it down",
                            size.width, size.height, (unsigned long long)IMAGE_BYTES_MAX >> 20);
    return 0;
}

int image_refuse_corrupt(const char *path, const char *why, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, path,
                        "the image is corrupt (%s); replace the file, or remove it", why);
}

int image_refuse_truncated(const char *path, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, path,
                        "the image file is truncated: it ends before the image does; replace "
                        "the file, or remove it");
}

/* ---- the decoder ---------------------------------------------------------------------------- */

int image_decoder_new(struct image_decoder **ret, struct dl_error *err)
{
    struct image_decoder *d = calloc(1, sizeof *d);

    if (!d || !image_codecs_new(d->codecs)) {
        image_decoder_free(d);
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    }
    *ret = d;
    return 0;
}

struct image_decoder *image_decoder_free(struct image_decoder *d)
{
    if (!d)
        return NULL;
    for (unsigned i = 0; i < ARRAY_SIZE(d->codecs); i++) {
        if (d->codecs[i])
            d->codecs[i]->ops->free(d->codecs[i]);
    }
    resample_axis_deinit(&d->across);
    resample_axis_deinit(&d->down);
    resample_ring_deinit(&d->ring);
    free(d->row_memory);
    free(d);
    return NULL;
}

int image_open(struct image_decoder *d, const struct image_file *file, struct image_size *ret,
               struct dl_error *err)
{
    d->codec = NULL;
    d->open.pixels = NULL;
    d->file = *file;
    for (unsigned i = 0; i < ARRAY_SIZE(d->codecs); i++) {
        struct image_codec *codec = d->codecs[i];
        if (!codec || !codec->ops->knows(file))
            continue;
        int r = codec->ops->open(codec, file, &d->source, err);
        if (r < 0)
            return r;
        d->codec = codec;
        *ret = d->source;
        return 0;
    }
    return image_refuse_unknown(file, err);
}

void image_open_pixels(struct image_decoder *d, const struct image_pixels *pixels)
{
    assert(pixels->step == PICTURE_COLOURS || pixels->step == PICTURE_PIXEL);
    d->codec = NULL;
    d->open = *pixels;
    d->source = pixels->size;
}

/* ---- the spec ------------------------------------------------------------------------------- */

struct image_size image_result(const struct spec_image *spec, struct image_size source)
{
    if (spec->transform == TRANSFORM_NONE)
        return source;
    return (struct image_size){.height = spec->height, .width = spec->width};
}

void image_shape(const struct spec_image *spec, struct image_size size, uint64_t ret[static 3])
{
    bool chw = spec->layout == LAYOUT_CHW;

    ret[0] = chw ? PICTURE_COLOURS : size.height;
    ret[1] = chw ? size.height : size.width;
    ret[2] = chw ? size.width : PICTURE_COLOURS;
}

/* Compared so that NaN is refused, too. */
static bool image_range_is_sound(const double range[static 2], double most)
{
    return range[0] > 0 && range[0] <= range[1] && range[1] <= most;
}

int image_check_spec(const struct spec_image *spec, const char *place, struct dl_error *err)
{
    const double widest = 1e6;
    const char *key = NULL, *why = "";
    char path[DL_ERROR_PATH_MAX];

    if (spec->transform < TRANSFORM_NONE || spec->transform > TRANSFORM_RANDOM_CROP)
        key = "transform", why = "is none, resize, center_crop or random_crop";
    else if (spec->transform != TRANSFORM_NONE && (spec->height == 0 || spec->width == 0))
        key = "size", why = "is missing, or 0; a transform needs a size";
    else if (image_result(spec, (struct image_size){1, 1}).height >
             IMAGE_BYTES_MAX / PICTURE_COLOURS / max_u64(spec->width, 1))
        key = "size", why = "is more than 1 GiB for one image; choose a smaller one";
    else if (spec->transform == TRANSFORM_CENTER_CROP &&
             image_resize_of(spec) < max_u64(spec->height, spec->width))
        key = "resize", why = "is smaller than the crop; choose a larger one";
    else if (!(spec->flip >= 0 && spec->flip <= 1))
        key = "flip", why = "is a probability: between 0 and 1";
    else if (spec->transform == TRANSFORM_RANDOM_CROP && !image_range_is_sound(spec->scale, 1))
        key = "scale", why = "is two shares of the image's area: above 0, up to 1, smaller first";
    else if (spec->transform == TRANSFORM_RANDOM_CROP &&
             !image_range_is_sound(spec->aspect, widest))
        key = "aspect", why = "is two ratios of width to height: above 0, smaller first";
    if (!key)
        return 0;
    place_key(path, place, key);
    return dl_error_set(err, EINVAL, path, "%s", why);
}

/* ---- decoding ------------------------------------------------------------------------------- */

static int image_no_memory(const struct image_decoder *d, struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, d->file.path, "out of memory for decoding it");
}

/* The factor by which the codec may reduce the image itself. */
static uint32_t image_choose_reduction(const struct image_crop *crop, uint32_t most)
{
    double gap_h = crop->scaled.height * reduce_gap, gap_w = crop->scaled.width * reduce_gap;
    uint32_t reduce = most;

    while (reduce > 1 && (crop->box.height < gap_h * reduce || crop->box.width < gap_w * reduce))
        reduce /= 2;
    return reduce;
}

static struct resample_span image_span_of(uint32_t box_first, uint32_t box_n, uint32_t reduce)
{
    return (struct resample_span){
        .begin = (double)box_first / reduce,
        .length = (double)box_n / reduce,
        .low = box_first / reduce,
        .high = (uint32_t)(((uint64_t)box_first + box_n + reduce - 1) / reduce),
    };
}

/* The weights of both directions, and the window of the image that they are about. */
static int image_plan(struct image_decoder *d, const struct image_crop *crop,
                      struct image_window *ret)
{
    uint32_t reduce = image_choose_reduction(crop, d->codec->ops->most_reduced);
    struct resample_span across = image_span_of(crop->box_left, crop->box.width, reduce);
    struct resample_span down = image_span_of(crop->box_top, crop->box.height, reduce);
    int r;

    across.outputs = crop->scaled.width;
    across.first = crop->left;
    across.n = crop->size.width;
    across.mirror = crop->mirror;
    down.outputs = crop->scaled.height;
    down.first = crop->top;
    down.n = crop->size.height;
    if ((r = resample_axis_set(&d->across, &across)) < 0 ||
        (r = resample_axis_set(&d->down, &down)) < 0 ||
        (r = resample_ring_set(&d->ring, &d->down, (size_t)across.n * PICTURE_COLOURS)) < 0)
        return r;
    *ret = (struct image_window){
        .reduce = reduce,
        .left = d->across.begin,
        .right = d->across.end,
        .top = d->down.begin,
        .bottom = d->down.end,
    };
    return 0;
}

/*
 * Room for one row of the codec's, and for what is read behind it. It is not aligned: libjpeg-turbo
 * writes aligned rows past the cache, and reading them back cost more than decoding them.
 */
static int image_make_row(struct image_decoder *d, uint32_t pixels, uint32_t taps)
{
    enum { OFF_ALIGNMENT = 8 };
    size_t bytes = ((size_t)pixels + taps) * PICTURE_PIXEL + PICTURE_SLACK + OFF_ALIGNMENT;

    if (bytes <= d->row_room)
        return 0;
    free(d->row_memory);
    d->row_memory = calloc(1, bytes);
    d->row_room = d->row_memory ? bytes : 0;
    if (!d->row_memory)
        return -ENOMEM;
    d->row = d->row_memory + OFF_ALIGNMENT;
    return 0;
}

/* Output row `i`, of which all input is there. */
static void image_put_row(const struct image_decoder *d, const struct image_crop *crop, uint32_t i,
                          bool planar, uint8_t *out)
{
    size_t w = crop->size.width, plane = w * crop->size.height;

    if (!planar) {
        resample_down(&d->down, i, &d->ring, 0, w * PICTURE_COLOURS, out + i * w * PICTURE_COLOURS);
        return;
    }
    for (size_t c = 0; c < PICTURE_COLOURS; c++)
        resample_down(&d->down, i, &d->ring, c * w, w, out + c * plane + i * w);
}

static int image_decode_scaled(struct image_decoder *d, const struct image_crop *crop, bool planar,
                               uint8_t *out, struct dl_error *err)
{
    const struct image_codec_ops *ops = d->codec->ops;
    struct image_window window;
    struct image_rows rows;
    uint32_t made = 0;
    int r;

    if (image_plan(d, crop, &window) < 0)
        return image_no_memory(d, err);
    if ((r = ops->begin(d->codec, &window, &rows, err)) < 0)
        return r;
    if (image_make_row(d, rows.pixels, d->across.most) < 0)
        return image_no_memory(d, err);
    for (uint32_t y = window.top; y < window.bottom; y++) {
        if ((r = ops->row(d->codec, d->row, err)) < 0)
            return r;
        resample_across(&d->across, d->row, rows.origin, planar, resample_ring_row(&d->ring, y));
        for (; made < crop->size.height && d->down.from[made] + d->down.count[made] <= y + 1;
             made++)
            image_put_row(d, crop, made, planar, out);
    }
    assert(made == crop->size.height);
    return ops->end(d->codec, err);
}

/* One row as it is, from four bytes a pixel to three, or to three planes. */
static void image_copy_row(const struct image_crop *crop, const uint8_t *row, bool planar,
                           uint32_t y, uint8_t *out)
{
    size_t w = crop->size.width, plane = planar ? w * crop->size.height : 1;
    size_t step = planar ? 1 : PICTURE_COLOURS;
    uint8_t *to = out + y * w * step;

    for (size_t x = 0; x < w; x++, to += step) {
        const uint8_t *p = row + (crop->mirror ? w - 1 - x : x) * PICTURE_PIXEL;
        to[0] = p[0];
        to[plane] = p[1];
        to[2 * plane] = p[2];
    }
}

static int image_decode_whole(struct image_decoder *d, const struct image_crop *crop, bool planar,
                              uint8_t *out, struct dl_error *err)
{
    const struct image_codec_ops *ops = d->codec->ops;
    struct image_window window = {
        .reduce = 1, .right = crop->box.width, .bottom = crop->box.height};
    struct image_rows rows;
    int r;

    if ((r = ops->begin(d->codec, &window, &rows, err)) < 0)
        return r;
    if (image_make_row(d, rows.pixels, 0) < 0)
        return image_no_memory(d, err);
    for (uint32_t y = 0; y < crop->box.height; y++) {
        if ((r = ops->row(d->codec, d->row, err)) < 0)
            return r;
        image_copy_row(crop, d->row, planar, y, out);
    }
    return ops->end(d->codec, err);
}

int image_decode(struct image_decoder *d, const struct spec_image *spec, struct rng *rng,
                 uint8_t *out, struct dl_error *err)
{
    bool planar = spec->layout == LAYOUT_CHW;
    struct image_crop crop;
    int r;

    assert(d->codec);
    image_crop_choose(spec, d->source, rng, &crop);
    if (spec->transform == TRANSFORM_NONE)
        r = image_decode_whole(d, &crop, planar, out, err);
    else
        r = image_decode_scaled(d, &crop, planar, out, err);
    d->codec = NULL;
    return r;
}

/* ---- pictures ---------------------------------------------------------------------------------
 */

struct image_size image_source(const struct image_decoder *d)
{
    return d->source;
}

/*
 * Rows that are decoded above the box and dropped: chroma is smoothed from the rows beside it,
 * which libjpeg does not have of those that it skips.
 */
static uint32_t image_rows_above(const struct picture_box *box)
{
    enum { ABOVE = 4 };

    return (uint32_t)min_u64((uint64_t)box->top, ABOVE);
}

static int image_decode_rows(struct image_decoder *d, const struct picture_box *box,
                             uint32_t origin, const struct image_sink *sink, struct dl_error *err)
{
    const struct image_codec_ops *ops = d->codec->ops;
    size_t from = ((size_t)box->left - origin) * PICTURE_PIXEL;
    int r = 0;

    for (uint32_t n = image_rows_above(box); r == 0 && n > 0; n--)
        r = ops->row(d->codec, d->row, err);
    for (uint32_t y = 0; r == 0 && y < box->size.height; y++) {
        if ((r = ops->row(d->codec, d->row, err)) == 0)
            sink->row(sink->to, d->row + from);
    }
    return r < 0 ? r : ops->end(d->codec, err);
}

/* Kept pictures are more than the caches hold: rows come while those before are worked on. */
static void image_expect(const uint8_t *row, size_t bytes)
{
    enum { LINE = 64, READ = 0, NEAR = 2 };

    for (size_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch(row + at, READ, NEAR);
}

/* A row of four bytes a pixel is copied, too: one that ends the memory has nothing behind it. */
static void image_give_row(const struct image_decoder *d, const uint8_t *row, size_t n,
                           const struct image_sink *sink)
{
    bool narrow = d->open.step == PICTURE_COLOURS;

    if (narrow && sink->narrow_row && sink->narrow_row(sink->to, row))
        return;
    if (narrow)
        pixel_rows_widen(row, n, d->row);
    else
        memcpy(d->row, row, n * PICTURE_PIXEL);
    sink->row(sink->to, d->row);
}

static int image_copy_pixels(struct image_decoder *d, const struct picture_box *box,
                             const struct image_sink *sink, struct dl_error *err)
{
    enum { AHEAD = 2 };
    const struct image_pixels *from = &d->open;

    if (image_make_row(d, box->size.width, 0) < 0)
        return image_no_memory(d, err);
    for (uint32_t y = 0; y < box->size.height; y++) {
        size_t at = ((size_t)box->top + y) * from->size.width + (size_t)box->left;
        const uint8_t *row = from->pixels + at * from->step;
        if (y + AHEAD < box->size.height)
            image_expect(row + (size_t)from->size.width * from->step * AHEAD,
                         (size_t)box->size.width * from->step);
        image_give_row(d, row, box->size.width, sink);
    }
    d->open.pixels = NULL;
    return 0;
}

int image_decode_part(struct image_decoder *d, const struct image_part *part,
                      const struct image_sink *sink, struct dl_error *err)
{
    const struct picture_box *box = &part->box;
    struct image_window window = {
        .reduce = part->reduce,
        .left = (uint32_t)box->left,
        .right = (uint32_t)box->left + box->size.width,
        .top = (uint32_t)box->top - image_rows_above(box),
        .bottom = (uint32_t)box->top + box->size.height,
        .clip_grey = true,
    };
    struct image_rows rows;
    int r;

    assert(d->codec || d->open.pixels);
    if (d->open.pixels)
        return image_copy_pixels(d, box, sink, err);
    if ((r = d->codec->ops->begin(d->codec, &window, &rows, err)) < 0)
        return r;
    if (image_make_row(d, rows.pixels, 0) < 0)
        return image_no_memory(d, err);
    r = image_decode_rows(d, box, rows.origin, sink, err);
    d->codec = NULL;
    return r;
}

/* A picture that is filled row by row. */
struct image_filling {
    struct picture *out;
    uint32_t next;
};

static void image_fill_row(void *to, const uint8_t *row)
{
    struct image_filling *filling = to;

    memcpy(picture_row(filling->out, filling->next++), row,
           (size_t)filling->out->size.width * PICTURE_PIXEL);
}

int image_decode_into(struct image_decoder *d, const struct image_part *part, struct picture *out,
                      struct dl_error *err)
{
    struct image_filling filling = {.out = out};

    if (picture_set(out, part->box.size, false) < 0)
        return image_no_memory(d, err);
    return image_decode_part(d, part, &(struct image_sink){.row = image_fill_row, .to = &filling},
                             err);
}

void image_choose_part(const struct image_decoder *d, const struct picture_box *box,
                       const struct image_size *goal, struct image_part *ret)
{
    struct image_crop crop = {.box = box->size, .scaled = goal ? *goal : box->size};
    uint32_t most = goal && d->codec ? d->codec->ops->most_reduced : 1;
    uint32_t reduce = image_choose_reduction(&crop, most);
    struct resample_span across = image_span_of((uint32_t)box->left, box->size.width, reduce);
    struct resample_span down = image_span_of((uint32_t)box->top, box->size.height, reduce);

    assert((uint64_t)box->left + box->size.width <= d->source.width &&
           (uint64_t)box->top + box->size.height <= d->source.height);
    *ret = (struct image_part){
        .reduce = reduce,
        .box = {.top = down.low,
                .left = across.low,
                .size = {down.high - down.low, across.high - across.low}},
        .within = {.top = down.begin - down.low,
                   .left = across.begin - across.low,
                   .height = down.length,
                   .width = across.length},
    };
}

int image_decode_picture(struct image_decoder *d, const struct picture_box *box,
                         struct picture *out, struct dl_error *err)
{
    struct image_part part;

    image_choose_part(d, box, NULL, &part);
    return image_decode_into(d, &part, out, err);
}
