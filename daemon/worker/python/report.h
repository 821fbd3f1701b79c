/*
 * The report of a Python exception: what a step's error carries to the user's process, so that the
 * exception can be raised there again. proto/PROTOCOL.md has its form.
 */
#ifndef DL_WORKER_REPORT_H
#define DL_WORKER_REPORT_H

#include "daemon/worker/python/py.h"

#include "proto/slot_fill.h"

/* Longest whole report, what a FAULT can carry. */
enum { REPORT_MAX = 65536 };

struct report {
    int code;        /* positive errno; 0: no error */
    PyObject *brief; /* owned; bytes, UTF-8: "KeyError: 'x', at sample 17" */
    PyObject *whole; /* owned; bytes: type, then type and traceback in PyTorch's words */
};
void report_deinit(struct report *report);

/*
 * Takes the exception that is set. `source` (or NULL) describes it; `index` is that of the sample
 * that was being made, NULL or None: none. What fails on the way makes the report shorter, never an
 * exception.
 */
void report_take(PyObject *source, PyObject *index, struct report *ret);

/* One that is no exception's. */
void report_make(const char *text, struct report *ret);

const char *report_brief(const struct report *report); /* borrowed; never NULL */

/*
 * Leaves it in the slot, from `begin` on (struct slot_error). A report that is too long for the
 * slot loses what stands at the traceback's front. Returns a negative errno, for the task.
 */
int report_put(const struct report *report, uint64_t begin, uint64_t index, void *slot,
               uint64_t slot_bytes);

/* Adds the whole report of the error that stands in the slot already. */
void report_put_whole(const struct report *report, void *slot, uint64_t slot_bytes);

#endif
