/*
 * States of a replica of mixed iterable datasets: whatever bytes a client sends, the replica is
 * refused, or it goes on, saves a state again, and that is read back with the same samples to come.
 *
 * Input: how the epoch ends, then the state.
 */
#include "tests/fuzz/fuzz.h"

#include <errno.h>

#include "daemon/data/base/sample_batch.h"
#include "daemon/data/kinds/combine/mix_streams.h"

enum { CHILDREN = 3, SAMPLES = 60, STATE_ROOM = 1024 };

static struct dataset *open_mixture(uint8_t how)
{
    static double weights[CHILDREN] = {5, 3, 1};
    struct mix_point point = {.weights = weights};
    struct spec_dataset parts[CHILDREN] = {
        {.kind = DATASET_RANGE, .length = 40, .iterable = true, .divide = true},
        {.kind = DATASET_RANGE, .length = 9, .iterable = true},
        {.kind = DATASET_RANGE, .length = 1000, .iterable = true}};
    struct spec_dataset spec = {.kind = DATASET_MIX,
                                .datasets = parts,
                                .n_datasets = CHILDREN,
                                .points = &point,
                                .n_points = 1,
                                .stop = MIX_STOP_FIRST + how % 3,
                                .length = how % 3 == 2 ? 500 : 0};
    struct data_env env = {.worker = 1, .workers = 2};
    struct dl_error err;
    struct dataset *ds = NULL;

    FUZZ_ASSERT(dataset_open(&spec, &env, &ds, &err) == 0);
    return ds;
}

/* Up to SAMPLES numbers; -1 behind the last one. */
static void take(struct dataset_iter *it, int64_t *ret)
{
    struct sample_batch batch = {0};
    struct dl_error err;
    size_t n = 0;

    for (; n < SAMPLES; n++) {
        sample_batch_clear(&batch);
        struct sample *sample = sample_batch_add(&batch, 0);
        if (!sample || it->ops->next(it, sample, &err) != 0)
            break;
        memcpy(&ret[n], sample->data[0], sizeof *ret);
    }
    ret[n] = -1;
    sample_batch_deinit(&batch);
}

static struct dataset_iter *resume(struct dataset *ds, struct dl_span state, uint64_t position)
{
    struct replica_params params = {.key = {.seed = 1},
                                    .worker = 1,
                                    .workers = 2,
                                    .world = 1,
                                    .state = state,
                                    .position = position};
    struct dataset_iter *it = NULL;
    struct dl_error err = {0};
    int r = ds->ops->iterate(ds, &params, &it, &err);

    FUZZ_ASSERT(r == 0 || (r == -EINVAL && err.message[0]));
    return r == 0 ? it : NULL;
}

/* What it saves at once is as good as what it came from. */
static void go_on(struct dataset *ds, struct dataset_iter *it, uint64_t position)
{
    struct mix_streams_iter *mi = container_of(it, struct mix_streams_iter, base);
    enum dataset_state_loss lost = DATASET_STATE_SAVED;
    int64_t numbers[SAMPLES + 1] = {0}, again[SAMPLES + 1] = {0};
    uint8_t buf[STATE_ROOM];
    struct dl_error err;
    size_t len;

    FUZZ_ASSERT(mix_streams_save(mi, buf, sizeof buf, &len, &lost, &err) == 0);
    FUZZ_ASSERT(lost == DATASET_STATE_SAVED && len > 0);
    struct dataset_iter *other = resume(ds, (struct dl_span){buf, len}, position);
    FUZZ_ASSERT(other);
    take(it, numbers);
    take(other, again);
    FUZZ_ASSERT(memcmp(numbers, again, sizeof numbers) == 0);
    other->ops->close(other);
    it->ops->close(it);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint64_t position = 0;

    if (len < 2)
        return 0;
    struct dataset *ds = open_mixture(data[0]);
    /* The record's head says it, too, to which the state has to fit. */
    memcpy(&position, data + 1, min_u64(len - 1, sizeof position));
    struct dataset_iter *it = resume(ds, (struct dl_span){data + 1, len - 1}, position);
    if (it)
        go_on(ds, it, position);
    dataset_close(ds);
    return 0;
}
