#include "client/dlctl/top/bars.h"

#include <math.h>
#include <stdio.h>

static int bounded(int columns)
{
    return columns < 0 ? 0 : columns > TOP_BAR_MAX ? TOP_BAR_MAX : columns;
}

static void add(char *buf, size_t size, const char *text)
{
    size_t len = strlen(buf);

    if (len + strlen(text) < size)
        memcpy(buf + len, text, strlen(text) + 1);
}

void top_bar(double share, int columns, bool unicode, char *buf, size_t size)
{
    static const char *const parts[] = {"░", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    int eighths;

    snprintf(buf, size, "%s", isnan(share) ? "-" : "");
    columns = bounded(columns);
    if (isnan(share))
        return;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    eighths = (int)(share * columns * 8); /* down: what is full is done */
    for (int i = 0; i < columns; i++) {
        int part = eighths - 8 * i;

        part = part < 0 ? 0 : part > 8 ? 8 : part;
        add(buf, size, unicode ? parts[part] : part == 8 ? "#" : ".");
    }
}

void top_ring_bar(const uint64_t slots[static TOP_SLOTS], int columns, bool unicode, char *buf,
                  size_t size)
{
    static const char *const drawn[TOP_SLOTS] = {"█", "▓", "▒", "░"};
    static const char *const plain[TOP_SLOTS] = {"#", "=", "-", "."};
    double total = 0;

    for (int i = 0; i < TOP_SLOTS; i++)
        total += (double)slots[i];
    snprintf(buf, size, "%s", total > 0 ? "" : "-");
    columns = bounded(columns);
    for (int i = 0; i < columns && total > 0; i++) {
        double at = (i + 0.5) * total / columns;
        int kind = 0;

        while (kind + 1 < TOP_SLOTS && at >= (double)slots[kind])
            at -= (double)slots[kind++];
        add(buf, size, unicode ? drawn[kind] : plain[kind]);
    }
}

void top_left(double seconds, char *buf, size_t size)
{
    uint64_t s;

    if (!(seconds >= 0) || seconds >= 1000.0 * 86400) {
        snprintf(buf, size, "%s", isnan(seconds) ? "-" : "long");
        return;
    }
    s = (uint64_t)(seconds + 0.5);
    if (s < 60)
        snprintf(buf, size, "%u s", (unsigned)s);
    else if (s < 3600)
        snprintf(buf, size, "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
    else if (s < 86400)
        snprintf(buf, size, "%uh%02um", (unsigned)(s / 3600), (unsigned)(s / 60 % 60));
    else
        snprintf(buf, size, "%ud%02uh", (unsigned)(s / 86400), (unsigned)(s / 3600 % 24));
}
