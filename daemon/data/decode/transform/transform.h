/*
 * One transform: a row of the table, its arguments, and what it works on. Between the files that
 * implement transforms (transform_*.c) and the list of them (transforms.c).
 */
#ifndef DL_DATA_TRANSFORM_H
#define DL_DATA_TRANSFORM_H

#include "daemon/data/decode/image/colour.h"
#include "daemon/data/decode/resize/resize.h"
#include "daemon/data/decode/transform/sharpen.h"
#include "daemon/data/decode/transform/transforms.h"
#include "daemon/data/decode/transform/warp.h"

/* ---- what a transform works on ------------------------------------------------------------------
 */

/*
 * A tensor that is not yet made of its picture: element v of channel c becomes tables[c][v]. All
 * that treats elements one by one is done to the 256 entries of a table. Made, it has `values`.
 */
struct transform_tensor {
    uint32_t dtype; /* uint8: the picture's own bytes */
    bool is_made;   /* of floats: values; else tables */
    float tables[3][256];
    float *values; /* owned */
    size_t room;   /* of values */
};

struct transforms_runner {
    struct picture now;   /* what the next transform takes */
    struct picture spare; /* memory for its result */
    struct resizer resizer;
    struct transform_tensor tensor;
    uint32_t stack; /* number of pictures whose rows `now` has, one after another; 0: one */
    bool is_tensor;
    bool first_generation; /* struct transforms_how */
    struct draws *draws;   /* borrowed, while a list is run */
    const char *path;      /* likewise, of the file */
    struct dl_error *err;
};

static inline uint32_t runner_channels(const struct transforms_runner *run)
{
    return run->now.grey ? 1 : 3;
}

/* For a new picture; draws may be NULL where nothing is drawn. Borrowed while it is worked on. */
void runner_begin(struct transforms_runner *run, struct draws *draws, const char *path,
                  struct dl_error *err);

/* The result of a function that wrote to run->spare: takes it over, or says what failed. */
int _nodiscard_ runner_take(struct transforms_runner *run, int r);
/* The file's picture is one that a transform cannot take: -EINVAL, and the sentence's rest. */
int runner_refuse(const struct transforms_runner *run, const char *name, const char *why);

/* ---- one transform ------------------------------------------------------------------------------
 */

/* One number for a square or the shorter side, or height and width. */
struct transform_size {
    uint32_t n; /* 0: none, 1, 2 */
    uint32_t side[2];
};

/* Each kind has some of these. */
struct transform {
    const struct transform_kind *kind;
    double p; /* probability */
    struct transform_size size;
    uint32_t max_size; /* 0: none */
    enum resize_filter filter;
    struct picture_colour fill;
    struct picture_margins margins;
    bool flag;          /* expand, pad_if_needed, vertical_flip, scale: the kind's one switch */
    uint32_t choice;    /* of the words that its one argument with words has */
    uint32_t count[3];  /* whole numbers */
    uint32_t n_numbers; /* of numbers, where a list may have several lengths */
    double numbers[4];
    uint32_t n_deviations;
    double deviations[3];
    double ranges[5][2]; /* low and high */
    bool has_range[5];
    bool has_center;
    double center[2];        /* x, y */
    struct transform *inner; /* owned; n_inner */
    uint32_t n_inner;
    float *weights; /* owned; n_inner, their sum 1; NULL: all alike */
    double *shares; /* owned; as they are written; NULL likewise */
};

struct transform_reading {
    const char *place; /* of the argument, or of the transform */
    struct dl_error *err;
};

/* An argument: where it goes, and what it may be. `read` says what is wrong with any other value.
 */
struct transform_arg {
    const char *name;
    int (*read)(const struct transform_reading *rd, const struct transform_arg *arg,
                const struct value *v, struct transform *t);
    unsigned slot; /* which one of count, ranges, ... */
    double low;    /* limits of numbers */
    double high;
    bool is_required;
    const char *const *words; /* NULL-terminated; of a choice */
};

enum { TRANSFORM_ARGS_MAX = 8 };

