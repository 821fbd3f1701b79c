/*
 * JSON that is a field of a record, as part of a sample: the same nested, with tensors for numbers.
 */
#ifndef DL_DATA_JSON_FIELD_H
#define DL_DATA_JSON_FIELD_H

#include "daemon/data/base/sample.h"
#include "proto/common/error.h"

/*
 * Adds the `bytes` of `text` under `name`, at the end of `ret`. 0; or -EINVAL or -ENOMEM with
 * `err`, whose message continues the field's name: "is not JSON: ...". The sample's own errors are
 * not in `err`, but stick in `ret`.
 */
int _nodiscard_ json_field_add(const uint8_t *text, uint64_t bytes, const char *name,
                               struct sample *ret, struct dl_error *err);

/* The same of a value of jansson's, which is to live as long as the sample's bytes. */
struct json_t;
int _nodiscard_ json_field_add_parsed(struct json_t *value, const char *name, struct sample *ret,
                                      struct dl_error *err);

#endif
