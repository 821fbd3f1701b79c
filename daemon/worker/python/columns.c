#include "daemon/worker/python/columns.h"

#include "daemon/data/kinds/arrays/widen.h"
#include "daemon/worker/python/column_texts.h"
#include "proto/common/bisect.h"
#include "proto/dtype.h"

#include <errno.h>

/* Copies `n` elements to another type; NULL: to the same. */
typedef void (*columns_convert_fn)(uint32_t dtype, const void *from, void *to, uint64_t n);

/* The rows of one column that one of the joined datasets has. */
struct piece {
    const char *bytes;
    Py_buffer buffer;          /* of an array, held; obj NULL: a tensor's */
    struct column_texts texts; /* of a column of texts, in place of all that */
};

struct column {
    bool is_text;
    bool spreads;    /* a batch has a list with a tensor for each element of the row, which has one
                        dimension */
    struct leaf row; /* of one sample; all zeroes of texts */
    uint64_t row_bytes;
    const char *key; /* borrowed of the names; NULL: the batch is a list */
    uint32_t dtype;  /* in a batch; that of the row, unless convert says otherwise */
    columns_convert_fn convert;
    struct piece *pieces; /* owned; one for each part */
};

struct columns {
    PyObject *lowered; /* owned; holds the tensors, and what columns are called */
    bool bare;         /* a sample is its only column, and no sequence of them */
    uint32_t n;
    struct column *columns; /* owned */
    uint32_t n_parts;
    uint64_t *ends;            /* owned; rows of the parts up to each, itself included */
    const int64_t *rows;       /* of each sample; NULL: sample i is row i */
    uint64_t length;           /* samples */
    struct tree tree;          /* kept from batch to batch */
    uint32_t n_texts;          /* columns of texts */
    struct column_span *spans; /* owned; the texts of the batch at hand, column by column */
    uint64_t room;             /* of spans */
};

/* ---- other types ------------------------------------------------------------------------------
 */

static void columns_widen(uint32_t dtype, const void *from, void *to, uint64_t n)
{
    widen_tokens(dtype, from, to, n);
}

static void columns_to_float(uint32_t dtype, const void *from, void *to, uint64_t n)
{
    const double *restrict numbers = from;
    float *restrict out = to;

    (void)dtype;
    for (uint64_t i = 0; i < n; i++)
        out[i] = (float)numbers[i];
}

static void columns_to_double(uint32_t dtype, const void *from, void *to, uint64_t n)
{
    const float *restrict numbers = from;
    double *restrict out = to;

    (void)dtype;
    for (uint64_t i = 0; i < n; i++)
        out[i] = numbers[i];
}

/* What makes the one type of the other. False: nothing does. */
static bool columns_find_convert(uint32_t from, uint32_t to, columns_convert_fn *ret)
{
    *ret = NULL;
    if (from == to)
        return true;
    if (to == DL_DTYPE_FLOAT32 && from == DL_DTYPE_FLOAT64)
        *ret = columns_to_float;
    else if (to == DL_DTYPE_FLOAT64 && from == DL_DTYPE_FLOAT32)
        *ret = columns_to_double;
    else if (to == DL_DTYPE_INT64 && from >= DL_DTYPE_UINT8 && from <= DL_DTYPE_INT32)
        *ret = columns_widen;
    return *ret;
}

/* ---- reading what was found ------------------------------------------------------------------ */

/* A tensor's or an array's elements in order, and its shape. 1; 0: not plain; -1. */
static int columns_read_bytes(PyObject *object, struct piece *ret, struct leaf *ret_leaf)
{
    if (array_types_is_tensor(object)) {
        const void *bytes = NULL;
        int r = leaf_of_tensor(object, ret_leaf);
        if (r > 0)
            r = leaf_plain_bytes(object, &bytes);
        ret->bytes = bytes;
        return r;
    }
    int r = array_types_is_array(object) ? leaf_of_array(object, &ret->buffer, ret_leaf) : 0;
    if (r <= 0)
        return r;
    ret->bytes = ret->buffer.buf;
    return PyBuffer_IsContiguous(&ret->buffer, 'C');
}

