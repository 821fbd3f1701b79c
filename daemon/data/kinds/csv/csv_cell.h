/*
 * Rows and cells of comma-separated values, as in RFC 4180, and common variants: any separator, LF,
 * CR LF or CR at a row's end, quotes only around cells that need them. Pure.
 *
 * A cell that begins with a quote ends at the next quote that is not doubled; separators and line
 * ends are part of it. A quote elsewhere is a character like others.
 */
#ifndef DL_DATA_CSV_CELL_H
#define DL_DATA_CSV_CELL_H

#include "proto/common/base.h"

struct csv_cell {
    const uint8_t *text; /* borrowed, without the quotes around it */
    uint64_t len;
    bool doubled; /* it has quotes inside, each written twice */
    bool bad;     /* something stands behind its closing quote, which is not part of it */
    bool last;    /* of its row */
};

/* The cell at `at`, at most `end`. Returns where the next one begins; NULL: its quotes never end.
 */
const uint8_t *csv_cell_read(const uint8_t *at, const uint8_t *end, uint8_t separator,
                             struct csv_cell *ret);

/* Where the row behind the one at `at` begins; NULL: as above. */
const uint8_t *csv_row_end(const uint8_t *at, const uint8_t *end, uint8_t separator);

/* Whether a row is empty, and thus skipped. */
bool csv_row_is_blank(const uint8_t *at, const uint8_t *end);

/* Copies the text, doubled quotes made single, to `out`, which has room for cell->len; its length.
 */
uint64_t csv_cell_copy(const struct csv_cell *cell, uint8_t *out);

/* What all cells of a column can be read as; a later one can hold what an earlier one can, but for
 * bool. */
enum csv_sort {
    CSV_EMPTY, /* nothing in it */
    CSV_BOOL,  /* true or false, in any case */
    CSV_INT,   /* of 64 bits, signed */
    CSV_REAL,
    CSV_TEXT,
};
enum csv_sort csv_cell_sort(const struct csv_cell *cell);
enum csv_sort csv_sort_join(enum csv_sort a, enum csv_sort b);

/*
 * The cell's number as one element of `dtype`: bool (also 0 and 1), integers of 8 to 64 bits,
 * float32, float64 (also nan and inf). Blanks around it are ignored. 0; -ENODATA: it is empty;
 * -EINVAL: not a number, or not an integer; -ERANGE: not representable in the type.
 */
int _nodiscard_ csv_cell_number(const struct csv_cell *cell, uint32_t dtype, void *out);
/* Whether csv_cell_number() reads the type. */
bool csv_has_dtype(uint32_t dtype);

#endif
