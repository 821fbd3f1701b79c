/*
 * Whether the helper's machine has the files that the daemon's has: of each that a spec stands for
 * a sum of its path, size and edges, as far as that is cheap. What they do not cover (names in
 * folders of pictures, the middle of a file) is partly covered by the dataset's own fingerprint,
 * which the daemon compares when a worker is ready. URLs and code have no sums.
 */
#ifndef DL_HELPER_FILES_SEEN_H
#define DL_HELPER_FILES_SEEN_H

#include "daemon/data/base/dataset.h"

enum { FILES_SEEN_MAX = 1024 };

struct files_seen {
    uint32_t n; /* files in all */
    uint32_t n_sums;
    uint64_t sums[FILES_SEEN_MAX]; /* of all, or of as many, spread evenly; little-endian */
};

/* Of this machine. Reads files. Negative errno with `err`. */
int _nodiscard_ files_seen_make(const struct dl_spec *spec, const struct data_env *env,
                                struct files_seen *ret, struct dl_error *err);

/* -ESTALE with `err`, which names the first file that differs: the other machine sees others. */
int _nodiscard_ files_seen_compare(const struct dl_spec *spec, const struct data_env *env,
                                   uint64_t n, struct dl_span sums, struct dl_error *err);

#endif
