/*
 * Pictures for a hosted worker: a list of transforms (daemon/data/image/transforms.h), which draws
 * from the process's own generators. dloader._native_pictures is the other side of it.
 */
#ifndef DL_WORKER_PICTURES_H
#define DL_WORKER_PICTURES_H

#include "daemon/worker/python/py.h"

/* _worker.pictures(), _worker.picture_of_file() and _worker.picture_of_pixels(), whose docstrings
 * are these. */
PyObject *pictures_open(PyObject *module, PyObject *args);
PyObject *pictures_of_file(PyObject *module, PyObject *args);
PyObject *pictures_of_pixels(PyObject *module, PyObject *args);
extern const char pictures_open_text[], pictures_of_file_text[], pictures_of_pixels_text[];

#endif
