#include "tests/lib/world_around.h"

#include "daemon/base/log.h"
#include "daemon/base/memory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <utlist.h>

enum call_kind { CALL_GET, CALL_SET, CALL_PUT, CALL_LIST, CALL_DROP };

struct around_call {
    struct around_call *prev, *next;
    enum call_kind kind;
    char key[BACKEND_KEY_MAX];
    uint64_t token;
    struct dl_buffer data;
    backend_done done;
    void *owner;
};

struct around_timer {
    struct around_timer *prev, *next;
    uv_timer_t *handle;
    uint64_t at, repeat_ns;
    bool active;
    uv_timer_cb ring;
    uv_close_cb closed;
};

struct stored {
    struct stored *prev, *next;
    char key[BACKEND_KEY_MAX];
    struct dl_buffer data;
    uint64_t token;
};

struct allgather {
    struct allgather *prev, *next;
    struct around *around;
    struct allgather_options options;
    char key[BACKEND_KEY_MAX];
    struct allgather_node *nodes;
    struct dl_buffer value;
    bool written;
};

static struct {
    uint64_t now, tokens, ids;
    struct stored *store;
    struct around *all, *entered;
} world;

bool around_verbose;

void around_begin(void)
{
    world.now = UINT64_C(1000000000000);
    world.tokens = world.ids = 0;
}

static void stored_free(struct stored *stored)
{
    DL_DELETE(world.store, stored);
    buffer_deinit(&stored->data);
    free(stored);
}

void around_end(void)
{
    while (world.store)
        stored_free(world.store);
    while (world.all)
        around_drop(world.all);
}

void around_pass(uint64_t ns)
{
    world.now += ns;
}

/* ---- the store ------------------------------------------------------------------------------ */

static struct stored *store_find(const char *key)
{
    struct stored *stored;

    DL_FOREACH (world.store, stored)
        if (strcmp(stored->key, key) == 0)
            return stored;
    return NULL;
}

static struct stored *store_write(const char *key, const struct dl_buffer *data)
{
    struct stored *stored = store_find(key);

    if (!stored) {
        stored = must_alloc(sizeof *stored);
        *stored = (struct stored){0};
        (void)snprintf(stored->key, sizeof stored->key, "%s", key);
        DL_APPEND(world.store, stored);
    }
    stored->data.len = 0;
    must_append(&stored->data, data->data, data->len);
    stored->token = ++world.tokens;
    return stored;
}

static void call_free(struct around *around, struct around_call *call)
{
    DL_DELETE(around->calls, call);
    buffer_deinit(&call->data);
    free(call);
}

static void call_list(const struct around_call *call, struct backend_answer *answer)
{
    static struct backend_item items[64];
    const struct stored *stored;
    size_t len = strlen(call->key);

    answer->items = items;
    DL_FOREACH (world.store, stored)
        if (strncmp(stored->key, call->key, len) == 0 && answer->n < ARRAY_SIZE(items))
            items[answer->n++] = (struct backend_item){
                .name = stored->key + len, .data = {stored->data.data, stored->data.len}};
}

static void call_do(const struct around_call *call, struct backend_answer *answer)
{
    struct stored *stored = store_find(call->key);

    if (call->kind == CALL_DROP && stored) {
        stored_free(stored);
        return;
    }
    answer->won = call->kind == CALL_PUT ||
                  (call->kind == CALL_SET && call->token == (stored ? stored->token : 0));
    if (answer->won)
        stored = store_write(call->key, &call->data);
    if (call->kind == CALL_LIST) {
        call_list(call, answer);
    } else if (stored && call->kind != CALL_DROP) {
        answer->token = stored->token;
        answer->data = (struct dl_span){stored->data.data, stored->data.len};
    }
}

static void around_call(struct backend *backend, enum call_kind kind, const char *key,
                        uint64_t token, struct dl_span data, backend_done done, void *owner)
{
    struct around *around = (struct around *)backend;

    if (around->dead)
        return;
    struct around_call *call = must_alloc(sizeof *call);
    *call = (struct around_call){.kind = kind, .token = token, .done = done, .owner = owner};
    (void)snprintf(call->key, sizeof call->key, "%s", key);
    must_append(&call->data, data.data, data.len);
    DL_APPEND(around->calls, call);
}

