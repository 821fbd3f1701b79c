/* The words that there are, for a message, and the one of them that was meant. Pure. */
#ifndef DL_WORD_LIST_H
#define DL_WORD_LIST_H

#include "proto/common/base.h"

/* Words joined by ", ", cut where `text` ends; best: the one nearest to what was written. */
struct word_list {
    char text[512];
    const char *written; /* borrowed */
    const char *best;    /* borrowed; NULL: nothing begins so, or is within two typing errors */
    unsigned distance;
};
void word_list_begin(struct word_list *list, const char *written);
void word_list_add(struct word_list *list, const char *word);

#endif
