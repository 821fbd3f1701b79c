/* The loader spec: what is accepted, its limits, and the canonical form. */
#include "proto/spec_table.h"
#include "tests/unit/spec_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static const char full_text[] =
    "name: fashion/train-1_a.b\n"
    "dataset:\n"
    "  kind: idx\n"
    "  paths: {label: ../labels.gz, image: sub/./train//images.gz}\n"
    "sampler: {kind: random, order: native}\n"
    "batch: {size: 256, drop_last: true}\n"
    "collate: {kind: default}\n"
    "shard: {mode: strided, even: false}\n"
    "seed: 42\n"
    "workers: {count: 5, prefetch: 3, timeout: 30s, retries: 0, on_error: raise}\n"
    "memory: {limit: 256MiB, pin: true, writable: true}\n";

/* ---- what stands in the fields ------------------------------------------------------------------
 */

#define RANGE "{dataset: {kind: range, length: 10}"
#define RECORDS \
    "{dataset: {kind: records, paths: /d/r.bin, dtype: float32, shape: [3, 4], offset: 7}}"
#define SCALAR "{dataset: {kind: records, paths: r, dtype: int8, shape: []}, batch: {size: null}}"
#define IMAGES                                                                                \
    "{dataset: {kind: tar, paths: [a, b], shuffle: 5, size: [3, 4], transform: random_crop, " \
    "layout: chw}}"
#define TEXT      "{dataset: {kind: text, paths: x, format: json, tokenizer: bytes, max_length: 7}}"
#define PIECES    "{dataset: {kind: text, paths: x, tokenizer: sentencepiece, model: y}}"
#define PAD       RANGE ", collate: {kind: pad, side: left, multiple_of: 8, fields: [x.1]}}"
#define TOKENS    "{dataset: {kind: tokens, paths: t.npy, sequence_length: 9}}"
#define IN(field) offsetof(struct dl_spec, field), sizeof(((struct dl_spec *)0)->field)

