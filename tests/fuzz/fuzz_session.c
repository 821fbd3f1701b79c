/*
 * Sessions, loaders, pools, streams and slots as the daemon runs them, with clients and workers
 * that do what the input says, in any order: messages of all kinds with any numbers, batches well
 * and badly done, deaths, hang-ups. Only the processes are not real (fake_process.h).
 *
 * After each event all that is counted is counted anew; whatever a client is told is decoded and
 * compared with what it was told before: no step comes twice, no slot is two clients' or held again
 * before it was given back, no window is overdrawn. At the end nothing is left.
 *
 * Input: a byte, whether timers (bit 0) run out at once or never; then events of one to four bytes,
 * see play().
 */
#include "tests/fuzz/fake_process.h"
#include "tests/fuzz/fuzz.h"

#include "daemon/serve/session.h"
#include "proto/fdpass.h"
#include "proto/frame.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <utlist.h>

enum { CLIENTS = 3, HELD = 64, STREAMS = 16, LOADERS = 8, SPECS = 7, TURNS = 3, DEFERRED = 64 };

/* Batches of at most 8 samples, so that one size of slots fits all. */
enum { SLOT = 4096 };

static const struct {
    const char *text;
    uint64_t length;
    bool iterable;
} specs[SPECS] = {
    {"{name: s0, dataset: {kind: range, length: 20}, batch: {size: 4}, seed: 1, "
     "workers: {count: 2}, memory: {limit: 131072}}",
     20, false},
    {"{name: s1, dataset: {kind: range, length: 7}, batch: {size: 2, drop_last: true}, seed: 1, "
     "workers: {count: 3, prefetch: 1, in_order: false}, memory: {limit: 131072}}",
     7, false},
    {"{name: s2, dataset: {kind: range, length: 9, iterable: true}, batch: {size: 2}, seed: 1, "
     "workers: {count: 2}, memory: {limit: 131072}}",
     9, true},
    {"{name: s3, dataset: {kind: range, length: 30}, sampler: {kind: client}, batch: {size: 3}, "
     "seed: 1, workers: {count: 2}, memory: {limit: 131072}}",
     30, false},
    {"{name: s4, dataset: {kind: range, length: 60}, sampler: {kind: random}, batch: {size: 8}, "
     "seed: 1, workers: {count: 2, retries: 0, prefetch: 3}, memory: {limit: 24576}}",
     60, false},
    {"{name: s5, dataset: {kind: range, length: 64}, batch: {size: 1}, seed: 1, "
     "workers: {count: 1, prefetch: 8}, shard: {mode: batch}, memory: {limit: 65536}}",
     64, false},
    {"{name: s6, dataset: {kind: npy, files: /x}, batch: {tokens: 8, strategy: bucket}, seed: 1, "
     "workers: {count: 2, retries: 1}, collate: {kind: pad}, memory: {limit: 131072}}",
     16, false},
};

struct lease {
    uint32_t stream; /* 0: free */
    uint64_t step;
    uint64_t offset;
    uint32_t segment;
    bool pinned;
};

struct told_stream {
    uint32_t id; /* 0: free */
    uint32_t loader;
    uint64_t credits;
    uint64_t next; /* the least step that may come, in order */
    uint64_t seen; /* steps below 64 that came */
    bool any_order;
    bool finished;
    bool stopped; /* it goes with its last lease */
    bool is_fed;
    bool fed_end;
    uint32_t fed; /* steps */
};

struct told_loader {
    uint32_t id; /* 0: free */
    uint64_t credits;
    bool any_order;
    bool is_fed;
};

/*
 * What a client knows, of what it was told. One that broke the rules is hung up on some time, and
 * knows nothing any more.
 */
struct client {
    int sock; /* owned; -1: it has none */
    bool hello;
    bool at_fault;
    struct frame_reader reader;
    uint64_t requests;
    struct told_stream starting; /* what the answer to START is about */
    struct told_loader loaders[LOADERS];
    struct told_stream streams[STREAMS];
    struct lease leases[HELD];
    uint32_t segments[HELD]; /* told, not yet retired; 0: free */
};

struct game {
    const uint8_t *data;
    size_t len;
    uv_loop_t loop;
    struct config config;
    struct quota *quota;
    struct quota_account *account;
    struct hosts *hosts;
    struct session_list sessions;
    uint32_t n_sessions;
    uint64_t next_session;
    uint32_t next_segment;
    bool told_sandbox;
    struct loader *loaders[SPECS];
    struct client clients[CLIENTS];
};

static uint8_t take(struct game *g)
{
    if (g->len == 0)
        return 0;
    g->len--;
    return *g->data++;
}

