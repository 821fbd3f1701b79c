/*
 * dloaderd._client: libdlclient for Python. What its files share.
 *
 *   client_module.c  the module: exceptions, types          call.c     what every call sees to
 *   session.c  Client and Loader                            batch.c    trees as Python objects
 *   epoch.c    Epoch: receiving, feeding, waiting           pickled.c  objects in trees
 *   leaf.c     a tensor without a library: buffer, DLPack
 *
 * Written for the stable ABI of CPython 3.11, and for the API of a free-threaded one. With a GIL or
 * without, a thread claims a client for the time of a method of it, its loaders or their epochs:
 * other threads that call one meanwhile are refused, and what they drop is ended when the client is
 * free again. A leaf of a batch holds a reference of its own on the batch, which may be dropped in
 * any thread and after the client was closed. In a child made by fork() nothing may be used, and
 * what is dropped is left alone: it is the parent's.
 */
#ifndef DL_PYTHON_MODULE_H
#define DL_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "client/dlclient.h"
#include "client/python/src/dlpack.h"
#include "proto/common/base.h"

#include <stdatomic.h>
#include <sys/types.h>

enum { DTYPES = DL_COMPLEX128 + 1 };

/* How the tensors of a batch are given out. */
enum mode { MODE_NUMPY = 0, MODE_TORCH = 1, MODE_RAW = 2, MODE_NODES = 3 };

struct module_state {
    PyTypeObject *client_type, *loader_type, *epoch_type, *batch_type, *leaf_type;
    PyObject *error, *step_error, *no_data; /* exceptions */

    /* Looked up when they are needed for the first time; NULL until then. */
    PyObject *from_dlpack;    /* torch's */
    PyObject *torch_bool;     /* torch.bool */
    PyObject *ndarray;        /* numpy.ndarray */
    PyObject *dtypes[DTYPES]; /* NumPy's, by enum dl_type */
    PyObject *loads, *unpickler, *bytes_io;
};

/* What nobody has a reference to any more, and the client does not know yet. */
struct dropped {
    struct dropped *next;
    struct dl_epoch *epoch;   /* NULL: a loader */
    struct loader_object *of; /* owned: the epoch's */
    struct dl_loader *loader;
};

struct client_object {
    PyObject_HEAD struct dl_client *handle; /* NULL: closed */
    pid_t pid;                              /* whose it is */
    atomic_ulong user;                      /* the thread that has claimed it; 0: none */
    unsigned depth;                         /* claims within claims; the user's */
    bool busy;                              /* libdlclient is at it; the user's */
    _Atomic(struct dropped *) dropped;      /* owned; the latest first */
    PyObject *weak;                         /* references to it; CPython's */
};

struct loader_object {
    PyObject_HEAD struct client_object *client; /* owned */
    struct dl_loader *handle; /* NULL: closed; not to be used unless the client is open */
};

/* ---- call.c ---- */

struct module_state *state_of(PyObject *self);

/* For the calling thread, before a method of it, of its loaders or of their epochs does anything.
 * False with an exception set: another thread has it. In a child of fork() nothing is claimed. */
bool client_claim(struct client_object *client);
bool client_try_claim(struct client_object *client); /* in its own process; no exception */
void client_release(struct client_object *client);

/* With it claimed. False with an exception set: closed, in the middle of a call of this very
 * thread, as a signal's handler finds it, or of another process. */
bool client_check(const struct client_object *client);
bool loader_check(const struct loader_object *loader);

/* name_claimed(), the method `name` with the client claimed that client_of(self) is; `params` and
 * `args` are those of a method of that kind. */
#define CLAIMED(name, client_of, params, args)          \
    static PyObject *name##_claimed params              \
    {                                                   \
        struct client_object *client = client_of(self); \
                                                        \
        if (!client_claim(client))                      \
            return NULL;                                \
        PyObject *result = name args;                   \
        client_release(client);                         \
        return result;                                  \
    }
#define CLAIMED_METHOD(name, client_of) \
    CLAIMED(name, client_of, (PyObject * self, PyObject * args), (self, args))
#define CLAIMED_NAMED(name, client_of)                                             \
    CLAIMED(name, client_of, (PyObject * self, PyObject * args, PyObject * names), \
            (self, args, names))
