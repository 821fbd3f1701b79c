#include "daemon/serve/base/last_words.h"

#include <stdio.h>

void last_words_add(struct last_words *words, const char *text, size_t len)
{
    relay_add(words->relay, &words->lines, text, len);
    if (len > LAST_WORDS / 2) {
        memcpy(words->text, text + len - LAST_WORDS / 2, LAST_WORDS / 2);
        words->len = LAST_WORDS / 2;
        return;
    }
    if (words->len + len > LAST_WORDS) {
        size_t keep = LAST_WORDS - len;
        memmove(words->text, words->text + words->len - keep, keep);
        words->len = keep;
    }
    memcpy(words->text + words->len, text, len);
    words->len += len;
}

void last_words_read(struct last_words *words, int fd)
{
    char text[LAST_WORDS];
    ssize_t n;

    /* More than it could have said within the pipe's size is said by somebody else. */
    for (int i = 0; i < 256 && (n = read(fd, text, sizeof text)) > 0; i++)
        last_words_add(words, text, (size_t)n);
}

const char *last_words_told(struct last_words *words, char ret[static LAST_WORDS + 32])
{
    relay_end(words->relay, &words->lines);
    while (words->len > 0 && (uint8_t)words->text[words->len - 1] <= ' ')
        words->len--;
    words->text[words->len] = '\0';
    for (size_t i = 0; i < words->len; i++) {
        if (words->text[i] == '\n')
            words->text[i] = ' ';
    }
    snprintf(ret, LAST_WORDS + 32, "%s%s", words->len ? "; its last words: " : "", words->text);
    return ret;
}