/* Small numbers as they are; 0xF0.. become the largest, where overflows are. */
static uint64_t take_number(struct game *g)
{
    uint8_t byte = take(g);

    return byte < 0xF0 ? byte : UINT64_MAX - (0xFF - byte) * 4095;
}

/* ---- time and threads ----------------------------------------------------------------------- */

/* The harness's own: timers run out with the next turn or never, work is done by one thread. */
static struct {
    bool timers_run;
    uv_work_t *work[DEFERRED];
    uv_after_work_cb after[DEFERRED];
    uint32_t n;
} world;

int __real_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    (void)timeout, (void)repeat;
    return __real_uv_timer_start(timer, cb, world.timers_run ? 0 : UINT32_MAX, 0);
}

static void run_out(uv_handle_t *handle, void *arg)
{
    uv_timer_t *timer = (uv_timer_t *)handle;

    (void)arg;
    if (handle->type == UV_TIMER && uv_is_active(handle) && !uv_is_closing(handle))
        __real_uv_timer_start(timer, timer->timer_cb, 0, 0);
}

/* All that were waiting for ever wait for the next turn. */
static void let_time_pass(uv_loop_t *loop)
{
    world.timers_run = true;
    uv_walk(loop, run_out, NULL);
}

int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb cb, uv_after_work_cb after);
int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb cb, uv_after_work_cb after)
{
    (void)loop;
    FUZZ_ASSERT(world.n < DEFERRED);
    cb(work);
    world.work[world.n] = work;
    world.after[world.n++] = after;
    return 0;
}

static void turn(struct game *g)
{
    uv_run(&g->loop, UV_RUN_NOWAIT);
    while (world.n > 0) {
        uv_work_t *work = world.work[0];
        uv_after_work_cb after = world.after[0];

        world.n--;
        memmove(&world.work[0], &world.work[1], world.n * sizeof world.work[0]);
        memmove(&world.after[0], &world.after[1], world.n * sizeof world.after[0]);
        after(work, 0);
    }
}

/* ---- the daemon around sessions ------------------------------------------------------------- */

static void on_gone(void *context, struct loader *loader)
{
    struct game *g = context;

    for (uint32_t i = 0; i < SPECS; i++) {
        if (g->loaders[i] == loader)
            g->loaders[i] = NULL;
    }
}

static void on_retired(void *context, uint32_t segment)
{
    struct game *g = context;

    for (struct session *s = g->sessions.head; s; s = session_next(s))
        session_segment_retired(s, segment);
}

static const struct loader_events loader_events = {.progress = session_loader_progress,
                                                   .opened = session_loader_opened,
                                                   .started = session_started,
                                                   .deliver = session_deliver,
                                                   .fault = session_fault,
                                                   .finished = session_finished,
                                                   .warning = session_warning,
                                                   .retired = on_retired,
                                                   .gone = on_gone};

/* By the digit at the end of its name; other specs there are none. */
static int which_spec(const char *name)
{
    return name[0] == 's' && name[1] >= '0' && name[1] < '0' + SPECS && !name[2] ? name[1] - '0'
                                                                                 : -1;
}

static int find_loader(void *context, struct session *session, const struct value *v,
                       const char *base, const uint64_t *seed, struct loader **ret,
                       struct dl_error *err)
{
    struct game *g = context;
    _cleanup_(spec_deinit)
    struct dl_spec spec = {0};
    struct loader_options options = {.loop = &g->loop,
                                     .config = &g->config,
                                     .hosts = g->hosts,
                                     .python = {.object = -1},
                                     .account = session_account(session),
                                     .uid = session_uid(session),
                                     .next_segment = &g->next_segment,
                                     .told_sandbox = &g->told_sandbox,
                                     .events = &loader_events,
                                     .context = g};
    int which, r;

    if (v->type == VALUE_STRING) {
        which = which_spec(v->string);
        if (which < 0 || !g->loaders[which])
            return dl_error_set(err, ENOENT, "name", "there is none");
        *ret = g->loaders[which];
        return 0;
    }
    if ((r = spec_from_value(v, base, &spec, err)) < 0)
        return r;
    which = which_spec(spec.name);
    if (which < 0)
        return dl_error_set(err, EINVAL, "name", "none of ours");
    if (g->loaders[which]) {
        *ret = g->loaders[which];
        return spec_differs(loader_spec(*ret), &spec, err) ? -EEXIST : 0;
    }
    if ((r = loader_new(&options, &spec, ret, err)) == 0)
        g->loaders[which] = *ret;
    return r;
}

static int make_view(void *context, const char *name, struct value *ret, struct dl_error *err)
{
    (void)context, (void)ret;
    return *name == 'x' ? dl_error_set(err, EINVAL, name, "there is no such view") : 0;
}

