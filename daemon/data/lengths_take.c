#include "daemon/data/lengths_take.h"

#include "daemon/cache/lengths_cache.h"
#include "daemon/data/collate/lengths.h"
#include "daemon/plan/lengths_rule.h"
#include "proto/common/clock.h"

#include <errno.h>

enum {
    LENGTHS_AT_ONCE = 4096,               /* samples, between two words of progress */
    LENGTHS_WORTH_NS = 250 * 1000 * 1000, /* what took less is not worth a file in the cache */
};

static int lengths_take_scan(struct dataset *ds, const struct dl_spec *spec,
                             const struct data_env *env, uint32_t *lengths, struct dl_error *err)
{
    struct lengths_wanted w = {.leaf = spec->batch.length_of};
    int r = 0;

    w.ret = lengths;
    for (; w.first < ds->length && r == 0; w.first += w.n, w.ret += w.n) {
        w.n = min_u64(ds->length - w.first, LENGTHS_AT_ONCE);
        r = dataset_lengths(ds, &w, err);
        if (r == 0)
            data_tell(env, "lengths", w.first + w.n, ds->length);
    }
    return r;
}

int lengths_take(struct dataset *ds, const struct dl_spec *spec, const struct data_env *env,
                 const char *dir, uint32_t **ret, struct dl_error *err)
{
    struct lengths_rule rule = lengths_rule_of(spec);
    int r = lengths_check_count(ds->length, err);

    if (r < 0)
        return r;
    _cleanup_free_ uint32_t *lengths = calloc(max_u64(ds->length, 1), sizeof *lengths);
    struct lengths_found found = {0};
    uint64_t fingerprint = 0, began = clock_ns();

    if (!lengths)
        return dl_error_set(err, ENOMEM, "batch.tokens", "out of memory for the samples' lengths");
    if (dir && *dir)
        fingerprint = lengths_fingerprint(&spec->dataset, spec->batch.length_of, env);
    if (!fingerprint || lengths_cache_load(dir, fingerprint, ds->length, lengths) < 0) {
        r = lengths_take_scan(ds, spec, env, lengths, err);
        if (r == 0 && fingerprint && clock_ns() - began > LENGTHS_WORTH_NS)
            /* A cache that cannot be written is no loss but of time. */
            (void)!lengths_cache_store(dir, fingerprint, ds->length, lengths, NULL);
    }
    if (r == 0)
        r = lengths_check(&rule, 0, lengths, ds->length, &found, err);
    if (r == 0)
        *ret = steal_ptr(lengths);
    return r;
}
