#include "daemon/serve/core/sizing.h"

#include "daemon/base/memory.h"
#include "proto/common/figures.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#define WAITS       0.03 /* share of the time from which more workers are worth it */
#define ALWAYS      0.85 /* from here on it is not known how much faster trainers could be */
#define ROOM        1.2  /* workers to keep, of those that are needed: times vary */
#define NEW_WEIGHT  0.5  /* of the last look in a mean */
#define NEW_COST    0.25 /* the same of what a batch takes, which changes less */
#define LEAST_CPU   0.02 /* of a worker: what does not compute is not free */
#define LEAST_LEFT  0.15 /* of a processor that one more would take, it has to have */
#define HARDLY      0.1  /* of a processor, which a worker that waits takes, */
#define PARTLY      0.8  /* or one that also waits */
#define KEPT        2    /* times as much one may take that is there: measures vary */
#define ALONE       2    /* times as many as processors: of a loader that no other competes with */
#define OTHERS      0.5  /* as much is left where several loaders want it: it would go to and fro */
#define GAIN_SHARE  0.25 /* of what more workers should gain: less is nothing */
#define IDLE        0.03 /* share of workers' time from which it is worth it to be further ahead, */
#define AHEAD_LOSS  0.03 /* unless batches come so much more slowly */
#define LEAST_GAIN  0.1  /* is expected of them, however few processors are idle */
#define TRIAL_LOOKS 6    /* before more workers have gained nothing: new ones may begin slowly; */
#define TRIAL_MADE  12   /* batches that show whether they gained */
#define FEWER_LOOKS 6    /* for which fewer are due before there are fewer, */
#define MORE_LOOKS  6    /* for which one more is due, where processors are short */
#define SOONER      2    /* where another loader can use the processor */
#define SECOND      ((uint64_t)1000000000)
#define UNREAD_NS   (5 * SECOND)
#define HOLD_NS     (30 * SECOND)
#define HOLD_MOST   (600 * SECOND)
#define FALL_NS     (6 * SECOND) /* in which trainers wait because there are fewer */

/* ---- what it did ----------------------------------------------------------------------------- */

static void sizing_mean(double *mean, bool measured, double value, double weight)
{
    *mean = measured ? (1 - weight) * *mean + weight * value : value;
}

static double sizing_need(const struct sizing *s)
{
    return s->wait >= ALWAYS ? SIZING_ANY : s->rate / (1 - s->wait) * s->cost_s;
}

static void sizing_learn(struct sizing *s, const struct sizing_measure *m, uint32_t workers)
{
    /* A wait for a processor also counts where nothing was to do yet. */
    uint64_t busy =
        max_u64(m->busy_ns - min_u64(m->busy_ns, m->cpu_wait_ns), min_u64(m->busy_ns, m->cpu_ns));
    bool measured = s->measured;

    if (m->ns == 0 || m->span_ns == 0)
        return;
    if (m->batches > m->away) {
        double own = (double)(m->batches - m->away);
        bool known = s->cost_s > 0;

        sizing_mean(&s->cost_s, known, fmax((double)busy, 1) / 1e9 / own, NEW_COST);
        sizing_mean(&s->cpu_s, known, (double)m->cpu_ns / 1e9 / own, NEW_COST);
    }
    sizing_mean(&s->rate, measured, (double)m->batches * 1e9 / (double)m->ns, NEW_WEIGHT);
    sizing_mean(&s->idle, measured,
                fmax(1 - (double)m->busy_ns / (double)m->ns / fmax(workers, 1), 0), NEW_COST);
    sizing_mean(&s->wait, measured, fmin((double)m->waited_ns / (double)m->span_ns, 1), NEW_WEIGHT);
    s->need = sizing_need(s);
    s->measured = true;
}

/* The share of a processor that a worker of it takes. */
static double sizing_cpu_of(const struct sizing *s)
{
    return s->cost_s > 0 ? fmin(fmax(s->cpu_s / s->cost_s, LEAST_CPU), 1) : 1;
}

