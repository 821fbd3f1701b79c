/* Batch: a tree of the ring as Python objects. */
#include "client/python/src/module.h"

#include <errno.h>
#include <stddef.h>
#include <structmember.h>

struct batch_object {
    PyObject_HEAD PyObject *data; /* owned: the tree */
    unsigned long long step, nbytes;
    unsigned int repeated;
    uint64_t *indices; /* owned: a copy */
    size_t n_indices;
    PyObject *lengths; /* owned: a list, or None */
};

/* ---- what is looked up in other modules ---- */

static PyObject *py_batch_find_from_dlpack(struct module_state *state)
{
    PyObject *found = look_up(&state->from_dlpack, "torch._C", "_from_dlpack");

    if (found)
        return found;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError))
        return NULL;
    PyErr_Clear();
    return look_up(&state->from_dlpack, "torch.utils.dlpack", "from_dlpack");
}

static PyObject *py_batch_find_dtype(struct module_state *state, uint32_t dtype)
{
    PyObject *type = NULL, *found = look_up_kept(&state->dtypes[dtype]);

    if (dtype == DL_BFLOAT16)
        return PyErr_Format(PyExc_TypeError, "NumPy has no bfloat16: ask for torch tensors");
    if (!found && look_up(&type, "numpy", "dtype")) {
        found = look_up_keep(&state->dtypes[dtype],
                             PyObject_CallFunction(type, "s", dl_type_name(dtype)));
        Py_DECREF(type);
    }
    return found;
}

/* ---- tensors ---- */

static PyObject *py_batch_no_memory(int r)
{
    if (r == -ENOMEM)
        return PyErr_NoMemory();
    return PyErr_Format(PyExc_SystemError, "a tensor could not be exported: errno %d", -r);
}

/* DLPack's bool is younger than torch 1.13: it goes as uint8 and is seen as bool. */
static PyObject *py_batch_view_as_bool(struct module_state *state, PyObject *tensor)
{
    PyObject *type = look_up(&state->torch_bool, "torch", "bool");
    PyObject *view = NULL;

    if (tensor && type)
        view = PyObject_CallMethod(tensor, "view", "O", type);
    Py_XDECREF(tensor);
    return view;
}

/* torch's own words for a dtype that it lacks do not say what to do. */
static PyObject *py_batch_explain_dtype(uint32_t dtype)
{
    PyObject *type, *cause, *traceback;

    if (PyErr_ExceptionMatches(PyExc_MemoryError) ||
        (dtype != DL_UINT16 && dtype != DL_UINT32 && dtype != DL_UINT64))
        return NULL;
    PyErr_Fetch(&type, &cause, &traceback);
    PyErr_Format(
        PyExc_TypeError,
        "this version of torch has no %s (%S): let the dataset give another dtype, or take "
        "NumPy arrays",
        dl_type_name(dtype), cause ? cause : Py_None);
    Py_XDECREF(type);
    Py_XDECREF(cause);
    Py_XDECREF(traceback);
    return NULL;
}

static PyObject *py_batch_torch_tensor(struct module_state *state, struct dl_batch *batch,
                                       uint32_t node, uint32_t dtype)
{
    PyObject *from_dlpack = py_batch_find_from_dlpack(state), *capsule, *tensor;
    struct DLManagedTensor *managed;
    int r;

    if (!from_dlpack)
        return NULL;
    r = dl_batch_node_dlpack(batch, node, &managed);
    if (r < 0)
        return py_batch_no_memory(r);
    if (dtype == DL_BOOL)
        managed->dl_tensor.code = DLPACK_CODE_UINT;
    capsule = capsule_new(managed);
    if (!capsule)
        return NULL;
    tensor = PyObject_CallFunctionObjArgs(from_dlpack, capsule, NULL);
    Py_DECREF(capsule);
    if (!tensor)
        return py_batch_explain_dtype(dtype);
    return dtype == DL_BOOL ? py_batch_view_as_bool(state, tensor) : tensor;
}

