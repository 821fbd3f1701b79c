#include "proto/shared/verdict.h"

#include "proto/common/figures.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- stages ---- */

static const char *const stage_names[] = {"queued",   "fetch", "collate",
                                          "handover", "ready", "held"};

const char *stage_name(enum stage stage)
{
    return stage_names[stage];
}

enum stage stage_of(const char *name)
{
    int stage = 0;

    while (stage < STAGES && strcmp(name, stage_names[stage]) != 0)
        stage++;
    return (enum stage)stage;
}

/* ---- the verdict ---- */

enum {
    EARLY_BATCHES = 8, /* of all ranks together; before that it is all start-up */
    PERCENT_WAITS = 5, /* of its time; a trainer that waits less has nothing to win */
    PERCENT_BUSY = 50, /* of their time; workers below this are not the bottleneck */
    PERCENT_FULL = 80,
    PERCENT_SHORT = 20,    /* of what workers are busy for they wait for a processor */
    PERCENT_SLOW = 50,     /* of it goes to slow samples */
    PERCENT_REMOTE = 50,   /* of it, to waiting for remote files */
    PERCENT_WAY = 60,      /* of the time batches come from a helper: the network is full */
    HELD_TIMES = 1000,     /* as much as comes: if workers get more, no store is in the way */
    PERCENT_THROTTLED = 5, /* of requests; each waits for several times what one takes */
};

/* A rank straggles if it waits RANK_TIMES the median; a worker, if it has WORKER_TENTHS / 10 times
 * the mean work of the others. */
enum { RANK_TIMES = 3, WORKER_TENTHS = 15 };

/* A batch that was under way before a while began counts as a whole: it may be more than that. */
static unsigned verdict_percent(uint64_t part, uint64_t whole)
{
    return whole ? (unsigned)(100.0 * (double)min_u64(part, whole) / (double)whole + 0.5) : 0;
}

struct share {
    char text[UNITS_MAX];
};

/* The same in words; "< 0.1 %" is nothing here. */
static struct share verdict_share(uint64_t part, uint64_t whole)
{
    double d = whole ? (double)min_u64(part, whole) / (double)whole : 0;
    struct share share;

    format_percent(d < 0.0005 ? 0 : d, share.text, sizeof share.text);
    return share;
}

static unsigned verdict_waits(const struct verdict_rank *rank)
{
    return verdict_percent(rank->waited_ns, rank->span_ns);
}

static struct share verdict_waits_share(const struct verdict_rank *rank)
{
    return verdict_share(rank->waited_ns, rank->span_ns);
}

static const struct verdict_rank *verdict_worst_rank(const struct verdict_case *c)
{
    const struct verdict_rank *worst = &c->ranks[0];

    for (size_t i = 1; i < c->n_ranks; i++)
        if (verdict_waits(&c->ranks[i]) > verdict_waits(worst))
            worst = &c->ranks[i];
    return worst;
}

/* More than half of the others wait less than that. */
static bool verdict_straggles(const struct verdict_case *c, const struct verdict_rank *rank)
{
    size_t less = 0;

    for (size_t i = 0; i < c->n_ranks; i++)
        less += RANK_TIMES * verdict_waits(&c->ranks[i]) < verdict_waits(rank);
    return c->n_ranks > 1 && 2 * less >= c->n_ranks;
}

struct work {
    uint64_t fetch_ns, collate_ns, slow_ns, remote_ns, busy_ns, cpu_wait_ns;
    uint64_t way_ns, way_bytes, served_bytes;
    size_t away;             /* workers of other machines */
    unsigned busy;           /* percent of the workers' time, */
    struct share busy_share; /* and in words */
    size_t busiest;
};

static uint64_t verdict_busy_ns(const struct verdict_worker *worker)
{
    return worker->fetch_ns + worker->collate_ns;
}

static struct work verdict_sum_up(const struct verdict_case *c)
{
    struct work work = {0};

    for (size_t i = 0; i < c->n_workers; i++) {
        work.fetch_ns += c->workers[i].fetch_ns;
        work.collate_ns += c->workers[i].collate_ns;
        work.slow_ns += c->workers[i].slow_ns;
        work.remote_ns += c->workers[i].remote_ns;
        work.cpu_wait_ns += c->workers[i].cpu_wait_ns;
        work.way_ns += c->workers[i].way_ns;
        work.way_bytes += c->workers[i].way_bytes;
        work.served_bytes += c->workers[i].served_bytes;
        work.away += c->workers[i].away;
        if (verdict_busy_ns(&c->workers[i]) > verdict_busy_ns(&c->workers[work.busiest]))
            work.busiest = i;
    }
    work.busy_ns = work.fetch_ns + work.collate_ns;
    work.busy = verdict_percent(work.busy_ns, c->span_ns * c->n_workers);
    work.busy_share = verdict_share(work.busy_ns, c->span_ns * c->n_workers);
    return work;
}

