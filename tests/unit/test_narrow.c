/* float16 and bfloat16: every number there is, and what lies between two of them. */
#include "daemon/data/decode/transform/narrow.h"
#include "tests/lib/harness.h"

#include <math.h>

static const uint32_t both[] = {DL_DTYPE_FLOAT16, DL_DTYPE_BFLOAT16};

/* The bits of infinity. */
static uint16_t infinity_of(uint32_t dtype)
{
    return dtype == DL_DTYPE_FLOAT16 ? 0x7c00 : 0x7f80;
}

/* As 1 + n / 2^fraction, times a power of two: the definition, in double. */
static double value_of(uint32_t dtype, uint16_t bits)
{
    int fraction = dtype == DL_DTYPE_FLOAT16 ? 10 : 7, bias = dtype == DL_DTYPE_FLOAT16 ? 15 : 127;
    int exponent = (bits & 0x7fff) >> fraction, rest = bits & ((1 << fraction) - 1);
    double size = exponent == 0 ? ldexp(rest, 1 - bias - fraction)
                                : ldexp(rest + (1 << fraction), exponent - bias - fraction);

    return bits & 0x8000 ? -size : size;
}

TEST(test_every_number)
{
    for (size_t k = 0; k < ARRAY_SIZE(both); k++) {
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            float value = narrow_value(both[k], (uint16_t)bits);
            if ((bits & 0x7fff) > infinity_of(both[k])) {
                assert_true(isnan(value));
                assert_true(isnan(narrow_value(both[k], narrow_bits(both[k], value))));
                continue;
            }
            if ((bits & 0x7fff) == infinity_of(both[k]))
                assert_true(isinf(value) && (value < 0) == (bits > 0x7fff));
            else
                assert_true((double)value == value_of(both[k], (uint16_t)bits));
            assert_int_equal(narrow_bits(both[k], value), bits);
            assert_true(narrow_round(both[k], value) == value);
        }
    }
}

/* Between two neighbours, of which the upper one may be infinity: halfway goes to the even one. */
TEST(test_between)
{
    for (size_t k = 0; k < ARRAY_SIZE(both); k++) {
        for (uint16_t low = 0; low < infinity_of(both[k]); low++) {
            float a = narrow_value(both[k], low);
            float step = (float)(value_of(both[k], low) - value_of(both[k], (uint16_t)(low - 1)));
            if (low == 0 || (low & (both[k] == DL_DTYPE_FLOAT16 ? 0x3ff : 0x7f)) == 0)
                step = (float)(value_of(both[k], (uint16_t)(low + 1)) - (double)a);
            float middle = a + step / 2;
            uint16_t high = (uint16_t)(low + 1), even = low & 1 ? high : low;
            assert_int_equal(narrow_bits(both[k], middle), even);
            assert_int_equal(narrow_bits(both[k], -middle), even | 0x8000);
            assert_int_equal(narrow_bits(both[k], nextafterf(middle, 0)), low);
            assert_int_equal(narrow_bits(both[k], nextafterf(middle, INFINITY)), high);
        }
    }
}

TEST(test_others)
{
    assert_int_equal(narrow_bits(DL_DTYPE_FLOAT16, 1e30F), 0x7c00);
    assert_int_equal(narrow_bits(DL_DTYPE_FLOAT16, -INFINITY), 0xfc00);
    assert_int_equal(narrow_bits(DL_DTYPE_BFLOAT16, 3.4e38F), 0x7f80);
    assert_true(narrow_round(DL_DTYPE_FLOAT32, 0.1F) == 0.1F);
    assert_true(narrow_round(DL_DTYPE_BFLOAT16, 0.1F) == 0.10009765625F);
    assert_true(narrow_round(DL_DTYPE_FLOAT16, 0.1F) == 0.0999755859375F);
}
