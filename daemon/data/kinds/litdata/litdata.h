/*
 * Datasets that litData's optimize() wrote: a directory with index.json, which lists chunks and
 * what their items are. Map-style: sample i counts through the chunks in their order.
 *
 * A chunk is mapped when its first sample is wanted. One that is compressed, as a whole or in
 * frames, is unpacked then, and kept as long as all that are unpacked have no more bytes than the
 * spec's cache.
 *
 * A sample is nested as it was written; fields chooses keys where it is a dict. Its leaves are
 * those of litdata_leaf.h, pictures uint8 [H, W, 3] or what image.h makes of them. Samples of
 * numbers alone have one shape.
 *
 * What was written for a TokensLoader is its items, of which each is a tensor of tokens, or, with
 * sequence_length, blocks of so many, as this loader cuts them: of each chunk what is left is
 * dropped. These have one shape, too.
 *
 * Samples without tensors or pictures lie in the chunks as rows of Arrow's, where they are what
 * arrow.h says.
 */
#ifndef DL_DATA_LITDATA_H
#define DL_DATA_LITDATA_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/files/globs.h"

#endif
