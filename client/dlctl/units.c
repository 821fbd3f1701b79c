/* Units for people: see units.h. */
#include "client/dlctl/units.h"

#include <math.h>
#include <stdio.h>

void format_bytes(double bytes, char *buf, size_t size)
{
    static const char *const UNITS[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;

    if (!(fabs(bytes) >= 1024)) {
        snprintf(buf, size, "%.0f B", bytes);
        return;
    }
    bytes /= 1024;
    /* 1023.95 would be printed as 1024.0: that is the next unit's 1.0. */
    for (; fabs(bytes) >= 1023.95 && unit + 1 < ARRAY_SIZE(UNITS); unit++)
        bytes /= 1024;
    snprintf(buf, size, "%.1f %s", bytes, UNITS[unit]);
}

void format_seconds(double seconds, char *buf, size_t size)
{
    double s = fabs(seconds);
    int decimals = s == 0 ? 0 : s >= 100 ? 0 : s >= 1 ? 1 : s >= 0.01 ? 3 : 6;

    snprintf(buf, size, "%.*f s", decimals, seconds);
}

void format_count(double n, char *buf, size_t size)
{
    static const char UNITS[] = "kMGTPE";
    size_t unit = 0;

    if (!(fabs(n) >= 10000)) {
        bool whole = fabs(n) >= 100 || n == floor(n);
        snprintf(buf, size, "%.*f", whole ? 0 : 1, n);
        return;
    }
    n /= 1000;
    for (; fabs(n) >= 999.95 && unit + 2 < sizeof UNITS; unit++)
        n /= 1000;
    snprintf(buf, size, "%.1f%c", n, UNITS[unit]);
}
