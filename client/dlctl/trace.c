/*
 * The verb that writes the view `trace` as a Chrome trace: the JSON object format of the Trace
 * Event Format, complete events ("ph": "X") with times in microseconds.
 *
 * A loader is a process. Its workers are threads from TRACE_WORKERS_FROM on, its ranks from
 * TRACE_RANKS_FROM on. What a rank has at the same time, batches that are ready or held, would
 * overlap in one row: each goes to the first lane of the rank that is free then.
 */
#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum trace_column {
    TRACE_EPOCH,
    TRACE_RANK,
    TRACE_STEP,
    TRACE_WORKER,
    TRACE_PLANNED,
    TRACE_BEGUN,
    TRACE_FETCHED,
    TRACE_MADE,
    TRACE_READY,
    TRACE_DELIVERED,
    TRACE_RELEASED,
    TRACE_COLUMNS
};

enum { TRACE_WORKERS_FROM = 1, TRACE_RANKS_FROM = 1000, LANES = 64, NAMED_MAX = 4096 };

/* The rows of a trace that have a name already. */
struct writer {
    json_t *events;
    int pid;
    json_int_t named[NAMED_MAX];
    size_t n_named;
    struct {
        uint64_t rank, until[LANES];
    } * ranks; /* owned */
    size_t n_ranks;
};

static bool trace_read_batch(const struct value *v, uint64_t ret[static TRACE_COLUMNS])
{
    if (v->type != VALUE_ARRAY || v->count != TRACE_COLUMNS)
        return false;
    for (size_t i = 0; i < TRACE_COLUMNS; i++) {
        const struct value *n = &v->items[i];
        if (n->type != VALUE_UINT && (n->type != VALUE_INT || n->integer < 0))
            return false;
        ret[i] = n->type == VALUE_UINT ? n->uinteger : (uint64_t)n->integer;
    }
    return true;
}

static void trace_name_row(struct writer *w, json_int_t tid, const char *what, uint64_t number)
{
    char name[64];

    for (size_t i = 0; i < w->n_named; i++)
        if (w->named[i] == tid)
            return;
    if (w->n_named == NAMED_MAX)
        return;
    w->named[w->n_named++] = tid;
    (void)snprintf(name, sizeof name, "%s %llu", what, (ull)number);
    (void)json_array_append_new(w->events, json_pack("{s:s, s:s, s:i, s:I, s:{s:s}}", "ph", "M",
                                                     "name", "thread_name", "pid", w->pid, "tid",
                                                     tid, "args", "name", name));
    (void)json_array_append_new(w->events, json_pack("{s:s, s:s, s:i, s:I, s:{s:I}}", "ph", "M",
                                                     "name", "thread_sort_index", "pid", w->pid,
                                                     "tid", tid, "args", "sort_index", tid));
}

static void trace_add_span(struct writer *w, json_int_t tid, const char *name,
                           const uint64_t *batch, enum trace_column from, enum trace_column to)
{
    if (batch[to] <= batch[from])
        return;
    (void)json_array_append_new(
        w->events,
        json_pack("{s:s, s:s, s:i, s:I, s:f, s:f, s:{s:I, s:I, s:I, s:I}}", "ph", "X", "name", name,
                  "pid", w->pid, "tid", tid, "ts", (double)batch[from] / 1e3, "dur",
                  (double)(batch[to] - batch[from]) / 1e3, "args", "epoch",
                  (json_int_t)batch[TRACE_EPOCH], "step", (json_int_t)batch[TRACE_STEP], "rank",
                  (json_int_t)batch[TRACE_RANK], "worker", (json_int_t)batch[TRACE_WORKER]));
}

/* The rank's first lane that is free from then on; -1: there is no memory. */
static int trace_lane_of(struct writer *w, uint64_t rank, uint64_t from, uint64_t until)
{
    size_t i = 0, lane = 0;

    while (i < w->n_ranks && w->ranks[i].rank != rank)
        i++;
    if (i == w->n_ranks) {
        void *grown = reallocarray(w->ranks, i + 1, sizeof *w->ranks);
        if (!grown)
            return -1;
        w->ranks = grown;
        memset(&w->ranks[i], 0, sizeof w->ranks[i]);
        w->ranks[i].rank = rank;
        w->n_ranks++;
    }
    while (lane < LANES - 1 && w->ranks[i].until[lane] > from)
        lane++;
    w->ranks[i].until[lane] = until;
    return (int)lane;
}

