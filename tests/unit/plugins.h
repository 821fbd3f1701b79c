/* What the tests of plug-ins share: plug-ins in a directory of the test's own, and opening them. */
#ifndef DL_TEST_PLUGINS_H
#define DL_TEST_PLUGINS_H

#include "daemon/data/plugin/plugin.h"
#include "tests/unit/data_files.h"

#include <sys/stat.h>

/* A copy of a library in a directory of the test's, with this mode. Static memory (8 in turn). */
static inline const char *copy_plugin(const char *from, const char *name, mode_t mode)
{
    FILE *file = fopen(from, "rb");
    size_t room = 16 << 20, len;
    _cleanup_free_ char *data = malloc(room);

    assert_non_null(file);
    assert_non_null(data);
    len = fread(data, 1, room, file);
    assert_in_range(len, 1, room - 1);
    fclose(file);
    const char *path = harness_file(name, data, len);
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

/* The plug-in of bad_plugin.c, which nobody but this test may touch. */
static inline const char *bad_plugin(void)
{
    static char path[4400];

    if (!path[0])
        snprintf(path, sizeof path, "%s", copy_plugin(BAD_PLUGIN, "bad.so", 0644));
    return path;
}

/* Plug-ins of the test's directory may be loaded, by no worker. */
static inline struct data_env plugin_env(void)
{
    static char *dirs[1];

    dirs[0] = (char *)(uintptr_t)harness_tmpdir();
    return (struct data_env){.plugins = dirs, .n_plugins = 1};
}

/* Opens a plug-in's dataset: which of its tables, and what it is to do. */
static inline int try_open(const char *table, const char *mode, const struct data_env *env,
                           struct dataset **ret, struct dl_error *err)
{
    struct spec_file file = {.path = (char *)(uintptr_t)bad_plugin()};
    struct spec_dataset spec = {
        .kind = DATASET_PLUGIN,
        .files = &file,
        .n_files = 1,
        .config = {.type = VALUE_STRING, .string = (char *)(uintptr_t)mode},
    };

    assert_int_equal(setenv("PLUGIN_TABLE", table, 1), 0);
    return dataset_open(&spec, env, ret, err);
}

static inline struct dataset *must_open(const char *table, const char *mode,
                                        const struct data_env *env)
{
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    if (try_open(table, mode, env, &ds, &err) < 0)
        fail_msg("%s: %s: %s", mode, err.path, err.message);
    return ds;
}

/* ---- reading samples ------------------------------------------------------------------------ */

/* A sample and its arena, emptied by the next use. */
struct taken {
    struct arena arena;
    struct sample sample;
};

static inline struct sample *empty(struct taken *taken)
{
    sample_clear(&taken->sample);
    arena_clear(&taken->arena);
    taken->sample.arena = &taken->arena;
    return &taken->sample;
}

static inline void taken_deinit(struct taken *taken)
{
    sample_deinit(&taken->sample);
    arena_deinit(&taken->arena);
}

/* The node below the root with this key. */
static inline uint32_t find(const struct sample *sample, const char *key)
{
    const struct tree *tree = &sample->tree;
    const struct tree_node *child = tree->nodes + 1;

    for (uint32_t i = 0; i < tree->nodes[0].children; i++, child = tree_skip(child))
        if (child->key_len == strlen(key) &&
            memcmp(tree->keys + child->key_off, key, child->key_len) == 0)
            return (uint32_t)(child - tree->nodes);
    fail_msg("no %s", key);
    return 0;
}

static inline int64_t integer(const struct sample *sample, uint32_t node)
{
    int64_t value;

    assert_int_equal(sample->tree.nodes[node].kind, TREE_TENSOR);
    assert_int_equal(sample->tree.nodes[node].dtype, DL_DTYPE_INT64);
    assert_int_equal(sample->tree.nodes[node].ndim, 0);
    memcpy(&value, sample->data[node], sizeof value);
    return value;
}

static inline int64_t field(const struct sample *sample, const char *key)
{
    return integer(sample, find(sample, key));
}

static inline void assert_leaf(const struct sample *sample, const char *key, uint32_t kind,
                               uint32_t dtype, const void *data, size_t len)
{
    uint32_t i = find(sample, key);
    const struct tree_node *node = &sample->tree.nodes[i];

    assert_int_equal(node->kind, kind);
    assert_int_equal(node->dtype, dtype);
    assert_int_equal(node->nbytes, len);
    if (len > 0)
        assert_memory_equal(sample->data[i], data, len);
}

#endif
