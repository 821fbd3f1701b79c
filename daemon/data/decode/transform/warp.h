/*
 * Affine and perspective transforms: each output pixel is looked up where its centre lies in the
 * input, to the nearest pixel or between 4 or 16 of them; what lies outside gets the fill's colour.
 * The rules are Pillow's src/libImaging/Geometry.c and Image.rotate() (src/PIL/Image.py), and the
 * matrices torchvision 0.28's: _get_inverse_affine_matrix() of
 * torchvision/transforms/v2/functional/_geometry.py, which rounds otherwise than the one of
 * transforms/functional.py, and _get_perspective_coeffs() of the latter. That solves by LAPACK:
 * what it makes of corners that have not moved is not quite the identity, and then pixels between
 * others may be one step apart.
 */
#ifndef DL_DATA_WARP_H
#define DL_DATA_WARP_H

#include "daemon/data/decode/image/picture.h"

enum warp_filter { WARP_NEAREST, WARP_BILINEAR, WARP_BICUBIC };

struct warp {
    enum warp_filter filter;
    struct picture_colour fill;
};

/* From a place in the output to one in the input: x' = a[0] x + a[1] y + a[2], y' = a[3] x + ...;
 * perspective: both divided by a[6] x + a[7] y + 1. */
int _nodiscard_ warp_affine(const struct picture *in, const struct warp *warp,
                            const double a[static 6], struct image_size size, struct picture *out);
int _nodiscard_ warp_perspective(const struct picture *in, const struct warp *warp,
                                 const double a[static 8], struct picture *out);

/* Image.rotate(): `angle` in degrees against the clock; center: x and y, or NULL: the middle. */
struct warp_rotation {
    double angle;
    const double *center;
    bool expand; /* the result holds the whole of the turned picture */
};
int _nodiscard_ warp_rotate(const struct picture *in, const struct warp *warp,
                            const struct warp_rotation *rotation, struct picture *out);

/* Angles in degrees; `center` and `translate` are x and y. */
struct warp_parameters {
    double angle;
    double translate[2];
    double scale;
    double shear[2];
    double center[2];
    bool first_generation; /* of torchvision's transforms, which rounds otherwise */
};
void warp_affine_matrix(const struct warp_parameters *p, double ret[static 6]);

/* That what is at `to` comes from `from`: four corners each, x and y. Rounded to float32. False:
 * three corners of `to` lie on one line. */
bool warp_perspective_matrix(const double from[static 4][2], const double to[static 4][2],
                             double ret[static 8]);

#endif