static PyObject *py_batch_raw_tensor(struct module_state *state, struct dl_batch *batch,
                                     uint32_t node, uint32_t dtype)
{
    struct DLManagedTensor *managed;
    int r = dl_batch_node_dlpack(batch, node, &managed);

    return r < 0 ? py_batch_no_memory(r)
                 : leaf_new(state, managed, dtype, dl_batch_is_writable(batch));
}

static PyObject *py_batch_shape_of(const struct dl_tensor *tensor)
{
    PyObject *shape = PyTuple_New((Py_ssize_t)tensor->ndim);

    for (uint32_t i = 0; shape && i < tensor->ndim; i++) {
        PyObject *n = PyLong_FromUnsignedLongLong(tensor->shape[i]);

        if (!n || PyTuple_SetItem(shape, (Py_ssize_t)i, n) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *py_batch_numpy_array(struct module_state *state, struct dl_batch *batch,
                                      uint32_t node, const struct dl_tensor *tensor)
{
    PyObject *ndarray = look_up(&state->ndarray, "numpy", "ndarray");
    PyObject *dtype = ndarray ? py_batch_find_dtype(state, tensor->dtype) : NULL;
    PyObject *leaf = dtype ? py_batch_raw_tensor(state, batch, node, tensor->dtype) : NULL;
    PyObject *shape = leaf ? py_batch_shape_of(tensor) : NULL;
    PyObject *array =
        shape ? PyObject_CallFunctionObjArgs(ndarray, shape, dtype, leaf, NULL) : NULL;

    Py_XDECREF(shape);
    Py_XDECREF(leaf);
    return array;
}

PyObject *batch_tensor(struct module_state *state, struct dl_batch *batch, uint32_t node,
                       const struct dl_tensor *tensor, enum mode mode)
{
    switch (mode) {
    case MODE_NUMPY:
        return py_batch_numpy_array(state, batch, node, tensor);
    case MODE_TORCH:
        return py_batch_torch_tensor(state, batch, node, tensor->dtype);
    case MODE_RAW:
    case MODE_NODES:
        break;
    }
    return py_batch_raw_tensor(state, batch, node, tensor->dtype);
}

/* ---- the tree ---- */

struct walk {
    struct module_state *state;
    struct dl_batch *batch;
    enum mode mode;
    uint32_t next_node;
};

static PyObject *py_batch_build(struct walk *walk);

uint32_t batch_skip(struct dl_batch *batch, uint32_t node)
{
    struct dl_node n;

    for (uint32_t left = 1; left > 0 && dl_batch_node(batch, node, &n) == 0; node++)
        left += n.children - 1;
    return node;
}

static PyObject *py_batch_build_string(struct walk *walk, const struct dl_node *node,
                                       uint32_t number, uint64_t i)
{
    const char *text;
    size_t len;

    if (dl_batch_node_text(walk->batch, number, i, &text, &len) < 0)
        return PyErr_Format(PyExc_ValueError, "text of step %llu was overwritten in shared memory",
                            (ull)dl_batch_step(walk->batch));
    if (node->kind == DL_NODE_BYTES)
        return PyBytes_FromStringAndSize(text, (Py_ssize_t)len);
    /* As workers encode what Python made of damaged file names. */
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "surrogateescape");
}

static PyObject *py_batch_build_text(struct walk *walk, const struct dl_node *node, uint32_t number)
{
    PyObject *list;

    if (!node->is_list)
        return py_batch_build_string(walk, node, number, 0);
    list = PyList_New((Py_ssize_t)node->count);
    for (uint64_t i = 0; list && i < node->count; i++) {
        PyObject *item = py_batch_build_string(walk, node, number, i);

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *py_batch_build_dict(struct walk *walk, const struct dl_node *node)
{
    PyObject *dict = PyDict_New();

    for (uint32_t i = 0; dict && i < node->children; i++) {
        PyObject *key = NULL, *item = NULL;
        struct dl_node child;

        if (dl_batch_node(walk->batch, walk->next_node, &child) == 0) {
            key = PyUnicode_DecodeUTF8(child.key ? child.key : "", (Py_ssize_t)child.key_len,
                                       "surrogateescape");
            item = key ? py_batch_build(walk) : NULL;
        }
        if (!item || PyDict_SetItem(dict, key, item) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(item);
    }
    return dict;
}

static PyObject *py_batch_build_list(struct walk *walk, const struct dl_node *node)
{
    PyObject *list = PyList_New((Py_ssize_t)node->children), *tuple;

    for (uint32_t i = 0; list && i < node->children; i++) {
        PyObject *item = py_batch_build(walk);

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    if (!list || node->kind == DL_NODE_LIST)
        return list;
    tuple = PyList_AsTuple(list);
    Py_DECREF(list);
    return tuple;
}

/* The object of the subtree at walk->next_node, which moves behind it. Depth is bounded by the
 * tree's. */
static PyObject *py_batch_build(struct walk *walk)
{
    uint32_t number = walk->next_node++;
    struct dl_node node;

    if (dl_batch_node(walk->batch, number, &node) < 0)
        return PyErr_Format(PyExc_SystemError, "node %u is missing", number);
    switch (node.kind) {
    case DL_NODE_TENSOR:
        return batch_tensor(walk->state, walk->batch, number, &node.tensor, walk->mode);
    case DL_NODE_DICT:
        return py_batch_build_dict(walk, &node);
    case DL_NODE_LIST:
    case DL_NODE_TUPLE:
        return py_batch_build_list(walk, &node);
    case DL_NODE_STRING:
    case DL_NODE_BYTES:
        return py_batch_build_text(walk, &node, number);
    case DL_NODE_OBJECT:
        walk->next_node = batch_skip(walk->batch, number);
        return unpickle(walk->state, walk->batch, number);
    }
    return PyErr_Format(PyExc_SystemError, "node %u is of kind %d", number, (int)node.kind);
}

/* ---- the nodes, one by one ---- */

/* What a node has beside its children; None: nothing. */
static PyObject *py_batch_build_value(struct walk *walk, const struct dl_node *node,
                                      uint32_t number)
{
    switch (node->kind) {
    case DL_NODE_TENSOR:
        return py_batch_raw_tensor(walk->state, walk->batch, number, node->tensor.dtype);
    case DL_NODE_STRING:
    case DL_NODE_BYTES:
        return py_batch_build_text(walk, node, number);
    case DL_NODE_DICT:
    case DL_NODE_LIST:
    case DL_NODE_TUPLE:
    case DL_NODE_OBJECT:
        break;
    }
    return Py_NewRef(Py_None);
}

static PyObject *py_batch_build_node(struct walk *walk, uint32_t number)
{
    struct dl_node node;

    if (dl_batch_node(walk->batch, number, &node) < 0)
        return PyErr_Format(PyExc_SystemError, "node %u is missing", number);
    PyObject *value = py_batch_build_value(walk, &node, number);
    PyObject *key =
        node.key ? PyUnicode_DecodeUTF8(node.key, (Py_ssize_t)node.key_len, "surrogateescape")
                 : Py_NewRef(Py_None);

    if (value && key)
        return Py_BuildValue("(iNIN)", (int)node.kind, key, node.children, value);
    Py_XDECREF(value);
    Py_XDECREF(key);
    return NULL;
}

static PyObject *py_batch_build_nodes(struct walk *walk)
{
    uint32_t n = dl_batch_nodes(walk->batch);
    PyObject *list = PyList_New((Py_ssize_t)n);

    for (uint32_t i = 0; list && i < n; i++) {
        PyObject *node = py_batch_build_node(walk, i);

        if (!node || PyList_SetItem(list, (Py_ssize_t)i, node) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* ---- the batch ---- */

static PyObject *py_batch_list_lengths(struct dl_batch *batch)
{
    const uint32_t *lengths;
    uint64_t padded;
    size_t n;
    PyObject *list;

    if (dl_batch_lengths(batch, &lengths, &n, &padded) < 0)
        return Py_NewRef(Py_None);
    list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *length = PyLong_FromUnsignedLong(lengths[i]);

        if (!length || PyList_SetItem(list, (Py_ssize_t)i, length) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *batch_object_new(struct module_state *state, struct dl_batch *batch, enum mode mode)
{
    struct walk walk = {.state = state, .batch = batch, .mode = mode};
    PyObject *self = PyType_GenericAlloc(state->batch_type, 0);
    struct batch_object *object = (struct batch_object *)self;
    const uint64_t *indices;

    if (!object)
        return NULL;
    indices = dl_batch_indices(batch, &object->n_indices);
    object->step = dl_batch_step(batch);
    object->nbytes = dl_batch_bytes(batch);
    object->repeated = dl_batch_repeated(batch);
    object->indices = malloc(object->n_indices * sizeof *indices + 1);
    if (object->indices) {
        memcpy(object->indices, indices, object->n_indices * sizeof *indices);
        object->lengths = mode == MODE_NODES ? py_batch_list_lengths(batch) : Py_NewRef(Py_None);
        object->data = mode == MODE_NODES ? py_batch_build_nodes(&walk) : py_batch_build(&walk);
    } else {
        PyErr_NoMemory();
    }
    if (!object->data || !object->lengths)
        Py_CLEAR(self);
    return self;
}

static int py_batch_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct batch_object *)self)->data);
    Py_VISIT(((struct batch_object *)self)->lengths);
    return 0;
}

static int py_batch_clear(PyObject *self)
{
    Py_CLEAR(((struct batch_object *)self)->data);
    Py_CLEAR(((struct batch_object *)self)->lengths);
    return 0;
}

static void py_batch_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

    PyObject_GC_UnTrack(self);
    py_batch_clear(self);
    free(((struct batch_object *)self)->indices);
    free_object(self);
    Py_DECREF(type);
}

static PyObject *py_batch_indices(PyObject *self, void *closure)
{
    const struct batch_object *batch = (struct batch_object *)self;
    PyObject *list = PyList_New((Py_ssize_t)batch->n_indices);

    for (size_t i = 0; list && i < batch->n_indices; i++) {
        PyObject *index = PyLong_FromLongLong((long long)batch->indices[i]);

        if (!index || PyList_SetItem(list, (Py_ssize_t)i, index) < 0)
            Py_CLEAR(list);
    }
    return list;
}

#define MEMBER(name, type, doc)                                           \
    {                                                                     \
#name, type, offsetof(struct batch_object, name), READONLY, (doc) \
    }
static PyMemberDef batch_members[] = {
    MEMBER(data, T_OBJECT, "The tree: dicts, lists and tuples of tensors and text."),
    MEMBER(step, T_ULONGLONG, "Its place in the epoch, from 0."),
    MEMBER(lengths, T_OBJECT,
           "In mode 3, of batches of tokens: the length of each sample as it is in the batch; else "
           "None."),
    MEMBER(repeated, T_UINT,
           "How many of the samples, the last ones, are there only so that all ranks get equally "
           "many."),
    MEMBER(nbytes, T_ULONGLONG, "Bytes of its tensors and text together."),
    {0},
};

static PyGetSetDef batch_getset[] = {
    {"indices", py_batch_indices, NULL, "The samples' indices as int64, in the order of the rows.",
     NULL},
    {0},
};

PyDoc_STRVAR(batch_doc, "A batch. Its tensors hold the memory they lie in, each by itself.");

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)batch_doc},
    {Py_tp_dealloc, py_batch_dealloc},
    {Py_tp_traverse, py_batch_traverse},
    {Py_tp_clear, py_batch_clear},
    {Py_tp_members, batch_members},
    {Py_tp_getset, batch_getset},
    {0, NULL},
};

PyType_Spec batch_spec = {
    .name = "dloaderd._client.Batch",
    .basicsize = sizeof(struct batch_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = batch_slots,
};
