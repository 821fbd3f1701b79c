/* Comma-separated values: cells, types, rows of numbers and of texts, and what is refused. */
#include "daemon/data/kinds/csv/csv_columns.h"
#include "daemon/data/kinds/kinds.h"
#include "proto/dtype.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"

#include <errno.h>
#include <math.h>

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
    static const char *const good[] = {"0",
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
                                       "123456789012345678"};
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

static const struct {
    const char *text, *keys, *want;
} datasets[] = {
    {"\xEF\xBB\xBFname,count,price,sold\n\"say \"\"hi\"\"\",1,0.5,true\n\n"
     "\"two\nlines\",-2,3,FALSE\r\n\xC3\xA4,3,1e2,true",
     "",
     "{name:\"say \"hi\"\" count:1 price:float64 0.5 sold:true} "
     "{name:\"two\nlines\" count:-2 price:float64 3 sold:false} "
     "{name:\"\xC3\xA4\" count:3 price:float64 100 sold:true}"},
    /* Each way to end a row, mixed: the same rows of numbers. */
    {"a,b\r1,2\r3,4\r", "", "fixed {a:1 b:2} {a:3 b:4}"},
    {"a,b\n1,2\r3,4\n", "", "fixed {a:1 b:2} {a:3 b:4}"},
    {"a,b\r\n1,2\r3,4", "", "fixed {a:1 b:2} {a:3 b:4}"},
    {"\r\ra,b\r\r\n1,2\n\r3,4\r\r", "", "fixed {a:1 b:2} {a:3 b:4}"},
    {"a,b\r\n1,2\n3,4\r\n", "", "fixed {a:1 b:2} {a:3 b:4}"},
    /* As pandas writes an index, and reads it. */
    {",a.b,\"\"\n0,5,x\n1,6,y\n", "",
     "{Unnamed: 0:0 a.b:5 Unnamed: 2:\"x\"} {Unnamed: 0:1 a.b:6 Unnamed: 2:\"y\"}"},
    {",a.b,\"\"\n0,5,x\n1,6,y\n", ", fields: {x: 'Unnamed: 2', y: a.b}",
     "{x:\"x\" y:5} {x:\"y\" y:6}"},
    {"a,b\n", "", ""},
    {"\n", ", header: false", ""},
    /* Rows that are bad. */
    {"a,b\n1,2\n3\n", "",
     "fixed {a:1 b:2} (t.csv: line 3 has only 1 cells, and the first line 2; put a cell...)"},
    {"a,b\n1,2\n\n3,4,5\n", "",
     "fixed {a:1 b:2} (t.csv: line 4 has more than 2 cells, and the first line 2; put a cell...)"},
    {"a\n\"x\ny\"\n\"x\"y\n", "",
     "{a:\"x\ny\"} (t.csv: line 4: its a has something after its closing quote...)"},
    {"a,b\n1,2\n3,\n", "",
     "fixed {a:1 b:2} (t.csv: line 3: its b is empty; give empty cells a value with "
     "dataset.nulls...)"},
    {"a\n\xFFx\n", "",
     "(EILSEQ t.csv: line 2: its a is not UTF-8; convert the file with iconv...)"},
    {"a\r\n1\r\"2\"x\r", "", "...(t.csv: line 3: its a has something after its closing quote...)"},
    /* Files that are refused. */
    {"", "", "t.csv: has no row with the names of its columns..."},
    {"\n\n", "", "t.csv: has no row with the names of its columns..."},
    {"a,a\n", "", "t.csv: its first row has the name a twice..."},
    {",Unnamed: 0\n", "", "t.csv: its first row has the name Unnamed: 0 twice..."},
    {"a,\"b\"c,d\n", "",
     "t.csv: its first row has no name of 1 to 128 bytes of UTF-8 for column 1..."},
    {"a,\xFF\n", "", "t.csv: its first row has no name..."},
    {"a,\"b\n", "", "t.csv: its first row has a cell without its closing quote..."},
    {"a,b\n1,2\n3,\"4\n5,6\n", "", "t.csv: line 3 has a cell without its closing quote..."},
    {"\x1F\x8B\x08zip", "", "t.csv: ...unpack it with gunzip..."},
    {"a\n1\n", ", types: {b: int8}", "...is not a column of the files..."},
    {"a\n1\n", ", types: {a: float16}",
     "...is not a type of a column; give one of string, bool..."},
    {"a\n1\n", ", types: {a: number}", "...is not a type of a column; give one of string, bool..."},
};

TEST(test_datasets)
{
    for (size_t i = 0; i < ARRAY_SIZE(datasets); i++) {
        char text[256];

        harness_text("t.csv", datasets[i].text);
        snprintf(text, sizeof text, "{kind: csv, paths: t.csv%s}", datasets[i].keys);
        expect_dataset(text, datasets[i].want);
    }
    /* Types that the spec says, without names; the file's name says what divides its cells. */
    harness_text("t.tsv", "1\t2.5\tz\n\n3\t\tz\n");
    expect_dataset("{kind: csv, paths: t.tsv, header: false, fields: {x: '1', y: '0'}, "
                   "types: {'1': float32, '0': uint8}, nulls: -1}",
                   "fixed {x:float32 2.5 y:uint8 1} {x:float32 -1 y:uint8 3}");
}

TEST(test_two_files)
{
    harness_text("first.csv", "a,b\n1,2\n");
    harness_text("more.csv", "a,b\n5,\n7,8\n");
    harness_text("other.csv", "b,a\n1,2\n");
    expect_dataset("{kind: csv, paths: [first.csv, more.csv], nulls: -1}",
                   "fixed {a:1 b:2} {a:5 b:-1} {a:7 b:8}");
    expect_dataset("{kind: csv, paths: [first.csv, other.csv]}",
                   "other.csv: its first row does not have the 2 columns of the first file...");
    struct dataset *ds = open_dataset("{kind: csv, paths: [first.csv, more.csv]}", &anywhere);
    assert_name(ds, 0, "/first.csv: row 0");
    assert_name(ds, 2, "/more.csv: row 1");
    dataset_close(ds);
}

/* Behind the rows that were looked at, there is another type. */
TEST(test_later_type)
{
    static char text[16 << 10];
    size_t len = (size_t)sprintf(text, "a\n");

    for (int i = 0; i < CSV_ROWS_JUDGED; i++)
        len += (size_t)sprintf(text + len, "%d\n", i);
    len += (size_t)sprintf(text + len, "2.5\n");
    harness_file("later.csv", text, len);
    expect_dataset("{kind: csv, paths: later.csv}",
                   "fixed {a:0} ...(later.csv: line 1002: its a is \"2.5\", which is not of type "
                   "int64; give the column another type with dataset.types, such as {a: string})");
    expect_dataset("{kind: csv, paths: later.csv, types: {a: float64}}",
                   "fixed {a:float64 0} ... {a:float64 2.5}");
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    int all, refused;

    harness_text("memory.csv", "a,b\n1,\"q\"\"q\"\n2,y\n");
    spec = read_dataset("{kind: csv, paths: memory.csv, fields: {x: a, y: b}}");
    all = fail_open_each(&spec.dataset, &refused);
    /* Without memory to move to, the places of rows stay where there is too much of it. */
    assert_true(all > 7 && refused >= all - 2);
}