static int trace_add_batch(struct writer *w, const uint64_t *batch)
{
    json_int_t worker = TRACE_WORKERS_FROM + (json_int_t)batch[TRACE_WORKER];
    int lane = trace_lane_of(w, batch[TRACE_RANK], batch[TRACE_READY], batch[TRACE_RELEASED]);

    if (lane < 0)
        return -ENOMEM;
    json_int_t rank = TRACE_RANKS_FROM + (json_int_t)batch[TRACE_RANK] * LANES + lane;
    trace_name_row(w, worker, "worker", batch[TRACE_WORKER]);
    trace_add_span(w, worker, "fetch", batch, TRACE_BEGUN, TRACE_FETCHED);
    trace_add_span(w, worker, "collate", batch, TRACE_FETCHED, TRACE_MADE);
    trace_name_row(w, rank, "rank", batch[TRACE_RANK]);
    trace_add_span(w, rank, "ready", batch, TRACE_READY, TRACE_DELIVERED);
    trace_add_span(w, rank, "held", batch, TRACE_DELIVERED, TRACE_RELEASED);
    return 0;
}

static int trace_add_loader(json_t *events, int pid, const struct value *row)
{
    const struct value *name = value_get(row, "loader"), *batches = value_get(row, "batches");
    struct writer w = {.events = events, .pid = pid};
    uint64_t batch[TRACE_COLUMNS];
    int r = 0;

    if (!name || name->type != VALUE_STRING || !batches || batches->type != VALUE_ARRAY)
        return -EBADMSG;
    (void)json_array_append_new(events, json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name",
                                                  "process_name", "pid", pid, "args", "name",
                                                  name->string));
    for (uint32_t i = 0; i < batches->count && r == 0; i++)
        r = trace_read_batch(&batches->items[i], batch) ? trace_add_batch(&w, batch) : -EBADMSG;
    free(w.ranks);
    return r;
}

static bool trace_is_meant(const struct options *o, const struct value *row)
{
    const struct value *name = value_get(row, "loader");

    return !o->operand ||
           (name && name->type == VALUE_STRING && strcmp(name->string, o->operand) == 0);
}

static bool trace_has_loader(const struct options *o, const struct value *view)
{
    for (uint32_t i = 0; view->type == VALUE_ARRAY && i < view->count; i++)
        if (trace_is_meant(o, &view->items[i]))
            return true;
    return false;
}

static int trace_make(const struct options *o, const struct value *view, json_t **ret)
{
    json_t *events = json_array();
    int pid = 0, r = view->type == VALUE_ARRAY ? 0 : -EBADMSG;

    for (uint32_t i = 0; i < view->count && r == 0; i++)
        if (trace_is_meant(o, &view->items[i]))
            r = trace_add_loader(events, ++pid, &view->items[i]);
    *ret = json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ms");
    return r < 0 ? r : *ret ? 0 : -ENOMEM;
}

static int trace_write_out(const struct options *o, json_t *trace)
{
    FILE *file = o->output ? fopen(o->output, "we") : stdout;
    int r = 0;

    if (!file)
        return report_errno(o, -errno, o->output);
    if (json_dumpf(trace, file, JSON_COMPACT) < 0 && !ferror(file))
        r = -ENOMEM;
    fputc('\n', file);
    if (r == 0)
        r = report_flush_file(file);
    if (o->output && fclose(file) == EOF && r == 0)
        r = -errno;
    return r < 0 ? report_errno(o, r, o->output ? o->output : "standard output") : STATUS_DONE;
}

int verb_trace(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    _cleanup_(value_deinit) struct value view = {0};
    json_t *trace = NULL;
    int status, r = ask_connect(o, &client);

    if (r == 0)
        r = ask_view(client, "trace", &view);
    if (r < 0)
        return report_client(o, client, r);
    if (o->operand && !trace_has_loader(o, &view)) {
        struct dl_error err = {0};

        dl_error_set(&err, ENOENT, o->operand, "no loader of that name is open; see dlctl loaders");
        return report_error(o, &err);
    }
    r = trace_make(o, &view, &trace);
    status = r < 0 ? report_client(o, client, r) : trace_write_out(o, trace);
    json_decref(trace);
    return status;
}
