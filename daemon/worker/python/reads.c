#include "daemon/worker/python/reads.h"

#include "daemon/worker/python/py.h"

/*
 * A str that names a directory or a zip file. The root directory, where a daemon's hosts are
 * started and Python looks for modules by itself, would be everything there is; so would "", which
 * is it.
 */
static void allow_text(struct sandbox_files *files, PyObject *text)
{
    _cleanup_py_ PyObject *bytes = NULL;

    if (!text || !PyUnicode_Check(text))
        return;
    bytes = PyUnicode_EncodeFSDefault(text);
    const char *path = bytes ? PyBytes_AsString(bytes) : NULL;
    if (path && *path && strcmp(path, "/") != 0)
        sandbox_files_allow(files, path);
    PyErr_Clear();
}

void reads_allow(struct sandbox_files *files)
{
    static const char *const prefixes[] = {"prefix", "exec_prefix", "base_prefix",
                                           "base_exec_prefix"};
    PyObject *path = PySys_GetObject("path"); /* borrowed */

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        allow_text(files, PySys_GetObject(prefixes[i]));
    for (Py_ssize_t i = 0; path && PyList_Check(path) && i < PyList_Size(path); i++)
        allow_text(files, PyList_GetItem(path, i));
}
