#include "daemon/worker/python/iterator.h"

#include "daemon/data/base/sample_batch.h"

#include <assert.h>
#include <errno.h>

/* ---- the step ------------------------------------------------------------------------------- */

void python_step_begin(struct python_step *step, const struct slot_task *task, uint32_t rank,
                       uint64_t number)
{
    step->epoch = task->epoch;
    step->step = number;
    step->rank = rank;
    step->is_seeded = false;
}

int python_step_fail(struct python_step *step, const struct py_dataset *source, PyObject *index,
                     struct dl_error *err)
{
    /* What ends the process is no sample's. */
    bool ends = !PyErr_ExceptionMatches(PyExc_Exception);

    report_deinit(&step->last);
    report_take(source ? source->object : NULL, index, &step->last);
    return dl_error_set(err, ends ? ECANCELED : step->last.code, "", "%s",
                        report_brief(&step->last));
}

bool python_step_failed_with(const struct python_step *step, const struct dl_error *err)
{
    struct dl_error said;

    if (!step->last.code)
        return false;
    dl_error_set(&said, step->last.code, "", "%s", report_brief(&step->last));
    return strcmp(said.message, err->message) == 0;
}

int python_step_seed(struct python_step *step, const struct py_dataset *source)
{
    if (step->is_seeded)
        return 0;
    step->is_seeded = true;
    return py_dataset_seed(source, step->seed, step->epoch, step->rank, step->step);
}

/* ---- the first samples ---------------------------------------------------------------------- */

struct first {
    PyObject *sample;     /* owned; NULL: it cannot be had */
    struct dl_error *why; /* owned */
    uint64_t number;
};

struct python_iter {
    struct dataset_iter base;
    struct iterator_open how;
    struct replica_params params;
    PyObject *iterator;   /* owned */
    struct first *firsts; /* owned; n_firsts of them, up to params.again */
    uint64_t n_firsts;
    uint64_t taken; /* samples */
    bool stateless; /* it does not know where it stands */
};

/* Keeps the sample that came last, or (taking it over) why none came. -ENOMEM. */
static int iterator_keep(struct python_iter *it, PyObject *sample, struct dl_error *why)
{
    uint64_t n = it->n_firsts;

    assert((sample == NULL) == (why != NULL));
    if ((n & (n - 1)) == 0) { /* room for twice as many */
        struct first *firsts = realloc(it->firsts, max_u64(2 * n, 1) * sizeof *firsts);
        if (!firsts)
            return -ENOMEM;
        it->firsts = firsts;
    }
    Py_XINCREF(sample);
    it->firsts[it->n_firsts++] = (struct first){sample, why, it->taken - 1};
    assert(it->n_firsts <= it->params.again);
    return 0;
}

/* Keeps that none came, if its round continues without it. */
static int iterator_keep_bad(struct python_iter *it, const struct dl_error *err)
{
    if (it->n_firsts == it->params.again || !it->params.again_bad || !bad_is_sample(err))
        return 0;
    struct dl_error *why = malloc(sizeof *why);
    if (why)
        *why = *err;
    if (why && iterator_keep(it, NULL, why) == 0)
        return 0;
    free(why);
    return -ENOMEM;
}

static void iterator_drop_firsts(struct python_iter *it)
{
    for (uint64_t i = 0; i < it->n_firsts; i++) {
        Py_XDECREF(it->firsts[i].sample);
        free(it->firsts[i].why);
    }
    free(it->firsts);
}

/* ---- the iterator --------------------------------------------------------------------------- */

static int iterator_fail(struct python_iter *it, struct dl_error *err)
{
    return python_step_fail(it->how.step, it->how.source, NULL, err);
}

/* The next object; NULL with an exception, or at the end. */
static PyObject *iterator_take(struct python_iter *it)
{
    const struct py_dataset *source = it->how.source;
    bool enters = !it->how.step->is_seeded; /* in the step that began it, it was the last anyway */

    if (python_step_seed(it->how.step, source) < 0 ||
        (enters && !it->stateless && py_dataset_enter(source, it->iterator) < 0))
        return NULL;
    PyObject *object = py_dataset_next(source, it->iterator, it->params.key.epoch);
    it->taken += object || PyErr_Occurred();
    if (object && it->n_firsts < it->params.again && iterator_keep(it, object, NULL) < 0) {
        Py_CLEAR(object);
        PyErr_NoMemory();
    }
    return object;
}

