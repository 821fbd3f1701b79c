#include "daemon/worker/python/texts.h"

#include "daemon/worker/python/spent.h"

#include "daemon/data/decode/tokenizer/growing.h"
#include "daemon/data/decode/tokenizer/tokenizer.h"
#include "daemon/data/decode/tokenizer/tokenizer_read.h"
#include "proto/common/clock.h"
#include "proto/common/utf8.h"

#include <errno.h>

const char texts_open_text[] =
    "text_tokenizer(json, known) -> a capsule\n\n"
    "json: what Tokenizer.to_str() says. known: a bit for each character, from the lowest bit of\n"
    "the first byte on: texts with others are asked for. ValueError: what C does not have.";

const char texts_encode_text[] =
    "text_encode(tokenizer, texts, specials, most, left, other)\n"
    "    -> how many tokens each has, or None\n\n"
    "texts: a list or tuple of str. specials: with those that the post-processor adds. most: of a\n"
    "text, more than these; 0: all. left: cut at the beginning, not at the end. other(i) gives "
    "the\n"
    "ids of the i-th text, which has characters that are not known. None: one of them cannot be\n"
    "done here, or another thread is at it. What was found stays until the next call.";

const char texts_fill_text[] =
    "text_fill(tokenizer, kind, into, width, left, pad)\n\n"
    "Writes a row of `width` int64 for each text: its values, and `pad` behind them or, if left,\n"
    "before them. kind: 0: ids, 1: ones, 2: whether the post-processor has added the token, 3: "
    "zeros.";

const char texts_lists_text[] =
    "text_lists(tokenizer, kind, width, left, pad): the same as lists, which are longer than width "
    "where\n"
    "a text is.";

enum texts_kind { TEXTS_IDS, TEXTS_ONES, TEXTS_ADDED, TEXTS_ZEROS, TEXTS_KINDS };

static const char texts_name[] = "dloaderd.text_tokenizer";

struct texts {
    struct hf_tokenizer *tokenizer; /* owned */
    uint8_t *known;                 /* owned */
    size_t known_end;               /* of characters */
    struct growing_ids ids;         /* owned; of all texts of the last call */
    struct growing_ids ends;        /* owned; of each of them, in ids */
    uint32_t n_before;              /* added by the post-processor */
    uint32_t n_behind;
    bool busy;
};

/* ---- a tokenizer ----------------------------------------------------------------------------- */

static void texts_free(struct texts *texts)
{
    tokenizer_free(texts->tokenizer);
    free(texts->known);
    free(texts->ids.data);
    free(texts->ends.data);
    free(texts);
}

static void texts_destroy(PyObject *capsule)
{
    texts_free(PyCapsule_GetPointer(capsule, texts_name));
}

static PyObject *texts_open_in(struct texts *texts, const Py_buffer *json, const Py_buffer *known)
{
    struct dl_error err;

    texts->known = malloc(max_u64((uint64_t)known->len, 1));
    if (!texts->known)
        return PyErr_NoMemory();
    if (known->len > 0)
        memcpy(texts->known, known->buf, (size_t)known->len);
    texts->known_end = 8 * (size_t)known->len;
    if (!tokenizer_is_built())
        return PyErr_Format(PyExc_ValueError, "this dloaderd was built without tokenizers");
    int r = tokenizer_read(json->buf, (size_t)json->len, "tokenizer", &texts->tokenizer, &err);
    if (r == -ENOMEM)
        return PyErr_NoMemory();
    if (r < 0)
        return PyErr_Format(PyExc_ValueError, "%s", err.message);
    return PyCapsule_New(texts, texts_name, texts_destroy);
}

PyObject *texts_open(PyObject *module, PyObject *args)
{
    Py_buffer json, known;
    PyObject *made = NULL;

    if (!PyArg_ParseTuple(args, "y*y*:text_tokenizer", &json, &known))
        return NULL;
    struct texts *texts = calloc(1, sizeof *texts);
    if (!texts)
        PyErr_NoMemory();
    else if (!(made = texts_open_in(texts, &json, &known)))
        texts_free(texts);
    PyBuffer_Release(&json);
    PyBuffer_Release(&known);
    return made;
}

