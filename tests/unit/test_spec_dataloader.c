/*
 * What PyTorch's DataLoader, samplers and datasets refuse, a loader spec refuses, in words that
 * someone who knows theirs recognises. One row for each check of torch/utils/data/dataloader.py,
 * sampler.py, dataset.py, and of the torch.multinomial() below a weighted sampler (2.13).
 *
 * Theirs that have no row, and why:
 * - "start method" and "context" of multiprocessing_context: workers are programs of their own, so
 *   there is nothing to choose; that the key is none is a row.
 * - "batch_size attribute should not be set after DataLoader is initialized": a loader's spec is
 *   never changed; another one under the same name is refused (spec_differs()).
 * - shuffle=True of an empty dataset (num_samples=0): is an empty epoch here, as it is in order.
 * - rank and world size of a DistributedSampler: are given with an epoch, not in the spec.
 * - lengths of random_split() that are not the dataset's, and what else needs its length: see
 *   spec_check_length() and the dataset's own tests.
 * - the warning of more workers than CPUs: is none, as workers are counted against a quota.
 */
#include "tests/unit/spec_text.h"

#include <errno.h>
#include <stdio.h>

#define RANGE    "dataset: {kind: range, length: 3}"
#define ITERABLE "dataset: {kind: range, length: 3, iterable: true}"
#define NO_ORDER                                                                                 \
    " has no meaning, as the dataset is iterable: samples come in its own order; leave sampler " \
    "out, or shuffle in the dataset (tar: shuffle)"

