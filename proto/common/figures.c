#include "proto/common/figures.h"

#include "proto/common/base.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* "1 min 30 s", "2 h 5 min", "3 d": whole ones, of the largest unit and the one below. */
static void figures_long(double seconds, char *buf, size_t size)
{
    static const struct {
        uint64_t seconds;
        const char *name;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    uint64_t s = (uint64_t)(fabs(seconds) + 0.5);
    size_t i = s >= 86400 ? 0 : s >= 3600 ? 1 : 2;
    uint64_t rest = s % units[i].seconds / units[i + 1].seconds;
    int n = snprintf(buf, size, "%s%" PRIu64 " %s", seconds < 0 ? "-" : "", s / units[i].seconds,
                     units[i].name);

    if (rest > 0 && n > 0 && (size_t)n < size)
        snprintf(buf + n, size - (size_t)n, " %" PRIu64 " %s", rest, units[i + 1].name);
}

void format_seconds(double seconds, char *buf, size_t size)
{
    double s = fabs(seconds);

    if (s == 0)
        snprintf(buf, size, "0 s");
    else if (s < 999.5e-6)
        snprintf(buf, size, "%.0f µs", seconds * 1e6);
    else if (s < 0.9995)
        snprintf(buf, size, "%.*f ms", s < 9.95e-3 ? 1 : 0, seconds * 1e3);
    else if (s < 59.5 || !(s < 1e15))
        snprintf(buf, size, "%.*f s", s < 9.95 ? 1 : 0, seconds);
    else
        figures_long(seconds, buf, size);
}

void format_percent(double share, char *buf, size_t size)
{
    double p = 100 * share;
    bool tenths = fabs(p) < 9.95 && (int)(10 * fabs(p) + 0.5) % 10 > 0;

    if (p > 0 && p < 0.05)
        snprintf(buf, size, "< 0.1 %%");
    else
        snprintf(buf, size, "%.*f %%", tenths ? 1 : 0, p);
}

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

void format_count(double n, char *buf, size_t size)
{
    static const char UNITS[] = "kMGTPE";
    size_t unit = 0;

    if (!(fabs(n) >= 10000)) {
        bool whole = fabs(n) >= 100 || isnan(n) || n == (int)n;
        snprintf(buf, size, "%.*f", whole ? 0 : 1, n);
        return;
    }
    n /= 1000;
    for (; fabs(n) >= 999.95 && unit + 2 < sizeof UNITS; unit++)
        n /= 1000;
    snprintf(buf, size, "%.1f%c", n, UNITS[unit]);
}
