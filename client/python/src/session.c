/* Client and Loader: a session, and what is opened in it. */
#include "client/python/src/module.h"
#include "proto/limits.h"

#include <stddef.h>
#include <structmember.h>

/* ---- Client ---- */

static struct client_object *py_session_client_alloc(PyTypeObject *type)
{
    struct client_object *client = (struct client_object *)PyType_GenericAlloc(type, 0);

    if (client)
        client->pid = getpid();
    return client;
}

/* The outcome of connecting; consumes `client` unless it is returned. */
static PyObject *py_session_connected(struct client_object *client, int r)
{
    if (r == 0)
        return (PyObject *)client;
    if (client->handle)
        client_raise(state_of((PyObject *)client), client, r);
    else
        PyErr_NoMemory();
    Py_DECREF((PyObject *)client);
    return NULL;
}

static PyObject *py_session_client_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"socket", "agent", NULL};
    const char *socket = NULL, *agent = NULL;
    struct client_object *client;
    PyThreadState *thread;
    int r;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zz:Client", names, &socket, &agent))
        return NULL;
    client = py_session_client_alloc(type);
    if (!client)
        return NULL;
    thread = client_begin_call(client);
    r = dl_client_connect(&client->handle, socket, agent ? agent : "python");
    client_end_call(client, thread);
    return py_session_connected(client, r);
}

PyDoc_STRVAR(local_doc, "local($type, /)\n--\n\n"
                        "A client without a daemon, for loaders that say workers: {count: 0}.");

static PyObject *py_session_client_local(PyObject *type, PyObject *none)
{
    struct client_object *client = py_session_client_alloc((PyTypeObject *)type);

    return client ? py_session_connected(client, dl_client_connect_local(&client->handle)) : NULL;
}