static const struct {
    const char *text;
    size_t at, size;
    uint64_t want;
} numbers[] = {
    /* Defaults. */
    {RANGE "}", IN(dataset.kind), DATASET_RANGE},
    {RANGE "}", IN(dataset.length), 10},
    {RANGE "}", IN(dataset.n_files), 0},
    {RANGE "}", IN(dataset.iterable), false},
    {RANGE "}", IN(dataset.divide), false},
    {RANGE "}", IN(sampler), SAMPLER_SEQUENTIAL},
    {RANGE "}", IN(order), 0},
    {RANGE "}", IN(batch_size), 1},
    {RANGE "}", IN(drop_last), false},
    {RANGE "}", IN(shard), SHARD_STRIDED},
    {RANGE "}", IN(even), true},
    {RANGE "}", IN(has_seed), false},
    {RANGE "}", IN(collate.kind), COLLATE_DEFAULT},
    {RANGE "}", IN(in_order), true},
    {RANGE "}", IN(workers), 2},
    {RANGE "}", IN(prefetch), 2},
    {RANGE "}", IN(timeout_ns), 0},
    {RANGE "}", IN(retries), 2},
    {RANGE "}", IN(on_error), ON_ERROR_RAISE},
    {RANGE "}", IN(memory_limit), 1 << 30},
    {RANGE "}", IN(writable), false},
    {RANGE "}", IN(pin), false},
    /* All that is given. */
    {full_text, IN(dataset.kind), DATASET_IDX},
    {full_text, IN(dataset.n_files), 2},
    {full_text, IN(sampler), SAMPLER_RANDOM},
    {full_text, IN(order), ORDER_NATIVE},
    {full_text, IN(batch_size), 256},
    {full_text, IN(drop_last), true},
    {full_text, IN(even), false},
    {full_text, IN(seed), 42},
    {full_text, IN(has_seed), true},
    {full_text, IN(workers), 5},
    {full_text, IN(prefetch), 3},
    {full_text, IN(timeout_ns), 30000000000},
    {full_text, IN(retries), 0},
    {full_text, IN(memory_limit), 256 << 20},
    {full_text, IN(writable), true},
    {full_text, IN(pin), true},
    {RANGE ", workers: {count: 0, in_order: false}}", IN(in_order), false},
    {RANGE ", workers: {count: 0, in_order: false}}", IN(workers), 0},
    {RANGE ", seed: 0}", IN(seed), 0},
    {RANGE ", seed: -1}", IN(seed), UINT64_MAX},
    {RANGE ", seed: -9223372036854775808}", IN(seed), UINT64_C(1) << 63},
    {RANGE ", seed: 9223372036854775807}", IN(seed), INT64_MAX},
    {RANGE ", seed: 18446744073709551615}", IN(seed), UINT64_MAX},
    {RANGE ", sampler: {kind: client}}", IN(sampler), SAMPLER_CLIENT},
    /* Kinds of datasets, and collate. */
    {"dataset: {kind: range, length: 9223372036854775807}", IN(dataset.length), INT64_MAX},
    {"dataset: {kind: npy, paths: x.npy}", IN(dataset.n_files), 1},
    {RECORDS, IN(dataset.kind), DATASET_RECORDS},
    {RECORDS, IN(dataset.dtype), DL_DTYPE_FLOAT32},
    {RECORDS, IN(dataset.ndim), 2},
    {RECORDS, IN(dataset.shape[0]), 3},
    {RECORDS, IN(dataset.shape[1]), 4},
    {RECORDS, IN(dataset.offset), 7},
    {SCALAR, IN(dataset.ndim), 0},
    {SCALAR, IN(dataset.offset), 0},
    {SCALAR, IN(batch_size), 0},
    {TOKENS, IN(dataset.dtype), 0},
    {TOKENS, IN(dataset.sequence_length), 9},
    {TOKENS, IN(dataset.stride), 9},
    {TOKENS, IN(dataset.widen), WIDEN_INT64},
    {IMAGES, IN(dataset.kind), DATASET_TAR},
    {IMAGES, IN(dataset.n_files), 2},
    {IMAGES, IN(dataset.divide), true},
    {IMAGES, IN(dataset.decode), true},
    {IMAGES, IN(dataset.shuffle), 5},
    {IMAGES, IN(dataset.image.transform), TRANSFORM_RANDOM_CROP},
    {IMAGES, IN(dataset.image.layout), LAYOUT_CHW},
    {IMAGES, IN(dataset.image.height), 3},
    {IMAGES, IN(dataset.image.width), 4},
    {"dataset: {kind: imagefolder, paths: x, size: 8}", IN(dataset.image.transform),
     TRANSFORM_RESIZE},
    {"dataset: {kind: imagefolder, paths: x, size: 8}", IN(dataset.image.layout), LAYOUT_HWC},
    {"dataset: {kind: imagefolder, paths: x, size: 8}", IN(dataset.image.resize), 0},
    {TEXT, IN(dataset.format), TEXT_JSON},
    {TEXT, IN(dataset.tokenizer), TOKENIZER_BYTES},
    {TEXT, IN(dataset.max_length), 7},
    {PIECES, IN(dataset.tokenizer), TOKENIZER_SENTENCEPIECE},
    {PIECES, IN(dataset.n_files), 1},
    {PAD, IN(collate.kind), COLLATE_PAD},
    {PAD, IN(collate.side), PAD_LEFT},
    {PAD, IN(collate.multiple_of), 8},
    {PAD, IN(collate.n_fields), 1},
};

TEST(test_numbers)
{
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        uint64_t got = 0;

        expect_spec(numbers[i].text, &spec);
        memcpy(&got, (const char *)&spec + numbers[i].at, numbers[i].size);
        if (got != numbers[i].want)
            fail_msg("%s: row %zu is %" PRIu64, numbers[i].text, i, got);
    }
}

