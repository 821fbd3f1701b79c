/*
 * A Python host without Python: it speaks a host's part of the protocol and forks workers that run
 * the real worker's loop, with ranges of numbers for datasets.
 *
 *   fake_host -m dloaderd.host          as the daemon starts one
 *   fake_host --socket FD [LENGTH]     brought by a client: FD is its connection to the daemon
 *   fake_host --channel FD [LENGTH]    FD is a channel to the client, over which connections come
 *
 * LENGTH is that of its dataset. What the host does is in the name it is started by (a link named
 * HOST-MODE):
 *
 *   good      what it should
 *   mute      never says that it is ready       exit3    ends with status 3 and some last words
 *   garbage   writes garbage instead            version  speaks another version of the protocol
 *   killed    is killed before it is ready      revived  likewise, but not if LINK.dead is there
 *   late      writes garbage when it is asked for a worker
 *   unknown   tells of the end of a worker that nobody asked for
 *   unable    cannot start workers
 *   idle      is ready, but does not answer when it is asked for a worker
 *   deaf      is ready, but does not kill
 *
 * One that the daemon starts writes its environment and its directory to the file LINK.env. What a
 * worker does is in its dataset's args: {length: n, unknown: true, iterable: true, roomy: true,
 * mode: MODE, at: t} does MODE at its t-th task, from 1:
 *
 *   kill, exit3, hang   as the names say        fail     reports an error with a whole report
 *   refuse    does not open it at all       stall    opens it for ever
 *   flood     reports an error with more of a report than anybody takes
 */
#include "daemon/worker/worker.h"
#include "proto/fdpass.h"
#include "proto/segment_layout.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum { HOST_SOCKET = 3, CHILDREN_MAX = 256 };

extern char **environ;

static struct {
    const char *mode;
    int sock;    /* to the daemon; -1: to none, for the time being */
    int channel; /* to the client; -1: there is none */
    uint64_t length;
    struct frame_reader reader;
    pid_t children[CHILDREN_MAX]; /* by number; 0: none */
} host = {.sock = HOST_SOCKET, .channel = -1, .length = 100};

/* ---- a worker's dataset --------------------------------------------------------------------- */

struct fake {
    struct fetcher *fetcher; /* owned: of numbers */
    uint64_t length;
    bool iterable;
    bool roomy;
    uint64_t at;
    uint64_t tasks;
    char mode[16];
};

static uint64_t number_of(const struct value *args, const char *key, uint64_t otherwise)
{
    const struct value *v = value_get(args, key);

    return v && v->type == VALUE_INT ? (uint64_t)v->integer : otherwise;
}

static bool says(const struct value *args, const char *key)
{
    const struct value *v = value_get(args, key);

    return v && v->type == VALUE_BOOL && v->boolean;
}

static int fake_open(const struct worker_open *how, void **ret, struct dl_error *err)
{
    const struct value *args = &how->spec->dataset.config;
    bool map = args->type == VALUE_MAP;
    struct dl_spec spec = *how->spec; /* what it points to stays the other's */
    struct fake fake = {.length = host.length};

    if (map) {
        const struct value *mode = value_get(args, "mode");
        snprintf(fake.mode, sizeof fake.mode, "%s", mode ? mode->string : "");
        fake.at = number_of(args, "at", 0);
        fake.length = number_of(args, "length", host.length);
        fake.iterable = says(args, "iterable");
        fake.roomy = says(args, "roomy");
    }
    if (strcmp(fake.mode, "refuse") == 0)
        return dl_error_set(err, EINVAL, "dataset.object", "it cannot be imported");
    while (strcmp(fake.mode, "stall") == 0)
        pause();
    spec.dataset = (struct spec_dataset){.kind = DATASET_RANGE,
                                         .length = fake.iterable ? fake.length : INT64_MAX,
                                         .iterable = fake.iterable,
                                         .divide = true};
    spec.collate = (struct spec_collate){.kind = COLLATE_DEFAULT};
    int r = fetcher_new(&spec, how->env, &fake.fetcher, err);
    if (r < 0)
        return r;
    if (map && says(args, "unknown"))
        fake.length = DATASET_LENGTH_UNKNOWN;
    struct fake *kept = malloc(sizeof *kept);
    if (!kept)
        abort();
    *kept = fake;
    *ret = kept;
    return 0;
}