/* Processors that `has` workers take: no more than it needs have something to do. */
static double sizing_cpus_of(const struct sizing *s, uint32_t has)
{
    return sizing_cpu_of(s) * (s->cost_s > 0 && s->need > 0 ? fmin(has, s->need) : has);
}

/* What one more takes. */
static double sizing_cpus_more(const struct sizing *s, uint32_t has)
{
    return sizing_cpus_of(s, has + 1) - sizing_cpus_of(s, has);
}

static bool sizing_waits(const struct sizing *s)
{
    return s->measured && s->wait >= WAITS;
}

/* ---- what it wants --------------------------------------------------------------------------- */

static uint32_t sizing_above(double workers, uint32_t most)
{
    return workers >= most ? most : (uint32_t)ceil(workers);
}

static uint32_t sizing_least(const struct sizing_case *c)
{
    return (uint32_t)max_u64(c->least, 1);
}

/* How many it could use, as far as that is known, whatever others want. */
static uint32_t sizing_want(const struct sizing_case *c, uint64_t now)
{
    const struct sizing *s = c->sizing;
    uint32_t want;

    if (!s->measured || s->cost_s <= 0)
        return c->workers;
    if (s->wait >= ALWAYS)
        want = 2 * c->workers;
    else if (sizing_waits(s))
        want = (uint32_t)max_u64(sizing_above(s->need * 1.05, 2 * c->workers), c->workers + 1);
    else
        want = (uint32_t)min_u64(sizing_above(fmax(s->need, 0.1) * ROOM, c->workers), c->workers);
    if (s->floor > 0 && now < s->floor_until)
        want = (uint32_t)max_u64(want, min_u64(s->floor, c->workers));
    if (s->ceiling > 0 && now < s->ceiling_until)
        want = (uint32_t)min_u64(want, s->ceiling);
    return (uint32_t)max_u64(min_u64(want, c->most), sizing_least(c));
}

/* By what factor its rate grows with one more, as a logarithm, times its weight. */
static double sizing_gain(const struct sizing_case *c, uint32_t has)
{
    const struct sizing *s = c->sizing;
    double need = s->measured ? fmax(s->need, 1) : has + 1;
    double from = fmin(has, need), to = fmin(has + 1.0, need);

    return c->share * fmax(log(to / from), 1e-6);
}

/* ---- who gets them --------------------------------------------------------------------------- */

struct sizing_share {
    uint32_t want, has;
};

/* Workers that want processors, each at its own times: their mean number, and its variance. */
struct sizing_crowd {
    double mean, variance;
};

/* Processors while they are dealt. */
struct sizing_deal {
    double cpus;
    size_t loaders;            /* that are read, and sized */
    struct sizing_crowd crowd; /* of workers that are dealt */
    double weights;            /* of all */
    bool alone;                /* no other loader is read */
    bool is_short;             /* some loader got no worker for lack of processors */
};

/* They want so much more of processors, all the time. */
static void sizing_add_wish(struct sizing_crowd *crowd, double cpus)
{
    crowd->mean += cpus;
}

/* They are joined by `n` of the loader's, which has `has` in all. */
static void sizing_add_workers(struct sizing_crowd *crowd, const struct sizing *s, uint32_t has,
                               double n)
{
    double wants = sizing_cpus_of(s, has) / fmax(has, 1);

    crowd->mean += n * wants;
    crowd->variance += n * wants * (1 - wants);
}

/* Processors that none of them wants, on average. Where they want as many as there are, now some
 * are idle, and now several want one. Of many, how many want one at a time is about normal. */
static double sizing_idle(const struct sizing_crowd *crowd, double cpus)
{
    double over = cpus - crowd->mean, spread = sqrt(crowd->variance);

    if (spread < 1e-3)
        return fmax(over, 0);
    double z = over / spread;
    return over * 0.5 * erfc(-z * M_SQRT1_2) + spread * exp(-z * z / 2) * 0.398942;
}

/* Where there is a part of a processor for one more, or where it hardly takes one and gains more
 * than the others lose. */
