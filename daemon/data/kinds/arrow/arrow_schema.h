/*
 * The columns of an Arrow IPC file or stream, as its schema message describes them.
 * The tables' numbers are those of Arrow's format/Schema.fbs; the words are the columnar format's.
 */
#ifndef DL_DATA_ARROW_SCHEMA_H
#define DL_DATA_ARROW_SCHEMA_H

#include "daemon/data/kinds/arrow/flat.h"
#include "proto/common/error.h"
#include "proto/value.h"

enum arrow_sort {
    ARROW_OTHER, /* can be passed over, not read */
    ARROW_NULL,  /* only nulls, without a type: int32, as in Parquet */
    ARROW_NUMBER,
    ARROW_DECIMAL, /* of `dtype`, by dataset.types; 0: not set */
    ARROW_BOOL,    /* a bit each */
    ARROW_STRING,
    ARROW_BYTES,
    ARROW_FIXED_BYTES,
    ARROW_LIST,
    ARROW_FIXED_LIST,
    ARROW_STRUCT,
};

enum { ARROW_NONE = UINT32_MAX };

/*
 * A column, or what a list or a struct is made of. All stand in one array in preorder: the first
 * child of field i is i + 1, and behind it and all below it is i + span.
 */
struct arrow_field {
    char *name;       /* owned */
    const char *type; /* for people: "int64" */
    enum arrow_sort sort;
    uint32_t dtype;      /* ARROW_NUMBER, ARROW_DECIMAL, ARROW_BOOL, ARROW_NULL */
    int32_t scale;       /* ARROW_DECIMAL: divide the number by ten to this power */
    uint64_t width;      /* bytes of a number, of fixed bytes; elements of a fixed list */
    uint32_t n_children; /* direct ones */
    uint32_t span;
    uint32_t n_buffers; /* in a record batch */
    bool is_large;      /* offsets of 64 bits */
    bool is_view;       /* the batch has the number of its buffers */
    bool has_sizes;     /* a list with lengths beside its offsets, which are in any order */
    bool is_map;        /* a list of structs of a key and a value */
    bool is_fixed;      /* all values have one shape: rows can be copied */
    uint64_t row_bytes; /* is_fixed: of one value in a batch */
    /* Of a dictionary: record batches hold indices, the values lie elsewhere. */
    bool has_dictionary;
    int64_t dictionary;  /* its id */
    uint32_t index_type; /* dtype of the indices */
    /* From Hugging Face's features. */
    bool is_media;       /* bytes of a file, bare or in a struct of bytes and path */
    bool is_image;       /* the same: an encoded image */
    bool is_sound;       /* the same: a sound, which is decoded */
    bool is_rectangular; /* lists of lists that are an array */
    uint32_t slot;       /* in arrow_batch.columns; ARROW_NONE: no sample needs it */
};

struct arrow_schema {
    struct arrow_field *fields; /* owned */
    uint32_t n;
    uint32_t room;
    uint32_t n_slots;     /* given by arrow_schema_keep() */
    const char *features; /* borrowed from the message; JSON of Hugging Face's; may be NULL */
    uint32_t features_len;
};

/*
 * Takes the message's header `schema`. -EINVAL with `err` naming `path`: damaged, or an order of
 * bytes, or as many fields, as cannot be read; -ENOMEM.
 */
int _nodiscard_ arrow_schema_read(struct flat *flat, const struct flat_table *schema,
                                  const char *path, struct arrow_schema *ret, struct dl_error *err);
void arrow_schema_deinit(struct arrow_schema *schema);

/* Whether rows of field `i`, whose children are complete, can be copied, and the bytes of each. */
void arrow_schema_judge(struct arrow_schema *schema, uint32_t i);

/* The column of that name, or ARROW_NONE. */
uint32_t arrow_schema_find(const struct arrow_schema *schema, const char *name);

/* What the decimal numbers of columns become: decimal_type(). */
void arrow_schema_set_types(struct arrow_schema *schema, const struct value *types);
bool arrow_schema_has_decimals(const struct arrow_schema *schema, uint32_t i);

/* Field `i` and all below it are needed: they get slots. */
void arrow_schema_keep(struct arrow_schema *schema, uint32_t i);

/* Whether column `i` of `a` and column `j` of `b` are of one type, and their slots are the same. */
bool arrow_schema_agree(const struct arrow_schema *a, uint32_t i, const struct arrow_schema *b,
                        uint32_t j);

/* The first field of column `i` that can be passed over only, or NULL: all of it can be read. */
const struct arrow_field *arrow_schema_unread(const struct arrow_schema *schema, uint32_t i);

/*
 * What stands at the bottom of fixed lists: its field, and the shape in *ret_ndim dimensions of at
 * most `most`, appended to ret_shape. ARROW_NONE: too many.
 */
uint32_t arrow_schema_base(const struct arrow_schema *schema, uint32_t i, uint32_t most,
                           uint32_t *ret_ndim, uint64_t *ret_shape);

#endif
