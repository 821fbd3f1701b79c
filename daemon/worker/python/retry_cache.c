#include "daemon/worker/python/retry_cache.h"

static void retry_cache_drop(struct retry_cache *cache, uint32_t at)
{
    free(cache->entries[at].image);
    free(cache->entries[at].indices);
    cache->n--;
    memmove(&cache->entries[at], &cache->entries[at + 1], (cache->n - at) * sizeof *cache->entries);
}

static bool retry_cache_is_for(const struct retry_entry *entry, const struct slot_task *task)
{
    return entry->stream == task->stream && entry->rank == task->rank &&
           entry->world == task->world && entry->epoch == task->epoch &&
           entry->step == task->step && entry->n == task->samples &&
           (!entry->indices ||
            memcmp(entry->indices, task->indices, entry->n * sizeof *entry->indices) == 0);
}

bool retry_cache_take(struct retry_cache *cache, const struct slot_task *task, void *slot,
                      uint64_t slot_bytes, uint64_t *ret_used)
{
    enum { KEEP = sizeof((struct slot_header *)slot)->generation };

    _Static_assert(offsetof(struct slot_header, generation) == 0, "all else is as it was");
    for (uint32_t i = 0; i < cache->n; i++) {
        const struct retry_entry *entry = &cache->entries[i];

        if (!retry_cache_is_for(entry, task))
            continue;
        *ret_used = entry->used;
        if (entry->used > slot_bytes)
            return true;
        memcpy((char *)slot + KEEP, entry->image + KEEP, entry->used - KEEP);
        retry_cache_drop(cache, i);
        return true;
    }
    return false;
}

void retry_cache_put(struct retry_cache *cache, const struct slot_task *task, char *image,
                     uint64_t used)
{
    struct retry_entry entry = {.stream = task->stream,
                                .rank = task->rank,
                                .world = task->world,
                                .epoch = task->epoch,
                                .step = task->step,
                                .n = task->samples,
                                .image = image,
                                .used = used};

    if (task->stream == 0) {
        entry.indices = malloc(task->samples * sizeof *entry.indices);
        if (!entry.indices) { /* it will be made again */
            free(image);
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
