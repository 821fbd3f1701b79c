/*
 * Parquet from its parts up: formats of compression, encodings, partitions, filters; then whole
 * files, those of the fuzzer's corpus, which pyarrow wrote: as they are, cut, damaged, and without
 * memory.
 */
#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/parquet/codec.h"
#include "daemon/data/kinds/parquet/encoding.h"
#include "daemon/data/kinds/parquet/files.h"
#include "daemon/data/kinds/parquet/filter.h"
#include "tests/lib/lengths.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/parquet_corpus.h"

#include <errno.h>
#include <math.h>

/* ---- compression ---------------------------------------------------------------------------- */

/* Members of gzip, of 22, 20 and 23 bytes. */
#define GZIP_HEAD  "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03"
#define GZIP_AB    GZIP_HEAD "\x4b\x4c\x02\x00\x6d\x48\x83\x9e\x02\x00\x00\x00"
#define GZIP_EMPTY GZIP_HEAD "\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"
#define GZIP_CDE   GZIP_HEAD "\x4b\x4e\x49\x05\x00\x1f\x97\x99\x89\x03\x00\x00\x00"
enum { GZIP_BYTES = 22 };

TEST(test_lz)
{
    static const struct {
        uint32_t codec;
        const char *packed;
        size_t bytes;
        const char *wanted; /* NULL: corrupt */
    } rows[] = {
        {PARQUET_SNAPPY, "\x05\x10hello", 7, "hello"},
        {PARQUET_GZIP, GZIP_AB, GZIP_BYTES, "ab"},
        {PARQUET_GZIP, GZIP_AB GZIP_EMPTY GZIP_CDE, 3 * GZIP_BYTES - 1, "abcde"},
        {PARQUET_GZIP, GZIP_AB "\x1f\x8b", GZIP_BYTES + 2, NULL},
        {PARQUET_GZIP, GZIP_AB "ab", GZIP_BYTES + 2, NULL},
        {PARQUET_SNAPPY, "\x05\xf0\x04hello", 8, "hello"},
        {PARQUET_SNAPPY,
         "\x08\x04"
         "ab\x09\x02",
         6, "abababab"}, /* a copy of 6 into itself */
        {PARQUET_SNAPPY,
         "\x06\x04"
         "ab\x0e\x02\x00",
         7, "ababab"},
        {PARQUET_SNAPPY,
         "\x06\x04"
         "ab\x0f\x02\x00\x00\x00",
         9, "ababab"},
        {PARQUET_SNAPPY, "\x00", 1, ""},
        {PARQUET_SNAPPY, "\x05\x10hell", 6, NULL},  /* cut */
        {PARQUET_SNAPPY, "\x04\x10hello", 7, NULL}, /* more than it says */
        {PARQUET_SNAPPY, "\x06\x10hello", 7, NULL}, /* less */
        {PARQUET_SNAPPY,
         "\x08\x04"
         "ab\x09\x03",
         6, NULL}, /* from before its beginning */
        {PARQUET_SNAPPY,
         "\x08\x04"
         "ab\x09\x00",
         6, NULL}, /* from itself */
        {PARQUET_SNAPPY,
         "\x08\x04"
         "ab\x09",
         5, NULL},
        {PARQUET_SNAPPY, "\x08\xf4\x04", 3, NULL},
        {PARQUET_SNAPPY, "", 0, NULL},
        {PARQUET_SNAPPY, "\xff\xff\xff\xff\xff\x0f", 6, NULL},
        {PARQUET_LZ4_RAW, "\x50hello", 6, "hello"},
        {PARQUET_LZ4_RAW,
         "\x22"
         "ab\x02\x00\x10x",
         7, "ababababx"},
        {PARQUET_LZ4_RAW,
         "\x1f"
         "a\x01\x00\x00\x00",
         6, "aaaaaaaaaaaaaaaaaaaa"},
        {PARQUET_LZ4_RAW, "\x50hell", 5, NULL},
        {PARQUET_LZ4_RAW,
         "\x22"
         "ab\x03\x00\x10x",
         7, NULL},
        {PARQUET_LZ4_RAW,
         "\x22"
         "ab\x00\x00\x10x",
         7, NULL},
        {PARQUET_LZ4_RAW,
         "\x22"
         "ab\x02",
         4, NULL},
        {PARQUET_LZ4_RAW, "\xf0", 1, NULL},
        /* Hadoop's frames: both sizes, big-endian. */
        {PARQUET_LZ4, "\0\0\0\5\0\0\0\6\x50hello", 14, "hello"},
        {PARQUET_LZ4, "\x50hello", 6, "hello"},
        {PARQUET_PLAIN, "hello", 5, "hello"},
    };
    uint8_t out[64];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        size_t room = rows[i].wanted ? strlen(rows[i].wanted) : 8;
        int r = parquet_codec_unpack(rows[i].codec, (const uint8_t *)rows[i].packed, rows[i].bytes,
                                     out, room);
        if (r != (rows[i].wanted ? 0 : -EINVAL) ||
            (rows[i].wanted && memcmp(out, rows[i].wanted, room) != 0))
            fail_msg("row %zu: %d", i, r);
    }
    assert_int_equal(parquet_codec_unpack(PARQUET_LZO, out, 1, out, 1), -ENOTSUP);
    assert_int_equal(parquet_codec_unpack(99, out, 1, out, 1), -ENOTSUP);
    assert_string_equal(parquet_codec_name(PARQUET_LZ4_RAW), "lz4_raw");
    assert_false(parquet_codec_is_built_in(99));
}

