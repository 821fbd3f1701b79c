/*
 * The daemon's views as text for Prometheus (exposition format 0.0.4): see metrics.def. Pure.
 */
#ifndef DL_METRICS_H
#define DL_METRICS_H

#include "proto/value.h"

/* The views that samples are made of, in the order that metrics_write() takes them in; NULL ends
 * them. */
extern const char *const metrics_views[];
enum { METRICS_VIEWS = 10 };

/* Appends the text. A view that is null, or has not the shape it should, gives no samples; what a
 * loader or a node is called may be any text. -ENOMEM. */
int _nodiscard_ metrics_write(const struct value views[static METRICS_VIEWS],
                              struct dl_buffer *out);

#endif