TEST(test_texts)
{
    _cleanup_(spec_deinit) struct dl_spec range = {0}, full = {0}, one = {0}, images = {0},
                                          text = {0}, pieces = {0};
    _cleanup_(spec_deinit) struct dl_spec pad = {0}, plugin = {0};
    uint64_t fingerprint;
    char want[32];

    expect_spec(RANGE "}", &range);
    assert_int_equal(spec_fingerprint(&range, &fingerprint), 0);
    snprintf(want, sizeof want, "spec-%016" PRIx64, fingerprint);
    assert_string_equal(range.name, want);
    expect_spec(full_text, &full);
    assert_string_equal(full.name, "fashion/train-1_a.b");
    assert_string_equal(full.dataset.files[0].field, "image");
    assert_string_equal(full.dataset.files[0].path, "/base/sub/train/images.gz");
    assert_string_equal(full.dataset.files[1].field, "label");
    assert_string_equal(full.dataset.files[1].path, "/labels.gz");
    expect_spec("dataset: {kind: npy, paths: x.npy}", &one);
    assert_null(one.dataset.files[0].field);
    assert_string_equal(one.dataset.files[0].path, "/base/x.npy");
    expect_spec(IMAGES, &images);
    assert_string_equal(images.dataset.files[1].path, "/base/b");
    assert_true(images.dataset.image.scale[0] == 0.08 && images.dataset.image.scale[1] == 1);
    assert_true(images.dataset.image.aspect[0] == 0.75 &&
                images.dataset.image.aspect[1] == 4.0 / 3.0);
    assert_string_equal(spec_dataset_label(&images.dataset), "/base/a");
    expect_spec(TEXT, &text);
    assert_string_equal(text.dataset.field, "text");
    assert_null(text.dataset.model);
    expect_spec(PIECES, &pieces);
    assert_string_equal(pieces.dataset.model, "/base/y");
    assert_string_equal(spec_dataset_label(&pieces.dataset), "/base/x");
    expect_spec(PAD, &pad);
    assert_string_equal(pad.collate.fields[0], "x.1");
    expect_spec("{dataset: {kind: plugin, path: p.so, config: {a: 1}}, collate: {kind: plugin,"
                " path: c.so, config: [2]}, sampler: {kind: client}}",
                &plugin);
    assert_string_equal(plugin.dataset.files[0].path, "/base/p.so");
    assert_int_equal(value_get(&plugin.dataset.config, "a")->integer, 1);
    assert_string_equal(plugin.collate.path, "/base/c.so");
    assert_int_equal(plugin.collate.config.items[0].integer, 2);
    assert_int_equal(spec_check_length(&plugin, 0, NULL), 0);
    assert_int_equal(spec_check_length(&plugin, UINT64_MAX, NULL), 0); /* the client's business */
}

/* ---- limits and paths -------------------------------------------------------------------------
 */

TEST(test_limits)
{
    static const char *const accepted[] = {
        "batch: {size: 1}",
        "batch: {size: 1048576}",
        "batch: {size: null, drop_last: false}",
        "workers: {count: 1, prefetch: 1, retries: 0}",
        "workers: {count: 256, prefetch: 1024, retries: 100}",
        "workers: {count: auto, prefetch: 4, timeout: 1s}",
        "workers: {timeout: 9223372036}",
        "workers: {timeout: 9223372036854775807ns}",
        "memory: {limit: 1}",
        "memory: {limit: 9223372036854775807}",
        "seed: -9223372036854775808",
        "seed: 18446744073709551615",
        "{sampler: {}, batch: {}, collate: {}, shard: {}, workers: {}, memory: {}}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(accepted); i++) {
        _cleanup_(value_deinit) struct value v = {0};
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        struct dl_error err = {0};
        struct value *dataset;

        assert_int_equal(yaml_parse(accepted[i], strlen(accepted[i]), "t", &v, &err), 0);
        assert_int_equal(value_set(&v, "dataset", &dataset), 0);
        assert_int_equal(value_set_string(dataset, "kind", "range"), 0);
        assert_int_equal(value_set_int(dataset, "length", 0), 0);
        if (spec_from_value(&v, NULL, &spec, &err) < 0)
            fail_msg("%s: %s: %s", accepted[i], err.path, err.message);
    }
}

