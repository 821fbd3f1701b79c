/* What every call on a session has to see to: who may use it, the GIL while it waits, and errors.
 */
#include "client/python/src/module.h"
#include "proto/common/clock.h"

#include <errno.h>

struct module_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

/* ---- who may use it ---- */

bool client_check(const struct client_object *client)
{
    if (client->pid != getpid())
        PyErr_Format(PyExc_RuntimeError,
                     "this client was opened by process %ld: a child must open its own",
                     (long)client->pid);
    else if (client->busy)
        PyErr_SetString(PyExc_RuntimeError,
                        "another thread uses this client: a client, its loaders and their epochs "
                        "belong to one thread at a time; open another client for this one");
    else if (!client->handle)
        PyErr_SetString(PyExc_ValueError, "the client is closed");
    else
        return true;
    return false;
}

bool loader_check(const struct loader_object *loader)
{
    if (!client_check(loader->client))
        return false;
    if (!loader->handle)
        PyErr_SetString(PyExc_ValueError, "the loader is closed");
    return loader->handle;
}

PyThreadState *client_release_gil(struct client_object *client)
{
    client->busy = true;
    return PyEval_SaveThread();
}

static void py_call_end(struct dl_epoch *epoch, struct dl_loader *loader)
{
    dl_epoch_end(epoch);
    dl_loader_close(loader);
}

void client_take_gil(struct client_object *client, PyThreadState *thread)
{
    struct dropped *dropped;

    PyEval_RestoreThread(thread);
    client->busy = false;
    while ((dropped = client->dropped)) {
        client->dropped = dropped->next;
        py_call_end(dropped->epoch, dropped->loader);
        free(dropped);
    }
}

/* Called without the GIL, in the thread that gave it up. */
static int py_call_is_interrupted(void *thread)
{
    PyEval_RestoreThread(thread);
    int r = PyErr_CheckSignals();
    PyEval_SaveThread();
    dl_set_interrupt(py_call_is_interrupted, thread); /* the handler may have used another client */
    return r < 0;
}

PyThreadState *client_begin_call(struct client_object *client)
{
    PyThreadState *thread = client_release_gil(client);

    dl_set_interrupt(py_call_is_interrupted, thread);
    return thread;
}

/* Until then the caller is back in time to look at signals, and no wait is ended by them. */
static int py_call_is_interrupted_late(void *data)
{
    const struct long_wait *wait = data;

    return (int64_t)clock_ns() < wait->since ? 0 : py_call_is_interrupted(wait->thread);
}

void client_begin_wait(struct client_object *client, struct long_wait *wait)
{
    wait->thread = client_release_gil(client);
    dl_set_interrupt(py_call_is_interrupted_late, wait);
}

void client_call_back(PyThreadState *thread, PyObject *callable, uint64_t a, uint64_t b,
                      const char *text)
{
    PyEval_RestoreThread(thread);
    PyObject *done =
        PyObject_CallFunction(callable, "KKs", (unsigned long long)a, (unsigned long long)b, text);

    if (!done)
        PyErr_WriteUnraisable(callable);
    Py_XDECREF(done);
    PyEval_SaveThread();
    dl_set_interrupt(py_call_is_interrupted, thread); /* it may have used another client */
}

void client_end_call(struct client_object *client, PyThreadState *thread)
{
    dl_set_interrupt(NULL, NULL);
    client_take_gil(client, thread);
}

void client_drop(struct client_object *client, struct dl_epoch *epoch, struct dl_loader *loader)
{
    struct dropped **link, *dropped;

    if (!client->handle || client->pid != getpid())
        return;
    if (!client->busy) {
        py_call_end(epoch, loader);
        return;
    }
    dropped = malloc(sizeof *dropped);
    if (!dropped)
        return; /* it is ended with the client */
    *dropped = (struct dropped){.epoch = epoch, .loader = loader};
    for (link = &client->dropped; *link; link = &(*link)->next)
        ;
    *link = dropped;
}

/* ---- errors and small values ---- */

PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *count_or_none(uint64_t n)
{
    return n == DL_UNKNOWN ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(n);
}

PyObject *client_raise(struct module_state *state, const struct client_object *client, int r)
{
    if (PyErr_Occurred()) /* of a signal's handler */
        return NULL;
    bool usable = dl_client_is_usable(client->handle);
    PyObject *text = text_of(dl_client_error(client->handle));
    PyObject *path = text_of(dl_client_error_path(client->handle));
    PyObject *detail = text_of(dl_client_error_detail(client->handle));
    PyObject *type = usable ? state->error : PyExc_OSError;
    PyObject *error = NULL;

    /* Of OSError this is the subclass that goes with the errno. */
    if (text && path && detail)
        error = PyObject_CallFunction(type, "iO", -r, text);
    if (error && PyObject_SetAttrString(error, "path", path) == 0 &&
        PyObject_SetAttrString(error, "detail", detail) == 0)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(text);
    Py_XDECREF(path);
    Py_XDECREF(detail);
    return NULL;
}

int to_u64(PyObject *number, void *ret)
{
    unsigned long long n;

    number = PyNumber_Index(number);
    if (!number)
        return 0;
    n = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (n == (unsigned long long)-1 && PyErr_Occurred())
        return 0;
    *(uint64_t *)ret = n;
    return 1;
}

int to_u32(PyObject *number, void *ret)
{
    uint64_t n;

    if (!to_u64(number, &n))
        return 0;
    if (n > UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%llu is above %u", (unsigned long long)n, UINT32_MAX);
        return 0;
    }
    *(uint32_t *)ret = (uint32_t)n;
    return 1;
}
