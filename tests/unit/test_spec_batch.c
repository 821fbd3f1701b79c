/*
 * Batches measured in tokens: what their keys and those of collate become, their canonical form, in
 * which words they are refused, and what the plan is made with.
 */
#include "tests/unit/spec_text.h"

#include "daemon/plan/plan.h"

#define RANGE "dataset: {kind: range, length: 3}\n"
#define PAD   "\ncollate: {kind: pad}"

TEST(test_forms)
{
    static const struct {
        const char *section;
        struct form form;
    } forms[] = {
        {"batch", {"batch: {tokens: null}", "{size: 1, drop_last: false}"}},
        {"batch", {"batch: {tokens: null, size: 5}", "{size: 5, drop_last: false}"}},
        {"batch",
         {"batch: {tokens: 4096}" PAD,
          "{tokens: 4096, strategy: sorted, max_length: null, overlong: drop, leftover: emit,"
          " window: 256}"}},
        {"batch",
         {"batch: {window: null, leftover: drop, overlong: error, max_length: 1048576, strategy:"
          " sorted, tokens: 1048576, length_of: pair.0}" PAD,
          "{tokens: 1048576, strategy: sorted, max_length: 1048576, overlong: error, leftover:"
          " drop, window: null, length_of: pair.0}"}},
        {"batch",
         {"batch: {tokens: 64, strategy: bucket}" PAD,
          "{tokens: 64, strategy: bucket, interval: 8, max_length: null, overlong: drop, leftover:"
          " emit, window: null}"}},
        {"batch",
         {"batch: {tokens: 64, strategy: bucket, interval: 64, leftover: carry, window: 7}" PAD,
          "{tokens: 64, strategy: bucket, interval: 64, max_length: null, overlong: drop,"
          " leftover: carry, window: 7}"}},
        {"batch",
         {"batch: {tokens: 64, overlong: truncate}\ncollate: {kind: pack, length: 32}",
          "{tokens: 64, max_length: null, overlong: truncate, leftover: emit, window: 256}"}},
        {"batch",
         {"batch: {tokens: 64, lengths: lazy}\ncollate: {kind: pack, length: 32}",
          "{tokens: 64, max_length: null, overlong: drop, leftover: emit, lengths: lazy, "
          "documents: 4096}"}},
        {"batch",
         {"batch: {tokens: 64, lengths: lazy, documents: 5}\ncollate: {kind: pack, length: 32}",
          "{tokens: 64, max_length: null, overlong: drop, leftover: emit, lengths: lazy, "
          "documents: 5}"}},
        {"batch",
         {"batch: {tokens: 64, lengths: lazy, strategy: bucket}" PAD,
          "{tokens: 64, strategy: bucket, interval: 8, max_length: null, overlong: drop, leftover:"
          " emit, lengths: lazy, documents: 4096}"}},
        {"collate",
         {"collate: {kind: pad, length: null, to: longest}",
          "{kind: pad, value: 0.0, side: right, multiple_of: 1}"}},
        {"collate",
         {"collate: {kind: pad, length: 512, side: left}",
          "{kind: pad, length: 512, value: 0.0, side: left}"}},
        {"collate",
         {"batch: {tokens: 64, strategy: bucket}\ncollate: {kind: pad, to: bucket, multiple_of: 3}",
          "{kind: pad, to: bucket, value: 0.0, side: right, multiple_of: 3}"}},
        {"collate",
         {"batch: {tokens: 64}\ncollate: {kind: pack, length: 32, fields: [b, a], value: -1}",
          "{kind: pack, length: 32, value: -1.0, fields: [a, b]}"}},
        {"collate", {"batch: {tokens: 64}\ncollate: {kind: none}", "{kind: none}"}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        _cleanup_free_ char *text = NULL;
        assert_true(asprintf(&text, RANGE "%s", forms[i].form.written) > 0);
        expect_form(forms[i].section, text, forms[i].form.canonical);
    }
}

#define WITHOUT_TOKENS                                                             \
    "only applies to batches measured in tokens; add batch.tokens, or leave this " \
    "out"
#define BESIDE_LENGTH "has no effect with length, which is the padded length; leave out one of them"

static const struct refusal value_refusals[] = {
    {"batch: {tokens: 0}", "batch.tokens",
     "0 is not a positive integer; null measures batches in samples"},
    {"batch: {tokens: -1}", "batch.tokens", "-1 is not a positive integer"},
    {"batch: {tokens: 4k}", "batch.tokens", "\"4k\" is not a positive integer"},
    {"batch: {tokens: 1048577}", "batch.tokens", "1048577 is above the maximum of 1048576"},
    {"batch: {tokens: 64, strategy: greedy}" PAD, "batch.strategy",
     "\"greedy\" is not one of sorted, bucket, sequential, first_fit, cut"},
    {"batch: {tokens: 64, strategy: bucket, interval: 0}" PAD, "batch.interval",
     "0 is not a positive integer"},
    {"batch: {tokens: 64, max_length: 0}" PAD, "batch.max_length",
     "0 is not a positive integer; null takes what fits a batch"},
    {"batch: {tokens: 64, overlong: cut}" PAD, "batch.overlong",
     "\"cut\" is not one of drop, truncate, error, split"},
    {"batch: {tokens: 64, leftover: keep}" PAD, "batch.leftover",
     "\"keep\" is not one of emit, drop, carry"},
    {"batch: {tokens: 64, window: 0}" PAD, "batch.window",
     "0 is not a positive integer; null is the whole epoch"},
    {"batch: {tokens: 64, lengths: late}\ncollate: {kind: pack, length: 8}", "batch.lengths",
     "\"late\" is not one of lazy; did you mean lazy?"},
    {"batch: {tokens: 64, lengths: lazy, documents: 0}\ncollate: {kind: pack, length: 8}",
     "batch.documents", "0 is not a positive integer"},
    {"batch: {tokens: 64, length_of: 5}" PAD, "batch.length_of",
     "5 is not the name of a leaf, such as tokens or pair.0; put it in quotes"},
    {"batch: {tokens: 64, length_of: a..b}" PAD, "batch.length_of",
     "\"a..b\" is not the name of a leaf, such as tokens or pair.0"},
    {"batch: {tokens: 64, length_of: [a]}" PAD, "batch.length_of",
     "a list is not the name of a leaf, such as tokens or pair.0"},
    {"collate: {kind: pad, length: 0}", "collate.length", "0 is not a positive integer"},
    {"collate: {kind: pad, length: 1048577}", "collate.length",
     "1048577 is above the maximum of 1048576"},
    {"collate: {kind: pad, to: top}", "collate.to", "\"top\" is not one of longest, bucket"},
    {"batch: {tokens: 64}\ncollate: {kind: pack}", "collate.length",
     "missing; collate of kind pack needs it"},
    {"batch: {tokens: 64}\ncollate: {kind: pack, length: null}", "collate.length",
     "null is not a positive integer; rows need a length"},
    {"batch: {tokens: 64}\ncollate: {kind: pack, length: 8, side: left}", "collate.side",
     "not a key of collate of kind pack; it takes kind, length, value, fields"},
    {"batch: {tokens: 64}\ncollate: {kind: pack, length: 8, multiple_of: 2}", "collate.multiple_of",
     "not a key of collate of kind pack; it takes kind, length, value, fields"},
    {"batch: {tokens: 64}\ncollate: {kind: pack, length: 8, to: longest}", "collate.to",
     "not a key of collate of kind pack; it takes kind, length, value, fields"},
    {"batch: {tokens: 64}\ncollate: {kind: pack, length: 8, fields: []}", "collate.fields",
     "a list is empty; list the leaves to pack, such as [tokens, pair.0]; leave fields out to pack "
     "all leaves"},
    {"collate: {length: 8}", "collate.length",
     "not a key of collate of kind default; it takes kind, mixup, cutmix, "
     "classes"},
};

/* Keys that say nothing, or the contrary, beside others. */
static const struct refusal together_refusals[] = {
    {"batch: {tokens: 64, size: 5}" PAD, "batch.size",
     "5 has no effect with tokens, which measures a batch instead; leave out one of them"},
    {"batch: {tokens: 64, size: null}" PAD, "batch.size",
     "null has no effect with tokens, which measures a batch instead; leave out one of them"},
    {"batch: {tokens: 64, drop_last: true}" PAD, "batch.drop_last",
     "true has no effect with tokens; write leftover: drop, or leave drop_last out"},
    {"batch: {strategy: sorted}", "batch.strategy", "\"sorted\" " WITHOUT_TOKENS},
    {"batch: {interval: 8}", "batch.interval", "8 " WITHOUT_TOKENS},
    {"batch: {max_length: null}", "batch.max_length", "null " WITHOUT_TOKENS},
    {"batch: {overlong: drop}", "batch.overlong", "\"drop\" " WITHOUT_TOKENS},
    {"batch: {leftover: emit}", "batch.leftover", "\"emit\" " WITHOUT_TOKENS},
    {"batch: {tokens: null, window: 5}", "batch.window", "5 " WITHOUT_TOKENS},
    {"batch: {size: 4, length_of: a}", "batch.length_of", "\"a\" " WITHOUT_TOKENS},
    {"batch: {tokens: 64, interval: 8}" PAD, "batch.interval",
     "8 only applies to strategy: bucket; write that, or leave interval out"},
    {"batch: {tokens: 64, interval: 8, strategy: sorted}" PAD, "batch.interval",
     "8 only applies to strategy: bucket; write that, or leave interval out"},
    {"batch: {tokens: 64}", "collate.kind",
     "\"default\" only stacks samples of one length, but batch.tokens is for different lengths; "
     "write collate: {kind: pad}, or pack"},
    {"batch: {tokens: 64}\nshard: {mode: split}" PAD, "shard.mode",
     "\"split\" has no effect, since batch.tokens already plans each step for all ranks; leave "
     "mode out"},
    {"batch: {tokens: 64}\nsampler: {kind: client}" PAD, "sampler.kind",
     "\"client\" gives the samples of each batch, but with batch.tokens the daemon plans them; "
     "write another kind, or batch: {size: n}"},
    {"batch: {tokens: 64, strategy: sorted}\ncollate: {kind: pack, length: 8}", "batch.strategy",
     "\"sorted\" has no effect with collate.kind pack, which chooses what fits a row; leave "
     "strategy out, or write sequential, first_fit or cut, and lengths: lazy"},
    {"batch: {tokens: 64, strategy: bucket}\ncollate: {kind: pack, length: 8}", "batch.strategy",
     "\"bucket\" has no effect with collate.kind pack, which chooses what fits a row; leave "
     "strategy out, or write sequential, first_fit or cut, and lengths: lazy"},
    {"batch: {tokens: 64, overlong: split}\ncollate: {kind: pack, length: 8}", "batch.overlong",
     "\"split\" needs rows that are packed while lengths are taken; write collate: {kind: pack} "
     "and "
     "lengths: lazy, or overlong: truncate"},
    {"collate: {kind: pack, length: 8}", "collate.kind",
     "\"pack\" fills rows with tokens, but batches are measured in samples; write batch: "
     "{tokens: n}, with a multiple of collate.length"},
    {"collate: {kind: pad, to: bucket}", "collate.to",
     "\"bucket\" needs the buckets of batch: {tokens: n, strategy: bucket}; write that, or to: "
     "longest"},
    {"batch: {tokens: 64}\ncollate: {kind: pad, to: bucket}", "collate.to",
     "\"bucket\" needs the buckets of batch: {tokens: n, strategy: bucket}; write that, or to: "
     "longest"},
    {"collate: {kind: pad, length: 8, to: longest}", "collate.to", "\"longest\" " BESIDE_LENGTH},
    {"collate: {kind: pad, length: 8, multiple_of: 1}", "collate.multiple_of", "1 " BESIDE_LENGTH},

    {"batch: {lengths: lazy}", "batch.lengths", "\"lazy\" " WITHOUT_TOKENS},
    {"batch: {tokens: 64, documents: 9}\ncollate: {kind: pack, length: 8}", "batch.documents",
     "9 only applies to lengths: lazy; write that, or leave documents out"},
    {"batch: {tokens: 64, lengths: lazy, window: 9}\ncollate: {kind: pack, length: 8}",
     "batch.window",
     "9 has no effect with lengths: lazy, whose windows are a number of documents; write "
     "documents: n, "
     "or leave window out"},
    {"batch: {tokens: 64, lengths: lazy, strategy: bucket, leftover: carry}" PAD, "batch.lengths",
     "\"lazy\" does not work with leftover: carry, which needs all lengths of an epoch; write emit "
     "or drop"},
    {"batch: {tokens: 64, lengths: lazy, balance: tokens}\ncollate: {kind: pack, length: 8}",
     "batch.lengths",
     "\"lazy\" does not work with balance, by which the rows of a step depend on the number of "
     "ranks; leave out one of them"},

    {"batch: {tokens: 64, leftover: carry}" PAD, "batch.leftover",
     "\"carry\" needs buckets; write strategy: bucket, or leftover: emit or drop"},
    {"batch: {tokens: 64, leftover: carry}\ncollate: {kind: pack, length: 8}", "batch.leftover",
     "\"carry\" needs buckets, which collate.kind pack does not have; write emit or drop"},
    {"batch: {tokens: 64, strategy: bucket, leftover: carry}\n"
     "sampler: {kind: random, replacement: true}" PAD,
     "batch.leftover",
     "\"carry\" needs epochs of the same samples, each once, which sampler.replacement true "
     "does not have; write emit or drop"},
    {"batch: {tokens: 64, strategy: bucket, leftover: carry}\n"
     "sampler: {kind: random, num_samples: 3}" PAD,
     "batch.leftover",
     "\"carry\" needs epochs of the same samples, each once, which sampler.num_samples does not "
     "have; write emit or drop"},
    {"batch: {tokens: 64, strategy: bucket, leftover: carry}\n"
     "sampler: {kind: weighted, weights: [1, 1, 1], replacement: false, order: native}" PAD,
     "batch.leftover",
     "\"carry\" needs epochs of the same samples, each once, which sampler.kind weighted does "
     "not have; write emit or drop"},
};

/* What does not fit. */
static const struct refusal size_refusals[] = {
    {"batch: {tokens: 5000}\ncollate: {kind: pack, length: 2048}", "batch.tokens",
     "5000 is not a multiple of collate.length 2048; write 4096 or 6144"},
    {"batch: {tokens: 1000}\ncollate: {kind: pack, length: 2048}", "batch.tokens",
     "1000 is not a multiple of collate.length 2048; write 2048"},
    {"batch: {tokens: 1048576}\ncollate: {kind: pack, length: 1000}", "batch.tokens",
     "1048576 is not a multiple of collate.length 1000; write 1048000"},
    {"batch: {tokens: 7, strategy: bucket}" PAD, "batch.interval",
     "8 is above batch.tokens 7, so no sample would fit a batch; lower it, or raise tokens"},
    {"batch: {tokens: 64, strategy: bucket, interval: 65}\ncollate: {kind: none}", "batch.interval",
     "65 is above batch.tokens 64, so no sample would fit a batch; lower it, or raise tokens"},
    {"batch: {tokens: 64}\ncollate: {kind: pad, length: 65}", "collate.length",
     "65 is above batch.tokens 64, so no sample would fit a batch; lower it, or raise tokens"},
    {"batch: {tokens: 64}\ncollate: {kind: pad, multiple_of: 65}", "collate.multiple_of",
     "65 is above batch.tokens 64, so no sample would fit a batch; lower it, or raise tokens"},
    {"batch: {tokens: 64, strategy: bucket, interval: 24}\n"
     "collate: {kind: pad, to: bucket, multiple_of: 16}",
     NULL, NULL}, /* 48 fits */
    {"batch: {tokens: 64, strategy: bucket, interval: 24}\n"
     "collate: {kind: pad, to: bucket, multiple_of: 9}",
     "collate.multiple_of",
     "9 and batch.interval 24 pad each sample to 72 tokens at the least, above batch.tokens 64; "
     "lower one of them, or raise tokens"},
    {"batch: {tokens: 64, strategy: bucket, interval: 50}\ncollate: {kind: pad, multiple_of: 33}",
     "collate.multiple_of",
     "33 and batch.interval 50 pad each sample to 66 tokens at the least, above batch.tokens 64; "
     "lower one of them, or raise tokens"},
    {"batch: {tokens: 64, strategy: bucket, interval: 33}\ncollate: {kind: pad, multiple_of: 33}",
     NULL, NULL},

    /* Such a sample has a batch to itself. */
    {"batch: {tokens: 64, max_length: 65}" PAD, NULL, NULL},
    {"batch: {tokens: 64, max_length: 61}\ncollate: {kind: pad, multiple_of: 20}", NULL, NULL},
    {"batch: {tokens: 63, max_length: 57, strategy: bucket}\ncollate: {kind: none}", NULL, NULL},
    {"batch: {tokens: 64, max_length: 33}\ncollate: {kind: pad, length: 32}", "batch.max_length",
     "33 is above collate.length 32: a sample of that many tokens would not fit it; lower it, or "
     "raise length"},
    {"batch: {tokens: 64, max_length: 32}\ncollate: {kind: pad, length: 32}", NULL, NULL},
    {"batch: {tokens: 64, max_length: 33}\ncollate: {kind: pack, length: 32}", "batch.max_length",
     "33 is above collate.length 32: a sample of that many tokens would not fit a row; lower it, "
     "or "
     "raise length"},
    {"batch: {tokens: 64, max_length: 32}\ncollate: {kind: pack, length: 32}", NULL, NULL},
};

TEST(test_refusals)
{
    EXPECT_REFUSALS(RANGE, value_refusals);
    EXPECT_REFUSALS(RANGE, together_refusals);
}

/* The last size that fits, and the first that does not. */
TEST(test_sizes)
{
    for (size_t i = 0; i < ARRAY_SIZE(size_refusals); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        char text[512];

        if (size_refusals[i].path) {
            expect_refusals(RANGE, &size_refusals[i], 1);
            continue;
        }
        snprintf(text, sizeof text, RANGE "%s", size_refusals[i].text);
        expect_spec(text, &spec);
    }
}

/* What an iterable dataset and an empty one refuse, told by the spec or found when it is open. */
TEST(test_datasets)
{
    static const char iterable[] =
        "64 has no meaning, as the dataset is iterable: the lengths of its samples are not "
        "known in advance; write batch: {size: n}, or use a dataset with an index";
    static const struct refusal cases[] = {
        {"dataset: {kind: tar, paths: x}\n", "batch.tokens", iterable},
        {"dataset: {kind: range, length: 5, iterable: true}\n", "batch.tokens", iterable},
        {"dataset: {kind: range, length: 0}\n", "dataset",
         "it has no samples for batches of 64 tokens"},
    };
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    struct dl_error err = {0};

    EXPECT_REFUSALS("batch: {tokens: 64}\ncollate: {kind: pad}\n", cases);
    expect_spec("{dataset: {kind: plugin, path: x}, batch: {tokens: 64}, collate: {kind: pad}}",
                &spec);
    assert_int_equal(spec_check_iterable(&spec, &err), -EINVAL);
    assert_string_equal(err.path, "batch.tokens");
    assert_string_equal(err.message, iterable);
    assert_int_equal(spec_check_length(&spec, 1, &err), 0);
    assert_int_equal(spec_check_length(&spec, 0, &err), -EINVAL);
    assert_string_equal(err.path, "dataset");
}

/* What stands in the fields, and what the plan is made with. */
TEST(test_plan_tokens)
{
    static const struct {
        const char *text;
        struct plan_tokens want;
    } cases[] = {
        {"batch: {size: 7}", {0}},
        {"batch: {tokens: 64}" PAD,
         {.tokens = 64, .strategy = PLAN_SORTED, .multiple = 1, .window = 256}},
        {"batch: {tokens: 64, window: null, leftover: drop, overlong: truncate, max_length: 9}\n"
         "collate: {kind: pad, multiple_of: 3}",
         {.tokens = 64,
          .strategy = PLAN_SORTED,
          .leftover = PLAN_DROP,
          .truncate = true,
          .max_length = 9,
          .multiple = 3}},
        {"batch: {tokens: 64, overlong: error}\ncollate: {kind: pad, length: 32}",
         {.tokens = 64, .strategy = PLAN_SORTED, .multiple = 1, .pad_length = 32, .window = 256}},
        {"batch: {tokens: 64}\ncollate: {kind: none}",
         {.tokens = 64, .strategy = PLAN_SORTED, .multiple = 1, .window = 256}},
        {"batch: {tokens: 64, strategy: bucket, leftover: carry}\n"
         "collate: {kind: pad, multiple_of: 12}",
         {.tokens = 64,
          .strategy = PLAN_BUCKET,
          .leftover = PLAN_CARRY,
          .interval = 8,
          .multiple = 12}},
        {"batch: {tokens: 64, strategy: bucket, window: 5}\n"
         "collate: {kind: pad, to: bucket, multiple_of: 12}",
         {.tokens = 64, .strategy = PLAN_BUCKET, .interval = 8, .multiple = 24, .window = 5}},
        {"batch: {tokens: 1048576, strategy: bucket, interval: 1048576}\n"
         "collate: {kind: pad, to: bucket, multiple_of: 1048576}",
         {.tokens = 1048576, .strategy = PLAN_BUCKET, .interval = 1048576, .multiple = 1048576}},
        {"batch: {tokens: 64, max_length: 30}\ncollate: {kind: pack, length: 32}",
         {.tokens = 64,
          .strategy = PLAN_PACK,
          .max_length = 30,
          .multiple = 1,
          .row_length = 32,
          .window = 256}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        const struct plan_tokens *want = &cases[i].want;
        char text[512];

        snprintf(text, sizeof text, RANGE "%s", cases[i].text);
        expect_spec(text, &spec);
        assert_int_equal(spec_most_samples(&spec), want->tokens ? want->tokens : 7);
        assert_int_equal(spec.batch_size, want->tokens ? 1 : 7);
        struct plan_tokens got = plan_params_of(&spec, 3).tokens;
        assert_int_equal(got.tokens, want->tokens);
        assert_null(got.lengths);
        assert_int_equal(got.strategy, want->strategy);
        assert_int_equal(got.leftover, want->leftover);
        assert_int_equal(got.truncate, want->truncate);
        assert_int_equal(got.max_length, want->max_length);
        assert_int_equal(got.interval, want->interval);
        assert_int_equal(got.multiple, want->multiple);
        assert_int_equal(got.pad_length, want->pad_length);
        assert_int_equal(got.row_length, want->row_length);
        assert_int_equal(got.window, want->window);
    }
}

/* ---- any keys beside any others ------------------------------------------------------------- */

/* A number below n; xorshift, from the same start each time. */
static uint64_t draw(uint64_t *state, uint64_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % n;
}

/* A mapping of some of the keys, each with one of its values. */
static void draw_section(uint64_t *rng, const char *const (*keys)[5], size_t n, char *out,
                         size_t size)
{
    size_t len = (size_t)snprintf(out, size, "{");

    for (size_t i = 0; i < n; i++) {
        const char *text = keys[i][draw(rng, 5)];
        if (text[0])
            len += (size_t)snprintf(out + len, size - len, "%s%s", len > 1 ? ", " : "", text);
    }
    snprintf(out + len, size - len, "}");
}

static void draw_spec(uint64_t *rng, char *out, size_t size)
{
    static const char *const batch[][5] = {
        {"tokens: 24", "tokens: 40", "tokens: 48", "tokens: 49", ""},
        {"strategy: bucket", "strategy: bucket", "strategy: sorted", "", ""},
        {"interval: 3", "interval: 16", "", "", ""},
        {"max_length: 5", "max_length: 24", "max_length: 47", "", ""},
        {"overlong: truncate", "overlong: error", "", "", ""},
        {"leftover: carry", "leftover: drop", "", "", ""},
        {"window: 5", "window: null", "", "", ""},
        {"size: 3", "", "", "", ""},
    };
    static const char *const collate[][5] = {
        {"kind: pad", "kind: pad", "kind: pad", "kind: pack", "kind: none"},
        {"length: 8", "length: 24", "length: 30", "", ""},
        {"to: bucket", "to: longest", "", "", ""},
        {"multiple_of: 4", "multiple_of: 7", "", "", ""},
    };
    static const char *const sampler[][5] = {
        {"kind: random", "kind: random, replacement: true", "kind: random, num_samples: 2", "", ""},
    };
    char sections[3][256];

    draw_section(rng, batch, ARRAY_SIZE(batch), sections[0], sizeof sections[0]);
    draw_section(rng, collate, ARRAY_SIZE(collate), sections[1], sizeof sections[1]);
    draw_section(rng, sampler, ARRAY_SIZE(sampler), sections[2], sizeof sections[2]);
    snprintf(out, size, RANGE "batch: %s\ncollate: %s\nsampler: %s\n", sections[0], sections[1],
             sections[2]);
}

/* The least that a sample of n tokens can take of a batch: found, not computed. */
static uint64_t takes(const struct plan_tokens *t, uint64_t n)
{
    if (t->pad_length)
        return n <= t->pad_length ? t->pad_length : UINT64_MAX;
    if (t->row_length)
        return n <= t->row_length ? n : UINT64_MAX;
    while (t->strategy == PLAN_BUCKET && n % t->interval)
        n++;
    while (n % t->multiple)
        n++;
    return n;
}

/* Of what is accepted, any sample that may come has its place, and the plan takes all of it. */
static void check_accepted(const struct dl_spec *spec)
{
    static const uint32_t lengths[] = {1, 2, 3};
    struct plan_params params = plan_params_of(spec, ARRAY_SIZE(lengths));
    struct plan_tokens *t = &params.tokens;
    struct plan *plan = NULL;

    t->lengths = lengths;
    assert_int_equal(plan_new(&params, &plan), 0);
    plan_free(plan);
    if (!t->tokens)
        return;
    assert_true(takes(t, 1) <= t->tokens);
    assert_true(t->max_length == 0 || takes(t, t->max_length) < UINT64_MAX);
    assert_true(t->strategy != PLAN_PACK || t->tokens % t->row_length == 0);
    assert_true(spec->collate.to != PAD_TO_BUCKET || t->multiple % t->interval == 0);
    assert_true(t->leftover != PLAN_CARRY ||
                (t->strategy == PLAN_BUCKET && !params.replacement && !params.num_samples));
}

TEST(test_any_keys)
{
    uint64_t rng = 5;
    unsigned accepted = 0, of_tokens = 0;

    for (size_t i = 0; i < 5000; i += harness_stride()) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0}, again = {0};
        _cleanup_(value_deinit) struct value canonical = {0};
        struct dl_error err = {0};
        char text[900];

        draw_spec(&rng, text, sizeof text);
        if (read_spec(text, "/base", &spec, &err) < 0) {
            bool ours =
                strncmp(err.path, "batch.", 6) == 0 || strncmp(err.path, "collate.", 8) == 0;
            if (!ours)
                fail_msg("%s%s: %s", text, err.path, err.message);
            continue;
        }
        accepted++;
        of_tokens += spec.batch.tokens > 0;
        check_accepted(&spec);
        assert_int_equal(spec_to_value(&spec, &canonical), 0);
        if (spec_from_value(&canonical, NULL, &again, &err) < 0)
            fail_msg("%s%s: %s", text, err.path, err.message);
        assert_false(spec_differs(&spec, &again, NULL));
    }
    assert_in_range(accepted, 200 / harness_stride(), 4900);
    assert_in_range(of_tokens, 100 / harness_stride(), accepted);
}

