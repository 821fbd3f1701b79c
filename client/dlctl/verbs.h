/* The verbs of dlctl, one function each: see main.c for the table. Each returns an exit status. */
#ifndef DLCTL_VERBS_H
#define DLCTL_VERBS_H

#include "client/dlctl/options.h"

int verb_plan(const struct options *o);
int verb_check(const struct options *o);
int verb_lengths(const struct options *o);
int verb_run(const struct options *o);
int verb_peek(const struct options *o);
int verb_replay(const struct options *o);
int verb_state(const struct options *o);
int verb_headspace(const struct options *o);
int verb_trace(const struct options *o);
int verb_metrics(const struct options *o);
int verb_top(const struct options *o);
int verb_status(const struct options *o);
int verb_view(const struct options *o);    /* the lists */
int verb_control(const struct options *o); /* stop, drain, reload */
int verb_close_run(const struct options *o);

#endif
