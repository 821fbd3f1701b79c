/*
 * The batch image in a slot: header | indices | tree | leaves, each part 64-byte aligned, what lies
 * between them zeroed. The same bytes as daemon/data/fetch.h makes.
 */
#ifndef DL_WORKER_IMAGE_H
#define DL_WORKER_IMAGE_H

#include "proto/segment_layout.h"
#include "proto/tree.h"

/* What stands in the header before the fill; each field of the shared memory is read once. */
struct task {
    const uint64_t *indices; /* in the slot */
    uint64_t samples;
    uint64_t epoch;
    uint64_t step;
    uint64_t settled;
    uint32_t stream;
    uint32_t rank;
    uint32_t world;
    bool unbatched;
};

/* False when the header is damaged, or the slot has no room for the indices. */
bool _nodiscard_ image_read_task(const void *slot, uint64_t slot_bytes, struct task *ret);

/* Where indices end; the tree begins behind that. */
static inline uint64_t image_indices_end(uint64_t samples)
{
    return SLOT_HEADER_BYTES + samples * sizeof(uint64_t);
}

/* An image under way: where the next leaf goes. */
struct image {
    uint64_t tree_off;
    uint64_t data_off;
    uint64_t used; /* end of the last leaf */
};

/* Begins behind the indices, with room for the tree, whose nodes are all there. */
struct image image_begin(uint64_t samples, const struct tree *tree);

/* Gives node->nbytes a place: sets node->offset. False: more than a segment can have. */
bool _nodiscard_ image_place(struct image *image, struct tree_node *node);

/* Writes tree and header, and zeroes what no leaf covers. `samples` for the header. */
void image_finish(const struct image *image, const struct tree *tree, uint64_t indices,
                  uint64_t samples, void *slot);

#endif