static void fake_close(void *engine)
{
    fetcher_free(((struct fake *)engine)->fetcher);
    free(engine);
}

/* A slot has room for no more than a beginning, as Python's has; {roomy: true}: for as many as
 * there may be. */
static struct worker_opened fake_describe(const void *engine)
{
    const struct fake *fake = engine;
    struct worker_opened opened = worker_describe_fetcher(fake->fetcher);

    opened.is_iterable = fake->iterable;
    opened.length = fake->length;
    if (!fake->iterable && !fake->roomy)
        opened.slot_bytes = SLOT_ALIGN;
    return opened;
}

static int report(void *slot, uint64_t slot_bytes, uint64_t *ret_need, size_t lines,
                  struct dl_error *err)
{
    static const char text[] = "KeyError: 'x', at sample 17", head[] = "my.errors:Broken\nbegin\n",
                      line[] = "\tline of \xff the\x1b report\n";
    struct slot_header *header = slot;
    uint64_t off = slot_indices_end(header->samples);
    uint64_t more = sizeof head - 1 + lines * (sizeof line - 1) + 3;

    *ret_need = off + sizeof text + more + 1;
    if (*ret_need > slot_bytes)
        return -ENOBUFS;
    header->error_code = EINVAL;
    header->error_off = off;
    header->error_len = sizeof text - 1;
    header->error_more = (uint32_t)more;
    char *at = (char *)slot + off;
    memcpy(at, text, sizeof text);
    at += sizeof text;
    memcpy(at, head, sizeof head - 1);
    at += sizeof head - 1;
    for (size_t i = 0; i < lines; i++, at += sizeof line - 1)
        memcpy(at, line, sizeof line - 1);
    memcpy(at, "end", sizeof "end");
    return dl_error_set(err, EINVAL, "dataset", "%s", text);
}