static void around_get(struct backend *backend, const char *key, backend_done done, void *owner)
{
    around_call(backend, CALL_GET, key, 0, (struct dl_span){0}, done, owner);
}

static void around_set(struct backend *backend, const char *key, uint64_t token,
                       struct dl_span data, const struct backend_note *note, backend_done done,
                       void *owner)
{
    (void)note;
    around_call(backend, CALL_SET, key, token, data, done, owner);
}

static void around_put(struct backend *backend, const char *key, struct dl_span data,
                       const char *ask, backend_done done, void *owner)
{
    (void)ask;
    around_call(backend, CALL_PUT, key, 0, data, done, owner);
}

static void around_list(struct backend *backend, const char *prefix, const char *ask,
                        backend_done done, void *owner)
{
    (void)ask;
    around_call(backend, CALL_LIST, prefix, 0, (struct dl_span){0}, done, owner);
}

static void around_remove(struct backend *backend, const char *key, backend_done done, void *owner)
{
    around_call(backend, CALL_DROP, key, 0, (struct dl_span){0}, done, owner);
}

static void around_health(const struct backend *backend, struct backend_health *ret)
{
    *ret = (struct backend_health){.answers = !((const struct around *)backend)->cut};
}

static const struct backend_ops around_ops = {.get = around_get,
                                              .set = around_set,
                                              .put = around_put,
                                              .list = around_list,
                                              .drop = around_remove,
                                              .health = around_health};

static void around_answer(struct around *around)
{
    struct around_call *call = around->calls, was = *call;
    struct dl_error err = {.code = ETIMEDOUT, .message = "cut off"};
    struct backend_answer answer = {0};

    was.data = (struct dl_buffer){0};
    if (around->cut)
        answer = (struct backend_answer){.status = -ETIMEDOUT, .error = &err};
    else
        call_do(call, &answer);
    call_free(around, call);
    was.done(was.owner, &answer);
}

/* ---- gathering ------------------------------------------------------------------------------ */

static void gather_key(const struct allgather *gather, uint32_t i, char ret[BACKEND_KEY_MAX])
{
    (void)snprintf(ret, BACKEND_KEY_MAX, "gather/%.400s/%llu/%llx", gather->key,
                   (unsigned long long)gather->options.round,
                   (unsigned long long)gather->nodes[i].id);
}

struct allgather *allgather_start(const struct allgather_options *options)
{
    struct allgather *gather = must_alloc(sizeof *gather);

    *gather = (struct allgather){.around = (struct around *)options->backend, .options = *options};
    (void)snprintf(gather->key, sizeof gather->key, "%s", options->key);
    gather->nodes = must_alloc(options->n * sizeof *gather->nodes);
    memcpy(gather->nodes, options->nodes, options->n * sizeof *gather->nodes);
    must_append(&gather->value, options->value.data, options->value.len);
    DL_APPEND(gather->around->gathers, gather);
    return gather;
}

struct allgather *allgather_cancel(struct allgather *gather)
{
    if (!gather)
        return NULL;
    DL_DELETE(gather->around->gathers, gather);
    buffer_deinit(&gather->value);
    free(gather->nodes);
    free(gather);
    return NULL;
}

static void gather_end(struct allgather *gather, const struct dl_span *values,
                       const struct dl_error *error)
{
    struct allgather_options options = gather->options;

    allgather_cancel(gather);
    options.done(options.owner, values, error);
}

static bool gather_find(const struct allgather *gather, struct dl_span *values)
{
    char key[BACKEND_KEY_MAX];

    for (uint32_t i = 0; i < gather->options.n; i++) {
        gather_key(gather, i, key);
        const struct stored *stored = store_find(key);
        if (!stored && (gather->nodes[i].wanted || i == gather->options.self))
            return false;
        if (stored && (gather->nodes[i].wanted || i == gather->options.self))
            values[i] = (struct dl_span){stored->data.data, stored->data.len};
    }
    return true;
}

