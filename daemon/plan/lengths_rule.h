/*
 * Which lengths of samples a spec's batches of tokens accept, and how the others are refused. Pure.
 */
#ifndef DL_LENGTHS_RULE_H
#define DL_LENGTHS_RULE_H

#include "daemon/plan/plan_tokens.h"
#include "proto/spec.h"

/* A spec's rules for lengths; a value, so that each thread can have its own. */
struct lengths_rule {
    struct plan_tokens tokens; /* without the lengths themselves */
    enum overlong overlong;
};
struct lengths_rule lengths_rule_of(const struct dl_spec *spec);

/* Bins of a histogram: 0, 1, 2, 3, 4, up to 6, 8, 12, 16, 24 and so on, two for each doubling. */
enum { LENGTHS_BINS = 65 };
uint32_t lengths_bin_of(uint32_t length);
/* The greatest length that bin has. */
uint64_t lengths_bin_upper(uint32_t bin);

struct lengths_found {
    /* Samples that batches leave out, or cut. */
    uint64_t overlong;           /* more tokens than a batch can have */
    uint64_t empty;              /* no token */
    uint64_t bins[LENGTHS_BINS]; /* of all samples: the number in each bin */
};

/*
 * Checks lengths[0..n), those of samples `first` and on: with overlong: error, refuses a sample
 * longer than a batch. 0, or -EINVAL with path, value and remedy. Adds its counts to *found.
 */
int _nodiscard_ lengths_check(const struct lengths_rule *rule, uint64_t first,
                              const uint32_t *lengths, uint64_t n, struct lengths_found *found,
                              struct dl_error *err);

/* -EFBIG if a dataset of `n` samples is too large to be planned in tokens. */
int _nodiscard_ lengths_check_count(uint64_t n, struct dl_error *err);

#endif