static bool sizing_affords(const struct sizing_case *c, uint32_t has,
                           const struct sizing_deal *deal)
{
    const struct sizing *s = c->sizing;
    double cpu = sizing_cpu_of(s) / (has < c->workers ? KEPT : 1);
    double left = sizing_idle(&deal->crowd, deal->cpus) * (has < c->workers ? KEPT : 1) *
                  (deal->loaders == 1 ? 1 : OTHERS);

    return has < SIZING_FIRST || sizing_cpus_more(s, has) * LEAST_LEFT <= left ||
           (deal->alone && has < ALONE * deal->cpus) ||
           (sizing_cpu_of(s) <= (deal->loaders > 1 ? PARTLY : HARDLY) &&
            sizing_gain(c, has) > cpu * deal->weights / fmax(deal->cpus, deal->crowd.mean));
}

/* The loader where a worker more gains most for what it takes of a processor; or n. */
static size_t sizing_next(const struct sizing_case *cases, const struct sizing_share *shares,
                          size_t n, struct sizing_deal *deal)
{
    size_t best = n;
    double most = 0;

    for (size_t i = 0; i < n; i++) {
        const struct sizing *s = cases[i].sizing;

        if (!s || shares[i].has >= shares[i].want)
            continue;
        if (!sizing_affords(&cases[i], shares[i].has, deal)) {
            deal->is_short = true;
            continue;
        }
        double gain = sizing_gain(&cases[i], shares[i].has) / sizing_cpu_of(s);
        if (gain > most) {
            most = gain;
            best = i;
        }
    }
    return best;
}

/* All that are there, or the first ones of each loader that is sized. */
static struct sizing_crowd sizing_crowd_of(const struct sizing_case *cases, size_t n, bool first)
{
    struct sizing_crowd crowd = {0};

    for (size_t i = 0; i < n; i++) {
        const struct sizing_case *c = &cases[i];
        uint32_t has = first ? sizing_least(c) : c->workers;

        if (c->sizing && c->read)
            sizing_add_workers(&crowd, c->sizing, has, has);
        else if (!c->sizing && c->measure.ns > 0)
            sizing_add_wish(&crowd, (double)c->measure.cpu_ns / (double)c->measure.ns);
    }
    return crowd;
}

/* By the processors that are idle. */
static double sizing_most_faster(const struct sizing_case *cases, size_t n, double cpus)
{
    struct sizing_crowd crowd = sizing_crowd_of(cases, n, false);

    return cpus / fmax(cpus - sizing_idle(&crowd, cpus), cpus / SIZING_ANY);
}

/* Whether processors did not suffice. */
static bool sizing_share_out(const struct sizing_case *cases, struct sizing_share *shares, size_t n,
                             double cpus)
{
    struct sizing_deal deal = {.cpus = cpus, .crowd = sizing_crowd_of(cases, n, true)};
    size_t best, others = 0;

    for (size_t i = 0; i < n; i++) {
        deal.weights += cases[i].read ? cases[i].share : 0;
        deal.loaders += cases[i].read && cases[i].sizing;
        others += cases[i].read && !cases[i].sizing;
    }
    deal.alone = deal.loaders == 1 && others == 0;
    while ((best = sizing_next(cases, shares, n, &deal)) < n)
        sizing_add_workers(&deal.crowd, cases[best].sizing, ++shares[best].has, 1);
    for (size_t i = 0; i < n; i++)
        assert(shares[i].has <= max_u64(shares[i].want, 1));
    return deal.is_short;
}

/* ---- what changes ---------------------------------------------------------------------------- */

static void sizing_measure_anew(struct sizing *s)
{
    s->settling = 1;
    s->more = s->fewer = 0;
    s->measured = false;
}

static void sizing_change(struct sizing_case *c, uint32_t workers, enum sizing_reason reason,
                          uint64_t now)
{
    struct sizing *s = c->sizing;

    assert((workers > 0 || !c->read) && c->weight > 0 && c->ret == c->workers);
    s->reason = reason;
    if (workers == c->workers)
        return;
    s->before = c->workers;
    s->changed_ns = now;
    c->ret = workers;
    sizing_measure_anew(s);
}

static void sizing_change_ahead(struct sizing_case *c, uint32_t ahead)
{
    c->ret_ahead = ahead;
    sizing_measure_anew(c->sizing);
}

