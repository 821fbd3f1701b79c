#include "proto/weight_table.h"

#include "proto/common/sealed.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t weight_table_sum(const double *weights, uint64_t n)
{
    return XXH3_64bits(weights, n * sizeof *weights);
}

int weight_table_check(const double *weights, uint64_t n, struct dl_error *err)
{
    double sum = 0;
    char place[64];

    for (uint64_t i = 0; i < n; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i]) || signbit(weights[i])) {
            (void)snprintf(place, sizeof place, "weights.%" PRIu64, i);
            return dl_error_set(err, EINVAL, place, "%g is not a finite, non-negative number",
                                weights[i]);
        }
        sum += weights[i];
    }
    if (sum == 0)
        return dl_error_set(err, EINVAL, "weights",
                            "all weights are 0; at least one must be positive");
    if (isinf(sum))
        return dl_error_set(err, EINVAL, "weights",
                            "their sum exceeds the largest float64; scale them down");
    return 0;
}

/* ---- in private memory ---------------------------------------------------------------------- */

static void weight_table_free(struct weight_table *table)
{
    free((double *)table->weights);
    free(table);
}

int weight_table_of(double *weights, uint64_t n, struct weight_table **ret)
{
    struct weight_table *table = calloc(1, sizeof *table);

    if (!table) {
        free(weights);
        return -ENOMEM;
    }
    *table = (struct weight_table){.refs = 1,
                                   .n = n,
                                   .sum = weight_table_sum(weights, n),
                                   .weights = weights,
                                   .free = weight_table_free};
    *ret = table;
    return 0;
}

/* ---- in a sealed memfd ----------------------------------------------------------------------- */

static void weight_table_unmap(struct weight_table *table)
{
    munmap((double *)table->weights, table->n * sizeof *table->weights);
    free(table);
}

static int weight_table_check_fd(int fd, uint64_t n, struct dl_error *err)
{
    uint64_t bytes;
    int r = sealed_size(fd, &bytes);

    if (r == -EINVAL)
        return dl_error_set(
            err, EINVAL, "weights",
            "are not in a memfd that is sealed against writing, shrinking and growing");
    if (r < 0)
        return dl_error_set(err, -r, "weights", "cannot be read: %s", strerror(-r));
    if (n == 0 || n > UINT32_MAX || bytes != n * sizeof(double))
        return dl_error_set(err, EINVAL, "weights",
                            "are %" PRIu64 " bytes, not %" PRIu64 " numbers of 8 bytes each", bytes,
                            n);
    return 0;
}

int weight_table_map(int fd, uint64_t n, uint64_t sum, struct weight_table **ret,
                     struct dl_error *err)
{
    int r = weight_table_check_fd(fd, n, err);

    if (r < 0)
        return r;
    struct weight_table *table = calloc(1, sizeof *table);
    void *at = table ? mmap(NULL, n * sizeof(double), PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0)
                     : MAP_FAILED;
    if (at == MAP_FAILED) {
        free(table);
        return dl_error_set(err, ENOMEM, "weights", "no memory to map %" PRIu64 " of them", n);
    }
    *table = (struct weight_table){
        .refs = 1, .n = n, .sum = sum, .weights = at, .free = weight_table_unmap};
    if (weight_table_sum(table->weights, n) != sum)
        r = dl_error_set(err, EINVAL, "weights", "are not those that were named");
    if (r == 0)
        r = weight_table_check(table->weights, n, err);
    if (r < 0) {
        weight_table_unmap(table);
        return r;
    }
    *ret = table;
    return 0;
}

int weight_table_memfd(const double *weights, uint64_t n)
{
    return sealed_new("dloader-weights", weights, n * sizeof *weights);
}
