/*
 * Filling a slot: the task that the daemon leaves in its header, and what the worker makes of it, a
 * batch image or an error's text.
 *
 *   image:    header | indices | planned | tree | leaves, each part 64-byte aligned, zeroes between
 *             them
 *   lengths:  header | the first index, or all | lengths, 64-byte aligned
 *   error:    header | indices | planned | text, NUL
 *
 * The header is shared memory: each field is read once, checked, and used. Pure.
 */
#ifndef DL_SLOT_FILL_H
#define DL_SLOT_FILL_H

#include "proto/dataset_state.h"
#include "proto/segment_layout.h"
#include "proto/tree.h"

/* ---- the task ------------------------------------------------------------------------------- */

struct slot_task {
    uint64_t generation;
    uint64_t epoch;
    uint64_t step;
    const uint64_t *indices; /* NULL: they stand at slot_indices() already, or will: see samples */
    uint32_t samples;        /* of an iterable dataset: at most; the worker writes how many, and
                                their numbers for indices */
    enum slot_what what;
    uint32_t stream; /* this and the following: see struct slot_header */
    uint32_t rank;
    uint32_t world;
    uint64_t settled;
    uint64_t mark_window;
    uint64_t mark_rows;
    uint64_t planned; /* bytes; put there by the caller, after slot_prepare() */
    /* A record (dataset_state.h) from which the replica may begin; may be empty. It lies behind
     * slot_task_end() and is overwritten by the image. */
    struct dl_span state;
};

/* The end of what the daemon puts into the slot; the batch begins there. */
static inline uint64_t slot_task_end(const struct slot_task *task)
{
    return slot_indices_end(task->what == SLOT_LENGTHS ? 1 : task->samples) + task->planned;
}

/* Where the state ends that goes with it. */
uint64_t slot_state_end(const struct slot_task *task);

/* Puts a task into a slot; what the worker writes is zeroed. False when it does not fit. */
bool _nodiscard_ slot_prepare(void *slot, uint64_t slot_bytes, const struct slot_task *task);

/*
 * Reads the task in a slot, with its indices in place. False when the header is damaged or there is
 * no room for the indices: *ret then has the fields as they are, if there is a header at all.
 */
bool _nodiscard_ slot_read_task(const void *slot, uint64_t slot_bytes, struct slot_task *ret);

/* ---- the image ------------------------------------------------------------------------------ */

/* Where the batch's parts stand in its slot. */
struct batch_layout {
    uint64_t begin; /* end of what lies before: slot_task_end() */
    uint64_t tree_off;
    uint64_t data_off; /* of the first leaf */
    uint64_t used;     /* end of the last leaf */
    uint32_t tree_len;
    uint32_t tree_count;
};

/* A layout without leaves so far, for a tree whose nodes are all known. */
struct batch_layout batch_layout_begin(uint64_t begin, const struct tree *tree);

/* Gives node->nbytes a place: sets node->offset. False: more than a segment can have. */
bool _nodiscard_ batch_layout_place(struct batch_layout *layout, struct tree_node *node);

/* Zeroes the gaps between the parts; `nodes` are the tree's, with their offsets. */
void batch_layout_zero_gaps(const struct batch_layout *layout, const struct tree_node *nodes,
                            void *slot);

/* Whether it asks for lengths, not for a batch. */
static inline bool slot_asks_lengths(const struct slot_task *task)
{
    return task->what == SLOT_LENGTHS || task->what == SLOT_LENGTHS_OF;
}

/* Writes the worker's part of the header for SLOT_LENGTHS, or SLOT_LENGTHS_OF. Returns the place of
 * the lengths, or NULL if the slot is too small; *ret_used is then the size needed. */
uint32_t *slot_put_lengths(void *slot, uint64_t slot_bytes, const struct slot_task *task,
                           uint64_t *ret_used);

/* The worker's part of the header: a batch of `samples`, and no error. */
void slot_put_batch(void *slot, uint64_t samples, const struct batch_layout *layout);

/* Appends, behind *used bytes, a record of the dataset's state, made of `head` and `state`; after
 * slot_put_batch(). False if it does not fit; *used is then the size needed. */
bool _nodiscard_ slot_put_state(void *slot, uint64_t slot_bytes,
                                const uint8_t head[static DATASET_STATE_HEAD_BYTES],
                                struct dl_span state, uint64_t *used);
/* Records why the state is missing. */
void slot_put_lost(void *slot, enum dataset_state_loss lost);

/* Returns the record in a batch's slot as *ret, empty if the slot has no record. False if it is
 * damaged. Another process may own the memory: copy first, then check the copy. */
bool _nodiscard_ slot_read_state(const void *slot, uint64_t slot_bytes, struct dl_span *ret);

/* Appends, behind *used bytes, room for the batch's origins, one byte per sample; after
 * slot_put_batch(). NULL if it does not fit; *used is then the size needed. */
uint8_t *slot_put_origins(void *slot, uint64_t slot_bytes, uint64_t samples, uint64_t *used);

/* The origins of the first `samples` samples; NULL if missing or damaged. Another process may write
 * there: read each once, then check it. */
const uint8_t *slot_read_origins(const void *slot, uint64_t slot_bytes, uint64_t samples);

/* Of these, the last ones are there for evenness only; after slot_put_batch(). */
void slot_put_repeated(void *slot, uint32_t repeated);

/* ---- the error ------------------------------------------------------------------------------ */

enum { SLOT_ERROR_MAX = DL_ERROR_MESSAGE_MAX - 1 }; /* bytes of a text; a reader takes no more */

struct slot_error {
    int code;       /* positive errno */
    uint64_t begin; /* where the text goes: slot_task_end(), or before, over unneeded bytes */
    uint64_t index; /* the sample at fault; UINT64_MAX: unknown */
    const char *text;
};

/* Leaves the error in the slot, cut to whole characters that there is room for: -code. */
int slot_put_error(void *slot, uint64_t slot_bytes, const struct slot_error *error);

#endif
