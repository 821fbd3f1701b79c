/* What workers will ask for when their present tasks are done, as the daemon's plan says: fetched
 * as far as there is room, while nothing that is wanted sooner waits for a request. */
#include "daemon/fetcher/desk_private.h"

#include "daemon/serve/base/memory.h"

#include <utlist.h>

enum {
    /*
     * Of the memory, what was fetched and is not read yet has so much, and room until then: each
     * block takes its place in the row of idle ones twice, when it comes and when it was read. One
     * that nobody comes for, since the plan is another one by now, leaves it in turn.
     */
    AHEAD_PART = 4,
    AHEAD_MOST = 16384, /* of one worker: what it asks for in vain is its own loss */
};

struct ahead {
    struct ahead *prev, *next; /* asker->ahead */
    struct object *object;     /* used */
    uint64_t first, bytes;
};

static void asker_drop_ahead(struct asker *asker, struct ahead *ahead)
{
    DL_DELETE(asker->ahead, ahead);
    asker->n_ahead--;
    object_leave(&asker->desk->objects, ahead->object);
    free(ahead);
}

void asker_put_ahead(struct asker *asker, struct object *object, uint64_t first, uint64_t bytes)
{
    if (asker->n_ahead == AHEAD_MOST)
        return;
    struct ahead *ahead = must_alloc(sizeof *ahead);
    *ahead = (struct ahead){.object = object, .first = first, .bytes = bytes};
    object_use(object);
    if (!asker->ahead)
        DL_APPEND2(asker->desk->planners, asker, planner_prev, planner_next);
    DL_APPEND(asker->ahead, ahead);
    asker->n_ahead++;
}

void asker_forget_ahead(struct asker *asker)
{
    if (asker->ahead)
        DL_DELETE2(asker->desk->planners, asker, planner_prev, planner_next);
    while (asker->ahead)
        asker_drop_ahead(asker, asker->ahead);
    objects_forget_ahead(&asker->desk->objects, asker->since);
}

/* Then it is others' turn. */
static void asker_take_ahead(struct asker *asker)
{
    struct desk *desk = asker->desk;
    const struct ahead *ahead = asker->ahead;

    DL_DELETE2(desk->planners, asker, planner_prev, planner_next);
    ahead->object->planner = asker->since;
    asker_expect(asker, ahead->object, ahead->first, ahead->bytes);
    asker_drop_ahead(asker, asker->ahead);
    if (asker->ahead)
        DL_APPEND2(desk->planners, asker, planner_prev, planner_next);
}

void desk_go_ahead(struct desk *desk)
{
    const struct objects *objects = &desk->objects;

    while (desk->planners && objects->ahead < objects->limit / AHEAD_PART &&
           transfers_have_room(desk->transfers))
        asker_take_ahead(desk->planners);
}
