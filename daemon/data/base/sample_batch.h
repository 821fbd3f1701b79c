/*
 * The samples of a batch that is being made, with the memory that they point to.
 *
 * Some may be bad: refused by their dataset. workers.on_error decides: skip leaves the sample out;
 * substitute takes the sample of the next index instead, or the next sample of an iterable dataset.
 * This depends only on the dataset, so that a batch is the same in every worker, however often it
 * is made.
 */
#ifndef DL_DATA_SAMPLE_BATCH_H
#define DL_DATA_SAMPLE_BATCH_H

#include "daemon/data/base/sample.h"
#include "proto/slot_bad.h"
#include "proto/spec.h"

struct sample_batch { /* all zero: empty */
    struct arena arena;
    struct sample *samples; /* owned; room for `room`, of which `n` are in use */
    uint64_t *numbers;      /* owned; what each is called in messages, and in the batch's indices */
    size_t n;
    size_t room;
    uint32_t repeated;   /* of the last samples, to make ranks even */
    struct bad_list bad; /* the bad samples, which are not in `samples` */
};

/* The next sample, empty, called `number`; NULL: out of memory. It counts from sample_batch_keep()
 * on. */
struct sample *sample_batch_add(struct sample_batch *batch, uint64_t number);
void sample_batch_keep(struct sample_batch *batch);

void sample_batch_clear(struct sample_batch *batch); /* empty again; keeps its memory */
void sample_batch_deinit(struct sample_batch *batch);

/* ---- bad samples ---------------------------------------------------------------------------- */

enum {
    BAD_FURTHER = 16,     /* indices that are tried in place of a bad one */
    BAD_IN_A_ROW = 65536, /* bad samples in a row, after which a replica ends */
};

/*
 * Whether the error is the sample's fault. It is not when memory or descriptors are short, nor when
 * the dataset wants to end the process (ECANCELED).
 */
bool bad_is_sample(const struct dl_error *err);

/* The error of a batch with only bad samples: the first one's, with the names of all. */
int bad_nothing_left(const struct bad_list *list, struct dl_error *err);

#endif
