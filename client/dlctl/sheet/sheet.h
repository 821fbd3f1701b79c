/*
 * A report as one HTML file: what it is made of. Texts of other processes come out as text; charts
 * are SVG, each with its figures in words, so that nothing is told by colour or shape alone.
 */
#ifndef DLCTL_SHEET_H
#define DLCTL_SHEET_H

#include "proto/value.h"

#include <stdio.h>

enum { SHEET_BINS = 60 }; /* points of a chart over time */

/* ---- batches of the view `trace` (sheet_series.c): pure ------------------------------------- */

/* Times in ns of the daemon's clock, as they come one after another. */
struct sheet_batch {
    uint64_t epoch, rank, step, worker;
    uint64_t planned, begun, fetched, made, ready, delivered, released;
};

struct sheet_batches {
    struct sheet_batch *list; /* owned; by rank, then as they were delivered */
    size_t n;
    size_t ranks;
    uint64_t from, to; /* the first delivery, and the last release; to > from where n > 0 */
};
void sheet_batches_deinit(struct sheet_batches *batches);

/* Those of one loader. -EBADMSG: the view has not the shape it should; -ENOMEM. */
int _nodiscard_ sheet_batches_read(const struct value *trace, const char *loader,
                                   struct sheet_batches *ret);

/* Of each bin: NAN where nothing is known. */
void sheet_rate(const struct sheet_batches *batches, double ret[static SHEET_BINS]);
/* The share of the ranks' time in which they held no batch. */
void sheet_waiting(const struct sheet_batches *batches, double ret[static SHEET_BINS]);
/* Mean seconds of a stage, by its number: its name, as the view `times` has it; NULL: no more. */
const char *sheet_stage(const struct sheet_batches *batches, size_t stage,
                        double ret[static SHEET_BINS]);

/* The `n` batches that took longest to make, the slowest first; fewer where there are fewer. */
size_t sheet_slowest(const struct sheet_batches *batches, size_t n, const struct sheet_batch **ret);

/* ---- HTML (sheet_html.c) -------------------------------------------------------------------- */

void sheet_begin(FILE *file, const char *title);
void sheet_end(FILE *file);

void sheet_heading(FILE *file, const char *text);
void sheet_paragraph(FILE *file, const char *text);
void sheet_preformatted(FILE *file, const char *text);

/* Columns that no row has are left out; of `rows` those whose `loader` it is; NULL: all. `keys` end
 * with NULL; all NULL: what the first row has. False: there was no such row. */
bool sheet_table(FILE *file, const char *caption, const struct value *rows, const char *loader,
                 const char *const *keys);

/* Over `seconds`, from 0; `key` says the unit, as in render.h. */
void sheet_chart(FILE *file, const char *caption, const char *key,
                 const double values[static SHEET_BINS], double seconds);

/* One bar for each row: `label` and `value` are its keys. */
void sheet_bars(FILE *file, const char *caption, const struct value *rows, const char *label,
                const char *value);

/* ---- lists of mappings (sheet_lists.c) --------------------------------------------------------
 */

/* All that a row has, each with its bars where there is something to compare. */
void sheet_write_lists(const struct value *row, FILE *file);

/* ---- the view `lately` (sheet_lately.c) ------------------------------------------------------ */

/* Of each bin, the last one that of now: NAN where nothing is known. */
struct sheet_lately {
    bool known;
    double rate[SHEET_BINS], bytes[SHEET_BINS]; /* a second */
    double waiting[SHEET_BINS];                 /* mean of the ranks that read then */
    double seconds, age;                        /* of all bins; and since when there was none */
    size_t ranks;
};
/* Pure. A view of another shape says nothing. */
void sheet_lately_read(const struct value *view, const char *loader, struct sheet_lately *ret);
/* 0 or -ENOMEM. */
int _nodiscard_ sheet_write_lately(FILE *file, const struct value *view, const char *loader);

#endif
