#include "daemon/serve/sizes.h"

#include "daemon/base/blame.h"
#include "daemon/base/memory.h"
#include "daemon/base/processors.h"
#include "daemon/serve/loader/loader.h"
#include "daemon/serve/registry.h"
#include "daemon/serve/room.h"

#include <errno.h>

static double sizes_cpus(const struct daemon *d)
{
    return d->config.limits.cpus ? (double)d->config.limits.cpus : processors_read("");
}

struct sizes {
    struct loader **loaders; /* owned; borrowed ones */
    struct sizing_case *cases;
    size_t n;
    bool any; /* of them is to be sized, or they share processors by weight */
};

static void sizes_look(struct daemon *d, struct sizes *ret)
{
    double cpus = d->fair.cpus = sizes_cpus(d);
    size_t room = 0;

    for (struct registered *e = d->loaders; e; e = registered_next(e))
        room++;
    ret->loaders = must_alloc(max_u64(room, 1) * sizeof(struct loader *));
    ret->cases = must_alloc(max_u64(room, 1) * sizeof *ret->cases);
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        struct loader *loader = registered_loader(e);

        ret->any = ret->any || loader_is_automatic(loader) || loader_sizes_helpers(loader);
        ret->loaders[ret->n] = loader;
        ret->n += loader_look_sizes(loader, cpus, &ret->cases[ret->n]);
    }
    ret->any = ret->any || fair_is_shared(&d->fair);
    sizing_decide(ret->cases, ret->n, cpus, uv_hrtime());
}

/* Fewer first: what they had, others may get. None of the loaders ends by it. */
static void sizes_take(const struct daemon *d, const struct sizes *sizes, bool fewer)
{
    for (size_t i = 0; i < sizes->n; i++) {
        const struct sizing_case *c = &sizes->cases[i];
        struct loader *loader = sizes->loaders[i];

        if ((c->ret < c->workers) != fewer)
            continue;
        while (loader_take_size(loader, c) == -EDQUOT &&
               room_yield_workers(d, loader_account(loader), false))
            ;
    }
}

static void sizes_on_tick(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    struct sizes sizes = {0};
    BLAMING(0);

    for (struct registered *e = d->loaders; e; e = registered_next(e))
        loader_wake_if_read(registered_loader(e));
    sizes_look(d, &sizes);
    sizes_take(d, &sizes, true);
    sizes_take(d, &sizes, false);
    for (size_t i = 0; i < sizes.n; i++)
        loader_size_helpers(sizes.loaders[i], &sizes.cases[i]);
    if (!sizes.any)
        uv_timer_stop(timer);
    if (fair_is_due(&d->fair, uv_hrtime()))
        sizes_go_on(d);
    free(sizes.loaders);
    free(sizes.cases);
}

static void sizes_on_due(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    struct registered *next;

    for (struct registered *e = d->loaders; e; e = next) {
        next = registered_next(e);
        loader_go_on_fair(registered_loader(e));
    }
}

void sizes_go_on(struct daemon *d)
{
    if (!uv_is_active((uv_handle_t *)&d->due))
        uv_timer_start(&d->due, sizes_on_due, 0, 0);
}

void sizes_begin(struct daemon *d)
{
    d->fair.cpus = sizes_cpus(d);
    uv_timer_init(&d->loop, &d->due);
    d->due.data = d;
    uv_timer_init(&d->loop, &d->sizes);
    d->sizes.data = d;
}

void sizes_wake(struct daemon *d)
{
    if (!uv_is_active((uv_handle_t *)&d->sizes))
        uv_timer_start(&d->sizes, sizes_on_tick, SIZING_TICK_NS / 1000000,
                       SIZING_TICK_NS / 1000000);
}
