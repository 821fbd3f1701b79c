/* Comma-separated values: cells, types, rows of numbers and of texts, and what is refused. */
#include "daemon/data/kinds/csv/csv_columns.h"
#include "daemon/data/kinds/kinds.h"
#include "proto/dtype.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/taken.h"

#include <errno.h>
#include <math.h>

static const struct sample_key key;
static struct spec_file files[2];

static struct spec_dataset spec_of(const char *name, const char *text)
{
    files[0].path = (char *)harness_file(name, text, strlen(text));
    return (struct spec_dataset){
        .kind = DATASET_CSV, .files = files, .n_files = 1, .separator = CSV_AUTO, .header = true};
}

/* Node `i` of the sample's tree, from 1. */
static void expect_node(const struct sample *sample, uint32_t i, const char *name, uint32_t kind,
                        uint32_t dtype, const void *data, size_t len)
{
    const struct tree_node *node = &sample->tree.nodes[i];

    assert_true(i < sample->tree.count);
    assert_int_equal(node->key_len, strlen(name));
    assert_memory_equal(sample->tree.keys + node->key_off, name, node->key_len);
    assert_int_equal(node->kind, kind);
    if (kind == TREE_TENSOR)
        assert_int_equal(node->dtype, dtype);
    assert_int_equal(node->nbytes, len);
    if (len > 0)
        assert_memory_equal(sample->data[i], data, len);
}

/* ---- cells ---------------------------------------------------------------------------------- */

