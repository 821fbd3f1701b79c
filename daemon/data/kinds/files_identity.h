/*
 * Whether the files of a spec are those that they were, so that who opens the spec again may use
 * what another has opened.
 *
 * XXH3-64 of all that the spec names, patterns and folders expanded: of each file its path, device,
 * inode, size and times; of a folder of classes its inode and the names below it, since each of its
 * files is opened whenever it is read. Unlike a fingerprint (dataset_fingerprint.h) it is of this
 * place and this time, and no file but a list of files is opened. Of code, the file of a plug-in is
 * all that is known.
 */
#ifndef DL_DATA_FILES_IDENTITY_H
#define DL_DATA_FILES_IDENTITY_H

#include "daemon/data/base/dataset.h"

/*
 * Whatever is written to a file after the call shows in the next one: where one was written to just
 * now, the call waits some milliseconds until its file system counts on. What is missing or refused
 * is a part of the identity, too. 0: want of memory.
 */
uint64_t files_identity(const struct dl_spec *spec, const struct data_env *env);

#endif