static uint64_t sizing_hold(uint64_t *hold, uint64_t now)
{
    *hold = *hold ? min_u64(2 * *hold, HOLD_MOST) : HOLD_NS;
    return now + *hold;
}

void sizing_give_up(struct sizing_case *c, uint64_t now)
{
    struct sizing *s = c->sizing;

    s->ceiling = s->trial_from;
    s->trial_from = s->trial_ahead = 0;
    s->ceiling_until = sizing_hold(&s->ceiling_hold, now);
    sizing_change(c, s->ceiling, SIZING_NO_GAIN, now);
}

/* Whether the trial has gained anything. */
static bool sizing_trial_gained(const struct sizing_case *c)
{
    const struct sizing *s = c->sizing;

    if (s->trial_ahead)
        return s->wait < s->trial_wait / 2 || s->rate >= s->trial_rate * (1 - AHEAD_LOSS);
    double could = fmin(fmin((double)c->workers / s->trial_from, s->trial_most),
                        1 / fmax(1 - s->trial_wait, 0.01));

    return s->wait < s->trial_wait / 2 || s->rate >= s->trial_rate * (1 + GAIN_SHARE * (could - 1));
}

/* True: a trial is not over, or has failed, which was dealt with. */
static bool sizing_try(struct sizing_case *c, uint64_t now)
{
    struct sizing *s = c->sizing;

    if (s->trial_from == 0)
        return false;
    s->trial_batches += c->measure.batches;
    bool over = ++s->trial_looks >= TRIAL_LOOKS;
    bool told = over || (!s->trial_ahead && s->trial_batches >= TRIAL_MADE);
    bool gained = told && sizing_trial_gained(c);
    if (!over && !gained)
        return true;
    uint32_t ahead = s->trial_ahead;
    s->trial_ahead = 0;
    if (ahead && !gained) {
        s->trial_from = 0;
        s->ahead_until = sizing_hold(&s->ahead_hold, now);
        sizing_change_ahead(c, ahead);
        return true;
    }
    if (gained || s->trial_from >= c->workers) {
        s->trial_from = 0;
        return false;
    }
    sizing_give_up(c, now);
    return true;
}

static void sizing_begin_trial(struct sizing_case *c)
{
    struct sizing *s = c->sizing;

    s->trial_from = c->workers;
    s->trial_rate = s->rate;
    s->trial_wait = s->wait;
    s->trial_batches = 0;
    s->trial_looks = 0;
}

/* Its workers have no room, and get further ahead. False: they have, or that did not help. */
static bool sizing_get_ahead(struct sizing_case *c, uint64_t now)
{
    struct sizing *s = c->sizing;

    if (!sizing_waits(s) || s->idle < IDLE || now < s->ahead_until || c->ahead >= c->ahead_most)
        return false;
    sizing_begin_trial(c);
    s->trial_ahead = c->ahead;
    s->reason = SIZING_AHEAD;
    sizing_change_ahead(c, (uint32_t)min_u64(2 * (uint64_t)c->ahead, c->ahead_most));
    return true;
}

/* most: the factor by which all could become faster with the processors that are idle. */
static void sizing_raise(struct sizing_case *c, uint32_t workers, bool is_short, double most,
                         uint64_t now)
{
    struct sizing *s = c->sizing;

    assert(workers > c->workers && s->trial_from == 0);
    s->fewer = 0;
    if (++s->more < (is_short && workers == c->workers + 1 ? MORE_LOOKS : 1))
        return;
    if (s->fallen_from > 0 && now - s->changed_ns < FALL_NS) {
        s->floor = s->fallen_from;
        s->floor_until = sizing_hold(&s->floor_hold, now);
    }
    s->fallen_from = 0;
    sizing_begin_trial(c);
    s->trial_most = fmax(most, 1 + LEAST_GAIN);
    sizing_change(c, workers, SIZING_MORE, now);
}

/* One that waits itself gives a single worker away only where that is clear for a while: whose turn
 * it is may change with each look. */
