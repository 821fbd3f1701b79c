#include "daemon/worker/python/engine.h"

#include "daemon/worker/forked.h"
#include "daemon/worker/python/columns.h"
#include "daemon/worker/python/made.h"
#include "daemon/worker/python/numbered.h"
#include "daemon/worker/python/pictures.h"
#include "daemon/worker/python/py_bad_samples.h"
#include "daemon/worker/python/retry_cache.h"
#include "daemon/worker/python/rounds.h"
#include "daemon/worker/python/sample.h"
#include "daemon/worker/python/spent.h"
#include "daemon/worker/python/stack.h"
#include "daemon/worker/python/store.h"
#include "daemon/worker/python/tar_members.h"
#include "daemon/worker/python/templates.h"
#include "daemon/worker/python/tokens.h"
#include "daemon/worker/python/worker_env.h"
#include "proto/common/clock.h"
#include "proto/queue.h"

#include <errno.h>
#include <stdio.h>

enum {
    /* What a slot begins with, besides header and indices; it grows with what it must hold. */
    SLOT_FIRST_BYTES = 64 * 1024,
};

struct engine {
    struct py_dataset source;
    struct engine_batches batches;
    char *length_of;         /* owned; that of batches */
    struct planned planned;  /* owned; of the task at hand */
    struct python_step step; /* the one at hand */
    struct rounds rounds;    /* of an iterable dataset */
    struct retry_cache retry_cache;
    struct stack *stack;       /* owned */
    struct store *store;       /* owned */
    struct columns *columns;   /* owned; NULL: the dataset has to be called */
    struct numbered *numbered; /* owned; NULL: so it has, for samples, */
    bool gives_numbers;        /* of which it gives the numbers alone */
    struct dl_error unopened;  /* why these are not open */
    uint64_t collate_ns;       /* of the last fill, */
    uint64_t spent_ns;         /* and what spent_ns() was before it */
    bool copied;               /* it was made of columns, or of files */
    struct fetcher *fetcher;   /* owned; where daemon/data/ collates: then nothing above is used */
    struct data_env env;       /* the fetcher's */
    bool foreign;              /* the client is another user: its keys are integers */
};

/* ---- opening -------------------------------------------------------------------------------- */

static void engine_close(void *engine)
{
    struct engine *e = engine;

    tar_members_end();
    pictures_keep_in(NULL);
    worker_env_set(NULL);
    fetcher_free(e->fetcher);
    retry_cache_clear(&e->retry_cache);
    rounds_close(&e->rounds);
    report_deinit(&e->step.last);
    store_free(e->store);
    stack_free(e->stack);
    columns_free(e->columns);
    numbered_free(e->numbered);
    py_dataset_deinit(&e->source);
    planned_deinit(&e->planned);
    free(e->length_of);
    free(e);
    PyErr_Clear();
}

static void engine_closep(struct engine **engine)
{
    if (*engine)
        engine_close(*engine);
}

/* An empty one; NULL with an exception. */
static struct engine *engine_new(const struct engine_batches *batches)
{
    struct engine *e = calloc(1, sizeof *e);

    if (e) {
        e->batches = *batches;
        e->step = (struct python_step){.seed = batches->seed, .is_seeded = true};
        e->length_of = batches->length_of ? strdup(batches->length_of) : NULL;
        e->batches.length_of = e->length_of;
        e->stack = stack_new();
        e->store = store_new();
    }
    if (!e || !e->stack || !e->store || (batches->length_of && !e->length_of)) {
        PyErr_NoMemory();
        engine_closep(&e);
        return NULL;
    }
    return e;
}

struct engine *engine_of(PyObject *source, const struct engine_batches *batches)
{
    _cleanup_(engine_closep) struct engine *e = engine_new(batches);

    if (!e || py_dataset_from(source, batches->seed, &e->source) < 0)
        return NULL;
    rounds_open(&e->rounds, &e->source, &e->step, &e->batches);
    return steal_ptr(e);
}

static int engine_failed(const char *place, struct dl_error *err)
{
    struct report report;

    report_take(NULL, NULL, &report);
    int r = dl_error_set(err, report.code, place, "%s", report_brief(&report));
    report_deinit(&report);
    return r;
}

