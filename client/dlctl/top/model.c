/* Rows out of the daemon's views, what is worked out of two looks, and their order. */
#include "client/dlctl/top/top.h"

#include <errno.h>
#include <math.h>

enum { MODEL_STATUS, MODEL_LOADERS, MODEL_EPOCHS, MODEL_WORKERS, MODEL_RING };
const char *const top_views[TOP_VIEWS] = {"status", "loaders", "epochs", "workers", "ring"};

/* The time left follows the pace of about the last STEADY_S seconds. */
static const double STEADY_S = 10;

/* Where each kind of row comes from: the view, and the keys that tell one from another. */
static const struct {
    int view; /* -1: of none */
    const char *name, *number;
} KINDS[TOP_KINDS] = {
    [TOP_LOADERS] = {MODEL_LOADERS, "name", NULL},
    [TOP_EPOCHS] = {-1, NULL, NULL},
    [TOP_RANKS] = {MODEL_EPOCHS, "loader", "rank"},
    [TOP_WORKERS] = {MODEL_WORKERS, "loader", "worker"},
};

/* What only grows, and how fast. */
static const struct {
    enum top_kind kind;
    enum top_figure figure;
    const char *key;
} RATES[] = {
    {TOP_LOADERS, TOP_BATCHES_PER_S, "batches"},       {TOP_LOADERS, TOP_SAMPLES_PER_S, "samples"},
    {TOP_LOADERS, TOP_BYTES_PER_S, "delivered_bytes"}, {TOP_RANKS, TOP_STEPS_PER_S, "step"},
    {TOP_RANKS, TOP_SAMPLES_PER_S, "samples"},         {TOP_WORKERS, TOP_TASKS_PER_S, "tasks"},
};

/* ---- keys and figures ----------------------------------------------------------------------- */

static const char *model_text(const struct value *map, const char *key)
{
    const struct value *v = value_get(map, key);

    return v && v->type == VALUE_STRING ? v->string : "";
}

const char *top_row_text(const struct top_row *row, const char *key)
{
    return model_text(row->view, key);
}

uint64_t top_row_count(const struct top_row *row, const char *key)
{
    return value_count(value_get(row->view, key));
}

static double model_real(const struct top_row *row, const char *key)
{
    return value_real(value_get(row->view, key));
}

/* What came in `span_s` seconds; unknown if it went back: what is counted has begun anew. */
static double model_rate(double now, double then, double span_s)
{
    return span_s > 0 && now >= then ? (now - then) / span_s : NAN;
}

