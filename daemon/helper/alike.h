/*
 * Whether Python makes the same samples on two machines: the interpreter, the packages that samples
 * are mostly made by, and the modules that a spec names have to be the same. Each asks its own
 * interpreter (client/python/dloaderd/_alike.py), and the helper compares. What these modules
 * import is not looked at.
 */
#ifndef DL_HELPER_ALIKE_H
#define DL_HELPER_ALIKE_H

#include "daemon/data/base/dataset.h"

enum { ALIKE_MAX = 4096 }; /* bytes of an answer, with the final NUL */

/* Whether a worker of the spec is Python's. */
bool alike_matters(const struct dl_spec *spec);

/* Runs the interpreter, and waits for it, telling `progress` (may be NULL) every second. A line for
 * each; `code_alone`: without versions. Negative errno with `err`. */
int _nodiscard_ alike_ask(const char *interpreter, const struct dl_spec *spec, bool code_alone,
                          const struct data_progress *progress, char ret[static ALIKE_MAX],
                          struct dl_error *err);

/* The same, where the daemon's machine has said `theirs`: of the modules that this names. */
int _nodiscard_ alike_answer(const char *interpreter, const char *theirs,
                             const struct data_progress *progress, char ret[static ALIKE_MAX],
                             struct dl_error *err);

/* A line of code, which is compared whatever the versions are, or of its bytecode, which is of one
 * minor version of Python. Pure. */
bool alike_is_code(const char *line, size_t len);

/* -ESTALE with `err` for the first line of the daemon's that is none of the helper's. Pure. */
int _nodiscard_ alike_compare(const char *daemons, const char *helpers, struct dl_error *err);

#endif
