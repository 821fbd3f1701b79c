/*
 * Decoded pictures of a folder that are kept for all workers of a user (daemon/cache/
 * pictures_cache.h): for datasets with a list of transforms, which decode at full scale. What they
 * read of a kept picture are the bytes that decoding gives.
 *
 *   open → (wants → add)?     for each file that is read
 *
 * A picture is kept under the identity of its file, which is opened and asked for it each time. One
 * that cannot be decoded whole is not kept: an image of which only the part in need is decoded may
 * be good there. Nor is one that is not exact (image_codec.h): others who read it may need that.
 */
#ifndef DL_DATA_CACHED_PICTURES_H
#define DL_DATA_CACHED_PICTURES_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/decode/image/image.h"

/* All zero: nothing is kept. */
struct cached_pictures {
    const struct pictures_cache *cache; /* borrowed; NULL: none */
    uint64_t files;                     /* of the folder */
    struct pictures_key key;            /* of the file that was not found */
    struct picture whole;               /* owned; of the last one that was added */
};

/* As `spec` and `env` have it; of a folder of `files`. */
void cached_pictures_init(struct cached_pictures *cached, const struct spec_dataset *spec,
                          uint64_t files, const struct data_env *env);
void cached_pictures_deinit(struct cached_pictures *cached);

/* Opens the picture of the file `fd` in the decoder, which has its size from there; false: it is
 * not kept. */
bool _nodiscard_ cached_pictures_open(struct cached_pictures *cached, int fd,
                                      struct image_decoder *decoder, struct image_size *ret);

/* After open() was false: the file `fd` was read since. Whether its picture, of that size, is to be
 * kept. */
bool _nodiscard_ cached_pictures_wants(const struct cached_pictures *cached, int fd,
                                       struct image_size size);

/* Then: decodes the image that is open, which is `file`, keeps it, and opens it again in the
 * decoder. Errors as image_open(). */
int _nodiscard_ cached_pictures_add(struct cached_pictures *cached, struct image_decoder *decoder,
                                    const struct image_file *file, struct dl_error *err);

#endif
