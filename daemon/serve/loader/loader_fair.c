/* Processors that loaders of several users, or priorities, want: how many of its workers may be
 * busy, by core/fair.h. */
#include "daemon/serve/loader/loader_private.h"
#include "proto/common/figures.h"

#include <stdio.h>

void loader_join_fair(struct loader *loader)
{
    struct fair_part *part = &loader->fair;

    part->weight = (double)quota_weight(loader->o.pool.account);
    part->priority = loader_priority(loader);
    fair_join(loader->o.fair, part, loader->o.pool.account, uv_hrtime());
    if (fair_is_shared(loader->o.fair))
        loader->o.events->automatic(loader->o.context);
}

void loader_leave_fair(struct loader *loader)
{
    struct fair *fair = loader->o.fair;

    fair_leave(fair, &loader->fair);
    if (fair_is_due(fair, uv_hrtime()))
        loader->o.events->due(loader->o.context);
}

/* Of those that do not share nothing is measured, so their readers say it. */
void loader_weigh_fair(struct loader *loader)
{
    loader->fair.priority = loader_priority(loader);
    if (fair_has_joined(&loader->fair) && fair_is_shared(loader->o.fair))
        loader->o.events->automatic(loader->o.context);
}

/* It shares processors with others. */
static bool fair_is_counted(struct loader *loader)
{
    bool joined = fair_has_joined(&loader->fair), shared = fair_is_shared(loader->o.fair);

    if (joined && !shared)
        fair_rest(&loader->fair, loader->now);
    return joined && shared;
}

void loader_measure_fair(struct loader *loader, const struct sizing_measure *m)
{
    enum { LONG_AGO_S = 10 }; /* what was used since then was not shared */

    if (fair_is_counted(loader) && m->ns > 0 && m->ns < LONG_AGO_S * UINT64_C(1000000000))
        fair_measure(loader->o.fair, &loader->fair, m->cpu_ns, m->cpu_wait_ns, uv_hrtime());
    loader->fair.weight = (double)quota_weight(loader->o.pool.account);
    loader->fair.priority = loader_priority(loader);
}

void loader_look_fair(struct loader *loader)
{
    struct fair *fair = loader->o.fair;

    if (!fair_is_counted(loader))
        return;
    fair_look(fair, &loader->fair, pool_busy(loader->pool), uv_hrtime());
    if (fair_is_due(fair, loader->fair.at_ns))
        loader->o.events->due(loader->o.context);
}

/* Other machines' workers take no processor of this one's. */
static bool fair_is_away(const struct loader *loader, uint32_t worker)
{
    return worker >= loader->spec.workers && worker < loader->spec.workers + loader->o.pool.helpers;
}

/* Of those that are busy no more than `may` get anything. How many of the others may begin. */
static uint32_t fair_hold_busy(struct loader *loader, uint32_t may)
{
    for (uint32_t i = 0; i < loader->core.workers; i++) {
        struct worker_room *room = &loader->rooms[i];

        if (room->has == 0 || fair_is_away(loader, i))
            continue;
        if (may > 0)
            may--;
        else
            room->tasks = 0;
    }
    return may;
}

/* Those that are at something go on first: others wait for what they have. Which of those begins is
 * the core's choice: a step may be one worker's alone. */
void loader_hold_workers(struct loader *loader)
{
    struct fair *fair = loader->o.fair;
    struct core *core = &loader->core;

    core->hold_idle = false;
    if (!fair_is_counted(loader))
        return;
    uint32_t may = fair_may(fair, &loader->fair, core_wants(core), uv_hrtime());
    if (may == FAIR_ANY)
        return;
    core->hold_idle = true;
    core->may_begin = fair_hold_busy(loader, may);
}

void loader_go_on_fair(struct loader *loader)
{
    if (loader->fair.held)
        loader_pump(loader);
}

static const char *fair_say_priority(const struct fair_part *part)
{
    return part->priority > 1 ? "high" : part->priority < 1 ? "low" : "normal";
}

void loader_fair_words(const struct loader *loader, char *text, size_t len)
{
    const struct fair_part *part = &loader->fair;
    char share[UNITS_MAX], held[UNITS_MAX];

    *text = '\0';
    if (part->held_ns == 0 || !fair_has_joined(part) || !fair_is_shared(loader->o.fair))
        return;
    format_percent(fair_share(loader->o.fair, part, uv_hrtime()), share, sizeof share);
    format_seconds((double)part->held_ns / 1e9, held, sizeof held);
    (void)snprintf(text, len,
                   "; others want processors, too: its share is %s of %g (its user's weight is %g, "
                   "its priority %s), and it waited %s for it",
                   share, loader->o.fair->cpus, part->weight, fair_say_priority(part), held);
}
