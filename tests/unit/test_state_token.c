/* The state token: it comes back as it went, says what differs, and where other ranks go on. */
#include "proto/state_token.h"

#include "tests/lib/harness.h"
#include "tests/unit/spec_text.h"

#include <errno.h>
#include <stdio.h>

static struct state_token some_token(void)
{
    return (struct state_token){.identity = {.parts = {1, UINT64_MAX, 3, 1u << 31, 200},
                                             .dataset = UINT64_C(0x123456789abcdef),
                                             .length = 60000,
                                             .order = STATE_NATIVE,
                                             .seed = 7},
                                .epoch = 3,
                                .world = 4,
                                .steps = 120,
                                .before = {2, {{8, 10}, {2, 300}}}};
}

static void assert_same(const struct state_token *a, const struct state_token *b)
{
    assert_memory_equal(a->identity.parts, b->identity.parts, sizeof a->identity.parts);
    assert_int_equal(a->identity.dataset, b->identity.dataset);
    assert_int_equal(a->identity.length, b->identity.length);
    assert_int_equal(a->identity.order, b->identity.order);
    assert_int_equal(a->identity.seed, b->identity.seed);
    assert_int_equal(a->identity.workers, b->identity.workers);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->world, b->world);
    assert_int_equal(a->steps, b->steps);
    assert_true(history_equal(&a->before, &b->before));
    assert_int_equal(a->dataset_states, b->dataset_states);
    assert_int_equal(a->changes, b->changes);
    assert_int_equal(a->mark.window, b->mark.window);
    assert_int_equal(a->mark.rows, b->mark.rows);
}

static size_t written(const struct state_token *token, uint8_t *buf)
{
    size_t len = 0;

    assert_int_equal(state_token_write(token, buf, &len), 0);
    assert_in_range(len, 1, STATE_TOKEN_MAX);
    return len;
}

TEST(test_comes_back)
{
    struct state_token largest = {.identity = {.dataset = UINT64_MAX,
                                               .length = UINT64_MAX,
                                               .order = STATE_SEQUENTIAL,
                                               .seed = UINT64_MAX,
                                               .workers = UINT64_MAX},
                                  .epoch = UINT64_MAX,
                                  .world = DL_MAX_WORLD_SIZE,
                                  .steps = UINT64_MAX,
                                  .mark = {UINT64_MAX, UINT64_MAX}};
    struct state_token all[] = {some_token(), largest, {.world = 1}, some_token()};

    memset(largest.identity.parts, 0xff, sizeof largest.identity.parts);
    for (uint64_t i = 0; i < DL_MAX_HISTORY; i++)
        assert_true(history_add(&largest.before, DL_MAX_WORLD_SIZE - i % 2, UINT64_MAX));
    all[1] = largest;
    all[3].dataset_states = 7;
    all[3].mark = (struct lazy_mark){16, 0};
    all[3].changes = UINT64_MAX;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        uint8_t buf[STATE_TOKEN_MAX];
        size_t len = written(&all[i], buf);
        struct state_token again;
        char json[STATE_JSON_MAX];

        assert_int_equal(state_token_read(buf, len, &again, NULL), 0);
        assert_same(&all[i], &again);
        assert_in_range(state_token_json(&again, json, sizeof json), 100, sizeof json - 1);
        assert_int_equal(state_token_json(&again, NULL, 0), strlen(json));
    }
}

TEST(test_json)
{
    struct state_token token = some_token();
    char json[STATE_JSON_MAX];

    state_token_json(&token, json, sizeof json);
    assert_string_equal(
        json, "{\"version\": 1, \"epoch\": 3, \"world\": 4, \"steps\": 120, \"before\": "
              "[{\"world\": 8, \"steps\": 10}, {\"world\": 2, \"steps\": 300}], \"seed\": 7, "
              "\"order\": \"native\", \"length\": 60000, \"workers\": 0, "
              "\"dataset\": \"0123456789abcdef\", \"spec\": {\"dataset\": \"0000000000000001\", "
              "\"sampler\": \"ffffffffffffffff\", \"batch\": \"0000000000000003\", "
              "\"collate\": \"0000000080000000\", \"shard\": \"00000000000000c8\"}}");
    token.identity.length = UINT64_MAX;
    state_token_json(&token, json, sizeof json);
    assert_non_null(strstr(json, "\"length\": null"));
}