static uint32_t sizing_fewer_looks(const struct sizing_case *c, uint32_t workers, bool is_short)
{
    if (sizing_waits(c->sizing))
        return c->workers - workers > 1 ? FEWER_LOOKS : 4 * FEWER_LOOKS;
    return is_short ? SOONER : FEWER_LOOKS;
}

static void sizing_lower(struct sizing_case *c, uint32_t workers, bool is_short, uint64_t now)
{
    struct sizing *s = c->sizing;

    assert(workers < c->workers && s->trial_from == 0);
    s->more = 0;
    if (++s->fewer < sizing_fewer_looks(c, workers, is_short))
        return;
    s->fallen_from = c->workers;
    sizing_change(c, workers, is_short && sizing_waits(s) ? SIZING_NO_CPU : SIZING_LESS, now);
}

/* Nothing changes: why not. */
static void sizing_keep(struct sizing_case *c, const struct sizing_share *share, uint64_t now)
{
    struct sizing *s = c->sizing;

    s->more = s->fewer = 0;
    if (!s->measured)
        return;
    if (!sizing_waits(s))
        s->reason = SIZING_ENOUGH;
    else if (c->workers >= c->most)
        s->reason = SIZING_NO_MORE;
    else if (s->ceiling > 0 && now < s->ceiling_until && c->workers >= s->ceiling)
        s->reason = SIZING_NO_GAIN;
    else if (share->want > share->has)
        s->reason = SIZING_NO_CPU;
}

static void sizing_unread(struct sizing_case *c, uint64_t now)
{
    struct sizing *s = c->sizing;
    uint64_t unread_ns = now - s->read_ns;
    bool yields = s->reason != SIZING_NOT_READ && unread_ns >= UNREAD_NS;
    bool rests =
        s->reason == SIZING_NOT_READ && c->least == 0 && c->rest_ns > 0 && unread_ns >= c->rest_ns;

    if (!yields && !rests)
        return;
    sizing_yield(s, c->workers);
    sizing_change(c, rests ? 0 : sizing_least(c), SIZING_NOT_READ, now);
}

void sizing_yield(struct sizing *s, uint32_t workers)
{
    if (s->reason != SIZING_NOT_READ)
        s->when_read = workers;
    s->trial_from = s->trial_ahead = s->fallen_from = 0;
    s->reason = SIZING_NOT_READ;
}

void sizing_wake(struct sizing *s, uint64_t now)
{
    s->read_ns = now;
}

void sizing_give(struct sizing *s, uint32_t workers, uint64_t now)
{
    s->before = workers;
    s->changed_ns = now;
    s->trial_from = s->trial_ahead = s->fallen_from = 0;
    s->reason = SIZING_GAVE;
    sizing_measure_anew(s);
}

/* It is read again: as many as it had then. */
static bool sizing_return(struct sizing_case *c, uint64_t now)
{
    if (c->sizing->reason != SIZING_NOT_READ)
        return false;
    uint32_t had = (uint32_t)min_u64(max_u64(c->sizing->when_read, 1), c->most);
    sizing_change(c, had, SIZING_NEW, now);
    return true;
}

/* Whether it is to be looked at now, and has been. */
static bool sizing_look(struct sizing_case *c, uint64_t now)
{
    struct sizing *s = c->sizing;

    c->ret = c->workers;
    if (s->read_ns == 0)
        s->read_ns = now;
    if (!c->read) {
        sizing_unread(c, now);
        return false;
    }
    s->read_ns = now;
    if (c->workers == 0 || sizing_return(c, now) || c->ready < c->workers)
        return false;
    if (s->settling > 0) {
        s->settling--;
        return false;
    }
    sizing_learn(s, &c->measure, c->workers);
    return s->measured && !sizing_try(c, now);
}

/* All of a user's that are read have its weight. */
static double sizing_weight_of_user(const struct sizing_case *cases, size_t n, const void *user)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += cases[i].user == user && cases[i].read ? cases[i].weight : 0;
    return sum;
}

static void sizing_weigh(struct sizing_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct sizing_case *c = &cases[i];
        double all = c->user ? sizing_weight_of_user(cases, n, c->user) : 0;

        c->share = all > 0 ? c->weight / all * c->user_weight : c->weight;
    }
}

