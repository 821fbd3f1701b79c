/* Epoch: batches as Python objects, waiting that signals can interrupt, and the client as sampler.
 */
#include "client/python/src/module.h"
#include "proto/common/clock.h"

#include <errno.h>

#define NS_PER_MS    1000000LL
#define SLICE_NS     (100 * NS_PER_MS) /* signals are looked at so often */
#define SLOW_NS      (NS_PER_MS / 2)   /* what a call takes that makes batches by itself */
#define HOLD_BYTES   (256LL << 20)
#define KEYS_OR_INTS "indices: a sequence of ints, or a buffer of int64, is due"

struct epoch_object {
    PyObject_HEAD struct loader_object *loader; /* owned */
    struct dl_epoch *handle; /* NULL: ended; not to be used unless the loader is open */
    atomic_llong hold_bytes;
    bool slow;    /* a batch takes its time even when nothing is waited for */
    bool follows; /* the cluster: then any batch may have to wait for other nodes */
};

PyObject *epoch_object_new(struct module_state *state, struct loader_object *loader,
                           struct dl_epoch *handle, bool follows)
{
    struct epoch_object *epoch = (struct epoch_object *)PyType_GenericAlloc(state->epoch_type, 0);

    if (!epoch) {
        client_drop_epoch(loader, handle);
        return NULL;
    }
    epoch->loader = (struct loader_object *)Py_NewRef((PyObject *)loader);
    epoch->handle = handle;
    atomic_init(&epoch->hold_bytes, HOLD_BYTES);
    epoch->slow = epoch->follows = follows;
    return (PyObject *)epoch;
}

