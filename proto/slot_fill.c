#include "proto/slot_fill.h"

#include "proto/limits.h"

uint64_t slot_state_end(const struct slot_task *task)
{
    uint64_t end = slot_task_end(task);

    return task->state.len == 0 ? end : align_up(end, sizeof(uint64_t)) + task->state.len;
}

bool slot_prepare(void *slot, uint64_t slot_bytes, const struct slot_task *task)
{
    struct slot_header *header = slot;

    if (slot_bytes < slot_state_end(task))
        return false;
    memset(header, 0, SLOT_HEADER_BYTES);
    header->step = task->step;
    header->epoch = task->epoch;
    header->samples = task->samples;
    header->what = task->what;
    header->indices_off = SLOT_HEADER_BYTES;
    header->error_index = UINT64_MAX;
    header->stream = task->stream;
    header->rank = task->rank;
    header->world = task->world;
    header->settled = task->settled;
    header->planned = task->planned;
    header->mark_window = task->mark_window;
    header->mark_rows = task->mark_rows;
    if (task->indices)
        memcpy(slot_indices(slot), task->indices,
               slot_task_end(task) - task->planned - SLOT_HEADER_BYTES);
    if (task->state.len > 0) {
        header->state_off = slot_state_end(task) - task->state.len;
        header->state_len = (uint32_t)task->state.len;
        memcpy((char *)slot + header->state_off, task->state.data, task->state.len);
    }
    header->generation = task->generation;
    return true;
}

bool slot_read_task(const void *slot, uint64_t slot_bytes, struct slot_task *ret)
{
    const volatile struct slot_header *header = slot;

    if (slot_bytes < SLOT_HEADER_BYTES)
        return false;
    uint64_t off = header->indices_off;
    uint32_t what = header->what;
    *ret = (struct slot_task){.generation = header->generation,
                              .epoch = header->epoch,
                              .step = header->step,
                              .indices = (const void *)((const char *)slot + SLOT_HEADER_BYTES),
                              .samples = header->samples,
                              .what = (enum slot_what)what,
                              .stream = header->stream,
                              .rank = header->rank,
                              .world = header->world,
                              .settled = header->settled,
                              .planned = header->planned};
    if (!slot_read_state(slot, slot_bytes, &ret->state))
        return false;
    return ret->samples > 0 && what <= SLOT_LENGTHS_OF && off == SLOT_HEADER_BYTES &&
           ret->planned <= slot_bytes && slot_task_end(ret) <= slot_bytes;
}

struct batch_layout batch_layout_begin(uint64_t begin, const struct tree *tree)
{
    struct batch_layout layout = {.begin = begin,
                                  .tree_off = align_up(begin, TREE_ALIGN),
                                  .tree_len = (uint32_t)tree_encoded_bytes(tree),
                                  .tree_count = tree->count};

    layout.used = layout.tree_off + layout.tree_len;
    layout.data_off = align_up(layout.used, TREE_ALIGN);
    return layout;
}

bool batch_layout_place(struct batch_layout *layout, struct tree_node *node)
{
    uint64_t end;

    node->offset = align_up(layout->used, TREE_ALIGN);
    if (add_overflows(node->offset, node->nbytes, &end) ||
        end > DL_MAX_SEGMENT_BYTES - SEGMENT_HEADER_BYTES)
        return false;
    layout->used = end;
    return true;
}

void batch_layout_zero_gaps(const struct batch_layout *layout, const struct tree_node *nodes,
                            void *slot)
{
    uint64_t end = layout->tree_off + layout->tree_len;
    char *bytes = slot;

    memset(bytes + layout->begin, 0, layout->tree_off - layout->begin);
    memset(bytes + end, 0, min_u64(layout->data_off, layout->used) - end);
    for (uint32_t i = 0; i < layout->tree_count; i++) {
        end = nodes[i].offset + nodes[i].nbytes;
        if (nodes[i].offset)
            memset(bytes + end, 0, min_u64(align_up(end, TREE_ALIGN), layout->used) - end);
    }
}

/* What the worker writes when there is neither batch nor error. */
static void slot_fill_put_nothing(struct slot_header *header)
{
    header->tree_off = 0;
    header->tree_len = 0;
    header->tree_count = 0;
    header->data_off = 0;
    header->error_code = 0;
    header->error_len = 0;
    header->error_off = 0;
    header->error_more = 0;
    header->error_index = UINT64_MAX;
    header->repeated = 0;
    header->bad_off = 0;
    header->bad_count = 0;
    header->state_off = 0;
    header->state_len = 0;
    header->state_lost = DATASET_STATE_SAVED;
}

