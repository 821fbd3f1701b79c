/*
 * Texts about a step for people, used by the daemon and by clients that load in their own process.
 * Pure.
 */
#ifndef DL_WORDS_H
#define DL_WORDS_H

#include "proto/dataset_state.h"
#include "proto/shared/quarantine.h"

/* "step 7 of epoch 0 ", and how many bytes that are. Cut to `len`, which is 64 or more. */
size_t words_step(uint64_t step, uint64_t epoch, char *text, size_t len);

/* "(samples 3, 9, …, 256 in all)": the first few indices, cut to `len`, which is 256 or more. */
void words_samples(const uint64_t *indices, uint32_t n, char *text, size_t len);

/* What it costs to resume an epoch at a step of `batch` samples. */
void words_passing(const char *dataset, uint64_t step, uint64_t batch, char *text, size_t len);

/* The dataset knows its own place, but that cannot be kept. */
void words_state_lost(enum dataset_state_loss why, char *text, size_t len);

/* How many times as fast: "2.50"; "> 20" where it is more, as of a trainer that computes next to
 * nothing: then the figure is chance. 16 bytes are enough. */
void words_times(double times, char *text, size_t len);

struct tree_node;

/* Explains why a batch of `samples` samples with `leaf` as node `number` cannot be dispatched. */
void words_no_rows(const struct tree_node *leaf, uint32_t number, uint64_t samples, char *text,
                   size_t len);

/* PyTorch's warning when len() of an iterable dataset was exceeded; `dataset` names it. */
void words_too_many(const char *dataset, uint64_t length, uint64_t samples, char *text, size_t len);

/* "sample 3 is left out of its batch: ...", when it is bad for the first time; cut to `len`. */
void words_bad(const struct bad_sample *sample, const struct quarantine *all, bool skipped,
               char *text, size_t len);

#endif
