/*
 * Storing: any Python object becomes a tree (proto/tree.h) and its leaves, in a slot.
 *
 * Tensors (NumPy arrays where torch is not in use), text and exact dicts, lists and tuples of them
 * become nodes. All else becomes an object: a pickle, whose tensors and arrays stand beside it as
 * leaves. An object takes the place of the smallest subtree that it must; a container of nothing
 * but such objects is one object.
 */
#ifndef DL_WORKER_STORE_H
#define DL_WORKER_STORE_H

#include "daemon/worker/python/leaf.h"

#include "proto/slot_fill.h"

struct store; /* memory kept from batch to batch; a tree and where its leaves' bytes are */

struct store *store_new(void); /* NULL: out of memory */
struct store *store_free(struct store *store);

/*
 * For clients that unpickle: strides, and what shares memory, stay as they are. A tensor that is
 * not in order becomes an object, and so does the whole of what has tensors over one another.
 */
void store_keep_layouts(struct store *store);

/*
 * Puts `object` into the slot, behind the task. `arrays`: exact NumPy arrays count as tensors. 1
 * and *ret_used; 0 when the slot is too small: *ret_used bytes are needed; -1 with an exception.
 * Runs the pickling code of whatever is in there, so the object may have changed since, but not its
 * tensors.
 */
int store_object(struct store *store, PyObject *object, bool arrays, const struct slot_task *task,
                 void *slot, uint64_t slot_bytes, uint64_t *ret_used);

#endif
