/*
 * Views in files of their own, for the table in views.c. Only views*.c include it.
 */
#ifndef DL_VIEWS_PRIVATE_H
#define DL_VIEWS_PRIVATE_H

#include "daemon/base/row.h"
#include "daemon/serve/views.h"

static inline const char *views_name(const struct loader *loader)
{
    return loader_spec(loader)->name;
}

/* views_epochs.c */
int _nodiscard_ view_epochs(const struct daemon *daemon, struct value *ret);

/* views_lately.c */
int _nodiscard_ view_lately(const struct daemon *daemon, struct value *ret);

/* views_mixtures.c; and what a row of `epochs` has of it: `mixture` */
int _nodiscard_ view_mixtures(const struct daemon *daemon, struct value *ret);
/* Of all streams that the loader ever had. */
void view_add_lengths(struct row *row, const struct loader *l);
void view_add_whole_mixture(struct row *row, const struct loader *l);
void view_add_mixture(struct row *row, const struct loader *l, const struct stream *s);

/* views_remote.c */
int _nodiscard_ view_remote(const struct daemon *daemon, struct value *ret);

/* views_slowest.c */
int _nodiscard_ view_slowest(const struct daemon *daemon, struct value *ret);

/* views_specs.c; for that user */
int _nodiscard_ view_specs(const struct daemon *daemon, uid_t uid, struct value *ret);

/* views_times.c */
int _nodiscard_ view_times(const struct daemon *daemon, struct value *ret);
int _nodiscard_ view_trace(const struct daemon *daemon, struct value *ret);

#endif
