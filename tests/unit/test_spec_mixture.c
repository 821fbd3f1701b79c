/* The keys of a mixture: what is read, its canonical form, and in which words it is refused. */
#include "tests/unit/spec_text.h"

#define TWO "datasets: [{kind: range, length: 3}, {kind: range, length: 4}]"

TEST(test_forms)
{
    static const struct form forms[] = {
        {"{kind: mix, " TWO ", weights: [1, 3]}",
         "{kind: mix, stop: first, " TWO ", by: samples, draw: exact, weights: [1.0, 3.0]}"},
        {"{kind: mix, stop: all, " TWO ", weights: [0, 0.5]}",
         "{kind: mix, stop: all, " TWO ", by: samples, draw: exact, weights: [0.0, 0.5]}"},
        {"{kind: mix, stop: never, length: 9, " TWO ", weights: [-0.0, 1]}",
         "{kind: mix, stop: never, length: 9, " TWO
         ", by: samples, draw: exact, weights: [0.0, 1.0]}"},
        {"{kind: mix, " TWO ", schedule: [{weights: [1, 3], step: 0}]}",
         "{kind: mix, stop: first, " TWO ", by: samples, draw: exact, weights: [1.0, 3.0]}"},
        {"{kind: mix, " TWO ", global_batch: 8, schedule: [{step: 0, weights: [1, 3]},"
         " {step: 5, weights: [1, 0], ramp: linear}, {step: 6, weights: [1, 1], ramp: none}]}",
         "{kind: mix, stop: first, " TWO
         ", by: samples, draw: exact, schedule: [{step: 0, weights: [1.0, 3.0], ramp: none},"
         " {step: 5, weights: [1.0, 0.0], ramp: linear}, {step: 6, weights: [1.0, 1.0],"
         " ramp: none}], global_batch: 8}"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        _cleanup_free_ char *text = NULL;

        assert_true(asprintf(&text, "dataset: %s", forms[i].written) >= 0);
        expect_form("dataset", text, forms[i].canonical);
    }
}

TEST(test_weights_refused)
{
    static const struct refusal cases[] = {
        {"}", "dataset.weights", "missing; a mix needs one for each dataset, or a schedule"},
        {", weights: 1}", "dataset.weights",
         "1 is not a list of one number for each dataset, such as [0.7, 0.3]"},
        {", weights: [1]}", "dataset.weights",
         "1 weights do not fit 2 datasets; give one for each"},
        {", weights: [1, a]}", "dataset.weights.1", "\"a\" is not a finite, non-negative number"},
        {", weights: [1, -1]}", "dataset.weights.1", "-1 is not a finite, non-negative number"},
        {", weights: [0, 0]}", "dataset.weights",
         "all weights are 0; at least one must be positive"},
        {", weights: [1e308, 1e308]}", "dataset.weights",
         "their sum exceeds the largest float64; scale them down"},
        {", weights: [1, 1e-6]}", "dataset.weights.1",
         "1e-06 is less than 1/16384 of the sum of the weights; write more, or 0"},
        {", weights: [1, 1], schedule: [{step: 0, weights: [1, 1]}]}", "dataset.schedule",
         "is given together with weights; leave out one of them"},
        {", schedule: []}", "dataset.schedule",
         "the list is empty; give weights with their steps, such as [{step: 0, weights: [1, 1]}]"},
        {", schedule: [1]}", "dataset.schedule.0",
         "1 is not a mapping, such as {step: 1000, weights: [0.7, 0.3]}"},
        {", schedule: [{weights: [1, 1]}]}", "dataset.schedule.0.step",
         "missing; an entry of the schedule needs it"},
        {", schedule: [{step: -1, weights: [1, 1]}]}", "dataset.schedule.0.step",
         "-1 is not a non-negative integer"},
        {", schedule: [{step: 3, weights: [1, 1]}]}", "dataset.schedule.0.step",
         "3 leaves the steps before it without weights; begin the schedule with step: 0"},
        {", schedule: [{step: 0}]}", "dataset.schedule.0.weights",
         "missing; an entry of the schedule needs them"},
        {", schedule: [{step: 0, weights: [1, 1], ramp: linear}]}", "dataset.schedule.0.ramp",
         "linear, but there are no weights before this entry to come from; leave it out"},
        {", schedule: [{step: 0, weights: [1, 1], ramp: cosine}]}", "dataset.schedule.0.ramp",
         "\"cosine\" is not one of none, linear"},
        {", schedule: [{step: 0, weights: [1, 1], wieghts: 1}]}", "dataset.schedule.0",
         "has other keys than step, weights and ramp"},
        {", schedule: [{step: 0, weights: [1, 1]}, {step: 0, weights: [1, 1]}]}",
         "dataset.schedule.1.step",
         "0 is not above 0, the step of the entry before it; put them in order"},
        {", schedule: [{step: 0, weights: [1, 1]}, {step: 1, weights: [1]}]}",
         "dataset.schedule.1.weights", "1 weights do not fit 2 datasets; give one for each"},
        {", schedule: [{step: 0, weights: [1, 1]}, {step: 1, weights: [1, 2]}]}",
         "dataset.global_batch",
         "missing; a schedule counts its steps by it: the samples of all ranks in a step, such as "
         "batch.size times the number of ranks"},
        {", weights: [1, 1], global_batch: 4}", "dataset.global_batch",
         "has no effect without a schedule of several entries; leave it out"},
        {", weights: [1, 1], length: 4}", "dataset.length",
         "4 only applies to stop: never; write that, or leave length out"},
        {", weights: [1, 1], stop: never}", "dataset.length",
         "missing; stop: never needs it: the samples that count as an epoch"},
        {", weights: [1, 1], by: tokens}", "dataset.by",
         "\"tokens\" needs batches measured in tokens, whose lengths are known; add batch.tokens, "
         "or "
         "write samples"},
        {", weights: [1, 1], by: tokens, stop: all}\nbatch: {tokens: 8}\ncollate: {kind: pad}\n",
         "dataset.by", "\"tokens\" has no stop: all; write stop: first, or never with a length"},
    };

    EXPECT_REFUSALS("dataset: {kind: mix, " TWO, cases);
}

/* As many entries as there may be, and one more. */
TEST(test_longest_schedule)
{
    for (unsigned more = 0; more < 2; more++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        _cleanup_free_ char *text = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);

        assert_non_null(out);
        (void)fprintf(out, "dataset: {kind: mix, " TWO ", global_batch: 8, schedule: [");
        for (unsigned i = 0; i < DL_MAX_MIX_POINTS + more; i++)
            (void)fprintf(out, "%s{step: %u, weights: [1, %u]}", i ? ", " : "", i * 3, i % 5);
        (void)fprintf(out, "]}");
        assert_int_equal(fclose(out), 0);
        if (more) {
            const struct refusal refusal = {text, "dataset.schedule",
                                            "257 entries are above the maximum of 256"};
            expect_refusals("", &refusal, 1);
            continue;
        }
        expect_spec(text, &spec);
        assert_int_equal(spec.dataset.n_points, DL_MAX_MIX_POINTS);
        assert_true(spec.dataset.points[255].step == 765 && spec.dataset.points[3].weights[1] == 3);
    }
}