/* ---- encodings ------------------------------------------------------------------------------ */

/* The numbers 0 to 7 in three bits each, as Encodings.md has them; and runs. */
TEST(test_levels)
{
    static const uint8_t packed[] = {3, 0x88, 0xC6, 0xFA}, run[] = {10, 1, 4, 0};
    uint8_t levels[8];

    assert_true(parquet_decode_levels(packed, packed + 4, 7, 8, levels));
    for (uint8_t i = 0; i < 8; i++)
        assert_int_equal(levels[i], i);
    assert_true(parquet_decode_levels(run, run + 4, 1, 7, levels));
    assert_memory_equal(levels, "\1\1\1\1\1\0\0", 7);
    assert_false(parquet_decode_levels(run, run + 4, 1, 8, levels));       /* too few */
    assert_false(parquet_decode_levels(run, run + 1, 1, 5, levels));       /* cut */
    assert_false(parquet_decode_levels(packed, packed + 4, 6, 8, levels)); /* 7 is above 6 */
    assert_false(parquet_decode_levels((const uint8_t *)"\0\0", (const uint8_t *)"\0\0" + 2, 1, 1,
                                       levels)); /* a run of nothing */
}

TEST(test_delta)
{
    /* 7, 5, 3, 1, 2, 3, 4, 5: the example of Encodings.md, in blocks of 128 */
    static const uint8_t data[] = {0x80, 1, 4, 8, 14, 3, 2, 0, 0, 0, 0xC0, 0x3F, 0, 0, 0, 0, 0, 0};
    static const int32_t wanted[] = {7, 5, 3, 1, 2, 3, 4, 5};
    int64_t wide[8];
    int32_t got[8];
    const uint8_t *end;
    uint8_t bad[sizeof data];

    assert_true(parquet_decode_delta(data, data + sizeof data, 8, 4, (uint8_t *)got, &end));
    assert_memory_equal(got, wanted, sizeof wanted);
    assert_ptr_equal(end, data + sizeof data);
    assert_true(parquet_decode_delta(data, data + sizeof data, 8, 8, (uint8_t *)wide, &end));
    assert_int_equal(wide[3], 1);
    for (size_t cut = 0; cut < sizeof data; cut++)
        assert_false(parquet_decode_delta(data, data + cut, 8, 4, (uint8_t *)got, &end));
    assert_false(parquet_decode_delta(data, data + sizeof data, 7, 4, (uint8_t *)got, &end));
    memcpy(bad, data, sizeof data);
    bad[2] = 0; /* no miniblocks */
    assert_false(parquet_decode_delta(bad, bad + sizeof bad, 8, 4, (uint8_t *)got, &end));
    bad[2] = 4;
    bad[6] = 65; /* bits */
    assert_false(parquet_decode_delta(bad, bad + sizeof bad, 8, 4, (uint8_t *)got, &end));
}

