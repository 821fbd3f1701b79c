/*
 * The user's dataset, in this process: what the host's bootstrap made of the spec.
 */
#ifndef DL_WORKER_PY_DATASET_H
#define DL_WORKER_PY_DATASET_H

#include "daemon/worker/python/report.h"
#include "daemon/worker/sandbox.h"

#include "daemon/data/base/slow_watch.h"

#include "proto/dataset_state.h"
#include "proto/spec.h"

/* From serve(): dloaderd._bootstrap.open_named(), or the like of a host that has the dataset;
 * owned.
 */
extern PyObject *py_dataset_bootstrap;

struct py_dataset_open {
    const struct spec_dataset *dataset;
    const char *collate; /* "module:callable"; NULL: none is named */
    bool has_collate;    /* the spec has collate.kind python */
    uint64_t seed;       /* of the spec */
    uint32_t worker;
    uint32_t workers;
};

/* What an interpreter reads while it runs a dataset: the modules it has yet to import. */
void py_dataset_allow(struct sandbox_files *files);

/* What is looked up once; owned references. */
struct py_dataset {
    PyObject *object; /* the Source itself */
    PyObject *dataset;
    PyObject *getitems; /* the dataset's __getitems__; NULL: it has none, or one that is a loop */
    PyObject *collate;  /* NULL: default_collate */
    PyObject *convert;  /* NULL: samples are delivered as they are */
    PyObject *lengths;  /* what the dataset's lengths() said (tokens.h); NULL: it was not asked */
    PyObject *keeper;   /* dloaderd._states.Keeper; NULL: its state is not saved */
    PyObject *reseed;   /* seeds the global generators; NULL: they run on from step to step */
    bool iterable;
    uint64_t length;         /* UINT64_MAX: it does not say */
    uint64_t seed;           /* of sample_rng() */
    uint64_t epoch;          /* what the loader's epoch 0 counts as there */
    uint64_t base;           /* what is added to an index there: the dataset is part of another */
    struct slow_watch watch; /* of py_dataset_get_all() */
};

int py_dataset_open(const struct py_dataset_open *how, struct py_dataset *ret);
/* Of a Source that is there already. */
int py_dataset_from(PyObject *object, uint64_t seed, struct py_dataset *ret);
void py_dataset_deinit(struct py_dataset *source);

/* What the dataset's type is called, as a number; 0: it cannot be told. */
uint64_t py_dataset_content(const struct py_dataset *source);

/*
 * Seeds the global generators for one step, if the source does that: from (seed, epoch, rank, step)
 * alone, so that each step has random numbers of its own, and the same ones in whichever worker.
 */
int py_dataset_seed(const struct py_dataset *source, uint64_t seed, uint64_t epoch, uint32_t rank,
                    uint64_t step);

/* One sample, by an index, or by any key. The key of sample_rng() is set meanwhile. */
PyObject *py_dataset_get(const struct py_dataset *source, PyObject *key, uint64_t epoch);
/* A list of them, by __getitems__ if the dataset has it. *ret_bad, owned: the key at fault. */
PyObject *py_dataset_get_all(struct py_dataset *source, PyObject *keys, uint64_t epoch,
                             PyObject **ret_bad);
/* As dataset_ops.name: what the Source's name() says. */
size_t py_dataset_name(const struct py_dataset *source, uint64_t index, char *ret, size_t room);
/* An iterator over an epoch of an iterable dataset. It resumes from `state` unless that is empty;
 * only a source with a keeper has one. */
PyObject *py_dataset_iterate(struct py_dataset *source, uint64_t epoch, uint32_t rank,
                             uint32_t world, struct dl_span state);
/* Where there is a keeper: a round of it is about to be made; and the dataset's state behind the
 * round: bytes, None or a number (enum dataset_state_loss), or False: it never has one. */
int py_dataset_enter(const struct py_dataset *source, PyObject *iterator);
PyObject *py_dataset_state(const struct py_dataset *source, PyObject *iterator);
/* Of a map-style dataset with a keeper, before each step: `state` is where another worker stood
 * behind the last one, if this is its first. May be empty. */
int py_dataset_put_back(const struct py_dataset *source, struct dl_span state);
/* Its next sample; NULL without an exception: the end. */
PyObject *py_dataset_next(const struct py_dataset *source, PyObject *iterator, uint64_t epoch);

/* ---- the key of the sample that is being made ----------------------------------------------- */

struct py_dataset_key {
    bool set;
    bool has_index;
    uint64_t seed;
    uint64_t epoch;
    int64_t index;
};
extern struct py_dataset_key py_dataset_key;

#endif
