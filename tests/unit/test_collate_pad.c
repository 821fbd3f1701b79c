/* Collating with padding: lengths, masks, sides, values of every dtype, and what is refused. */
#include "tests/unit/collate_case.h"

#include <math.h>

static const struct collate_case good[] = {
    /* In a dict: siblings, after the leaf. */
    {"kind: pad", "[{x: {$tensor: [uint8, [2], 1]}, y: 5}, {x: {$tensor: [uint8, [3], 2]}, y: 6}]",
     "{x:uint8(2, 3)[1 8 0 2 9 16] x_lengths:int64(2,)[2 3] x_mask:bool(2, 3)[true true false true "
     "true true] y:int64(2,)[5 6]}"},
    /* Elsewhere: a dict in its place. */
    {"kind: pad, side: left, value: 9", "[{$tensor: [uint8, [1], 1]}, {$tensor: [uint8, [2], 2]}]",
     "{values:uint8(2, 2)[9 1 2 9] lengths:int64(2,)[1 2] mask:bool(2, 2)[false true true true]}"},
    {"kind: pad", "[[1, {$tensor: [uint8, [1], 1]}], {$tuple: [2, {$tensor: [uint8, [0], 1]}]}]",
     "[int64(2,)[1 2] {values:uint8(2, 1)[1 0] lengths:int64(2,)[1 0] mask:bool(2, 1)[true "
     "false]}]"},
    /* multiple_of; further dimensions. */
    {"kind: pad, multiple_of: 4, value: 1",
     "[{$tensor: [uint8, [1, 2], 3]}, {$tensor: [uint8, [0, 2], 3]}]",
     "{values:uint8(2, 4, 2)[3 10 1 1 1 1 1 1 1 1 1 1 1 1 1 1] lengths:int64(2,)[1 0] mask:bool(2, "
     "4)[true false false false false false false false]}"},
    {"kind: pad, multiple_of: 2", "[{$tensor: [uint8, [2], 3]}]",
     "{values:uint8(1, 2)[3 10] lengths:int64(1,)[2] mask:bool(1, 2)[true true]}"},
    /* to: bucket, alone and with a multiple of its own; length, which neither of them changes. */
    {"kind: pad, to: bucket, interval: 3", "[{$tensor: [uint8, [4], 1]}]",
     "{values:uint8(1, 6)[1 8 15 22 0 0] lengths:int64(1,)[4] mask:bool(1, 6)[true true true true "
     "false false]}"},
    {"kind: pad, to: bucket, interval: 4, multiple_of: 6", "[{$tensor: [uint8, [1], 1]}]",
     "{values:uint8(1, 12)[1 0 0 0 0 0 0 0 0 0 0 0] lengths:int64(1,)[1] mask:bool(1, 12)[true "
     "false false false false false false false false false false false]}"},
    {"kind: pad, to: longest, interval: 3", "[{$tensor: [uint8, [1], 1]}]",
     "{values:uint8(1, 1)[1] lengths:int64(1,)[1] mask:bool(1, 1)[true]}"},
    {"kind: pad, length: 3, multiple_of: 2",
     "[{$tensor: [uint8, [1], 1]}, {$tensor: [uint8, [3], 2]}]",
     "{values:uint8(2, 3)[1 0 0 2 9 16] lengths:int64(2,)[1 3] mask:bool(2, 3)[true false false "
     "true true true]}"},
    {"kind: pad, length: 3, side: left", "[{$tensor: [uint8, [1], 1]}]",
     "{values:uint8(1, 3)[0 0 1] lengths:int64(1,)[1] mask:bool(1, 3)[false false true]}"},
    /* Nothing to pad with, or nothing at all. */
    {"kind: pad, multiple_of: 8", "[{$tensor: [uint8, [0], 3]}, {$tensor: [uint8, [0], 3]}]",
     "{values:uint8(2, 0) lengths:int64(2,)[0 0] mask:bool(2, 0)}"},
    {"kind: pad", "[{$tensor: [uint8, [2, 0], 3]}, {$tensor: [uint8, [3, 0], 3]}]",
     "{values:uint8(2, 3, 0) lengths:int64(2,)[2 3] mask:bool(2, 3)[true true false true true "
     "true]}"},
    {"kind: pad", "[1, 2]", "int64(2,)[1 2]"},
    {"kind: pad", "[{s: a}, {s: bc}]", "{s:texts[\"a\" \"bc\"]}"},
    /* fields: only those; paths go through lists; a key may have a dot in it. */
    {"kind: pad, fields: [b]",
     "[{a: {$tensor: [uint8, [1], 1]}, b: {$tensor: [uint8, [0], 1]}}, {b: {$tensor: [uint8, [1], "
     "1]}, a: {$tensor: [uint8, [1], 2]}}]",
     "{a:uint8(2, 1)[1 2] b:uint8(2, 1)[0 1] b_lengths:int64(2,)[0 1] b_mask:bool(2, 1)[false "
     "true]}"},
    {"kind: pad, fields: [p.1]", "[{p: [1, {$tensor: [uint8, [1], 1]}]}]",
     "{p:[int64(1,)[1] {values:uint8(1, 1)[1] lengths:int64(1,)[1] mask:bool(1, 1)[true]}]}"},
    {"kind: pad, fields: [a.b.c]", "[{a: {x: 1}, 'a.b': {c: {$tensor: [uint8, [1], 1]}}}]",
     "{a:{x:int64(1,)[1]} a.b:{c:uint8(1, 1)[1] c_lengths:int64(1,)[1] c_mask:bool(1, 1)[true]}}"},
    /* No clash: what could have been padded is not. */
    {"kind: pad, fields: [b]",
     "[{a: {$tensor: [uint8, [1], 1]}, a_mask: 1, mask: 2, c_mask: 3, b: {$tensor: [uint8, [0], "
     "1]}}]",
     "{a:uint8(1, 1)[1] a_mask:int64(1,)[1] mask:int64(1,)[2] c_mask:int64(1,)[3] b:uint8(1, 0) "
     "b_lengths:int64(1,)[0] b_mask:bool(1, 0)}"},
    /* Without batching: no first dimension. */
    {"kind: pad, size: null, multiple_of: 4, value: 2",
     "[{x: {$tensor: [uint8, [2], 1]}, t: {$tuple: [1]}}]",
     "{x:uint8(4,)[1 8 2 2] x_lengths:2 x_mask:bool(4,)[true true false false] t:[1]}"},
};

