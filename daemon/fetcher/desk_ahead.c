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

/* Bytes of an object that are left to ask for, in requests' parts: the next ones may be nearer to
 * what somebody waits for than the rest. */
struct span {
    uint64_t first, bytes;
    bool begun;
};

struct ahead {
    struct ahead *prev, *next; /* asker->ahead */
    struct object *object;     /* used */
    struct span for_memory, for_disk;
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
    *ahead = (struct ahead){.object = object,
                            .for_memory = {.first = first, .bytes = bytes},
                            .for_disk = {.first = first, .bytes = bytes}};
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
    objects_forget_ahead(&asker->desk->objects, asker->number);
}

static uint64_t span_part(const struct span *span)
{
    if (span->first == REMOTE_FROM_END)
        return span->bytes;
    return min_u64(span->bytes, TRANSFER_BYTES_MAX - span->first % TRANSFER_BYTES_MAX);
}

/* False: that was the last part of it. */
static bool span_go_on(struct span *span, const struct object *object)
{
    uint64_t part = span_part(span);

    span->begun = true;
    span->first += part;
    span->bytes -= part;
    return span->bytes > 0 && span->first < object->bytes;
}

/* On its way, and in memory when it comes. */
static bool desk_has_room_for(struct desk *desk, const struct span *span)
{
    return transfers_have_room(desk->transfers) &&
           objects_have_room(&desk->objects, transfers_guess(desk->transfers, span_part(span)));
}

/* False: that was the last part of it. */
static bool asker_fetch_part(struct asker *asker, struct object *object, struct span *span)
{
    if (span->begun && !asker_knows(asker, object)) /* a worker that asks for it hears why */
        return false;
    object->planner = asker->number;
    asker_expect(asker, object, span->first, span_part(span));
    return span_go_on(span, object);
}

/* The first one that has a next part: of others it shows with the first one's answer where they
 * end. NULL: all wait for that. */
static struct ahead *asker_next_ahead(const struct asker *asker)
{
    struct ahead *ahead;

    DL_FOREACH (asker->ahead, ahead)
        if (!ahead->for_memory.begun || asker_knows(asker, ahead->object) ||
            !object_is_probed(ahead->object))
            break;
    return ahead;
}

/* Then it is others' turn. False: it waits, or there is no room. */
static bool asker_take_ahead(struct asker *asker)
{
    struct desk *desk = asker->desk;
    struct ahead *ahead = asker_next_ahead(asker);

    if (!ahead || !desk_has_room_for(desk, &ahead->for_memory))
        return false;
    DL_DELETE2(desk->planners, asker, planner_prev, planner_next);
    if (!asker_fetch_part(asker, ahead->object, &ahead->for_memory))
        asker_drop_ahead(asker, ahead);
    if (asker->ahead)
        DL_APPEND2(desk->planners, asker, planner_prev, planner_next);
    return true;
}

/* ---- to the disk ---------------------------------------------------------------------------- */

/* What another node keeps may have to make room before it is read, for what this one does. */
static bool ahead_is_for_disk(const struct desk *desk, const struct ahead *ahead)
{
    const struct span *span = &ahead->for_disk;
    uint64_t block = span->first == REMOTE_FROM_END ? 0 : span->first / REMOTE_BLOCK_BYTES;

    return !peers_leave_to_other(desk->peers, ahead->object, block) &&
           kept_wants(desk->kept, ahead->object, block);
}

/* False: that was the last part of it. Of one whose size is not known all is asked for at once. */
static bool asker_fetch_for_disk(struct asker *asker, struct ahead *ahead)
{
    if (asker_knows(asker, ahead->object))
        return asker_fetch_part(asker, ahead->object, &ahead->for_disk);
    ahead->object->planner = asker->number;
    asker_expect(asker, ahead->object, ahead->for_disk.first, ahead->for_disk.bytes);
    return false;
}

/* The next part that the disk is to keep and has not; it stays in its row, from which the memory
 * gets it later. False: there is no such one, or no room on the way. */
static bool asker_take_for_disk(struct asker *asker)
{
    struct desk *desk = asker->desk;
    struct ahead *ahead;

    while ((ahead = asker->for_disk) && !ahead_is_for_disk(desk, ahead)) {
        if (!asker_knows(asker, ahead->object) || !span_go_on(&ahead->for_disk, ahead->object))
            asker->for_disk = ahead->next;
    }
    if (!ahead || !desk_has_room_for(desk, &ahead->for_disk))
        return false;
    desk->for_disk = true;
    if (!asker_fetch_for_disk(asker, ahead))
        asker->for_disk = ahead->next;
    desk->for_disk = false;
    return true;
}

static void desk_go_ahead_on_disk(struct desk *desk)
{
    struct asker *asker;
    bool some = true;

    while (some) {
        some = false;
        DL_FOREACH2 (desk->planners, asker, planner_next)
            some |= asker_take_for_disk(asker);
    }
}

static bool desk_go_ahead_in_memory(struct desk *desk)
{
    struct asker *asker;

    DL_FOREACH2 (desk->planners, asker, planner_next)
        if (asker_take_ahead(asker))
            return true;
    return false;
}

void desk_go_ahead(struct desk *desk)
{
    const struct objects *objects = &desk->objects;

    while (objects->ahead < objects->limit / AHEAD_PART && desk_go_ahead_in_memory(desk))
        ;
    desk_go_ahead_on_disk(desk);
}