/* What the bootstrap knows how to do without the dataset's code. */
static int engine_open_columns(struct engine *e)
{
    _cleanup_py_ PyObject *lowered = PyObject_GetAttrString(e->source.object, "columns");

    if (!lowered)
        PyErr_Clear(); /* a source by other code */
    if (!lowered || lowered == Py_None)
        return 0;
    return array_types_refresh() < 0 || columns_new(lowered, &e->columns) < 0 ? -1 : 0;
}

/* Whether the client unpickles what it gets, and wants tensors as they lie in memory. */
static int engine_open_store(struct engine *e)
{
    _cleanup_py_ PyObject *keeps = PyObject_GetAttrString(e->source.object, "layouts");

    if (!keeps)
        PyErr_Clear(); /* a source by other code */
    int r = keeps ? PyObject_IsTrue(keeps) : 0;
    if (r > 0)
        store_keep_layouts(e->store);
    return r < 0 ? -1 : 0;
}

/* Files of which it gives numbers of samples. Where they cannot be opened, Python reads them. */
static int engine_open_numbered(struct engine *e)
{
    _cleanup_py_ PyObject *text = PyObject_GetAttrString(e->source.object, "files");
    struct numbered_files files = {0};
    Py_ssize_t len = 0;

    if (!text)
        PyErr_Clear(); /* a source by other code */
    if (!text || text == Py_None)
        return 0;
    files.spec = PyUnicode_AsUTF8AndSize(text, &len);
    if (!files.spec)
        return -1;
    files.len = (size_t)len;
    e->gives_numbers = true;
    return numbered_open(&files, &e->numbered, &e->unopened) < 0 && e->unopened.code == ENOMEM
               ? (PyErr_NoMemory(), -1)
               : 0;
}

static int engine_open_source(struct engine *e, const struct worker_open *how, struct dl_error *err)
{
    const struct dl_spec *spec = how->spec;
    struct py_dataset_open open = {.dataset = &spec->dataset,
                                   .collate = spec->collate.object,
                                   .has_collate = true,
                                   .seed = spec->seed,
                                   .worker = how->env->worker,
                                   .workers = how->env->workers};

    if (py_dataset_open(&open, &e->source) < 0 || engine_open_columns(e) < 0 ||
        engine_open_store(e) < 0 || engine_open_numbered(e) < 0)
        return engine_failed("dataset", err);
    rounds_open(&e->rounds, &e->source, &e->step, &e->batches);
    return 0;
}

static int engine_open_fetcher(struct engine *e, const struct worker_open *how,
                               struct dl_error *err)
{
    e->env = *how->env;
    e->env.open_python = sample_open_dataset;
    e->env.open_template = templates_open;
    e->env.python = &e->step;
    return fetcher_new(how->spec, &e->env, &e->fetcher, err);
}

static int engine_open(const struct worker_open *how, void **ret, struct dl_error *err)
{
    const struct dl_spec *spec = how->spec;
    struct engine_batches batches = {.size = spec->batch_size,
                                     .seed = spec->seed,
                                     .worker = how->env->worker,
                                     .workers = (uint32_t)max_u64(how->env->workers, 1),
                                     .shard = spec->shard,
                                     .drop_last = spec->drop_last,
                                     .even = spec->even,
                                     .on_error = spec->on_error,
                                     .tokens = spec->batch.tokens,
                                     .length_of = spec->batch.length_of};
    _cleanup_(engine_closep) struct engine *e = engine_new(&batches);

    if (!e)
        return engine_failed("dataset", err);
    e->foreign = how->env->foreign;
    worker_env_set(how->env);
    /* A dataset of kind python has at most the one. */
    pictures_keep_in(how->env->n_pictures > 0 && how->env->pictures[0].cache.arena
                         ? &how->env->pictures[0].cache
                         : NULL);
    int r = spec->collate.kind == COLLATE_PYTHON ? engine_open_source(e, how, err)
                                                 : engine_open_fetcher(e, how, err);
    if (r == 0)
        *ret = steal_ptr(e);
    return r;
}

static uint64_t engine_slot_bytes(const struct engine *e)
{
    uint64_t most = max_u64(e->batches.size, 1);

    if (!e->source.iterable && e->source.length < most)
        most = max_u64(e->source.length, 1);
    if (e->batches.tokens) /* nobody can say how many samples a batch has */
        most = 0;
    return align_up(slot_indices_end(most) + SLOT_FIRST_BYTES, SLOT_ALIGN);
}

