/* Rows that are made in their places, or copied there at once. */
#include "daemon/worker/python/holders.h"
#include "daemon/worker/python/stack_private.h"

/* Below it, a copy costs less than a tensor over foreign memory. */
enum { OFFER_BYTES_MIN = 32 * 1024, OFFER_DEPTH = 8 };

static struct stack *stack_offering; /* of this process; NULL: nobody offers rows */

void stack_offer_learn(struct stack *s, const struct slot_task *task)
{
    struct stack_offer *offer = &s->offer;

    offer->leaf.ndim = 0;
    for (uint32_t i = 0; i < s->tree.count && offer->leaf.ndim == 0; i++) {
        const struct place *place = &s->places[i];
        if (place->kind != PLACE_TENSOR || place->row_bytes < OFFER_BYTES_MIN)
            continue;
        offer->leaf = place->leaf;
        offer->row_bytes = place->row_bytes;
        offer->offset = s->tree.nodes[i].offset;
        offer->task_end = slot_task_end(task);
        offer->node = i;
        offer->n = s->n;
    }
}

void stack_offer(struct stack *s, const struct slot_task *task, void *slot, uint64_t slot_bytes)
{
    struct stack_offer *offer = &s->offer;
    uint64_t end = offer->offset + offer->row_bytes * (uint64_t)offer->n;

    stack_end_offer(s);
    if (task->what != SLOT_BATCH || offer->leaf.ndim == 0 || task->samples != (uint64_t)offer->n ||
        slot_task_end(task) != offer->task_end || end > slot_bytes)
        return;
    offer->taken = PyList_New(offer->n);
    for (Py_ssize_t i = 0; offer->taken && i < offer->n; i++) {
        Py_INCREF(Py_None);
        PyList_SetItem(offer->taken, i, Py_None);
    }
    if (!offer->taken) {
        PyErr_Clear();
        return;
    }
    offer->rows = (char *)slot + offer->offset;
    stack_offering = s;
}

/* A new tensor over a row; NULL with an exception. */
static PyObject *stack_offer_row(const struct stack_offer *offer, Py_ssize_t i, void **ret_memory)
{
    *ret_memory = offer->rows + (uint64_t)i * offer->row_bytes;
    return leaf_tensor_over(*ret_memory, &offer->leaf, 0);
}

/* Its memory is the row's. */
static int stack_offer_taken(struct stack_offer *offer, Py_ssize_t i, PyObject *tensor)
{
    Py_INCREF(tensor);
    offer->any = true;
    return PyList_SetItem(offer->taken, i, tensor);
}

PyObject *stack_take_row(const struct leaf *leaf, void **ret_memory)
{
    struct stack_offer *offer = stack_offering ? &stack_offering->offer : NULL;

    if (!offer || offer->next >= offer->n || memcmp(leaf, &offer->leaf, sizeof *leaf) != 0)
        return NULL;
    PyObject *row = stack_offer_row(offer, offer->next, ret_memory);
    if (row && stack_offer_taken(offer, offer->next++, row) < 0)
        Py_CLEAR(row);
    PyErr_Clear();
    return row;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* The first tensor of the leaf's kind in a sample, borrowed; NULL: it has none. *ret_alone: whether
 * nobody has what it is in. */
static PyObject *stack_offer_find(PyObject *object, const struct leaf *leaf, unsigned depth,
                                  bool *ret_alone)
{
    bool list = PyList_CheckExact(object);
    PyObject *found = NULL, *value;
    Py_ssize_t at = 0;
    struct leaf its;

    *ret_alone = Py_REFCNT(object) == 1;
    if (array_types_is_tensor(object))
        return leaf_of_tensor(object, &its) == 1 && memcmp(&its, leaf, sizeof its) == 0 ? object
                                                                                        : NULL;
    if (depth > 0 && PyDict_CheckExact(object)) {
        while (!found && PyDict_Next(object, &at, NULL, &value))
            found = stack_offer_find(value, leaf, depth - 1, ret_alone);
    } else if (depth > 0 && (list || PyTuple_CheckExact(object))) {
        Py_ssize_t n = list ? PyList_Size(object) : PyTuple_Size(object);
        for (; !found && at < n; at++)
            found =
                stack_offer_find(list ? PyList_GetItem(object, at) : PyTuple_GetItem(object, at),
                                 leaf, depth - 1, ret_alone);
    }
    *ret_alone = *ret_alone && Py_REFCNT(object) == 1;
    return found;
}

/* Its bytes go to the row, and its own memory away. */
static int stack_offer_move(struct stack_offer *offer, Py_ssize_t i, PyObject *tensor)
{
    void *memory;
    _cleanup_py_ PyObject *row = stack_offer_row(offer, i, &memory);

    if (!row || leaf_write_tensor(memory, tensor, &offer->leaf) < 0 ||
        PyObject_SetAttrString(tensor, "data", row) < 0)
        return -1;
    return stack_offer_taken(offer, i, tensor);
}

void stack_sample(PyObject *sample, Py_ssize_t i)
{
    struct stack_offer *offer = stack_offering ? &stack_offering->offer : NULL;
    bool alone;

    if (!offer || i >= offer->n)
        return;
    if (offer->next == i) { /* else it has taken a row */
        PyObject *tensor = stack_offer_find(sample, &offer->leaf, OFFER_DEPTH, &alone);
        if (tensor && alone && holders_are_none(tensor))
            (void)stack_offer_move(offer, i, tensor);
    }
    offer->next = i + 1;
    PyErr_Clear();
}

/* ---- the batch ------------------------------------------------------------------------------- */

bool stack_offer_fits(const struct stack *s, const char *slot)
{
    const struct stack_offer *offer = &s->offer;

    if (!offer->rows || !offer->any)
        return true;
    if (offer->node >= s->tree.count || s->n != offer->n)
        return false;
    const struct place *place = &s->places[offer->node];
    return place->kind == PLACE_TENSOR && slot + s->tree.nodes[offer->node].offset == offer->rows &&
           memcmp(&place->leaf, &offer->leaf, sizeof offer->leaf) == 0;
}

/* A row that is not in its place; false: it is not like the others, or another one is there. */
static bool stack_offer_put(const struct stack_offer *offer, Py_ssize_t i, PyObject *tensor)
{
    struct leaf its;

    return PyList_GetItem(offer->taken, i) == Py_None && leaf_of_tensor(tensor, &its) == 1 &&
           memcmp(&its, &offer->leaf, sizeof its) == 0 &&
           leaf_write_tensor(offer->rows + (uint64_t)i * offer->row_bytes, tensor, &its) == 0;
}

int stack_offer_is_filled(const struct stack *s, uint32_t node)
{
    const struct stack_offer *offer = &s->offer;

    if (!offer->rows || !offer->any || node != offer->node)
        return 0;
    for (Py_ssize_t i = 0; i < s->n; i++) {
        PyObject *tensor = PyList_GetItem(s->places[node].column, i);
        if (tensor != PyList_GetItem(offer->taken, i) && !stack_offer_put(offer, i, tensor))
            return -1;
    }
    return 1;
}

void stack_end_offer(struct stack *s)
{
    s->offer.rows = NULL;
    s->offer.next = 0;
    s->offer.any = false;
    Py_CLEAR(s->offer.taken);
    if (stack_offering == s)
        stack_offering = NULL;
}
