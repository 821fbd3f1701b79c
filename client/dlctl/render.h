/*
 * The daemon's views for people and for programs, knowing nothing of any view: a map becomes
 * `key: value` lines, an array of maps a table. What a key ends in says its unit: `_bytes`, `_s`,
 * `_per_s`, `padding` and `fill` (shares, shown in per cent); it is shown once, with the value, but
 * for "/s", which stays with the key. Text from other processes reaches the terminal with control
 * characters replaced.
 */
#ifndef DLCTL_RENDER_H
#define DLCTL_RENDER_H

#include "client/dlctl/table.h"
#include <jansson.h>

/* Prints a view; `name` is said of an empty table ("no sessions"); `style` of tables, NULL: as wide
 * as a screen. Returns 0 or -ENOMEM. */
int _nodiscard_ render_view(FILE *file, const struct value *view, const char *name,
                            const struct table_style *style);

/* A key for people; and its value on one line, containers in a compact form. */
void render_title(FILE *file, const char *key);
void render_inline(FILE *file, const char *key, const struct value *v);

/*
 * The same as JSON; NULL when out of memory. JSON has no infinity and no NaN: they become null.
 * Whole numbers above INT64_MAX, which jansson cannot hold, become strings of their digits.
 */
json_t *render_json(const struct value *view);
json_t *render_json_u64(uint64_t n);
json_t *render_json_real(double d);

/* A string; bytes that are no UTF-8 become '?'. */
json_t *render_json_text(const char *text);

/*
 * The beginning of a text in quotes, for one line of a terminal: control characters, quotes and
 * what is no UTF-8 escaped as C does it; "..." after the end quote when not all of it fits `buf`.
 */
enum { RENDER_QUOTED_MIN = 16 }; /* bytes of the smallest buf */
void render_quoted(const char *text, size_t len, char *buf, size_t size);

#endif
