/*
 * `dlctl top`: the daemon's views, looked at again and again, as one screen, as text or as JSON.
 *
 *   model.c    rows with rates and shares, in order     layout.c    what keys make of it, and what
 *   columns.c  what is told of each kind of row                     there is room for
 *   screen.c   lines and tables that fit                terminal.c  the screen, by ncurses
 *                                                       top.c       the verb: looks, text and JSON
 *
 * All but terminal.c and top.c is pure. Views are another process's word: a key that is
 * missing or of another type is not known, which is NAN or "", and never a failure.
 */
#ifndef DLCTL_TOP_H
#define DLCTL_TOP_H

#include "client/dlclient.h"
#include "client/dlctl/options.h"
#include "proto/value.h"

#include <stdio.h>

/* ---- model.c -------------------------------------------------------------------------------- */

enum { TOP_VIEWS = 5 };
extern const char *const top_views[TOP_VIEWS]; /* status, loaders, epochs, workers, ring */

enum top_kind { TOP_LOADERS, TOP_EPOCHS, TOP_RANKS, TOP_WORKERS, TOP_KINDS };

/* What is worked out of the views. */
enum top_figure {
    TOP_BATCHES_PER_S,
    TOP_SAMPLES_PER_S,
    TOP_BYTES_PER_S,
    TOP_STEPS_PER_S,
    TOP_TASKS_PER_S,
    TOP_WAIT, /* the share of the time since the look before, or else since it began */
    TOP_CPU,  /* 1: one core, all the time */
    TOP_PADDING,
    TOP_MIX_OFF, /* how far the dataset of a mixture that strays most is from its share */
    TOP_LEFT_S,
    TOP_RANKS_HERE, /* of an epoch, those of this daemon; and what they are together: */
    TOP_DONE,
    TOP_STEPS,
    TOP_STEADY_PER_S, /* steps over the last ten seconds or so: what the time left is by */
    TOP_MEMORY,
    TOP_ERRORS,
    TOP_LEASED, /* slots of a loader's ring, by what they are in */
    TOP_READY,
    TOP_FILLING,
    TOP_FREE,
    TOP_FIGURES,
};

struct top_row {
    const struct value *view; /* what the daemon says of it; NULL: an epoch's. Texts are its */
    const char *loader;
    const char *job; /* "": no job */
    uint64_t uid;    /* the loader's user: others may have one of that name */
    uint64_t epoch;
    uint64_t number; /* of the rank or the worker */
    uint64_t session, world;
    bool idle; /* nobody reads it: it stands behind all others */
    double by; /* what rows are sorted by, the greatest first; NAN: last */
    double figure[TOP_FIGURES];
};

struct top_rows {
    struct top_row *list; /* owned */
    uint32_t n;
};

struct top_model {
    struct value views[TOP_VIEWS]; /* owned */
    double at_s;
    uint64_t pid;
    struct top_rows rows[TOP_KINDS];
};

/* Takes over what `views` hold; `before`: the look before, or NULL. Rows stand by name. -ENOMEM. */
int _nodiscard_ top_model_make(struct value views[static TOP_VIEWS], double at_s,
                               const struct top_model *before, struct top_model **ret);
struct top_model *top_model_free(struct top_model *model);

/* Of a row's view; "" and 0 where it is none. */
const char *top_row_text(const struct top_row *row, const char *key);
uint64_t top_row_count(const struct top_row *row, const char *key);

enum top_sort {
    TOP_BY_NAME,
    TOP_BY_RATE,
    TOP_BY_WAIT,
    TOP_BY_CPU,
    TOP_BY_MEMORY,
    TOP_BY_ERRORS,
    TOP_SORTS,
};
const char *top_sort_name(enum top_sort sort);

/* What nobody reads comes last, whichever way. Rows that have no such figure stand by name. */
void top_model_sort(struct top_model *model, enum top_sort sort, bool reverse);

/* ---- screen.c, columns.c -------------------------------------------------------------------- */

enum top_look {
    LOOK_PLAIN = 1, /* in a screen's text they stand for themselves */
    LOOK_STRONG,
    LOOK_FAINT,
    LOOK_HEAD, /* titles of columns */
    LOOK_PICK, /* the line that keys act on */
    LOOK_GOOD,
    LOOK_WARN,
    LOOK_BAD,
    LOOKS,
};

enum { TOP_TEXT_MAX = 512, TOP_BAR_MAX = 100, TOP_COLUMNS_MAX = 16 };

/*
 * Lines of UTF-8, each ended by '\n'; a byte below LOOKS says how what follows looks. Of the texts
 * of other processes all that a terminal would obey, or that has no width of its own, is '?'.
 */
struct top_screen {
    struct dl_buffer text; /* owned */
    int width;
    int height; /* 0: as many lines as there is to say */
    bool unicode;
    bool keys;        /* somebody sits there: a line says what keys do, and one row is selected */
    int line, column; /* where the next text goes */
    enum top_look whole; /* of all of the line, if not 0 */
    int error;           /* -ENOMEM */
};
void top_screen_deinit(struct top_screen *screen);

/* As much of the text as `columns` have room for, filled up with blanks; what was cut ends in an
 * ellipsis. */
