/* The daemon's views as people see them: what is in progress first, and the columns that matter. */
#ifndef DLCTL_SHAPE_H
#define DLCTL_SHAPE_H

#include "client/dlctl/table.h"

/*
 * Of the view of that name: what nobody reads comes last, whose loaders they are is left out where
 * all are of one user, and what is several numbers becomes text. *ret_style: which columns a table
 * of it has; its width is 0. 0 or -ENOMEM, after which the view is fit for being freed alone.
 */
int _nodiscard_ shape_view(const char *name, struct value *view, struct table_style *ret_style);

#endif
