/*
 * Filling a slot: the task that the daemon leaves in its header, and what the worker makes of it, a
 * batch image or an error's text.
 *
 *   image:    header | indices | planned | tree | leaves, each part 64-byte aligned, zeroes between
 *             them
 *   lengths:  header | the first index | lengths, 64-byte aligned
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
    uint64_t planned; /* bytes; put there by the caller, after slot_prepare() */
    /* A record (dataset_state.h) that the replica may begin with; an empty one: there is none.
     * Behind slot_task_end(), and gone once the image is written. */
    struct dl_span state;
};

/* Where what the daemon puts into the slot ends; what is made of it begins there. */
static inline uint64_t slot_task_end(const struct slot_task *task)
{
    return slot_indices_end(task->what == SLOT_LENGTHS ? 1 : task->samples) + task->planned;
}

/* Where the state ends that goes with it. */
uint64_t slot_state_end(const struct slot_task *task);

/* Puts a task into a slot; what the worker writes is zeroed. False when it does not fit. */
bool _nodiscard_ slot_prepare(void *slot, uint64_t slot_bytes, const struct slot_task *task);

/*
 * The task that stands in a slot, its indices in place. False when the header is damaged or there
 * is no room for the indices: *ret then has the fields as they are, if there is a header at all.
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

/* A layout without leaves yet, of a tree whose nodes are all there. */
struct batch_layout batch_layout_begin(uint64_t begin, const struct tree *tree);

/* Gives node->nbytes a place: sets node->offset. False: more than a segment can have. */
bool _nodiscard_ batch_layout_place(struct batch_layout *layout, struct tree_node *node);

/* Zeroes what lies between the parts; `nodes` are those of the tree, with their offsets. */
void batch_layout_zero_gaps(const struct batch_layout *layout, const struct tree_node *nodes,
                            void *slot);

/* The worker's part of the header for SLOT_LENGTHS; where they are to be written; NULL: the slot is
 * too small, and *ret_used what is needed. */
uint32_t *slot_put_lengths(void *slot, uint64_t slot_bytes, const struct slot_task *task,
                           uint64_t *ret_used);

/* The worker's part of the header: a batch of `samples`, and no error. */
void slot_put_batch(void *slot, uint64_t samples, const struct batch_layout *layout);

/* Behind what there is so far, of *used bytes, a record of what the dataset said of its place, of
 * `head` and `state`; after slot_put_batch(). False: it does not fit, and *used is what is needed.
 */
bool _nodiscard_ slot_put_state(void *slot, uint64_t slot_bytes,
                                const uint8_t head[static DATASET_STATE_HEAD_BYTES],
                                struct dl_span state, uint64_t *used);
/* Why there is none. */
void slot_put_lost(void *slot, enum dataset_state_loss lost);

/* The record in a batch's slot, in *ret, which is empty if there is none. False: it is damaged. The
 * memory may be another process's: what is read of it is to be copied, and checked then. */
bool _nodiscard_ slot_read_state(const void *slot, uint64_t slot_bytes, struct dl_span *ret);

/* Behind what there is so far, of *used bytes, room for the batch's origins, one byte for each
 * sample; after slot_put_batch(). NULL: it does not fit, and *used is what is needed. */
uint8_t *slot_put_origins(void *slot, uint64_t slot_bytes, uint64_t samples, uint64_t *used);

/* Those of the first `samples`; NULL: there are none, or they are damaged. Another process may
 * write there: each is to be read once, and checked. */
const uint8_t *slot_read_origins(const void *slot, uint64_t slot_bytes, uint64_t samples);

/* Of these, the last ones are there for evenness only; after slot_put_batch(). */
void slot_put_repeated(void *slot, uint32_t repeated);

/* ---- the error ------------------------------------------------------------------------------ */

enum { SLOT_ERROR_MAX = DL_ERROR_MESSAGE_MAX - 1 }; /* bytes of a text; a reader takes no more */

struct slot_error {
    int code;       /* positive errno */
    uint64_t begin; /* where the text goes: slot_task_end(), or before, over what nobody needs */
    uint64_t index; /* the sample at fault; UINT64_MAX: none */
    const char *text;
};

/* Leaves the error in the slot, cut to whole characters that there is room for: -code. */
int slot_put_error(void *slot, uint64_t slot_bytes, const struct slot_error *error);

#endif
