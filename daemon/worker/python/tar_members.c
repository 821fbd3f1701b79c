#include "daemon/worker/python/tar_members.h"

#include "daemon/data/files/guard.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/tar/tar_reader.h"
#include "daemon/worker/python/worker_env.h"
#include "proto/common/fd_io.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utlist.h>

const char tar_members_open_text[] =
    "tar_members(fd, path) -> handle, or None\n\n"
    "Of a regular file that is open to be read; it may be closed again. None: it is another kind "
    "of\n"
    "file. path: for messages. Nothing is mapped: a file that gets shorter is an error.";
const char tar_members_url_text[] =
    "tar_members_of(url) -> handle\n\n"
    "Of a URL that the daemon's fetcher reads for this worker. OSError: why it does not.";
const char tar_members_next_text[] =
    "tar_member(handle) -> (name, bytes) of the next member that is a file, or None\n\n"
    "None: there are no more. ValueError: it is damaged, or odd (tar_reader.h), and where; the "
    "next\n"
    "call says the same.";

static const char tar_members_door[] = "dloaderd._worker.tar_members";

/* Read at once; and the most bytes of a member's headers. */
enum { TAR_MEMBERS_AHEAD = 64 * 1024, TAR_MEMBERS_HEAD_MAX = 1024 * 1024 };

struct tar_members {
    char *path;      /* owned */
    uint8_t *window; /* owned; what was read last: */
    size_t room;
    uint64_t begin;                  /* where in the file it lies, */
    uint64_t have;                   /* and how much it is */
    uint64_t at;                     /* of the next member's first header */
    uint64_t bytes;                  /* of the file */
    int fd;                          /* owned; -1: it is the */
    struct source source;            /* owned; of a URL */
    struct tar_members *prev, *next; /* likewise, in tar_members_remote */
    struct tar_reader reader;
};

/* Those of URLs that are open. */
static struct tar_members *tar_members_remote;

void tar_members_end(void)
{
    struct tar_members *t;

    DL_FOREACH (tar_members_remote, t)
        source_close(&t->source);
}

static struct tar_members *tar_members_free(struct tar_members *t)
{
    if (t) {
        if (t->prev)
            DL_DELETE(tar_members_remote, t);
        source_close(&t->source);
        close_fdp(&t->fd);
        free(t->path);
        free(t->window);
        free(t);
    }
    return NULL;
}

static void tar_members_freep(struct tar_members **t)
{
    *t = tar_members_free(*t);
}

static void tar_members_drop(PyObject *handle)
{
    tar_members_free(PyCapsule_GetPointer(handle, tar_members_door));
}

/* NULL with an exception. */
static struct tar_members *tar_members_new(void)
{
    struct tar_members *t = calloc(1, sizeof *t);

    if (!t)
        PyErr_NoMemory();
    else
        t->fd = -1;
    return t;
}