void top_screen_put(struct top_screen *screen, int columns, enum top_look look, bool right,
                    const char *text);
void top_screen_end_line(struct top_screen *screen);
/* The bytes of the text's beginning that fit, whole words if there are any; *text is then at the
 * next word. */
size_t top_screen_break(const struct top_screen *screen, const char **text, int columns);
/* All of a line. */
void top_screen_line(struct top_screen *screen, enum top_look look, const char *text);
/* The lines without looks, nor blanks at their ends. */
void top_screen_print(const struct top_screen *screen, FILE *file);

/* What a column makes of a row. */
struct top_cell {
    char text[TOP_TEXT_MAX];
    enum top_look look;
};

struct top_column {
    const char *title;
    int format; /* see columns.c */
    enum top_figure figure;
    const char *key; /* of the row's view; NULL: the figure */
    int width;       /* at least; of texts that are cut, at most */
    int whole;       /* as wide as its longest text, up to this; 0: `width` */
    int keep;        /* the smallest goes first where there is no room for all */
    bool right;
    bool stretches; /* takes what is left of the line */
    bool or_none;   /* goes where it has nothing to say of any row */
};

/* The first column of each kind but loaders is the loader's name. */
const struct top_column *top_columns(enum top_kind kind, int *ret_n);
void top_column_cell(const struct top_column *column, const struct top_row *row, int columns,
                     bool unicode, struct top_cell *ret);
enum top_look top_verdict_look(const char *verdict);

/* For programs: the views' rows with the figures; only of the loader `pick`, if not NULL. -ENOMEM.
 */
int _nodiscard_ top_model_value(const struct top_model *model, const char *pick, struct value *ret);

/* `share` of `columns`, in eighths of one where there is Unicode; "-" if it is not known. */
void top_bar(double share, int columns, bool unicode, char *buf, size_t size);
/* Four numbers of slots in proportion: leased, ready, filling, free; "-" if there are none. */
void top_ring_bar(const double slots[static 4], int columns, bool unicode, char *buf, size_t size);

/* Rows of one kind, and which of their columns there is room for. */
struct top_table {
    enum top_kind kind;
    const struct top_column *columns;
    int n_columns;
    const struct top_row **rows; /* owned; those that are to be shown */
    int n_rows;
    int shown, first;           /* rows that there is room for; 0: not even the titles */
    int width[TOP_COLUMNS_MAX]; /* 0: not shown */
};
void top_table_fit(const struct top_screen *screen, struct top_table *table);
/* `row`: NULL: the titles. */
void top_table_put(struct top_screen *screen, const struct top_table *table,
                   const struct top_row *row);

/* ---- layout.c ------------------------------------------------------------------------------- */

struct top_state {
    enum top_sort sort;
    bool reverse;
    bool paused; /* what is seen stays */
    bool help;
    bool quit;
    char *selected; /* owned: the loader that Enter picks; NULL: the first one */
    uint64_t selected_uid;
    char *picked; /* owned: only this loader is shown; NULL: all */
    bool of_uid;  /* only that of */
    uint64_t picked_uid;
};

/* Keys beside characters. */
enum { TOP_KEY_UP = 0x110000, TOP_KEY_DOWN, TOP_KEY_ENTER, TOP_KEY_ESCAPE };

/* `model` may be NULL: no look yet. False: the key means nothing. */
bool top_state_key(struct top_state *state, const struct top_model *model, int key);
void top_state_deinit(struct top_state *state);
bool top_state_shows(const struct top_state *state, const struct top_row *row);
/* The number of the loader that is selected; -1: none. */
int top_state_row(const struct top_state *state, const struct top_model *model);

/*
 * Fills the screen, whose size, letters and keys are given: what fits, and of what does not the
 * part that matters more. `notice`: a line about the connection, or NULL. -ENOMEM.
 */
int _nodiscard_ top_layout(const struct top_model *model, const struct top_state *state,
                           const char *notice, struct top_screen *screen);

/* ---- top.c, terminal.c ---------------------------------------------------------------------- */

enum { TOP_NOTICE_MAX = 512 };

struct top_session {
    const struct options *o; /* borrowed */
    struct top_state state;
    struct dl_client *client;    /* owned; NULL: not connected */
    struct top_model *model;     /* owned; NULL: nothing was seen yet */
    char notice[TOP_NOTICE_MAX]; /* why nothing new is seen; "": all is well */
    bool unicode;                /* what the locale's characters are */
    uint64_t shown;              /* looks that were shown: --count */
};

/* Looks at the daemon, for as long as libdlclient waits. After a failure the model stays, the
 * notice says why, and the next look connects again. A negative errno with `err`. */
int _nodiscard_ top_session_look(struct top_session *s, struct dl_error *err);
/* The screen as it is now. -ENOMEM. */
int _nodiscard_ top_session_layout(const struct top_session *s, struct top_screen *screen);
/* True once as much was shown as was asked for. */
bool top_session_done(const struct top_session *s);
/* Until the second look, which comes soon for what can only be told of two. */
uint64_t top_session_first_ms(const struct top_session *s);

/* On a screen of ncurses, until somebody presses q: an exit status. -ENOTTY: no terminal that it
 * could draw on. One look was taken before. */
int _nodiscard_ top_terminal(struct top_session *s);

#endif
