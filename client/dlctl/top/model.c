/* Rows out of the daemon's views: see model.h. */
#include "client/dlctl/top/model.h"

#include <errno.h>
#include <math.h>

enum { STATUS, LOADERS, EPOCHS, WORKERS, RING };
const char *const top_views[TOP_VIEWS] = {"status", "loaders", "epochs", "workers", "ring"};

/* The time left follows the pace of about so many seconds. */
static const double STEADY_S = 10;

/* ---- keys ----------------------------------------------------------------------------------- */

static double real_of(const struct value *row, const char *key)
{
    return value_real(value_get(row, key));
}

static uint64_t count_of(const struct value *row, const char *key)
{
    return value_count(value_get(row, key));
}

static const char *text_of(const struct value *row, const char *key)
{
    const struct value *v = value_get(row, key);

    return v && v->type == VALUE_STRING ? v->string : NULL;
}

static const char *text_or_none(const struct value *row, const char *key)
{
    const char *text = text_of(row, key);

    return text ? text : "";
}

/* ---- figures -------------------------------------------------------------------------------- */

/* What came in `span_s` seconds; unknown if it went back: what is counted has begun anew. */
static double rate_of(double now, double then, double span_s)
{
    return span_s > 0 && now >= then ? (now - then) / span_s : NAN;
}

static double share_of(double part, double whole)
{
    double share = part / whole;

    if (!(whole > 0) || !isfinite(share))
        return NAN;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

static double padding_of(uint64_t tokens, uint64_t padded)
{
    return share_of((double)padded - (double)tokens, (double)padded);
}

/* Sums and means of what is known; unknown as long as nothing is. */
static void add_known(double *sum, double d)
{
    if (!isnan(d))
        *sum = isnan(*sum) ? d : *sum + d;
}

static bool same_place(const struct top_place *a, const struct top_place *b)
{
    return a->uid == b->uid && a->number == b->number && a->epoch == b->epoch &&
           strcmp(a->loader, b->loader) == 0 && strcmp(a->job, b->job) == 0;
}

/* ---- ranks ---------------------------------------------------------------------------------- */

static const struct top_rank *rank_before(const struct top_model *before,
                                          const struct top_rank *rank)
{
    for (uint32_t i = 0; before && i < before->n_ranks; i++) {
        const struct top_rank *then = &before->ranks[i];

        if (then->session == rank->session && then->world == rank->world &&
            same_place(&then->at, &rank->at))
            return then;
    }
    return NULL;
}

static bool is_read(const struct top_rank *rank)
{
    return strcmp(rank->state, "running") == 0 || strcmp(rank->state, "starving") == 0;
}

/* There are batches to come for it: workers make them, or something keeps them from it. Else its
 * trainer has given it no samples to load. */
static bool is_due(const struct top_rank *rank)
{
    return rank->running > 0 || rank->held_up || strcmp(rank->state, "starving") == 0;
}

/*
 * A trainer tells of a wait when it is over. Until then: who holds nothing, has nothing ready and
 * was given nothing since, waits for what is due.
 */
static double wait_of(const struct top_rank *rank, const struct top_rank *then, double span_s)
{
    if (!is_read(rank))
        return NAN;
    if (!then)
        return share_of(rank->waited_s, rank->age_s);
    if (is_due(rank) && then->step == rank->step &&
        rank->leased + rank->ready + then->leased + then->ready == 0)
        return 1;
    return share_of(rank->waited_s - then->waited_s, span_s);
}

static double left_of(const struct top_rank *rank)
{
    double left = rank->steps - (double)rank->step;

    if (left <= 0)
        return 0;
    return rank->steady_per_s > 0 ? left / rank->steady_per_s : NAN;
}

static void measure_rank(struct top_rank *rank, const struct top_model *before, double at_s)
{
    const struct top_rank *then = rank_before(before, rank);
    double span_s = then ? at_s - before->at_s : NAN;
    double keep = exp(-span_s / STEADY_S);

    rank->at.idle = !is_read(rank);
    rank->wait = wait_of(rank, then, span_s);
    rank->padding = padding_of(rank->tokens, rank->padded);
    rank->steps_per_s = then ? rate_of((double)rank->step, (double)then->step, span_s) : NAN;
    rank->samples_per_s = then ? rate_of((double)rank->samples, (double)then->samples, span_s)
                               : rate_of((double)rank->samples, 0, rank->age_s);
    rank->steady_per_s = rank->steps_per_s;
    if (then && !isnan(then->steady_per_s) && !isnan(rank->steps_per_s))
        rank->steady_per_s = keep * then->steady_per_s + (1 - keep) * rank->steps_per_s;
    rank->left_s = left_of(rank);
}

static void fill_rank(struct top_rank *rank, const struct value *row)
{
    *rank = (struct top_rank){
        .at = {.loader = text_or_none(row, "loader"),
               .uid = count_of(row, "uid"),
               .job = text_or_none(row, "job"),
               .epoch = count_of(row, "epoch"),
               .number = count_of(row, "rank"),
               .by = NAN},
        .state = text_or_none(row, "state"),
        .session = count_of(row, "session"),
        .world = count_of(row, "world"),
        .step = count_of(row, "step"),
        .steps = real_of(row, "steps"),
        .running = count_of(row, "running"),
        .held_up = text_of(row, "waits_why") != NULL,
        .ready = count_of(row, "ready"),
        .leased = count_of(row, "leased"),
        .pinned = count_of(row, "pinned"),
        .samples = count_of(row, "samples"),
        .tokens = count_of(row, "tokens"),
        .padded = count_of(row, "padded"),
        .age_s = real_of(row, "age_s"),
        .waited_s = real_of(row, "waited_s"),
    };
}

/* ---- epochs --------------------------------------------------------------------------------- */

static struct top_epoch *epoch_of(struct top_model *m, const struct top_rank *rank)
{
    struct top_place at = rank->at;

    at.number = 0;
    at.idle = true;
    for (uint32_t i = 0; i < m->n_epochs; i++)
        if (m->epochs[i].world == rank->world && same_place(&m->epochs[i].at, &at))
            return &m->epochs[i];
    m->epochs[m->n_epochs] =
        (struct top_epoch){.at = at, .world = rank->world, .steps_per_s = NAN, .left_s = NAN};
    return &m->epochs[m->n_epochs++];
}

/* There are at most as many as ranks. */
static void sum_epochs(struct top_model *m)
{
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        const struct top_rank *rank = &m->ranks[i];
        struct top_epoch *epoch = epoch_of(m, rank);

        epoch->ranks++;
        epoch->at.idle = epoch->at.idle && rank->at.idle;
        epoch->done += (double)rank->step;
        epoch->steps += rank->steps; /* NAN stays */
        add_known(&epoch->steps_per_s, rank->steps_per_s);
        if (isnan(epoch->left_s) || rank->left_s > epoch->left_s)
            epoch->left_s = rank->left_s;
    }
}