struct transform_kind {
    const char *name;
    bool stacks;            /* treats each pixel by itself, and so takes a stack of pictures */
    struct transform start; /* defaults */
    struct transform_arg args[TRANSFORM_ARGS_MAX];
    /* What the arguments must have in common; may be NULL. */
    int (*check)(const struct transform_reading *rd, struct transform *t);
    /*
     * What becomes of a result's shape; -EINVAL where the transform cannot stand there. NULL: it
     * takes pictures, and leaves them their size.
     */
    int (*shape)(const struct transform_reading *rd, const struct transform *t,
                 struct transforms_shape *shape);
    /*
     * Draws the box of the picture that is wanted, which lies in it; nothing else of it need be
     * decoded. May be NULL. apply() then gets the box alone, and may be NULL itself.
     */
    int (*box)(const struct transform *t, struct transforms_runner *run, struct image_size size,
               struct picture_box *ret);
    /*
     * What a picture of that size, or its box, is resized to by t->filter, where apply() does that
     * and no more. May be NULL.
     */
    struct image_size (*goal)(const struct transform *t, struct image_size size);
    /* Draws, and changes run->now, or the tensor. */
    int (*apply)(const struct transform *t, struct transforms_runner *run);
};

/* Groups of rows: the table is theirs, one after the other. */
struct transform_group {
    const struct transform_kind *kinds;
    size_t n;
};
extern const struct transform_group transform_crops, transform_colours, transform_warps,
    transform_tensors, transform_autos, transform_augmix, transform_lists;

/* Applies one transform, its box included. */
int _nodiscard_ transform_apply(const struct transform *t, struct transforms_runner *run);

/* torch.rand(1) >= p, compared in float32: transforms with a probability draw first, whatever it
 * is. */
static inline bool transform_is_skipped(const struct transform *t, struct transforms_runner *run)
{
    return draws_rand(run->draws) >= (float)t->p;
}

/* Reads a list; used again for lists within it. */
int _nodiscard_ transform_read_list(const struct transform_reading *rd, const struct value *list,
                                    struct transform **ret, uint32_t *ret_n);
/* The shape after all of a list. */
int _nodiscard_ transform_shape_list(const struct transform_reading *rd,
                                     const struct transform *list, uint32_t n,
                                     struct transforms_shape *shape);

/* ---- arguments (transform_args.c) ---------------------------------------------------------------
 */

int transform_refuse(const struct transform_reading *rd, const struct value *v, const char *fmt,
                     ...) _printf_(3, 4);

#define ARG_READER(name)                                                          \
    int name(const struct transform_reading *rd, const struct transform_arg *arg, \
             const struct value *v, struct transform *t)
ARG_READER(arg_p);
ARG_READER(arg_size);     /* n or [h, w] */
ARG_READER(arg_side);     /* likewise, or null */
ARG_READER(arg_max_size); /* n or null */
ARG_READER(arg_filter);   /* a name */
ARG_READER(arg_fill);     /* n, [r, g, b] or null */
ARG_READER(arg_padding);  /* n, [x, y], [l, t, r, b] or null */
ARG_READER(arg_mode);     /* of padding */
ARG_READER(arg_flag);
ARG_READER(arg_ignored);   /* a switch that has no effect on pictures */
ARG_READER(arg_choice);    /* one of arg->words: t->choice */
ARG_READER(arg_count);     /* t->count[slot] */
ARG_READER(arg_number);    /* t->numbers[slot] */
ARG_READER(arg_range);     /* [low, high]: t->ranges[slot] */
ARG_READER(arg_around);    /* x: [-x, x], or [low, high] */
ARG_READER(arg_jitter);    /* x: [max(0, 1 - x), 1 + x], or [low, high] */
ARG_READER(arg_spread);    /* x: [x, x], or [low, high] */
ARG_READER(arg_pair);      /* [x, y]: t->ranges[slot], in any order */
ARG_READER(arg_center);    /* [x, y] or null */
ARG_READER(arg_colour);    /* n, [n] or [r, g, b]: t->numbers */
ARG_READER(arg_deviation); /* likewise, none 0: t->deviations */
ARG_READER(arg_shear);     /* x, [low, high] or [x low, x high, y low, y high] */
ARG_READER(arg_inner);     /* a list of transforms */
ARG_READER(arg_weights);   /* [n, ...], or null */

/* Behind all arguments: ranges[2], the logarithms of ranges[1], unless log_ratio has set them.
 * As PyTorch has them, of float32 and rounded to it; but its own, by MKL, are off by a bit on
 * some processors, and a caller that wants its crops gives them. */
int _nodiscard_ arg_check_ratio(const struct transform_reading *rd, struct transform *t);

#endif
