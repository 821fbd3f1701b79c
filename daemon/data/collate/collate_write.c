/* The bytes of a batch: each leaf's sources are copied to where they stay. */
#include "daemon/data/collate/collate_batch.h"

#include <assert.h>

/* One leaf being written. */
struct target {
    const struct collate *c;
    const struct collate_leaf *leaf;
    const struct collate_source *sources;
    char *out;
};

static void collate_write_copy(char *out, const void *data, size_t bytes)
{
    if (bytes > 0)
        memcpy(out, data, bytes);
}

/* `bytes` is a constant for each caller: a copy of a number is then an instruction. */
static inline void collate_write_stack(const struct target *t, size_t bytes)
{
    char *out = t->out;

    for (size_t i = 0; i < t->c->width; i++, out += bytes)
        collate_write_copy(out, t->sources[i].data, bytes);
}

static void collate_write_write_stack(const struct target *t)
{
    size_t bytes = t->leaf->like->nbytes;

    if (bytes == sizeof(uint64_t))
        collate_write_stack(t, sizeof(uint64_t));
    else if (bytes == sizeof(uint32_t))
        collate_write_stack(t, sizeof(uint32_t));
    else if (bytes == 1)
        collate_write_stack(t, 1);
    else
        collate_write_stack(t, bytes);
}

void collate_fill(char *out, size_t bytes, const uint8_t *element, size_t size)
{
    size_t done = min_u64(size, bytes);

    if (memcmp(element, element + 1, size - 1) == 0) {
        memset(out, element[0], bytes);
        return;
    }
    collate_write_copy(out, element, done);
    for (size_t more; done < bytes; done += more) {
        more = min_u64(done, bytes - done);
        memcpy(out + done, out, more);
    }
}

static void collate_write_padded(const struct target *t)
{
    const struct tree_node *like = t->leaf->like;
    uint8_t element[COLLATE_ELEMENT];
    uint64_t row = 0, whole;
    char *out = t->out;
    bool ok;

    ok = tensor_bytes(like->dtype, like->ndim - 1U, like->shape + 1, &row) &&
         collate_element(t->c->value, like->dtype, element) == 0;
    assert(ok);
    whole = t->leaf->length * row;
    for (size_t i = 0; i < t->c->width; i++, out += whole) {
        size_t bytes = t->sources[i].extent * row, rest = whole - bytes;
        bool left = t->c->side == PAD_LEFT;
        collate_write_copy(left ? out + rest : out, t->sources[i].data, bytes);
        collate_fill(left ? out : out + bytes, rest, element, dtype_bytes(like->dtype));
    }
}

static void collate_write_lengths(const struct target *t)
{
    int64_t *out = (int64_t *)(void *)t->out;

    for (size_t i = 0; i < t->c->width; i++)
        out[i] = (int64_t)t->sources[i].extent;
}

static void collate_write_mask(const struct target *t)
{
    uint64_t length = t->leaf->length;
    char *out = t->out;

    for (size_t i = 0; i < t->c->width; i++, out += length) {
        size_t data = t->sources[i].extent, rest = length - data;
        bool left = t->c->side == PAD_LEFT;
        memset(left ? out + rest : out, 1, data);
        memset(left ? out : out + data, 0, rest);
    }
}

static void collate_write_texts(const struct target *t)
{
    uint64_t *ends = (uint64_t *)(void *)t->out, end = 0;
    char *text = t->out + (t->c->width + 1) * sizeof *ends;

    for (size_t i = 0; i < t->c->width; i++) {
        ends[i] = end;
        collate_write_copy(text + end, t->sources[i].data, t->sources[i].extent);
        end += t->sources[i].extent;
    }
    ends[t->c->width] = end;
}

static void collate_write_leaf(const struct target *t, const struct collate_part *part)
{
    switch (part->op) {
    case OP_NONE:
        break;
    case OP_STACK:
        collate_write_write_stack(t);
        break;
    case OP_PAD:
        collate_write_padded(t);
        break;
    case OP_LENGTHS:
        collate_write_lengths(t);
        break;
    case OP_MASK:
        collate_write_mask(t);
        break;
    case OP_TEXTS:
        collate_write_texts(t);
        break;
    case OP_PACK:
    case OP_SEGMENTS:
    case OP_POSITIONS:
    case OP_BOUNDS:
    case OP_LONGEST:
    case OP_CONTEXT:
        collate_write_packed(t->c, part, t->out);
        break;
    }
}

void collate_write(struct collate *c, void *slot)
{
    char *out = slot;

    assert((uintptr_t)slot % TREE_ALIGN == 0);
    batch_layout_zero_gaps(&c->layout, c->tree.nodes, slot);
    tree_encode(&c->tree, out + c->layout.tree_off);
    for (uint32_t i = 0; i < c->tree.count; i++) {
        const struct tree_node *node = &c->tree.nodes[i];
        const struct collate_part *part = &c->parts[i];
        if (part->op == OP_NONE)
            continue;
        collate_write_leaf(&(struct target){.c = c,
                                            .leaf = &c->leaves[part->leaf],
                                            .sources = &c->sources[part->leaf * c->width],
                                            .out = out + node->offset},
                           part);
    }
}
