/*
 * A value as JSON on one line: what `dlctl --json` prints of a view, without jansson. Pure.
 */
#ifndef DL_VALUE_JSON_H
#define DL_VALUE_JSON_H

#include "proto/value.h"

/*
 * Appends it. An integer above INT64_MAX becomes a string of digits, a number that is not finite
 * null, and text that is not UTF-8 has ? for each byte above 0x7F: a reader takes all of it.
 * -ENOMEM.
 */
int _nodiscard_ value_json_write(const struct value *v, struct dl_buffer *out);

#endif