static void misbehave(const struct fake *fake)
{
    if (strcmp(fake->mode, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(fake->mode, "exit3") == 0) {
        fprintf(stderr, "out of\ncheese\n");
        _exit(3);
    }
    while (strcmp(fake->mode, "hang") == 0)
        pause();
}

/* Numbers that the range has, whatever is asked for; and so many as there are keys. */
static void disguise(struct slot_header *header, uint64_t *indices, uint64_t *saved, uint32_t n)
{
    memcpy(saved, indices, n * sizeof *saved);
    if (indices[0] == SLOT_KEYS_MARK) {
        header->samples = (uint32_t)indices[2];
        saved[0] = indices[2];
    }
    for (uint32_t i = 0; i < n; i++)
        indices[i] &= INT64_MAX - 1;
}

static int fake_fill(void *engine, void *slot, uint64_t slot_bytes, uint64_t *ret_used,
                     struct dl_error *err)
{
    struct fake *fake = engine;
    struct slot_header *header = slot;
    uint32_t n = header->samples;

    if (++fake->tasks == fake->at) {
        misbehave(fake);
        bool flood = strcmp(fake->mode, "flood") == 0;
        if (flood || strcmp(fake->mode, "fail") == 0) {
            int r = report(slot, slot_bytes, ret_used, flood ? 10000 : 1, err);
            fake->tasks -= r == -ENOBUFS; /* it will be asked again */
            return r;
        }
    }
    if (fake->iterable)
        return fetcher_fill(fake->fetcher, slot, slot_bytes, ret_used, err);
    uint64_t *saved = malloc(n * sizeof *saved);
    if (!saved)
        abort();
    disguise(header, slot_indices(slot), saved, n);
    int r = fetcher_fill(fake->fetcher, slot, slot_bytes, ret_used, err);
    memcpy(slot_indices(slot), saved, header->samples * sizeof *saved);
    free(saved);
    return r;
}

static uint64_t fake_collate_ns(const void *engine)
{
    return fetcher_collate_ns(((const struct fake *)engine)->fetcher);
}

static void fake_forget(void *engine, uint32_t stream)
{
    fetcher_forget(((struct fake *)engine)->fetcher, stream);
}

static const struct worker_engine fake_engine = {
    .open = fake_open,
    .close = fake_close,
    .describe = fake_describe,
    .fill = fake_fill,
    .collate_ns = fake_collate_ns,
    .forget = fake_forget,
};

/* ---- the host ------------------------------------------------------------------------------- */

static bool is_mode(const char *mode)
{
    return strcmp(host.mode, mode) == 0;
}

static void send_message(const struct dl_message *msg)
{
    struct dl_buffer out = {0};

    /* A daemon that has gone shows in the socket's end. */
    if (message_encode(msg, &out) < 0 ||
        (fdpass_send(host.sock, out.data, out.len, NULL, 0, 0) < 0 && host.channel < 0))
        _exit(0);
    buffer_deinit(&out);
}

static void send_garbage(void)
{
    (void)!write(host.sock, "\377\377\377\377garbage", 11);
}

static void be_worker(int sock, int errors, const sigset_t *old)
{
    frame_reader_deinit(&host.reader);
    close(host.sock);
    close(host.channel);
    (void)sigprocmask(SIG_SETMASK, old, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(errors, STDERR_FILENO) < 0)
        _exit(1);
    close(errors);
    _exit(worker_run(sock, &fake_engine));
}

static void start_worker(uint64_t child, const sigset_t *old)
{
    int sock = frame_reader_take_fd(&host.reader), errors = frame_reader_take_fd(&host.reader);

    if (is_mode("late"))
        send_garbage();
    if (is_mode("unknown"))
        send_message(
            &(struct dl_message){.number = DL_MSG_W_EXITED, .w_exited = {.child = child + 77}});
    while (is_mode("late") || is_mode("unknown") || is_mode("idle"))
        pause();
    pid_t pid = is_mode("unable") || child >= CHILDREN_MAX ? 0 : fork();
    if (pid == 0 && !is_mode("unable") && child < CHILDREN_MAX)
        be_worker(sock, errors, old);
    close(sock);
    close(errors);
    if (pid > 0)
        host.children[child] = pid;
    send_message(
        &(struct dl_message){.number = DL_MSG_W_STARTED,
                             .w_started = {.child = child, .pid = pid > 0 ? (uint64_t)pid : 0}});
}

static void fake_host_handle(const struct dl_message *msg, const sigset_t *old)
{
    uint64_t child = msg->w_kill.child;

    if (msg->number == DL_MSG_W_FORK)
        start_worker(msg->w_fork.child, old);
    else if (msg->number == DL_MSG_W_KILL && child < CHILDREN_MAX && host.children[child] > 0 &&
             !is_mode("deaf"))
        (void)kill(host.children[child], SIGKILL);
}

/* False: the daemon has gone. */
static bool read_socket(const sigset_t *old)
{
    struct dl_span payload;
    struct dl_message msg;
    struct dl_error err;

    if (fdpass_recv(host.sock, &host.reader, 0) <= 0)
        return false;
    while (frame_reader_next(&host.reader, &payload) > 0) {
        if (message_decode(payload.data, payload.len, TO_WORKER, &msg, &err) < 0)
            return false;
        fake_host_handle(&msg, old);
    }
    return true;
}

static void reap(void)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (uint32_t i = 0; i < CHILDREN_MAX; i++) {
            if (host.children[i] != pid)
                continue;
            host.children[i] = 0;
            send_message(&(struct dl_message){
                .number = DL_MSG_W_EXITED,
                .w_exited = {.child = i,
                             .status = WIFEXITED(status) ? (uint64_t)WEXITSTATUS(status) : 0,
                             .signal = WIFSIGNALED(status) ? (uint64_t)WTERMSIG(status) : 0}});
        }
    }
}

static void end_workers(void)
{
    for (uint32_t i = 0; i < CHILDREN_MAX; i++) {
        if (host.children[i] > 0) {
            (void)kill(host.children[i], SIGKILL);
            (void)waitpid(host.children[i], NULL, 0);
            host.children[i] = 0;
        }
    }
}