/* One worker has much more to do than the others have. */
static uint32_t verdict_slow_worker(const struct verdict_case *c, const struct work *work)
{
    uint64_t most, others;

    if (c->n_workers < 2)
        return VERDICT_NO_WORKER;
    most = verdict_busy_ns(&c->workers[work->busiest]);
    others = (work->busy_ns - most) / (c->n_workers - 1);
    return 10 * most > WORKER_TENTHS * others && verdict_percent(most, c->span_ns) >= PERCENT_FULL
               ? (uint32_t)work->busiest
               : VERDICT_NO_WORKER;
}

static void verdict_say_waits(const struct verdict *v, const struct verdict_rank *worst,
                              size_t ranks, char *text, size_t len)
{
    char lost[UNITS_MAX];

    format_seconds((double)v->lost_ns / 1e9, lost, sizeof lost);
    if (ranks > 1)
        (void)snprintf(text, len,
                       "trainers waited %s for batches, rank %" PRIu64 " for %s of its time", lost,
                       worst->rank, verdict_waits_share(worst).text);
    else
        (void)snprintf(text, len, "the trainer waited %s for batches, %s of its time", lost,
                       verdict_waits_share(worst).text);
}

/* Ends the verdict with what to do about it. */
static void verdict_advise(struct verdict *v, const char *advice)
{
    size_t len = strlen(v->text);

    (void)snprintf(v->text + len, sizeof v->text - len, "; %s", advice);
}

/* Workers have time to spare, and trainers wait all the same. */
static void verdict_blame_nothing_done(const struct verdict_case *c, const struct work *work,
                                       const char *waited, struct verdict *v)
{
    uint64_t between = c->ns[STAGE_QUEUED] + c->ns[STAGE_HANDOVER];
    double each = 1e-9 / (double)max_u64(c->batches, 1);
    char made[UNITS_MAX], way[UNITS_MAX];

    if (c->ns[STAGE_READY] > work->busy_ns && c->ns[STAGE_READY] > between) {
        v->stage = STAGE_READY;
        (void)snprintf(v->text, sizeof v->text,
                       "loader-bound: %s; batches that are ready wait for earlier ones, which take "
                       "longer",
                       waited);
        verdict_advise(v, "workers.bypass, or more workers.prefetch, lets others pass");
    } else {
        v->stage = STAGE_HANDOVER;
        format_seconds((double)work->busy_ns * each, made, sizeof made);
        format_seconds((double)between * each, way, sizeof way);
        (void)snprintf(v->text, sizeof v->text,
                       "loader-bound: %s; workers are busy for %s of the time: a batch takes %s to "
                       "make, and %s on its way",
                       waited, work->busy_share.text, made, way);
        verdict_advise(v, "larger batches or more workers.prefetch help");
    }
}

static void verdict_blame_worker(const struct verdict_case *c, const char *waited,
                                 struct verdict *v)
{
    const struct verdict_worker *worker = &c->workers[v->worker];

    v->stage = worker->collate_ns > worker->fetch_ns ? STAGE_COLLATE : STAGE_FETCH;
    (void)snprintf(v->text, sizeof v->text,
                   "loader-bound: %s; worker %" PRIu32 " is busy with %s for %s of the time, "
                   "and the others are not",
                   waited, v->worker, stage_name(v->stage),
                   verdict_share(verdict_busy_ns(worker), c->span_ns).text);
    verdict_advise(v, c->own_shares ? "divide its work evenly: more shards, of similar size"
                                    : "dlctl slow shows whether its samples are slow; if not, "
                                      "its processor is");
}

static bool verdict_cores_are_short(const struct work *work)
{
    return verdict_percent(work->cpu_wait_ns, work->busy_ns) >= PERCENT_SHORT;
}

static void verdict_blame_work(const struct verdict_case *c, const struct work *work,
                               const char *waited, struct verdict *v)
{
    const char *plural = c->n_workers == 1 ? "" : "s", *are = c->n_workers == 1 ? "is" : "are";

    v->stage = work->collate_ns > work->fetch_ns ? STAGE_COLLATE : STAGE_FETCH;
    v->cores_short = verdict_cores_are_short(work);
    if (v->cores_short) {
        (void)snprintf(v->text, sizeof v->text,
                       "loader-bound: %s; cores are short: %zu worker%s %s busy for %s of the "
                       "time, and wait%s for a processor for %s of that",
                       waited, c->n_workers, plural, are, work->busy_share.text,
                       c->n_workers == 1 ? "s" : "",
                       verdict_share(work->cpu_wait_ns, work->busy_ns).text);
        verdict_advise(v,
                       v->stage == STAGE_FETCH
                           ? "samples that cost less, or more processors; more workers do not help"
                           : "a cheaper collate, or more processors; more workers do not help");
        return;
    }
    (void)snprintf(
        v->text, sizeof v->text,
        "loader-bound: %s; %zu worker%s %s busy for %s of the time, and %s takes %s of that",
        waited, c->n_workers, plural, are, work->busy_share.text, stage_name(v->stage),
        verdict_share(v->stage == STAGE_FETCH ? work->fetch_ns : work->collate_ns, work->busy_ns)
            .text);
    verdict_advise(v, v->stage == STAGE_FETCH ? "more workers, or samples that cost less"
                                              : "more workers, or a cheaper collate");
}

