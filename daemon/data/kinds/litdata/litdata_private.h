/* Between opening a litData dataset and reading it. */
#ifndef DL_DATA_LITDATA_PRIVATE_H
#define DL_DATA_LITDATA_PRIVATE_H

#include "daemon/data/kinds/litdata/litdata.h"
#include "daemon/data/kinds/litdata/litdata_index.h"

struct litdata {
    struct dataset base;
    char *root;                   /* owned; the directory */
    struct litdata_index index;   /* owned */
    struct litdata_value *values; /* owned; of the current sample, for each leaf */
    uint8_t *item;                /* owned; which lies in it, if items are compressed; or NULL */
    uint32_t *chosen;             /* owned; the node of each field, fields.choice.n of them */
    uint32_t *order;              /* owned; of samples of one shape: the leaf of each tensor */
    struct fields fields;         /* owned */
    uint64_t block_bytes;         /* of a sample that is a block of tokens; 0: it is an item */
};

static inline uint32_t litdata_fields(const struct litdata *lit)
{
    return lit->fields.choice.n > 0 ? lit->fields.choice.n : 1;
}

/* The node of field `i` of a sample, and its name there; the root, if no fields are chosen. */
static inline uint32_t litdata_field(const struct litdata *lit, uint32_t i, const char **ret_name)
{
    *ret_name = lit->fields.choice.n > 0 ? lit->fields.choice.fields[i].name : NULL;
    return lit->fields.choice.n > 0 ? lit->chosen[i] : 0;
}

extern const struct dataset_ops litdata_ops;
extern const struct dataset_ops litdata_rows_ops; /* of samples of one shape */

#endif