TEST(test_name_and_file_limits)
{
    for (size_t len = 127; len <= 129; len++) {
        _cleanup_(value_deinit) struct value v = {0};
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        char name[160] = {0};
        struct value *dataset, *files;
        struct dl_error err = {0};

        memset(name, 'n', len);
        assert_int_equal(value_set(&v, "dataset", &dataset), 0);
        assert_int_equal(value_set_string(dataset, "kind", "npy"), 0);
        assert_int_equal(value_set(dataset, "paths", &files), 0);
        for (uint32_t i = 0; i < DL_MAX_DATASET_FILES + (len == 129); i++) {
            name[0] = (char)('0' + i);
            name[0] = name[0] == '.' ? 'z' : name[0];
            name[1] = i % 2 ? 'a' : 'b';
            name[len == 129 ? 100 : len] = '\0';
            assert_int_equal(value_set_string(files, name, "x"), 0);
        }
        int r = spec_from_value(&v, "/", &spec, &err);
        assert_int_equal(r, len == 129 ? -EINVAL : 0);
        if (r < 0)
            assert_string_equal(err.message, "65 paths are above the maximum of 64");
        else
            assert_int_equal(spec.dataset.n_files, DL_MAX_DATASET_FILES);

        memset(name, 'n', len);
        name[len] = '\0';
        _cleanup_free_ char *text = NULL;
        _cleanup_(spec_deinit) struct dl_spec named = {0};
        assert_true(asprintf(&text, "{name: %s, dataset: {kind: npy, paths: {%s: x}}}",
                             len == 129 ? "ok" : name, name) > 0);
        assert_int_equal(read_spec(text, "/", &named, &err), len == 129 ? -EINVAL : 0);
        _cleanup_free_ char *other = NULL;
        _cleanup_(spec_deinit) struct dl_spec again = {0};
        assert_true(asprintf(&other, "{name: %s, dataset: {kind: range, length: 1}}", name) > 0);
        assert_int_equal(read_spec(other, "/", &again, &err), len == 129 ? -EINVAL : 0);
    }
}