static int iterator_next(struct dataset_iter *base, struct sample *ret, struct dl_error *err)
{
    struct python_iter *it = container_of(base, struct python_iter, base);
    _cleanup_py_ PyObject *object = iterator_take(it);

    if (!object && !PyErr_Occurred())
        return DATASET_END;
    if (object)
        return it->how.give(ret, object) < 0 ? iterator_fail(it, err) : 0;
    int r = iterator_fail(it, err);
    if (iterator_keep_bad(it, err) < 0) {
        PyErr_NoMemory();
        r = iterator_fail(it, err);
    }
    return r;
}

static int iterator_again(struct dataset_iter *base, uint64_t *number, struct sample *ret,
                          struct dl_error *err)
{
    struct python_iter *it = container_of(base, struct python_iter, base);

    if (it->n_firsts == 0)
        return DATASET_END;
    /* Fewer than were counted, where a round ended with an error. */
    const struct first *first = &it->firsts[*number % it->n_firsts];
    *number = first->number;
    if (first->why)
        return dl_error_set(err, first->why->code, "", "%s", first->why->message);
    return it->how.give(ret, first->sample) < 0 ? iterator_fail(it, err) : 0;
}

/* Moves the state to `buf`; -ENOTSUP: it has no state, or not now. */
static int iterator_read_state(struct python_iter *it, PyObject *state, void *buf, size_t room,
                               size_t *ret_len, enum dataset_state_loss *ret_lost)
{
    char *bytes;
    Py_ssize_t len;

    it->stateless = state == Py_False;
    if (PyLong_CheckExact(state)) {
        *ret_lost = (enum dataset_state_loss)PyLong_AsLong(state);
        return 0;
    }
    if (!PyBytes_Check(state) || PyBytes_AsStringAndSize(state, &bytes, &len) < 0 ||
        (size_t)len > room)
        return -ENOTSUP;
    memcpy(buf, bytes, (size_t)len);
    *ret_len = (size_t)len;
    return 0;
}

static int iterator_save(struct dataset_iter *base, void *buf, size_t room, size_t *ret_len,
                         enum dataset_state_loss *ret_lost, struct dl_error *err)
{
    struct python_iter *it = container_of(base, struct python_iter, base);

    *ret_len = 0;
    if (it->stateless)
        return -ENOTSUP;
    _cleanup_py_ PyObject *state = py_dataset_state(it->how.source, it->iterator);
    return state ? iterator_read_state(it, state, buf, room, ret_len, ret_lost)
                 : iterator_fail(it, err);
}

/* Closing an iterator runs its finally. */
static void iterator_close(struct dataset_iter *base)
{
    struct python_iter *it = container_of(base, struct python_iter, base);

    Py_XDECREF(it->iterator);
    iterator_drop_firsts(it);
    PyErr_Clear();
    free(it);
}

static const struct dataset_iter_ops iterator_ops = {
    .next = iterator_next,
    .again = iterator_again,
    .save = iterator_save,
    .close = iterator_close,
};

int iterator_begin(const struct iterator_open *how, const struct replica_params *params,
                   struct dataset_iter **ret, struct dl_error *err)
{
    struct python_iter *it = calloc(1, sizeof *it);

    if (!it)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory");
    *it = (struct python_iter){.base.ops = &iterator_ops,
                               .how = *how,
                               .params = *params,
                               .stateless = !how->source->keeper || params->again > 0};
    if (python_step_seed(how->step, how->source) == 0)
        it->iterator = py_dataset_iterate(how->source, params->key.epoch, params->rank,
                                          params->world, params->state);
    if (!it->iterator) {
        int r = iterator_fail(it, err);
        iterator_close(&it->base);
        return r;
    }
    *ret = &it->base;
    return 0;
}
