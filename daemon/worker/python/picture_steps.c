/* Pictures for dloaderd._lazy: steps done at once. */
#include "daemon/worker/python/pictures.h"

#include "daemon/worker/python/spent.h"

#include "daemon/data/decode/image/steps.h"
#include "proto/common/clock.h"

#include <stdatomic.h>

const char picture_steps_text[] =
    "picture_steps(data, height, width, most_pixels, steps, channels, scale, luma) -> (bytes,\n"
    "height, width), or None\n\n"
    "data: a file's bytes, with height and width 0; or that many pixels, R, G, B or grey. A "
    "file's\n"
    "picture has at most most_pixels; it is read at 1 / scale, and of a JPEG its luma alone if "
    "that\n"
    "is asked for. steps: a tuple of (kind, left, top, width, height, choice,\n"
    "and of a box left, top, right, bottom), as daemon/data/decode/image/steps.h has them. The "
    "result is R, G, B, row by row; with 1 channel\n"
    "grey. None: the file cannot be decoded here, or a step cannot be done; or another thread is "
    "at it.";

const char picture_whole_text[] =
    "picture_whole(data): how many of these bytes a JPEG file with all its parts has, as far as "
    "its\nmarkers show it; 0: it is none.";

const char picture_header_text[] =
    "picture_header(data) -> (height, width, components, bytes, has_exif), or None\n\n"
    "data: a JPEG file's first bytes. bytes: of them up to its coded data. has_exif: or XMP. None: "
    "it\n"
    "is not there as a whole, or Pillow has more to do with it than to read it.";

enum { STEPS_MAX = 64 };

/* Of this process; used by one thread at a time. */
static struct steps_memory {
    struct transforms_runner *run; /* owned; NULL: none yet */
    struct image_decoder *decoder; /* likewise */
    atomic_bool busy;
} steps_memory;

struct steps_call {
    Py_buffer data;
    struct image_size size; /* of pixels; 0: it is a file */
    unsigned channels;      /* of these */
    unsigned long long most;
    unsigned scale; /* of a file, as image_file.scale */
    int luma;       /* likewise */
    struct picture_step steps[STEPS_MAX];
    uint32_t n;
    unsigned channels_out; /* 1 or 3 */
};

static int steps_read(PyObject *list, struct steps_call *call)
{
    Py_ssize_t n = PyTuple_Size(list);

    if (n < 0 || n > STEPS_MAX) {
        if (n >= 0)
            PyErr_Format(PyExc_ValueError, "more than %d steps", STEPS_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        struct picture_step *step = &call->steps[i];
        float left = 0, top = 0, right = 0, bottom = 0;
        unsigned kind;
        if (!PyArg_ParseTuple(PyTuple_GetItem(list, i), "IIIIII|ffff", &kind, &step->left,
                              &step->top, &step->size.width, &step->size.height, &step->choice,
                              &left, &top, &right, &bottom))
            return -1;
        step->part = (struct picture_part){
            .left = left, .top = top, .width = right - left, .height = bottom - top};
        if (kind > STEP_REDUCE) {
            PyErr_SetString(PyExc_ValueError, "no such kind of step");
            return -1;
        }
        step->kind = (enum picture_step_kind)kind;
    }
    call->n = (uint32_t)n;
    return 0;
}

static int steps_open(const struct steps_call *call, struct image_decoder *decoder,
                      struct image_size *ret, struct dl_error *err)
{
    struct image_file file = {.data = call->data.buf,
                              .bytes = (size_t)call->data.len,
                              .path = "picture",
                              .exact = true,
                              .scale = call->scale,
                              .luma = call->luma};

    if (call->size.height > 0) {
        image_open_pixels(decoder, &(struct image_pixels){.pixels = call->data.buf,
                                                          .size = call->size,
                                                          .step = call->channels});
        *ret = call->size;
        return 0;
    }
    int r = image_open(decoder, &file, ret, err);
    return r < 0 ? r : (uint64_t)ret->height * ret->width > call->most ? -1 : 0;
}

/* The picture is open, and has this size. */
static int steps_begin(const struct steps_call *call, struct image_size *ret)
{
    struct steps_memory *m = &steps_memory;
    struct dl_error err;

    if ((!m->run && transforms_runner_new(&m->run, &err) < 0) ||
        (!m->decoder && image_decoder_new(&m->decoder, &err) < 0))
        return -1;
    return steps_open(call, m->decoder, ret, &err);
}

static PyObject *steps_bytes(const struct steps_call *call, struct image_size size)
{
    return PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size.height * (Py_ssize_t)size.width *
                                               (Py_ssize_t)call->channels_out);
}