TEST(test_prefixed)
{
    /* axis, axle, babble, babyhood: prefixes 0 2 0 3, suffixes axis le babble yhood */
    static const uint8_t data[] =
        "\x80\1\4\4\0\3\3\0\0\0\x44\1\0\0\0\0\0\0\0\0\0\0"   /* +2 -2 +3, less -2 */
        "\x80\1\4\4\x08\3\3\0\0\0\x70\0\0\0\0\0\0\0\0\0\0\0" /* -2 +4 -1 */
        "axislebabbleyhood";
    enum { BYTES = sizeof data - 1 };
    static const char *const words[] = {"axis", "axle", "babble", "babyhood"};
    uint8_t with[BYTES];
    struct parquet_encoded e = {
        .encoding = ENCODING_DELTA_BYTE_ARRAY, .at = with, .end = with + BYTES, .n = 4};
    struct parquet_joined joined = {.most = 100};
    struct parquet_slice slices[4];

    memcpy(with, data, BYTES);
    assert_int_equal(parquet_decode_slices(&e, &joined, slices), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(slices[i].bytes, strlen(words[i]));
        assert_memory_equal(slices[i].data, words[i], slices[i].bytes);
    }
    free(joined.data);
    joined = (struct parquet_joined){.most = 21};
    assert_int_equal(parquet_decode_slices(&e, &joined, slices), -EFBIG);
    joined.most = 100;
    with[4] = 2; /* a prefix of nothing */
    assert_int_equal(parquet_decode_slices(&e, &joined, slices), -EINVAL);
    assert_null(joined.data);
}

TEST(test_fixed)
{
    static const uint8_t split[] = {1, 2, 0, 0, 0, 0, 0, 1}; /* 1 and 2 + 2^24 in four bytes */
    static uint8_t two[] = {10, 0, 20, 0};
    const struct parquet_dictionary dictionary = {.n = 2, .fixed = two};
    struct parquet_encoded e = {.encoding = ENCODING_BYTE_STREAM_SPLIT,
                                .at = split,
                                .end = split + sizeof split,
                                .n = 2,
                                .width = 4};
    struct parquet_joined joined = {0};
    uint32_t got[2];
    uint8_t few[8];

    assert_int_equal(parquet_decode_fixed(&e, &joined, (uint8_t *)got), 0);
    assert_int_equal(got[0], 1);
    assert_int_equal(got[1], 2 + (1 << 24));
    e.n = 1;
    assert_int_equal(parquet_decode_fixed(&e, &joined, (uint8_t *)got), -EINVAL);
    e = (struct parquet_encoded){.encoding = ENCODING_RLE_DICTIONARY, .n = 3, .width = 2};
    e.at = (const uint8_t *)"\1\6\1";
    e.end = e.at + 3;
    assert_int_equal(parquet_decode_fixed(&e, &joined, few), -EINVAL); /* no dictionary */
    e.dictionary = &dictionary;
    assert_int_equal(parquet_decode_fixed(&e, &joined, few), 0);
    assert_memory_equal(few, "\x14\0\x14\0\x14\0", 6);
    e.at = (const uint8_t *)"\2\6\2";
    e.end = e.at + 3;
    assert_int_equal(parquet_decode_fixed(&e, &joined, few), -EINVAL); /* index 2 of 2 */
    e.encoding = ENCODING_DELTA_LENGTH_BYTE_ARRAY;
    assert_int_equal(parquet_decode_fixed(&e, &joined, few), -ENOTSUP);
}

/* ---- partitions and filters ----------------------------------------------------------------- */

TEST(test_partitions)
{
    const char *at = "year=2024/x/month=%205%/=1/day=/city=__HIVE_DEFAULT_PARTITION__/a=b.parquet";
    static const char *const wanted[][2] = {
        {"year", "2024"}, {"month", " 5%"}, {"day", ""}, {"city", ""}};
    struct parquet_partition partition;

    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        assert_true(parquet_partition_next(&at, &partition));
        assert_string_equal(partition.name, wanted[i][0]);
        assert_string_equal(partition.value, wanted[i][1]);
    }
    assert_false(parquet_partition_next(&at, &partition));
}

TEST(test_filter)
{
    static char min[] = "min", max[] = "max", b[] = "b";
    struct value list[] = {number(1), number(9)}, range[] = {number(3), number(5)};
    struct value text = {.type = VALUE_STRING, .string = b};
    const struct value any = {.type = VALUE_ARRAY, .items = list, .count = 2};
    struct value between = {.type = VALUE_MAP, .items = range, .count = 2};
    const struct parquet_bounds numbers = {.least = 4, .greatest = 8};
    const struct parquet_bounds texts = {
        .is_text = true, .first = {(const uint8_t *)"ab", 2}, .last = {(const uint8_t *)"ba", 2}};
    struct value four = number(4), nine = number(9);

    range[0].key = min;
    range[1].key = max;
    assert_true(parquet_filter_may(&four, &numbers));
    assert_false(parquet_filter_may(&nine, &numbers));
    assert_false(parquet_filter_may(&any, &numbers));
    list[0] = number(8);
    assert_true(parquet_filter_may(&any, &numbers));
    assert_true(parquet_filter_may(&between, &numbers));
    range[1] = number(3);
    range[1].key = max;
    assert_false(parquet_filter_may(&between, &numbers));
    between.count = 1;
    range[0].integer = 8;
    assert_true(parquet_filter_may(&between, &numbers));
    range[0].integer = 9;
    assert_false(parquet_filter_may(&between, &numbers));
    assert_true(parquet_filter_may(&text, &texts));
    assert_false(parquet_filter_may(&text, &numbers));
    assert_false(parquet_filter_may(&four, &texts));
    *b = 'c';
    assert_false(parquet_filter_may(&text, &texts));
}

