/* The view `lately`: of the last ten minutes, what was delivered and how much each rank waited. */
#include "daemon/serve/views_private.h"

#include "daemon/serve/registry.h"

enum { LATELY_SHOWN = 8192 }; /* rows */

/* Bins of one loader, all of the same time: up to `until`, which was `age_ns` ago. */
struct lately_span {
    uint64_t first, last;
    uint64_t until, age_ns;
};

static struct lately_span views_lately_span(const struct loader *l, uint64_t now)
{
    uint64_t until = loader_lately_until(l, now), last = until / LATELY_BIN_NS;

    return (struct lately_span){.first = last - min_u64(last, LATELY_BINS - 1),
                                .last = last,
                                .until = until,
                                .age_ns = now - min_u64(until, now)};
}

static int views_lately_push(struct value *list, bool known, uint64_t n)
{
    struct value *v;
    int r = value_push(list, &v);

    if (r == 0 && known)
        value_make_uint(v, n);
    return r;
}

static void views_lately_begin(struct row *row, const struct loader *l,
                               const struct lately_rank *rank, const struct lately_span *span)
{
    const struct stream *s = rank ? rank->stream : NULL;
    bool session = s && s->sink;

    row_string(row, "loader", views_name(l));
    row_uint(row, "uid", loader_uid(l));
    row_uint_if(row, "session", session, session ? session_id(stream_session(s)) : 0);
    row_string(row, "job", rank ? rank->key.job : NULL);
    row_uint_if(row, "rank", rank, rank ? rank->key.rank : 0);
    row_uint_if(row, "world", rank, rank ? rank->key.world : 0);
    row_seconds(row, "bin_s", LATELY_BIN_NS);
    row_seconds(row, "last_s", span->until % LATELY_BIN_NS);
    row_seconds(row, "age_s", span->age_ns);
}

/* Without those before the first one in which anything is known. */
static int views_lately_add_rank(const struct loader *l, const struct lately_rank *rank,
                                 const struct lately_span *span, struct value *rows)
{
    struct row row = row_push(rows);
    struct lately_line line;
    uint64_t all_read = 0, all_waited = 0, read, waited;

    loader_lately_line(rank, span->until, &line);
    views_lately_begin(&row, l, rank, span);
    struct value *list = row_list(&row, "waits");
    for (uint64_t bin = span->first; bin <= span->last && row.r == 0; bin++) {
        bool known = lately_line_at(&line, bin, &read, &waited);

        all_read += known ? read : 0;
        all_waited += known ? waited : 0;
        if (known || list->count > 0)
            row.r = views_lately_push(list, known, known ? (100 * waited + read / 2) / read : 0);
    }
    row_seconds(&row, "read_s", all_read);
    row_seconds(&row, "waited_s", all_waited);
    row_null(&row, "batches");
    row_null(&row, "bytes");
    return row.r;
}

static int views_lately_add_loader(const struct loader *l, const struct lately_span *span,
                                   struct value *rows)
{
    struct row row = row_push(rows);
    struct lately_totals totals;
    uint64_t batches = 0, bytes = 0;

    loader_lately_totals(l, span->until, &totals);
    views_lately_begin(&row, l, NULL, span);
    row_null(&row, "waits");
    row_null(&row, "read_s");
    row_null(&row, "waited_s");
    struct value *list = row_list(&row, "batches");
    for (uint64_t bin = span->first; bin <= span->last && row.r == 0; bin++)
        if (lately_totals_at(&totals, bin, &batches, &bytes))
            row.r = views_lately_push(list, true, batches);
    list = row_list(&row, "bytes");
    for (uint64_t bin = span->first; bin <= span->last && row.r == 0; bin++)
        if (lately_totals_at(&totals, bin, &batches, &bytes))
            row.r = views_lately_push(list, true, bytes);
    return row.r;
}

int view_lately(const struct daemon *d, struct value *ret)
{
    uint64_t now = uv_hrtime();
    int r = 0;

    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e && r == 0; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct lately_span span = views_lately_span(l, now);
        const struct lately_rank *rank = loader_lately(l)->ranks;

        r = views_lately_add_loader(l, &span, ret);
        for (; rank && r == 0 && ret->count < LATELY_SHOWN; rank = rank->hh.next)
            r = views_lately_add_rank(l, rank, &span, ret);
    }
    return r;
}