/* Each bit, and each way of being cut off. */
TEST(test_damage_is_seen)
{
    struct state_token token = some_token(), again;
    uint8_t buf[STATE_TOKEN_MAX + 1];
    size_t len = written(&token, buf);
    struct dl_error err = {0};

    for (size_t bit = 0; bit < len * 8; bit++) {
        buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(state_token_read(buf, len, &again, &err), -EINVAL);
        assert_string_equal(err.path, "state");
        buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(state_token_read(buf, cut, &again, &err), -EINVAL);
    buf[len] = 0;
    assert_int_equal(state_token_read(buf, len + 1, &again, &err), -EINVAL);
    assert_int_equal(state_token_read(buf, len, &again, &err), 0);
}

static void expect_difference(const struct state_identity *loader, const char *path,
                              const char *words)
{
    struct state_token token = some_token();
    struct dl_error err = {0};

    assert_int_equal(state_token_check(&token, loader, &err), -EINVAL);
    assert_string_equal(err.path, path);
    if (!strstr(err.message, words))
        fail_msg("'%s' is not in '%s'", words, err.message);
}

TEST(test_differences_have_names)
{
    static const char *const parts[] = {"dataset", "sampler", "batch", "collate", "shard"};
    const struct state_identity own = some_token().identity;
    struct state_token token = some_token();
    struct state_identity loader = own;

    assert_int_equal(state_token_check(&token, &own, NULL), 0);
    for (unsigned i = 0; i < STATE_PARTS; i++) {
        loader = own;
        loader.parts[i]++;
        expect_difference(&loader, parts[i], parts[i]);
    }
    loader = own;
    loader.order = STATE_TORCH;
    expect_difference(&loader, "sampler.order", "order native, this loader has torch");
    loader = own;
    loader.length = 5;
    expect_difference(&loader, "dataset", "5 samples, and the state is of one with 60000");
    loader = own;
    loader.dataset++;
    expect_difference(&loader, "dataset", "0123456789abcdef");
    loader = own;
    loader.seed = 8;
    expect_difference(&loader, "seed", "write seed: 7");
    loader = own;
    loader.workers = 2;
    expect_difference(&loader, "workers.count", "2, and the state is of 0");
    token.steps = 0; /* at the start of an epoch nothing depends on it yet */
    assert_int_equal(state_token_check(&token, &loader, NULL), 0);
}

/* ---- other numbers of ranks ----------------------------------------------------------------- */

TEST(test_places)
{
    struct state_token token = some_token();
    struct state_place place;

    assert_int_equal(state_token_place(&token, 4, &place, NULL), 0);
    assert_int_equal(place.epoch, 3);
    assert_int_equal(place.step, 120);
    assert_true(history_equal(&place.before, &token.before));
    assert_int_equal(state_token_place(&token, 2, &place, NULL), 0);
    assert_int_equal(place.step, 0);
    assert_int_equal(place.before.n, 3);
    assert_int_equal(place.before.stretches[2].world, 4);
    assert_int_equal(place.before.stretches[2].steps, 120);
    /* Three ranks came and did nothing; then there were two again, as before. */
    token.world = 3;
    token.steps = 0;
    assert_int_equal(state_token_place(&token, 2, &place, NULL), 0);
    assert_int_equal(place.step, 300);
    assert_int_equal(place.before.n, 1);
    assert_int_equal(state_token_place(&token, 5, &place, NULL), 0);
    assert_int_equal(place.step, 0);
    assert_int_equal(place.before.n, 2);
}

static void expect_no_place(const struct state_token *token, const char *words)
{
    struct state_place place;
    struct dl_error err = {0};

    assert_int_equal(state_token_place(token, 7, &place, &err), -EINVAL);
    assert_string_equal(err.path, "world");
    if (!strstr(err.message, words))
        fail_msg("'%s' is not in '%s'", words, err.message);
}

TEST(test_worlds_that_cannot_be)
{
    struct state_token token = some_token();
    struct state_place place;

    token.before.n = 0;
    token.identity.workers = 2;
    expect_no_place(&token, "iterable");
    token.steps = 0; /* a new epoch is anyone's */
    assert_int_equal(state_token_place(&token, 7, &place, NULL), 0);
    token = some_token();
    token.identity.order = STATE_CLIENT;
    expect_no_place(&token, "sampler");
    token = some_token();
    for (uint64_t i = token.before.n; i < DL_MAX_HISTORY; i++)
        assert_true(history_add(&token.before, 100 + i, 1));
    expect_no_place(&token, "48 times");
    assert_int_equal(state_token_place(&token, token.world, &place, NULL), 0);
}

/* Where batches may pass others, a state is one rank's, and says which came. */
TEST(test_passed)
{
    struct state_token token = some_token(), read;
    uint8_t bytes[STATE_TOKEN_MAX];
    struct state_place place;
    struct dl_error err = {0};
    size_t len = 0;

    token.has_rank = true;
    token.rank = 2;
    token.passed.head = token.steps - 2;
    assert_true(passed_add(&token.passed, token.steps + 1));
    assert_true(passed_add(&token.passed, token.steps + 700));
    assert_int_equal(state_token_write(&token, bytes, &len), 0);
    assert_int_equal(state_token_read(bytes, len, &read, NULL), 0);
    assert_true(read.has_rank && read.rank == 2 && read.passed.head == token.steps - 2 &&
                passed_agree(&read.passed, &token.passed, token.passed.head));
    assert_int_equal(state_token_place(&read, 4, &place, NULL), 0);
    assert_true(place.step == token.steps && place.passed.head == token.steps - 2);
    assert_int_equal(state_token_check_rank(&read, 2, NULL), 0);
    assert_int_equal(state_token_check_rank(&read, 1, &err), -EINVAL);
    assert_string_equal(err.path, "rank");
    expect_no_place(&token, "each rank's in its own order");
    token.steps++; /* not as many as came */
    assert_int_equal(state_token_write(&token, bytes, &len), 0);
    assert_int_equal(state_token_read(bytes, len, &read, NULL), -EINVAL);
}

/* ---- what a spec is known by ---------------------------------------------------------------- */

static void parts_of(const char *text, uint64_t ret[static STATE_PARTS])
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};

    expect_spec(text, &spec);
    assert_int_equal(spec_parts(&spec, ret), 0);
}

