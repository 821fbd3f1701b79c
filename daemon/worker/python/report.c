#include "daemon/worker/python/report.h"

#include <errno.h>

enum { HEAD_MAX = 1024 };

void report_deinit(struct report *report)
{
    Py_CLEAR(report->brief);
    Py_CLEAR(report->whole);
    report->code = 0;
}

/* ---- taking --------------------------------------------------------------------------------- */

static int report_code_of(PyObject *type)
{
    return PyErr_GivenExceptionMatches(type, PyExc_MemoryError) ? ENOMEM : EIO;
}

/* UTF-8 without NUL, whatever is in the text. */
static PyObject *report_encode(PyObject *text)
{
    PyObject *bytes = text && PyUnicode_Check(text)
                          ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace")
                          : NULL;
    char *at = NULL;
    Py_ssize_t len = 0;

    PyErr_Clear();
    if (!bytes || PyBytes_AsStringAndSize(bytes, &at, &len) < 0)
        return bytes;
    for (Py_ssize_t i = 0; i < len; i++)
        if (at[i] == '\0')
            at[i] = '?'; /* made just now, and nobody else's yet */
    return bytes;
}

static void report_describe(PyObject *source, PyObject *value, PyObject *index, struct report *ret)
{
    _cleanup_py_ PyObject *pair =
        PyObject_CallMethod(source, "describe", "OO", value, index ? index : Py_None);

    if (pair && PyTuple_Check(pair) && PyTuple_Size(pair) == 2) {
        ret->brief = report_encode(PyTuple_GetItem(pair, 0));
        ret->whole = report_encode(PyTuple_GetItem(pair, 1));
    }
    PyErr_Clear();
}

/* "KeyError: 'x'": what can be said when nobody describes it. */
static PyObject *report_own_words(PyObject *type, PyObject *value)
{
    _cleanup_py_ PyObject *name = PyObject_GetAttrString(type, "__name__");
    _cleanup_py_ PyObject *said = value ? PyObject_Str(value) : NULL;

    PyErr_Clear();
    _cleanup_py_ PyObject *text = name && said ? PyUnicode_FromFormat("%U: %U", name, said) : NULL;
    PyErr_Clear();
    return text ? report_encode(text) : NULL;
}

void report_take(PyObject *source, PyObject *index, struct report *ret)
{
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && trace)
        PyException_SetTraceback(value, trace);
    PyErr_Clear();
    *ret = (struct report){.code = type ? report_code_of(type) : EIO};
    if (source && value)
        report_describe(source, value, index, ret);
    if (!ret->brief && type)
        ret->brief = report_own_words(type, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

void report_make(const char *text, struct report *ret)
{
    *ret = (struct report){.code = EIO, .brief = PyBytes_FromString(text)};
    PyErr_Clear();
}

static const char *report_bytes_of(PyObject *bytes, uint64_t *ret_len)
{
    char *at = NULL;
    Py_ssize_t len = 0;

    if (!bytes || PyBytes_AsStringAndSize(bytes, &at, &len) < 0) {
        PyErr_Clear();
        len = 0;
    }
    *ret_len = (uint64_t)len;
    return at;
}

const char *report_brief(const struct report *report)
{
    uint64_t len;
    const char *text = report_bytes_of(report->brief, &len);

    return text && len > 0 ? text : "an error that could not be described";
}

/* ---- putting -------------------------------------------------------------------------------- */

/* Where a character begins, at `at` or after it. */
static uint64_t report_next_character(const char *text, uint64_t at, uint64_t len)
{
    while (at < len && ((uint8_t)text[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* The first three lines name the type, and say that a traceback follows; without them, the first.*/
static uint64_t report_head_of(const char *text, uint64_t len)
{
    uint64_t line = 0, at = 0;
    uint64_t first = 0;

    for (; line < 3 && at < len && at < HEAD_MAX; at++)
        if (text[at] == '\n' && line++ == 0)
            first = at + 1;
    return line == 3 ? at : first;
}

void report_put_whole(const struct report *report, void *slot, uint64_t slot_bytes)
{
    volatile struct slot_header *header = slot;
    uint64_t len;
    const char *text = report_bytes_of(report->whole, &len);

    if (!text || slot_bytes < SLOT_HEADER_BYTES)
        return;
    uint64_t brief = header->error_off;
    uint64_t off = brief + header->error_len + 1;
    if (brief == 0 || off + 1 >= slot_bytes)
        return;
    uint64_t room = min_u64(slot_bytes - off - 1, REPORT_MAX);
    uint64_t head = len > room ? report_head_of(text, len) : len;
    if (head > room)
        return;
    char *to = (char *)slot + off;
    memcpy(to, text, head);
    uint64_t tail =
        report_next_character(text, max_u64(head, len - min_u64(len, room - head)), len);
    memcpy(to + head, text + tail, len - tail);
    uint64_t more = head + len - tail;
    to[more] = '\0';
    header->error_more = (uint32_t)more;
    header->used = off + more + 1;
}

int report_put(const struct report *report, uint64_t begin, uint64_t index, void *slot,
               uint64_t slot_bytes)
{
    int r = slot_put_error(slot, slot_bytes,
                           &(struct slot_error){.code = report->code ? report->code : EIO,
                                                .begin = begin,
                                                .index = index,
                                                .text = report_brief(report)});
    report_put_whole(report, slot, slot_bytes);
    return r;
}
