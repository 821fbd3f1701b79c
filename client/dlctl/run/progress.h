/*
 * How far something is, on standard error: on a terminal a bar, redrawn ten times a second at most,
 * so that it costs a clock reading a batch; elsewhere, such as in a log, a line every ten seconds,
 * and none for what takes less.
 */
#ifndef DLCTL_PROGRESS_H
#define DLCTL_PROGRESS_H

#include "proto/common/base.h"
#include "proto/common/clock.h"

/* What has been consumed so far. */
struct tally {
    uint64_t batches;
    uint64_t samples;
    uint64_t repeated; /* of them, there only to even the ranks out */
    uint64_t bytes;    /* of tensors */
    uint64_t tokens;   /* of batches that are measured in tokens; else 0, as is `padded` */
    uint64_t padded;   /* what these take with their padding */
    uint64_t wait_ns;
};

#define PROGRESS_UNKNOWN UINT64_MAX /* a total: no bar, only how many so far */

struct progress {
    bool on;
    bool bar;       /* else lines */
    uint64_t total; /* batches, or what is counted; PROGRESS_UNKNOWN */
    uint64_t begin_ns;
    uint64_t next_ns; /* not redrawn before */
};

void progress_begin(struct progress *p, uint64_t total, bool quiet); /* quiet: never anything */
bool progress_due(struct progress *p);                               /* always false when off */
void progress_draw(const struct progress *p, const struct tally *tally);
/* The same of what is only counted: "lengths", "images found". */
void progress_draw_count(const struct progress *p, const char *what, uint64_t n);
/* The same of `done` batches, for which so much was fetched. */
void progress_draw_fetched(const struct progress *p, uint64_t done, uint64_t bytes,
                           uint64_t requests);
void progress_wipe(struct progress *p); /* for another line in its place; it comes again */
void progress_end(struct progress *p);  /* wipes the line permanently */

/* The line itself, at most `columns` wide, with the time left where it can be told: pure. */
void progress_line(const struct tally *tally, uint64_t total, double seconds, int columns,
                   char *buf, size_t size);
void progress_count_line(const char *what, uint64_t n, uint64_t total, double seconds, int columns,
                         char *buf, size_t size);
void progress_fetched_line(uint64_t done, uint64_t total, uint64_t bytes, uint64_t requests,
                           double seconds, int columns, char *buf, size_t size);

#endif