static const struct collate_case bad[] = {
    {"kind: pad, length: 2", "[{a: {$tensor: [uint8, [2], 1]}}, {a: {$tensor: [uint8, [3], 1]}}]",
     "1: collate.length: sample 11 has 3 elements at a, more than 2; choose a greater length, or "
     "cut samples with batch: {max_length: 2, overlong: truncate}"},
    {"kind: pad, length: 2", "[{$tensor: [uint8, [3], 1]}]",
     "0: collate.length: sample 10 has 3 elements, more than 2; choose a greater length, or cut "
     "samples with batch: {max_length: 2, overlong: truncate}"},
    {"kind: pad", "[{$tensor: [uint8, [1, 2], 1]}, {$tensor: [uint8, [1, 3], 1]}]",
     "1: collate: sample 11 has [1, 3], sample 10 has [1, 2]; only the first dimension is padded"},
    {"kind: pad", "[{$tensor: [uint8, [1, 2], 1]}, {$tensor: [uint8, [1], 1]}]",
     "1: collate: sample 11 has [1], sample 10 has [1, 2]; only the first dimension is padded"},
    {"kind: pad", "[{$tensor: [uint8, [1], 1]}, {$tensor: [int8, [1], 1]}]",
     "1: collate: sample 11 has int8 [1], sample 10 has uint8 [1]; convert them to one dtype in "
     "the dataset"},
    {"kind: pad", "[{$tensor: [uint8, [1], 1]}, 1]",
     "1: collate: sample 11 has int64 [], sample 10 has uint8 [1]; convert them to one dtype in "
     "the dataset"},
    {"kind: pad, fields: [a]",
     "[{a: {$tensor: [uint8, [1], 1]}, b: {$tensor: [uint8, [1], 1]}}, "
     "{a: {$tensor: [uint8, [2], 1]}, b: {$tensor: [uint8, [2], 1]}}]",
     "1: collate: sample 11 has [2], sample 10 has [1], at b; name it in collate.fields to have it "
     "padded"},
    {"kind: pad, fields: [a, x.y]",
     "[{a: {$tensor: [uint8, [1], 1]}, b: [{$tensor: [uint8, [1], "
     "1]}, 5], c: x}]",
     "0: collate.fields.1: sample 10 has no x.y; it can be padded at a, b.0"},
    {"kind: pad, fields: [a.0]", "[{a: 1}]",
     "0: collate.fields.0: sample 10 has no a.0; it can be padded at none"},
    {"kind: pad, fields: [x]", "[{$tensor: [uint8, [1], 1]}]",
     "0: collate.fields.0: sample 10 has no x; it can be padded at the sample itself: leave fields "
     "out"},
    {"kind: pad, fields: [c]", "[{a: {$tensor: [uint8, [1], 1]}, c: x}]",
     "0: collate.fields.0: c is a string in sample 10, and has no dimension to pad; the sample can "
     "be padded at a"},
    {"kind: pad, fields: [c]", "[{c: 5}]",
     "0: collate.fields.0: c is int64 [] in sample 10, and has no dimension to pad; the sample can "
     "be padded at none"},
    {"kind: pad, fields: [c]", "[{c: {d: 5}}]",
     "0: collate.fields.0: c is a dict in sample 10, and has no dimension to pad; the sample can "
     "be padded at none"},
    {"kind: pad", "[{a: {$tensor: [uint8, [1], 1]}, a_mask: 1}]",
     "0: collate: the samples have a field a_mask, which padding a would add; rename it, or leave "
     "a out of collate.fields"},
    {"kind: pad", "[{a_lengths: {}, a: {$tensor: [uint8, [1], 1]}}]",
     "0: collate: the samples have a field a_lengths, which padding a would add; rename it, or "
     "leave a out of collate.fields"},
    {"kind: pad", "[{_mask: 1, '': {$tensor: [uint8, [1], 1]}}]",
     "0: collate: the samples have a field _mask, which padding  would add; rename it, or leave  "
     "out of collate.fields"},
    {"kind: pad, value: -1", "[{a: [{$tensor: [uint8, [1], 1]}]}]",
     "0: collate.value: -1 is not a value of uint8, at a.0; choose another value, or name the "
     "fields to pad in "
     "collate.fields"},
    {"kind: pad, multiple_of: 9223372036854775807",
     "[{$tensor: [uint8, [1], 1]}, {$tensor: [uint8, [2], 1]}]",
     "0: batch.size: this batch needs more than the 68719476736 bytes a segment can have; choose "
     "a smaller batch"},
    {"kind: pad, multiple_of: 9223372036854775806",
     "[{$tensor: [uint8, [1], 1]}, {$tensor: [uint8, [9223372036854775807, 0], 1]}]",
     "1: collate: sample 11 has [9223372036854775807, 0], sample 10 has [1]; only the first "
     "dimension is padded"},
    {"kind: pad, multiple_of: 9223372036854775806",
     "[{$tensor: [uint8, [9223372036854775807, 0], 1]}]",
     "0: collate.multiple_of: 9223372036854775807 elements have no multiple of "
     "9223372036854775806 above them within the limits; choose a smaller one"},
};

