/* Rows that are made in their places. */
#include "daemon/worker/python/stack_private.h"

/* Below it, a copy costs less than a tensor over foreign memory. */
enum { OFFER_BYTES_MIN = 32 * 1024 };

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
    offer->taken = PyList_New(0);
    if (!offer->taken) {
        PyErr_Clear();
        return;
    }
    offer->rows = (char *)slot + offer->offset;
    stack_offering = s;
}

PyObject *stack_take_row(const struct leaf *leaf, void **ret_memory)
{
    struct stack_offer *offer = stack_offering ? &stack_offering->offer : NULL;
    Py_ssize_t taken = offer ? PyList_Size(offer->taken) : 0;

    if (!offer || taken >= offer->n || memcmp(leaf, &offer->leaf, sizeof *leaf) != 0)
        return NULL;
    *ret_memory = offer->rows + (uint64_t)taken * offer->row_bytes;
    PyObject *row = leaf_tensor_over(*ret_memory, leaf, 0);
    if (row && PyList_Append(offer->taken, row) < 0)
        Py_CLEAR(row);
    PyErr_Clear();
    return row;
}

static Py_ssize_t stack_offer_taken(const struct stack *s)
{
    return s->offer.rows ? PyList_Size(s->offer.taken) : 0;
}

bool stack_offer_fits(const struct stack *s, const char *slot)
{
    const struct stack_offer *offer = &s->offer;

    if (stack_offer_taken(s) == 0)
        return true;
    if (offer->node >= s->tree.count || s->n != offer->n)
        return false;
    const struct place *place = &s->places[offer->node];
    return place->kind == PLACE_TENSOR && slot + s->tree.nodes[offer->node].offset == offer->rows &&
           memcmp(&place->leaf, &offer->leaf, sizeof offer->leaf) == 0;
}

int stack_offer_is_filled(const struct stack *s, uint32_t node)
{
    const struct stack_offer *offer = &s->offer;
    Py_ssize_t taken = stack_offer_taken(s);

    if (taken == 0 || node != offer->node)
        return 0;
    for (Py_ssize_t i = 0; i < s->n; i++) {
        if (i >= taken ||
            PyList_GetItem(s->places[node].column, i) != PyList_GetItem(offer->taken, i))
            return -1;
    }
    return 1;
}

int stack_keep_rows(struct stack *s)
{
    for (Py_ssize_t i = 0, n = stack_offer_taken(s); i < n; i++) {
        PyObject *row = PyList_GetItem(s->offer.taken, i);
        _cleanup_py_ PyObject *copy = PyObject_CallMethod(row, "clone", NULL);
        if (!copy || PyObject_SetAttrString(row, "data", copy) < 0)
            return -1;
    }
    return 0;
}

void stack_end_offer(struct stack *s)
{
    s->offer.rows = NULL;
    Py_CLEAR(s->offer.taken);
    if (stack_offering == s)
        stack_offering = NULL;
}
