/*
 * Arrow IPC files as one table: their record batches in order, with the chosen columns. The index
 * is a few words per batch and column, whatever their rows. Compressed batches are unpacked when a
 * row of them is needed, and kept while room lasts (arrow_unpacked.c); their dictionaries stay.
 *
 * Files stay mapped as long as the table is open. Opening may block on the disk. Not thread-safe.
 */
#ifndef DL_DATA_ARROW_TABLE_H
#define DL_DATA_ARROW_TABLE_H

#include "daemon/data/field/field_choice.h"
#include "daemon/data/files/globs.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/arrow/arrow_column.h"

struct arrow_file {
    struct source source; /* owned */
    const char *path;     /* borrowed */
    uint64_t first;       /* row of the table */
    /* For batches that are compressed: */
    struct arrow_view view;
    struct arrow_schema schema; /* owned; but the first file's is the table's */
};

/* A batch out of its compression. Counted: by the table while it keeps it, and by the arena of each
 * sample that lies in it. */
struct arrow_unpacked {
    uint32_t refs;
    uint64_t batch;                     /* of the table */
    struct arrow_unpacked *prev, *next; /* table.cached (utlist) */
    struct arrow_body body;             /* owned */
    struct arrow_column columns[];      /* schema.n_slots of them, in the body */
};

struct arrow_batch {
    uint64_t first; /* row of the table */
    uint32_t file;
    struct arrow_column *columns; /* owned; schema.n_slots of them; NULL: it is compressed */
    /* If it is: */
    uint64_t at; /* of its message */
    uint64_t rows;
    const struct arrow_column **dictionaries; /* owned; for each field */
    struct arrow_unpacked *unpacked;          /* counted; NULL: not kept */
};

struct arrow_table {           /* all zero: empty */
    const struct value *types; /* borrowed while opening: dataset.types; may be NULL */
    struct arrow_file *files;  /* owned; n_files of them */
    uint32_t n_files;
    bool in_chunks;              /* each is at the end of a chunk of litData's */
    struct arrow_batch *batches; /* owned; without empty ones */
    uint64_t n_batches;
    uint64_t rows;
    struct arrow_schema schema; /* owned; of the first file */
    uint32_t *columns;          /* owned; the chosen fields of the schema, or all */
    uint32_t n_columns;
    uint64_t batches_room;
    void **dictionaries; /* owned, and each of them: columns that others point to */
    uint64_t n_dictionaries, dictionaries_room;
    struct arrow_unpacked *cached;     /* the latest first */
    uint64_t cached_bytes, most_bytes; /* the latter is set by the caller that opens the table */
};

/*
 * Opens the files of `paths`, which stays with the caller for the table's life, and of each the
 * columns that `choice` names: those of the first file, and columns of the same types in the
 * others. Errors name the file, and the column; close the table even after one.
 */
int _nodiscard_ arrow_table_open(struct arrow_table *table, const struct file_list *paths,
                                 const struct field_choice *choice, const struct data_env *env,
                                 struct dl_error *err);
/* The same of one that lies in memory, which stays for the table's life: file `i` of table->files.
 */
int _nodiscard_ arrow_table_add(struct arrow_table *table, uint32_t i,
                                const struct arrow_view *view, const struct field_choice *choice,
                                struct dl_error *err);
void arrow_table_close(struct arrow_table *table);

/* Whether `bytes` at `data` are a chunk of litData's with such a file at its end. */
bool arrow_table_in_chunk(const uint8_t *data, uint64_t bytes);

/* The batch that has row `row`, below table->rows. */
const struct arrow_batch *arrow_table_find(const struct arrow_table *table, uint64_t row);

/* The columns of a batch of the table; they stay until another batch is requested, or while a
 * reference to batch->unpacked is held. Errors name the file. */
int _nodiscard_ arrow_table_columns(struct arrow_table *table, const struct arrow_batch *batch,
                                    const struct arrow_column **ret, struct dl_error *err);

struct arrow_unpacked *arrow_unpacked_ref(struct arrow_unpacked *unpacked);
void arrow_unpacked_unref(void *unpacked); /* NULL is fine */

#endif
