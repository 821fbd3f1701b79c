#include "daemon/data/kinds/parquet/filter.h"

#include "proto/dtype.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static bool filter_is_scalar(const struct value *v)
{
    return v->type == VALUE_STRING || v->type == VALUE_BOOL || v->type == VALUE_INT ||
           v->type == VALUE_UINT || v->type == VALUE_FLOAT;
}

static bool filter_is_list(const struct value *v)
{
    bool good = v->type == VALUE_ARRAY && v->count > 0;

    for (uint32_t i = 0; good && i < v->count; i++)
        good = filter_is_scalar(&v->items[i]);
    return good;
}

static bool filter_is_range(const struct value *v)
{
    bool good = v->type == VALUE_MAP && v->count > 0;

    for (uint32_t i = 0; good && i < v->count; i++)
        good = filter_is_scalar(&v->items[i]) &&
               (strcmp(v->items[i].key, "min") == 0 || strcmp(v->items[i].key, "max") == 0);
    return good;
}

int parquet_filter_check(const struct value *filter, const char *place, struct dl_error *err)
{
    char path[DL_ERROR_PATH_MAX];

    if (filter->type == VALUE_NULL)
        return 0;
    if (filter->type != VALUE_MAP) {
        snprintf(path, sizeof path, "%.80s.filter", place);
        return dl_error_set(err, EINVAL, path,
                            "is %s, not a mapping of columns to values, such as "
                            "{split: train, year: [2023, 2024], score: {min: 0.5}}",
                            value_type_name(filter));
    }
    for (uint32_t i = 0; i < filter->count; i++) {
        const struct value *v = &filter->items[i];
        if (filter_is_scalar(v) || filter_is_list(v) || filter_is_range(v))
            continue;
        snprintf(path, sizeof path, "%.80s.filter.%.128s", place, v->key);
        return dl_error_set(err, EINVAL, path,
                            "is neither a value, nor a list of values, nor a range, such as {min: "
                            "0, max: 1}");
    }
    return 0;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static double filter_number(const struct value *v)
{
    return v->type == VALUE_BOOL ? v->boolean : value_real(v);
}

static int filter_compare_texts(const char *a, const struct thrift_text *b)
{
    size_t len = strlen(a);
    int order = memcmp(a, b->data, min_u64(len, b->bytes));

    return order ? order : (len > b->bytes) - (len < b->bytes);
}

/* Whether something of the bounds is not below `v`, or not above it. */
static bool filter_reaches(const struct value *v, const struct parquet_bounds *b, bool from_above)
{
    bool text = v->type == VALUE_STRING;

    if (text != b->is_text)
        return false;
    if (text && from_above)
        return !b->last.data || filter_compare_texts(v->string, &b->last) <= 0;
    if (text)
        return !b->first.data || filter_compare_texts(v->string, &b->first) >= 0;
    return from_above ? b->greatest >= filter_number(v) : b->least <= filter_number(v);
}

static bool filter_may_be(const struct value *v, const struct parquet_bounds *b)
{
    return filter_reaches(v, b, true) && filter_reaches(v, b, false);
}

bool parquet_filter_may(const struct value *wanted, const struct parquet_bounds *bounds)
{
    const struct value *least, *greatest;

    if (wanted->type == VALUE_ARRAY) {
        for (uint32_t i = 0; i < wanted->count; i++)
            if (filter_may_be(&wanted->items[i], bounds))
                return true;
        return false;
    }
    if (wanted->type != VALUE_MAP)
        return filter_may_be(wanted, bounds);
    least = value_get(wanted, "min");
    greatest = value_get(wanted, "max");
    return (!least || filter_reaches(least, bounds, true)) &&
           (!greatest || filter_reaches(greatest, bounds, false));
}

/* ---- statistics ----------------------------------------------------------------------------- */

static bool filter_read_number(const struct parquet_column *c, const struct thrift_text *text,
                               double *ret)
{
    union {
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        float f32;
        double f64;
    } n = {0};
    bool is_unsigned = c->dtype == DL_DTYPE_UINT8 || c->dtype == DL_DTYPE_UINT16 ||
                       c->dtype == DL_DTYPE_UINT32 || c->dtype == DL_DTYPE_UINT64;

    if (c->is_decimal || text->bytes != c->width || text->bytes > sizeof n)
        return false;
    memcpy(&n, text->data, text->bytes);
    switch (c->type) {
    case PARQUET_BOOLEAN:
        *ret = n.u32 != 0;
        return true;
    case PARQUET_INT32:
        *ret = is_unsigned ? (double)n.u32 : (double)n.i32;
        return true;
    case PARQUET_INT64:
        *ret = is_unsigned ? (double)n.u64 : (double)n.i64;
        return true;
    case PARQUET_FLOAT:
        *ret = (double)n.f32;
        break;
    case PARQUET_DOUBLE:
        *ret = n.f64;
        break;
    default:
        return false;
    }
    return !isnan(*ret);
}

bool parquet_filter_bounds(const struct parquet_column *column, const struct parquet_chunk *chunk,
                           struct parquet_bounds *ret)
{
    if (!chunk->least.data || !chunk->greatest.data)
        return false;
    *ret = (struct parquet_bounds){.is_text = column->sort == PARQUET_TEXT};
    if (column->sort == PARQUET_NUMBER)
        return filter_read_number(column, &chunk->least, &ret->least) &&
               filter_read_number(column, &chunk->greatest, &ret->greatest);
    if (column->sort != PARQUET_TEXT)
        return false;
    /* Writers may cut both: a cut greatest value is rounded up. */
    ret->first = chunk->least;
    ret->last = chunk->greatest;
    return true;
}
