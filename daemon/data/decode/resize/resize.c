/* Weights, and two passes over the pixels. */
#include "daemon/data/decode/resize/resize_rows.h"

#include <errno.h>
#include <math.h>

/* ---- filters: the weight at a distance, in output pixels --------------------------------------
 */

static double resize_box(double x)
{
    return x > -0.5 && x <= 0.5 ? 1 : 0;
}

static double resize_bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Pillow has these two numbers as float32. */
static double resize_hamming(double x)
{
    x = fabs(x);
    if (x == 0)
        return 1;
    if (x >= 1)
        return 0;
    x *= M_PI;
    double window = (double)0.54F + (double)0.46F * cos(x);
    return sin(x) / x * window;
}

static double resize_bicubic(double x)
{
    static const double a = -0.5;

    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static double resize_sinc(double x)
{
    if (x == 0)
        return 1;
    x *= M_PI;
    return sin(x) / x;
}

static double resize_lanczos(double x)
{
    return x >= -3 && x < 3 ? resize_sinc(x) * resize_sinc(x / 3) : 0;
}

static const struct {
    double (*weight)(double x);
    double support;
} resize_filters[] = {
    [RESIZE_BOX] = {resize_box, 0.5},       [RESIZE_BILINEAR] = {resize_bilinear, 1},
    [RESIZE_HAMMING] = {resize_hamming, 1}, [RESIZE_BICUBIC] = {resize_bicubic, 2},
    [RESIZE_LANCZOS] = {resize_lanczos, 3},
};

/* ---- weights ----------------------------------------------------------------------------------
 */

static void resize_axis_deinit(struct resize_axis *axis)
{
    free(axis->from);
    free(axis->count);
    free(axis->weights);
    free(axis->high);
    free(axis->low);
    free(axis->shares);
    free(axis->packed);
    free(axis->packed_from);
    free(axis->digits.from);
    free(axis->digits.memory);
    *axis = (struct resize_axis){0};
}

/* Room for `n` entries; what was there need not stay. NULL: out of memory. */
static void *resize_renew(void *memory, size_t *room, size_t n, size_t each)
{
    if (n <= *room)
        return memory;
    free(memory);
    memory = calloc(n, each);
    *room = memory ? n : 0;
    return memory;
}

static int resize_make_room(struct resize_axis *axis, size_t n, size_t taps)
{
    size_t room = axis->room, high_room = axis->tap_room, low_room = axis->tap_room;

    axis->from = resize_renew(axis->from, &room, n, sizeof *axis->from);
    axis->count = resize_renew(axis->count, &axis->room, n, sizeof *axis->count);
    axis->high = resize_renew(axis->high, &high_room, n * taps, sizeof *axis->high);
    axis->low = resize_renew(axis->low, &low_room, n * taps, sizeof *axis->low);
    axis->weights = resize_renew(axis->weights, &axis->tap_room, n * taps, sizeof *axis->weights);
    axis->shares = resize_renew(axis->shares, &axis->share_room, taps, sizeof *axis->shares);
    if (axis->from && axis->count && axis->weights && axis->high && axis->low && axis->shares)
        return 0;
    resize_axis_deinit(axis);
    return -ENOMEM;
}

static int32_t resize_fixed(double share)
{
    double scaled = share * (1 << RESIZE_BITS);

    return (int32_t)(share < 0 ? scaled - 0.5 : scaled + 0.5);
}

/* What the outputs of an axis have in common. */
struct resize_scale {
    double begin;   /* in inputs */
    double step;    /* from output to output */
    double support; /* of the filter, in inputs */
    double narrow;  /* outputs for an input, at most 1: what distances are multiplied by */
    uint32_t inputs;
    uint32_t first; /* output */
};

/* Output `i`. Inlined with the filter's function known. */
static inline __attribute__((always_inline)) void resize_weigh(struct resize_axis *axis, uint32_t i,
                                                               const struct resize_scale *scale,
                                                               double (*weight)(double))
{
    double centre = scale->begin + (scale->first + i + 0.5) * scale->step, sum = 0;
    int32_t *weights = axis->weights + (size_t)i * axis->taps;
    int64_t from = (int64_t)(centre - scale->support + 0.5);
    int64_t to = (int64_t)(centre + scale->support + 0.5);

    from = from < 0 ? 0 : from;
    to = to > scale->inputs ? scale->inputs : to;
    for (int64_t x = from; x < to; x++) {
        double place = (double)x - centre + 0.5;
        double share = weight(place * scale->narrow);
        axis->shares[x - from] = share;
        sum += share;
    }
    axis->from[i] = (uint32_t)from;
    axis->count[i] = (uint32_t)(to - from);
    for (uint32_t t = 0; t < axis->count[i]; t++)
        weights[t] = resize_fixed(sum != 0 ? axis->shares[t] / sum : axis->shares[t]);
    for (uint32_t t = axis->count[i]; t < axis->taps; t++)
        weights[t] = 0;
}

static int resize_axis_set(struct resize_axis *axis, const struct resize_span *span,
                           enum resize_filter filter)
{
    uint32_t outputs = span->n;
    double step = span->length / span->outputs, stretch = step < 1 ? 1 : step;
    struct resize_scale scale = {.begin = span->begin,
                                 .step = step,
                                 .support = resize_filters[filter].support * stretch,
                                 .narrow = 1 / stretch,
                                 .inputs = span->inputs,
                                 .first = span->first};
    uint32_t taps = (uint32_t)align_up((uint64_t)ceil(scale.support) * 2 + 2, 4);
    int r = resize_make_room(axis, outputs, taps);

    if (r < 0)
        return r;
    axis->n = outputs;
    axis->taps = taps;
    for (uint32_t i = 0; filter == RESIZE_BILINEAR && i < outputs; i++)
        resize_weigh(axis, i, &scale, resize_bilinear);
    for (uint32_t i = 0; filter != RESIZE_BILINEAR && i < outputs; i++)
        resize_weigh(axis, i, &scale, resize_filters[filter].weight);
    return 0;
}

/* ---- pixels -----------------------------------------------------------------------------------
 */

/* Pillow adds up the distance from pixel to pixel, and so has its rounding. */
static int resize_nearest(struct resizer *resizer, const struct picture *in, struct picture *out)
{
    uint32_t h = out->size.height, w = out->size.width;
    double step = (double)in->size.width / w, place = step * 0.5;

    if (resize_make_room(&resizer->across, w, 1) < 0)
        return -ENOMEM;
    for (uint32_t x = 0; x < w; x++) {
        resizer->across.from[x] =
            (uint32_t)min_u64((uint64_t)place, (uint64_t)in->size.width - 1) * PICTURE_PIXEL;
        place += step;
    }
    step = (double)in->size.height / h;
    place = step * 0.5;
    for (uint32_t y = 0; y < h; y++) {
        const uint8_t *row =
            picture_row(in, (uint32_t)min_u64((uint64_t)place, (uint64_t)in->size.height - 1));
        place += step;
        uint8_t *to = picture_row(out, y);
        for (uint32_t x = 0; x < w; x++)
            memcpy(to + (size_t)x * PICTURE_PIXEL, row + resizer->across.from[x], PICTURE_PIXEL);
    }
    return 0;
}

static int resize_set_across(struct resizer *resizer)
{
    const struct resize_job *job = &resizer->job;
    const struct resize_kernels *kernels = resize_kernels_get(0);
    int r = resize_axis_set(&resizer->across, &job->across, job->filter);

    if (r == 0 && kernels->set_across)
        r = kernels->set_across(&resizer->across, job->across.inputs);
    return r;
}

static int resize_set_down(struct resizer *resizer)
{
    const struct resize_job *job = &resizer->job;
    const struct resize_kernels *kernels = resize_kernels_get(0);
    int r = resize_axis_set(&resizer->down, &job->down, job->filter);

    if (r == 0 && kernels->set_down)
        r = kernels->set_down(&resizer->down);
    return r;
}

static void resize_pass_down(const struct resizer *resizer, const struct resize_rows *in,
                             uint8_t *out)
{
    const struct resize_kernels *kernels = resize_kernels_get(0);

    for (uint32_t y = 0; y < resizer->job.down.n; y++)
        kernels->down(&resizer->down, y, in, out + y * in->bytes);
}

/* Pillow 13's choice. Down first, where the height loses more than twice what the width does:
 * rounding to 8 bits between the two shows which it was. */
static bool resize_is_down_first(struct image_size from, struct image_size to)
{
    int64_t lost_h = (int64_t)from.height - to.height;
    int64_t lost_w = (int64_t)from.width - to.width;

    return lost_h > 0 && lost_h > 2 * lost_w;
}

static bool resize_keeps(const struct resize_span *span)
{
    return span->begin == 0 && span->length == span->outputs && span->inputs == span->outputs &&
           span->n == span->outputs;
}

/* Room for `height` rows of `width` pixels between the two passes. */
static int resize_make_rows(struct resizer *resizer, uint32_t height, uint32_t width)
{
    uint64_t pixels = (uint64_t)height * width;

    if (pixels > IMAGE_BYTES_MAX / 3)
        return -EFBIG;
    resizer->rows =
        resize_renew(resizer->rows, &resizer->room, pixels * PICTURE_PIXEL + PICTURE_SLACK, 1);
    return resizer->rows ? 0 : -ENOMEM;
}

static struct resize_job resize_job_of(const struct resize_source *source,
                                       const struct resize_goal *goal)
{
    const struct picture_box *window = &goal->window;

    return (struct resize_job){.across = {.inputs = source->in.width,
                                          .begin = source->part.left,
                                          .length = source->part.width,
                                          .outputs = goal->whole.width,
                                          .first = (uint32_t)window->left,
                                          .n = window->size.width},
                               .down = {.inputs = source->in.height,
                                        .begin = source->part.top,
                                        .length = source->part.height,
                                        .outputs = goal->whole.height,
                                        .first = (uint32_t)window->top,
                                        .n = window->size.height},
                               .filter = goal->filter,
                               .down_first = resize_is_down_first(source->of, goal->whole)};
}

static struct image_size resize_result(const struct resizer *resizer)
{
    return (struct image_size){.height = resizer->job.down.n, .width = resizer->job.across.n};
}

/* Of a whole picture. Then across, where the width changes. */
static int resize_down_whole(struct resizer *resizer, const struct picture *in, struct picture *out)
{
    const struct resize_job *job = &resizer->job;
    struct resize_rows rows = {.pixels = in->pixels,
                               .height = in->size.height,
                               .bytes = (size_t)in->size.width * PICTURE_PIXEL};
    bool both = !resize_keeps(&job->across);
    int r = resize_set_down(resizer);

    if (r == 0 && both)
        r = resize_make_rows(resizer, job->down.n, job->across.inputs);
    if (r == 0 && both)
        r = resize_set_across(resizer);
    if (r < 0)
        return r;
    resize_pass_down(resizer, &rows, both ? resizer->rows : out->pixels);
    for (uint32_t y = 0; both && y < job->down.n; y++)
        resize_kernels_get(0)->across(&resizer->across, resizer->rows + y * rows.bytes,
                                      picture_row(out, y));
    return 0;
}

/* ---- row by row -------------------------------------------------------------------------------
 */

/* A kept width or height is that pass left out. */
static int resize_begin(struct resizer *resizer)
{
    const struct resize_job *job = &resizer->job;
    int r = resize_make_rows(resizer, job->down.inputs, job->across.n);

    resizer->next = 0;
    resizer->keeps_width = resize_keeps(&job->across);
    resizer->keeps_height = resize_keeps(&job->down);
    if (r == 0 && !resizer->keeps_width)
        r = resize_set_across(resizer);
    if (r == 0 && !resizer->keeps_height)
        r = resize_set_down(resizer);
    return r;
}

int resizer_begin(struct resizer *resizer, const struct resize_source *source,
                  const struct resize_goal *goal)
{
    resizer->job = resize_job_of(source, goal);
    if (resizer->job.down_first)
        return 0;
    int r = resize_begin(resizer);
    return r < 0 ? r : 1;
}

void resizer_row(struct resizer *resizer, const uint8_t *row)
{
    size_t bytes = (size_t)resizer->job.across.n * PICTURE_PIXEL;
    uint8_t *to = resizer->rows + resizer->next++ * bytes;

    if (resizer->keeps_width)
        memcpy(to, row, bytes);
    else
        resize_kernels_get(0)->across(&resizer->across, row, to);
}

bool resizer_narrow_row(struct resizer *resizer, const uint8_t *row)
{
    size_t bytes = (size_t)resizer->job.across.n * PICTURE_PIXEL;
    const struct resize_kernels *kernels = resize_kernels_get(0);

    if (resizer->keeps_width || !kernels->across_narrow ||
        !kernels->across_narrow(&resizer->across, row, resizer->rows + resizer->next * bytes))
        return false;
    resizer->next++;
    return true;
}

static void resize_finish(const struct resizer *resizer, struct picture *out)
{
    const struct resize_job *job = &resizer->job;
    const struct resize_rows rows = {.pixels = resizer->rows,
                                     .height = job->down.inputs,
                                     .bytes = (size_t)job->across.n * PICTURE_PIXEL};

    if (resizer->keeps_height)
        memcpy(out->pixels, rows.pixels, rows.bytes * rows.height);
    else
        resize_pass_down(resizer, &rows, out->pixels);
}

int resizer_end(struct resizer *resizer, struct picture *out)
{
    int r = picture_set(out, resize_result(resizer), false);

    if (r == 0)
        resize_finish(resizer, out);
    return r;
}

/* ---- pictures ---------------------------------------------------------------------------------
 */

int resizer_whole(struct resizer *resizer, const struct picture *in, struct picture *out)
{
    int r = picture_set(out, resize_result(resizer), in->grey);

    if (r < 0)
        return r;
    if (resizer->job.down_first || resize_keeps(&resizer->job.across))
        return resize_down_whole(resizer, in, out);
    if ((r = resize_begin(resizer)) < 0)
        return r;
    for (uint32_t y = 0; y < in->size.height; y++)
        resizer_row(resizer, picture_row(in, y));
    resize_finish(resizer, out);
    return 0;
}

int resizer_run_part(struct resizer *resizer, const struct picture *in,
                     const struct picture_part *part, struct image_size size,
                     enum resize_filter filter, struct picture *out)
{
    const struct resize_source source = {.of = in->size, .in = in->size, .part = *part};
    const struct resize_goal goal = resize_goal_of(size, filter);

    resizer->job = resize_job_of(&source, &goal);
    return resizer_whole(resizer, in, out);
}

int resizer_run(struct resizer *resizer, const struct picture *in, struct image_size size,
                enum resize_filter filter, struct picture *out)
{
    const struct picture_part whole = {.height = in->size.height, .width = in->size.width};

    if (filter == RESIZE_NEAREST) {
        int r = picture_set(out, size, in->grey);
        return r < 0 ? r : resize_nearest(resizer, in, out);
    }
    return resizer_run_part(resizer, in, &whole, size, filter, out);
}

void resizer_deinit(struct resizer *resizer)
{
    resize_axis_deinit(&resizer->across);
    resize_axis_deinit(&resizer->down);
    free(resizer->rows);
    *resizer = (struct resizer){0};
}
