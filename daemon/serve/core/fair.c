#include "daemon/serve/core/fair.h"

#include <assert.h>
#include <math.h>

#include <utlist.h>

#define SLACK      0.05 /* s that one may be ahead: else it would change with each batch, */
#define LAG        5    /* s that all together may be behind: others hold still for no longer */
#define LEAST_WANT 0.02 /* of a processor: what waits is not free */
#define MOST_USES  64   /* processors, by the threads of one worker */
#define NEW_WEIGHT 0.5  /* of the last measure in a mean */
#define PART       0.25 /* of a worker, for which there is no other: measures vary */
/* Below that many ns of work a measure says nothing; and after as many one that was busy counts as
 * idle: trainers pause between batches. */
#define LITTLE_NS 1000000
#define PAUSE_NS  ((uint64_t)100 * 1000000)

/* ---- who competes ---------------------------------------------------------------------------- */

/* It competes: its workers use processors now, or would; or it pauses. */
static bool fair_counts(const struct fair_part *part, uint64_t now)
{
    return part->busy > 0 || part->held ||
           (part->idle_ns > 0 && now - min_u64(now, part->idle_ns) < PAUSE_NS);
}

/* Else the kernel shares processors out between them as it likes. */
static bool fair_are_rivals(const struct fair_part *a, const struct fair_part *b)
{
    return a->user != b->user || a->priority != b->priority;
}

bool fair_is_shared(const struct fair *fair)
{
    const struct fair_part *part;

    DL_FOREACH (fair->parts, part) {
        if (fair_are_rivals(fair->parts, part))
            return true;
    }
    return false;
}

/* All of one user's stand together in the list. */
void fair_join(struct fair *fair, struct fair_part *part, const void *user, uint64_t now)
{
    struct fair_part *other;

    assert(!part->user && user && part->weight > 0 && part->priority > 0);
    part->user = user;
    part->time = fair->time;
    part->uses = part->wants = 1;
    part->at_ns = now;
    DL_FOREACH (fair->parts, other) {
        if (other->user != user)
            continue;
        DL_APPEND_ELEM(fair->parts, other, part);
        return;
    }
    DL_APPEND(fair->parts, part);
}

void fair_leave(struct fair *fair, struct fair_part *part)
{
    if (!part->user)
        return;
    DL_DELETE(fair->parts, part);
    part->user = NULL;
}

/* Somebody else wants processors, too. */
static bool fair_has_rival(const struct fair *fair, const struct fair_part *part, uint64_t now)
{
    const struct fair_part *other;

    DL_FOREACH (fair->parts, other) {
        if (fair_are_rivals(other, part) && fair_counts(other, now))
            return true;
    }
    return false;
}

/* Of its user's weight, what is the part's: by priority among those of the user that compete. */
static double fair_weight(const struct fair *fair, const struct fair_part *part, uint64_t now)
{
    const struct fair_part *other;
    double all = 0;

    DL_FOREACH (fair->parts, other) {
        if (other->user == part->user && (other == part || fair_counts(other, now)))
            all += other->priority;
    }
    return part->weight * part->priority / all;
}

