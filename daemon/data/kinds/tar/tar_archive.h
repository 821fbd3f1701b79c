/*
 * One tar file, open to be read: mapped where it lies, or unpacked into memory where it is
 * compressed. Not thread-safe.
 */
#ifndef DL_DATA_TAR_ARCHIVE_H
#define DL_DATA_TAR_ARCHIVE_H

#include "daemon/data/files/source.h"
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/tar/tar_reader.h"

/* The most bytes a compressed shard may have when it is unpacked. */
#define TAR_UNPACKED_MAX (UINT64_C(8) << 30)

struct tar_archive {      /* all zero: not open */
    struct source source; /* owned; of a compressed one nothing, once it is unpacked */
    struct stat st;       /* of the file */
    uint8_t *unpacked;    /* owned; NULL: it is not compressed */
    struct tar_view view; /* its content; the path is the caller's */
};

/*
 * Opens the file at `path`, which is borrowed. Errors name it: as of source_open(); a compression
 * that this build does not know.
 */
int _nodiscard_ tar_archive_open(const char *path, const struct data_env *env,
                                 struct tar_archive *ret, struct dl_error *err);

/* The same, but does not unpack it: to find out early that it can be opened. *ret_by: how it is
 * compressed. */
int _nodiscard_ tar_archive_check(const char *path, const struct data_env *env,
                                  enum compression *ret_by, struct dl_error *err);

void tar_archive_close(struct tar_archive *archive); /* zeroes it; a zeroed one is fine */

#endif