TEST(test_paths)
{
    static const struct {
        const char *base;
        const char *path;
        const char *want;
    } cases[] = {
        {"/b", "x", "/b/x"},
        {"/b/", "x", "/b/x"},
        {"/", "x", "/x"},
        {"/b", "./x", "/b/x"},
        {"/b", "../x", "/x"},
        {"/b/c", "../../../x", "/x"},
        {"/b", "/x", "/x"},
        {"/b", "//x//y/", "/x/y"},
        {"/b", "x/./y/../z", "/b/x/z"},
        {"/b", ".", "/b"},
        {"/b", "..", "/"},
        {"/b", "/..", "/"},
        {"/b", "/", "/"},
        {"/b", "...", "/b/..."},
        {"/b", ".x", "/b/.x"},
        {"/b", "x..", "/b/x.."},
        {"/b/../c", "x", "/c/x"},
        {"/b", "a b/\xC3\xA9", "/b/a b/\xC3\xA9"},
        {"/b", "/a/b/../../c", "/c"},
        {"/b", "x/..", "/b"},
        {NULL, "/x/../y", "/y"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        struct dl_error err = {0};
        char text[256];
        snprintf(text, sizeof text, "dataset: {kind: npy, paths: \"%s\"}", cases[i].path);
        if (read_spec(text, cases[i].base, &spec, &err) < 0)
            fail_msg("%s: %s: %s", text, err.path, err.message);
        assert_string_equal(spec.dataset.files[0].path, cases[i].want);
    }

    struct dl_spec spec;
    struct dl_error err = {0};
    static const char relative[] = "dataset: {kind: npy, paths: {a: x}}";
    assert_int_equal(read_spec(relative, NULL, &spec, &err), -EINVAL);
    assert_string_equal(err.path, "dataset.paths.a");
    assert_string_equal(err.message, "\"x\" is relative, and there is no directory to start from; "
                                     "give the path from /");
    assert_int_equal(read_spec(relative, "b", &spec, &err), -EINVAL);
    assert_string_equal(err.message, "the base directory b is not a path from /");
    assert_int_equal(read_spec(relative, "", &spec, &err), -EINVAL);
}

TEST(test_long_paths)
{
    for (size_t len = 4095; len <= 4097; len++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        _cleanup_free_ char *text = NULL;
        struct dl_error err = {0};
        char path[4200] = {0};

        memset(path, 'p', len - 3); /* and "/b/" before it */
        assert_true(asprintf(&text, "dataset: {kind: npy, paths: '%s'}", path) > 0);
        int r = read_spec(text, "/b", &spec, &err);
        assert_int_equal(r, len <= DL_MAX_PATH_BYTES ? 0 : -EINVAL);
        if (r < 0)
            assert_non_null(strstr(err.message, "a path of 4097 bytes, above the maximum of 4096"));
    }
}

/* ---- canonical form -------------------------------------------------------------------------- */

static const char nested_text[] =
    "name: n\n"
    "seed: 3\n"
    "dataset:\n"
    "  kind: concat\n"
    "  datasets:\n"
    "    - {kind: subset, indices: [4, 0], dataset: {kind: npy, paths: {b: b.npy, a: a.npy}}}\n"
    "    - kind: split\n"
    "      parts: [1, 2]\n"
    "      part: 1\n"
    "      seed: -1\n"
    "      dataset: {kind: tokens, paths: t.npy, sequence_length: 9}\n";

static const char *const round_trips[] = {
    full_text,
    "dataset: {kind: range, length: 0}",
    "{dataset: {kind: range, length: 9223372036854775807}, seed: -1}",
    "{dataset: {kind: npy, paths: /x.npy}, batch: {size: null}, workers: {timeout: 1.5}}",
    "{dataset: {kind: npy, paths: {'0': a, z: b, \xC3\xA9: c, \"a b\": d}}, sampler: {kind: "
    "random}}",
    "{dataset: {kind: records, paths: r, dtype: bfloat16, shape: []}, workers: {timeout: 7ns}}",
    "{dataset: {kind: records, paths: r, dtype: bool, shape: [1, 2, 3, 4, 5, 6, 7], offset: 9},"
    " memory: {limit: 0.5GiB}}",
    "dataset: {kind: tokens, paths: t.npy, sequence_length: 5}",
    "dataset: {kind: tokens, paths: t, dtype: uint16, sequence_length: 5, stride: 2, widen: none}",
    "dataset: {kind: subset, dataset: {kind: range, length: 5}, indices: []}",
    "dataset: {kind: split, dataset: {kind: npy, paths: x}, parts: [1, 0], part: 1, seed: -1}",
    "dataset: {kind: split, dataset: {kind: npy, paths: x}, parts: [0.1, 0.2, 0.7], part: 2,"
    " seed: 18446744073709551615}",
    nested_text,
};

TEST(test_canonical_round_trip)
{
    for (size_t i = 0; i < ARRAY_SIZE(round_trips); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0}, again = {0};
        _cleanup_(value_deinit) struct value canonical = {0}, wire = {0}, canonical_again = {0};
        _cleanup_(buffer_deinit) struct dl_buffer packed = {0}, packed_again = {0};
        struct dl_error err = {0};
        uint64_t before, after;

        expect_spec(round_trips[i], &spec);
        assert_int_equal(spec_to_value(&spec, &canonical), 0);
        assert_int_equal(value_pack(&canonical, &packed), 0);
        assert_int_equal(value_unpack(packed.data, packed.len, &wire, &err), 0);
        assert_true(value_equal(&canonical, &wire));
        if (spec_from_value(&wire, NULL, &again, &err) < 0)
            fail_msg("%s: %s: %s", round_trips[i], err.path, err.message);
        assert_int_equal(spec_to_value(&again, &canonical_again), 0);
        assert_int_equal(value_pack(&canonical_again, &packed_again), 0);
        assert_int_equal(packed.len, packed_again.len);
        assert_memory_equal(packed.data, packed_again.data, packed.len);
        assert_false(spec_differs(&spec, &again, &err));
        assert_int_equal(spec_fingerprint(&spec, &before), 0);
        assert_int_equal(spec_fingerprint(&again, &after), 0);
        assert_true(before == after);
        assert_string_equal(spec.name, again.name);
        assert_true(spec.timeout_ns == again.timeout_ns && spec.seed == again.seed &&
                    spec.has_seed == again.has_seed && spec.memory_limit == again.memory_limit);
    }
}

