/*
 * Copies what workers write to their standard error to a terminal or file: whole lines, in order,
 * without ever waiting. While the descriptor accepts no output, lines are lost.
 *
 * Main thread only.
 */
#ifndef DL_RELAY_H
#define DL_RELAY_H

#include "proto/common/base.h"

struct relay;

enum { RELAY_BYTES = 4096 }; /* at once: as much as a pipe takes whole or not at all */

/* A process's output since its last whole line; all zero is empty. */
struct relay_lines {
    char text[RELAY_BYTES];
    size_t len;
};

/*
 * Consumes `fd`, a descriptor that others write to as well: its flags stay unchanged. NULL if it
 * cannot be written to.
 */
struct relay *relay_new(int fd);
/* NULL is fine; returns NULL. */
struct relay *relay_free(struct relay *relay);

/* Passes on the lines that are whole now, and longer ones in pieces. NULL: does nothing. */
void relay_add(struct relay *relay, struct relay_lines *lines, const char *text, size_t len);
/* The process has ended: an incomplete line is its last. */
void relay_end(struct relay *relay, struct relay_lines *lines);

/* ---- the last of it ------------------------------------------------------------------------- */

enum { LAST_WORDS = 512 }; /* bytes */

/* A process's output: the last of it is kept for the report of its death, all is passed on. */
struct last_words {
    char text[LAST_WORDS + 1];
    size_t len;
    struct relay *relay; /* borrowed; NULL: not copied */
    struct relay_lines lines;
};

void last_words_add(struct last_words *words, const char *text, size_t len);

/* Reads what is left in the pipe; never waits if the descriptor is non-blocking. */
void last_words_read(struct last_words *words, int fd);

/*
 * "; its last output: out of cheese", or "" without output: one line without the end of the last
 * one. Valid until the next call; adding stops here.
 */
const char *last_words_told(struct last_words *words, char ret[static LAST_WORDS + 32]);

#endif
