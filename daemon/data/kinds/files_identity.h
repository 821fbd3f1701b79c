/*
 * Tells whether the files of a spec have changed, so that a client that opens the spec again may
 * join another's loader.
 *
 * XXH3-64 of all that the spec names, patterns and folders expanded: of each file its path, device,
 * inode, size and times; of a folder of classes its inode and the names below it, since each of its
 * files is opened whenever it is read. Unlike a fingerprint (dataset_fingerprint.h) it depends on
 * place and time, and opens no file but lists of files. Of code, it only covers a plug-in's file.
 */
#ifndef DL_DATA_FILES_IDENTITY_H
#define DL_DATA_FILES_IDENTITY_H

#include "daemon/data/base/dataset.h"

/*
 * Any write after the call changes the next result: if a file was written to just now, the call
 * waits some milliseconds for its file system's clock to advance. Missing or refused files are part
 * of the identity, too. 0: out of memory.
 */
uint64_t files_identity(const struct dl_spec *spec, const struct data_env *env);

#endif
