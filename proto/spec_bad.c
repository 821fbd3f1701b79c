/*
 * What becomes of samples that their dataset cannot give: workers.on_error, and how many of them
 * workers.max_bad lets pass. Pure.
 */
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

/* "1%", "0.5%" as a share; NaN for other texts. */
static double spec_bad_read_percent(const char *text)
{
    static const char digits[] = "0123456789";
    size_t whole = strspn(text, digits), end = whole;

    if (whole > 0 && text[end] == '.')
        end += 1 + strspn(text + end + 1, digits);
    return whole > 0 && strcmp(text + end, "%") == 0 ? strtod(text, NULL) / 100 : NAN;
}

/* A number of samples from 1 on, or a share of them above 0 and below 1; NaN: neither. */
static double spec_bad_number_of(const struct value *v)
{
    double share = v->type == VALUE_FLOAT    ? v->number
                   : v->type == VALUE_STRING ? spec_bad_read_percent(v->string)
                                             : NAN;

    if (v->type == VALUE_INT && v->integer > 0)
        return (double)v->integer;
    if (v->type == VALUE_UINT)
        return (double)v->uinteger;
    return share > 0 && share < 1 ? share : NAN;
}

int spec_read_share(struct spec_reading *rd, const struct spec_key *key, const struct value *v)
{
    double number = spec_bad_number_of(v);

    if (isnan(number))
        return spec_refuse(rd, key, v,
                           "is neither a number of samples, such as 100, nor a share of them, such "
                           "as 1%% or 0.01");
    if (number > (double)key->max)
        return spec_refuse(rd, key, v, "is above the maximum of %" PRIu64, key->max);
    *(double *)((char *)rd->spec + key->offset) = number;
    return 0;
}

uint64_t spec_max_bad(const struct dl_spec *spec, uint64_t length)
{
    double n = spec->max_bad;

    if (spec->on_error <= ON_ERROR_RAISE)
        return 0;
    if (n < 1)
        n = length == UINT64_MAX ? 0 : n * (double)length;
    return n < (double)DL_MAX_BAD_SAMPLES ? (uint64_t)n : DL_MAX_BAD_SAMPLES;
}

int spec_check_share(const struct dl_spec *spec, uint64_t length, struct dl_error *err)
{
    if (spec->on_error <= ON_ERROR_RAISE || spec->max_bad >= 1 || length != UINT64_MAX)
        return 0;
    return dl_error_set(err, EINVAL, "workers.max_bad",
                        "%g is a share of the dataset's samples, whose number is unknown; write "
                        "a number of samples, such as 100",
                        spec->max_bad);
}