static double model_share(double part, double whole)
{
    double share = part / whole;

    if (!(whole > 0) || !isfinite(share))
        return NAN;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* Sums of what is known; unknown as long as nothing is. */
static void model_add(double *sum, double d)
{
    if (!isnan(d))
        *sum = isnan(*sum) ? d : *sum + d;
}

static double model_padding(uint64_t tokens, uint64_t padded)
{
    return model_share((double)padded - (double)tokens, (double)padded);
}

/* NAN: it is no mixture, or nothing of it was delivered. */
static double model_mix_off(const struct top_row *rank)
{
    const struct value *list = value_get(rank->view, "mixture");
    double most = NAN;

    for (uint32_t i = 0; list && list->type == VALUE_ARRAY && i < list->count; i++) {
        const struct value *child = &list->items[i];
        bool tokens = strcmp(model_text(child, "by"), "tokens") == 0;
        double share = value_real(value_get(child, tokens ? "token_share" : "share"));

        most = fmax(most, fabs(share - value_real(value_get(child, "wanted"))));
    }
    return most;
}

static bool model_same_loader(const struct top_row *a, const struct top_row *b)
{
    return a->uid == b->uid && strcmp(a->loader, b->loader) == 0;
}

static bool model_same(const struct top_row *a, const struct top_row *b)
{
    return a->number == b->number && a->epoch == b->epoch && a->session == b->session &&
           a->world == b->world && model_same_loader(a, b) && strcmp(a->job, b->job) == 0;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static struct top_row *model_add_row(struct top_rows *rows)
{
    struct top_row *row = &rows->list[rows->n++];

    *row = (struct top_row){.loader = "", .job = "", .by = NAN};
    for (int i = 0; i < TOP_FIGURES; i++)
        row->figure[i] = NAN;
    return row;
}

static void model_fill_row(struct top_row *row, enum top_kind kind, const struct value *view)
{
    row->view = view;
    row->loader = top_row_text(row, KINDS[kind].name);
    row->uid = top_row_count(row, "uid");
    row->number = KINDS[kind].number ? top_row_count(row, KINDS[kind].number) : 0;
    row->figure[TOP_MEMORY] = model_real(row, "memory_bytes");
    if (kind == TOP_RANKS) {
        row->job = top_row_text(row, "job");
        row->epoch = top_row_count(row, "epoch");
        row->session = top_row_count(row, "session");
        row->world = top_row_count(row, "world");
    } else if (kind == TOP_LOADERS) {
        row->idle = strncmp(top_row_text(row, "verdict"), "idle", 4) == 0;
        row->figure[TOP_MEMORY] = (double)top_row_count(row, "memory_bytes");
        row->figure[TOP_ERRORS] = (double)top_row_count(row, "faults") +
                                  (double)top_row_count(row, "bad") +
                                  (double)top_row_count(row, "retries");
    } else {
        row->figure[TOP_ERRORS] = (double)top_row_count(row, "restarts");
    }
}

static uint32_t model_view_rows(const struct value *view)
{
    return view->type == VALUE_ARRAY ? view->count : 0;
}

/* Of epochs there are at most as many as of ranks. */
static int model_fill_rows(struct top_model *m)
{
    for (int kind = 0; kind < TOP_KINDS; kind++) {
        const struct value *view = &m->views[kind == TOP_EPOCHS ? MODEL_EPOCHS : KINDS[kind].view];
        struct top_rows *rows = &m->rows[kind];

        rows->list = calloc(model_view_rows(view) + 1u, sizeof *rows->list);
        if (!rows->list)
            return -ENOMEM;
        for (uint32_t i = 0; kind != TOP_EPOCHS && i < model_view_rows(view); i++)
            if (view->items[i].type == VALUE_MAP)
                model_fill_row(model_add_row(rows), (enum top_kind)kind, &view->items[i]);
    }
    return 0;
}

/* ---- what is worked out --------------------------------------------------------------------- */

static const struct top_row *model_find(const struct top_rows *rows, const struct top_row *row)
{
    for (uint32_t i = 0; i < rows->n; i++)
        if (model_same(&rows->list[i], row))
            return &rows->list[i];
    return NULL;
}

static bool model_state_is(const struct top_row *row, const char *state)
{
    return strcmp(top_row_text(row, "state"), state) == 0;
}

/* There are batches to come for it: workers make them, or something keeps them from it. Else its
 * trainer has given it no samples to load. */
static bool model_is_due(const struct top_row *rank)
{
    return top_row_count(rank, "running") > 0 || *top_row_text(rank, "waits_why") ||
           model_state_is(rank, "starving");
}

static bool model_has_none(const struct top_row *rank)
{
    return top_row_count(rank, "leased") == 0 && top_row_count(rank, "ready") == 0;
}

/*
 * A trainer reports a wait when it is over. Until then: a rank that holds nothing, has nothing
 * ready and was given nothing since, waits for what is due.
 */
static double model_wait(const struct top_row *rank, const struct top_row *then, double span_s)
{
    double waited = model_real(rank, "waited_s");

    if (rank->idle)
        return NAN;
    if (!then)
        return model_share(waited, model_real(rank, "age_s"));
    if (model_is_due(rank) && top_row_count(then, "step") == top_row_count(rank, "step") &&
        model_has_none(rank) && model_has_none(then))
        return 1;
    return model_share(waited - model_real(then, "waited_s"), span_s);
}

static double model_left(const struct top_row *rank)
{
    double left = model_real(rank, "steps") - (double)top_row_count(rank, "step");

    if (left <= 0)
        return 0;
    if (isnan(rank->figure[TOP_STEADY_PER_S])) /* the first look: by its mean pace */
        return model_real(rank, "left_s");
    return rank->figure[TOP_STEADY_PER_S] > 0 ? left / rank->figure[TOP_STEADY_PER_S] : NAN;
}

static void model_measure_rank(struct top_row *rank, const struct top_row *then, double span_s)
{
    double *f = rank->figure, keep = exp(-span_s / STEADY_S);

    rank->idle = !model_state_is(rank, "running") && !model_state_is(rank, "starving");
    f[TOP_WAIT] = model_wait(rank, then, span_s);
    f[TOP_PADDING] = model_padding(top_row_count(rank, "tokens"), top_row_count(rank, "padded"));
    f[TOP_MIX_OFF] = model_mix_off(rank);
    if (!then)
        f[TOP_SAMPLES_PER_S] =
            model_rate((double)top_row_count(rank, "samples"), 0, model_real(rank, "age_s"));
    f[TOP_STEADY_PER_S] = f[TOP_STEPS_PER_S];
    if (then && !isnan(then->figure[TOP_STEADY_PER_S]) && !isnan(f[TOP_STEPS_PER_S]))
        f[TOP_STEADY_PER_S] =
            keep * then->figure[TOP_STEADY_PER_S] + (1 - keep) * f[TOP_STEPS_PER_S];
    f[TOP_LEFT_S] = model_left(rank);
}

static void model_measure(struct top_row *row, enum top_kind kind, const struct top_model *before,
                          double at_s)
{
    const struct top_row *then = before ? model_find(&before->rows[kind], row) : NULL;
    double span_s = then ? at_s - before->at_s : NAN;

    for (size_t i = 0; then && i < ARRAY_SIZE(RATES); i++)
        if (RATES[i].kind == kind)
            row->figure[RATES[i].figure] =
                model_rate((double)top_row_count(row, RATES[i].key),
                           (double)top_row_count(then, RATES[i].key), span_s);
    if (kind == TOP_RANKS)
        model_measure_rank(row, then, span_s);
    /* The next process begins at 0. */
    if (kind == TOP_WORKERS && then && model_real(then, "pid") == model_real(row, "pid"))
        row->figure[TOP_CPU] =
            model_rate(model_real(row, "cpu_s"), model_real(then, "cpu_s"), span_s);
}

/* Of all ranks of this daemon that read it. */
static void model_sum_epoch(struct top_model *m, const struct top_row *rank)
{
    struct top_row place = *rank, *epoch;

    place.number = place.session = 0;
    epoch = (struct top_row *)(uintptr_t)model_find(&m->rows[TOP_EPOCHS], &place);
    if (!epoch) {
        epoch = model_add_row(&m->rows[TOP_EPOCHS]);
        epoch->loader = rank->loader;
        epoch->job = rank->job;
        epoch->uid = rank->uid;
        epoch->epoch = rank->epoch;
        epoch->world = rank->world;
        epoch->idle = true;
        epoch->figure[TOP_STEPS] = 0;
    }
    epoch->idle = epoch->idle && rank->idle;
    epoch->figure[TOP_STEPS] += model_real(rank, "steps"); /* NAN stays */
    model_add(&epoch->figure[TOP_RANKS_HERE], 1);
    model_add(&epoch->figure[TOP_DONE], (double)top_row_count(rank, "step"));
    model_add(&epoch->figure[TOP_STEPS_PER_S], rank->figure[TOP_STEPS_PER_S]);
    epoch->figure[TOP_LEFT_S] = fmax(epoch->figure[TOP_LEFT_S], rank->figure[TOP_LEFT_S]);
}

static void model_sum_ring(struct top_row *loader, const struct value *ring)
{
    static const char *const keys[] = {"leased", "ready", "filling", "free"};

    for (size_t k = 0; k < ARRAY_SIZE(keys); k++)
        loader->figure[TOP_LEASED + k] = 0;
    for (uint32_t i = 0; i < model_view_rows(ring); i++) {
        const struct value *row = &ring->items[i];
        const struct top_row segment = {.loader = model_text(row, "loader"),
                                        .uid = value_count(value_get(row, "uid"))};

        for (size_t k = 0; k < ARRAY_SIZE(keys) && model_same_loader(&segment, loader); k++)
            loader->figure[TOP_LEASED + k] += (double)value_count(value_get(row, keys[k]));
    }
}

/* What its ranks, workers and segments are together; and whether these are idle with it. */
static void model_sum_loader(struct top_row *loader, struct top_model *m)
{
    uint64_t tokens = 0, padded = 0, waits = 0;

    for (uint32_t i = 0; i < m->rows[TOP_RANKS].n; i++) {
        const struct top_row *rank = &m->rows[TOP_RANKS].list[i];

        if (!model_same_loader(rank, loader))
            continue;
        tokens += top_row_count(rank, "tokens");
        padded += top_row_count(rank, "padded");
        waits += !isnan(rank->figure[TOP_WAIT]);
        model_add(&loader->figure[TOP_WAIT], rank->figure[TOP_WAIT]);
        loader->figure[TOP_MIX_OFF] = fmax(loader->figure[TOP_MIX_OFF], rank->figure[TOP_MIX_OFF]);
    }
    loader->figure[TOP_WAIT] /= (double)waits; /* NAN stays */
    loader->figure[TOP_PADDING] = model_padding(tokens, padded);
    for (uint32_t i = 0; i < m->rows[TOP_WORKERS].n; i++) {
        struct top_row *worker = &m->rows[TOP_WORKERS].list[i];

        if (!model_same_loader(worker, loader))
            continue;
        worker->idle = loader->idle;
        model_add(&loader->figure[TOP_CPU], worker->figure[TOP_CPU]);
    }
    model_sum_ring(loader, &m->views[MODEL_RING]);
}

static void model_work_out(struct top_model *m, const struct top_model *before)
{
    for (int kind = 0; kind < TOP_KINDS; kind++)
        for (uint32_t i = 0; i < m->rows[kind].n; i++)
            model_measure(&m->rows[kind].list[i], (enum top_kind)kind, before, m->at_s);
    for (uint32_t i = 0; i < m->rows[TOP_RANKS].n; i++)
        model_sum_epoch(m, &m->rows[TOP_RANKS].list[i]);
    for (uint32_t i = 0; i < m->rows[TOP_LOADERS].n; i++)
        model_sum_loader(&m->rows[TOP_LOADERS].list[i], m);
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
    m->pid = value_count(value_get(&m->views[MODEL_STATUS], "pid"));
    if (model_fill_rows(m) < 0)
        return -ENOMEM;
    /* Another daemon's figures say nothing of this one's. */
    model_work_out(m, before && before->pid == m->pid ? before : NULL);
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
    for (int kind = 0; kind < TOP_KINDS; kind++)
        free(m->rows[kind].list);
    free(m);
    return NULL;
}

/* ---- order ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum top_figure by[TOP_KINDS]; /* NAN where a kind has none */
} SORTS[TOP_SORTS] = {
    [TOP_BY_NAME] = {"name", {TOP_FIGURES, TOP_FIGURES, TOP_FIGURES, TOP_FIGURES}},
    [TOP_BY_RATE] = {"rate",
                     {TOP_BATCHES_PER_S, TOP_STEPS_PER_S, TOP_STEPS_PER_S, TOP_TASKS_PER_S}},
    [TOP_BY_WAIT] = {"wait", {TOP_WAIT, TOP_FIGURES, TOP_WAIT, TOP_FIGURES}},
    [TOP_BY_CPU] = {"cpu", {TOP_CPU, TOP_FIGURES, TOP_FIGURES, TOP_CPU}},
    [TOP_BY_MEMORY] = {"memory", {TOP_MEMORY, TOP_FIGURES, TOP_FIGURES, TOP_MEMORY}},
    [TOP_BY_ERRORS] = {"errors", {TOP_ERRORS, TOP_FIGURES, TOP_FIGURES, TOP_ERRORS}},
};

const char *top_sort_name(enum top_sort sort)
{
    return SORTS[sort].name;
}

static int model_compare_counts(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int model_compare_names(const struct top_row *a, const struct top_row *b)
{
    int order = strcmp(a->loader, b->loader);

    if (order == 0)
        order = model_compare_counts(a->uid, b->uid);
    if (order == 0)
        order = strcmp(a->job, b->job);
    if (order == 0)
        order = model_compare_counts(a->epoch, b->epoch);
    return order ? order : model_compare_counts(a->number, b->number);
}

/* What is idle, or not known, comes last, whichever way. */
static int model_compare(const struct top_row *a, const struct top_row *b, int sign)
{
    if (a->idle != b->idle)
        return a->idle ? 1 : -1;
    if (isnan(a->by) != isnan(b->by))
        return isnan(a->by) ? 1 : -1;
    if (!isnan(a->by) && a->by != b->by)
        return a->by > b->by ? -sign : sign;
    return sign * model_compare_names(a, b);
}

static int model_compare_forth(const void *a, const void *b)
{
    return model_compare(a, b, 1);
}

static int model_compare_back(const void *a, const void *b)
{
    return model_compare(a, b, -1);
}

void top_model_sort(struct top_model *m, enum top_sort sort, bool reverse)
{
    for (int kind = 0; kind < TOP_KINDS; kind++) {
        struct top_rows *rows = &m->rows[kind];
        enum top_figure by = SORTS[sort].by[kind];

        for (uint32_t i = 0; i < rows->n; i++)
            rows->list[i].by = by < TOP_FIGURES ? rows->list[i].figure[by] : NAN;
        qsort(rows->list, rows->n, sizeof *rows->list,
              reverse ? model_compare_back : model_compare_forth);
    }
}