/* Takes the first dimension off. False: it has none, or a sample has no bytes. */
static bool columns_take_rows(struct leaf *leaf, uint64_t *ret_rows, uint64_t *ret_row_bytes)
{
    if (leaf->ndim == 0)
        return false;
    *ret_rows = leaf->shape[0];
    leaf->ndim--;
    memmove(&leaf->shape[0], &leaf->shape[1], leaf->ndim * sizeof leaf->shape[0]);
    leaf->shape[leaf->ndim] = 0;
    return tensor_bytes(leaf->dtype, leaf->ndim, leaf->shape, ret_row_bytes) && *ret_row_bytes > 0;
}

/* Numbers, or texts. 1; 0: neither, or nothing plain; -1. */
static int columns_read_rows_of(struct piece *to, PyObject *object, struct column *ret,
                                uint64_t *ret_rows)
{
    int r;

    if (!array_types_is_tensor(object) && !array_types_is_array(object)) {
        ret->is_text = true;
        return column_texts_read(object, &to->texts, ret_rows);
    }
    if ((r = columns_read_bytes(object, to, &ret->row)) > 0)
        r = columns_take_rows(&ret->row, ret_rows, &ret->row_bytes);
    return r;
}

static int columns_read_piece(struct columns *c, uint32_t column, uint32_t part, PyObject *object)
{
    struct column *to = &c->columns[column], found = {0};
    uint64_t before = part ? c->ends[part - 1] : 0, rows;

    int r = columns_read_rows_of(&to->pieces[part], object, &found, &rows);
    if (r <= 0)
        return r;
    if (part == 0) {
        to->is_text = found.is_text;
        to->row = found.row;
        to->row_bytes = found.row_bytes;
        c->n_texts += found.is_text;
    }
    if (column == 0)
        c->ends[part] = before + rows;
    return to->is_text == found.is_text && memcmp(&to->row, &found.row, sizeof found.row) == 0 &&
           to->pieces[0].texts.kind == to->pieces[part].texts.kind &&
           c->ends[part] == before + rows;
}

static int columns_read_part(struct columns *c, uint32_t part, PyObject *objects)
{
    int r = PyTuple_Size(objects) == (Py_ssize_t)c->n;

    for (uint32_t i = 0; r > 0 && i < c->n; i++)
        r = columns_read_piece(c, i, part, PyTuple_GetItem(objects, i));
    return r;
}

/* The samples' rows: dloaderd._native has seen that each is one. */
static int columns_read_rows(struct columns *c, PyObject *rows)
{
    struct piece piece = {0};
    struct leaf leaf = {0};

    c->length = c->ends[c->n_parts - 1];
    if (rows == Py_None)
        return 1;
    int r = array_types_is_tensor(rows) ? columns_read_bytes(rows, &piece, &leaf) : 0;
    if (r <= 0)
        return r;
    c->rows = (const void *)piece.bytes;
    c->length = leaf.shape[0];
    return leaf.dtype == DL_DTYPE_INT64 && leaf.ndim == 1;
}

static int columns_allocate(struct columns *c, PyObject *parts)
{
    PyObject *first = PyTuple_Size(parts) > 0 ? PyTuple_GetItem(parts, 0) : NULL;

    c->n_parts = first ? (uint32_t)PyTuple_Size(parts) : 0;
    c->n = first ? (uint32_t)PyTuple_Size(first) : 0;
    if (c->n == 0)
        return 0;
    c->columns = calloc(c->n, sizeof *c->columns);
    c->ends = calloc(c->n_parts, sizeof *c->ends);
    bool good = c->columns && c->ends;
    for (uint32_t i = 0; good && i < c->n; i++) {
        c->columns[i].pieces = calloc(c->n_parts, sizeof *c->columns[i].pieces);
        good = c->columns[i].pieces;
    }
    if (!good)
        PyErr_NoMemory();
    return good ? 1 : -1;
}