static int control(void *context, struct session *session, const char *verb, struct dl_error *err)
{
    (void)context, (void)session;
    return dl_error_set(err, EPERM, verb, "not here");
}

static int may_start(void *context, struct dl_error *err)
{
    (void)context, (void)err;
    return 0;
}

static void stream_ended(void *context)
{
    (void)context;
}

static void on_ended(void *context, struct session *session)
{
    struct game *g = context;

    session_list_remove(&g->sessions, session);
    g->n_sessions--;
}

static const struct session_events session_events = {.find_loader = find_loader,
                                                     .view = make_view,
                                                     .control = control,
                                                     .may_start = may_start,
                                                     .stream_ended = stream_ended,
                                                     .ended = on_ended};

/* ---- what must hold in the daemon ----------------------------------------------------------- */

static void check_stream(const struct stream *stream, uint32_t in_state[SLOT_STATES])
{
    uint32_t counts[STEP_PINNED + 1] = {0};
    const struct step *step;

    for (step = stream->steps; step; step = step->hh.next) {
        counts[step->state]++;
        FUZZ_ASSERT(step->stream == stream);
        FUZZ_ASSERT((step->error != NULL) == (step->state == STEP_FAULTED));
    }
    uint32_t undelivered =
        counts[STEP_WAITING] + counts[STEP_RUNNING] + counts[STEP_READY] + counts[STEP_FAULTED];
    FUZZ_ASSERT(stream->leased == counts[STEP_LEASED] && stream->pinned == counts[STEP_PINNED]);
    FUZZ_ASSERT(stream->undelivered == undelivered);
    FUZZ_ASSERT(stream->window == undelivered + counts[STEP_LEASED]);
    FUZZ_ASSERT(stream->window <= stream->params.credits);
    in_state[SLOT_FILLING] += counts[STEP_RUNNING];
    in_state[SLOT_READY] += counts[STEP_READY];
    in_state[SLOT_LEASED] += counts[STEP_LEASED] + counts[STEP_PINNED];
}

struct held {
    uint64_t bytes;
    uint64_t leases;
    uint64_t workers;
};

static void check_loader(const struct loader *loader, struct held *held)
{
    const struct pool *pool = loader_pool(loader);
    uint32_t in_steps[SLOT_STATES] = {0}, in_slots[SLOT_STATES] = {0};
    const struct segment *segment = NULL;
    const struct stream *stream;
    uint64_t bytes = 0;

    DL_FOREACH (loader_streams(loader), stream) {
        check_stream(stream, in_steps);
    }
    while ((segment = pool_next_segment(pool, segment))) {
        uint32_t recount[SLOT_STATES] = {0};

        for (uint32_t i = 0; i < segment->slots.count; i++) {
            const struct slot *slot = &segment->slots.slots[i];
            recount[slot->state]++;
            FUZZ_ASSERT((slot->leases > 0) == (slot->state == SLOT_LEASED));
        }
        for (int state = 0; state < SLOT_STATES; state++) {
            FUZZ_ASSERT(recount[state] == segment->slots.in_state[state]);
            in_slots[state] += recount[state];
        }
        bytes += segment->bytes;
    }
    FUZZ_ASSERT(in_slots[SLOT_READY] == in_steps[SLOT_READY]);
    FUZZ_ASSERT(in_slots[SLOT_LEASED] == in_steps[SLOT_LEASED]);
    /* A worker may still be at what nobody waits for any more. */
    FUZZ_ASSERT(in_slots[SLOT_FILLING] >= in_steps[SLOT_FILLING]);
    FUZZ_ASSERT(pool_memory(pool) >= bytes &&
                pool_memory(pool) <= loader_spec(loader)->memory_limit);
    held->bytes += pool_memory(pool);
    held->leases += in_steps[SLOT_LEASED];
    held->workers += pool_workers(pool);
}

static void check(const struct game *g)
{
    struct held held = {0};
    uint64_t loaders = 0;

    for (uint32_t i = 0; i < SPECS; i++) {
        if (!g->loaders[i])
            continue;
        check_loader(g->loaders[i], &held);
        loaders++;
    }
    /* One that is gone may still have leases, and workers until it is freed. */
    FUZZ_ASSERT(quota_held(g->account, QUOTA_BYTES) >= held.bytes);
    FUZZ_ASSERT(quota_held(g->account, QUOTA_LEASES) >= held.leases);
    FUZZ_ASSERT(quota_held(g->account, QUOTA_WORKERS) >= held.workers);
    FUZZ_ASSERT(quota_held(g->account, QUOTA_LOADERS) >= loaders);
    FUZZ_ASSERT(quota_held(g->account, QUOTA_SESSIONS) == g->n_sessions);
}