/* ---- texts ----------------------------------------------------------------------------------- */

struct texts_how {
    bool specials;
    uint32_t most;
    bool left;
};

static bool texts_are_known(const struct texts *texts, const uint8_t *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (text[i] < 0x80) {
            i++;
            continue;
        }
        size_t bytes = text[i] < 0xE0 ? 2 : text[i] < 0xF0 ? 3 : 4;
        uint32_t c = utf8_decode(text + i, bytes);
        if (c >= texts->known_end || !(texts->known[c / 8] >> c % 8 & 1))
            return false;
        i += bytes;
    }
    return true;
}

/* The ids of one text behind those that are there. */
static int texts_add(struct texts *texts, const struct texts_how *how, const uint8_t *text,
                     size_t n)
{
    const struct tokenizer_text whole = {
        .text = text, .n = n, .specials = how->specials, .most = how->left ? 0 : how->most};
    const uint32_t *ids;
    size_t n_ids, skip = 0;

    if (!texts_are_known(texts, text, n))
        return -EILSEQ;
    int r = tokenizer_encode(texts->tokenizer, &whole, &ids, &n_ids);
    if (r < 0)
        return r;
    if (how->most && n_ids > how->most)
        skip = n_ids - how->most;
    if ((r = growing_ids_add(&texts->ids, ids, texts->n_before)) < 0 ||
        (r = growing_ids_add(&texts->ids, ids + texts->n_before + skip,
                             n_ids - texts->n_before - skip)) < 0)
        return r;
    if (texts->ids.n > INT32_MAX)
        return -E2BIG;
    return growing_ids_add_one(&texts->ends, (uint32_t)texts->ids.n);
}

struct texts_bytes {
    char *const *data;       /* borrowed */
    const Py_ssize_t *sizes; /* borrowed */
    size_t n;
};

/* From text *at on; it is where that ends which returns an error. */
static int texts_add_from(struct texts *texts, const struct texts_how *how,
                          const struct texts_bytes *bytes, size_t *at)
{
    int r = 0;

    for (; r == 0 && *at < bytes->n; *at += r == 0)
        r = texts_add(texts, how, (const uint8_t *)bytes->data[*at], (size_t)bytes->sizes[*at]);
    return r;
}

/* What `other` says of the i-th text: a sequence of ids. */
static int texts_add_other(struct texts *texts, PyObject *other, size_t i)
{
    _cleanup_py_ PyObject *ids = PyObject_CallFunction(other, "n", (Py_ssize_t)i);
    Py_ssize_t n = ids ? PySequence_Size(ids) : -1;

    for (Py_ssize_t k = 0; k < n; k++) {
        _cleanup_py_ PyObject *id = PySequence_GetItem(ids, k);
        unsigned long value = id ? PyLong_AsUnsignedLong(id) : 0;
        if (PyErr_Occurred())
            return -1;
        if (growing_ids_add_one(&texts->ids, (uint32_t)value) < 0) {
            PyErr_NoMemory();
            return -1;
        }
    }
    if (n >= 0 && growing_ids_add_one(&texts->ends, (uint32_t)texts->ids.n) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    return n < 0 ? -1 : 0;
}

/* 0; an error as of tokenizer_encode(); or 1 with an exception. */
static int texts_add_all(struct texts *texts, const struct texts_how *how,
                         const struct texts_bytes *bytes, PyObject *other)
{
    size_t at = 0;
    int r;

    texts->ids.n = texts->ends.n = 0;
    texts->n_before = how->specials ? tokenizer_specials_before(texts->tokenizer) : 0;
    texts->n_behind = how->specials ? tokenizer_specials(texts->tokenizer) - texts->n_before : 0;
    for (;; at++) {
        Py_BEGIN_ALLOW_THREADS;
        r = texts_add_from(texts, how, bytes, &at);
        Py_END_ALLOW_THREADS;
        if (r != -EILSEQ)
            return r;
        if (texts_add_other(texts, other, at) < 0)
            return 1;
    }
}

/* As UTF-8, apart from them: strings keep what is made of them inside them. NULL without an
 * exception: one is no str, or has half a pair of surrogates. */
static PyObject *texts_as_utf8(PyObject *list)
{
    Py_ssize_t n = PySequence_Size(list);
    _cleanup_py_ PyObject *made = n < 0 ? NULL : PyTuple_New(n);

    for (Py_ssize_t i = 0; made && i < n; i++) {
        _cleanup_py_ PyObject *text = PySequence_GetItem(list, i);
        PyObject *bytes = text && PyUnicode_CheckExact(text) ? PyUnicode_AsUTF8String(text) : NULL;
        if (!bytes) {
            if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_UnicodeError))
                PyErr_Clear();
            return NULL;
        }
        if (PyTuple_SetItem(made, i, bytes) < 0)
            return NULL;
    }
    return made ? Py_NewRef(made) : NULL;
}

