/*
 * Python hosts as the daemon keeps them (daemon/serve/pool/host.c), with hosts that say and do what
 * the input has: messages out of turn, numbers of workers that nobody asked for, bytes, hang-ups,
 * deaths at any moment. Some are the daemon's own, some are brought and released again. Each worker
 * ends once, and nobody hears of it after that; no host is told to end a worker that it was not
 * asked for.
 *
 * Only the processes are not real: uv_spawn() hands the host's ends to the harness.
 *
 * Input: events of a letter and a number, see play(); any other byte counts as a letter, too.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input.h"

#include "daemon/serve/pool/host.h"
#include "proto/codec.h"
#include "proto/fdpass.h"
#include "proto/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

enum { CHILDREN = 32, HOSTS = 16, TURNS = 3, DRY_TURNS = 100 };

static const char events[] = "skfhSXrcdeptbl";

struct child {
    struct host_child *record; /* borrowed; NULL: it has ended, or nobody wants to hear of it */
    const struct host *host;   /* that was brought; NULL: the daemon's own */
    bool wanted;
    bool started;
};

/* The other side of a host. */
struct fake_host {
    uv_process_t *handle; /* NULL: it was reaped, or was brought */
    struct host *brought; /* NULL: it was released, or is the daemon's own */
    uv_exit_cb exited;
    int sock;   /* owned */
    int errors; /* owned */
    bool killed;
    bool told_to_end;
    uint64_t asked; /* workers it was asked for */
    struct frame_reader reader;
};

struct game {
    struct input input;
    uv_loop_t loop;
    struct config config;
    struct hosts *hosts;
    struct child children[CHILDREN];
    uint32_t n_children;
    struct fake_host fakes[HOSTS];
    uint32_t n_fakes;
    bool inside; /* a call of the module's, from inside which nobody is called back */
    bool refuse;
};

/* The one that is played, for what stands in for libuv. */
static struct game *playing;

/* ---- in place of libuv ---------------------------------------------------------------------- */

int __wrap_uv_spawn(uv_loop_t *loop, uv_process_t *handle, const uv_process_options_t *options);
int __wrap_uv_spawn(uv_loop_t *loop, uv_process_t *handle, const uv_process_options_t *options)
{
    struct game *g = playing;
    struct fake_host *fake = &g->fakes[g->n_fakes];
    int pipe_ends[2];

    /* A handle that can be closed, as that of a process can. */
    _Static_assert(sizeof(uv_idle_t) <= sizeof *handle, "it takes the place of the process");
    FUZZ_ASSERT(uv_idle_init(loop, (uv_idle_t *)(void *)handle) == 0);
    if (g->refuse || g->n_fakes == HOSTS) {
        g->refuse = false;
        return UV_EAGAIN;
    }
    FUZZ_ASSERT(pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) == 0);
    FUZZ_ASSERT(uv_pipe_open((uv_pipe_t *)(void *)options->stdio[2].data.stream, pipe_ends[0]) ==
                0);
    *fake = (struct fake_host){.handle = handle,
                               .exited = options->exit_cb,
                               .sock = fcntl(options->stdio[3].data.fd, F_DUPFD_CLOEXEC, 3),
                               .errors = pipe_ends[1]};
    FUZZ_ASSERT(fake->sock >= 0);
    handle->pid = 100 + (int)g->n_fakes++;
    return 0;
}

int __wrap_uv_process_kill(uv_process_t *handle, int signal);
int __wrap_uv_process_kill(uv_process_t *handle, int signal)
{
    for (uint32_t i = 0; i < playing->n_fakes; i++) {
        if (playing->fakes[i].handle == handle)
            playing->fakes[i].killed = true;
    }
    (void)signal;
    return 0;
}

int __real_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    (void)timeout;
    return __real_uv_timer_start(timer, cb, UINT32_MAX, repeat); /* until time passes */
}

static void run_out(uv_handle_t *handle, void *arg)
{
    uv_timer_t *timer = (uv_timer_t *)handle;

    (void)arg;
    if (handle->type == UV_TIMER && uv_is_active(handle) && !uv_is_closing(handle))
        __real_uv_timer_start(timer, timer->timer_cb, 0, 0);
}

/* ---- who wants the workers ------------------------------------------------------------------ */

static void on_started(void *owner, int pid)
{
    struct child *child = owner;

    FUZZ_ASSERT(!playing->inside && child->wanted && child->record && pid != 0);
    child->started = true;
}

