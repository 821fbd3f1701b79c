/* The game of client_sim.h. The program is linked with --wrap for connect, ppoll and
 * clock_gettime: there the daemon gets its turns, and time passes. */
#include "tests/lib/client_sim.h"
#include "tests/lib/client_sim_weights.h"

#include "client/dlclient.h"
#include "proto/codec.h"
#include "proto/fdpass.h"
#include "proto/history.h"
#include "proto/position.h"
#include "proto/slot_fill.h"
#include "proto/tree.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

enum {
    SAMPLES = 4, /* of a batch */
    SLOT_BYTES = 8192,
    TREE_AT = 256,
    DATA_AT = 4096,
    STREAMS_MAX = 64,
    KEPT_MAX = 6,
    WAITS_MAX = 100000,
};

/* A stream of the session. */
struct told {
    struct stream *stream;
    uint32_t number, held;
    uint64_t epoch, first, former; /* the lowest step that another daemon lent; UINT64_MAX: none */
    bool stopped, cut;             /* by the client; by the daemon, as its world has changed */
};

/* The memory of one of the core's segments, while its daemon lives. */
struct lent {
    struct lent *next;
    uint32_t id;
    uint8_t *base;
};

struct kept {
    struct dl_batch *batch;
    uint64_t epoch, step;
};

static struct client_sim {
    struct sim sim; /* of the daemon that lives */
    struct sim_rules rules;
    struct sim_totals core_totals;
    const struct client_sim_rules *rules_of;
    struct client_sim_totals *totals;
    bool lives, greeted;
    uint64_t life, now, up_at, generation;
    int sock; /* the daemon's end; -1: nobody is connected */
    struct frame_reader in;
    struct told told[STREAMS_MAX];
    uint32_t next_stream;
    struct lent *lent;
    bool placed;                    /* PLACE came before the next START */
    struct rank_position *position; /* of the stream that was started last, in the cluster */
    uint64_t cut_epoch, cut_at;     /* the last one that was cut, and behind which step */
    struct sim_weights weights;
    /* The program. */
    struct dl_client *client;
    struct dl_loader *loader;
    struct dl_epoch *epoch;
    uint64_t number, next; /* of its epoch, and the step that is due */
    bool came[STEPS_MAX];
    struct kept current, kept[KEPT_MAX];
    bool ending;
} game;

/* SIM_ASSERT() needs that name. */
static struct sim *const sim = &game.sim;

/* ---- the daemon's messages ------------------------------------------------------------------- */

static void say_fd(const struct dl_message *msg, int fd)
{
    struct dl_buffer out = {0};

    SIM_ASSERT(message_encode(msg, &out) == 0);
    if (game.sock >= 0) {
        ssize_t n = fdpass_send(game.sock, out.data, out.len, &fd, fd >= 0, MSG_DONTWAIT);
        SIM_ASSERT(n == (ssize_t)out.len || n == -EPIPE);
    }
    buffer_deinit(&out);
}

static void say(const struct dl_message *msg)
{
    say_fd(msg, -1);
}

static struct told *told_of(const struct stream *stream)
{
    struct told *told = stream->sink;

    SIM_ASSERT(told && told->stream == stream && !told->stopped && !told->cut);
    return told;
}

