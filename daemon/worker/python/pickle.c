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

/* NumPy itself pickles arrays in Fortran's order, in that order: 1 or 0; -1. */
static int pickle_array_stays(PyObject *array)
{
    Py_buffer buffer;

    if (PyObject_GetBuffer(array, &buffer, PyBUF_STRIDES) < 0)
        return -1;
    int r = PyBuffer_IsContiguous(&buffer, 'C') || !PyBuffer_IsContiguous(&buffer, 'F');
    PyBuffer_Release(&buffer);
    return r;
}

/* Whether a leaf stands beside the pickle as it is: 1 or 0; -1. */
static int pickle_stays(PyObject *reducer, PyObject *object, const struct leaf *leaf)
{
    _cleanup_py_ PyObject *layouts = PyObject_GetAttrString(reducer, "layouts");
    if (!layouts || layouts == Py_False)
        return layouts ? 1 : -1;
    if (!array_types_is_tensor(object))
        return pickle_array_stays(object);
    int r = leaf_in_order(object, leaf);
    if (r <= 0)
        return r;
    _cleanup_py_ PyObject *stays = PyObject_CallMethod(reducer, "stays", "(O)", object);
    return stays ? PyObject_IsTrue(stays) : -1;
}

/* Appended to `found`, unless it is there: its place; -1. `seen` has the places by address. */
static Py_ssize_t pickle_place(PyObject *found, PyObject *seen, PyObject *object)
{
    _cleanup_py_ PyObject *address = PyLong_FromVoidPtr(object);
    PyObject *known = address ? PyDict_GetItemWithError(seen, address) : NULL;
    Py_ssize_t i = PyList_Size(found);

    if (known)
        return PyLong_AsSsize_t(known);
    _cleanup_py_ PyObject *place = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(i);
    if (!place || PyDict_SetItem(seen, address, place) < 0 || PyList_Append(found, object) < 0)
        return -1;
    return i;
}

/* persistent_id() of the pickler; `self`: the list of what stands beside the pickle, the dict of
 * the places in it, and the reducer. */
static PyObject *pickle_set_aside(PyObject *self, PyObject *object)
{
    struct leaf leaf;

    if (!array_types_is_tensor(object) && !array_types_is_array(object))
        Py_RETURN_NONE;
    int r = pickle_refuse_graph(object) < 0 ? -1 : leaf_of(object, &leaf);
    if (r > 0)
        r = pickle_stays(PyTuple_GetItem(self, 2), object, &leaf);
    if (r < 0)
        return NULL;
    if (r == 0)
        Py_RETURN_NONE;
    Py_ssize_t i = pickle_place(PyTuple_GetItem(self, 0), PyTuple_GetItem(self, 1), object);
    return i < 0 ? NULL : Py_BuildValue("(sn)", array_types_is_tensor(object) ? "t" : "n", i);
}

static PyMethodDef set_aside_def = {"persistent_id", pickle_set_aside, METH_O, NULL};

/* What `pickler` makes of the object, into `file`; without pickler, NULL. */
static PyObject *pickle_dump(PyObject *pickler, PyObject *file, PyObject *object, PyObject *found,
                             PyObject *reducer)
{
    _cleanup_py_ PyObject *seen = pickler ? PyDict_New() : NULL;
    _cleanup_py_ PyObject *self = seen ? PyTuple_Pack(3, found, seen, reducer) : NULL;
    _cleanup_py_ PyObject *aside = self ? PyCFunction_New(&set_aside_def, self) : NULL;

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

static PyObject *pickle_plainly(PyObject *object, PyObject *found, PyObject *reducer)
{
    _cleanup_py_ PyObject *module = PyImport_ImportModule("pickle");
    _cleanup_py_ PyObject *file = module ? pickle_new_file() : NULL;
    _cleanup_py_ PyObject *pickler =
        file ? PyObject_CallMethod(module, "Pickler", "Oi", file, PROTOCOL) : NULL;
    _cleanup_py_ PyObject *table =
        pickler ? PyObject_CallMethod(reducer, "dispatch_table", NULL) : NULL;

    if (!table || PyObject_SetAttrString(pickler, "dispatch_table", table) < 0)
        return NULL;
    return pickle_dump(pickler, file, object, found, reducer);
}

/* NULL without an exception: nothing else can do it. */
static PyObject *pickle_otherwise(PyObject *object, PyObject *found, PyObject *reducer)
{
    _cleanup_py_ PyObject *file = pickle_new_file();
    _cleanup_py_ PyObject *pickler =
        file ? PyObject_CallMethod(reducer, "pickler", "(O)", file) : NULL;
    PyObject *bytes = NULL;

    if (pickler && pickler != Py_None && PyList_SetSlice(found, 0, PY_SSIZE_T_MAX, NULL) == 0)
        bytes = pickle_dump(pickler, file, object, found, reducer);
    return bytes;
}

PyObject *pickle_object(PyObject *object, PyObject *found, bool layouts, PyObject *tensors)
{
    PyObject *kind, *value, *trace;

    if (pickle_refuse_graph(object) < 0)
        return NULL;
    _cleanup_py_ PyObject *results = PyImport_ImportModule("dloaderd._results");
    _cleanup_py_ PyObject *reducer =
        results ? PyObject_CallMethod(results, "Reducer", "OO", layouts ? Py_True : Py_False,
                                      tensors ? tensors : Py_None)
                : NULL;
    if (!reducer)
        return NULL;
    PyObject *bytes = pickle_plainly(object, found, reducer);
    if (bytes || !PyErr_ExceptionMatches(PyExc_Exception))
        return bytes;
    /* Its name is not known here, most likely. If nothing helps, the first error is the one. */
    PyErr_Fetch(&kind, &value, &trace);
    bytes = pickle_otherwise(object, found, reducer);
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
