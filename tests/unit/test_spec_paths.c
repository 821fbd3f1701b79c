/*
 * Where the data lies, in every kind of dataset: under the key `paths`, as what; that the names the
 * key had are refused in words, and read where the last release wrote them; and that nothing which
 * is known by a fingerprint is lost by the other name.
 */
#include "proto/shared/value_json.h"
#include "proto/spec_table.h"
#include "tests/unit/spec_text.h"

#include <inttypes.h>

enum count { ONE, FIELDS, MANY };
static const char *const former_names[] = {"files", "path", "root", "shards"};

/* The fingerprints are those of the last release, for the path a under the former name. */
static const struct {
    const char *kind;
    enum count count;
    const char *former; /* paths: it has always been that */
    const char *rest;   /* what else the kind needs */
    uint64_t fingerprint;
    uint64_t part; /* a state's, of the dataset */
} kinds[] = {
    {"idx", FIELDS, "files", "", UINT64_C(0xa9f67d77b3fe412f), UINT64_C(0xbd49c00ca76ce8a8)},
    {"npy", FIELDS, "files", "", UINT64_C(0x71cabe58bd706909), UINT64_C(0x68f103e692bd8bc3)},
    {"records", ONE, "path", ", dtype: int8, shape: [2]", UINT64_C(0xe517ac8a0259158e),
     UINT64_C(0x6888612628afb9ea)},
    {"tokens", ONE, "path", ", dtype: uint16, sequence_length: 4", UINT64_C(0x03529a3d0b476e88),
     UINT64_C(0x7c7d0cde9a96531f)},
    {"megatron", ONE, "path", "", UINT64_C(0xe6c7da579d4cecc9), UINT64_C(0xe996dc0d035be01e)},
    {"lmdb", ONE, "path", "", UINT64_C(0x2b91dcbb36787294), UINT64_C(0xaea995750a394001)},
    {"hdf5", ONE, "path", "", UINT64_C(0x59b49f590381cfda), UINT64_C(0x3ddb2c9de3149da8)},
    {"imagefolder", ONE, "root", "", UINT64_C(0x4efea8a07894912a), UINT64_C(0xb51917841f38289a)},
    {"audiofolder", ONE, "root", "", UINT64_C(0x44c3c1b1e6feb7e7), UINT64_C(0xcb46cfe33802dd7b)},
    {"mds", ONE, "root", "", UINT64_C(0xbe75d1c3725d4df8), UINT64_C(0x740df1440e0451b7)},
    {"litdata", ONE, "root", "", UINT64_C(0x7e2dd84957677783), UINT64_C(0x6a0b312a486eb07a)},
    {"python", ONE, "root", ", host: 1, cache: 1GiB", UINT64_C(0x50284c3f53fde465),
     UINT64_C(0x07c5a75faaa6f95a)},
    {"tar", MANY, "shards", "", UINT64_C(0xdbaf1db3eaa621df), UINT64_C(0x664ddeaebcd45284)},
    {"text", MANY, "paths", "", UINT64_C(0x5785b0516d15966b), UINT64_C(0x591df647689f2658)},
    {"tfrecord", MANY, "paths", "", UINT64_C(0x1efa55e46d0e7b26), UINT64_C(0x95fdd165ed755843)},
    {"parquet", MANY, "paths", "", UINT64_C(0x4dcc96b50afc7466), UINT64_C(0x8dc52b10dfd3764d)},
    {"arrow", MANY, "paths", "", UINT64_C(0x45a938dcf907b833), UINT64_C(0x4c420c33c696897d)},
    {"csv", MANY, "paths", "", UINT64_C(0x4fcea7827e6c6e8b), UINT64_C(0xdf3979ec56503da6)},
};

/* "kind: npy, KEY: VALUE" and what else it needs. */
static char *dataset_of(size_t kind, const char *key, const char *value)
{
    char *text;

    assert_true(asprintf(&text, "{kind: %s, %s: %s%s}", kinds[kind].kind, key, value,
                         kinds[kind].rest) >= 0);
    return text;
}

static char *spec_of(const char *before, size_t kind, const char *key, const char *value,
                     const char *behind)
{
    _cleanup_free_ char *dataset = dataset_of(kind, key, value);
    char *text;

    assert_true(asprintf(&text, "dataset: %s%s%s", before, dataset, behind) >= 0);
    return text;
}

static char *shown(const struct value *v)
{
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};

    assert_int_equal(value_json_write(v, &text), 0);
    assert_int_equal(buffer_append(&text, "", 1), 0);
    return strdup((const char *)text.data);
}

