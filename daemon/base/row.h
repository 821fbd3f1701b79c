/*
 * Mappings for views and answers, built by a chain of setters: the first failure (out of memory is
 * the only one) sticks in `r` and makes the rest do nothing.
 */
#ifndef DL_ROW_H
#define DL_ROW_H

#include "proto/value.h"

struct row {
    struct value *map; /* borrowed */
    int r;
};

/* `v`, which is null, becomes the mapping. */
struct row row_begin(struct value *v);
/* Appends another row to a list, or below a key of `row`, whose failure it shares. */
struct row row_push(struct value *rows);
struct row row_under(struct row *row, const char *key);

void row_uint(struct row *row, const char *key, uint64_t u);
/* NAN: null. */
void row_real(struct row *row, const char *key, double d);
void row_seconds(struct row *row, const char *key, uint64_t ns);
/* NULL: null. Secrets in URLs are hidden (proto/common/url.h). */
void row_string(struct row *row, const char *key, const char *s);
void row_null(struct row *row, const char *key);
/* Null unless `is`. */
void row_uint_if(struct row *row, const char *key, bool is, uint64_t u);
void row_seconds_if(struct row *row, const char *key, bool is, uint64_t ns);
/* An empty list; NULL once something failed. */
struct value *row_list(struct row *row, const char *key);

#endif
