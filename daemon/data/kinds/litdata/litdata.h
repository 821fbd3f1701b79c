/*
 * Datasets that litData's optimize() wrote: a directory with index.json, which lists chunks and
 * describes their items. Map-style: sample i counts through the chunks in their order.
 *
 * A chunk is mapped when its first sample is needed. One that is compressed, as a whole or in
 * frames, is unpacked then, and kept while all unpacked ones fit the spec's cache.
 *
 * A sample is nested as it was written; fields chooses keys where it is a dict. Its leaves are
 * those of litdata_leaf.h, pictures uint8 [H, W, 3] or what image.h makes of them. Samples that
 * consist only of numbers have one shape.
 *
 * Data written for a TokensLoader consists of items, each a tensor of tokens; with sequence_length,
 * of blocks of that length, as this loader cuts them: the rest of each chunk is dropped. These have
 * one shape, too.
 *
 * Samples without tensors or pictures lie in the chunks as Arrow rows, read by arrow.h.
 */
#ifndef DL_DATA_LITDATA_H
#define DL_DATA_LITDATA_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/files/globs.h"

#endif