static struct worker_opened engine_describe(const void *engine)
{
    const struct engine *e = engine;

    if (e->fetcher)
        return worker_describe_fetcher(e->fetcher);
    return (struct worker_opened){.length = e->source.length,
                                  .slot_bytes = engine_slot_bytes(e),
                                  .content = py_dataset_content(&e->source),
                                  .is_iterable = e->source.iterable};
}

static void engine_forget(void *engine, uint32_t stream)
{
    struct engine *e = engine;

    if (e->fetcher) {
        fetcher_forget(e->fetcher, stream);
        return;
    }
    retry_cache_settle(&e->retry_cache, stream, UINT64_MAX);
    rounds_forget(&e->rounds, stream);
    PyErr_Clear();
}

/* ---- one task: what the dataset makes -------------------------------------------------------- */

/*
 * What was pickled because the keys are no integers. A pickle is code. That another user sends none
 * is seen to here, and not where keys are fed: that user may write to the slot, too.
 */
static PyObject *engine_read_pickled(const struct engine *e, const struct slot_task *task)
{
    if (e->foreign) {
        PyErr_SetString(PyExc_PermissionError,
                        "keys other than integers are pickles, which this daemon loads for its own "
                        "user only; sample by integers, or start a daemon of your own");
        return NULL;
    }
    uint64_t bytes =
        task->samples > 1 ? __atomic_load_n(&task->indices[1], __ATOMIC_RELAXED) : UINT64_MAX;

    if (bytes > (task->samples - 2) * sizeof(uint64_t)) {
        PyErr_SetString(PyExc_ValueError, "the keys of this step are cut off");
        return NULL;
    }
    _cleanup_py_ PyObject *pickle = PyImport_ImportModule("pickle");
    _cleanup_py_ PyObject *data =
        pickle ? PyBytes_FromStringAndSize((const char *)(task->indices + 2), (Py_ssize_t)bytes)
               : NULL;
    PyObject *keys = data ? PyObject_CallMethod(pickle, "loads", "(O)", data) : NULL;
    if (keys && !PyList_CheckExact(keys)) {
        PyErr_SetString(PyExc_TypeError, "the keys of this step are not a list");
        Py_CLEAR(keys);
    }
    return keys;
}

/* The list of keys of a step. */
static PyObject *engine_read_keys(const struct engine *e, const struct slot_task *task)
{
    if (task->indices[0] == SLOT_KEYS_MARK)
        return engine_read_pickled(e, task);
    PyObject *keys = PyList_New((Py_ssize_t)task->samples);
    for (uint64_t i = 0; keys && i < task->samples; i++) {
        uint64_t word = __atomic_load_n(&task->indices[i], __ATOMIC_RELAXED);
        PyObject *key = PyLong_FromLongLong((int64_t)word);
        if (!key || PyList_SetItem(keys, (Py_ssize_t)i, key) < 0)
            Py_CLEAR(keys);
    }
    return keys;
}

/* Whether what is bad is only left out. Of keys that are no integers none is the next one. */
static bool engine_goes_on(const struct engine *e, const struct slot_task *task)
{
    return e->batches.on_error > ON_ERROR_RAISE && task->indices[0] != SLOT_KEYS_MARK;
}

/*
 * The samples that can be had. A dataset that gives many at once says no more than that one of
 * them is bad: then each is asked for by itself.
 */
static int engine_make_some(struct engine *e, const struct slot_task *task, PyObject *keys,
                            struct made *ret, PyObject **ret_bad)
{
    if (e->source.getitems) {
        ret->object = py_dataset_get_all(&e->source, keys, task->epoch, ret_bad);
        if (ret->object || !PyErr_ExceptionMatches(PyExc_Exception) ||
            PyErr_ExceptionMatches(PyExc_MemoryError))
            return ret->object ? 1 : -1;
        PyErr_Clear();
        Py_CLEAR(*ret_bad);
    }
    return py_bad_samples_collect(&e->source, e->batches.on_error, keys, task->epoch, ret, ret_bad);
}