TEST(test_good)
{
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        check_good(&good[i]);
}

TEST(test_bad)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        check_bad(&bad[i]);
}

/* A key that is long enough to have no room for what padding adds. */
TEST(test_long_key)
{
    char key[DL_BOUND_NAME_BYTES + 1], text[512], expect[512];

    for (size_t len = DL_BOUND_NAME_BYTES - 9; len <= DL_BOUND_NAME_BYTES; len++) {
        struct collate *c = must_collate("kind: pad");
        struct case_samples s = {0};
        struct batch_layout layout;
        struct dl_error err = {0};
        size_t at;
        memset(key, 'k', len);
        key[len] = '\0';
        snprintf(text, sizeof text, "[{%s: {$tensor: [uint8, [1], 1]}}]", key);
        snprintf(expect, sizeof expect,
                 "the key %s_lengths has more than 128 bytes; choose a shorter one", key);
        build_samples(&s, text);
        int r = measure_case(c, &s, &layout, &at, &err);
        assert_int_equal(r, len + 8 > DL_BOUND_NAME_BYTES ? -EINVAL : 0);
        if (r < 0)
            assert_error(&err, EINVAL, "collate", expect);
        free_samples(&s);
        collate_free(c);
    }
}

/* The filling of one row padded to 3, of which 1 is data; NULL: refused. */
struct filling {
    double value;
    const char *dtype;
    const char *hex; /* of one element; little-endian */
};

