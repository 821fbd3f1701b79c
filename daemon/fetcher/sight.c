#include "daemon/fetcher/sight.h"

#include "daemon/serve/base/memory.h"

#include <sys/mman.h>

struct sight {
    uv_prepare_t prepare;
    const struct desk *desk; /* borrowed */
};

struct remote_tally *sight_map(int page)
{
    void *map =
        mmap(NULL, sizeof(struct remote_tally), PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);

    if (map == MAP_FAILED)
        return NULL;
    for (int i = 0; i < REMOTE_COUNTS; i++)
        if (remote_count_is_gauge(i))
            remote_tally_write(map, i, 0);
    return map;
}

void sight_unmap(struct remote_tally *tally)
{
    if (tally)
        (void)munmap(tally, sizeof *tally);
}

static void sight_on_prepare(uv_prepare_t *prepare)
{
    desk_tell_held(container_of(prepare, struct sight, prepare)->desk);
}

struct sight *sight_new(uv_loop_t *loop, const struct desk *desk)
{
    struct sight *sight = must_alloc(sizeof *sight);

    sight->desk = desk;
    (void)uv_prepare_init(loop, &sight->prepare);
    (void)uv_prepare_start(&sight->prepare, sight_on_prepare);
    uv_unref((uv_handle_t *)&sight->prepare);
    return sight;
}

static void sight_closed(uv_handle_t *handle)
{
    free(container_of(handle, struct sight, prepare));
}

struct sight *sight_free(struct sight *sight)
{
    if (!sight)
        return NULL;
    (void)uv_prepare_stop(&sight->prepare);
    uv_close((uv_handle_t *)&sight->prepare, sight_closed);
    return NULL;
}