/* ---- what a client is told ------------------------------------------------------------------ */

static struct told_stream *find_stream(struct client *c, uint64_t id)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        if (c->streams[i].id == id)
            return &c->streams[i];
    }
    return NULL;
}

static struct told_loader *find_told(struct client *c, uint64_t id)
{
    for (uint32_t i = 0; i < LOADERS; i++) {
        if (c->loaders[i].id == id)
            return &c->loaders[i];
    }
    return NULL;
}

static struct lease *find_lease(struct client *c, uint64_t stream, uint64_t step)
{
    for (uint32_t i = 0; i < HELD; i++) {
        if (c->leases[i].stream == stream && (stream == 0 || c->leases[i].step == step))
            return &c->leases[i];
    }
    return NULL;
}

static uint32_t count_leases(const struct client *c, uint32_t stream, bool pins)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < HELD; i++)
        n += c->leases[i].stream == stream && (pins || !c->leases[i].pinned);
    return n;
}

/* Exchanges one for the other; 0: a free place. */
static void put_segment(struct client *c, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < HELD; i++) {
        if (c->segments[i] == from) {
            c->segments[i] = to;
            return;
        }
    }
    FUZZ_ASSERT(!"a segment is told once, and retired once, and there are few");
}

static bool knows_segment(const struct client *c, uint32_t id)
{
    for (uint32_t i = 0; i < HELD; i++) {
        if (c->segments[i] == id)
            return true;
    }
    return false;
}

/* Nobody else may have the slot, and the client only once. */
static void check_alone(const struct game *g, const struct dl_descriptor *d)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        for (uint32_t k = 0; k < HELD; k++) {
            const struct lease *lease = &g->clients[i].leases[k];
            FUZZ_ASSERT(lease->stream == 0 || lease->segment != d->segment ||
                        lease->offset != d->offset);
        }
    }
}

static void hear_descriptor(const struct game *g, struct client *c, struct told_stream *stream,
                            const struct dl_descriptor *d)
{
    FUZZ_ASSERT(knows_segment(c, d->segment) && d->samples > 0 && d->samples <= 8);
    FUZZ_ASSERT(d->offset >= SEGMENT_HEADER_BYTES && d->bytes >= SLOT_HEADER_BYTES);
    check_alone(g, d);
    FUZZ_ASSERT(stream->any_order || d->step >= stream->next);
    stream->next = d->step + 1;
    if (d->step < 64) {
        FUZZ_ASSERT(!(stream->seen & (uint64_t)1 << d->step));
        stream->seen |= (uint64_t)1 << d->step;
    }
    struct lease *lease = find_lease(c, 0, 0);
    FUZZ_ASSERT(lease);
    *lease = (struct lease){
        .stream = stream->id, .step = d->step, .offset = d->offset, .segment = d->segment};
    FUZZ_ASSERT(count_leases(c, stream->id, false) <= stream->credits);
}

static void hear_deliver(const struct game *g, struct client *c, const struct dl_msg_deliver *msg)
{
    struct told_stream *stream = find_stream(c, msg->stream);

    FUZZ_ASSERT(stream && !stream->finished && !stream->stopped);
    for (size_t at = 0; at < msg->descriptors.len; at += sizeof(struct dl_descriptor)) {
        struct dl_descriptor d;
        memcpy(&d, msg->descriptors.data + at, sizeof d);
        hear_descriptor(g, c, stream, &d);
    }
}

static void hear_end(struct client *c, uint64_t id)
{
    struct told_stream *stream = find_stream(c, id);

    FUZZ_ASSERT(stream && !stream->finished && !stream->stopped);
    stream->finished = true;
}

static void hear_retired(struct client *c, uint32_t id)
{
    for (uint32_t i = 0; i < HELD; i++)
        FUZZ_ASSERT(c->leases[i].stream == 0 || c->leases[i].segment != id);
    put_segment(c, id, 0);
}

static void hear_opened(struct client *c, const struct dl_msg_opened *msg)
{
    struct told_loader *loader = find_told(c, 0);

    FUZZ_ASSERT(loader && !find_told(c, msg->loader)); /* no more are asked for */
    *loader = (struct told_loader){.id = (uint32_t)msg->loader,
                                   .credits = msg->credits,
                                   .any_order = !msg->in_order,
                                   .is_fed = msg->label.len == 2 &&
                                             memcmp(msg->label.data, "s3", 2) == 0};
}

static void hear_started(struct client *c, const struct dl_msg_started *msg)
{
    struct told_stream *stream = find_stream(c, 0);

    FUZZ_ASSERT(stream && !find_stream(c, msg->stream));
    *stream = c->starting;
    stream->id = (uint32_t)msg->stream;
}

