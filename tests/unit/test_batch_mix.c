/* MixUp and CutMix: which leaves they take, types of labels, memory that runs out. What they make
 * of batches is compared with torchvision's own in transforms_torchvision.py. */
#include "daemon/data/collate/batch_mix.h"
#include "proto/dtype.h"
#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>

static const struct spec_collate mixup = {.mixup = 1, .classes = 3};

/* A sample of leaves, one after another; ndim 0 ends them. */
struct leaf {
    uint32_t dtype;
    uint32_t ndim; /* 0: a number; else as many of shape */
    uint64_t shape[4];
};

static struct tree schema_of(const struct leaf *leaves, uint32_t n)
{
    struct tree schema = {0};

    assert_int_equal(tree_add(&schema, TREE_LIST, NULL, n), 0);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(
            tree_add_tensor(&schema, NULL, leaves[i].dtype, leaves[i].ndim, leaves[i].shape), 0);
    return schema;
}

#define IMAGE                \
    {                        \
        DL_DTYPE_FLOAT32, 3, \
        {                    \
            2, 1, 2          \
        }                    \
    }
#define LABEL              \
    {                      \
        DL_DTYPE_INT64, 0, \
        {                  \
            0              \
        }                  \
    }

TEST(test_refused)
{
    static const struct {
        struct leaf leaves[3];
        uint32_t n;
        const char *message;
    } cases[] = {
        {{IMAGE}, 1, "samples have 1 such images and 0 such labels"},
        {{LABEL}, 1, "samples have 0 such images and 1 such labels"},
        {{IMAGE, LABEL, LABEL}, 3, "samples have 1 such images and 2 such labels"},
        {{{DL_DTYPE_UINT8, 3, {2, 1, 2}}, LABEL}, 2, "samples have 0 such images"},
        {{{DL_DTYPE_FLOAT32, 2, {2, 1}}, LABEL}, 2, "samples have 0 such images"},
        {{{DL_DTYPE_FLOAT32, 3, {2, 0, 2}}, LABEL}, 2, "samples have 0 such images"},
        {{IMAGE, {DL_DTYPE_FLOAT64, 0, {0}}}, 2, "and 0 such labels"},
        {{IMAGE, {DL_DTYPE_FLOAT32, 3, {2, 2, 2}}, LABEL}, 3, "there are 1 × 2 and 2 × 2"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct tree schema = schema_of(cases[i].leaves, cases[i].n);
        struct batch_mix *mix = NULL;
        struct dl_error err = {0};
        assert_int_equal(batch_mix_new(&mixup, &schema, &mix, &err), -EINVAL);
        assert_null(mix);
        assert_string_equal(err.path, "collate");
        if (!strstr(err.message, cases[i].message))
            fail_msg("%s", err.message);
        tree_deinit(&schema);
    }
}

/* Labels 2, 0, 1 of each type that is whole; both images are mixed by one share. */
TEST(test_types_of_labels)
{
    static const uint32_t types[] = {DL_DTYPE_UINT8, DL_DTYPE_INT8,   DL_DTYPE_UINT16,
                                     DL_DTYPE_INT16, DL_DTYPE_UINT32, DL_DTYPE_INT32,
                                     DL_DTYPE_INT64, DL_DTYPE_UINT64};

    for (size_t k = 0; k < ARRAY_SIZE(types); k++) {
        const struct leaf leaves[] = {IMAGE, {types[k], 0, {0}}, IMAGE};
        struct tree schema = schema_of(leaves, 3);
        float a[3][4] = {{1, 1, 1, 1}, {0}, {0}}, b[3][4], soft[3][3];
        uint8_t labels[3 * 8] = {0};
        void *rows[] = {a, soft, b};
        struct batch_mix_rows mix_rows = {.leaves = rows, .labels = labels, .n = 3};
        struct batch_mix *mix = NULL;
        struct draws_keyed draws;
        size_t bad = 9;
        memcpy(b, a, sizeof a);
        labels[0] = 2;
        labels[2 * dtype_bytes(types[k])] = 1;
        assert_int_equal(batch_mix_new(&mixup, &schema, &mix, NULL), 0);
        assert_int_equal(batch_mix_label(mix), 1);
        draws_keyed_init_batch(&draws, 1, 2, 3);
        assert_int_equal(batch_mix_run(mix, &draws.base, &mix_rows, &bad, NULL), 0);
        assert_memory_equal(a, b, sizeof a);
        assert_true(a[0][0] == soft[0][2] && soft[0][1] == a[1][0] && a[0][0] + a[1][0] == 1);
        assert_true(soft[1][0] == a[0][0] && soft[1][2] == a[1][0] && soft[1][1] == 0);
        labels[dtype_bytes(types[k])] = 3;
        assert_int_equal(batch_mix_run(mix, &draws.base, &mix_rows, &bad, NULL), -ERANGE);
        assert_int_equal(bad, 1);
        batch_mix_free(mix);
        tree_deinit(&schema);
    }
}

TEST(test_out_of_memory)
{
    const struct leaf leaves[] = {IMAGE, LABEL};
    struct tree schema = schema_of(leaves, 2);
    float image[4] = {0}, soft[3];
    int64_t label = 0;
    void *rows[] = {image, soft};
    struct batch_mix_rows mix_rows = {.leaves = rows, .labels = &label, .n = 1};
    unsigned failed = 0;

    for (long n = 0, done = 0; !done; n++) {
        struct batch_mix *mix = NULL;
        struct dl_error err = {0};
        struct draws_keyed draws;
        size_t bad;
        draws_keyed_init_batch(&draws, 1, 2, 3);
        fail_in = n;
        int r = batch_mix_new(&mixup, &schema, &mix, &err);
        if (r == 0)
            r = batch_mix_run(mix, &draws.base, &mix_rows, &bad, &err);
        done = fail_in >= 0;
        fail_in = -1;
        assert_true(r == 0 || (r == -ENOMEM && err.message[0]));
        failed += r < 0;
        batch_mix_free(mix);
    }
    assert_int_equal(failed, 3);
    tree_deinit(&schema);
}
