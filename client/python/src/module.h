/*
 * dloaderd._client: libdlclient for Python. What its files share.
 *
 *   client_module.c  the module: exceptions, types          call.c     what every call sees to
 *   session.c  Client and Loader                            batch.c    trees as Python objects
 *   epoch.c    Epoch: receiving, feeding, waiting           pickled.c  objects in trees
 *   leaf.c     a tensor without a library: buffer, DLPack
 *
 * Written for the stable ABI of CPython 3.11. The GIL protects everything here, except while a call
 * waits: the client is `busy` then, other threads that use it are refused, and what they drop of it
 * is ended when the wait is over. A leaf of a batch holds a reference of its own on the batch,
 * which may be dropped in any thread and after the client was closed. In a child made by fork()
 * nothing may be used, and what is dropped is left alone: it is the parent's.
 */
#ifndef DL_PYTHON_MODULE_H
#define DL_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "client/dlclient.h"
#include "client/python/src/dlpack.h"
#include "proto/common/base.h"
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

/* Something of a busy client that was dropped meanwhile. */
struct dropped {
    struct dropped *next;
    struct dl_epoch *epoch;   /* NULL: a loader */
    struct dl_loader *loader; /* NULL: an epoch */
};

struct client_object {
    PyObject_HEAD struct dl_client *handle; /* NULL: closed */
    pid_t pid;                              /* whose it is */
    bool busy;                              /* a thread uses it without the GIL */
    struct dropped *dropped;                /* owned; in the order in which they came */
    PyObject *weak;                         /* references to it; CPython's */
};

struct loader_object {
    PyObject_HEAD struct client_object *client; /* owned */
    struct dl_loader *handle; /* NULL: closed; not to be used unless the client is open */
};

/* ---- call.c ---- */

struct module_state *state_of(PyObject *self);

/* False with an exception set: closed, busy in another thread, or of another process. */
bool client_check(const struct client_object *client);
bool loader_check(const struct loader_object *loader);

/* The calling thread gives up the GIL and keeps the client. */
PyThreadState *client_release_gil(struct client_object *client);
void client_take_gil(struct client_object *client, PyThreadState *thread);

/* The same around what waits for an answer; meanwhile Python's signal handlers are run, and what
 * they raise ends the wait, and the session: client_raise() leaves their exception as it is. */
PyThreadState *client_begin_call(struct client_object *client);
void client_end_call(struct client_object *client, PyThreadState *thread);

/* Within a call, from libdlclient: `callable` is told two numbers. What it raises is only printed.
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

/* Ends what was dropped: at once, when the client is not busy any more, or never. */
void client_drop(struct client_object *client, struct dl_epoch *epoch, struct dl_loader *loader);

/* Sets the exception for -errno `r` of a function of libdlclient. Returns NULL. */
PyObject *client_raise(struct module_state *state, const struct client_object *client, int r);

/* As a number, or None where it is not known. */
PyObject *count_or_none(uint64_t n);
PyObject *text_of(const char *text); /* UTF-8 that may be damaged */

/* For PyArg_Parse, of a uint64_t or a uint32_t: an int that fits, or OverflowError. */
int to_u64(PyObject *number, void *ret);
int to_u32(PyObject *number, void *ret);

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
