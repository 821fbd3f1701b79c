#include "daemon/fetcher/promises.h"

#include "daemon/base/memory.h"

#include <assert.h>

#include <uthash.h>
#include <utlist.h>
#include <xxhash.h>

/* Two blocks of one key wait for each other at worst. */
struct promise {
    UT_hash_handle hh;
    uint64_t key;
    const void *maker; /* only compared; NULL: this node */
    uint64_t until;    /* ms of the loop */
    struct promise_wait *waits;
    struct promise *prev, *next; /* promises->list */
};

struct promise_wait {
    struct promise *promise;
    void (*done)(void *owner);
    void *owner;
    struct promise_wait *prev, *next; /* promise->waits */
};

struct promises {
    uv_loop_t *loop;
    uv_timer_t timer; /* for the first of the list */
    struct promise *table;
    struct promise *list; /* the one that ends first, first */
};

static uint64_t promise_key(const char *where, uint64_t block)
{
    return XXH3_64bits_withSeed(where, strlen(where), block);
}

static struct promise *promises_find(const struct promises *promises, uint64_t key)
{
    struct promise *promise;

    HASH_FIND(hh, promises->table, &key, sizeof key, promise);
    return promise;
}

static void promises_drop(struct promises *promises, struct promise *promise)
{
    struct promise_wait *wait;

    HASH_DEL(promises->table, promise);
    DL_DELETE(promises->list, promise);
    while ((wait = promise->waits)) {
        struct promise_wait ended = *wait;

        DL_DELETE(promise->waits, wait);
        free(wait);
        ended.done(ended.owner);
    }
    free(promise);
}

static void promises_on_timer(uv_timer_t *timer)
{
    struct promises *promises = container_of(timer, struct promises, timer);

    while (promises->list && promises->list->until <= uv_now(promises->loop))
        promises_drop(promises, promises->list);
    if (promises->list)
        uv_timer_start(timer, promises_on_timer, promises->list->until - uv_now(promises->loop), 0);
}

struct promises *promises_new(uv_loop_t *loop)
{
    struct promises *promises = must_alloc(sizeof *promises);

    promises->loop = loop;
    (void)uv_timer_init(loop, &promises->timer);
    uv_unref((uv_handle_t *)&promises->timer);
    return promises;
}

static void promises_on_closed(uv_handle_t *handle)
{
    free(container_of((uv_timer_t *)handle, struct promises, timer));
}

struct promises *promises_free(struct promises *promises)
{
    if (!promises)
        return NULL;
    while (promises->list) {
        assert(!promises->list->waits);
        promises_drop(promises, promises->list);
    }
    uv_close((uv_handle_t *)&promises->timer, promises_on_closed);
    return NULL;
}

bool promises_have(const struct promises *promises, const char *where, uint64_t block)
{
    return promises_find(promises, promise_key(where, block)) != NULL;
}

/* New, or the one that there is; not in the list. */
static struct promise *promises_take(struct promises *promises, uint64_t key)
{
    struct promise *promise = promises_find(promises, key);

    if (promise) {
        DL_DELETE(promises->list, promise);
        return promise;
    }
    promise = must_alloc(sizeof *promise);
    promise->key = key;
    HASH_ADD(hh, promises->table, key, sizeof promise->key, promise);
    return promise;
}

void promises_make(struct promises *promises, const char *where, uint64_t first, uint64_t n,
                   const void *maker)
{
    for (uint64_t i = 0; i < n; i++) {
        struct promise *promise = promises_take(promises, promise_key(where, first + i));

        promise->maker = maker;
        promise->until = uv_now(promises->loop) + PROMISE_MS;
        DL_APPEND(promises->list, promise);
    }
    if (!uv_is_active((uv_handle_t *)&promises->timer))
        promises_on_timer(&promises->timer);
}

void promises_end(struct promises *promises, const char *where, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct promise *promise = promises_find(promises, promise_key(where, first + i));
        if (promise)
            promises_drop(promises, promise);
    }
}

/* Those that waited for one hear it at once, and may change the list. */
void promises_end_of(struct promises *promises, const void *maker)
{
    struct promise *promise;

    do {
        DL_SEARCH_SCALAR(promises->list, promise, maker, maker);
        if (promise)
            promises_drop(promises, promise);
    } while (promise);
}

struct promise_wait *promises_wait(struct promises *promises, const char *where, uint64_t block,
                                   void (*done)(void *owner), void *owner)
{
    struct promise *promise = promises_find(promises, promise_key(where, block));
    struct promise_wait *wait = must_alloc(sizeof *wait);

    assert(promise);
    *wait = (struct promise_wait){.promise = promise, .done = done, .owner = owner};
    DL_APPEND(promise->waits, wait);
    return wait;
}

struct promise_wait *promise_wait_cancel(struct promise_wait *wait)
{
    if (wait) {
        DL_DELETE(wait->promise->waits, wait);
        free(wait);
    }
    return NULL;
}
