#include "daemon/cache/placement.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int placement_set(struct placement *placement, const struct placement_node *nodes, uint32_t n,
                  uint32_t self)
{
    struct placement_node *copy = n > 0 ? malloc(n * sizeof *copy) : NULL;
    double room = 0;

    if (n > PLACEMENT_NODES_MAX || (self != PLACEMENT_NONE && self >= n)) {
        free(copy);
        return -EINVAL;
    }
    if (n > 0 && !copy)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = nodes[i];
        room += (double)nodes[i].room;
    }
    placement_deinit(placement);
    *placement = (struct placement){.nodes = copy, .n = n, .self = self};
    if (self != PLACEMENT_NONE && room > 0)
        placement->share = (double)nodes[self].room / room;
    return 0;
}

void placement_deinit(struct placement *placement)
{
    free(placement->nodes);
    *placement = (struct placement){.self = PLACEMENT_NONE};
}

uint32_t placement_point(const char *where, uint64_t block)
{
    return (uint32_t)(XXH3_64bits_withSeed(where, strlen(where), block / PLACEMENT_GROUP_BLOCKS) >>
                      32);
}

/* Exponentially distributed, with the room as the rate: the least of all is this node's as often as
 * its room is a share of all room. */
static double placement_draw(const struct placement_node *node, uint32_t point)
{
    uint64_t hash = XXH3_64bits_withSeed(&point, sizeof point, node->id);
    double even = ((double)(hash >> 11) + 1) / 9007199254740992.0; /* in (0, 1] */

    return -log(even) / (double)node->room;
}

uint32_t placement_chain(const struct placement *placement, uint32_t point,
                         uint32_t ret[static PLACEMENT_CHAIN])
{
    double draws[PLACEMENT_CHAIN];
    uint32_t n = 0;

    for (uint32_t i = 0; i < placement->n; i++) {
        if (placement->nodes[i].room == 0)
            continue;
        double draw = placement_draw(&placement->nodes[i], point);
        uint32_t at = n < PLACEMENT_CHAIN ? n++ : PLACEMENT_CHAIN;
        for (; at > 0 && draw < draws[at - 1]; at--) {
            if (at == PLACEMENT_CHAIN)
                continue;
            draws[at] = draws[at - 1];
            ret[at] = ret[at - 1];
        }
        if (at < PLACEMENT_CHAIN) {
            draws[at] = draw;
            ret[at] = i;
        }
    }
    return n;
}

uint32_t placement_owner(const struct placement *placement, uint32_t point)
{
    uint32_t chain[PLACEMENT_CHAIN];

    return placement_chain(placement, point, chain) > 0 ? chain[0] : PLACEMENT_NONE;
}

static bool placement_has_self(const struct placement *placement, uint32_t point)
{
    uint32_t chain[PLACEMENT_CHAIN], n = placement_chain(placement, point, chain);

    while (n > 0 && chain[n - 1] != placement->self)
        n--;
    return n > 0;
}

uint32_t placement_first(const struct placement *placement)
{
    double share = placement->share;

    return share <= 0 || share >= 1 ? UINT32_MAX : (uint32_t)(share * UINT32_MAX);
}

uint32_t placement_order(const struct placement *placement, uint32_t point, bool is_copy)
{
    double share = placement->share;

    if (share <= 0 || share >= 1)
        return point;
    if (!is_copy && placement_has_self(placement, point))
        return (uint32_t)(share * point);
    return (uint32_t)(share * UINT32_MAX + (1 - share) * point);
}
