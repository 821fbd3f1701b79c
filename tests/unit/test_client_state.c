/*
 * States through libdlclient, over loaders that load in this process: a client that continues from
 * one gets what was left, in the same world and in others, or an error that names the reason.
 */
#include "client/dlclient.h"
#include "proto/common/base.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <stdio.h>

enum { SAMPLES = 203 };

#define RANGE  "dataset: {kind: range, length: 203}, seed: 1, workers: {count: 0}"
#define RANDOM RANGE ", sampler: {kind: random, order: native}, batch: {size: 8}"

struct here {
    struct dl_client *client;
    struct dl_loader *loader;
};

static void here_deinit(struct here *h)
{
    dl_client_close(h->client);
}
#define _cleanup_here_ _cleanup_(here_deinit)

static struct here open_spec(const char *keys)
{
    _cleanup_free_ char *spec = NULL;
    struct here h = {0};

    assert_true(asprintf(&spec, "{%s}", keys) > 0);
    assert_int_equal(dl_client_connect_local(&h.client), 0);
    if (dl_loader_open(h.client, spec, strlen(spec), "/", &h.loader) < 0)
        fail_msg("%s: %s", keys, dl_client_error(h.client));
    return h;
}

struct state {
    uint8_t bytes[DL_STATE_MAX];
    size_t len;
};

static struct state state_of(struct dl_epoch *epoch)
{
    struct state state = {.len = sizeof state.bytes};

    assert_int_equal(dl_epoch_state(epoch, state.bytes, &state.len), 0);
    assert_in_range(state.len, 1, DL_STATE_MAX);
    return state;
}

static struct dl_epoch *start(struct here *h, struct dl_epoch_options o, const struct state *state)
{
    struct dl_epoch *epoch = NULL;

    o.state = state ? state->bytes : NULL;
    o.state_len = state ? state->len : 0;
    if (dl_epoch_start(h->loader, &o, &epoch) < 0)
        fail_msg("%s", dl_client_error(h->client));
    return epoch;
}

/* Counts the samples of up to `steps` batches. Returns how many batches there were. */
static uint64_t take(struct dl_epoch *epoch, uint64_t steps, unsigned *seen)
{
    struct dl_batch *batch;
    uint64_t taken = 0;

    for (; taken < steps && dl_epoch_next(epoch, -1, &batch) == 0; taken++) {
        size_t n;
        const uint64_t *indices = dl_batch_indices(batch, &n);

        while (n > 0)
            seen[indices[--n]]++;
    }
    return taken;
}

static uint64_t number_in(const struct state *state, const char *key)
{
    char json[4096], quoted[32];

    assert_in_range(dl_state_json(state->bytes, state->len, json, sizeof json), 1, sizeof json - 1);
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(json, quoted);
    assert_non_null(at);
    return strtoull(at + strlen(quoted), NULL, 10);
}

/* ---- going on ------------------------------------------------------------------------------- */

static const char *const specs[] = {
    RANGE ", batch: {size: 8}",
    RANDOM,
    RANGE ", sampler: {kind: random}, batch: {size: 7}, shard: {even: false}",
    RANDOM ", shard: {mode: batch, even: false}",
    RANDOM ", shard: {mode: batch}",
    RANGE ", batch: {size: 12}, shard: {mode: split, even: false}",
};

/* A run that is stopped at any step and goes on is the run that was not stopped. */
TEST(test_the_same_world_goes_on)
{
    for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
        _cleanup_here_ struct here h = open_spec(specs[s]);
        const struct dl_epoch_options o = {.epoch = 5, .rank = 1, .world = 3};

        for (uint64_t at = 0; at < 5; at++) {
            unsigned whole[SAMPLES] = {0}, both[SAMPLES] = {0};
            struct dl_epoch *epoch = start(&h, o, NULL);
            uint64_t steps = take(epoch, UINT64_MAX, whole);

            dl_epoch_end(epoch);
            epoch = start(&h, o, NULL);
            assert_int_equal(take(epoch, at, both), at);
            struct state stopped = state_of(epoch);
            dl_epoch_end(epoch);
            epoch = start(&h, (struct dl_epoch_options){.rank = 1, .world = 3}, &stopped);
            assert_int_equal(dl_epoch_steps(epoch), steps);
            assert_int_equal(take(epoch, UINT64_MAX, both), steps - at);
            dl_epoch_end(epoch);
            assert_memory_equal(whole, both, sizeof whole);
        }
    }
}