/* ---- workers -------------------------------------------------------------------------------- */

static void measure_worker(struct top_worker *worker, const struct top_model *before, double at_s)
{
    worker->cpu = worker->tasks_per_s = NAN;
    for (uint32_t i = 0; before && i < before->n_workers; i++) {
        const struct top_worker *then = &before->workers[i];
        double span_s = at_s - before->at_s;

        if (!same_place(&then->at, &worker->at))
            continue;
        if (then->pid == worker->pid) /* the next process begins at 0 */
            worker->cpu = rate_of(worker->cpu_s, then->cpu_s, span_s);
        worker->tasks_per_s = rate_of((double)worker->tasks, (double)then->tasks, span_s);
        return;
    }
}

static void fill_worker(struct top_worker *worker, const struct value *row)
{
    *worker = (struct top_worker){
        .at = {.loader = text_or_none(row, "loader"),
               .uid = count_of(row, "uid"),
               .job = "",
               .number = count_of(row, "worker"),
               .by = NAN},
        .state = text_or_none(row, "state"),
        .samples = text_of(row, "samples"),
        .pid = real_of(row, "pid"),
        .step = real_of(row, "step"),
        .queued = count_of(row, "queued"),
        .tasks = count_of(row, "tasks"),
        .restarts = count_of(row, "restarts"),
        .cpu_s = real_of(row, "cpu_s"),
        .memory = real_of(row, "memory_bytes"),
    };
}

/* ---- loaders -------------------------------------------------------------------------------- */

static void measure_loader(struct top_loader *loader, const struct top_model *before, double at_s)
{
    loader->batches_per_s = loader->samples_per_s = loader->bytes_per_s = NAN;
    for (uint32_t i = 0; before && i < before->n_loaders; i++) {
        const struct top_loader *then = &before->loaders[i];
        double span_s = at_s - before->at_s;

        if (!same_place(&then->at, &loader->at))
            continue;
        loader->batches_per_s = rate_of((double)loader->batches, (double)then->batches, span_s);
        loader->samples_per_s = rate_of((double)loader->samples, (double)then->samples, span_s);
        loader->bytes_per_s = rate_of((double)loader->bytes, (double)then->bytes, span_s);
        return;
    }
}

static bool is_of(const struct top_place *at, const struct top_loader *loader)
{
    return at->uid == loader->at.uid && strcmp(at->loader, loader->at.loader) == 0;
}

/* What its ranks, workers and segments are together; and whether these are idle with it. */
static void sum_loader(struct top_loader *loader, struct top_model *m)
{
    uint64_t tokens = 0, padded = 0, waits = 0;
    const struct value *ring = &m->views[RING];

    loader->wait = loader->cpu = NAN;
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        if (!is_of(&m->ranks[i].at, loader))
            continue;
        tokens += m->ranks[i].tokens;
        padded += m->ranks[i].padded;
        waits += !isnan(m->ranks[i].wait);
        add_known(&loader->wait, m->ranks[i].wait);
    }
    loader->wait /= (double)waits; /* NAN stays */
    loader->padding = padding_of(tokens, padded);
    for (uint32_t i = 0; i < m->n_workers; i++) {
        if (!is_of(&m->workers[i].at, loader))
            continue;
        m->workers[i].at.idle = loader->at.idle;
        add_known(&loader->cpu, m->workers[i].cpu);
    }
    for (uint32_t i = 0; ring->type == VALUE_ARRAY && i < ring->count; i++) {
        const struct value *row = &ring->items[i];
        const struct top_place at = {.loader = text_or_none(row, "loader"),
                                     .uid = count_of(row, "uid")};

        if (!is_of(&at, loader))
            continue;
        loader->slots[TOP_LEASED] += count_of(row, "leased");
        loader->slots[TOP_READY] += count_of(row, "ready");
        loader->slots[TOP_FILLING] += count_of(row, "filling");
        loader->slots[TOP_FREE] += count_of(row, "free");
    }
}

