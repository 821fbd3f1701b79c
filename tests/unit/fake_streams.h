/*
 * Iterable datasets that a test makes up, in place of those of kind python, and mixtures of three
 * of them. Sample n of child c is the number c * 1000 + n.
 */
#ifndef DL_FAKE_STREAMS_H
#define DL_FAKE_STREAMS_H

#include "daemon/data/base/sample_batch.h"
#include "daemon/data/kinds/combine/mix_streams.h"
#include "tests/lib/harness.h"

#include <errno.h>

enum { CHILDREN = 3, ROOM = 5000, STATE_ROOM = 4096 };

/* What the datasets of kind python are here. */
struct fake {
    struct dataset base;
    uint64_t length; /* in each replica */
    bool inner;      /* it is one of a mixture in a mixture */
};
struct fake_iter {
    struct dataset_iter base;
    uint64_t next, length, bad, child;
};

static struct {
    uint64_t bad;   /* the sample of each that cannot be had; UINT64_MAX: none */
    unsigned loses; /* dataset_state_loss */
    bool stateless;
    uint64_t seeds[ROOM]; /* of each beginning */
    struct sample_key keys[ROOM];
    unsigned begun;
} faked = {.bad = UINT64_MAX};

static int fake_next(struct dataset_iter *base, struct sample *ret, struct dl_error *err)
{
    struct fake_iter *it = container_of(base, struct fake_iter, base);

    if (it->next == it->length)
        return DATASET_END;
    if (it->next++ == faked.bad)
        return dl_error_set(err, EBADMSG, "file", "is bad");
    sample_int(ret, NULL, (int64_t)(it->child * 1000 + it->next - 1));
    return sample_check(ret, err);
}

static int fake_skip(struct dataset_iter *base, uint64_t n, uint64_t *ret)
{
    struct fake_iter *it = container_of(base, struct fake_iter, base);
    uint64_t passed = min_u64(n, it->length - it->next);

    it->next += passed;
    if (ret)
        *ret = passed;
    return passed < n ? DATASET_END : 0;
}

static int fake_save(struct dataset_iter *base, void *buf, size_t room, size_t *ret_len,
                     enum dataset_state_loss *ret_lost, struct dl_error *err)
{
    struct fake_iter *it = container_of(base, struct fake_iter, base);

    (void)err;
    if (faked.stateless)
        return -ENOTSUP;
    *ret_lost = room < 8 ? DATASET_STATE_TOO_LARGE : (enum dataset_state_loss)faked.loses;
    if (*ret_lost == DATASET_STATE_SAVED) {
        memcpy(buf, &it->next, 8);
        *ret_len = 8;
    }
    return 0;
}

static void fake_close(struct dataset_iter *base)
{
    free(container_of(base, struct fake_iter, base));
}

static const struct dataset_iter_ops fake_iter_ops = {
    .next = fake_next, .skip = fake_skip, .save = fake_save, .close = fake_close};
static const struct dataset_iter_ops fake_walk_ops = {
    .next = fake_next, .save = fake_save, .close = fake_close};

static int fake_iterate(struct dataset *ds, const struct replica_params *params,
                        struct dataset_iter **ret, struct dl_error *err)
{
    struct fake *fake = container_of(ds, struct fake, base);
    struct fake_iter *it = calloc(1, sizeof *it);

    if (!it)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    *it = (struct fake_iter){.base.ops = ds->can_skip ? &fake_iter_ops : &fake_walk_ops,
                             .length = fake->length,
                             .child = (params->key.base >> 48) + (fake->inner ? CHILDREN : 0)};
    faked.keys[faked.begun % ROOM] = params->key;
    faked.seeds[faked.begun++ % ROOM] = params->seed;
    if (params->state.len > 0) {
        if (params->state.len != 8) {
            fake_close(&it->base);
            return dl_error_set(err, EINVAL, "", "no state of it");
        }
        memcpy(&it->next, params->state.data, 8);
        it->next = min_u64(it->next, it->length);
    }
    *ret = &it->base;
    return 0;
}

static void fake_close_dataset(struct dataset *ds)
{
    free(container_of(ds, struct fake, base));
}

static const struct dataset_ops fake_ops = {.iterate = fake_iterate, .close = fake_close_dataset};

/* Its length says how long it is; of its part 1: it skips, 2: it saves its state. */
static int fake_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                     struct dataset **ret, struct dl_error *err)
{
    struct fake *fake = calloc(1, sizeof *fake);

    (void)place;
    (void)env;
    if (!fake)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    fake->base = (struct dataset){.ops = &fake_ops,
                                  .length = DATASET_LENGTH_UNKNOWN,
                                  .can_skip = spec->part & 1,
                                  .saves_state = spec->part & 2,
                                  .content = 7};
    fake->length = (uint32_t)spec->length;
    fake->inner = spec->length > UINT32_MAX;
    *ret = &fake->base;
    return 0;
}

enum { SKIPS = 1, SAVES = 2 };

static const struct data_env env = {.open_python = fake_open};

struct mixture {
    struct spec_dataset parts[CHILDREN], spec;
    double weights[CHILDREN];
    struct mix_point point;
};

static void mixture_init(struct mixture *m, const uint64_t *lengths, const double *weights,
                         enum mix_stop stop)
{
    *m = (struct mixture){.point = {0}};
    for (size_t i = 0; i < CHILDREN; i++) {
        m->parts[i] = (struct spec_dataset){
            .kind = DATASET_PYTHON, .length = lengths[i], .part = SKIPS | SAVES};
        m->weights[i] = weights[i];
    }
    m->point.weights = m->weights;
    m->spec = (struct spec_dataset){.kind = DATASET_MIX,
                                    .datasets = m->parts,
                                    .n_datasets = CHILDREN,
                                    .points = &m->point,
                                    .n_points = 1,
                                    .stop = stop,
                                    .length = stop == MIX_STOP_NEVER ? 600 : 0};
}

static struct dataset *mixture_open(struct mixture *m)
{
    struct dl_error err = {0};
    struct dataset *ds = NULL;

    assert_int_equal(dataset_open(&m->spec, &env, &ds, &err), 0);
    assert_true(dataset_is_iterable(ds));
    return ds;
}

static const struct replica_params only = {.key = {.seed = 3}, .seed = 5, .workers = 1, .world = 1};

static struct dataset_iter *begin(struct dataset *ds, const struct replica_params *params)
{
    struct dl_error err = {0};
    struct dataset_iter *it = NULL;

    assert_int_equal(ds->ops->iterate(ds, params, &it, &err), 0);
    return it;
}

/* -1: it ended; -2: a bad sample, with the error. */
static int64_t take(struct dataset_iter *it, struct sample_batch *batch, struct dl_error *err)
{
    int64_t number;

    sample_batch_clear(batch);
    struct sample *sample = sample_batch_add(batch, 0);
    int r = it->ops->next(it, sample, err);
    if (r != 0)
        return r == DATASET_END ? -1 : -2;
    memcpy(&number, sample->data[0], sizeof number);
    return number;
}

static size_t collect(struct dataset_iter *it, int64_t *ret)
{
    struct sample_batch batch = {0};
    struct dl_error err = {0};
    size_t n = 0;

    while ((ret[n] = take(it, &batch, &err)) != -1)
        assert_true(++n < ROOM);
    assert_int_equal(take(it, &batch, &err), -1);
    sample_batch_deinit(&batch);
    it->ops->close(it);
    return n;
}

#endif
