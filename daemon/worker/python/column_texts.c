#include "daemon/worker/python/column_texts.h"

#include "proto/common/utf8.h"

/* ---- reading what was found ------------------------------------------------------------------ */

static int column_texts_hold(PyObject *object, const char *name, Py_buffer *ret)
{
    _cleanup_py_ PyObject *array = PyObject_GetAttrString(object, name);

    return array ? PyObject_GetBuffer(array, ret, PyBUF_C_CONTIGUOUS) : -1;
}

static int column_texts_read_flag(PyObject *object, const char *name, bool *ret)
{
    _cleanup_py_ PyObject *flag = PyObject_GetAttrString(object, name);

    if (!flag)
        return -1;
    *ret = flag == Py_True;
    return 0;
}

int column_texts_read(PyObject *object, struct column_texts *ret, uint64_t *ret_rows)
{
    bool is_bytes;

    if (!PyObject_HasAttrString(object, "starts"))
        return 0;
    if (column_texts_read_flag(object, "is_bytes", &is_bytes) < 0 ||
        column_texts_read_flag(object, "trims", &ret->trims) < 0 ||
        column_texts_hold(object, "starts", &ret->starts) < 0 ||
        column_texts_hold(object, "bytes", &ret->bytes) < 0)
        return -1;
    ret->kind = is_bytes ? TREE_BYTES : TREE_STRING;
    Py_ssize_t size = ret->starts.itemsize;
    ret->wide = size == sizeof(int64_t);
    if ((!ret->wide && size != sizeof(int32_t)) || ret->starts.len < 2 * size)
        return 0;
    *ret_rows = (uint64_t)(ret->starts.len / size) - 1;
    return 1;
}

void column_texts_deinit(struct column_texts *texts)
{
    PyBuffer_Release(&texts->starts);
    PyBuffer_Release(&texts->bytes);
}

/* ---- a row ------------------------------------------------------------------------------------
 */

static int64_t column_texts_start(const struct column_texts *texts, uint64_t row)
{
    const int32_t *narrow = texts->starts.buf;
    const int64_t *wide = texts->starts.buf;

    return texts->wide ? wide[row] : narrow[row];
}

bool column_texts_find(const struct column_texts *texts, uint64_t row, struct column_span *ret)
{
    int64_t start = column_texts_start(texts, row), end = column_texts_start(texts, row + 1);

    if (start < 0 || end < start || end > texts->bytes.len)
        return false;
    ret->bytes = (const char *)texts->bytes.buf + start;
    ret->len = (uint64_t)(end - start);
    if (texts->kind == TREE_STRING && !utf8_valid((const uint8_t *)ret->bytes, ret->len))
        return false;
    while (texts->trims && ret->len && ret->bytes[ret->len - 1] == 0)
        ret->len--;
    return true;
}

/* ---- a batch ----------------------------------------------------------------------------------
 */

uint64_t column_texts_size(const struct column_span *spans, uint32_t n)
{
    uint64_t size = (n + 1ULL) * sizeof(uint64_t);

    for (uint32_t i = 0; i < n; i++)
        size += spans[i].len;
    return size;
}

void column_texts_write(const struct column_span *spans, uint32_t n, char *to)
{
    uint64_t *ends = (void *)to, at = 0;

    to += (n + 1ULL) * sizeof at;
    ends[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(to + at, spans[i].bytes, spans[i].len);
        at += spans[i].len;
        ends[i + 1] = at;
    }
}
