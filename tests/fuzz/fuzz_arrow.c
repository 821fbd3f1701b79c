/*
 * An Arrow file or stream of any bytes: its batches are taken or refused, and each value of their
 * first and last rows becomes part of a sample, with nulls refused and filled, or an error.
 */
#include "daemon/data/kinds/arrow/arrow_features.h"
#include "daemon/data/kinds/arrow/arrow_table.h"
#include "daemon/data/kinds/arrow/arrow_value.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 16, ROWS = 16 };

/* What the decimal numbers of the columns of the corpus become. */
static struct value type_items[] = {
    {.type = VALUE_STRING, .key = (char *)"a", .string = (char *)"float64"},
    {.type = VALUE_STRING, .key = (char *)"b", .string = (char *)"int64"},
    {.type = VALUE_STRING, .key = (char *)"c", .string = (char *)"float64"},
    {.type = VALUE_STRING, .key = (char *)"s", .string = (char *)"float64"},
    {.type = VALUE_STRING, .key = (char *)"x", .string = (char *)"int64"},
};
static const struct value types = {
    .type = VALUE_MAP, .items = type_items, .count = ARRAY_SIZE(type_items)};

static void check_value(const struct arrow_table *table, const struct arrow_reading *reading,
                        uint32_t column, uint64_t row)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};

    sample_begin(&sample, TREE_LIST, NULL);
    int r = arrow_value_add(reading, table->columns[column], row, NULL, &sample, &err);
    FUZZ_ASSERT(r == 0 || sample.error < 0 || (r == -err.code && err.message[0]));
    if (r == 0 && arrow_value_is_list(&table->schema, table->columns[column])) {
        uint32_t length = arrow_value_length(reading, table->columns[column], row);
        FUZZ_ASSERT(length == UINT32_MAX || length == sample.tree.nodes[1].shape[0]);
    }
    sample_deinit(&sample);
    arena_deinit(&arena);
}

static void check_row(struct arrow_table *table, uint64_t row, const struct fields *fields)
{
    static const struct sample_key key;
    const struct arrow_batch *batch = arrow_table_find(table, row);
    const struct decoding decoding = {.fields = fields, .key = &key};
    struct arrow_reading reading = {.schema = &table->schema};
    struct dl_error err = {0};

    FUZZ_ASSERT(row >= batch->first);
    if (arrow_table_columns(table, batch, &reading.columns, &err) < 0) {
        FUZZ_ASSERT(err.code && err.message[0]);
        return;
    }
    for (uint32_t i = 0; i < table->n_columns; i++) {
        check_value(table, &reading, i, row - batch->first);
        reading.fill = true;
        reading.decoding = &decoding;
        check_value(table, &reading, i, row - batch->first);
        reading.fill = false;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct field_choice all;
    static struct fields fields = {.decode = true,
                                   .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
    struct arrow_view view = {.path = "fuzz", .data = data, .bytes = size};
    struct arrow_table table = {.files = calloc(1, sizeof *table.files), .n_files = 1};
    struct dl_error err = {0};

    if (!fields.images)
        FUZZ_ASSERT(image_decoder_new(&fields.images, NULL) == 0);
    FUZZ_ASSERT(table.files);
    table.files[0].path = "fuzz";
    table.types = &types;
    int r = size > LARGEST ? -E2BIG : arrow_table_add(&table, 0, &view, &all, &err);
    FUZZ_ASSERT(r == 0 || size > LARGEST || (r == -err.code && err.message[0]));
    if (r == 0)
        arrow_features_mark(&table.schema);
    for (uint64_t i = 0; r == 0 && i < table.rows && i < ROWS; i++) {
        check_row(&table, i, &fields);
        check_row(&table, table.rows - 1 - i, &fields);
    }
    arrow_table_close(&table);
    return 0;
}