static void hear(const struct game *g, struct client *c, const struct dl_message *msg)
{
    switch (msg->number) {
    case DL_MSG_OPENED:
        hear_opened(c, &msg->opened);
        break;
    case DL_MSG_STARTED:
        hear_started(c, &msg->started);
        break;
    case DL_MSG_SEGMENT:
        FUZZ_ASSERT(!knows_segment(c, (uint32_t)msg->segment.id));
        put_segment(c, 0, (uint32_t)msg->segment.id);
        break;
    case DL_MSG_RETIRE:
        hear_retired(c, (uint32_t)msg->retire.id);
        break;
    case DL_MSG_DELIVER:
        hear_deliver(g, c, &msg->deliver);
        break;
    case DL_MSG_FAULT:
        if (msg->fault.final)
            hear_end(c, msg->fault.stream);
        break;
    case DL_MSG_FINISHED:
        hear_end(c, msg->finished.stream);
        break;
    case DL_MSG_ERROR:
        FUZZ_ASSERT(msg->error.request != 0); /* it did nothing wrong */
        break;
    default:
        break;
    }
}

static void hang_up(struct client *c)
{
    close_fdp(&c->sock);
    frame_reader_deinit(&c->reader);
    *c = (struct client){.sock = -1};
}

/* From now on it is only listened to for what a message is. */
static void break_rules(struct client *c)
{
    c->at_fault = true;
    memset(c->leases, 0, sizeof c->leases);
}

static void hear_all(const struct game *g, struct client *c)
{
    while (c->sock >= 0) {
        struct dl_span payload;
        struct dl_message msg;
        struct dl_error err = {0};
        ssize_t n = fdpass_recv(c->sock, &c->reader, MSG_DONTWAIT);
        int r;

        if (n == -EAGAIN)
            return;
        if (n <= 0) {
            FUZZ_ASSERT(c->at_fault); /* nobody else is hung up on */
            hang_up(c);
            return;
        }
        while ((r = frame_reader_next(&c->reader, &payload)) > 0) {
            FUZZ_ASSERT(message_decode(payload.data, payload.len, FROM_DAEMON, &msg, &err) == 0);
            int fd = msg.number == DL_MSG_SEGMENT ? frame_reader_take_fd(&c->reader) : -1;
            FUZZ_ASSERT(msg.number != DL_MSG_SEGMENT || fd >= 0);
            close_fdp(&fd);
            if (!c->at_fault)
                hear(g, c, &msg);
        }
        FUZZ_ASSERT(r == 0);
    }
}

static void settle(struct game *g)
{
    for (uint32_t i = 0; i < TURNS; i++) {
        turn(g);
        for (uint32_t k = 0; k < CLIENTS; k++)
            hear_all(g, &g->clients[k]);
    }
    check(g);
}

/* ---- what a client does --------------------------------------------------------------------- */

static void connect_client(struct game *g, struct client *c)
{
    struct session *session;
    struct dl_error err = {0};
    int pair[2];

    if (c->sock >= 0)
        return;
    FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    *c = (struct client){.sock = pair[0]};
    int r = session_new(&(struct session_options){.loop = &g->loop,
                                                  .fd = pair[1],
                                                  .id = ++g->next_session,
                                                  .quota = g->quota,
                                                  .events = &session_events,
                                                  .context = g},
                        &session, &err);
    if (r < 0) {
        FUZZ_ASSERT(r == -EDQUOT);
        break_rules(c);
        return;
    }
    session_list_add(&g->sessions, session);
    g->n_sessions++;
}

static void say(struct client *c, const struct dl_message *msg)
{
    struct dl_buffer out = {0};

    if (message_encode(msg, &out) == 0)
        (void)!fdpass_send(c->sock, out.data, out.len, NULL, 0, MSG_DONTWAIT);
    buffer_deinit(&out);
    /* HELLO comes first, and once. */
    if (c->hello == (msg->number == DL_MSG_HELLO))
        break_rules(c);
    c->hello = true;
}

static void say_hello(struct client *c, uint8_t version)
{
    if (version > 1)
        break_rules(c);
    say(c, &(struct dl_message){.number = DL_MSG_HELLO,
                                .hello = {.version = version > 1 ? version : DL_PROTOCOL_VERSION,
                                          .agent = span_str("fuzz")}});
}

