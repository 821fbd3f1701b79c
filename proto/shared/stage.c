#include "proto/shared/stage.h"

static const char *const names[] = {"queued", "fetch", "collate", "handover", "ready", "held"};

const char *stage_name(enum stage stage)
{
    return names[stage];
}

enum stage stage_of(const char *name)
{
    int stage = 0;

    while (stage < STAGES && strcmp(name, names[stage]) != 0)
        stage++;
    return (enum stage)stage;
}