/* What the canonical form has, as JSON; what is said instead, if it is refused. */
static char *paths_of(const char *text)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    _cleanup_(value_deinit) struct value v = {0};
    struct dl_error err = {0};
    char *told;

    if (read_spec(text, "/base", &spec, &err) < 0) {
        assert_true(asprintf(&told, "%s: %s", err.path, err.message) >= 0);
        return told;
    }
    assert_int_equal(spec_to_value(&spec, &v), 0);
    return shown(value_get(value_get(&v, "dataset"), "paths"));
}

static void expect_paths(size_t kind, const char *value, const char *want)
{
    _cleanup_free_ char *text = spec_of("", kind, "paths", value, ""), *got = paths_of(text);

    if (strcmp(got, want) != 0)
        fail_msg("%s\n  is  %s\n  not %s", text, got, want);
}

TEST(test_the_table_has_every_kind)
{
    const struct spec_key *paths = spec_key_find("dataset", "paths");

    for (enum dataset_kind kind = DATASET_RANGE; kind <= DATASET_LITDATA; kind++) {
        unsigned found = 0;
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
            found += strcmp(kinds[i].kind, dataset_kind_name(kind)) == 0;
        assert_int_equal(found, (paths->kinds >> kind) & 1);
    }
}

TEST(test_what_paths_may_be)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        bool many = kinds[i].count == MANY;
        _cleanup_free_ char *two = NULL, *map = NULL;

        expect_paths(i, "a", many ? "[\"/base/a\"]" : "\"/base/a\"");
        expect_paths(i, "/d/./a", many ? "[\"/d/a\"]" : "\"/d/a\"");
        expect_paths(i, "[a]", many ? "[\"/base/a\"]" : "\"/base/a\"");
        expect_paths(i, "'a-*.x'", many ? "[\"/base/a-*.x\"]" : "\"/base/a-*.x\"");
        assert_true(
            asprintf(&two,
                     "dataset.paths: 2 paths, but a dataset of kind %s has one; %sgive each "
                     "its own dataset, and join them with kind: concat",
                     kinds[i].kind,
                     kinds[i].count == FIELDS
                         ? "write {field: path, ...} for the fields of a sample, or "
                         : "") >= 0);
        expect_paths(i, "[b, a]", many ? "[\"/base/b\",\"/base/a\"]" : two);
        assert_true(
            asprintf(&map, "dataset.paths: a mapping is %s",
                     many ? "neither a path nor a list of paths" : "not the path of a file") >= 0);
        expect_paths(i, "{y: b, x: a}",
                     kinds[i].count == FIELDS ? "{\"x\":\"/base/a\",\"y\":\"/base/b\"}" : map);
    }
}

