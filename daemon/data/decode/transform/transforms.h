/*
 * A list of transforms, as torchvision.transforms.v2 has them: from a decoded picture to the
 * sample's tensor. Names, arguments and defaults are torchvision 0.28's; results are equal to the
 * bit to what its transforms make of a PIL picture in mode RGB, given the same random numbers.
 *
 * A list goes through two stages: a picture (8 bits, PIL's rules), then, from ToTensor, PILToTensor
 * or ToImage on, a tensor [channels, height, width] of uint8, float32, float16 or bfloat16. Which
 * transform may stand where is checked when the list is read.
 *
 *   transforms_read → (transforms_run)*     of any number of threads, each with its own runner
 */
#ifndef DL_DATA_TRANSFORMS_H
#define DL_DATA_TRANSFORMS_H

#include "daemon/data/decode/image/image.h"
#include "daemon/data/decode/transform/draws.h"
#include "proto/value.h"

struct transforms;        /* what the list says; not changed by running it */
struct transforms_runner; /* the memory that running it takes, used again */

/* What comes out, as far as the list alone says it. */
struct transforms_shape {
    bool is_fixed;          /* every picture's result has `size` */
    bool is_tensor;         /* channels come first; else it is a picture */
    struct image_size size; /* where is_fixed */
    uint32_t stack;         /* FiveCrop: number of pictures or tensors of that size; 0: one */
    uint32_t channels;      /* 1 or 3 */
    uint32_t dtype;         /* DL_DTYPE_UINT8, _FLOAT32, _FLOAT16 or _BFLOAT16 */
};

/*
 * `list`: an array of names, or of maps with `kind` and the arguments of that kind. `place` is
 * where it stands in the spec. -EINVAL with path, value and remedy; -ENOMEM.
 */
int _nodiscard_ transforms_read(const struct value *list, const char *place,
                                struct transforms **ret, struct dl_error *err);

/* What is not written in the list; all zero but for `channels`: as transforms_read(). */
struct transforms_how {
    uint32_t channels;     /* of the picture that comes in: 3, or 1 for a grey one */
    bool first_generation; /* as in torchvision.transforms: RandomCrop draws for both directions,
                              unless the picture has just the size; RandomAffine rounds otherwise;
                              RandomChoice and RandomOrder draw from Python's random */
    bool fast;             /* transforms_run(): a JPEG that the first transform makes much smaller
                              is decoded at a smaller scale, as image.h has it; pixels differ */
};
int _nodiscard_ transforms_read_as(const struct value *list, const char *place,
                                   const struct transforms_how *how, struct transforms **ret,
                                   struct dl_error *err);
struct transforms *transforms_free(struct transforms *transforms); /* NULL in, NULL out */

struct transforms_shape transforms_result(const struct transforms *transforms);

int _nodiscard_ transforms_runner_new(struct transforms_runner **ret, struct dl_error *err);
struct transforms_runner *transforms_runner_free(struct transforms_runner *runner);

/*
 * After image_open() of `decoder`: decodes, as far as the list needs it, draws and transforms.
 * *ret is the result's shape with its size, even where it is not fixed; transforms_write() then
 * writes it. Errors name `path`, the file: those of image_decode(), and -EINVAL for a picture that
 * a transform cannot take, such as one smaller than its crop.
 */
int _nodiscard_ transforms_run(const struct transforms *transforms,
                               struct transforms_runner *runner, struct image_decoder *decoder,
                               struct draws *draws, const char *path, struct transforms_shape *ret,
                               struct dl_error *err);

/* The same of a picture that is in memory, without gaps: [height, width, channels]. */
struct transforms_pixels {
    const uint8_t *pixels; /* borrowed */
    struct image_size size;
};
int _nodiscard_ transforms_run_pixels(const struct transforms *transforms,
                                      struct transforms_runner *runner,
                                      const struct transforms_pixels *from, struct draws *draws,
                                      struct transforms_shape *ret, struct dl_error *err);

enum transforms_way {
    TRANSFORMS_AWAY,   /* a tensor [c, h, w], or a picture [h, w, c]; large ones past the cache */
    TRANSFORMS_PLANAR, /* likewise, but pictures [c, h, w], too */
    TRANSFORMS_NEAR,   /* for this processor, which reads it at once */
};
/* The result of the last run; of a stack one after another. */
void transforms_write(const struct transforms_runner *runner, enum transforms_way way, void *out);

/* Bytes of it. */
uint64_t transforms_bytes(const struct transforms_shape *shape);

/* The name of each transform, in the order of the table, for messages and documents; NULL: no more.
 */
const char *transforms_name(size_t i);

#endif
