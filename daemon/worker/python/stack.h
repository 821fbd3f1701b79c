/*
 * Stacking: PyTorch's default_collate of the plain cases, straight into a slot.
 *
 * Sample 0 decides what the batch looks like. All others must have its exact types, keys, shapes
 * and element types: then rows are copied one after another to where they stay. Whatever is not as
 * plain as that (promotion, other classes, unequal shapes, ...) is not done here, but by
 * default_collate itself, so that values and errors are PyTorch's.
 */
#ifndef DL_WORKER_STACK_H
#define DL_WORKER_STACK_H

#include "daemon/worker/python/leaf.h"

#include "proto/slot_fill.h"

struct stack; /* memory kept from batch to batch */

struct stack *stack_new(void); /* NULL: out of memory */
struct stack *stack_free(struct stack *stack);

enum stack_result { STACK_DONE, STACK_TOO_SMALL, STACK_NOT_PLAIN };

/*
 * Collates `samples`, an exact list, into the slot, behind the task. STACK_DONE and
 * STACK_TOO_SMALL give *ret_used: bytes used, or needed. After STACK_NOT_PLAIN the slot holds
 * anything behind the task. No exception is left.
 */
enum stack_result stack_batch(struct stack *stack, PyObject *samples, const struct slot_task *task,
                              void *slot, uint64_t slot_bytes, uint64_t *ret_used);

/*
 * Rows in their places. A batch that is like the last one has its tensor at the same place of the
 * slot, and what makes a sample's tensor may make it right there: between stack_offer() and
 * stack_end_offer() stack_take_row() gives the rows in order. Other tensors go to their rows when
 * the sample is there (stack_sample()), as their bytes are still near the processor, and their
 * memory serves the next sample. stack_batch() copies the rest; where rows have come into disorder
 * it is STACK_NOT_PLAIN.
 *
 *   offer → (take_row* → sample)* → batch → end_offer
 *
 * Such tensors are the slot's memory: nobody but the batch may have them.
 */
void stack_offer(struct stack *stack, const struct slot_task *task, void *slot,
                 uint64_t slot_bytes);
void stack_end_offer(struct stack *stack);

/* The next row of the offer there is in this process, if it is of that kind: a new tensor over
 * it. NULL: no such row, without an exception. */
PyObject *stack_take_row(const struct leaf *leaf, void **ret_memory);

/* The i-th sample of the offer there is in this process; the caller alone has it. A tensor that
 * nobody else has either, as nobody can see that it moves, goes to its row. */
void stack_sample(PyObject *sample, Py_ssize_t i);

#endif
