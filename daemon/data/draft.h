/*
 * A draft: the samples of a batch that is being made, with the memory that they point to.
 */
#ifndef DL_DATA_DRAFT_H
#define DL_DATA_DRAFT_H

#include "daemon/data/sample.h"
#include "proto/slot_bad.h"

struct draft { /* all zero: empty */
    struct arena arena;
    struct sample *samples; /* owned; `room` of them, of which `n` are in use */
    uint64_t *numbers;      /* owned; what each is called in messages, and in the batch's indices */
    size_t n;
    size_t room;
    uint32_t repeated;   /* the last ones, which are there for evenness only */
    struct bad_list bad; /* those that came and are not among them */
};

/* The next sample, empty, called `number`; NULL: out of memory. It counts once it is kept. */
struct sample *draft_add(struct draft *draft, uint64_t number);
void draft_keep(struct draft *draft);

void draft_clear(struct draft *draft); /* empty again; keeps its memory */
void draft_deinit(struct draft *draft);

#endif