/* Rows of text, each as its cells with | between them and / behind them; ! for one that is bad. */
TEST(test_cells)
{
    static const struct {
        const char *text, *cells;
    } rows[] = {
        {"a,b\nc,d\n", "a|b/c|d/"},
        {"a,b\r\nc,d\r\n", "a|b/c|d/"},
        {"a,b", "a|b/"},
        {"a,\n,b\n", "a|/|b/"},
        {",", "|/"},
        {"\"a,b\",c\n", "a,b|c/"},
        {"\"a\nb\",c\n", "a\nb|c/"},
        {"\"a\"\"b\",c\n", "a\"b|c/"},
        {"\"\"\"\",\"\"\n", "\"|/"},
        {"a\"b,c\"\n", "a\"b|c\"/"}, /* not at the beginning: characters like others */
        {"\"a\"\r\n\"b\"\r\n", "a/b/"},
        {"\"a\"x,b\n", "a!|b/"},
        {"\r\n", "/"},
        /* A row ends with LF, CR LF or CR, each as if the others were not there. */
        {"a\rb,c\n", "a/b|c/"},
        {"a,b\rc,d\re,f", "a|b/c|d/e|f/"},
        {"a\r\nb\rc\nd\r", "a/b/c/d/"},
        {"a\r\r\nb", "a//b/"},
        {"a\n\rb", "a//b/"},
        {"a,\r,b\r", "a|/|b/"},
        {"\"a\rb\",\"c\r\nd\"\r\"e\nf\"\r", "a\rb|c\r\nd/e\nf/"},
        {"\"a\"x\rb", "a!/b/"},
        {"longer than eight,and\ranother,row\n", "longer than eight|and/another|row/"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const uint8_t *at = (const uint8_t *)rows[i].text, *end = at + strlen(rows[i].text),
                      *row = at;
        char made[64] = "";
        while (at < end) {
            struct csv_cell cell;
            size_t len = strlen(made);
            at = csv_cell_read(at, end, ',', &cell);
            assert_non_null(at);
            len += csv_cell_copy(&cell, (uint8_t *)made + len);
            if (cell.bad)
                made[len++] = '!';
            made[len] = cell.last ? '/' : '|';
            if (at == end && !cell.last) /* nothing behind the last separator */
                made[len + 1] = '/';
            if (cell.last) {
                assert_ptr_equal(csv_row_end(row, end, ','), at);
                row = at;
            }
        }
        assert_string_equal(made, rows[i].cells);
    }
}

TEST(test_endless)
{
    const uint8_t text[] = "a,\"b\"\"\nc";
    struct csv_cell cell;

    assert_null(csv_row_end(text, text + 8, ','));
    assert_null(csv_cell_read(text + 2, text + 8, ',', &cell));
    assert_true(csv_row_is_blank((const uint8_t *)"\r\n", (const uint8_t *)"\r\n" + 2));
}

static struct csv_cell cell_of(const char *text)
{
    return (struct csv_cell){.text = (const uint8_t *)text, .len = strlen(text)};
}

TEST(test_integers)
{
    static const struct {
        const char *text;
        uint32_t dtype;
        int r;
        int64_t value;
    } rows[] = {
        {"0", DL_DTYPE_INT8, 0, 0},
        {" -128\t", DL_DTYPE_INT8, 0, -128},
        {"-129", DL_DTYPE_INT8, -ERANGE, 0},
        {"127", DL_DTYPE_INT8, 0, 127},
        {"128", DL_DTYPE_INT8, -ERANGE, 0},
        {"255", DL_DTYPE_UINT8, 0, 255},
        {"256", DL_DTYPE_UINT8, -ERANGE, 0},
        {"-1", DL_DTYPE_UINT8, -ERANGE, 0},
        {"-0", DL_DTYPE_UINT8, 0, 0},
        {"+7", DL_DTYPE_UINT64, 0, 7},
        {"18446744073709551615", DL_DTYPE_UINT64, 0, -1},
        {"18446744073709551616", DL_DTYPE_UINT64, -ERANGE, 0},
        {"-9223372036854775808", DL_DTYPE_INT64, 0, INT64_MIN},
        {"9223372036854775808", DL_DTYPE_INT64, -ERANGE, 0},
        {"", DL_DTYPE_INT64, -ENODATA, 0},
        {"  ", DL_DTYPE_INT64, -ENODATA, 0},
        {"-", DL_DTYPE_INT64, -EINVAL, 0},
        {"1.0", DL_DTYPE_INT64, -EINVAL, 0},
        {"1 2", DL_DTYPE_INT64, -EINVAL, 0},
        {"0x10", DL_DTYPE_INT64, -EINVAL, 0},
        {"True", DL_DTYPE_BOOL, 0, 1},
        {"FALSE", DL_DTYPE_BOOL, 0, 0},
        {"1", DL_DTYPE_BOOL, 0, 1},
        {"yes", DL_DTYPE_BOOL, -EINVAL, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct csv_cell cell = cell_of(rows[i].text);
        uint8_t out[8] = {0};
        assert_int_equal(csv_cell_number(&cell, rows[i].dtype, out), rows[i].r);
        if (rows[i].r == 0)
            assert_memory_equal(out, &rows[i].value, dtype_bytes(rows[i].dtype));
    }
}

/* Each is what strtod() makes of it, to the bit. */
TEST(test_reals)
{
    static const char *const good[] = {
        "0",
        "-0.0",
        "1.5",
        "0.1",
        ".5",
        "5.",
        "123456789012345",
        "1234567890.12345",
        "1e3",
        "-2.5E-7",
        "+1.25",
        "0.30000000000000004",
        "1e-320",
        "179769313486231570e291",
        "1234567890123456789012345678901234567890",
        "0.000000000000001",
        "123456789012345678",
    };
    static const char *const bad[] = {"1,5", "0x1p3", "1e",   "e5", ".",
                                      "--1", "1.2.3", "nano", "1f"};
    double number;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct csv_cell cell = cell_of(good[i]);
        double wanted = strtod(good[i], NULL);
        assert_int_equal(csv_cell_number(&cell, DL_DTYPE_FLOAT64, &number), 0);
        assert_memory_equal(&number, &wanted, sizeof number);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct csv_cell cell = cell_of(bad[i]);
        assert_int_equal(csv_cell_number(&cell, DL_DTYPE_FLOAT64, &number), -EINVAL);
    }
    struct csv_cell infinite = cell_of("-Inf"), none = cell_of("NaN"), large = cell_of("1e999"),
                    wide = cell_of("1e39");
    float narrow;
    assert_int_equal(csv_cell_number(&infinite, DL_DTYPE_FLOAT64, &number), 0);
    assert_true(number == -INFINITY);
    assert_int_equal(csv_cell_number(&none, DL_DTYPE_FLOAT64, &number), 0);
    assert_true(isnan(number));
    assert_int_equal(csv_cell_number(&large, DL_DTYPE_FLOAT64, &number), -ERANGE);
    assert_int_equal(csv_cell_number(&wide, DL_DTYPE_FLOAT32, &narrow), -ERANGE);
}

TEST(test_sorts)
{
    static const struct {
        const char *cells[3];
        enum csv_sort sort;
    } rows[] = {
        {{"1", "2", "3"}, CSV_INT},
        {{"1", "", "3"}, CSV_INT},
        {{"1", "2.5", "3"}, CSV_REAL},
        {{"1", "nan", ""}, CSV_REAL},
        {{"true", "False", ""}, CSV_BOOL},
        {{"true", "1", ""}, CSV_TEXT},
        {{"", " ", ""}, CSV_EMPTY},
        {{"1", "x", "2"}, CSV_TEXT},
        {{"99999999999999999999", "1", "2"}, CSV_TEXT}, /* an id, which a float would round */
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        enum csv_sort sort = CSV_EMPTY, back = CSV_EMPTY;
        for (size_t c = 0; c < 3; c++) {
            struct csv_cell first = cell_of(rows[i].cells[c]), last = cell_of(rows[i].cells[2 - c]);
            sort = csv_sort_join(sort, csv_cell_sort(&first));
            back = csv_sort_join(back, csv_cell_sort(&last));
        }
        assert_int_equal(sort, rows[i].sort);
        assert_int_equal(back, rows[i].sort);
    }
}

/* ---- datasets ------------------------------------------------------------------------------- */

TEST(test_columns)
{
    struct spec_dataset spec = spec_of("columns.csv", "\xEF\xBB\xBFname,count,price,sold\n"
                                                      "\"say \"\"hi\"\"\",1,0.5,true\n"
                                                      "\n"
                                                      "\"two\nlines\",-2,3,FALSE\r\n"
                                                      "\xC3\xA4,3,1e2,true");
    struct dataset *ds = must_open(&spec);
    struct taken t;

    assert_int_equal(ds->length, 3);
    assert_int_equal(take(ds, &key, 0, &t), 0);
    expect_node(&t.sample, 1, "name", TREE_STRING, 0, "say \"hi\"", 8);
    expect_node(&t.sample, 2, "count", TREE_TENSOR, DL_DTYPE_INT64, &(int64_t){1}, 8);
    expect_node(&t.sample, 3, "price", TREE_TENSOR, DL_DTYPE_FLOAT64, &(double){0.5}, 8);
    expect_node(&t.sample, 4, "sold", TREE_TENSOR, DL_DTYPE_BOOL, "\1", 1);
    drop(&t);
    assert_int_equal(take(ds, &key, 1, &t), 0);
    expect_node(&t.sample, 1, "name", TREE_STRING, 0, "two\nlines", 9);
    expect_node(&t.sample, 4, "sold", TREE_TENSOR, DL_DTYPE_BOOL, "\0", 1);
    drop(&t);
    assert_int_equal(take(ds, &key, 2, &t), 0);
    expect_node(&t.sample, 1, "name", TREE_STRING, 0, "\xC3\xA4", 2);
    expect_node(&t.sample, 3, "price", TREE_TENSOR, DL_DTYPE_FLOAT64, &(double){100}, 8);
    drop(&t);
    dataset_expect(ds, 2);
    assert_int_equal(take(ds, &key, 3, &t), -ERANGE);
    drop(&t);
    dataset_close(ds);
}

/* Each way to end a row, mixed: the same rows of numbers, and lines as editors count them. */
TEST(test_row_ends)
{
    static const char *const texts[] = {
        "a,b\r1,2\r3,4\r",     "a,b\n1,2\r3,4\n", "a,b\r\n1,2\r3,4", "\r\ra,b\r\r\n1,2\n\r3,4\r\r",
        "a,b\r\n1,2\n3,4\r\n",
    };
    static const uint64_t indices[] = {0, 1};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct spec_dataset spec = spec_of("ends.csv", texts[i]);
        struct dataset *ds = must_open(&spec);
        int64_t a[2], b[2];
        size_t bad;
        struct dl_error err = {0};
        assert_int_equal(ds->length, 2);
        assert_int_equal(ds->ops->read_rows(ds, &key, indices, 2, (void *[]){a, b}, &bad, &err), 0);
        assert_true(a[0] == 1 && b[0] == 2 && a[1] == 3 && b[1] == 4);
        dataset_close(ds);
    }
}

