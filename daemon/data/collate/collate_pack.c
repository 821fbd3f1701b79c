/*
 * Packing: samples into rows, as the plan has chosen them. Nothing is chosen here; samples of a row
 * stand one after another, in the batch's order, and the rest of the row is filled.
 */
#include "daemon/data/collate/collate_batch.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

/* ---- what can be packed --------------------------------------------------------------------- */

static int collate_pack_check_rows(const struct collate *c, struct dl_error *err)
{
    const struct planned *planned = c->planned;
    uint64_t tokens;
    size_t sample = 0;

    if (!planned || planned->rows == 0)
        return dl_error_set(err, EINVAL, "collate",
                            "no rows are planned for this batch; packing needs batch.tokens");
    if (mul_overflows(planned->rows, c->length, &tokens) || tokens > INT32_MAX)
        return dl_error_set(err, EFBIG, "collate",
                            "%" PRIu32 " rows of %" PRIu64
                            " have more tokens than int32 counts; choose fewer batch.tokens",
                            planned->rows, c->length);
    for (uint32_t row = 0; row < planned->rows; row++) {
        uint64_t in_row = 0;
        for (uint32_t k = 0; k < planned->in_row[row]; k++)
            in_row += planned->lengths[sample++];
        if (in_row > c->length)
            return dl_error_set(err, EINVAL, "collate",
                                "%" PRIu64 " tokens are planned for a row of %" PRIu64, in_row,
                                c->length);
    }
    return 0;
}

/* A packed leaf has the sample's own length. */
static int collate_pack_check_leaf(const struct collate *c, size_t l, size_t i,
                                   struct dl_error *err)
{
    uint64_t extent = c->sources[l * c->width + i].extent;
    char path[COLLATE_WORDS];

    if (extent == c->planned->lengths[i])
        return 0;
    collate_path(&c->samples[0].tree, c->leaves[l].node, path, sizeof path);
    return dl_error_set(err, EINVAL, "collate",
                        "sample %" PRIu64 " has %" PRIu32 " tokens, but %" PRIu64
                        " elements%s%s; packed leaves need one length: name the leaves to pack "
                        "in collate.fields",
                        c->numbers[i], c->planned->lengths[i], extent, path[0] ? " at " : "", path);
}

