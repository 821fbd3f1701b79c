/* The histogram of lengths: see histogram.h. */
#include "client/dlctl/run/histogram.h"

#include "proto/common/bisect.h"
#include "proto/common/figures.h"

#include <assert.h>
#include <inttypes.h>

enum { RANGE_MAX = 24, HISTOGRAM_BAR_MIN = 8 };

uint32_t lengths_quantile(const uint32_t *lengths, uint64_t n, uint32_t per_mille)
{
    uint64_t rank = n / 1000 * per_mille + (n % 1000 * per_mille + 999) / 1000;

    assert(n > 0);
    return lengths[max_u64(rank, 1) - 1];
}

void spread_of(const uint32_t *lengths, uint64_t n, struct spread *ret)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += lengths[i];
    *ret = (struct spread){
        .min = lengths[0],
        .median = lengths_quantile(lengths, n, 500),
        .p95 = lengths_quantile(lengths, n, 950),
        .p99 = lengths_quantile(lengths, n, 990),
        .max = lengths[n - 1],
        .tokens = sum,
        .mean = (double)sum / (double)n,
    };
}

/* How many of the sorted lengths are at most `to`. */
static uint64_t histogram_count_to(const uint32_t *lengths, uint64_t n, uint32_t to)
{
    return BISECT(0, n, i, lengths[i] <= to);
}

void histogram_of(const uint32_t *lengths, uint64_t n, uint32_t top, struct histogram *ret)
{
    uint32_t longest = lengths[n - 1], width, from;
    uint64_t before = 0;

    if (top == 0)
        top = lengths_quantile(lengths, n, 999);
    top = (uint32_t)min_u64(top, longest);
    width = (top - 1) / HISTOGRAM_ROWS + 1;
    *ret = (struct histogram){0};
    for (from = 1; from <= longest; from = ret->rows[ret->n_rows - 1].to + 1) {
        struct histogram_row *row = &ret->rows[ret->n_rows++];
        uint64_t upto;

        row->from = from;
        row->to = from > top ? longest : (uint32_t)min_u64((uint64_t)from + width - 1, top);
        upto = histogram_count_to(lengths, n, row->to);
        row->count = upto - before;
        before = upto;
        if (row->to == longest)
            break;
    }
}

/* A bar of `eighths` of a character. What is there is seen. */
static void histogram_draw_bar(FILE *file, uint64_t eighths, bool utf8)
{
    if (!utf8) {
        for (uint64_t i = 0; i < (eighths + 4) / 8 || (i == 0 && eighths > 0); i++)
            fputc('#', file);
        return;
    }
    for (uint64_t i = 0; i < eighths / 8; i++)
        fputs("\u2588", file);
    if (eighths % 8) /* U+258F is one eighth, U+2589 seven */
        fprintf(file, "\xe2\x96%c", (char)(0x90 - eighths % 8));
}

static int histogram_text_of_range(const struct histogram_row *row, char buf[RANGE_MAX])
{
    return row->from == row->to
               ? snprintf(buf, RANGE_MAX, "%" PRIu32, row->from)
               : snprintf(buf, RANGE_MAX, "%" PRIu32 "-%" PRIu32, row->from, row->to);
}

static int histogram_max_int(int a, int b)
{
    return a > b ? a : b;
}

void histogram_draw(FILE *file, const struct histogram *h, int columns, bool utf8)
{
    int ranges = (int)sizeof "LENGTH" - 1, counts = (int)sizeof "SAMPLES" - 1, room;
    uint64_t all = 0, most = 1;
    char text[RANGE_MAX], share[UNITS_MAX];

    for (uint32_t i = 0; i < h->n_rows; i++) {
        ranges = histogram_max_int(ranges, histogram_text_of_range(&h->rows[i], text));
        counts = histogram_max_int(counts, snprintf(NULL, 0, "%" PRIu64, h->rows[i].count));
        all += h->rows[i].count;
        most = max_u64(most, h->rows[i].count);
    }
    room = histogram_max_int(columns - ranges - counts - (int)(sizeof "    100.0 %  " - 1),
                             HISTOGRAM_BAR_MIN);
    fprintf(file, "%*s  %*s   SHARE\n", ranges, "LENGTH", counts, "SAMPLES");
    for (uint32_t i = 0; i < h->n_rows; i++) {
        const struct histogram_row *row = &h->rows[i];
        double part = (double)row->count / (double)most;
        uint64_t eighths = (uint64_t)(part * room * 8 + 0.5);

        histogram_text_of_range(row, text);
        format_percent(all ? (double)row->count / (double)all : 0, share, sizeof share);
        fprintf(file, "%*s  %*" PRIu64 "  %7s%s", ranges, text, counts, row->count, share,
                row->count ? "  " : "");
        histogram_draw_bar(file, row->count ? max_u64(eighths, 1) : 0, utf8);
        fputc('\n', file);
    }
}