/* What columns are called in a batch. 1; 0: not plain; -1. */
static int columns_read_keys(struct columns *c, PyObject *keys)
{
    if (keys == Py_None)
        return 1;
    for (uint32_t i = 0; i < c->n; i++) {
        Py_ssize_t len;
        PyObject *key = PyTuple_GetItem(keys, i);
        c->columns[i].key = key ? PyUnicode_AsUTF8AndSize(key, &len) : NULL;
        if (!c->columns[i].key)
            return -1;
        if (strlen(c->columns[i].key) != (size_t)len)
            return 0;
    }
    return 1;
}

static int columns_read_spreads(struct columns *c, PyObject *spreads)
{
    for (uint32_t i = 0; spreads != Py_None && i < c->n; i++) {
        PyObject *spread = PyTuple_GetItem(spreads, i);
        if (!spread)
            return -1;
        c->columns[i].spreads = spread == Py_True;
        if (c->columns[i].spreads && (c->columns[i].is_text || c->columns[i].row.ndim != 1))
            return 0;
    }
    return 1;
}

static int columns_read_dtypes(struct columns *c, PyObject *dtypes)
{
    for (uint32_t i = 0; i < c->n; i++) {
        struct column *column = &c->columns[i];
        column->dtype = column->row.dtype;
        if (dtypes != Py_None && !column->is_text)
            column->dtype = array_types_torch_dtype(PyTuple_GetItem(dtypes, i));
        if (!columns_find_convert(column->row.dtype, column->dtype, &column->convert))
            return 0;
    }
    return 1;
}

/* What a batch says besides. */
static int columns_read_names(struct columns *c, PyObject *lowered)
{
    _cleanup_py_ PyObject *keys = PyObject_GetAttrString(lowered, "keys");
    _cleanup_py_ PyObject *dtypes = keys ? PyObject_GetAttrString(lowered, "dtypes") : NULL;
    _cleanup_py_ PyObject *spreads = dtypes ? PyObject_GetAttrString(lowered, "spreads") : NULL;
    int r = spreads ? columns_read_keys(c, keys) : -1;

    if (r > 0)
        r = columns_read_spreads(c, spreads);
    return r > 0 ? columns_read_dtypes(c, dtypes) : r;
}

static int columns_read(struct columns *c, PyObject *bare, PyObject *parts, PyObject *rows)
{
    int r = columns_allocate(c, parts);

    c->bare = bare == Py_True;
    for (uint32_t i = 0; r > 0 && i < c->n_parts; i++)
        r = columns_read_part(c, i, PyTuple_GetItem(parts, i));
    return r > 0 ? columns_read_rows(c, rows) : r;
}

int columns_new(PyObject *lowered, struct columns **ret)
{
    _cleanup_py_ PyObject *bare = PyObject_GetAttrString(lowered, "bare");
    _cleanup_py_ PyObject *parts = bare ? PyObject_GetAttrString(lowered, "parts") : NULL;
    _cleanup_py_ PyObject *rows = parts ? PyObject_GetAttrString(lowered, "rows") : NULL;
    struct columns *c = rows ? calloc(1, sizeof *c) : NULL;

    *ret = NULL;
    if (!c)
        return rows ? (PyErr_NoMemory(), -1) : -1;
    Py_INCREF(lowered);
    c->lowered = lowered;
    int r = columns_read(c, bare, parts, rows);
    if (r > 0)
        r = columns_read_names(c, lowered);
    if (r > 0)
        *ret = c;
    else
        columns_free(c);
    return r;
}

struct columns *columns_free(struct columns *c)
{
    for (uint32_t i = 0; c && c->columns && i < c->n; i++) {
        for (uint32_t part = 0; c->columns[i].pieces && part < c->n_parts; part++) {
            PyBuffer_Release(&c->columns[i].pieces[part].buffer);
            column_texts_deinit(&c->columns[i].pieces[part].texts);
        }
        free(c->columns[i].pieces);
    }
    if (c) {
        tree_deinit(&c->tree);
        free(c->columns);
        free(c->ends);
        free(c->spans);
        Py_CLEAR(c->lowered);
        free(c);
    }
    return NULL;
}

/* ---- a batch --------------------------------------------------------------------------------- */

/* The row of an index as Python counts: from the end where it is below 0. False: no such row.
 */
