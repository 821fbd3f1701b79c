/*
 * dloader-worker: started by dloaderd, never by hand. Closes itself off before it sees a byte of
 * anyone's data: no privileges to gain, no core file, no life without its daemon.
 */
#include "daemon/worker/sandbox.h"
#include "daemon/worker/worker.h"

#include <stdio.h>
#include <sys/socket.h>

enum { WORKER_SOCKET = 3 };

/* ---- native datasets as its engine ------------------------------------------------------------
 */

static int engine_open(const struct worker_open *how, void **ret, struct dl_error *err)
{
    struct fetcher *fetcher;

    int r = fetcher_new(how->spec, how->env, &fetcher, err);
    if (r == 0)
        *ret = fetcher;
    return r;
}

static void engine_close(void *engine)
{
    fetcher_free(engine);
}

static bool engine_is_iterable(const void *engine)
{
    return fetcher_is_iterable(engine);
}

static uint64_t engine_length(const void *engine)
{
    return fetcher_length(engine);
}

static uint64_t engine_content(const void *engine)
{
    return fetcher_dataset(engine)->content;
}

static bool engine_leaps(const void *engine)
{
    return fetcher_dataset(engine)->leaps;
}

static uint64_t engine_slot_bytes(const void *engine)
{
    return fetcher_slot_bytes(engine);
}

static int engine_fill(void *engine, void *slot, uint64_t slot_bytes, uint64_t *ret_used,
                       struct dl_error *err)
{
    return fetcher_fill(engine, slot, slot_bytes, ret_used, err);
}

static uint64_t engine_collate_ns(const void *engine)
{
    return fetcher_collate_ns(engine);
}

static void engine_forget(void *engine, uint32_t stream)
{
    fetcher_forget(engine, stream);
}

static const struct worker_engine fetch_engine = {
    .open = engine_open,
    .close = engine_close,
    .is_iterable = engine_is_iterable,
    .length = engine_length,
    .content = engine_content,
    .leaps = engine_leaps,
    .slot_bytes = engine_slot_bytes,
    .fill = engine_fill,
    .collate_ns = engine_collate_ns,
    .forget = engine_forget,
};

/* ---- the program ------------------------------------------------------------------------------
 */

static bool is_socket(int fd)
{
    int type;
    socklen_t len = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

int main(int argc, char **argv)
{
    if (argc != 1 || !is_socket(WORKER_SOCKET)) {
        fprintf(stderr, "dloader-worker %s is started by dloaderd, not by hand\n", DLOADER_VERSION);
        return 2;
    }
    /* What the daemon itself was started with by mistake is no business of ours. */
    sandbox_close_from(WORKER_SOCKET + 1);
    sandbox_harden();
    return worker_run(WORKER_SOCKET, &fetch_engine);
}