static const struct check {
    const char *argument; /* what PyTorch is given */
    const char *theirs;   /* what it says */
    const char *common;   /* words of it that ours has too, in path or message */
    const char *spec;     /* the same, as a spec */
    const char *path;
    const char *message;
} checks[] = {
    /* DataLoader, in its order */
    {"num_workers=-1",
     "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.",
     "non-negative", "{" RANGE ", workers: {count: -1}}", "workers.count",
     "-1 is not a non-negative integer; 0 loads in the client's own process, without workers"},
    {"timeout=-1", "timeout option should be non-negative", "non-negative",
     "{" RANGE ", workers: {timeout: -1}}", "workers.timeout",
     "-1 is not a non-negative duration, such as 30s, 500ms or 2min; 0 is none"},
    {"num_workers=0, prefetch_factor=2",
     "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to "
     "enable multiprocessing, otherwise set prefetch_factor to None.",
     "could only be", "{" RANGE ", workers: {count: 0, prefetch: 2}}", "workers.prefetch",
     "2 could only be given with worker processes, which load ahead; write workers.count 1 or "
     "more, or leave prefetch out"},
    {"prefetch_factor=-1", "prefetch_factor option should be non-negative", "prefetch",
     "{" RANGE ", workers: {prefetch: -1}}", "workers.prefetch",
     "-1 is not a positive integer; 1 loads one batch ahead for each worker"},
    {"prefetch_factor=0",
     "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter", "prefetch",
     "{" RANGE ", workers: {prefetch: 0}}", "workers.prefetch",
     "0 is not a positive integer; 1 loads one batch ahead for each worker"},
    {"num_workers=0, persistent_workers=True", "persistent_workers option needs num_workers > 0",
     "persistent_workers", "{" RANGE ", workers: {count: 0}, persistent_workers: true}",
     "persistent_workers",
     "unknown key; write nothing: workers live as long as their loader, and with workers: "
     "{count: 0} there are none"},
    {"num_workers=0, multiprocessing_context='spawn'",
     "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but "
     "got num_workers=0",
     "multiprocessing_context", "{" RANGE ", workers: {count: 0}, multiprocessing_context: spawn}",
     "multiprocessing_context",
     "unknown key; write nothing: workers are separate programs, never forks of the client"},
    {"IterableDataset, shuffle=True",
     "DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle=True",
     "shuffle", "{" ITERABLE ", sampler: {kind: random}}", "sampler.kind", "\"random\"" NO_ORDER},
    {"IterableDataset, sampler=[0]",
     "DataLoader with IterableDataset: expected unspecified sampler option, but got sampler=[0]",
     "sampler", "{" ITERABLE ", sampler: {kind: indices, indices: [0]}}", "sampler.kind",
     "\"indices\"" NO_ORDER},
    {"IterableDataset, batch_sampler=[[0]]",
     "DataLoader with IterableDataset: expected unspecified batch_sampler option, but got "
     "batch_sampler=[[0]]",
     "sampler", "{" ITERABLE ", sampler: {kind: client}}", "sampler.kind", "\"client\"" NO_ORDER},
    {"shuffle=True, sampler=[0]", "sampler option is mutually exclusive with shuffle", "shuffle",
     "{" RANGE ", shuffle: true, sampler: {kind: indices, indices: [0]}}", "shuffle",
     "unknown key; write sampler: {kind: random}"},
    {"batch_sampler=[[0]], batch_size=2",
     "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last",
     "batch_sampler", "{" RANGE ", batch_sampler: [[0]], batch: {size: 2}}", "batch_sampler",
     "unknown key; write batch and sampler"},
    {"batch_size=None, drop_last=True",
     "batch_size=None option disables auto-batching and is mutually exclusive with drop_last",
     "mutually exclusive with", "{" RANGE ", batch: {size: null, drop_last: true}}",
     "batch.drop_last",
     "true is mutually exclusive with batch.size: null, which turns batching off; leave out one "
     "of them"},
    {"num_workers=0, timeout=30", "_SingleProcessDataLoaderIter requires timeout == 0", "timeout",
     "{" RANGE ", workers: {count: 0, timeout: 30s}}", "workers.timeout",
     "\"30s\" could only be given with worker processes, which can be stopped; write "
     "workers.count 1 or more, or leave timeout out"},

    /* BatchSampler */
    {"batch_size=0", "batch_size should be a positive integer value, but got batch_size=0",
     "positive integer", "{" RANGE ", batch: {size: 0}}", "batch.size",
     "0 is not a positive integer; null turns batching off"},
    {"batch_size=True", "batch_size should be a positive integer value, but got batch_size=True",
     "positive integer", "{" RANGE ", batch: {size: true}}", "batch.size",
     "true is not a positive integer"},
    {"drop_last=1", "drop_last should be a boolean value, but got drop_last=1", "drop_last",
     "{" RANGE ", batch: {drop_last: 1}}", "batch.drop_last", "1 is not true or false"},

    /* RandomSampler */
    {"replacement=1", "replacement should be a boolean value, but got replacement=1", "replacement",
     "{" RANGE ", sampler: {kind: random, replacement: 1}}", "sampler.replacement",
     "1 is not true or false"},
    {"num_samples=0", "num_samples should be a positive integer value, but got num_samples=0",
     "positive integer", "{" RANGE ", sampler: {kind: random, num_samples: 0}}",
     "sampler.num_samples", "0 is not a positive integer; null takes as many as there are"},

    /* WeightedRandomSampler, torch.multinomial() */
    {"weights=[1, 1, 1], num_samples=True",
     "num_samples should be a positive integer value, but got num_samples=True", "positive integer",
     "{" RANGE ", sampler: {kind: weighted, weights: [1, 1, 1], num_samples: true}}",
     "sampler.num_samples", "true is not a positive integer"},
    {"weights=[1, 1, 1], replacement=1",
     "replacement should be a boolean value, but got replacement=1", "replacement",
     "{" RANGE ", sampler: {kind: weighted, weights: [1, 1, 1], replacement: 1}}",
     "sampler.replacement", "1 is not true or false"},
    {"weights=[[1, 1, 1]]", "weights should be a 1d sequence but given weights have shape (1, 3)",
     "weights", "{" RANGE ", sampler: {kind: weighted, weights: [[1, 1, 1]]}}", "sampler.weights.0",
     "a list is not a finite, non-negative number"},
    {"weights=[1, 1, 1], num_samples=4, replacement=False",
     "cannot sample n_sample > prob_dist.size(-1) samples without replacement",
     "without replacement",
     "{" RANGE ", sampler: {kind: weighted, weights: [1, 1, 1], num_samples: 4, replacement: "
     "false, order: native}}",
     "sampler.num_samples",
     "4 samples cannot be drawn without replacement from 3 weights; lower it, or write "
     "replacement: true"},
    {"weights=[1, -1, 1]", "invalid multinomial distribution (encountering probability entry < 0)",
     NULL, "{" RANGE ", sampler: {kind: weighted, weights: [1, -1, 1]}}", "sampler.weights.1",
     "-1 is not a finite, non-negative number"},
    {"weights=[1, inf, 1]",
     "invalid multinomial distribution (encountering probability entry = infinity or NaN)", "inf",
     "{" RANGE ", sampler: {kind: weighted, weights: [1, .inf, 1]}}", "sampler.weights.1",
     "inf is not a finite, non-negative number"},
    {"weights=[0, 0, 0]", "invalid multinomial distribution (sum of probabilities <= 0)", NULL,
     "{" RANGE ", sampler: {kind: weighted, weights: [0, 0, 0]}}", "sampler.weights",
     "all weights are 0; at least one must be positive"},

    /* ConcatDataset, ChainDataset, random_split() */
    {"ConcatDataset([])", "datasets should not be an empty iterable", "datasets",
     "dataset: {kind: concat, datasets: []}", "dataset.datasets",
     "the list is empty; give datasets, such as [{kind: npy, paths: a.npy}, ...]"},
    {"ConcatDataset([IterableDataset])", "ConcatDataset does not support IterableDataset",
     "terable", "dataset: {kind: concat, datasets: [{kind: tar, paths: x}]}", "dataset.datasets.0",
     "tar is iterable; concat takes map-style datasets, chain iterable ones: "
     "write index: auto"},
    {"ChainDataset([Dataset])", "ChainDataset only supports IterableDataset", "terable",
     "dataset: {kind: chain, datasets: [{kind: npy, paths: x}]}", "dataset.datasets.0",
     "npy is map-style; chain takes iterable datasets, concat map-style ones"},
    {"random_split(..., [1.5, -0.5])", "Fraction at index 0 is not between 0 and 1", "raction",
     "dataset: {kind: split, " RANGE ", parts: [1.5, -0.5], part: 0, seed: 1}", "dataset.parts.0",
     "1.5 is not a fraction from 0 to 1"},
};

TEST(test_dataloader_checks)
{
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
        const struct check *check = &checks[i];
        struct dl_spec spec = {.workers = 77};
        struct dl_error err = {0};

        int r = read_spec(check->spec, "/base", &spec, &err);
        if (r != -EINVAL || strcmp(err.path, check->path) != 0 ||
            strcmp(err.message, check->message) != 0)
            fail_msg("%s: %s: %d\n  %s: %s", check->argument, check->spec, r, err.path,
                     err.message);
        assert_true(spec.workers == 77 && !spec.name);
        if (!check->common)
            continue;
        if (!strstr(check->theirs, check->common) ||
            (!strstr(err.path, check->common) && !strstr(err.message, check->common)))
            fail_msg("%s: \"%s\" is not in both\n  %s\n  %s: %s", check->argument, check->common,
                     check->theirs, err.path, err.message);
    }
}
