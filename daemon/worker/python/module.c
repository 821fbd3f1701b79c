/* Python datasets in workers: dloaderd._worker. */
#include "daemon/worker/python/engine.h"
#include "daemon/worker/python/host.h"
#include "daemon/worker/python/numbered.h"
#include "daemon/worker/python/pictures.h"
#include "daemon/worker/python/sample.h"
#include "daemon/worker/python/tar_members.h"
#include "daemon/worker/python/templates.h"
#include "daemon/worker/python/texts.h"
#include "daemon/worker/python/told.h"
#include "proto/common/clock.h"

#include <errno.h>

static PyObject *module_serve(PyObject *module, PyObject *args, PyObject *names)
{
    static char *keys[] = {"bootstrap", "sock", "channel", "client", "keeps_errors", NULL};
    struct host_place place = {.sock = -1, .channel = -1};
    int keeps_errors = 0;
    PyObject *bootstrap;

    if (!PyArg_ParseTupleAndKeywords(args, names, "O|$iiip:serve", keys, &bootstrap, &place.sock,
                                     &place.channel, &place.client, &keeps_errors))
        return NULL;
    if ((place.sock < 0) == (place.channel < 0)) {
        PyErr_SetString(PyExc_TypeError, "serve() takes a sock or a channel");
        return NULL;
    }
    place.keeps_errors = keeps_errors;
    Py_XDECREF(py_dataset_bootstrap);
    Py_INCREF(bootstrap);
    py_dataset_bootstrap = bootstrap;
    int status = host_serve(&place);
    return status < 0 ? NULL : PyLong_FromLong(status);
}

static PyObject *module_leave_signals(PyObject *module, PyObject *nothing)
{
    host_leave_signals();
    Py_RETURN_NONE;
}

/* ---- the key of sample_rng() ---------------------------------------------------------------- */

static PyObject *module_key(PyObject *module, PyObject *nothing)
{
    const struct py_dataset_key *k = &py_dataset_key;

    if (!k->set)
        Py_RETURN_NONE;
    if (!k->has_index)
        return Py_BuildValue("(KKO)", (ull)k->seed, (ull)k->epoch, Py_None);
    return Py_BuildValue("(KKL)", (ull)k->seed, (ull)k->epoch, (long long)k->index);
}

/* ---- the test door --------------------------------------------------------------------------- */

static const char module_door[] = "dloaderd._worker.engine";

static void module_free_engine(PyObject *capsule)
{
    void *engine = PyCapsule_GetPointer(capsule, module_door);

    if (engine)
        python_engine.close(engine);
}

static PyObject *module_engine(PyObject *module, PyObject *args, PyObject *names)
{
    static char *keys[] = {"source", "batch_size", "drop_last", "seed", "worker", "workers",
                           "tokens", "length_of",  "shard",     "even", NULL};
    unsigned long long size = 1, seed = 0, tokens = 0;
    const char *length_of = NULL;
    unsigned worker = 0, workers = 1, shard = SHARD_STRIDED;
    int drop_last = 0, even = 1;
    PyObject *source;

    if (!PyArg_ParseTupleAndKeywords(args, names, "OK|pKIIKzIp:engine", keys, &source, &size,
                                     &drop_last, &seed, &worker, &workers, &tokens, &length_of,
                                     &shard, &even))
        return NULL;
    struct engine *engine =
        engine_of(source, &(struct engine_batches){.size = size,
                                                   .seed = seed,
                                                   .worker = worker,
                                                   .workers = workers,
                                                   .shard = (enum shard_mode)shard,
                                                   .drop_last = drop_last,
                                                   .even = even,
                                                   .tokens = tokens,
                                                   .length_of = length_of});
    return engine ? PyCapsule_New(engine, module_door, module_free_engine) : NULL;
}

/* A step as the daemon would put it into a slot, from Python's arguments. */
struct step {
    struct slot_task task;
    Py_buffer words;
    Py_buffer planned; /* obj NULL: nothing */
    uint64_t slot_bytes;
    int repeat;
};

