/* What the daemon kept of the last ten minutes, as a part of a report: see sheet.h. */
#include "client/dlctl/sheet/sheet.h"

#include "client/dlctl/render.h"
#include "client/dlctl/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static bool lately_is_of(const struct value *row, const char *loader)
{
    const struct value *name = value_get(row, "loader");

    return name && name->type == VALUE_STRING && strcmp(name->string, loader) == 0;
}

static bool lately_is_rank(const struct value *row)
{
    const struct value *rank = value_get(row, "rank");

    return rank && rank->type != VALUE_NULL;
}

/* Number `i` of the last SHEET_BINS; NAN: it is not known. All lists end at the same time. */
static double lately_number(const struct value *list, size_t i)
{
    if (!list || list->type != VALUE_ARRAY || list->count + i < SHEET_BINS)
        return NAN;
    const struct value *v = &list->items[list->count + i - SHEET_BINS];

    return v->type == VALUE_NULL ? NAN : value_real(v);
}

static void lately_read_loader(const struct value *row, struct sheet_lately *ret)
{
    double bin = fmax(1, value_real(value_get(row, "bin_s")));
    double last = fmax(1, value_real(value_get(row, "last_s")));

    ret->known = true;
    ret->seconds = bin * (SHEET_BINS - 1) + last;
    ret->age = value_real(value_get(row, "age_s"));
    for (size_t i = 0; i < SHEET_BINS; i++) {
        double seconds = i + 1 < SHEET_BINS ? bin : last;

        ret->rate[i] = lately_number(value_get(row, "batches"), i) / seconds;
        ret->bytes[i] = lately_number(value_get(row, "bytes"), i) / seconds;
    }
}

void sheet_lately_read(const struct value *view, const char *loader, struct sheet_lately *ret)
{
    double there[SHEET_BINS] = {0};

    *ret = (struct sheet_lately){0};
    for (uint32_t r = 0; view->type == VALUE_ARRAY && r < view->count; r++) {
        const struct value *row = &view->items[r];

        if (!lately_is_of(row, loader))
            continue;
        if (!lately_is_rank(row)) {
            lately_read_loader(row, ret);
            continue;
        }
        ret->ranks++;
        for (size_t i = 0; i < SHEET_BINS; i++) {
            double percent = lately_number(value_get(row, "waits"), i);

            there[i] += !isnan(percent);
            ret->waiting[i] += isnan(percent) ? 0 : percent / 100;
        }
    }
    for (size_t i = 0; i < SHEET_BINS; i++)
        ret->waiting[i] = there[i] > 0 ? ret->waiting[i] / there[i] : NAN;
}

/* Each rank by itself, with its share. */
static int lately_write_ranks(FILE *file, const struct value *view, const char *loader)
{
    static const char *const keys[] = {"job",    "rank",     "world", "wait_share",
                                       "read_s", "waited_s", NULL};
    _cleanup_(value_deinit)
    struct value rows = {.type = VALUE_ARRAY};
    struct value *row;
    int r = 0;

    for (uint32_t i = 0; i < view->count && r == 0; i++) {
        if (!lately_is_of(&view->items[i], loader) || !lately_is_rank(&view->items[i]))
            continue;
        double read = value_real(value_get(&view->items[i], "read_s"));
        double waited = value_real(value_get(&view->items[i], "waited_s"));

        if ((r = value_push(&rows, &row)) == 0 && (r = value_copy(&view->items[i], row)) == 0)
            r = value_set_float(row, "wait_share", read > 0 ? waited / read : 0);
    }
    if (r == 0)
        sheet_table(file, "How long each rank waited in that time", &rows, NULL, keys);
    return r;
}

int sheet_write_lately(FILE *file, const struct value *view, const char *loader)
{
    struct sheet_lately lately;
    char age[UNITS_MAX], text[160];

    sheet_lately_read(view, loader, &lately);
    if (!lately.known)
        return 0;
    sheet_heading(file, "The last ten minutes");
    format_seconds(lately.age, age, sizeof age);
    (void)snprintf(text, sizeof text, "As the daemon saw them, in bins of ten seconds, until %s%s.",
                   lately.age < 1 ? "this was written" : age,
                   lately.age < 1 ? "" : " before this was written");
    sheet_paragraph(file, text);
    sheet_chart(file, "Batches a second, ten minutes", "batches_per_s", lately.rate,
                lately.seconds);
    sheet_chart(file, "Bytes a second, ten minutes", "bytes_per_s", lately.bytes, lately.seconds);
    sheet_chart(file, "Share of their time that ranks waited, ten minutes", "fill", lately.waiting,
                lately.seconds);
    return lately_write_ranks(file, view, loader);
}
