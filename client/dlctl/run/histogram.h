/*
 * How lengths spread: their quantiles, and how many there are in ranges of equal width, drawn with
 * bars. Pure, but for the file that is drawn to.
 */
#ifndef DLCTL_HISTOGRAM_H
#define DLCTL_HISTOGRAM_H

#include "proto/common/base.h"
#include <stdio.h>

enum { HISTOGRAM_ROWS = 20 };

struct spread {
    uint32_t min, median, p95, p99, max; /* by nearest rank: each is a length that there is */
    uint64_t tokens;                     /* of all */
    double mean;
};

struct histogram_row {
    uint32_t from, to; /* both in it */
    uint64_t count;
};

struct histogram {
    struct histogram_row rows[HISTOGRAM_ROWS + 1]; /* the last: all that is longer, if there are */
    uint32_t n_rows;
};

/* The smallest of lengths[0..n), sorted, that at least that many thousandths do not exceed. n ≥ 1.
 */
uint32_t lengths_quantile(const uint32_t *lengths, uint64_t n, uint32_t per_mille);

/* n ≥ 1 lengths, sorted. */
void spread_of(const uint32_t *lengths, uint64_t n, struct spread *ret);

/* Rows from 1 to `top`, or where nothing is so long, to the longest; 0: to the 99.9th percentile.
 * n ≥ 1 lengths, sorted, the shortest ≥ 1. */
void histogram_of(const uint32_t *lengths, uint64_t n, uint32_t top, struct histogram *ret);

/* A line for each row, `columns` wide at most where that is enough for the numbers: in eighths of a
 * character, or in ASCII. */
void histogram_draw(FILE *file, const struct histogram *h, int columns, bool utf8);

#endif
