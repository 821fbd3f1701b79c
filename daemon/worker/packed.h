/* A spec, and where data may be, as they come in messages: a packed map, and lists of strings. */
#ifndef DL_WORKER_PACKED_H
#define DL_WORKER_PACKED_H

#include "daemon/data/base/dataset.h"
#include "proto/value.h"

struct packed_env {
    struct value roots, seen_as;
    struct data_env env; /* its arrays are owned; their strings are those of the values */
};

/* Of H_OPEN, or W_OPEN. Negative errno, perhaps with `err`. */
int _nodiscard_ packed_spec_read(struct dl_span packed, struct dl_spec *ret, struct dl_error *err);

/* A list of strings: `ret` has them, *ret_strings, *ret_n of them, is an array of its own that
 * points to them, the caller's. */
int _nodiscard_ packed_strings_read(struct dl_span packed, struct value *ret, char ***ret_strings,
                                    uint32_t *ret_n, struct dl_error *err);

/* The same of `env`: where data may be. -EPROTO: `seen_as` is not of each root, if of any. */
int _nodiscard_ packed_roots_read(struct dl_span roots, struct dl_span seen_as,
                                  struct value *ret_roots, struct value *ret_seen_as,
                                  struct data_env *env, struct dl_error *err);

/* The same, into a zeroed one. */
int _nodiscard_ packed_env_read(struct packed_env *ret, struct dl_span roots,
                                struct dl_span seen_as, struct dl_error *err);
void packed_env_deinit(struct packed_env *env);

#endif