static void py_session_client_dealloc(PyObject *self)
{
    struct client_object *client = (struct client_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

    if (client->weak)
        PyObject_ClearWeakRefs(self);
    if (client->pid == getpid())
        dl_client_close(client->handle);
    client_forget_dropped(client);
    free_object(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
                        "Ends the session with its loaders and epochs. Tensors stay valid.");

static PyObject *py_session_client_close(PyObject *self, PyObject *none)
{
    struct client_object *client = (struct client_object *)self;

    if (!client->handle)
        Py_RETURN_NONE;
    if (!client_check(client))
        return NULL;
    client->handle = dl_client_close(client->handle);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    open_doc,
    "open($self, spec, base=None, writable=False, tell=None, /)\n--\n\n"
    "Opens a loader by its spec, YAML or JSON text, or by its name alone; relative "
    "paths start from base. writable: batches shall be, where the spec does not say it. tell: "
    "called with (done, all, what) now and then, while the workers find files, index them or take "
    "lengths of samples; all: 2**64 - 1 where nobody knows. Error, with the place in .path, if it "
    "is "
    "refused.");

struct session_teller {
    PyThreadState *thread;
    PyObject *tell; /* borrowed */
};

/* Called without the GIL, in the thread that gave it up. */
static void py_session_tell(void *data, uint64_t done, uint64_t all, const char *what)
{
    const struct session_teller *teller = data;

    client_call_back(teller->thread, teller->tell, done, all, what);
}

static PyObject *py_session_client_open(PyObject *self, PyObject *args)
{
    struct client_object *client = (struct client_object *)self;
    struct module_state *state = state_of(self);
    struct loader_object *loader;
    struct session_teller teller = {.tell = Py_None};
    const char *spec, *base = NULL;
    int writable = 0;
    Py_ssize_t len;
    int r;

    if (!PyArg_ParseTuple(args, "s#|zpO:open", &spec, &len, &base, &writable, &teller.tell) ||
        !client_check(client))
        return NULL;
    if (teller.tell != Py_None && !PyCallable_Check(teller.tell)) {
        PyErr_Format(PyExc_TypeError, "tell: %R cannot be called", teller.tell);
        return NULL;
    }
    loader = (struct loader_object *)PyType_GenericAlloc(state->loader_type, 0);
    if (!loader)
        return NULL;
    loader->client = (struct client_object *)Py_NewRef(self);
    dl_client_set_writable(client->handle, writable);
    dl_client_set_automatic(client->handle, true);
    if (teller.tell != Py_None)
        dl_client_set_progress(client->handle, py_session_tell, &teller);
    teller.thread = client_begin_call(client);
    r = dl_loader_open(client->handle, spec, (size_t)len, base, &loader->handle);
    client_end_call(client, teller.thread);
    dl_client_set_progress(client->handle, NULL, NULL);
    if (r == 0)
        return (PyObject *)loader;
    Py_DECREF((PyObject *)loader);
    return client_raise(state, client, r);
}

PyDoc_STRVAR(bring_host_doc,
             "bring_host($self, channel, number, /)\n--\n\n"
             "Brings a host of Python workers, for specs of this session that say dataset.host: "
             "number. `channel`: the descriptor of a socket whose other end the host has; it stays "
             "the caller's.");

static PyObject *py_session_client_bring_host(PyObject *self, PyObject *args)
{
    struct client_object *client = (struct client_object *)self;
    PyThreadState *thread;
    uint64_t number;
    int channel, r;

    if (!PyArg_ParseTuple(args, "iO&:bring_host", &channel, to_u64, &number) ||
        !client_check(client))
        return NULL;
    thread = client_begin_call(client);
    r = dl_client_bring_host(client->handle, channel, number);
    client_end_call(client, thread);
    if (r < 0)
        return client_raise(state_of(self), client, r);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(abandon_doc, "abandon($self, /)\n--\n\n"
                          "In a child made by fork(): closes what it has of its parent's session.");

static PyObject *py_session_client_abandon(PyObject *self, PyObject *none)
{
    struct client_object *client = (struct client_object *)self;

    if (client->pid != getpid())
        dl_client_abandon(client->handle);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(query_doc, "query($self, view, /)\n--\n\n"
                        "A view of the daemon as msgpack: \"status\", \"loaders\", \"epochs\", "
                        "\"workers\", \"ring\", \"sessions\", \"users\", \"quarantine\", "
                        "\"members\".");

static PyObject *py_session_client_query(PyObject *self, PyObject *args)
{
    struct client_object *client = (struct client_object *)self;
    PyThreadState *thread;
    const char *view;
    const void *data;
    size_t len;
    int r;

    if (!PyArg_ParseTuple(args, "s:query", &view) || !client_check(client))
        return NULL;
    thread = client_begin_call(client);
    r = dl_client_query(client->handle, view, &data, &len);
    client_end_call(client, thread);
    if (r < 0)
        return client_raise(state_of(self), client, r);
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)len);
}

PyDoc_STRVAR(control_doc, "control($self, verb, /)\n--\n\n"
                          "\"stop\", \"drain\" or \"reload\", for the daemon's own user and root.");

static PyObject *py_session_client_control(PyObject *self, PyObject *args)
{
    struct client_object *client = (struct client_object *)self;
    PyThreadState *thread;
    const char *verb;
    int r;

    if (!PyArg_ParseTuple(args, "s:control", &verb) || !client_check(client))
        return NULL;
    thread = client_begin_call(client);
    r = dl_client_control(client->handle, verb);
    client_end_call(client, thread);
    if (r < 0)
        return client_raise(state_of(self), client, r);
    Py_RETURN_NONE;
}

static PyObject *py_session_client_is_usable(PyObject *self, void *closure)
{
    struct client_object *client = (struct client_object *)self;

    if (client->pid != getpid())
        Py_RETURN_FALSE;
    if (!client_try_claim(client)) /* another thread uses it */
        Py_RETURN_TRUE;
    bool is_usable = client->handle && (client->busy || dl_client_is_usable(client->handle));
    client_release(client);
    return PyBool_FromLong(is_usable);
}

static struct client_object *py_session_client_of(PyObject *self)
{
    return (struct client_object *)self;
}

CLAIMED_METHOD(py_session_client_open, py_session_client_of)
CLAIMED_METHOD(py_session_client_bring_host, py_session_client_of)
CLAIMED_METHOD(py_session_client_query, py_session_client_of)
CLAIMED_METHOD(py_session_client_control, py_session_client_of)
CLAIMED_METHOD(py_session_client_close, py_session_client_of)

static PyMethodDef client_methods[] = {
    {"open", py_session_client_open_claimed, METH_VARARGS, open_doc},
    {"bring_host", py_session_client_bring_host_claimed, METH_VARARGS, bring_host_doc},
    {"abandon", py_session_client_abandon, METH_NOARGS, abandon_doc},
    {"query", py_session_client_query_claimed, METH_VARARGS, query_doc},
    {"control", py_session_client_control_claimed, METH_VARARGS, control_doc},
    {"close", py_session_client_close_claimed, METH_NOARGS, close_doc},
    {"local", py_session_client_local, METH_NOARGS | METH_CLASS, local_doc},
    {0},
};

static PyMemberDef client_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct client_object, weak), READONLY, NULL},
    {0},
};

static PyGetSetDef client_getset[] = {
    {"is_usable", py_session_client_is_usable, NULL,
     "False once an error was fatal, or it is closed.", NULL},
    {0},
};

