#include "daemon/fetcher/service.h"

#include "daemon/fetcher/confine.h"
#include "daemon/fetcher/desk.h"
#include "daemon/sandbox/sandbox.h"
#include "proto/common/bytes.h"
#include "proto/common/fd_io.h"
#include "proto/fdpass.h"
#include "proto/fetcher_control.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct service {
    uv_loop_t loop;
    uv_poll_t control;
    int fd;
    struct transfers *transfers;
    struct kept *kept;
    struct peers *peers; /* NULL: there are none */
    struct desk *desk;
    struct confine confine;
    struct remote_tally *tally;
    uv_timer_t idle;
    uint64_t linger_ms;
};

/* The next descriptor, and what it is; -1: none came. *ret_ended: the daemon has gone. */
static int service_receive(int control, struct fetcher_word *ret, bool *ret_ended)
{
    int fd;
    ssize_t n = fdpass_recv_packet(control, ret, sizeof *ret, MSG_DONTWAIT, &fd);

    *ret_ended = n <= 0 && n != -EAGAIN;
    return fd;
}

static void service_read_peers(struct service *service, int fd)
{
    struct stat st;
    _cleanup_free_ uint8_t *text = NULL;

    if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > FETCHER_PEER_LIST_MAX ||
        !(text = malloc((size_t)st.st_size)) ||
        fd_pread_all(fd, text, (size_t)st.st_size, 0) != st.st_size)
        return;
    peers_set_list(service->peers, (struct dl_span){text, (size_t)st.st_size});
}

/* Of other nodes. */
static void service_hear_of_peers(struct service *service, uint64_t what, int fd)
{
    if (service->peers && what == FETCHER_LISTENER) {
        peers_listen(service->peers, fd);
        return;
    }
    if (service->peers && what == FETCHER_PEER_LIST)
        service_read_peers(service, fd);
    close(fd);
}

static void service_on_control(uv_poll_t *poll, int status, int events)
{
    struct service *service = container_of(poll, struct service, control);
    struct fetcher_word word = {.what = FETCHER_WORKER};
    bool ended;
    int fd = service_receive(service->fd, &word, &ended);

    (void)status, (void)events;
    if (fd >= 0 && word.what != FETCHER_WORKER) {
        service_hear_of_peers(service, word.what, fd);
        return;
    }
    /* What reads what is there by now is the process that the worker's successor asks. */
    bool stale = fd >= 0 && transfers_are_stale(service->transfers);
    if (fd >= 0 && !desk_is_used(service->desk) && (stale || confine_is_stale(&service->confine))) {
        close(fd);
        ended = true;
    } else if (fd >= 0) {
        uv_timer_stop(&service->idle);
        desk_add(service->desk, fd, word.loader);
    }
    if (ended)
        uv_stop(&service->loop);
}

static void service_on_idle(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

static void service_on_unused(void *owner)
{
    struct service *service = owner;

    if (service->linger_ms != UINT64_MAX)
        uv_timer_start(&service->idle, service_on_idle, service->linger_ms, 0);
}

/* Large objects have a descriptor each. */
static void service_raise_files(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* Without them the store is asked for all. */
static void service_begin_peers(struct service *service)
{
    struct dl_error err = {0};

    if (peers_new(&service->loop, service->kept, service->tally, &service->peers, &err) < 0)
        fprintf(stderr, "dloaderd: %s: %s; other nodes are not asked for blocks\n", err.path,
                err.message);
    desk_set_peers(service->desk, service->peers);
}

static int service_begin(struct service *service, const struct remote_service *options)
{
    struct dl_error err = {0};
    struct networks denied = {0};
    const char *wrong;
    int r = 0;

    for (char *const *text = options->denied; *text && r == 0; text++)
        r = networks_parse(*text, &denied, &wrong);
    if (r == 0)
        r = transfers_new(&service->loop, service->tally, &denied, &service->transfers, &err);

    if (r < 0) {
        fprintf(stderr, "dloaderd: remote files cannot be fetched: %s: %s\n", err.path,
                err.message);
        return r;
    }
    service->kept = kept_new(&service->loop, options->cache, options->kept);
    service->desk = desk_new(&service->loop, service->transfers, service->kept, options->memory);
    if (options->peers)
        service_begin_peers(service);
    desk_on_unused(service->desk, service_on_unused, service);
    if ((r = uv_poll_init(&service->loop, &service->control, service->fd)) < 0)
        return r;
    return uv_poll_start(&service->control, UV_READABLE, service_on_control);
}

/* Of who has no HOME it is where the system says: before the process is closed in. */
static void service_find_home(void)
{
    const struct passwd *user = getenv("HOME") ? NULL : getpwuid(geteuid());

    if (user)
        (void)setenv("HOME", user->pw_dir, 1);
}

/* Nobody looks into its memory, where credentials are; but who looks for leaks at its end does. */
static void service_harden(int last)
{
    sandbox_close_from(last + 1);
    sandbox_harden();
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit of files is a disk that is full */
    if (!SANDBOX_SANITIZED)
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    service_raise_files();
}

/* Whatever is counted there the daemon sees at once. Counters begin at what they have. */
static struct remote_tally *service_map_tally(int page)
{
    struct remote_tally *tally =
        mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);

    if (tally == MAP_FAILED)
        return NULL;
    for (int i = 0; i < REMOTE_COUNTS; i++)
        if (remote_count_is_gauge(i))
            remote_tally_write(tally, i, 0);
    return tally;
}

int remote_serve(const struct remote_service *options)
{
    struct service service = {.fd = options->control, .linger_ms = options->linger_ms};

    service_harden(options->page);
    service_find_home();
    service.tally = service_map_tally(options->page);
    if (!service.tally || uv_loop_init(&service.loop) < 0)
        return 1;
    (void)uv_timer_init(&service.loop, &service.idle);
    int r = service_begin(&service, options);
    if (r == 0 && options->confined)
        confine_begin(&service.confine, transfers_identity_file(service.transfers), options->cache,
                      service.peers != NULL);
    if (r == 0)
        (void)uv_run(&service.loop, UV_RUN_DEFAULT);
    confine_deinit(&service.confine);
    desk_on_unused(service.desk, NULL, NULL);
    desk_free(service.desk);
    peers_free(service.peers);
    kept_free(service.kept);
    transfers_free(service.transfers);
    uv_close((uv_handle_t *)&service.idle, NULL);
    if (r == 0)
        uv_close((uv_handle_t *)&service.control, NULL);
    (void)uv_run(&service.loop, UV_RUN_DEFAULT); /* handles are closed */
    (void)uv_loop_close(&service.loop);
    (void)munmap(service.tally, sizeof *service.tally);
    return r < 0;
}