static const char nested_canonical[] =
    "name: n\n"
    "dataset:\n"
    "  kind: concat\n"
    "  datasets:\n"
    "    - kind: subset\n"
    "      dataset: {kind: npy, paths: {a: /base/a.npy, b: /base/b.npy}}\n"
    "      indices: [4, 0]\n"
    "    - kind: split\n"
    "      dataset: {kind: tokens, paths: /base/t.npy, sequence_length: 9, stride: 9, widen: "
    "int64}\n"
    "      parts: [1, 2]\n"
    "      part: 1\n"
    "      seed: 18446744073709551615\n"
    "sampler: {kind: sequential}\n"
    "batch: {size: 1, drop_last: false}\n"
    "collate: {kind: default}\n"
    "shard: {mode: strided, even: true}\n"
    "seed: 3\n"
    "workers: {count: 2, prefetch: 2, timeout: 0s, retries: 2, on_error: raise, "
    "in_order: true}\n"
    "memory: {limit: 1073741824, pin: false}\n";

static void expect_canonical(const char *text, const char *want_text)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    _cleanup_(value_deinit) struct value got = {0};
    _cleanup_(buffer_deinit) struct dl_buffer got_packed = {0}, want_packed = {0};

    expect_spec(text, &spec);
    assert_int_equal(spec_to_value(&spec, &got), 0);
    assert_int_equal(value_pack(&got, &got_packed), 0);
    pack_yaml(want_text, &want_packed);
    assert_int_equal(got_packed.len, want_packed.len);
    assert_memory_equal(got_packed.data, want_packed.data, got_packed.len);
}

/* It is a name, and no part of what is loaded. */
TEST(test_label)
{
    static const char text[] = "{label: 'train.py: a', dataset: {kind: range, length: 5}}";
    _cleanup_(spec_deinit) struct dl_spec spec = {0}, plain = {0};
    _cleanup_(value_deinit) struct value canonical = {0};
    uint64_t fingerprint, plain_fingerprint;

    expect_spec(text, &spec);
    expect_spec("{dataset: {kind: range, length: 5}}", &plain);
    assert_string_equal(spec.name, "train.py: a");
    assert_int_equal(spec_fingerprint(&spec, &fingerprint), 0);
    assert_int_equal(spec_fingerprint(&plain, &plain_fingerprint), 0);
    assert_int_equal(fingerprint, plain_fingerprint);
    assert_int_equal(spec_to_value(&spec, &canonical), 0);
    assert_null(value_get(&canonical, "name"));
    assert_string_equal(value_get(&canonical, "label")->string, "train.py: a");
}

/* It stays a word, and is no part of what is loaded; the number is the one to begin with. */
TEST(test_automatic_workers)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0}, plain = {0};
    _cleanup_(value_deinit) struct value canonical = {0};
    uint64_t fingerprint, plain_fingerprint;

    expect_spec("{dataset: {kind: range, length: 5}, workers: {count: auto}}", &spec);
    expect_spec("{dataset: {kind: range, length: 5}, workers: {count: 7}}", &plain);
    assert_true(spec.workers_auto && spec.workers == SPEC_WORKERS_AT_FIRST);
    assert_true(!plain.workers_auto && plain.workers == 7);
    assert_int_equal(spec_fingerprint(&spec, &fingerprint), 0);
    assert_int_equal(spec_fingerprint(&plain, &plain_fingerprint), 0);
    assert_int_equal(fingerprint, plain_fingerprint);
    assert_int_equal(spec_to_value(&spec, &canonical), 0);
    assert_string_equal(value_get(value_get(&canonical, "workers"), "count")->string, "auto");
}

