/* Numbers as people read them, by the table that the live page and Python have, too. */
#include "tests/lib/harness.h"

#include "proto/common/figures.h"

#include <math.h>

TEST(test_figures)
{
    static const struct {
        void (*format)(double, char *, size_t);
        double n;
        const char *want;
    } rows[] = {
#define FIGURE(kind, n, want) {format_##kind, n, want},
#include "tests/lib/figures.def"
#undef FIGURE
    };
    char text[UNITS_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        rows[i].format(rows[i].n, text, sizeof text);
        assert_string_equal(text, rows[i].want);
    }
}

/* Of no number that there is, all fits, and cut is what does not fit. */
TEST(test_any_number)
{
    static const double numbers[] = {NAN, INFINITY, -INFINITY, 1e300, -1e300, 9e14, 1e15, 0x1p63};
    void (*const formats[])(double, char *, size_t) = {format_seconds, format_percent, format_bytes,
                                                       format_count};
    char text[512], cut[8];

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(formats); k++) {
            formats[k](numbers[i], text, sizeof text);
            formats[k](numbers[i], cut, sizeof cut);
            assert_int_equal(strlen(cut), min_u64(strlen(text), sizeof cut - 1));
            assert_memory_equal(cut, text, strlen(cut));
        }
    }
}
