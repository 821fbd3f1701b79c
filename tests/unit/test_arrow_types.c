/* Arrow IPC: types beyond numbers and texts, and what of them is null. */
#include "tests/unit/arrow_case.h"

/* A stream of one batch of `rows`, in which column x is of `type`. */
static const struct build *column_file(const struct build_type *type,
                                       const struct build_batch *batch, int64_t rows)
{
    static struct build b;

    b.len = 0;
    build_add_schema(&b, type, 1, NULL);
    build_add_batch(&b, batch, rows);
    return &b;
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
    build_column(&batch, 3, (int32_t[]){11, 22, 33}, 12);
    build_column(&batch, 3, (uint32_t[]){0, 1, 2, 3}, 16);
    build_buffer(&batch, "abc", 3);
    build_bare(&batch, 3);
    build_column(&batch, 6, (uint32_t[]){0, 1, 2, 3, 4, 5, 6}, 28);
    build_buffer(&batch, "defghi", 6);
    build_bare(&batch, 3);
    build_bare(&batch, 3);
    add_bits(&batch, 7);
    build_column(&batch, 3, (uint32_t[]){0, 1, 2, 3}, 16);
    build_column(&batch, 3, (int32_t[]){1, 2, 3}, 12);
    return &batch;
}

/* What the file has where a struct is null is not seen: its parts are null, too, as in Parquet,
 * which does not have them at all. */
TEST(test_parts_of_null)
{
    expect_built(column_file(nested, nested_rows(5), 3), ", nulls: 0",
                 "{x:{f:int32 11 t:\"a\" w:[\"d\" \"e\"] s:{b:true} l:int32(1,)[1]}} "
                 "{x:{f:int32 0 t:\"\" w:[\"\" \"\"] s:{b:false} l:int32(0,)}} "
                 "{x:{f:int32 33 t:\"c\" w:[\"h\" \"i\"] s:{b:true} l:int32(1,)[3]}}");
    expect_built(column_file(nested, nested_rows(5), 3), "",
                 "{...} (t.arrow: row 1: its column x is null...) {...}");
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
    build_column(&batch, 2, (uint32_t[]){0, 0, 2}, 12);
    build_node(&batch, 2, 2);
    build_add_schema(&b, types_of_null, 2, NULL);
    build_add_batch(&b, &batch, 2);
    expect_built(&b, "", "(t.arrow: ...its column x is null...");
    expect_built(&b, ", nulls: 7", "{x:int32 7 l:int32(0,)} {x:int32 7 l:int32(2,)[7 7]}");
    expect_built(&b, ", nulls: 7, fields: [x]", "fixed {x:int32 7} {x:int32 7}");
}

/* Lists whose parts are in any order, share elements, or lead out of them. */
TEST(test_lists_with_sizes)
{
    static const struct build_type sized[] = {{"x", 25, 0, 0, 1, 0}, {"item", 2, 32, 1, 0, 0}};
    static const struct {
        uint32_t offset, size;
        const char *says;
    } rows[] = {
        {2, 1, "{x:int32(1,)[9]}"},
        {0, 3, "{x:int32(3,)[7 8 9]}"},
        {3, 0, "{x:int32(0,)}"},
        {2, 2, "(t.arrow: row 0: its column x has offsets...)"},
        {4, 0, "(t.arrow: row 0: its...)"},
        {UINT32_MAX, 2, "(t.arrow: row 0: its...)"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        static struct build_batch batch;
        batch = (struct build_batch){0};
        build_column(&batch, 2, (uint32_t[]){rows[i].offset, 0}, 8);
        build_buffer(&batch, (uint32_t[]){rows[i].size, 2}, 8);
        build_column(&batch, 3, (int32_t[]){7, 8, 9}, 12);
        char want[128];
        snprintf(want, sizeof want, "%s {x:int32(2,)[7 8]}", rows[i].says);
        expect_built(column_file(sized, &batch, 2), "", want);
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

    build_column(&batch, 2, (uint32_t[]){0, 2, 2}, 12);
    build_bare(&batch, 2);
    build_column(&batch, 2, (uint32_t[]){0, 1, 2}, 12);
    build_buffer(&batch, "ab", 2);
    build_column(&batch, 2, "\1\2", 2);
    expect_built(column_file(map, &batch, 2), "",
                 "{x:[{key:\"a\" value:int8 1} {key:\"b\" value:int8 2}]} {x:[]}");
}

/* ---- dictionaries of views ------------------------------------------------------------------- */

/* As polars writes categories: texts of up to 12 bytes in the view, a longer one in a buffer. */
TEST(test_dictionaries_of_views)
{
    static const struct build_type words[] = {{"x", 24, 0, 0, 0, 1}};
    static struct build_batch values, batch;
    static struct build b;
    uint32_t views[8] = {1, 'a', 0, 0, 13, 'l' | 'o' << 8 | 'n' << 16 | 'g' << 24, 0, 1};

    build_column(&values, 2, views, sizeof views);
    build_buffer(&values, ".longer than 12", 14);
    values.variadic[values.n_variadic++] = 1;
    build_column(&batch, 3, (int32_t[]){1, 0, 2}, 12);
    build_add_schema(&b, words, 1, NULL);
    build_add_dictionary(&b, &values, 2, 0, false);
    build_add_batch(&b, &batch, 3);
    expect_built(&b, "",
                 "{x:\"longer than 1\"} {x:\"a\"} (t.arrow: ...has a number that is not in its "
                 "dictionary...)");
}

TEST(test_column_without_name)
{
    static const struct build_type columns[] = {{"a", 2, 8, 1, 0, 0}, {"", 2, 8, 1, 0, 0}};
    static struct build_batch batch;
    static struct build b;

    for (int i = 0; i < 2; i++) {
        build_bare(&batch, 1);
        add_bits(&batch, (uint8_t)(7 + i));
    }
    build_add_schema(&b, columns, 2, NULL);
    build_add_batch(&b, &batch, 1);
    expect_built(&b, "", "fixed {a:int8 7 Unnamed: 1:int8 8}");
    expect_built(&b, ", fields: {x: 'Unnamed: 1'}", "fixed {x:int8 8}");
}

/* ---- decimal numbers ------------------------------------------------------------------------- */

/* {x: decimal(38, 2), l: [decimal(9, 0) of 32 bits]}: 1.25, []; null, [3, null]; -3, [] */
static const struct build *decimal_file(void)
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
    build_column(&batch, 3, (uint32_t[]){0, 0, 2, 2}, 16);
    build_node(&batch, 2, 1);
    add_bits(&batch, 1);
    build_buffer(&batch, numbers + 6, 32);
    build_add_schema(&b, columns, 2, NULL);
    build_add_batch(&b, &batch, 3);
    return &b;
}

TEST(test_decimals)
{
    static const char *const rows[][2] = {
        {"", "...its column x has decimal numbers, which no tensor has; say with..."},
        {", types: {x: float64}", "...its column l has decimal numbers..."},
        {", types: {x: float64, l: int64}",
         "{x:float64 1.25 l:int64(0,)} {x:float64 0 l:int64(2,)[3 0]} {x:float64 -3 l:int64(0,)}"},
        {", types: {y: int64}", "...its column x has decimal numbers..."},
        {", types: {x: int64}, fields: [x]",
         "fixed (ERANGE t.arrow: row 0: its column x has the decimal number 125e-2, which is no "
         "int64...) {x:0} {x:-3}"},
    };
    char keys[128];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        snprintf(keys, sizeof keys, ", nulls: 0%s", rows[i][0]);
        expect_built(decimal_file(), keys, rows[i][1]);
    }
}
