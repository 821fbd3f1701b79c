/*
 * The whole report of an error, as a worker leaves it in the slot behind the error's short text: a
 * line that says what type it is, then the report itself. Untrusted. Pure.
 */
#ifndef DL_REPORT_H
#define DL_REPORT_H

#include "proto/segment_layout.h"

enum {
    REPORT_MAX = 65536,     /* bytes; what FAULT.detail takes */
    REPORT_LINE_MAX = 1024, /* of them for the first line */
};

/*
 * A copy as UTF-8 text, which ends with NUL and is the caller's; or NULL. What is no UTF-8, and
 * control characters but newline and tab, become '?'. Of one that is too long the first line stays
 * and the beginning of the rest goes: the end of a traceback says what happened.
 */
char *report_read(const void *slot, uint64_t slot_bytes);

#endif
