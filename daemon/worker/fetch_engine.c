/* Native datasets as a worker's engine. */
#include "daemon/worker/worker.h"

static int engine_open(const struct worker_open *how, void **ret, struct dl_error *err)
{
    struct fetcher *fetcher;

    int r = fetcher_new(how->spec, how->env, &fetcher, err);
    if (r == 0)
        *ret = fetcher;
    return r;
}

static void engine_close(void *engine)
{
    fetcher_free(engine);
}

static bool engine_is_iterable(const void *engine)
{
    return fetcher_is_iterable(engine);
}

static uint64_t engine_length(const void *engine)
{
    return fetcher_length(engine);
}

static uint64_t engine_content(const void *engine)
{
    return fetcher_dataset(engine)->content;
}

static bool engine_leaps(const void *engine)
{
    return fetcher_dataset(engine)->leaps;
}

static uint64_t engine_slot_bytes(const void *engine)
{
    return fetcher_slot_bytes(engine);
}

static int engine_fill(void *engine, void *slot, uint64_t slot_bytes, uint64_t *ret_used,
                       struct dl_error *err)
{
    return fetcher_fill(engine, slot, slot_bytes, ret_used, err);
}

static uint64_t engine_collate_ns(const void *engine)
{
    return fetcher_collate_ns(engine);
}

static void engine_forget(void *engine, uint32_t stream)
{
    fetcher_forget(engine, stream);
}

const struct worker_engine fetch_engine = {
    .open = engine_open,
    .close = engine_close,
    .is_iterable = engine_is_iterable,
    .length = engine_length,
    .content = engine_content,
    .leaps = engine_leaps,
    .slot_bytes = engine_slot_bytes,
    .fill = engine_fill,
    .collate_ns = engine_collate_ns,
    .forget = engine_forget,
};
