/*
 * The files of a Parquet dataset as one table: which of their columns are used, their row groups
 * one after another, and those that are decoded. Not thread-safe; may block on the disk.
 */
#ifndef DL_DATA_PARQUET_TABLE_H
#define DL_DATA_PARQUET_TABLE_H

#include "daemon/data/files/source.h"
#include "daemon/data/kinds/parquet/chunk.h"
#include "daemon/data/kinds/parquet/files.h"

/* A column whose pages are decoded separately. */
struct parquet_paged {
    struct parquet_pages pages;     /* owned */
    struct parquet_values **values; /* owned, and each: of each page; NULL: not yet */
    struct parquet_shared shared;   /* owned */
    bool looked;                    /* the index was read; pages.n is 0 if it is missing */
};

/* A row group, as far as it is decoded. Counted: by the table while it keeps it, and by the arena
 * of each sample that lies in it. */
struct parquet_decoded {
    uint32_t refs;
    uint64_t bytes;
    struct parquet_paged *paged;         /* owned; n_columns; NULL: columns are decoded whole */
    uint64_t uses;                       /* samples that were read while it was there */
    uint64_t group;                      /* of the table */
    struct parquet_decoded *prev, *next; /* table.cached (utlist) */
    struct parquet_values **columns;     /* owned, and each; NULL: not yet. In the same memory */
    uint32_t n_columns;
    bool has_nulls;      /* rows.h: a column has, */
    const uint8_t *rows; /* else they are here in place of columns; NULL: not yet */
    uint8_t *own_rows;   /* owned; the same; NULL: shared with others (shared.h) */
};

/* A value of a partition; of the same key in all files. */
struct parquet_key_value {
    char *text; /* owned; "": null */
    int64_t number;
};

struct parquet_file {
    struct source source;         /* owned */
    struct parquet_footer footer; /* owned */
    struct parquet_column
        *columns;    /* owned; as this file has the table's, with `above`; `path` is borrowed */
    uint32_t *slots; /* owned; of each, its chunk's number in a group */
    struct parquet_key_value *keys; /* owned; table.n_keys of them */
    struct pictures_key identity;   /* of the file that is mapped, */
    bool is_known;                  /* if it is */
};

struct parquet_group {
    uint32_t file;
    uint32_t number;                 /* in the file */
    uint64_t first;                  /* row of the table */
    uint64_t seen;                   /* when last requested, by table.clock; 0: never; */
    uint32_t soon;                   /* how often in a row soon after the time before */
    bool indexed;                    /* all columns have a page index */
    struct parquet_decoded *decoded; /* counted; NULL: nothing of it is kept */
};

/* What a null becomes. */
struct parquet_nulls {
    bool fill;
    double value;
};

struct parquet_table {
    struct parquet_files files;            /* owned */
    struct parquet_file *file;             /* owned; files.list.n of them */
    struct parquet_schema schema;          /* owned; of the first file */
    const struct parquet_column **columns; /* owned; those that are used, of the first file */
    uint32_t n_columns;
    uint32_t n_read;   /* of these, first; the others are only for the filter */
    char **keys;       /* owned, and each; names of the partitions */
    bool *key_is_text; /* owned; of each */
    uint32_t n_keys;
    struct parquet_group *groups; /* owned; in order */
    uint64_t n_groups;
    uint64_t rows;
    struct parquet_nulls nulls;
    const struct value *types;           /* borrowed while it is opened: dataset.types */
    const char *place;                   /* the place in the spec, for errors */
    const struct pictures_cache *shared; /* borrowed; NULL: nothing is kept for others */
    const struct data_env *env;          /* borrowed */
    struct parquet_decoded *cached;      /* the latest first */
    uint64_t cached_bytes, most_bytes;
    uint64_t last;      /* the group requested last */
    uint64_t all_bytes; /* that all groups would have, by what the files say */
    uint64_t clock;     /* counts requested samples */
    uint32_t n_pages;   /* of the group that has most, as far as known */
    unsigned strikes;   /* groups in a row that were decoded whole, and hardly used */
};

void parquet_table_deinit(struct parquet_table *table);

/* Finds the files, opens the first one and reads its schema and the names of the partitions. */
int _nodiscard_ parquet_table_open(struct parquet_table *table, const struct spec_dataset *spec,
                                   const struct data_env *env, struct dl_error *err);

/* Uses a column; *ret: its number in table->columns, the same where it is used already. -EINVAL
 * with `err` naming the file: it is refused. */
int _nodiscard_ parquet_table_use(struct parquet_table *table, const struct parquet_column *column,
                                  uint32_t *ret, struct dl_error *err);

/* Opens the other files, and lists the row groups that `filter` keeps; the filter may use further
 * columns. Call it once, after all columns are chosen. */
int _nodiscard_ parquet_table_list(struct parquet_table *table, const struct value *filter,
                                   const struct data_env *env, struct dl_error *err);

/* The group that has `row`, below table->rows. */
struct parquet_group *parquet_table_group(struct parquet_table *table, uint64_t row);

/* Marks the group's decoded data as used: others are dropped before it. */
void parquet_table_touch(struct parquet_table *table, const struct parquet_group *group);

/*
 * Call it before reading a sample of the group: decides whether it is decoded whole, or
 * (group->decoded->paged) by pages, for this sample; see cache.c. -ENOMEM.
 */
int _nodiscard_ parquet_table_settle(struct parquet_table *table, struct parquet_group *group,
                                     struct dl_error *err);

/* The row will be read soon: if it is far away its group is asked for, or the indexes of its pages
 * if it will be decoded by these; locate() asks for the pages themselves, which may take the time
 * until the indexes are here. */
void parquet_table_expect(struct parquet_table *table, uint64_t row);
void parquet_table_locate(struct parquet_table *table, uint64_t row);

/* A column of a group, decoded at least around `row` of the group: from (*ret)->first on. It stays
 * as long as that of parquet_table_column(). */
int _nodiscard_ parquet_table_part(struct parquet_table *table, struct parquet_group *group,
                                   uint32_t column, uint64_t row, const struct parquet_values **ret,
                                   struct dl_error *err);

/* A column of a group, decoded whole; it stays until another group is requested, or while a
 * reference to group->decoded is held. */
int _nodiscard_ parquet_table_column(struct parquet_table *table, struct parquet_group *group,
                                     uint32_t column, const struct parquet_values **ret,
                                     struct dl_error *err);

/* Keeps a group's rows, `bytes` of malloc()ed memory, in place of its columns; or `rows` that are
 * not its own, and `own` NULL. */
void parquet_table_keep_rows(struct parquet_table *table, struct parquet_group *group,
                             const uint8_t *rows, uint8_t *own, uint64_t bytes);

struct parquet_decoded *parquet_decoded_ref(struct parquet_decoded *decoded);
void parquet_decoded_unref(void *decoded); /* NULL is fine */

/* The partition of that name, or UINT32_MAX. */
uint32_t parquet_table_find_key(const struct parquet_table *table, const char *name);

#endif
