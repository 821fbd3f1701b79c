/*
 * Tokenizers for a hosted worker, by daemon/data/decode/tokenizer. dloaderd._lazy_texts is the
 * other side of it.
 */
#ifndef DL_WORKER_TEXTS_H
#define DL_WORKER_TEXTS_H

#include "daemon/worker/python/py.h"

/* _worker.text_tokenizer(), _worker.text_encode(), ..., whose docstrings are these. */
PyObject *texts_open(PyObject *module, PyObject *args);
PyObject *texts_encode(PyObject *module, PyObject *args);
PyObject *texts_fill(PyObject *module, PyObject *args);
PyObject *texts_lists(PyObject *module, PyObject *args);
extern const char texts_open_text[], texts_encode_text[], texts_fill_text[], texts_lists_text[];

#endif
