/*
 * What becomes of a rank's stream in the cluster's world when something happens to that world: the
 * table of daemon/docs/world-changes.md. Pure.
 */
#ifndef DL_WORLD_RULES_H
#define DL_WORLD_RULES_H

enum world_event {
    WORLD_JOINED, /* the round is over, and all of its nodes stay */
    WORLD_LOST,   /* a node has left, or may have, or one that had comes back */
    WORLD_FENCED, /* this node has not reached the store for so long that others may continue */
    WORLD_NOTED,  /* positions are to be published */
    WORLD_LEFT    /* this daemon ends */
};
enum { WORLD_EVENTS = 5 };

enum world_action {
    WORLD_NOTE,  /* what was given, and what was released, is noted; it continues */
    WORLD_PAUSE, /* what was given may be used, and no more is given until the others agree */
    WORLD_CUT,  /* the position is closed: what was not used is taken back, and clients ask again */
    WORLD_CLOSE /* likewise, and clients ask the next daemon */
};

static const enum world_action world_actions[WORLD_EVENTS] = {
    [WORLD_JOINED] = WORLD_PAUSE, [WORLD_LOST] = WORLD_CUT,   [WORLD_FENCED] = WORLD_CUT,
    [WORLD_NOTED] = WORLD_NOTE,   [WORLD_LEFT] = WORLD_CLOSE,
};

#endif
