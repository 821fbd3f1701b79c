/*
 * Opening has a limit: open_timeout. What counts is progress and not how long it takes, as a large
 * dataset may be indexed for an hour: a worker progresses if it says how far it is, turns to
 * another file, or uses the processor. One that does none of these waits, mostly for storage that
 * does not answer.
 *
 * As long as nobody has the dataset open, all wait for the one that progresses: it may fetch what
 * they need. Later only those that open it again are meant, and those that take lengths.
 */
#include "daemon/serve/pool/pool_private.h"
#include "daemon/serve/pool/usage.h"

#include <errno.h>
#include <stdio.h>

/* Less of one processor than this part of it is no work: threads that wait look around now and
 * then. */
enum { LEAST_SHARE = 100 };

/* Longer than this without progress, and it may not end when it is killed; ns. */
#define MAY_HANG_NS UINT64_C(1000000000)

/* In the trainer's own processes its code may take as long as it does there without us. */
static bool pool_opening_is_limited(const struct pool *pool)
{
    return pool->o.config->open_timeout > 0 && pool->o.python->host_number == 0;
}

static bool pool_opening_is_at_it(const struct member *m)
{
    if (!m->process || m->killed_since)
        return false;
    return (m->state == WORKER_STARTING && m->opens) || (m->pool->measures && in_flight(m) > 0);
}

struct progress_made {
    uint64_t cpu_ns; /* computed, or waited for a processor */
    uint32_t place;
};

static struct progress_made pool_opening_read(const struct member *m)
{
    char place[DL_ERROR_PATH_MAX];
    int pid = process_pid(m->process);
    struct usage usage;
    uint64_t waited;

    struct progress_made made = {0};
    if (m->state == WORKER_STARTING)
        made.place = process_read_place(m->process, place);
    if (usage_read(pid, &usage))
        made.cpu_ns = usage.cpu_ns;
    if (usage_read_cpu_wait(pid, &waited))
        made.cpu_ns += waited;
    return made;
}

void member_goes_on(struct member *m)
{
    struct progress_made made = pool_opening_read(m);

    m->quiet_since = uv_hrtime();
    m->quiet_cpu_ns = made.cpu_ns;
    m->quiet_place = made.place;
}

/* Since when it has made no progress; ns. */
static uint64_t pool_opening_quiet_since(struct member *m, uint64_t now)
{
    struct progress_made made = pool_opening_read(m);
    uint64_t least = (now - min_u64(now, m->quiet_since)) / LEAST_SHARE;

    /* A host has yet to start it, for which there is python_timeout. */
    if (process_pid(m->process) == 0 || made.place != m->quiet_place ||
        made.cpu_ns > m->quiet_cpu_ns + least)
        member_goes_on(m);
    return in_flight(m) > 0 ? max_u64(m->quiet_since, m->front_since) : m->quiet_since;
}

static void pool_opening_break(struct member *m, double seconds)
{
    struct pool *pool = m->pool;
    char place[DL_ERROR_PATH_MAX] = "";
    struct dl_error err;

    if (m->state == WORKER_STARTING)
        (void)process_read_place(m->process, place);
    (void)dl_error_set(
        &err, ETIMEDOUT, *place ? place : spec_dataset_label(&pool->o.spec->dataset),
        "%s hangs: worker %u (pid %d) has waited for %g s (open_timeout) and got no further%s",
        pool->measures ? "taking the lengths of its samples" : "opening the dataset", m->number,
        process_pid(m->process), seconds,
        *place ? "; it turned to this file last, whose storage seems not to answer: see that it "
                 "is mounted and its server runs, and open the loader again"
               : "; see what it waits for, or raise open_timeout");
    pool_break(pool, &err);
}

/* Of those at it the one that has gone on last is the measure. */
static void pool_opening_check_all(struct pool *pool, uint64_t now)
{
    struct member *first = NULL;
    uint64_t since = 0;

    for (uint32_t i = 0; i < pool->n_members; i++) {
        struct member *m = pool->members[i];

        if (!pool_opening_is_at_it(m))
            continue;
        first = first ? first : m;
        since = max_u64(since, pool_opening_quiet_since(m, now));
    }
    if (first && now - min_u64(now, since) >= pool->o.config->open_timeout)
        pool_opening_break(first, (double)pool->o.config->open_timeout / 1e9);
}

bool pool_opening_hangs(struct member *m)
{
    uint64_t now = uv_hrtime();

    if (!m->pool->opened || !pool_opening_is_limited(m->pool) || !pool_opening_is_at_it(m) ||
        in_flight(m) > 0)
        return false;
    m->hangs =
        now - min_u64(now, pool_opening_quiet_since(m, now)) >= m->pool->o.config->open_timeout;
    return m->hangs;
}

void pool_opening_check(struct pool *pool)
{
    if (!pool->broken && (!pool->opened || pool->measures) && pool_opening_is_limited(pool))
        pool_opening_check_all(pool, uv_hrtime());
}

bool member_may_be_stuck(const struct member *m)
{
    uint64_t now = uv_hrtime();

    if (!m->process || !pool_opening_is_limited(m->pool) || m->helper)
        return false;
    if (m->killed_since)
        return true;
    if (in_flight(m) > 0)
        return now - min_u64(now, m->front_since) >= MAY_HANG_NS;
    return m->state == WORKER_STARTING && m->opens &&
           now - min_u64(now, m->quiet_since) >= MAY_HANG_NS;
}

void member_name_opening(const struct member *m, char *text, size_t len)
{
    char place[DL_ERROR_PATH_MAX];
    struct dl_error fit; /* its word, to be shown */

    (void)process_read_place(m->process, place);
    (void)dl_error_set(&fit, ETIMEDOUT, place, "%s", "");
    snprintf(text, len, "opening the dataset again got no further for open_timeout (%g s)%s%s",
             (double)m->pool->o.config->open_timeout / 1e9, *fit.path ? ", at " : "", fit.path);
}

bool pool_opening_is_watched(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_members; i++) {
        if (pool_opening_is_at_it(pool->members[i]))
            return !pool->broken && pool_opening_is_limited(pool);
    }
    return false;
}

void pool_measures(struct pool *pool, bool measures)
{
    pool->measures = measures;
    if (measures)
        pool_watch(pool);
}