static const struct filling fillings[] = {
    {0, "bool", "00"},
    {1, "bool", "01"},
    {2, "bool", NULL},
    {0.5, "bool", NULL},
    {NAN, "bool", NULL},
    {255, "uint8", "ff"},
    {256, "uint8", NULL},
    {-1, "uint8", NULL},
    {-0.0, "uint8", "00"},
    {0.5, "uint8", NULL},
    {NAN, "int32", NULL},
    {INFINITY, "int64", NULL},
    {-128, "int8", "80"},
    {-129, "int8", NULL},
    {127, "int8", "7f"},
    {128, "int8", NULL},
    {65535, "uint16", "ffff"},
    {65536, "uint16", NULL},
    {-100, "int16", "9cff"},
    {-32769, "int16", NULL},
    {4294967295.0, "uint32", "ffffffff"},
    {4294967296.0, "uint32", NULL},
    {-100, "int32", "9cffffff"},
    {2147483648.0, "int32", NULL},
    {-100, "int64", "9cffffffffffffff"},
    {-0x1p63, "int64", "0000000000000080"},
    {0x1p63, "int64", NULL},
    {0x1.fffffffffffffp62, "int64", "00fcffffffffff7f"},
    {0x1p63, "uint64", "0000000000000080"},
    {0x1p64, "uint64", NULL},
    {-1, "uint64", NULL},
    {-100, "float64", "00000000000059c0"},
    {0.1, "float64", "9a9999999999b93f"},
    {-INFINITY, "float64", "000000000000f0ff"},
    {0.1, "float32", "cdcccc3d"},
    {1e39, "float32", NULL},
    {INFINITY, "float32", "0000807f"},
    {-0.0, "float32", "00000080"},
    {-1e9, "float32", "286b6ece"},
    {0.1, "float16", "662e"},
    {1, "float16", "003c"},
    {-2, "float16", "00c0"},
    {65504, "float16", "ff7b"},
    {65519.9, "float16", "ff7b"},
    {65520, "float16", NULL},
    {INFINITY, "float16", "007c"},
    {-INFINITY, "float16", "00fc"},
    {NAN, "float16", "007e"},
    {-0.0, "float16", "0080"},
    {0x1p-24, "float16", "0100"},
    {0x1p-25, "float16", "0000"},               /* a tie: to even */
    {0x1.0000000000001p-25, "float16", "0100"}, /* lost if rounded to float32 first */
    {0x1p-1074, "float16", "0000"},
    {0x1.ff8p-15, "float16", "ff03"}, /* the largest subnormal, and what rounds up from it */
    {0x1.ffcp-15, "float16", "0004"},
    {0x1p-14, "float16", "0004"},
    {0x1.002p0, "float16", "003c"}, /* a tie: to even */
    {0x1.006p0, "float16", "023c"},
    {0x1.ffep0, "float16", "0040"}, /* up into the next exponent */
    {0.1, "bfloat16", "cd3d"},
    {1, "bfloat16", "803f"},
    {0x1.01p0, "bfloat16", "803f"},
    {0x1.03p0, "bfloat16", "823f"},
    {0x1.fep127, "bfloat16", "7f7f"},
    {0x1.ffp127, "bfloat16", NULL},
    {0x1p-133, "bfloat16", "0100"},
    {-INFINITY, "bfloat16", "80ff"},
    {NAN, "bfloat16", "c07f"},
    {0.5, "complex64", "0000003f00000000"},
    {1e39, "complex64", NULL},
    {0.5, "complex128", "000000000000e03f0000000000000000"},
};

TEST(test_values)
{
    static const uint8_t data[16];
    static _Alignas(64) uint8_t slot[4096];

    for (size_t i = 0; i < ARRAY_SIZE(fillings); i++) {
        const struct filling *f = &fillings[i];
        for (int side = PAD_RIGHT; side <= PAD_LEFT; side++) {
            struct dl_spec spec = {
                .batch_size = 1,
                .collate = {
                    .kind = COLLATE_PAD, .side = side, .value = f->value, .multiple_of = 3}};
            struct sample sample = {0};
            struct collate *c = NULL;
            struct batch_layout layout;
            struct dl_error err = {0};
            uint32_t dtype;
            size_t at;
            char hex[33] = "";

            assert_int_equal(dtype_from_name(f->dtype, &dtype), 0);
            size_t size = dtype_bytes(dtype);
            assert_int_equal(collate_new(&spec, &anywhere, &c, &err), 0);
            sample_tensor(&sample, NULL, dtype, 1, (uint64_t[]){1}, data);
            int r = collate_measure(c, &sample, case_numbers, 1, NULL, 0, &layout, &at, &err);
            if (r != (f->hex ? 0 : -EINVAL))
                fail_msg("%g as %s: %d %s", f->value, f->dtype, r, err.message);
            if (r == 0) {
                collate_write(c, slot);
                const uint8_t *got = slot + layout.data_off + (side == PAD_RIGHT ? size : 0);
                for (size_t b = 0; b < size; b++)
                    snprintf(hex + 2 * b, 3, "%02x", got[b]);
                if (strcmp(hex, f->hex) != 0 || memcmp(got, got + size, size) != 0)
                    fail_msg("%g as %s is %s, not %s", f->value, f->dtype, hex, f->hex);
                got = slot + layout.data_off + (side == PAD_RIGHT ? 0 : 2 * size);
                assert_memory_equal(got, data, size);
            } else {
                assert_string_equal(err.path, "collate.value");
            }
            sample_deinit(&sample);
            collate_free(c);
        }
    }
}