static void py_epoch_dealloc(PyObject *self)
{
    struct epoch_object *epoch = (struct epoch_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

    if (epoch->handle)
        client_drop_epoch(epoch->loader, epoch->handle);
    Py_XDECREF((PyObject *)epoch->loader);
    free_object(self);
    Py_DECREF(type);
}

static struct client_object *py_epoch_owner(PyObject *self)
{
    return ((struct epoch_object *)self)->loader->client;
}

static bool py_epoch_check(const struct epoch_object *epoch)
{
    if (!loader_check(epoch->loader))
        return false;
    if (!epoch->handle)
        PyErr_SetString(PyExc_ValueError, "the epoch has ended");
    return epoch->handle;
}

static struct dl_client *py_epoch_client_of(const struct epoch_object *epoch)
{
    return epoch->loader->client->handle;
}

/* ---- next ---- */

/* With the GIL, for what is there already. */
static int py_epoch_try_next(struct epoch_object *epoch, struct dl_batch **ret)
{
    uint64_t before = dl_epoch_wait_ns(epoch->handle);
    int r = dl_epoch_next(epoch->handle, 0, ret);

    /* As of a loader without workers: others are to run meanwhile, from the next one on. */
    if (r == 0 && dl_epoch_wait_ns(epoch->handle) - before > SLOW_NS)
        epoch->slow = true;
    return r;
}

/* Without the GIL. */
static int py_epoch_next_slice(struct epoch_object *epoch, int64_t timeout_ns,
                               struct dl_batch **ret)
{
    struct client_object *client = epoch->loader->client;
    struct long_wait wait;
    int r;

    if (epoch->follows) {
        wait.since = (int64_t)clock_ns() + 2 * SLICE_NS;
        client_begin_wait(client, &wait);
        r = dl_epoch_next(epoch->handle, timeout_ns, ret);
        client_end_call(client, wait.thread);
    } else {
        wait.thread = client_release_gil(client);
        r = dl_epoch_next(epoch->handle, timeout_ns, ret);
        client_take_gil(client, wait.thread);
    }
    return r;
}

/* As dl_epoch_next(), or -EINTR when a signal's handler has raised an exception. */
static int py_epoch_wait_next(struct epoch_object *epoch, int64_t timeout_ns, struct dl_batch **ret)
{
    struct client_object *client = epoch->loader->client;
    int64_t deadline;
    int r = epoch->slow ? -EAGAIN : py_epoch_try_next(epoch, ret);

    if (r != -EAGAIN || (timeout_ns == 0 && !epoch->slow))
        return r;
    if (timeout_ns < 0 || __builtin_add_overflow((int64_t)clock_ns(), timeout_ns, &deadline))
        deadline = INT64_MAX;
    for (;;) {
        int64_t left = deadline == INT64_MAX ? SLICE_NS : deadline - (int64_t)clock_ns();

        r = py_epoch_next_slice(epoch, left < 0 ? 0 : left < SLICE_NS ? left : SLICE_NS, ret);
        if ((r != -ETIMEDOUT && r != -EAGAIN) || !dl_client_is_usable(client->handle))
            return r;
        if (PyErr_CheckSignals() < 0)
            return -EINTR;
        if (left <= SLICE_NS && deadline != INT64_MAX && (int64_t)clock_ns() >= deadline)
            return -ETIMEDOUT;
    }
}

/* Sets `error`'s attribute; consumes `value`, which may be NULL. */
static bool py_epoch_set(PyObject *error, const char *name, PyObject *value)
{
    int r = value ? PyObject_SetAttrString(error, name, value) : -1;

    Py_XDECREF(value);
    return r == 0;
}

static PyObject *py_epoch_raise_step_error(struct epoch_object *epoch, int r)
{
    struct module_state *state = state_of((PyObject *)epoch);
    struct dl_client *client = py_epoch_client_of(epoch);
    PyObject *text = text_of(dl_client_error(client));
    PyObject *error = text ? PyObject_CallFunctionObjArgs(state->step_error, text, NULL) : NULL;

    if (error && py_epoch_set(error, "errno", PyLong_FromLong(-r)) &&
        py_epoch_set(error, "path", text_of(dl_client_error_path(client))) &&
        py_epoch_set(error, "text", Py_NewRef(text)) &&
        py_epoch_set(error, "detail", text_of(dl_client_error_detail(client))) &&
        py_epoch_set(error, "step", count_or_none(dl_epoch_failed_step(epoch->handle))))
        PyErr_SetObject(state->step_error, error);
    Py_XDECREF(error);
    Py_XDECREF(text);
    return NULL;
}

static PyObject *py_epoch_raise_next(struct epoch_object *epoch, int r)
{
    struct client_object *client = epoch->loader->client;
    struct module_state *state = state_of((PyObject *)epoch);

    if (r == -EINTR && PyErr_Occurred())
        return NULL;
    if (!dl_client_is_usable(client->handle))
        return client_raise(state, client, r);
    if (r == -EAGAIN || r == -ETIMEDOUT)
        PyErr_SetString(PyExc_TimeoutError, dl_client_error(client->handle));
    else if (r == -ENODATA)
        PyErr_SetString(state->no_data, dl_client_error(client->handle));
    else
        return py_epoch_raise_step_error(epoch, r);
    return NULL;
}

static bool py_epoch_has(struct dl_batch *batch, enum dl_node_kind kind)
{
    struct dl_node node;

    for (uint32_t i = 0; i < dl_batch_nodes(batch); i++)
        if (dl_batch_node(batch, i, &node) == 0 && node.kind == kind)
            return true;
    return false;
}

/*
 * A program that keeps batches keeps slots. Before they run short, further ones leave their slot
 * for private memory; and so do those that torch could write to, which knows no read-only memory,
 * where the spec does not allow it.
 */
static int py_epoch_detach_if_due(struct epoch_object *epoch, struct dl_batch *batch,
                                  enum mode mode)
{
    uint64_t held = dl_epoch_held_bytes(epoch->handle);
    uint64_t bound = max_u64((uint64_t)atomic_load(&epoch->hold_bytes), 2 * dl_batch_bytes(batch));
    bool keep = dl_batch_may_keep(batch) && held <= bound;

    /* Objects may refer to torch tensors in any mode. */
    if (!dl_batch_is_writable(batch) && (mode == MODE_TORCH || py_epoch_has(batch, DL_NODE_OBJECT)))
        keep = false;
    return keep || !py_epoch_has(batch, DL_NODE_TENSOR) ? 0 : dl_batch_detach(batch);
}

PyDoc_STRVAR(
    next_doc,
    "next($self, timeout_ns=-1, mode=0, /)\n--\n\n"
    "The next batch, or None at the end. timeout_ns below 0 waits as long as it takes. mode: 0 "
    "NumPy arrays, 1 torch tensors, 2 leaves for DLPack, 3 a list of (kind, key, children, value) "
    "of "
    "all nodes in preorder, where nothing is unpickled. TimeoutError: none is ready in time; "
    "NoData: feed more; StepError: this step failed, the epoch goes on; OSError: the session "
    "is over.");

static PyObject *py_epoch_next(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    struct epoch_object *epoch = (struct epoch_object *)self;
    struct dl_batch *batch = NULL;
    long long timeout_ns = -1;
    long mode = MODE_NUMPY;
    int r;

    if (n > 2)
        return PyErr_Format(PyExc_TypeError, "next() takes at most 2 arguments, not %zd", n);
    if (n > 0)
        timeout_ns = PyLong_AsLongLong(args[0]);
    if (n > 1 && !PyErr_Occurred())
        mode = PyLong_AsLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    if (mode < MODE_NUMPY || mode > MODE_NODES)
        return PyErr_Format(PyExc_ValueError, "mode %ld is none of 0 to 3", mode);
    if (!py_epoch_check(epoch))
        return NULL;
    r = py_epoch_wait_next(epoch, timeout_ns, &batch);
    if (r == DL_END)
        Py_RETURN_NONE;
    if (r < 0)
        return py_epoch_raise_next(epoch, r);
    r = py_epoch_detach_if_due(epoch, batch, (enum mode)mode);
    if (r < 0)
        return client_raise(state_of(self), epoch->loader->client, r);
    return batch_object_new(state_of(self), batch, (enum mode)mode);
}

/* ---- feeding ---- */

/* int64 or uint64, in one piece. */
static bool py_epoch_is_words(const Py_buffer *view)
{
    const char *format = view->format ? view->format : "B";

    if (*format == '@' || *format == '=' || *format == '<')
        format++;
    return view->itemsize == 8 && view->ndim == 1 && strlen(format) == 1 && strchr("lLqQ", *format);
}

/* Words of its own for what the caller gave: NULL with an exception set. */
static uint64_t *py_epoch_words_of_buffer(PyObject *indices, size_t *ret_n)
{
    Py_buffer view;
    uint64_t *words = NULL;

    if (PyObject_GetBuffer(indices, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
        return NULL;
    if (!py_epoch_is_words(&view)) {
        PyErr_SetString(PyExc_TypeError, KEYS_OR_INTS);
    } else if (!(words = malloc((size_t)view.len + 1))) {
        PyErr_NoMemory();
    } else {
        memcpy(words, view.buf, (size_t)view.len);
        *ret_n = (size_t)view.len / sizeof *words;
    }
    PyBuffer_Release(&view);
    return words;
}

/* The int64 value of a number, or that of an unsigned one above it. */
static bool py_epoch_word_of(PyObject *number, uint64_t *ret)
{
    long long n;

    number = PyNumber_Index(number);
    if (!number)
        return false;
    n = PyLong_AsLongLong(number);
    if (n == -1 && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        n = (long long)PyLong_AsUnsignedLongLong(number);
    }
    *ret = (uint64_t)n;
    Py_DECREF(number);
    return !PyErr_Occurred();
}

static uint64_t *py_epoch_words_of_sequence(PyObject *indices, size_t *ret_n)
{
    PyObject *list = PySequence_List(indices);
    Py_ssize_t n = list ? PyList_Size(list) : 0;
    uint64_t *words = list ? malloc((size_t)n * sizeof *words + 1) : NULL;

    if (list && !words)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; words && i < n; i++)
        if (!py_epoch_word_of(PyList_GetItem(list, i), &words[i])) {
            free(words);
            words = NULL;
        }
    Py_XDECREF(list);
    *ret_n = (size_t)n;
    return words;
}

PyDoc_STRVAR(
    feed_doc,
    "feed_batch($self, indices, /)\n--\n\n"
    "The indices of one more step, a sequence of ints or a buffer of int64. False: no room "
    "now; call next() first.");

static PyObject *py_epoch_feed_batch(PyObject *self, PyObject *indices)
{
    struct epoch_object *epoch = (struct epoch_object *)self;
    uint64_t *words;
    size_t n = 0;
    int r;

    if (!py_epoch_check(epoch))
        return NULL;
    if (PyObject_CheckBuffer(indices))
        words = py_epoch_words_of_buffer(indices, &n);
    else
        words = py_epoch_words_of_sequence(indices, &n);
    if (!words)
        return NULL;
    /* The caller's own code ran meanwhile. */
    if (!py_epoch_check(epoch)) {
        free(words);
        return NULL;
    }
    r = dl_epoch_feed_batch(epoch->handle, words, n);
    free(words);
    if (r == -EAGAIN && dl_client_is_usable(py_epoch_client_of(epoch)))
        Py_RETURN_FALSE;
    if (r < 0)
        return client_raise(state_of(self), epoch->loader->client, r);
    Py_RETURN_TRUE;
}

PyDoc_STRVAR(feed_end_doc, "feed_end($self, /)\n--\n\nNothing more is fed.");

static PyObject *py_epoch_feed_end(PyObject *self, PyObject *none)
{
    struct epoch_object *epoch = (struct epoch_object *)self;
    int r;

    if (!py_epoch_check(epoch))
        return NULL;
    r = dl_epoch_feed_end(epoch->handle);
    if (r < 0)
        return client_raise(state_of(self), epoch->loader->client, r);
    Py_RETURN_NONE;
}

/* ---- the rest ---- */

PyDoc_STRVAR(warning_doc,
             "warning($self, /)\n--\n\n"
             "What the daemon noticed since the last call, one line of text, or None.");

static PyObject *py_epoch_warning(PyObject *self, PyObject *none)
{
    struct epoch_object *epoch = (struct epoch_object *)self;
    const char *text;

    if (!py_epoch_check(epoch))
        return NULL;
    text = dl_epoch_warning(epoch->handle);
    return text ? text_of(text) : Py_NewRef(Py_None);
}

PyDoc_STRVAR(pin_doc,
             "pin($self, /)\n--\n\n"
             "Page-locks the session's shared memory for CUDA, now and from now on. Error, "
             "with the reason, where that cannot be done; everything else works as before.");

static PyObject *py_epoch_pin(PyObject *self, PyObject *none)
{
    struct epoch_object *epoch = (struct epoch_object *)self;
    struct client_object *client = epoch->loader->client;
    PyThreadState *thread;
    int r;

    if (!py_epoch_check(epoch))
        return NULL;
    thread = client_release_gil(client);
    r = dl_client_pin(client->handle);
    client_take_gil(client, thread);
    if (r < 0)
        return client_raise(state_of(self), client, r);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(end_doc, "end($self, /)\n--\n\nEnds it, early or after the last batch.");

static PyObject *py_epoch_end(PyObject *self, PyObject *none)
{
    struct epoch_object *epoch = (struct epoch_object *)self;

    if (!epoch->handle || !epoch->loader->handle || !epoch->loader->client->handle)
        Py_RETURN_NONE;
    if (!py_epoch_check(epoch))
        return NULL;
    epoch->handle = dl_epoch_end(epoch->handle);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(epoch_state_doc,
             "state($self, step=None, /)\n--\n\n"
             "The state at `step`, which is where it stands or a batch or two back, with what the "
             "dataset itself says of its place.");

static PyObject *py_epoch_state(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    struct epoch_object *epoch = (struct epoch_object *)self;
    unsigned long long step = DL_UNKNOWN;
    size_t len = 0;
    int r;

    if (n > 1)
        return PyErr_Format(PyExc_TypeError, "state() takes at most 1 argument, not %zd", n);
    if (n > 0 && args[0] != Py_None)
        step = PyLong_AsUnsignedLongLong(args[0]);
    if (PyErr_Occurred() || !py_epoch_check(epoch))
        return NULL;
    r = dl_epoch_whole_state(epoch->handle, step, NULL, &len);
    if (r != -ENOSPC)
        return client_raise(state_of(self), epoch->loader->client, r);
    PyObject *state = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)len);
    if (!state)
        return NULL;
    r = dl_epoch_whole_state(epoch->handle, step, PyBytes_AsString(state), &len);
    if (r == 0)
        return state;
    Py_DECREF(state);
    return client_raise(state_of(self), epoch->loader->client, r);
}

PyDoc_STRVAR(epoch_journal_doc,
             "journal($self, /)\n--\n\n"
             "The order in which its batches have come, where they may pass others.");

static PyObject *py_epoch_journal(PyObject *self, PyObject *none)
{
    struct epoch_object *epoch = (struct epoch_object *)self;
    size_t len = 0;
    int r;

    (void)none;
    if (!py_epoch_check(epoch))
        return NULL;
    r = dl_epoch_journal(epoch->handle, NULL, &len);
    if (r != -ENOSPC)
        return client_raise(state_of(self), epoch->loader->client, r);
    PyObject *journal = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)len);
    if (!journal)
        return NULL;
    r = dl_epoch_journal(epoch->handle, PyBytes_AsString(journal), &len);
    if (r == 0)
        return journal;
    Py_DECREF(journal);
    return client_raise(state_of(self), epoch->loader->client, r);
}