static void say_open(struct game *g, struct client *c, uint8_t which)
{
    struct value v = {.type = VALUE_STRING, .string = (char *)specs[which % SPECS].text};
    char name[8];
    struct dl_buffer packed = {0};

    snprintf(name, sizeof name, "s%u", which % SPECS);
    if (which & 0x40)
        v.string = name;
    if (c->requests++ >= LOADERS)
        return; /* so that all that it may be told has a place */
    FUZZ_ASSERT(value_pack(&v, &packed) == 0);
    say(c, &(struct dl_message){.number = DL_MSG_OPEN,
                                .open = {.request = c->requests,
                                         .base = span_str("/"),
                                         .spec = {.data = packed.data, .len = packed.len}}});
    buffer_deinit(&packed);
    (void)g;
}

static void say_start(struct game *g, struct client *c, uint8_t how)
{
    const struct told_loader *loader = &c->loaders[how % LOADERS];
    struct dl_message msg = {.number = DL_MSG_START,
                             .start = {.request = 1,
                                       .loader = loader->id,
                                       .epoch = how >> 3 & 1,
                                       .world = 1 + (how >> 4 & 1),
                                       .rank = how >> 5 & 1,
                                       .credits = how >> 6}};

    if (how >= 0xF8) { /* numbers of any size, of any loader */
        msg.start.loader = take(g);
        msg.start.step = take_number(g);
        msg.start.epoch = take_number(g);
        loader = find_told(c, msg.start.loader);
    }
    if (!find_stream(c, 0))
        return;
    if (!loader || loader->id == 0)
        break_rules(c);
    else
        c->starting =
            (struct told_stream){.loader = loader->id,
                                 .credits = msg.start.credits ? msg.start.credits : loader->credits,
                                 .next = msg.start.step,
                                 .any_order = loader->any_order,
                                 .is_fed = loader->is_fed};
    say(c, &msg);
}

static void drop_if_over(struct client *c, struct told_stream *stream)
{
    if (stream->stopped && count_leases(c, stream->id, true) == 0)
        *stream = (struct told_stream){0};
}

/* RELEASE or PIN of a lease it has; with `any`, of one that it may not have. */
static void say_lease(struct game *g, struct client *c, bool pin, bool any)
{
    struct lease *lease = &c->leases[take(g) % HELD];
    uint64_t stream = lease->stream;
    uint64_t step = lease->step;

    if (any) {
        stream = take(g);
        step = take_number(g);
        lease = find_lease(c, stream, step);
    }
    if (!any && stream == 0)
        return;
    if (!lease || stream == 0)
        break_rules(c);
    const struct dl_span steps = {(const uint8_t *)&step, sizeof step};
    if (pin)
        say(c,
            &(struct dl_message){.number = DL_MSG_PIN, .pin = {.stream = stream, .steps = steps}});
    else
        say(c, &(struct dl_message){.number = DL_MSG_RELEASE,
                                    .release = {.stream = stream, .steps = steps}});
    if (c->at_fault)
        return;
    if (pin) {
        lease->pinned = true;
    } else {
        *lease = (struct lease){0};
        drop_if_over(c, find_stream(c, stream));
    }
}

static void stop_told(struct client *c, struct told_stream *stream)
{
    stream->stopped = true;
    drop_if_over(c, stream);
}

static void say_stop(struct game *g, struct client *c, uint8_t how)
{
    struct told_stream *stream = &c->streams[how % STREAMS];
    uint64_t id = how >= 0xF0 ? take(g) : stream->id;

    if (how < 0xF0 && id == 0)
        return;
    stream = find_stream(c, id);
    if (!stream || id == 0)
        break_rules(c);
    say(c, &(struct dl_message){.number = DL_MSG_STOP, .stop = {.stream = id}});
    if (!c->at_fault)
        stop_told(c, stream);
}

static void say_close(struct game *g, struct client *c, uint8_t how)
{
    struct told_loader *loader = &c->loaders[how % LOADERS];
    uint64_t id = how >= 0xF0 ? take(g) : loader->id;

    if (how < 0xF0 && id == 0)
        return;
    loader = find_told(c, id);
    if (!loader || id == 0)
        break_rules(c);
    if (how & 8)
        say(c, &(struct dl_message){.number = DL_MSG_LEAVE, .leave = {.loader = id}});
    else
        say(c, &(struct dl_message){.number = DL_MSG_CLOSE, .close = {.loader = id}});
    for (uint32_t i = 0; !c->at_fault && i < STREAMS; i++) {
        struct told_stream *stream = &c->streams[i];
        if (stream->id == 0 || stream->loader != id)
            continue;
        for (uint32_t k = 0; !(how & 8) && k < HELD; k++) {
            if (c->leases[k].stream == stream->id)
                c->leases[k] = (struct lease){0};
        }
        stop_told(c, stream);
    }
    if (!(how & 8) && !c->at_fault)
        *loader = (struct told_loader){0};
}

