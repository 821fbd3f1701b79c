/*
 * Numbers that are not integers, sizes of images, and how an image's keys must fit together.
 * Canonical numbers are floats without -0, so that equal numbers are equal bytes.
 */
#include "proto/kinds.h"
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

const double *spec_numbers_at(const struct dl_spec *spec, const struct spec_key *key)
{
    return (const double *)((const char *)spec + key->offset);
}

static double *spec_numbers_field_of(struct dl_spec *spec, const struct spec_key *key)
{
    return (double *)((char *)spec + key->offset);
}

int spec_read_number(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    double number = value_real(v) + 0.0; /* -0.0 is 0 */

    if (isnan(number))
        return spec_refuse(rd, key, v, "is not a number");
    if (key->max && !(number >= (double)key->min && number <= (double)key->max))
        return spec_refuse(rd, key, v, "is not a number from %" PRIu64 " to %" PRIu64, key->min,
                           key->max);
    *spec_numbers_field_of(rd->spec, key) = number;
    return 0;
}

int spec_read_range(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    char place[DL_ERROR_PATH_MAX];

    if (v->type != VALUE_ARRAY || v->count != 2 || isnan(value_real(&v->items[0])) ||
        isnan(value_real(&v->items[1])))
        return spec_refuse(rd, key, v, "is not a list of two numbers, the smaller and the larger");
    double low = value_real(&v->items[0]) + 0.0, high = value_real(&v->items[1]) + 0.0;
    spec_place(rd, key, place);
    if (!(low > 0 && low <= high && isfinite(high)))
        return dl_error_set(rd->err, EINVAL, place,
                            "%g and %g are not a range above 0, smaller first", low, high);
    if (key->max && high > (double)key->max)
        return dl_error_set(rd->err, EINVAL, place, "%g is above the maximum of %" PRIu64, high,
                            key->max);
    spec_numbers_field_of(rd->spec, key)[0] = low;
    spec_numbers_field_of(rd->spec, key)[1] = high;
    return 0;
}

/* A number, or a text with a fraction of two: NAN else. */
static double spec_numbers_quotient(const struct value *v)
{
    char *end;

    if (v->type != VALUE_STRING)
        return value_real(v);
    double above = strtod(v->string, &end);
    if (end == v->string || *end != '/')
        return NAN;
    const char *rest = end + 1;
    double below = strtod(rest, &end);
    return end == rest || *end ? NAN : above / below;
}

int spec_read_cost(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    static const char *const names[] = {"linear", "square"};
    double *costs = spec_numbers_field_of(rd->spec, key);
    uint32_t found = 0;

    if (v->type != VALUE_MAP)
        return spec_refuse(rd, key, v, "is not a map, such as {linear: 1, square: 1/4096}");
    for (uint32_t i = 0; i < ARRAY_SIZE(names); i++) {
        const struct value *item = value_get(v, names[i]);
        double cost = item ? spec_numbers_quotient(item) + 0.0 : 0;

        found += item != NULL;
        if (!(cost >= 0 && cost <= (double)key->max))
            return spec_refuse(rd, key, item,
                               "is not a number from 0 to %" PRIu64
                               " for %s, nor a fraction, such as 1/4096",
                               key->max, names[i]);
        costs[i] = cost;
    }
    if (found < v->count)
        return spec_refuse(rd, key, v, "has other keys than linear and square");
    return 0;
}

int spec_read_size(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    struct spec_image *image = &rd->spec->dataset.image;
    char size[DL_ERROR_PATH_MAX], place[DL_ERROR_PATH_MAX], shown[SPEC_SHOWN_MAX];
    bool list = v->type == VALUE_ARRAY;
    uint32_t *fields[] = {&image->height, &image->width};

    if ((list && v->count != 2) || v->type == VALUE_MAP)
        return spec_refuse(rd, key, v, "is neither one number of pixels nor [height, width]");
    spec_place(rd, key, size);
    for (uint32_t i = 0; i < ARRAY_SIZE(fields); i++) {
        const struct value *item = list ? &v->items[i] : v;
        spec_place_item(size, i, place);
        if (item->type != VALUE_INT || item->integer < (int64_t)key->min ||
            item->integer > (int64_t)key->max)
            return dl_error_set(rd->err, EINVAL, list ? place : size,
                                "%s is not a number of pixels from %" PRIu64 " to %" PRIu64,
                                spec_show(item, shown), key->min, key->max);
        *fields[i] = (uint32_t)item->integer;
    }
    return 0;
}