/* As pandas writes an index, and reads it. */
TEST(test_columns_without_names)
{
    static struct spec_field fields[] = {{(char *)"x", (char *)"Unnamed: 2"},
                                         {(char *)"y", (char *)"a.b"}};
    struct spec_dataset spec = spec_of("index.csv", ",a.b,\"\"\n0,5,x\n1,6,y\n");
    struct dataset *ds = must_open(&spec);
    struct taken t;

    assert_int_equal(take(ds, &key, 1, &t), 0);
    expect_node(&t.sample, 1, "Unnamed: 0", TREE_TENSOR, DL_DTYPE_INT64, &(int64_t){1}, 8);
    expect_node(&t.sample, 2, "a.b", TREE_TENSOR, DL_DTYPE_INT64, &(int64_t){6}, 8);
    expect_node(&t.sample, 3, "Unnamed: 2", TREE_STRING, 0, "y", 1);
    drop(&t);
    dataset_close(ds);
    spec.fields = fields;
    spec.n_fields = 2;
    ds = must_open(&spec);
    assert_int_equal(take(ds, &key, 0, &t), 0);
    expect_node(&t.sample, 1, "x", TREE_STRING, 0, "x", 1);
    expect_node(&t.sample, 2, "y", TREE_TENSOR, DL_DTYPE_INT64, &(int64_t){5}, 8);
    drop(&t);
    dataset_close(ds);
}

