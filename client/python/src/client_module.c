/* The module dloaderd._client: what is in it, and its end. */
#include "client/python/src/module.h"

PyDoc_STRVAR(error_doc, "A request that was refused: .errno, the text, its place in .path, and "
                        ".detail: the report of Python code that failed, or \"\".");
PyDoc_STRVAR(
    step_error_doc,
    "A step could not be loaded; the epoch goes on. .errno, .path, .text, .detail (the whole "
    "report, or \"\"), .step (None: of no one step).");
PyDoc_STRVAR(no_data_doc, "All that was fed was received: feed more, or say the end.");

static int py_module_add_exception(PyObject *module, const char *name, const char *doc,
                                   PyObject *base, PyObject **ret)
{
    *ret = PyErr_NewExceptionWithDoc(name, doc, base, NULL);
    return *ret ? PyModule_AddObjectRef(module, strrchr(name, '.') + 1, *ret) : -1;
}

static int py_module_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret)
{
    *ret = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *ret ? PyModule_AddType(module, *ret) : -1;
}

static int py_module_exec(PyObject *module)
{
    struct module_state *state = PyModule_GetState(module);

    if (py_module_add_exception(module, "dloaderd._client.Error", error_doc, PyExc_OSError,
                                &state->error) < 0 ||
        py_module_add_exception(module, "dloaderd._client.StepError", step_error_doc,
                                PyExc_RuntimeError, &state->step_error) < 0 ||
        py_module_add_exception(module, "dloaderd._client.NoData", no_data_doc, PyExc_Exception,
                                &state->no_data) < 0 ||
        py_module_add_type(module, &client_spec, &state->client_type) < 0 ||
        py_module_add_type(module, &loader_spec, &state->loader_type) < 0 ||
        py_module_add_type(module, &epoch_spec, &state->epoch_type) < 0 ||
        py_module_add_type(module, &batch_spec, &state->batch_type) < 0 ||
        py_module_add_type(module, &leaf_spec, &state->leaf_type) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", dl_version());
}

/* All of the state, which is nothing but references. */
static PyObject **py_module_references(struct module_state *state, size_t *ret_n)
{
    _Static_assert(sizeof *state % sizeof(PyObject *) == 0, "nothing but references");
    *ret_n = sizeof *state / sizeof(PyObject *);
    return (PyObject **)(void *)state;
}

static int py_module_traverse(PyObject *module, visitproc visit, void *arg)
{
    size_t n;
    PyObject **all = py_module_references(PyModule_GetState(module), &n);

    for (size_t i = 0; i < n; i++)
        Py_VISIT(all[i]);
    return 0;
}

static int py_module_clear(PyObject *module)
{
    size_t n;
    PyObject **all = py_module_references(PyModule_GetState(module), &n);

    for (size_t i = 0; i < n; i++)
        Py_CLEAR(all[i]);
    return 0;
}

static void py_module_free(void *module)
{
    py_module_clear(module);
}

PyDoc_STRVAR(
    pin_available_doc,
    "pin_available($module, /)\n--\n\n"
    "(True, \"\"), or (False, why): whether there is libcuda and a device to page-lock for.");

static PyObject *py_module_pin_available(PyObject *module, PyObject *none)
{
    char why[512];
    int r = dl_pin_check(why, sizeof why);

    return Py_BuildValue("(NN)", PyBool_FromLong(r == 0), text_of(why));
}

PyDoc_STRVAR(state_json_doc, "state_json($module, state, /)\n--\n\n"
                             "What is in a state, as JSON; ValueError: it is none.");

static PyObject *py_module_state_json(PyObject *module, PyObject *args)
{
    char json[4096];
    const char *state;
    Py_ssize_t len;

    (void)module;
    if (!PyArg_ParseTuple(args, "y#:state_json", &state, &len))
        return NULL;
    if (dl_state_json(state, (size_t)len, json, sizeof json) < 0)
        return PyErr_Format(PyExc_ValueError, "this is not a state that this release knows");
    return text_of(json);
}

PyDoc_STRVAR(
    from_environment_doc,
    "from_environment($module, rank, world, /)\n--\n\n"
    "(rank, world, job) with what is None from the environment, as launchers set it up; None: it "
    "does not say. ValueError: a variable, and what is wrong with it.");

/* None: not given. */
static int py_module_take_given(PyObject *from, unsigned flag, uint32_t *ret, unsigned *given)
{
    unsigned long n;

    if (from == Py_None)
        return 0;
    n = PyLong_AsUnsignedLong(from);
    if (n > UINT32_MAX) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "a rank or world size of more than 32 bits");
        return -1;
    }
    *ret = (uint32_t)n;
    *given |= flag;
    return 0;
}

static PyObject *py_module_number(uint32_t n, bool absent)
{
    return absent ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(n);
}

static PyObject *py_module_from_environment(PyObject *module, PyObject *args)
{
    struct dl_epoch_options o = {.size = sizeof o, .rank = UINT32_MAX};
    PyObject *rank, *world;
    unsigned given = 0;
    char job[DL_JOB_BYTES], why[512];

    (void)module;
    if (!PyArg_ParseTuple(args, "OO:from_environment", &rank, &world) ||
        py_module_take_given(rank, DL_GIVEN_RANK, &o.rank, &given) < 0 ||
        py_module_take_given(world, DL_GIVEN_WORLD, &o.world, &given) < 0)
        return NULL;
    if (dl_epoch_options_from_env(&o, given, job, why, sizeof why) < 0) {
        PyObject *text = text_of(why);
        if (text)
            PyErr_SetObject(PyExc_ValueError, text);
        Py_XDECREF(text);
        return NULL;
    }
    return Py_BuildValue("(NNN)", py_module_number(o.rank, o.rank == UINT32_MAX),
                         py_module_number(o.world, o.world == 0),
                         o.job ? text_of(o.job) : Py_NewRef(Py_None));
}

PyDoc_STRVAR(mesh_doc,
             "mesh($module, text, rank, local_world, /)\n--\n\n"
             "(rank, world, replica, replicas) of a rank in a mesh such as \"dp=4,tp=2\".");

static PyObject *py_module_mesh(PyObject *module, PyObject *args)
{
    struct dl_epoch_options o = {.size = sizeof o};
    unsigned int rank, local_world;
    const char *text;
    char why[512];

    (void)module;
    if (!PyArg_ParseTuple(args, "sII:mesh", &text, &rank, &local_world))
        return NULL;
    if (dl_epoch_options_set_mesh(&o, text, rank, local_world, why, sizeof why) < 0) {
        PyErr_SetString(PyExc_ValueError, why);
        return NULL;
    }
    return Py_BuildValue("(IIII)", o.rank, o.world, o.replica, o.replicas);
}

static PyMethodDef module_methods[] = {
    {"from_environment", py_module_from_environment, METH_VARARGS, from_environment_doc},
    {"mesh", py_module_mesh, METH_VARARGS, mesh_doc},
    {"state_json", py_module_state_json, METH_VARARGS, state_json_doc},
    {"pin_available", py_module_pin_available, METH_NOARGS, pin_available_doc},
    {0},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, py_module_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

PyDoc_STRVAR(module_doc, "libdlclient for Python: sessions with dloaderd, and batches in place.");

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dloaderd._client",
    .m_doc = module_doc,
    .m_size = sizeof(struct module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = py_module_traverse,
    .m_clear = py_module_clear,
    .m_free = py_module_free,
};

PyMODINIT_FUNC PyInit__client(void);
PyMODINIT_FUNC PyInit__client(void)
{
    return PyModuleDef_Init(&module_def);
}