PyDoc_STRVAR(client_doc,
             "Client(socket=None, agent=None)\n--\n\n"
             "A session with the daemon at `socket` (None: the default). Belongs to one "
             "thread at a time, and to the process that opened it.");

static PyType_Slot client_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)client_doc},
    {Py_tp_new, py_session_client_new},
    {Py_tp_dealloc, py_session_client_dealloc},
    {Py_tp_methods, client_methods},
    {Py_tp_getset, client_getset},
    {Py_tp_members, client_members},
    {0, NULL},
};

PyType_Spec client_spec = {
    .name = "dloaderd._client.Client",
    .basicsize = sizeof(struct client_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = client_slots,
};

/* ---- Loader ---- */

static void py_session_loader_dealloc(PyObject *self)
{
    struct loader_object *loader = (struct loader_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

    if (loader->handle)
        client_drop_loader(loader->client, loader->handle);
    Py_XDECREF((PyObject *)loader->client);
    free_object(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(loader_close_doc, "close($self, /)\n--\n\nEnds it and its epochs.");

static PyObject *py_session_loader_close(PyObject *self, PyObject *none)
{
    struct loader_object *loader = (struct loader_object *)self;

    if (!loader->handle || !loader->client->handle)
        Py_RETURN_NONE;
    if (!loader_check(loader))
        return NULL;
    loader->handle = dl_loader_close(loader->handle);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    start_doc,
    "start($self, /, epoch=0, rank=0, world=1, step=0, credits=0, state=None, job=None, "
    "dataset_states=None, follow=0, priority=0, left_out=0, replica=0, replicas=0, "
    "local_world=0, expected_steps=0, journal=None)\n--\n\n"
    "Starts a pass: its number, this consumer among `world`, the first step wanted, and how "
    "many batches are loaded ahead (0: as the spec says); or from a state, which says epoch and "
    "step by itself; or, as epoch RESUME, where this rank of the job has left off. With a step, "
    "`dataset_states` is what stands behind the token of Epoch.state(). follow: enum dl_follow of "
    "dlclient.h. priority: 0 normal, 1 high, 2 low. left_out: 0 an error, 1 a warning, 2 nothing, "
    "where an epoch of the cluster ends without samples. replica: which of the `replicas` of this "
    "node that read the rank's batches. local_world: ranks of each node, where the spec has "
    "shard.replicas; 0: all are on this one. expected_steps: of the epoch, where nobody else "
    "knows how many; for display; 0: not known. journal: what Epoch.journal() gave, the order in "
    "which batches come that may pass others.");

static PyObject *py_session_loader_start(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "epoch",    "rank",           "world",          "step",     "credits",  "state",
        "job",      "dataset_states", "follow",         "priority", "left_out", "replica",
        "replicas", "local_world",    "expected_steps", "journal",  NULL};
    struct loader_object *loader = (struct loader_object *)self;
    struct dl_epoch_options options = {.size = sizeof options, .world = 1};
    struct dl_epoch *handle = NULL;
    const char *state = NULL, *dataset_states = NULL, *journal = NULL;
    Py_ssize_t state_len = 0, dataset_states_len = 0, journal_len = 0;
    PyThreadState *thread;
    int r;

    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "|O&O&O&O&O&z#zz#O&O&O&O&O&O&O&z#:start", names, to_u64, &options.epoch,
            to_u32, &options.rank, to_u32, &options.world, to_u64, &options.step, to_u32,
            &options.credits, &state, &state_len, &options.job, &dataset_states,
            &dataset_states_len, to_u32, &options.follow, to_u32, &options.priority, to_u32,
            &options.left_out, to_u32, &options.replica, to_u32, &options.replicas, to_u32,
            &options.local_world, to_u64, &options.expected_steps, &journal, &journal_len) ||
        !loader_check(loader))
        return NULL;
    options.state = state;
    options.state_len = (size_t)state_len;
    options.dataset_states = dataset_states;
    options.dataset_states_len = (size_t)dataset_states_len;
    options.journal = journal;
    options.journal_len = (size_t)journal_len;
    thread = client_begin_call(loader->client);
    r = dl_epoch_start(loader->handle, &options, &handle);
    client_end_call(loader->client, thread);
    if (r < 0)
        return client_raise(state_of(self), loader->client, r);
    return epoch_object_new(state_of(self), loader, handle, options.follow);
}

PyDoc_STRVAR(state_doc,
             "state($self, /, epoch=0, world=1, step=0, state=None)\n--\n\n"
             "The token of that place; with a state, that of its epoch for `world`, at `step` "
             "unless that is 0.");

static PyObject *py_session_loader_state(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"epoch", "world", "step", "state", NULL};
    struct loader_object *loader = (struct loader_object *)self;
    struct dl_epoch_options options = {.size = sizeof options, .world = 1};
    size_t len = 0;
    const char *state = NULL;
    Py_ssize_t state_len = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O&O&O&z#:state", names, to_u64, &options.epoch,
                                     to_u32, &options.world, to_u64, &options.step, &state,
                                     &state_len) ||
        !loader_check(loader))
        return NULL;
    options.state = state;
    options.state_len = (size_t)state_len;
    int r = dl_loader_state(loader->handle, &options, NULL, &len);
    if (r != -ENOSPC)
        return client_raise(state_of(self), loader->client, r);
    PyObject *token = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)len);
    if (!token)
        return NULL;
    r = dl_loader_state(loader->handle, &options, PyBytes_AsString(token), &len);
    if (r == 0)
        return token;
    Py_DECREF(token);
    return client_raise(state_of(self), loader->client, r);
}