TEST(test_order_refused)
{
    static const struct refusal cases[] = {
        {", weights: [1, 1], draw: random}", "dataset.draw",
         "\"random\" does not tell where an epoch ends without drawing all of it; write stop: "
         "never, "
         "with a length"},
        {", weights: [1, 1], draw: random, stop: never, length: 9, by: tokens}\nbatch: {tokens: "
         "8}\n"
         "collate: {kind: pad}\n",
         "dataset.draw", "\"random\" draws samples; write by: samples, or draw: exact"},
        {", weights: [1, 1]}\nsampler: {kind: random}\n", "sampler.order",
         "\"torch\" is not available for a dataset of kind mix, which PyTorch does not have; write "
         "order: native"},
        {", weights: [1, 1]}\nsampler: {kind: random, order: native, replacement: true}\n",
         "sampler.replacement",
         "true does not work with a dataset of kind mix, whose datasets are used in full; leave "
         "replacement out"},
        {", weights: [1, 1]}\nsampler: {kind: random, order: native, num_samples: 4}\n",
         "sampler.num_samples",
         "4 does not work with a dataset of kind mix, which decides where an epoch ends; write "
         "stop: "
         "never and a length in the dataset"},
        {", weights: [1, 1]}\nsampler: {kind: client}\n", "sampler.kind",
         "\"client\" chooses samples, as a dataset of kind mix does; write sequential or random, "
         "which is the order within each of its datasets"},
    };
    static const struct refusal nested[] = {
        {"{kind: concat, datasets: [{kind: mix, " TWO ", weights: [1, 1]}]}", "dataset.datasets.0",
         "a mix decides in which order samples come, and cannot stand in a concat; put the concat "
         "into "
         "the mix instead"},
        {"{kind: mix, weights: [1, 1], datasets: [{kind: range, length: 9}, {kind: mix, " TWO
         ", global_batch: 8, schedule: [{step: 0, weights: [1, 1]}, {step: 9, weights: [2, 1]}]}]}",
         "dataset.datasets.1.schedule",
         "has steps, by which each of its epochs would have another length; write stop: never and "
         "a length beside it"},
        {"{kind: mix, weights: [1], datasets: [{kind: mix, datasets: [{kind: range, length: 4, "
         "iterable: true}], stop: never, length: 9, global_batch: 8, schedule: [{step: 0, weights: "
         "[1]}, {step: 9, weights: [2]}]}]}",
         "dataset.datasets.0.schedule",
         "has steps, which a mix of iterable datasets has in the outermost one alone, since each "
         "worker makes a part of it; write weights, or list its datasets there"},
        {"{kind: mix, by: tokens, weights: [1], datasets: [{kind: mix, weights: [1], datasets: "
         "[{kind: mix, " TWO ", stop: never, length: 9, global_batch: 8, schedule: [{step: 0, "
         "weights: [1, 1]}, {step: 9, weights: [2, 1]}]}]}]}",
         "dataset.by",
         "tokens cannot be combined with the schedule of a nested mix: how many of its samples "
         "come "
         "before a step depends on lengths; leave it out, or put the schedule into the outermost "
         "mix"},
        {"{kind: mix, weights: [1], datasets: [{kind: mix, " TWO ", weights: [1, 1], by: tokens}]}",
         "dataset.datasets.0.by",
         "tokens: an inner mix is asked for samples, and has shares of these; leave it out, or "
         "list its datasets in the outermost mix, their weights times that of this one"},
        {"{kind: mix, weights: [1], datasets: [{kind: mix, " TWO
         ", weights: [1, 1], draw: random, stop: never, length: 7}]}",
         "dataset.datasets.0.draw",
         "random: an inner mix is exact, so that a sample of it is found without those before; "
         "leave it out, or list its datasets in the outermost mix, their weights times that of "
         "this one"},
        {"{kind: mix, weights: [1, 1], datasets: [{kind: mix, weights: [1], datasets: [{kind: "
         "range,"
         " length: 1}]}, {kind: mix, weights: [1], datasets: [{kind: range, length: 1, iterable: "
         "true}]}]}",
         "dataset.datasets.1",
         "mix is iterable, and number 0 of the list, from 0, map-style; a mix takes only map-style "
         "or only iterable datasets"},
        {"{kind: mix, weights: [1, 1], datasets: [{kind: range, length: 1},"
         " {kind: range, length: 1, iterable: true}]}",
         "dataset.datasets.1",
         "range is iterable, and number 0 of the list, from 0, map-style; a mix takes only "
         "map-style or only iterable datasets"},
        {"{kind: mix, weights: [1, 1, 1], datasets: [{kind: python, host: 7},"
         " {kind: tar, paths: x}, {kind: npy, paths: x}]}",
         "dataset.datasets.2",
         "npy is map-style, and number 1 of the list, from 0, iterable; a mix takes only map-style "
         "or only iterable datasets: write index: auto for the tar shards"},
        {"{kind: mix, weights: [1], draw: random, stop: never, length: 1,"
         " datasets: [{kind: tar, paths: x}]}",
         "dataset.draw",
         "\"random\" is not available for a mix of iterable datasets; write exact, or leave it "
         "out"},
    };

    EXPECT_REFUSALS("dataset: {kind: mix, " TWO, cases);
    EXPECT_REFUSALS("dataset: ", nested);
}

