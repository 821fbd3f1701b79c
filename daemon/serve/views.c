#include "daemon/serve/views.h"

#include "daemon/serve/loader/epoch.h"
#include "daemon/serve/pool/sandbox.h"
#include "daemon/serve/pool/usage.h"
#include "daemon/serve/registry.h"

#include <errno.h>
#include <stdio.h>

enum {
    BUCKETS_SHOWN = 512,
    BAD_SHOWN = 1024, /* what a frame has room for */
    TRACED_SHOWN = 4096,
};

/*
 * Rows are built by a chain of setters; the first failure (out of memory is the only one) sticks
 * in `r` and makes the rest do nothing.
 */
struct row {
    struct value *map;
    int r;
};

static void set_uint(struct row *row, const char *key, uint64_t u)
{
    if (row->r == 0)
        row->r = value_set_uint(row->map, key, u);
}

static void set_real(struct row *row, const char *key, double d)
{
    if (row->r == 0)
        row->r = value_set_float(row->map, key, d);
}

static void set_string(struct row *row, const char *key, const char *s)
{
    if (row->r == 0)
        row->r = value_set_string(row->map, key, s);
}

static void set_seconds(struct row *row, const char *key, uint64_t ns)
{
    set_real(row, key, (double)ns / 1e9);
}

static void set_null(struct row *row, const char *key)
{
    struct value *v;

    if (row->r == 0)
        row->r = value_set(row->map, key, &v);
}

static struct row add_row(struct value *rows)
{
    struct row row = {0};

    row.r = value_push(rows, &row.map);
    if (row.r == 0)
        row.map->type = VALUE_MAP;
    return row;
}

static const char *loader_name(const struct loader *loader)
{
    return loader_spec(loader)->name;
}

static void set_verdict(struct row *row, const struct loader *loader)
{
    struct verdict verdict;

    loader_verdict(loader, &verdict);
    set_string(row, "verdict", verdict.text);
}

static int view_loaders(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct dl_spec *spec = loader_spec(l);
        const struct loader_totals *totals = loader_totals(l);
        struct row row = add_row(ret);

        set_string(&row, "name", spec->name);
        set_uint(&row, "uid", loader_uid(l));
        set_string(&row, "state", loader_state(l));
        set_string(&row, "dataset", dataset_kind_name(spec->dataset.kind));
        set_uint(&row, "length", loader_length(l));
        if (loader_measured(l) == UINT64_MAX)
            set_null(&row, "measured");
        else
            set_uint(&row, "measured", loader_measured(l));
        set_uint(&row, "batch", spec->batch_size ? spec_most_samples(spec) : 0);
        set_uint(&row, "seed", spec->seed);
        set_uint(&row, "users", loader_users(l));
        set_uint(&row, "workers", spec->workers);
        set_uint(&row, "batches", totals->batches);
        set_uint(&row, "samples", totals->samples);
        set_uint(&row, "delivered_bytes", totals->bytes);
        set_uint(&row, "retries", totals->retries);
        set_uint(&row, "faults", totals->faults);
        set_uint(&row, "bad", quarantine_count(loader_quarantine(l)));
        set_uint(&row, "memory_bytes", pool_memory(loader_pool(l)));
        set_uint(&row, "limit_bytes", spec->memory_limit);
        set_seconds(&row, "starved_s", totals->starved_ns);
        if (*loader_starved_by(l))
            set_string(&row, "starved_by", loader_starved_by(l));
        else
            set_null(&row, "starved_by");
        set_verdict(&row, l);
        if (row.r < 0)
            return row.r;
    }
    return 0;
}

/* The rank that the stream waits for, where batches are dispatched, and why; else null. */
static void add_waiting(struct row *row, const struct loader *loader, const struct stream *stream)
{
    bool started = false;
    uint64_t rank = loader_waits_for(loader, stream, &started);

    if (rank == UINT64_MAX) {
        set_null(row, "waits_for");
        set_null(row, "waits_why");
        return;
    }
    set_uint(row, "waits_for", rank);
    set_string(row, "waits_why", started ? "behind" : "not started");
}

