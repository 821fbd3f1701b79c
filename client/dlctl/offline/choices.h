/*
 * What batches of tokens a dataset's lengths make, by strategy and interval: what `dlctl lengths`
 * compares. Each is a real plan of one epoch for one rank.
 */
#ifndef DLCTL_CHOICES_H
#define DLCTL_CHOICES_H

#include "daemon/plan/plan.h"
#include "proto/spec.h"

enum {
    CHOICES_MAX = 9,
    CHOICES_SAMPLES = 200000, /* planned at most: of more, some are drawn */
};

struct choice {
    enum batch_strategy strategy; /* 0: packed into rows */
    uint64_t interval;            /* of buckets; else 0 */
    struct plan_totals totals;    /* of an epoch; of those drawn, as far as all would make it */
};

struct choices {
    struct choice rows[CHOICES_MAX];
    uint32_t n; /* 0: no sample fits a batch, however it is made */
    uint64_t batch_tokens;
    uint64_t planned; /* samples; fewer than there are: the totals are extrapolated from these */
    uint32_t best;    /* the fullest of the others and `wide` */
    uint32_t wide; /* of buckets: the widest interval within one point of the fullest; UINT32_MAX:
                      there is no row of buckets */
};

/*
 * `spec` measures batches in tokens; its sampler, padding and limits are used, and it need not be
 * complete otherwise. 0; -EINVAL, -ENOMEM with `err`.
 */
int _nodiscard_ choices_make(const struct dl_spec *spec, const uint32_t *lengths, uint64_t n,
                             struct choices *ret, struct dl_error *err);

/* Of the padded tokens, the share that is padding; and of what `groups` batches could hold, the
 * share that are tokens: batches that are not full waste too. */
double choice_padding(const struct choice *choice);
double choice_fill(const struct choice *choice, uint64_t batch_tokens);

#endif
