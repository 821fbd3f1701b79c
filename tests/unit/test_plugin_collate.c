/* Plug-ins that collate: by themselves, and as the kind of collate that a spec names. */
#include "daemon/data/collate/collate.h"
#include "proto/segment_layout.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/plugins.h"

#include <errno.h>

static struct plugin_collate *must_open_collate(const char *mode, const struct data_env *env)
{
    struct spec_collate spec = {
        .kind = COLLATE_PLUGIN,
        .path = (char *)(uintptr_t)bad_plugin(),
        .config = {.type = VALUE_STRING, .string = (char *)(uintptr_t)mode},
    };
    struct plugin_collate *collate = NULL;
    struct dl_error err = {0};

    assert_int_equal(setenv("PLUGIN_TABLE", "collate", 1), 0);
    if (plugin_collate_open(&spec, env, &collate, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    return collate;
}

/* {x: value, words: (bytes, string)} */
static void make_sample(struct sample *sample, int64_t value)
{
    sample_begin(sample, TREE_DICT, NULL);
    sample_int(sample, "x", value);
    sample_begin(sample, TREE_TUPLE, "words");
    sample_text(sample, TREE_BYTES, NULL, "\1", 1);
    sample_text(sample, TREE_STRING, NULL, "lent", 4);
    sample_end(sample);
    assert_int_equal(sample_end(sample), 0);
}

enum { BATCH = 3 };
static const uint64_t numbers[BATCH] = {40, 41, 42};

struct batch {
    struct taken samples[BATCH];
    struct sample array[BATCH]; /* the same, side by side */
    struct taken result;
};

static void batch_init(struct batch *batch)
{
    *batch = (struct batch){0};
    for (int i = 0; i < BATCH; i++) {
        make_sample(empty(&batch->samples[i]), i + 1);
        batch->array[i] = batch->samples[i].sample;
    }
    empty(&batch->result);
}

static void batch_deinit(struct batch *batch)
{
    for (int i = 0; i < BATCH; i++)
        taken_deinit(&batch->samples[i]);
    taken_deinit(&batch->result);
}

TEST(test_collate)
{
    /* Key, kind, children, next, bytes of each node of a sample. */
    static const struct {
        const char *key;
        int64_t numbers[4];
    } nodes[] = {
        {"-", {TREE_DICT, 2, 5, 0}},      {"x", {TREE_TENSOR, 0, 2, 8}},
        {"words", {TREE_TUPLE, 2, 5, 0}}, {"-", {TREE_BYTES, 0, 4, 1}},
        {"-", {TREE_STRING, 0, 5, 4}},
    };
    _cleanup_(batch_deinit) struct batch batch;
    struct data_env env = plugin_env();
    struct plugin_collate *collate = must_open_collate("", &env);
    const struct sample *result = &batch.result.sample;
    struct dl_error err = {0};

    batch_init(&batch);
    /* More samples than the first time. */
    assert_int_equal(plugin_collate(collate, batch.array, numbers, 1, &batch.result.sample, &err),
                     0);
    assert_int_equal(field(result, "sum"), 1);
    if (plugin_collate(collate, batch.array, numbers, BATCH, empty(&batch.result), &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(field(result, "sum"), 6);
    assert_leaf(result, "word", TREE_STRING, 0, "lent", 4);
    uint32_t at = find(result, "nodes");
    assert_int_equal(result->tree.nodes[at].children, ARRAY_SIZE(nodes));
    for (uint32_t i = 0; i < ARRAY_SIZE(nodes); i++) {
        uint32_t entry = at + 1 + 6 * i;
        assert_int_equal(result->tree.nodes[entry + 1].nbytes, strlen(nodes[i].key));
        assert_memory_equal(result->data[entry + 1], nodes[i].key, strlen(nodes[i].key));
        for (uint32_t k = 0; k < 4; k++)
            assert_int_equal(integer(result, entry + 2 + k), nodes[i].numbers[k]);
    }
    plugin_collate_close(collate);
}

TEST(test_collate_cannot_write_to_samples)
{
    _cleanup_(batch_deinit) struct batch batch;
    struct data_env env = plugin_env();
    struct plugin_collate *collate = must_open_collate("scribbles", &env);
    struct dl_error err = {0};

    batch_init(&batch);
    assert_int_equal(plugin_collate(collate, batch.array, numbers, 2, &batch.result.sample, &err),
                     0);
    assert_int_equal(integer(&batch.result.sample, 0), 2L * -EPERM);
    assert_int_equal(batch.array[0].tree.count, 5);
    plugin_collate_close(collate);

    collate = must_open_collate("looks in vain", &env);
    assert_int_equal(plugin_collate(collate, batch.array, numbers, 2, empty(&batch.result), &err),
                     0);
    assert_int_equal(integer(&batch.result.sample, 0), 9);
    plugin_collate_close(collate);
}

TEST(test_faults_of_collate)
{
    static const struct {
        const char *mode, *message;
    } cases[] = {
        {"collate fails", "collate(): 3 samples from 40 on"},
        {"nothing", "collate(): the sample is empty: it has neither leaf nor container"},
    };
    struct data_env env = plugin_env();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct batch batch;
        struct plugin_collate *collate = must_open_collate(cases[i].mode, &env);
        struct dl_error err = {0};

        batch_init(&batch);
        assert_int_equal(
            plugin_collate(collate, batch.array, numbers, BATCH, &batch.result.sample, &err),
            -EINVAL);
        assert_error(&err, EINVAL, bad_plugin(), cases[i].message);
        batch_deinit(&batch);
        plugin_collate_close(collate);
    }
    assert_null(plugin_collate_close(NULL));
}

/* ---- in a loader ---------------------------------------------------------------------------- */

static struct collate *must_collate(const char *mode, const struct data_env *env)
{
    struct dl_spec spec = {
        .batch_size = BATCH,
        .collate = {.kind = COLLATE_PLUGIN,
                    .path = (char *)(uintptr_t)bad_plugin(),
                    .config = {.type = VALUE_STRING, .string = (char *)(uintptr_t)mode}}};
    struct collate *collate = NULL;
    struct dl_error err = {0};

    assert_int_equal(setenv("PLUGIN_TABLE", "collate", 1), 0);
    if (collate_new(&spec, env, &collate, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    return collate;
}

/* What the plug-in made is the batch, in the slot; again with fewer samples. */
TEST(test_a_batch)
{
    static _Alignas(64) uint8_t slot[1 << 16];
    struct data_env env = plugin_env();
    struct collate *collate = must_collate("", &env);

    for (size_t n = BATCH; n > 0; n--) {
        _cleanup_(batch_deinit) struct batch batch;
        struct batch_layout layout;
        struct dl_error err = {0};
        size_t bad = 0;

        batch_init(&batch);
        if (collate_measure(collate, batch.array, numbers, n, NULL, 136, &layout, &bad, &err) < 0)
            fail_msg("%s: %s", err.path, err.message);
        assert_true(layout.used <= sizeof slot);
        memset(slot, 0xee, sizeof slot);
        collate_write(collate, slot);
        const struct tree_node *nodes = (const void *)(slot + layout.tree_off);
        assert_int_equal(tree_check(nodes, layout.tree_len, layout.tree_count, sizeof slot, &err),
                         0);
        assert_int_equal(nodes[0].kind, TREE_DICT);
        assert_int_equal(nodes[1].ndim, 0); /* the sum: no dimension is added */
        assert_int_equal(*(const int64_t *)(const void *)(slot + nodes[1].offset), n * (n + 1) / 2);
        assert_int_equal(slot[layout.used], 0xee);
    }
    collate_free(collate);
}

TEST(test_a_refused_batch)
{
    _cleanup_(batch_deinit) struct batch batch;
    struct data_env env = plugin_env();
    struct collate *collate = must_collate("collate fails", &env);
    struct batch_layout layout;
    struct dl_error err = {0};
    size_t bad = 0;

    batch_init(&batch);
    assert_int_equal(
        collate_measure(collate, batch.array, numbers, 3, NULL, 0, &layout, &bad, &err), -EINVAL);
    assert_error(&err, EINVAL, bad_plugin(), "collate(): 3 samples from 40 on");
    assert_int_equal(bad, SIZE_MAX); /* no sample's fault */
    collate_free(collate);
}

/* ---- without memory ------------------------------------------------------------------------- */

TEST(test_collate_out_of_memory)
{
    struct data_env env = plugin_env();
    struct spec_collate spec = {.kind = COLLATE_PLUGIN,
                                .path = (char *)(uintptr_t)bad_plugin(),
                                .config = {.type = VALUE_NULL}};
    bool done = false;

    assert_int_equal(setenv("PLUGIN_TABLE", "collate", 1), 0);
    for (int k = 0; !done; k++) {
        struct batch batch;
        struct plugin_collate *collate = NULL;
        struct dl_error err = {0};
        assert_in_range(k, 0, 100);
        batch_init(&batch);
        fail_in = k;
        int r = plugin_collate_open(&spec, &env, &collate, &err);
        if (r == 0)
            r = plugin_collate(collate, batch.array, numbers, BATCH, &batch.result.sample, &err);
        done = fail_in >= 0;
        fail_in = -1;
        assert_int_equal(r, done ? 0 : -ENOMEM);
        plugin_collate_close(collate);
        batch_deinit(&batch);
    }
}
