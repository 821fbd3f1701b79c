#include "proto/dataset_state.h"

#include "proto/common/load.h"
#include "proto/limits.h"

#include <endian.h>
#include <errno.h>

enum { ITEM_BYTES = 16, DATASET_STATE_TAIL_BYTES = 16 };

static const char DATASET_STATE_MARK[8] = {'d', 'l', 'c', 'a', 'r', 'r', 'y', '1'};

/* ---- a record ------------------------------------------------------------------------------- */

void dataset_state_write_head(const struct dataset_state *state,
                              uint8_t ret[static DATASET_STATE_HEAD_BYTES])
{
    store_le64(ret, state->round);
    store_le64(ret + 8, state->position);
    store_le64(ret + 16, state->good);
    store_le64(ret + 24, state->rank);
    store_le64(ret + 32, state->world);
    store_le64(ret + 40, state->ended);
}

bool dataset_state_read_first(struct dl_span record, struct dataset_state *ret)
{
    uint8_t
        head[DATASET_STATE_HEAD_BYTES]; /* it may lie in memory that another process writes to */

    if (record.len < DATASET_STATE_HEAD_BYTES || record.len > DATASET_STATE_MAX)
        return false;
    memcpy(head, record.data, sizeof head);
    if (load_le64(head + 32) == 0 || load_le64(head + 32) > DL_MAX_WORLD_SIZE ||
        load_le64(head + 24) >= load_le64(head + 32) || load_le64(head + 40) > 1 ||
        load_le64(head + 16) > load_le64(head + 8))
        return false;
    *ret = (struct dataset_state){.round = load_le64(head),
                                  .position = load_le64(head + 8),
                                  .good = load_le64(head + 16),
                                  .rank = (uint32_t)load_le64(head + 24),
                                  .world = (uint32_t)load_le64(head + 32),
                                  .ended = load_le64(head + 40) == 1,
                                  .state = {record.data + sizeof head, record.len - sizeof head}};
    return true;
}

bool dataset_state_read(struct dl_span record, struct dataset_state *ret)
{
    return dataset_state_read_first(record, ret) && ret->round > 0;
}

/* ---- a list --------------------------------------------------------------------------------- */

int dataset_state_list_add(struct dl_buffer *list, uint32_t worker, struct dl_span record)
{
    uint8_t head[ITEM_BYTES];

    store_le64(head, worker);
    store_le64(head + 8, record.len);
    int r = buffer_append(list, head, sizeof head);
    return r < 0 ? r : buffer_append(list, record.data, record.len);
}

int dataset_state_list_end(struct dl_buffer *list)
{
    uint8_t tail[DATASET_STATE_TAIL_BYTES];

    store_le64(tail, list->len + DATASET_STATE_TAIL_BYTES);
    memcpy(tail + 8, DATASET_STATE_MARK, sizeof DATASET_STATE_MARK);
    return buffer_append(list, tail, sizeof tail);
}

struct dl_span dataset_state_split(struct dl_span *state)
{
    struct dl_span list = {0};
    uint64_t len;

    if (state->len < DATASET_STATE_TAIL_BYTES ||
        memcmp(state->data + state->len - sizeof DATASET_STATE_MARK, DATASET_STATE_MARK,
               sizeof DATASET_STATE_MARK) != 0)
        return list;
    len = load_le64(state->data + state->len - DATASET_STATE_TAIL_BYTES);
    if (len < DATASET_STATE_TAIL_BYTES || len > state->len)
        return list;
    list = (struct dl_span){state->data + state->len - len, len};
    state->len -= len;
    return list;
}

int dataset_state_list_next(struct dl_span list, size_t *at, uint32_t *ret_worker,
                            struct dl_span *ret_record)
{
    size_t end = list.len < DATASET_STATE_TAIL_BYTES ? 0 : list.len - DATASET_STATE_TAIL_BYTES;
    struct dataset_state state;

    if (*at == end)
        return 0;
    if (end - *at < ITEM_BYTES)
        return -EINVAL;
    uint64_t worker = load_le64(list.data + *at), len = load_le64(list.data + *at + 8);
    if (worker >= DL_MAX_WORKERS || len > end - *at - ITEM_BYTES)
        return -EINVAL;
    *ret_worker = (uint32_t)worker;
    *ret_record = (struct dl_span){list.data + *at + ITEM_BYTES, len};
    *at += ITEM_BYTES + len;
    return dataset_state_read(*ret_record, &state) ? 1 : -EINVAL;
}
