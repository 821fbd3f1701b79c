/*
 * Which lengths of samples a spec's batches of tokens are made of, and what is said of the others.
 * Pure.
 */
#ifndef DL_LENGTHS_RULE_H
#define DL_LENGTHS_RULE_H

#include "daemon/plan/plan_tokens.h"
#include "proto/spec.h"

/* What a spec says of lengths; a value, so that a thread may have one of its own. */
struct lengths_rule {
    struct plan_tokens tokens; /* without the lengths themselves */
    enum overlong overlong;
};
struct lengths_rule lengths_rule_of(const struct dl_spec *spec);

/* Samples that batches leave out, or cut. */
struct lengths_found {
    uint64_t overlong; /* more tokens than a batch can have */
    uint64_t empty;    /* no token */
};

/*
 * What there is to be refused in lengths[0..n), those of samples `first` and on: with overlong:
 * error one of more than a batch can have. 0, or -EINVAL with path, value and remedy. What is left
 * out or cut is added to *found.
 */
int _nodiscard_ lengths_check(const struct lengths_rule *rule, uint64_t first,
                              const uint32_t *lengths, uint64_t n, struct lengths_found *found,
                              struct dl_error *err);

/* A dataset of so many samples cannot be planned in tokens: -EFBIG. */
int _nodiscard_ lengths_check_count(uint64_t n, struct dl_error *err);

#endif
