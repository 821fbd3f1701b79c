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
TEST(test_parts_of_null)
{
    struct spec_dataset spec = spec_of(column_file(nested, nested_rows(5), 3));

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

/* ---- nulls alone, lists with sizes, maps ----------------------------------------------------- */

/* A column of nothing but nulls is of int32, as Parquet has it, also below lists. */
TEST(test_null_columns)
{
    static const struct build_type types_of_null[] = {
        {"x", 1, 0, 0, 0, 0}, {"l", 12, 0, 0, 1, 0}, {"item", 1, 0, 0, 0, 0}};
    static struct build_batch batch;
    static struct build b;

    build_node(&batch, 2, 2);
    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint32_t[]){0, 0, 2}, 12);
    build_node(&batch, 2, 2);
    build_add_schema(&b, types_of_null, 2, NULL);
    build_add_batch(&b, &batch, 2);
    struct spec_dataset spec = spec_of(write_built("null", &b));
    assert_non_null(strstr(opened_sample(&spec, 0), "its column x is null"));
    spec.nulls = (struct value){.type = VALUE_INT, .integer = 7};
    assert_string_equal(opened_sample(&spec, 0), "int32 07000000; int32 0; ");
    assert_string_equal(opened_sample(&spec, 1), "int32 07000000; int32 2 0700000007000000; ");
    struct spec_field field = {"x", "x"};
    spec.fields = &field;
    spec.n_fields = 1;
    struct dataset *ds = must_open(&spec);
    int32_t numbers[2];
    size_t bad;
    assert_true(dataset_is_fixed(ds));
    assert_int_equal(
        ds->ops->read_rows(ds, &key, (uint64_t[]){1, 0}, 2, (void *[]){numbers}, &bad, NULL), 0);
    assert_true(numbers[0] == 7 && numbers[1] == 7);
    dataset_close(ds);
}

/* Lists whose parts are in any order, share elements, or lead out of them. */
TEST(test_lists_with_sizes)
{
    static const struct build_type sized[] = {{"x", 25, 0, 0, 1, 0}, {"item", 2, 32, 1, 0, 0}};
    static const struct {
        uint32_t offset, size;
        const char *says;
    } rows[] = {
        {2, 1, "int32 1 09000000; "}, {0, 3, "int32 3 070000000800000009000000; "},
        {3, 0, "int32 0; "},          {2, 2, "error: row 0: its column x has offsets"},
        {4, 0, "error: row 0: its"},  {UINT32_MAX, 2, "error: row 0: its"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        static struct build_batch batch;
        batch = (struct build_batch){0};
        build_node(&batch, 2, 0);
        build_buffer(&batch, NULL, 0);
        build_buffer(&batch, (uint32_t[]){rows[i].offset, 0}, 8);
        build_buffer(&batch, (uint32_t[]){rows[i].size, 2}, 8);
        build_node(&batch, 3, 0);
        build_buffer(&batch, NULL, 0);
        build_buffer(&batch, (int32_t[]){7, 8, 9}, 12);
        struct spec_dataset spec = spec_of(column_file(sized, &batch, 2));
        const char *text = opened_sample(&spec, 0);
        assert_memory_equal(text, rows[i].says, strlen(rows[i].says));
        assert_string_equal(opened_sample(&spec, 1), "int32 2 0700000008000000; ");
    }
}

/* A list of keys with their values. */
TEST(test_maps)
{
    static const struct build_type map[] = {{"x", 17, 0, 0, 1, 0},
                                            {"entries", 13, 0, 0, 2, 0},
                                            {"some_key", 5, 0, 0, 0, 0},
                                            {"", 2, 8, 1, 0, 0}};
    static struct build_batch batch;

    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint32_t[]){0, 2, 2}, 12);
    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint32_t[]){0, 1, 2}, 12);
    build_buffer(&batch, "ab", 2);
    build_node(&batch, 2, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, "\1\2", 2);
    struct spec_dataset spec = spec_of(column_file(map, &batch, 2));
    assert_string_equal(opened_sample(&spec, 0),
                        "list 2; dict 2; string 61; int8 01; dict 2; string 62; int8 02; ");
    assert_string_equal(opened_sample(&spec, 1), "list 0; ");
    struct dataset *ds = must_open(&spec);
    struct taken t;
    assert_int_equal(take(ds, &key, 0, &t), 0);
    const struct tree_node *part = &t.sample.tree.nodes[3];
    assert_memory_equal(t.sample.tree.keys + part[0].key_off, "key", part[0].key_len);
    assert_memory_equal(t.sample.tree.keys + part[1].key_off, "value", part[1].key_len);
    drop(&t);
    dataset_close(ds);
}

/* ---- dictionaries of views ------------------------------------------------------------------- */

