/*
 * Sessions, loaders, pools, streams and slots as the daemon runs them, with clients and workers
 * that do what the input says, in any order: messages of all kinds with any numbers, batches well
 * and badly done, deaths, hang-ups. Only the processes are not real (fake_process.h).
 *
 * After each event all that is counted is counted anew; whatever a client is told is decoded and
 * compared with what it was told before: no step comes twice, no slot is two clients' or held again
 * before it was released, unless these are ranks that have other rows of it; no window is
 * overdrawn. At the end nothing is left.
 *
 * Input: a byte, whether timers (bit 0) run out at once or never; then events of one to four bytes,
 * see play().
 */
#include "daemon/base/available.h"
#include "proto/common/sealed.h"
#include "tests/fuzz/fake_process.h"
#include "tests/fuzz/session_game.h"

#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <utlist.h>

/* Batches of at most 8 samples, so that one size of slots fits all. */
enum { SLOT = 4096, TURNS = 3, DEFERRED = 64 };

const struct game_spec game_specs[SPECS] = {
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
    {"{name: s6, dataset: {kind: npy, paths: /x}, batch: {tokens: 8, strategy: bucket}, seed: 1, "
     "workers: {count: 2, retries: 1}, collate: {kind: pad}, memory: {limit: 131072}}",
     16, false},
    {"{name: s7, dataset: {kind: range, length: 45}, batch: {size: 4}, seed: 1, "
     "workers: {count: 2, prefetch: 1}, shard: {mode: dispatch}, memory: {limit: 131072}}",
     45, false, true},
    {"{name: s8, dataset: {kind: range, length: 25, iterable: true}, batch: {size: 3}, seed: 1, "
     "workers: {count: 2, retries: 1}, shard: {mode: dispatch}, memory: {limit: 98304}}",
     25, true, true},
    {"{name: s9, dataset: {kind: range, length: 20, iterable: true}, batch: {size: 4}, seed: 1, "
     "workers: {count: 2, in_order: false}, shard: {mode: split}, memory: {limit: 131072}}",
     20, true},
    {"{name: sa, dataset: {kind: npy, paths: /x}, batch: {tokens: 8}, seed: 1, "
     "workers: {count: 2}, shard: {mode: batch, even: false}, collate: {kind: pack, length: 8}, "
     "memory: {limit: 131072}}",
     16, false},
    {"{name: sb, dataset: {kind: range, length: 20}, sampler: {kind: weighted, order: native}, "
     "batch: {size: 4}, seed: 1, workers: {count: 2, prefetch: 1}, memory: {limit: 131072}}",
     20, false},
    {"{name: sc, dataset: {kind: mix, weights: [1], stop: never, length: 20, datasets: [{kind: "
     "range, length: 20}]}, sampler: {kind: random, order: native}, batch: {size: 4}, seed: 1, "
     "workers: {count: 2, prefetch: 1}, memory: {limit: 131072}}",
     20, false},
    {"{name: sd, dataset: {kind: concat, datasets: [{kind: imagefolder, paths: /x, transform: "
     "resize, size: [1, 1]}, {kind: imagefolder, paths: /y, transform: resize, size: "
     "[1, 1]}]}, batch: {size: 4}, seed: 1, workers: {count: 3}, memory: {limit: 131072}}",
     30, false},
};

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

/* Neither is this machine's: what it has left, and whatever process has the number of a fake. */
void __wrap_available_read(const char *root, struct available *ret);
void __wrap_available_read(const char *root, struct available *ret)
{
    *ret = (struct available){.bytes = 1 << 30, .limit = 1 << 30, .total = 1 << 30};
}

