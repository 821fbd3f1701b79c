/* Where data may be, as it comes in messages: packed lists of strings. */
#ifndef DL_HELPER_PACKED_H
#define DL_HELPER_PACKED_H

#include "daemon/data/base/dataset.h"
#include "proto/value.h"

struct packed_env {
    struct value roots, seen_as;
    struct data_env env; /* its arrays are owned; their strings are those of the values */
};

/* Into a zeroed one. -EPROTO: not of each root, if of any. */
int _nodiscard_ packed_env_read(struct packed_env *ret, struct dl_span roots,
                                struct dl_span seen_as, struct dl_error *err);
void packed_env_deinit(struct packed_env *env);

#endif
