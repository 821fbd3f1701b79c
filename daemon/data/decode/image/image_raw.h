/*
 * Images that are fields of records and not compressed, as MDS and litData write those of Pillow:
 *
 *   0   u32   width
 *   4   u32   height
 *   8   u32   bytes of the mode
 *       …     the mode, such as RGB
 *       …     pixels, row by row
 */
#ifndef DL_DATA_IMAGE_RAW_H
#define DL_DATA_IMAGE_RAW_H

#include "daemon/data/base/sample.h"
#include "proto/spec.h"

/*
 * Adds such an image of modes RGB, RGBA and L at the end of `ret`, uint8 [H, W, 3] or [3, H, W], at
 * the size it is stored. 0; or a negative errno with `err`, whose message continues the field's
 * name: "is an image of mode CMYK ...". An error of the sample's own is not in `err`, and sticks.
 */
int _nodiscard_ image_raw_add(const uint8_t *data, uint64_t bytes, const struct spec_image *spec,
                              const char *name, struct sample *ret, struct dl_error *err);

#endif