static uint8_t *memory_of(const struct segment *segment)
{
    uint64_t bytes = SEGMENT_HEADER_BYTES + (uint64_t)game.rules.slots * SLOT_BYTES;
    const struct segment_header header = {.magic = SEGMENT_MAGIC,
                                          .version = SEGMENT_LAYOUT_VERSION,
                                          .id = segment->id,
                                          .bytes = bytes,
                                          .slot_bytes = SLOT_BYTES,
                                          .slots = game.rules.slots};
    struct dl_message msg = {.number = DL_MSG_SEGMENT,
                             .segment = {.id = segment->id, .bytes = bytes}};
    struct lent *lent = game.lent;
    int fd;

    while (lent && lent->id != segment->id)
        lent = lent->next;
    if (lent)
        return lent->base;
    lent = must_alloc(sizeof *lent);
    fd = memfd_create("client_sim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SIM_ASSERT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    SIM_ASSERT(pwrite(fd, &header, sizeof header, 0) == sizeof header);
    lent->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SIM_ASSERT(lent->base != MAP_FAILED);
    SIM_ASSERT(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    lent->id = segment->id;
    lent->next = game.lent;
    game.lent = lent;
    say_fd(&msg, fd);
    close(fd);
    return lent->base;
}

/* The step's number is in all of the batch. */
static void fill(uint8_t *slot, uint64_t epoch, uint64_t step)
{
    struct slot_header *header = (struct slot_header *)(void *)slot;
    uint64_t indices[SAMPLES];
    struct tree tree = {0};

    for (uint32_t i = 0; i < SAMPLES; i++)
        indices[i] = epoch << 32 | (step * SAMPLES + i);
    SIM_ASSERT(slot_prepare(slot, SLOT_BYTES,
                            &(struct slot_task){.generation = ++game.generation,
                                                .epoch = epoch,
                                                .step = step,
                                                .indices = indices,
                                                .samples = SAMPLES}));
    SIM_ASSERT(tree_add_tensor(&tree, NULL, DL_DTYPE_UINT8, 1, (const uint64_t[]){SAMPLES}) == 0);
    tree.nodes[0].offset = DATA_AT;
    header->tree_off = TREE_AT;
    header->tree_len = (uint32_t)tree_encoded_bytes(&tree);
    header->tree_count = tree.count;
    header->data_off = DATA_AT;
    header->used = DATA_AT + SAMPLES;
    tree_encode(&tree, slot + TREE_AT);
    tree_deinit(&tree);
}

static void tell_step(struct sim *of, struct stream *stream, struct step *step, bool fault)
{
    struct told *told = told_of(stream);
    struct dl_descriptor d = {.step = step->number, .samples = SAMPLES, .bytes = DATA_AT + SAMPLES};
    struct dl_message msg = {.number = DL_MSG_DELIVER};

    (void)of;
    told->held++;
    if (fault) {
        msg = (struct dl_message){.number = DL_MSG_FAULT,
                                  .fault = {.stream = told->number,
                                            .step = step->number,
                                            .code = EIO,
                                            .message = span_str("it cannot be read")}};
        say(&msg);
        return;
    }
    uint8_t *base = memory_of(step->segment);
    d.segment = step->segment->id;
    d.offset = slot_offset(SLOT_BYTES, step->slot);
    fill(base + d.offset, told->epoch, step->number);
    d.generation = game.generation;
    msg.deliver.stream = told->number;
    msg.deliver.descriptors = (struct dl_span){(const uint8_t *)&d, sizeof d};
    say(&msg);
}

static void tell_starving(struct sim *of, struct stream *stream, const struct dl_error *err)
{
    struct dl_message msg = {.number = DL_MSG_FAULT,
                             .fault = {.stream = told_of(stream)->number,
                                       .step = UINT64_MAX,
                                       .code = (uint64_t)err->code,
                                       .path = span_str(err->path),
                                       .message = span_str(err->message)}};

    (void)of;
    say(&msg);
}

static void tell_finish(struct sim *of, struct stream *stream)
{
    (void)of;
    say(&(struct dl_message){.number = DL_MSG_FINISHED,
                             .finished = {.stream = told_of(stream)->number}});
}

static const struct sim_ears ears = {tell_step, tell_starving, tell_finish};

/* ---- the client's messages ------------------------------------------------------------------- */

static struct told *find_told(uint64_t number)
{
    struct told *told = game.told;

    while (told < game.told + STREAMS_MAX && (!told->stream || told->number != number))
        told++;
    SIM_ASSERT(told < game.told + STREAMS_MAX); /* it names what it was told of */
    return told;
}

static void drop_told(struct told *told)
{
    core_end(&sim->core, told->stream);
    *told = (struct told){0};
}

static void on_open(const struct dl_msg_open *open)
{
    static const uint8_t parts[40] = {1};
    struct dl_message msg = {.number = DL_MSG_OPENED};

    msg.opened = (struct dl_msg_opened){.request = open->request,
                                        .loader = game.life + 6,
                                        .label = span_str("digits"),
                                        .length = 1000,
                                        .in_order = !game.rules.any_order,
                                        .iterable = game.rules.iterable,
                                        .workers = game.rules.iterable ? game.rules.workers : 0,
                                        .batch = SAMPLES,
                                        .seed = 42,
                                        .credits = game.rules.credits,
                                        .parts = {parts, sizeof parts}};
    say(&msg);
}

static void drop_position(void)
{
    if (game.position)
        munmap(game.position, POSITION_BYTES);
    game.position = NULL;
}

/* POSITION, and where the rank goes on: behind the last step that its program was given. */
static uint64_t place_rank(const struct dl_msg_start *start)
{
    struct dl_message msg = {.number = DL_MSG_POSITION,
                             .position = {.request = start->request, .bytes = POSITION_BYTES}};
    int fd = memfd_create("position", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct history before;

    SIM_ASSERT(game.placed && start->world == 0 && start->rank == 0 && start->step == 0);
    SIM_ASSERT(history_read(start->before, &before) && before.n <= 1);
    SIM_ASSERT(fd >= 0 && ftruncate(fd, POSITION_BYTES) == 0);
    SIM_ASSERT(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    drop_position();
    game.position = mmap(NULL, POSITION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SIM_ASSERT(game.position != MAP_FAILED);
    say_fd(&msg, fd);
    close(fd);
    game.placed = false;
    game.totals->worlds += before.n;
    uint64_t first = before.n > 0 ? before.stretches[0].steps : 0;
    SIM_ASSERT(first == game.next);
    SIM_ASSERT(start->epoch != game.cut_epoch || first == game.cut_at);
    game.cut_epoch = UINT64_MAX;
    return first;
}

/* The nodes meet again: batches that were not used by now are discarded. */
static void change_world(void)
{
    struct dl_message msg = {.number = DL_MSG_FAULT};

    for (struct told *told = game.told; told < game.told + STREAMS_MAX; told++) {
        if (!told->stream || told->stopped || told->cut)
            continue;
        uint64_t behind = position_close(game.position);
        SIM_ASSERT(behind == 0 || behind == game.next);
        told->cut = true;
        game.cut_epoch = told->epoch;
        game.cut_at = behind > 0 ? behind : told->first;
        core_stop(&sim->core, told->stream);
        msg.fault = (struct dl_msg_fault){.stream = told->number,
                                          .step = UINT64_MAX,
                                          .code = ESTALE,
                                          .final = 1,
                                          .at_once = 1,
                                          .path = span_str("world"),
                                          .message = span_str("changed")};
        say(&msg);
    }
}

static void on_start(const struct dl_msg_start *start)
{
    struct told *told = game.told;
    struct stream_params params = {.owner = &game,
                                   .epoch = start->epoch,
                                   .world = 1,
                                   .steps = STEPS_UNKNOWN,
                                   .first = start->step,
                                   .credits = (uint32_t)start->credits,
                                   .replicas = game.rules.iterable ? game.rules.workers : 0,
                                   .any_order = game.rules.any_order,
                                   .bypass = UINT64_MAX};
    struct dl_error err = {0};
    struct dl_message msg = {.number = DL_MSG_STARTED};

    if (game.rules_of->cluster)
        params.first = place_rank(start);
    sim_weights_start(&game.weights, sim, start, say);
    snprintf(params.job, sizeof params.job, "%.*s", (int)start->job.len,
             (const char *)start->job.data);
    SIM_ASSERT(start->loader == game.life + 6 && core_agree(&sim->core, &params, &err) == 0);
    struct stream *stream = core_take(&sim->core, &params);
    sim_execute(sim);
    if (!stream)
        stream = sim_add_stream(sim, params);
    SIM_ASSERT(stream);
    while (told->stream)
        told++;
    SIM_ASSERT(told < game.told + STREAMS_MAX);
    *told = (struct told){.stream = stream,
                          .number = ++game.next_stream,
                          .epoch = start->epoch,
                          .first = params.first,
                          .former = start->former_lease};
    core_begin(&sim->core, stream, &params, told, game.now);
    game.totals->again += params.first > 0;
    msg.started = (struct dl_msg_started){.request = start->request,
                                          .stream = told->number,
                                          .epoch = start->epoch,
                                          .first = params.first,
                                          .world = game.rules_of->cluster,
                                          .steps = game.rules.steps,
                                          .samples = game.rules.steps * SAMPLES};
    say(&msg);
}

static void on_steps(uint64_t number, struct dl_span steps, bool pins)
{
    struct told *told = find_told(number);

    for (size_t at = 0; at < steps.len; at += sizeof(uint64_t)) {
        uint64_t step;

        memcpy(&step, steps.data + at, sizeof step);
        if (pins) {
            SIM_ASSERT(core_pin(&sim->core, told->stream, step, game.now));
            continue;
        }
        SIM_ASSERT(told->held > 0 && core_release(&sim->core, told->stream, step, game.now));
        told->held--;
    }
    if (told->stopped && told->held == 0)
        drop_told(told);
}

static void on_stop(uint64_t number)
{
    struct told *told = find_told(number);

    SIM_ASSERT(!told->stopped);
    told->stopped = true;
    if (!told->cut)
        core_stop(&sim->core, told->stream);
    if (told->held == 0)
        drop_told(told);
}

/* Each is higher than the one before, and below what this daemon lends. */
static void on_former_lease(const struct dl_msg_former_lease *msg)
{
    struct told *told = find_told(msg->stream);

    SIM_ASSERT(game.rules.job && told->former != UINT64_MAX && msg->step > told->former);
    told->former = msg->step;
    game.totals->former++;
}

static bool is_read(void)
{
    for (const struct told *told = game.told; told < game.told + STREAMS_MAX; told++)
        if (told->stream && !told->stopped && !told->cut)
            return true;
    return false;
}

/* Nobody reads it from this daemon. */
static void refuse_change(uint64_t request)
{
    say(&(struct dl_message){.number = DL_MSG_ERROR,
                             .error = {.request = request, .code = EAGAIN}});
}

static void on_message(const struct dl_message *msg, int fd)
{
    SIM_ASSERT(game.greeted == (msg->number != DL_MSG_HELLO));
    if ((msg->number == DL_MSG_MIX || msg->number == DL_MSG_WEIGHTS) && !is_read()) {
        refuse_change(msg->number == DL_MSG_MIX ? msg->mix.request : msg->weights.request);
        return;
    }
    if (sim_weights_take(&game.weights, sim, msg, fd, game.life + 6, game.number, say))
        return;
    switch (msg->number) {
    case DL_MSG_HELLO:
        game.greeted = true;
        say(&(struct dl_message){.number = DL_MSG_WELCOME,
                                 .welcome = {.version = DL_PROTOCOL_VERSION,
                                             .agent = span_str("sim"),
                                             .session = 1,
                                             .life = game.life}});
        break;
    case DL_MSG_OPEN:
        on_open(&msg->open);
        break;
    case DL_MSG_START:
        on_start(&msg->start);
        break;
    case DL_MSG_RELEASE:
        on_steps(msg->release.stream, msg->release.steps, false);
        break;
    case DL_MSG_PIN:
        on_steps(msg->pin.stream, msg->pin.steps, true);
        break;
    case DL_MSG_STOP:
        on_stop(msg->stop.stream);
        break;
    case DL_MSG_PLACE:
        SIM_ASSERT(game.rules_of->cluster && msg->place.rank == 0);
        game.placed = true;
        break;
    case DL_MSG_FORMER_LEASE:
        on_former_lease(&msg->former_lease);
        break;
    default:
        SIM_ASSERT(msg->number == DL_MSG_CLOSE);
    }
}

static void listen_to_client(void)
{
    struct dl_error err = {0};
    struct dl_message msg;
    struct dl_span payload;

    while (game.sock >= 0 && fdpass_recv(game.sock, &game.in, MSG_DONTWAIT) > 0)
        while (frame_reader_next(&game.in, &payload) > 0) {
            SIM_ASSERT(message_decode(payload.data, payload.len, FROM_CLIENT, &msg, &err) == 0);
            _cleanup_fd_ int fd = message_fds(msg.number) > 0 ? frame_reader_take_fd(&game.in) : -1;
            on_message(&msg, fd);
        }
}

/* ---- the daemon's life ----------------------------------------------------------------------- */

static void daemon_begin(void)
{
    uint64_t seed = sim->seed, draws = sim->draws;

    game.life++;
    game.lives = true;
    *sim = (struct sim){.rules = &game.rules,
                        .ears = &ears,
                        .totals = &game.core_totals,
                        .seed = seed,
                        .draws = draws,
                        .now = game.now,
                        .ending = game.ending};
    sim_begin(sim);
}

/* As if it were killed: without a word, after half of one, or after its last. */
static void daemon_end(void)
{
    struct dl_message word = {.number = DL_MSG_ERROR,
                              .error = {.code = ESHUTDOWN, .message = span_str("it restarts")}};
    uint32_t how = sim_draw(sim, 4);

    if (game.greeted && how == 1) {
        say(&word);
        game.totals->words++;
    } else if (game.greeted && how == 2 && game.sock >= 0) {
        (void)!send(game.sock, "\x20\0", 2, MSG_NOSIGNAL | MSG_DONTWAIT);
        game.totals->cuts++;
    }
    for (struct told *told = game.told; told < game.told + STREAMS_MAX; told++)
        if (told->stream)
            drop_told(told);
    sim_close(sim);
    while (game.lent) {
        struct lent *lent = game.lent;

        game.lent = lent->next;
        munmap(lent->base, SEGMENT_HEADER_BYTES + (uint64_t)game.rules.slots * SLOT_BYTES);
        free(lent);
    }
    drop_position();
    sim_weights_forget(&game.weights);
    game.placed = false;
    close_fdp(&game.sock);
    frame_reader_deinit(&game.in);
    game.in = (struct frame_reader){0};
    game.lives = game.greeted = false;
    game.up_at = game.now + sim_draw(sim, 2000) * SIM_MS;
    game.totals->kills++;
}

/* Some event of the daemon's. */
static void daemon_turn(void)
{
    if (!game.lives && game.now >= game.up_at)
        daemon_begin();
    if (!game.lives)
        return;
    sim->now = game.now;
    sim->ending = game.ending;
    listen_to_client();
    sim_work(sim, sim_draw(sim, game.rules.workers));
    if (sim_draw(sim, 3) == 0 || game.ending)
        sim_settle_all(sim);
    sim_pump(sim);
    if (game.rules_of->cluster && !game.ending && sim_draw(sim, 100) == 1)
        change_world();
    if (game.rules_of->mix && !game.ending && is_read() && sim_draw(sim, 60) == 1)
        sim_weights_change(&game.weights, sim, game.life + 6, say);
    if (!game.rules.calm && !game.ending && sim_draw(sim, 150) == 1)
        daemon_end();
}

/* ---- what is linked in the place of system calls --------------------------------------------- */

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len)
{
    int pair[2];

    (void)address;
    (void)len;
    if (!game.lives) {
        errno = ECONNREFUSED;
        return -1;
    }
    SIM_ASSERT(game.sock < 0);
    SIM_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    SIM_ASSERT(dup3(pair[1], fd, O_CLOEXEC) == fd);
    close(pair[1]);
    game.sock = pair[0];
    return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    (void)clock;
    *ret = (struct timespec){.tv_sec = (time_t)(game.now / (1000 * SIM_MS)),
                             .tv_nsec = (long)(game.now % (1000 * SIM_MS))};
    return 0;
}

int __real_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const void *mask)
{
    uint64_t end = UINT64_MAX;

    if (timeout)
        end = game.now + (uint64_t)timeout->tv_sec * 1000 * SIM_MS + (uint64_t)timeout->tv_nsec;
    for (uint32_t turns = 0;; turns++) {
        game.now +=
            SIM_MS; /* also where it is ready at once, as the timer of a client that waits is */
        daemon_turn();
        int ready = __real_ppoll(fds, n, &(struct timespec){0}, mask);
        if (ready != 0 || game.now >= end)
            return ready;
        SIM_ASSERT(turns < WAITS_MAX); /* nobody waits for ever */
    }
}

/* ---- the program ----------------------------------------------------------------------------- */

/* What is in a batch stays there. */
static void look(const struct kept *kept)
{
    size_t n;
    const uint64_t *indices = dl_batch_indices(kept->batch, &n);

    SIM_ASSERT(n == SAMPLES && dl_batch_step(kept->batch) == kept->step);
    for (uint32_t i = 0; i < SAMPLES; i++)
        SIM_ASSERT(indices[i] == (kept->epoch << 32 | (kept->step * SAMPLES + i)));
}

static void let_go(struct kept *kept)
{
    if (!kept->batch)
        return;
    look(kept);
    dl_batch_release(kept->batch);
    kept->batch = NULL;
}

static void pin_current(void)
{
    struct kept *kept = game.kept;

    while (kept < game.kept + KEPT_MAX && kept->batch)
        kept++;
    if (kept == game.kept + KEPT_MAX || !game.current.batch)
        return;
    SIM_ASSERT(dl_batch_pin(game.current.batch) == 0);
    *kept = game.current;
    game.current.batch = NULL;
    game.totals->pinned++;
}

static void note_step(uint64_t step)
{
    SIM_ASSERT(step < STEPS_MAX && !game.came[step]);
    SIM_ASSERT(game.rules.any_order || step >= game.next);
    SIM_ASSERT(game.rules.any_order || game.rules.iterable || step == game.next);
    game.came[step] = true;
    game.next = step + 1;
}

static void start_epoch(void)
{
    bool cluster = game.rules_of->cluster;
    const struct dl_epoch_options options = {.epoch = game.number,
                                             .world = cluster ? DL_WORLD_CLUSTER : 0,
                                             .follow = cluster ? DL_FOLLOW_ANY : DL_FOLLOW_NOT,
                                             .job = game.rules.job ? "job" : NULL};

    memset(game.came, 0, sizeof game.came);
    game.next = 0;
    SIM_ASSERT(dl_epoch_start(game.loader, &options, &game.epoch) == 0);
}

static void end_epoch(void)
{
    if (game.current.batch)
        look(&game.current);
    game.current.batch = NULL;
    game.epoch = dl_epoch_end(game.epoch);
    game.number++;
}

static void take_next(int64_t timeout_ns)
{
    struct dl_batch *batch = NULL;

    if (game.current.batch)
        look(&game.current);
    game.current.batch = NULL;
    int r = dl_epoch_next(game.epoch, timeout_ns, &batch);
    SIM_ASSERT(dl_client_is_usable(game.client));
    if (r == DL_END) {
        for (uint64_t step = 0; step < STEPS_MAX; step++)
            SIM_ASSERT(game.came[step] || !sim_exists(sim, game.number, 0, step));
        game.totals->ended++;
        end_epoch();
    } else if (r == 0) {
        game.current = (struct kept){batch, game.number, dl_batch_step(batch)};
        note_step(game.current.step);
        look(&game.current);
        game.totals->batches++;
    } else if (dl_epoch_failed_step(game.epoch) != DL_UNKNOWN) {
        SIM_ASSERT(r == -EIO);
        note_step(dl_epoch_failed_step(game.epoch));
        game.totals->faults++;
    } else {
        SIM_ASSERT(r == -EAGAIN || r == -ETIMEDOUT || r == -ENOMEM || r == -EDQUOT);
    }
}

/* Other weights; a daemon that ends meanwhile may have set them or not. */
static void change_weights(void)
{
    static const double samples[SIM_TABLES_MAX - 1][3] = {{1, 2, 3}, {0, 0, 1}, {4, 1, 1}};
    static const struct dl_mix_weight mixture[] = {{"0", 1}, {"1", 2}};
    uint64_t epoch = DL_UNKNOWN, step = DL_UNKNOWN;
    int r = game.rules_of->mix
                ? dl_loader_mix(game.loader, mixture, 2, &epoch, &step)
                : dl_loader_weights(game.loader, samples[sim_draw(sim, SIM_TABLES_MAX - 1)], 3,
                                    &epoch, &step);

    SIM_ASSERT(r == 0 || r == -EAGAIN || r == -ECONNRESET);
    SIM_ASSERT(dl_client_is_usable(game.client));
    if (r == 0)
        game.weights.known = game.weights.answered;
}

static void program_turn(void)
{
    uint32_t what = sim_draw(sim, 32);

    if (!game.epoch) {
        start_epoch();
    } else if (what == 0 && sim_draw(sim, 4) == 0) {
        game.totals->stopped++;
        end_epoch();
    } else if (what == 1 && (game.rules_of->mix || game.rules_of->tables)) {
        change_weights();
    } else if (what < 4) {
        pin_current();
    } else if (what < 8) {
        let_go(&game.kept[sim_draw(sim, KEPT_MAX)]);
    } else if (what < 10) {
        SIM_ASSERT(dl_client_dispatch(game.client) == 0);
    } else {
        take_next(what < 20 ? 0 : (int64_t)(sim_draw(sim, 50) * SIM_MS));
    }
}

/* Not all is given back. */
static bool has_streams(void)
{
    for (const struct told *told = game.told; told < game.told + STREAMS_MAX; told++)
        if (told->stream)
            return true;
    return false;
}

static void program_end(void)
{
    game.ending = true;
    for (uint32_t i = 0; i < KEPT_MAX; i++)
        let_go(&game.kept[i]);
    while (game.epoch)
        take_next(-1);
    for (uint32_t turns = 0; turns == 0 || has_streams(); turns++) {
        SIM_ASSERT(turns < WAITS_MAX && dl_client_dispatch(game.client) == 0);
        game.now += SIM_MS;
        daemon_turn();
    }
    dl_loader_close(game.loader);
    dl_client_close(game.client);
}

void client_sim_play(const struct client_sim_rules *rules, uint64_t seed, uint64_t events,
                     struct client_sim_totals *totals)
{
    game = (struct client_sim){.sock = -1,
                               .cut_epoch = UINT64_MAX,
                               .rules_of = rules,
                               .totals = totals,
                               .now = 1000 * SIM_MS,
                               .rules = {.ranks = 1,
                                         .workers = rules->workers,
                                         .steps = rules->steps,
                                         .credits = rules->credits,
                                         .slots = rules->slots,
                                         .segments = rules->segments,
                                         .retries = 1,
                                         .any_order = rules->any_order,
                                         .iterable = rules->iterable,
                                         .job = rules->job,
                                         .calm = rules->calm}};
    sim->seed = seed;
    daemon_begin();
    SIM_ASSERT(dl_client_connect(&game.client, "/sim", "sim") == 0);
    SIM_ASSERT(dl_loader_open(game.client, "name: digits", 12, "/data", &game.loader) == 0);
    for (uint64_t i = 0; i < events; i++) {
        totals->events++;
        game.now += SIM_MS;
        if (sim_draw(sim, 2))
            daemon_turn();
        else
            program_turn();
    }
    program_end();
    if (game.lives)
        daemon_end();
    totals->changed += game.weights.changed;
    totals->told += game.weights.again;
    totals->tables += game.weights.brought;
}
