/* TFRecord files: sums, Examples of every kind of list, and what is refused. */
#include "daemon/data/files/shared_index.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/tfrecord/tfrecord_example.h"
#include "daemon/data/kinds/tfrecord/tfrecord_index.h"
#include "proto/common/sealed.h"
#include "tests/lib/bytes.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"

#include <errno.h>
#include <fcntl.h>

static const struct sample_key key;
static const float floats[] = {1.5F, -2, 1};
static struct crc32c crc;

static void put_record(struct bytes *to, const void *data, uint64_t len)
{
    uint32_t sum = crc32c_mask(crc32c_of(&crc, (const uint8_t *)&len, sizeof len));

    put(to, &len, sizeof len);
    put(to, &sum, sizeof sum);
    put(to, data, len);
    sum = crc32c_mask(crc32c_of(&crc, data, len));
    put(to, &sum, sizeof sum);
}

/* A length-delimited field of at most 127 bytes. */
static void put_field(struct bytes *to, unsigned number, const void *data, size_t len)
{
    put(to, (uint8_t[]){(uint8_t)(number << 3 | 2), (uint8_t)len}, 2);
    put(to, data, len);
}

/* Into the Features: name → Feature with `list` as its list of the kind. */
static void put_feature(struct bytes *to, const char *name, unsigned kind, const void *list,
                        size_t len)
{
    struct bytes feature = {.len = 0}, entry = {.len = 0};

    put_field(&feature, kind, list, len);
    put_field(&entry, 1, name, strlen(name));
    put_field(&entry, 2, feature.data, feature.len);
    put_field(to, 1, entry.data, entry.len);
}

static struct bytes example_of(const struct bytes *features)
{
    struct bytes example = {.len = 0};

    put(&example, (uint8_t[]){0x0A, (uint8_t)(features->len | 0x80), (uint8_t)(features->len >> 7)},
        3);
    put(&example, features->data, features->len);
    return example;
}

/* A feature of every kind of list, and one without a value. */
static struct bytes all_kinds(void)
{
    struct bytes features = {.len = 0}, list = {.len = 0};

    put_field(&list, 1, "one", 3);
    put_feature(&features, "text", FEATURE_BYTES, list.data, list.len);
    put_field(&list, 1, "", 0);
    put_feature(&features, "texts", FEATURE_BYTES, list.data, list.len);
    list.len = 0;
    put_field(&list, 1, floats, 8);
    put_feature(&features, "floats", FEATURE_FLOATS, list.data, list.len);
    put(&list, "\x0D\0\0\x80\x3F", 5); /* 1.0, not packed */
    put_feature(&features, "mixed", FEATURE_FLOATS, list.data, list.len);
    put_feature(&features, "label", FEATURE_INTS, "\x0A\x01\x07", 3);
    /* 150, -1 packed; 5 by itself */
    put_feature(&features, "ints", FEATURE_INTS,
                "\x0A\x0C\x96\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01\x08\x05", 16);
    put_feature(&features, "empty", FEATURE_INTS, "", 0);
    put_field(&features, 1, "\x0A\x04none\x12\x00", 8);
    return features;
}

static void write_records(const char *name, const struct bytes *records)
{
    harness_file(name, records->data, records->len);
}

/* One record, an Example of these features. */
static void write_example(const char *name, const struct bytes *features)
{
    struct bytes example = example_of(features), records = {.len = 0};

    put_record(&records, example.data, example.len);
    write_records(name, &records);
}

static int setup(void **state)
{
    crc32c_init(&crc);
    return 0;
}

/* As published: RFC 3720, B.4. */
TEST(test_crc, setup)
{
    uint8_t bytes[32] = {0};

    assert_int_equal(crc32c_of(&crc, bytes, 32), 0x8A9136AA);
    memset(bytes, 0xFF, 32);
    assert_int_equal(crc32c_of(&crc, bytes, 32), 0x62A8AB43);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(crc32c_of(&crc, bytes, 32), 0x46DD794E);
    assert_int_equal(crc32c_of(&crc, (const uint8_t *)"123456789", 9), 0xE3069283);
}

