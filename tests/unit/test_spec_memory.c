/*
 * Values, YAML and specs when memory runs out: at each allocation in turn the answer is -ENOMEM in
 * words, nothing leaks, and what was asked for is untouched.
 */
#include "proto/spec.h"
#include "proto/yaml.h"
#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>

static const char text[] =
    "{name: n, dataset: {kind: idx, paths: {label: l.gz, image: i.gz, x: x, y: y, z: z}},\n"
    " sampler: {kind: subset_random, indices: [5, 7]}, batch: {size: 256}, seed: 42,\n"
    " workers: {timeout: 30s}, memory: {limit: 256MiB}}\n";

static const char records_text[] =
    "{dataset: {kind: records, paths: r, dtype: int8, shape: [1, 2, 3, 4, 5, 6, 7]},\n"
    " sampler: {kind: weighted, weights: [1, 2.5]}}\n";

static const char nested_text[] =
    "dataset: {kind: concat, datasets: [{kind: subset, dataset: {kind: npy, paths: {a: x, b: y}},"
    " indices: [1]}, {kind: split, dataset: {kind: tokens, paths: t, sequence_length: 5},"
    " parts: [0.5, 0.5], part: 0, seed: 1}, {kind: split, dataset: {kind: range, length: 3},"
    " parts: [1, 2], part: 0, seed: 1},"
    " {kind: text, paths: x, tokenizer: huggingface, model: m}]}";

static const char kinds_text[] =
    "dataset: {kind: chain, datasets: [{kind: tar, paths: [a, b]}, {kind: plugin, path: p.so,"
    " config: {b: [1, x], a: 2}}]}\n"
    "collate: {kind: pad, fields: [b, a.0]}\n";

static const char tokens_text[] = "dataset: {kind: range, length: 9}\n"
                                  "batch: {tokens: 64, length_of: a.0}\n"
                                  "collate: {kind: pack, length: 32}\n";

static const char plugin_text[] =
    "dataset: {kind: concat, datasets: [{kind: text, paths: x}, {kind: imagefolder, paths: x,"
    " size: 8, transform: random_crop}]}\n"
    "collate: {kind: plugin, path: p.so, config: {b: [1, x], a: 2}}\n";

static struct value parsed, records, nested, kinds, plugin, tokens;
static struct dl_spec spec;
static struct dl_buffer packed;

static int parse_text(struct dl_error *err)
{
    struct value v = {.line = 77};
    int r = yaml_parse(text, strlen(text), "t", &v, err);
    assert_true(r == 0 || v.line == 77);
    if (r == 0)
        value_deinit(&v);
    return r;
}

static int read_value(const struct value *from, struct dl_error *err)
{
    struct dl_spec made = {.workers = 77};
    int r = spec_from_value(from, "/base", &made, err);
    assert_true(r == 0 || made.workers == 77);
    if (r == 0)
        spec_deinit(&made);
    return r;
}

static int read_parsed(struct dl_error *err)
{
    return read_value(&parsed, err);
}

static int read_records(struct dl_error *err)
{
    return read_value(&records, err);
}

static int read_nested(struct dl_error *err)
{
    return read_value(&nested, err);
}

static int read_kinds(struct dl_error *err)
{
    return read_value(&kinds, err);
}

static int read_plugin(struct dl_error *err)
{
    return read_value(&plugin, err);
}

static int read_tokens(struct dl_error *err)
{
    return read_value(&tokens, err);
}

static int unpack(struct dl_error *err)
{
    struct value v = {.line = 77};
    int r = value_unpack(packed.data, packed.len, &v, err);
    assert_true(r == 0 || v.line == 77);
    if (r == 0)
        value_deinit(&v);
    return r;
}

static int pack(struct dl_error *err)
{
    struct dl_buffer buf = {0};
    int r = value_pack(&parsed, &buf);
    assert_true(r == 0 || buf.len == 0);
    buffer_deinit(&buf);
    return r;
}