/* Only of the loader that is fed, and no more than a batch. */
static void say_feed(struct game *g, struct client *c, uint8_t how)
{
    static const uint64_t indices[8] = {3, 1, 4, 1, 5, 9, 2, 6};
    uint64_t odd[8];
    struct told_stream *stream = &c->streams[how % STREAMS];
    size_t n = how >> 4 & 3;

    if (stream->id == 0)
        return;
    memcpy(odd, indices, sizeof odd);
    if (how & 0x40)
        odd[0] = take_number(g);
    if (stream->fed >= DL_MAX_FEED_AHEAD * stream->credits) /* further it need not be fed */
        return;
    stream->fed++;
    if (!stream->is_fed || n > 3 || (stream->fed_end && !stream->stopped))
        break_rules(c);
    stream->fed_end |= how >> 7;
    say(c, &(struct dl_message){.number = DL_MSG_FEED,
                                .feed = {.stream = stream->id,
                                         .end = how >> 7,
                                         .indices = {(const uint8_t *)odd, n * sizeof *odd}}});
}

static void say_other(struct game *g, struct client *c, uint8_t how)
{
    struct dl_message msg = {.number = DL_MSG_QUERY,
                             .query = {.request = 1, .view = span_str(how & 8 ? "x" : "ring")}};
    const uint8_t *raw = g->data;
    size_t len = min_u64(how >> 4, g->len);

    switch (how & 7) {
    case 0:
        say(c, &msg);
        break;
    case 1:
        msg = (struct dl_message){.number = DL_MSG_CONTROL,
                                  .control = {.request = 1, .verb = span_str("stop")}};
        say(c, &msg);
        break;
    case 2: /* without its descriptor */
        break_rules(c);
        say(c, &(struct dl_message){.number = DL_MSG_OBJECT, .object = {.object = how}});
        break;
    case 3: /* what only a daemon says */
        break_rules(c);
        say(c, &(struct dl_message){.number = DL_MSG_RETIRE, .retire = {.id = how}});
        break;
    case 4: /* bytes */
        break_rules(c);
        (void)!fdpass_send(c->sock, raw, len, NULL, 0, MSG_DONTWAIT);
        g->data += len;
        g->len -= len;
        break;
    case 5:
        (void)shutdown(c->sock, SHUT_WR);
        break_rules(c);
        break;
    default:
        hang_up(c);
        break;
    }
}

/* ---- what a worker does --------------------------------------------------------------------- */

static void be_ready(struct game *g, struct process *p, bool any)
{
    int which = which_spec(fake_label(p));
    struct dl_msg_w_ready what = {.slot_bytes = SLOT};

    FUZZ_ASSERT(which >= 0);
    if (fake_is_ready(p) && !any)
        return;
    what.length = specs[which].length;
    what.iterable = specs[which].iterable;
    if (any) {
        what.length += take(g) & 3;
        what.iterable ^= take(g) & 1;
        what.slot_bytes = take_number(g) << (take(g) & 31);
    }
    fake_ready(p, &what);
}

/* How long its samples are: 1, 2, 3 and so on, or as the input has it, or nowhere. */
static void tell_lengths(struct game *g, const struct fake_task *task, uint8_t how)
{
    uint64_t room = (task->slot_bytes - SLOT_HEADER_BYTES) / sizeof(uint32_t);
    uint32_t *lengths = (uint32_t *)(void *)(task->slot + 1);
    bool any = (how & 7) > 4;

    task->slot->data_off = (how & 7) == 7 ? take_number(g) : SLOT_HEADER_BYTES;
    for (uint64_t i = 0; i < min_u64(task->slot->samples, room); i++)
        lengths[i] = any ? (uint32_t)take_number(g) : (uint32_t)i % 7 + 1;
}

/* One task, as `how` says. */
static void do_task(struct game *g, struct process *p, uint8_t how)
{
    struct fake_task task;
    struct queue_done done = {.cost_ns = how};

    if (!fake_take(p, &task))
        return;
    done.task = task.record.task;
    done.samples = task.slot->samples;
    done.bytes = min_u64(task.slot_bytes, 512);
    if (task.slot->what == SLOT_LENGTHS)
        tell_lengths(g, &task, how);
    switch (how & 7) {
    case 0: /* an error, told anywhere in the slot */
        task.slot->error_off = take_number(g);
        task.slot->error_len = take(g);
        task.slot->error_more = take(g) << (take(g) & 31);
        done.code = how & 8 ? EIO : take(g);
        break;
    case 1:
        done.code = ENOBUFS;
        done.bytes = task.slot_bytes + (take_number(g) << (take(g) & 15));
        break;
    case 2:
        done.code = ENODATA;
        break;
    case 3: /* nonsense */
        done.task += take(g) & 1;
        done.samples += take(g) & 1;
        done.bytes = take_number(g);
        break;
    default:
        break;
    }
    fake_done(p, &done, how & 0x10);
}