/* All ranks take so many steps, and then those of a new world go on, thrice: each sample once. */
TEST(test_other_worlds_go_on)
{
    static const uint32_t worlds[] = {4, 3, 4, 2, 1};

    for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
        bool even = !strstr(specs[s], "even: false");
        struct state last = {0};
        unsigned seen[SAMPLES] = {0};
        uint64_t rest = 0;

        for (size_t w = 0; w < ARRAY_SIZE(worlds); w++) {
            struct state all = {0};

            for (uint32_t rank = 0; rank < worlds[w]; rank++) {
                /* Each rank is a process of its own. */
                _cleanup_here_ struct here h = open_spec(specs[s]);
                const struct dl_epoch_options o = {.rank = rank, .world = worlds[w]};
                struct dl_epoch *epoch = start(&h, o, w > 0 ? &last : NULL);

                rest = take(epoch, w + 1 < ARRAY_SIZE(worlds) ? 1 : UINT64_MAX, seen);
                struct state now = state_of(epoch);
                if (rank > 0) /* it is of all ranks */
                    assert_true(now.len == all.len && memcmp(now.bytes, all.bytes, now.len) == 0);
                all = now;
            }
            last = all;
        }
        assert_true(rest > 1);
        for (size_t i = 0; i < SAMPLES; i++)
            assert_in_range(seen[i], 1, even ? 2 : 1);
        assert_int_equal(number_in(&last, "epoch"), 1);
    }
}

TEST(test_the_end_is_the_next_beginning)
{
    _cleanup_here_ struct here h = open_spec(RANDOM);
    unsigned seen[SAMPLES] = {0}, next[SAMPLES] = {0};
    struct dl_epoch *epoch = start(&h, (struct dl_epoch_options){.epoch = 7}, NULL);
    struct dl_batch *batch;

    assert_int_equal(take(epoch, 26, seen), 26);
    struct state full = state_of(epoch); /* all was given out, and the end was not said */
    assert_int_equal(number_in(&full, "epoch"), 7);
    assert_int_equal(number_in(&full, "steps"), 26);
    assert_int_equal(dl_epoch_next(epoch, -1, &batch), DL_END);
    struct state ended = state_of(epoch);
    assert_int_equal(number_in(&ended, "epoch"), 8);
    assert_int_equal(number_in(&ended, "steps"), 0);
    for (uint32_t world = 1; world < 3; world++) {
        const struct dl_epoch_options o = {.world = world};
        struct dl_epoch *from_full = start(&h, o, &full), *from_ended = start(&h, o, &ended);

        assert_int_equal(take(from_full, UINT64_MAX, seen), world == 1 ? 26 : 13);
        assert_int_equal(take(from_ended, UINT64_MAX, next), world == 1 ? 26 : 13);
        struct state after = state_of(from_full);
        assert_int_equal(number_in(&after, "epoch"), 9);
    }
    for (size_t i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], next[i] + 1);
}

TEST(test_single_samples_go_on)
{
    static const char spec[] =
        "dataset: {kind: range, length: 203}, seed: 1, workers: {count: 0}, batch: {size: null}";
    _cleanup_here_ struct here h = open_spec(spec);
    unsigned seen[SAMPLES] = {0};
    struct dl_epoch *epoch = start(&h, (struct dl_epoch_options){.world = 2}, NULL);

    assert_int_equal(take(epoch, 50, seen), 50);
    struct state now = state_of(epoch);
    epoch = start(&h, (struct dl_epoch_options){0}, &now);
    assert_int_equal(dl_epoch_steps(epoch), 103);
    assert_int_equal(take(epoch, UINT64_MAX, seen), 103);
}