TEST(test_what_paths_may_not_be)
{
    static const char *const words[] = {
        [ONE] = "is not the path of a file",
        [FIELDS] = "is neither a mapping of fields to files nor one path",
        [MANY] = "is neither a path nor a list of paths",
    };
    static const char *const values[][3] = {
        {"[]", "a list", ": it is empty"},
        {"5", "5", "; put it in quotes"},
        {"null", "null", "; put it in quotes"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        for (size_t j = 0; j < ARRAY_SIZE(values); j++) {
            _cleanup_free_ char *want = NULL;
            assert_true(asprintf(&want, "dataset.paths: %s %s%s", values[j][1],
                                 words[kinds[i].count], values[j][2]) >= 0);
            expect_paths(i, values[j][0], want);
        }
}

/* Alone, in another dataset, and before the kind is known. */
TEST(test_former_names_are_refused)
{
    static const char *const around[][3] = {
        {"", "", "dataset"},
        {"{kind: concat, datasets: [", "]}", "dataset.datasets.0"},
        {"{kind: subset, indices: [0], dataset: ", "}", "dataset.dataset"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        for (size_t j = 0; j < ARRAY_SIZE(former_names); j++)
            for (size_t k = 0; k < ARRAY_SIZE(around); k++) {
                _cleanup_free_ char *text =
                    spec_of(around[k][0], i, former_names[j], "a", around[k][1]);
                _cleanup_free_ char *got = paths_of(text), *want = NULL;

                assert_true(asprintf(&want,
                                     "%s.%s: unknown key; did you mean paths? dataset "
                                     "takes kind, ",
                                     around[k][2], former_names[j]) >= 0);
                if (strncmp(got, want, strlen(want)) != 0)
                    fail_msg("%s\n  is  %s\n  not %s", text, got, want);
            }
    for (size_t j = 0; j < ARRAY_SIZE(former_names); j++) {
        _cleanup_free_ char *text = NULL, *got = NULL;

        assert_true(asprintf(&text, "dataset: {kind: range, length: 1, %s: a}", former_names[j]) >=
                    0);
        got = paths_of(text);
        assert_non_null(strstr(got, former_names[j]));
        assert_null(strstr(got, "paths"));
    }
    _cleanup_free_ char *unknown = paths_of("dataset: {files: a}");
    assert_string_equal(unknown, "dataset.files: unknown key; did you mean paths? which keys a "
                                 "dataset takes depends on its kind");
    _cleanup_free_ char *plugin = paths_of("dataset: {kind: plugin, paths: a}");
    assert_non_null(strstr(plugin, "dataset.paths: not a key of a dataset of kind plugin; it takes "
                                   "kind, path"));
}

static int read_former(const char *text, struct dl_spec *ret, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value v = {0};

    assert_int_equal(yaml_parse(text, strlen(text), "spec", &v, NULL), 0);
    assert_int_equal(spec_from_former(&v), 0);
    return spec_from_value(&v, "/base", ret, err);
}

static void expect_known(const char *text, const char *former, uint64_t fingerprint, uint64_t part)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0}, same = {0};
    struct dl_error err = {0};
    uint64_t got, parts[STATE_PARTS];

    expect_spec(text, &spec);
    if (read_former(former, &same, &err) < 0)
        fail_msg("%s: %s: %s", former, err.path, err.message);
    assert_false(spec_differs(&spec, &same, NULL));
    assert_int_equal(spec_fingerprint(&spec, &got), 0);
    assert_int_equal(spec_parts(&spec, parts), 0);
    if (got != fingerprint || parts[STATE_DATASET] != part)
        fail_msg("%s: %016" PRIx64 " %016" PRIx64, text, got, parts[STATE_DATASET]);
}

/* Saved states, names of loaders, trainers that reconnect: they know a spec by these. */
TEST(test_what_the_last_release_wrote)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        _cleanup_free_ char *text = spec_of("", i, "paths", "a", "");
        _cleanup_free_ char *former = spec_of("", i, kinds[i].former, "a", "");

        expect_known(text, former, kinds[i].fingerprint, kinds[i].part);
    }
    expect_known("dataset: {kind: npy, paths: {a: x, b: y}}",
                 "dataset: {kind: npy, files: {a: x, b: y}}", UINT64_C(0xe44a5c02479a6499),
                 UINT64_C(0x7047964fb4f861ca));
    expect_known("dataset: {kind: concat, datasets: [{kind: subset, indices: [0], dataset: {kind: "
                 "idx, paths: x}}, {kind: hdf5, paths: y}]}",
                 "dataset: {kind: concat, datasets: [{kind: subset, indices: [0], dataset: {kind: "
                 "idx, files: x}}, {kind: hdf5, path: y}]}",
                 UINT64_C(0x9d381514a9a5846f), UINT64_C(0xaec3741201d75aa0));
    expect_known("dataset: {kind: mix, weights: [1, 2], datasets: [{kind: tar, index: auto, paths: "
                 "[a, 'b*']}, {kind: mds, paths: y}]}",
                 "dataset: {kind: mix, weights: [1, 2], datasets: [{kind: tar, index: auto, "
                 "shards: [a, 'b*']}, {kind: mds, root: y}]}",
                 UINT64_C(0xaea040320eb7a857), UINT64_C(0xa70a1552135184f4));
    expect_known("{dataset: {kind: plugin, path: p.so}, collate: {kind: plugin, path: c.so}}",
                 "{dataset: {kind: plugin, path: p.so}, collate: {kind: plugin, path: c.so}}",
                 UINT64_C(0x18452cfb693ec3fb), UINT64_C(0x6de575861c28e648));
}

/* Only a kind's own former name, and only where `paths` is not there, too; whatever a client sends.
 */
TEST(test_what_it_did_not_write)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        for (size_t j = 0; j < ARRAY_SIZE(former_names); j++) {
            _cleanup_(spec_deinit) struct dl_spec spec = {0};
            _cleanup_free_ char *text = spec_of("", i, former_names[j], "a", "");
            int want = strcmp(kinds[i].former, former_names[j]) == 0 ? 0 : -EINVAL;
            assert_int_equal(read_former(text, &spec, NULL), want);
        }
    static const char *const others[] = {
        "dataset: {kind: npy, files: a, paths: b}",
        "dataset: {kind: range, files: a}",
        "dataset: {kind: 5, files: a}",
        "dataset: {kind: nothing, files: a}",
        "dataset: [{kind: npy, files: a}]",
        "dataset: {kind: npy, datasets: {files: a}}",
        "{kind: npy, files: a}",
        "{kind: npy, dataset: [files]}",
        "dataset: {dataset: {datasets: 3}}",
        "- {kind: npy, files: a}",
        "npy",
    };
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        struct dl_spec spec = {0};
        assert_int_equal(read_former(others[i], &spec, NULL), -EINVAL);
    }
}
