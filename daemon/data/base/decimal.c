#include "daemon/data/base/decimal.h"

#include "proto/dtype.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>

enum {
    DECIMAL_DIGITS = 40, /* of 128 bits, and a sign */
    DECIMAL_TEXT = DECIMAL_DIGITS + 16,
    DECIMAL_EXACT_POWER = 22, /* the greatest of ten that a double has */
};

bool decimal_read(const uint8_t *at, uint64_t bytes, bool big_endian, decimal_int *ret)
{
    uint8_t out[sizeof *ret];

    if (bytes == 0)
        return false;
    const uint8_t sign = at[big_endian ? 0 : bytes - 1] & 0x80 ? 0xFF : 0;
    memset(out, sign, sizeof out);
    for (uint64_t i = 0; i < bytes; i++) {
        uint8_t byte = at[big_endian ? bytes - 1 - i : i];
        if (i < sizeof out)
            out[i] = byte;
        else if (byte != sign)
            return false;
    }
    memcpy(ret, out, sizeof out);
    return (out[sizeof out - 1] & 0x80) == (sign & 0x80);
}

/* "-12345e-2" */
static void decimal_text(decimal_int number, int32_t scale, char ret[static DECIMAL_TEXT])
{
    char digits[DECIMAL_DIGITS + 1] = {0}, *at = digits + DECIMAL_DIGITS;
    bool negative = number < 0;

    do { /* a remainder has its number's sign */
        int digit = (int)(number % 10);
        *--at = (char)('0' + (digit < 0 ? -digit : digit));
        number /= 10;
    } while (number != 0);
    snprintf(ret, DECIMAL_TEXT, scale ? "%s%se%lld" : "%s%s", negative ? "-" : "", at,
             -(long long)scale);
}

static int decimal_int64(decimal_int number, int32_t scale, int64_t *ret)
{
    for (; scale > 0 && number != 0; scale--) {
        if (number % 10 != 0)
            return -ERANGE;
        number /= 10;
    }
    for (; scale < 0 && number != 0; scale++)
        if (__builtin_mul_overflow(number, (decimal_int)10, &number))
            return -ERANGE;
    if (number < INT64_MIN || number > INT64_MAX)
        return -ERANGE;
    *ret = (int64_t)number;
    return 0;
}

static int decimal_float64(decimal_int number, int32_t scale, double *ret)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const decimal_int exact = (decimal_int)1 << 53;
    char text[DECIMAL_TEXT];

    /* Both are exact then, and so the quotient is the nearest. */
    if (number >= -exact && number <= exact && scale >= 0 && scale <= DECIMAL_EXACT_POWER) {
        *ret = (double)number / powers[scale];
        return 0;
    }
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        return -ENOMEM;
    decimal_text(number, scale, text);
    *ret = strtod_l(text, NULL, c_locale);
    freelocale(c_locale);
    return 0;
}

int decimal_convert(decimal_int number, int32_t scale, uint32_t dtype, void *out)
{
    int64_t whole = 0;
    double real = 0;
    int r;

    if (dtype == DL_DTYPE_INT64) {
        r = decimal_int64(number, scale, &whole);
        memcpy(out, &whole, sizeof whole);
        return r;
    }
    r = decimal_float64(number, scale, &real);
    memcpy(out, &real, sizeof real);
    return r;
}

int decimal_element(const uint8_t *at, uint64_t bytes, bool big_endian, int32_t scale,
                    uint32_t dtype, void *out, struct dl_error *err)
{
    char text[DECIMAL_TEXT];
    decimal_int number;

    if (!decimal_read(at, bytes, big_endian, &number))
        return dl_error_set(err, ERANGE, "", "has a decimal number of none or more than 128 bits");
    int r = decimal_convert(number, scale, dtype, out);
    if (r == -ENOMEM)
        return dl_error_set(err, ENOMEM, "", "out of memory for a decimal number");
    if (r == 0)
        return 0;
    decimal_text(number, scale, text);
    return dl_error_set(err, ERANGE, "",
                        "has the decimal number %s, which is no int64; give it float64 with "
                        "dataset.types",
                        text);
}

uint32_t decimal_type(const struct value *types, const char *column)
{
    const struct value *type = value_get(types, column);
    uint32_t dtype = 0;

    return type && dtype_from_name(type->string, &dtype) == 0 ? dtype : 0;
}

int decimal_types_check(const struct value *types, const char *place, struct dl_error *err)
{
    char at[DL_ERROR_PATH_MAX];

    snprintf(at, sizeof at, "%s.types", place);
    if (types->type == VALUE_NULL)
        return 0;
    if (types->type != VALUE_MAP)
        return dl_error_set(err, EINVAL, at,
                            "is not a map of columns to types, such as {price: float64}");
    for (uint32_t i = 0; i < types->count; i++) {
        const struct value *type = &types->items[i];
        snprintf(at, sizeof at, "%s.types.%s", place, type->key);
        if (type->type != VALUE_STRING ||
            (strcmp(type->string, "int64") != 0 && strcmp(type->string, "float64") != 0))
            return dl_error_set(err, EINVAL, at,
                                "is not a type that decimal numbers become: int64 or float64");
    }
    return 0;
}