/* Samples are not to blame if they are slow for lack of a processor. */
static bool verdict_samples_are_slow(const struct work *work)
{
    return verdict_percent(work->slow_ns, work->busy_ns) >= PERCENT_SLOW &&
           !verdict_cores_are_short(work);
}

static void verdict_blame_samples(const struct verdict_case *c, const struct work *work,
                                  const char *waited, struct verdict *v)
{
    v->stage = STAGE_FETCH;
    (void)snprintf(v->text, sizeof v->text,
                   "loader-bound: %s; a few samples that are much slower than the others take %s "
                   "of what %zu worker%s do%s",
                   waited, verdict_share(work->slow_ns, work->busy_ns).text, c->n_workers,
                   c->n_workers == 1 ? "" : "s", c->n_workers == 1 ? "es" : "");
    verdict_advise(v, "dlctl slow names them");
}

/* Workers wait, but not for a store: what they get is there. */
static void verdict_blame_giving(const struct verdict_case *c, const struct work *work,
                                 const char *waited, struct verdict *v)
{
    v->stage = STAGE_FETCH;
    (void)snprintf(
        v->text, sizeof v->text,
        "loader-bound: %s; %zu worker%s wait%s for %s of what %s do%s to be given remote "
        "files that are held already",
        waited, c->n_workers, c->n_workers == 1 ? "" : "s", c->n_workers == 1 ? "s" : "",
        verdict_share(work->remote_ns, work->busy_ns).text, c->n_workers == 1 ? "it" : "they",
        c->n_workers == 1 ? "es" : "");
    verdict_advise(v, "more workers, or larger files");
}

static bool verdict_store_is_slow(const struct work *work)
{
    return verdict_percent(work->remote_ns, work->busy_ns) >= PERCENT_REMOTE;
}

static void verdict_blame_store(const struct verdict_case *c, const struct work *work,
                                const char *waited, struct verdict *v)
{
    const struct verdict_store *store = &c->store;
    const char *here = work->away > 0 ? " to this machine" : ""; /* helpers fetch, too */
    double seconds = (double)max_u64(store->span_ns, 1) / 1e9;
    char rate[UNITS_MAX], held[UNITS_MAX + 32] = "";

    if (store->given / HELD_TIMES > store->bytes) {
        verdict_blame_giving(c, work, waited, v);
        return;
    }
    v->stage = STAGE_FETCH;
    format_bytes((double)store->bytes / seconds, rate, sizeof rate);
    if (verdict_percent(store->throttled + store->held_back, store->requests) >=
        PERCENT_THROTTLED) {
        if (store->held_back > 0)
            (void)snprintf(held, sizeof held, " so that %s were held back,",
                           verdict_share(store->held_back, store->requests).text);
        v->kind = VERDICT_THROTTLE;
        (void)snprintf(
            v->text, sizeof v->text,
            "throttled by the store: %s; it refuses %s of requests (status 503 or 429),%s "
            "and gives %s/s%s",
            waited, verdict_share(store->throttled, store->requests).text, held, rate, here);
        verdict_advise(v, "a larger remote.held, larger files, or a higher limit there");
        return;
    }
    v->kind = VERDICT_STORE;
    (void)snprintf(v->text, sizeof v->text,
                   "starved by storage: %s; %zu worker%s wait%s for remote files for %s of what "
                   "%s do%s, and the store gives %s/s%s",
                   waited, c->n_workers, c->n_workers == 1 ? "" : "s", c->n_workers == 1 ? "s" : "",
                   verdict_share(work->remote_ns, work->busy_ns).text,
                   c->n_workers == 1 ? "it" : "they", c->n_workers == 1 ? "es" : "", rate, here);
    verdict_advise(v, "more workers.prefetch asks for more at once, a larger remote.held for less");
}

static bool verdict_network_is_full(const struct verdict_case *c, const struct work *work)
{
    return work->away > 0 && verdict_percent(work->way_ns, c->span_ns * work->away) >= PERCENT_WAY;
}

