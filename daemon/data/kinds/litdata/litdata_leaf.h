/*
 * The leaves of litData's samples: how a value is stored, by data_format in index.json, and what it
 * becomes. Pure but for memory.
 *
 *   str, text                 UTF-8
 *   bool, int, float          1, 8 and 8 bytes, little-endian
 *   bytes, file, audio, video, nifti, mesh, pdf, tifffile, tiff, graph
 *                             as they are
 *   no_header_numpy:TYPE, no_header_tensor:TYPE
 *                             elements of one dimension
 *   numpy                     u32 type, u32 dimensions, u32 of each, elements: little-endian
 *   tensor                    the same, but the numbers before the elements are big-endian
 *   jpeg, image, image:EXT    a file
 *   jpeg_array                u32 n, n times u32: bytes of each; files
 *   pil                       image_raw.h
 *   json                      litdata_nested.h
 *   pickle                    refused: reading it would run its code
 *
 * TYPE is a number of one of two lists, of NumPy's types and of PyTorch's (litdata/constants.py).
 */
#ifndef DL_DATA_LITDATA_LEAF_H
#define DL_DATA_LITDATA_LEAF_H

#include "daemon/data/field/field.h"

enum litdata_sort {
    LITDATA_UNKNOWN,
    LITDATA_STRING,
    LITDATA_BYTES,
    LITDATA_BOOL,
    LITDATA_INT,
    LITDATA_FLOAT,
    LITDATA_ROW, /* one dimension, no header */
    LITDATA_NUMPY,
    LITDATA_TENSOR,
    LITDATA_IMAGE,
    LITDATA_IMAGES,
    LITDATA_PIXELS,
    LITDATA_JSON,
    LITDATA_PICKLE,
};

struct litdata_leaf {
    char *format; /* owned; "no_header_tensor:18" */
    enum litdata_sort sort;
    uint32_t dtype; /* of all values; 0: not an array, or each has its own */
};

/* Where a value lies. */
struct litdata_value {
    const struct litdata_leaf *leaf;
    const uint8_t *data;
    uint64_t size;
};

/* Fills in the rest from `leaf->format`; LITDATA_UNKNOWN for an unknown one. */
void litdata_leaf_parse(struct litdata_leaf *leaf);

/* Bytes that all its values have; 0: they vary. */
uint64_t litdata_leaf_bytes(const struct litdata_leaf *leaf);

/* Whether what its values become has a first dimension. */
bool litdata_leaf_has_dimensions(const struct litdata_leaf *leaf);

/*
 * Adds the value under `name` at the end of `ret`; what `decoding` does not decode stays
 * bytes. 0; or a negative errno with `err`, whose message continues the leaf's name:
 * "is not UTF-8". Bytes, strings and arrays lie where the value does.
 */
int _nodiscard_ litdata_value_add(const struct litdata_value *value, const char *name,
                                  const struct decoding *decoding, struct sample *ret,
                                  struct dl_error *err);

/* The first dimension of an array, or LENGTH_UNKNOWN (lengths.h): it is damaged, as
 * litdata_value_add() will report, or too long. */
uint32_t litdata_value_length(const struct litdata_value *value);

#endif
