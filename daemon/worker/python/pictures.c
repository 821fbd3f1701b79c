#include "daemon/worker/python/pictures.h"

#include "daemon/worker/python/picture_draws.h"
#include "daemon/worker/python/spent.h"
#include "daemon/worker/python/stack.h"

#include "daemon/data/decode/image/cached_pictures.h"
#include "daemon/data/decode/transform/transforms.h"
#include "proto/common/array.h"
#include "proto/common/clock.h"
#include "proto/common/fd_io.h"
#include "proto/dtype.h"
#include "proto/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

const char pictures_open_text[] =
    "pictures(transforms, draws, channels=3, first=False, fast=False, bare=False, files=0)\n"
    "-> handle\n\n"
    "transforms: JSON, a list as in dloader-spec(5). draws: the functions of picture_draws.h.\n"
    "channels: of what they begin with, 3 or 1. first: a RandomCrop draws as torchvision's first\n"
    "generation. fast: a JPEG that gets much smaller is decoded at a smaller scale. bare: tensors "
    "go\n"
    "into batches and nowhere else, so that they may be made there. files: of which "
    "picture_of_path()\n"
    "keeps some.\n"
    "ValueError: they cannot be read, and why.";
const char pictures_of_file_text[] =
    "picture_of_file(handle, data, most_pixels, make) -> what make() gave, or None\n\n"
    "data: the file's bytes, of most_pixels at most. make(tensor, dtype, "
    "channels,\n"
    "height, width, stack) gives an object, and where the result is written to, a writable buffer "
    "or the\n"
    "address of that many bytes: a\n"
    "tensor [c, h, w], else pixels [h, w, c]; of a stack above 0 that many of these. None: it "
    "cannot "
    "be decoded here, or transformed; "
    "the\n"
    "generators may have been drawn from. What draws and make raise is raised.";
const char pictures_of_path_text[] =
    "picture_of_path(handle, path, jpeg, most_pixels, make) -> what make() gave, or None\n\n"
    "As picture_of_file() of the file there, which is decoded once for all workers, if there is a\n"
    "cache. jpeg: another one is left to the caller.";
const char pictures_of_pixels_text[] =
    "picture_of_pixels(handle, pixels, height, width, make) -> what make() gave, or None\n\n"
    "pixels: bytes [h, w, c], with as many channels as the handle was made for. Else as\n"
    "picture_of_file().";

static const char pictures_door[] = "dloaderd._worker.pictures";

struct pictures {
    struct transforms *transforms; /* owned */
    struct transforms_runner *run; /* owned */
    struct image_decoder *decoder; /* owned; NULL: there was no file yet */
    PyObject *calls;               /* owned; of draws */
    struct cached_pictures cached;
    uint8_t *file; /* owned; what was read of the last one, */
    size_t room;   /* and how much can be */
    uint64_t files;
    uint32_t channels;
    bool bare;        /* of pictures(): what comes of it is no more than a row of a batch */
    atomic_bool busy; /* a thread runs it */
};

static const struct pictures_cache *pictures_shared; /* borrowed */

void pictures_keep_in(const struct pictures_cache *cache)
{
    pictures_shared = cache;
}

const struct pictures_cache *pictures_kept_in(void)
{
    return pictures_shared;
}

static struct pictures *pictures_free(struct pictures *p)
{
    if (p) {
        transforms_free(p->transforms);
        transforms_runner_free(p->run);
        image_decoder_free(p->decoder);
        Py_CLEAR(p->calls);
        cached_pictures_deinit(&p->cached);
        free(p->file);
        free(p);
    }
    return NULL;
}

static void pictures_freep(struct pictures **p)
{
    *p = pictures_free(*p);
}

static void pictures_drop(PyObject *handle)
{
    pictures_free(PyCapsule_GetPointer(handle, pictures_door));
}

/* ---- opening -------------------------------------------------------------------------------- */

static int pictures_read(struct pictures *p, const char *text, const struct transforms_how *how,
                         struct dl_error *err)
{
    struct value list = {0};
    int r = yaml_parse(text, strlen(text), "transforms", &list, err);

    if (r == 0)
        r = transforms_read_as(&list, "transforms", how, &p->transforms, err);
    value_deinit(&list);
    if (r == 0)
        r = transforms_runner_new(&p->run, err);
    return r;
}

PyObject *pictures_open(PyObject *module, PyObject *args)
{
    _cleanup_(pictures_freep) struct pictures *p = calloc(1, sizeof *p);
    struct transforms_how how = {.channels = 3};
    int first = 0, fast = 0, bare = 0;
    struct picture_draws draws;
    struct dl_error err = {0};
    unsigned long long files = 0;
    const char *text;
    PyObject *calls;

    (void)module;
    if (!p)
        return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "sO|IpppK:pictures", &text, &calls, &how.channels, &first, &fast,
                          &bare, &files) ||
        picture_draws_init(&draws, calls) < 0)
        return NULL;
    if (how.channels != 1 && how.channels != 3) {
        PyErr_SetString(PyExc_ValueError, "pictures have 1 or 3 channels");
        return NULL;
    }
    how.first_generation = first;
    how.fast = fast;
    p->channels = how.channels;
    p->files = files;
    p->bare = bare;
    Py_INCREF(calls);
    p->calls = calls;
    if (pictures_read(p, text, &how, &err) < 0) {
        PyErr_Format(PyExc_ValueError, "%s: %s", err.path, err.message);
        return NULL;
    }
    PyObject *handle = PyCapsule_New(p, pictures_door, pictures_drop);
    if (handle)
        p = NULL;
    return handle;
}

