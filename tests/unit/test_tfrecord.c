/* TFRecord files: sums, Examples of every kind of list, and what is refused. */
#include "daemon/data/files/shared_index.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/tfrecord/tfrecord_example.h"
#include "daemon/data/kinds/tfrecord/tfrecord_index.h"
#include "proto/common/sealed.h"
#include "tests/lib/bytes.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/taken.h"

#include <errno.h>
#include <fcntl.h>

static const struct sample_key key;
static const float floats[] = {1.5F, -2, 1};
static struct crc32c crc;
static struct spec_file file;

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

static struct spec_dataset spec_of(const char *name, const struct bytes *content)
{
    file.path = (char *)harness_file(name, content->data, content->len);
    return (struct spec_dataset){.kind = DATASET_TFRECORD,
                                 .files = &file,
                                 .n_files = 1,
                                 .decode = true,
                                 .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
}

static uint32_t node_of(const struct sample *sample, const char *name)
{
    for (uint32_t i = 1; i < sample->tree.count; i++) {
        const struct tree_node *node = &sample->tree.nodes[i];
        if (node->key_len == strlen(name) &&
            memcmp(sample->tree.keys + node->key_off, name, node->key_len) == 0)
            return i;
    }
    fail_msg("no field %s", name);
    return 0;
}

static void expect_field(const struct sample *sample, const char *name, uint32_t kind,
                         const void *data, size_t len)
{
    uint32_t i = node_of(sample, name);

    assert_int_equal(sample->tree.nodes[i].kind, kind);
    assert_int_equal(sample->tree.nodes[i].nbytes, len);
    if (len > 0)
        assert_memory_equal(sample->data[i], data, len);
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
    static const int64_t ints[] = {150, -1, 5}, label[] = {7};
    struct bytes features = all_kinds(), records = {.len = 0};
    struct taken t;

    struct bytes example = example_of(&features);
    put_record(&records, "", 0);
    put_record(&records, example.data, example.len);
    struct spec_dataset spec = spec_of("values.tfrecord", &records);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->length, 2);
    assert_int_equal(take(ds, &key, 0, &t), 0);
    assert_int_equal(t.sample.tree.count, 1); /* an empty dict */
    drop(&t);
    assert_int_equal(take(ds, &key, 1, &t), 0);
    assert_int_equal(t.sample.tree.nodes[0].children, 7);
    expect_field(&t.sample, "text", TREE_BYTES, "one", 3);
    expect_field(&t.sample, "floats", TREE_TENSOR, floats, 8);
    expect_field(&t.sample, "mixed", TREE_TENSOR, floats, 12);
    expect_field(&t.sample, "label", TREE_TENSOR, label, 8);
    expect_field(&t.sample, "ints", TREE_TENSOR, ints, sizeof ints);
    expect_field(&t.sample, "empty", TREE_TENSOR, NULL, 0);
    assert_int_equal(t.sample.tree.nodes[node_of(&t.sample, "texts")].kind, TREE_LIST);
    assert_name(ds, 1, "/values.tfrecord: record 1");
    assert_int_equal(node_of(&t.sample, "empty"), 1); /* in the order of their names */
    dataset_expect(ds, 1);
    drop(&t);
    dataset_close(ds);
}

TEST(test_raw)
{
    struct bytes records = {.len = 0};
    struct taken t;

    put_record(&records, "anything", 8);
    struct spec_dataset spec = spec_of("raw.tfrecord", &records);
    spec.decode = false;
    struct dataset *ds = must_open(&spec);
    assert_int_equal(take(ds, &key, 0, &t), 0);
    expect_field(&t.sample, "record", TREE_BYTES, "anything", 8);
    drop(&t);
    dataset_close(ds);
    spec.decode = true;
    ds = must_open(&spec);
    assert_int_equal(take(ds, &key, 0, &t), -EINVAL);
    assert_error_has(&t.err, "its record 0 at byte 0 is");
    drop(&t);
    assert_int_equal(take(ds, &key, 1, &t), -ERANGE);
    drop(&t);
    dataset_close(ds);
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
        struct bytes features = {.len = 0}, records = {.len = 0};
        struct taken t;
        put_feature(&features, "x", rows[i].kind, rows[i].list, rows[i].len);
        struct bytes example = example_of(&features);
        put_record(&records, example.data, example.len);
        struct spec_dataset spec = spec_of("lists.tfrecord", &records);
        struct dataset *ds = must_open(&spec);
        assert_int_equal(take(ds, &key, 0, &t), -EINVAL);
        assert_error_has(&t.err, "its record 0 at byte 0: its feature x is a list that is damaged");
        drop(&t);
        dataset_close(ds);
    }
}