static uint32_t count_steps(const struct stream *stream, enum step_state state)
{
    const struct step *step;
    uint32_t n = 0;

    for (step = stream->steps; step; step = step->hh.next)
        n += step->state == state;
    return n;
}

/* The stream's own, and what of its source's it has yet to take. */
static uint32_t count_all(const struct stream *stream, enum step_state state)
{
    const struct stream *source = loader_source(stream);
    uint32_t n = count_steps(stream, state);

    for (const struct step *step = source ? source->steps : NULL; step; step = step->hh.next)
        n += step->state == state && step->number >= stream->to_plan;
    return n;
}

static void set_array(struct row *row, const char *key, struct value **ret)
{
    if (row->r == 0)
        row->r = value_set(row->map, key, ret);
    if (row->r == 0)
        (*ret)->type = VALUE_ARRAY;
}

/* The buckets of a plan, as far as anybody reads so many. */
static void add_buckets(struct row *row, const struct plan *plan)
{
    uint32_t n = plan ? plan_buckets(plan) : 0;
    struct value *buckets = NULL;

    if (n == 0 || n > BUCKETS_SHOWN) {
        set_null(row, "buckets");
        return;
    }
    set_array(row, "buckets", &buckets);
    for (uint32_t i = 0; i < n && row->r == 0; i++) {
        struct plan_bucket bucket = plan_bucket_at(plan, i);
        struct row inner = add_row(buckets);

        set_uint(&inner, "upper", bucket.upper);
        set_uint(&inner, "members", bucket.members);
        set_uint(&inner, "full", bucket.full);
        set_uint(&inner, "leftover", bucket.leftover);
        row->r = inner.r;
    }
}

/*
 * Of batches of tokens: what was delivered of them, in `age_ns`, and what becomes of the epoch's
 * samples.
 */
static void add_tokens(struct row *row, const struct stream *s, uint64_t age_ns)
{
    const struct plan *plan = s->plan && !s->unsettled ? epoch_plan(s->plan) : NULL;
    const struct plan_totals *totals = plan ? plan_totals(plan) : NULL;
    const struct {
        const char *key;
        uint64_t n;
    } all[] = {
        {"tokens", s->tokens},
        {"padded", s->padded},
        {"overlong", totals ? totals->overlong : 0},
        {"leftover", totals ? totals->leftover : 0},
        {"carried", totals ? totals->carried : 0},
        {"repeated", totals ? totals->repeated : 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (totals)
            set_uint(row, all[i].key, all[i].n);
        else
            set_null(row, all[i].key);
    }
    if (totals)
        set_real(row, "tokens_per_s", (double)s->tokens * 1e9 / (double)max_u64(age_ns, 1));
    else
        set_null(row, "tokens_per_s");
    add_buckets(row, totals ? plan : NULL);
}

/* What other numbers of ranks have had of the epoch, first things first; the steps count from
 * there. */
static void add_before(struct row *row, const struct history *before)
{
    struct value *stretches = NULL;

    set_array(row, "before", &stretches);
    for (uint32_t i = 0; i < before->n && row->r == 0; i++) {
        struct row inner = add_row(stretches);

        set_uint(&inner, "world", before->of[i].world);
        set_uint(&inner, "steps", before->of[i].steps);
        row->r = inner.r;
    }
}

static const char *stream_state(const struct stream *s)
{
    return s->parked            ? "parked"
           : !s->sink           ? "expected"
           : s->stopped         ? "stopped"
           : stream_finished(s) ? "finished"
           : stream_starves(s)  ? "starving"
                                : "running";
}

static void add_epoch(struct row *row, const struct loader *l, const struct stream *s)
{
    uint64_t age_ns = s->sink ? uv_hrtime() - s->begun_ns : 0; /* nobody has begun it */

    set_string(row, "loader", loader_name(l));
    set_uint(row, "uid", loader_uid(l));
    if (s->sink)
        set_uint(row, "session", session_id(stream_session(s)));
    else
        set_null(row, "session");
    set_string(row, "job", s->params.job);
    set_uint(row, "epoch", s->params.epoch);
    set_uint(row, "rank", s->params.rank);
    set_uint(row, "world", s->params.world);
    set_uint(row, "step", s->params.any_order ? s->params.first + s->handed : s->to_deliver);
    if (s->params.steps == STEPS_UNKNOWN)
        set_null(row, "steps");
    else
        set_uint(row, "steps", s->params.steps);
    add_before(row, &s->params.before);
    set_uint(row, "running", count_all(s, STEP_RUNNING));
    set_uint(row, "ready", count_all(s, STEP_READY));
    set_uint(row, "leased", s->leased);
    set_uint(row, "pinned", s->pinned);
    set_uint(row, "credits", s->params.credits);
    set_uint(row, "samples", s->samples);
    add_tokens(row, s, age_ns);
    add_waiting(row, l, s);
    if (s->sink)
        set_seconds(row, "age_s", age_ns);
    else
        set_null(row, "age_s");
    set_seconds(row, "waited_s", s->waited_ns);
    set_string(row, "state", stream_state(s));
}

static int view_epochs(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);

        for (const struct stream *s = loader_streams(l); s; s = s->next) {
            if (stream_is_source(s)) /* its ranks' streams are there */
                continue;
            struct row row = add_row(ret);

            add_epoch(&row, l, s);
            if (row.r < 0)
                return row.r;
        }
    }
    return 0;
}

