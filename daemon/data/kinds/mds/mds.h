/*
 * MDS datasets, which MosaicML's streaming writes: a directory with index.json, which lists shards
 * and their columns. Map-style: sample i counts through the shards in their order.
 *
 * A shard is mapped when its first sample is needed. One that exists only in compressed form is
 * unpacked then, and kept while all unpacked ones stay within MDS_UNPACKED_BYTES: samples that come
 * shard by shard are then unpacked once.
 *
 * A sample is {column: value, ...}, in the order of index.json, or of the names of the spec's
 * fields:
 *
 *   bytes                     bytes
 *   str, str_decimal          string (UTF-8)
 *   int, str_int              int64
 *   str_float                 float64
 *   int8 ... float64          a number of that type
 *   ndarray, ndarray:...      tensor
 *   jpeg, png, jpeg_array     uint8 [H, W, 3] or what image.h makes of it
 *   pil                       uint8 [H, W, 3], of modes RGB, RGBA and L, at the size it is stored
 *   json                      the same nested
 *   pkl                       refused: reading it would run its code
 *
 * If all are numbers and arrays of a given shape, samples have one shape. The lengths of arrays are
 * known without loading their samples.
 *
 * Images and JSON stay bytes if the spec does not decode. streaming/base/format/mds.
 */
#ifndef DL_DATA_MDS_H
#define DL_DATA_MDS_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/files/globs.h"

#define MDS_UNPACKED_BYTES (UINT64_C(1) << 30)

#endif
