#include "daemon/serve/views.h"

#include "daemon/serve/pool/sandbox.h"
#include "daemon/serve/pool/usage.h"
#include "daemon/serve/registry.h"
#include "daemon/serve/views_private.h"

#include <errno.h>
#include <stdio.h>

enum { BAD_SHOWN = 1024 }; /* what a frame has room for */

static void views_set_verdict(struct row *row, const struct loader *loader)
{
    struct verdict verdict;

    loader_verdict(loader, &verdict);
    row_string(row, "verdict", verdict.text);
}

/* Null of a loader that keeps neither pictures nor ids. */
static void views_add_cache(struct row *row, const struct loader *loader)
{
    struct pictures_counts counts;
    uint64_t bytes;
    bool keeps = loader_pictures(loader, &counts, &bytes);

    row_uint_if(row, "cache_bytes", keeps, bytes);
    row_uint_if(row, "cache_used_bytes", keeps, counts.used_bytes);
    row_uint_if(row, "cache_pictures", keeps, counts.pictures);
    row_uint_if(row, "cache_hits", keeps, counts.hits);
    row_uint_if(row, "cache_misses", keeps, counts.misses);
}

/* Known once a worker has opened the dataset. */
static const char *views_style(const struct loader *l)
{
    if (strcmp(loader_state(l), "open") != 0)
        return NULL;
    return loader_core(l)->iterable ? "iterable" : "map";
}

static int views_loaders(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct dl_spec *spec = loader_spec(l);
        const struct core_totals *totals = &loader_core(l)->totals;
        const struct delivered *delivered = &totals->delivered;
        const char *starved_by = loader_core(l)->starving.path;
        char sized[SIZING_WORDS];
        struct row row = row_push(ret);

        row_string(&row, "name", spec->name);
        row_uint(&row, "uid", loader_uid(l));
        row_string(&row, "state", loader_state(l));
        row_string(&row, "dataset", dataset_kind_name(spec->dataset.kind));
        row_string(&row, "style", views_style(l));
        row_uint(&row, "length", loader_core(l)->length);
        row_uint_if(&row, "measured", loader_measured(l) != UINT64_MAX, loader_measured(l));
        row_uint(&row, "batch", spec->batch_size ? spec_most_samples(spec) : 0);
        row_uint(&row, "seed", spec->seed);
        row_uint(&row, "users", loader_users(l));
        row_uint(&row, "workers", pool_size(loader_pool(l)));
        row_uint(&row, "batches", delivered->batches);
        row_uint(&row, "samples", delivered->samples);
        row_uint(&row, "delivered_bytes", delivered->bytes);
        row_uint_if(&row, "tokens", spec->batch.tokens > 0, delivered->tokens);
        row_uint_if(&row, "padded", spec->batch.tokens > 0, delivered->padded);
        view_add_lengths(&row, l);
        view_add_whole_mixture(&row, l);
        row_uint(&row, "retries", totals->retries);
        row_uint(&row, "faults", totals->faults);
        row_uint(&row, "bad", quarantine_count(&loader_core(l)->quarantine));
        row_uint(&row, "memory_bytes", pool_memory(loader_pool(l)));
        row_uint(&row, "limit_bytes", spec->memory_limit);
        views_add_cache(&row, l);
        row_seconds(&row, "starved_s", loader_starved_ns(l));
        row_string(&row, "starved_by", *starved_by ? starved_by : NULL);
        views_set_verdict(&row, l);
        loader_size_words(l, sized);
        row_string(&row, "sized", sized);
        if (row.r < 0)
            return row.r;
    }
    return 0;
}

/* What it made in the last while, which the verdict is on. */
static void views_add_pace(struct row *row, const struct loader *l,
                           const struct pool_worker_view *view)
{
    uint64_t since = loader_lately_since(l), now = uv_hrtime();
    double span_s = (double)(now - min_u64(since, now)) / 1e9;

    row_real(row, "samples_per_s", span_s > 0 ? (double)view->recent.samples / span_s : 0);
    if (view->recent.of_steps)
        row_real(row, "step_share", (double)view->recent.steps / (double)view->recent.of_steps);
    else
        row_null(row, "step_share");
}

