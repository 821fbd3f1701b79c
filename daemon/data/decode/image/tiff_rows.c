#include "daemon/data/decode/image/tiff_rows.h"
#include "daemon/data/decode/image/picture.h"

enum {
    PHOTOMETRIC_WHITE_IS_0 = 0,
    PHOTOMETRIC_BLACK_IS_0 = 1,
    PHOTOMETRIC_COLOURS = 2,
    PHOTOMETRIC_INDICES = 3,
    PHOTOMETRIC_INKS = 5,
    PHOTOMETRIC_LUMA_CHROMA = 6,
    COMPRESSED_BY_JPEG = 7,
    FORMAT_UNSIGNED = 1,
    ALPHA_LEFT_ALONE = 2,
};

/* ---- which are read ------------------------------------------------------------------------- */

static bool tiff_compression_is_known(unsigned compression)
{
    static const uint16_t known[] = {
        1 /* none */,         2 /* CCITT, */,
        3 /* of group 3, */,  4 /* of group 4 */,
        5 /* LZW */,          COMPRESSED_BY_JPEG,
        8 /* deflate */,      32771 /* CCITT, of whole words */,
        32773 /* PackBits */, 32946 /* deflate, as it was called first */,
        34925 /* LZMA */,     50000 /* zstd */};

    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (known[i] == compression)
            return true;
    }
    return false;
}

/* The colour that the tags say; what a pixel has without extra samples. 0: it is not known. */
static unsigned tiff_choose_kind(const struct tiff_tags *tags, struct tiff_layout *ret)
{
    switch (tags->photometric) {
    case PHOTOMETRIC_WHITE_IS_0:
    case PHOTOMETRIC_BLACK_IS_0:
        ret->kind = TIFF_GREY;
        ret->inverted = tags->photometric == PHOTOMETRIC_WHITE_IS_0;
        return 1;
    case PHOTOMETRIC_INDICES:
        ret->kind = TIFF_PALETTE;
        return 1;
    case PHOTOMETRIC_INKS:
        ret->kind = TIFF_CMYK;
        return 4;
    case PHOTOMETRIC_LUMA_CHROMA: /* libjpeg makes colours of it */
        ret->kind = TIFF_RGB;
        return tags->compression == COMPRESSED_BY_JPEG && tags->planar == 1 ? 3 : 0;
    case PHOTOMETRIC_COLOURS:
        ret->kind = TIFF_RGB;
        return 3;
    default:
        return 0;
    }
}

static const char *tiff_check_bits(const struct tiff_tags *tags, const struct tiff_layout *is)
{
    unsigned bits = tags->bits;
    bool deep = is->kind == TIFF_GREY ? !is->inverted : is->kind == TIFF_RGB;

    if (tags->format != FORMAT_UNSIGNED)
        return "has samples that are not unsigned integers";
    if (bits == 8 || (bits == 16 && deep && tags->planar == 1))
        return NULL;
    if ((bits == 1 || bits == 2 || bits == 4) && is->kind <= TIFF_PALETTE)
        return NULL;
    return "has a number of bits per sample that is not supported with its colours";
}

/* Of what a pixel has besides its colour: one sample at most, alpha or nothing in particular. */
static const char *tiff_check_extra(const struct tiff_tags *tags, const struct tiff_layout *is,
                                    unsigned colours)
{
    bool alpha_in = tags->n_extra > 0 && tags->extra == TIFF_ALPHA_IN_COLOURS;

    if (tags->samples == colours)
        return NULL;
    if (tags->samples != colours + 1 || tags->n_extra > 1)
        return "has a number of samples per pixel that does not match its colours and alpha";
    if (is->kind == TIFF_RGB && tags->planar == 1 && (!alpha_in || tags->bits == 8))
        return NULL;
    /* A plane that is not said to be alpha is some for PIL, and some not. */
    if (is->kind == TIFF_RGB && tags->planar == 2 && tags->n_extra == 1 &&
        tags->extra == ALPHA_LEFT_ALONE)
        return NULL;
    if (is->kind == TIFF_GREY && tags->bits == 8 && tags->planar == 1 && tags->n_extra == 1 &&
        !is->inverted && !alpha_in)
        return NULL;
    return "has alpha of a kind that is not supported";
}

const char *tiff_layout_choose(const struct tiff_tags *tags, struct tiff_layout *ret)
{
    const char *why;

    *ret = (struct tiff_layout){.bits = tags->bits};
    if (!tiff_compression_is_known(tags->compression))
        return "is compressed in a way that is not supported";
    /* libtiff turns them; PIL reads no others such. */
    if (tags->fill_order != 1 && (tags->fill_order != 2 || tags->samples != 1 || tags->bits > 8 ||
                                  tags->photometric == PHOTOMETRIC_INDICES))
        return "has its bits in reverse order";
    if (tags->planar != 1 && tags->planar != 2)
        return "has neither pixels nor planes";
    if (tags->orientation < 1 || tags->orientation > 8)
        return "has an invalid orientation";
    unsigned colours = tiff_choose_kind(tags, ret);
    if (colours == 0)
        return "has colours that are neither grey, RGB, CMYK, of a palette, nor a JPEG's";
    if ((why = tiff_check_bits(tags, ret)) || (why = tiff_check_extra(tags, ret, colours)))
        return why;
    bool planes = tags->planar == 2 && tags->samples > 1;
    ret->alpha_in = tags->n_extra > 0 && tags->extra == TIFF_ALPHA_IN_COLOURS;
    ret->samples = planes ? 1 : tags->samples;
    ret->planes = planes ? colours : 1;
    return NULL;
}

