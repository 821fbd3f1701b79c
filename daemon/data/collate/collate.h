/*
 * Collating: samples become one batch image (slot_fill.h), its tree and the bytes behind it.
 *
 *   default   PyTorch's default_collate: equal trees; tensors stacked along a new first dimension;
 *             numbers become tensors of int64, float64 or bool; strings and bytes become lists of
 *             them; dicts stay, with the keys of the first sample; tuples become lists. Without
 *             batching (batch.size null) default_convert: the sample as it is, tuples as lists.
 *   pad       as default, but tensors may differ in their first dimension: they are filled up to
 *             the longest (a multiple of `multiple_of`) with `value`, at their end or beginning.
 *             A padded leaf `x` gets the siblings `x_lengths`, int64 [B], and `x_mask`, bool
 *             [B, L], true where there is data; where it has no key (it is the sample, or in a
 *             list), a dict {values, lengths, mask} stands in its place. Without batching only
 *             `multiple_of` pads; the lengths are then one number, the mask is bool [L]. With `to:
 *             bucket` the padded length is a multiple of the buckets' interval, too; `length` gives
 *             it outright, and refuses a longer sample. `value`
 *             must be one of an integer leaf's numbers, and finite in a floating-point leaf's
 *             dtype if it is finite; there it is rounded to nearest.
 *   pack      as default, but the chosen leaves, of one first dimension in each sample, are
 *             put into the rows that the plan has chosen: [rows, length, …], each row its samples
 *             one after another and then `value`, of which the same holds. Four tensors tell them
 *             apart, all int32. They stand at the top of the dict that has the leaf whose length
 *             counts; where that has no key, in a dict {values, …} in its place.
 *               segment_ids   [rows, length]: 1 for a row's first sample, 2 …; 0 is padding
 *               position_ids  [rows, length]: 0, 1, … in each sample; 0 in padding
 *               cu_seqlens    [m + 1]: with the rows laid end to end, where each sample begins,
 *                             and each row's padding, if it has some; then rows · length. What
 *                             kernels of attention over sequences of varying length take.
 *               max_seqlen    []: the longest of these m pieces, padding included: such kernels
 *                             leave out what lies beyond it
 *   none      the list of samples, each as it is.
 *   plugin    a plug-in's collate function.
 *
 * Later samples' further keys are ignored, as in default_collate; lists must have one length.
 * Stricter: each leaf has one dtype, and none is promoted.
 *
 * collate_measure() examines all samples and lays out the batch; collate_write() then only copies,
 * each byte once. Samples that do not match are refused, naming both, their shapes and the leaf:
 * "sample 7 has [3, 224, 200], sample 0 has [3, 224, 224], at image".
 */
#ifndef DL_COLLATE_H
#define DL_COLLATE_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/base/planned.h"
#include "proto/slot_fill.h"

struct collate; /* the spec's options, and memory kept from batch to batch */

int _nodiscard_ collate_new(const struct dl_spec *spec, const struct data_env *env,
                            struct collate **ret, struct dl_error *err);
struct collate *collate_free(struct collate *collate); /* NULL is fine; returns NULL */

/*
 * Checks samples[0..n) against the plan. Each must have the planned length, or be longer where it
 * is to be cut: then its padded or packed leaves (for other kinds: all leaves) with the same first
 * dimension are cut, only in its tree. 0, or -EINVAL with `err` and *ret_bad = position of the
 * first that has another length.
 */
int _nodiscard_ collate_fit(const struct collate *collate, struct sample *samples,
                            const uint64_t *numbers, size_t n, const struct planned *planned,
                            size_t *ret_bad, struct dl_error *err);

/*
 * Lays out the batch of samples[0..n), n ≥ 1, which numbers[0..n) identify in messages, and whose
 * tree begins at or after `begin` bytes of the slot. `planned` (may be NULL; pack needs its rows)
 * must fit the samples, and is borrowed until the batch is written. Without batching n is 1. The
 * samples must not change until the batch is written. Allocates only while batches grow. Returns 0,
 * or a negative errno with `err` and *ret_bad = position of the sample at fault: -EINVAL (they do
 * not match), -E2BIG (too many nodes, or too deep), -EFBIG (beyond any segment), -ENOMEM, or that
 * of sample_check(). *ret_bad is SIZE_MAX if a plug-in refuses the whole batch.
 */
int _nodiscard_ collate_measure(struct collate *collate, const struct sample *samples,
                                const uint64_t *numbers, size_t n, const struct planned *planned,
                                uint64_t begin, struct batch_layout *ret, size_t *ret_bad,
                                struct dl_error *err);

/* Writes tree and leaves of the batch measured last into `slot`, all bytes from `begin` to `used`:
 * what lies between them is zeroed. */
void collate_write(struct collate *collate, void *slot);

#endif
