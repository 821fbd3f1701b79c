/* The time of a loader, read from views: see spent.h. */
#include "client/dlctl/run/spent.h"

#include "client/dlctl/ask.h"

#include <errno.h>

void spent_deinit(struct spent *spent)
{
    free(spent->workers);
    free(spent->starved_by);
    *spent = (struct spent){0};
}

/* ---- reading views -------------------------------------------------------------------------- */

static uint64_t spent_count_of(const struct value *row, const char *key)
{
    return value_count(value_get(row, key));
}

/* Of seconds; a century at most. */
static uint64_t spent_ns_of(const struct value *row, const char *key)
{
    double seconds = value_real(value_get(row, key));

    return seconds > 0 && seconds < 3.2e9 ? (uint64_t)(seconds * 1e9) : 0;
}

static bool spent_is_text(const struct value *row, const char *key, const char *text)
{
    const struct value *v = value_get(row, key);

    return v && v->type == VALUE_STRING && strcmp(v->string, text) == 0;
}

static uint32_t spent_rows_of(const struct value *view)
{
    return view->type == VALUE_ARRAY ? view->count : 0;
}

static int spent_read_loader(const struct value *view, const char *loader, struct spent *ret)
{
    const struct value *by = NULL;
    size_t found = 0;

    for (uint32_t i = 0; i < spent_rows_of(view); i++) {
        const struct value *row = &view->items[i];

        if (!spent_is_text(row, "name", loader))
            continue;
        ret->batches = spent_count_of(row, "batches");
        ret->starved_ns = spent_ns_of(row, "starved_s");
        by = value_get(row, "starved_by");
        ret->own_shares = spent_is_text(row, "style", "iterable");
        found++;
    }
    ret->known = found == 1; /* other users may have one of the same name */
    if (ret->known && by && by->type == VALUE_STRING && !(ret->starved_by = strdup(by->string)))
        return -ENOMEM;
    return 0;
}

static int spent_read_workers(const struct value *view, const char *loader, struct spent *ret)
{
    ret->workers = calloc(max_u64(spent_rows_of(view), 1), sizeof *ret->workers);
    if (!ret->workers)
        return -ENOMEM;
    for (uint32_t i = 0; i < spent_rows_of(view); i++) {
        const struct value *row = &view->items[i];

        if (spent_is_text(row, "loader", loader))
            ret->workers[ret->n_workers++] =
                (struct verdict_worker){.fetch_ns = spent_ns_of(row, "fetch_s"),
                                        .collate_ns = spent_ns_of(row, "collate_s"),
                                        .slow_ns = spent_ns_of(row, "slow_s"),
                                        .remote_ns = spent_ns_of(row, "remote_s"),
                                        .away = spent_ns_of(row, "way_s") > 0,
                                        .way_ns = spent_ns_of(row, "way_s"),
                                        .way_bytes = spent_count_of(row, "received_bytes"),
                                        .served_bytes = spent_count_of(row, "sent_bytes"),
                                        .cpu_wait_ns = spent_ns_of(row, "cpu_wait_s")};
    }
    return 0;
}

/* Those of all its ranks together. */
static void spent_read_times(const struct value *view, const char *loader, struct spent *ret)
{
    for (uint32_t i = 0; i < spent_rows_of(view); i++) {
        const struct value *row = &view->items[i], *rank = value_get(row, "rank");
        const struct value *name = value_get(row, "stage");
        enum stage stage = name && name->type == VALUE_STRING ? stage_of(name->string) : STAGES;

        if (stage < STAGES && rank && rank->type == VALUE_NULL &&
            spent_is_text(row, "loader", loader))
            ret->ns[stage] = spent_ns_of(row, "total_s");
    }
}

static void spent_read_remote(const struct value *view, struct spent *ret)
{
    ret->store = (struct verdict_store){.bytes = spent_count_of(view, "received_bytes"),
                                        .requests = spent_count_of(view, "requests"),
                                        .throttled = spent_count_of(view, "throttled"),
                                        .held_back = spent_count_of(view, "held_back"),
                                        .given = spent_count_of(view, "from_store_bytes") +
                                                 spent_count_of(view, "from_peers_bytes") +
                                                 spent_count_of(view, "from_disk_bytes") +
                                                 spent_count_of(view, "from_memory_bytes")};
}

int spent_read(const struct value views[static SPENT_VIEWS], const char *loader, struct spent *ret)
{
    struct spent spent = {.pid = spent_count_of(&views[SPENT_STATUS], "pid")};
    int r = spent_read_loader(&views[SPENT_LOADERS], loader, &spent);

    if (r == 0 && spent.known) {
        spent_read_times(&views[SPENT_TIMES], loader, &spent);
        spent_read_remote(&views[SPENT_REMOTE], &spent);
        r = spent_read_workers(&views[SPENT_WORKERS], loader, &spent);
    }
    if (r < 0) {
        spent_deinit(&spent);
        return r;
    }
    spent_deinit(ret);
    *ret = spent;
    return 0;
}

