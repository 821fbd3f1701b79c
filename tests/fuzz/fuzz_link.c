/*
 * What comes over the network between a daemon's stand-in and a helper: frames, and bytes for slots
 * behind them. Whatever it is, it is refused, or stays within the slot that is due; and of a slot's
 * header the daemon's part stays as it was.
 *
 * Input: the first byte says whose end it is (bit 0), in pieces of how many bytes it comes, and how
 * large the slot is; then the bytes.
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/helper/link.h"
#include "daemon/helper/link_slot.h"

#include <errno.h>
#include <sys/socket.h>

enum { TASK = 7, SLOTS_MAX = 4 };

struct end {
    struct link link;
    bool near;
    uint64_t slot_bytes;
    char *slot; /* owned */
    uint64_t bytes;
    struct slot_header own, theirs;
};

/* As the daemon prepares it. */
static void end_prepare(struct end *end)
{
    const uint64_t index = 3;
    const struct slot_task task = {
        .generation = 11, .epoch = 2, .step = 5, .indices = &index, .samples = 1};

    FUZZ_ASSERT(slot_prepare(end->slot, end->slot_bytes, &task));
    memcpy(&end->own, end->slot, sizeof end->own);
}

static void end_check_slot(const struct end *end)
{
    struct slot_header now;

    memcpy(&now, end->slot, sizeof now);
    FUZZ_ASSERT(now.generation == end->own.generation && now.step == end->own.step &&
                now.epoch == end->own.epoch && now.what == end->own.what &&
                now.indices_off == end->own.indices_off && now.planned == end->own.planned);
    FUZZ_ASSERT(now.samples == end->theirs.samples && now.used == end->theirs.used &&
                now.error_off == end->theirs.error_off);
}

static int end_take_done(struct end *end, const struct dl_msg_h_done *msg)
{
    if (!link_done_fits(msg, TASK, end->slot_bytes))
        return -EBADMSG;
    memcpy(&end->theirs, msg->header.data, sizeof end->theirs);
    if (msg->bytes > 0)
        link_expect(&end->link, end->slot + SLOT_HEADER_BYTES, msg->bytes);
    return 0;
}

static int end_take_task(struct end *end, const struct dl_msg_h_task *msg)
{
    if (!link_task_fits(msg) || msg->slot_bytes != end->slot_bytes)
        return -EBADMSG;
    end->bytes = msg->bytes;
    link_expect(&end->link, end->slot, msg->bytes);
    return 0;
}

static int end_take_frame(struct end *end)
{
    struct dl_span payload = link_payload(&end->link);
    struct dl_message msg;
    int r = message_decode(payload.data, payload.len,
                           end->near ? FROM_HELPER | FROM_WORKER : TO_HELPER, &msg, NULL);

    FUZZ_ASSERT(payload.len > 0 && payload.len <= end->link.most);
    if (r < 0)
        return r;
    if (msg.number == DL_MSG_H_DONE)
        return end_take_done(end, &msg.h_done);
    return msg.number == DL_MSG_H_TASK ? end_take_task(end, &msg.h_task) : 0;
}

static int end_take_bytes(struct end *end)
{
    if (end->near) {
        link_done_put(end->slot, &end->theirs);
        end_check_slot(end);
        return 0;
    }
    struct slot_task task;
    if (!link_task_holds(end->slot, end->slot_bytes, end->bytes))
        return -EBADMSG;
    FUZZ_ASSERT(slot_read_task(end->slot, end->slot_bytes, &task));
    FUZZ_ASSERT(slot_state_end(&task) <= end->slot_bytes);
    return 0;
}

static int end_read(struct end *end)
{
    enum link_news news = LINK_NOTHING;
    int r;

    do {
        r = link_read(&end->link, &news);
        if (r == 0 && news == LINK_FRAME)
            r = end_take_frame(end);
        else if (r == 0 && news == LINK_RAW)
            r = end_take_bytes(end);
    } while (r == 0 && news != LINK_NOTHING);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct end end = {0};
    int pair[2], r = 0;

    if (len < 1 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return 0;
    uint8_t how = *data++;
    size_t step = how >> 4 ? how >> 4 : 4096;
    end.near = how & 1;
    end.slot_bytes = (1 + (how >> 1) % SLOTS_MAX) * (uint64_t)SLOT_ALIGN;
    end.slot = calloc(1, end.slot_bytes);
    FUZZ_ASSERT(end.slot);
    end_prepare(&end);
    link_init(&end.link, pair[0]);
    FUZZ_ASSERT(end.link.most == LINK_UNPROVEN_BYTES);
    if (how & 8)
        end.link.most = DL_MAX_FRAME_BYTES;
    for (size_t at = 0; r == 0 && at < len - 1; at += step) {
        size_t n = (size_t)min_u64(step, len - 1 - at);
        FUZZ_ASSERT(send(pair[1], data + at, n, 0) == (ssize_t)n);
        r = end_read(&end);
    }
    close(pair[1]);
    while (r == 0)
        r = end_read(&end);
    FUZZ_ASSERT(r == -EPIPE || r == -EMSGSIZE || r == -EBADMSG || r == -ENOMEM);
    link_deinit(&end.link);
    free(end.slot);
    return 0;
}