static void on_ended(void *owner, const struct host_end *end)
{
    struct child *child = owner;

    FUZZ_ASSERT(!playing->inside && child->wanted && child->record);
    FUZZ_ASSERT(!end->cause || strlen(end->cause) > 0);
    child->record = NULL;
}

static const struct host_child_events child_events = {.started = on_started, .ended = on_ended};

/* One that is there to start workers, which may have ended since; NULL: none. */
static struct host *last_brought(const struct game *g)
{
    for (uint32_t i = g->n_fakes; i-- > 0;) {
        if (g->fakes[i].brought)
            return g->fakes[i].brought;
    }
    return NULL;
}

static void bring(struct game *g)
{
    struct fake_host *fake = &g->fakes[g->n_fakes];
    struct dl_error err = {0};
    int socks[2];

    if (g->n_fakes == HOSTS)
        return;
    FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) == 0);
    *fake = (struct fake_host){.sock = socks[1], .errors = -1};
    FUZZ_ASSERT(host_adopt(g->hosts, socks[0], 100, &fake->brought, &err) == 0);
    g->n_fakes++;
}

static void start_child(struct game *g, uint8_t how)
{
    struct child *child = &g->children[g->n_children];
    struct dl_error err = {0};
    int socks[2], ends[2];

    if (g->n_children == CHILDREN)
        return;
    FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) == 0);
    FUZZ_ASSERT(pipe2(ends, O_CLOEXEC) == 0);
    child->wanted = true;
    child->host = how & 2 ? last_brought(g) : NULL;
    int r = host_start_child(
        g->hosts,
        &(struct host_child_options){.host = how & 2 ? last_brought(g) : NULL,
                                     .interpreter = how & 1 ? "/fuzz/python" : "/fuzz/python3",
                                     .sock = socks[0],
                                     .errors = ends[1],
                                     .events = &child_events,
                                     .owner = child},
        &child->record, &err);
    FUZZ_ASSERT(r == 0 || (r < 0 && err.code == -r));
    if (r == 0)
        g->n_children++;
    for (int i = 0; i < 2; i++)
        close(socks[i]), close(ends[i]);
}

static void give_up(struct child *child)
{
    if (!child->record)
        return;
    child->wanted = false;
    child->record = host_child_free(child->record);
}

/* As a loader's end does: its workers go before their host. */
static void release(struct game *g, struct fake_host *fake)
{
    for (uint32_t i = 0; i < g->n_children && fake->brought; i++) {
        if (g->children[i].host == fake->brought)
            give_up(&g->children[i]);
    }
    fake->brought = host_release(fake->brought);
}

/* ---- what hosts are told and do ------------------------------------------------------------- */

static void hear(struct fake_host *fake, const struct dl_message *msg)
{
    int fds[2];

    switch (msg->number) {
    case DL_MSG_W_FORK:
        fds[0] = frame_reader_take_fd(&fake->reader);
        fds[1] = frame_reader_take_fd(&fake->reader);
        FUZZ_ASSERT(fds[1] >= 0 && msg->w_fork.child == fake->asked);
        close(fds[0]), close(fds[1]);
        fake->asked++;
        break;
    case DL_MSG_W_KILL:
        FUZZ_ASSERT(msg->w_kill.child < fake->asked);
        break;
    default:
        FUZZ_ASSERT(!"a host is told to fork and to kill");
    }
}

static void hear_all(struct fake_host *fake)
{
    while (fake->sock >= 0) {
        struct dl_span payload;
        struct dl_message msg;
        ssize_t n = fdpass_recv(fake->sock, &fake->reader, MSG_DONTWAIT);

        if (n == -EAGAIN)
            return;
        if (n <= 0) {
            fake->told_to_end = true;
            close_fdp(&fake->sock);
            return;
        }
        while (frame_reader_next(&fake->reader, &payload) > 0) {
            FUZZ_ASSERT(message_decode(payload.data, payload.len, TO_WORKER, &msg, NULL) == 0);
            hear(fake, &msg);
        }
    }
}

static void say(struct fake_host *fake, const struct dl_message *msg)
{
    struct dl_buffer out = {0};

    FUZZ_ASSERT(message_encode(msg, &out) == 0);
    if (fake->sock >= 0)
        (void)!fdpass_send(fake->sock, out.data, out.len, NULL, 0, MSG_DONTWAIT);
    buffer_deinit(&out);
}

static void close_all(struct fake_host *fake)
{
    close_fdp(&fake->sock);
    close_fdp(&fake->errors);
    frame_reader_deinit(&fake->reader);
}

