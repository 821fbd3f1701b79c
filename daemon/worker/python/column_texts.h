/*
 * A column of texts as Arrow has it in memory: all its bytes, and where each row begins. It comes
 * from a mapped file that somebody else may have written: what it says is looked at row by row.
 */
#ifndef DL_WORKER_COLUMN_TEXTS_H
#define DL_WORKER_COLUMN_TEXTS_H

#include "daemon/worker/python/py.h"

#include "proto/tree.h"

/* The rows of one of the datasets that were joined. All zeroes: none. */
struct column_texts {
    enum tree_kind kind; /* TREE_STRING or TREE_BYTES */
    bool trims;          /* without the zeroes at its end, as NumPy's texts are */
    bool wide;           /* `starts` are int64, else int32 */
    Py_buffer starts;    /* held; rows + 1 numbers */
    Py_buffer bytes;     /* held */
};

/* One text, or some other run of bytes. */
struct column_span {
    const char *bytes;
    uint64_t len;
};

/*
 * Of a dloaderd._native_datasets.Texts, whose buffers are held until column_texts_deinit(). 1 and
 * *ret_rows; 0: it is none; -1 with an exception. `ret` is to be deinitialised after either.
 */
int column_texts_read(PyObject *object, struct column_texts *ret, uint64_t *ret_rows);
void column_texts_deinit(struct column_texts *texts);

/* Row `row`, below the number of rows. False: it leads out of the bytes, or is no UTF-8 and should
 * be. */
bool _nodiscard_ column_texts_find(const struct column_texts *texts, uint64_t row,
                                   struct column_span *ret);

/* Bytes of the leaf that has these n texts, as struct tree_node says; and the leaf itself. */
uint64_t column_texts_size(const struct column_span *spans, uint32_t n);
void column_texts_write(const struct column_span *spans, uint32_t n, char *to);

#endif