/* Null while it is not running; a worker that is being started may be gone again already. */
static void add_usage(struct row *row, int pid)
{
    struct usage usage;

    if (pid && usage_read(pid, &usage)) {
        set_seconds(row, "cpu_s", usage.cpu_ns);
        set_uint(row, "memory_bytes", usage.bytes);
        return;
    }
    set_null(row, "cpu_s");
    set_null(row, "memory_bytes");
}

static int view_workers(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);

        for (uint32_t i = 0; i < pool_workers(loader_pool(l)); i++) {
            struct row row = add_row(ret);
            struct pool_worker_view view;
            char samples[384];
            char sandbox[SANDBOX_WORDS];

            pool_view_worker(loader_pool(l), i, &view);
            sandbox_describe(view.sandbox, sandbox);
            const struct step *step = NULL;
            bool busy = view.tag && loader_name_task(l, view.tag, &step, samples, sizeof samples);
            set_string(&row, "loader", loader_name(l));
            set_uint(&row, "uid", loader_uid(l));
            set_uint(&row, "worker", view.number);
            if (view.pid)
                set_uint(&row, "pid", (uint64_t)view.pid);
            else
                set_null(&row, "pid");
            set_string(&row, "state", view.state);
            set_uint(&row, "queued", view.in_flight);
            if (step)
                set_uint(&row, "step", step->number);
            else
                set_null(&row, "step");
            if (busy)
                set_string(&row, "samples", samples);
            else
                set_null(&row, "samples");
            if (loader_interpreter(l))
                set_string(&row, "interpreter", loader_interpreter(l));
            else
                set_null(&row, "interpreter");
            set_uint(&row, "tasks", view.tasks);
            set_uint(&row, "restarts", view.restarts);
            set_seconds(&row, "busy_s", view.busy_ns);
            set_seconds(&row, "fetch_s", view.busy_ns - view.collate_ns);
            set_seconds(&row, "collate_s", view.collate_ns);
            add_usage(&row, view.pid);
            set_string(&row, "sandbox", sandbox);
            if (row.r < 0)
                return row.r;
        }
    }
    return 0;
}

static void add_times(struct value *ret, const struct loader *l, const struct stream *s,
                      const struct timing *timing, int *r)
{
    for (int stage = 0; stage < STAGES && *r == 0; stage++) {
        struct row row = add_row(ret);
        uint64_t n = timing->n[stage];

        set_string(&row, "loader", loader_name(l));
        if (s)
            set_uint(&row, "rank", s->params.rank);
        else
            set_null(&row, "rank");
        set_string(&row, "stage", stage_name((enum stage)stage));
        set_uint(&row, "batches", n);
        set_seconds(&row, "total_s", timing->ns[stage]);
        set_seconds(&row, "mean_s", n ? timing->ns[stage] / n : 0);
        set_seconds(&row, "half_s", timing_quantile(timing, (enum stage)stage, 0.5));
        set_seconds(&row, "p99_s", timing_quantile(timing, (enum stage)stage, 0.99));
        *r = row.r;
    }
}

