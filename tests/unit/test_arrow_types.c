/* Arrow IPC: types beyond numbers and texts, and what of them is null. */
#include "tests/unit/arrow_case.h"

/* A stream of one batch of `rows`, in which column x is of `type`. */
static const char *column_file(const struct build_type *type, const struct build_batch *batch,
                               int64_t rows)
{
    static struct build b;

    b.len = 0;
    build_add_schema(&b, type, 1, NULL);
    build_add_batch(&b, batch, rows);
    return write_built("column", &b);
}

static void add_bits(struct build_batch *batch, uint8_t bits)
{
    build_buffer(batch, &bits, 1);
}

/* ---- nulls ---------------------------------------------------------------------------------- */

/* {f: int32, t: string, w: [string, string], s: {b: bool}, l: [int32, ...]} */
static const struct build_type nested[] = {
    {"x", 13, 0, 0, 5, 0}, {"f", 2, 32, 1, 0, 0},   {"t", 5, 0, 0, 0, 0},
    {"w", 16, 2, 0, 1, 0}, {"item", 5, 0, 0, 0, 0}, {"s", 13, 0, 0, 1, 0},
    {"b", 6, 0, 0, 0, 0},  {"l", 12, 0, 0, 1, 0},   {"item", 2, 32, 1, 0, 0},
};

/* Three rows, of which `valid` are not null; each part has a value in all of them. */
static struct build_batch *nested_rows(uint8_t valid)
{
    static struct build_batch batch;

    batch = (struct build_batch){0};
    build_node(&batch, 3, 3 - __builtin_popcount(valid));
    add_bits(&batch, valid);
    build_node(&batch, 3, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (int32_t[]){11, 22, 33}, 12);
    build_node(&batch, 3, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint32_t[]){0, 1, 2, 3}, 16);
    build_buffer(&batch, "abc", 3);
    build_node(&batch, 3, 0);
    build_buffer(&batch, NULL, 0);
    build_node(&batch, 6, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint32_t[]){0, 1, 2, 3, 4, 5, 6}, 28);
    build_buffer(&batch, "defghi", 6);
    build_node(&batch, 3, 0);
    build_buffer(&batch, NULL, 0);
    build_node(&batch, 3, 0);
    build_buffer(&batch, NULL, 0);
    add_bits(&batch, 7);
    build_node(&batch, 3, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint32_t[]){0, 1, 2, 3}, 16);
    build_node(&batch, 3, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (int32_t[]){1, 2, 3}, 12);
    return &batch;
}

/* What the file has where a struct is null is not seen: its parts are null, too, as in Parquet,
 * which does not have them at all. */
static void test_parts_of_null(void **state)
{
    struct spec_dataset spec = spec_of(column_file(nested, nested_rows(5), 3));

    (void)state;
    assert_string_equal(opened_sample(&spec, 0),
                        "dict 5; int32 0b000000; string 61; list 2; string 64; string 65; dict 1; "
                        "bool 01; int32 1 01000000; ");
    assert_non_null(strstr(opened_sample(&spec, 1), "row 1: its column x is null"));
    spec.nulls = (struct value){.type = VALUE_INT, .integer = 0};
    assert_string_equal(opened_sample(&spec, 1),
                        "dict 5; int32 00000000; string; list 2; string; string; dict 1; bool 00; "
                        "int32 0; ");
    assert_string_equal(opened_sample(&spec, 2),
                        "dict 5; int32 21000000; string 63; list 2; string 68; string 69; dict 1; "
                        "bool 01; int32 1 03000000; ");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_parts_of_null),
};

TEST_MAIN(tests)
