/*
 * The samples of a batch that is being made, with the memory that they point to.
 *
 * Some of them may be bad: refused by their dataset. workers.on_error says what becomes of these.
 * Skip leaves one out. Substitute takes the sample of the next index in its place, of an iterable
 * dataset the one that comes next. What is done depends on the dataset alone, so that batches are
 * the same whoever makes them, and how often.
 */
#ifndef DL_DATA_SAMPLE_BATCH_H
#define DL_DATA_SAMPLE_BATCH_H

#include "daemon/data/sample.h"
#include "proto/slot_bad.h"
#include "proto/spec.h"

struct sample_batch { /* all zero: empty */
    struct arena arena;
    struct sample *samples; /* owned; `room` of them, of which `n` are in use */
    uint64_t *numbers;      /* owned; what each is called in messages, and in the batch's indices */
    size_t n;
    size_t room;
    uint32_t repeated;   /* the last ones, which are there for evenness only */
    struct bad_list bad; /* those that came and are not among them */
};

/* The next sample, empty, called `number`; NULL: out of memory. It counts once it is kept. */
struct sample *sample_batch_add(struct sample_batch *batch, uint64_t number);
void sample_batch_keep(struct sample_batch *batch);

void sample_batch_clear(struct sample_batch *batch); /* empty again; keeps its memory */
void sample_batch_deinit(struct sample_batch *batch);

/* ---- bad samples ---------------------------------------------------------------------------- */

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