/* A step that failed was given out, too. */
TEST(test_fed_order_goes_on)
{
    _cleanup_here_ struct here h = open_spec(RANGE ", sampler: {kind: client}, batch: {size: 2}");
    const uint64_t bad[] = {1, 999}, good[] = {5, 6};
    struct dl_epoch *epoch = start(&h, (struct dl_epoch_options){0}, NULL);
    struct dl_batch *batch;

    assert_int_equal(dl_epoch_feed_batch(epoch, bad, 2), 0);
    assert_int_equal(dl_epoch_next(epoch, -1, &batch), -ERANGE);
    struct state now = state_of(epoch);
    assert_int_equal(number_in(&now, "steps"), 1);
    struct dl_epoch *again = start(&h, (struct dl_epoch_options){0}, &now);
    assert_int_equal(dl_epoch_feed_batch(again, good, 2), 0);
    assert_int_equal(dl_epoch_next(again, -1, &batch), 0);
    assert_int_equal(dl_batch_step(batch), 1);
    struct dl_epoch_options o = {.world = 2, .state = now.bytes, .state_len = now.len};
    assert_int_equal(dl_epoch_start(h.loader, &o, &again), -EINVAL);
    assert_string_equal(dl_client_error_path(h.client), "world");
}

TEST(test_iterable_goes_on)
{
    _cleanup_here_ struct here h = open_spec(
        "dataset: {kind: range, length: 203, iterable: true}, seed: 1, workers: {count: 0}, "
        "batch: {size: 8}");
    unsigned seen[SAMPLES] = {0};
    struct dl_epoch *epoch = start(&h, (struct dl_epoch_options){.rank = 1, .world = 2}, NULL);

    assert_int_equal(take(epoch, 5, seen), 5);
    struct state now = state_of(epoch);
    assert_int_equal(number_in(&now, "workers"), 1);
    epoch = start(&h, (struct dl_epoch_options){.rank = 1, .world = 2}, &now);
    assert_null(dl_epoch_warning(epoch)); /* a range leaps */
    assert_true(take(epoch, UINT64_MAX, seen) > 5);
    unsigned sum = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        assert_in_range(seen[i], 0, 1);
        sum += seen[i];
    }
    assert_int_equal(sum, 101);
    struct dl_epoch_options o = {.world = 3, .state = now.bytes, .state_len = now.len};
    assert_int_equal(dl_epoch_start(h.loader, &o, &epoch), -EINVAL);
    assert_string_equal(dl_client_error(h.client),
                        "world: 3, and the state is of 2; an iterable dataset divides itself among "
                        "ranks, so another number of ranks cannot continue it; continue with as "
                        "many, or start the next epoch");
}

/* ---- what is refused, and how --------------------------------------------------------------- */