/* Of a step that is one sample, which is not in a list. */
static int engine_make_one(struct engine *e, const struct slot_task *task, PyObject *keys,
                           struct made *ret, PyObject **ret_bad)
{
    if (engine_make_some(e, task, keys, ret, ret_bad) < 0)
        return -1;
    PyObject *sample = PyList_GetItem(ret->object, 0);
    Py_XINCREF(sample);
    Py_DECREF(ret->object);
    ret->object = sample;
    return sample ? 1 : -1;
}

/* The dataset's state goes along, so that another worker may take this one's place. */
static int engine_put_back(const struct engine *e, const struct slot_task *task)
{
    struct dataset_state state = {0};

    if (!e->source.keeper)
        return 0;
    if (task->state.len > 0 && !dataset_state_read(task->state, &state)) {
        PyErr_SetString(PyExc_RuntimeError, "the state in the slot is damaged");
        return -1;
    }
    return py_dataset_put_back(&e->source, state.state);
}

static int engine_take_state(const struct engine *e, const struct slot_task *task, struct made *ret)
{
    if (!e->source.keeper)
        return 1;
    ret->state = py_dataset_state(&e->source, e->source.dataset);
    ret->head = (struct dataset_state){.round = task->step + 1, .world = 1};
    return ret->state ? 1 : -1;
}

static int engine_call_mapped(struct engine *e, const struct slot_task *task, void *slot,
                              struct made *ret, PyObject **ret_bad)
{
    _cleanup_py_ PyObject *keys = engine_read_keys(e, task);

    ret->samples = task->samples;
    if (!keys ||
        py_dataset_seed(&e->source, e->source.seed, task->epoch, task->rank, task->step) < 0)
        return -1;
    if (engine_goes_on(e, task))
        return (task->what == SLOT_SAMPLE ? engine_make_one : engine_make_some)(e, task, keys, ret,
                                                                                ret_bad);
    if (task->what != SLOT_SAMPLE) {
        ret->object = py_dataset_get_all(&e->source, keys, task->epoch, ret_bad);
        if (ret->object && task->planned)
            return tokens_fit(&ret->object, e->length_of, &e->planned, slot, task, ret_bad);
        return ret->object ? 1 : -1;
    }
    PyObject *key = PyList_GetItem(keys, 0);
    if (!key)
        return -1;
    Py_INCREF(key);
    ret->object = py_dataset_get(&e->source, key, task->epoch);
    if (!ret->object)
        *ret_bad = key;
    else
        Py_DECREF(key);
    return ret->object ? 1 : -1;
}

static int engine_make_mapped(struct engine *e, const struct slot_task *task, void *slot,
                              struct made *ret, PyObject **ret_bad)
{
    int r = engine_put_back(e, task);

    if (r == 0)
        r = engine_call_mapped(e, task, slot, ret, ret_bad);
    return r > 0 ? engine_take_state(e, task, ret) : r;
}

static int engine_make_round(struct engine *e, const struct slot_task *task, struct made *ret)
{
    retry_cache_settle(&e->retry_cache, task->stream, task->settled);
    int r = rounds_make(&e->rounds, task, ret);
    if (r <= 0 || task->what != SLOT_SAMPLE)
        return r;
    PyObject *sample = PyList_GetItem(ret->object, 0);
    Py_XINCREF(sample);
    Py_DECREF(ret->object);
    ret->object = sample;
    return sample ? 1 : -1;
}

/* Samples become a batch by the function that there is for it, which may import torch. 1, or -1. */
static int engine_call_collate(PyObject *function, struct made *made)
{
    PyObject *batch = PyObject_CallFunctionObjArgs(function, made->object, NULL);

    forked_end_copy();
    if (!batch)
        return -1;
    Py_DECREF(made->object);
    made->object = batch;
    made->collated = true;
    return array_types_refresh() < 0 ? -1 : 1;
}

static int engine_call_default(const struct engine *e, struct made *made)
{
    _cleanup_py_ PyObject *function = PyObject_GetAttrString(e->source.object, "default_collate");

    return function ? engine_call_collate(function, made) : -1;
}

/* ---- one task: into the slot ----------------------------------------------------------------- */