static int spec_numbers_check_transforms(struct spec_reading *rd)
{
    const struct spec_dataset *dataset = &rd->spec->dataset;
    const struct spec_image *image = &dataset->image;
    char place[DL_ERROR_PATH_MAX];

    bool views = dataset->views.type != VALUE_NULL;

    spec_place(rd, spec_key_find("dataset", views ? "views" : "transforms"), place);
    if (!views && dataset->transforms.type == VALUE_NULL)
        return 0;
    if (!views && dataset->transforms.type != VALUE_ARRAY)
        return dl_error_set(rd->err, EINVAL, place,
                            "is not a list of transforms, such as [{kind: Resize, size: 256}, "
                            "ToTensor]");
    if (views && dataset->views.type != VALUE_ARRAY)
        return dl_error_set(rd->err, EINVAL, place,
                            "is not a list of views, such as [{transforms: [ToTensor], count: 2}]");
    if (views && dataset->transforms.type != VALUE_NULL)
        return dl_error_set(
            rd->err, EINVAL, place,
            "is given together with transforms; a view has all of its transforms in its own "
            "list: leave out one of them");
    if (image->grey)
        return dl_error_set(rd->err, EINVAL, place,
                            "is given together with grey; write Grayscale among the transforms");
    if (image->transform == TRANSFORM_NONE && !(image->flip > 0))
        return 0;
    return dl_error_set(
        rd->err, EINVAL, place,
        "is given together with transform, size or flip; write those as transforms, too: "
        "{kind: RandomResizedCrop, size: 224}, RandomHorizontalFlip");
}

/* Memory that processes share: of a size that it can be made of, or 0. */
static int spec_numbers_check_shared(struct spec_reading *rd, const char *name, uint64_t bytes,
                                     const char *what)
{
    const uint64_t least = UINT64_C(1) << 20, most = UINT64_C(1) << 42;
    char place[DL_ERROR_PATH_MAX];

    if (bytes == 0 || (bytes >= least && bytes <= most))
        return 0;
    spec_place(rd, spec_key_find("dataset", name), place);
    return dl_error_set(rd->err, EINVAL, place,
                        "%" PRIu64 " is not a size for decoded %s: write 1MiB to 4TiB, or 0 to "
                        "keep none",
                        bytes, what);
}

/* Of pictures; rows of a Parquet file, and chunks of HDF5, are kept in any case. */
static int spec_numbers_check_cache(struct spec_reading *rd)
{
    const struct spec_dataset *dataset = &rd->spec->dataset;
    char place[DL_ERROR_PATH_MAX];
    int r = spec_numbers_check_shared(rd, "shared", dataset->shared, "row groups");

    if (r < 0)
        return r;
    spec_place(rd, spec_key_find("dataset", "cache"), place);
    if ((dataset->kind == DATASET_PARQUET || dataset->kind == DATASET_HDF5) && dataset->cache == 0)
        return dl_error_set(rd->err, EINVAL, place,
                            "0 is not a size in bytes, such as 4096, 256MiB or 1GiB");
    if ((dataset->kind != DATASET_IMAGEFOLDER && dataset->kind != DATASET_PYTHON) ||
        dataset->cache == 0)
        return 0;
    if ((r = spec_numbers_check_shared(rd, "cache", dataset->cache, "pictures")) < 0)
        return r;
    if (dataset->kind == DATASET_IMAGEFOLDER && dataset->transforms.type == VALUE_NULL &&
        dataset->views.type == VALUE_NULL)
        return dl_error_set(rd->err, EINVAL, place,
                            "keeps pictures that are decoded at full scale, for a list of "
                            "transforms; transform decodes only what it needs: write transforms, "
                            "or leave cache out");
    return 0;
}

static int spec_numbers_check_audio(struct spec_reading *rd)
{
    const struct spec_dataset *dataset = &rd->spec->dataset;
    char place[DL_ERROR_PATH_MAX];

    if (dataset->n_audio == 0 || dataset->decode)
        return 0;
    spec_place(rd, spec_key_find("dataset", "audio"), place);
    return dl_error_set(rd->err, EINVAL, place,
                        "has no effect with decode: false, which leaves records as they are; leave "
                        "out one of them");
}

int spec_check_image(struct spec_reading *rd)
{
    struct spec_dataset *dataset = &rd->spec->dataset;
    struct spec_image *image = &dataset->image;
    const struct spec_key *key = spec_key_find("dataset", "size");
    char place[DL_ERROR_PATH_MAX];

    if (dataset->kind == DATASET_HDF5 || dataset->kind == DATASET_PYTHON)
        return spec_numbers_check_cache(rd);
    if (!(kind_entry(dataset->kind)->parts & PART_PICTURES))
        return 0;
    if (!image->transform)
        image->transform = image->height ? TRANSFORM_RESIZE : TRANSFORM_NONE;
    if (!image->layout)
        image->layout = LAYOUT_HWC; /* a tar that decodes nothing: unused */
    spec_place(rd, key, place);
    if (image->transform == TRANSFORM_NONE && image->height)
        return dl_error_set(rd->err, EINVAL, place,
                            "has no meaning with transform: none; leave out one of them");
    if (image->transform != TRANSFORM_NONE && !image->height)
        return dl_error_set(
            rd->err, EINVAL, place,
            "missing; transform: %s needs it, such as size: 224 or size: [480, 640]",
            spec_choice_name(spec_key_find("dataset", "transform"), image->transform));
    int r = spec_numbers_check_audio(rd);
    if (r == 0)
        r = spec_numbers_check_transforms(rd);
    return r < 0 ? r : spec_numbers_check_cache(rd);
}
