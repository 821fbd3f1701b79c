/* Times and shares as people read them, by table. */
#include "tests/lib/harness.h"

#include "proto/common/figures.h"

struct row {
    double n;
    const char *want;
};

static void check(void (*format)(double, char *, size_t), const struct row *rows, size_t n)
{
    char text[UNITS_MAX];

    for (size_t i = 0; i < n; i++) {
        format(rows[i].n, text, sizeof text);
        assert_string_equal(text, rows[i].want);
    }
}

static void test_seconds(void **state)
{
    static const struct row rows[] = {
        {0, "0 s"},
        {4e-7, "0 µs"},
        {0.000023, "23 µs"},
        {0.0009994, "999 µs"},
        {0.0009996, "1.0 ms"},
        {0.00421, "4.2 ms"},
        {0.00996, "10 ms"},
        {0.0123, "12 ms"},
        {0.5, "500 ms"},
        {0.9996, "1.0 s"},
        {3.21, "3.2 s"},
        {9.96, "10 s"},
        {86400, "86400 s"},
        {-0.25, "-250 ms"},
    };

    check(format_seconds, rows, ARRAY_SIZE(rows));
}

static void test_percent(void **state)
{
    static const struct row rows[] = {
        {0, "0 %"},         {0.0004, "< 0.1 %"}, {0.0314, "3.1 %"}, {0.0996, "10 %"},
        {0.8594, "85.9 %"}, {0.86, "86 %"},      {1, "100 %"},
    };

    check(format_percent, rows, ARRAY_SIZE(rows));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_seconds),
    cmocka_unit_test(test_percent),
};

TEST_MAIN(tests)
