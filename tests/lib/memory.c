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
    uint64_t tokens, bytes;
    bool away, lists_little;
};

enum kind { GET, SET, PUT, LIST, DROP };

struct call {
    enum kind kind;
    char *key, *other; /* owned; `other`: the note's, or what else is asked; may be NULL */
    uint64_t token;
    struct dl_buffer data, note; /* owned */
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
    backend_changed changed;
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

void memory_store_list_little(struct memory_store *store)
{
    store->lists_little = true;
}

uint64_t memory_store_bytes(const struct memory_store *store)
{
    return store->bytes;
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
    buffer_deinit(&call->note);
    free(call->key);
    free(call->other);
    free(call);
}

static void drop(struct memory_store *store, struct value *value)
{
    tell_watchers(store, value->key);
    DL_DELETE(store->values, value);
    buffer_deinit(&value->data);
    free(value->key);
    free(value);
}

static struct dl_span span_of(const struct dl_buffer *buffer)
{
    return (struct dl_span){buffer->data, buffer->len};
}

static int compare_items(const void *a, const void *b)
{
    const struct backend_item *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* The items are to be freed; what they point to is the store's. */
static void list(const struct memory_store *store, const char *prefix, struct backend_answer *ret)
{
    struct backend_item *items = NULL;
    const struct value *value;
    size_t len = strlen(prefix);

    DL_FOREACH (store->values, value) {
        if (strncmp(value->key, prefix, len) != 0)
            continue;
        items = must(realloc(items, (ret->n + 1) * sizeof *items));
        items[ret->n++] = (struct backend_item){value->key + len, span_of(&value->data)};
    }
    if (items)
        qsort(items, ret->n, sizeof *items, compare_items);
    ret->items = items;
}

/* What is done in the store; NULL: nothing lies under the key that the answer is about. */
static const struct value *act(struct memory_store *store, struct call *call,
                               struct backend_answer *ret)
{
    struct value *value = find(store, call->key);

    if (call->kind == GET)
        return value;
    if (call->kind == SET) {
        ret->won = (value ? value->token : 0) == call->token;
        if (!ret->won)
            return value;
        put(store, call->key, span_of(&call->data));
        if (call->other)
            put(store, call->other, span_of(&call->note));
        return find(store, call->key);
    }
    if (call->kind == PUT)
        put(store, call->key, span_of(&call->data));
    else if (call->kind == LIST)
        list(store, call->key, ret);
    else if (value)
        drop(store, value);
    return call->other ? find(store, call->other) : NULL;
}

static void answer(struct memory *memory, struct call *call)
{
    struct memory_store *store = memory->store;
    const struct value *value = NULL;
    struct backend_answer with = {0};
    struct dl_error err = {0};

    if (store->away) {
        with.status = dl_error_set(&err, ETIMEDOUT, "rendezvous.endpoint", "the store is away");
        with.error = &err;
        memory->health.failures++;
        memory->health.latest = err;
    } else {
        value = act(store, call, &with);
    }
    memory->health.answers = !store->away;
    if (value) {
        with.token = value->token;
        with.data = span_of(&value->data);
    }
    store->bytes += strlen(call->key) + call->data.len + call->note.len + with.data.len;
    for (uint32_t i = 0; i < with.n; i++)
        store->bytes += strlen(call->key) + strlen(with.items[i].name) + with.items[i].data.len;
    call->done(call->owner, &with);
    free((struct backend_item *)with.items);
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
        const struct value *value = find(memory->store, memory->watched);

        memory->changed(memory->owner, value ? span_of(&value->data) : (struct dl_span){0});
    }
}

static struct call *memory_begin(struct backend *backend, enum kind kind, const char *key,
                                 const char *other, struct dl_span data, backend_done done,
                                 void *owner)
{
    struct memory *memory = container_of(backend, struct memory, backend);
    struct call *mine = must(calloc(1, sizeof *mine));

    *mine = (struct call){.kind = kind, .done = done, .owner = owner};
    mine->key = must(strdup(key));
    mine->other = other ? must(strdup(other)) : NULL;
    if (data.len > 0 && buffer_append(&mine->data, data.data, data.len) < 0)
        abort();
    DL_APPEND(memory->calls, mine);
    memory->health.calls++;
    uv_timer_start(&memory->timer, on_timer, 0, 0);
    return mine;
}

static void memory_get(struct backend *backend, const char *key, backend_done done, void *owner)
{
    (void)memory_begin(backend, GET, key, NULL, (struct dl_span){0}, done, owner);
}

static void memory_set(struct backend *backend, const char *key, uint64_t token,
                       struct dl_span data, const struct backend_note *note, backend_done done,
                       void *owner)
{
    assert(data.len > 0 && data.len <= BACKEND_VALUE_MAX);
    struct call *call = memory_begin(backend, SET, key, note ? note->key : NULL, data, done, owner);

    call->token = token;
    if (note && buffer_append(&call->note, note->data.data, note->data.len) < 0)
        abort();
}

static void memory_put(struct backend *backend, const char *key, struct dl_span data,
                       const char *ask, backend_done done, void *owner)
{
    assert(data.len > 0 && data.len <= BACKEND_VALUE_MAX);
    (void)memory_begin(backend, PUT, key, ask, data, done, owner);
}

static void memory_list(struct backend *backend, const char *prefix, const char *ask,
                        backend_done done, void *owner)
{
    (void)memory_begin(backend, LIST, prefix, ask, (struct dl_span){0}, done, owner);
}

static void memory_drop(struct backend *backend, const char *key, backend_done done, void *owner)
{
    (void)memory_begin(backend, DROP, key, NULL, (struct dl_span){0}, done, owner);
}

static void memory_watch(struct backend *backend, const char *key, backend_changed changed,
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

static const struct backend_ops ops = {.lists_all = true,
                                       .get = memory_get,
                                       .set = memory_set,
                                       .put = memory_put,
                                       .list = memory_list,
                                       .drop = memory_drop,
                                       .watch = memory_watch,
                                       .health = memory_health,
                                       .free = memory_free};

static const struct backend_ops little_ops = {.get = memory_get,
                                              .set = memory_set,
                                              .put = memory_put,
                                              .list = memory_list,
                                              .drop = memory_drop,
                                              .watch = memory_watch,
                                              .health = memory_health,
                                              .free = memory_free};

int memory_new(uv_loop_t *loop, struct memory_store *store, struct backend **ret,
               struct dl_error *err)
{
    struct memory *memory = calloc(1, sizeof *memory);

    if (!memory)
        return dl_error_set(err, ENOMEM, "rendezvous", "out of memory");
    memory->backend.ops = store->lists_little ? &little_ops : &ops;
    memory->store = store;
    (void)uv_timer_init(loop, &memory->timer);
    DL_APPEND(store->backends, memory);
    *ret = &memory->backend;
    return 0;
}
