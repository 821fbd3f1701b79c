/*
 * What stands where in a shared-memory segment. Daemon, worker and client agree on this file.
 *
 *   segment:  [ segment_header, padded to SEGMENT_HEADER_BYTES ] [ slot 0 ] [ slot 1 ] ...
 *   slot:     [ slot_header ] [ sample indices: u64 × samples ] [ planned ] [ tree ] [ tensors ]
 *             [ bad samples ] [ origins ] [ state ]
 *
 * Tensors are 64-byte aligned. `planned` exists for batches that are measured in tokens, bad
 * samples where some were left out or replaced, the state where an iterable dataset can save its
 * own.
 *
 * All numbers are in the machine's byte order (a segment never leaves it). Offsets, never pointers.
 * The daemon writes the task (indices, samples, step, generation) into a FREE slot before it hands
 * it to the worker that owns the segment; the worker writes everything after `samples`, in place;
 * clients only read, and only slots they hold a lease on.
 */
#ifndef DL_SEGMENT_LAYOUT_H
#define DL_SEGMENT_LAYOUT_H

#include "proto/common/base.h"

#define SEGMENT_MAGIC 0x676573726f6c64ULL /* "dlorseg" */

enum {
    SEGMENT_LAYOUT_VERSION = 1,
    SEGMENT_HEADER_BYTES = 4096,
    SLOT_HEADER_BYTES = 192,
    SLOT_ALIGN = 4096, /* slots start on pages, so that each can be page-locked or dropped */
};

struct segment_header {
    uint64_t magic;
    uint32_t version;
    uint32_t id;         /* unique in the daemon's life */
    uint64_t bytes;      /* of the whole segment */
    uint64_t slot_bytes; /* stride; a multiple of SLOT_ALIGN */
    uint32_t slots;
    uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct segment_header) == 40, "the segment layout is fixed");

/*
 * If a step's keys are not integers, this is the first word of its indices; no index has this
 * value. The length of their pickle in bytes and the pickle of their list follow; only Python
 * workers read it.
 */
#define SLOT_KEYS_MARK UINT64_C(0x80646c6b65797300)

/* What a slot is to be filled with. */
enum slot_what {
    SLOT_BATCH,
    SLOT_SAMPLE, /* batch.size null: the one sample as it is */
    /* No batch, but the lengths in tokens of `samples` samples from the one index on that is there:
     * u32 × samples at data_off, without a tree. */
    SLOT_LENGTHS,
    /* The same of the samples whose indices are there. */
    SLOT_LENGTHS_OF,
};

