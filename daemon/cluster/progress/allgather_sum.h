/*
 * What the nodes of a round have said, as one text, so that a node reads that and not one value of
 * each. In it is each value once, with the places of the nodes that have said it: where nodes say
 * the same, as in lock step, it hardly grows with their number. Pure.
 *
 *   round 3 of 00c2f1e08a5d7b46     the round, and a checksum of the ids of its nodes
 *   11 0-4,6                        bytes of a value, and who has said it
 *   1
 *   at 0 0 6:12                     those bytes
 */
#ifndef DL_ALLGATHER_SUM_H
#define DL_ALLGATHER_SUM_H

#include "daemon/cluster/progress/allgather.h"

uint64_t allgather_sum_checksum(const struct allgather_node *nodes, uint32_t n);

/* The values that are not empty, of `n` nodes. */
void allgather_sum_write(uint64_t round, uint64_t checksum, const struct dl_buffer *values,
                         uint32_t n, struct dl_buffer *out);

/* What lies in the store: no sum; one of an earlier round, or of that number, but of other nodes;
 * one of this round; or of a later one. */
enum allgather_sum_age {
    ALLGATHER_SUM_NONE,
    ALLGATHER_SUM_OLD,
    ALLGATHER_SUM_NOW,
    ALLGATHER_SUM_LATER
};
/* NOW: into those of the values that are empty goes what it says, as far as it can be read. */
enum allgather_sum_age allgather_sum_read(struct dl_span text, uint64_t round, uint64_t checksum,
                                          struct dl_buffer *values, uint32_t n);

#endif
