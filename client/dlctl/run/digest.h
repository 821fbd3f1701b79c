/*
 * One XXH3-64 over all batch contents in order: equal digests mean equal batches, byte by byte, in
 * an equal order, whether a daemon or dlctl loaded them.
 *
 * The hash is fed, for each batch, all integers in the machine's byte order:
 *   u64 step, u64 samples, u64 × samples indices, u64 nodes, and for each node in preorder
 *   u32 kind, u32 children, u32 key bytes, u32 dtype, u32 dimensions, the key, u64 × dimensions
 *   shape, u64 bytes, the leaf's bytes (no dtype, shape or bytes but zeros for a container; of
 *   text no dtype, and a list of n strings has the one dimension n and for its bytes n + 1 numbers
 *   u64, where they begin and end after these numbers, then the strings).
 * Counts precede what they count, so that no two different batches feed the same bytes.
 */
#ifndef DLCTL_DIGEST_H
#define DLCTL_DIGEST_H

#include "proto/common/base.h"

enum { DIGEST_DIMS = 8, DIGEST_TEXT = 17 };

/* A tree node as both the client library and a slot can show it. Pointers are borrowed. */
struct digest_node {
    uint32_t kind; /* 1 tensor, 2 dict, 3 list, 4 tuple, 5 string, 6 bytes, 7 object */
    uint32_t children;
    uint32_t key_len; /* 0 unless the child of a dict */
    const char *key;
    uint32_t dtype;
    uint32_t ndim; /* ≤ DIGEST_DIMS */
    const uint64_t *shape;
    const void *data;
    uint64_t nbytes;
};

struct digest;

int _nodiscard_ digest_new(struct digest **ret);   /* 0 or -ENOMEM */
struct digest *digest_free(struct digest *digest); /* NULL is fine; returns NULL */

/* Begins a batch; then exactly `nodes` calls of digest_node(). */
void digest_batch(struct digest *digest, uint64_t step, const uint64_t *indices, size_t samples,
                  uint64_t nodes);
void digest_node(struct digest *digest, const struct digest_node *node);

/* 16 hex digits and a NUL, of all so far. */
void digest_text(const struct digest *digest, char ret[DIGEST_TEXT]);

#endif