static bool columns_find_row(const struct columns *c, uint64_t word, uint64_t *ret)
{
    uint64_t sample = (int64_t)word < 0 ? word + c->length : word;

    if (sample >= c->length)
        return false;
    *ret = c->rows ? (uint64_t)c->rows[sample] : sample;
    return true;
}

static bool columns_all_there(const struct columns *c, const struct slot_task *task)
{
    uint64_t row;

    for (uint32_t i = 0; i < task->samples; i++)
        if (!columns_find_row(c, __atomic_load_n(&task->indices[i], __ATOMIC_RELAXED), &row))
            return false;
    return true;
}

/* The part that has the row; parts are few, but for those that joined a thousand files. */
static uint32_t columns_find_part(const struct columns *c, uint64_t row)
{
    return (uint32_t)bisect_ends(c->ends, c->n_parts - 1, row);
}

/* Where the row of an index lies. False: no such row. */
static bool columns_find_bytes(const struct columns *c, const struct column *column, uint64_t word,
                               const char **ret)
{
    uint64_t row;

    if (!columns_find_row(c, word, &row))
        return false;
    uint32_t part = columns_find_part(c, row);
    *ret = column->pieces[part].bytes + (row - (part ? c->ends[part - 1] : 0)) * column->row_bytes;
    return true;
}

static void columns_copy_elements(const struct column *column, const char *from, char *to,
                                  uint64_t n)
{
    if (column->convert)
        column->convert(column->row.dtype, from, to, n);
    else
        memcpy(to, from, n * dtype_bytes(column->dtype));
}

/* The client may write to the indices meanwhile: what is no sample any more is left out. */
static void columns_copy(const struct columns *c, const struct column *column,
                         const struct slot_task *task, char *to)
{
    uint64_t elements = column->row_bytes / dtype_bytes(column->row.dtype);
    uint64_t step = elements * dtype_bytes(column->dtype);
    const char *from;

    for (uint32_t i = 0; i < task->samples; i++, to += step) {
        uint64_t word = __atomic_load_n(&task->indices[i], __ATOMIC_RELAXED);
        if (columns_find_bytes(c, column, word, &from))
            columns_copy_elements(column, from, to, elements);
    }
}

/* Likewise, element e of each row to leaf e. */
static void columns_spread(const struct columns *c, const struct column *column,
                           const struct slot_task *task, const struct tree_node *leaves, char *slot)
{
    uint64_t size = dtype_bytes(column->row.dtype), step = dtype_bytes(column->dtype);
    const char *from;

    for (uint32_t i = 0; i < task->samples; i++) {
        uint64_t word = __atomic_load_n(&task->indices[i], __ATOMIC_RELAXED);
        if (!columns_find_bytes(c, column, word, &from))
            continue;
        for (uint64_t e = 0; e < column->row.shape[0]; e++)
            columns_copy_elements(column, from + e * size, slot + leaves[e].offset + i * step, 1);
    }
}

static bool columns_find_text(const struct columns *c, const struct column *column, uint64_t word,
                              struct column_span *ret)
{
    uint64_t row;

    if (!columns_find_row(c, word, &row))
        return false;
    uint32_t part = columns_find_part(c, row);
    return column_texts_find(&column->pieces[part].texts, row - (part ? c->ends[part - 1] : 0),
                             ret);
}

/*
 * Where all texts of the batch lie. They have several lengths: so each index is read here and not
 * again, as the client may write to the indices meanwhile. False: one is damaged, or there is no
 * memory.
 */
static bool columns_find_texts(struct columns *c, const struct slot_task *task)
{
    uint64_t n = (uint64_t)c->n_texts * task->samples;
    struct column_span *spans =
        n > c->room ? realloc(c->spans, (size_t)n * sizeof *spans) : c->spans;

    if (n && !spans)
        return false;
    c->spans = spans;
    c->room = max_u64(c->room, n);
    for (uint32_t i = 0; i < c->n; i++) {
        if (!c->columns[i].is_text)
            continue;
        for (uint32_t at = 0; at < task->samples; at++, spans++) {
            uint64_t word = __atomic_load_n(&task->indices[at], __ATOMIC_RELAXED);
            if (!columns_find_text(c, &c->columns[i], word, spans))
                return false;
        }
    }
    return true;
}

