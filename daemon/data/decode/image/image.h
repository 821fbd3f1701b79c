/*
 * From an image file's bytes to a sample's pixels: JPEG, PNG, WebP or TIFF, told apart by content,
 * to 8-bit RGB, or grey, cut, scaled and mirrored as struct spec_image says (image_crop.h has the
 * geometry, resize.h the filter), height × width × channels or channels × height × width.
 *
 * Any colours become RGB as PIL's convert("RGB") has it: grey, palette, CMYK; alpha is dropped;
 * 16 bits keep the upper 8. RGB becomes grey as PIL's convert("L") has it; a grey JPEG that is
 * wanted so, and not scaled, is never RGB in between. EXIF orientation is not applied, as PIL and
 * torchvision do not; TIFF's is, as PIL does on loading.
 *
 * Only what is needed of the file is decoded: rows and columns of the crop; and where a JPEG gets
 * at least 3, 6 or 12 times smaller in both directions, libjpeg's inverse DCT does 2, 4 or 8 of it.
 * Without that the pixels are those of PIL's crop() and resize(BILINEAR); with it they differ by
 * half a step in the mean, and by 16 at most (tests/unit/image_pil.py, on photographs).
 *
 * A truncated or corrupt file is an error, not grey pixels, but for JPEG, of which PIL, and so we,
 * read more (image_jpeg.c); what is corrupt in a part that is not decoded is not noticed. Not
 * thread-safe: one decoder for each thread.
 */
#ifndef DL_DATA_IMAGE_H
#define DL_DATA_IMAGE_H

#include "daemon/data/decode/image/image_codec.h"
#include "daemon/data/decode/resize/resize.h"
#include "daemon/data/decode/transform/image_crop.h"

struct image_decoder; /* libraries' state, weights and buffers, kept from image to image */

int _nodiscard_ image_decoder_new(struct image_decoder **ret, struct dl_error *err);
struct image_decoder *image_decoder_free(struct image_decoder *decoder); /* NULL in, NULL out */

/*
 * Reads the header of `file`, which is borrowed until image_decode(), or the next open. Returns the
 * size of the image in it. Errors name file->path: -EINVAL no format that is known, corrupt,
 * truncated; -EFBIG more than IMAGE_BYTES_MAX when decoded; -ENOMEM.
 */
int _nodiscard_ image_open(struct image_decoder *decoder, const struct image_file *file,
                           struct image_size *ret, struct dl_error *err);

/*
 * Instead of it: a picture that was decoded before, as image_decode_picture() gives it; borrowed as
 * a file is. For image_decode_picture() alone.
 */
struct image_pixels {
    const uint8_t *pixels; /* borrowed; rows without gaps: R, G, B, and any in the fourth byte; or
                              grey alone */
    struct image_size size;
    unsigned step; /* bytes a pixel: 1, 3 or 4 */
};
void image_open_pixels(struct image_decoder *decoder, const struct image_pixels *pixels);

/* The size of the result, from the spec and the size in the header. */
struct image_size image_result(const struct spec_image *spec, struct image_size source);

/*
 * Once, after image_open() succeeded: writes the result, a byte for each channel, to `out`. `rng`
 * is the sample's, at its beginning; it may be NULL unless image_draws(spec).
 */
int _nodiscard_ image_decode(struct image_decoder *decoder, const struct spec_image *spec,
                             struct rng *rng, uint8_t *out, struct dl_error *err);

/*
 * The same for transforms, which have the whole scale: the pixels of a box of the picture, which
 * lies in it, as PIL decodes them. Only that part of the file is decoded.
 */
int _nodiscard_ image_decode_picture(struct image_decoder *decoder, const struct picture_box *box,
                                     struct picture *out, struct dl_error *err);

/*
 * Likewise in two steps, and row by row. choose_part: what of the picture is decoded for a box;
 * with a `goal`, which the box is to become, no more than its window is made of, and with `reduced`
 * at a smaller scale, as far as that is above the goal's. NULL: all of the box, as it is.
 */
struct image_part {
    uint32_t reduce;             /* the scale is 1 / 1, 2, 4 or 8 */
    struct picture_box box;      /* in pixels of that scale */
    struct resize_source within; /* where the box that was asked for lies in it */
};
void image_choose_part(const struct image_decoder *decoder, const struct picture_box *box,
                       const struct resize_goal *goal, bool reduced, struct image_part *ret);

/* What gets part->box's rows, from top to bottom: each has four bytes a pixel, as a picture's;
 * PICTURE_SLACK bytes behind it may be read. */
struct image_sink {
    void (*row)(void *to, const uint8_t *row);
    /* NULL, or takes a row of one byte a pixel instead, of an image that is grey. */
    void (*grey_row)(void *to, const uint8_t *row);
    /* NULL, or takes a row of three bytes a pixel instead, behind which nothing may be read; false:
     * it does not. */
    bool (*narrow_row)(void *to, const uint8_t *row);
    void *to;
};
int _nodiscard_ image_decode_part(struct image_decoder *decoder, const struct image_part *part,
                                  const struct image_sink *sink, struct dl_error *err);
/* The same into a picture of part->box's size. */
int _nodiscard_ image_decode_into(struct image_decoder *decoder, const struct image_part *part,
                                  struct picture *out, struct dl_error *err);

/* The window of what the box becomes. */
int _nodiscard_ image_decode_resized(struct image_decoder *decoder, const struct picture_box *box,
                                     const struct resize_goal *goal, bool reduced,
                                     struct picture *out, struct dl_error *err);

/* The size of the picture that is open. */
struct image_size image_source(const struct image_decoder *decoder);

/* Whether the spec can be followed; -EINVAL and err->path below `place` ("dataset.size") if not. */
int _nodiscard_ image_check_spec(const struct spec_image *spec, const char *place,
                                 struct dl_error *err);

/* 3, or 1 of grey ones. */
static inline uint32_t image_channels(const struct spec_image *spec)
{
    return spec->grey ? 1 : PICTURE_COLOURS;
}

/* The schema of a result of fixed size: [h, w, channels] or [channels, h, w]. */
void image_shape(const struct spec_image *spec, struct image_size size, uint64_t ret[static 3]);

#endif
