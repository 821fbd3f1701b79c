/* Decoding and resampling, row by row. */
#include "daemon/data/decode/image/image.h"
#include "daemon/data/base/place.h"
#include "daemon/data/decode/image/colour.h"
#include "daemon/data/decode/image/pixel_rows.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

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
    bool clip_grey; /* struct image_window */
    bool grey;      /* rows are made grey before they are used */
    struct resizer resizer;
    struct picture whole; /* where rows are not resized as they come */
    struct picture made;  /* what the spec wants */
    uint8_t *row_memory;  /* owned */
    uint8_t *row;         /* one row as the codec gives it */
    size_t row_room;
};

int image_check_size(struct image_size size, const char *path, struct dl_error *err)
{
    if (size.height == 0 || size.width == 0)
        return image_refuse_corrupt(path, "it has no pixels", err);
    if ((uint64_t)size.height * size.width > IMAGE_BYTES_MAX / PICTURE_COLOURS)
        return dl_error_set(err, EFBIG, path,
                            "is %u × %u pixels, more than %llu MiB when decoded; scale it down",
                            size.width, size.height, (ull)IMAGE_BYTES_MAX >> 20);
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
    resizer_deinit(&d->resizer);
    picture_deinit(&d->whole);
    picture_deinit(&d->made);
    free(d->row_memory);
    free(d);
    return NULL;
}

int image_open(struct image_decoder *d, const struct image_file *file, struct image_size *ret,
               struct dl_error *err)
{
    d->codec = NULL;
    d->open.pixels = NULL;
    d->clip_grey = true;
    d->grey = false;
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
    assert(pixels->step == 1 || pixels->step == PICTURE_COLOURS || pixels->step == PICTURE_PIXEL);
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

