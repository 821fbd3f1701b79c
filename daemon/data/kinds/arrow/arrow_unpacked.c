/* Compressed batches, unpacked when a row of them is requested, and kept while room lasts. */
#include "daemon/data/kinds/arrow/arrow_table.h"

#include <errno.h>
#include <utlist.h>

void arrow_unpacked_unref(void *what)
{
    struct arrow_unpacked *unpacked = what;

    if (!unpacked || --unpacked->refs > 0)
        return;
    arrow_body_deinit(&unpacked->body);
    free(unpacked);
}

struct arrow_unpacked *arrow_unpacked_ref(struct arrow_unpacked *unpacked)
{
    unpacked->refs++;
    return unpacked;
}

/* Those that were of no use for longest, but the first one. */
static void arrow_unpacked_forget(struct arrow_table *table)
{
    while (table->cached_bytes > table->most_bytes && table->cached->next) {
        struct arrow_unpacked *oldest = table->cached->prev; /* of the head: the last one */
        DL_DELETE(table->cached, oldest);
        table->cached_bytes -= oldest->body.bytes;
        table->batches[oldest->batch].unpacked = NULL;
        arrow_unpacked_unref(oldest);
    }
}

static int arrow_unpacked_make(struct arrow_table *table, const struct arrow_batch *batch,
                               struct arrow_unpacked *unpacked, struct dl_error *err)
{
    const struct arrow_file *file = &table->files[batch->file];
    const struct arrow_schema *schema = batch->file > 0 ? &file->schema : &table->schema;
    const struct arrow_dictionaries dictionaries = {batch->dictionaries};
    struct arrow_message message;
    uint64_t rows;
    int r = arrow_message_read(&file->view, batch->at, &message, err);

    if (r == 0)
        r = arrow_body_unpack(&file->view, &message, schema, &unpacked->body, err);
    if (r == 0)
        r = arrow_columns_find(&file->view, &message, &unpacked->body, schema, &dictionaries,
                               unpacked->columns, &rows, err);
    /* When the table was opened, it was a message with this number of rows. */
    if (r == ARROW_END || (r == 0 && rows != batch->rows))
        r = dl_error_set(err, EIO, file->path, "was changed while it was read");
    return r;
}

static int arrow_unpacked_new(struct arrow_table *table, struct arrow_batch *batch,
                              struct dl_error *err)
{
    struct arrow_unpacked *unpacked =
        calloc(1, sizeof *unpacked + table->schema.n_slots * sizeof unpacked->columns[0]);

    if (!unpacked)
        return dl_error_set(err, ENOMEM, table->files[batch->file].path,
                            "out of memory for a batch");
    unpacked->refs = 1;
    unpacked->batch = (uint64_t)(batch - table->batches);
    int r = arrow_unpacked_make(table, batch, unpacked, err);
    if (r < 0) {
        arrow_unpacked_unref(unpacked);
        return r;
    }
    batch->unpacked = unpacked;
    DL_PREPEND(table->cached, unpacked);
    table->cached_bytes += unpacked->body.bytes;
    arrow_unpacked_forget(table);
    return 0;
}

int arrow_table_columns(struct arrow_table *table, const struct arrow_batch *found,
                        const struct arrow_column **ret, struct dl_error *err)
{
    struct arrow_batch *batch = &table->batches[found - table->batches];

    *ret = batch->columns;
    if (batch->columns)
        return 0;
    if (!batch->unpacked) {
        int r = arrow_unpacked_new(table, batch, err);
        if (r < 0)
            return r;
    } else if (table->cached != batch->unpacked) {
        DL_DELETE(table->cached, batch->unpacked);
        DL_PREPEND(table->cached, batch->unpacked);
    }
    *ret = batch->unpacked->columns;
    return 0;
}