PyObject *tar_members_open(PyObject *module, PyObject *args)
{
    _cleanup_(tar_members_freep) struct tar_members *t = tar_members_new();
    const char *path;
    struct stat st;
    int fd;

    (void)module;
    if (!t)
        return NULL;
    if (!PyArg_ParseTuple(args, "is:tar_members", &fd, &path))
        return NULL;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        Py_RETURN_NONE;
    t->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (t->fd < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    t->path = strdup(path);
    if (!t->path)
        return PyErr_NoMemory();
    t->bytes = (uint64_t)st.st_size;
    PyObject *handle = PyCapsule_New(t, tar_members_door, tar_members_drop);
    if (handle)
        t = NULL;
    return handle;
}

PyObject *tar_members_open_url(PyObject *module, PyObject *url)
{
    _cleanup_(tar_members_freep) struct tar_members *t = tar_members_new();
    const char *path = t ? PyUnicode_AsUTF8AndSize(url, NULL) : NULL;
    struct dl_error err = {0};

    (void)module;
    if (!path)
        return NULL;
    if (!(t->path = strdup(path)))
        return PyErr_NoMemory();
    if (source_open(path, worker_env(), &t->source, &err) < 0)
        return PyErr_Format(PyExc_OSError, "%s: %s", err.path, err.message);
    t->bytes = t->source.bytes;
    DL_APPEND(tar_members_remote, t);
    PyObject *handle = PyCapsule_New(t, tar_members_door, tar_members_drop);
    if (handle)
        t = NULL;
    return handle;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Waits for what has to be fetched. Other threads of the interpreter must not ask for anything
 * meanwhile: they wait, too. */
static int tar_members_read_remote(const struct tar_members *t, uint8_t *to, uint64_t size,
                                   uint64_t at, uint64_t *ret)
{
    struct dl_error err = {0};

    *ret = at < t->bytes ? min_u64(size, t->bytes - at) : 0;
    if (*ret)
        memcpy(to, t->source.data + at, *ret);
    if (guard_check(worker_env()->guard, &err) == 0)
        return 0;
    PyErr_Format(PyExc_OSError, "%s: %s", err.path, err.message);
    return -1;
}

/* As much of `size` as there is. -1 with an exception. */
static int tar_members_read(const struct tar_members *t, uint8_t *to, uint64_t size, uint64_t at,
                            uint64_t *ret)
{
    if (t->source.data)
        return tar_members_read_remote(t, to, size, at, ret);
    PyThreadState *released = PyEval_SaveThread();
    int64_t n = fd_pread_all(t->fd, to, size, at);

    PyEval_RestoreThread(released);
    if (n >= 0) {
        *ret = (uint64_t)n;
        return 0;
    }
    errno = (int)-n;
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, t->path);
    return -1;
}

/* Less was read than the file had when it was opened. */
static int tar_members_is_cut(const struct tar_members *t, uint64_t at)
{
    PyErr_Format(PyExc_ValueError, "%s: had %llu bytes and ends before byte %llu now", t->path,
                 (ull)t->bytes, (ull)at);
    return -1;
}

/* `size` bytes from t->at on are in the window. -1 with an exception. */
static int tar_members_fill(struct tar_members *t, uint64_t size)
{
    uint64_t left = t->bytes - t->at, want = min_u64(max_u64(size, TAR_MEMBERS_AHEAD), left);

    if (t->window && t->at >= t->begin && t->at - t->begin + size <= t->have)
        return 0;
    if (!t->window || want > t->room) {
        uint8_t *grown = realloc(t->window, max_u64(want, TAR_BLOCK));
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        t->window = grown;
        t->room = want;
    }
    t->begin = t->at;
    t->have = 0;
    if (tar_members_read(t, t->window, want, t->at, &t->have) < 0)
        return -1;
    return t->have < size ? tar_members_is_cut(t, t->at + size) : 0;
}

/* The headers of the next member are in the window. -1 with an exception. */
static int tar_members_fill_head(struct tar_members *t)
{
    uint64_t left = t->bytes - t->at, size = min_u64(TAR_BLOCK, left), want;

    for (;;) {
        if (tar_members_fill(t, size) < 0)
            return -1;
        want = min_u64(tar_head_bytes(t->window + (t->at - t->begin), size), left);
        if (want <= size)
            return 0;
        if (want > TAR_MEMBERS_HEAD_MAX) {
            PyErr_Format(PyExc_ValueError,
                         "%s: its member at byte %llu has headers of more than %d bytes", t->path,
                         (ull)t->at, TAR_MEMBERS_HEAD_MAX);
            return -1;
        }
        size = want;
    }
}

/* ---- members -------------------------------------------------------------------------------- */

/* 0, TAR_END; -1 with an exception. ret->data is only where the data would lie behind the window's
 * headers. */
static int tar_members_take(struct tar_members *t, struct tar_member *ret)
{
    struct tar_view view = {.path = t->path, .bytes = t->bytes - t->at, .base = t->at};
    struct dl_error err = {0};

    if (tar_members_fill_head(t) < 0)
        return -1;
    view.data = t->window + (t->at - t->begin);
    tar_reader_init(&t->reader, &view, 0);
    int r = tar_next(&t->reader, ret, &err);
    if (r < 0)
        PyErr_Format(PyExc_ValueError, "%s: %s", err.path, err.message);
    else if (r == 0 && ret->odd)
        PyErr_Format(PyExc_ValueError,
                     "%s: programs do not read its member at byte %llu alike; repack the shard",
                     t->path, (ull)t->at);
    return r < 0 || (r == 0 && ret->odd) ? -1 : r;
}

/* The member's data: a new reference. */
static PyObject *tar_members_data(struct tar_members *t, const struct tar_member *member)
{
    uint64_t in = (uint64_t)(member->data - t->window), at = t->begin + in, got = 0;
    uint64_t ahead = min_u64(t->have - in, member->size);
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)member->size);

    if (!data)
        return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AsString(data);
    if (ahead)
        memcpy(to, member->data, ahead);
    if (ahead == member->size)
        return data;
    int r = tar_members_read(t, to + ahead, member->size - ahead, at + ahead, &got);
    if (r == 0 && got < member->size - ahead)
        r = tar_members_is_cut(t, at + member->size);
    if (r < 0)
        Py_CLEAR(data);
    return data;
}

PyObject *tar_members_next(PyObject *module, PyObject *handle)
{
    struct tar_members *t = PyCapsule_GetPointer(handle, tar_members_door);
    struct tar_member member;

    (void)module;
    if (!t)
        return NULL;
    for (;;) {
        int r = tar_members_take(t, &member);
        if (r == TAR_END)
            Py_RETURN_NONE;
        if (r < 0)
            return NULL;
        if (member.regular)
            break;
        t->at += t->reader.offset;
    }
    _cleanup_py_ PyObject *name =
        PyUnicode_DecodeFSDefaultAndSize(member.name, (Py_ssize_t)strlen(member.name));
    _cleanup_py_ PyObject *data = name ? tar_members_data(t, &member) : NULL;
    if (!data)
        return NULL;
    t->at += t->reader.offset;
    return PyTuple_Pack(2, name, data);
}
