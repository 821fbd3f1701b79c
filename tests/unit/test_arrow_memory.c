/* What the index of an Arrow file takes: of its batches, however many rows they have. */
#include "daemon/data/kinds/arrow/arrow.h"
#include "tests/lib/arrow_build.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/taken.h"

/* A stream of numbers and of lists, which are empty. */
static const char *write_stream(uint32_t rows, uint32_t batches)
{
    static const struct build_type columns[] = {
        {"id", 2, 64, 1, 0, 0}, {"tokens", 12, 0, 0, 1, 0}, {"item", 2, 32, 1, 0, 0}};
    static const uint8_t zeros[1 << 14];
    static struct build b;
    static struct build_batch batch;

    b.len = 0;
    batch = (struct build_batch){0};
    build_column(&batch, rows, zeros, 8 * (size_t)rows);
    build_column(&batch, rows, zeros, 4 * (size_t)(rows + 1));
    build_column(&batch, 0, NULL, 0);
    build_add_schema(&b, columns, 2, NULL);
    for (uint32_t i = 0; i < batches; i++)
        build_add_batch(&b, &batch, rows);
    return harness_file("stream.arrow", b.data, b.len);
}

/* The bytes that opening it asks for. */
static size_t opening_asks(uint32_t rows, uint32_t batches)
{
    struct spec_file file = {.path = (char *)write_stream(rows, batches)};
    struct spec_dataset spec = {.kind = DATASET_ARROW, .files = &file, .n_files = 1};
    size_t before = asked_bytes;
    struct dataset *ds = must_open(&spec);
    size_t asked = asked_bytes - before;

    assert_int_equal(ds->length, rows * batches);
    dataset_close(ds);
    return asked;
}

TEST(test_index_is_of_batches)
{
    size_t few = opening_asks(1, 2), many = opening_asks(2000, 2), batches = opening_asks(1, 42);

    assert_int_equal(many, few);
    assert_in_range(batches - few, 40 * 16, 40 * 1024);
}