/* All do what they should, as far as they can. */
static void work(struct game *g)
{
    for (uint32_t i = 0; i < fakes.count; i++) {
        struct process *p = fake_pick(i);

        if (fake_was_killed(p)) {
            fake_exit(p, SIGKILL);
            continue;
        }
        be_ready(g, p, false);
        fake_mapped(p, 0);
        for (uint32_t n = 0; n < 8; n++)
            do_task(g, p, 4);
    }
}

static void work_one(struct game *g, uint8_t who, uint8_t how)
{
    struct process *p = fake_pick(who);

    if (!p)
        return;
    if (fake_was_killed(p)) {
        fake_exit(p, SIGKILL);
        return;
    }
    switch (how >> 5) {
    case 0:
        be_ready(g, p, how & 1);
        break;
    case 1:
        fake_mapped(p, how & 1 ? take(g) : 0);
        break;
    case 2:
        fake_failed(p, how & 1, ENOMEM);
        break;
    case 3:
        fake_exit(p, how & 1 ? SIGSEGV : 0);
        break;
    default:
        do_task(g, p, how & 0x1F);
        break;
    }
}

/* ---- the game ------------------------------------------------------------------------------- */

static void play_client(struct game *g, struct client *c, uint8_t event)
{
    uint8_t how = take(g);

    if (event == 0) {
        connect_client(g, c);
        return;
    }
    if (c->sock < 0)
        return;
    switch (event) {
    case 1:
        say_hello(c, how);
        break;
    case 2:
        say_open(g, c, how);
        break;
    case 3:
        say_start(g, c, how);
        break;
    case 4:
        say_lease(g, c, false, how >= 0xF0);
        break;
    case 5:
        say_lease(g, c, true, how >= 0xF0);
        break;
    case 6:
        say_stop(g, c, how);
        break;
    case 7:
        say_close(g, c, how);
        break;
    case 8:
        say_feed(g, c, how);
        break;
    default:
        say_other(g, c, how);
        break;
    }
}

/* Events of clients: "0" to "9", ":" and so on, by threes; of workers and the world: letters. */
static void play(struct game *g)
{
    uint8_t event = take(g);

    switch (event) {
    case 'w':
        work(g);
        break;
    case 'o': {
        uint8_t who = take(g);
        work_one(g, who, take(g));
        break;
    }
    case 'n':
        fakes.refuse_next = true;
        break;
    case 't': /* what was to come later comes now, or the other way round */
        if (world.timers_run)
            world.timers_run = false;
        else
            let_time_pass(&g->loop);
        break;
    default:
        play_client(g, &g->clients[event % CLIENTS], event / CLIENTS % 10);
        break;
    }
    settle(g);
}

static void begin(struct game *g)
{
    uint8_t how = take(g);

    log_set_level((enum log_level)0);
    world.timers_run = how & 1;
    FUZZ_ASSERT(uv_loop_init(&g->loop) == 0);
    FUZZ_ASSERT(config_load(NULL, &g->config, NULL) == 0);
    g->config.limits.sessions = 2 + (how >> 1 & 1);
    g->config.limits.leases = 2 + (how >> 2 & 15);
    g->config.limits.workers = 6;
    *g->config.cache = '\0'; /* lengths are not kept */
    g->quota = quota_new(&g->config.limits);
    g->account = quota_account(g->quota, getuid());
    g->hosts = hosts_new(&(struct hosts_options){.loop = &g->loop, .config = &g->config});
    g->next_segment = 1;
    for (uint32_t i = 0; i < CLIENTS; i++)
        g->clients[i].sock = -1;
}

static void end(struct game *g)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        hang_up(&g->clients[i]);
    settle(g);
    FUZZ_ASSERT(g->n_sessions == 0 && quota_held(g->account, QUOTA_LEASES) == 0);
    for (uint32_t i = 0; i < SPECS; i++) {
        struct loader *loader = g->loaders[i];
        g->loaders[i] = NULL;
        loader_free(loader);
    }
    let_time_pass(&g->loop);
    hosts_end(g->hosts);
    settle(g);
    FUZZ_ASSERT(fakes.count == 0 && world.n == 0);
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        FUZZ_ASSERT(quota_held(g->account, (enum quota_kind)kind) == 0);
    FUZZ_ASSERT(uv_loop_close(&g->loop) == 0);
    hosts_free(g->hosts);
    quota_free(g->quota);
    config_deinit(&g->config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct game g = {.data = data, .len = len};

    begin(&g);
    while (g.len > 0)
        play(&g);
    end(&g);
    return 0;
}
