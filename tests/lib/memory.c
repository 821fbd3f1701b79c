#include "tests/lib/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <utlist.h>

struct value {
    char *key;             /* owned */
    struct dl_buffer data; /* owned */
    uint64_t token;
    struct value *prev, *next; /* in store->values */
};

struct memory_store {
    struct value *values;
    struct memory *backends;
    uint64_t tokens;
    bool away;
};

struct call {
    bool sets;
    char *key; /* owned */
    uint64_t token;
    struct dl_buffer data; /* owned */
    backend_done done;
    void *owner;
    struct call *prev, *next; /* in memory->calls */
};

struct memory {
    struct backend backend;
    struct memory_store *store; /* borrowed */
    uv_timer_t timer;
    struct call *calls;
    char watched[BACKEND_KEY_MAX]; /* "": nothing */
    void (*changed)(void *owner);
    void *owner;
    bool has_changed;
    struct backend_health health;
    struct memory *prev, *next; /* in store->backends */
};

static void *must(void *mem)
{
    if (!mem)
        abort();
    return mem;
}

/* ---- the store ------------------------------------------------------------------------------ */

static struct value *find(const struct memory_store *store, const char *key)
{
    struct value *value;

    DL_FOREACH (store->values, value)
        if (strcmp(value->key, key) == 0)
            return value;
    return NULL;
}

static void on_timer(uv_timer_t *timer);

static void tell_watchers(const struct memory_store *store, const char *key)
{
    struct memory *memory;

    DL_FOREACH (store->backends, memory) {
        if (strcmp(memory->watched, key) != 0)
            continue;
        memory->has_changed = true;
        uv_timer_start(&memory->timer, on_timer, 0, 0);
    }
}

static void put(struct memory_store *store, const char *key, struct dl_span data)
{
    struct value *value = find(store, key);

    if (!value) {
        value = must(calloc(1, sizeof *value));
        value->key = must(strdup(key));
        DL_APPEND(store->values, value);
    }
    value->data.len = 0;
    if (buffer_append(&value->data, data.data, data.len) < 0)
        abort();
    value->token = ++store->tokens;
    tell_watchers(store, key);
}

struct memory_store *memory_store_new(void)
{
    return calloc(1, sizeof(struct memory_store));
}

void memory_store_forget(struct memory_store *store)
{
    struct value *value, *next;

    DL_FOREACH_SAFE (store->values, value, next) {
        tell_watchers(store, value->key);
        buffer_deinit(&value->data);
        free(value->key);
        free(value);
    }
    store->values = NULL;
}

void memory_store_take_away(struct memory_store *store, bool away)
{
    store->away = away;
}

struct memory_store *memory_store_free(struct memory_store *store)
{
    if (!store)
        return NULL;
    assert(!store->backends);
    memory_store_forget(store);
    free(store);
    return NULL;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void call_free(struct call *call)
{
    buffer_deinit(&call->data);
    free(call->key);
    free(call);
}

static void answer(struct memory *memory, struct call *call)
{
    struct memory_store *store = memory->store;
    const struct value *value = find(store, call->key);
    struct backend_answer with = {0};
    struct dl_error err = {0};

    if (store->away) {
        with.status = dl_error_set(&err, ETIMEDOUT, "rendezvous.endpoint", "the store is away");
        with.error = &err;
        memory->health.failures++;
        memory->health.latest = err;
    } else if (call->sets && (value ? value->token : 0) == call->token) {
        put(store, call->key, (struct dl_span){call->data.data, call->data.len});
        value = find(store, call->key);
        with.won = true;
    }
    memory->health.answers = !store->away;
    if (!store->away && value) {
        with.token = value->token;
        with.data = (struct dl_span){value->data.data, value->data.len};
    }
    call->done(call->owner, &with);
    call_free(call);
}

/* One call a turn: its owner may do anything, also free the backend. */
static void on_timer(uv_timer_t *timer)
{
    struct memory *memory = container_of(timer, struct memory, timer);
    struct call *call = memory->calls;

    if (call) {
        DL_DELETE(memory->calls, call);
        uv_timer_start(timer, on_timer, 0, 0);
        answer(memory, call);
    } else if (memory->has_changed) {
        memory->has_changed = false;
        memory->changed(memory->owner);
    }
}

static void begin(struct backend *backend, const char *key, struct call call, struct dl_span data)
{
    struct memory *memory = container_of(backend, struct memory, backend);
    struct call *mine = must(calloc(1, sizeof *mine));

    *mine = call;
    mine->key = must(strdup(key));
    if (data.len > 0 && buffer_append(&mine->data, data.data, data.len) < 0)
        abort();
    DL_APPEND(memory->calls, mine);
    memory->health.calls++;
    uv_timer_start(&memory->timer, on_timer, 0, 0);
}

static void memory_get(struct backend *backend, const char *key, backend_done done, void *owner)
{
    begin(backend, key, (struct call){.done = done, .owner = owner}, (struct dl_span){0});
}

static void memory_set(struct backend *backend, const char *key, uint64_t token,
                       struct dl_span data, backend_done done, void *owner)
{
    assert(data.len > 0 && data.len <= BACKEND_VALUE_MAX);
    begin(backend, key, (struct call){.sets = true, .token = token, .done = done, .owner = owner},
          data);
}

static void memory_watch(struct backend *backend, const char *key, void (*changed)(void *owner),
                         void *owner)
{
    struct memory *memory = container_of(backend, struct memory, backend);

    (void)snprintf(memory->watched, sizeof memory->watched, "%s", key);
    memory->changed = changed;
    memory->owner = owner;
}

static void memory_health(const struct backend *backend, struct backend_health *ret)
{
    const struct memory *memory = container_of(backend, struct memory, backend);

    *ret = memory->health;
    (void)snprintf(ret->endpoint, sizeof ret->endpoint, "%s", "memory");
}

static void on_closed(uv_handle_t *handle)
{
    free(container_of(handle, struct memory, timer));
}

static void memory_free(struct backend *backend)
{
    struct memory *memory = container_of(backend, struct memory, backend);
    struct call *call, *next;

    DL_DELETE(memory->store->backends, memory);
    DL_FOREACH_SAFE (memory->calls, call, next)
        call_free(call);
    uv_close((uv_handle_t *)&memory->timer, on_closed);
}

static const struct backend_ops ops = {.get = memory_get,
                                       .set = memory_set,
                                       .watch = memory_watch,
                                       .health = memory_health,
                                       .free = memory_free};

int memory_new(uv_loop_t *loop, struct memory_store *store, struct backend **ret,
               struct dl_error *err)
{
    struct memory *memory = calloc(1, sizeof *memory);

    if (!memory)
        return dl_error_set(err, ENOMEM, "rendezvous", "out of memory");
    memory->backend.ops = &ops;
    memory->store = store;
    (void)uv_timer_init(loop, &memory->timer);
    DL_APPEND(store->backends, memory);
    *ret = &memory->backend;
    return 0;
}
