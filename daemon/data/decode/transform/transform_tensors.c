/*
 * From pictures to tensors, and what is done to those:
 * torchvision/transforms/v2/_type_conversion.py, _misc.py and _augment.py of torchvision 0.28. Sums
 * are torch's in float32: ToTensor divides by 255, ToDtype multiplies by what is nearest to 1/255,
 * Normalize subtracts and then divides. Of float16 and bfloat16, too, each step is worked out in
 * float32, as torch does on a CPU, and its result rounded: so elements are floats while transforms
 * run, and become 16 bits when they are written.
 */
#include "daemon/data/decode/image/pixel_rows.h"
#include "daemon/data/decode/transform/narrow.h"
#include "daemon/data/decode/transform/planes.h"
#include "daemon/data/decode/transform/transform.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#if defined(__SSE2__) && !defined(PLAIN_VECTORS)
#include <emmintrin.h>
#define TENSORS_STREAM
#endif

enum {
    LEVELS = 256,
    CHANNELS = 3,
    ERASE_TRIES = 10,
    STREAMED = 4, /* pixels at once */
};

static int tensors_out_of_memory(const struct transforms_runner *run)
{
    return dl_error_set(run->err, ENOMEM, run->path, "out of memory for its transforms");
}

/* The dtypes that a word stands for, by its place. */
static const char *const tensors_dtypes[] = {"uint8", "float32", "float16", "bfloat16", NULL};
static const uint32_t dtype_numbers[] = {DL_DTYPE_UINT8, DL_DTYPE_FLOAT32, DL_DTYPE_FLOAT16,
                                         DL_DTYPE_BFLOAT16};

/* ---- shapes -----------------------------------------------------------------------------------
 */

static int tensors_shape_convert(const struct transform_reading *rd, const struct transform *t,
                                 struct transforms_shape *shape)
{
    if (shape->is_tensor)
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "%s is for pictures, but its input is already a tensor; leave it out",
                            t->kind->name);
    shape->is_tensor = true;
    shape->dtype = t->flag ? DL_DTYPE_FLOAT32 : DL_DTYPE_UINT8;
    return 0;
}

static int tensors_need_tensor(const struct transform_reading *rd, const struct transform *t,
                               const struct transforms_shape *shape)
{
    if (shape->is_tensor)
        return 0;
    return dl_error_set(rd->err, EINVAL, rd->place,
                        "%s is for tensors, but its input is a picture; write ToImage or ToTensor "
                        "before it",
                        t->kind->name);
}

static int tensors_shape_keep(const struct transform_reading *rd, const struct transform *t,
                              struct transforms_shape *shape)
{
    return tensors_need_tensor(rd, t, shape);
}

static int tensors_shape_dtype(const struct transform_reading *rd, const struct transform *t,
                               struct transforms_shape *shape)
{
    uint32_t dtype = dtype_numbers[t->choice];

    if (dtype == DL_DTYPE_UINT8 && shape->dtype != DL_DTYPE_UINT8)
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "%s would make uint8 of %s, which is not supported; leave it out",
                            t->kind->name, dtype_name(shape->dtype));
    shape->dtype = dtype;
    return tensors_need_tensor(rd, t, shape);
}

/* What float16 has not would become infinite, or divide by 0. */
static int tensors_check_narrow(const struct transform_reading *rd, const struct transform *t,
                                uint32_t dtype)
{
    for (unsigned c = 0; c < CHANNELS; c++) {
        float mean = narrow_round(dtype, (float)t->numbers[c]);
        float deviation = narrow_round(dtype, (float)t->deviations[c]);
        if (!isfinite(mean) || !isfinite(deviation) || deviation == 0)
            return dl_error_set(rd->err, EINVAL, rd->place,
                                "Normalize has a mean of %g and a std of %g, which %s cannot "
                                "represent; write ToDtype to %s after it",
                                t->numbers[c], t->deviations[c], dtype_name(dtype),
                                dtype_name(dtype));
    }
    return 0;
}

