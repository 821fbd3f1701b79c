/*
 * What becomes of a batch. Each one passes these stages, one after another:
 *
 *   queued     planned, and given to a worker that is at others still
 *   fetch      its samples are read and made
 *   collate    they become a batch; nothing where rows are gathered as they are read
 *   handover   it is made, and the daemon has not looked yet
 *   ready      it waits for those before it, or for its client to give others back
 *   held       its client has it, and has not asked for the next one
 *
 * The first four are the loader's, and a trainer waits for their sum only where nothing is loaded
 * ahead of it. Pure.
 */
#ifndef DL_STAGE_H
#define DL_STAGE_H

#include "proto/common/base.h"

enum stage {
    STAGE_QUEUED,
    STAGE_FETCH,
    STAGE_COLLATE,
    STAGE_HANDOVER,
    STAGE_READY,
    STAGE_HELD,
    STAGES
};

const char *stage_name(enum stage stage);

/* The stage of that name; STAGES: there is none. */
enum stage stage_of(const char *name);

#endif