/* Its round is over if the rendezvous says so; nobody else writes then. */
static bool gather_go_on(struct allgather *gather)
{
    struct dl_error late = {.code = ETIMEDOUT, .message = "the others have not said it"};
    const struct rdzv_state *state = member_state(gather->around->member);
    struct dl_span values[16] = {{0}};
    char key[BACKEND_KEY_MAX];

    if (!gather->written) {
        gather_key(gather, gather->options.self, key);
        store_write(key, &gather->value);
        if (around_verbose && strstr(key, "course"))
            fprintf(stderr, "# sim: report %s: %.*s\n", strrchr(key, '/'), (int)gather->value.len,
                    gather->value.data);
        return gather->written = true;
    }
    if (gather_find(gather, values))
        gather_end(gather, values, NULL);
    else if (state && state->complete && state->round > gather->options.round)
        gather_end(gather, values, &late);
    else
        return false;
    return true;
}

static bool around_gather(struct around *around)
{
    struct allgather *gather;

    if (around->cut)
        return false;
    DL_FOREACH (around->gathers, gather)
        if (gather_go_on(gather))
            return true;
    return false;
}

/* What is asked for again and again does not keep what is gathered waiting. */
bool around_step(struct around *around)
{
    if (around->dead)
        return false;
    around->gathers_first = !around->gathers_first;
    if (around->gathers_first && around_gather(around))
        return true;
    if (!around->calls)
        return !around->gathers_first && around_gather(around);
    around_answer(around);
    return true;
}

/* ---- timers --------------------------------------------------------------------------------- */

uint64_t uv_hrtime(void)
{
    return world.now;
}

static struct around_timer *timer_of(const void *handle)
{
    struct around_timer *timer;

    for (struct around *around = world.all; around; around = around->next)
        DL_FOREACH (around->timers, timer)
            if ((const void *)timer->handle == handle)
                return timer;
    return NULL;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *handle)
{
    struct around_timer *timer = must_alloc(sizeof *timer);

    (void)loop;
    *timer = (struct around_timer){.handle = handle};
    DL_APPEND(world.entered->timers, timer);
    return 0;
}

int uv_timer_start(uv_timer_t *handle, uv_timer_cb ring, uint64_t ms, uint64_t repeat)
{
    struct around_timer *timer = timer_of(handle);

    timer->active = true;
    timer->at = world.now + ms * 1000000;
    timer->repeat_ns = repeat * 1000000;
    timer->ring = ring;
    return 0;
}

int uv_timer_stop(uv_timer_t *handle)
{
    timer_of(handle)->active = false;
    return 0;
}

uint64_t uv_timer_get_due_in(const uv_timer_t *handle)
{
    uint64_t at = timer_of(handle)->at;

    return at > world.now ? (at - world.now) / 1000000 : 0;
}

int uv_is_active(const uv_handle_t *handle)
{
    return timer_of(handle)->active;
}

void uv_close(uv_handle_t *handle, uv_close_cb closed)
{
    struct around_timer *timer = timer_of(handle);

    timer->active = false;
    timer->closed = closed;
}

void around_ring(struct around *around)
{
    struct around_timer *timer, *next;

    DL_FOREACH_SAFE (around->timers, timer, next) {
        if (!timer->active || timer->at > world.now)
            continue;
        timer->active = timer->repeat_ns > 0;
        timer->at = world.now + timer->repeat_ns;
        timer->ring(timer->handle);
    }
}

void around_drop(struct around *around)
{
    struct around_timer *timer, *next;

    around->dead = true;
    while (around->calls)
        call_free(around, around->calls);
    while (around->gathers)
        allgather_cancel(around->gathers);
    DL_FOREACH_SAFE (around->timers, timer, next) {
        DL_DELETE(around->timers, timer);
        if (timer->closed)
            timer->closed((uv_handle_t *)timer->handle);
        free(timer);
    }
    DL_DELETE(world.all, around);
}

