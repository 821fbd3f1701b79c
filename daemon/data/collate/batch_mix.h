/*
 * MixUp and CutMix: a batch whose samples are mixed with each other, and whose labels become shares
 * of classes. As in torchvision.transforms.v2 (_augment.py of torchvision 0.28): sample i is mixed
 * with sample i - 1, the first with the last; one share, and one box, is drawn for the batch. With
 * both, one of the two is drawn for each batch, as by RandomChoice.
 *
 *   MixUp   image = (1 - share) · other + share · own, in float32, each product rounded
 *   CutMix  image = own, but for a box of the other; share = own part of the picture's area
 *   label   float32 [classes]: (1 - share) at the other's class, plus share at the own one
 *
 * Draws come from a generator of the batch, which is keyed by seed, epoch and the batch's first
 * sample: any number of workers makes the same bytes.
 */
#ifndef DL_DATA_BATCH_MIX_H
#define DL_DATA_BATCH_MIX_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/decode/transform/draws.h"

struct batch_mix;

/* Whether the spec has either. */
static inline bool batch_mix_is_wanted(const struct spec_collate *collate)
{
    return collate->mixup > 0 || collate->cutmix > 0;
}

/*
 * For batches whose samples have this schema. Images are its leaves of float32 [c, h, w], all of
 * one h and w; the label is its only integer. -EINVAL for any other schema; -ENOMEM.
 */
int _nodiscard_ batch_mix_new(const struct spec_collate *collate, const struct tree *schema,
                              struct batch_mix **ret, struct dl_error *err);
struct batch_mix *batch_mix_free(struct batch_mix *mix); /* NULL is fine; returns NULL */

/* Which leaf of the schema the label is, counted in preorder, and how many classes there are. */
uint32_t batch_mix_label(const struct batch_mix *mix);
uint64_t batch_mix_classes(const struct batch_mix *mix);

struct batch_mix_rows {
    void *const *leaves; /* of each leaf of the schema where its rows lie; of the label float32 [n,
                            classes], which is written */
    const void *labels;  /* the rows of the label, typed by the schema */
    uint64_t n;          /* ≥ 1 */
};

/* Mixes the batch by its draws. -ERANGE, and *ret_bad, a position: its label is not a valid class.
 * -ENOMEM. */
int _nodiscard_ batch_mix_run(struct batch_mix *mix, struct draws *draws,
                              const struct batch_mix_rows *rows, size_t *ret_bad,
                              struct dl_error *err);

#endif