int spent_ask(struct dl_client *client, const char *loader, struct spent *ret)
{
    static const char *const names[SPENT_VIEWS] = {"status", "loaders", "workers", "times",
                                                   "remote"};
    struct value views[SPENT_VIEWS] = {{0}};
    int r = 0;

    for (size_t i = 0; i < SPENT_VIEWS && r == 0; i++) {
        r = ask_view(client, names[i], &views[i]);
        if (i == SPENT_REMOTE && r == -EINVAL) /* a daemon of the last release has none */
            r = 0;
    }
    r = r == 0 ? spent_read(views, loader, ret) : r == -ENOMEM ? r : 0;
    for (size_t i = 0; i < SPENT_VIEWS; i++)
        value_deinit(&views[i]);
    return r;
}

/* ---- between two of them -------------------------------------------------------------------- */

static bool spent_went_back(const struct spent *before, const struct spent *after)
{
    bool back = after->batches < before->batches || after->n_workers != before->n_workers ||
                after->starved_ns < before->starved_ns;

    for (int stage = 0; stage < STAGES; stage++)
        back |= after->ns[stage] < before->ns[stage];
    for (size_t i = 0; i < after->n_workers && !back; i++)
        back = after->workers[i].fetch_ns < before->workers[i].fetch_ns ||
               after->workers[i].collate_ns < before->workers[i].collate_ns;
    return back;
}

static struct verdict_worker spent_worked(const struct verdict_worker *before,
                                          const struct verdict_worker *after)
{
    /* But for the first two, another process may have taken its place. */
    return (struct verdict_worker){
        .fetch_ns = after->fetch_ns - before->fetch_ns,
        .collate_ns = after->collate_ns - before->collate_ns,
        .slow_ns = after->slow_ns - min_u64(before->slow_ns, after->slow_ns),
        .remote_ns = after->remote_ns - min_u64(before->remote_ns, after->remote_ns),
        .away = after->away,
        .way_ns = after->way_ns - min_u64(before->way_ns, after->way_ns),
        .way_bytes = after->way_bytes - min_u64(before->way_bytes, after->way_bytes),
        .served_bytes = after->served_bytes - min_u64(before->served_bytes, after->served_bytes),
        .cpu_wait_ns = after->cpu_wait_ns - min_u64(before->cpu_wait_ns, after->cpu_wait_ns)};
}

static struct verdict_store spent_store(const struct verdict_store *before,
                                        const struct verdict_store *after, uint64_t span_ns)
{
    return (struct verdict_store){
        .span_ns = span_ns,
        .bytes = after->bytes - min_u64(before->bytes, after->bytes),
        .requests = after->requests - min_u64(before->requests, after->requests),
        .throttled = after->throttled - min_u64(before->throttled, after->throttled),
        .held_back = after->held_back - min_u64(before->held_back, after->held_back),
        .given = after->given - min_u64(before->given, after->given)};
}

bool spent_verdict(const struct spent *before, const struct spent *after, uint64_t span_ns,
                   uint64_t waited_ns, uint64_t batches, struct verdict *ret)
{
    const struct verdict_rank reader = {
        .span_ns = span_ns, .waited_ns = min_u64(waited_ns, span_ns), .batches = batches};
    struct verdict_case c = {
        .ranks = &reader, .n_ranks = 1, .own_shares = after->own_shares, .span_ns = span_ns};

    if (!before->known || !after->known || before->pid != after->pid || span_ns == 0 ||
        after->n_workers == 0 || spent_went_back(before, after))
        return false;
    _cleanup_free_ struct verdict_worker *workers = calloc(after->n_workers, sizeof *workers);
    if (!workers)
        return false;
    for (size_t i = 0; i < after->n_workers; i++)
        workers[i] = spent_worked(&before->workers[i], &after->workers[i]);
    for (int stage = 0; stage < STAGES; stage++)
        c.ns[stage] = after->ns[stage] - before->ns[stage];
    if (waited_ns > 0 && (after->starved_ns - before->starved_ns) > waited_ns / 2)
        c.starving = after->starved_by; /* that is what it waited for most */
    c.store = spent_store(&before->store, &after->store, span_ns);
    c.workers = workers;
    c.n_workers = after->n_workers;
    c.batches = after->batches - before->batches;
    verdict_find(&c, ret);
    return ret->kind != VERDICT_EARLY;
}