static int module_read_step(PyObject *args, PyObject *names, void **ret_engine, struct step *ret)
{
    static char *keys[] = {"engine", "words",     "slot_bytes", "epoch",   "step",
                           "stream", "rank",      "world",      "settled", "samples",
                           "repeat", "unbatched", "lengths",    "planned", NULL};
    unsigned long long slot_bytes = 1 << 20, epoch = 0, number = 0, settled = 0, samples = 0;
    unsigned stream = 0, rank = 0, world = 1;
    int unbatched = 0, lengths = 0;
    PyObject *engine;

    ret->repeat = 1;
    if (!PyArg_ParseTupleAndKeywords(args, names, "Oy*|KKKIIIKKippy*:fill", keys, &engine,
                                     &ret->words, &slot_bytes, &epoch, &number, &stream, &rank,
                                     &world, &settled, &samples, &ret->repeat, &unbatched, &lengths,
                                     &ret->planned))
        return -1;
    *ret_engine = PyCapsule_GetPointer(engine, module_door);
    ret->slot_bytes = slot_bytes;
    ret->task = (struct slot_task){
        .generation = 1,
        .epoch = epoch,
        .step = number,
        .indices = samples && !lengths ? NULL : ret->words.buf,
        .samples = (uint32_t)(samples ? samples : (uint64_t)ret->words.len / sizeof(uint64_t)),
        .what = lengths     ? SLOT_LENGTHS
                : unbatched ? SLOT_SAMPLE
                            : SLOT_BATCH,
        .planned = (uint64_t)ret->planned.len,
        .stream = stream,
        .rank = rank,
        .world = world,
        .settled = settled};
    return *ret_engine ? 0 : -1;
}

/* (code, bytes used or needed, the slot, nanoseconds of the last fill) */
static PyObject *module_run_step(void *engine, const struct step *step)
{
    _cleanup_free_ void *slot = NULL;
    struct dl_error err;
    uint64_t used = 0, took = 0;
    int r = 0;

    if (step->slot_bytes > PY_SSIZE_T_MAX ||
        posix_memalign(&slot, SLOT_ALIGN, max_u64(step->slot_bytes, 1)) != 0)
        return PyErr_NoMemory();
    memset(slot, 0xa5, step->slot_bytes);
    for (int i = 0; i < step->repeat; i++) {
        if (!slot_prepare(slot, step->slot_bytes, &step->task)) {
            PyErr_SetString(PyExc_ValueError, "the slot has no room for its indices");
            return NULL;
        }
        if (step->task.planned)
            memcpy(slot_planned(slot, step->task.samples), step->planned.buf, step->task.planned);
        uint64_t begun = clock_ns();
        r = python_engine.fill(engine, slot, step->slot_bytes, &used, &err);
        took = clock_ns() - begun;
    }
    if (r < 0 && r != -ENOBUFS)
        used = ((const struct slot_header *)slot)->used;
    return Py_BuildValue(
        "(iKy#K)", r, (ull)used, (char *)slot,
        (Py_ssize_t)min_u64(r == -ENOBUFS ? 0 : max_u64(used, SLOT_HEADER_BYTES), step->slot_bytes),
        (ull)took);
}

static PyObject *module_fill(PyObject *module, PyObject *args, PyObject *names)
{
    struct step step = {0};
    void *engine = NULL;

    PyObject *result =
        module_read_step(args, names, &engine, &step) < 0 ? NULL : module_run_step(engine, &step);
    PyBuffer_Release(&step.words);
    PyBuffer_Release(&step.planned);
    return result;
}

static PyObject *module_forget(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    unsigned stream;

    if (!PyArg_ParseTuple(args, "OI:forget", &capsule, &stream))
        return NULL;
    void *engine = PyCapsule_GetPointer(capsule, module_door);
    if (!engine)
        return NULL;
    python_engine.forget(engine, stream);
    Py_RETURN_NONE;
}

/* ---- the module ------------------------------------------------------------------------------ */

