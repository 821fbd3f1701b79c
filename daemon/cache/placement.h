/*
 * Which of several nodes keeps which blocks of remote objects, where each has room for a part:
 * rendezvous hashing. Of all nodes each draws a number for a block, by a hash, the better the more
 * room it has; the best one's node owns it. So each owns as large a part as its room is of all
 * room; who comes takes blocks of all others, and those of who goes fall to all that stay, and no
 * other block moves.
 *
 * By chance a node owns more than it has room for, while others own less. What has no room at its
 * first node is at the second best one, or the third: its chain. Who needs a block asks along it;
 * so much of all room is used that together they miss next to nothing of what is as large as it.
 *
 * A node keeps copies, too, of what others of the chain have, as long as nothing needs the room
 * that is not elsewhere: its disk keeps the blocks of the lowest order (block_shelf.h), and copies
 * come last.
 *
 * Blocks are known by a point, which is one for all nodes, and for all blocks of a group, which are
 * fetched together. Pure.
 */
#ifndef DL_PLACEMENT_H
#define DL_PLACEMENT_H

#include "proto/common/base.h"

#define PLACEMENT_NONE UINT32_MAX

enum {
    PLACEMENT_GROUP_BLOCKS = 16,
    PLACEMENT_NODES_MAX = 4096,
    PLACEMENT_CHAIN = 3,
};

struct placement_node {
    uint64_t id;   /* of a node; the same whenever it comes */
    uint64_t room; /* bytes; 0: it owns nothing */
};

struct placement {
    struct placement_node *nodes; /* owned */
    uint32_t n;
    uint32_t self; /* which of them this one is; PLACEMENT_NONE: none */
    double share;  /* of all blocks, that this one owns */
};

/* Copies the nodes. {0} is a placement without any. -ENOMEM, -EINVAL: too many. */
int _nodiscard_ placement_set(struct placement *placement, const struct placement_node *nodes,
                              uint32_t n, uint32_t self);
void placement_deinit(struct placement *placement);

uint32_t placement_point(const char *where, uint64_t block);

/* The node that owns it; PLACEMENT_NONE: none does. */
uint32_t placement_owner(const struct placement *placement, uint32_t point);

/* Where it may be: the node that owns it, and then others, in this order. How many they are. */
uint32_t placement_chain(const struct placement *placement, uint32_t point,
                         uint32_t ret[static PLACEMENT_CHAIN]);

/* Of the blocks of this node's disk, those that others look for here below the others: copies, and
 * what is not to be here. Each are even over their numbers. Without nodes it is the point. */
uint32_t placement_order(const struct placement *placement, uint32_t point, bool is_copy);
/* The greatest order of those that others look for here. */
uint32_t placement_first(const struct placement *placement);

#endif
