/* Steps. */
#include "daemon/data/decode/image/steps.h"
#include "daemon/data/decode/image/colour.h"
#include "daemon/data/decode/image/pixel_rows.h"
#include "daemon/data/decode/transform/transform.h"

#include <errno.h>
#include <string.h>

static bool steps_has_part(const struct picture_step *step)
{
    return step->part.height != 0 || step->part.width != 0;
}

/* Compared so that NaN is refused, too. */
static bool steps_part_fits(const struct picture_step *step, struct image_size in)
{
    const struct picture_part *part = &step->part;

    return step->choice != RESIZE_NEAREST && part->top >= 0 && part->left >= 0 &&
           part->height > 0 && part->width > 0 && part->top + part->height <= in.height &&
           part->left + part->width <= in.width;
}

static bool steps_fits(const struct picture_step *step, struct image_size in)
{
    switch (step->kind) {
    case STEP_CROP:
        return step->size.height > 0 && step->size.width > 0 &&
               (uint64_t)step->left + step->size.width <= in.width &&
               (uint64_t)step->top + step->size.height <= in.height;
    case STEP_RESIZE:
        return step->size.height > 0 && step->size.width > 0 && step->choice <= RESIZE_LANCZOS &&
               (!steps_has_part(step) || steps_part_fits(step, in));
    case STEP_TRANSPOSE:
        return step->choice < N_TRANSPOSES;
    case STEP_GREY:
        return true;
    case STEP_REDUCE:
        return step->size.height > 0 && step->size.width > 0 &&
               (uint64_t)step->size.height * step->size.width <= PICTURE_REDUCED_MAX;
    }
    return false;
}

static int steps_refuse(const struct transforms_runner *run, uint32_t i)
{
    return dl_error_set(run->err, EINVAL, run->path, "step %u is not one for this picture", i);
}

static int steps_transpose(struct transforms_runner *run, enum picture_transpose how)
{
    bool diagonal = how == TRANSPOSE_DIAGONAL || how == TRANSPOSE_OTHER_DIAGONAL;
    int r = 0;

    if (how >= TRANSPOSE_90)
        r = runner_take(
            run, picture_turn(&run->now, diagonal ? 1 : how - TRANSPOSE_90 + 1, &run->spare));
    if (r == 0 && (how == TRANSPOSE_TOP_BOTTOM || how == TRANSPOSE_DIAGONAL))
        r = runner_take(run, picture_flip_vertically(&run->now, &run->spare));
    if (r == 0 && (how == TRANSPOSE_LEFT_RIGHT || how == TRANSPOSE_OTHER_DIAGONAL))
        picture_flip_horizontally(&run->now);
    return r;
}

static int steps_resize(struct transforms_runner *run, const struct picture_step *step)
{
    if (!steps_has_part(step))
        return runner_take(run, resizer_run(&run->resizer, &run->now, step->size,
                                            (enum resize_filter)step->choice, &run->spare));
    return runner_take(run, resizer_run_part(&run->resizer, &run->now, &step->part, step->size,
                                             (enum resize_filter)step->choice, &run->spare));
}

static int steps_apply(struct transforms_runner *run, const struct picture_step *step)
{
    const struct picture_box box = {.top = step->top, .left = step->left, .size = step->size};

    switch (step->kind) {
    case STEP_CROP:
        return runner_take(run, picture_crop(&run->now, &box, &run->spare));
    case STEP_RESIZE:
        return steps_resize(run, step);
    case STEP_TRANSPOSE:
        return steps_transpose(run, (enum picture_transpose)step->choice);
    case STEP_GREY:
        colour_grey(&run->now, true);
        return 0;
    case STEP_REDUCE:
        return runner_take(run, picture_reduce(&run->now, step->size, &run->spare));
    }
    return 0;
}

/* The box that the crops before all else leave, and whether it is made grey, which may be before or
 * after each of them. Returns how many steps that is. */
