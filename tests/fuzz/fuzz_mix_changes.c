/*
 * Lists of changed weights: whatever the bytes are, they are refused, or a list that is written as
 * the same bytes again, and that a mixture of as many datasets has an order for, which is what it
 * is without them before the first one; or one of samples. Behind a token they are found again.
 */
#include "daemon/plan/mix_timeline.h"
#include "tests/fuzz/fuzz.h"

/* Of samples: those of any epoch stand one after another. */
static void use_of_samples(struct mix_changes *changes)
{
    uint32_t first, end = mix_changes_of_epoch(changes, 1, &first);

    FUZZ_ASSERT(changes->count > 0 && changes->n > 0);
    FUZZ_ASSERT(first <= end && end <= changes->n_changes);
    mix_changes_share_tables(changes, changes);
    FUZZ_ASSERT(!changes->items[0].table && !changes->items[0].weights);
}

static void use(const struct mix_changes *changes)
{
    double even[DL_BOUND_MIX_CHILDREN];
    struct mix_point point = {.weights = even};
    struct mix_schedule schedule = {.n = changes->n, .n_points = 1, .points = &point};
    uint64_t first = changes->items[0].position;
    struct mix_timeline timeline;
    struct mix_legs legs, plain;

    for (uint32_t i = 0; i < changes->n; i++)
        even[i] = 1;
    if (mix_timeline_init(&timeline, &schedule, changes) < 0 ||
        mix_legs_init(&legs, &schedule, changes, 1, 0) < 0 ||
        mix_legs_init(&plain, &schedule, NULL, 1, 0) < 0)
        abort();
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t position = min_u64(first > 20 ? first - 20 + i : i, MIX_POSITIONS - 1);
        struct mix_place place = mix_legs_at(&legs, position);
        struct mix_spot spot = mix_timeline_spot(&timeline, position);
        struct mix_place as_before = mix_legs_at(&plain, position);

        FUZZ_ASSERT(place.child < changes->n && mix_spot_weight(&spot, place.child) > 0);
        FUZZ_ASSERT(position >= first ||
                    (place.child == as_before.child && place.nth == as_before.nth));
    }
    mix_timeline_deinit(&timeline);
    mix_legs_deinit(&legs);
    mix_legs_deinit(&plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct dl_span bytes = {data, len}, state = bytes;
    struct mix_changes *changes = NULL;
    struct dl_buffer again = {0};

    struct dl_span cut = mix_changes_split(&state);
    FUZZ_ASSERT(cut.len <= len && state.len + cut.len <= len);
    int r = mix_changes_read(bytes, &changes);
    FUZZ_ASSERT(r == 0 || !changes);
    if (changes) {
        if (mix_changes_write(changes, &again) < 0)
            abort();
        FUZZ_ASSERT(again.len == len && memcmp(again.data, data, len) == 0);
        if (mix_changes_attach(bytes, &again) < 0)
            abort();
        state = (struct dl_span){again.data, again.len};
        cut = mix_changes_split(&state);
        FUZZ_ASSERT(cut.len == len && state.len == len);
        FUZZ_ASSERT(mix_changes_equal(changes, changes));
        if (changes->of_samples)
            use_of_samples(changes);
        else
            use(changes);
    }
    buffer_deinit(&again);
    mix_changes_unref(changes);
    return 0;
}