/* Numbers alone, of types that the spec says, of two files, without names. */
TEST(test_rows)
{
    static struct spec_field fields[] = {{(char *)"x", (char *)"1"}, {(char *)"y", (char *)"0"}};
    struct spec_dataset spec = spec_of("rows.tsv", "1\t2.5\tz\n\n3\t4\tz\n");
    uint64_t indices[] = {2, 0, 1};
    struct dl_error err = {0};
    uint8_t y[3];
    float x[3];
    size_t bad;

    files[1].path = (char *)harness_file("more.tsv", "5\t\tz", 4);
    spec.n_files = 2;
    spec.header = false;
    spec.fields = fields;
    spec.n_fields = 2;
    assert_int_equal(value_set_string(&spec.types, "1", "float32"), 0);
    assert_int_equal(value_set_string(&spec.types, "0", "uint8"), 0);
    spec.nulls = (struct value){.type = VALUE_INT, .integer = -1};
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->length, 3);
    assert_true(dataset_is_fixed(ds));
    assert_name(ds, 1, "/rows.tsv: row 1");
    assert_name(ds, 2, "/more.tsv: row 0");
    assert_int_equal(ds->n_leaves, 2);
    assert_int_equal(ds->ops->read_rows(ds, &key, indices, 3, (void *[]){x, y}, &bad, &err), 0);
    assert_memory_equal(x, ((float[]){-1, 2.5F, 4}), sizeof x);
    assert_memory_equal(y, ((uint8_t[]){5, 1, 3}), sizeof y);
    indices[1] = 3;
    assert_int_equal(ds->ops->read_rows(ds, &key, indices, 3, (void *[]){x, y}, &bad, &err),
                     -ERANGE);
    assert_int_equal(bad, 1);
    dataset_close(ds);
    value_deinit(&spec.types);
}

TEST(test_bad_rows)
{
    static const struct {
        const char *text;
        uint64_t bad;
        const char *why;
    } rows[] = {
        {"a,b\n1,2\n3\n", 1, "line 3 has only 1 cells, and the first line 2; put a cell"},
        {"a,b\n1,2\n\n3,4,5\n", 1,
         "line 4 has more than 2 cells, and the first line 2; put a cell"},
        {"a\n\"x\ny\"\n\"x\"y\n", 1, "line 4: its a has something after its closing quote"},
        {"a,b\n1,2\n3,\n", 1,
         "line 3: its b is empty; give empty cells a value with dataset.nulls"},
        {"a\n\xFFx\n", 0, "line 2: its a is not UTF-8; convert the file with iconv"},
        {"a\r\n1\r\"2\"x\r", 1, "line 3: its a has something after its closing quote"},
    };
    struct taken t;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct spec_dataset spec = spec_of("bad.csv", rows[i].text);
        struct dataset *ds = must_open(&spec);
        assert_true(take(ds, &key, rows[i].bad, &t) < 0);
        assert_string_equal(t.err.path, files[0].path);
        assert_error_has(&t.err, rows[i].why);
        drop(&t);
        dataset_close(ds);
    }
}