int collate_check_packed(struct collate *c, size_t *ret_bad, struct dl_error *err)
{
    *ret_bad = SIZE_MAX;
    int r = collate_pack_check_rows(c, err);
    if (r < 0)
        return r;
    *ret_bad = 0;
    if (!collate_length_leaf(&c->samples[0].tree, c->length_of, &c->length_leaf))
        return dl_error_set(
            err, EINVAL, "collate", "sample %" PRIu64 " has no leaf with a dimension%s%s to pack",
            c->numbers[0], c->length_of ? " at " : "", c->length_of ? c->length_of : "");
    for (size_t l = 0; l < c->n_leaves && r == 0; l++) {
        c->leaves[l].length = c->length;
        for (size_t i = 0; i < c->n && r == 0 && c->leaves[l].padded; i++) {
            *ret_bad = i;
            r = collate_pack_check_leaf(c, l, i, err);
        }
    }
    return r;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* A walk over the samples, row by row. */
struct place {
    uint64_t row;     /* which of the rows, laid end to end, this is, in tokens: where it begins */
    uint64_t at;      /* in the row */
    uint32_t length;  /* of the sample; 0: the rest is padding, `rest` tokens */
    uint32_t segment; /* of the row, from 1 */
    uint64_t rest;
    size_t sample; /* the next one */
    uint32_t next_row;
    uint32_t left; /* samples of the row that are to come */
};

/* The next sample, or the padding of a row that has some. False: all rows are done. */
static bool collate_pack_next(const struct collate *c, struct place *p)
{
    const struct planned *planned = c->planned;

    p->at += p->length;
    if (p->left == 0 && p->length > 0 && p->at < c->length) {
        p->length = 0;
        p->rest = c->length - p->at;
        return true;
    }
    if (p->left == 0) {
        if (p->next_row == planned->rows)
            return false;
        p->row = p->next_row * c->length;
        p->left = planned->in_row[p->next_row++];
        p->at = 0;
        p->segment = 0;
    }
    p->length = planned->lengths[p->sample++];
    p->left--;
    p->segment++;
    return true;
}

uint64_t collate_bounds(const struct collate *c)
{
    uint64_t n = 1;

    for (struct place p = {0}; collate_pack_next(c, &p);)
        n++;
    return n;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void collate_pack_write_values(const struct collate *c, uint32_t l, char *out)
{
    const struct tree_node *like = c->leaves[l].like;
    const struct collate_source *sources = &c->sources[l * c->width];
    size_t size = dtype_bytes(like->dtype);
    uint8_t element[COLLATE_ELEMENT];
    uint64_t token = 0;
    bool ok;

    ok = tensor_bytes(like->dtype, like->ndim - 1U, like->shape + 1, &token) &&
         collate_element(c->value, like->dtype, element) == 0;
    assert(ok);
    for (struct place p = {0}; token > 0 && collate_pack_next(c, &p);) {
        char *to = out + (p.row + p.at) * token;
        if (p.length > 0)
            memcpy(to, sources[p.sample - 1].data, p.length * token);
        else
            collate_fill(to, p.rest * token, element, size);
    }
}

static void collate_pack_write_segments(const struct collate *c, int32_t *out)
{
    for (struct place p = {0}; collate_pack_next(c, &p);) {
        uint64_t n = p.length > 0 ? p.length : p.rest;
        int32_t id = p.length > 0 ? (int32_t)p.segment : 0;
        for (uint64_t i = 0; i < n; i++)
            out[p.row + p.at + i] = id;
    }
}

static void collate_pack_write_positions(const struct collate *c, int32_t *out)
{
    for (struct place p = {0}; collate_pack_next(c, &p);) {
        for (uint32_t i = 0; i < p.length; i++)
            out[p.row + p.at + i] = (int32_t)i;
        if (p.length == 0)
            memset(out + p.row + p.at, 0, p.rest * sizeof *out);
    }
}

/* The beginning of each part but a sample's first. */
static void collate_pack_write_context(const struct collate *c, uint8_t *out)
{
    const uint32_t *begins = c->planned->begins;

    for (struct place p = {0}; collate_pack_next(c, &p);) {
        uint64_t n = p.length > 0 ? p.length : p.rest;
        bool follows = p.length > 0 && begins && begins[p.sample - 1] > 0;

        memset(out + p.row + p.at, 0, n);
        memset(out + p.row + p.at, 1, follows ? min_u64(c->overlap, n) : 0);
    }
}

static void collate_pack_write_bounds(const struct collate *c, int32_t *out)
{
    for (struct place p = {0}; collate_pack_next(c, &p);)
        *out++ = (int32_t)(p.row + p.at);
    *out = (int32_t)(c->planned->rows * c->length);
}

/* Padding counts: kernels compute nothing beyond this length. */
static int32_t collate_pack_longest(const struct collate *c)
{
    uint64_t most = 0;

    for (struct place p = {0}; collate_pack_next(c, &p);)
        most = max_u64(most, p.length > 0 ? p.length : p.rest);
    return (int32_t)most;
}

void collate_write_packed(const struct collate *c, const struct collate_part *part, void *out)
{
    switch (part->op) {
    case OP_PACK:
        collate_pack_write_values(c, part->leaf, out);
        break;
    case OP_SEGMENTS:
        collate_pack_write_segments(c, out);
        break;
    case OP_POSITIONS:
        collate_pack_write_positions(c, out);
        break;
    case OP_BOUNDS:
        collate_pack_write_bounds(c, out);
        break;
    case OP_CONTEXT:
        collate_pack_write_context(c, out);
        break;
    case OP_LONGEST:
        *(int32_t *)out = collate_pack_longest(c);
        break;
    default:
        break;
    }
}
