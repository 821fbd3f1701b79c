/*
 * Columns: a map-style dataset whose samples are rows of tensors, arrays and texts that lie in
 * memory, as dloaderd._native.lower() found it. A batch of them is rows copied into a slot: what
 * the dataset's own code and PyTorch's default_collate would make, without calling either.
 */
#ifndef DL_WORKER_COLUMNS_H
#define DL_WORKER_COLUMNS_H

#include "daemon/worker/python/stack.h"

struct columns;

/*
 * Of a dloaderd._native.Columns; it is referred to, and so are its tensors, as long as `*ret` is
 * there. 1; 0, and *ret NULL: something in it is not plain; -1 with an exception.
 */
int columns_new(PyObject *lowered, struct columns **ret);
struct columns *columns_free(struct columns *columns);

/*
 * The batch of the task's indices, as stack_batch(). STACK_NOT_PLAIN: one of them is no sample, or
 * a text is damaged; the dataset itself has to say so. Leaves no exception.
 */
enum stack_result columns_batch(struct columns *columns, const struct slot_task *task, void *slot,
                                uint64_t slot_bytes, uint64_t *ret_used);

#endif
