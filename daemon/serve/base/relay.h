/*
 * What workers write to their standard error, on its way to somebody's terminal or file: whole
 * lines, in the order they come, and never waiting. A descriptor that takes nothing now loses what
 * is said meanwhile.
 *
 * Main thread only.
 */
#ifndef DL_RELAY_H
#define DL_RELAY_H

#include "proto/common/base.h"

struct relay;

enum { RELAY_BYTES = 4096 }; /* at once: as much as a pipe takes whole or not at all */

/* What one process has said since its last whole line; zeroed: nothing. */
struct relay_lines {
    char text[RELAY_BYTES];
    size_t len;
};

/*
 * Consumes `fd`, a descriptor that others write to as well: its flags are left as they are. NULL:
 * it is none that can be written to.
 */
struct relay *relay_new(int fd);
/* NULL is fine; returns NULL. */
struct relay *relay_free(struct relay *relay);

/* Passes on the lines that are whole now, and longer ones in pieces. NULL: does nothing. */
void relay_add(struct relay *relay, struct relay_lines *lines, const char *text, size_t len);
/* The process has ended: what is left is its last line. */
void relay_end(struct relay *relay, struct relay_lines *lines);

/* ---- the last of it ------------------------------------------------------------------------- */

enum { LAST_WORDS = 512 }; /* bytes */

/* What a process says: the last is kept for its obituary, all is passed on. */
struct last_words {
    char text[LAST_WORDS + 1];
    size_t len;
    struct relay *relay; /* borrowed; NULL: to nobody */
    struct relay_lines lines;
};

void last_words_add(struct last_words *words, const char *text, size_t len);

/* What is in the pipe still; never waits, as long as the descriptor does not. */
void last_words_read(struct last_words *words, int fd);

/*
 * "; its last output: out of cheese", or "" when there are none: one line without the end of the
 * last one. Valid until the next call; adds nothing more to them.
 */
const char *last_words_told(struct last_words *words, char ret[static LAST_WORDS + 32]);

#endif
