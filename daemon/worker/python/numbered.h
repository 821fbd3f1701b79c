/*
 * Numbered samples: an iterable dataset that gives numbers of samples which lie in files that
 * daemon/data/ reads, as dloaderd._native_streaming found it. A batch of them is what the dataset's
 * own code and PyTorch's default_collate would make, without calling either.
 */
#ifndef DL_WORKER_NUMBERED_H
#define DL_WORKER_NUMBERED_H

#include "daemon/worker/python/py.h"

#include "daemon/data/fetch.h"

struct numbered;

/* Where the samples lie. */
struct numbered_files {
    const char *spec; /* of a loader, as JSON: paths are absolute */
    size_t len;
};

/* -EINVAL and others with `err`: the files cannot be read, or their samples have no numbers. */
int _nodiscard_ numbered_open(const struct numbered_files *files, struct numbered **ret,
                              struct dl_error *err);
struct numbered *numbered_free(struct numbered *numbered); /* NULL is fine; returns NULL */

enum numbered_result { NUMBERED_DONE, NUMBERED_TOO_SMALL, NUMBERED_CANNOT };

/*
 * The batch of `numbers`, an exact list, as stack_batch(). NUMBERED_CANNOT: they are no numbers of
 * samples, or one of these cannot be read; `err` says why. Leaves no exception.
 */
enum numbered_result numbered_batch(struct numbered *numbered, PyObject *numbers,
                                    const struct slot_task *task, void *slot, uint64_t slot_bytes,
                                    uint64_t *ret_used, struct dl_error *err);

/* Methods of the module, open_files() and file_lengths(): see module.c. Nothing stays open. */
PyObject *numbered_open_files(PyObject *module, PyObject *args);
PyObject *numbered_file_lengths(PyObject *module, PyObject *args);

#endif
