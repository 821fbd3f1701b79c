/*
 * Durations and sizes as people write them. Exact: a number is integer digits and decimals, scaled
 * in integers, so that "0.1s" is 100,000,000 ns and not the nearest double. Pure.
 */
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct unit {
    const char *name;
    uint64_t scale;
};

/* Largest first; a bare number counts seconds. */
static const struct unit spec_durations[] = {
    {"h", UINT64_C(3600000000000)}, {"min", UINT64_C(60000000000)},
    {"m", UINT64_C(60000000000)},   {"s", UINT64_C(1000000000)},
    {"", UINT64_C(1000000000)},     {"ms", UINT64_C(1000000)},
    {"us", UINT64_C(1000)},         {"ns", UINT64_C(1)},
};

/* "M" on its own is refused: half of its users mean 2^20, the other half 10^6. */
static const struct unit spec_sizes[] = {
    {"", 1},
    {"B", 1},
    {"kB", UINT64_C(1000)},
    {"KB", UINT64_C(1000)},
    {"MB", UINT64_C(1000000)},
    {"GB", UINT64_C(1000000000)},
    {"TB", UINT64_C(1000000000000)},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
};

static const struct unit *spec_units_find(const struct unit *units, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(units[i].name, name) == 0)
            return &units[i];
    return NULL;
}

/* Digits [ "." digits ] [ space ] unit. -EINVAL for other texts, -ERANGE past 64 bits. */
static int spec_units_parse_scaled(const char *text, const struct unit *units, size_t n_units,
                                   uint64_t *ret)
{
    static const char digits[] = "0123456789";
    size_t whole = strspn(text, digits), decimals = 0;
    const char *rest = text + whole;
    uint64_t n = 0;

    if (whole == 0)
        return -EINVAL;
    if (*rest == '.') {
        decimals = strspn(++rest, digits);
        if (decimals == 0)
            return -EINVAL;
        rest += decimals;
    }
    rest += *rest == ' ';
    const struct unit *unit = spec_units_find(units, n_units, rest);
    if (!unit)
        return -EINVAL;

    for (size_t i = 0; i < whole; i++)
        if (mul_overflows(n, 10, &n) || add_overflows(n, (uint64_t)(text[i] - '0'), &n))
            return -ERANGE;
    if (mul_overflows(n, unit->scale, &n))
        return -ERANGE;
    /* Digits past the 18th are less than one byte or nanosecond in any unit, and fractions of one
     * are cut off. */
    uint64_t fraction = 0, parts = 1;
    for (size_t i = 0; i < decimals && i < 18; i++) {
        fraction = fraction * 10 + (uint64_t)(text[whole + 1 + i] - '0');
        parts *= 10;
    }
    uint64_t below = (uint64_t)((unsigned __int128)fraction * unit->scale / parts);
    if (add_overflows(n, below, &n))
        return -ERANGE;
    *ret = n;
    return 0;
}

int parse_duration(const char *text, uint64_t *ret_ns)
{
    return spec_units_parse_scaled(text, spec_durations, ARRAY_SIZE(spec_durations), ret_ns);
}

int parse_bytes(const char *text, uint64_t *ret)
{
    return spec_units_parse_scaled(text, spec_sizes, ARRAY_SIZE(spec_sizes), ret);
}

void format_duration(uint64_t ns, char ret[static SPEC_DURATION_MAX])
{
    static const char *const units[] = {"s", "ms", "us", "ns"};
    uint64_t scale = 1000000000;
    size_t i = 0;

    while (ns % scale) {
        scale /= 1000;
        i++;
    }
    snprintf(ret, SPEC_DURATION_MAX, "%" PRIu64 "%s", ns / scale, units[i]);
}
