/*
 * Leaves: the bytes of a NumPy array or a torch tensor, and how they get to their place in a slot.
 *
 * Arrays are read by the buffer protocol. Of tensors only type and shape are asked for; torch
 * itself writes their values, through a tensor over the slot's memory, which is right for every
 * layout, and cheaper than asking each for its address.
 */
#ifndef DL_WORKER_LEAF_H
#define DL_WORKER_LEAF_H

#include "daemon/worker/python/array_types.h"

#include "proto/tree.h"

/* What a leaf holds. */
struct leaf {
    uint32_t dtype;
    uint32_t ndim;
    uint64_t shape[TREE_DIMS];
};

/*
 * The buffer of an array whose elements a slot can hold: 1, and `ret` is released with
 * PyBuffer_Release(). 0: it is none (other byte order, structured, text, objects, dates, more than
 * TREE_DIMS dimensions). -1: an exception, of its buffer. Read it at once: NumPy lets arrays be
 * resized that somebody has the buffer of.
 */
int leaf_of_array(PyObject *array, Py_buffer *ret, struct leaf *ret_leaf);

/* All elements, C-contiguous, at `dst`. Any strides. */
void leaf_copy_array(void *dst, const Py_buffer *array);

/* A tensor's type and shape. 1; 0: a slot cannot hold it as it is (not strided, not in the CPU's
 * memory, another element type, too many dimensions, part of a graph); -1. */
int leaf_of_tensor(PyObject *tensor, struct leaf *ret);

/* Whether its elements stand one behind the other, and its strides say so, those of dimensions of
 * one element included: 1 or 0; -1. */
int leaf_in_order(PyObject *tensor, const struct leaf *leaf);

/* Where its first element is; NULL: it has no memory. -1. */
int leaf_address(PyObject *tensor, const void **ret);

/* Of either; nothing of a buffer is held. */
int leaf_of(PyObject *object, struct leaf *ret);

/* A tensor's address, where its bytes are those that it stands for, in order: 1. 0: they are not,
 * or there are none. -1. */
int leaf_plain_bytes(PyObject *tensor, const void **ret);

/* A tensor over `dst`, of the leaf's type, with the dimension `rows` first unless it is 0. NULL
 * with an exception. It must not outlive the slot's lease: keep it to yourself. */
PyObject *leaf_tensor_over(void *dst, const struct leaf *leaf, uint64_t rows);

/* The elements at `dst`; type and shape must still be those of `leaf`, or it is an error. -1. */
int leaf_write_tensor(void *dst, PyObject *tensor, const struct leaf *leaf);
int leaf_write_array(void *dst, PyObject *array, const struct leaf *leaf);

#endif