TEST(test_values)
{
    struct bytes features = all_kinds(), records = {.len = 0};
    struct bytes example = example_of(&features);

    put_record(&records, "", 0);
    put_record(&records, example.data, example.len);
    write_records("values.tfrecord", &records);
    expect_dataset("{kind: tfrecord, paths: values.tfrecord}",
                   "{} {empty:int64(0,) floats:float32(2,)[1.5 -2] ints:int64(3,)[150 -1 5] "
                   "label:int64(1,)[7] mixed:float32(3,)[1.5 -2 1] text:<one> texts:[<one> <>]}");
    struct dataset *ds = open_dataset("{kind: tfrecord, paths: values.tfrecord}", &anywhere);
    assert_name(ds, 1, "/values.tfrecord: record 1");
    dataset_close(ds);
}

TEST(test_raw)
{
    struct bytes records = {.len = 0};

    put_record(&records, "anything", 8);
    write_records("raw.tfrecord", &records);
    expect_dataset("{kind: tfrecord, paths: raw.tfrecord, decode: false}", "{record:<anything>}");
    expect_dataset("{kind: tfrecord, paths: raw.tfrecord}",
                   "(raw.tfrecord: its record 0 at byte 0 is...)");
}

/* A last number without an end; half a float; a list of bytes that is none; another wire type. */
TEST(test_damaged_lists)
{
    static const struct {
        unsigned kind;
        const char *list;
        size_t len;
    } rows[] = {
        {FEATURE_INTS, "\x0A\x02\x05\xFF", 4},
        {FEATURE_INTS, "\x08", 1},
        {FEATURE_INTS, "\x0D\0\0\0\0", 5},
        {FEATURE_INTS, "\x0A\x0B\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 13},
        {FEATURE_FLOATS, "\x0A\x03\0\0\0", 5},
        {FEATURE_FLOATS, "\x08\x05", 2},
        {FEATURE_BYTES, "\x0A\x09\0", 3},
        {FEATURE_BYTES, "\x08\x05", 2},
        {FEATURE_BYTES, "\x12\x00", 2},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct bytes features = {.len = 0};
        put_feature(&features, "x", rows[i].kind, rows[i].list, rows[i].len);
        write_example("lists.tfrecord", &features);
        expect_dataset("{kind: tfrecord, paths: lists.tfrecord}",
                       "(lists.tfrecord: its record 0 at byte 0: its feature x is a list that is "
                       "damaged...)");
    }
}

TEST(test_chosen)
{
    static const char *const rows[][2] = {
        {"{kind: tfrecord, paths: chosen.tfrecord, fields: {y: label}}", "{y:int64(1,)[7]}"},
        {"{kind: tfrecord, paths: chosen.tfrecord, fields: {x: picture}}",
         "(chosen.tfrecord: ...its feature picture is not there...)"},
        {"{kind: tfrecord, paths: chosen.tfrecord, fields: {y: label}, images: [label]}",
         "(chosen.tfrecord: ...is a list of numbers, not an image...)"},
    };
    struct bytes features = {.len = 0};

    put_feature(&features, "label", FEATURE_INTS, "\x0A\x01\x07", 3);
    put_feature(&features, "other", FEATURE_INTS, "\x0A\x01\x07", 3);
    write_example("chosen.tfrecord", &features);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        expect_dataset(rows[i][0], rows[i][1]);
}

/* A file that is cut anywhere, or has one byte changed, is refused when it is opened or read. */
TEST(test_damaged)
{
    struct bytes whole = {.len = 0};

    put_record(&whole, "first", 5);
    put_record(&whole, "second", 6);
    for (size_t at = 0; at < whole.len; at++) {
        struct bytes changed = whole;
        changed.data[at] ^= 0x10;
        write_records("damaged.tfrecord", &changed);
        expect_dataset("{kind: tfrecord, paths: damaged.tfrecord, decode: false}",
                       "...damaged.tfrecord: its record ...");
        changed = whole;
        changed.len = at;
        write_records("cut.tfrecord", &changed);
        expect_dataset("{kind: tfrecord, paths: cut.tfrecord, decode: false}",
                       at == 0    ? ""
                       : at == 21 ? "{record:<first>}" /* at the end of a record */
                                  : "cut.tfrecord: ...");
    }
}

TEST(test_compressed)
{
    struct bytes whole = {.len = 0}, packed = {.len = 0};

    put_record(&whole, "first", 5);
    packed.len = make_gzip(whole.data, whole.len, packed.data, ROOM);
    write_records("packed.tfrecord.gz", &packed);
    expect_dataset("{kind: tfrecord, paths: packed.tfrecord.gz}",
                   "packed.tfrecord.gz: ...unpack it with gunzip...");
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory, setup)
{
    struct bytes features = all_kinds();

    write_example("memory.tfrecord", &features);
    expect_failures_of("{kind: tfrecord, paths: memory.tfrecord, images: [picture]}", 3);
}

/* ---- what workers share --------------------------------------------------------------------- */

static int keep_index(void *owner, const char *place, uint32_t form, uint64_t kept_by, int fd)
{
    int *kept = owner;

    assert_int_equal(kept_by, 0); /* it is not kept on disk */
    assert_int_equal(*kept, -1);
    assert_string_equal(place, "dataset");
    assert_int_equal(form, SHARED_INDEX_TFRECORD);
    *kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return 0;
}

/* A worker that was given `fd`, unless it is -1; what it offers. The dataset has so many records.
 */
static int index_of(int fd, uint64_t records)
{
    int kept = -1;
    struct shared_indexes indexes = {.offer = keep_index, .owner = &kept};
    struct data_env env = {.indexes = &indexes};

    if (fd >= 0)
        assert_int_equal(shared_indexes_add(&indexes, span_str("dataset"), SHARED_INDEX_TFRECORD,
                                            fcntl(fd, F_DUPFD_CLOEXEC, 0)),
                         0);
    struct dataset *ds =
        open_dataset("{kind: tfrecord, paths: shared.tfrecord, decode: false}", &env);
    env.indexes = NULL;
    shared_indexes_deinit(&indexes);
    assert_int_equal(ds->length, records);
    for (uint64_t i = 0; i < records; i++) {
        struct taken t;
        assert_int_equal(take(ds, &key, i, &t), 0);
        drop(&t);
    }
    dataset_close(ds);
    return kept;
}

static struct bytes some_records(size_t n)
{
    struct bytes records = {.len = 0};

    for (size_t i = 0; i < n; i++)
        put_record(&records, "record", i % 7);
    return records;
}

TEST(test_scanned_once, setup)
{
    struct bytes records = some_records(10), more = some_records(11);

    write_records("shared.tfrecord", &records);
    int kept = index_of(-1, 10);
    assert_true(kept >= 0);
    assert_int_equal(index_of(kept, 10), -1); /* which makes none */

    /* A file of another size, and what is no index: it is scanned again. */
    write_records("shared.tfrecord", &more);
    int again = index_of(kept, 11);
    int none = sealed_new("none", "0123456789abcdef", 16);
    int other = index_of(none, 11);
    assert_true(again >= 0 && other >= 0);
    close(kept);
    close(none);
    close(again);
    close(other);
}

TEST(test_indexes_of_any_bytes, setup)
{
    struct bytes records = some_records(3);
    const struct tfrecord_view view = {
        .path = "any", .data = records.data, .bytes = records.len, .crc = &crc};
    static const uint8_t values[] = {0, 1, 0x7F, 0x80, 0xFF};
    struct dl_buffer index = {0};
    unsigned refused = 0;

    assert_int_equal(tfrecord_index_begin(&index, 2), 0);
    assert_int_equal(tfrecord_index_add(&index, 0, &view, NULL), 0);
    assert_int_equal(tfrecord_index_add(&index, 1, &view, NULL), 0);
    assert_true(tfrecord_index_is_sound(index.data, index.len, 2));
    assert_false(tfrecord_index_is_sound(index.data, index.len, 1));
    assert_false(tfrecord_index_is_sound(index.data, index.len, 3));
    for (size_t cut = 0; cut < index.len; cut++)
        assert_false(tfrecord_index_is_sound(index.data, cut, 2));
    for (size_t i = 0; i < index.len; i++) {
        uint8_t was = index.data[i];
        for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
            index.data[i] = values[v];
            if (!tfrecord_index_is_sound(index.data, index.len, 2)) {
                refused++;
                continue;
            }
            const uint64_t *offset = tfrecord_index_offsets(index.data, 2);
            for (uint32_t k = 0; k < 6; k++)
                assert_true(offset[k] < tfrecord_index_files(index.data)[k / 3].bytes);
        }
        index.data[i] = was;
    }
    assert_true(refused > 200);
    buffer_deinit(&index);
}
