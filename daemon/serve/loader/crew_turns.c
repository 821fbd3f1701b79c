#include "daemon/serve/loader/crew_turns.h"

#include <assert.h>

#include <utlist.h>

void crew_turns_wait(struct crew_turns *turns, struct crew_place *place)
{
    if (place->waits)
        return;
    place->waits = true;
    DL_APPEND(turns->waiting, place);
}

void crew_turns_wait_no_more(struct crew_turns *turns, struct crew_place *place)
{
    if (!place->waits)
        return;
    place->waits = false;
    DL_DELETE(turns->waiting, place);
}

/* Whether a user who already has jobs may run one more. */
static bool crew_turns_allow_more(const struct crew_turns *turns, const struct crew_place *place)
{
    return place->running < turns->limit && turns->running + 1 < turns->threads;
}

static struct crew_place *crew_turns_find(const struct crew_turns *turns)
{
    struct crew_place *place, *more = NULL;

    if (turns->running >= turns->threads)
        return NULL;
    DL_FOREACH (turns->waiting, place) {
        if (place->running == 0)
            return place;
        if (!more && crew_turns_allow_more(turns, place))
            more = place;
    }
    return more;
}

static void crew_turns_go_last(struct crew_turns *turns, struct crew_place *place)
{
    DL_DELETE(turns->waiting, place);
    DL_APPEND(turns->waiting, place);
}

struct crew_place *crew_turns_next(struct crew_turns *turns)
{
    struct crew_place *place = crew_turns_find(turns);

    if (!place)
        return NULL;
    place->running++;
    turns->running++;
    crew_turns_go_last(turns, place);
    assert(place->running <= turns->limit && turns->running <= turns->threads);
    return place;
}

void crew_turns_end(struct crew_turns *turns, struct crew_place *place)
{
    assert(place->running > 0 && turns->running > 0);
    place->running--;
    turns->running--;
    if (place->waits) /* users who came while it had the thread go first */
        crew_turns_go_last(turns, place);
}