/* As polars writes categories: texts of up to 12 bytes in the view, a longer one in a buffer. */
TEST(test_dictionaries_of_views)
{
    static const struct build_type words[] = {{"x", 24, 0, 0, 0, 1}};
    static struct build_batch values, batch;
    static struct build b;
    uint32_t views[8] = {1, 'a', 0, 0, 13, 'l' | 'o' << 8 | 'n' << 16 | 'g' << 24, 0, 1};

    build_node(&values, 2, 0);
    build_buffer(&values, NULL, 0);
    build_buffer(&values, views, sizeof views);
    build_buffer(&values, ".longer than 12", 14);
    values.variadic[values.n_variadic++] = 1;
    build_node(&batch, 3, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (int32_t[]){1, 0, 2}, 12);
    build_add_schema(&b, words, 1, NULL);
    build_add_dictionary(&b, &values, 2, 0, false);
    build_add_batch(&b, &batch, 3);
    struct spec_dataset spec = spec_of(write_built("views", &b));
    assert_string_equal(opened_sample(&spec, 0), "string 6c6f6e676572207468616e2031; ");
    assert_string_equal(opened_sample(&spec, 1), "string 61; ");
    assert_non_null(strstr(opened_sample(&spec, 2), "has a number that is not in its dictionary"));
}

TEST(test_column_without_name)
{
    static const struct build_type columns[] = {{"a", 2, 8, 1, 0, 0}, {"", 2, 8, 1, 0, 0}};
    static struct build_batch batch;
    static struct build b;
    struct spec_field field = {"x", "Unnamed: 1"};

    for (int i = 0; i < 2; i++) {
        build_node(&batch, 1, 0);
        build_buffer(&batch, NULL, 0);
        add_bits(&batch, (uint8_t)(7 + i));
    }
    build_add_schema(&b, columns, 2, NULL);
    build_add_batch(&b, &batch, 1);
    struct spec_dataset spec = spec_of(write_built("unnamed", &b));
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->schema.nodes[2].key_len, 10);
    assert_memory_equal(ds->schema.keys + ds->schema.nodes[2].key_off, "Unnamed: 1", 10);
    dataset_close(ds);
    spec.fields = &field;
    spec.n_fields = 1;
    ds = must_open(&spec);
    int8_t number = 0;
    size_t bad;
    assert_int_equal(
        ds->ops->read_rows(ds, &key, (uint64_t[]){0}, 1, (void *[]){&number}, &bad, NULL), 0);
    assert_int_equal(number, 8);
    dataset_close(ds);
}

/* ---- decimal numbers ------------------------------------------------------------------------- */

/* {x: decimal(38, 2), l: [decimal(9, 0) of 32 bits]}: 1.25, []; null, [3, null]; -3, [] */
static const char *decimal_file(void)
{
    static const struct build_type columns[] = {
        {"x", 7, 38, 2, 0, 0}, {"l", 12, 0, 0, 1, 0}, {"item", 7, 9, 0, 0, 0}};
    static struct build_batch batch;
    static struct build b;
    const int64_t numbers[] = {125, 0, 77, 0, -300, -1, 3, 0, 99, 0};

    b.len = 0;
    batch = (struct build_batch){0};
    build_node(&batch, 3, 1);
    add_bits(&batch, 5);
    build_buffer(&batch, numbers, 48);
    build_node(&batch, 3, 0);
    build_buffer(&batch, NULL, 0);
    build_buffer(&batch, (uint32_t[]){0, 0, 2, 2}, 16);
    build_node(&batch, 2, 1);
    add_bits(&batch, 1);
    build_buffer(&batch, numbers + 6, 32);
    build_add_schema(&b, columns, 2, NULL);
    build_add_batch(&b, &batch, 3);
    return write_built("decimals", &b);
}

TEST(test_decimals)
{
    struct spec_dataset spec = spec_of(decimal_file());
    struct spec_field field = {"x", "x"};

    spec.nulls = (struct value){.type = VALUE_INT, .integer = 0};
    expect_refused(&spec, "its column x has decimal numbers, which no tensor has; say with");
    assert_int_equal(value_set_string(&spec.types, "x", "float64"), 0);
    expect_refused(&spec, "its column l has decimal numbers");
    assert_int_equal(value_set_string(&spec.types, "l", "int64"), 0);
    assert_string_equal(opened_sample(&spec, 0), "float64 000000000000f43f; int64 0; ");
    assert_string_equal(opened_sample(&spec, 1),
                        "float64 0000000000000000; int64 2 03000000000000000000000000000000; ");
    assert_string_equal(opened_sample(&spec, 2), "float64 00000000000008c0; int64 0; ");
    value_deinit(&spec.types);
    assert_int_equal(value_set_string(&spec.types, "y", "int64"), 0);
    expect_refused(&spec, "its column x has decimal numbers");
    spec.fields = &field;
    spec.n_fields = 1;
    value_deinit(&spec.types);
    assert_int_equal(value_set_string(&spec.types, "x", "int64"), 0);
    struct dataset *ds = must_open(&spec);
    int64_t numbers[2];
    size_t bad;
    struct dl_error err = {0};
    assert_int_equal(
        ds->ops->read_rows(ds, &key, (uint64_t[]){2, 1}, 2, (void *[]){numbers}, &bad, &err), 0);
    assert_true(numbers[0] == -3 && numbers[1] == 0);
    assert_int_equal(
        ds->ops->read_rows(ds, &key, (uint64_t[]){1, 0}, 2, (void *[]){numbers}, &bad, &err),
        -ERANGE);
    assert_int_equal(bad, 1);
    assert_error_has(&err, "row 0: its column x has the decimal number 125e-2, which is no int64");
    dataset_close(ds);
    value_deinit(&spec.types);
}
