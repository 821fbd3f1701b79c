#include "proto/common/figures.h"

#include <stdio.h>

void format_seconds(double seconds, char *buf, size_t size)
{
    double s = seconds < 0 ? -seconds : seconds;

    if (s == 0)
        snprintf(buf, size, "0 s");
    else if (s < 999.5e-6)
        snprintf(buf, size, "%.0f µs", seconds * 1e6);
    else if (s < 0.9995)
        snprintf(buf, size, "%.*f ms", s < 9.95e-3 ? 1 : 0, seconds * 1e3);
    else
        snprintf(buf, size, "%.*f s", s < 9.95 ? 1 : 0, seconds);
}

/* Whole per cent are written without decimals. */
void format_percent(double share, char *buf, size_t size)
{
    double p = 100 * share;
    char tenths[UNITS_MAX];
    int n = snprintf(tenths, sizeof tenths, "%.1f", p);

    if (p > 0 && p < 0.05)
        snprintf(buf, size, "< 0.1 %%");
    else if (n > 2 && n < UNITS_MAX && tenths[n - 2] == '.' && tenths[n - 1] == '0')
        snprintf(buf, size, "%.*s %%", n - 2, tenths);
    else
        snprintf(buf, size, "%s %%", tenths);
}
