/*
 * Inside collate: the batch that is being made, which collate_match.c, collate_layout.c and
 * collate_write.c work on in turn. For collate*.c, and for lengths.c, which finds leaves and names
 * them as they do.
 *
 *   match   which leaves the batch has, and where each sample has its bytes
 *   layout  the batch's tree, and where in the slot each leaf lies
 *   write   the bytes
 */
#ifndef DL_COLLATE_BATCH_H
#define DL_COLLATE_BATCH_H

#include "daemon/data/collate/collate.h"

/* Where one sample has the bytes of a leaf. */
struct collate_source {
    const void *data; /* borrowed from the sample; may be NULL if empty */
    uint64_t extent;  /* a tensor's first dimension (1 without any), a text's bytes */
};

/* A leaf of the sample whose tree the batch gets; leaf l has sources[l · width] and on. */
struct collate_leaf {
    uint32_t node;                /* in that sample */
    bool padded;                  /* or packed: its first dimension is not the samples' own */
    const struct tree_node *like; /* that node; borrowed from the sample */
    uint64_t length;              /* padded: first dimension of the result, or of a row */
};

enum collate_op {
    OP_NONE = 0, /* a container */
    OP_STACK,    /* the sources' bytes, one after another */
    OP_PAD,
    OP_LENGTHS, /* of a padded leaf */
    OP_MASK,    /* of a padded leaf */
    OP_TEXTS,   /* a list of strings */
    OP_PACK,
    OP_SEGMENTS, /* the tensors of a packed batch */
    OP_POSITIONS,
    OP_BOUNDS,
    OP_LONGEST,
    OP_CONTEXT, /* of parts that overlap */
};

/* How a node of the batch's tree is written. */
struct collate_part {
    enum collate_op op;
    uint32_t leaf;
};

enum {
    COLLATE_ELEMENT = 16, /* bytes of the largest dtype */
    COLLATE_WORDS = 256,  /* of a path, or of what a node is */
};

struct collate {
    enum collate_kind kind;
    enum pad_side side;
    uint64_t multiple_of; /* of the padded length; with to: bucket, of the interval, too */
    uint64_t length;      /* pad: the padded length, or 0; pack: of a row */
    bool cuts;            /* pack: a part of a sample may end anywhere in it */
    uint64_t overlap;     /* pack: tokens that a part of a sample has of the one before it */
    double value;
    char **fields; /* owned; NULL: all that have a dimension */
    uint32_t n_fields;
    char *length_of; /* owned; NULL: the first leaf with a dimension */
    bool batched;
    struct plugin_collate *plugin; /* owned; of kind plugin */
    struct arena arena;            /* of the batch that it makes */
    struct sample made;            /* owned; that batch */

    /* The current batch; the arrays keep their memory. */
    const struct sample *samples; /* borrowed from measure until write */
    const uint64_t *numbers;      /* borrowed during measure */
    size_t n;
    const struct planned *planned; /* borrowed likewise; may be NULL */
    uint32_t length_leaf;          /* pack: the first sample's node whose length counts */
    size_t width;                  /* sources of a leaf: n, or 1 where samples are not merged */
    struct collate_leaf *leaves;   /* owned */
    size_t n_leaves;
    size_t leaves_room;
    struct collate_source *sources; /* owned */
    size_t sources_room;
    struct tree tree;           /* owned; with offsets */
    struct collate_part *parts; /* owned; of each node of the tree */
    size_t parts_room;
    struct batch_layout layout;
};

static inline bool collate_is_leaf(const struct tree_node *node)
{
    return node->kind == TREE_TENSOR || node->kind == TREE_STRING || node->kind == TREE_BYTES;
}

/* The next sibling of a node. */
static inline uint32_t collate_skip(const struct tree *tree, uint32_t node)
{
    return (uint32_t)(tree_skip(&tree->nodes[node]) - tree->nodes);
}

/* ---- collate_match.c ------------------------------------------------------------------------ */

/* The leaves of one sample, appended with their sources: the samples are not merged. */
int _nodiscard_ collate_take(struct collate *c, const struct sample *sample, struct dl_error *err);

/* All samples against the first; *ret_bad as collate_measure(). */
int _nodiscard_ collate_match(struct collate *c, size_t *ret_bad, struct dl_error *err);

/* ---- collate_fields.c ----------------------------------------------------------------------- */

/* Finds the node at `path` below `node` ("image", "pair.0"). A key may contain dots. */
bool collate_find(const struct tree *tree, uint32_t node, const char *path, uint32_t *ret);

/* The leaf at a node of the first sample, which is a leaf. */
struct collate_leaf *collate_leaf_at(const struct collate *c, uint32_t node);

/* Marks the leaves to pad, when the first sample's leaves are known. */
int _nodiscard_ collate_choose_padded(struct collate *c, struct dl_error *err);

/* ---- collate_planned.c ---------------------------------------------------------------------- */

/* The leaf whose first dimension is a sample's length; `path` as dl_spec.batch.length_of. */
bool _nodiscard_ collate_length_leaf(const struct tree *tree, const char *path, uint32_t *ret);

/* ---- collate_pack.c ------------------------------------------------------------------------- */

/* Whether the samples can be packed as planned, once they are matched; *ret_bad as there. */
int _nodiscard_ collate_check_packed(struct collate *c, size_t *ret_bad, struct dl_error *err);

/* Entries of cu_seqlens. */
uint64_t collate_bounds(const struct collate *c);

/* Writes one packed leaf, or one of the tensors beside it, at `out`. */
void collate_write_packed(const struct collate *c, const struct collate_part *part, void *out);

/* ---- collate_write.c ------------------------------------------------------------------------ */

/* `bytes` of one element after another. */
void collate_fill(char *out, size_t bytes, const uint8_t *element, size_t size);

/* ---- collate_words.c ------------------------------------------------------------------------ */

/* Appends to the `len` bytes of `out` like snprintf(), cut to fit; returns the new length. */
size_t collate_say(char *out, size_t room, size_t len, const char *fmt, ...) _printf_(4, 5);

/* The path of a node of a sample ("pair.0"; "" is the root), cut to fit. Returns `out`. */
const char *collate_path(const struct tree *tree, uint32_t node, char *out, size_t room);

/* What a node is: "a list of 2", "int64 [3, 4]". Returns `out`. */
const char *collate_say_node(const struct tree_node *node, char *out, size_t room);

/* Where a sample differs from the first: "sample 7 has X, sample 0 has Y, at image; remedy". */
struct collate_difference {
    const struct collate *c;
    size_t sample;
    uint32_t node; /* of the first sample */
    const char *remedy;
};
int collate_refuse(const struct collate_difference *d, const char *has, const char *first,
                   struct dl_error *err);
int collate_refuse_node(const struct collate_difference *d, const struct tree_node *has,
                        struct dl_error *err);

/* ---- collate_layout.c ----------------------------------------------------------------------- */

int _nodiscard_ collate_lay_out(struct collate *c, struct dl_error *err);

/* ---- collate_value.c ------------------------------------------------------------------------ */

/* `value` as one element of `dtype`, dtype_bytes() long. -EINVAL if not representable. */
int _nodiscard_ collate_element(double value, uint32_t dtype, uint8_t *ret);

#endif
