/* The views `times` and `trace`: how long batches were in each stage, all together and one by one.
 */
#include "daemon/serve/views_private.h"

#include "daemon/serve/registry.h"

enum { TRACED_SHOWN = 4096 }; /* what a frame has room for */

/* Of what a host of Python makes: how much of the time was not C's. */
static void views_times_add_python(struct row *row, const struct loader *l,
                                   const struct timing *timing, enum stage stage)
{
    bool told = loader_spec(l)->collate.kind == COLLATE_PYTHON &&
                (stage == STAGE_FETCH || stage == STAGE_COLLATE);
    uint64_t n = timing->n[stage];

    row_seconds_if(row, "python_s", told, n ? timing->python_ns[stage] / n : 0);
    row_seconds_if(row, "python_total_s", told, timing->python_ns[stage]);
}

static void views_times_add(struct value *ret, const struct loader *l, const struct stream *s,
                            const struct timing *timing, int *r)
{
    for (int stage = 0; stage < STAGES && *r == 0; stage++) {
        struct row row = row_push(ret);
        uint64_t n = timing->n[stage];

        row_string(&row, "loader", views_name(l));
        row_uint_if(&row, "rank", s, s ? s->params.rank : 0);
        row_string(&row, "stage", stage_name((enum stage)stage));
        row_uint(&row, "batches", n);
        row_seconds(&row, "total_s", timing->ns[stage]);
        row_seconds(&row, "mean_s", n ? timing->ns[stage] / n : 0);
        views_times_add_python(&row, l, timing, (enum stage)stage);
        row_seconds(&row, "half_s", timing_quantile(timing, (enum stage)stage, 0.5));
        row_seconds(&row, "p99_s", timing_quantile(timing, (enum stage)stage, 0.99));
        *r = row.r;
    }
}

int view_times(const struct daemon *d, struct value *ret)
{
    int r = 0;

    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);

        views_times_add(ret, l, NULL, &loader_core(l)->timing, &r);
        for (const struct stream *s = loader_core(l)->streams; s; s = s->next) {
            if (s->sink && !stream_is_source(s))
                views_times_add(ret, l, s, &s->timing, &r);
        }
    }
    return r;
}

static int views_times_add_traced(struct value *rows, const struct trace_batch *b)
{
    const uint64_t numbers[] = {b->epoch,   b->rank, b->step,  b->worker,    b->planned, b->begun,
                                b->fetched, b->made, b->ready, b->delivered, b->released};
    struct value *row, *number;
    int r = value_push(rows, &row);

    if (r == 0)
        row->type = VALUE_ARRAY;
    for (size_t i = 0; i < ARRAY_SIZE(numbers) && r == 0; i++) {
        r = value_push(row, &number);
        if (r == 0)
            value_make_uint(number, numbers[i]);
    }
    return r;
}

/* How many batches there are to show if no loader shows more than `each`. */
static uint64_t views_times_count_traced(const struct daemon *d, uint32_t each)
{
    uint64_t n = 0;

    for (struct registered *e = d->loaders; e; e = registered_next(e))
        n += min_u64(trace_count(&loader_core(registered_loader(e))->trace), each);
    return n;
}

/* The most that each loader may show, so that a frame has room for all of them. */
static uint32_t views_times_traced_share(const struct daemon *d)
{
    uint32_t fits = 0, most = TRACE_BATCHES;

    while (fits < most) {
        uint32_t each = fits + (most - fits + 1) / 2;

        if (views_times_count_traced(d, each) <= TRACED_SHOWN)
            fits = each;
        else
            most = each - 1;
    }
    return fits;
}

/* The latest ones of each loader. */
int view_trace(const struct daemon *d, struct value *ret)
{
    uint32_t share = views_times_traced_share(d);

    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct trace *trace = &loader_core(l)->trace;
        uint32_t n = trace_count(trace);
        struct row row = row_push(ret);

        row_string(&row, "loader", views_name(l));
        struct value *batches = row_list(&row, "batches");
        for (uint32_t i = n - (uint32_t)min_u64(n, share); i < n && row.r == 0; i++)
            row.r = views_times_add_traced(batches, trace_at(trace, i));
        if (row.r < 0)
            return row.r;
    }
    return 0;
}
