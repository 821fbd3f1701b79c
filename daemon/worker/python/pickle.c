#include "daemon/worker/python/pickle.h"

#include "daemon/worker/python/leaf.h"

enum { PROTOCOL = 5 };

/* PyTorch's own words: its users' programs look for them. */
static int pickle_refuse_graph(PyObject *object)
{
    if (!array_types_is_tensor(object))
        return 0;
    _cleanup_py_ PyObject *grad = PyObject_GetAttrString(object, "requires_grad");
    _cleanup_py_ PyObject *leaf = grad ? PyObject_GetAttrString(object, "is_leaf") : NULL;
    if (!leaf)
        return -1;
    if (grad != Py_True || leaf == Py_True)
        return 0;
    PyErr_SetString(PyExc_RuntimeError,
                    "Cowardly refusing to serialize non-leaf tensor which requires_grad, since "
                    "autograd does not support crossing process boundaries.  If you just want to "
                    "transfer the data, call detach() on the tensor before serializing (e.g., "
                    "putting it on the queue).");
    return -1;
}

/* persistent_id() of the pickler; `found` is the list of what stands beside the pickle. */
static PyObject *pickle_set_aside(PyObject *found, PyObject *object)
{
    struct leaf leaf;

    if (!array_types_is_tensor(object) && !array_types_is_array(object))
        Py_RETURN_NONE;
    int r = pickle_refuse_graph(object) < 0 ? -1 : leaf_of(object, &leaf);
    if (r < 0)
        return NULL;
    if (r == 0)
        Py_RETURN_NONE;
    if (PyList_Append(found, object) < 0)
        return NULL;
    return Py_BuildValue("(sn)", array_types_is_tensor(object) ? "t" : "n", PyList_Size(found) - 1);
}

static PyMethodDef set_aside_def = {"persistent_id", pickle_set_aside, METH_O, NULL};

/* What `pickler` makes of the object, into `file`; without pickler, NULL. */
static PyObject *pickle_dump(PyObject *pickler, PyObject *file, PyObject *object, PyObject *found)
{
    _cleanup_py_ PyObject *aside = pickler ? PyCFunction_New(&set_aside_def, found) : NULL;

    if (!aside || PyObject_SetAttrString(pickler, "persistent_id", aside) < 0)
        return NULL;
    _cleanup_py_ PyObject *done = PyObject_CallMethod(pickler, "dump", "(O)", object);
    return done ? PyObject_CallMethod(file, "getvalue", NULL) : NULL;
}

static PyObject *pickle_new_file(void)
{
    _cleanup_py_ PyObject *io = PyImport_ImportModule("io");

    return io ? PyObject_CallMethod(io, "BytesIO", NULL) : NULL;
}

static PyObject *pickle_plainly(PyObject *object, PyObject *found)
{
    _cleanup_py_ PyObject *module = PyImport_ImportModule("pickle");
    _cleanup_py_ PyObject *file = module ? pickle_new_file() : NULL;
    _cleanup_py_ PyObject *pickler =
        file ? PyObject_CallMethod(module, "Pickler", "Oi", file, PROTOCOL) : NULL;
    _cleanup_py_ PyObject *results = pickler ? PyImport_ImportModule("dloader._results") : NULL;
    _cleanup_py_ PyObject *table =
        results ? PyObject_CallMethod(results, "dispatch_table", NULL) : NULL;

    if (!table || PyObject_SetAttrString(pickler, "dispatch_table", table) < 0)
        return NULL;
    return pickle_dump(pickler, file, object, found);
}

/* NULL without an exception: nothing else can do it. */
static PyObject *pickle_otherwise(PyObject *object, PyObject *found)
{
    _cleanup_py_ PyObject *module = PyImport_ImportModule("dloader._results");
    _cleanup_py_ PyObject *file = module ? pickle_new_file() : NULL;
    _cleanup_py_ PyObject *pickler =
        file ? PyObject_CallMethod(module, "pickler", "(O)", file) : NULL;
    PyObject *bytes = NULL;

    if (pickler && pickler != Py_None && PyList_SetSlice(found, 0, PY_SSIZE_T_MAX, NULL) == 0)
        bytes = pickle_dump(pickler, file, object, found);
    return bytes;
}

PyObject *pickle_object(PyObject *object, PyObject *found)
{
    PyObject *kind, *value, *trace;

    if (pickle_refuse_graph(object) < 0)
        return NULL;
    PyObject *bytes = pickle_plainly(object, found);
    if (bytes || !PyErr_ExceptionMatches(PyExc_Exception))
        return bytes;
    /* Its name is not known here, most likely. If nothing helps, the first error is the one. */
    PyErr_Fetch(&kind, &value, &trace);
    bytes = pickle_otherwise(object, found);
    if (!bytes) {
        PyErr_Clear();
        PyErr_Restore(kind, value, trace);
        return NULL;
    }
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return bytes;
}