enum number {
    NUMBER_EPOCH,
    NUMBER_FIRST,
    NUMBER_RANK,
    NUMBER_WORLD,
    NUMBER_CHANGES,
    NUMBER_STEPS,
    NUMBER_SAMPLES,
    NUMBER_WAIT,
    NUMBER_HELD
};

static PyObject *py_epoch_number(PyObject *self, void *closure)
{
    const struct epoch_object *epoch = (struct epoch_object *)self;

    if (!py_epoch_check(epoch))
        return NULL;
    switch ((enum number)(uintptr_t)closure) {
    case NUMBER_EPOCH:
        return PyLong_FromUnsignedLongLong(dl_epoch_number(epoch->handle));
    case NUMBER_FIRST:
        return PyLong_FromUnsignedLongLong(dl_epoch_first(epoch->handle));
    case NUMBER_RANK:
        return PyLong_FromUnsignedLongLong(dl_epoch_rank(epoch->handle));
    case NUMBER_WORLD:
        return PyLong_FromUnsignedLongLong(dl_epoch_world(epoch->handle));
    case NUMBER_CHANGES:
        return PyLong_FromUnsignedLong(dl_epoch_changes(epoch->handle));
    case NUMBER_STEPS:
        return count_or_none(dl_epoch_steps(epoch->handle));
    case NUMBER_SAMPLES:
        return count_or_none(dl_epoch_samples(epoch->handle));
    case NUMBER_WAIT:
        return PyLong_FromUnsignedLongLong(dl_epoch_wait_ns(epoch->handle));
    case NUMBER_HELD:
        return PyLong_FromUnsignedLongLong(dl_epoch_held_bytes(epoch->handle));
    }
    Py_RETURN_NONE;
}

