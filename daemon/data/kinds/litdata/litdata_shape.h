/*
 * How the leaves of litData's samples are nested: data_spec of index.json, in the JSON of PyTorch's
 * pytrees. Dicts, lists and tuples are known. Pure but for memory.
 */
#ifndef DL_DATA_LITDATA_SHAPE_H
#define DL_DATA_LITDATA_SHAPE_H

#include "proto/common/error.h"
#include "proto/tree.h"

#define LITDATA_NO_LEAF UINT32_MAX

/* In preorder: a container is followed by its children. */
struct litdata_node {
    enum tree_kind kind; /* of a container */
    char *key;           /* owned; below a dict, else NULL */
    uint32_t leaf;       /* which of the sample's leaves it is; LITDATA_NO_LEAF: a container */
    uint32_t children;
    uint32_t span; /* nodes, with all below it */
};

struct litdata_shape {          /* all zero is empty */
    struct litdata_node *nodes; /* owned */
    uint32_t n, room;
    uint32_t leaves;
};

/*
 * Parses `text`, the string that data_spec is. `path` is index.json's. -EINVAL with `err`: damaged,
 * nested too deeply, or with unknown containers; -ENOMEM.
 */
int _nodiscard_ litdata_shape_parse(const char *text, const char *path, struct litdata_shape *ret,
                                    struct dl_error *err);
void litdata_shape_deinit(struct litdata_shape *shape); /* zeroes it; a zeroed one is fine */

#endif