    ret[0] = chw ? image_channels(spec) : size.height;
    ret[1] = chw ? size.height : size.width;
    ret[2] = chw ? size.width : image_channels(spec);
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

/*
 * Room for one row of the codec's, and for what is read behind it. It is not aligned: libjpeg-turbo
 * writes aligned rows past the cache, and reading them back cost more than decoding them.
 */
static int image_make_row(struct image_decoder *d, uint32_t pixels)
{
    enum { OFF_ALIGNMENT = 8 };
    size_t bytes = (size_t)pixels * PICTURE_PIXEL + PICTURE_SLACK + OFF_ALIGNMENT;

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

/* A row of four bytes a pixel. */
static void image_use_row(const struct image_decoder *d, const struct image_sink *sink,
                          uint8_t *row, size_t n)
{
    if (d->grey)
        colour_grey_row(row, n);
    sink->row(sink->to, row);
}

static int image_decode_rows(struct image_decoder *d, const struct picture_box *box,
                             const struct image_rows *rows, const struct image_sink *sink,
                             struct dl_error *err)
{
    const struct image_codec_ops *ops = d->codec->ops;
    size_t from = ((size_t)box->left - rows->origin) * (rows->grey ? 1 : PICTURE_PIXEL);
    int r = 0;

    for (uint32_t n = image_rows_above(box); r == 0 && n > 0; n--)
        r = ops->row(d->codec, d->row, err);
    for (uint32_t y = 0; r == 0 && y < box->size.height; y++) {
        if ((r = ops->row(d->codec, d->row, err)) < 0)
            break;
        if (rows->grey)
            sink->grey_row(sink->to, d->row + from);
        else
            image_use_row(d, sink, d->row + from, box->size.width);
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
    else if (d->open.step == 1)
        pixel_rows_spread(row, n, d->row);
    else
        memcpy(d->row, row, n * PICTURE_PIXEL);
    sink->row(sink->to, d->row);
}

static int image_copy_pixels(struct image_decoder *d, const struct picture_box *box,
                             const struct image_sink *sink, struct dl_error *err)
{
    enum { AHEAD = 2 };
    const struct image_pixels *from = &d->open;

    if (image_make_row(d, box->size.width) < 0)
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
        .grey = sink->grey_row != NULL,
        .clip_grey = d->clip_grey,
    };
    struct image_rows rows;
    int r;

    assert(d->codec || d->open.pixels);
    if (d->open.pixels)
        return image_copy_pixels(d, box, sink, err);
    if ((r = d->codec->ops->begin(d->codec, &window, &rows, err)) < 0)
        return r;
    if (image_make_row(d, rows.pixels) < 0)
        return image_no_memory(d, err);
    r = image_decode_rows(d, box, &rows, sink, err);
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

/* The factor by which the codec may reduce the image itself. */
static uint32_t image_choose_reduction(struct image_size box, struct image_size goal, uint32_t most)
{
    double gap_h = goal.height * reduce_gap, gap_w = goal.width * reduce_gap;
    uint32_t reduce = most;

    while (reduce > 1 && (box.height < gap_h * reduce || box.width < gap_w * reduce))
        reduce /= 2;
    return reduce;
}

/* One direction of a part: of inputs [low, high), which the box has, those that are decoded. */
struct image_span {
    double begin, length; /* of the box */
    uint32_t low, high;
};

static struct image_span image_span_of(int64_t first, uint32_t n, uint32_t reduce)
{
    uint64_t begin = (uint64_t)first;

    return (struct image_span){.begin = (double)begin / reduce,
                               .length = (double)n / reduce,
                               .low = (uint32_t)(begin / reduce),
                               .high = (uint32_t)((begin + n + reduce - 1) / reduce)};
}

/* Outputs [first, first + n) of `outputs` alone, by a filter that reaches at most so far: what has
 * no weight in them goes. */
static void image_span_narrow(struct image_span *span, uint32_t outputs, int64_t first, uint32_t n)
{
    double step = span->length / outputs;
    double reach = RESIZE_REACH * (step < 1 ? 1 : step) + 1;
    double low = floor(span->begin + (double)first * step - reach);
    double high = ceil(span->begin + (double)(first + n) * step + reach);

    if (low > span->low)
        span->low = (uint32_t)low;
    if (high < span->high)
        span->high = (uint32_t)high;
}

void image_choose_part(const struct image_decoder *d, const struct picture_box *box,
                       const struct resize_goal *goal, bool reduced, struct image_part *ret)
{
    uint32_t reduce = reduced && d->codec ? image_choose_reduction(box->size, goal->whole,
                                                                   d->codec->ops->most_reduced)
                                          : 1;
    struct image_span across = image_span_of(box->left, box->size.width, reduce);
    struct image_span down = image_span_of(box->top, box->size.height, reduce);
    struct image_size of = {down.high - down.low, across.high - across.low};

    assert((uint64_t)box->left + box->size.width <= d->source.width &&
           (uint64_t)box->top + box->size.height <= d->source.height);
    if (goal) {
        const struct picture_box *window = &goal->window;
        image_span_narrow(&across, goal->whole.width, window->left, window->size.width);
        image_span_narrow(&down, goal->whole.height, window->top, window->size.height);
    }
    struct image_size in = {down.high - down.low, across.high - across.low};
    *ret = (struct image_part){.reduce = reduce,
                               .box = {.top = down.low, .left = across.low, .size = in},
                               .within = {.of = of,
                                          .in = in,
                                          .part = {.top = down.begin - down.low,
                                                   .left = across.begin - across.low,
                                                   .height = down.length,
                                                   .width = across.length}}};
}

static void image_resize_row(void *to, const uint8_t *row)
{
    resizer_row(to, row);
}

static bool image_resize_narrow_row(void *to, const uint8_t *row)
{
    return resizer_narrow_row(to, row);
}

static int image_say_resized(const struct image_decoder *d, int r, struct dl_error *err)
{
    if (r != -EFBIG)
        return image_no_memory(d, err);
    return dl_error_set(err, EFBIG, d->file.path,
                        "would grow to more than %llu MiB when it is resized; scale it down",
                        (ull)IMAGE_BYTES_MAX >> 20);
}

/* Rows are resized as they are decoded, where Pillow begins with that; else it is one after the
 * other. */
int image_decode_resized(struct image_decoder *d, const struct picture_box *box,
                         const struct resize_goal *goal, bool reduced, struct picture *out,
                         struct dl_error *err)
{
    const struct image_sink sink = {
        .row = image_resize_row, .narrow_row = image_resize_narrow_row, .to = &d->resizer};
    struct image_part part;

    image_choose_part(d, box, goal, reduced, &part);
    int r = resizer_begin(&d->resizer, &part.within, goal);
    if (r < 0)
        return image_say_resized(d, r, err);
    bool by_rows = r > 0;
    r = by_rows ? image_decode_part(d, &part, &sink, err)
                : image_decode_into(d, &part, &d->whole, err);
    if (r < 0)
        return r;
    r = by_rows ? resizer_end(&d->resizer, out) : resizer_whole(&d->resizer, &d->whole, out);
    return r < 0 ? image_say_resized(d, r, err) : 0;
}

int image_decode_picture(struct image_decoder *d, const struct picture_box *box,
                         struct picture *out, struct dl_error *err)
{
    struct image_part part;

    image_choose_part(d, box, NULL, false, &part);
    return image_decode_into(d, &part, out, err);
}

/* ---- what a spec wants --------------------------------------------------------------------------
 */

/* A result that is written row by row: its shape is the crop's. */
struct image_putting {
    const struct image_crop *crop;
    bool planar;
    bool grey;
    uint8_t *out;
    uint32_t y;
};

/* From `step` bytes a pixel, of which the first counts, to one. */
static void image_put_channel(struct image_putting *putting, const uint8_t *row, size_t step)
{
    const struct image_crop *crop = putting->crop;
    size_t w = crop->size.width;
    uint8_t *out = putting->out + putting->y++ * w;

    if (step == 1 && !crop->mirror) {
        memcpy(out, row, w);
        return;
    }
    for (size_t x = 0; x < w; x++)
        out[x] = row[(crop->mirror ? w - 1 - x : x) * step];
}

static void image_put_grey_row(void *to, const uint8_t *row)
{
    image_put_channel(to, row, 1);
}

/* From four bytes a pixel to one, to three, or to three planes. */
static void image_put_row(void *to, const uint8_t *row)
{
    struct image_putting *putting = to;
    const struct image_crop *crop = putting->crop;
    size_t w = crop->size.width, plane = putting->planar ? w * crop->size.height : 1;
    size_t step = putting->planar ? 1 : PICTURE_COLOURS;
    if (putting->grey) {
        image_put_channel(putting, row, PICTURE_PIXEL);
        return;
    }
    uint8_t *out = putting->out + putting->y++ * w * step;
    if (!putting->planar && !crop->mirror) {
        pixel_rows_narrow(row, w, out);
        return;
    }
    for (size_t x = 0; x < w; x++, out += step) {
        const uint8_t *p = row + (crop->mirror ? w - 1 - x : x) * PICTURE_PIXEL;
        out[0] = p[0];
        out[plane] = p[1];
        out[2 * plane] = p[2];
    }
}

static int image_decode_scaled(struct image_decoder *d, const struct picture_box *box,
                               struct image_putting *putting, struct dl_error *err)
{
    const struct image_crop *crop = putting->crop;
    const struct resize_goal goal = {
        .whole = crop->scaled,
        .window = {.top = crop->top, .left = crop->left, .size = crop->size},
        .filter = RESIZE_BILINEAR};
    int r = image_decode_resized(d, box, &goal, true, &d->made, err);

    for (uint32_t y = 0; r == 0 && y < crop->size.height; y++)
        image_put_row(putting, picture_row(&d->made, y));
    return r;
}

int image_decode(struct image_decoder *d, const struct spec_image *spec, struct rng *rng,
                 uint8_t *out, struct dl_error *err)
{
    struct image_crop crop;
    struct image_putting putting = {
        .crop = &crop, .planar = spec->layout == LAYOUT_CHW, .grey = spec->grey};
    const struct image_sink sink = {
        .row = image_put_row, .grey_row = spec->grey ? image_put_grey_row : NULL, .to = &putting};
    struct image_part part;

    assert(d->codec);
    putting.out = out;
    d->clip_grey = false;
    d->grey = spec->grey;
    image_crop_choose(spec, d->source, rng, &crop);
    const struct picture_box box = {.top = crop.box_top, .left = crop.box_left, .size = crop.box};
    if (spec->transform != TRANSFORM_NONE)
        return image_decode_scaled(d, &box, &putting, err);
    image_choose_part(d, &box, NULL, false, &part);
    return image_decode_part(d, &part, &sink, err);
}