/* The canonical form itself, key by key: other programs show and compare it. */
TEST(test_canonical_form)
{
    static const char want_text[] =
        "name: fashion/train-1_a.b\n"
        "dataset: {kind: idx, paths: {image: /base/sub/train/images.gz, label: /labels.gz}}\n"
        "sampler: {kind: random, replacement: false, num_samples: null, order: native}\n"
        "batch: {size: 256, drop_last: true}\n"
        "collate: {kind: default}\n"
        "shard: {mode: strided, even: false}\n"
        "seed: 42\n"
        "workers: {count: 5, prefetch: 3, timeout: 30s, retries: 0, on_error: raise, "
        "in_order: true}\n"
        "memory: {limit: 268435456, pin: true, writable: true}\n";

    expect_canonical(full_text, want_text);
    expect_canonical(nested_text, nested_canonical);
}

TEST(test_nested)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    _cleanup_(spec_deinit) struct dl_spec fractions = {0};

    expect_spec(nested_text, &spec);
    const struct spec_dataset *concat = &spec.dataset;
    assert_int_equal(concat->kind, DATASET_CONCAT);
    assert_int_equal(concat->n_datasets, 2);
    const struct spec_dataset *subset = &concat->datasets[0], *split = &concat->datasets[1];
    assert_int_equal(subset->kind, DATASET_SUBSET);
    assert_int_equal(subset->n_indices, 2);
    assert_true(subset->indices[0] == 4 && subset->indices[1] == 0);
    assert_string_equal(subset->datasets[0].files[0].path, "/base/a.npy");
    assert_int_equal(split->kind, DATASET_SPLIT);
    assert_int_equal(split->n_parts, 2);
    assert_true(split->lengths[0] == 1 && split->lengths[1] == 2 && !split->fractions);
    assert_int_equal(split->part, 1);
    assert_true(split->seed == UINT64_MAX);
    const struct spec_dataset *tokens = &split->datasets[0];
    assert_int_equal(tokens->kind, DATASET_TOKENS);

    assert_string_equal(spec_dataset_label(concat), "concat");
    assert_string_equal(spec_dataset_label(subset), "/base/a.npy");
    assert_string_equal(spec_dataset_label(tokens), "/base/t.npy");

    /* Whole numbers that make 1 are fractions, as random_split() takes them. */
    expect_spec("dataset: {kind: split, dataset: {kind: range, length: 9}, parts: [0, 1], part: 0,"
                " seed: 1}",
                &fractions);
    assert_null(fractions.dataset.lengths);
    assert_true(fractions.dataset.fractions[1] == 1.0);
    assert_string_equal(spec_dataset_label(&fractions.dataset), "range");
}

/* ---- units and the table ----------------------------------------------------------------------
 */

struct unit_case {
    const char *text;
    int result;
    uint64_t n;
};

static void check_units(int (*parse)(const char *, uint64_t *), const struct unit_case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t got = 77;
        int r = parse(c[i].text, &got);
        if (r != c[i].result || got != (r < 0 ? 77 : c[i].n))
            fail_msg("%s: %d, %" PRIu64, c[i].text, r, got);
    }
}

TEST(test_durations)
{
    static const struct unit_case cases[] = {
        {"0", 0, 0},
        {"0s", 0, 0},
        {"30", 0, UINT64_C(30000000000)},
        {"30s", 0, UINT64_C(30000000000)},
        {"30 s", 0, UINT64_C(30000000000)},
        {"500ms", 0, 500000000},
        {"1us", 0, 1000},
        {"1ns", 0, 1},
        {"0.1s", 0, 100000000},
        {"1.5", 0, 1500000000},
        {"2m", 0, UINT64_C(120000000000)},
        {"2min", 0, UINT64_C(120000000000)},
        {"1.5h", 0, UINT64_C(5400000000000)},
        {"0.9ns", 0, 0},
        {"0.0000000019999999999999999999999999", 0, 1},
        {"18446744073709551615ns", 0, UINT64_MAX},
        {"18446744073709551616ns", -ERANGE, 0},
        {"18446744073.709551615s", 0, UINT64_MAX},
        {"18446744073.709551616s", -ERANGE, 0},
        {"18446744074s", -ERANGE, 0},
        {"99999999999999999999999", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"-1s", -EINVAL, 0},
        {"+1s", -EINVAL, 0},
        {" 1s", -EINVAL, 0},
        {"1s ", -EINVAL, 0},
        {"1  s", -EINVAL, 0},
        {"1S", -EINVAL, 0},
        {"1.s", -EINVAL, 0},
        {".5s", -EINVAL, 0},
        {"1,5s", -EINVAL, 0},
        {"1e3s", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"1s1s", -EINVAL, 0},
        {"inf", -EINVAL, 0},
    };
    check_units(parse_duration, cases, ARRAY_SIZE(cases));
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[SPEC_DURATION_MAX];
        uint64_t again;
        if (cases[i].result < 0)
            continue;
        format_duration(cases[i].n, text);
        assert_int_equal(parse_duration(text, &again), 0);
        assert_true(again == cases[i].n);
    }
}