static int columns_add_texts(struct columns *c, const struct column *column,
                             const struct column_span *spans, uint32_t samples)
{
    int r = tree_add_text(&c->tree, column->pieces[0].texts.kind, column->key,
                          column_texts_size(spans, samples));

    if (r == 0) {
        struct tree_node *node = &c->tree.nodes[c->tree.count - 1];
        node->ndim = 1;
        node->shape[0] = samples;
    }
    return r;
}

/* Of a row's list default_collate makes one, too. */
static int columns_add_spread(struct columns *c, const struct column *column, uint64_t samples)
{
    uint64_t n = column->row.shape[0];
    int r = n <= UINT32_MAX ? tree_add(&c->tree, TREE_LIST, column->key, (uint32_t)n) : -E2BIG;

    for (uint64_t e = 0; r == 0 && e < n; e++)
        r = tree_add_tensor(&c->tree, NULL, column->dtype, 1, &samples);
    return r;
}

static int columns_add_tensor(struct columns *c, const struct column *column, uint64_t samples)
{
    uint64_t shape[TREE_DIMS] = {samples};

    if (column->spreads)
        return columns_add_spread(c, column, samples);
    memcpy(&shape[1], column->row.shape, column->row.ndim * sizeof *shape);
    return tree_add_tensor(&c->tree, column->key, column->dtype, column->row.ndim + 1, shape);
}

/* default_collate makes a list of each tuple and of texts, and a dict of each dict. */
static int columns_make_tree(struct columns *c, uint32_t samples)
{
    const struct column_span *spans = c->spans;

    tree_clear(&c->tree);
    enum tree_kind kind = c->columns[0].key ? TREE_DICT : TREE_LIST;
    int r = c->bare ? 0 : tree_add(&c->tree, kind, NULL, c->n);
    for (uint32_t i = 0; r == 0 && i < c->n; i++) {
        const struct column *column = &c->columns[i];
        r = column->is_text ? columns_add_texts(c, column, spans, samples)
                            : columns_add_tensor(c, column, samples);
        spans += column->is_text ? samples : 0;
    }
    return r;
}

static bool columns_lay_out(struct columns *c, struct batch_layout *layout)
{
    for (uint32_t i = 0; i < c->tree.count; i++) {
        struct tree_node *node = &c->tree.nodes[i];
        bool is_leaf = node->kind != TREE_DICT && node->kind != TREE_LIST;
        if (is_leaf && !batch_layout_place(layout, node))
            return false;
    }
    return true;
}

/* All columns, each at its leaf or leaves. */
static void columns_write(const struct columns *c, const struct slot_task *task, char *slot)
{
    const struct tree_node *node = &c->tree.nodes[c->bare ? 0 : 1];
    const struct column_span *spans = c->spans;

    for (uint32_t i = 0; i < c->n; i++, node = tree_skip(node)) {
        const struct column *column = &c->columns[i];
        if (column->is_text) {
            column_texts_write(spans, task->samples, slot + node->offset);
            spans += task->samples;
        } else if (column->spreads) {
            columns_spread(c, column, task, node + 1, slot);
        } else {
            columns_copy(c, column, task, slot + node->offset);
        }
    }
}

enum stack_result columns_batch(struct columns *c, const struct slot_task *task, void *slot,
                                uint64_t slot_bytes, uint64_t *ret_used)
{
    if (task->samples == 0 || !columns_all_there(c, task) || !columns_find_texts(c, task) ||
        columns_make_tree(c, task->samples) < 0)
        return STACK_NOT_PLAIN;
    struct batch_layout layout = batch_layout_begin(slot_task_end(task), &c->tree);
    if (!columns_lay_out(c, &layout))
        return STACK_NOT_PLAIN;
    *ret_used = layout.used;
    if (layout.used > slot_bytes)
        return STACK_TOO_SMALL;
    columns_write(c, task, slot);
    batch_layout_zero_gaps(&layout, c->tree.nodes, slot);
    tree_encode(&c->tree, (char *)slot + layout.tree_off);
    slot_put_batch(slot, task->samples, &layout);
    return STACK_DONE;
}
