/* Between the files of stack: what a batch looks like, as its first sample has it. */
#ifndef DL_WORKER_STACK_PRIVATE_H
#define DL_WORKER_STACK_PRIVATE_H

#include "daemon/worker/python/stack.h"

/* What stands at one place of every sample, and becomes a node of the batch. */
enum place_kind {
    PLACE_DICT,
    PLACE_SEQUENCE,
    PLACE_TENSOR,
    PLACE_ARRAY,
    PLACE_SCALAR, /* NumPy's */
    PLACE_FLOAT,
    PLACE_INT,
    PLACE_BOOL,
    PLACE_TEXT,
    PLACE_TEXTS, /* text in a sequence: an object with one child, its pickle */
    PLACE_PICKLE,
};
struct place {
    enum place_kind kind;
    uint32_t end;     /* the place after this and all below it */
    PyObject *key;    /* owned; in a dict */
    PyObject *type;   /* borrowed: of a scalar, or a text; types outlive their objects */
    PyObject *column; /* owned; list of a tensor's or a text's rows; bytes of a pickle */
    struct leaf leaf;
    uint64_t row_bytes;
    char *to; /* in the slot */
};

/* Where the large tensor of the last batch was, and who has rows of it in this one. */
struct stack_offer {
    struct leaf leaf; /* of a row; no dimensions: there was none */
    uint64_t row_bytes;
    uint64_t offset;   /* from the slot's beginning */
    uint64_t task_end; /* of that batch's task */
    uint32_t node;
    Py_ssize_t n;
    char *rows;      /* in the slot at hand; NULL: nothing is offered */
    Py_ssize_t next; /* the row of the sample at hand */
    bool any;        /* a row is taken */
    PyObject *taken; /* owned; list of the rows' tensors, or None */
};

struct stack {
    struct tree tree;
    struct place *places; /* of each node */
    uint32_t room;
    Py_ssize_t n; /* samples */
    bool copies;  /* else texts are collected only, to learn how long they are */
    struct stack_offer offer;
};

/* Whether the rows that were taken are where this batch has them, before anything is written. */
bool stack_offer_fits(const struct stack *stack, const char *slot);
/* Whether all rows of a tensor are there already: 1; 0: none of them is its; -1: some are. */
int stack_offer_is_filled(const struct stack *stack, uint32_t node);
/* After a batch: remembers it for the next one. */
void stack_offer_learn(struct stack *stack, const struct slot_task *task);

/* Adds the nodes of a batch of s->n such samples. False: not plain, or an exception. */
bool stack_template(struct stack *stack, PyObject *sample);

#endif
