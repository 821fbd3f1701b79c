/*
 * Weights of a dataset's samples that are set while it is read, one float64 for each: too many for
 * a message or a state, which name them by a checksum of their bytes. They travel as a sealed memfd
 * (weight_table_map()), and clients keep them in files of that name (shared/weight_files.h).
 *
 * A table is immutable and reference-counted; one thread at a time may count. Little-endian
 * machines.
 */
#ifndef DL_WEIGHT_TABLE_H
#define DL_WEIGHT_TABLE_H

#include "proto/common/error.h"

struct weight_table {
    uint32_t refs;
    uint64_t n;
    uint64_t sum;          /* XXH3-64 of their bytes */
    const double *weights; /* good by weight_table_check() */
    void (*free)(struct weight_table *table);
};

static inline struct weight_table *weight_table_ref(struct weight_table *table)
{
    if (table)
        table->refs++;
    return table;
}

static inline struct weight_table *weight_table_unref(struct weight_table *table)
{
    if (table && --table->refs == 0)
        table->free(table);
    return NULL;
}

static inline void weight_table_unrefp(struct weight_table **table)
{
    weight_table_unref(*table);
}

uint64_t weight_table_sum(const double *weights, uint64_t n);

/* Checks weights by the rules of sampler.weights: 0, or -EINVAL saying which one is wrong, and how.
 * -0 is refused, too, so that a zero has only one encoding. */
int _nodiscard_ weight_table_check(const double *weights, uint64_t n, struct dl_error *err);

/* Consumes `weights`, also on failure, of malloc(), which are good. -ENOMEM. */
int _nodiscard_ weight_table_of(double *weights, uint64_t n, struct weight_table **ret);

/*
 * The pages of a sealed memfd, whose content nobody can change: maps and checks them all, about a
 * nanosecond a byte if they have to come into memory first. Borrows `fd`. -EINVAL with what is
 * wrong: not a sealed memfd, another size, another sum, invalid weights; -ENOMEM.
 */
int _nodiscard_ weight_table_map(int fd, uint64_t n, uint64_t sum, struct weight_table **ret,
                                 struct dl_error *err);
/* Such a memfd of them; negative errno. The caller closes it. */
int _nodiscard_ weight_table_memfd(const double *weights, uint64_t n);

#endif