PyDoc_STRVAR(mix_doc,
             "mix($self, weights, epoch, step, /)\n--\n\n"
             "(epoch, step) from where on a mixture's datasets have these weights: a list of "
             "pairs of name and weight; 2**64-1: the first that can be.");

static int py_session_take_weight(PyObject *pair, struct dl_mix_weight *ret)
{
    return PyArg_ParseTuple(pair, "sd:mix", &ret->dataset, &ret->weight) ? 0 : -1;
}

static PyObject *py_session_loader_mix(PyObject *self, PyObject *args)
{
    struct loader_object *loader = (struct loader_object *)self;
    struct dl_mix_weight weights[DL_BOUND_MIX_CHILDREN];
    PyObject *list;
    uint64_t epoch, step;

    if (!PyArg_ParseTuple(args, "O!O&O&:mix", &PyList_Type, &list, to_u64, &epoch, to_u64, &step) ||
        !loader_check(loader))
        return NULL;
    Py_ssize_t n = PyList_Size(list);
    for (Py_ssize_t i = 0; i < n && i < (Py_ssize_t)DL_BOUND_MIX_CHILDREN; i++)
        if (py_session_take_weight(PyList_GetItem(list, i), &weights[i]) < 0)
            return NULL;
    PyThreadState *thread = client_begin_call(loader->client);
    int r = dl_loader_mix(loader->handle, weights, (size_t)n, &epoch, &step);
    client_end_call(loader->client, thread);
    if (r < 0)
        return client_raise(state_of(self), loader->client, r);
    return Py_BuildValue("(KK)", (ull)epoch, (ull)step);
}

PyDoc_STRVAR(sample_weights_doc,
             "sample_weights($self, weights, epoch, step, /)\n--\n\n"
             "(epoch, step) from where on a weighted sampler draws by these: a float64 for each "
             "sample, as contiguous bytes; 2**64-1: the first that can be.");

static PyObject *py_session_loader_sample_weights(PyObject *self, PyObject *args)
{
    struct loader_object *loader = (struct loader_object *)self;
    const char *bytes;
    Py_ssize_t len;
    uint64_t epoch, step;

    if (!PyArg_ParseTuple(args, "y#O&O&:sample_weights", &bytes, &len, to_u64, &epoch, to_u64,
                          &step) ||
        !loader_check(loader))
        return NULL;
    double *weights = malloc((size_t)len + sizeof *weights); /* which may lie anywhere */
    if (!weights)
        return PyErr_NoMemory();
    PyThreadState *thread = client_begin_call(loader->client);
    memcpy(weights, bytes, (size_t)len);
    int r =
        dl_loader_weights(loader->handle, weights, (size_t)len / sizeof *weights, &epoch, &step);
    free(weights);
    client_end_call(loader->client, thread);
    if (r < 0)
        return client_raise(state_of(self), loader->client, r);
    return Py_BuildValue("(KK)", (ull)epoch, (ull)step);
}

PyDoc_STRVAR(find_state_doc,
             "find_state($self, state, world, /)\n--\n\n"
             "(epoch, step) where that world resumes; Error, with what differs, if the state is "
             "of something else.");

static PyObject *py_session_loader_find_state(PyObject *self, PyObject *args)
{
    struct loader_object *loader = (struct loader_object *)self;
    uint64_t epoch, step;
    const char *state;
    Py_ssize_t len;
    uint32_t world;

    if (!PyArg_ParseTuple(args, "y#O&:find_state", &state, &len, to_u32, &world) ||
        !loader_check(loader))
        return NULL;
    int r = dl_loader_find_state(loader->handle, state, (size_t)len, world, &epoch, &step);
    if (r < 0)
        return client_raise(state_of(self), loader->client, r);
    return Py_BuildValue("(KK)", (ull)epoch, (ull)step);
}

