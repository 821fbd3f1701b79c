/*
 * A decoded picture in memory, as transforms change it: 8 bits a channel, RGB or grey, as PIL's
 * modes RGB and L. What each function does to pixels is what Pillow 13 does, to the bit; the
 * rules come from the files of Pillow that are named at each (src/libImaging/, src/PIL/) and of
 * torchvision 0.28 (torchvision/transforms/).
 *
 * Functions with an `out` leave their input alone; `out` is another picture, whose memory is used
 * again. -ENOMEM, and -EFBIG for a result above IMAGE_BYTES_MAX: `out` is then of no size. Pure,
 * but for memory; not thread-safe.
 */
#ifndef DL_DATA_PICTURE_H
#define DL_DATA_PICTURE_H

#include "daemon/data/decode/image/image_codec.h"

enum {
    PICTURE_PIXEL = 4,   /* bytes: R, G, B and any */
    PICTURE_COLOURS = 3, /* of these */
    PICTURE_SLACK = 32,
};

struct picture {
    struct image_size size;
    bool grey;       /* one channel, which R, G and B all hold */
    uint8_t *pixels; /* owned; rows without gaps of 4 bytes a pixel: R, G, B and any; behind them
                        PICTURE_SLACK bytes may be read */
    size_t room;     /* bytes of pixels, slack included */
};

/* Where there is no picture. Its pixels are R, G, B; of a grey picture R counts. */
struct picture_colour {
    uint8_t rgb[3];
};

static inline size_t picture_pixels(const struct picture *p)
{
    return (size_t)p->size.height * p->size.width;
}

static inline uint8_t *picture_row(const struct picture *p, uint32_t y)
{
    return p->pixels + (size_t)y * p->size.width * PICTURE_PIXEL;
}

/* Room for pixels, which are whatever they are. A picture of no pixels is one, too. */
int _nodiscard_ picture_set(struct picture *p, struct image_size size, bool grey);
void picture_deinit(struct picture *p);

static inline void picture_swap(struct picture *a, struct picture *b)
{
    struct picture other = *a;

    *a = *b;
    *b = other;
}

void picture_fill(struct picture *p, struct picture_colour colour);

/* The pixels of a rectangle; beside the picture it is black (Image.crop). */
struct picture_box {
    int64_t top;
    int64_t left;
    struct image_size size;
};

/* A rectangle that need not begin and end between two pixels. */
struct picture_part {
    double top;
    double left;
    double height;
    double width;
};

int _nodiscard_ picture_crop(const struct picture *in, const struct picture_box *box,
                             struct picture *out);

void picture_flip_horizontally(struct picture *p); /* left becomes right */
int _nodiscard_ picture_flip_vertically(const struct picture *in, struct picture *out);

/* Turned by 90°, 180° or 270° against the clock: quarters 1, 2, 3 (Image.transpose). */
int _nodiscard_ picture_turn(const struct picture *in, unsigned quarters, struct picture *out);

/* Means of blocks of `factors` pixels, of fewer at the ends (Image.reduce; Reduce.c).
 * `in` has pixels; 1 ≤ the product of the factors ≤ PICTURE_REDUCED_MAX. */
enum { PICTURE_REDUCED_MAX = 1 << 16 };
int _nodiscard_ picture_reduce(const struct picture *in, struct image_size factors,
                               struct picture *out);

/* torchvision's pad() of a PIL picture; `edges` are numpy.pad's. */
enum picture_padding { PADDING_CONSTANT, PADDING_EDGE, PADDING_REFLECT, PADDING_SYMMETRIC };
struct picture_margins {
    uint32_t left;
    uint32_t top;
    uint32_t right;
    uint32_t bottom;
    enum picture_padding mode;
    struct picture_colour fill; /* constant */
};
int _nodiscard_ picture_pad(const struct picture *in, const struct picture_margins *margins,
                            struct picture *out);

#endif