static int tensors_shape_normalize(const struct transform_reading *rd, const struct transform *t,
                                   struct transforms_shape *shape)
{
    if (shape->is_tensor && shape->dtype == DL_DTYPE_UINT8)
        return dl_error_set(
            rd->err, EINVAL, rd->place,
            "Normalize is for floats, but its input is uint8; write {kind: ToDtype, "
            "dtype: float32, scale: true} before it");
    if (shape->channels == 1 && (t->n_numbers == 3 || t->n_deviations == 3))
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "Normalize has three numbers, but its input has one channel; give one");
    int r = tensors_need_tensor(rd, t, shape);
    return r < 0 ? r : tensors_check_narrow(rd, t, shape->dtype);
}

static int tensors_shape_erasing(const struct transform_reading *rd, const struct transform *t,
                                 struct transforms_shape *shape)
{
    if (shape->is_tensor && shape->dtype == DL_DTYPE_UINT8)
        return dl_error_set(rd->err, EINVAL, rd->place,
                            "RandomErasing of uint8 is not supported; write {kind: ToDtype, dtype: "
                            "float32, scale: true} before it");
    if (shape->channels == 1 && t->n_numbers == 3)
        return dl_error_set(
            rd->err, EINVAL, rd->place,
            "RandomErasing has three values, but its input has one channel; give one");
    return tensors_need_tensor(rd, t, shape);
}

/* ---- conversions ------------------------------------------------------------------------------
 */

static int tensors_apply_to_tensor(const struct transform *t, struct transforms_runner *run)
{
    struct transform_tensor *tensor = &run->tensor;

    (void)t;
    run->is_tensor = true;
    tensor->is_made = false;
    tensor->dtype = DL_DTYPE_FLOAT32;
    for (unsigned c = 0; c < CHANNELS; c++) {
        for (unsigned i = 0; i < LEVELS; i++)
            tensor->tables[c][i] = (float)i / 255.0F;
    }
    return 0;
}

static int tensors_apply_to_image(const struct transform *t, struct transforms_runner *run)
{
    (void)t;
    run->is_tensor = true;
    run->tensor.is_made = false;
    run->tensor.dtype = DL_DTYPE_UINT8;
    return 0;
}

static int tensors_apply_nothing(const struct transform *t, struct transforms_runner *run)
{
    (void)t;
    (void)run;
    return 0;
}

static void tensors_round(uint32_t dtype, float *values, size_t n)
{
    if (dtype == DL_DTYPE_FLOAT32)
        return;
    for (size_t i = 0; i < n; i++)
        values[i] = narrow_round(dtype, values[i]);
}

/* Every element, whichever way they are held. */
static void tensors_round_all(struct transforms_runner *run)
{
    struct transform_tensor *tensor = &run->tensor;

    if (tensor->is_made)
        tensors_round(tensor->dtype, tensor->values,
                      picture_pixels(&run->now) * runner_channels(run));
    for (unsigned c = 0; !tensor->is_made && c < CHANNELS; c++)
        tensors_round(tensor->dtype, tensor->tables[c], LEVELS);
}

/* To what it is already: nothing, scale or not. Whole numbers of 8 bits are in every dtype. */
static int tensors_apply_dtype(const struct transform *t, struct transforms_runner *run)
{
    struct transform_tensor *tensor = &run->tensor;
    float scale = t->flag ? (float)(1.0 / 255.0) : 1;
    uint32_t before = tensor->dtype;

    tensor->dtype = dtype_numbers[t->choice];
    if (tensor->dtype == before)
        return 0;
    for (unsigned c = 0; before == DL_DTYPE_UINT8 && c < CHANNELS; c++) {
        for (unsigned i = 0; i < LEVELS; i++)
            tensor->tables[c][i] = (float)i * scale;
    }
    tensors_round_all(run);
    return 0;
}

/* ---- elements ---------------------------------------------------------------------------------
 */

/* Pixels of one picture: of the only one, or of one of a stack. */
struct tensors_part {
    const uint8_t *pixels;
    size_t n;
    uint32_t channels;
    bool near; /* TRANSFORMS_NEAR */
};

#ifdef TENSORS_STREAM

static inline void tensors_put_four(const float *table, const uint8_t *px, bool past, float *out)
{
    __m128 four = _mm_setr_ps(table[px[0]], table[px[PICTURE_PIXEL]], table[px[2 * PICTURE_PIXEL]],
                              table[px[3 * PICTURE_PIXEL]]);

    if (past)
        _mm_stream_ps(out, four);
    else
        _mm_storeu_ps(out, four);
}

