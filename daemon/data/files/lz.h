/*
 * Snappy with its length in front, as google/snappy's format_description.txt has it, an LZ4 block,
 * as lz4_Block_format.md has it, and one of LZ4's frames, as lz4_Frame_format.md has it. Pure.
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