/* Decoded where they are to be. */
static PyObject *steps_cropped(const struct steps_call *call, const struct picture_box *box)
{
    PyObject *pixels = steps_bytes(call, box->size);
    uint8_t *to = pixels ? (uint8_t *)PyBytes_AsString(pixels) : NULL;
    struct dl_error err;
    int r = -1;

    if (to) {
        Py_BEGIN_ALLOW_THREADS;
        r = steps_decode(steps_memory.decoder, box, call->channels_out == 1, to, &err);
        Py_END_ALLOW_THREADS;
    }
    if (r < 0)
        Py_CLEAR(pixels);
    return pixels;
}

static PyObject *steps_made(const struct steps_call *call, struct image_size *ret)
{
    struct dl_error err;
    int r;

    Py_BEGIN_ALLOW_THREADS;
    r = steps_run(call->steps, call->n, call->channels_out == 1, steps_memory.run,
                  steps_memory.decoder, ret, &err);
    Py_END_ALLOW_THREADS;
    PyObject *pixels = r < 0 ? NULL : steps_bytes(call, *ret);
    if (pixels)
        transforms_write(steps_memory.run, TRANSFORMS_NEAR, PyBytes_AsString(pixels));
    return pixels;
}

static PyObject *steps_result(const struct steps_call *call)
{
    struct picture_box box = {0};
    PyObject *pixels = NULL;

    if (atomic_exchange(&steps_memory.busy, true)) /* another thread is at it */
        return NULL;
    if (steps_begin(call, &box.size) == 0)
        pixels = steps_are_crops(call->steps, call->n, call->channels_out == 1, &box)
                     ? steps_cropped(call, &box)
                     : steps_made(call, &box.size);
    atomic_store(&steps_memory.busy, false);
    return pixels ? Py_BuildValue("(NII)", pixels, box.size.height, box.size.width) : NULL;
}

PyObject *picture_steps(PyObject *module, PyObject *args)
{
    uint64_t began = clock_ns();
    struct steps_call call = {0};
    PyObject *list, *result = NULL;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*IIKOIIp:picture_steps", &call.data, &call.size.height,
                          &call.size.width, &call.most, &list, &call.channels_out, &call.scale,
                          &call.luma))
        return NULL;
    uint64_t n = (uint64_t)call.size.height * call.size.width;
    call.channels = (uint64_t)call.data.len == n ? 1 : PICTURE_COLOURS;
    bool whole = (call.scale == 1 || call.scale == 2 || call.scale == 4 || call.scale == 8) &&
                 (call.channels_out == 1 || call.channels_out == PICTURE_COLOURS) &&
                 (call.size.height == 0 || (n > 0 && (uint64_t)call.data.len == n * call.channels));
    if (steps_read(list, &call) == 0 && whole)
        result = steps_result(&call);
    PyBuffer_Release(&call.data);
    spent_add(began);
    if (!result && !PyErr_Occurred())
        Py_RETURN_NONE;
    return result;
}

PyObject *picture_whole(PyObject *module, PyObject *data)
{
    uint64_t began = clock_ns();
    Py_buffer bytes;

    (void)module;
    if (PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE) < 0)
        return NULL;
    const struct image_file file = {.data = bytes.buf, .bytes = (size_t)bytes.len};
    size_t whole = image_jpeg_whole(&file);
    PyBuffer_Release(&bytes);
    spent_add(began);
    return PyLong_FromSize_t(whole);
}

PyObject *picture_header(PyObject *module, PyObject *data)
{
    uint64_t began = clock_ns();
    struct jpeg_header header;
    Py_buffer bytes;

    (void)module;
    if (PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE) < 0)
        return NULL;
    const struct image_file file = {.data = bytes.buf, .bytes = (size_t)bytes.len};
    bool known = image_jpeg_looks_plain(&file, &header);
    PyBuffer_Release(&bytes);
    spent_add(began);
    if (!known)
        Py_RETURN_NONE;
    return Py_BuildValue("(IIInO)", header.size.height, header.size.width, header.components,
                         (Py_ssize_t)header.bytes,
                         header.has_exif || header.has_xmp ? Py_True : Py_False);
}
