/*
 * Where the lines of a text lie: a table made in one pass, with direct access to any line's place.
 *
 * A line ends with LF or CR LF, and in plain text, where blank lines count, also with a lone CR, as
 * in Python's open(): in JSON lines a CR is space. The last one may end with the text. A byte order
 * mark at the beginning is skipped. Lines are grouped by LINE_GROUP; a group has its beginning as a
 * whole number, and for each line how far behind that it begins, in as few bytes as the group's
 * last line needs. So a line takes 2.25 bytes where 64 lines have up to 64 KiB, 3.25 up to 16 MiB,
 * and never more than 8.25. Pure but for the memory; not thread-safe.
 */
#ifndef DL_DATA_TEXT_LINES_H
#define DL_DATA_TEXT_LINES_H

#include "proto/common/base.h"

enum { LINE_GROUP = 64 };

struct line_table {
    const uint8_t *text; /* borrowed for the table's life */
    uint64_t bytes;      /* of the text */
    bool skip_blank;     /* JSON lines: skips those of only space */

    uint64_t n;                /* lines */
    struct line_group *groups; /* owned; of LINE_GROUP lines each, but the last */
    uint8_t *packed;           /* owned: the lines' distances */
    uint64_t n_groups;
    uint64_t packed_bytes;
    uint64_t groups_room;
    uint64_t packed_room;
};

struct line {
    const uint8_t *text; /* borrowed from the table's text */
    uint64_t bytes;      /* without its end */
};

/* Rows that are not lines: where LF may be within one. Borrowed while a table is made. */
struct line_rule {
    /* Where the row behind the one at `at`, below `end`, begins; NULL: this one never ends. */
    const uint8_t *(*next)(const void *context, const uint8_t *at, const uint8_t *end);
    bool (*is_blank)(const uint8_t *at, const uint8_t *end); /* the row is skipped */
    const void *context;
};

/* -ENOMEM. */
int _nodiscard_ line_table_make(const uint8_t *text, uint64_t bytes, bool skip_blank,
                                struct line_table *ret);
/* The same for rows; -EINVAL: *ret_bad is where an unterminated one begins. line_at() is not for
 * these: they begin at line_begin(), and the rule finds their end. */
int _nodiscard_ line_table_make_by(const uint8_t *text, uint64_t bytes,
                                   const struct line_rule *rule, struct line_table *ret,
                                   uint64_t *ret_bad);
void line_table_deinit(struct line_table *table); /* zeroes it; a zeroed one is fine */

/* Line i < n. It lies in the text even when the text was changed since. */
struct line line_at(const struct line_table *table, uint64_t i);

/* Where line i < n begins, in the text. */
uint64_t line_begin(const struct line_table *table, uint64_t i);

/* Prefetches line i < n, without waiting for it: line_at() looks at its end. */
void line_expect(const struct line_table *table, uint64_t i);

/* What editors call the line, from 1; counts all lines before it, blank ones too. */
uint64_t line_number(const struct line_table *table, uint64_t i);

#endif
