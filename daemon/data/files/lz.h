/*
 * Unpacks Snappy with its length in front (google/snappy's format_description.txt), LZ4 blocks
 * (lz4_Block_format.md), and LZ4 frames (lz4_Frame_format.md). Pure.
 */
#ifndef DL_DATA_LZ_H
#define DL_DATA_LZ_H

#include "proto/common/base.h"

/* Each unpacks `bytes` of `data` into exactly `room` bytes at `ret`. 0; -EINVAL: corrupt, or
 * another number of bytes. */
int _nodiscard_ snappy_unpack(const uint8_t *data, uint64_t bytes, uint8_t *ret, uint64_t room);
int _nodiscard_ lz4_unpack_frame(const uint8_t *data, uint64_t bytes, uint8_t *ret, uint64_t room);
int _nodiscard_ lz4_unpack(const uint8_t *data, uint64_t bytes, uint8_t *ret, uint64_t room);

#endif