static PyObject *texts_sizes(const struct texts *texts)
{
    PyObject *sizes = PyList_New((Py_ssize_t)texts->ends.n);
    uint32_t begin = 0;

    for (size_t i = 0; sizes && i < texts->ends.n; begin = texts->ends.data[i++]) {
        PyObject *size = PyLong_FromUnsignedLong(texts->ends.data[i] - begin);
        if (!size || PyList_SetItem(sizes, (Py_ssize_t)i, size) < 0)
            Py_CLEAR(sizes);
    }
    return sizes;
}

static PyObject *texts_encode_bytes(struct texts *texts, const struct texts_how *how,
                                    PyObject *list, PyObject *other)
{
    size_t n = (size_t)PyTuple_Size(list);
    _cleanup_free_ char **data = malloc(max_u64(n, 1) * sizeof *data);
    _cleanup_free_ Py_ssize_t *sizes = malloc(max_u64(n, 1) * sizeof *sizes);

    if (!data || !sizes)
        return PyErr_NoMemory();
    for (size_t i = 0; i < n; i++)
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(list, (Py_ssize_t)i), &data[i], &sizes[i]) < 0)
            return NULL;
    uint64_t began = clock_ns();
    texts->busy = true;
    int r = texts_add_all(texts, how, &(struct texts_bytes){data, sizes, n}, other);
    texts->busy = false;
    spent_add(began);
    if (r > 0)
        return NULL;
    if (r < 0)
        Py_RETURN_NONE;
    return texts_sizes(texts);
}

PyObject *texts_encode(PyObject *module, PyObject *args)
{
    PyObject *capsule, *list, *other;
    struct texts_how how;
    int specials, left;
    unsigned most;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOpIpO:text_encode", &capsule, &list, &specials, &most, &left,
                          &other))
        return NULL;
    struct texts *texts = PyCapsule_GetPointer(capsule, texts_name);
    if (!texts)
        return NULL;
    how = (struct texts_how){.specials = specials, .most = most, .left = left};
    if (texts->busy || (most > 0 && most <= tokenizer_specials(texts->tokenizer)))
        Py_RETURN_NONE;
    _cleanup_py_ PyObject *bytes = texts_as_utf8(list);
    if (bytes)
        return texts_encode_bytes(texts, &how, bytes, other);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* ---- what was found -------------------------------------------------------------------------- */

struct texts_row {
    const uint32_t *ids;
    size_t n;
    size_t padding;
};

static struct texts_row texts_row(const struct texts *texts, size_t i, size_t width)
{
    uint32_t begin = i > 0 ? texts->ends.data[i - 1] : 0;
    size_t n = texts->ends.data[i] - begin;

    return (struct texts_row){
        .ids = texts->ids.data + begin, .n = n, .padding = width > n ? width - n : 0};
}