static int canonical(struct dl_error *err)
{
    struct value v = {.line = 77};
    int r = spec_to_value(&spec, &v);
    assert_true(r == 0 || v.line == 77);
    if (r == 0)
        value_deinit(&v);
    return r;
}

static int fingerprint(struct dl_error *err)
{
    uint64_t n = 77;
    int r = spec_fingerprint(&spec, &n);
    assert_true(r == 0 || n == 77);
    return r;
}

/* Two specs that cannot be compared are not to be shared. */
static int differs(struct dl_error *err)
{
    bool told = spec_differs(&spec, &spec, err);
    return told ? -err->code : 0;
}

static int copy(struct dl_error *err)
{
    struct value v = {0};
    int r = value_copy(&parsed, &v);
    assert_true(r == 0 || v.type == VALUE_NULL);
    value_deinit(&v);
    return r;
}

/* Each setter leaves the map whole: the key is there with its value, or not there. */
static int build(struct dl_error *err)
{
    struct value map = {0};
    int r;

    if ((r = value_set_int(&map, "a", 1)) == 0 && (r = value_set_uint(&map, "b", 2)) == 0 &&
        (r = value_set_bool(&map, "c", true)) == 0 && (r = value_set_float(&map, "d", 0.5)) == 0 &&
        (r = value_set_string(&map, "e", "text")) == 0)
        r = value_set_string(&map, "a", "again");
    for (uint32_t i = 0; i < map.count; i++)
        assert_int_not_equal(map.items[i].type, VALUE_NULL);
    value_deinit(&map);
    return r;
}

static const struct {
    int (*run)(struct dl_error *err);
    bool tells; /* fills err */
    int least;  /* allocations it makes at the least: a sweep that fails none proves nothing */
} sweeps[] = {
    {parse_text, true, 30},  {read_parsed, true, 10},  {read_records, true, 5},
    {read_nested, true, 20}, {read_kinds, true, 20},   {read_plugin, true, 20},
    {read_tokens, true, 10}, {unpack, true, 30},       {pack, false, 1},
    {canonical, false, 30},  {fingerprint, false, 20}, {differs, true, 60},
    {copy, false, 30},       {build, false, 8},
};

TEST(test_every_allocation)
{
    struct dl_error err = {0};

    assert_int_equal(yaml_parse(text, strlen(text), "t", &parsed, &err), 0);
    assert_int_equal(yaml_parse(records_text, strlen(records_text), "t", &records, &err), 0);
    assert_int_equal(yaml_parse(nested_text, strlen(nested_text), "t", &nested, &err), 0);
    assert_int_equal(yaml_parse(kinds_text, strlen(kinds_text), "t", &kinds, &err), 0);
    assert_int_equal(yaml_parse(plugin_text, strlen(plugin_text), "t", &plugin, &err), 0);
    assert_int_equal(yaml_parse(tokens_text, strlen(tokens_text), "t", &tokens, &err), 0);
    assert_int_equal(spec_from_value(&parsed, "/base", &spec, &err), 0);
    assert_int_equal(value_pack(&parsed, &packed), 0);
    for (size_t i = 0; i < ARRAY_SIZE(sweeps); i++) {
        bool failed;
        int r, n = 0;
        do {
            err = (struct dl_error){0};
            fail_in = n++;
            r = sweeps[i].run(&err);
            failed = fail_in < 0;
            fail_in = -1;
            assert_int_equal(r, failed ? -ENOMEM : 0);
            assert_int_equal(err.code, failed && sweeps[i].tells ? ENOMEM : 0);
            assert_int_equal(err.message[0] != '\0', failed && sweeps[i].tells);
        } while (failed);
        assert_in_range(n - 1, sweeps[i].least, 1000);
    }
    value_deinit(&parsed);
    value_deinit(&records);
    value_deinit(&nested);
    value_deinit(&kinds);
    value_deinit(&plugin);
    value_deinit(&tokens);
    spec_deinit(&spec);
    buffer_deinit(&packed);
}