TEST(test_chosen)
{
    static struct spec_field fields[] = {{(char *)"y", (char *)"label"}};
    static struct spec_field missing[] = {{(char *)"x", (char *)"picture"}};
    static char *images[] = {(char *)"label"};
    struct bytes features = {.len = 0}, records = {.len = 0};
    struct taken t;

    put_feature(&features, "label", FEATURE_INTS, "\x0A\x01\x07", 3);
    put_feature(&features, "other", FEATURE_INTS, "\x0A\x01\x07", 3);
    struct bytes example = example_of(&features);
    put_record(&records, example.data, example.len);
    struct spec_dataset spec = spec_of("chosen.tfrecord", &records);
    spec.fields = fields;
    spec.n_fields = 1;
    struct dataset *ds = must_open(&spec);
    assert_int_equal(take(ds, &key, 0, &t), 0);
    assert_int_equal(t.sample.tree.count, 2);
    expect_field(&t.sample, "y", TREE_TENSOR, &(int64_t){7}, 8);
    drop(&t);
    dataset_close(ds);

    spec.fields = missing;
    ds = must_open(&spec);
    assert_int_equal(take(ds, &key, 0, &t), -EINVAL);
    assert_error_has(&t.err, "its feature picture is not there");
    drop(&t);
    dataset_close(ds);

    spec.fields = fields;
    spec.images = images;
    spec.n_images = 1;
    ds = must_open(&spec);
    assert_int_equal(take(ds, &key, 0, &t), -EINVAL);
    assert_error_has(&t.err, "is a list of numbers, not an image");
    drop(&t);
    dataset_close(ds);
}

/* A file that is cut anywhere, or has one byte changed, is refused when it is opened or read. */
TEST(test_damaged)
{
    struct bytes whole = {.len = 0};
    struct dl_error err = {0};
    struct taken t;

    put_record(&whole, "first", 5);
    put_record(&whole, "second", 6);
    for (size_t at = 0; at < whole.len; at++) {
        struct bytes changed = whole;
        struct dataset *ds = NULL;
        changed.data[at] ^= 0x10;
        struct spec_dataset spec = spec_of("changed.tfrecord", &changed);
        spec.decode = false;
        int r = dataset_open(&spec, &anywhere, &ds, &err);
        if (r == 0) {
            int first = take(ds, &key, 0, &t);
            drop(&t);
            int second = take(ds, &key, 1, &t);
            drop(&t);
            assert_true(first == -EINVAL || second == -EINVAL);
        } else {
            assert_int_equal(r, -EINVAL);
            assert_error_has(&err, "its record ");
        }
        dataset_close(ds);
        changed = whole;
        changed.len = at;
        ds = NULL;
        spec = spec_of("cut.tfrecord", &changed);
        r = dataset_open(&spec, &anywhere, &ds, &err);
        assert_int_equal(r, at == 0 || at == 21 ? 0 : -EINVAL); /* at the end of a record */
        dataset_close(ds);
    }
}

TEST(test_compressed)
{
    struct bytes whole = {.len = 0}, packed = {.len = 0};
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    put_record(&whole, "first", 5);
    packed.len = make_gzip(whole.data, whole.len, packed.data, ROOM);
    struct spec_dataset spec = spec_of("packed.tfrecord.gz", &packed);
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
    assert_error_has(&err, "unpack it with gunzip");
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory, setup)
{
    static char *images[] = {(char *)"picture"};
    struct bytes features = all_kinds(), records = {.len = 0};
    struct bytes example = example_of(&features);
    put_record(&records, example.data, example.len);
    struct spec_dataset spec = spec_of("memory.tfrecord", &records);

    spec.images = images;
    spec.n_images = 1;
    expect_memory_failures(&spec, 3);
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
static int index_of(const struct spec_dataset *spec, int fd, uint64_t records)
{
    int kept = -1;
    struct shared_indexes indexes = {.offer = keep_index, .owner = &kept};
    struct data_env env = {.indexes = &indexes};
    struct dataset *ds = NULL;
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};

    if (fd >= 0)
        assert_int_equal(shared_indexes_add(&indexes, span_str("dataset"), SHARED_INDEX_TFRECORD,
                                            fcntl(fd, F_DUPFD_CLOEXEC, 0)),
                         0);
    assert_int_equal(dataset_open(spec, &env, &ds, &err), 0);
    env.indexes = NULL;
    shared_indexes_deinit(&indexes);
    assert_int_equal(ds->length, records);
    for (uint64_t i = 0; i < records; i++) {
        assert_int_equal(dataset_get(ds, &key, i, &sample, &err), 0);
        sample_clear(&sample);
    }
    dataset_close(ds);
    sample_deinit(&sample);
    arena_deinit(&arena);
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
    struct spec_dataset spec = spec_of("shared.tfrecord", &records);

    spec.decode = false;
    int kept = index_of(&spec, -1, 10);
    assert_true(kept >= 0);
    assert_int_equal(index_of(&spec, kept, 10), -1); /* which makes none */

    /* A file of another size, and what is no index: it is scanned again. */
    spec = spec_of("shared.tfrecord", &more);
    spec.decode = false;
    int again = index_of(&spec, kept, 11);
    assert_true(again >= 0);
    close(kept);
    kept = sealed_new("none", "0123456789abcdef", 16);
    int other = index_of(&spec, kept, 11);
    assert_true(other >= 0);
    close(kept);
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