#define SPEC(dataset, rest) "{dataset: {" dataset "}" rest "}"

TEST(test_parts_of_specs)
{
    static const struct {
        const char *one, *other;
        int part; /* which differs; -1: none */
    } rows[] = {
        {SPEC("kind: npy, paths: {a: x, b: y}", ""),
         SPEC("kind: npy, paths: {a: /far/x, b: z}",
              ", name: n, seed: 4, workers: {count: 7}, memory: {limit: 5MiB}"),
         -1},
        {SPEC("kind: npy, paths: {a: x}", ""), SPEC("kind: npy, paths: {b: x}", ""), STATE_DATASET},
        {SPEC("kind: npy, paths: x", ""), SPEC("kind: npy, paths: y", ""), -1},
        {SPEC("kind: text, paths: [a, b]", ""), SPEC("kind: text, paths: /else/*", ""), -1},
        {SPEC("kind: text, paths: a, tokenizer: bytes", ""), SPEC("kind: text, paths: a", ""),
         STATE_DATASET},
        {SPEC("kind: imagefolder, paths: a, size: 8", ""),
         SPEC("kind: imagefolder, paths: b, size: 8", ""), -1},
        {SPEC("kind: imagefolder, paths: a, transforms: [ToTensor], cache: 1GiB", ""),
         SPEC("kind: imagefolder, paths: b, transforms: [ToTensor]", ""), -1},
        {SPEC("kind: concat, datasets: [{kind: imagefolder, paths: a, transforms: [ToTensor]}]",
              ""),
         SPEC("kind: concat, datasets: [{kind: imagefolder, paths: a, transforms: [ToTensor], "
              "cache: 1GiB}]",
              ""),
         -1},
        {SPEC("kind: python, host: 1, paths: a, cache: 1GiB", ""),
         SPEC("kind: python, host: 2", ""), -1},
        {SPEC("kind: parquet, paths: a, cache: 1MiB", ""), SPEC("kind: parquet, paths: a", ""),
         STATE_DATASET},
        {SPEC("kind: parquet, paths: a, shared: 1MiB", ""), SPEC("kind: parquet, paths: b", ""),
         -1},
        {SPEC("kind: concat, datasets: [{kind: npy, paths: a}, {kind: npy, paths: b}]", ""),
         SPEC("kind: concat, datasets: [{kind: npy, paths: c}, {kind: npy, paths: d}]", ""), -1},
        {SPEC("kind: subset, indices: [1], dataset: {kind: npy, paths: a}", ""),
         SPEC("kind: subset, indices: [1], dataset: {kind: npy, paths: b}", ""), -1},
        {SPEC("kind: subset, indices: [1], dataset: {kind: npy, paths: a}", ""),
         SPEC("kind: subset, indices: [2], dataset: {kind: npy, paths: a}", ""), STATE_DATASET},
        {SPEC("kind: range, length: 4", ", batch: {size: 2}"),
         SPEC("kind: range, length: 4", ", batch: {size: 3}"), STATE_BATCH},
        {SPEC("kind: range, length: 4", ", sampler: {kind: random}"),
         SPEC("kind: range, length: 4", ""), STATE_SAMPLER},
        {SPEC("kind: range, length: 4", ", shard: {mode: batch}"),
         SPEC("kind: range, length: 4", ""), STATE_SHARD},
        {SPEC("kind: range, length: 4", ", collate: {kind: none}"),
         SPEC("kind: range, length: 4", ""), STATE_COLLATE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t one[STATE_PARTS], other[STATE_PARTS];

        parts_of(rows[i].one, one);
        parts_of(rows[i].other, other);
        for (int part = 0; part < STATE_PARTS; part++)
            if ((one[part] != other[part]) != (part == rows[i].part))
                fail_msg("row %zu, %s: %d", i, state_part_name((enum state_part)part),
                         one[part] != other[part]);
    }
}

TEST(test_histories_of_specs)
{
    static const struct {
        const char *text, *path; /* NULL: fine */
    } rows[] = {
        {SPEC("kind: range, length: 4", ", batch: {size: 6}"), NULL},
        {SPEC("kind: range, length: 4", ", batch: {size: 6}, shard: {mode: split}"), "batch.size"},
        {SPEC("kind: range, length: 4", ", sampler: {kind: client}"), "sampler.kind"},
    };
    const struct history before = {2, {{3, 1}, {4, 1}}}, none = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        struct dl_error err = {0};

        expect_spec(rows[i].text, &spec);
        assert_int_equal(spec_check_history(&spec, &none, &err), 0);
        assert_int_equal(spec_check_history(&spec, &before, &err), rows[i].path ? -EINVAL : 0);
        if (rows[i].path)
            assert_string_equal(err.path, rows[i].path);
    }
}