static PyObject *py_epoch_has_dataset_state(PyObject *self, void *closure)
{
    const struct epoch_object *epoch = (struct epoch_object *)self;

    return py_epoch_check(epoch) ? PyBool_FromLong(dl_epoch_has_dataset_state(epoch->handle))
                                 : NULL;
}

static PyObject *py_epoch_hold_bytes(PyObject *self, void *closure)
{
    return PyLong_FromLongLong(atomic_load(&((struct epoch_object *)self)->hold_bytes));
}

static int py_epoch_set_hold_bytes(PyObject *self, PyObject *value, void *closure)
{
    long long n = value ? PyLong_AsLongLong(value) : -1;

    if (n == -1 && PyErr_Occurred())
        return -1;
    if (n < 0) {
        PyErr_SetString(PyExc_ValueError, "hold_bytes: a number of bytes, 0 or more, is due");
        return -1;
    }
    atomic_store(&((struct epoch_object *)self)->hold_bytes, n);
    return 0;
}

CLAIMED_FAST(py_epoch_next, py_epoch_owner)
CLAIMED_METHOD(py_epoch_feed_batch, py_epoch_owner)
CLAIMED_METHOD(py_epoch_feed_end, py_epoch_owner)
CLAIMED_METHOD(py_epoch_warning, py_epoch_owner)
CLAIMED_FAST(py_epoch_state, py_epoch_owner)
CLAIMED_METHOD(py_epoch_journal, py_epoch_owner)
CLAIMED_METHOD(py_epoch_pin, py_epoch_owner)
CLAIMED_METHOD(py_epoch_end, py_epoch_owner)
CLAIMED_GETTER(py_epoch_number, py_epoch_owner)
CLAIMED_GETTER(py_epoch_has_dataset_state, py_epoch_owner)

