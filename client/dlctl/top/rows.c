/* The rows of `dlctl top`: what is worked out of the daemon's views, and their order. */
#include "client/dlctl/top/top.h"

#include "client/dlctl/form.h"
#include "proto/common/base.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

const char *const top_views[TOP_VIEWS] = {"status", "loaders", "epochs", "workers", "lately"};

void top_look_deinit(struct top_look *look)
{
    for (size_t i = 0; i < TOP_VIEWS; i++)
        value_deinit(&look->views[i]);
}

static uint32_t rows_count(const struct value *view)
{
    return view->type == VALUE_ARRAY ? view->count : 0;
}

/* `key`: where that view has the loader's name. Two users may have loaders of one name. */
static bool rows_is_of(const struct value *row, const char *key, const struct value *loader)
{
    const struct value *name = value_get(row, key), *wanted = value_get(loader, "name");

    return name && wanted && value_equal(name, wanted) &&
           value_count(value_get(row, "uid")) == value_count(value_get(loader, "uid"));
}

static void rows_put_figure(const struct form *row, const char *key, double d)
{
    if (isfinite(d))
        form_real(row, key, d);
    else
        (void)form_null(row, key);
}

/* ---- since the look before ------------------------------------------------------------------ */

/* What only grows, and how fast. */
static const struct rows_rate {
    enum top_view view;
    const char *name, *key, *rate;
} RATES[] = {
    {TOP_LOADERS, "name", "batches", "batches_per_s"},
    {TOP_LOADERS, "name", "samples", "samples_per_s"},
    {TOP_LOADERS, "name", "delivered_bytes", "delivered_bytes_per_s"},
    {TOP_WORKERS, "loader", "cpu_s", "cpu"},
};

/* NAN: nothing is known. */
static double rows_sum(const struct top_look *look, const struct rows_rate *rate,
                       const struct value *loader)
{
    const struct value *view = &look->views[rate->view];
    double sum = NAN;

    for (uint32_t i = 0; i < rows_count(view); i++) {
        double d = value_real(value_get(&view->items[i], rate->key));

        if (rows_is_of(&view->items[i], rate->name, loader) && !isnan(d))
            sum = isnan(sum) ? d : sum + d;
    }
    return sum;
}

/* Another daemon's figures say nothing of this one's; what went back has begun anew. */
static void rows_put_rates(const struct form *row, const struct value *loader,
                           const struct top_look *look, const struct top_look *before)
{
    double span_s = look->at_s - before->at_s;
    bool same = value_count(value_get(&look->views[TOP_STATUS], "pid")) ==
                value_count(value_get(&before->views[TOP_STATUS], "pid"));

    for (size_t i = 0; i < ARRAY_SIZE(RATES); i++) {
        double more = rows_sum(look, &RATES[i], loader) - rows_sum(before, &RATES[i], loader);

        rows_put_figure(row, RATES[i].rate, same && span_s > 0 && more >= 0 ? more / span_s : NAN);
    }
}

/* ---- of ranks ------------------------------------------------------------------------------- */

/* An epoch is done when its slowest rank is. */
static void rows_put_progress(const struct form *row, const struct value *loader,
                              const struct value *epochs)
{
    double progress = NAN, left_s = NAN;

    for (uint32_t i = 0; i < rows_count(epochs); i++) {
        const struct value *rank = &epochs->items[i], *state = value_get(rank, "state");
        const char *is = state && state->type == VALUE_STRING ? state->string : "";

        if (!rows_is_of(rank, "loader", loader) ||
            (strcmp(is, "running") != 0 && strcmp(is, "starving") != 0))
            continue;
        progress = fmin(progress, value_real(value_get(rank, "progress")));
        left_s = fmax(left_s, value_real(value_get(rank, "left_s")));
    }
    rows_put_figure(row, "progress", progress);
    rows_put_figure(row, "left_s", left_s);
}

/* The mean of the ranks' last two bins, of which the last one is not complete. A line that ended
 * longer ago than a bin is history. */