/* ---- files ---------------------------------------------------------------------------------- */

static const char *const names[] = {"snappy", "zstd_v2", "gzip_crc", "brotli",
                                    "lz4",    "delta",   "lengths",  "flags"};

static bool built_in(const char *name)
{
    return (strcmp(name, "brotli") != 0 || parquet_codec_is_built_in(PARQUET_BROTLI)) &&
           (strncmp(name, "zstd", 4) != 0 || parquet_codec_is_built_in(PARQUET_ZSTD));
}

TEST(test_whole)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct bytes b = corpus(names[i]);
        struct spec_dataset spec = spec_of(&b, "whole");
        struct dl_error err = {0};
        uint64_t n;
        if (!built_in(names[i])) {
            assert_int_equal(read_all(&spec, &n, &err), -ENOTSUP);
            assert_error_has(&err, "which this build cannot unpack");
            continue;
        }
        assert_int_equal(read_all(&spec, &n, &err), -EINVAL);
        assert_error_has(&err, "is null");
        assert_error_has(&err, "row group 0, row ");
        spec.nulls = number(1);
        if (read_all(&spec, &n, &err) < 0)
            fail_msg("%s: %s", names[i], err.message);
        assert_int_equal(n, strcmp(names[i], "flags") == 0 ? 15 : 5);
    }
}

TEST(test_values)
{
    uint32_t lengths[5];
    uint64_t bad;

    expect_corpus("snappy", ", nulls: 7",
                  "{i:1 f:float64 0.5 s:\"a\" l:int64(2,)[1 2]} {i:7 f:... s:\"bb\" l:int64(0,)} "
                  "{i:3 f:... s:\"\" l:int64(0,)} {i:3 f:... s:\"\" l:int64(1,)[3]} "
                  "{i:3 f:... s:\"a\" l:int64(1,)[7]}");
    expect_corpus("snappy", ", nulls: 7, fields: {n: i}", "fixed {n:1} {n:7} {n:3} {n:3} {n:3}");
    /* A group that has a null stays in columns, and its other rows can be had. */
    expect_corpus("snappy", ", fields: {n: i}",
                  "fixed {n:1} (t.parquet: row group 0, row 1: its column i is null...) {n:3} "
                  "{n:3} {n:3}");
    struct dataset *ds = open_dataset("{kind: parquet, paths: t.parquet, nulls: 7}", &anywhere);
    assert_int_equal(LENGTHS(dataset_lengths, ds, "l", 0, 5, lengths, &bad, NULL), 0);
    assert_memory_equal(lengths, ((uint32_t[]){2, 0, 0, 1, 1}), sizeof lengths);
    assert_name(ds, 3, ": row group 0, row 3");
    dataset_close(ds);
}

/* A file that ends anywhere is an error that names it. */
TEST(test_cut)
{
    struct bytes b = corpus("snappy");
    size_t whole = b.len;

    for (b.len = 0; b.len < whole; b.len += harness_stride()) {
        struct spec_dataset spec = spec_of(&b, "cut");
        struct dl_error err = {0};
        uint64_t n;
        assert_int_equal(read_all(&spec, &n, &err), -EINVAL);
        assert_string_equal(err.path, one_file.path);
    }
}

/* Each byte is another one, in each of the files: an error, or other values; never more than the
 * file's own. */
TEST(test_damaged)
{
    unsigned errors = 0;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct bytes b = corpus(names[i]);
        for (size_t at = 0; at < b.len; at += harness_stride()) {
            struct dl_error err = {0};
            uint8_t was = b.data[at];
            uint64_t n;
            b.data[at] ^= (uint8_t)(1 << (at % 8));
            struct spec_dataset spec = spec_of(&b, "damaged");
            spec.nulls = number(1);
            int r = read_all(&spec, &n, &err);
            assert_true(r == 0 || (r == -err.code && err.message[0]));
            errors += r < 0;
            b.data[at] = was;
        }
    }
    assert_true(errors > 1000 / harness_stride());
}