/* Null for a worker of this machine. */
static void views_add_way(struct row *row, const struct pool_worker_view *view)
{
    bool away = view->helper;

    row_uint_if(row, "sent_bytes", away, view->way.sent_bytes);
    row_uint_if(row, "received_bytes", away, view->way.received_bytes);
    row_seconds_if(row, "way_s", away, view->way.way_ns);
    row_seconds_if(row, "round_trip_s", away, view->way.round_trip_ns);
}

/* Null while it is not running; a worker that is being started may be gone again already. */
static void views_add_usage(struct row *row, int pid)
{
    struct usage usage = {0};
    uint64_t wait_ns = 0;
    bool known = pid && usage_read(pid, &usage);
    bool waits = pid && usage_read_cpu_wait(pid, &wait_ns);

    row_seconds_if(row, "cpu_s", known, usage.cpu_ns);
    row_uint_if(row, "memory_bytes", known, usage.bytes);
    row_seconds_if(row, "cpu_wait_s", waits, wait_ns);
}

static int views_add_worker(const struct loader *l, uint32_t i, struct value *rows)
{
    struct row row = row_push(rows);
    struct pool_worker_view view;
    const struct step *step = NULL;
    char samples[384];
    char sandbox[SANDBOX_WORDS];

    pool_view_worker(loader_pool(l), i, &view);
    sandbox_describe(view.sandbox, sandbox);
    bool busy = view.tag && loader_name_task(l, view.tag, &step, samples, sizeof samples);
    row_string(&row, "loader", views_name(l));
    row_uint(&row, "uid", loader_uid(l));
    row_uint(&row, "worker", view.number);
    row_uint_if(&row, "pid", view.pid, (uint64_t)view.pid);
    row_string(&row, "helper", view.helper);
    row_string(&row, "state", view.state);
    row_uint(&row, "queued", view.in_flight);
    row_uint_if(&row, "step", step, step ? step->number : 0);
    row_string(&row, "samples", busy ? samples : NULL);
    row_string(&row, "interpreter", loader_interpreter(l));
    row_uint(&row, "tasks", view.tasks);
    views_add_pace(&row, l, &view);
    row_uint(&row, "restarts", view.restarts);
    row_uint(&row, "stuck", view.stuck);
    row_seconds(&row, "busy_s", view.busy_ns);
    row_seconds(&row, "fetch_s", view.busy_ns - view.collate_ns);
    row_seconds(&row, "collate_s", view.collate_ns);
    row_seconds(&row, "slow_s", view.slow_ns);
    row_seconds_if(&row, "remote_s", pool_remotes(loader_pool(l)), view.remote_ns);
    views_add_way(&row, &view);
    views_add_usage(&row, view.pid);
    row_string(&row, "sandbox", sandbox);
    return row.r;
}

static int views_workers(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);

        for (uint32_t i = 0; i < pool_workers(loader_pool(l)); i++) {
            int r = pool_rests(loader_pool(l), i) ? 0 : views_add_worker(l, i, ret);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int views_ring(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct segment *s = NULL;

        while ((s = pool_next_segment(loader_pool(l), s))) {
            struct row row = row_push(ret);

            row_string(&row, "loader", views_name(l));
            row_uint(&row, "uid", loader_uid(l));
            row_uint(&row, "segment", s->id);
            row_uint(&row, "worker", s->worker);
            row_string(&row, "state", s->active ? "active" : "retiring");
            row_uint(&row, "slot_bytes", s->slot_bytes);
            row_uint(&row, "slots", s->slots.count);
            for (int state = 0; state < SLOT_STATES; state++)
                row_uint(&row, slot_state_name((enum slot_state)state), s->slots.in_state[state]);
            row_uint(&row, "memory_bytes", s->bytes);
            if (row.r < 0)
                return row.r;
        }
    }
    return 0;
}

/* Null: all that it has asked for is open, or refused. */
static void views_add_waiting(struct row *row, const struct session_view *view)
{
    char why[sizeof view->waits->path + sizeof view->waits->message + 2];

    row_string(row, "opens", view->opens);
    if (!view->waits) {
        row_null(row, "waits_s");
        row_null(row, "waits_why");
        return;
    }
    (void)snprintf(why, sizeof why, "%s: %s", view->waits->path, view->waits->message);
    row_seconds(row, "waits_s", view->waits_ns);
    row_string(row, "waits_why", why);
}

