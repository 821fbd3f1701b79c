/*
 * Chat templates by jinja2, for what daemon/data/decode/jinja does not know. dloaderd._jinja2 is
 * the other side of it.
 */
#ifndef DL_WORKER_TEMPLATES_H
#define DL_WORKER_TEMPLATES_H

#include "daemon/worker/python/py.h"

#include "daemon/data/decode/jinja/jinja.h"

/* data_env.open_template */
int templates_open(const char *text, size_t n, struct jinja **ret, char *why);

/* _worker.chat_templates(), whose docstring this is. */
PyObject *templates_told(PyObject *module, PyObject *args);
extern const char templates_told_text[];

#endif
