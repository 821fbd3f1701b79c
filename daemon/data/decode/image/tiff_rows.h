/*
 * What the samples of a TIFF file stand for, and one row of them as R, G, B. What is read, and how,
 * is what Pillow 13 makes of it by convert("RGB") (OPEN_INFO of its TiffImagePlugin.py); the tags
 * are those of the TIFF 6.0 specification. Pure.
 */
#ifndef DL_DATA_TIFF_ROWS_H
#define DL_DATA_TIFF_ROWS_H

#include "proto/common/base.h"

enum tiff_kind { TIFF_GREY, TIFF_PALETTE, TIFF_RGB, TIFF_CMYK };

enum { TIFF_ALPHA_IN_COLOURS = 1 }; /* a value of tag 338 ExtraSamples */

/* Tags, as the file has them. */
struct tiff_tags {
    uint16_t bits;        /* 258 BitsPerSample, the same of all samples */
    uint16_t compression; /* 259 */
    uint16_t photometric; /* 262 */
    uint16_t fill_order;  /* 266 */
    uint16_t orientation; /* 274 */
    uint16_t samples;     /* 277 SamplesPerPixel */
    uint16_t planar;      /* 284: 1: the samples of a pixel lie together; 2: a plane for each */
    uint16_t format;      /* 339 SampleFormat */
    uint16_t n_extra;     /* 338 ExtraSamples: how many, */
    uint16_t extra;       /* and what the first is */
};

struct tiff_layout {
    enum tiff_kind kind;
    bool inverted;    /* grey of which 0 is white */
    bool alpha_in;    /* R, G and B are multiplied by alpha */
    unsigned bits;    /* 1, 2, 4, 8, 16 */
    unsigned samples; /* of a pixel in a row: 1 where there are planes */
    unsigned planes;  /* to be read: 1, or one a colour */
    uint8_t palette[256][3];
};

/* NULL: it is one that is read; else what is unusual about it, in words: "has 32 bits a sample". */
const char *tiff_layout_choose(const struct tiff_tags *tags, struct tiff_layout *ret);

/* Bytes of a row of `width` pixels. */
size_t tiff_row_bytes(const struct tiff_layout *layout, uint32_t width);

/*
 * A row to `out`, four bytes a pixel; of a plane only its own byte of each. `clip_grey`: see struct
 * image_window. Samples of 16 bits are in the machine's order.
 */
void tiff_row_put(const struct tiff_layout *layout, const uint8_t *row, uint32_t width,
                  unsigned plane, bool clip_grey, uint8_t *out);

/* Behind the last plane's: where the planes of a row are one kind of colour. */
void tiff_row_finish(const struct tiff_layout *layout, uint32_t width, uint8_t *out);

#endif