/* Behind the rows that were looked at, there is another type. */
TEST(test_later_type)
{
    static char text[16 << 10];
    size_t len = (size_t)sprintf(text, "a\n");
    struct taken t;

    for (int i = 0; i < CSV_ROWS_JUDGED; i++)
        len += (size_t)sprintf(text + len, "%d\n", i);
    sprintf(text + len, "2.5\n");
    struct spec_dataset spec = spec_of("later.csv", text);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(take(ds, &key, CSV_ROWS_JUDGED, &t), -EINVAL);
    assert_error(
        &t.err, EINVAL, files[0].path,
        "line 1002: its a is \"2.5\", which is not of type int64; give the column another type "
        "with dataset.types, such as {a: string}");
    drop(&t);
    dataset_close(ds);
    assert_int_equal(value_set_string(&spec.types, "a", "float64"), 0);
    ds = must_open(&spec);
    assert_int_equal(take(ds, &key, CSV_ROWS_JUDGED, &t), 0);
    expect_node(&t.sample, 1, "a", TREE_TENSOR, DL_DTYPE_FLOAT64, &(double){2.5}, 8);
    drop(&t);
    dataset_close(ds);
    value_deinit(&spec.types);
}

TEST(test_refusals)
{
    static const struct {
        const char *text, *type_of, *type, *why;
    } rows[] = {
        {"", NULL, NULL, "has no row with the names of its columns"},
        {"\n\n", NULL, NULL, "has no row with the names of its columns"},
        {"a,a\n", NULL, NULL, "its first row has the name a twice"},
        {",Unnamed: 0\n", NULL, NULL, "its first row has the name Unnamed: 0 twice"},
        {"a,\"b\"c,d\n", NULL, NULL,
         "its first row has no name of 1 to 128 bytes of UTF-8 for column 1"},
        {"a,\xFF\n", NULL, NULL, "its first row has no name"},
        {"a,\"b\n", NULL, NULL, "its first row has a cell without its closing quote"},
        {"a,b\n1,2\n3,\"4\n5,6\n", NULL, NULL, "line 3 has a cell without its closing quote"},
        {"\x1F\x8B\x08zip", NULL, NULL, "unpack it with gunzip"},
        {"a\n1\n", "b", "int8", "is not a column of the files"},
        {"a\n1\n", "a", "float16", "is not a type of a column; give one of string, bool"},
        {"a\n1\n", "a", "number", "is not a type of a column; give one of string, bool"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct spec_dataset spec = spec_of("refused.csv", rows[i].text);
        struct dataset *ds = NULL;
        struct dl_error err = {0};
        if (rows[i].type_of)
            assert_int_equal(value_set_string(&spec.types, rows[i].type_of, rows[i].type), 0);
        assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
        assert_error_has(&err, rows[i].why);
        value_deinit(&spec.types);
    }
}

TEST(test_unequal_files)
{
    struct spec_dataset spec = spec_of("first.csv", "a,b\n1,2\n");
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    files[1].path = (char *)harness_file("second.csv", "b,a\n1,2\n", 8);
    spec.n_files = 2;
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
    assert_string_equal(err.path, files[1].path);
    assert_error_has(&err, "its first row does not have the 2 columns of the first file");
}

/* No rows, with names and without. */
TEST(test_empty)
{
    struct spec_dataset spec = spec_of("empty.csv", "a,b\n");

    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->length, 0);
    dataset_close(ds);
    spec = spec_of("nothing.csv", "\n");
    spec.header = false;
    ds = must_open(&spec);
    assert_int_equal(ds->length, 0);
    dataset_close(ds);
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    static struct spec_field fields[] = {{(char *)"x", (char *)"a"}, {(char *)"y", (char *)"b"}};
    struct spec_dataset spec = spec_of("memory.csv", "a,b\n1,\"q\"\"q\"\n2,y\n");
    int all, refused;

    spec.fields = fields;
    spec.n_fields = 2;
    all = fail_open_each(&spec, &refused);
    /* Without memory to move to, the places of rows stay where there is too much of it. */
    assert_true(all > 7 && refused >= all - 2);
}