static PyMethodDef module_methods[] = {
    {"serve", (PyCFunction)(void (*)(void))module_serve, METH_VARARGS | METH_KEYWORDS,
     "serve(bootstrap, *, sock=-1, channel=-1, client=0, keeps_errors=False) -> exit status\n\n"
     "The host's loop: forks a worker for each W_FORK, which calls bootstrap() to have its "
     "dataset.\n"
     "sock: to the daemon that has started this process; channel: to the client that has, and\n"
     "hands over sockets to its daemons. Ends when that one is closed, or process `client` ends.\n"
     "keeps_errors: workers write to this process's standard error, and not to the daemon's."},
    {"leave_signals", module_leave_signals, METH_NOARGS,
     "leave_signals(): from now on no signal runs a handler of the program that has started this "
     "process.\n\nserve() with a channel does so, too, for a process in which none could come "
     "before."},
    {"key", module_key, METH_NOARGS,
     "key() -> (seed, epoch, index) of the sample that is being made, or None.\n\n"
     "index is None where the sample has no number of its own."},
    {"unpack", told_unpack, METH_O,
     "unpack(data): a view of the daemon's, in msgpack, as dicts and lists. ValueError: it is "
     "none."},
    {"read_spec", told_read_spec, METH_VARARGS,
     "read_spec(text): what a spec in YAML or JSON says, as dicts and lists, unchecked. "
     "ValueError: "
     "it is\n"
     "neither."},
    {"sample_names", told_sample_names, METH_VARARGS,
     "sample_names(text, base, indices): the file of each of these samples, as this process may\n"
     "read them; \"\" for a sample that there is not. None: the spec's samples are no files.\n"
     "ValueError: why the dataset cannot be opened. base: an absolute folder; indices: a list."},
    {"open_files", numbered_open_files, METH_VARARGS,
     "open_files(spec) -> how many samples there are in the files of this spec, a text in JSON.\n\n"
     "ValueError: why they cannot be opened. In a worker, by its way to URLs."},
    {"file_lengths", numbered_file_lengths, METH_VARARGS,
     "file_lengths(spec) -> how many samples each part of a mix has, a list. ValueError: as "
     "open_files()."},
    {"pictures", pictures_open, METH_VARARGS, pictures_open_text},
    {"picture_of_file", pictures_of_file, METH_VARARGS, pictures_of_file_text},
    {"picture_of_path", pictures_of_path, METH_VARARGS, pictures_of_path_text},
    {"picture_of_pixels", pictures_of_pixels, METH_VARARGS, pictures_of_pixels_text},
    {"picture_steps", picture_steps, METH_VARARGS, picture_steps_text},
    {"picture_whole", picture_whole, METH_O, picture_whole_text},
    {"picture_header", picture_header, METH_O, picture_header_text},
    {"picture_find", picture_find, METH_O, picture_find_text},
    {"picture_keep", picture_keep, METH_VARARGS, picture_keep_text},
    {"text_tokenizer", texts_open, METH_VARARGS, texts_open_text},
    {"text_encode", texts_encode, METH_VARARGS, texts_encode_text},
    {"text_fill", texts_fill, METH_VARARGS, texts_fill_text},
    {"text_lists", texts_lists, METH_VARARGS, texts_lists_text},
    {"chat_templates", templates_told, METH_VARARGS, templates_told_text},
    {"tar_members", tar_members_open, METH_VARARGS, tar_members_open_text},
    {"tar_members_of", tar_members_open_url, METH_O, tar_members_url_text},
    {"tar_member", tar_members_next, METH_O, tar_members_next_text},
    {"engine", (PyCFunction)(void (*)(void))module_engine, METH_VARARGS | METH_KEYWORDS,
     "engine(source, batch_size, drop_last=False, seed=0, worker=0, workers=1, tokens=0,\n"
     "       length_of=None)\n\n"
     "For tests and benchmarks: what a worker makes its batches with. batch_size 0: not batched."},
    {"fill", (PyCFunction)(void (*)(void))module_fill, METH_VARARGS | METH_KEYWORDS,
     "fill(engine, words, slot_bytes=1 MiB, epoch=0, step=0, stream=0, rank=0, world=1, "
     "settled=0,\n"
     "     samples=0, repeat=1, unbatched=False, lengths=False, planned=b'')\n"
     "     -> (code, used, slot, ns)\n\n"
     "For tests and benchmarks: one step in a private slot. words: the indices, a buffer of "
     "int64;\n"
     "samples: how many at most, of an iterable dataset, or of how many the lengths are asked.\n"
     "planned: a struct slot_planned. code: 0, 1 at the end, or a negative "
     "errno."},
    {"forget", module_forget, METH_VARARGS,
     "forget(engine, stream): for tests; the stream has ended."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
#ifdef Py_GIL_DISABLED
    /* What threads of a dataset may call looks after itself; a worker makes its samples in one. */
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_worker",
    .m_doc = "Python datasets in the workers of dloaderd; used by this package alone.",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__worker(void);
PyMODINIT_FUNC PyInit__worker(void)
{
    return PyModuleDef_Init(&module_definition);
}
