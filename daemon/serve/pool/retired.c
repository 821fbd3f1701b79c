#include "daemon/serve/pool/retired.h"

#include "daemon/base/memory.h"
#include "proto/common/clock.h"

#include <utlist.h>

/* Nobody says when a mapping ends. */
enum { RETIRED_LOOK_MS = 250 };
#define RETIRED_LATELY_NS (60 * UINT64_C(1000000000))

struct retired_segment {
    struct retired_segment *prev, *next; /* retired.segments (utlist) */
    struct quota_account *account;       /* borrowed; it is there as long as it holds this */
    const void *owner;                   /* for comparison only */
    const void *keeper; /* likewise: has it until retired_keeper_ended(); or NULL */
    uint64_t bytes;
    uint64_t since; /* ns; when it was ended */
    int fd;         /* owned, for reading: the daemon's last of it; -1: only the keeper has it */
};

static void retired_on_look(uv_timer_t *timer)
{
    retired_look(timer->data, NULL);
}

void retired_begin(struct retired *retired, uv_loop_t *loop, struct budget *budget)
{
    *retired = (struct retired){.budget = budget};
    uv_timer_init(loop, &retired->look);
    retired->look.data = retired;
}

static void retired_return(struct retired *retired, struct quota_account *account, uint64_t bytes)
{
    budget_return(retired->budget, bytes);
    quota_return(account, QUOTA_BYTES, bytes);
}

static void retired_drop(struct retired *retired, struct retired_segment *segment)
{
    DL_DELETE(retired->segments, segment);
    retired_return(retired, segment->account, segment->bytes);
    if (segment->fd >= 0)
        quota_return(segment->account, QUOTA_DESCRIPTORS, 1);
    close_fdp(&segment->fd);
    free(segment);
}

void retired_end(struct retired *retired)
{
    struct retired_segment *segment;
    struct retired_segment *next;

    DL_FOREACH_SAFE (retired->segments, segment, next)
        retired_drop(retired, segment);
    retired->ended = true;
    uv_close((uv_handle_t *)&retired->look, NULL);
}

void retired_end_segment(struct retired *retired, struct segment *segment,
                         struct quota_account *account, const void *owner)
{
    uint64_t bytes = segment->bytes;
    const void *keeper = segment->keeper;
    int fd = segment_leave(segment);

    if ((fd < 0 && !keeper) || retired->ended) {
        close_fdp(&fd);
        retired_return(retired, account, bytes);
        return;
    }
    struct retired_segment *item = must_alloc(sizeof *item);
    *item = (struct retired_segment){.account = account,
                                     .owner = owner,
                                     .keeper = keeper,
                                     .bytes = bytes,
                                     .since = clock_ns(),
                                     .fd = fd};
    if (fd >= 0)
        quota_add(account, QUOTA_DESCRIPTORS, 1);
    if (!retired->segments)
        uv_timer_start(&retired->look, retired_on_look, RETIRED_LOOK_MS, RETIRED_LOOK_MS);
    DL_APPEND(retired->segments, item);
}

static bool retired_is_let_go(const struct retired_segment *segment)
{
    return !segment->keeper && (segment->fd < 0 || segment_is_let_go(segment->fd));
}

void retired_look(struct retired *retired, const struct quota_account *account)
{
    struct retired_segment *segment;
    struct retired_segment *next;

    if (!retired->segments)
        return;
    DL_FOREACH_SAFE (retired->segments, segment, next) {
        if ((!account || segment->account == account) && retired_is_let_go(segment))
            retired_drop(retired, segment);
    }
    if (!retired->segments)
        uv_timer_stop(&retired->look);
}

uint64_t retired_lately(const struct retired *retired, const void *owner)
{
    const struct retired_segment *segment;
    uint64_t now = retired->segments ? clock_ns() : 0, bytes = 0;

    DL_FOREACH (retired->segments, segment) {
        if (segment->owner == owner && now - segment->since < RETIRED_LATELY_NS)
            bytes += segment->bytes;
    }
    return bytes;
}

void retired_keeper_ended(struct retired *retired, const void *keeper)
{
    struct retired_segment *segment;

    DL_FOREACH (retired->segments, segment) {
        if (segment->keeper == keeper)
            segment->keeper = NULL;
    }
    retired_look(retired, NULL);
}

void retired_forget(struct retired *retired, const void *owner)
{
    struct retired_segment *segment;

    DL_FOREACH (retired->segments, segment) {
        if (segment->owner == owner)
            segment->owner = NULL;
    }
}
