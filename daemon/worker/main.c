/*
 * dloader-worker: started by dloaderd, never by hand. Closes itself off before it sees a byte of
 * anyone's data: no privileges to gain, no core file, no life without its daemon.
 *
 * With an argument it is one of the two processes between a daemon and a worker on another machine
 * (daemon/helper/link.h): --near, or --far.
 */
#include "daemon/helper/far.h"
#include "daemon/helper/near.h"
#include "daemon/worker/sandbox.h"
#include "daemon/worker/worker.h"
#include "daemon/worker/worker_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

/* ---- native datasets as its engine ------------------------------------------------------------
 */

static int worker_main_engine_open(const struct worker_open *how, void **ret, struct dl_error *err)
{
    struct fetcher *fetcher;

    int r = fetcher_new(how->spec, how->env, &fetcher, err);
    if (r == 0)
        *ret = fetcher;
    return r;
}

static void worker_main_engine_close(void *engine)
{
    fetcher_free(engine);
}

static struct worker_opened worker_main_engine_describe(const void *engine)
{
    return worker_describe_fetcher(engine);
}

static int worker_main_engine_fill(void *engine, void *slot, uint64_t slot_bytes,
                                   uint64_t *ret_used, struct dl_error *err)
{
    return fetcher_fill(engine, slot, slot_bytes, ret_used, err);
}

static void worker_main_engine_expect(void *engine, const void *slot, uint64_t slot_bytes)
{
    fetcher_expect(engine, slot, slot_bytes);
}

static void worker_main_engine_foresee(void *engine, struct dl_span indices)
{
    fetcher_foresee(engine, indices);
}

static uint64_t worker_main_engine_collate_ns(const void *engine)
{
    return fetcher_collate_ns(engine);
}

static const struct slow_watch *worker_main_engine_slowest(const void *engine)
{
    return fetcher_slowest(engine);
}

static size_t worker_main_engine_name(const void *engine, uint64_t index, char *ret, size_t room)
{
    return dataset_name(fetcher_dataset(engine), index, ret, room);
}

static void worker_main_engine_forget(void *engine, uint32_t stream)
{
    fetcher_forget(engine, stream);
}

static const struct worker_engine fetch_engine = {
    .open = worker_main_engine_open,
    .close = worker_main_engine_close,
    .describe = worker_main_engine_describe,
    .fill = worker_main_engine_fill,
    .expect = worker_main_engine_expect,
    .foresee = worker_main_engine_foresee,
    .collate_ns = worker_main_engine_collate_ns,
    .slowest = worker_main_engine_slowest,
    .name = worker_main_engine_name,
    .forget = worker_main_engine_forget,
};

/* ---- the program ------------------------------------------------------------------------------
 */

static bool worker_main_is_socket(int fd)
{
    int type;
    socklen_t len = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

/* The package may have been replaced under a daemon that runs on. One that does not say its version
 * has the first. */
static bool worker_main_speaks(const char *version)
{
    if (!version || strtol(version, NULL, 10) == DL_WORKER_VERSION)
        return true;
    fprintf(stderr,
            "dloader-worker speaks version %d of the protocol of workers, the daemon that started "
            "it %.16s; restart dloaderd, or install the same release of both\n",
            DL_WORKER_VERSION, version);
    return false;
}

int main(int argc, char **argv)
{
    const char *role = argc == 2 ? argv[1] : "";
    bool near = strcmp(role, "--near") == 0, far = strcmp(role, "--far") == 0;

    if (argc != 1 + (near || far) || !worker_main_is_socket(WORKER_SOCKET)) {
        fprintf(stderr, "dloader-worker %s is started by dloaderd, not by hand\n", DLOADER_VERSION);
        return 2;
    }
    if (!worker_main_speaks(getenv(DL_WORKER_VERSION_VARIABLE)))
        return 2;
    /* Closes descriptors that the daemon inherited by mistake. */
    sandbox_close_from(WORKER_SOCKET + 1);
    sandbox_harden();
    if (near || far)
        return near ? near_run(WORKER_SOCKET) : far_run(WORKER_SOCKET, argv[0]);
    return worker_run(WORKER_SOCKET, &fetch_engine);
}
