/* What arguments may be, and the messages about those that may not. */
#include "daemon/data/decode/transform/transform.h"
#include "proto/spec_table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

enum { SIDE_MAX = 65535 };

int transform_refuse(const struct transform_reading *rd, const struct value *v, const char *fmt,
                     ...)
{
    char text[DL_ERROR_MESSAGE_MAX], shown[SPEC_SHOWN_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return dl_error_set(rd->err, EINVAL, rd->place, "%s %s", spec_show(v, shown), text);
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

/* Not NaN, and not infinite: no transform has a use for these. */
static bool arg_is_number(const struct value *v, double low, double high)
{
    double n = value_real(v);

    return isfinite(n) && n >= low && n <= high;
}

static bool arg_is_count(const struct value *v, double low, double high)
{
    return v->type == VALUE_INT && arg_is_number(v, low, high);
}

static bool arg_are_numbers(const struct value *v, uint32_t n, double low, double high)
{
    if (v->type != VALUE_ARRAY || v->count != n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!arg_is_number(&v->items[i], low, high))
            return false;
    }
    return true;
}

ARG_READER(arg_p)
{
    (void)arg;
    if (!arg_is_number(v, 0, 1))
        return transform_refuse(rd, v, "is not a probability: a number from 0 to 1");
    t->p = value_real(v);
    return 0;
}

ARG_READER(arg_count)
{
    if (!arg_is_count(v, arg->low, arg->high))
        return transform_refuse(rd, v, "is not a whole number from %g to %g", arg->low, arg->high);
    t->count[arg->slot] = (uint32_t)v->integer;
    return 0;
}

ARG_READER(arg_number)
{
    if (!arg_is_number(v, arg->low, arg->high))
        return transform_refuse(rd, v, "is not a number from %g to %g", arg->low, arg->high);
    t->numbers[arg->slot] = value_real(v);
    return 0;
}

static void arg_set_range(struct transform *t, unsigned slot, double low, double high)
{
    t->ranges[slot][0] = low;
    t->ranges[slot][1] = high;
    t->has_range[slot] = true;
}

static bool arg_take_range(const struct transform_arg *arg, const struct value *v,
                           struct transform *t)
{
    if (!arg_are_numbers(v, 2, arg->low, arg->high) ||
        value_real(&v->items[0]) > value_real(&v->items[1]))
        return false;
    arg_set_range(t, arg->slot, value_real(&v->items[0]), value_real(&v->items[1]));
    return true;
}

ARG_READER(arg_range)
{
    if (arg_take_range(arg, v, t))
        return 0;
    return transform_refuse(rd, v, "is not [low, high], two numbers from %g to %g, smaller first",
                            arg->low, arg->high);
}

ARG_READER(arg_around)
{
    if (arg_take_range(arg, v, t))
        return 0;
    if (!arg_is_number(v, 0, arg->high))
        return transform_refuse(rd, v,
                                "is neither a number from 0 to %g, which stands for itself on both "
                                "sides of 0, nor [low, high]",
                                arg->high);
    arg_set_range(t, arg->slot, -value_real(v), value_real(v));
    return 0;
}

/* As ColorJitter: what changes nothing is not drawn. */
ARG_READER(arg_jitter)
{
    double centre = arg->low < 0 ? 0 : 1, n = value_real(v);

    if (v->type == VALUE_NULL)
        return 0;
    if (!arg_take_range(arg, v, t)) {
        if (!arg_is_number(v, 0, centre == 0 ? arg->high : 1e6))
            return transform_refuse(rd, v,
                                    "is neither a number from 0 to %g, by how much to change, nor "
                                    "[low, high] within %g to %g",
                                    arg->high, arg->low, arg->high);
        double low = centre - n;
        arg_set_range(t, arg->slot, centre == 1 && low < 0 ? 0 : low, centre + n);
    }
    double *range = t->ranges[arg->slot];
    t->has_range[arg->slot] = !(range[0] == centre && range[1] == centre);
    return 0;
}

ARG_READER(arg_spread)
{
    if (arg_is_number(v, arg->low, arg->high)) {
        arg_set_range(t, arg->slot, value_real(v), value_real(v));
        return 0;
    }
    return arg_range(rd, arg, v, t);
}

ARG_READER(arg_pair)
{
    if (v->type == VALUE_NULL)
        return 0;
    if (!arg_are_numbers(v, 2, arg->low, arg->high))
        return transform_refuse(rd, v, "is not [x, y], two numbers from %g to %g", arg->low,
                                arg->high);
    arg_set_range(t, arg->slot, value_real(&v->items[0]), value_real(&v->items[1]));
    return 0;
}

ARG_READER(arg_center)
{
    if (v->type == VALUE_NULL)
        return 0;
    if (!arg_are_numbers(v, 2, arg->low, arg->high))
        return transform_refuse(rd, v, "is not [x, y], a place in the picture");
    t->has_center = true;
    t->center[0] = value_real(&v->items[0]);
    t->center[1] = value_real(&v->items[1]);
    return 0;
}

ARG_READER(arg_shear)
{
    if (v->type == VALUE_NULL)
        return 0;
    if (!arg_are_numbers(v, 4, arg->low, arg->high))
        return arg_around(rd, arg, v, t);
    arg_set_range(t, arg->slot, value_real(&v->items[0]), value_real(&v->items[1]));
    arg_set_range(t, arg->slot + 1, value_real(&v->items[2]), value_real(&v->items[3]));
    return 0;
}

/* One number for all channels, or one for each. Returns how many, 0: neither. */
static uint32_t arg_take_colour(const struct transform_arg *arg, const struct value *v,
                                double ret[static 3])
{
    uint32_t n = v->type == VALUE_ARRAY ? v->count : 1;

    if (n != 1 && n != 3)
        return 0;
    for (uint32_t i = 0; i < 3; i++) {
        const struct value *item = v->type != VALUE_ARRAY ? v : &v->items[n == 3 ? i : 0];
        if (!arg_is_number(item, arg->low, arg->high))
            return 0;
        ret[i] = value_real(item);
    }
    return n;
}

ARG_READER(arg_colour)
{
    t->n_numbers = arg_take_colour(arg, v, t->numbers);
    if (t->n_numbers > 0)
        return 0;
    return transform_refuse(rd, v, "is neither a number nor a list of three, one for each channel");
}

ARG_READER(arg_deviation)
{
    t->n_deviations = arg_take_colour(arg, v, t->deviations);
    for (uint32_t i = 0; i < t->n_deviations; i++) {
        if (t->deviations[i] == 0)
            return transform_refuse(rd, v, "has a 0, and is what pixels are divided by");
    }
    if (t->n_deviations > 0)
        return 0;
    return transform_refuse(rd, v, "is neither a number nor a list of three, one for each channel");
}

/* ---- sizes and places -------------------------------------------------------------------------
 */

ARG_READER(arg_size)
{
    const struct value *side[2] = {v, v};

    (void)arg;
    t->size.n = 1;
    if (v->type == VALUE_ARRAY && v->count >= 1 && v->count <= 2) {
        side[0] = &v->items[0];
        side[1] = &v->items[v->count - 1];
        t->size.n = v->count;
    }
    for (unsigned i = 0; i < 2; i++) {
        if (!arg_is_count(side[i], 1, SIDE_MAX))
            return transform_refuse(rd, v,
                                    "is neither a number of pixels nor [height, width], "
                                    "from 1 to %d each",
                                    SIDE_MAX);
        t->size.side[i] = (uint32_t)side[i]->integer;
    }
    return 0;
}

ARG_READER(arg_side)
{
    return v->type == VALUE_NULL ? 0 : arg_size(rd, arg, v, t);
}

ARG_READER(arg_max_size)
{
    (void)arg;
    if (v->type != VALUE_NULL && !arg_is_count(v, 1, SIDE_MAX))
        return transform_refuse(rd, v, "is not a number of pixels from 1 to %d, or null", SIDE_MAX);
    t->max_size = (uint32_t)value_count(v);
    return 0;
}

ARG_READER(arg_padding)
{
    const uint32_t picks[3][4] = {{0, 0, 0, 0}, {0, 1, 0, 1}, {0, 1, 2, 3}};
    uint32_t n = v->type == VALUE_ARRAY ? v->count : 1, side[4];

    (void)arg;
    if (v->type == VALUE_NULL)
        return 0;
    bool good = n == 1 || n == 2 || n == 4;
    for (uint32_t i = 0; good && i < 4; i++) {
        const struct value *item = v->type != VALUE_ARRAY ? v : &v->items[picks[n / 2][i]];
        good = arg_is_count(item, 0, SIDE_MAX);
        side[i] = (uint32_t)value_count(item);
    }
    if (!good)
        return transform_refuse(rd, v,
                                "is neither a number of pixels from 0 to %d, nor [left and right, "
                                "top and bottom], nor [left, top, right, bottom]",
                                SIDE_MAX);
    t->margins.left = side[0];
    t->margins.top = side[1];
    t->margins.right = side[2];
    t->margins.bottom = side[3];
    return 0;
}

/* torchvision cuts numbers to whole ones, and PIL colours to 8 bits. */
ARG_READER(arg_fill)
{
    static const struct transform_arg bytes = {.low = 0, .high = 255};
    double colour[3] = {0};

    (void)arg;
    if (v->type != VALUE_NULL && arg_take_colour(&bytes, v, colour) == 0)
        return transform_refuse(rd, v,
                                "is neither a number from 0 to 255, nor a list of three, nor null");
    for (unsigned c = 0; c < 3; c++)
        t->fill.rgb[c] = (uint8_t)colour[c];
    return 0;
}

/* ---- words ------------------------------------------------------------------------------------
 */

/* Which of the words it is; -1: none of them, which `rd->err` then says. */
static int arg_word(const struct transform_reading *rd, const struct value *v,
                    const char *const *words)
{
    char list[DL_ERROR_PATH_MAX] = "";

    for (int i = 0; words[i]; i++) {
        if (v->type == VALUE_STRING && strcmp(v->string, words[i]) == 0)
            return i;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    (void)transform_refuse(rd, v, "is not one of %s", list);
    return -1;
}

ARG_READER(arg_choice)
{
    int word = arg_word(rd, v, arg->words);

    t->choice = (uint32_t)word;
    return word < 0 ? -EINVAL : 0;
}

ARG_READER(arg_filter)
{
    static const char *const words[] = {"nearest", "box",     "bilinear",      "hamming",
                                        "bicubic", "lanczos", "nearest-exact", NULL};
    int word = arg_word(rd, v, words);

    (void)arg;
    if (word < 0)
        return -EINVAL;
    t->filter = words[word + 1] ? (enum resize_filter)word : RESIZE_NEAREST;
    return 0;
}

ARG_READER(arg_mode)
{
    static const char *const words[] = {"constant", "edge", "reflect", "symmetric", NULL};
    int word = arg_word(rd, v, words);

    (void)arg;
    t->margins.mode = (enum picture_padding)word;
    return word < 0 ? -EINVAL : 0;
}

ARG_READER(arg_flag)
{
    (void)arg;
    if (v->type != VALUE_BOOL)
        return transform_refuse(rd, v, "is neither true nor false");
    t->flag = v->boolean;
    return 0;
}

ARG_READER(arg_ignored)
{
    (void)arg;
    (void)t;
    if (v->type != VALUE_BOOL && v->type != VALUE_NULL)
        return transform_refuse(rd, v, "is neither true nor false");
    return 0;
}

/* ---- lists ------------------------------------------------------------------------------------
 */

ARG_READER(arg_inner)
{
    (void)arg;
    if (v->type == VALUE_ARRAY && v->count == 0)
        return transform_refuse(rd, v, "is an empty list; give transforms, such as [ColorJitter]");
    return transform_read_list(rd, v, &t->inner, &t->n_inner);
}

ARG_READER(arg_weights)
{
    double sum = 0;

    if (v->type == VALUE_NULL)
        return 0;
    if (v->type != VALUE_ARRAY || v->count == 0 || !arg_are_numbers(v, v->count, 0, arg->high))
        return transform_refuse(rd, v, "is not a list of weights, each 0 or more");
    t->weights = calloc(v->count, sizeof *t->weights);
    t->shares = calloc(v->count, sizeof *t->shares);
    if (!t->weights || !t->shares)
        return dl_error_set(rd->err, ENOMEM, rd->place, "out of memory");
    for (uint32_t i = 0; i < v->count; i++)
        sum += t->shares[i] = value_real(&v->items[i]);
    if (!(sum > 0))
        return transform_refuse(rd, v, "has weights that are all 0");
    for (uint32_t i = 0; i < v->count; i++)
        t->weights[i] = (float)(t->shares[i] / sum);
    t->count[0] = v->count;
    return 0;
}

int arg_check_ratio(const struct transform_reading *rd, struct transform *t)
{
    (void)rd;
    if (t->ranges[2][0] != 0 || t->ranges[2][1] != 0)
        return 0;
    for (unsigned i = 0; i < 2; i++)
        t->ranges[2][i] = (double)(float)log((double)(float)t->ranges[1][i]);
    return 0;
}
