/*
 * How many lines about one user the log accepts: a burst, and then one a second. The rest is
 * counted. Pure: time is passed in.
 */
#ifndef DL_LOG_BUDGET_H
#define DL_LOG_BUDGET_H

#include "proto/common/base.h"

enum { LOG_LINES_AT_ONCE = 100 }; /* unless limits.log_lines says otherwise */

/* All zero: nothing was written yet. */
struct log_budget {
    uint64_t spent_ns; /* when all that was written is made up for; 0: it is */
    uint64_t left_out; /* since log_budget_left_out() */
    uint64_t all_left_out;
};

/* Whether another line of `lines` at once, 1 at least, may be written at `now_ns`; else it is
 * counted. */
bool log_budget_take(struct log_budget *budget, uint64_t lines, uint64_t now_ns);
/* How many lines were left out, once there is room to report it; else 0. */
uint64_t log_budget_left_out(struct log_budget *budget, uint64_t lines, uint64_t now_ns);

#endif