/* As its datasets are; of foreign ones alone only they know. */
TEST(test_iterable)
{
    static const struct {
        const char *datasets;
        bool iterable;
    } rows[] = {
        {"{kind: range, length: 1}, {kind: python, host: 7}", false},
        {"{kind: plugin, path: x}, {kind: python, host: 7}", false},
        {"{kind: plugin, path: x}, {kind: tar, paths: x}", true},
        {"{kind: mix, weights: [1], datasets: [{kind: python, host: 7}]}, {kind: tar, paths: x}",
         true},
        {"{kind: range, length: 1}, {kind: mix, weights: [1], datasets: [{kind: plugin, path: x}]}",
         false},
        {"{kind: python, host: 7}, {kind: mix, weights: [1], datasets: [{kind: tar, paths: x}]}",
         true},
        {"{kind: range, length: 1, iterable: true}, {kind: chain, datasets: [{kind: tar, paths: "
         "x}]}",
         true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        _cleanup_free_ char *text = NULL;

        assert_true(asprintf(&text, "dataset: {kind: mix, weights: [1, 1], datasets: [%s]}",
                             rows[i].datasets) >= 0);
        expect_spec(text, &spec);
        assert_int_equal(spec_dataset_is_iterable(&spec.dataset), rows[i].iterable);
        assert_int_equal(spec_check_iterable(&spec, NULL), 0);
    }
}
