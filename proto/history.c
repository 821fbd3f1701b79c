#include "proto/history.h"

#include "proto/common/bytes.h"
#include "proto/common/load.h"
#include <endian.h>

bool history_add(struct history *history, uint64_t world, uint64_t steps)
{
    struct history_stretch *last = history->n > 0 ? &history->stretches[history->n - 1] : NULL;

    if (steps == 0)
        return true;
    if (last && last->world == world)
        return !add_overflows(last->steps, steps, &last->steps);
    if (history->n == DL_BOUND_HISTORY)
        return false;
    history->stretches[history->n++] = (struct history_stretch){world, steps};
    return true;
}

bool history_equal(const struct history *a, const struct history *b)
{
    return a->n == b->n && memcmp(a->stretches, b->stretches, a->n * sizeof a->stretches[0]) == 0;
}

size_t history_write(const struct history *history, uint8_t ret[static HISTORY_BYTES])
{
    for (uint32_t i = 0; i < history->n; i++) {
        store_le64(ret + i * (size_t)HISTORY_UNIT, history->stretches[i].world);
        store_le64(ret + i * (size_t)HISTORY_UNIT + 8, history->stretches[i].steps);
    }
    return history->n * (size_t)HISTORY_UNIT;
}

bool history_read(struct dl_span bytes, struct history *ret)
{
    struct history history = {0};

    if (bytes.len > HISTORY_BYTES || bytes.len % HISTORY_UNIT != 0)
        return false;
    for (size_t at = 0; at < bytes.len; at += HISTORY_UNIT) {
        uint64_t world = load_le64(bytes.data + at), steps = load_le64(bytes.data + at + 8);

        if (world == 0 || world > DL_MAX_WORLD_SIZE || steps == 0 ||
            (history.n > 0 && history.stretches[history.n - 1].world == world))
            return false;
        history.stretches[history.n++] = (struct history_stretch){world, steps};
    }
    *ret = history;
    return true;
}