static int view_times(const struct daemon *d, struct value *ret)
{
    struct timing timing;
    int r = 0;

    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);

        loader_timing(l, &timing);
        add_times(ret, l, NULL, &timing, &r);
        for (const struct stream *s = loader_streams(l); s; s = s->next) {
            if (s->sink && !stream_is_source(s))
                add_times(ret, l, s, &s->timing, &r);
        }
    }
    return r;
}

static int add_traced(struct value *rows, const struct trace_batch *b)
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
static uint64_t count_traced(const struct daemon *d, uint32_t each)
{
    uint64_t n = 0;

    for (struct registered *e = d->loaders; e; e = registered_next(e))
        n += min_u64(trace_count(loader_trace(registered_loader(e))), each);
    return n;
}

/* The most that each loader may show, so that a frame has room for all of them. */
static uint32_t traced_share(const struct daemon *d)
{
    uint32_t fits = 0, most = TRACE_BATCHES;

    while (fits < most) {
        uint32_t each = fits + (most - fits + 1) / 2;

        if (count_traced(d, each) <= TRACED_SHOWN)
            fits = each;
        else
            most = each - 1;
    }
    return fits;
}

/* The latest ones of each loader. */
static int view_trace(const struct daemon *d, struct value *ret)
{
    uint32_t share = traced_share(d);

    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct trace *trace = loader_trace(l);
        uint32_t n = trace_count(trace);
        struct row row = add_row(ret);
        struct value *batches = NULL;

        set_string(&row, "loader", loader_name(l));
        set_array(&row, "batches", &batches);
        for (uint32_t i = n - (uint32_t)min_u64(n, share); i < n && row.r == 0; i++)
            row.r = add_traced(batches, trace_at(trace, i));
        if (row.r < 0)
            return row.r;
    }
    return 0;
}

static int view_ring(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct segment *s = NULL;

        while ((s = pool_next_segment(loader_pool(l), s))) {
            struct row row = add_row(ret);

            set_string(&row, "loader", loader_name(l));
            set_uint(&row, "uid", loader_uid(l));
            set_uint(&row, "segment", s->id);
            set_uint(&row, "worker", s->worker);
            set_string(&row, "state", s->active ? "active" : "retiring");
            set_uint(&row, "slot_bytes", s->slot_bytes);
            set_uint(&row, "slots", s->slots.count);
            for (int state = 0; state < SLOT_STATES; state++)
                set_uint(&row, slot_state_name((enum slot_state)state), s->slots.in_state[state]);
            set_uint(&row, "memory_bytes", s->bytes);
            if (row.r < 0)
                return row.r;
        }
    }
    return 0;
}

static int view_sessions(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (const struct session *s = d->sessions.head; s; s = session_next(s)) {
        struct row row = add_row(ret);
        struct session_view view;

        session_view(s, &view);
        set_uint(&row, "session", view.id);
        set_uint(&row, "uid", view.uid);
        set_uint(&row, "pid", (uint64_t)view.pid);
        set_string(&row, "agent", view.agent);
        set_uint(&row, "loaders", view.loaders);
        set_uint(&row, "streams", view.streams);
        set_uint(&row, "leased", view.leased);
        set_uint(&row, "pinned", view.pinned);
        set_uint(&row, "pending_bytes", view.pending_bytes);
        if (row.r < 0)
            return row.r;
    }
    return 0;
}

/* Where the sample's number counts; null of a map-style dataset, where it is the index. */
static void set_place(struct row *row, const struct bad_place *place)
{
    const struct {
        const char *key;
        uint32_t n;
    } all[] = {{"rank", place->rank}, {"world", place->world}, {"worker", place->worker}};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (place->world)
            set_uint(row, all[i].key, all[i].n);
        else
            set_null(row, all[i].key);
    }
}

static int add_bad_sample(const struct loader *l, const struct bad_sample *sample,
                          struct value *rows)
{
    const struct dl_spec *spec = loader_spec(l);
    struct row row = add_row(rows);

