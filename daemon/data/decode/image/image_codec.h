/*
 * The doors to libjpeg-turbo, libpng, libwebp and libtiff. A codec reads one image file in memory
 * at a time, row by row, and is used again for the next: its tables and buffers stay.
 *
 *   open → (begin → row … → end)      any of them may fail; open again starts anew
 *
 * A failed call has freed what the image took. The bytes of the file are untrusted, and borrowed
 * until the next open, end or free. Errors name the file: -EINVAL (corrupt, truncated, not
 * supported), -EFBIG (too large), -ENOMEM. Not thread-safe.
 */
#ifndef DL_DATA_IMAGE_CODEC_H
#define DL_DATA_IMAGE_CODEC_H

#include "daemon/data/decode/transform/image_crop.h"
#include "proto/common/error.h"

struct image_file {
    const uint8_t *data; /* borrowed */
    size_t bytes;
    const char *path; /* borrowed; for messages */
    bool exact;       /* refused if another version of the format's library might decode it to other
                         pixels: a damaged JPEG, which PIL reads as far as it can */
    /* Of a JPEG alone, as PIL's draft() has it: */
    uint32_t
        scale; /* 2, 4, 8: the image is one of a size divided by it and rounded up; 0, 1: not */
    bool luma; /* brightness alone, as the file has it: a grey image; not of CMYK */
};

/* What is wanted of the image, reduced by `reduce`: [left, right) of rows [top, bottom). */
struct image_window {
    uint32_t reduce; /* 1, 2, 4, 8; but for JPEG: 1. Sizes are divided by it and rounded up */
    uint32_t left;
    uint32_t right;
    uint32_t top;
    uint32_t bottom;
    bool grey;      /* a grey image may come with one byte a pixel */
    bool clip_grey; /* grey of 16 bits: above 255 it is 255, as PIL has it, and not its upper 8 */
};

/* What a row holds: pixels [origin, origin + pixels), four bytes each: R, G, B and any; or one. */
struct image_rows {
    bool grey;       /* one byte a pixel, as window.grey allows */
    uint32_t origin; /* at most what was asked for; some codecs start at whole blocks */
    uint32_t pixels;
};

struct image_codec;
struct image_codec_ops {
    bool (*knows)(const struct image_file *file); /* by the file's first bytes */
    /* Reads the header. The size is checked: image_check_size(). */
    int (*open)(struct image_codec *codec, const struct image_file *file, struct image_size *ret,
                struct dl_error *err);
    /* Of the image that is open. Each row's memory has room for ret->pixels. */
    int (*begin)(struct image_codec *codec, const struct image_window *window,
                 struct image_rows *ret, struct dl_error *err);
    /* The next row, from window.top on. */
    int (*row)(struct image_codec *codec, uint8_t *out, struct dl_error *err);
    /* After the last row: whether the file ends as it should. What lies outside of the window is
     * not decoded, so not all that can be wrong with it is found. */
    int (*end)(struct image_codec *codec, struct dl_error *err);
    void (*free)(struct image_codec *codec); /* NULL is none */
    uint32_t most_reduced;
};

struct image_codec {
    const struct image_codec_ops *ops;
};

/* NULL: out of memory. */
struct image_codec *image_jpeg_new(void);
struct image_codec *image_png_new(void);
struct image_codec *image_webp_new(void); /* image_webp_is_built() */
struct image_codec *image_tiff_new(void); /* files are refused where image_tiff_missing() */

/* How many bytes a JPEG has, up to and with its last marker, if its markers are in order and say
 * all that decoding needs, so that no more than single pixels can be wrong with it
 * (jpeg_markers.c). Nothing is decoded. 0: something is lacking, or it is an unusual one. */
size_t image_jpeg_whole(const struct image_file *file);

/* What a JPEG says before its coded data. */
struct jpeg_header {
    struct image_size size;
    uint32_t components;
    size_t bytes;     /* up to the coded data */
    bool has_density; /* by JFIF, in a unit of length */
    bool has_exif;
    bool has_xmp;
};

/* Of a file's first bytes. False: more is needed, or it is not one that Pillow opens without a
 * warning, and without reading more than segments: it reads EXIF for a density. */
bool image_jpeg_looks_plain(const struct image_file *file, struct jpeg_header *ret);

/* Of all formats that this build has, the rest NULL. false: out of memory; what is not NULL is the
 * caller's to free, as ever. */
enum { IMAGE_CODECS_MAX = 4 };
bool _nodiscard_ image_codecs_new(struct image_codec *ret[static IMAGE_CODECS_MAX]);

bool image_webp_is_built(void);
/* Why TIFF cannot be read here, in words; NULL: it can. Looks for libtiff. */
const char *image_tiff_missing(void);

/* As decoded to 8-bit RGB; a file of a few bytes can claim any size. */
#define IMAGE_BYTES_MAX ((uint64_t)1 << 30)

/* -EFBIG when the image is too large; -EINVAL for none. */
int _nodiscard_ image_check_size(struct image_size size, const char *path, struct dl_error *err);

/* Of a file that no codec knows: what it is, by its first bytes. */
int image_refuse_unknown(const struct image_file *file, struct dl_error *err);
int image_refuse_corrupt(const char *path, const char *why, struct dl_error *err);
int image_refuse_truncated(const char *path, struct dl_error *err);

#endif