enum fact {
    FACT_NAME,
    FACT_LENGTH,
    FACT_BATCH_SIZE,
    FACT_SEED,
    FACT_FINGERPRINT,
    FACT_ITERABLE,
    FACT_IN_ORDER,
    FACT_REPLICAS
};

static PyObject *py_session_loader_fact(PyObject *self, void *closure)
{
    const struct loader_object *loader = (struct loader_object *)self;

    if (!loader_check(loader))
        return NULL;
    switch ((enum fact)(uintptr_t)closure) {
    case FACT_NAME:
        return text_of(dl_loader_name(loader->handle));
    case FACT_LENGTH:
        return count_or_none(dl_loader_length(loader->handle));
    case FACT_BATCH_SIZE:
        return PyLong_FromUnsignedLongLong(dl_loader_batch_size(loader->handle));
    case FACT_SEED:
        return PyLong_FromUnsignedLongLong(dl_loader_seed(loader->handle));
    case FACT_FINGERPRINT:
        return PyLong_FromUnsignedLongLong(dl_loader_fingerprint(loader->handle));
    case FACT_ITERABLE:
        return PyBool_FromLong(dl_loader_is_iterable(loader->handle));
    case FACT_IN_ORDER:
        return PyBool_FromLong(dl_loader_in_order(loader->handle));
    case FACT_REPLICAS:
        return PyLong_FromUnsignedLong(dl_loader_replicas(loader->handle));
    }
    Py_RETURN_NONE;
}

static struct client_object *py_session_loader_owner(PyObject *self)
{
    return ((struct loader_object *)self)->client;
}

CLAIMED_NAMED(py_session_loader_start, py_session_loader_owner)
CLAIMED_NAMED(py_session_loader_state, py_session_loader_owner)
CLAIMED_METHOD(py_session_loader_find_state, py_session_loader_owner)
CLAIMED_METHOD(py_session_loader_mix, py_session_loader_owner)
CLAIMED_METHOD(py_session_loader_sample_weights, py_session_loader_owner)
CLAIMED_METHOD(py_session_loader_close, py_session_loader_owner)
CLAIMED_GETTER(py_session_loader_fact, py_session_loader_owner)

static PyMethodDef loader_methods[] = {
    {"start", (PyCFunction)(void (*)(void))py_session_loader_start_claimed,
     METH_VARARGS | METH_KEYWORDS, start_doc},
    {"state", (PyCFunction)(void (*)(void))py_session_loader_state_claimed,
     METH_VARARGS | METH_KEYWORDS, state_doc},
    {"find_state", py_session_loader_find_state_claimed, METH_VARARGS, find_state_doc},
    {"mix", py_session_loader_mix_claimed, METH_VARARGS, mix_doc},
    {"sample_weights", py_session_loader_sample_weights_claimed, METH_VARARGS, sample_weights_doc},
    {"close", py_session_loader_close_claimed, METH_NOARGS, loader_close_doc},
    {0},
};

#define FACT(name, number, doc)                                                      \
    {                                                                                \
        name, py_session_loader_fact_claimed, NULL, doc, (void *)(uintptr_t)(number) \
    }
static PyGetSetDef loader_getset[] = {
    FACT("name", FACT_NAME, "What other clients open it by."),
    FACT("length", FACT_LENGTH, "Samples in the dataset; None: it does not say."),
    FACT("batch_size", FACT_BATCH_SIZE, "Samples in a batch; 0: they come as they are."),
    FACT("replicas", FACT_REPLICAS, "Ranks that read the same batches, by the spec; 1: none do."),
    FACT("seed", FACT_SEED, "The seed in force, given or drawn."),
    FACT("fingerprint", FACT_FINGERPRINT, "Equal for specs that give the same batches."),
    FACT("iterable", FACT_ITERABLE, "Whether the dataset is iterable: steps may be left out."),
    FACT("in_order", FACT_IN_ORDER, "Whether batches come in the order of their steps."),
    {0},
};

PyDoc_STRVAR(loader_doc,
             "A dataset with its sampler, batching and workers; Client.open() makes it.");

static PyType_Slot loader_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)loader_doc},
    {Py_tp_dealloc, py_session_loader_dealloc},
    {Py_tp_methods, loader_methods},
    {Py_tp_getset, loader_getset},
    {0, NULL},
};

PyType_Spec loader_spec = {
    .name = "dloaderd._client.Loader",
    .basicsize = sizeof(struct loader_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = loader_slots,
};