static void die(struct fake_host *fake, int64_t status, int signal)
{
    uv_process_t *handle = fake->handle;

    close_all(fake);
    if (!handle)
        return;
    fake->handle = NULL;
    fake->exited(handle, fake->killed ? 0 : status, fake->killed ? SIGKILL : signal);
}

static void settle(struct game *g)
{
    for (int i = 0; i < TURNS; i++) {
        uv_run(&g->loop, UV_RUN_NOWAIT);
        for (uint32_t k = 0; k < g->n_fakes; k++)
            hear_all(&g->fakes[k]);
    }
}

/* ---- the game ------------------------------------------------------------------------------- */

static void play_host(struct game *g, struct fake_host *fake, char event, uint8_t how)
{
    size_t len = min_u64(how & 31, g->input.len);

    switch (event) {
    case 'l':
        release(g, fake);
        break;
    case 'h':
        say(fake,
            &(struct dl_message){.number = DL_MSG_W_HOSTING,
                                 .w_hosting = {.version = how < 0x80 ? DL_WORKER_VERSION : how}});
        break;
    case 'S':
        say(fake, &(struct dl_message){.number = DL_MSG_W_STARTED,
                                       .w_started = {.child = how & 31, .pid = how & 0x80}});
        break;
    case 'X':
        say(fake, &(struct dl_message){
                      .number = DL_MSG_W_EXITED,
                      .w_exited = {.child = how & 31, .status = how >> 7, .signal = how >> 5 & 3}});
        break;
    case 'r':
        if (fake->sock >= 0)
            (void)!fdpass_send(fake->sock, g->input.data, len, NULL, 0, MSG_DONTWAIT);
        (void)take_bytes(&g->input, len, &len);
        break;
    case 'c':
        close_fdp(&fake->sock);
        break;
    case 'e':
        if (fake->errors >= 0)
            (void)!write(fake->errors, g->input.data, len);
        break;
    default:
        die(fake, how & 3, how >> 6);
        break;
    }
}

static void play(struct game *g)
{
    uint8_t byte = take(&g->input);
    uint8_t how = take(&g->input);
    char event = byte && strchr(events, byte) ? (char)byte : events[byte % (sizeof events - 1)];
    struct child *child = &g->children[how % CHILDREN];

    g->inside = event != 'd';
    switch (event) {
    case 's':
        start_child(g, how);
        break;
    case 'k':
        if (child->record)
            host_kill_child(child->record);
        break;
    case 'f':
        give_up(child);
        break;
    case 'p':
        g->refuse = true;
        break;
    case 'b':
        bring(g);
        break;
    case 't':
        uv_walk(&g->loop, run_out, NULL);
        break;
    default:
        /* The one that came last is the most likely to live. */
        if (g->n_fakes > 0)
            play_host(g, &g->fakes[g->n_fakes - 1 - (how >> 5 & 3) % g->n_fakes], event, how);
        break;
    }
    g->inside = false;
    settle(g);
}

static void end(struct game *g)
{
    for (uint32_t i = 0; i < g->n_children; i++)
        give_up(&g->children[i]);
    for (uint32_t i = 0; i < g->n_fakes; i++)
        release(g, &g->fakes[i]);
    hosts_end(g->hosts);
    for (int i = 0; i < DRY_TURNS && uv_loop_alive(&g->loop); i++) {
        settle(g);
        for (uint32_t k = 0; k < g->n_fakes; k++) {
            struct fake_host *fake = &g->fakes[k];
            if (fake->killed || fake->told_to_end || !fake->handle)
                die(fake, 0, 0);
        }
        uv_walk(&g->loop, run_out, NULL);
    }
    FUZZ_ASSERT(!uv_loop_alive(&g->loop));
    for (uint32_t i = 0; i < g->n_fakes; i++)
        close_all(&g->fakes[i]);
    hosts_free(g->hosts);
    FUZZ_ASSERT(uv_loop_close(&g->loop) == 0);
    config_deinit(&g->config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct game g = {.input = {data, len}};

    playing = &g;
    log_set_level((enum log_level)0);
    FUZZ_ASSERT(uv_loop_init(&g.loop) == 0);
    FUZZ_ASSERT(config_load(NULL, &g.config, NULL) == 0);
    g.hosts = hosts_new(&(struct hosts_options){
        .loop = &g.loop, .config = &g.config, .private = len > 0 && data[0] & 0x80});
    while (g.input.len > 0)
        play(&g);
    end(&g);
    return 0;
}
