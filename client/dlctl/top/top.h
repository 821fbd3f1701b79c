/*
 * `dlctl top`: the loaders as one table, again and again, on a screen, as text or as JSON.
 *
 *   rows.c      rows out of the daemon's views, and their order. Pure
 *   top.c       the verb: looks at the daemon, text and JSON
 *   terminal.c  the screen and its keys
 *
 * Views are another process's word: a key that is missing or of another type is not known, and
 * never a failure.
 */
#ifndef DLCTL_TOP_H
#define DLCTL_TOP_H

#include "client/dlctl/options.h"
#include "proto/value.h"

/* ---- rows.c --------------------------------------------------------------------------------- */

enum top_view { TOP_STATUS, TOP_LOADERS, TOP_EPOCHS, TOP_WORKERS, TOP_LATELY, TOP_VIEWS };
extern const char *const top_views[TOP_VIEWS];

struct top_look {
    struct value views[TOP_VIEWS]; /* owned; null: not seen */
    double at_s;
};
void top_look_deinit(struct top_look *look);

/*
 * Replaces *ret, an initialised value, by an array: a copy of each loader's row with these figures,
 * null if unknown: batches_per_s, samples_per_s, delivered_bytes_per_s and cpu (1: one core all the
 * time) since the look before; wait, the share of the last ten to twenty seconds; progress and
 * left_s of the slowest rank; errors, of any kind; and lately, batches in each ten seconds.
 */
int _nodiscard_ top_rows_make(const struct top_look *look, const struct top_look *before,
                              struct value *ret);

/* Numbers in descending order; rows that lack it come last, whichever way. */
struct top_sort {
    char key; /* on the keyboard */
    const char *name, *by;
};
enum { TOP_SORTS = 6 };
extern const struct top_sort top_sorts[TOP_SORTS];
void top_rows_sort(struct value *rows, const struct top_sort *sort, bool reverse);

/* ---- top.c, terminal.c ---------------------------------------------------------------------- */

enum { TOP_NOTICE_MAX = 512 };

struct top {
    const struct options *o;     /* borrowed */
    struct dl_client *client;    /* owned; NULL: not connected */
    struct top_look look;        /* owned: the latest that was answered */
    struct value rows;           /* owned: of that look */
    char notice[TOP_NOTICE_MAX]; /* why nothing new is seen; "": all is well */
    const struct top_sort *sort;
    bool reverse;
    uint64_t shown; /* looks: --count */
};

/* Looks at the daemon, for as long as libdlclient waits. After a failure the rows stay, the notice
 * says why, and the next look connects again. A negative errno with `err`. */
int _nodiscard_ top_take_look(struct top *top, struct dl_error *err);

/* What is seen, as lines of text that the caller frees. -ENOMEM. */
int _nodiscard_ top_make_text(const struct top *top, size_t width, bool verdicts, char **ret);

/* True once as much was shown as was asked for. */
bool top_is_done(const struct top *top);

/* Until the second look, which comes soon: there are no rates before. */
uint64_t top_first_ms(const struct top *top);

/* On a screen, until somebody presses q: an exit status. -ENOTTY: no terminal that it could draw
 * on. One look was taken before. */
int _nodiscard_ top_show_screen(struct top *top);

#endif