static inline __attribute__((always_inline)) void tensors_put_all(
    const struct transform_tensor *tensor, const struct tensors_part *part, bool past, float *out)
{
    const uint8_t *px = part->pixels;
    size_t n = part->n;

    for (size_t i = 0; i < n; i += STREAMED, px += STREAMED * PICTURE_PIXEL) {
        for (unsigned c = 0; c < CHANNELS; c++)
            tensors_put_four(tensor->tables[c], px + c, past, out + c * n + i);
    }
}

/*
 * All channels of four pixels at once; past the cache unless it is for this processor: a result of
 * this size is read by another process, or after a whole batch. False: it is not one of these, and
 * nothing is done.
 */
static bool tensors_write_large(const struct transform_tensor *tensor,
                                const struct tensors_part *part, float *out)
{
    size_t n = part->n;

    if (n < PLANES_STREAM_MIN || n % STREAMED != 0 || (uintptr_t)out % sizeof(__m128) != 0 ||
        part->channels != CHANNELS)
        return false;
    if (part->near) {
        tensors_put_all(tensor, part, false, out);
        return true;
    }
    tensors_put_all(tensor, part, true, out);
    _mm_sfence();
    return true;
}

#else

static bool tensors_write_large(const struct transform_tensor *tensor,
                                const struct tensors_part *part, float *out)
{
    (void)tensor;
    (void)part;
    (void)out;
    return false;
}

#endif

static void tensors_write_table(const struct transform_tensor *tensor,
                                const struct tensors_part *part, float *out)
{
    for (uint32_t c = 0; c < part->channels; c++) {
        const float *table = tensor->tables[c];
        float *to = out + c * part->n;
        for (size_t i = 0; i < part->n; i++)
            to[i] = table[part->pixels[i * PICTURE_PIXEL + c]];
    }
}

static int tensors_make(struct transforms_runner *run)
{
    struct transform_tensor *tensor = &run->tensor;
    size_t n = picture_pixels(&run->now) * runner_channels(run);

    if (tensor->is_made)
        return 0;
    if (n > tensor->room) {
        free(tensor->values);
        tensor->values = calloc(n, sizeof *tensor->values);
        tensor->room = tensor->values ? n : 0;
    }
    if (!tensor->values && n > 0)
        return tensors_out_of_memory(run);
    struct tensors_part part = {.pixels = run->now.pixels,
                                .n = picture_pixels(&run->now),
                                .channels = runner_channels(run)};
    tensors_write_table(tensor, &part, tensor->values);
    tensor->is_made = true;
    return 0;
}

static void tensors_normalize(float *values, size_t n, float mean, float deviation)
{
    for (size_t i = 0; i < n; i++) {
        float centred = values[i] - mean;
        values[i] = centred / deviation;
    }
}

static void tensors_normalize_narrow(uint32_t dtype, float *values, size_t n, float mean,
                                     float deviation)
{
    for (size_t i = 0; i < n; i++) {
        float centred = narrow_round(dtype, values[i] - mean);
        values[i] = narrow_round(dtype, centred / deviation);
    }
}

static int tensors_apply_normalize(const struct transform *t, struct transforms_runner *run)
{
    struct transform_tensor *tensor = &run->tensor;
    size_t n = picture_pixels(&run->now);

    for (uint32_t c = 0; c < runner_channels(run); c++) {
        float mean = narrow_round(tensor->dtype, (float)t->numbers[c]);
        float deviation = narrow_round(tensor->dtype, (float)t->deviations[c]);
        float *values = tensor->is_made ? tensor->values + c * n : tensor->tables[c];
        size_t count = tensor->is_made ? n : LEVELS;
        if (tensor->dtype == DL_DTYPE_FLOAT32)
            tensors_normalize(values, count, mean, deviation);
        else
            tensors_normalize_narrow(tensor->dtype, values, count, mean, deviation);
    }
    return 0;
}

/* ---- RandomErasing ----------------------------------------------------------------------------
 */

/* A number, three, or the word random: normal noise, n_numbers 0. */
static ARG_READER(tensors_read_value)
{
    if (v->type == VALUE_STRING && strcmp(v->string, "random") == 0) {
        t->n_numbers = 0;
        return 0;
    }
    if (v->type == VALUE_STRING)
        return transform_refuse(rd, v, "is neither a number, nor a list of three, nor random");
    return arg_colour(rd, arg, v, t);
}