static int views_sessions(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (const struct session *s = d->sessions.head; s; s = session_next(s)) {
        struct row row = row_push(ret);
        struct session_view view;

        session_view(s, &view);
        row_uint(&row, "session", view.id);
        row_uint(&row, "uid", view.uid);
        row_uint(&row, "pid", (uint64_t)view.pid);
        row_string(&row, "agent", view.agent);
        row_uint(&row, "loaders", view.loaders);
        row_uint(&row, "streams", view.streams);
        row_uint(&row, "leased", view.leased);
        row_uint(&row, "pinned", view.pinned);
        row_uint(&row, "pending_bytes", view.pending_bytes);
        views_add_waiting(&row, &view);
        if (row.r < 0)
            return row.r;
    }
    return 0;
}

/* A user's usage of each limited resource. */
static void views_add_quotas(struct row *row, const struct quota_account *account)
{
    char limit[80];

    for (int i = 0; i < QUOTA_KINDS; i++) {
        enum quota_kind kind = (enum quota_kind)i;
        const char *name = quota_kind_name(kind);
        bool bytes = kind == QUOTA_BYTES || kind == QUOTA_OVERHEAD;
        char key[64];

        (void)snprintf(key, sizeof key, kind == QUOTA_BYTES ? "memory_bytes" : "%s%s", name,
                       bytes ? "_bytes" : "");
        (void)snprintf(limit, sizeof limit, "limit_%s", key);
        row_uint(row, key, quota_in_use(account, kind));
        row_uint(row, limit, quota_limit(account, kind));
    }
}

/* Requests beyond these shares are not refused: they wait, or are left out. */
static void views_add_shares(struct row *row, const struct daemon *d, uid_t uid)
{
    struct crew_share share = crew_share_of(d->crew, uid);

    row_uint(row, "threads", share.running);
    row_uint(row, "limit_threads", d->config.limits.threads);
    row_uint(row, "waiting_jobs", share.waiting);
    row_uint(row, "log_lines_left_out", log_lines_left_out(uid));
    row_uint(row, "limit_log_lines", d->config.limits.log_lines);
}

static int views_users(const struct daemon *d, struct value *ret)
{
    const struct quota_account *account = NULL;

    ret->type = VALUE_ARRAY;
    while ((account = quota_next(d->quota, account))) {
        struct row row = row_push(ret);

        row_uint(&row, "uid", quota_uid(account));
        row_string(&row, "control_group", *quota_group(account) ? quota_group(account) : NULL);
        row_uint(&row, "weight", quota_weight(account));
        views_add_quotas(&row, account);
        views_add_shares(&row, d, quota_uid(account));
        row_uint(&row, "refused", quota_refused(account));
        row_seconds(&row, "loop_s", quota_loop_ns(account));
        if (row.r < 0)
            return row.r;
    }
    return 0;
}

/* Where the sample's number counts; null of a map-style dataset, where it is the index. */
static void views_set_place(struct row *row, const struct bad_place *place)
{
    const struct {
        const char *key;
        uint32_t n;
    } all[] = {{"rank", place->rank}, {"world", place->world}, {"worker", place->worker}};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        row_uint_if(row, all[i].key, place->world, all[i].n);
}

static int views_add_bad_sample(const struct loader *l, const struct bad_sample *sample,
                                struct value *rows)
{
    const struct dl_spec *spec = loader_spec(l);
    struct row row = row_push(rows);

    row_string(&row, "loader", views_name(l));
    row_string(&row, "dataset", spec_dataset_label(&spec->dataset));
    if ((int64_t)sample->index < 0 && row.r == 0) /* Python's, which may be below 0 */
        row.r = value_set_int(row.map, "sample", (int64_t)sample->index);
    else
        row_uint(&row, "sample", sample->index);
    views_set_place(&row, &sample->place);
    row_uint(&row, "errno", (uint64_t)sample->code);
    row_string(&row, "done", spec->on_error == ON_ERROR_SKIP ? "skipped" : "substituted");
    row_uint(&row, "seen", sample->seen);
    row_string(&row, "message", sample->text);
    return row.r;
}

