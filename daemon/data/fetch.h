/*
 * Fetching: one task (sample indices) becomes one batch image in a slot, fetch and collate in one
 * pass. The worker runs it on ring slots, `dlctl check` on private memory; the bytes are the same.
 */
#ifndef DL_FETCH_H
#define DL_FETCH_H

#include "daemon/data/dataset.h"
#include "proto/segment_layout.h"

struct fetcher; /* an open dataset and how its batches are laid out */

int _nodiscard_ fetcher_new(const struct dl_spec *spec, const struct data_roots *roots,
                            struct fetcher **ret, struct dl_error *err);
struct fetcher *fetcher_free(struct fetcher *fetcher); /* NULL is fine; returns NULL */

uint64_t fetcher_length(const struct fetcher *fetcher); /* samples in the dataset */

/*
 * Bytes a slot needs for the largest batch of this spec, header included, a multiple of
 * SLOT_ALIGN. Counts on no more samples in a batch than the dataset has; one that repeats samples
 * beyond that gets -ENOBUFS from fetcher_fill(). fetcher_new() refuses a spec whose slot would pass
 * DL_MAX_SEGMENT_BYTES.
 */
uint64_t fetcher_slot_bytes(const struct fetcher *fetcher);

/*
 * Fills the slot at `slot` (64-byte aligned, `slot_bytes` long), whose header holds the task
 * (slot_prepare()). Writes tree, tensors and the rest of the header. Returns 0 and *ret_used bytes;
 * -ENOBUFS and *ret_used = bytes needed when the slot is too small; or another negative errno with
 * `err`, after putting the error's text into the slot. Bytes between tensors are zeroed: the same
 * batch is the same image.
 */
int _nodiscard_ fetcher_fill(struct fetcher *fetcher, void *slot, uint64_t slot_bytes,
                             uint64_t *ret_used, struct dl_error *err);

#endif
