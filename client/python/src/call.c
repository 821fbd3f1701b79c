/* What every call on a session has to see to: which thread may use it, the GIL while it waits, and
 * errors.
 */
#include "client/python/src/module.h"
#include "proto/common/clock.h"

#include <errno.h>

struct module_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

/* ---- who may use it ---- */

bool client_try_claim(struct client_object *client)
{
    unsigned long me = PyThread_get_thread_ident(), user = 0;

    if (!atomic_compare_exchange_strong(&client->user, &user, me) && user != me)
        return false;
    client->depth++;
    return true;
}

static void client_end_dropped(struct client_object *client)
{
    struct dropped *dropped = atomic_exchange(&client->dropped, NULL), *next, *first = NULL;

    for (; dropped; dropped = next) { /* in the order in which they came */
        next = dropped->next;
        dropped->next = first;
        first = dropped;
    }
    for (; first; first = next) {
        next = first->next;
        /* With the client its loaders are ended, with a loader its epochs. */
        if (client->handle && first->epoch && first->of->handle)
            dl_epoch_end(first->epoch);
        else if (client->handle && !first->epoch)
            dl_loader_close(first->loader);
        Py_XDECREF((PyObject *)first->of);
        free(first);
    }
}

/* Who drops something adds it to the list and then looks for the user; the user goes and then looks
 * at the list: in the one order of these four one of both sees it. */
void client_release(struct client_object *client)
{
    if (client->pid != getpid())
        return;
    for (;;) {
        if (!client->busy)
            client_end_dropped(client);
        if (--client->depth > 0)
            return;
        atomic_store(&client->user, 0);
        if (!atomic_load(&client->dropped) || !client_try_claim(client))
            return;
    }
}

static void client_refuse_thread(void)
{
    PyErr_SetString(PyExc_RuntimeError,
                    "another thread uses this client: a client, its loaders and their epochs "
                    "belong to one thread at a time; open another client for this one");
}

bool client_claim(struct client_object *client)
{
    bool claimed = client->pid != getpid() || client_try_claim(client);

    if (!claimed)
        client_refuse_thread();
    return claimed;
}

bool client_check(const struct client_object *client)
{
    if (client->pid != getpid())
        PyErr_Format(PyExc_RuntimeError,
                     "this client was opened by process %ld: a child must open its own",
                     (long)client->pid);
    else if (client->busy)
        client_refuse_thread();
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

void client_take_gil(struct client_object *client, PyThreadState *thread)
{
    PyEval_RestoreThread(thread);
    client->busy = false;
    client_end_dropped(client);
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
    PyObject *done = PyObject_CallFunction(callable, "KKs", (ull)a, (ull)b, text);

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

/* Consumes `of`. */
static void client_drop(struct client_object *client, const struct dropped *what)
{
    struct dropped *dropped = client->pid == getpid() ? malloc(sizeof *dropped) : NULL;

    if (!dropped) { /* it is ended with the client */
        Py_XDECREF((PyObject *)what->of);
        return;
    }
    *dropped = *what;
    dropped->next = atomic_load(&client->dropped);
    while (!atomic_compare_exchange_weak(&client->dropped, &dropped->next, dropped))
        ;
    if (client_try_claim(client))
        client_release(client);
}

void client_drop_loader(struct client_object *client, struct dl_loader *loader)
{
    client_drop(client, &(struct dropped){.loader = loader});
}

void client_drop_epoch(struct loader_object *loader, struct dl_epoch *epoch)
{
    Py_INCREF((PyObject *)loader);
    client_drop(loader->client, &(struct dropped){.epoch = epoch, .of = loader});
}

void client_forget_dropped(struct client_object *client)
{
    client->handle = NULL;
    client_end_dropped(client);
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
    if (n == (ull)-1 && PyErr_Occurred())
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
        PyErr_Format(PyExc_OverflowError, "%llu is above %u", (ull)n, UINT32_MAX);
        return 0;
    }
    *(uint32_t *)ret = (uint32_t)n;
    return 1;
}

/* ---- what is looked up in other modules ---- */

PyObject *look_up_keep(PyObject **cache, PyObject *found)
{
    PyObject *first = NULL;

    if (!found || __atomic_compare_exchange_n(cache, &first, found, false, __ATOMIC_ACQ_REL,
                                              __ATOMIC_ACQUIRE))
        return found;
    Py_DECREF(found);
    return first;
}

PyObject *look_up_kept(PyObject **cache)
{
    return __atomic_load_n(cache, __ATOMIC_ACQUIRE);
}

PyObject *look_up(PyObject **cache, const char *module, const char *name)
{
    PyObject *kept = look_up_kept(cache), *found;

    if (kept)
        return kept;
    found = PyImport_ImportModule(module);
    if (!found)
        return NULL;
    kept = look_up_keep(cache, PyObject_GetAttrString(found, name));
    Py_DECREF(found);
    return kept;
}