/* What depends on the world size, and what iterable datasets make of shard modes. */
TEST(test_shard_modes)
{
    _cleanup_(spec_deinit) struct dl_spec split = {0}, tar = {0};
    struct dl_error err = {0};

    expect_spec("dataset: {kind: range, length: 9}\nbatch: {size: 8}\nshard: {mode: split}",
                &split);
    assert_int_equal(split.shard, SHARD_SPLIT);
    assert_int_equal(spec_check_world(&split, 4, &err), 0);
    assert_int_equal(spec_check_world(&split, 16, &err), -EINVAL);
    assert_string_equal(err.path, "batch.size");
    assert_string_equal(err.message, "8 cannot be split evenly among 16 ranks, as shard.mode split "
                                     "does; write a multiple of 16");
    split.shard = SHARD_BATCH;
    assert_int_equal(spec_check_world(&split, 3, &err), 0);
    expect_spec("dataset: {kind: tar, paths: x}\nshard: {mode: batch}", &tar);
    assert_int_equal(spec_check_iterable(&tar, &err), 0);
    tar.shard = SHARD_DISPATCH;
    assert_int_equal(spec_check_iterable(&tar, &err), 0);
}

/* Of an iterable dataset, what a task asks for. */
TEST(test_round_samples)
{
    struct dl_spec spec = {.batch_size = 12, .shard = SHARD_STRIDED};

    assert_int_equal(spec_round_samples(&spec, 3), 12);
    spec.shard = SHARD_BATCH;
    assert_int_equal(spec_round_samples(&spec, 3), 12);
    spec.shard = SHARD_SPLIT;
    assert_int_equal(spec_round_samples(&spec, 3), 4);
    spec.shard = SHARD_DISPATCH;
    assert_int_equal(spec_round_samples(&spec, 3), 36);
    spec.batch_size = 0; /* not batched */
    assert_int_equal(spec_round_samples(&spec, 3), 3);
    spec.shard = SHARD_BATCH;
    assert_int_equal(spec_round_samples(&spec, 3), 1);
}
