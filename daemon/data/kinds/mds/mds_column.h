/* The columns of an MDS dataset: how a value is stored, and what it becomes. Pure but for memory.
 */
#ifndef DL_DATA_MDS_COLUMN_H
#define DL_DATA_MDS_COLUMN_H

#include "daemon/data/field/field.h"

enum mds_encoding {
    MDS_BYTES,
    MDS_STRING, /* str_decimal too, whose numbers fit no other type */
    MDS_SCALAR,
    MDS_ARRAY,
    MDS_STRING_INT,
    MDS_STRING_FLOAT,
    MDS_IMAGE,
    MDS_PIXELS,
    MDS_JSON,
    MDS_PICKLE,
};

struct mds_column {
    char *name;     /* owned */
    char *encoding; /* owned; as it is written, "ndarray:int32:3,4" */
    enum mds_encoding sort;
    uint32_t size;  /* bytes of each value; 0: before them stands how many there are */
    uint32_t dtype; /* scalar, array; 0: of an array, each value's own */
    uint32_t ndim;  /* array; 0: each value's own shape */
    uint64_t shape[TREE_DIMS];
};

/* One value on its way into a sample. */
struct mds_value {
    const struct mds_column *column;
    const char *name; /* of the field in the sample */
    const uint8_t *data;
    uint64_t size;
};

/* Fills in the rest from `column->encoding`. -EINVAL with `err` naming `path` and the column: an
 * unknown encoding, or `size` does not match it. */
int _nodiscard_ mds_column_parse(struct mds_column *column, const char *path, struct dl_error *err);
void mds_column_deinit(struct mds_column *column);
/* Whether what its values become has a first dimension. */
bool mds_column_has_dimensions(const struct mds_column *column);
bool mds_columns_equal(const struct mds_column *a, const struct mds_column *b);

/*
 * Adds the value at the end of `ret`; what `decoding` does not decode stays bytes. 0; or a negative
 * errno with `err`, whose message continues the column's name: "is not UTF-8". Bytes, strings and
 * arrays lie where the value does.
 */
int _nodiscard_ mds_value_add(const struct mds_value *value, const struct decoding *decoding,
                              struct sample *ret, struct dl_error *err);

/* The first dimension of an array, or LENGTH_UNKNOWN (lengths.h): it is damaged, as mds_value_add()
 * will report, or too long. */
uint32_t mds_value_length(const struct mds_value *value);

/*
 * Where the values of a sample of `bytes` at `data` lie: ret[c].data and .size for each of `n`
 * columns. false: they are not as many bytes as there are.
 */
bool mds_columns_split(const struct mds_column *columns, uint32_t n, const uint8_t *data,
                       uint64_t bytes, struct mds_value *ret);

#endif