/* 1; 0: too small; -1. `task` has as many samples as were made. */
static int engine_put_sample(struct engine *e, const struct slot_task *task, struct made *made,
                             void *slot, uint64_t slot_bytes, uint64_t *ret_used)
{
    if (!made->collated && e->source.convert && engine_call_collate(e->source.convert, made) < 0)
        return -1;
    made->collated = true;
    return store_object(e->store, made->object, !array_types.tensor, task, slot, slot_bytes,
                        ret_used);
}

/* The samples of these numbers, as the dataset itself gives them: 1, or -1. `why`: what C said. */
static int engine_call_for_numbers(const struct engine *e, struct made *made,
                                   const struct dl_error *why)
{
    char text[sizeof why->path + sizeof why->message + 2];

    snprintf(text, sizeof text, "%s%s%s", why->path, why->path[0] ? ": " : "", why->message);
    _cleanup_py_ PyObject *said = PyUnicode_DecodeFSDefault(text);
    PyObject *samples =
        said ? PyObject_CallMethod(e->source.object, "samples_of", "OO", made->object, said) : NULL;
    forked_end_copy();
    if (!samples)
        return -1;
    Py_DECREF(made->object);
    made->object = samples;
    made->are_samples = true;
    return array_types_refresh() < 0 ? -1 : 1;
}

/* Numbers become a batch, or samples. 1: a batch; 0: too small; -1; 2: samples. */
static int engine_put_numbers(struct engine *e, const struct slot_task *task, struct made *made,
                              void *slot, uint64_t slot_bytes, uint64_t *ret_used)
{
    enum numbered_result r = NUMBERED_CANNOT;
    struct dl_error why = e->unopened;

    if (e->numbered)
        r = numbered_batch(e->numbered, made->object, task, slot, slot_bytes, ret_used, &why);
    e->copied = r != NUMBERED_CANNOT;
    if (e->copied)
        return r == NUMBERED_DONE;
    return engine_call_for_numbers(e, made, &why) < 0 ? -1 : 2;
}

static int engine_put_batch(struct engine *e, const struct slot_task *task, struct made *made,
                            void *slot, uint64_t slot_bytes, uint64_t *ret_used)
{
    if (e->gives_numbers && !made->are_samples) {
        int r = engine_put_numbers(e, task, made, slot, slot_bytes, ret_used);
        if (r < 2)
            return r;
    }
    if (!made->collated && e->source.collate && engine_call_collate(e->source.collate, made) < 0)
        return -1;
    if (!made->collated && PyList_CheckExact(made->object)) {
        enum stack_result r = stack_batch(e->stack, made->object, task, slot, slot_bytes, ret_used);
        if (r != STACK_NOT_PLAIN)
            return r == STACK_DONE;
    }
    if (!made->collated && engine_call_default(e, made) < 0)
        return -1;
    return store_object(e->store, made->object, !array_types.tensor, task, slot, slot_bytes,
                        ret_used);
}

/* Batch and sample: 1; 0: too small; -1. */
static int engine_put_made(struct engine *e, const struct slot_task *task, struct made *made,
                           void *slot, uint64_t slot_bytes, uint64_t *ret_used)
{
    struct slot_task as_made = *task;
    uint64_t began = clock_ns();

    as_made.samples = (uint32_t)made->samples;
    int r = (task->what == SLOT_SAMPLE ? engine_put_sample : engine_put_batch)(
        e, &as_made, made, slot, slot_bytes, ret_used);
    e->collate_ns += clock_ns() - began;
    return r;
}

/* And what goes with it, likewise. */
static int engine_put_whole(struct engine *e, const struct slot_task *task, struct made *made,
                            void *slot, uint64_t slot_bytes, uint64_t *ret_used)
{
    int r = engine_put_made(e, task, made, slot, slot_bytes, ret_used);

    return r > 0 && !made_put_rest(made, task, slot, slot_bytes, ret_used) ? 0 : r;
}

/* What did not fit is kept as it will stand in a slot of *ret_used bytes: whatever the dataset does
 * with its samples until then. -ENOBUFS; -1 with an exception. */
