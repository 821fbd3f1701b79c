/* A spec, and where data may be, as they come in messages: a packed map, and lists of strings. */
#ifndef DL_HELPER_PACKED_H
#define DL_HELPER_PACKED_H

#include "daemon/data/base/dataset.h"
#include "proto/value.h"

struct packed_env {
    struct value roots, seen_as;
    struct data_env env; /* its arrays are owned; their strings are those of the values */
};

/* Of H_OPEN, or W_OPEN. Negative errno, perhaps with `err`. */
int _nodiscard_ packed_spec_read(struct dl_span packed, struct dl_spec *ret, struct dl_error *err);

/* Into a zeroed one. -EPROTO: not of each root, if of any. */
int _nodiscard_ packed_env_read(struct packed_env *ret, struct dl_span roots,
                                struct dl_span seen_as, struct dl_error *err);
void packed_env_deinit(struct packed_env *env);

#endif
