#include "daemon/worker/python/image.h"

#include "proto/limits.h"

bool image_read_task(const void *slot, uint64_t slot_bytes, struct task *ret)
{
    const volatile struct slot_header *header = slot;
    uint64_t off;

    if (slot_bytes < SLOT_HEADER_BYTES)
        return false;
    off = header->indices_off;
    *ret = (struct task){.indices = (const void *)((const char *)slot + SLOT_HEADER_BYTES),
                         .samples = header->samples,
                         .epoch = header->epoch,
                         .step = header->step,
                         .settled = header->settled,
                         .stream = header->stream,
                         .rank = header->rank,
                         .world = header->world,
                         .unbatched = header->unbatched != 0};
    return ret->samples > 0 && off == SLOT_HEADER_BYTES &&
           image_indices_end(ret->samples) <= slot_bytes;
}

struct image image_begin(uint64_t samples, const struct tree *tree)
{
    struct image image = {.tree_off = align_up(image_indices_end(samples), TREE_ALIGN)};

    image.data_off = align_up(image.tree_off + tree_encoded_bytes(tree), TREE_ALIGN);
    image.used = image.tree_off + tree_encoded_bytes(tree);
    return image;
}

bool image_place(struct image *image, struct tree_node *node)
{
    uint64_t end;

    node->offset = align_up(image->used, TREE_ALIGN);
    if (add_overflows(node->offset, node->nbytes, &end) || end > DL_MAX_SEGMENT_BYTES)
        return false;
    image->used = end;
    return true;
}

static void zero(void *slot, uint64_t from, uint64_t to)
{
    memset((char *)slot + from, 0, to - from);
}

void image_finish(const struct image *image, const struct tree *tree, uint64_t indices,
                  uint64_t samples, void *slot)
{
    struct slot_header *header = slot;
    uint64_t tree_end = image->tree_off + tree_encoded_bytes(tree);

    zero(slot, image_indices_end(indices), image->tree_off);
    tree_encode(tree, (char *)slot + image->tree_off);
    zero(slot, tree_end, min_u64(image->data_off, max_u64(image->used, tree_end)));
    for (uint32_t i = 0; i < tree->count; i++) {
        uint64_t end = tree->nodes[i].offset + tree->nodes[i].nbytes;
        if (tree->nodes[i].offset && end < image->used)
            zero(slot, end, min_u64(align_up(end, TREE_ALIGN), image->used));
    }
    header->samples = (uint32_t)samples;
    header->tree_off = image->tree_off;
    header->tree_len = (uint32_t)tree_encoded_bytes(tree);
    header->tree_count = tree->count;
    header->data_off = image->data_off;
    header->used = image->used;
    header->error_code = 0;
    header->error_len = 0;
    header->error_off = 0;
    header->error_more = 0;
    header->error_index = UINT64_MAX;
}
