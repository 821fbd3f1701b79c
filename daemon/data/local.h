/*
 * Loading in one's own process: a spec's whole pipeline without daemon and workers, batch by batch
 * into memory of the caller's. The batches are those that a daemon with spec.workers workers would
 * deliver, in the same order and with the same bytes (1 worker where it says 0).
 *
 * Not thread-safe. Blocks while it loads.
 */
#ifndef DL_LOCAL_H
#define DL_LOCAL_H

#include "daemon/data/fetch.h"
#include "proto/history.h"
#include "proto/mix_changes.h"
#include "proto/shared/quarantine.h"

struct local;      /* an open dataset */
struct local_pass; /* one rank's pass over one epoch */

/* `spec` and `env` are borrowed for the life of the result; env->worker is set here. */
int _nodiscard_ local_new(const struct dl_spec *spec, const struct data_env *env,
                          struct local **ret, struct dl_error *err);
struct local *local_free(struct local *local); /* its passes are ended; NULL is fine */

bool local_is_iterable(const struct local *local);
uint64_t local_length(const struct local *local); /* or DATASET_LENGTH_UNKNOWN */
bool local_can_skip(const struct local *local);
uint64_t local_content(const struct local *local);    /* that of the dataset */
uint64_t local_slot_bytes(const struct local *local); /* to begin with */

struct local_where {
    uint64_t epoch;
    uint32_t rank;
    uint32_t world;
    uint64_t step;               /* to begin with */
    struct history before;       /* what other world sizes had of the epoch */
    struct mix_changes *changes; /* borrowed; changed weights of a mixture; NULL: none */
    struct dl_span state; /* of the one replica there is then, a record (proto/dataset_state.h) to
                             begin  with; empty: none. Copied */
};

/* -EINVAL, -ENOMEM with `err`. */
int _nodiscard_ local_start(struct local *local, const struct local_where *where,
                            struct local_pass **ret, struct dl_error *err);
struct local_pass *local_end(struct local_pass *pass); /* NULL is fine; returns NULL */

/* Of the whole epoch, for this rank; DATASET_LENGTH_UNKNOWN. */
uint64_t local_steps(const struct local_pass *pass);
uint64_t local_samples(const struct local_pass *pass);

/*
 * Of a pass whose sampler is the client (sampler.kind client): the next step is these indices,
 * which are copied; at most batch.size of them, at least 1. Without it local_next() says -ENODATA.
 */
int _nodiscard_ local_feed(struct local_pass *pass, const uint64_t *indices, size_t n,
                           struct dl_error *err);
void local_feed_end(struct local_pass *pass); /* the order ends with what was fed */

#define LOCAL_END 1

/*
 * Makes the next batch in `slot` (64-byte aligned, `bytes` long): 0, its step and how much of the
 * slot it uses; LOCAL_END; -ENOBUFS and *ret_used = bytes needed: the same batch comes when asked
 * for with more; -ENODATA: see local_feed(); else the error of step *ret_step, after which the next
 * call goes on with the next one.
 */
int _nodiscard_ local_next(struct local_pass *pass, void *slot, uint64_t bytes, uint64_t *ret_step,
                           uint64_t *ret_used, struct dl_error *err);

/* Of the batch made last: how many of its samples, the last ones, only even the ranks out. */
uint32_t local_repeated(const struct local_pass *pass);
/* The bad samples of all batches so far, where workers.on_error lets them pass; borrowed. */
const struct quarantine *local_quarantine(const struct local *local);

/* What is to be said of the batch that local_next() has made: of samples that were bad for the
 * first time, the last. NULL: nothing. Borrowed until the next call. */
const char *local_warning(const struct local *local);

/* After -ENOBUFS: the step is given up, and local_next() goes on with the next one. */
void local_skip(struct local_pass *pass);

#endif
