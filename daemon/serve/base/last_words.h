/* What a process says on its standard error: the last is kept for its obituary, all passed on. */
#ifndef DL_LAST_WORDS_H
#define DL_LAST_WORDS_H

#include "daemon/serve/base/relay.h"

enum { LAST_WORDS = 512 }; /* bytes */

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
 * "; its last words: out of cheese", or "" when there are none: one line without the end of the
 * last one. Valid until the next call; adds nothing more to them.
 */
const char *last_words_told(struct last_words *words, char ret[static LAST_WORDS + 32]);

#endif