static void write_surroundings(const char *link)
{
    char path[4096], cwd[4096];

    snprintf(path, sizeof path, "%s.env", link);
    FILE *file = fopen(path, "we");
    if (!file)
        return;
    for (char **line = environ; *line; line++)
        fprintf(file, "%s\n", *line);
    fprintf(file, "CWD=%s\n", getcwd(cwd, sizeof cwd) ? cwd : "?");
    fclose(file);
}

/* As by somebody else; "revived" leaves a mark for the next one. */
static void be_killed(const char *link)
{
    char path[4096];

    snprintf(path, sizeof path, "%s.dead", link);
    if (is_mode("revived")) {
        if (access(path, F_OK) == 0)
            return;
        FILE *file = fopen(path, "we");
        if (!file)
            abort();
        fclose(file);
    }
    (void)raise(SIGKILL);
}

static void greet(void)
{
    while (is_mode("mute"))
        pause();
    if (is_mode("garbage"))
        send_garbage();
    while (is_mode("garbage"))
        pause();
    send_message(&(struct dl_message){
        .number = DL_MSG_W_HOSTING,
        .w_hosting = {.version = DL_WORKER_VERSION + (unsigned)is_mode("version")}});
}

/* The daemon has gone; what is left of it here goes, too. */
static void part(void)
{
    end_workers();
    frame_reader_deinit(&host.reader);
    host.reader = (struct frame_reader){0};
    close_fdp(&host.sock);
}

/* A connection to the next daemon. False: the client has gone. */
static bool read_channel(void)
{
    _cleanup_(frame_reader_deinit) struct frame_reader reader = {0};

    if (fdpass_recv(host.channel, &reader, 0) <= 0)
        return false;
    part();
    host.sock = frame_reader_take_fd(&reader);
    greet();
    return true;
}

static void name_mode(const char *link)
{
    const char *base = strrchr(link, '/') ? strrchr(link, '/') + 1 : link;

    host.mode = strrchr(base, '-') ? strrchr(base, '-') + 1 : "good";
}

static void begin(const char *link)
{
    write_surroundings(link);
    if (is_mode("exit3")) {
        fprintf(stderr, "No module named\n dloaderd.host\n");
        exit(3);
    }
    if (is_mode("killed") || is_mode("revived"))
        be_killed(link);
}

/* Whether it knows what to do. */
static bool take_arguments(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "-m") == 0 && strcmp(argv[2], "dloaderd.host") == 0) {
        begin(argv[0]);
        return true;
    }
    if (argc < 3 || (strcmp(argv[1], "--socket") != 0 && strcmp(argv[1], "--channel") != 0))
        return false;
    host.length = argc > 3 ? strtoull(argv[3], NULL, 10) : host.length;
    host.sock = strcmp(argv[1], "--socket") == 0 ? atoi(argv[2]) : -1;
    host.channel = host.sock < 0 ? atoi(argv[2]) : -1;
    return true;
}

static void serve(int signals, const sigset_t *old)
{
    for (bool alive = true; alive;) {
        struct pollfd fds[3] = {{.fd = host.sock, .events = POLLIN},
                                {.fd = host.channel, .events = POLLIN},
                                {.fd = signals, .events = POLLIN}};
        struct signalfd_siginfo info;
        if (poll(fds, 3, -1) < 0 && errno != EINTR)
            break;
        if (fds[2].revents && read(signals, &info, sizeof info) > 0)
            reap();
        if (fds[0].revents && !read_socket(old)) {
            part();
            alive = host.channel >= 0;
        }
        if (fds[1].revents)
            alive = read_channel();
    }
    part();
}

int main(int argc, char **argv)
{
    sigset_t mask, old;

    name_mode(argv[0]);
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &mask, &old);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!take_arguments(argc, argv)) {
        fprintf(stderr, "fake_host is started by dloaderd, or brought by a client\n");
        return 2;
    }
    if (host.sock >= 0)
        greet();
    int signals = signalfd(-1, &mask, SFD_CLOEXEC);
    serve(signals, &old);
    close(signals);
    return 0;
}