/* What is erased: h × w from (top, left) on; false: nothing is. Random numbers go to `noise`. */
struct tensors_hole {
    uint32_t h;
    uint32_t w;
    uint32_t top;
    uint32_t left;
    float *noise; /* owned */
};

static int tensors_draw_hole(const struct transform *t, struct transforms_runner *run,
                             struct tensors_hole *ret)
{
    struct image_size size = run->now.size;
    double area = (double)size.height * size.width;

    for (int i = 0; i < ERASE_TRIES; i++) {
        double hole = area * (double)draws_uniform(run->draws, t->ranges[0][0], t->ranges[0][1]);
        float log_aspect = draws_uniform(run->draws, t->ranges[2][0], t->ranges[2][1]);
        double aspect = (double)(float)exp((double)log_aspect);
        double h = rint(sqrt(hole * aspect)), w = rint(sqrt(hole / aspect));
        if (!(h < size.height && w < size.width))
            continue;
        *ret = (struct tensors_hole){.h = (uint32_t)h, .w = (uint32_t)w};
        size_t n = (size_t)runner_channels(run) * ret->h * ret->w;
        if (t->n_numbers == 0 && n > 0) {
            ret->noise = calloc(n, sizeof *ret->noise);
            if (!ret->noise)
                return tensors_out_of_memory(run);
            draws_normals(run->draws, n, ret->noise);
        }
        ret->top = (uint32_t)draws_int(run->draws, 0, (int64_t)size.height - ret->h + 1);
        ret->left = (uint32_t)draws_int(run->draws, 0, (int64_t)size.width - ret->w + 1);
        return 0;
    }
    return 0;
}

static void tensors_erase(const struct transform *t, struct transforms_runner *run,
                          const struct tensors_hole *hole)
{
    size_t width = run->now.size.width, plane = picture_pixels(&run->now);
    const float *noise = hole->noise;

    for (uint32_t c = 0; c < runner_channels(run); c++) {
        float *rows = run->tensor.values + c * plane + hole->top * width + hole->left;
        float value = narrow_round(run->tensor.dtype, noise ? 0 : (float)t->numbers[c]);
        for (uint32_t y = 0; y < hole->h; y++, rows += width) {
            for (uint32_t x = 0; x < hole->w; x++)
                rows[x] = noise ? narrow_round(run->tensor.dtype, *noise++) : value;
        }
    }
}

static int tensors_apply_erasing(const struct transform *t, struct transforms_runner *run)
{
    struct tensors_hole hole = {0};
    int r;

    if (transform_is_skipped(t, run))
        return 0;
    if ((r = tensors_draw_hole(t, run, &hole)) == 0 && hole.h > 0 && hole.w > 0 &&
        (r = tensors_make(run)) == 0)
        tensors_erase(t, run, &hole);
    free(hole.noise);
    return r;
}

/* ---- the result -------------------------------------------------------------------------------
 */

static void tensors_write_floats(const struct transform_tensor *tensor,
                                 const struct tensors_part *part, float *out)
{
    if (!tensors_write_large(tensor, part, out))
        tensors_write_table(tensor, part, out);
}

static void tensors_write_pixels(const struct tensors_part *part, uint8_t *out)
{
    if (part->channels == PICTURE_COLOURS)
        pixel_rows_narrow(part->pixels, part->n, out);
    else
        planes_write(part->pixels, part->n, part->channels, part->near, out);
}

/* As 16 bits each, which `out` need not be aligned for. */
static void tensors_write_narrow_table(const struct transform_tensor *tensor,
                                       const struct tensors_part *part, uint8_t *out)
{
    for (uint32_t c = 0; c < part->channels; c++) {
        uint16_t table[LEVELS];
        for (unsigned i = 0; i < LEVELS; i++)
            table[i] = narrow_bits(tensor->dtype, tensor->tables[c][i]);
        for (size_t i = 0; i < part->n; i++, out += sizeof table[0])
            memcpy(out, &table[part->pixels[i * PICTURE_PIXEL + c]], sizeof table[0]);
    }
}

static void tensors_write_narrow(const struct transform_tensor *tensor, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++, out += sizeof(uint16_t)) {
        uint16_t bits = narrow_bits(tensor->dtype, tensor->values[i]);
        memcpy(out, &bits, sizeof bits);
    }
}

