/*
 * One error as a user sees it: what kind, where in the input, and what to do about it.
 *
 * The module that detects the error fills it; it reaches the user unchanged, through the wire's
 * ERROR message, dl_client_error(), and dlctl's one line on standard error. `path` names the place
 * in the user's own words (`batch.size`, a file name); it may be empty.
 */
#ifndef DL_ERROR_H
#define DL_ERROR_H

#include "proto/common/base.h"
#include <stdarg.h>

enum {
    DL_ERROR_PATH_MAX = 256,     /* bytes with the final NUL */
    DL_ERROR_MESSAGE_MAX = 1024, /* bytes with the final NUL */
};

struct dl_error {
    int code; /* a positive errno: EINVAL, ENOENT, ENOMEM, ... ; 0 = no error */
    char path[DL_ERROR_PATH_MAX];
    char message[DL_ERROR_MESSAGE_MAX];
};

/*
 * Fills `err` (may be NULL) and returns -code, so that a function can `return dl_error_set(...)`.
 * Texts that are too long are cut, never refused; control characters and what is not UTF-8 in them
 * become '?', so they always fit a message; secrets in URLs become '*' (url.h). A code of 0 or less
 * becomes EIO. `path` (may be NULL) and the arguments may point into `err` itself.
 */
int dl_error_set(struct dl_error *err, int code, const char *path, const char *fmt, ...)
    _printf_(4, 5);

#endif
