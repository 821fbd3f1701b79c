/* The progress bar: see progress.h. */
#include "client/dlctl/run/progress.h"

#include "client/dlctl/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <sys/ioctl.h>

enum { LINE_MAX_BYTES = 256, PROGRESS_BAR_MAX = 40, PROGRESS_BAR_MIN = 5 };

static const uint64_t redraw_ns = 100 * 1000 * 1000, line_ns = UINT64_C(10) * 1000 * 1000 * 1000;

void progress_begin(struct progress *p, uint64_t total, bool quiet)
{
    bool bar = isatty(STDERR_FILENO);
    uint64_t now = clock_ns();

    *p = (struct progress){.on = !quiet,
                           .bar = bar,
                           .total = total,
                           .begin_ns = now,
                           .next_ns = bar ? now : now + line_ns};
}

bool progress_due(struct progress *p)
{
    uint64_t now;

    if (!p->on)
        return false;
    now = clock_ns();
    if (now < p->next_ns)
        return false;
    p->next_ns = now + (p->bar ? redraw_ns : line_ns);
    return true;
}

/* `right`, behind a bar as long as there is room for it; done < 0: nobody knows how much. */
static void progress_bar_line(const char *right, double done, int columns, char *buf, size_t size)
{
    char bar[PROGRESS_BAR_MAX + 1];
    int room = columns - (int)strlen(right) - (int)sizeof "100% [] ", filled;

    if (done > 1)
        done = 1;
    if (room > PROGRESS_BAR_MAX)
        room = PROGRESS_BAR_MAX;
    if (room < PROGRESS_BAR_MIN || done < 0) {
        snprintf(buf, size, "%.*s", columns > 0 ? columns : 0, right);
        return;
    }
    filled = (int)(done * room);
    memset(bar, '.', (size_t)room);
    memset(bar, '#', (size_t)filled);
    bar[room] = '\0';
    snprintf(buf, size, "%3d %% [%s] %s", (int)(done * 100), bar, right);
}

static double progress_share_done(uint64_t n, uint64_t total)
{
    if (total == PROGRESS_UNKNOWN)
        return -1;
    return total ? (double)n / (double)total : 1;
}

/* "  left 12 s", as if the rest went as what is done did; nothing where nobody can tell. */
static void progress_left(uint64_t n, uint64_t total, double seconds, char *buf, size_t size)
{
    char left[UNITS_MAX];

    *buf = '\0';
    if (total == PROGRESS_UNKNOWN || n == 0 || n >= total)
        return;
    format_seconds(seconds * (double)(total - n) / (double)n, left, sizeof left);
    snprintf(buf, size, "  left %s", left);
}

void progress_line(const struct tally *tally, uint64_t total, double seconds, int columns,
                   char *buf, size_t size)
{
    double rate = seconds > 0 ? 1 / seconds : 0;
    char batches[UNITS_MAX], samples[UNITS_MAX], bytes[UNITS_MAX], right[LINE_MAX_BYTES];
    char total_text[24] = "", left[UNITS_MAX + 16], wait[UNITS_MAX];

    if (total != PROGRESS_UNKNOWN)
        snprintf(total_text, sizeof total_text, "/%" PRIu64, total);
    format_count((double)tally->batches * rate, batches, sizeof batches);
    format_count((double)tally->samples * rate, samples, sizeof samples);
    format_bytes((double)tally->bytes * rate, bytes, sizeof bytes);
    format_percent((double)tally->wait_ns / 1e9 * rate, wait, sizeof wait);
    progress_left(tally->batches, total, seconds, left, sizeof left);
    snprintf(right, sizeof right, "%" PRIu64 "%s  %s batches/s  %s samples/s  %s/s  wait %s%s",
             tally->batches, total_text, batches, samples, bytes, wait, left);
    progress_bar_line(right, progress_share_done(tally->batches, total), columns, buf, size);
}

void progress_count_line(const char *what, uint64_t n, uint64_t total, double seconds, int columns,
                         char *buf, size_t size)
{
    char rate[UNITS_MAX], right[LINE_MAX_BYTES], total_text[24] = "", left[UNITS_MAX + 16];

    if (total != PROGRESS_UNKNOWN)
        snprintf(total_text, sizeof total_text, "/%" PRIu64, total);
    format_count(seconds > 0 ? (double)n / seconds : 0, rate, sizeof rate);
    progress_left(n, total, seconds, left, sizeof left);
    snprintf(right, sizeof right, "%" PRIu64 "%s %s  %s/s%s", n, total_text, what, rate, left);
    progress_bar_line(right, progress_share_done(n, total), columns, buf, size);
}

void progress_fetched_line(uint64_t done, uint64_t total, uint64_t bytes, uint64_t requests,
                           double seconds, int columns, char *buf, size_t size)
{
    char all[UNITS_MAX], rate[UNITS_MAX], n[UNITS_MAX], left[UNITS_MAX + 16], right[LINE_MAX_BYTES];

    format_bytes((double)bytes, all, sizeof all);
    format_bytes(seconds > 0 ? (double)bytes / seconds : 0, rate, sizeof rate);
    format_count((double)requests, n, sizeof n);
    progress_left(done, total, seconds, left, sizeof left);
    snprintf(right, sizeof right, "%s fetched by %s requests  %s/s%s", all, n, rate, left);
    progress_bar_line(right, progress_share_done(done, total), columns, buf, size);
}

static int progress_columns_of_terminal(void)
{
    struct winsize ws = {0};

    return (ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col ? ws.ws_col : 80) - 1;
}

static double progress_seconds_since(uint64_t begin_ns)
{
    return (double)(clock_ns() - begin_ns) / 1e9;
}

static int progress_columns(const struct progress *p)
{
    return p->bar ? progress_columns_of_terminal() : LINE_MAX_BYTES - 1;
}

static void progress_show(const struct progress *p, const char *line)
{
    fprintf(stderr, p->bar ? "\r%s\x1b[K" : "dlctl: %s\n", line);
}

void progress_draw(const struct progress *p, const struct tally *tally)
{
    char line[LINE_MAX_BYTES];

    progress_line(tally, p->total, progress_seconds_since(p->begin_ns), progress_columns(p), line,
                  sizeof line);
    progress_show(p, line);
}

void progress_draw_count(const struct progress *p, const char *what, uint64_t n)
{
    char line[LINE_MAX_BYTES];

    progress_count_line(what, n, p->total, progress_seconds_since(p->begin_ns), progress_columns(p),
                        line, sizeof line);
    progress_show(p, line);
}

void progress_draw_fetched(const struct progress *p, uint64_t done, uint64_t bytes,
                           uint64_t requests)
{
    char line[LINE_MAX_BYTES];

    progress_fetched_line(done, p->total, bytes, requests, progress_seconds_since(p->begin_ns),
                          progress_columns(p), line, sizeof line);
    progress_show(p, line);
}

void progress_wipe(struct progress *p)
{
    if (p->on && p->bar)
        fprintf(stderr, "\r\x1b[K");
}

void progress_end(struct progress *p)
{
    progress_wipe(p);
    p->on = false;
}
