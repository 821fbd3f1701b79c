/*
 * An encoded image that is a field of a record, of whatever format: decoded as the spec says, at
 * the end of a sample.
 */
#ifndef DL_DATA_IMAGE_FIELD_H
#define DL_DATA_IMAGE_FIELD_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/decode/image/image.h"

/* How the images of one sample are decoded. What is random in them is drawn for sample `index` of
 * `key`, for each image of the sample anew from the beginning: all get the same numbers. */
struct image_field {
    struct image_decoder *decoder; /* borrowed */
    const struct spec_image *spec; /* borrowed */
    const struct sample_key *key;  /* borrowed */
    uint64_t index;
};

/* The decoder of a dataset's images, which is the caller's to free; NULL unless `spec` decodes.
 * Errors name what is below `place`. */
int _nodiscard_ image_field_decoder(const struct spec_dataset *spec, const char *place,
                                    struct image_decoder **ret, struct dl_error *err);

/*
 * Adds the image `file`, uint8 [H, W, 3] or [3, H, W], under `name` (NULL below a list). 0; or a
 * negative errno with `err`, without a path, whose message continues the field's name: "is an image
 * that cannot be read: it ends in its middle". An error of the sample's own is not in `err`, and
 * sticks in `ret`.
 */
int _nodiscard_ image_field_add(const struct image_field *field, const struct image_file *file,
                                const char *name, struct sample *ret, struct dl_error *err);

#endif
