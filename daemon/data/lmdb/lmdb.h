/*
 * LMDB environments: sample i is record i of the main database, in the order of its keys, as
 *
 *   key     bytes
 *   value   bytes; or, if the spec names it in `images`, uint8 [H, W, 3] or what image.h makes of
 * it
 *
 * A path is a directory with data.mdb, or such a file (MDB_NOSUBDIR). With a prefix, samples are
 * the records whose keys begin with it. Read where it is mapped, without the lock file: nobody may
 * write to it meanwhile.
 */
#ifndef DL_DATA_LMDB_H
#define DL_DATA_LMDB_H

#include "daemon/data/dataset.h"
#include "daemon/data/globs.h"

int _nodiscard_ lmdb_open(const struct spec_dataset *spec, const char *place,
                          const struct data_env *env, struct dataset **ret, struct dl_error *err);

/* Adds the file that is read. */
int _nodiscard_ lmdb_list_files(const struct spec_dataset *spec, const struct data_env *env,
                                struct file_list *ret, struct dl_error *err);

#endif
