/*
 * Lists and dicts that are one leaf of litData's samples, of format json: JSON, which begins with a
 * bracket, or what litData encodes itself, little-endian; a text is a u32, its bytes, and these:
 *
 *   0    u32 bytes, JSON               7    text
 *   1    u32 n, n texts                8    i64
 *   2    u32 n, n times i64            9    f64
 *   3    u32 n, n times f64            10   u8: a bool
 *   4    u32 n, n times u8: bools      11   null
 *   5    u32 n, n times a text and one of all these: a dict
 *   6    u32 n, u32 k, k texts, and n times k times 16: null, 17: text, 18: i64, 19: f64 or
 *        20: u8: a list of n dicts with these keys
 *
 * Pure.
 */
#ifndef DL_DATA_LITDATA_NESTED_H
#define DL_DATA_LITDATA_NESTED_H

#include "daemon/data/base/sample.h"
#include "proto/common/error.h"

/*
 * Adds the `bytes` at `data` under `name`, at the end of `ret`, as json_field_add() does. 0; or a
 * negative errno with `err`, whose message continues the leaf's name. The sample's own errors are
 * not in `err`, but stick in `ret`. Texts stay in the data.
 */
int _nodiscard_ litdata_nested_add(const uint8_t *data, uint64_t bytes, const char *name,
                                   struct sample *ret, struct dl_error *err);

#endif
