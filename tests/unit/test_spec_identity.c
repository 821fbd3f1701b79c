/* Which specs are the same loader: fingerprints and differences; and what jobs of one can share. */
#include "tests/unit/spec_text.h"

#include <errno.h>
#include <stdio.h>

static uint64_t fingerprint_of(const char *text)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    uint64_t fingerprint;

    expect_spec(text, &spec);
    assert_int_equal(spec_fingerprint(&spec, &fingerprint), 0);
    return fingerprint;
}

#define PAIR   "{dataset: {kind: npy, paths: {a: x, b: y}}, batch: {size: 4"
#define SPLIT  "dataset: {kind: split, dataset: {kind: range, length: 5}, "
#define TOKENS "dataset: {kind: tokens, paths: x, sequence_length: 5"
#define PADDED "{dataset: {kind: npy, paths: x}, collate: {kind: pad}, batch: {tokens: 64"

TEST(test_fingerprint)
{
    static const char *const same[] = {
        "{dataset: {kind: npy, paths: {a: x, b: y}}, batch: {size: 4}, sampler: {kind: random}}",
        "{sampler: {kind: random}, batch: {size: 4}, dataset: {paths: {b: y, a: x}, kind: npy}}",
        "{dataset: {kind: npy, paths: {a: ./x, b: /base/y}}, batch: {size: 4, drop_last: false},"
        " sampler: {order: torch, kind: random}, shard: {even: true}, collate: {}}",
        "{dataset: {kind: npy, paths: {a: x, b: y}}, batch: {size: 4}, sampler: {kind: random},"
        " name: n, seed: 5, workers: {count: 7, timeout: 3s}, memory: {limit: 5MiB}}",
    };
    static const char *const other[] = {
        "{dataset: {kind: idx, paths: {a: x, b: y}}, batch: {size: 4}, sampler: {kind: random}}",
        "{dataset: {kind: npy, paths: {a: x, c: y}}, batch: {size: 4}, sampler: {kind: random}}",
        "{dataset: {kind: npy, paths: {a: x, b: z}}, batch: {size: 4}, sampler: {kind: random}}",
        "{dataset: {kind: npy, paths: {a: x, b: y}}, batch: {size: 5}, sampler: {kind: random}}",
        "{dataset: {kind: npy, paths: {a: x, b: y}}, batch: {size: null}, sampler: {kind: random}}",
        PAIR "}}",
        PAIR "}, sampler: {kind: random, order: native}}",
        PAIR ", drop_last: true}, sampler: {kind: random}}",
        PAIR "}, sampler: {kind: random}, shard: {even: false}}",
        "{dataset: {kind: range, length: 5}, batch: {size: 4}, sampler: {kind: random}}",
        PAIR "}, sampler: {kind: random, replacement: true}}",
        PAIR "}, sampler: {kind: random, num_samples: 7}}",
        PAIR "}, sampler: {kind: indices, indices: [1, 2]}}",
        PAIR "}, sampler: {kind: indices, indices: [2, 1]}}",
        PAIR "}, sampler: {kind: subset_random, indices: [1, 2]}}",
        PAIR "}, sampler: {kind: weighted, weights: [1, 2]}}",
        PAIR "}, sampler: {kind: weighted, weights: [2, 1]}}",
        SPLIT "parts: [2, 3], part: 0, seed: 1}",
        SPLIT "parts: [2, 3], part: 0, seed: 2}",
        SPLIT "parts: [2, 3], part: 1, seed: 1}",
        SPLIT "parts: [3, 2], part: 0, seed: 1}",
        "dataset: {kind: subset, dataset: {kind: range, length: 5}, indices: [2, 3]}",
        "dataset: {kind: subset, dataset: {kind: range, length: 5}, indices: [3, 2]}",
        "dataset: {kind: subset, dataset: {kind: range, length: 6}, indices: [3, 2]}",
        "dataset: {kind: concat, datasets: [{kind: range, length: 5}]}",
        TOKENS "}",
        TOKENS ", widen: none}",
        TOKENS ", stride: 4}",
        TOKENS ", dtype: int32}",
        "{dataset: {kind: npy, paths: x}, collate: {kind: pad}}",
        "{dataset: {kind: npy, paths: x}, collate: {kind: pad, length: 64}}",
        PADDED "}}",
        "{dataset: {kind: npy, paths: x}, collate: {kind: pad}, batch: {tokens: 65}}",
        "{dataset: {kind: npy, paths: x}, collate: {kind: pack, length: 64}, batch: {tokens: 64}}",
        PADDED ", strategy: bucket}}",
        "{dataset: {kind: npy, paths: x}, collate: {kind: pad, to: bucket}, batch: {tokens: 64, "
        "strategy: bucket}}",
        PADDED ", strategy: bucket, interval: 4}}",
        PADDED ", max_length: 9}}",
        PADDED ", overlong: error}}",
        PADDED ", leftover: drop}}",
        PADDED ", window: 9}}",
        PADDED ", length_of: a}}",
    };
    for (size_t i = 1; i < ARRAY_SIZE(same); i++)
        assert_true(fingerprint_of(same[i]) == fingerprint_of(same[0]));
    for (size_t i = 0; i < ARRAY_SIZE(other); i++) {
        assert_false(fingerprint_of(other[i]) == fingerprint_of(same[0]));
        for (size_t j = 0; j < i; j++)
            assert_false(fingerprint_of(other[i]) == fingerprint_of(other[j]));
    }
    /* Saved states carry it: a change of this number is a change of format. */
    assert_true(fingerprint_of("dataset: {kind: range, length: 10}") ==
                UINT64_C(0x333d8120cf2ff8f8));
    assert_true(fingerprint_of("{dataset: {kind: range, length: 10}, collate: {kind: pad, to: "
                               "longest, length: null}, batch: {tokens: null}}") ==
                UINT64_C(0xe0dc327bb669920e));
}

