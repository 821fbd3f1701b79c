/*
 * Where an epoch's stream is, and what becomes of that: one row for each phase, for whatever
 * happens to daemons, worlds and weights. What is not in the table must not happen.
 */
#include "client/core/core.h"

#include <assert.h>

#define NO (-1)

static const struct {
    struct epoch_rules rules;
    int after[EPOCH_EVENTS]; /* ENDED, LOST, TAKEN_UP, REFUSED, DROPPED, ANEW */
} phase_table[] = {
    [EPOCH_RUNNING] = {{false, true, true},
                       {EPOCH_OVER, EPOCH_AWAY, NO, NO, EPOCH_LEFT, EPOCH_RUNNING}},
    [EPOCH_AWAY] = {{false, false, false},
                    {EPOCH_LEFT, EPOCH_AWAY, EPOCH_RUNNING, NO, EPOCH_LEFT, EPOCH_RUNNING}},
    [EPOCH_OVER] = {{true, true, false},
                    {EPOCH_OVER, EPOCH_LEFT, NO, NO, EPOCH_LEFT, EPOCH_RUNNING}},
    [EPOCH_ENDING] = {{true, true, true},
                      {EPOCH_OVER, EPOCH_LEFT, NO, NO, EPOCH_LEFT, EPOCH_RUNNING}},
    [EPOCH_LEFT] = {{true, false, false},
                    {EPOCH_LEFT, EPOCH_LEFT, EPOCH_ENDING, EPOCH_UNWANTED, EPOCH_LEFT,
                     EPOCH_RUNNING}},
    [EPOCH_UNWANTED] = {{true, false, false},
                        {EPOCH_LEFT, EPOCH_LEFT, NO, NO, EPOCH_LEFT, EPOCH_RUNNING}},
};

const struct epoch_rules *epoch_rules_of(const struct dl_epoch *epoch)
{
    return &phase_table[epoch->phase].rules;
}

void epoch_apply(struct dl_epoch *epoch, enum epoch_event event)
{
    int after = phase_table[epoch->phase].after[event];

    assert(after != NO);
    epoch->phase = (enum epoch_phase)after;
}
