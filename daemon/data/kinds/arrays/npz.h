/*
 * NumPy's .npz: a zip archive of .npy files, as numpy.savez() and savez_compressed() write it, in
 * memory. Its directory, at the end, lists its members, which are stored or deflated.
 *
 * It reads what numpy.load() reads. Refused, with the reason: encrypted members, other methods,
 * archives of several parts, and sizes beyond 4 GiB (zip64). PKWARE, APPNOTE.TXT 6.3.10, 4.3;
 * Python's zipfile; NumPy, lib/npyio.py (NpzFile).
 */
#ifndef DL_DATA_NPZ_H
#define DL_DATA_NPZ_H

#include "daemon/data/kinds/arrays/array.h"

#define NPZ_END 1 /* not an error: the end */

struct npz {
    const uint8_t *data; /* borrowed */
    uint64_t bytes;
    uint64_t at; /* in the directory: the next entry */
    uint64_t end;
    uint32_t left; /* entries */
};

struct npz_member {
    const char *name; /* in the archive, not NUL-terminated; without ".npy" */
    uint32_t name_len;
    const uint8_t *packed; /* in the archive */
    uint64_t packed_bytes;
    uint64_t bytes; /* unpacked, by the directory; bounded by what the packed bytes can yield */
    uint32_t crc;
    bool deflated;
};

/* -EINVAL with `err`, whose message continues a file's name: "is not a zip archive". */
int _nodiscard_ npz_begin(struct npz *npz, const uint8_t *data, uint64_t bytes,
                          struct dl_error *err);
/* The next member, in the directory's order. 0; NPZ_END; -EINVAL, or -ENOTSUP if refused. */
int _nodiscard_ npz_next(struct npz *npz, struct npz_member *ret, struct dl_error *err);

/* Its contents, at `ret`, of ret->bytes; checked by their CRC. -EINVAL, -ENOMEM. */
int _nodiscard_ npz_unpack(const struct npz_member *member, uint8_t *ret, struct dl_error *err);
/* Those of one that is stored: where they lie. */
int _nodiscard_ npz_check(const struct npz_member *member, struct dl_error *err);

#endif
