/*
 * The members of a tar file, one after another, for a hosted worker
 * (daemon/data/kinds/tar/tar_reader.h). dloaderd._native_tar is the other side of it.
 */
#ifndef DL_WORKER_TAR_MEMBERS_H
#define DL_WORKER_TAR_MEMBERS_H

#include "daemon/worker/python/py.h"

/* Closes those of URLs, as the worker ends: Python may free a handle later than that, or never. */
void tar_members_end(void);

/* _worker.tar_members(), tar_members_of() and tar_member(), whose docstrings are these. */
PyObject *tar_members_open(PyObject *module, PyObject *args);
PyObject *tar_members_open_url(PyObject *module, PyObject *url);
PyObject *tar_members_next(PyObject *module, PyObject *handle);
extern const char tar_members_open_text[], tar_members_url_text[], tar_members_next_text[];

#endif