/* ---- the member ----------------------------------------------------------------------------- */

void around_enter(struct around *around)
{
    *around = (struct around){.backend.ops = &around_ops};
    DL_APPEND(world.all, around);
    world.entered = around;
}

int members_backend_open(struct members *m, const struct config_rendezvous *config,
                         struct dl_error *err)
{
    (void)config, (void)err;
    m->backend = &world.entered->backend;
    m->backend_name = "simulated";
    return 0;
}

int members_backend_check(const struct config_rendezvous *config, struct dl_error *err)
{
    (void)config, (void)err;
    return 0;
}

int members_backend_move(struct members *m, const struct config_rendezvous *config,
                         struct dl_error *err)
{
    (void)m, (void)config, (void)err;
    return 0;
}

int member_new(const struct member_options *options, struct member **ret, struct dl_error *err)
{
    struct member *member = must_alloc(sizeof *member);

    (void)err;
    *member = (struct member){.events = options->events,
                              .owner = options->owner,
                              .id = ++world.ids,
                              .local = options->local,
                              .around = world.entered};
    (void)snprintf(member->name, sizeof member->name, "%s", options->name);
    world.entered->member = *ret = member;
    return 0;
}

struct member *member_free(struct member *member)
{
    rdzv_state_deinit(&member->state);
    member->around->member = NULL;
    free(member);
    return NULL;
}

void member_replace(struct member *member, uint64_t id)
{
    (void)member, (void)id;
}

void member_join(struct member *member)
{
    member->ready = true;
}

void member_ready(struct member *member)
{
    member->ready = true;
}

void member_leave(struct member *member)
{
    member->leaving = true;
}

void member_close(struct member *member, const char *reason)
{
    (void)member, (void)reason;
}

void member_list(struct member *member)
{
    (void)member;
}

const struct rdzv_state *member_state(const struct member *member)
{
    return member && member->state.n > 0 ? &member->state : NULL;
}

uint64_t member_id(const struct member *member)
{
    return member->id;
}

uint64_t member_beat_age(const struct member *member, uint64_t id)
{
    const struct around *around;

    (void)member;
    DL_FOREACH (world.all, around)
        if (around->member && around->member->id == id)
            return around->cut ? world.now - around->cut_ns : 0;
    return UINT64_MAX;
}

void member_look(struct member *member)
{
    (void)member;
}

/* By itself it would look after minutes. */
void member_read(struct member *member)
{
    member->around->reads = true;
}

uint64_t member_looked_ns(const struct member *member)
{
    return member_wrote_ns(member);
}

uint64_t member_wrote_ns(const struct member *member)
{
    return member->around->cut ? member->around->cut_ns : world.now;
}

uint64_t member_read_ns(const struct member *member)
{
    const struct around *around = member->around;

    return around->cut || around->unread ? around->cut_ns : world.now;
}

/* ---- what else there is --------------------------------------------------------------------- */

struct agreement *agree(const struct agree_options *options)
{
    (void)options;
    return NULL;
}

struct agreement *agree_cancel(struct agreement *agreement)
{
    return agreement;
}

int predecessor_open(const char *path, uint64_t id, struct predecessor **ret, uint64_t *ret_before,
                     struct dl_error *err)
{
    (void)path, (void)id, (void)err;
    *ret = NULL;
    *ret_before = 0;
    return 0;
}

void predecessor_forget(struct predecessor *predecessor)
{
    (void)predecessor;
}

struct predecessor *predecessor_close(struct predecessor *predecessor)
{
    return predecessor;
}

void log_about(enum log_level level, const struct log_fields *about, const char *fmt, ...)
{
    va_list args;

    (void)level, (void)about;
    if (!around_verbose)
        return;
    va_start(args, fmt);
    (void)fputs("# log: ", stderr);
    (void)vfprintf(stderr, fmt, args);
    (void)fputc('\n', stderr);
    va_end(args);
}