TEST(test_differs)
{
    static const struct {
        const char *have;
        const char *want;
        const char *path;    /* NULL: no difference */
        const char *message; /* its beginning */
    } cases[] = {
        {"seed: 1", "seed: 1", NULL, NULL},
        {"seed: 1", "", NULL, NULL},
        {"", "seed: 1", "seed", "the open loader has 0, which was drawn, this spec asks for 1"},
        {"workers: {timeout: 1500ms}", "workers: {timeout: 1.5}", NULL, NULL},
        {"memory: {limit: 1GiB}", "", NULL, NULL},
        {"seed: 1", "seed: 2", "seed", "the open loader has 1, this spec asks for 2"},
        {"batch: {size: 256}", "batch: {size: 128}", "batch.size",
         "the open loader has 256, this spec asks for 128"},
        {"batch: {tokens: 8}\ncollate: {kind: pad}", "collate: {kind: pad}", "batch.tokens",
         "the open loader has 8, this spec asks for nothing"},
        {"collate: {kind: pad}", "batch: {tokens: 8}\ncollate: {kind: pad}", "batch.size",
         "the open loader has 1, this spec asks for nothing"},
        {"batch: {tokens: 8}\ncollate: {kind: pad}",
         "batch: {tokens: 8, strategy: sorted, window: 256, overlong: drop, leftover: emit,"
         " max_length: null}\ncollate: {kind: pad, to: longest, length: null}",
         NULL, NULL},
        {"batch: {tokens: 8, strategy: bucket}\ncollate: {kind: pad}",
         "batch: {tokens: 8, strategy: bucket, window: 256}\ncollate: {kind: pad}", "batch.window",
         "the open loader has null, this spec asks for 256"},
        {"batch: {tokens: 8, length_of: a}\ncollate: {kind: pad}",
         "batch: {tokens: 8, length_of: b}\ncollate: {kind: pad}", "batch.length_of",
         "the open loader has \"a\", this spec asks for \"b\""},
        {"batch: {size: null}", "batch: {size: 1}", "batch.size",
         "the open loader has null, this spec asks for 1"},
        {"", "sampler: {kind: random}", "sampler.kind",
         "the open loader has \"sequential\", this spec asks for \"random\""},
        {"", "workers: {count: 3}", "workers.count", "the open loader has 2, this spec asks for 3"},
        {"memory: {writable: false}", "memory: {writable: true}", "memory.writable",
         "the open loader has false, this spec asks for true"},
        {"", "memory: {writable: true}", NULL, NULL},
        {"", "name: b", "name", "the open loader has \"a\", this spec asks for \"b\""},
        {"", "dataset: {kind: range, length: 2}", "dataset.length",
         "the open loader has 1, this spec asks for 2"},
        {"", "dataset: {kind: npy, paths: x}", "dataset.kind",
         "the open loader has \"range\", this spec asks for \"npy\""},
        {"sampler: {kind: random, num_samples: 5}", "sampler: {kind: random}",
         "sampler.num_samples", "the open loader has 5, this spec asks for null"},
        {"sampler: {kind: random}", "sampler: {kind: random, replacement: true}",
         "sampler.replacement", "the open loader has false, this spec asks for true"},
        {"sampler: {kind: random}", "sampler: {kind: random, replacement: false, order: torch}",
         NULL, NULL},
        {"sampler: {kind: weighted, weights: [1]}",
         "sampler: {kind: weighted, weights: [1.0], replacement: true}", NULL, NULL},
        {"sampler: {kind: weighted, weights: [1]}", "sampler: {kind: weighted, weights: [2]}",
         "sampler.weights.0", "the open loader has 1.0, this spec asks for 2.0"},
        {"sampler: {kind: indices, indices: [0, 0]}", "sampler: {kind: indices, indices: [0]}",
         "sampler.indices", "the open loader has a list of 2, this spec asks for one of 1"},
        {"dataset: {kind: range, length: 9}\nsampler: {kind: indices, indices: [3, 8, 1]}",
         "dataset: {kind: range, length: 9}\nsampler: {kind: indices, indices: [3, 4, 2]}",
         "sampler.indices.1", "the open loader has 8, this spec asks for 4"},
        {"dataset: {kind: npy, paths: {a: x, b: y}}", "dataset: {kind: npy, paths: {a: x}}",
         "dataset.paths.b", "the open loader has \"/base/y\", this spec asks for nothing"},
        {"dataset: {kind: npy, paths: {a: x}}", "dataset: {kind: npy, paths: {a: x, b: y}}",
         "dataset.paths.b", "the open loader has nothing, this spec asks for \"/base/y\""},
        {"dataset: {kind: npy, paths: {a: x}}", "dataset: {kind: npy, paths: x}", "dataset.paths",
         "the open loader has a mapping, this spec asks for \"/base/x\""},
        {"dataset: {kind: concat, datasets: [{kind: range, length: 1}, {kind: range, length: 2}]}",
         "dataset: {kind: concat, datasets: [{kind: range, length: 1}, {kind: range, length: 3}]}",
         "dataset.datasets.1.length", "the open loader has 2, this spec asks for 3"},
        {"dataset: {kind: concat, datasets: [{kind: range, length: 1}, {kind: range, length: 2}]}",
         "dataset: {kind: concat, datasets: [{kind: range, length: 1}]}", "dataset.datasets",
         "the open loader has a list of 2, this spec asks for one of 1"},
        {"dataset: {kind: subset, dataset: {kind: range, length: 9}, indices: [1]}",
         "dataset: {kind: subset, dataset: {kind: range, length: 9}, indices: [1, 5]}",
         "dataset.indices", "the open loader has a list of 1, this spec asks for one of 2"},
        {"dataset: {kind: tokens, paths: x, sequence_length: 5}",
         "dataset: {kind: tokens, paths: x, sequence_length: 5, stride: 5, widen: int64}", NULL,
         NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *const texts[] = {cases[i].have, cases[i].want};
        struct dl_spec specs[2] = {0};
        struct dl_error err = {0};

        for (int j = 0; j < 2; j++) {
            char text[512];
            snprintf(text, sizeof text, "%s\n%s\n%s\n", texts[j],
                     strstr(texts[j], "dataset:") ? "" : "dataset: {kind: range, length: 1}",
                     strstr(texts[j], "name:") ? "" : "name: a");
            expect_spec(text, &specs[j]);
        }
        bool differs = spec_differs(&specs[0], &specs[1], &err);
        if (differs != (cases[i].path != NULL) ||
            (differs &&
             (strcmp(err.path, cases[i].path) != 0 || strcmp(err.message, cases[i].message) != 0)))
            fail_msg("%s / %s: %s: %s", cases[i].have, cases[i].want, err.path, err.message);
        assert_int_equal(err.code, differs ? EEXIST : 0);
        assert_int_equal(spec_differs(&specs[0], &specs[1], NULL), differs);
        spec_deinit(&specs[0]);
        spec_deinit(&specs[1]);
    }
}

/* What cannot be shared by jobs of one spec. */
static const struct refusal share_refusals[] = {
    {"share: {window: -1}", "share.window", "-1 is not a non-negative integer"},
    {"share: {window: 2000}", "share.window", "2000 is above the maximum of 1024"},
    {"share: {wait: 1s}", "share.wait",
     "\"1s\" has no effect where jobs do not share; write share.window 1 or more, or leave wait "
     "out"},
    {"share: {window: 4}\nshard: {mode: dispatch}", "share.window",
     "4 does not work with shard.mode dispatch, whose ranks already share; leave one of them out"},
    {"share: {window: 4}\nshard: {replicas: 2}", "share.window",
     "4 does not work with shard.replicas, which already share; leave one of them out"},
    {"share: {window: 4}\nsampler: {kind: client}", "share.window",
     "4 does not work with sampler.kind client, where each job gives its own samples; leave window "
     "out"},
    {"share: {window: 4}\nworkers: {in_order: false}", "share.window",
     "4 does not work with workers.in_order: false, since all jobs get the same batches; leave one "
     "of them out"},
    {"share: {window: 4}\nworkers: {bypass: 2}", "share.window",
     "4 does not work with workers.bypass, by which each job has its own order; leave one of them "
     "out"},
    {"share: {window: 4}\nworkers: {count: 0}", "share.window",
     "4 needs worker processes, which make the batches that jobs share; write workers.count 1 or "
     "more"},
    {"share: {size: 4}", "share.size",
     "4 has no effect where jobs do not share; write share.window 1 or more, or leave size out"},
    {"batch: {size: 3}\nshare: {window: 4, size: 8}", "share.size",
     "8 is not a multiple of batch.size, so that no batch of this job is a part of a shared one; "
     "write one that is"},
    {"batch: {size: 8}\nshare: {window: 4, size: 4}", "share.size",
     "4 is not a multiple of batch.size, so that no batch of this job is a part of a shared one; "
     "write one that is"},
    {"batch: {size: null}\nshare: {window: 4, size: 4}", "share.size",
     "4 is not a multiple of batch.size, so that no batch of this job is a part of a shared one; "
     "write one that is"},
    {"batch: {size: 4}\ncollate: {kind: pad}\nshare: {window: 4, size: 8}", "share.size",
     "8 needs batches whose samples do not depend on each other, as with collate.kind default and "
     "a number of samples; leave size out"},
    {"batch: {size: 4}\nshard: {mode: batch}\nshare: {window: 4, size: 8}", "share.size",
     "8 does not work with this shard.mode, which divides batches among ranks; write strided"},
    {"batch: {size: 4}\nworkers: {on_error: skip}\nshare: {window: 4, size: 8}", "share.size",
     "8 does not work with workers.on_error skip or substitute, where a batch may have other "
     "samples than planned; write raise"},
    {"share: {window: 4}\nmemory: {writable: true}", "memory.writable",
     "true does not work with share.window: a job would read what another has written; write "
     "false"},
};

TEST(test_share)
{
    EXPECT_REFUSALS("dataset: {kind: range, length: 1}\n", share_refusals);
}

/* What jobs of different batch sizes have in common: the loader, and its name. */
TEST(test_common)
{
    static const char *const texts[] = {
        "batch: {size: 64}\nshare: {window: 2}",
        "batch: {size: 64, drop_last: true}\nshare: {window: 2, size: 64}",
        "batch: {size: 16}\nshare: {window: 2, size: 64}",
    };
    struct dl_spec specs[3] = {0}, common[3];
    uint64_t prints[3];
    struct dl_error err;

    for (int i = 0; i < 3; i++) {
        char text[256];

        snprintf(text, sizeof text, "dataset: {kind: range, length: 9}\n%s\n", texts[i]);
        expect_spec(text, &specs[i]);
        assert_int_equal(spec_fingerprint(&specs[i], &prints[i]), 0);
        common[i] = spec_common(&specs[i]);
        assert_int_equal(common[i].batch_size, 64);
        assert_false(common[i].drop_last);
        assert_string_equal(specs[i].name, specs[0].name);
        assert_false(spec_differs(&common[i], &common[0], &err));
    }
    assert_true(prints[0] != prints[1] && prints[1] != prints[2] && prints[0] != prints[2]);
    assert_true(spec_differs(&specs[2], &specs[0], &err));
    for (int i = 0; i < 3; i++)
        spec_deinit(&specs[i]);
}