static int engine_keep(struct engine *e, const struct slot_task *task, struct made *made,
                       const void *slot, uint64_t *ret_used)
{
    int r = 0;

    stack_end_offer(e->stack);
    while (r == 0) {
        uint64_t bytes = align_up(*ret_used, TREE_ALIGN);
        _cleanup_free_ char *image = aligned_alloc(TREE_ALIGN, bytes);
        if (!image) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(image, slot, slot_task_end(task));
        r = engine_put_whole(e, task, made, image, bytes, ret_used);
        if (r > 0)
            retry_cache_put(&e->retry_cache, task, steal_ptr(image), *ret_used);
    }
    return r > 0 ? -ENOBUFS : -1;
}

/* Without the dataset's code: 0, -ENOBUFS; 1: it has to be called. */
static int engine_copy_rows(struct engine *e, const struct slot_task *task, void *slot,
                            uint64_t slot_bytes, uint64_t *ret_used)
{
    if (!e->columns || task->what != SLOT_BATCH || task->planned ||
        task->indices[0] == SLOT_KEYS_MARK)
        return 1;
    switch (columns_batch(e->columns, task, slot, slot_bytes, ret_used)) {
    case STACK_DONE:
        e->copied = true;
        return 0;
    case STACK_TOO_SMALL:
        return -ENOBUFS;
    case STACK_NOT_PLAIN:
        break;
    }
    return 1;
}

/* 0, FETCH_END, -ENOBUFS; -1 with an exception. */
static int engine_make(struct engine *e, const struct slot_task *task, void *slot,
                       uint64_t slot_bytes, uint64_t *ret_used, PyObject **ret_bad)
{
    struct made made = {0};
    int r = engine_copy_rows(e, task, slot, slot_bytes, ret_used);

    if (r <= 0)
        return r;
    if (retry_cache_take(&e->retry_cache, task, slot, slot_bytes, ret_used)) {
        e->copied = true;
        return *ret_used > slot_bytes ? -ENOBUFS : 0;
    }
    if (!task->planned) /* else more is asked of the samples */
        stack_offer(e->stack, task, slot, slot_bytes);
    r = task->stream ? engine_make_round(e, task, &made)
                     : engine_make_mapped(e, task, slot, &made, ret_bad);
    /* The dataset may have been the first to import NumPy or torch. */
    if (r > 0 && array_types_refresh() < 0)
        r = -1;
    if (r > 0) {
        r = engine_put_whole(e, task, &made, slot, slot_bytes, ret_used);
        if (r >= 0)
            r = r > 0 ? 0 : engine_keep(e, task, &made, slot, ret_used);
    } else if (r == 0) {
        r = FETCH_END;
    }
    made_deinit(&made);
    stack_end_offer(e->stack);
    return r;
}

/* Likewise, for the lengths of samples. */
static int engine_fill_lengths(struct engine *e, const struct slot_task *task, void *slot,
                               uint64_t slot_bytes, uint64_t *ret_used, PyObject **ret_bad)
{
    uint32_t each = task->what == SLOT_LENGTHS ? task->samples : 1;
    uint32_t *lengths = slot_put_lengths(slot, slot_bytes, task, ret_used);
    int r = 0;

    if (!lengths)
        return -ENOBUFS;
    if (py_dataset_seed(&e->source, e->source.seed, task->epoch, task->rank, task->step) < 0)
        return -1;
    for (uint32_t at = 0; at < task->samples && r == 0; at += each) {
        uint64_t first = __atomic_load_n(&task->indices[at], __ATOMIC_RELAXED);

        r = tokens_take(&e->source, e->length_of, first, each, lengths + at, ret_bad);
    }
    return r;
}

/* Whether the lengths that the task asks for are of samples that there are. */
static bool engine_has_samples(const struct engine *e, const struct slot_task *task)
{
    uint64_t first = __atomic_load_n(task->indices, __ATOMIC_RELAXED), n = e->source.length;

    if (task->what == SLOT_LENGTHS)
        return first <= n && task->samples <= n - first;
    for (uint32_t i = 0; i < task->samples; i++)
        if (__atomic_load_n(&task->indices[i], __ATOMIC_RELAXED) >= n)
            return false;
    return true;
}