/* ---- one picture ---------------------------------------------------------------------------- */

static int pictures_write(const struct pictures *p, const struct transforms_shape *shape,
                          PyObject *buffer)
{
    Py_buffer to;

    if (PyLong_CheckExact(buffer)) {
        void *address = PyLong_AsVoidPtr(buffer);
        if (address)
            transforms_write(p->run, TRANSFORMS_NEAR, address);
        return address ? 0 : -1;
    }
    if (PyObject_GetBuffer(buffer, &to, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    bool fits = (uint64_t)to.len == transforms_bytes(shape);
    if (fits)
        transforms_write(p->run, TRANSFORMS_NEAR, to.buf);
    PyBuffer_Release(&to);
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "make() gave a buffer of another size");
    return fits ? 0 : -1;
}

/* In the batch; NULL: there is no place for it. */
static PyObject *pictures_give_row(const struct pictures *p, const struct transforms_shape *shape)
{
    const struct leaf leaf = {.dtype = shape->dtype,
                              .ndim = 3,
                              .shape = {shape->channels, shape->size.height, shape->size.width}};
    void *memory;
    PyObject *row =
        p->bare && shape->is_tensor && !shape->stack ? stack_take_row(&leaf, &memory) : NULL;

    if (row)
        transforms_write(p->run, TRANSFORMS_AWAY, memory);
    return row;
}

static PyObject *pictures_give(const struct pictures *p, const struct transforms_shape *shape,
                               PyObject *make)
{
    PyObject *result = pictures_give_row(p, shape), *buffer = NULL;

    if (result)
        return result;
    _cleanup_py_ PyObject *pair = PyObject_CallFunction(
        make, "OsIIII", shape->is_tensor ? Py_True : Py_False, dtype_name(shape->dtype),
        shape->channels, shape->size.height, shape->size.width, shape->stack);

    if (!pair || !PyArg_ParseTuple(pair, "OO", &result, &buffer) ||
        pictures_write(p, shape, buffer) < 0)
        return NULL;
    Py_INCREF(result);
    return result;
}

/* From here on C is at it. False: another thread is, or an exception. */
static bool pictures_begin(struct pictures *p, struct picture_draws *draws, uint64_t *ret_began)
{
    if (!p || atomic_exchange(&p->busy, true))
        return false;
    if (picture_draws_init(draws, p->calls) < 0) {
        atomic_store(&p->busy, false);
        return false;
    }
    picture_draws_release(draws);
    *ret_began = clock_ns();
    return true;
}

/* What came of it: made, or NULL. */
static PyObject *pictures_end(struct pictures *p, struct picture_draws *draws, uint64_t began,
                              const struct transforms_shape *shape, PyObject *make)
{
    picture_draws_take_back(draws);
    PyObject *result = shape && !draws->failed ? pictures_give(p, shape, make) : NULL;
    spent_add(began);
    atomic_store(&p->busy, false);
    return result;
}

static int pictures_run_file(struct pictures *p, const Py_buffer *data, uint64_t most,
                             struct draws *draws, struct transforms_shape *ret)
{
    struct image_file file = {
        .data = data->buf, .bytes = (size_t)data->len, .path = "picture", .exact = true};
    struct image_size size;
    struct dl_error err;

    if ((!p->decoder && image_decoder_new(&p->decoder, &err) < 0) ||
        image_open(p->decoder, &file, &size, &err) < 0 || (uint64_t)size.height * size.width > most)
        return -1;
    return transforms_run(p->transforms, p->run, p->decoder, draws, file.path, ret, &err);
}

PyObject *pictures_of_file(PyObject *module, PyObject *args)
{
    PyObject *handle, *make, *result = NULL;
    struct picture_draws draws;
    struct transforms_shape shape;
    unsigned long long most;
    uint64_t began;
    Py_buffer data;

    (void)module;
    if (!PyArg_ParseTuple(args, "Oy*KO:picture_of_file", &handle, &data, &most, &make))
        return NULL;
    struct pictures *p = PyCapsule_GetPointer(handle, pictures_door);
    if (pictures_begin(p, &draws, &began)) {
        int r = pictures_run_file(p, &data, most, &draws.base, &shape);
        result = pictures_end(p, &draws, began, r == 0 ? &shape : NULL, make);
    }
    PyBuffer_Release(&data);
    if (!result && !PyErr_Occurred())
        Py_RETURN_NONE;
    return result;
}

/* Whole, as far as it is a file: what else has a path is opened by Python. */
static int pictures_read_path(struct pictures *p, int fd, size_t *ret)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0)
        return -1;
    if (!array_reserve(p->file, p->room, (size_t)st.st_size))
        return -1;
    int64_t got = fd_pread_all(fd, p->file, (uint64_t)st.st_size, 0);
    if (got < 0)
        return -1;
    *ret = (size_t)got;
    return 0;
}