struct slot_header {
    uint64_t generation; /* counts the uses of this slot; a descriptor names the one it means */
    uint64_t step;       /* of the rank's epoch */
    uint64_t epoch;
    uint32_t samples; /* indices below; at least 1 */
    uint32_t what;    /* enum slot_what */
    uint64_t indices_off;
    /* From here on written by the worker. Offsets count from the start of the slot. */
    uint64_t tree_off;
    uint32_t tree_len; /* bytes, keys included */
    uint32_t tree_count;
    uint64_t data_off; /* of the first tensor */
    uint64_t used;     /* bytes of the slot in use, from its start */
    /* When a task failed: the dataset's message, as NUL-terminated text at error_off. */
    uint32_t error_code; /* positive errno; 0 = filled */
    uint32_t error_len;
    uint64_t error_off;
    uint64_t error_index; /* the sample at fault; UINT64_MAX when not one sample's fault */
    /* Again by the daemon, for iterable datasets: the pass that this is a step of. */
    uint32_t stream; /* the daemon's number for it; 0: the dataset is map-style */
    uint32_t rank;
    uint32_t world;
    /* By the worker: length of the whole report (a traceback), NUL included, which follows the
     * error's text and its NUL; 0: no report. */
    uint32_t error_more;
    uint64_t settled; /* this worker will not be asked again for an earlier step of this stream */
    uint64_t planned; /* bytes behind the indices: a struct slot_planned; 0: not present */
    /* By the worker, for iterable datasets: samples that are there for evenness only, the last ones
     * of the batch. 0 for map-style ones, where the plan knows. */
    uint32_t repeated;
    /* By the worker: samples that their dataset refused while workers.on_error lets the batch
     * continue without them; the first SLOT_BAD_MAX of them are listed as struct slot_bad
     * (slot_bad.h). */
    uint32_t bad_count;
    uint64_t bad_off; /* 64-byte aligned; 0: not present */
    /* A record (proto/dataset_state.h) of an iterable dataset that knows its own place. By the
     * daemon: of this worker's replica, where it may begin. By the worker: of that, behind this
     * batch. */
    uint64_t state_off;
    uint32_t state_len;  /* 0: not present */
    uint32_t state_lost; /* by the worker: enum dataset_state_loss; why the state is missing */
    /* By the worker, for a mixture of iterable datasets: the dataset that gave each sample of the
     * batch, u8 × samples, counting the leaves of nested mixtures. 0: not recorded. */
    uint64_t origins_off;
    /* By the daemon, for batches that are packed while lengths are taken: the mark
     * (proto/history.h) at which a plan begins that has this step and those behind it. */
    uint64_t mark_window;
    uint64_t mark_rows;
    uint64_t reserved; /* 0 */
};
_Static_assert(sizeof(struct slot_header) == 192, "the slot layout is fixed");
_Static_assert(sizeof(struct slot_header) <= SLOT_HEADER_BYTES, "the header fits its space");

/*
 * What the plan knows about a batch of tokens. It is an error if a sample's length differs from the
 * planned one, unless the planned one is `cut`: a longer sample is then cut.
 */
#define SLOT_SPLIT (UINT32_C(1) << 31) /* in `cut` */
struct slot_planned {
    uint64_t padded;  /* tokens of the batch, padding included */
    uint32_t cut;     /* tokens kept of a longer sample; 0: samples are not cut */
    uint32_t rows;    /* packed: rows of the batch, each with samples of its own; else 0 */
    uint32_t lists[]; /* planned length of each sample, in order; then samples of each row; with
                         SLOT_SPLIT then where in its sample each begins: it may be a part of one */
};

static inline uint64_t slot_planned_bytes(uint64_t samples, uint64_t rows)
{
    return align_up(sizeof(struct slot_planned) + (samples + rows) * sizeof(uint32_t),
                    sizeof(uint64_t));
}

static inline uint64_t slot_offset(uint64_t slot_bytes, uint32_t slot)
{
    return SEGMENT_HEADER_BYTES + slot_bytes * slot;
}

static inline uint64_t *slot_indices(void *slot)
{
    return (uint64_t *)(void *)((char *)slot + SLOT_HEADER_BYTES);
}

static inline uint64_t slot_indices_end(uint64_t samples)
{
    return SLOT_HEADER_BYTES + samples * sizeof(uint64_t);
}

/* Its place in the slot of a task of `samples` samples. */
static inline struct slot_planned *slot_planned(void *slot, uint64_t samples)
{
    return (struct slot_planned *)(void *)((char *)slot + slot_indices_end(samples));
}

/*
 * The small fixed record that tells a client where a batch lies: DELIVER carries an array of these.
 */
struct dl_descriptor {
    uint64_t step;
    uint64_t generation;
    uint64_t offset; /* of the slot, from the start of the segment */
    uint64_t bytes;  /* of the slot in use */
    uint32_t segment;
    uint32_t samples;
    uint32_t first;    /* the first of the slot's samples that is this rank's; with `dispatch` the
                          slot is all ranks', else 0 */
    uint32_t repeated; /* of `samples`, the last ones: there only to even the ranks out */
};
_Static_assert(sizeof(struct dl_descriptor) == 48, "the wire format is fixed");

#endif
