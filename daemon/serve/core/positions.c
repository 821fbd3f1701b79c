#include "daemon/serve/core/positions.h"

#include "daemon/serve/base/memory.h"

#include <stdlib.h>
#include <string.h>

void positions_deinit(struct positions *positions)
{
    free(positions->all);
    *positions = (struct positions){0};
}

static struct position *find(const struct positions *positions, const char *job, uint64_t rank,
                             uint64_t world)
{
    for (uint32_t i = 0; i < positions->count; i++) {
        struct position *at = &positions->all[i];

        if (at->rank == rank && at->world == world && strcmp(at->job, job) == 0)
            return at;
    }
    return NULL;
}

const struct position *positions_find(const struct positions *positions, const char *job,
                                      uint64_t rank, uint64_t world)
{
    return find(positions, job, rank, world);
}

static struct position *oldest(const struct positions *positions)
{
    struct position *found = &positions->all[0];

    for (uint32_t i = 1; i < positions->count; i++)
        if (positions->all[i].noted < found->noted)
            found = &positions->all[i];
    return found;
}

static struct position *add(struct positions *positions)
{
    if (positions->count == POSITIONS_MAX)
        return oldest(positions);
    if (positions->count == positions->cap) {
        uint32_t cap = positions->cap ? positions->cap * 2 : 8;
        struct position *grown = must_alloc(cap * sizeof *grown);

        if (positions->count > 0)
            memcpy(grown, positions->all, positions->count * sizeof *grown);
        free(positions->all);
        positions->all = grown;
        positions->cap = cap;
    }
    return &positions->all[positions->count++];
}

/* The entry, new if need be: then `lost` is false and the rest is for the caller. */
static struct position *need(struct positions *positions, const char *job, uint64_t rank,
                             uint64_t world)
{
    struct position *at = find(positions, job, rank, world);

    if (!at) {
        at = add(positions);
        *at = (struct position){.rank = rank, .world = world};
        strncpy(at->job, job, sizeof at->job - 1);
    }
    at->noted = ++positions->notes;
    return at;
}

void positions_set(struct positions *positions, const char *job, uint64_t rank, uint64_t world,
                   uint64_t epoch, uint64_t step)
{
    struct position *at = need(positions, job, rank, world);

    at->epoch = epoch;
    at->step = step;
    at->lost = false;
}

void positions_lose(struct positions *positions, const char *job, uint64_t rank, uint64_t world,
                    uint64_t epoch, uint64_t step, bool done)
{
    struct position *at = need(positions, job, rank, world);
    bool earlier = epoch < at->epoch || (epoch == at->epoch && step < at->step);

    /* What is done is only where it goes on if nothing else was being read. */
    if ((at->lost && (done || !earlier)) || (done && at->epoch > epoch))
        return;
    at->epoch = done ? epoch + 1 : epoch;
    at->step = done ? 0 : step;
    at->lost = !done;
}

void positions_forget(struct positions *positions, const char *job, uint64_t rank, uint64_t world)
{
    struct position *at = find(positions, job, rank, world);

    if (at)
        *at = positions->all[--positions->count];
}
