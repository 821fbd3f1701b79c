/*
 * Objects in trees: what Python code in a worker made that is no dict, list, tuple, tensor or text,
 * as a pickle whose persistent ids are the tensors that lie beside it: ("t", i) as torch's, ("n",
 * i) as NumPy's, of child 1 + i.
 */
#include "client/python/src/module.h"

static const char capsule_name[] = "dloaderd._client.children";

/* What persistent ids refer to, while the pickle is read. */
struct children {
    struct module_state *state;
    struct dl_batch *batch;
    uint32_t *nodes; /* owned: the number of each child's node */
    PyObject **made; /* owned, and what is in it: each child once it was asked for; twice n:
                        torch's, then NumPy's */
    Py_ssize_t n;
};

static void py_pickled_children_free(PyObject *capsule)
{
    struct children *children = PyCapsule_GetPointer(capsule, capsule_name);

    for (Py_ssize_t i = 0; children->made && i < 2 * children->n; i++)
        Py_XDECREF(children->made[i]);
    free(children->made);
    free(children->nodes);
    free(children);
}

/* Owned by the capsule that is returned; the object's first child is the pickle. */
static PyObject *py_pickled_children_new(struct module_state *state, struct dl_batch *batch,
                                         uint32_t node, uint32_t n, struct children **ret)
{
    struct children *children = calloc(1, sizeof *children);
    PyObject *capsule =
        children ? PyCapsule_New(children, capsule_name, py_pickled_children_free) : NULL;
    uint32_t at = node + 2;

    if (!capsule) {
        free(children);
        return children ? NULL : PyErr_NoMemory();
    }
    children->nodes = calloc(n, sizeof *children->nodes);
    children->made = calloc(2 * (size_t)n, sizeof *children->made);
    if (!children->nodes || !children->made) {
        Py_DECREF(capsule);
        return PyErr_NoMemory();
    }
    children->state = state;
    children->batch = batch;
    children->n = (Py_ssize_t)n;
    for (uint32_t i = 0; i < n; i++, at = batch_skip(batch, at))
        children->nodes[i] = at;
    *ret = children;
    return capsule;
}

/* Of the unpickler: what a persistent id stands for. */
static PyObject *py_pickled_persistent_load(PyObject *capsule, PyObject *id)
{
    struct children *children = PyCapsule_GetPointer(capsule, capsule_name);
    PyObject **made;
    struct dl_node node;
    const char *kind;
    Py_ssize_t i;

    if (!children)
        return NULL;
    if (!PyTuple_Check(id) || !PyArg_ParseTuple(id, "sn", &kind, &i) || i < 0 || i >= children->n ||
        (strcmp(kind, "t") != 0 && strcmp(kind, "n") != 0)) {
        PyErr_Clear();
        return PyErr_Format(PyExc_ValueError,
                            "a pickled object refers to %R, which is not a tensor of its batch",
                            id);
    }
    if (!children->batch)
        return PyErr_Format(PyExc_RuntimeError, "the object was read already");
    made = &children->made[*kind == 't' ? i : children->n + i];
    if (!*made) {
        if (dl_batch_node(children->batch, children->nodes[i], &node) < 0 ||
            node.kind != DL_NODE_TENSOR)
            return PyErr_Format(PyExc_ValueError, "child %zd of a pickled object is not a tensor",
                                i);
        *made = batch_tensor(children->state, children->batch, children->nodes[i], &node.tensor,
                             *kind == 't' ? MODE_TORCH : MODE_NUMPY);
    }
    return Py_XNewRef(*made);
}

static PyMethodDef persistent_method = {"persistent_load", py_pickled_persistent_load, METH_O,
                                        NULL};

/* The pickle refers to nothing: read where it lies. */
static PyObject *py_pickled_load_plain(struct module_state *state, const char *pickle, size_t len)
{
    PyObject *loads = look_up(&state->loads, "pickle", "loads");
    PyObject *view = NULL, *object = NULL;

    if (loads)
        view = PyMemoryView_FromMemory((char *)(uintptr_t)pickle, (Py_ssize_t)len, PyBUF_READ);
    if (view)
        object = PyObject_CallFunctionObjArgs(loads, view, NULL);
    Py_XDECREF(view);
    return object;
}

/* An unpickler of `pickle` that asks `load` for persistent ids. */
static PyObject *py_pickled_unpickler_new(struct module_state *state, const char *pickle,
                                          size_t len, PyObject *load)
{
    PyObject *type = look_up(&state->unpickler, "pickle", "Unpickler");
    PyObject *bytes_io = type ? look_up(&state->bytes_io, "io", "BytesIO") : NULL;
    PyObject *file = NULL, *unpickler = NULL;

    if (bytes_io)
        file = PyObject_CallFunction(bytes_io, "y#", pickle, (Py_ssize_t)len);
    if (file)
        unpickler = PyObject_CallFunctionObjArgs(type, file, NULL);
    if (unpickler && PyObject_SetAttrString(unpickler, "persistent_load", load) < 0)
        Py_CLEAR(unpickler);
    Py_XDECREF(file);
    return unpickler;
}

static PyObject *py_pickled_load_with(struct module_state *state, const char *pickle, size_t len,
                                      PyObject *capsule)
{
    PyObject *load = PyCFunction_New(&persistent_method, capsule);
    PyObject *unpickler = load ? py_pickled_unpickler_new(state, pickle, len, load) : NULL;
    PyObject *object = unpickler ? PyObject_CallMethod(unpickler, "load", NULL) : NULL;

    Py_XDECREF(unpickler);
    Py_XDECREF(load);
    return object;
}

PyObject *unpickle(struct module_state *state, struct dl_batch *batch, uint32_t node)
{
    struct children *children = NULL;
    PyObject *capsule, *object;
    struct dl_node self;
    const char *pickle;
    size_t len;

    if (dl_batch_node(batch, node, &self) < 0 ||
        dl_batch_node_text(batch, node + 1, 0, &pickle, &len) < 0)
        return PyErr_Format(PyExc_ValueError, "node %u is an object without a pickle", node);
    if (self.children == 1)
        return py_pickled_load_plain(state, pickle, len);
    capsule = py_pickled_children_new(state, batch, node, self.children - 1, &children);
    if (!capsule)
        return NULL;
    object = py_pickled_load_with(state, pickle, len, capsule);
    children->batch = NULL; /* a caller that kept persistent_load finds nothing behind it */
    Py_DECREF(capsule);
    return object;
}
