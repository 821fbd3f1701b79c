#include "daemon/data/kinds/arrays/stored.h"

#include "proto/dtype.h"

/* A walk through the elements of an array, in a tensor's order. */
struct stored_walk {
    const struct stored *stored;
    size_t element; /* bytes */
    size_t swapped; /* size of the numbers whose bytes are reversed: a complex number has two */
    uint64_t step[TREE_DIMS]; /* bytes from one place of a dimension to the next */
    uint8_t *to;
    bool is_empty; /* one dimension is 0 */
};

static void stored_begin(struct stored_walk *walk, const struct stored *stored)
{
    bool is_complex = stored->dtype == DL_DTYPE_COMPLEX64 || stored->dtype == DL_DTYPE_COMPLEX128;
    uint64_t step = dtype_bytes(stored->dtype);

    *walk = (struct stored_walk){.stored = stored, .element = step, .to = walk->to};
    walk->swapped = !stored->order.swapped ? 0 : is_complex ? step / 2 : step;
    for (uint32_t i = 0; i < stored->ndim; i++) {
        uint32_t d = stored->order.fortran ? i : stored->ndim - 1 - i;
        walk->step[d] = step;
        step *= stored->shape[d];
        walk->is_empty = walk->is_empty || stored->shape[d] == 0;
    }
}

static void stored_take(struct stored_walk *walk, const uint8_t *from)
{
    memcpy(walk->to, from, walk->element);
    for (size_t at = 0; walk->swapped && at < walk->element; at += walk->swapped) {
        for (size_t i = 0; i < walk->swapped; i++)
            walk->to[at + i] = from[at + walk->swapped - 1 - i];
    }
    walk->to += walk->element;
}

/* From dimension `d` on. */
static void stored_walk(struct stored_walk *walk, uint32_t d, const uint8_t *from)
{
    if (d == walk->stored->ndim) {
        stored_take(walk, from);
        return;
    }
    for (uint64_t i = 0; i < walk->stored->shape[d]; i++)
        stored_walk(walk, d + 1, from + i * walk->step[d]);
}

void stored_copy(const struct stored *stored, uint8_t *out)
{
    struct stored_walk walk;

    walk.to = out;
    stored_begin(&walk, stored);
    if (!walk.is_empty)
        stored_walk(&walk, 0, stored->data);
}

void stored_copy_row(const struct stored *stored, uint64_t row, uint8_t *out)
{
    struct stored_walk walk;

    walk.to = out;
    stored_begin(&walk, stored);
    if (!walk.is_empty)
        stored_walk(&walk, 1, stored->data + row * walk.step[0]);
}
