/* Processors that several users' loaders want: how many of its workers may be busy, by
 * core/fair.h. */
#include "daemon/serve/loader/loader_private.h"
#include "proto/common/figures.h"

#include <stdio.h>

void loader_join_fair(struct loader *loader)
{
    struct fair_part *part = &loader->fair;

    part->weight = (double)quota_weight(loader->o.pool.account);
    part->priority = 1;
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

/* It shares processors with others. */
static bool fair_is_counted(struct loader *loader)
{
    bool joined = fair_has_joined(&loader->fair), shared = fair_is_shared(loader->o.fair);

    if (joined && !shared)
        fair_rest(&loader->fair, loader->now);
    return joined && shared;
}

void loader_measure_fair(struct loader *loader, double priority, const struct sizing_measure *m)
{
    enum { LONG_AGO_S = 10 }; /* what was used since then was not shared */

    if (!fair_is_counted(loader))
        return;
    if (m->ns > 0 && m->ns < LONG_AGO_S * UINT64_C(1000000000))
        fair_measure(loader->o.fair, &loader->fair, m->cpu_ns, m->cpu_wait_ns, uv_hrtime());
    loader->fair.weight = (double)quota_weight(loader->o.pool.account);
    loader->fair.priority = priority;
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

/* Of those that are `busy`, or are not: no more than `may` get anything. How many more others
 * may. */
static uint32_t fair_hold(struct loader *loader, bool busy, uint32_t may)
{
    for (uint32_t i = 0; i < loader->core.workers; i++) {
        struct worker_room *room = &loader->rooms[i];

        if ((room->has > 0) != busy || fair_is_away(loader, i) || (!busy && room->tasks == 0))
            continue;
        if (may > 0)
            may--;
        else
            room->tasks = 0;
    }
    return may;
}

/* Those that are at something go on first: others wait for what they have. */
void loader_hold_workers(struct loader *loader)
{
    struct fair *fair = loader->o.fair;

    if (!fair_is_counted(loader))
        return;
    uint32_t may = fair_may(fair, &loader->fair, core_wants(&loader->core), uv_hrtime());
    if (may < FAIR_ANY)
        (void)fair_hold(loader, false, fair_hold(loader, true, may));
}

void loader_go_on_fair(struct loader *loader)
{
    if (loader->fair.held)
        loader_pump(loader);
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
                   "; other users want processors, too: its share is %s of %g (its user's weight "
                   "is %g), and it waited %s for it",
                   share, loader->o.fair->cpus, part->weight, held);
}