static void fill_loader(struct top_loader *loader, const struct value *row)
{
    const char *verdict = text_or_none(row, "verdict");

    *loader = (struct top_loader){
        .at = {.loader = text_or_none(row, "name"),
               .uid = count_of(row, "uid"),
               .job = "",
               .idle = strncmp(verdict, "idle", 4) == 0,
               .by = NAN},
        .state = text_or_none(row, "state"),
        .verdict = verdict,
        .batches = count_of(row, "batches"),
        .samples = count_of(row, "samples"),
        .bytes = count_of(row, "delivered_bytes"),
        .faults = count_of(row, "faults"),
        .retries = count_of(row, "retries"),
        .bad = count_of(row, "bad"),
        .memory = count_of(row, "memory_bytes"),
        .limit = count_of(row, "limit_bytes"),
    };
}

/* ---- all ------------------------------------------------------------------------------------ */

static uint32_t most_rows(const struct value *view)
{
    return view->type == VALUE_ARRAY ? view->count : 0;
}

static int make_room(struct top_model *m)
{
    size_t ranks = most_rows(&m->views[EPOCHS]);

    m->loaders = calloc(most_rows(&m->views[LOADERS]) + 1u, sizeof *m->loaders);
    m->ranks = calloc(ranks + 1, sizeof *m->ranks);
    m->epochs = calloc(ranks + 1, sizeof *m->epochs);
    m->workers = calloc(most_rows(&m->views[WORKERS]) + 1u, sizeof *m->workers);
    return m->loaders && m->ranks && m->epochs && m->workers ? 0 : -ENOMEM;
}

/* The rows of a view; what is none of them is passed over. */
#define FOR_ROWS(row, view)                                                      \
    for (const struct value *row = (view)->items, *end_ = row + most_rows(view); \
         row && row < end_; row++)                                               \
        if (row->type == VALUE_MAP)

static void fill_rows(struct top_model *m, const struct top_model *before)
{
    FOR_ROWS(row, &m->views[EPOCHS])
    fill_rank(&m->ranks[m->n_ranks++], row);
    FOR_ROWS(row, &m->views[WORKERS])
    fill_worker(&m->workers[m->n_workers++], row);
    FOR_ROWS(row, &m->views[LOADERS])
    fill_loader(&m->loaders[m->n_loaders++], row);
    for (uint32_t i = 0; i < m->n_ranks; i++)
        measure_rank(&m->ranks[i], before, m->at_s);
    for (uint32_t i = 0; i < m->n_workers; i++)
        measure_worker(&m->workers[i], before, m->at_s);
    sum_epochs(m);
    for (uint32_t i = 0; i < m->n_loaders; i++) {
        measure_loader(&m->loaders[i], before, m->at_s);
        sum_loader(&m->loaders[i], m);
    }
}

static void fill_status(struct top_model *m)
{
    const struct value *status = &m->views[STATUS];

    m->version = text_or_none(status, "version");
    m->state = text_or_none(status, "state");
    m->uptime_s = real_of(status, "uptime_s");
    m->pid = count_of(status, "pid");
    m->sessions = count_of(status, "sessions");
    m->memory = count_of(status, "memory_bytes");
}

static void model_freep(struct top_model **model)
{
    *model = top_model_free(*model);
}

int top_model_make(struct value views[static TOP_VIEWS], double at_s,
                   const struct top_model *before, struct top_model **ret)
{
    _cleanup_(model_freep)
    struct top_model *m = calloc(1, sizeof *m);

    if (!m)
        return -ENOMEM;
    for (size_t i = 0; i < TOP_VIEWS; i++)
        value_move(&views[i], &m->views[i]);
    m->at_s = at_s;
    if (make_room(m) < 0)
        return -ENOMEM;
    fill_status(m);
    if (before && before->pid != m->pid) /* another daemon's figures say nothing of this one's */
        before = NULL;
    fill_rows(m, before);
    top_model_sort(m, TOP_BY_NAME, false);
    *ret = steal_ptr(m);
    return 0;
}

struct top_model *top_model_free(struct top_model *m)
{
    if (!m)
        return NULL;
    for (size_t i = 0; i < TOP_VIEWS; i++)
        value_deinit(&m->views[i]);
    free(m->loaders);
    free(m->epochs);
    free(m->ranks);
    free(m->workers);
    free(m);
    return NULL;
}
