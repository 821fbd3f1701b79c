/*
 * The nodes of a state as bytes. Up to format 3 each is an array: id, life, rank, local, flags,
 * name. From RDZV_COLUMNS on all are six columns, in the order of ranks, then of names:
 *
 *   ids                           one text of bytes, eight of each node, the first byte counts most
 *   lives, ranks, locals, flags   runs: how many nodes, and the number of the first of them. In the
 *                                 next it is the same; of ranks one more. No rank is 0, the first 1
 *   names                         of each node: how many bytes its name begins with that the one
 *                                 before it has, too, and the rest
 *
 * So a node of many takes half the bytes. Pure.
 */
#ifndef DL_RENDEZVOUS_NODES_H
#define DL_RENDEZVOUS_NODES_H

#include "daemon/cluster/rendezvous/rendezvous_bytes.h"
#include "daemon/cluster/rendezvous/rendezvous_state.h"

/* Appends those of the state, as `format` has them. */
void rdzv_nodes_pack(const struct rdzv_state *state, uint32_t format, struct dl_buffer *out);
/* Into a state that has none, by id, each once; of that format. */
void rdzv_nodes_unpack(struct rdzv_reader *in, uint32_t format, struct rdzv_state *ret);

#endif