void sizing_decide(struct sizing_case *cases, size_t n, double cpus, uint64_t now)
{
    _cleanup_free_ struct sizing_share *shares = must_alloc(max_u64(n, 1) * sizeof *shares);
    _cleanup_free_ bool *due = must_alloc(max_u64(n, 1) * sizeof *due);

    sizing_weigh(cases, n);
    for (size_t i = 0; i < n; i++) {
        cases[i].ret = cases[i].workers;
        cases[i].ret_ahead = cases[i].ahead;
        due[i] = cases[i].sizing && sizing_look(&cases[i], now);
        if (cases[i].sizing && cases[i].read)
            shares[i] = (struct sizing_share){.want = sizing_want(&cases[i], now),
                                              .has = sizing_least(&cases[i])};
    }
    bool is_short = sizing_share_out(cases, shares, n, cpus);
    double most = sizing_most_faster(cases, n, cpus);
    for (size_t i = 0; i < n; i++) {
        if (!due[i] || sizing_get_ahead(&cases[i], now))
            continue;
        if (shares[i].has > cases[i].workers && sizing_waits(cases[i].sizing))
            sizing_raise(&cases[i], shares[i].has, is_short, most, now);
        else if (shares[i].has < cases[i].workers)
            sizing_lower(&cases[i], shares[i].has, is_short, now);
        else
            sizing_keep(&cases[i], &shares[i], now);
    }
}

uint32_t sizing_prefetch(uint32_t least, uint64_t slot_bytes)
{
    return slot_bytes <= SIZING_TINY ? (uint32_t)max_u64(least, SIZING_DEEP) : least;
}

/* ---- words ----------------------------------------------------------------------------------- */

static const char *sizing_reason_words(enum sizing_reason reason)
{
    static const char *const words[] = {
        [SIZING_NEW] = "it has only begun",
        [SIZING_ENOUGH] = "these are enough",
        [SIZING_MORE] = "more may help",
        [SIZING_AHEAD] = "they waited for room, and are further ahead",
        [SIZING_LESS] = "it did not need those that it had",
        [SIZING_NO_GAIN] = "more made it no faster",
        [SIZING_NO_CPU] = "no processor is left for more",
        [SIZING_NO_MORE] = "it may have no more",
        [SIZING_NOT_READ] = "nobody reads it",
        [SIZING_GAVE] = "another loader needed some of them",
    };
    return words[reason];
}

void sizing_words(const struct sizing_case *c, double cpus, uint64_t now,
                  char ret[static SIZING_WORDS])
{
    const struct sizing *s = c->sizing;
    char was[96] = "", wait[UNITS_MAX], cost[UNITS_MAX], cpu[UNITS_MAX], ago[UNITS_MAX], need[64];

    if (s->changed_ns > 0) {
        format_seconds((double)(now - min_u64(now, s->changed_ns)) / 1e9, ago, sizeof ago);
        (void)snprintf(was, sizeof was, ", %u until %s ago", s->before, ago);
    }
    int len = snprintf(ret, SIZING_WORDS, "%u worker%s%s: %s", c->workers,
                       c->workers == 1 ? "" : "s", was, sizing_reason_words(s->reason));
    if (s->cost_s <= 0 || len < 0 || len >= SIZING_WORDS)
        return;
    format_percent(s->wait, wait, sizeof wait);
    format_seconds(s->cost_s, cost, sizeof cost);
    format_percent(sizing_cpu_of(s), cpu, sizeof cpu);
    if (s->need >= SIZING_ANY)
        (void)snprintf(need, sizeof need, "trainers would use any number");
    else
        (void)snprintf(need, sizeof need, "%.2g busy ones suffice", s->need);
    (void)snprintf(ret + len, SIZING_WORDS - (size_t)len,
                   "; trainers wait %s of the time, a batch takes a worker %s, %s of it on a "
                   "processor, of which there are %g; %s; each is %u batches ahead",
                   wait, cost, cpu, cpus, need, c->ahead);
}