#define CLAIMED_FAST(name, client_of)                                                \
    CLAIMED(name, client_of, (PyObject * self, PyObject *const *args, Py_ssize_t n), \
            (self, args, n))
#define CLAIMED_GETTER(name, client_of) \
    CLAIMED(name, client_of, (PyObject * self, void *closure), (self, closure))

/* The calling thread gives up the GIL and keeps the client, which is busy until it has it back. */
PyThreadState *client_release_gil(struct client_object *client);
void client_take_gil(struct client_object *client, PyThreadState *thread);

/* The same around what waits for an answer; meanwhile Python's signal handlers are run, and what
 * they raise ends the wait, and the session: client_raise() leaves their exception as it is. */
PyThreadState *client_begin_call(struct client_object *client);
void client_end_call(struct client_object *client, PyThreadState *thread);

/* Within a call, from libdlclient: calls `callable` with two numbers. What it raises is only
 * printed.
 */
void client_call_back(PyThreadState *thread, PyObject *callable, uint64_t a, uint64_t b,
                      const char *text);

/* The same around dl_epoch_next() of an epoch that follows the cluster, which may take longer than
 * it was given: from `since` on, of clock_ns(). Ended by client_end_call() with its thread. */
struct long_wait {
    PyThreadState *thread;
    int64_t since;
};
void client_begin_wait(struct client_object *client, struct long_wait *wait);

/* Nobody has the loader any more, or, where that is not NULL, this epoch of the loader object: it
 * is ended at once, or when the client is free, or with it. Any thread. */
void client_drop_loader(struct client_object *client, struct dl_loader *loader);
void client_drop_epoch(struct loader_object *loader, struct dl_epoch *epoch);
/* Of a client that is freed. */
void client_forget_dropped(struct client_object *client);

/* Sets the exception for -errno `r` of a function of libdlclient. Returns NULL. */
PyObject *client_raise(struct module_state *state, const struct client_object *client, int r);

/* As a number, or None where it is not known. */
PyObject *count_or_none(uint64_t n);
PyObject *text_of(const char *text); /* UTF-8 that may be damaged */

/* For PyArg_Parse, of a uint64_t or a uint32_t: an int that fits, or OverflowError. */
int to_u64(PyObject *number, void *ret);
int to_u32(PyObject *number, void *ret);

/* module.name, which is in *cache from the first time on; borrowed from there. With these two what
 * is found otherwise is kept: `found`, which may be NULL, is consumed. */
PyObject *look_up(PyObject **cache, const char *module, const char *name);
PyObject *look_up_keep(PyObject **cache, PyObject *found);
PyObject *look_up_kept(PyObject **cache); /* NULL: nothing so far */

/* ---- session.c ---- */

extern PyType_Spec client_spec, loader_spec;

/* ---- epoch.c ---- */

extern PyType_Spec epoch_spec;

/* `follows`: the cluster, from world to world. */
PyObject *epoch_object_new(struct module_state *state, struct loader_object *loader,
                           struct dl_epoch *handle, bool follows);

/* ---- batch.c ---- */

extern PyType_Spec batch_spec;

/* A Batch whose leaves hold the slot by themselves; NULL with an exception set. */
PyObject *batch_object_new(struct module_state *state, struct dl_batch *batch, enum mode mode);

/* Tensor `node`, as a torch tensor, a NumPy array, or a leaf. */
PyObject *batch_tensor(struct module_state *state, struct dl_batch *batch, uint32_t node,
                       const struct dl_tensor *tensor, enum mode mode);

/* Nodes in the subtree that starts at `node`. */
uint32_t batch_skip(struct dl_batch *batch, uint32_t node);

/* ---- leaf.c ---- */

extern PyType_Spec leaf_spec;

/* Consumes `managed`, also on failure. */
PyObject *leaf_new(struct module_state *state, struct DLManagedTensor *managed, uint32_t dtype,
                   bool writable);

/* `managed` as torch and others take it; consumes it, also on failure. */
PyObject *capsule_new(struct DLManagedTensor *managed);

/* ---- pickled.c ---- */

/* What the object node `node` stands for. */
PyObject *unpickle(struct module_state *state, struct dl_batch *batch, uint32_t node);

#endif