static int views_quarantine(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct quarantine *q = &loader_core(l)->quarantine;

        for (uint32_t i = 0; i < q->n && ret->count < BAD_SHOWN; i++) {
            int r = views_add_bad_sample(l, &q->samples[i], ret);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static void views_add_verdicts(struct row *row, const struct daemon *d)
{
    struct value *verdicts = row_list(row, "verdicts");

    for (struct registered *e = d->loaders; e && row->r == 0; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        struct row inner = row_push(verdicts);

        row_string(&inner, "loader", views_name(l));
        views_set_verdict(&inner, l);
        row->r = inner.r;
    }
}

/* Of all loaders together. */
static void views_add_sums(struct row *row, const struct daemon *d)
{
    struct core_totals sum = {0};
    uint64_t loaders = 0, workers = 0, memory = 0;

    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);
        const struct core_totals *totals = &loader_core(l)->totals;

        loaders++;
        workers += pool_workers(loader_pool(l));
        memory += pool_memory(loader_pool(l));
        sum.delivered.batches += totals->delivered.batches;
        sum.delivered.samples += totals->delivered.samples;
        sum.delivered.bytes += totals->delivered.bytes;
        sum.retries += totals->retries;
        sum.faults += totals->faults;
    }
    row_uint(row, "loaders", loaders);
    row_uint(row, "workers", workers);
    row_uint(row, "memory_bytes", memory);
    row_uint(row, "batches", sum.delivered.batches);
    row_uint(row, "samples", sum.delivered.samples);
    row_uint(row, "delivered_bytes", sum.delivered.bytes);
    row_uint(row, "retries", sum.retries);
    row_uint(row, "faults", sum.faults);
}

/* Whether clients that come now are served. */
static void views_add_readiness(struct row *row, const struct daemon *d)
{
    char why[1024];
    bool ready = members_are_ready(d->members, why, sizeof why);

    if (d->draining)
        (void)snprintf(why, sizeof why, "the daemon is shutting down");
    row_string(row, "ready", ready && !d->draining ? "yes" : "no");
    row_string(row, "not_ready", why);
}

static int views_status(const struct daemon *d, struct value *ret)
{
    struct row row = row_begin(ret);
    uint64_t sessions = 0;

    for (const struct session *s = d->sessions.head; s; s = session_next(s))
        sessions++;
    row_string(&row, "version", DLOADER_VERSION);
    row_string(&row, "state", d->stopping ? "stopping" : d->draining ? "draining" : "running");
    views_add_readiness(&row, d);
    row_uint(&row, "pid", (uint64_t)getpid());
    row_uint(&row, "uid", (uint64_t)geteuid());
    row_string(&row, "socket", d->config.socket);
    row_seconds(&row, "uptime_s", uv_hrtime() - d->begun_ns);
    row_uint(&row, "sessions", sessions);
    row_uint(&row, "sessions_ever", d->sessions_ever);
    row_uint(&row, "stuck_workers", d->stuck);
    views_add_sums(&row, d);
    views_add_verdicts(&row, d);
    return row.r;
}

static int views_members(const struct daemon *d, struct value *ret)
{
    return members_view(d->members, ret);
}

static const struct {
    const char *name;
    int (*make)(const struct daemon *d, struct value *ret);
    int (*make_for)(const struct daemon *d, uid_t uid, struct value *ret); /* in its place */
} views_known[] = {
    {"status", views_status},   {"loaders", views_loaders},
    {"epochs", view_epochs},    {"workers", views_workers},
    {"ring", views_ring},       {"sessions", views_sessions},
    {"users", views_users},     {"quarantine", views_quarantine},
    {"members", views_members}, {"times", view_times},
    {"trace", view_trace},      {"mixtures", view_mixtures},
    {"lately", view_lately},    {"specs", .make_for = view_specs},
    {"slowest", view_slowest},  {"remote", view_remote},
};

int views_make(const struct daemon *daemon, uid_t uid, const char *name, struct value *ret,
               struct dl_error *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(views_known); i++) {
        if (strcmp(views_known[i].name, name) != 0)
            continue;
        if ((views_known[i].make ? views_known[i].make(daemon, ret)
                                 : views_known[i].make_for(daemon, uid, ret)) < 0)
            return dl_error_set(err, ENOMEM, name, "out of memory");
        return 0;
    }
    return dl_error_set(
        err, EINVAL, name,
        "no such view; views are status, loaders, epochs, workers, ring, "
        "sessions, users, quarantine, members, times, trace, mixtures, lately, slowest, remote and "
        "specs");
}
