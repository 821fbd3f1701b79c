/* Operations of the transforms that choose others, and how far they go. */
#ifndef DL_DATA_TRANSFORM_AUTOS_H
#define DL_DATA_TRANSFORM_AUTOS_H

#include "daemon/data/decode/transform/transform.h"

enum operation {
    OP_IDENTITY,
    OP_SHEAR_X,
    OP_SHEAR_Y,
    OP_TRANSLATE_X,
    OP_TRANSLATE_Y,
    OP_ROTATE,
    OP_BRIGHTNESS,
    OP_COLOR,
    OP_CONTRAST,
    OP_SHARPNESS,
    OP_POSTERIZE,
    OP_SOLARIZE,
    OP_AUTOCONTRAST,
    OP_EQUALIZE,
    OP_INVERT,
};

/* How far an operation goes: the last of its magnitudes, of which the first is 0. */
struct autos_space {
    double shear;
    double share; /* translation: of the width or the height; 0: pixels */
    double pixels;
    double degrees;
    double factor; /* brightness, colour, contrast, sharpness: 1 ± so much */
    unsigned bits; /* posterize: that stay at the first magnitude, */
    unsigned lost; /* and that are lost at the last */
};

bool autos_has_magnitude(enum operation op);

/* Number `bin` of `bins` ≥ 2 magnitudes for a picture of this size. */
double autos_magnitude(const struct autos_space *space, enum operation op, struct image_size size,
                       uint32_t bins, uint32_t bin);

/* Draws whether it goes the other way, where the operation has two. */
double autos_sign(struct draws *draws, enum operation op, double magnitude);

/* Does it to run->now, by the interpolation and the fill of `t`. */
int _nodiscard_ autos_operate(const struct transform *t, struct transforms_runner *run,
                              enum operation op, double magnitude);

/* A check() of a row: the interpolation is one of those that operations have. */
int autos_check_operations(const struct transform_reading *rd, struct transform *t);

#endif
