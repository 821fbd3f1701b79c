/*
 * A field of a record as part of a sample, for all kinds of dataset whose records have some: which
 * of them a sample has, and what the bytes of one become.
 */
#ifndef DL_DATA_FIELD_H
#define DL_DATA_FIELD_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/decode/audio/audio.h"
#include "daemon/data/decode/image/image.h"
#include "daemon/data/field/field_choice.h"

/* Of a dataset; all zero: all fields, as they are called, with their bytes as they are stored. */
struct fields {
    struct field_choice choice; /* owned */
    bool decode;
    struct field_names pictures, sounds; /* owned; what dataset.images and dataset.audio name */
    struct spec_image image;
    struct image_decoder *images; /* owned; NULL: pictures stay bytes */
    struct audio_decoder *audio;  /* owned; NULL: sounds stay bytes */
};

/*
 * Of `spec`, which is not needed any more. Without `has_pictures` none are decoded, and what the
 * spec says of them is not looked at. Errors name what is below `place`. Close it on failure, too.
 */
int _nodiscard_ fields_open(struct fields *fields, const struct spec_dataset *spec,
                            bool has_pictures, const char *place, struct dl_error *err);
void fields_close(struct fields *fields); /* zeroes it */

/* How the fields of one sample are decoded. What is random in them is drawn for sample `index` of
 * `key`, for each field of the sample anew from the beginning: all get the same numbers. */
struct decoding {
    const struct fields *fields;  /* borrowed */
    const struct sample_key *key; /* borrowed */
    uint64_t index;
};

enum field_sort {
    FIELD_BYTES,
    FIELD_TEXT,   /* UTF-8 */
    FIELD_IMAGE,  /* a file of any format: uint8 [H, W, 3] or what image.h makes of it */
    FIELD_PIXELS, /* image_raw.h */
    FIELD_SOUND,  /* a file of any format: a tensor as audio.h has it */
    FIELD_JSON,   /* json_field.h */
};

struct field {
    enum field_sort sort;
    const char *name;    /* in the sample; NULL below a list, or of a sample that is one leaf */
    const uint8_t *data; /* borrowed until the batch is made */
    uint64_t bytes;
};

/*
 * Adds the field at the end of `ret`; as bytes where `decoding`, which may be NULL, does not decode
 * its sort. 0; or a negative errno with `err`, without a path, whose message continues the field's
 * name: "is not UTF-8". An error of the sample's own is not in `err`, and sticks in `ret`.
 */
int _nodiscard_ field_add(const struct field *field, const struct decoding *decoding,
                          struct sample *ret, struct dl_error *err);

/* An array in a field, whose elements reach to the field's end. */
struct field_array {
    uint32_t dtype;
    uint32_t ndim;
    uint64_t shape[TREE_DIMS];
    const uint8_t *elements;
};

/* Adds it as a tensor, as field_add(): -EINVAL: it has another size. `format` is the name of what
 * the field is stored as, for messages. */
int _nodiscard_ field_add_array(const struct field *field, const struct field_array *array,
                                const char *format, struct sample *ret, struct dl_error *err);
/* -EINVAL: the field cannot have this number of bytes. */
int field_refuse_size(const struct field *field, const char *format, struct dl_error *err);

#endif
