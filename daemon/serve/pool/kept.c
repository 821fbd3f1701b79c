#include "daemon/serve/pool/kept.h"

#include "daemon/serve/base/memory.h"
#include "proto/common/clock.h"

#include <utlist.h>

/* Nobody says when a mapping ends. */
enum { KEPT_LOOK_MS = 250 };
#define KEPT_LATELY_NS (60 * UINT64_C(1000000000))

struct kept_segment {
    struct kept_segment *prev, *next; /* kept.segments (utlist) */
    struct quota_account *account;    /* borrowed; it is there as long as it holds this */
    const void *owner;                /* for comparison only */
    const void *keeper;               /* likewise: has it until kept_keeper_ended(); or NULL */
    uint64_t bytes;
    uint64_t since; /* ns; when it was ended */
    int fd;         /* owned, for reading: the daemon's last of it; -1: only the keeper has it */
};

static void kept_on_look(uv_timer_t *timer)
{
    kept_look(timer->data, NULL);
}

void kept_begin(struct kept *kept, uv_loop_t *loop, struct budget *budget)
{
    *kept = (struct kept){.budget = budget};
    uv_timer_init(loop, &kept->look);
    kept->look.data = kept;
}

static void kept_return(struct kept *kept, struct quota_account *account, uint64_t bytes)
{
    budget_return(kept->budget, bytes);
    quota_return(account, QUOTA_BYTES, bytes);
}

static void kept_drop(struct kept *kept, struct kept_segment *segment)
{
    DL_DELETE(kept->segments, segment);
    kept_return(kept, segment->account, segment->bytes);
    if (segment->fd >= 0)
        quota_return(segment->account, QUOTA_DESCRIPTORS, 1);
    close_fdp(&segment->fd);
    free(segment);
}

void kept_end(struct kept *kept)
{
    struct kept_segment *segment;
    struct kept_segment *next;

    DL_FOREACH_SAFE (kept->segments, segment, next)
        kept_drop(kept, segment);
    kept->ended = true;
    uv_close((uv_handle_t *)&kept->look, NULL);
}

void kept_end_segment(struct kept *kept, struct segment *segment, struct quota_account *account,
                      const void *owner)
{
    uint64_t bytes = segment->bytes;
    const void *keeper = segment->keeper;
    int fd = segment_leave(segment);

    if ((fd < 0 && !keeper) || kept->ended) {
        close_fdp(&fd);
        kept_return(kept, account, bytes);
        return;
    }
    struct kept_segment *left = must_alloc(sizeof *left);
    *left = (struct kept_segment){.account = account,
                                  .owner = owner,
                                  .keeper = keeper,
                                  .bytes = bytes,
                                  .since = clock_ns(),
                                  .fd = fd};
    if (fd >= 0)
        quota_add(account, QUOTA_DESCRIPTORS, 1);
    if (!kept->segments)
        uv_timer_start(&kept->look, kept_on_look, KEPT_LOOK_MS, KEPT_LOOK_MS);
    DL_APPEND(kept->segments, left);
}

static bool kept_is_let_go(const struct kept_segment *segment)
{
    return !segment->keeper && (segment->fd < 0 || segment_is_let_go(segment->fd));
}

void kept_look(struct kept *kept, const struct quota_account *account)
{
    struct kept_segment *segment;
    struct kept_segment *next;

    if (!kept->segments)
        return;
    DL_FOREACH_SAFE (kept->segments, segment, next) {
        if ((!account || segment->account == account) && kept_is_let_go(segment))
            kept_drop(kept, segment);
    }
    if (!kept->segments)
        uv_timer_stop(&kept->look);
}

uint64_t kept_lately(const struct kept *kept, const void *owner)
{
    const struct kept_segment *segment;
    uint64_t now = kept->segments ? clock_ns() : 0, bytes = 0;

    DL_FOREACH (kept->segments, segment) {
        if (segment->owner == owner && now - segment->since < KEPT_LATELY_NS)
            bytes += segment->bytes;
    }
    return bytes;
}

void kept_keeper_ended(struct kept *kept, const void *keeper)
{
    struct kept_segment *segment;

    DL_FOREACH (kept->segments, segment) {
        if (segment->keeper == keeper)
            segment->keeper = NULL;
    }
    kept_look(kept, NULL);
}

void kept_forget(struct kept *kept, const void *owner)
{
    struct kept_segment *segment;

    DL_FOREACH (kept->segments, segment) {
        if (segment->owner == owner)
            segment->owner = NULL;
    }
}
