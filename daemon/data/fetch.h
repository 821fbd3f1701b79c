/*
 * Fetching: one task becomes one batch image in a slot. The worker runs it on ring slots, loading
 * without a daemon on private memory; the bytes are the same.
 *
 * Where all samples have one shape and are merely stacked, each leaf's rows are read to where
 * they stay. Otherwise samples are collected, and collated (collate.h).
 */
#ifndef DL_FETCH_H
#define DL_FETCH_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/base/slow_watch.h"
#include "proto/slot_fill.h"

struct fetcher; /* an open dataset and how its batches are laid out */

/* `env` is borrowed for the fetcher's life. The spec is not. */
int _nodiscard_ fetcher_new(const struct dl_spec *spec, const struct data_env *env,
                            struct fetcher **ret, struct dl_error *err);
struct fetcher *fetcher_free(struct fetcher *fetcher); /* NULL is fine; returns NULL */

struct dataset *fetcher_dataset(const struct fetcher *fetcher); /* borrowed */
bool fetcher_is_iterable(const struct fetcher *fetcher);
uint64_t fetcher_length(const struct fetcher *fetcher); /* samples, or DATASET_LENGTH_UNKNOWN */

/*
 * Bytes a slot needs for the largest batch of this spec, header included, a multiple of
 * SLOT_ALIGN. Counts on no more samples in a batch than the dataset has; one that repeats samples
 * beyond that gets -ENOBUFS from fetcher_fill(). Where samples vary, and for batches of tokens, it
 * is a beginning only.
 * fetcher_new() refuses a spec whose slot would pass DL_MAX_SEGMENT_BYTES.
 */
uint64_t fetcher_slot_bytes(const struct fetcher *fetcher);

#define FETCH_END 1 /* not an error: the replica has no batch for this step nor for later ones */

/*
 * Fills the slot at `slot` (64-byte aligned, `slot_bytes` long), whose header holds the task
 * (slot_prepare()). Writes tree, tensors and the rest of the header. Returns 0 and *ret_used bytes;
 * -ENOBUFS and *ret_used = bytes needed when the slot is too small; or another negative errno with
 * `err`, after putting the error's text into the slot. Bytes between tensors are zeroed: the same
 * batch is the same image.
 *
 * SLOT_LENGTHS is answered from dataset_lengths(); nothing of an iterable dataset. Where the slot
 * has what the plan knows of the batch, samples that do not fit it are an error.
 *
 * Of an iterable dataset, step s of a stream is round s div workers of the replica of this worker
 * (replica.h), the task's samples being those of a full one; a replica goes on from where it
 * stands, or is opened anew and passes over what lies before. The samples' numbers in the replica
 * are written for their indices, and how many of them are repeated. FETCH_END: it ends before.
 */
int _nodiscard_ fetcher_fill(struct fetcher *fetcher, void *slot, uint64_t slot_bytes,
                             uint64_t *ret_used, struct dl_error *err);

/*
 * The batch of a map-style dataset's samples task->indices, wherever these lie, behind a task of
 * `task->samples` in the slot, whichever stands there. As fetcher_fill(), but an error is in `err`
 * alone.
 */
int _nodiscard_ fetcher_fill_samples(struct fetcher *fetcher, const struct slot_task *task,
                                     void *slot, uint64_t slot_bytes, uint64_t *ret_used,
                                     struct dl_error *err);

/* Asks for what lies far away of a task that will be filled; of a slot that has none, nothing. */
void fetcher_expect(struct fetcher *fetcher, const void *slot, uint64_t slot_bytes);

/* The same of a map-style dataset's samples: their indices, u64 little-endian each. */
void fetcher_foresee(struct fetcher *fetcher, struct dl_span indices);

/* Of the last fetcher_fill(): ns it took to collate. 0 where rows are read to where they stay. */
uint64_t fetcher_collate_ns(const struct fetcher *fetcher);

/*
 * Of the last fetcher_fill(): the sample that took longest. Nothing is seen of iterable datasets,
 * of rows that are no files of their own, and where samples take too little time to be looked at.
 */
const struct slow_watch *fetcher_slowest(const struct fetcher *fetcher);

/* The stream has ended: its replica is closed. */
void fetcher_forget(struct fetcher *fetcher, uint32_t stream);

#endif
