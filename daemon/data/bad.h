/*
 * Bad samples: those that their dataset refuses, and what workers.on_error makes of them. Skip
 * leaves one out. Substitute takes the sample of the next index in its place, of an iterable
 * dataset the one that comes next. What is done depends on the dataset alone, so that batches are
 * the same whoever makes them, and how often.
 */
#ifndef DL_DATA_BAD_H
#define DL_DATA_BAD_H

#include "proto/slot_bad.h"
#include "proto/spec.h"

enum {
    BAD_FURTHER = 16,     /* indices that are tried in place of a bad one */
    BAD_IN_A_ROW = 65536, /* samples of a replica, after which nothing good is waited for */
};

/*
 * Whether the error is that of one sample. Memory and descriptors that are short are nobody's: the
 * sample may be as good as any. Nor is it one when the dataset wants to end the process
 * (ECANCELED).
 */
bool bad_is_sample(const struct dl_error *err);

/* The error of a batch of which nothing is left: that of its first bad sample, naming them. */
int bad_nothing_left(const struct bad_list *list, struct dl_error *err);

#endif