static void rows_put_lately(const struct form *row, const struct value *loader,
                            const struct value *lately)
{
    enum { RECENT = 2 };
    struct value *drawn = form_null(row, "lately");
    double sum = 0, n = 0;

    for (uint32_t i = 0; i < rows_count(lately); i++) {
        const struct value *line = &lately->items[i], *waits = value_get(line, "waits");
        const struct value *batches = value_get(line, "batches");
        uint32_t end = waits ? rows_count(waits) : 0;

        if (!rows_is_of(line, "loader", loader))
            continue;
        if (drawn && batches && batches->type == VALUE_ARRAY)
            form_note(row, value_copy(batches, drawn));
        if (value_real(value_get(line, "age_s")) > value_real(value_get(line, "bin_s")))
            continue;
        for (uint32_t bin = end - (uint32_t)min_u64(end, RECENT); bin < end; bin++) {
            double percent = value_real(&waits->items[bin]);

            sum += isnan(percent) ? 0 : percent / 100;
            n += !isnan(percent);
        }
    }
    rows_put_figure(row, "wait", sum / n); /* none: 0 / 0 is NAN */
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void rows_put_errors(const struct form *row, const struct value *loader)
{
    static const char *const keys[] = {"faults", "bad", "retries"};
    uint64_t errors = 0;

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        errors += value_count(value_get(loader, keys[i]));
    form_u64(row, "errors", errors);
}

int top_rows_make(const struct top_look *look, const struct top_look *before, struct value *ret)
{
    _cleanup_(value_deinit) struct value rows = {.type = VALUE_ARRAY};
    const struct value *loaders = &look->views[TOP_LOADERS];
    int error = 0;
    const struct form form = {.error = &error};

    for (uint32_t i = 0; i < rows_count(loaders) && error == 0; i++) {
        const struct value *loader = &loaders->items[i];

        if (loader->type != VALUE_MAP)
            continue;
        const struct form row = form_row(&form, &rows);
        if (!row.map)
            break;
        form_note(&row, value_copy(loader, row.map));
        rows_put_rates(&row, loader, look, before);
        rows_put_lately(&row, loader, &look->views[TOP_LATELY]);
        rows_put_progress(&row, loader, &look->views[TOP_EPOCHS]);
        rows_put_errors(&row, loader);
    }
    if (error == 0)
        value_move(&rows, ret);
    return error;
}

/* ---- order ---------------------------------------------------------------------------------- */

const struct top_sort top_sorts[TOP_SORTS] = {
    {'n', "name", NULL}, {'s', "samples/s", "samples_per_s"}, {'w', "wait", "wait"},
    {'c', "CPU", "cpu"}, {'m', "memory", "memory_bytes"},     {'e', "errors", "errors"},
};

struct rows_order {
    const char *by; /* NULL: the name */
    int sign;
};

static int rows_compare_names(const struct value *a, const struct value *b)
{
    const struct value *one = value_get(a, "name"), *other = value_get(b, "name");
    uint64_t uid = value_count(value_get(a, "uid")), than = value_count(value_get(b, "uid"));
    int order = strcmp(one && one->type == VALUE_STRING ? one->string : "",
                       other && other->type == VALUE_STRING ? other->string : "");

    return order ? order : (uid > than) - (uid < than);
}

static int rows_compare(const void *a, const void *b, void *data)
{
    const struct rows_order *order = data;
    double one = order->by ? value_real(value_get(a, order->by)) : NAN;
    double other = order->by ? value_real(value_get(b, order->by)) : NAN;

    if (isnan(one) != isnan(other))
        return isnan(one) ? 1 : -1;
    if (!isnan(one) && one != other)
        return one > other ? -order->sign : order->sign;
    return order->sign * rows_compare_names(a, b);
}

void top_rows_sort(struct value *rows, const struct top_sort *sort, bool reverse)
{
    struct rows_order order = {.by = sort->by, .sign = reverse ? -1 : 1};

    assert(rows->type == VALUE_ARRAY);
    if (rows->count > 0)
        qsort_r(rows->items, rows->count, sizeof *rows->items, rows_compare, &order);
}
