/* A set of steps: held.h. */
#include "client/held.h"

#include <assert.h>
#include <errno.h>

enum { PLACES_MIN = 16 };

/* Where the search for `step` begins: the upper half of a product by 2^64 over the golden ratio. */
static size_t home(const struct held *held, uint64_t step)
{
    return (size_t)(step * 0x9E3779B97F4A7C15U >> 32) & (held->cap - 1);
}

/* The step's place, or the free one where it would stand. */
static size_t find(const struct held *held, uint64_t step)
{
    size_t at = home(held, step);

    while (held->places[at] != 0 && held->places[at] != step + 1)
        at = (at + 1) & (held->cap - 1);
    return at;
}

bool held_has(const struct held *held, uint64_t step)
{
    return held->cap > 0 && held->places[find(held, step)] != 0;
}

static int grow(struct held *held)
{
    struct held grown = {.count = held->count, .cap = held->cap ? held->cap * 2 : PLACES_MIN};

    grown.places = calloc(grown.cap, sizeof *grown.places);
    if (!grown.places)
        return -ENOMEM;
    for (size_t i = 0; i < held->cap; i++)
        if (held->places[i] != 0)
            grown.places[find(&grown, held->places[i] - 1)] = held->places[i];
    free(held->places);
    *held = grown;
    return 0;
}

int held_add(struct held *held, uint64_t step)
{
    assert(step < UINT64_MAX && !held_has(held, step));
    if (held->count >= held->cap / 2 && grow(held) < 0)
        return -ENOMEM;
    held->places[find(held, step)] = step + 1;
    held->count++;
    return 0;
}

void held_remove(struct held *held, uint64_t step)
{
    size_t mask = held->cap - 1, hole, at;

    if (!held_has(held, step))
        return;
    hole = find(held, step);
    held->count--;
    /* Those behind that would no longer be found across the hole move into it. */
    for (at = (hole + 1) & mask; held->places[at] != 0; at = (at + 1) & mask) {
        size_t from = home(held, held->places[at] - 1);

        if (((at - from) & mask) < ((at - hole) & mask))
            continue;
        held->places[hole] = held->places[at];
        hole = at;
    }
    held->places[hole] = 0;
}

void held_deinit(struct held *held)
{
    free(held->places);
    *held = (struct held){0};
}