/* ---- rows ----------------------------------------------------------------------------------- */

size_t tiff_row_bytes(const struct tiff_layout *layout, uint32_t width)
{
    return ((uint64_t)width * layout->samples * layout->bits + 7) / 8;
}

static unsigned tiff_sample(const struct tiff_layout *layout, const uint8_t *row, size_t i)
{
    unsigned bits = layout->bits;
    uint16_t deep;

    if (bits == 8)
        return row[i];
    if (bits == 16) {
        memcpy(&deep, row + 2 * i, sizeof deep);
        return deep;
    }
    size_t at = i * bits;
    return row[at / 8] >> (8 - bits - at % 8) & ((1U << bits) - 1);
}

/* As 8 bits. */
static uint8_t tiff_grey(const struct tiff_layout *layout, unsigned sample, bool clip)
{
    unsigned most = (1U << layout->bits) - 1;

    if (layout->bits == 16)
        sample = clip ? (unsigned)min_u64(sample, 255) : sample >> 8;
    else
        sample = sample * 255 / most;
    return (uint8_t)(layout->inverted ? 255 - sample : sample);
}

/* What was there before it was multiplied by alpha; with alpha 0 black, as in PIL. */
static uint8_t tiff_divide(unsigned colour, unsigned alpha)
{
    return alpha == 0 ? 0 : (uint8_t)min_u64(colour * 255 / alpha, 255);
}

static void tiff_put_grey(const struct tiff_layout *layout, const uint8_t *row, uint32_t width,
                          bool clip, uint8_t *out)
{
    for (size_t x = 0; x < width; x++) {
        uint8_t *p = out + x * PICTURE_PIXEL;
        p[0] = tiff_grey(layout, tiff_sample(layout, row, x * layout->samples), clip);
        p[1] = p[2] = p[0];
    }
}

static void tiff_put_palette(const struct tiff_layout *layout, const uint8_t *row, uint32_t width,
                             uint8_t *out)
{
    for (size_t x = 0; x < width; x++)
        memcpy(out + x * PICTURE_PIXEL,
               layout->palette[tiff_sample(layout, row, x * layout->samples)], 3);
}

static void tiff_put_colours(const struct tiff_layout *layout, const uint8_t *row, uint32_t width,
                             uint8_t *out)
{
    unsigned deep = layout->bits == 16 ? 8 : 0, n = layout->kind == TIFF_CMYK ? 4 : 3;

    for (size_t x = 0; x < width; x++) {
        uint8_t *p = out + x * PICTURE_PIXEL;
        for (unsigned c = 0; c < n; c++)
            p[c] = (uint8_t)(tiff_sample(layout, row, x * layout->samples + c) >> deep);
        for (unsigned c = 0; c < 3 && layout->alpha_in; c++)
            p[c] = tiff_divide(p[c], row[x * layout->samples + 3]);
    }
}

static void tiff_put_plane(const uint8_t *row, uint32_t width, unsigned plane, uint8_t *out)
{
    for (size_t x = 0; x < width; x++)
        out[x * PICTURE_PIXEL + plane] = row[x];
}

void tiff_row_put(const struct tiff_layout *layout, const uint8_t *row, uint32_t width,
                  unsigned plane, bool clip_grey, uint8_t *out)
{
    if (layout->planes > 1)
        tiff_put_plane(row, width, plane, out);
    else if (layout->kind == TIFF_GREY)
        tiff_put_grey(layout, row, width, clip_grey, out);
    else if (layout->kind == TIFF_PALETTE)
        tiff_put_palette(layout, row, width, out);
    else
        tiff_put_colours(layout, row, width, out);
}

/* R = 255 - K - C · (255 - K) / 255, rounded, and likewise: PIL's, without colour management. */
static void tiff_inks_to_colours(uint8_t *p)
{
    unsigned light = 255U - p[3];

    for (unsigned c = 0; c < 3; c++) {
        unsigned t = p[c] * light + 128;
        p[c] = (uint8_t)(light - ((t + (t >> 8)) >> 8));
    }
}

void tiff_row_finish(const struct tiff_layout *layout, uint32_t width, uint8_t *out)
{
    for (size_t x = 0; x < width && layout->kind == TIFF_CMYK; x++)
        tiff_inks_to_colours(out + x * PICTURE_PIXEL);
}
