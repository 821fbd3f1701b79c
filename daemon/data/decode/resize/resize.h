/*
 * Pillow 13's resize: each output pixel is a weighted mean of the input around its place, across
 * and down, rounded to 8 bits after each. Where the picture gets smaller, the filter gets
 * wider: that is antialiasing. Weights have 22 binary places. All as Pillow's
 * src/libImaging/Resample.c, and for nearest as Geometry.c, so that results are equal to the bit.
 */
#ifndef DL_DATA_RESIZE_H
#define DL_DATA_RESIZE_H

#include "daemon/data/decode/image/picture.h"

enum resize_filter {
    RESIZE_NEAREST,
    RESIZE_BOX,
    RESIZE_BILINEAR,
    RESIZE_HAMMING,
    RESIZE_BICUBIC,
    RESIZE_LANCZOS,
};

/* How far away, in outputs, an input may be to have a weight; or in inputs, where these are larger.
 */
enum { RESIZE_REACH = 3 };

/* Weights as resize_digits.c wants them: each is a · 256² + b · 256 + c, of bytes from -128 on. */
struct resize_digits {
    bool fit;          /* all weights do */
    int8_t *planes[3]; /* n × taps each, in `memory`: all a, all b, all c */
    uint8_t *blocks;   /* in `memory`, too; of each four outputs, for across() */
    uint32_t *from;    /* owned; of each four outputs: the first input */
    uint32_t groups;   /* of four weights, of each output in `blocks`; 0: there are no blocks */
    uint32_t inputs;   /* of the row that `blocks` are for */
    uint8_t *memory;   /* owned */
    size_t room;       /* bytes of it */
    size_t from_room;
};

/* The weights of one direction. */
struct resize_axis {
    uint32_t n;       /* outputs */
    uint32_t taps;    /* weights of each, a multiple of 4; those that are not needed are 0 */
    uint32_t *from;   /* owned; of each output: its first input */
    uint32_t *count;  /* owned; how many inputs have a weight */
    int32_t *weights; /* owned; n × taps */
    int16_t *high;    /* owned; n × taps: weights without their lower 12 bits (resize_rows.c) */
    int16_t *low;     /* owned; n × taps: these */
    size_t room;      /* entries of from and count */
    size_t tap_room;  /* of weights */
    double *shares;   /* owned; taps: the weights of one output while they are made */
    size_t share_room;
    int16_t *packed;       /* owned; of each output: `groups` of four weights (resize_rows.c) */
    uint32_t *packed_from; /* owned; of each output: the first input of its first group */
    uint32_t groups;       /* 0: there are none */
    size_t packed_room;
    struct resize_digits digits;
};

/* What a picture, or a part of one, becomes. */
struct resize_goal {
    struct image_size whole;   /* the result, of which */
    struct picture_box window; /* this alone is made; it lies in it */
    enum resize_filter filter; /* of all but resizer_run(): not RESIZE_NEAREST */
};

static inline struct resize_goal resize_goal_of(struct image_size size, enum resize_filter filter)
{
    return (struct resize_goal){.whole = size, .window = {.size = size}, .filter = filter};
}

/* The part of one direction that becomes the outputs: `length` of the `inputs`, from `begin` on. */
struct resize_span {
    uint32_t inputs;
    double begin;
    double length;
    uint32_t outputs; /* of all of it; of these are made */
    uint32_t first;
    uint32_t n;
};

/* What is resized, to what. */
struct resize_job {
    struct resize_span across;
    struct resize_span down;
    enum resize_filter filter;
    bool down_first;
};

/* Memory that is used again; all zero: none yet. */
struct resizer {
    struct resize_axis across;
    struct resize_axis down;
    uint8_t *rows; /* owned; between the two directions */
    size_t room;
    struct resize_job job; /* the one at hand */
    uint32_t next;         /* row that resizer_row() gets next */
    bool keeps_width;
    bool keeps_height;
};

/* `in` has pixels, and so does `size`. -ENOMEM, -EFBIG as picture.h has them. */
int _nodiscard_ resizer_run(struct resizer *resizer, const struct picture *in,
                            struct image_size size, enum resize_filter filter, struct picture *out);

/* Likewise a part of it, which lies in it: Pillow's resize(box=). Not by RESIZE_NEAREST. */
int _nodiscard_ resizer_run_part(struct resizer *resizer, const struct picture *in,
                                 const struct picture_part *part, struct image_size size,
                                 enum resize_filter filter, struct picture *out);

/*
 * Of a picture that comes row by row, from top to bottom, and is never there as a whole: a part of
 * it, which lies in `of`, as Pillow's resize(box=). `of` is the picture's size; `in` what comes of
 * it, which has all pixels that the goal's window is made of; the part is in its pixels.
 *
 *   begin → row × in.height → end
 *
 * begin: 1, or 0 where Pillow begins with the other direction: then resizer_whole() takes what
 * comes. A row has in.width pixels, and PICTURE_SLACK bytes behind them may be read.
 */
struct resize_source {
    struct image_size of;
    struct image_size in;
    struct picture_part part;
};
int _nodiscard_ resizer_begin(struct resizer *resizer, const struct resize_source *source,
                              const struct resize_goal *goal);
void resizer_row(struct resizer *resizer, const uint8_t *row);
/* Instead, with a row of three bytes a pixel, behind which nothing is read. False: it was not
 * taken, and has to be widened, as all others. */
bool _nodiscard_ resizer_narrow_row(struct resizer *resizer, const uint8_t *row);
int _nodiscard_ resizer_end(struct resizer *resizer, struct picture *out);
/* Instead of rows and end. */
int _nodiscard_ resizer_whole(struct resizer *resizer, const struct picture *in,
                              struct picture *out);

void resizer_deinit(struct resizer *resizer);

#endif