TEST(test_sizes)
{
    static const struct unit_case cases[] = {
        {"0", 0, 0},
        {"4096", 0, 4096},
        {"4096B", 0, 4096},
        {"1KiB", 0, 1024},
        {"256MiB", 0, 256 << 20},
        {"256 MiB", 0, 256 << 20},
        {"1GiB", 0, 1 << 30},
        {"2TiB", 0, UINT64_C(2) << 40},
        {"1.5GiB", 0, UINT64_C(3) << 29},
        {"1kB", 0, 1000},
        {"3MB", 0, 3000000},
        {"1GB", 0, 1000000000},
        {"16777215TiB", 0, (UINT64_C(1) << 63) * 2 - (UINT64_C(1) << 40)},
        {"16777216TiB", -ERANGE, 0},
        {"18446744073709551616", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"1K", -EINVAL, 0},
        {"1M", -EINVAL, 0},
        {"1gib", -EINVAL, 0},
        {"1GiBs", -EINVAL, 0},
        {"-1GiB", -EINVAL, 0},
        {"GiB", -EINVAL, 0},
    };
    check_units(parse_bytes, cases, ARRAY_SIZE(cases));
}

TEST(test_names)
{
    assert_string_equal(dataset_kind_name(DATASET_RANGE), "range");
    assert_string_equal(dataset_kind_name(DATASET_RECORDS), "records");
    assert_string_equal(sampler_kind_name(SAMPLER_RANDOM), "random");
    assert_string_equal(dataset_kind_name((enum dataset_kind)0), "?");
    assert_string_equal(dataset_kind_name((enum dataset_kind)99), "?");
}

/* What the manual prints comes from the table: each row says all of it, no key is there twice. */
TEST(test_table)
{
    size_t n;
    const struct spec_key *keys = spec_keys(&n);

    for (size_t i = 0; i < n; i++) {
        char path[SPEC_PATH_MAX];
        spec_key_path(&keys[i], path);
        assert_ptr_equal(spec_key_find(keys[i].section, keys[i].key), &keys[i]);
        assert_true(keys[i].values[0] && keys[i].meaning[0] && strlen(path) < SPEC_PATH_MAX - 1);
        bool stores_more = keys[i].type == KEY_NAME || keys[i].type == KEY_LABEL ||
                           keys[i].type == KEY_PATH || keys[i].type == KEY_SHAPE ||
                           keys[i].type == KEY_INDICES || keys[i].type == KEY_WEIGHTS ||
                           keys[i].type == KEY_DATASET || keys[i].type == KEY_DATASETS ||
                           keys[i].type == KEY_MEMBERS || keys[i].type == KEY_PARTS ||
                           keys[i].type == KEY_PATHS || keys[i].type == KEY_LEAVES ||
                           keys[i].type == KEY_LEAF || keys[i].type == KEY_CALLABLE ||
                           keys[i].type == KEY_FIELD_NAME || keys[i].type == KEY_FIELDS ||
                           keys[i].type == KEY_FEATURES || keys[i].type == KEY_SHARES ||
                           keys[i].type == KEY_SCHEDULE;
        /* What is stored nowhere must have a fallback to show in the canonical form. */
        assert_true(keys[i].size || stores_more || keys[i].fallback);
        assert_int_equal(spec_section_exists(keys[i].section), keys[i].section[0] != '\0');
        assert_false(spec_key_is_later(keys[i].section, keys[i].key));
    }
    assert_null(spec_key_find("batch", "colour"));
    assert_null(dl_spec_word("colour"));
}