static PyMethodDef epoch_methods[] = {
    {"next", (PyCFunction)(void (*)(void))py_epoch_next_claimed, METH_FASTCALL, next_doc},
    {"feed_batch", py_epoch_feed_batch_claimed, METH_O, feed_doc},
    {"feed_end", py_epoch_feed_end_claimed, METH_NOARGS, feed_end_doc},
    {"warning", py_epoch_warning_claimed, METH_NOARGS, warning_doc},
    {"state", (PyCFunction)(void (*)(void))py_epoch_state_claimed, METH_FASTCALL, epoch_state_doc},
    {"journal", py_epoch_journal_claimed, METH_NOARGS, epoch_journal_doc},
    {"pin", py_epoch_pin_claimed, METH_NOARGS, pin_doc},
    {"end", py_epoch_end_claimed, METH_NOARGS, end_doc},
    {0},
};

#define NUMBER(name, number, doc)                                             \
    {                                                                         \
        name, py_epoch_number_claimed, NULL, doc, (void *)(uintptr_t)(number) \
    }
static PyGetSetDef epoch_getset[] = {
    NUMBER("number", NUMBER_EPOCH, "Of the pass."),
    NUMBER("first", NUMBER_FIRST, "The first step of it that this one gives."),
    NUMBER("rank", NUMBER_RANK, "That it is of; of a cluster, what the nodes have agreed on."),
    NUMBER("world", NUMBER_WORLD, "How many ranks there are; likewise."),
    NUMBER("changes", NUMBER_CHANGES, "How often it has followed the cluster to another world."),
    NUMBER("steps", NUMBER_STEPS, "Of this rank, in the whole epoch; None: not known."),
    NUMBER("samples", NUMBER_SAMPLES, "Of this rank, in the whole epoch; None: not known."),
    NUMBER("wait_ns", NUMBER_WAIT, "Nanoseconds that next() has waited for batches."),
    NUMBER("held_bytes", NUMBER_HELD, "Shared memory that kept batches of the loader take."),
    {"has_dataset_state", py_epoch_has_dataset_state_claimed, NULL,
     "Whether the dataset has said anything of its own place.", NULL},
    {"hold_bytes", py_epoch_hold_bytes, py_epoch_set_hold_bytes,
     "Above so much held_bytes further batches are copied to private memory; 256 MiB.", NULL},
    {0},
};

PyDoc_STRVAR(epoch_doc, "One rank's pass over a loader; Loader.start() makes it.");

static PyType_Slot epoch_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)epoch_doc},
    {Py_tp_dealloc, py_epoch_dealloc},
    {Py_tp_methods, epoch_methods},
    {Py_tp_getset, epoch_getset},
    {0, NULL},
};

PyType_Spec epoch_spec = {
    .name = "dloaderd._client.Epoch",
    .basicsize = sizeof(struct epoch_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = epoch_slots,
};