static void verdict_blame_network(const struct verdict_case *c, const struct work *work,
                                  const char *waited, struct verdict *v)
{
    bool served = work->served_bytes > work->way_bytes;
    uint64_t bytes = max_u64(work->served_bytes, work->way_bytes);
    char rate[UNITS_MAX];

    v->stage = served ? STAGE_FETCH : STAGE_HANDOVER;
    format_bytes((double)bytes * 1e9 / (double)max_u64(c->span_ns, 1), rate, sizeof rate);
    (void)snprintf(v->text, sizeof v->text,
                   "loader-bound: %s; the network to helpers is full: it gives %s/s, and %s are on "
                   "their way for %s of the time",
                   waited, rate, served ? "files that helpers are served" : "batches",
                   verdict_share(work->way_ns, c->span_ns * work->away).text);
    verdict_advise(v, served ? "files that helpers have themselves, or a faster network; more "
                               "helpers do not help"
                             : "smaller batches, such as uint8 for float32, or a faster network; "
                               "more helpers do not help");
}

static void verdict_blame_loader(const struct verdict_case *c, const struct work *work,
                                 const struct verdict_rank *worst, struct verdict *v)
{
    char waited[128];

    v->kind = VERDICT_LOADER;
    verdict_say_waits(v, worst, c->n_ranks, waited, sizeof waited);
    if (verdict_store_is_slow(work)) {
        verdict_blame_store(c, work, waited, v);
        return;
    }
    if (verdict_network_is_full(c, work)) {
        verdict_blame_network(c, work, waited, v);
        return;
    }
    if (verdict_samples_are_slow(work)) {
        verdict_blame_samples(c, work, waited, v);
        return;
    }
    v->worker = verdict_slow_worker(c, work);
    if (v->worker != VERDICT_NO_WORKER)
        verdict_blame_worker(c, waited, v);
    else if (work->busy >= PERCENT_BUSY)
        verdict_blame_work(c, work, waited, v);
    else
        verdict_blame_nothing_done(c, work, waited, v);
}

static void verdict_blame_nobody(const struct work *work, struct verdict *v)
{
    v->kind = work->busy < PERCENT_BUSY ? VERDICT_TRAINER : VERDICT_HEALTHY;
    (void)snprintf(v->text, sizeof v->text,
                   "%s for batches, and workers are busy for %s of the time",
                   v->kind == VERDICT_TRAINER ? "trainer-bound: it hardly waits"
                                              : "healthy: trainers hardly wait",
                   work->busy_share.text);
    verdict_advise(v, v->kind == VERDICT_TRAINER
                          ? "nothing to do here: fewer workers would do"
                          : "nothing to do: only a faster trainer needs more workers");
}

static uint64_t verdict_count_batches(const struct verdict_case *c)
{
    uint64_t n = 0;

    for (size_t i = 0; i < c->n_ranks; i++)
        n += c->ranks[i].batches;
    return n;
}

void verdict_find(const struct verdict_case *c, struct verdict *ret)
{
    const struct verdict_rank *worst;
    struct work work = verdict_sum_up(c);
    char waited[UNITS_MAX];

    *ret = (struct verdict){.worker = VERDICT_NO_WORKER};
    if (c->n_ranks == 0) {
        (void)snprintf(ret->text, sizeof ret->text, "idle: no trainer reads");
        return;
    }
    worst = verdict_worst_rank(c);
    ret->rank = worst->rank;
    for (size_t i = 0; i < c->n_ranks; i++)
        ret->lost_ns += c->ranks[i].waited_ns;
    if (c->starving) {
        ret->kind = VERDICT_MEMORY;
        (void)snprintf(ret->text, sizeof ret->text,
                       "starved by memory: %s leaves no room for the next batch", c->starving);
        verdict_advise(ret, "raise it, or hold fewer batches");
    } else if (verdict_count_batches(c) < EARLY_BATCHES) {
        ret->kind = VERDICT_EARLY;
        (void)snprintf(ret->text, sizeof ret->text, "too early to tell: %" PRIu64 " batches so far",
                       verdict_count_batches(c));
    } else if (verdict_waits(worst) < PERCENT_WAITS) {
        verdict_blame_nobody(&work, ret);
    } else if (verdict_straggles(c, worst)) {
        ret->kind = VERDICT_RANK;
        format_seconds((double)worst->waited_ns / 1e9, waited, sizeof waited);
        (void)snprintf(ret->text, sizeof ret->text,
                       "straggling: rank %" PRIu64 " waits for batches for %s of its time (%s), "
                       "and most others hardly do",
                       worst->rank, verdict_waits_share(worst).text, waited);
        verdict_advise(ret, "check its machine, and its share of the data");
    } else {
        verdict_blame_loader(c, &work, worst, ret);
    }
}
