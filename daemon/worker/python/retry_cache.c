#include "daemon/worker/python/retry_cache.h"

void made_deinit(struct made *made)
{
    PyObject *object = made->object, *state = made->state;

    free(made->numbers);
    bad_list_deinit(&made->bad);
    *made = (struct made){0};
    Py_XDECREF(state);
    Py_XDECREF(object); /* last: it may run anything */
}

static void retry_cache_drop(struct retry_cache *cache, uint32_t at)
{
    struct made made = cache->entries[at].made;

    free(cache->entries[at].indices);
    cache->n--;
    memmove(&cache->entries[at], &cache->entries[at + 1], (cache->n - at) * sizeof *cache->entries);
    made_deinit(&made);
}

static bool retry_cache_is_for(const struct retry_entry *entry, const struct slot_task *task)
{
    return entry->stream == task->stream && entry->rank == task->rank &&
           entry->world == task->world && entry->epoch == task->epoch &&
           entry->step == task->step && entry->n == task->samples &&
           (!entry->indices ||
            memcmp(entry->indices, task->indices, entry->n * sizeof *entry->indices) == 0);
}

bool retry_cache_take(struct retry_cache *cache, const struct slot_task *task, struct made *ret)
{
    for (uint32_t i = 0; i < cache->n; i++) {
        if (!retry_cache_is_for(&cache->entries[i], task))
            continue;
        *ret = cache->entries[i].made;
        cache->entries[i].made = (struct made){0};
        retry_cache_drop(cache, i);
        return true;
    }
    return false;
}

void retry_cache_put(struct retry_cache *cache, const struct slot_task *task, struct made *made)
{
    struct retry_entry entry = {.stream = task->stream,
                                .rank = task->rank,
                                .world = task->world,
                                .epoch = task->epoch,
                                .step = task->step,
                                .n = task->samples,
                                .made = *made};

    *made = (struct made){0};
    if (task->stream == 0) {
        entry.indices = malloc(task->samples * sizeof *entry.indices);
        if (!entry.indices) { /* it will be made again */
            made_deinit(&entry.made);
            return;
        }
        memcpy(entry.indices, task->indices, task->samples * sizeof *entry.indices);
    }
    if (cache->n == RETRY_CACHE_MAX)
        retry_cache_drop(cache, 0);
    cache->entries[cache->n++] = entry;
}

void retry_cache_settle(struct retry_cache *cache, uint32_t stream, uint64_t settled)
{
    for (uint32_t i = cache->n; i-- > 0;)
        if (cache->entries[i].stream == stream && cache->entries[i].step < settled)
            retry_cache_drop(cache, i);
}

void retry_cache_clear(struct retry_cache *cache)
{
    while (cache->n > 0)
        retry_cache_drop(cache, cache->n - 1);
}