void slot_put_batch(void *slot, uint64_t samples, const struct batch_layout *layout)
{
    struct slot_header *header = slot;

    slot_fill_put_nothing(header);
    header->samples = (uint32_t)samples;
    header->tree_off = layout->tree_off;
    header->tree_len = layout->tree_len;
    header->tree_count = layout->tree_count;
    header->data_off = layout->data_off;
    header->used = layout->used;
}

uint8_t *slot_put_origins(void *slot, uint64_t slot_bytes, uint64_t samples, uint64_t *used)
{
    struct slot_header *header = slot;
    uint64_t off = *used;

    *used += samples;
    if (*used > slot_bytes)
        return NULL;
    header->origins_off = off;
    header->used = *used;
    return (uint8_t *)slot + off;
}

const uint8_t *slot_read_origins(const void *slot, uint64_t slot_bytes, uint64_t samples)
{
    const volatile struct slot_header *header = slot;
    uint64_t off = header->origins_off;

    if (off < SLOT_HEADER_BYTES || off > slot_bytes || samples > slot_bytes - off)
        return NULL;
    return (const uint8_t *)slot + off;
}

void slot_put_repeated(void *slot, uint32_t repeated)
{
    struct slot_header *header = slot;

    header->repeated = repeated;
}

bool slot_put_state(void *slot, uint64_t slot_bytes,
                    const uint8_t head[static DATASET_STATE_HEAD_BYTES], struct dl_span state,
                    uint64_t *used)
{
    struct slot_header *header = slot;
    uint64_t end = *used, off = align_up(end, TREE_ALIGN);

    *used = off + DATASET_STATE_HEAD_BYTES + state.len;
    if (*used > slot_bytes)
        return false;
    memset((char *)slot + end, 0, off - end);
    memcpy((char *)slot + off, head, DATASET_STATE_HEAD_BYTES);
    if (state.len > 0)
        memcpy((char *)slot + off + DATASET_STATE_HEAD_BYTES, state.data, state.len);
    header->state_off = off;
    header->state_len = (uint32_t)(DATASET_STATE_HEAD_BYTES + state.len);
    header->used = *used;
    return true;
}

void slot_put_lost(void *slot, enum dataset_state_loss lost)
{
    struct slot_header *header = slot;

    header->state_lost = lost;
}

bool slot_read_state(const void *slot, uint64_t slot_bytes, struct dl_span *ret)
{
    const volatile struct slot_header *header = slot;
    uint64_t off = header->state_off;
    uint32_t len = header->state_len;

    *ret = (struct dl_span){0};
    if (len == 0)
        return true;
    if (off < SLOT_HEADER_BYTES || off % sizeof(uint64_t) != 0 || off > slot_bytes ||
        len > slot_bytes - off || len > DATASET_STATE_MAX)
        return false;
    *ret = (struct dl_span){(const uint8_t *)slot + off, len};
    return true;
}

uint32_t *slot_put_lengths(void *slot, uint64_t slot_bytes, const struct slot_task *task,
                           uint64_t *ret_used)
{
    struct slot_header *header = slot;
    uint64_t off = align_up(slot_task_end(task), TREE_ALIGN);

    *ret_used = off + task->samples * sizeof(uint32_t);
    if (*ret_used > slot_bytes)
        return NULL;
    slot_fill_put_nothing(header);
    header->data_off = off;
    header->used = *ret_used;
    return (uint32_t *)(void *)((char *)slot + off);
}

/* Where a character ends, at `at` or before it. */
static uint64_t slot_fill_whole_characters(const char *text, uint64_t at)
{
    while (at > 0 && ((uint8_t)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

int slot_put_error(void *slot, uint64_t slot_bytes, const struct slot_error *error)
{
    struct slot_header *header = slot;
    uint64_t off = error->begin;

    if (slot_bytes < SLOT_HEADER_BYTES)
        return -error->code;
    slot_fill_put_nothing(header);
    header->error_code = (uint32_t)error->code;
    header->error_index = error->index;
    header->used = min_u64(off, slot_bytes);
    if (off >= slot_bytes)
        return -error->code;
    uint64_t room = min_u64(slot_bytes - off - 1, SLOT_ERROR_MAX);
    uint64_t len = slot_fill_whole_characters(error->text, min_u64(strlen(error->text), room));
    memcpy((char *)slot + off, error->text, len);
    ((char *)slot)[off + len] = '\0';
    header->error_off = off;
    header->error_len = (uint32_t)len;
    header->used = off + len + 1;
    return -error->code;
}
