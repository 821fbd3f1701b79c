/* What workers will ask for when their present tasks are done, as the daemon's plan says: fetched
 * as far as there is room, while nothing that is wanted sooner waits for a request. What comes next
 * waits in memory for its worker; what comes later, on the disk, if that is to keep it. */
#include "daemon/fetcher/desk_private.h"

#include "daemon/base/memory.h"

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
    if (asker->for_disk == ahead)
        asker->for_disk = ahead->next;
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
    if (!asker->for_disk)
        asker->for_disk = ahead;
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

/* On its way, and in memory when it comes. */
static bool desk_has_room_for(struct desk *desk, const struct ahead *ahead)
{
    return transfers_have_room(desk->transfers) &&
           objects_have_room(&desk->objects, transfers_guess(desk->transfers, ahead->bytes));
}

static void asker_fetch_ahead(struct asker *asker, const struct ahead *ahead)
{
    ahead->object->planner = asker->since;
    asker_expect(asker, ahead->object, ahead->first, ahead->bytes);
}

/* Then it is others' turn. */
static void asker_take_ahead(struct asker *asker)
{
    struct desk *desk = asker->desk;

    DL_DELETE2(desk->planners, asker, planner_prev, planner_next);
    asker_fetch_ahead(asker, asker->ahead);
    asker_drop_ahead(asker, asker->ahead);
    if (asker->ahead)
        DL_APPEND2(desk->planners, asker, planner_prev, planner_next);
}

/* ---- to the disk ---------------------------------------------------------------------------- */

/* What another node keeps may have to make room before it is read, for what this one does. */
static bool ahead_is_for_disk(const struct desk *desk, const struct ahead *ahead)
{
    uint64_t block = ahead->first == REMOTE_FROM_END ? 0 : ahead->first / REMOTE_BLOCK_BYTES;

    return !peers_leave_to_other(desk->peers, ahead->object, block) &&
           kept_wants(desk->kept, ahead->object, block);
}

/* The next one that the disk is to keep and has not; it stays in its row, from which the memory
 * gets it later. False: there is no such one, or no room on the way. */
static bool asker_take_for_disk(struct asker *asker)
{
    struct desk *desk = asker->desk;

    while (asker->for_disk && !ahead_is_for_disk(desk, asker->for_disk))
        asker->for_disk = asker->for_disk->next;
    const struct ahead *ahead = asker->for_disk;
    if (!ahead || !desk_has_room_for(desk, ahead))
        return false;
    desk->for_disk = true;
    asker_fetch_ahead(asker, ahead);
    desk->for_disk = false;
    asker->for_disk = ahead->next;
    return true;
}

static void desk_go_ahead_on_disk(struct desk *desk)
{
    struct asker *asker;
    bool some = true;

    while (some) {
        some = false;
        DL_FOREACH2(desk->planners, asker, planner_next)
        some |= asker_take_for_disk(asker);
    }
}

void desk_go_ahead(struct desk *desk)
{
    const struct objects *objects = &desk->objects;

    while (desk->planners && objects->ahead < objects->limit / AHEAD_PART &&
           desk_has_room_for(desk, desk->planners->ahead))
        asker_take_ahead(desk->planners);
    desk_go_ahead_on_disk(desk);
}
