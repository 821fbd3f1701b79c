/*
 * What transforms do to the colours of pixels, in place. The rules are Pillow's, as torchvision
 * 0.28 calls them (torchvision/transforms/_functional_pil.py): ImageEnhance.py and Blend.c
 * (brightness, contrast, saturation), Convert.c (grey by 19595, 38470 and 7471 of 65536; HSV),
 * ImageOps.py (invert, posterize, solarize, autocontrast, equalize). A grey picture stays grey: its
 * three channels are treated alike. Pure; cannot fail.
 */
#ifndef DL_DATA_COLOUR_H
#define DL_DATA_COLOUR_H

#include "daemon/data/decode/image/picture.h"

/* Factor 1: as it is; 0: black, the mean grey, or no colour. Factors are ≥ 0. */
void colour_brightness(struct picture *p, double factor);
void colour_contrast(struct picture *p, double factor);
void colour_saturation(struct picture *p, double factor);

/* `turn` of a whole turn, -0.5..0.5. */
void colour_hue(struct picture *p, double turn);

/* To grey: three equal channels, or, with `single`, one. */
void colour_grey(struct picture *p, bool single);
/* The same of `n` pixels, four bytes each. */
void colour_grey_row(uint8_t *row, size_t n);
/* Likewise, to one byte each. */
void colour_grey_bytes(const uint8_t *px, size_t n, uint8_t *restrict out);

void colour_invert(struct picture *p);
void colour_posterize(struct picture *p, unsigned bits); /* that stay; 0..8 */
void colour_solarize(struct picture *p, double threshold);
void colour_autocontrast(struct picture *p);
void colour_equalize(struct picture *p);

/* Channel c becomes what order[c] was: below 3. Of a grey picture nothing changes. */
void colour_permute(struct picture *p, const uint32_t order[static 3]);

/* Blends `from`, which is of the same size, into `p`: factor 1 is `p` alone (Image.blend). */
void colour_blend(const struct picture *from, double factor, struct picture *p);

#endif
