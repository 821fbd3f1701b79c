/*
 * Which steps of a rank have come, and in which order, where later ones may pass one that is not
 * ready (workers.bypass, workers.in_order: false). Pure; of daemon and client.
 *
 * What has come is the first step that has not, and a bit for each of those behind it: at most
 * DL_MAX_BYPASS can have passed it. A step that comes is known by its *place* among those that have
 * not: 0 is the first of them. The places of all that came, one after another, are the order: a
 * *journal*, in runs of equal places. So steps that come in order are one run, and a slow one that
 * n others have passed makes two more.
 */
#ifndef DL_PASSED_H
#define DL_PASSED_H

#include "proto/common/bytes.h"
#include "proto/limits.h"

enum { PASSED_WORDS = (DL_BOUND_BYPASS + 1) / 64, PASSED_BYTES = PASSED_WORDS * 8 };

struct passed {
    uint64_t head;                /* the first step that has not come */
    uint64_t words[PASSED_WORDS]; /* bit i of all: step head + i has; bit 0: never */
};

/* The step has come. */
bool passed_has(const struct passed *passed, uint64_t step);
/* It comes. False, changing nothing: it has come, or more than DL_MAX_BYPASS behind `head`. */
bool _nodiscard_ passed_add(struct passed *passed, uint64_t step);
/* Its place, if it is the next one to come; and the step of that place. */
uint64_t passed_place(const struct passed *passed, uint64_t step);
uint64_t passed_find(const struct passed *passed, uint64_t place);
/* Steps behind `head` that have come. */
uint32_t passed_count(const struct passed *passed);
/* From that step on, which is before neither's head. */
bool passed_agree(const struct passed *a, const struct passed *b, uint64_t step);

/* The bits on the wire: words, u64 little-endian, without those behind the last that is not 0.
 * Returns how many bytes. */
size_t passed_write(const struct passed *passed, uint8_t ret[static PASSED_BYTES]);
/* False unless passed_write() wrote these bytes. */
bool _nodiscard_ passed_read(uint64_t head, struct dl_span bytes, struct passed *ret);

/* ---- journals -------------------------------------------------------------------------------- */

/* Runs: a place and how many in a row have it, each a number of seven bits a byte, the lowest first
 * (LEB128). */
struct journal {
    struct dl_buffer runs;  /* owned; those that are over */
    uint64_t place, repeat; /* the one that is not; repeat 0: there is none */
};

void journal_deinit(struct journal *journal);
/* 0, -ENOMEM, or -E2BIG: it would have more than DL_MAX_JOURNAL_BYTES. */
int _nodiscard_ journal_add(struct journal *journal, uint64_t place);
/* Appends all runs. -ENOMEM. */
int _nodiscard_ journal_write(const struct journal *journal, struct dl_buffer *ret);
/* Appends what is left of these runs without the first `skip` steps. -ENOMEM. */
int _nodiscard_ journal_cut(struct dl_span runs, uint64_t skip, struct dl_buffer *ret);

/* Reads runs that lie elsewhere. */
struct journal_reader {
    struct dl_span rest;
    uint64_t place, repeat;
};

/* The next place, without taking it. False: no place is left, or what follows is no run. */
bool journal_peek(struct journal_reader *reader, uint64_t *ret_place);
/* It was used. */
void journal_take(struct journal_reader *reader);
/* As many steps as are left to be passed, or there are, come, and are taken off *left. False: one
 * cannot. */
bool _nodiscard_ journal_pass(struct journal_reader *reader, uint64_t *left, struct passed *passed);
/* Whether all of it is runs, with places that steps can have. */
bool journal_is_sound(struct dl_span runs);

#endif