TEST(test_differences_are_named)
{
    static const struct {
        const char *spec, *path, *words;
    } rows[] = {
        {RANGE ", sampler: {kind: random, order: native}, batch: {size: 9}", "batch", "batch"},
        {RANGE ", sampler: {kind: random}, batch: {size: 8}", "sampler.order", "native"},
        {RANDOM ", shard: {mode: batch}", "shard", "shard"},
        {RANDOM ", collate: {kind: none}", "collate", "collate"},
        {"dataset: {kind: range, length: 203}, seed: 2, workers: {count: 0}, "
         "sampler: {kind: random, order: native}, batch: {size: 8}",
         "seed", "write seed: 1"},
        {"dataset: {kind: range, length: 204}, seed: 1, workers: {count: 0}, "
         "sampler: {kind: random, order: native}, batch: {size: 8}",
         "dataset", "dataset"},
    };
    _cleanup_here_ struct here h = open_spec(RANDOM);
    struct dl_epoch *epoch = start(&h, (struct dl_epoch_options){0}, NULL);
    unsigned seen[SAMPLES] = {0};

    assert_int_equal(take(epoch, 3, seen), 3);
    struct state now = state_of(epoch);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_here_ struct here other = open_spec(rows[i].spec);
        struct dl_epoch_options o = {.state = now.bytes, .state_len = now.len};
        uint64_t number, step;

        assert_int_equal(dl_epoch_start(other.loader, &o, &epoch), -EINVAL);
        assert_string_equal(dl_client_error_path(other.client), rows[i].path);
        assert_non_null(strstr(dl_client_error(other.client), rows[i].words));
        assert_int_equal(dl_loader_find_state(other.loader, now.bytes, now.len, 1, &number, &step),
                         -EINVAL);
        assert_int_equal(dl_client_is_usable(other.client), 1);
    }
    /* What may differ. */
    _cleanup_here_ struct here same = open_spec(RANDOM ", name: other, memory: {limit: 2MiB}");
    assert_int_equal(take(start(&same, (struct dl_epoch_options){0}, &now), 1, seen), 1);
}

TEST(test_bad_calls)
{
    _cleanup_here_ struct here h = open_spec(RANDOM);
    struct dl_epoch *epoch = start(&h, (struct dl_epoch_options){.epoch = 2}, NULL);
    struct state now = state_of(epoch);
    struct dl_epoch_options o = {.epoch = 1, .state = now.bytes, .state_len = now.len};
    size_t len = 10;
    char json[8];

    assert_int_equal(dl_epoch_start(h.loader, &o, &epoch), -EINVAL);
    assert_string_equal(dl_client_error_path(h.client), "epoch");
    o.epoch = 0;
    o.step = 4;
    assert_int_equal(dl_epoch_start(h.loader, &o, &epoch), -EINVAL);
    assert_string_equal(dl_client_error_path(h.client), "step");
    o.step = 0;
    o.state_len--;
    assert_int_equal(dl_epoch_start(h.loader, &o, &epoch), -EINVAL);
    assert_string_equal(dl_client_error_path(h.client), "state");
    assert_int_equal(dl_epoch_state(epoch, now.bytes, &len), -ENOSPC);
    assert_true(dl_state_json(now.bytes, now.len, json, sizeof json) > (int)sizeof json);
    assert_int_equal(dl_state_json("x", 1, json, sizeof json), -EINVAL);
}

/* The token of any place, and where it leads. */
TEST(test_states_of_places)
{
    _cleanup_here_ struct here h = open_spec(RANDOM);
    struct state at = {.len = sizeof at.bytes}, changed = {.len = sizeof changed.bytes};
    struct dl_epoch_options o = {.epoch = 4, .world = 3, .step = 5};
    uint64_t epoch, step;

    assert_int_equal(dl_loader_state(h.loader, &o, at.bytes, &at.len), 0);
    assert_int_equal(dl_loader_find_state(h.loader, at.bytes, at.len, 3, &epoch, &step), 0);
    assert_int_equal(epoch, 4);
    assert_int_equal(step, 5);
    assert_int_equal(dl_loader_find_state(h.loader, at.bytes, at.len, 2, &epoch, &step), 0);
    assert_int_equal(step, 0);
    o = (struct dl_epoch_options){.world = 2, .step = 1, .state = at.bytes, .state_len = at.len};
    assert_int_equal(dl_loader_state(h.loader, &o, changed.bytes, &changed.len), 0);
    assert_int_equal(number_in(&changed, "world"), 2);
    assert_int_equal(number_in(&changed, "steps"), 1);
    o.world = UINT32_MAX;
    assert_int_equal(dl_loader_state(h.loader, &o, changed.bytes, &changed.len), -EINVAL);
}
