/* What is worked out of single batches: see sheet.h. */
#include "client/dlctl/sheet/sheet.h"

#include <errno.h>
#include <math.h>

enum { SERIES_COLUMNS = 11 };

static bool sheet_read_batch(const struct value *v, struct sheet_batch *ret)
{
    uint64_t *const fields[SERIES_COLUMNS] = {
        &ret->epoch,   &ret->rank, &ret->step,  &ret->worker,    &ret->planned, &ret->begun,
        &ret->fetched, &ret->made, &ret->ready, &ret->delivered, &ret->released};

    if (v->type != VALUE_ARRAY || v->count != SERIES_COLUMNS)
        return false;
    for (size_t i = 0; i < SERIES_COLUMNS; i++) {
        if (v->items[i].type != VALUE_INT && v->items[i].type != VALUE_UINT)
            return false;
        *fields[i] = value_count(&v->items[i]);
    }
    return ret->released >= ret->delivered;
}

static int sheet_compare(const void *a, const void *b)
{
    const struct sheet_batch *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->delivered > y->delivered) - (x->delivered < y->delivered);
}

static void sheet_find_span(struct sheet_batches *b)
{
    b->from = UINT64_MAX;
    for (size_t i = 0; i < b->n; i++) {
        b->from = min_u64(b->from, b->list[i].delivered);
        b->to = max_u64(b->to, b->list[i].released);
        b->ranks += i == 0 || b->list[i].rank != b->list[i - 1].rank;
    }
    b->to = max_u64(b->to, b->from + 1);
}

static const struct value *sheet_find_loader(const struct value *trace, const char *loader)
{
    for (uint32_t i = 0; trace->type == VALUE_ARRAY && i < trace->count; i++) {
        const struct value *name = value_get(&trace->items[i], "loader");

        if (name && name->type == VALUE_STRING && strcmp(name->string, loader) == 0)
            return value_get(&trace->items[i], "batches");
    }
    return NULL;
}

int sheet_batches_read(const struct value *trace, const char *loader, struct sheet_batches *ret)
{
    const struct value *rows = sheet_find_loader(trace, loader);

    *ret = (struct sheet_batches){0};
    if (!rows || rows->count == 0)
        return 0;
    if (rows->type != VALUE_ARRAY)
        return -EBADMSG;
    ret->list = calloc(rows->count, sizeof *ret->list);
    if (!ret->list)
        return -ENOMEM;
    for (uint32_t i = 0; i < rows->count; i++) {
        if (!sheet_read_batch(&rows->items[i], &ret->list[ret->n++])) {
            sheet_batches_deinit(ret);
            return -EBADMSG;
        }
    }
    qsort(ret->list, ret->n, sizeof *ret->list, sheet_compare);
    sheet_find_span(ret);
    return 0;
}

void sheet_batches_deinit(struct sheet_batches *b)
{
    free(b->list);
    *b = (struct sheet_batches){0};
}

/* ---- over time ------------------------------------------------------------------------------ */

static double sheet_bin_ns(const struct sheet_batches *b)
{
    return (double)(b->to - b->from) / SHEET_BINS;
}

static size_t sheet_bin_of(const struct sheet_batches *b, uint64_t at)
{
    double bin = (double)(at - b->from) / sheet_bin_ns(b);

    return bin < SHEET_BINS ? (size_t)bin : SHEET_BINS - 1;
}

/* Adds what each bin has of the time from `from` to `to`, in ns. */
static void sheet_spread(const struct sheet_batches *b, uint64_t from, uint64_t to, double *bins)
{
    double width = sheet_bin_ns(b), begin = (double)(from - b->from), end = (double)(to - b->from);

    for (size_t i = sheet_bin_of(b, from); i < SHEET_BINS && (double)i * width < end; i++) {
        double low = fmax(begin, (double)i * width), high = fmin(end, (double)(i + 1) * width);

        bins[i] += fmax(0, high - low);
    }
}

void sheet_rate(const struct sheet_batches *b, double ret[static SHEET_BINS])
{
    for (size_t i = 0; i < SHEET_BINS; i++)
        ret[i] = b->n ? 0 : NAN;
    for (size_t i = 0; i < b->n; i++)
        ret[sheet_bin_of(b, b->list[i].delivered)] += 1e9 / sheet_bin_ns(b);
}

void sheet_waiting(const struct sheet_batches *b, double ret[static SHEET_BINS])
{
    double there[SHEET_BINS] = {0}, waits[SHEET_BINS] = {0};
    uint64_t until = 0; /* then the rank has released all that it had */

    for (size_t i = 0; i < b->n; i++) {
        const struct sheet_batch *x = &b->list[i];

        if (i == 0 || x->rank != b->list[i - 1].rank)
            until = x->delivered;
        if (x->delivered > until)
            sheet_spread(b, until, x->delivered, waits);
        if (x->released > until) {
            sheet_spread(b, until, x->released, there);
            until = x->released;
        }
    }
    for (size_t i = 0; i < SHEET_BINS; i++)
        ret[i] = there[i] > 0 ? waits[i] / there[i] : NAN;
}

const char *sheet_stage(const struct sheet_batches *b, size_t stage, double ret[static SHEET_BINS])
{
    static const char *const names[] = {"queued", "fetch", "collate", "handover", "ready", "held"};
    size_t n[SHEET_BINS] = {0};

    if (stage >= ARRAY_SIZE(names))
        return NULL;
    for (size_t i = 0; i < SHEET_BINS; i++)
        ret[i] = 0;
    for (size_t i = 0; i < b->n; i++) {
        const struct sheet_batch *x = &b->list[i];
        const uint64_t times[] = {x->planned, x->begun,     x->fetched, x->made,
                                  x->ready,   x->delivered, x->released};
        size_t bin = sheet_bin_of(b, x->delivered);

        if (times[stage + 1] > times[stage])
            ret[bin] += (double)(times[stage + 1] - times[stage]) / 1e9;
        n[bin]++;
    }
    for (size_t i = 0; i < SHEET_BINS; i++)
        ret[i] = n[i] ? ret[i] / (double)n[i] : NAN;
    return names[stage];
}

static uint64_t sheet_made_ns(const struct sheet_batch *b)
{
    return b->made > b->begun ? b->made - b->begun : 0;
}

size_t sheet_slowest(const struct sheet_batches *b, size_t n, const struct sheet_batch **ret)
{
    size_t found = 0;

    for (size_t i = 0; i < b->n && n > 0; i++) {
        size_t at = found;

        while (at > 0 && sheet_made_ns(ret[at - 1]) < sheet_made_ns(&b->list[i]))
            at--;
        if (at == n)
            continue;
        found += found < n;
        memmove(&ret[at + 1], &ret[at], (found - at - 1) * sizeof *ret);
        ret[at] = &b->list[i];
    }
    return found;
}