bool __wrap_usage_read_cpu_wait(int pid, uint64_t *ret_ns);
bool __wrap_usage_read_cpu_wait(int pid, uint64_t *ret_ns)
{
    return false;
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

static bool make_no_way(void *context, struct loader *loader)
{
    (void)context, (void)loader;
    return false;
}

static void on_retired(void *context, uint32_t segment)
{
    struct game *g = context;

    for (struct session *s = g->sessions.head; s; s = session_next(s))
        session_segment_retired(s, segment);
}

static void on_automatic(void *context)
{
    (void)context;
}

static const struct loader_events loader_events = {SESSION_LOADER_EVENTS, .retired = on_retired,
                                                   .make_way = make_no_way,
                                                   .automatic = on_automatic, .gone = on_gone};

int which_spec(const char *name, size_t len)
{
    static const char ends[SPECS + 1] = "0123456789abcd";
    const char *end = len == 2 && name[0] == 's' && name[1] ? strchr(ends, name[1]) : NULL;

    return end ? (int)(end - ends) : -1;
}

static int find_loader(void *context, struct session *session, struct loader_wanted *wanted,
                       const uint64_t *seed, uint64_t asked, struct loader **ret,
                       struct dl_error *err)
{
    struct game *g = context;
    struct loader_options options = {.pool = {.loop = &g->loop,
                                              .config = &g->config,
                                              .hosts = g->hosts,
                                              .account = session_account(session),
                                              .budget = &g->budget,
                                              .retired = &g->retired,
                                              .next_segment = &g->next_segment,
                                              .told_sandbox = &g->told_sandbox,
                                              .stuck = &g->stuck},
                                     .crew = g->crew,
                                     .fair = &g->fair,
                                     .uid = session_uid(session),
                                     .events = &loader_events,
                                     .context = g};
    int which, r;

    if (wanted->name) {
        which = which_spec(wanted->name, strlen(wanted->name));
        if (which < 0 || !g->loaders[which])
            return dl_error_set(err, ENOENT, "name", "there is none");
        *ret = g->loaders[which];
        return 0;
    }
    which = which_spec(wanted->spec.name, strlen(wanted->spec.name));
    if (which < 0)
        return dl_error_set(err, EINVAL, "name", "none of ours");
    if (g->loaders[which]) {
        *ret = g->loaders[which];
        return spec_differs(loader_spec(*ret), &wanted->spec, err) ? -EEXIST : 0;
    }
    if ((r = loader_new(&options, &wanted->spec, ret, err)) == 0)
        g->loaders[which] = *ret;
    return r;
}

static int make_view(void *context, const struct session *session, const char *name,
                     struct value *ret, struct dl_error *err)
{
    (void)context, (void)session, (void)ret;
    return *name == 'x' ? dl_error_set(err, EINVAL, name, "no such view") : 0;
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

/* Nodes have met, or they have not yet. */
static int find_place(void *context, const struct shared_loader_request *request,
                      struct shared_loader **ret, struct resume_place *ret_place,
                      struct dl_error *err)
{
    const struct game *g = context;

    if (request->local > 1)
        return dl_error_set(err, EINVAL, "rank", "there are two here");
    *ret = NULL;
    *ret_place = (struct resume_place){.world = 2,
                                       .limit = UINT64_MAX,
                                       .epoch = request->resume.epoch,
                                       .step = request->resume.step,
                                       .before = request->resume.before};
    return !g->met;
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

static int find_open(void *context, struct session *session, const char *name, struct loader **ret,
                     struct dl_error *err)
{
    struct game *g = context;

    (void)session;
    int which = which_spec(name, strlen(name));
    if (which >= OLD_SPECS && g->loaders[which]) {
        *ret = g->loaders[which];
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(g->loaders); i++) {
        if (!g->loaders[i])
            continue;
        *ret = g->loaders[i];
        return 0;
    }
    return dl_error_set(err, ENOENT, name, "there is none");
}

/* No loader is read in the world of a cluster. */
static struct shared_loader *find_shared(void *context, const void *loader, uint32_t *ret_n)
{
    *ret_n = 0;
    return NULL;
}

static const struct session_events session_events = {.find_loader = find_loader,
                                                     .find_open = find_open,
                                                     .view = make_view,
                                                     .control = control,
                                                     .may_start = may_start,
                                                     .place = find_place,
                                                     .find_shared = find_shared,
                                                     .stream_ended = stream_ended,
                                                     .ended = on_ended};

/* ---- what must hold in the daemon ----------------------------------------------------------- */

/* Slots and leases that there must be for the steps of a loader. */
struct due {
    uint32_t filling;
    uint32_t ready;
    uint32_t leases;
    uint32_t of_clients; /* of these */
};

static void check_stream(const struct stream *stream, struct due *due)
{
    uint32_t counts[STEP_PINNED + 1] = {0}, held = 0, told = 0;
    const struct step *step;

    for (step = stream->steps; step; step = step->hh.next) {
        counts[step->state]++;
        held += step->state == STEP_READY && step->own_lease;
        told += step->state == STEP_LEASED && step->error;
        FUZZ_ASSERT(step->stream == stream);
        FUZZ_ASSERT((step->error != NULL) == (step->state == STEP_FAULTED) ||
                    step->state == STEP_LEASED);
        /* It reads what another stream has loaded. */
        FUZZ_ASSERT(step->state != STEP_READY || step->own_lease || !stream->source);
    }
    uint32_t undelivered =
        counts[STEP_WAITING] + counts[STEP_RUNNING] + counts[STEP_READY] + counts[STEP_FAULTED];
    uint32_t leased = counts[STEP_LEASED] + counts[STEP_PINNED];
    FUZZ_ASSERT(stream->in_state[STEP_LEASED] == counts[STEP_LEASED] &&
                stream->in_state[STEP_PINNED] == counts[STEP_PINNED]);
    FUZZ_ASSERT(stream_undelivered(stream) == undelivered && stream->faults_told == told);
    FUZZ_ASSERT(stream_window(stream) == undelivered + counts[STEP_LEASED]);
    /* One that was parked with pins has them in its window again, and its client may ask for less.
     */
    FUZZ_ASSERT(stream_window(stream) <= stream->params.credits || stream->params.job[0]);
    FUZZ_ASSERT(!stream_is_source(stream) || leased == 0);
    due->filling += counts[STEP_RUNNING];
    due->ready += counts[STEP_READY] - held;
    due->leases += leased + held - told;
    due->of_clients += leased;
}

struct held {
    uint64_t bytes;
    uint64_t leases;
    uint64_t workers;
};

static void check_loader(const struct loader *loader, struct held *held)
{
    const struct pool *pool = loader_pool(loader);
    uint32_t in_slots[SLOT_STATES] = {0}, leases = 0;
    const struct segment *segment = NULL;
    const struct stream *stream;
    struct due due = {0};
    uint64_t bytes = 0;

    DL_FOREACH (loader_core(loader)->streams, stream) {
        check_stream(stream, &due);
    }
    while ((segment = pool_next_segment(pool, segment))) {
        uint32_t recount[SLOT_STATES] = {0};

        for (uint32_t i = 0; i < segment->slots.count; i++) {
            const struct slot *slot = &segment->slots.slots[i];
            recount[slot->state]++;
            leases += slot->leases;
            FUZZ_ASSERT((slot->leases > 0) == (slot->state == SLOT_LEASED));
        }
        for (int state = 0; state < SLOT_STATES; state++) {
            FUZZ_ASSERT(recount[state] == segment->slots.in_state[state]);
            in_slots[state] += recount[state];
        }
        bytes += segment->bytes;
    }
    FUZZ_ASSERT(in_slots[SLOT_READY] == due.ready);
    FUZZ_ASSERT(leases == due.leases);
    /* Each lease is of another slot, but where ranks share what was loaded. */
    FUZZ_ASSERT(in_slots[SLOT_LEASED] == leases ||
                (in_slots[SLOT_LEASED] < leases && loader_spec(loader)->shard == SHARD_DISPATCH));
    /* A worker may still be at what nobody waits for any more. */
    FUZZ_ASSERT(in_slots[SLOT_FILLING] >= due.filling);
    FUZZ_ASSERT(pool_memory(pool) >= bytes &&
                pool_memory(pool) <= loader_spec(loader)->memory_limit);
    held->bytes += pool_memory(pool);
    held->leases += due.of_clients;
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
    FUZZ_ASSERT(quota_in_use(g->account, QUOTA_BYTES) >= held.bytes);
    FUZZ_ASSERT(quota_in_use(g->account, QUOTA_LEASES) >= held.leases);
    FUZZ_ASSERT(quota_in_use(g->account, QUOTA_WORKERS) >= held.workers);
    FUZZ_ASSERT(quota_in_use(g->account, QUOTA_LOADERS) >= loaders);
    FUZZ_ASSERT(quota_in_use(g->account, QUOTA_SESSIONS) == g->n_sessions);
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

void connect_client(struct game *g, struct client *c)
{
    struct session *session;
    struct dl_error err = {0};
    struct ucred who;
    int pair[2];

    if (c->sock >= 0)
        return;
    FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    *c = (struct client){.sock = pair[0]};
    FUZZ_ASSERT(credentials_peer(pair[1], &who, &err) == 0);
    int r = session_new(&(struct session_options){.loop = &g->loop,
                                                  .fd = pair[1],
                                                  .who = who,
                                                  .id = ++g->next_session,
                                                  .quota = g->quota,
                                                  .scheduler = g->scheduler,
                                                  .crew = g->crew,
                                                  .tables = &g->tables,
                                                  .budget = &g->budget,
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

/* ---- what a worker does --------------------------------------------------------------------- */

static void be_ready(struct game *g, struct process *p, bool any)
{
    int which = which_spec(fake_label(p), strlen(fake_label(p)));
    struct dl_msg_w_ready what = {.slot_bytes = SLOT};

    FUZZ_ASSERT(which >= 0);
    uint64_t size = htole64(game_specs[which].length);
    if (which == MIX_SPEC)
        what.sizes = (struct dl_span){(const uint8_t *)&size, sizeof size};
    if ((fake_is_ready(p) || !fake_is_open(p)) && !any)
        return;
    what.length = game_specs[which].length;
    what.iterable = game_specs[which].iterable;
    if (any) {
        what.length += take(&g->input) & 3;
        what.iterable ^= take(&g->input) & 1;
        what.slot_bytes = take_number(&g->input) << 6;
    }
    fake_ready(p, &what);
}

/* A sealed memfd, as large as the input has it, of one of two places; or a descriptor of anything.
 */
static void send_index(struct game *g, struct process *p)
{
    static const uint8_t bytes[1 << 16];
    uint8_t how = take(&g->input);
    struct dl_msg_w_indexed what = {.place = span_str(how & 1 ? "dataset.datasets.0" : "dataset.x"),
                                    .form = how >> 1 & 1,
                                    .key = how >> 2 & 1};
    int fd = how & 0x80 ? memfd_create("unsealed", MFD_CLOEXEC)
                        : sealed_new("index", bytes, 1 + (take_number(&g->input) & 0xFFFF));

    if (fd >= 0)
        fake_indexed(p, &what, fd);
}

/* How long its samples are: 1, 2, 3 and so on, or as the input has it, or nowhere. */
static void tell_lengths(struct game *g, const struct fake_task *task, uint8_t how)
{
    uint64_t room = (task->slot_bytes - SLOT_HEADER_BYTES) / sizeof(uint32_t);
    uint32_t *lengths = (uint32_t *)(void *)(task->slot + 1);
    bool any = (how & 7) > 4;

    task->slot->data_off = (how & 7) == 7 ? take_number(&g->input) : SLOT_HEADER_BYTES;
    for (uint64_t i = 0; i < min_u64(task->slot->samples, room); i++)
        lengths[i] = any ? (uint32_t)take_number(&g->input) : (uint32_t)i % 7 + 1;
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
        task.slot->error_off = take_number(&g->input);
        task.slot->error_len = take(&g->input);
        task.slot->error_more = (uint32_t)take_number(&g->input);
        done.code = how & 8 ? EIO : take(&g->input);
        break;
    case 1:
        done.code = ENOBUFS;
        done.bytes = task.slot_bytes + (take_number(&g->input) << 8);
        break;
    case 2:
        done.code = ENODATA;
        break;
    case 3: /* nonsense */
        done.task += take(&g->input) & 1;
        done.samples += take(&g->input) & 1;
        done.bytes = take_number(&g->input);
        break;
    case 6: /* fewer, some of which are repeated: the last round of an iterable dataset */
        done.samples = (uint32_t)min_u64(take(&g->input), done.samples);
        task.slot->repeated = take(&g->input);
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
        fake_looked(p, 1);
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
        if (how & 2)
            send_index(g, p);
        else if (how & 4)
            fake_looked(p, how & 1 ? take(&g->input) : 1);
        else
            fake_mapped(p, how & 1 ? take(&g->input) : 0);
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

/* Events of clients: "0" to "9", ":" and so on, by threes; of workers and the world: letters. */
static void play(struct game *g)
{
    uint8_t event = take(&g->input);

    switch (event) {
    case 'w':
        work(g);
        break;
    case 'o': {
        uint8_t who = take(&g->input);
        work_one(g, who, take(&g->input));
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
    case 'm': /* nodes meet, or what they were is over */
        g->met = !g->met;
        for (struct session *s = g->sessions.head; s; s = session_next(s)) {
            if (!g->met)
                session_world_happens(s, WORLD_LOST,
                                      &(struct dl_error){.code = ESTALE, .message = "over"});
            session_ask_again(s);
        }
        break;
    default:
        play_client(g, &g->clients[event % CLIENTS], event / CLIENTS % 10);
        break;
    }
    settle(g);
}

static void begin(struct game *g)
{
    uint8_t how = take(&g->input);

    log_set_level((enum log_level)0);
    world.timers_run = how & 1;
    FUZZ_ASSERT(uv_loop_init(&g->loop) == 0);
    FUZZ_ASSERT(config_load(NULL, &g->config, NULL) == 0);
    g->config.limits.sessions = 2 + (how >> 1 & 1);
    g->config.limits.leases = 2 + (how >> 2 & 15);
    g->config.limits.workers = 6;
    *g->config.cache.dir = '\0'; /* lengths are not kept */
    g->config.open_timeout = 0;  /* killed workers are gone at once */
    g->quota = quota_new(&g->config.limits);
    budget_init(&g->budget, &g->config.limits.memory);
    g->fair.cpus = 2;
    retired_begin(&g->retired, &g->loop, &g->budget);
    g->scheduler = scheduler_new(&g->loop, session_take_turn);
    g->crew = crew_new(&g->loop, 4);
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
    FUZZ_ASSERT(g->n_sessions == 0 && quota_in_use(g->account, QUOTA_LEASES) == 0);
    for (uint32_t i = 0; i < SPECS; i++) {
        struct loader *loader = g->loaders[i];
        g->loaders[i] = NULL;
        loader_free(loader);
    }
    let_time_pass(&g->loop);
    hosts_end(g->hosts);
    g->scheduler = scheduler_free(g->scheduler);
    settle(g);
    retired_look(&g->retired, NULL);
    FUZZ_ASSERT(!g->retired.segments); /* clients have closed what they were sent */
    retired_end(&g->retired);
    settle(g);
    FUZZ_ASSERT(fakes.count == 0 && world.n == 0 && !g->tables.tables && !g->fair.parts);
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        FUZZ_ASSERT(quota_in_use(g->account, (enum quota_kind)kind) == 0);
    g->crew = crew_free(g->crew);
    FUZZ_ASSERT(uv_loop_close(&g->loop) == 0);
    hosts_free(g->hosts);
    quota_free(g->quota);
    config_deinit(&g->config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct game g = {.input = {data, len}};

    begin(&g);
    while (g.input.len > 0)
        play(&g);
    end(&g);
    return 0;
}