    set_string(&row, "loader", loader_name(l));
    set_string(&row, "dataset", spec_dataset_label(&spec->dataset));
    if ((int64_t)sample->index < 0 && row.r == 0) /* Python's, which may be below 0 */
        row.r = value_set_int(row.map, "sample", (int64_t)sample->index);
    else
        set_uint(&row, "sample", sample->index);
    set_place(&row, &sample->place);
    set_uint(&row, "errno", (uint64_t)sample->code);
    set_string(&row, "done", spec->on_error == ON_ERROR_SKIP ? "skipped" : "substituted");
    set_uint(&row, "seen", sample->seen);
    if (sample->text)
        set_string(&row, "message", sample->text);
    else
        set_null(&row, "message");
    return row.r;
}

static int view_quarantine(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct quarantine *q = loader_quarantine(l);

        for (uint32_t i = 0; i < q->n && ret->count < BAD_SHOWN; i++) {
            int r = add_bad_sample(l, &q->samples[i], ret);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static void add_verdicts(struct row *row, const struct daemon *d)
{
    struct value *verdicts = NULL;

    set_array(row, "verdicts", &verdicts);
    for (struct registered *e = d->loaders; e && row->r == 0; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        struct row inner = add_row(verdicts);

        set_string(&inner, "loader", loader_name(l));
        set_verdict(&inner, l);
        row->r = inner.r;
    }
}

static int view_status(const struct daemon *d, struct value *ret)
{
    struct loader_totals sum = {0};
    uint64_t n_loaders = 0;
    uint64_t n_sessions = 0;
    uint64_t n_workers = 0;
    uint64_t memory = 0;

    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct loader_totals *totals = loader_totals(l);

        n_loaders++;
        n_workers += pool_workers(loader_pool(l));
        memory += pool_memory(loader_pool(l));
        sum.batches += totals->batches;
        sum.samples += totals->samples;
        sum.bytes += totals->bytes;
        sum.retries += totals->retries;
        sum.faults += totals->faults;
    }
    for (const struct session *s = d->sessions.head; s; s = session_next(s))
        n_sessions++;
    ret->type = VALUE_MAP;
    struct row row = {.map = ret};
    set_string(&row, "version", DLOADER_VERSION);
    set_string(&row, "state", d->stopping ? "stopping" : d->draining ? "draining" : "running");
    set_uint(&row, "pid", (uint64_t)getpid());
    set_uint(&row, "uid", (uint64_t)geteuid());
    set_string(&row, "socket", d->config.socket);
    set_seconds(&row, "uptime_s", uv_hrtime() - d->begun_ns);
    set_uint(&row, "sessions", n_sessions);
    set_uint(&row, "sessions_ever", d->sessions_ever);
    set_uint(&row, "loaders", n_loaders);
    set_uint(&row, "workers", n_workers);
    set_uint(&row, "memory_bytes", memory);
    set_uint(&row, "batches", sum.batches);
    set_uint(&row, "samples", sum.samples);
    set_uint(&row, "delivered_bytes", sum.bytes);
    set_uint(&row, "retries", sum.retries);
    set_uint(&row, "faults", sum.faults);
    add_verdicts(&row, d);
    return row.r;
}

static int view_members(const struct daemon *d, struct value *ret)
{
    return members_view(d->members, ret);
}

static const struct {
    const char *name;
    int (*make)(const struct daemon *d, struct value *ret);
} views[] = {
    {"status", view_status},         {"loaders", view_loaders}, {"epochs", view_epochs},
    {"workers", view_workers},       {"ring", view_ring},       {"sessions", view_sessions},
    {"quarantine", view_quarantine}, {"members", view_members}, {"times", view_times},
    {"trace", view_trace},
};

int views_make(const struct daemon *daemon, const char *name, struct value *ret,
               struct dl_error *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(views); i++) {
        if (strcmp(views[i].name, name) != 0)
            continue;
        if (views[i].make(daemon, ret) < 0)
            return dl_error_set(err, ENOMEM, name, "out of memory");
        return 0;
    }
    return dl_error_set(err, EINVAL, name,
                        "there is no such view; there are status, loaders, epochs, workers, ring, "
                        "sessions, quarantine, members, times and trace");
}
