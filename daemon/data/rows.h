/*
 * Batches of rows: where all samples of a map-style dataset have one shape and are merely stacked,
 * the dataset copies them straight into the slot.
 *
 * The image's layout depends only on the number of samples. It is worked out once for the full
 * batch, with its tree already encoded, and again only when the number changes (the last, short
 * batch of an epoch). A fill is then: the tree copied, the gaps zeroed, and each leaf's rows
 * read to where they stay.
 */
#ifndef DL_DATA_ROWS_H
#define DL_DATA_ROWS_H

#include "daemon/data/base/slow_watch.h"
#include "daemon/data/collate/batch_mix.h"
#include "daemon/data/collate/collate.h"

struct rows;

/* `dataset` is borrowed. `batch_size` 0: not batched. `mix`: mixes the batch's samples, and is
 * taken over in any case; NULL: nothing does. */
int _nodiscard_ rows_new(struct dataset *dataset, uint64_t batch_size, struct batch_mix *mix,
                         struct rows **ret, struct dl_error *err);
struct rows *rows_free(struct rows *rows); /* NULL is fine; returns NULL */

/*
 * Lays the batch of `samples` out, whose tree begins at or after `begin` bytes of the slot. 0, or
 * -EFBIG with `err` when no segment would hold it.
 */
int _nodiscard_ rows_measure(struct rows *rows, uint64_t samples, uint64_t begin,
                             struct batch_layout *ret, struct dl_error *err);

/* Fills the slot with the batch measured last. As dataset_ops.read_rows. `watch`: which row takes
 * longest; it has begun. */
int _nodiscard_ rows_write(struct rows *rows, const struct sample_key *key, const uint64_t *indices,
                           void *slot, struct slow_watch *watch, size_t *ret_bad,
                           struct dl_error *err);

#endif