TEST(test_wrong_sum)
{
    struct bytes b = corpus("gzip_crc");
    struct spec_dataset spec;
    struct dl_error err = {0};
    unsigned found = 0;
    uint64_t n;

    for (size_t at = 4; at < b.len / 2; at++) {
        b.data[at] ^= 1;
        spec = spec_of(&b, "sum");
        spec.nulls = number(1);
        if (read_all(&spec, &n, &err) < 0)
            found += strstr(err.message, "the checksum (CRC-32) that it says") != NULL;
        b.data[at] ^= 1;
    }
    assert_true(found > 100);
}

/* Footers that other readers take: a root with a type, and no number of rows. */
TEST(test_footers)
{
    static const struct {
        bool root_has_type;
        uint8_t rows; /* twice as many: 4 is what there is */
        const char *says;
    } rows[] = {
        {true, 8, NULL},
        {false, 0, NULL},
        {true, 0, NULL},
        {false, 6, "another number of rows than its row groups"},
        {false, 10, "another number of rows than its row groups"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct bytes b = corpus("plain_v2");
        uint8_t *root = memmem(b.data, b.len, "\x35\0\x18\x06schema", 10);
        uint8_t *count = memmem(b.data, b.len, "\x16\x08\x19\x1c", 4);
        struct dl_error err = {0};
        uint64_t n;
        assert_true(root && count);
        count[1] = rows[i].rows;
        if (rows[i].root_has_type) { /* field 1, so that field 3 is two ahead */
            memmove(root + 2, root, (size_t)(b.data + b.len - root));
            memcpy(root, "\x15\0\x25", 3);
            b.len += 2;
            b.data[b.len - 8] += 2; /* the footer's length */
        }
        struct spec_dataset spec = spec_of(&b, "footer");
        assert_int_equal(read_all(&spec, &n, &err), rows[i].says ? -EINVAL : 0);
        assert_int_equal(n, rows[i].says ? 0 : 4);
        if (rows[i].says)
            assert_error_has(&err, rows[i].says);
    }
}

/* Columns without a name, and with a dot and a character above U+FFFF; of every sort. */
TEST(test_columns)
{
    static const struct {
        const char *name, *keys, *want;
    } rows[] = {
        {"names", "", "{...} {...} {...}"},
        {"names", ", fields: {x: 'Unnamed: 1', y: \"\xF0\x9F\xA6\x86.b\"}",
         "...{x:...} {x:...} {x:...}"},
        {"names", ", fields: {x: 'Unnamed: 0'}", "...has no column Unnamed: 0; see dataset.fields"},
        {"nested", ", nulls: 1, fields: {x: ll}", "{x:[...]..."},
        {"nested", ", nulls: 1, fields: {x: m}", "{x:[...]..."},
        {"nested", ", nulls: 1, fields: {x: s.a}", "...{x:..."},
        {"structs", ", nulls: 1, fields: {x: n}", "{x:..."},
        {"structs", ", nulls: 1, fields: {x: m}", "{x:[{role:\"user\" content:\"a\"}..."},
        {"nested", ", nulls: 1, fields: {x: none}",
         "...t.parquet: has no column none; see dataset.fields"},
        {"times", ", nulls: 1, fields: {x: d}",
         "...its column d has decimal numbers, which no tensor has; say with..."},
        {"times", ", nulls: 1, fields: {x: t}", "fixed {x:..."},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        expect_corpus(rows[i].name, rows[i].keys, rows[i].want);
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    static const char *const some[] = {"snappy", "delta",   "flags", "indexed",
                                       "nested", "structs", "lists", "sizes"};
    static struct spec_field struct_field = {(char *)"s", (char *)"s"};
    static struct spec_field list_field = {(char *)"m", (char *)"m"};

    for (size_t i = 0; i < ARRAY_SIZE(some); i++) {
        struct bytes b = corpus(some[i]);
        struct spec_dataset spec = spec_of(&b, "memory");
        bool failed = true;
        int k = 0;
        spec.nulls = number(1);
        spec.n_fields = i == 4 || i == 5;
        spec.fields = i == 4 ? &struct_field : &list_field;
        spec.cache = i == 3 ? 1 : spec.cache; /* by pages */
        for (; failed; k += (int)harness_stride()) {
            struct dl_error err = {0};
            uint64_t n;
            fail_in = k;
            int r = read_all(&spec, &n, &err);
            failed = fail_in < 0;
            fail_in = -1;
            assert_int_equal(r, failed ? -ENOMEM : 0);
            assert_int_equal(err.code, failed ? ENOMEM : 0);
        }
        assert_true(k > 10);
    }
}