static uint32_t steps_crop(const struct picture_step *steps, uint32_t n, struct picture_box *box,
                           bool *ret_grey)
{
    uint32_t i = 0;

    *ret_grey = false;
    for (; i < n; i++) {
        bool grey = steps[i].kind == STEP_GREY;
        if (!grey && (steps[i].kind != STEP_CROP || !steps_fits(&steps[i], box->size)))
            break;
        *ret_grey |= grey;
        if (grey)
            continue;
        box->top += steps[i].top;
        box->left += steps[i].left;
        box->size = steps[i].size;
    }
    return i;
}

bool steps_are_crops(const struct picture_step *steps, uint32_t n, bool grey,
                     struct picture_box *box)
{
    bool made_grey;

    return steps_crop(steps, n, box, &made_grey) == n && (grey || !made_grey);
}

/* ---- crops alone ------------------------------------------------------------------------------
 */

struct steps_filling {
    uint8_t *next;
    size_t width; /* of a row, in pixels */
};

static void steps_fill_row(void *to, const uint8_t *row)
{
    struct steps_filling *filling = to;

    pixel_rows_narrow(row, filling->width, filling->next);
    filling->next += filling->width * PICTURE_COLOURS;
}

static void steps_fill_grey_row(void *to, const uint8_t *row)
{
    struct steps_filling *filling = to;

    colour_grey_bytes(row, filling->width, filling->next);
    filling->next += filling->width;
}

/* Of a file that is grey. */
static void steps_fill_byte_row(void *to, const uint8_t *row)
{
    struct steps_filling *filling = to;

    memcpy(filling->next, row, filling->width);
    filling->next += filling->width;
}

static bool steps_fill_narrow_row(void *to, const uint8_t *row)
{
    struct steps_filling *filling = to;

    memcpy(filling->next, row, filling->width * PICTURE_COLOURS);
    filling->next += filling->width * PICTURE_COLOURS;
    return true;
}

int steps_decode(struct image_decoder *decoder, const struct picture_box *box, bool grey,
                 uint8_t *out, struct dl_error *err)
{
    struct steps_filling filling = {.width = box->size.width};
    struct image_part part;

    filling.next = out;
    image_choose_part(decoder, box, NULL, false, &part);
    return image_decode_part(
        decoder, &part,
        &(struct image_sink){.row = grey ? steps_fill_grey_row : steps_fill_row,
                             .grey_row = grey ? steps_fill_byte_row : NULL,
                             .narrow_row = grey ? NULL : steps_fill_narrow_row,
                             .to = &filling},
        err);
}

/* ---- all others -------------------------------------------------------------------------------
 */

int steps_run(const struct picture_step *steps, uint32_t n, bool grey,
              struct transforms_runner *run, struct image_decoder *decoder, struct image_size *ret,
              struct dl_error *err)
{
    struct picture_box box = {.size = image_source(decoder)};
    bool made_grey;
    uint32_t i = steps_crop(steps, n, &box, &made_grey);
    int r;

    runner_begin(run, NULL, "picture", err);
    if (i < n && !made_grey && steps[i].kind == STEP_RESIZE && !steps_has_part(&steps[i]) &&
        steps[i].choice != RESIZE_NEAREST && steps_fits(&steps[i], box.size)) {
        const struct resize_goal goal =
            resize_goal_of(steps[i].size, (enum resize_filter)steps[i].choice);
        r = image_decode_resized(decoder, &box, &goal, false, &run->now, err);
        i++;
    } else {
        r = image_decode_picture(decoder, &box, &run->now, err);
        if (r == 0 && made_grey)
            colour_grey(&run->now, true);
    }
    for (; r == 0 && i < n; i++)
        r = steps_fits(&steps[i], run->now.size) ? steps_apply(run, &steps[i])
                                                 : steps_refuse(run, i);
    if (r == 0 && (grey || run->now.grey))
        colour_grey(&run->now, grey);
    *ret = run->now.size;
    return r;
}