static bool pictures_is_jpeg(int fd)
{
    uint8_t mark[2];

    return pread(fd, mark, sizeof mark, 0) == sizeof mark && mark[0] == 0xFF && mark[1] == 0xD8;
}

/* The picture of the file is open in the decoder: kept, or decoded, and kept from now on. */
static int pictures_open_file(struct pictures *p, int fd, uint64_t most)
{
    struct image_file file = {.path = "picture", .exact = true};
    struct image_size size;
    struct dl_error err;

    p->cached.cache = pictures_shared;
    p->cached.files = p->files;
    if (cached_pictures_open(&p->cached, fd, p->decoder, &size))
        return (uint64_t)size.height * size.width > most ? -1 : 0;
    if (pictures_read_path(p, fd, &file.bytes) < 0)
        return -1;
    file.data = p->file;
    if (image_open(p->decoder, &file, &size, &err) < 0 || (uint64_t)size.height * size.width > most)
        return -1;
    if (!cached_pictures_wants(&p->cached, fd, size))
        return 0;
    return cached_pictures_add(&p->cached, p->decoder, &file, &err);
}

static int pictures_run_path(struct pictures *p, const char *path, bool jpeg, uint64_t most,
                             struct draws *draws, struct transforms_shape *ret)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct dl_error err;

    if (fd < 0 || (jpeg && !pictures_is_jpeg(fd)) ||
        (!p->decoder && image_decoder_new(&p->decoder, &err) < 0) ||
        pictures_open_file(p, fd, most) < 0)
        return -1;
    return transforms_run(p->transforms, p->run, p->decoder, draws, "picture", ret, &err);
}

PyObject *pictures_of_path(PyObject *module, PyObject *args)
{
    PyObject *handle, *make, *result = NULL;
    _cleanup_py_ PyObject *path = NULL;
    struct picture_draws draws;
    struct transforms_shape shape;
    unsigned long long most;
    uint64_t began;
    int jpeg;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO&pKO:picture_of_path", &handle, PyUnicode_FSConverter, &path,
                          &jpeg, &most, &make))
        return NULL;
    struct pictures *p = PyCapsule_GetPointer(handle, pictures_door);
    if (pictures_begin(p, &draws, &began)) {
        int r = pictures_run_path(p, PyBytes_AsString(path), jpeg, most, &draws.base, &shape);
        result = pictures_end(p, &draws, began, r == 0 ? &shape : NULL, make);
    }
    if (!result && !PyErr_Occurred())
        Py_RETURN_NONE;
    return result;
}

/* Of a picture in colours no more is looked at than the first transform wants. */
static int pictures_run_pixels(struct pictures *p, const struct transforms_pixels *from,
                               struct draws *draws, struct transforms_shape *ret)
{
    const struct image_pixels open = {
        .pixels = from->pixels, .size = from->size, .step = PICTURE_COLOURS};
    struct dl_error err;

    if (p->channels != PICTURE_COLOURS || from->size.height == 0 || from->size.width == 0)
        return transforms_run_pixels(p->transforms, p->run, from, draws, ret, &err);
    if (!p->decoder && image_decoder_new(&p->decoder, &err) < 0)
        return -1;
    image_open_pixels(p->decoder, &open);
    return transforms_run(p->transforms, p->run, p->decoder, draws, "picture", ret, &err);
}

PyObject *pictures_of_pixels(PyObject *module, PyObject *args)
{
    struct transforms_pixels from = {0};
    PyObject *handle, *make, *result = NULL;
    struct picture_draws draws;
    struct transforms_shape shape;
    uint64_t began;
    Py_buffer pixels;

    (void)module;
    if (!PyArg_ParseTuple(args, "Oy*IIO:picture_of_pixels", &handle, &pixels, &from.size.height,
                          &from.size.width, &make))
        return NULL;
    struct pictures *p = PyCapsule_GetPointer(handle, pictures_door);
    from.pixels = pixels.buf;
    bool whole =
        p && (uint64_t)pixels.len == (uint64_t)from.size.height * from.size.width * p->channels;
    if (whole && pictures_begin(p, &draws, &began)) {
        int r = pictures_run_pixels(p, &from, &draws.base, &shape);
        result = pictures_end(p, &draws, began, r == 0 ? &shape : NULL, make);
    }
    PyBuffer_Release(&pixels);
    if (!result && !PyErr_Occurred())
        Py_RETURN_NONE;
    return result;
}