static int64_t texts_value(const struct texts *texts, enum texts_kind kind,
                           const struct texts_row *row, size_t i)
{
    if (kind == TEXTS_IDS)
        return row->ids[i];
    if (kind == TEXTS_ADDED)
        return i < texts->n_before || i >= row->n - texts->n_behind;
    return kind == TEXTS_ONES;
}

struct texts_shape {
    unsigned kind;
    Py_ssize_t width;
    int left;
    long long pad;
};

static void texts_write(const struct texts *texts, const struct texts_shape *shape, int64_t *to)
{
    for (size_t i = 0; i < texts->ends.n; i++) {
        struct texts_row row = texts_row(texts, i, (size_t)shape->width);
        if (shape->left)
            for (size_t k = 0; k < row.padding; k++)
                *to++ = shape->pad;
        for (size_t k = 0; k < row.n; k++)
            *to++ = texts_value(texts, shape->kind, &row, k);
        if (!shape->left)
            for (size_t k = 0; k < row.padding; k++)
                *to++ = shape->pad;
    }
}

/* Rows of this width are a rectangle, and `bytes` has room for it. */
static bool texts_fit(const struct texts *texts, size_t width, Py_ssize_t bytes)
{
    for (size_t i = 0; i < texts->ends.n; i++)
        if (texts_row(texts, i, width).n > width)
            return false;
    return (uint64_t)bytes == (uint64_t)texts->ends.n * width * sizeof(int64_t);
}

static struct texts *texts_of(PyObject *capsule, const struct texts_shape *shape)
{
    struct texts *texts = PyCapsule_GetPointer(capsule, texts_name);

    if (texts && (texts->busy || shape->kind >= TEXTS_KINDS || shape->width < 0)) {
        PyErr_SetString(PyExc_ValueError, "no such kind, or a width below 0, or it is in use");
        return NULL;
    }
    return texts;
}

PyObject *texts_fill(PyObject *module, PyObject *args)
{
    struct texts_shape shape;
    PyObject *capsule;
    Py_buffer into;
    bool fits = false;

    (void)module;
    if (!PyArg_ParseTuple(args, "OIw*npL:text_fill", &capsule, &shape.kind, &into, &shape.width,
                          &shape.left, &shape.pad))
        return NULL;
    const struct texts *texts = texts_of(capsule, &shape);
    if (texts && (fits = texts_fit(texts, (size_t)shape.width, into.len)))
        texts_write(texts, &shape, into.buf);
    else if (texts)
        PyErr_SetString(PyExc_ValueError, "the rows do not have the width, or not the bytes");
    PyBuffer_Release(&into);
    if (!fits)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *texts_list(const struct texts *texts, const struct texts_shape *shape,
                            const struct texts_row *row)
{
    PyObject *list = PyList_New((Py_ssize_t)(row->n + row->padding));
    size_t begin = shape->left ? row->padding : 0;

    for (size_t i = 0; list && i < row->n + row->padding; i++) {
        bool is_token = i >= begin && i < begin + row->n;
        PyObject *value = PyLong_FromLongLong(
            is_token ? texts_value(texts, shape->kind, row, i - begin) : shape->pad);
        if (!value || PyList_SetItem(list, (Py_ssize_t)i, value) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *texts_lists(PyObject *module, PyObject *args)
{
    struct texts_shape shape;
    PyObject *capsule;

    (void)module;
    if (!PyArg_ParseTuple(args, "OInpL:text_lists", &capsule, &shape.kind, &shape.width,
                          &shape.left, &shape.pad))
        return NULL;
    const struct texts *texts = texts_of(capsule, &shape);
    PyObject *lists = texts ? PyList_New((Py_ssize_t)texts->ends.n) : NULL;
    for (size_t i = 0; lists && i < texts->ends.n; i++) {
        struct texts_row row = texts_row(texts, i, (size_t)shape.width);
        PyObject *list = texts_list(texts, &shape, &row);
        if (!list || PyList_SetItem(lists, (Py_ssize_t)i, list) < 0)
            Py_CLEAR(lists);
    }
    return lists;
}
