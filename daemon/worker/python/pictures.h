/*
 * Pictures for a hosted worker: a list of transforms (daemon/data/decode/transform/transforms.h),
 * which draws from the process's own generators. dloaderd._native_pictures is the other side of it.
 */
#ifndef DL_WORKER_PICTURES_H
#define DL_WORKER_PICTURES_H

#include "daemon/worker/python/py.h"

struct pictures_cache;

/* Where what is decoded of files is kept from now on; borrowed. NULL: nowhere. */
void pictures_keep_in(const struct pictures_cache *cache);
const struct pictures_cache *pictures_kept_in(void);

/* _worker.pictures(), _worker.picture_of_file(), ..., whose docstrings are these. */
PyObject *pictures_open(PyObject *module, PyObject *args);
PyObject *pictures_of_file(PyObject *module, PyObject *args);
PyObject *pictures_of_path(PyObject *module, PyObject *args);
PyObject *pictures_of_pixels(PyObject *module, PyObject *args);
extern const char pictures_open_text[], pictures_of_file_text[], pictures_of_path_text[],
    pictures_of_pixels_text[];

/* Likewise, of picture_steps.c. */
PyObject *picture_steps(PyObject *module, PyObject *args);
PyObject *picture_whole(PyObject *module, PyObject *data);
PyObject *picture_header(PyObject *module, PyObject *data);
extern const char picture_steps_text[], picture_whole_text[], picture_header_text[];

/* Likewise, of picture_kept.c. */
PyObject *picture_find(PyObject *module, PyObject *fd);
PyObject *picture_keep(PyObject *module, PyObject *args);
extern const char picture_find_text[], picture_keep_text[];

#endif