static void tensors_write_part(const struct transforms_runner *run, const struct tensors_part *part,
                               bool planar, void *out)
{
    const struct transform_tensor *tensor = &run->tensor;

    if (run->is_tensor && tensor->dtype == DL_DTYPE_FLOAT32)
        tensors_write_floats(tensor, part, out);
    else if (run->is_tensor && tensor->dtype != DL_DTYPE_UINT8)
        tensors_write_narrow_table(tensor, part, out);
    else if (run->is_tensor || planar)
        planes_write(part->pixels, part->n, part->channels, part->near, out);
    else
        tensors_write_pixels(part, out);
}

void transforms_write(const struct transforms_runner *run, enum transforms_way way, void *out)
{
    const struct transform_tensor *tensor = &run->tensor;
    uint32_t stack = run->stack ? run->stack : 1;
    struct tensors_part part = {.pixels = run->now.pixels,
                                .n = picture_pixels(&run->now) / stack,
                                .channels = runner_channels(run),
                                .near = way == TRANSFORMS_NEAR};
    size_t elements = part.n * part.channels;
    size_t bytes = elements * (run->is_tensor ? dtype_bytes(tensor->dtype) : 1);

    if (run->is_tensor && tensor->is_made && tensor->dtype == DL_DTYPE_FLOAT32) {
        memcpy(out, tensor->values, bytes);
        return;
    }
    if (run->is_tensor && tensor->is_made) {
        tensors_write_narrow(tensor, elements, out);
        return;
    }
    for (uint32_t i = 0; i < stack; i++, part.pixels += part.n * PICTURE_PIXEL)
        tensors_write_part(run, &part, way == TRANSFORMS_PLANAR, (uint8_t *)out + i * bytes);
}

/* ---- rows -------------------------------------------------------------------------------------
 */

static const struct transform_kind tensors_kinds[] = {
    {.name = "ToTensor",
     .stacks = true,
     .start = {.flag = true},
     .shape = tensors_shape_convert,
     .apply = tensors_apply_to_tensor},
    {.name = "PILToTensor",
     .stacks = true,
     .shape = tensors_shape_convert,
     .apply = tensors_apply_to_image},
    {.name = "ToImage",
     .stacks = true,
     .shape = tensors_shape_convert,
     .apply = tensors_apply_to_image},
    {.name = "ToPureTensor",
     .stacks = true,
     .shape = tensors_shape_keep,
     .apply = tensors_apply_nothing},
    {.name = "ToDtype",
     .stacks = true,
     .args = {{"dtype", arg_choice, .words = tensors_dtypes, .is_required = true},
              {"scale", arg_flag}},
     .shape = tensors_shape_dtype,
     .apply = tensors_apply_dtype},
    {.name = "ConvertImageDtype",
     .stacks = true,
     .start = {.choice = 1, .flag = true},
     .args = {{"dtype", arg_choice, .words = tensors_dtypes}},
     .shape = tensors_shape_dtype,
     .apply = tensors_apply_dtype},
    {.name = "Normalize",
     .stacks = true,
     .args = {{"mean", arg_colour, .low = -1e30, .high = 1e30, .is_required = true},
              {"std", arg_deviation, .low = -1e30, .high = 1e30, .is_required = true},
              {"inplace", arg_ignored}},
     .shape = tensors_shape_normalize,
     .apply = tensors_apply_normalize},
    {.name = "RandomErasing",
     .start = {.p = 0.5, .ranges = {{0.02, 0.33}, {0.3, 3.3}}, .n_numbers = 1},
     .args = {{"p", arg_p},
              {"scale", arg_range, .slot = 0, .low = 0, .high = 1},
              {"ratio", arg_range, .slot = 1, .low = 1e-6, .high = 1e6},
              {"log_ratio", arg_range, .slot = 2, .low = -14, .high = 14},
              {"value", tensors_read_value, .low = -1e30, .high = 1e30},
              {"inplace", arg_ignored}},
     .check = arg_check_ratio,
     .shape = tensors_shape_erasing,
     .apply = tensors_apply_erasing},
};

const struct transform_group transform_tensors = {tensors_kinds, ARRAY_SIZE(tensors_kinds)};