/* The exception that is set becomes the step's error. */
static int engine_fail(struct engine *e, const struct slot_task *task, PyObject *bad, void *slot,
                       uint64_t slot_bytes)
{
    struct report report = e->step.last;
    int overflow = 1;
    int64_t index = 0;

    e->step.last = (struct report){0};
    if (PyErr_Occurred() || !report.code) {
        report_deinit(&report);
        report_take(e->source.object, bad, &report);
    }
    if (bad && PyLong_Check(bad))
        index = PyLong_AsLongLongAndOverflow(bad, &overflow);
    int r = report_put(&report, task->stream ? SLOT_HEADER_BYTES : slot_task_end(task),
                       overflow ? UINT64_MAX : (uint64_t)index, slot, slot_bytes);
    report_deinit(&report);
    PyErr_Clear();
    return r;
}

/* Whether the task that stands in the slot is one of this loader. */
static bool engine_read_task(const struct engine *e, const void *slot, uint64_t slot_bytes,
                             struct slot_task *ret)
{
    if (!slot_read_task(slot, slot_bytes, ret) || (ret->stream != 0) != e->source.iterable)
        return false;
    if (slot_asks_lengths(ret))
        return ret->stream == 0 && ret->planned == 0 && engine_has_samples(e, ret);
    return (ret->what == SLOT_SAMPLE) == (e->batches.size == 0) &&
           (ret->planned == 0 || (e->batches.tokens && ret->stream == 0));
}

static int engine_fill(void *engine, void *slot, uint64_t slot_bytes, uint64_t *ret_used,
                       struct dl_error *err)
{
    struct engine *e = engine;
    struct slot_task task = {0};
    _cleanup_py_ PyObject *bad = NULL;

    if (e->fetcher) {
        bool shared = fetcher_is_iterable(e->fetcher) && e->batches.shard != SHARD_STRIDED;
        return sample_fill(e->fetcher, &e->step, shared, slot, slot_bytes, ret_used, err);
    }
    if (!engine_read_task(e, slot, slot_bytes, &task)) {
        struct report report;
        report_make("the slot's header is damaged", &report);
        int r = report_put(&report, SLOT_HEADER_BYTES, UINT64_MAX, slot, slot_bytes);
        report_deinit(&report);
        return r;
    }
    e->collate_ns = e->source.watch.ns = 0;
    e->spent_ns = spent_ns();
    e->copied = false;
    report_deinit(&e->step.last);
    int r = (slot_asks_lengths(&task) ? engine_fill_lengths
                                      : engine_make)(e, &task, slot, slot_bytes, ret_used, &bad);
    return r == -1 ? engine_fail(e, &task, bad, slot, slot_bytes) : r;
}

static uint64_t engine_collate_ns(const void *engine)
{
    const struct engine *e = engine;

    return e->fetcher ? fetcher_collate_ns(e->fetcher) : e->collate_ns;
}

/* All that is not known to be C's is Python's: what calls the one from the other included. */
static void engine_tell_python(const void *engine, struct queue_done *done)
{
    const struct engine *e = engine;
    uint64_t fetch_ns = done->cost_ns - min_u64(done->collate_ns, done->cost_ns);

    if (e->fetcher || e->copied)
        return;
    done->fetch_python_ns = fetch_ns - min_u64(spent_ns() - e->spent_ns, fetch_ns);
    done->collate_python_ns = e->source.collate ? done->collate_ns : 0;
}

static const struct slow_watch *engine_slowest(const void *engine)
{
    const struct engine *e = engine;

    return e->fetcher ? fetcher_slowest(e->fetcher) : &e->source.watch;
}

static size_t engine_name(const void *engine, uint64_t index, char *ret, size_t room)
{
    const struct engine *e = engine;

    return e->fetcher ? dataset_name(fetcher_dataset(e->fetcher), index, ret, room)
                      : py_dataset_name(&e->source, index, ret, room);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static PyThreadState *engine_resting;

static void engine_rest(void)
{
    engine_resting = PyEval_SaveThread();
}

static void engine_wake(void)
{
    PyEval_RestoreThread(steal_ptr(engine_resting));
}

const struct worker_engine python_engine = {
    .allow = py_dataset_allow,
    .open = engine_open,
    .close = engine_close,
    .describe = engine_describe,
    .fill = engine_fill,
    .collate_ns = engine_collate_ns,
    .tell_python = engine_tell_python,
    .slowest = engine_slowest,
    .name = engine_name,
    .forget = engine_forget,
    .rest = engine_rest,
    .wake = engine_wake,
};