double fair_share(const struct fair *fair, const struct fair_part *part, uint64_t now)
{
    const struct fair_part *other;
    double all = 0;

    DL_FOREACH (fair->parts, other) {
        if (other == part || fair_counts(other, now))
            all += fair_weight(fair, other, now);
    }
    return fair_weight(fair, part, now) / all;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* The least of those that compete; never less than before. What one has not used for long, as it
 * wanted less, is gone. */
static void fair_go_on(struct fair *fair, uint64_t now)
{
    struct fair_part *part;
    double least = INFINITY, most = 0, weights = 0;

    DL_FOREACH (fair->parts, part) {
        if (!fair_counts(part, now))
            continue;
        most = fmax(most, part->time);
        weights += fair_weight(fair, part, now);
    }
    DL_FOREACH (fair->parts, part) {
        if (!fair_counts(part, now))
            continue;
        part->time = fmax(part->time, most - LAG / weights);
        least = fmin(least, part->time);
    }
    if (isfinite(least))
        fair->time = fmax(fair->time, least);
}

/* It has not competed: it begins where the others are, and no further back than they were. */
static void fair_begin(const struct fair *fair, struct fair_part *part)
{
    part->time = fmax(part->time, fair->time);
}

void fair_look(struct fair *fair, struct fair_part *part, uint32_t busy, uint64_t now)
{
    uint64_t ns = now - min_u64(now, part->at_ns);
    double used = (double)ns / 1e9 * part->busy * part->uses;
    bool counted = fair_counts(part, now);

    part->busy_ns += ns * part->busy;
    part->charged += used;
    part->time += used / fair_weight(fair, part, now);
    part->held_ns += part->held ? ns : 0;
    part->at_ns = now;
    if (part->busy > 0 && busy == 0)
        part->idle_ns = now;
    part->busy = busy;
    if (busy > 0 && !counted)
        fair_begin(fair, part);
    fair_go_on(fair, now);
}

void fair_rest(struct fair_part *part, uint64_t now)
{
    part->at_ns = now;
    part->busy = 0;
    part->held = false;
    part->busy_ns = 0;
    part->charged = 0;
}

static double fair_mean(double was, double is)
{
    return was + NEW_WEIGHT * (is - was);
}

/* What was thought is put right, so that no error adds up. */
void fair_measure(struct fair *fair, struct fair_part *part, uint64_t cpu_ns, uint64_t cpu_wait_ns,
                  uint64_t now)
{
    fair_look(fair, part, part->busy, now);
    double used = (double)cpu_ns / 1e9, busy = (double)part->busy_ns;

    part->time += (used - part->charged) / fair_weight(fair, part, now);
    part->charged = 0;
    if (part->busy_ns < LITTLE_NS)
        return;
    double uses = fmin((double)cpu_ns / busy, MOST_USES);
    double wants = fmin((double)cpu_wait_ns / busy, 1) + uses;
    part->uses = fair_mean(part->uses, uses);
    part->wants = fmax(fair_mean(part->wants, wants), LEAST_WANT);
    part->busy_ns = 0;
}

/* ---- how many -------------------------------------------------------------------------------- */

/* Processors that the others' workers want now. */
static double fair_load_of_others(const struct fair *fair, const struct fair_part *part)
{
    const struct fair_part *other;
    double load = 0;

    DL_FOREACH (fair->parts, other) {
        if (other != part)
            load += other->busy * other->wants;
    }
    return load;
}

static bool fair_is_ahead(const struct fair *fair, const struct fair_part *part, uint64_t now)
{
    double time = fair_counts(part, now) ? part->time : fmax(part->time, fair->time), least = time;
    const struct fair_part *other;

    DL_FOREACH (fair->parts, other) {
        if (fair_counts(other, now))
            least = fmin(least, other->time);
    }
    return (time - least) * fair_weight(fair, part, now) > SLACK;
}

/* The workers that it may have busy: what its share takes, or what others leave. */
static uint32_t fair_count(const struct fair *fair, const struct fair_part *part, uint64_t now)
{
    double left = fmax(fair->cpus - fair_load_of_others(fair, part), 0) / part->wants;
    double own = 0;

    if (!fair_has_rival(fair, part, now))
        return FAIR_ANY;
    if (!fair_is_ahead(fair, part, now))
        own = fair_share(fair, part, now) * fair->cpus / part->wants;
    return (uint32_t)fmin(ceil(fmax(fmax(own, left) - PART, own > 0 ? PART : 0)), FAIR_ANY);
}

uint32_t fair_may(struct fair *fair, struct fair_part *part, bool wants, uint64_t now)
{
    uint32_t n = FAIR_ANY;
    bool held;

    fair_look(fair, part, part->busy, now);
    if (fair_is_shared(fair))
        n = fair_count(fair, part, now);
    held = wants && n <= part->busy;
    if (held && !fair_counts(part, now))
        fair_begin(fair, part);
    if (part->held && !held)
        part->idle_ns = now;
    part->held = held;
    fair_go_on(fair, now);
    return n;
}

bool fair_is_due(const struct fair *fair, uint64_t now)
{
    const struct fair_part *part;

    DL_FOREACH (fair->parts, part) {
        if (part->held && fair_count(fair, part, now) > part->busy)
            return true;
    }
    return false;
}
